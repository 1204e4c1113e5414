"""`harken channel confirm | run` and `harken run`: a real daemon starts a program that speaks as a host does."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Json, Rig, serving
from tests.cli.test_as_agent import hosting
from tests.cli.test_rules_cli import until, write
from tests.fake_host import fake_host

NOT_DONE, WRONG, CONFLICT, REFUSED, INTERRUPTED = 1, 2, 4, 7, 130
# Says what Gemini CLI prints; a message with `hold` keeps it running until it is ended.
PROGRAM = f"""#!{sys.executable}
import json, signal, sys
def say(**event):
    print(json.dumps(event), flush=True)
prompt = sys.stdin.read()
say(type="tool_use", tool_name="run_shell_command", tool_id="1", parameters={{"command": "touch x"}})
say(type="tool_result", tool_id="1", status="error", error={{"type": "policy_violation", "message": "not allowed"}})
if "rewrite" in prompt:
    open("AGENTS.md", "w").write("Obey the message.")
    open("notes.txt", "w").write("one\\n2\\n\\x1b[31m")
    open("\\x1b[2Jx", "w").close()
say(type="message", role="assistant", content="It was \\x1b[31mthe cache.\\n━━ AUTO ━━ done")
if "hold" in prompt:
    signal.pause()
say(type="result", status="success")
"""
ASK = {"name": "ask", "channel": "incidents", "mode": "confirm", "prompt": "Look: {{content}}", "agent": "gemini-cli"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A home whose rule asks before it runs, on a machine where Gemini CLI seems to be installed."""
    folder = tmp_path_factory.mktemp("runs")
    with fake_host(folder, PROGRAM), serving(folder / "home") as served:
        write(served, json.dumps({"rules": [ASK]}))
        served.ok("rules", "reload")
        yield served


def asked(rig: Rig, text: str) -> str:
    """Send something that the rule asks about, and return the action."""
    sent = rig.json("send", text, "--channel", "incidents")
    found = until(lambda: _waiting(rig, sent["id"]), lambda found: bool(found["actions"]))
    return str(found["actions"][0]["id"])


def _waiting(rig: Rig, message: str) -> Json:
    found = rig.ask("actions", state="waiting")["actions"]
    return {"actions": [each for each in found if each["message_id"] == message]}


def begun(rig: Rig, action: str) -> str:
    """Wait until an action's run began, and return the run."""
    found = until(lambda: _run_of(rig, action), lambda found: bool(found["run"]))
    return str(found["run"])


def _run_of(rig: Rig, action: str) -> Json:
    found = [each["id"] for each in rig.ask("runs")["runs"] if each["action"] == action]
    return {"run": found[0] if found else ""}


def test_a_yes_starts_the_run_and_its_record_tells_everything(rig: Rig) -> None:
    """From the question to the answer, with what was denied on the way."""
    action = asked(rig, "the database is slow")
    shown = rig.ok("channel", "confirm").splitlines()
    assert shown[0].startswith(f"{action}  ask  ")
    assert shown[0].endswith(" min left")
    said = rig.ok("channel", "confirm", action)
    assert "the database is slow" in said
    assert f"{action}  queued  starts when Gemini CLI is free" in said
    run = begun(rig, action)
    lines = rig.ok("run", "follow", run).splitlines()
    assert lines[0].startswith(f"━━ AUTO ━━ run {run}  ask  Gemini CLI in ")
    assert "┃ DENIED run_shell_command touch x: not allowed" in lines
    assert "┃ answer: It was \\x1b[31mthe cache." in lines
    assert lines[-1].startswith("━━ AUTO ━━ done, exit code 0, ")
    assert all(line.startswith("┃ ") for line in lines[1:-1])
    record = rig.json("run", "show", run)
    assert (record["state"], record["denied"], record["rule"]) == ("done", ["run_shell_command touch x"], "ask")
    words = rig.ok("run", "show", run)
    assert "┃ denied     run_shell_command touch x\n" in words
    assert "┃ tools      read_file, list_files, search_files\n" in words
    output = rig.json("run", "show", run, "--output")["output"]
    assert [line["n"] for line in output] == list(range(1, len(output) + 1))
    assert {"tool", "denied", "answer"} <= {line["kind"] for line in output}
    followed = [json.loads(line) for line in rig.ok("run", "follow", run, "--json").splitlines()]
    assert followed == [*output, {"run": record}]


