"""The waiter beside a Copilot CLI session: it prints one message and ends, and never outlives its conversation.

The host is a folder with the file that the real one leaves there, and a process whose end the test decides.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.edge.rig import PROOF, WAIT_SECONDS, FakeDaemon, LineReader

SCRIPT = Path(__file__).parents[2] / "src" / "harken" / "edge" / "wait.py"
SESSION = "7684acee-1d33-4f9f-95ee-c79cb2874347"


class Copilot:
    """As much of a host as the waiter can see."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "copilot"
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self.lock = self.state / "session-state" / SESSION / f"inuse.{self.process.pid}.lock"
        self.lock.parent.mkdir(parents=True)
        self.lock.write_text(str(self.process.pid))

    @property
    def environment(self) -> dict[str, str]:
        """What its shells are started with."""
        return {"COPILOT_HOME": str(self.state), "COPILOT_AGENT_SESSION_ID": SESSION, "PWD": "/code/shop"}

    def exit(self) -> None:
        """End without cleaning up, as when killed."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)


@pytest.fixture
def copilot(tmp_path: Path) -> Iterator[Copilot]:
    """A host with a conversation open."""
    host = Copilot(tmp_path)
    try:
        yield host
    finally:
        host.exit()
        if host.process.stdin:
            host.process.stdin.close()


def command(home: Path, program: str = sys.executable, script: Path = SCRIPT) -> list[str]:
    """The command that an agent is asked to start."""
    return [program, "-I", "-S", str(script), "--home", str(home), "copilot-cli"]


@contextmanager
def waiting(home: Path, copilot: Copilot) -> Iterator[subprocess.Popen[bytes]]:
    """A waiter, ended when the block is left."""
    with subprocess.Popen(
        command(home), env=copilot.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Return how a waiter ended and all it said."""
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, out, err


def hook(home: Path, option: str, payload: object) -> str:
    """Run one of the waiter's hooks as the host does, from this process; return what it printed."""
    line = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    argv = [*command(home), option, shlex.join(command(home))]
    done = subprocess.run(argv, input=line, env={}, capture_output=True, check=True, timeout=WAIT_SECONDS)
    assert done.stderr == b""
    return done.stdout.decode()


def test_message_is_printed_and_acknowledged_and_the_waiter_ends(
    home: Path, daemon: FakeDaemon, copilot: Copilot, transport: str
) -> None:
    """The end of the process is what wakes the host, its output is what the model reads."""
    with waiting(home, copilot) as process:
        connection = daemon.accept()
        assert connection.hello == {
            "harken": 1,
            "kind": "wake",
            "host": "copilot-cli",
            "native": SESSION,
            "once": True,
            "pid": process.pid,
            "ppid": os.getpid(),
            "cwd": "/code/shop",
            "env": {"COPILOT_AGENT_SESSION_ID": SESSION},
            "token": PROOF if transport == "tcp" else "",
        }
        connection.send({"wake": "w-1", "text": "Hello \N{SNOWMAN}"})
        assert connection.message() == {"done": "w-1"}
        code, out, err = ended(process)
    said = out.decode()
    assert (code, err) == (0, b"")
    assert said.startswith("Hello \N{SNOWMAN}\n\nHarken stopped listening.")
    assert said.endswith(f": {shlex.join(command(home))}\n")


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_waiter_outlives_its_daemon(home: Path, daemon: FakeDaemon, copilot: Copilot, transport: str) -> None:
    """An update of Harken must not end the waiters of every session: each would cost a turn."""
    with waiting(home, copilot) as process:
        daemon.accept()
        daemon.close()
        with FakeDaemon(home, transport) as other:
            connection = other.accept()
            connection.send(b"not JSON\n")
            connection.send({"wake": "w-2", "text": "still here"})
            assert connection.message() == {"done": "w-2"}
            assert b"still here" in ended(process)[1]


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_waiter_says_nothing_when_its_host_was_killed(home: Path, daemon: FakeDaemon, copilot: Copilot) -> None:
    """Detached shells outlive the host; a waiter for nobody would take messages away, and stay for ever."""
    with waiting(home, copilot) as process:
        connection = daemon.accept()
        locks = list((home / "run" / "waiters").iterdir())
        copilot.exit()
        assert ended(process) == (0, b"", b"")
        assert connection.line() == b""
    assert [lock.name for lock in locks] == [str(copilot.process.pid)]
    assert not locks[0].exists()


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_waiter_ends_with_its_conversation(home: Path, daemon: FakeDaemon, copilot: Copilot) -> None:
    """After /clear the host lives on with another conversation, whose waiter is another one."""
    with waiting(home, copilot) as process:
        daemon.accept()
        copilot.lock.unlink()
        assert ended(process) == (0, b"", b"")


def test_waiter_without_a_daemon_ends_with_its_host(home: Path, copilot: Copilot) -> None:
    """There may never be one again."""
    with waiting(home, copilot) as process:
        copilot.exit()
        assert ended(process) == (0, b"", b"")


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_second_waiter_gives_way(home: Path, daemon: FakeDaemon, copilot: Copilot) -> None:
    """A model that starts it twice would else be woken twice."""
    with waiting(home, copilot) as process:
        daemon.accept()
        with waiting(home, copilot) as second:
            assert ended(second) == (0, b"Harken listens for this session already.\n", b"")
        assert process.poll() is None


