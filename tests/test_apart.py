"""Tests that an agent runs are the person's: nothing in them descends from the agent's program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harken.hosts.host import names_of_marks
from harken.hosts.registry import host_marks
from tests.loss.rig import until

SCRIPT = Path(__file__).parents[1] / "scripts" / "apart.py"
SECONDS = 30.0
RUN = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
LOOK = "import psutil; print(*(each.name() for each in psutil.Process().parents())); raise SystemExit(5)"


def run(program: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script below a program."""
    command = [str(program), "-c", RUN, sys.executable, str(SCRIPT), *words]
    env = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, env=env)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A program that is called like a host's."""
    program = tmp_path / "opencode"
    program.symlink_to(sys.executable)
    return program


def test_command_below_an_agent_descends_from_nobody(agent: Path) -> None:
    """Else every test in which the person stops Harken would fail for whoever lets an agent work on it."""
    done = run(agent, sys.executable, "-c", LOOK)
    assert (done.returncode, done.stderr) == (5, "")
    assert "opencode" not in done.stdout


def test_command_below_anything_else_is_run_as_it_is() -> None:
    """A terminal, Ctrl-C and a debugger are the person's own there."""
    done = run(Path(sys.executable), sys.executable, "-c", "import os; print(os.getppid())")
    assert done.returncode == 0
    assert not psutil.pid_exists(int(done.stdout))


@pytest.mark.parametrize("is_below_an_agent", [True, False])
def test_command_has_none_of_the_variables_that_hosts_set(agent: Path, *, is_below_an_agent: bool) -> None:
    """By them a program is taken for an agent's that no longer descends from it."""
    marks = dict.fromkeys(names_of_marks(host_marks()), "1")
    look = f"import os; print(sorted(set(os.environ) & {set(marks)!r}), os.environ['OTHER'])"
    program = agent if is_below_an_agent else Path(sys.executable)
    done = run(program, sys.executable, "-c", look, OTHER="kept", **marks)
    assert (done.stdout, done.stderr) == ("[] kept\n", "")


def test_command_ends_with_whoever_has_started_it(agent: Path, tmp_path: Path) -> None:
    """An agent that gives up leaves no tests behind that burn the machine."""
    file = tmp_path / "pid"
    stays = f"import os, signal; open({str(file)!r}, 'w').write(str(os.getpid())); signal.pause()"
    command = [str(agent), "-c", RUN, sys.executable, str(SCRIPT), sys.executable, "-c", stays]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as starter:
        until(lambda: file.exists() and bool(file.read_text()), "the command runs", SECONDS)
        running = psutil.Process(int(file.read_text()))
        for script in psutil.Process(starter.pid).children():
            script.kill()
    running.wait(SECONDS)