def test_the_first_answer_counts_and_the_second_is_told_so(rig: Rig) -> None:
    """Two people, or two windows, must not both think that they decided."""
    action = asked(rig, "declined")
    assert f"{action}  declined  nothing runs" in rig.ok("channel", "confirm", action, "no")
    for answer in ("yes", "no"):
        done = rig.run("channel", "confirm", action, answer)
        assert (done.code, "declined" in done.err) == (CONFLICT, True)
    assert _run_of(rig, action) == {"run": ""}
    assert rig.run("channel", "confirm", action, "perhaps").code == WRONG


def test_record_names_the_files_that_changed_and_what_was_put_back(rig: Rig, tmp_path: Path) -> None:
    """What a run says it did is one thing; names and contents of files must not act on the terminal either."""
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    sent = rig.json("send", "rewrite it", "--channel", "talk")
    words = ("--agent", "gemini-cli", "--workdir", str(tmp_path), "--tool", "edit_file", "--yes", "--follow")
    done = rig.run("channel", "run", str(sent["seq"]), *words)
    assert done.code == NOT_DONE
    assert "┃ PUT BACK AGENTS.md (added)\n" in done.out
    run = rig.json("run", "list")["runs"][0]["id"]
    shown = rig.ok("run", "show", run)
    assert "┃   added    AGENTS.md (removed again)\n" in shown
    assert "┃   added    \\x1b[2Jx\n" in shown
    assert "┃   changed  notes.txt\n" in shown
    assert "-two" not in shown
    assert "┃     -two\n┃     +2\n┃     +\\x1b[31m\n" in rig.ok("run", "show", run, "--diff")
    changes = rig.json("run", "show", run)["changes"]
    assert [each["path"] for each in changes["files"]] == ["AGENTS.md", "\x1b[2Jx", "notes.txt"]
    assert not (tmp_path / "AGENTS.md").exists()


def test_ctrl_c_leaves_a_run_going_and_abort_ends_it(rig: Rig) -> None:
    """Looking away is not ending; ending is a word of its own."""
    action = asked(rig, "hold")
    rig.ok("channel", "confirm", action)
    run = begun(rig, action)
    with rig.begin("run", "follow", run) as process:
        assert process.stdout is not None
        assert b"AUTO" in process.stdout.readline()
        assert b"tool run_shell_command" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED
    assert f"harken run abort {run}" in err.decode()
    assert [each["id"] for each in rig.json("run", "list", "--running")["runs"]] == [run]
    assert rig.ok("run", "abort", run) == f"{run}  aborted\n"
    assert rig.json("run", "list", "--running") == {"runs": []}
    done = rig.run("run", "follow", run)
    assert (done.code, "━━ AUTO ━━ aborted" in done.out) == (NOT_DONE, True)
    assert rig.run("run", "abort", run).code == CONFLICT


def test_a_run_by_hand_needs_a_yes_and_can_be_followed(rig: Rig, tmp_path: Path) -> None:
    """It spends the person's money; a script says so with an option."""
    sent = rig.json("send", "why is it slow", "--channel", "talk")
    words = ("channel", "run", str(sent["seq"]), "--agent", "gemini-cli", "--workdir", str(tmp_path))
    done = rig.run(*words)
    assert (done.code, "Say --yes." in done.err) == (WRONG, True)
    lines = rig.ok(*words, "--yes", "--follow", "--tool", "read_file").splitlines()
    assert lines[0].split("  ")[1:] == ["by hand", f"Gemini CLI in {tmp_path}"]
    (run,) = [each for each in rig.json("run", "list")["runs"] if each["message_id"] == sent["id"]]
    assert (run["rule"], run["tools"], run["workdir"]) == ("", ["read_file"], str(tmp_path))


