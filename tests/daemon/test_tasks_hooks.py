"""A task whose agent has hooks: what it does is known, and it gets its mail although it never asks.

The hooks are the real scripts, run as Claude Code and Codex run them; the daemon is the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.sessions.turns import HookMoment
from tests.hooks.rig import CLAUDE, CODEX, COPILOT, DaemonFixture, Kind
from tests.loss.rig import WAIT_SECONDS, Json, Served, until

# A child that makes one call and prints the answer, as a command does that an agent runs in its shell.
CALL = """
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.settimeout(20)
stream.connect(sys.argv[1])
stream.sendall(b'{"harken":1,"kind":"call"}\\n' + sys.argv[2].encode() + b"\\n")
print(stream.makefile().readline())
"""
HOSTS = pytest.mark.parametrize("kind", [CLAUDE, CODEX], ids=lambda kind: kind.name)


@pytest.fixture
def rig(daemon: Served) -> DaemonFixture:
    """A daemon that runs."""
    return DaemonFixture(daemon.start())


@pytest.fixture
def host() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the agent's program: nobody else descends from it."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def make_task(rig: DaemonFixture, folder: Path, *links: str, prompt: str = "") -> Json:
    """Make a task that is named as its folder."""
    folder.mkdir(exist_ok=True)
    return rig.daemon.call("task_new", title=folder.name, dir=str(folder), links=list(links), prompt=prompt)


def say(rig: DaemonFixture, task: str, body: str, priority: str = "normal") -> Json:
    """Send to a task as its user."""
    return rig.daemon.call("send_to_task", task_id=task, body=body, priority=priority)


def in_shell(rig: DaemonFixture, method: str, **params: object) -> Json:
    """Return the whole answer to a call of a child of this process, which is the host of those without another."""
    line = json.dumps({"id": 1, "method": method, "params": params})
    command = [sys.executable, "-I", "-S", "-c", CALL, rig.daemon.socket, line]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=WAIT_SECONDS).stdout)


def shown(rig: DaemonFixture, task: str) -> tuple[str, str]:
    """Return state and presence of a task."""
    standing = rig.daemon.call("task_show", task=task)
    return standing["state"], standing["presence"]


def test_hook_that_is_there_for_tasks_is_silent_in_every_other_session(rig: DaemonFixture, tmp_path: Path) -> None:
    """It stands in a main checkout because of a task elsewhere: whoever works there was not connected by anybody."""
    make_task(rig, tmp_path / "api", prompt="begin with the form")
    waiting = rig.send("for whoever is connected")
    stranger = rig.session(CODEX, "main-1", cwd=str(tmp_path), options=["--in-task"])
    for moment in (HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.END):
        assert stranger.run(moment).is_silent
    assert rig.sessions() == []
    assert [line["consumer"] for line in rig.daemon.call("read", ref=waiting)["ledger"]] == ["watch"]
    own = rig.session(CODEX, "task-1", cwd=str(tmp_path / "api"), options=["--in-task"])
    assert "begin with the form" in own.prompt()
    rig.daemon.call("task_done", task="api")
    assert own.run(HookMoment.PROMPT).is_silent


def test_presence_follows_the_turns_of_the_agent(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """Idle, busy, gone: before a message is sent it is known what will become of it."""
    make_task(rig, tmp_path / "api")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    told = [shown(rig, "api")]
    guest.run(HookMoment.START)
    told.append(shown(rig, "api"))
    guest.prompt()
    told.append(shown(rig, "api"))
    guest.tool()
    told.append(shown(rig, "api"))
    guest.stop()
    told.append(shown(rig, "api"))
    guest.run(HookMoment.END, reason="other")
    told.append(shown(rig, "api"))
    assert told == [
        ("queued", "gone"),
        ("running", "idle"),
        ("running", "busy"),
        ("running", "busy"),
        ("running", "idle"),
        ("ended", "gone"),
    ]


def test_a_task_whose_program_is_killed_is_gone(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """It could not say goodbye; what was handed over unproven waits for the next start."""
    make_task(rig, tmp_path / "api", prompt="Begin.")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    assert "Begin." in guest.prompt()
    assert shown(rig, "api") == ("running", "busy")
    host.kill()
    host.wait(20)
    until(lambda: shown(rig, "api") == ("ended", "gone"), "the program is missed")
    waiting = until(
        lambda: rig.daemon.call("check_inbox", task_id="api", peek=True)["messages"], "its mail waits for the next"
    )
    assert [message["body"] for message in waiting] == ["Begin."]


@HOSTS
def test_a_busy_agent_gets_its_mail_between_two_tools(rig: DaemonFixture, tmp_path: Path, kind: Kind) -> None:
    """C7: even if it forgets to check; the prompt of the task came with its first prompt."""
    made = make_task(rig, tmp_path / "api", prompt="Make it fast.")
    sent = say(rig, "api", "Use v2.")
    guest = rig.session(kind, cwd=str(tmp_path / "api"))
    first = guest.prompt()
    assert first.index("Make it fast.") < first.index("Use v2.")
    assert guest.tool() == ""
    line = rig.ledger(sent["id"], made["mailbox"])
    assert (line["state"], line["surface"]) == ("seen", "hook: prompt")


def test_what_comes_while_it_works_comes_with_the_next_tool_what_is_urgent_first(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """High priority is delivered at once and first, and the sender is told how it goes."""
    make_task(rig, tmp_path / "api")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api" / "src"))
    guest.prompt()
    normal = say(rig, "api", "When you have time: docs.")
    urgent = say(rig, "api", "Stop: the build is red.", "high")
    assert [each["forecast"]["outlook"] for each in (normal, urgent)] == ["boundary", "boundary"]
    text = guest.tool()
    assert text.index("Stop: the build is red.") < text.index("When you have time: docs.")
    assert "instruction from your user" in text
    guest.stop()
    assert [rig.state(each["id"], "task:api") for each in (normal, urgent)] == ["seen", "seen"]


def test_what_is_urgent_wakes_an_idle_agent(rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]) -> None:
    """The bell of the session rings, and the sender is told that it does."""
    make_task(rig, tmp_path / "api")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    started = json.loads(guest.run(HookMoment.START).out)
    (bell,) = (Path(path) for path in started["hookSpecificOutput"]["watchPaths"])
    before = bell.read_text()
    assert shown(rig, "api") == ("running", "idle")
    urgent = say(rig, "api", "The build is red.", "high")
    assert urgent["forecast"]["outlook"] == "wake"
    until(lambda: bell.read_text() != before, "the session's own bell rings")
    assert "The build is red." in guest.run(HookMoment.BELL).text


def test_a_peers_word_is_a_colleagues_and_not_the_users(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """Authority follows trust: another agent may ask, not command."""
    make_task(rig, tmp_path / "web")
    make_task(rig, tmp_path / "api", "web")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    guest.prompt()
    sender = rig.session(CODEX, native="t-9", cwd=str(tmp_path / "web"))
    sender.prompt()
    sent = in_shell(rig, "send_to_peer", body="Please add a field.")["result"]
    assert sent["task"] == "api"
    text = guest.tool()
    assert "Please add a field." in text
    assert "task:web" in text
    assert "instruction from your user" not in text


def test_the_hooks_of_a_task_tell_nothing_of_the_inbox(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """A session inside a task's folder reads that task's mailbox only; others do not read the task's."""
    make_task(rig, tmp_path / "api")
    inside = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    outside = rig.session(CODEX, native="t-9", cwd=str(tmp_path))
    rig.send("for everyone")
    say(rig, "api", "for the task")
    assert ("for the task" in (text := inside.prompt()), "for everyone" in text) == (True, False)
    assert ("for the task" in (text := outside.prompt()), "for everyone" in text) == (False, True)


