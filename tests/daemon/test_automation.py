"""A daemon with rules: killed in the middle of a run and of a question, and what a run may do to Harken itself.

The agent is a program that prints what Gemini CLI prints; what the real hosts do is tried in `tests/hosts`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from harken.testing import CallFailed
from harken.testing.daemon import Json
from tests.fake_host import Machine, machine_with_host
from tests.loss.rig import DaemonStarter, Served, until

# Does what the prompt says: `run WORDS` runs harken with them, `hold` waits for ever.
PROGRAM = f"""#!{sys.executable}
import json, signal, subprocess, sys
def say(**event):
    print(json.dumps(event), flush=True)
for line in sys.stdin.read().splitlines():
    if line.startswith("run "):
        command = [{sys.executable!r}, "-I", "-m", "harken", *line.split()[1:]]
        done = subprocess.run(command, capture_output=True, text=True)
        say(type="message", role="assistant", content=f"{{done.returncode}} {{done.stderr.strip()[:200]}}")
    if line == "hold":
        say(type="tool_use", tool_name="read_file", tool_id="1", parameters={{}})
        signal.pause()
say(type="result", status="success")
"""

# What a run is talked into, by the name of the rule that lets it.
WORDS: Final = {
    "reload": "rules reload",
    "pause": "channel pause",
    "confirm": "channel confirm a-000000",
    "run": "channel run 1 --yes",
    "allow": "allow stranger",
    "pair": "pair",
    "send": "send --from you hello",
    "pull": "pull",
}


@pytest.fixture(scope="module")
def machine(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Daemons on a machine where Gemini CLI seems to be installed."""
    return machine_with_host(starter, tmp_path_factory.mktemp("machine"), PROGRAM)


@contextmanager
def ruled(machine: Machine, home: Path, *rules: Mapping[str, object]) -> Iterator[Served]:
    """Serve a home with these rules."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text("[toasts]\nenabled = false\n", encoding="utf-8")
    file = home / "triggers.json"
    file.write_text(json.dumps({"rules": rules}))
    file.chmod(0o600)
    with machine.daemon(home) as daemon:
        yield daemon.start()


def rule(name: str, prompt: str, **more: object) -> Mapping[str, object]:
    """Return a rule that runs by itself."""
    return {"name": name, "mode": "auto", "agent": "gemini-cli", "tools": ["read_file"], "prompt": prompt, **more}


def the_run(daemon: Served, state: str, *, of: str = "") -> Json:
    """Return the run in a state, once there is one."""

    def look() -> Json:
        found = [each for each in daemon.call("runs")["runs"] if each["state"] == state and of in ("", each["rule"])]
        return found[0] if found else None

    return until(look, f"a run that is {state}")


def decided(daemon: Served, message: str) -> Mapping[str, str]:
    """Return what each rule decided about a message, once all did."""

    def look() -> Json:
        return daemon.call("rules_explain", message=message)["decided"]

    return {each["rule"]: each["outcome"] for each in until(look, "a verdict")}


def test_run_that_a_killed_daemon_left_is_interrupted_ended_and_not_begun_again(machine: Machine, home: Path) -> None:
    """Nobody knows how far it came: doing it again by itself may do harm, and leaving it alone too."""
    with ruled(machine, home, rule("hold", "hold", channel="ci")) as daemon:
        daemon.call("send", text="red", sender="bot", channel="ci")
        run = the_run(daemon, "running")
        output = until(lambda: daemon.call("run_output", run=run["id"], after=1)["lines"], "its words")
        assert output[0]["tool"] == "read_file"
        processes = psutil.Process(daemon.pid).children(recursive=True)
        agent = [each for each in processes if "gemini" in " ".join(each.cmdline())][-1]
        daemon.kill()
        daemon.start()
        after = the_run(daemon, "interrupted")
        assert (after["id"], after["reason"]) == (run["id"], "the daemon ended while it ran")
        agent.wait(30)
        daemon.call("send", text="green", sender="bot", channel="other")
        assert [each["id"] for each in daemon.call("runs")["runs"]] == [run["id"]]
        assert daemon.call("actions")["actions"][0]["state"] == "started"


def test_question_outlives_the_daemon_and_is_answered_once(machine: Machine, home: Path) -> None:
    """A yes that was given must count, and count once, whatever was killed meanwhile."""
    ask = {**rule("ask", "run version", channel="ci"), "mode": "confirm"}
    with ruled(machine, home, ask) as daemon:
        daemon.call("send", text="red", sender="bot", channel="ci")
        (action,) = until(lambda: daemon.call("actions", state="waiting")["actions"], "the question")
        daemon.kill()
        daemon.start()
        (again,) = daemon.call("actions", state="waiting")["actions"]
        assert (again["id"], again["expires_at"]) == (action["id"], action["expires_at"])
        daemon.call("confirm", action=action["id"], yes=True)
        daemon.kill()
        daemon.start()
        # It may have begun before the second kill: then it is interrupted, and still the only one.
        until(lambda: [each for each in daemon.call("runs")["runs"] if each["state"] != "running"], "an end")
        for answer in (True, False):
            with pytest.raises(CallFailed) as failed:
                daemon.call("confirm", action=action["id"], yes=answer)
            assert failed.value.error["code"] == "conflict"
        assert len(daemon.call("runs")["runs"]) == 1


@pytest.fixture(scope="module")
def talked_into(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon whose rules each run one of the commands, by the name of its channel."""
    home = tmp_path_factory.mktemp("automation") / "home"
    rules = [rule(name, f"run --home {home} {words}", channel=name) for name, words in WORDS.items()]
    with ruled(machine, home, *rules) as daemon:
        yield daemon