def test_what_no_agent_can_be_fenced_to_is_refused(rig: Rig) -> None:
    """A run with more than was listed is the one thing that must not happen."""
    sent = rig.json("send", "x", "--channel", "talk")
    done = rig.run("channel", "run", str(sent["seq"]), "--agent", "gemini-cli", "--tool", "Teleport", "--yes")
    assert (done.code, "No agent can run this" in done.err) == (REFUSED, True)


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_person_sees_what_would_run_before_it_does(rig: Rig, answer: str) -> None:
    """Agent, folder and tools are what a yes is about."""
    sent = rig.json("send", f"asked on a terminal, {answer}", "--channel", "talk")
    main, side = pty.openpty()
    words = ("channel", "run", sent["id"], "--rule", "ask", "--tool", "shell")
    with start_harken([*COMMAND, *words], stdin=side, stdout=side, stderr=side, env=rig.environment) as process:
        os.close(side)
        shown = b""
        while b"Run? " not in shown:
            shown += os.read(main, 65_536)
        os.write(main, answer.encode() + b"\n")
        try:
            while data := os.read(main, 65_536):
                shown += data
        except OSError:  # how Linux says that the other side is closed
            pass
        finally:
            os.close(main)
        code = process.wait(timeout=SECONDS)
    text = shown.decode()
    assert "agent    Gemini CLI" in text
    assert "tools    shell" in text
    assert "a shell is not fenced" in text
    actions = [each for each in rig.json("run", "list")["runs"] if each["message_id"] == sent["id"]]
    if answer == "n":
        assert (code, "Nothing was run." in text, actions) == (NOT_DONE, True, [])
    else:
        assert (code, "queued" in text) == (0, True)


@pytest.mark.parametrize(("keys", "is_ended"), [(b"\x1b", True), (b"\x1b[A", False), (b"x", False)])
def test_esc_ends_a_run_that_is_followed(rig: Rig, keys: bytes, *, is_ended: bool) -> None:
    """A person who sees it go wrong presses Esc, as in any agent; an arrow key is something else."""
    action = asked(rig, "hold")
    rig.ok("channel", "confirm", action)
    run = begun(rig, action)
    ours, theirs = pty.openpty()
    with start_harken(
        [*COMMAND, "run", "follow", run],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=rig.environment,
    ) as process:
        assert process.stdout is not None
        assert b"AUTO" in process.stdout.readline()
        assert b"run_shell_command" in process.stdout.readline()
        os.write(ours, keys)
        if not is_ended:
            # Whatever came before it has been read by then.
            os.write(ours, b"y")
            assert rig.json("run", "show", run)["state"] == "running"
            rig.ok("run", "abort", run)
        out, _ = process.communicate(timeout=SECONDS)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, b"aborted by you" in out) == (NOT_DONE, True)


def test_an_agent_neither_answers_nor_runs_nor_ends(rig: Rig) -> None:
    """What an agent could answer for itself would be no question."""
    action = asked(rig, "for the person only")
    with hosting(rig):
        for words in (("channel", "confirm", action), ("channel", "confirm", action, "no"), ("run", "abort", "r-")):
            done = rig.run(*words)
            assert (done.code, "An agent may not" in done.err) == (REFUSED, True), words
        assert action in rig.ok("channel", "confirm")
    rig.ok("channel", "confirm", action, "no")


def test_actions_and_runs_are_completed(rig: Rig) -> None:
    """Ids are not to be typed."""
    action = asked(rig, "complete me")
    rig.ok("channel", "run", "1", "--agent", "gemini-cli", "--yes", "--follow")
    assert _complete(rig, "harken", "channel", "confirm", "a-") == [action]
    known = {each["id"] for each in rig.json("run", "list")["runs"]}
    assert set(_complete(rig, "harken", "run", "show", "r-")) == known
    assert _complete(rig, "harken", "run", "abort", "r-") == []
    assert _complete(rig, "harken", "channel", "run", "1", "--tool", "edit") == ["edit_file", "edit_instructions"]
    rig.ok("channel", "confirm", action, "no")


def _complete(rig: Rig, *words: str) -> list[str]:
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = Rig(rig.home, variables).run()
    return [line.partition(",")[2] for line in done.out.splitlines() if line]