def test_a_conversation_becomes_the_tasks_and_goes_back(
    rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]
) -> None:
    """It was there before the task was made, and goes on when the task is done."""
    folder = tmp_path / "api"
    folder.mkdir()
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(folder))
    guest.prompt()
    make_task(rig, folder, prompt="Begin.")
    assert "Begin." in guest.tool()
    guest.stop()
    rig.send("for everyone")
    assert guest.prompt(turn="t2") == ""
    guest.stop()
    rig.daemon.call("task_done", task="api")
    assert "for everyone" in guest.prompt(turn="t3")


@pytest.mark.parametrize("is_hook_first", [True, False])
@pytest.mark.parametrize("kind", [CLAUDE, COPILOT], ids=lambda kind: kind.name)
def test_an_edge_that_was_started_elsewhere_is_where_its_hooks_say(
    rig: DaemonFixture, tmp_path: Path, kind: Kind, *, is_hook_first: bool
) -> None:
    """Some hosts start their servers in another folder: the conversation is in the task all the same."""
    made = make_task(rig, tmp_path / "api")
    guest = rig.session(kind, cwd=str(tmp_path / "api"))
    if is_hook_first:
        guest.prompt()
    with guest.agent() as agent:
        if not is_hook_first:
            agent.request("tools/list", {})
            guest.prompt()
        rig.send("for everyone")
        say(rig, "api", "hello")
        assert [record["body"] for record in agent.tool("check_inbox")] == ["hello"]
        assert agent.tool("inbox_pull")["messages"] == []
        (session,) = rig.daemon.call("task_show", task="api")["sessions"]
        assert (session["session"], session["mailboxes"]) == (guest.key, [made["mailbox"]])