@pytest.mark.parametrize("name", WORDS)
def test_run_may_not_change_what_rules_and_people_decide(talked_into: Served, name: str) -> None:
    """A message that talks an agent into something must not get authority by it, not even with a shell."""
    talked_into.call("send", text="red", sender="bot", channel=name)
    run = the_run(talked_into, "done", of=name)
    refused = "7 "  # the exit code of what is refused
    assert run["answer"].startswith(refused), run["answer"]


def test_word_of_a_run_is_a_strangers_and_never_triggers_its_own_rule(machine: Machine, home: Path) -> None:
    """A rule that answers itself would go on for ever."""
    say = f"run --home {home} send --channel ci again"
    tell = {"name": "tell", "channel": "ci"}
    with ruled(
        machine, home, rule("say", say, channel="ci", trust="unknown"), tell, rule("known", say, channel="ci")
    ) as daemon:
        daemon.call("send", text="red", sender="bot", channel="ci")
        run = the_run(daemon, "done", of="say")
        said = until(lambda: _said_by(daemon, run["id"]), "what the run said")
        assert (said["trust"], said["from"]) == ("unknown", f"run {run['id']}")
        outcomes = decided(daemon, said["id"])
        assert (outcomes["say"], outcomes["tell"], outcomes["known"]) == ("loop", "fired", "not trusted")


def _said_by(daemon: Served, run: str) -> Json:
    found = daemon.call("list", limit=50)["messages"]
    return next((each for each in found if each["sender_id"] == f"run:{run}"), None)


def test_chain_of_runs_has_an_end(machine: Machine, home: Path) -> None:
    """Two rules that trigger each other are found out, too; so is a longer round."""
    names = ["a", "b", "c", "d"]
    rules = [
        rule(each, f"run --home {home} send --channel {after} on", channel=each, trust="unknown")
        for each, after in zip(names, [*names[1:], "e"], strict=True)
    ]
    with ruled(machine, home, *rules) as daemon:
        daemon.call("send", text="go", sender="bot", channel="a")
        last = the_run(daemon, "done", of="c")
        said = until(lambda: _said_by(daemon, last["id"]), "what the last run said")
        assert decided(daemon, said["id"]) == {"d": "chain too long"}
        assert sorted(each["rule"] for each in daemon.call("runs")["runs"]) == ["a", "b", "c"]


def test_answer_of_a_run_goes_back_to_where_the_message_came_from(machine: Machine, home: Path) -> None:
    """Whoever asked is told, on the channel where they asked."""
    with ruled(machine, home, rule("answer", "run version", channel="ask", reply=True)) as daemon:
        sent = daemon.call("send", text="which version", sender="colleague", channel="ask")
        run = the_run(daemon, "done")
        reply = until(lambda: _reply_to(daemon, sent["id"]), "the reply")
        assert (reply["from"], reply["content_text_sanitized"]) == (f"run:{run['id']}", run["answer"])
        ledger = daemon.call("read", ref=sent["id"])["ledger"]
        assert [each["state"] for each in ledger if each["consumer"] == "rules"] == ["answered"]
        assert "rules" not in {each["consumer"] for each in daemon.call("status")["consumers"]}


def _reply_to(daemon: Served, message: str) -> Json:
    found = daemon.call("list", mailbox="replies")["messages"]
    return next((each for each in found if each["refers_to"] == message), None)