@pytest.mark.parametrize("session", ["", "../../etc", "a/b", "x" * 200])
def test_odd_session_ends_at_once(home: Path, copilot: Copilot, session: str) -> None:
    """The id becomes part of a path."""
    environ = {**copilot.environment, "COPILOT_AGENT_SESSION_ID": session}
    done = subprocess.run(command(home), env=environ, capture_output=True, check=True, timeout=WAIT_SECONDS)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_nobody_who_reads_is_a_failure(home: Path, daemon: FakeDaemon, copilot: Copilot) -> None:
    """What could not be printed has not arrived, and must come by another way."""
    with waiting(home, copilot) as process:
        connection = daemon.accept()
        assert process.stdout is not None
        process.stdout.close()
        connection.send({"wake": "w-3", "text": "to nobody"})
        assert connection.message()["failed"] == "w-3"
        assert process.wait(WAIT_SECONDS) == 0


def test_only_the_very_command_is_allowed(home: Path) -> None:
    """The hook answers for the person: anything but the letter of it, however similar, is theirs to decide."""
    own = shlex.join(command(home))
    assert json.loads(hook(home, "--allow", {"toolName": "bash", "toolInput": {"command": own}})) == {
        "behavior": "allow"
    }
    others = (f"{own}; id", f" {own}", f"{own} ", own.replace("copilot-cli", "codex"), f"{own}\n", [own], None)
    for other in others:
        assert hook(home, "--allow", {"toolName": "bash", "toolInput": {"command": other}}) == "", other
    assert hook(home, "--allow", {"toolName": "write", "toolInput": {"command": own}}) == ""
    nested = {"toolName": "bash", "toolInput": {"command": "id", "more": {"toolInput": {"command": own}}}}
    assert hook(home, "--allow", nested) == ""


def test_command_is_allowed_by_the_real_names_of_its_files_too(home: Path, tmp_path: Path) -> None:
    """Copilot starts a script that it has read by those, and what such a waiter says of itself must run unasked.

    Else the turn that it began stands before a question to a person who is away, and the message stays unproven.
    """
    program, source = tmp_path / "python", tmp_path / "src"
    program.symlink_to(sys.executable)
    source.symlink_to(SCRIPT.parents[2])
    linked = source / SCRIPT.relative_to(SCRIPT.parents[2])
    own = shlex.join(command(home, str(program), linked))
    real = os.path.realpath(program)
    argv = [*command(home), "--allow", own]

    def is_allowed(asked: str) -> bool:
        payload = json.dumps({"toolName": "bash", "toolInput": {"command": asked}}).encode()
        done = subprocess.run(argv, input=payload, env={}, capture_output=True, check=True, timeout=WAIT_SECONDS)
        return done.stdout == b'{"behavior":"allow"}\n'

    for named in (command(home, str(program), linked), command(home, real, linked), command(home, real)):
        assert is_allowed(shlex.join(named)), named
    # Another link to the same files was never written by Harken, and may lead elsewhere a moment later.
    other = tmp_path / "other"
    other.symlink_to(program)
    for named in (command(home, str(other), linked), command(tmp_path, real), [*command(home, real), "--allow", "id"]):
        assert not is_allowed(shlex.join(named)), named
    assert not is_allowed(f"{shlex.join(command(home, real))}; id")


def test_waiter_is_asked_for_twice_in_a_turn_at_most_and_only_where_one_was(home: Path) -> None:
    """Each reminder costs a model call: none where nobody chose it, none for a helper, no endless ones."""
    ask = {"sessionId": SESSION, "stop_hook_active": False}
    again = {**ask, "stop_hook_active": True}
    lock = home / "run" / "waiters" / str(os.getpid())  # this process is the host of the hook
    assert hook(home, "--remind", ask) == ""
    lock.parent.mkdir()
    lock.touch()
    assert hook(home, "--remind", {**ask, "parentAgentId": SESSION}) == ""
    said = json.loads(hook(home, "--remind", ask))
    assert said["decision"] == "block"
    assert said["reason"].endswith(shlex.join(command(home)))
    assert json.loads(hook(home, "--remind", again)) == said
    assert hook(home, "--remind", again) == ""
    assert json.loads(hook(home, "--remind", ask)) == said
    lock.write_text("")  # a waiter was started since, and ended
    assert json.loads(hook(home, "--remind", again)) == said


def test_no_reminder_while_a_waiter_lives(home: Path, copilot: Copilot) -> None:
    """It listens; nothing is to be said."""
    held = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        " print(flush=True); sys.stdin.read()"
    )
    lock = home / "run" / "waiters" / str(os.getpid())
    lock.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", held, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        LineReader(process.stdout.fileno()).line()
        assert hook(home, "--remind", {"sessionId": SESSION}) == ""
        process.kill()
    assert copilot.process.poll() is None


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b'{"sessionId":1}', b"\xff" * 2_000_000, b"[" * 100_000]
)
@pytest.mark.parametrize("option", ["--allow", "--remind"])
def test_broken_input_of_its_hooks_does_nothing(home: Path, option: str, payload: bytes) -> None:
    """Whatever the host writes, a hook ends well and says nothing."""
    (home / "run" / "waiters").mkdir()
    (home / "run" / "waiters" / str(os.getpid())).touch()
    assert hook(home, option, payload) == ""