def test_a_bell_rings_for_the_mail_of_a_task(rig: DaemonFixture, tmp_path: Path, host: subprocess.Popen[bytes]) -> None:
    """The after-tool hook asks only while the bell of its host says so; nobody's mail rings nothing."""
    make_task(rig, tmp_path / "api")
    make_task(rig, tmp_path / "web")
    guest = rig.session(CLAUDE, pid=host.pid, cwd=str(tmp_path / "api"))
    guest.prompt()
    rig.wait_bell("claude-code", is_on=False)
    say(rig, "web", "nobody is there")
    rig.wait_bell("claude-code", is_on=False)
    say(rig, "api", "hello")
    rig.wait_bell("claude-code", is_on=True)
    assert "hello" in guest.tool()
    guest.stop()
    rig.wait_bell("claude-code", is_on=False)


def test_what_an_agent_runs_in_its_shell_is_the_agents_word(rig: DaemonFixture, tmp_path: Path) -> None:
    """A model with a terminal may speak for its task, and not change tasks: that is its user's."""
    for name in ("web", "old"):
        make_task(rig, tmp_path / name)
    make_task(rig, tmp_path / "api", "web")
    rig.daemon.call("task_done", task="old")
    inside = rig.session(CLAUDE, pid=os.getpid(), cwd=str(tmp_path / "api"))
    inside.prompt()
    before = rig.daemon.call("task_list", all=True)
    for verb, asked in (
        ("task_new", {"title": "More", "dir": str(tmp_path / "more")}),
        ("task_make", {"title": "More", "folder": str(tmp_path), "is_here": True}),
        ("task_link", {"task": "api", "other": "web"}),
        ("task_unlink", {"task": "api", "other": "web"}),
        ("task_done", {"task": "web"}),
        ("task_rm", {"task": "old"}),
    ):
        said = in_shell(rig, verb, **asked)["error"]
        assert (said["code"], bool(said["hint"])) == ("refused", True)
    sent = in_shell(rig, "send_to_peer", body="hello")["result"]
    assert rig.daemon.call("read", ref=sent["id"])["message"]["sender_id"] == "task:api"
    assert in_shell(rig, "send_to_task", task_id="api", body="to myself")["error"]["code"] == "user_error"
    say(rig, "api", "from the user")
    given = in_shell(rig, "check_inbox")["result"]
    assert (given["task"], [message["body"] for message in given["messages"]]) == ("api", ["from the user"])
    after = rig.daemon.call("task_list", all=True)
    assert [(task["id"], task["state"], task["peers"]) for task in after["tasks"]] == [
        (task["id"], task["state"], task["peers"]) for task in before["tasks"]
    ]
