"""The terminal and the gate, with programs that every system has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from harken.trial.model import RequestGate
from harken.trial.screen import TerminalProgram

SECONDS = 10.0
ENVIRON = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color"}


def sh(line: str, folder: Path) -> TerminalProgram:
    """A shell line in a terminal."""
    return TerminalProgram(("/bin/sh", "-c", line), ENVIRON, folder)


def test_what_is_typed_reaches_the_program_and_its_answer_the_screen(tmp_path: Path) -> None:
    """Without this nothing that a host shows or is told could be tried."""
    with sh('read line; echo "got <$line>"', tmp_path) as screen:
        screen.submit("hello there")
        assert "got <hello there>" in screen.wait_for("got", SECONDS)


def test_a_program_that_asks_where_the_cursor_is_gets_an_answer(tmp_path: Path) -> None:
    """Some hosts refuse to start in a terminal that does not answer."""
    with sh(r"stty raw -echo; printf '\033[6n'; dd bs=1 count=6 2>/dev/null | od -c; read x", tmp_path) as screen:
        screen.wait_for("1   ;   1   R", SECONDS)


def test_everything_that_was_started_is_ended(tmp_path: Path) -> None:
    """Hosts leave processes behind, in groups of their own and without a parent; a trial leaves none of them."""
    with sh("(setsid sleep 60 & echo $! >child); echo started; read x", tmp_path) as screen:
        screen.wait_for("started", SECONDS)
        left = psutil.Process(int((tmp_path / "child").read_text()))
        assert screen.is_running
    assert psutil.wait_procs([left], SECONDS)[1] == []
    assert not screen.is_running


def test_a_text_that_never_comes_is_reported_with_the_screen(tmp_path: Path) -> None:
    """Whoever reads the failure was not there."""
    with sh("echo something else; read x", tmp_path) as screen:
        screen.wait_for("else", SECONDS)
        with pytest.raises(TimeoutError, match="something else"):
            screen.wait_for("what was hoped for", 0.01)


def test_a_gate_keeps_a_command_until_it_is_opened(tmp_path: Path) -> None:
    """A message sent mid-tool is sent between these two moments, whatever the machine's speed."""
    with RequestGate(tmp_path / "it's a gate") as gate, subprocess.Popen(["/bin/sh", "-c", gate.command]) as tool:
        gate.wait(SECONDS)
        assert tool.poll() is None
        gate.open()
        assert tool.wait(SECONDS) == 0


def test_a_gate_that_no_tool_came_to_can_be_left(tmp_path: Path) -> None:
    """A test that fails before its tool must fail, not hang."""
    with RequestGate(tmp_path / "gate") as gate, pytest.raises(TimeoutError):
        gate.wait(0.01)
    assert list(tmp_path.iterdir()) == []
