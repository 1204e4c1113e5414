"""A run that leaves a process behind fails and names it; a run that does not, passes.

Each case is a little run of pytest of its own, in a process of its own, with the plugin that every run here has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.process_check import end_all_naming

ROOT = Path(__file__).parents[1]
SECONDS = 60.0

# Detaches itself as the daemon does: a session of its own, no parent, and its working folder elsewhere.
DETACHED = """
import os, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
os.chdir(sys.argv[1])
open(sys.argv[2], "w").write(str(os.getpid()))
signal.pause()
"""
CASE = """
import os, subprocess, sys
from pathlib import Path

def test_leaves_something(tmp_path):
    note = Path({note!r})
    os.mkfifo(note)
    subprocess.run([sys.executable, "-I", "-c", {detached!r}, {folder}, str(note), *{arguments}], env={environment})
    Path({pid!r}).write_text(note.read_text())

def test_leaves_nothing(tmp_path):
    subprocess.run([sys.executable, "-I", "-c", "pass", str(tmp_path)], check=True)
"""
MARKS = {
    "argument": ("'/'", "['serve', '--home', str(tmp_path)]", "{}"),
    "environment": ("'/'", "[]", "{'PATH': os.environ['PATH'], 'TMPDIR': os.environ['TMPDIR']}"),
    "folder": ("str(tmp_path)", "[]", "{}"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of pytest ended, and what it printed."""

    code: int
    printed: str


def run(folder: Path, text: str, *options: str) -> Run:
    """Run pytest on a file with this text."""
    (folder / "test_case.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.process_check"]
    done = subprocess.run(
        [
            *command,
            "-c",
            os.devnull,
            "--rootdir",
            str(folder),
            "--settle-seconds",
            "0.3",
            "-q",
            *options,
            "test_case.py",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
        text=True,
    )
    return Run(done.returncode, done.stdout)


def is_alive(pid: int) -> bool:
    """Whether a process still does something; one that has ended and that nobody asked for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("mark", "workers"), [("argument", "1"), ("environment", "0"), ("folder", "0")])
def test_process_that_is_left_fails_the_run_and_is_named(tmp_path: Path, mark: str, workers: str) -> None:
    """A daemon that stays takes memory, holds a home, and makes the next run slower: nobody looks for it later."""
    folder, arguments, environment = MARKS[mark]
    pid = tmp_path / "pid"
    text = CASE.format(
        note=str(tmp_path / "note"),
        pid=str(pid),
        detached=DETACHED,
        folder=folder,
        arguments=arguments,
        environment=environment,
    )
    ended = run(tmp_path, text, "-n", workers)
    assert ended.code == 1, ended.printed
    assert "2 passed" in ended.printed
    assert f"{pid.read_text()}: {sys.executable} -I -c" in ended.printed
    assert "test_case.py::test_leaves_something\n1 left behind" in ended.printed
    assert not is_alive(int(pid.read_text()))


def test_run_that_ends_what_it_starts_passes_and_leaves_no_files(tmp_path: Path) -> None:
    """The same with a fixture that lives to the end of the run, and a process that takes a moment to end."""
    text = """
import os, subprocess, sys, tempfile
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def lasting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lasting")
    Path({said!r}).write_text(f"{{folder}}\\n{{tempfile.mkdtemp()}}")
    with subprocess.Popen([sys.executable, "-I", "-c", "input()", str(folder)], stdin=subprocess.PIPE) as process:
        yield process

def test_uses_it(lasting):
    assert lasting.poll() is None
"""
    said = tmp_path / "said"
    ended = run(tmp_path, text.format(said=str(said)), "-n", "1")
    assert ended.code == 0, ended.printed
    folders = [Path(line) for line in said.read_text().splitlines()]
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)


def test_files_of_a_run_that_failed_are_kept(tmp_path: Path) -> None:
    """They are what a person looks at next."""
    said = tmp_path / "said"
    text = f"def test_fails(tmp_path):\n    open({str(said)!r}, 'w').write(str(tmp_path))\n    assert False\n"
    ended = run(tmp_path, text)
    assert ended.code == 1
    assert Path(said.read_text()).is_dir()
    assert "The files of this run are in " in ended.printed


def test_what_names_a_folder_ends_and_nothing_else(tmp_path: Path) -> None:
    """A daemon that an edge began to start would take the home of a test that is over, and stay."""
    note, pids = tmp_path / "note", list[int]()
    os.mkfifo(note)
    for name in ("home", "home-of-another"):
        arguments = ["/", str(note), "serve", "--home", str(tmp_path / name / "harken")]
        subprocess.run([sys.executable, "-I", "-c", DETACHED, *arguments], env={}, check=True)
        pids.append(int(note.read_text()))
    end_all_naming(tmp_path / "home")
    assert [is_alive(pid) for pid in pids] == [False, True]
    end_all_naming(tmp_path)
    assert [is_alive(pid) for pid in pids] == [False, False]
