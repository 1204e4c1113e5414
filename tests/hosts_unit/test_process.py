"""What the system tells about the process of a host."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import psutil
import pytest

from harken.hosts.host import answers_one_prompt
from harken.hosts.registry import host_named, hosts
from harken.processes import command_line, environment, has_terminal, identity_of, is_alive, is_same_process

WAITS = (sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_a_terminal_that_was_opened_a_moment_ago_is_known() -> None:
    """A daemon lives for weeks: a list of the terminals that was made once would leave all later ones out."""
    psutil.Process().terminal()
    leader, follower = pty.openpty()
    code = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=follower, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert has_terminal(process.pid)
        process.kill()
    os.close(leader)
    os.close(follower)
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not has_terminal(process.pid)
        process.kill()
    assert not has_terminal(process.pid)


def test_process_is_known_by_more_than_its_number() -> None:
    """A number is used again; what goes with it is the same for as long as the process lives, and never another's."""
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identity_of(process.pid)
        assert identity
        assert identity == identity_of(process.pid)
        assert is_alive(process.pid, identity) is True
        assert is_alive(os.getpid(), identity) is False
        process.kill()
    assert (is_alive(process.pid, identity), identity_of(process.pid)) == (False, "")


def test_whether_it_is_the_same_process_is_not_always_known() -> None:
    """A record that does not say it proves neither life nor death; but without any process there is none."""
    assert is_alive(os.getpid(), "") is None
    assert [is_alive(pid, "") for pid in (0, 1)] == [False, False]


def test_identity_that_is_a_time_may_be_read_a_little_otherwise() -> None:
    """Where the system gives only a time of day, two readings of it need not be equal to the last digit."""
    began = psutil.Process().create_time()
    assert is_same_process(f"@{began:.2f}", f"@{began + 0.5:.2f}") is True
    assert is_same_process(f"@{began:.2f}", f"@{began + 60:.2f}") is False
    assert is_same_process("@soon", f"@{began:.2f}") is None


def test_a_process_that_is_gone_has_neither_words_nor_environment() -> None:
    """A session may outlive its process for a moment: nothing of that may raise."""
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(10)
    for pid in (0, 1, process.pid):
        assert (list(command_line(pid)), dict(environment(pid))) == ([], {})


@pytest.mark.parametrize(
    ("host", "argv", "is_one_shot"),
    [
        ("claude-code", "claude -p hello", True),
        ("claude-code", "claude --print hello --output-format json", True),
        ("claude-code", "claude -p --input-format stream-json", False),
        ("claude-code", "claude --input-format=stream-json --print", False),
        ("claude-code", "claude --resume", False),
        ("copilot-cli", "copilot --prompt=hello", True),
        ("copilot-cli", "copilot --acp", False),
        ("codex", "codex exec --json hello", True),
        ("codex", "codex -c model=exec", False),
        ("codex", "codex app-server --listen unix://", False),
        ("gemini-cli", "node gemini -p hello", True),
        ("opencode", "opencode run hello", True),
        ("opencode", "opencode serve", False),
        ("qwen-code", "node qwen -p hello", True),
        ("qwen-code", "node qwen --input-file run", False),
    ],
)
def test_a_run_that_answers_one_prompt_is_known_by_its_command_line(host: str, argv: str, *, is_one_shot: bool) -> None:
    """It ends after its answer, so nobody may count on waking it."""
    assert answers_one_prompt(host_named(host), argv.split()) is is_one_shot


def test_no_words_mean_a_session_that_lasts() -> None:
    """Of a process that cannot be looked at nothing is known."""
    assert not any(answers_one_prompt(host, ()) for host in hosts().values())
