"""Fails a run of the tests that leaves a process behind, and says which it is and during which test it began.

Daemons detach themselves and get a small environment, so neither a parent nor a variable of ours says whose they are.
But everything of a run is below one folder, where its temporary files go: every home, socket and profile is there, and
its path is among the arguments, in the environment or the working folder of whatever uses them. So a process that has
that path somewhere is one of the run. A plugin of pytest, with and without workers: each worker notes after every test
what is new, and the process that waits for the workers looks at the end, when the last fixture is gone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil
import pytest

SETTLE_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 0.05
END_SECONDS: Final = 5.0
LONGEST: Final = 500
UNKNOWN: Final = "(no test is known)"
MEMORY: Final = Path("/dev", "shm")
ROOM: Final = 4 << 30  # several times what a run writes, so that the machine has room left
_FOLDER, _STARTED = "run_folder", "started_processes"


class XdistWorker(Protocol):
    """A worker, seen by the process that waits for it."""

    workerinput: dict[str, object]


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that is still there when the run is over."""

    process: psutil.Process
    command: str
    where: str
    test: str

    def __str__(self) -> str:
        return f"{self.process.pid}: {self.command}\n    {self.where}\n    {self.test}"


class StartNotes:
    """Notes after each test which processes are new, so that one that stays can be traced to it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.tests: dict[str, str] = {}
        self._folders = folders
        self._known = frozenset(psutil.pids())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look when a test is over."""
        result = yield
        pids = frozenset(psutil.pids())
        for pid in pids - self._known:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if _place(process, self._folders):
                    self.tests[_key(process)] = item.nodeid
        self._known = pids
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the notes of a worker over."""
        output = getattr(session.config, "workeroutput", None)
        if isinstance(output, dict):
            output[_STARTED] = self.tests


class ProcessCheck:
    """Looks when everything else is over. A process that is left makes the run fail; it is named, and ended."""

    def __init__(self, root: Path, folders: Sequence[Path], notes: StartNotes, settle_seconds: float) -> None:
        self._root = root
        self._settle_seconds = settle_seconds
        self._folders = folders
        self._tests = notes.tests
        self._began = time.time()
        self._is_kept = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: XdistWorker) -> None:
        """Tell a worker where the folder of the run is."""
        node.workerinput[_FOLDER] = str(self._root)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: XdistWorker) -> None:
        """Take the notes of a worker that is done; one that crashed has none."""
        self._tests |= getattr(node, "workeroutput", {}).get(_STARTED, {})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Look after the last fixture and the last worker."""
        result = yield
        left = self._left()
        if left:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
            _report(session.config, left)
        for each in left:
            with suppress(psutil.Error):
                each.process.kill()
        psutil.wait_procs([each.process for each in left], END_SECONDS)
        self._is_kept = session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        return result

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Remove the folder of a run that went well; else somebody will want to look into it."""
        if not self._is_kept:
            shutil.rmtree(self._root, ignore_errors=True)
        elif (reporter := config.pluginmanager.get_plugin("terminalreporter")) is not None:
            reporter.write_line(f"The files of this run are in {self._root}.")

    def _left(self) -> list[LeftProcess]:
        """Return what is still there; what was told to end is given a moment."""
        end = time.monotonic() + self._settle_seconds
        while (left := list(self._found())) and time.monotonic() < end:
            psutil.wait_procs([each.process for each in left], PAUSE_SECONDS)
        return left

    def _found(self) -> Iterator[LeftProcess]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid == os.getpid() or process.create_time() < self._began - 1:
                    continue
                if process.status() != psutil.STATUS_ZOMBIE and (where := _place(process, self._folders)):
                    command = shlex.join(process.cmdline())[:LONGEST]
                    yield LeftProcess(process, command, where, self._tests.get(_key(process), UNKNOWN))


def end_all_naming(folder: Path) -> None:
    """End every process with a folder among its arguments, or in one of them: what serves a home, or is about to.

    An edge that finds its daemon gone starts another. If that happens just before the end of a test, the new daemon
    takes the home when nobody looks any more, and stays. Whatever could start one must be gone before.
    """
    while found := [process for process in psutil.process_iter() if _has_argument(process, folder)]:
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, END_SECONDS)


def _has_argument(process: psutil.Process, folder: Path) -> bool:
    try:
        arguments = process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return False
    return process.pid != os.getpid() and any(f"{folder}/" in f"{argument}/" for argument in arguments)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run say how long its processes may take to end."""
    parser.addoption(
        "--settle-seconds",
        type=float,
        default=SETTLE_SECONDS,
        help="how long what the tests started may go on after the last of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give the run, or this worker of it, its folder, and watch what it starts."""
    given = getattr(config, "workerinput", None)
    if isinstance(given, dict):
        root = Path(given[_FOLDER])
        own = root / given["workerid"]
    else:
        root = Path(tempfile.mkdtemp(prefix="test-run-", dir=_memory_folder())).resolve()
        own = root / "main"
        config.option.basetemp = config.option.basetemp or str(root / "t")
    own.mkdir()
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = None  # it is remembered there; now it is looked up again
    notes = StartNotes((own, Path(config.option.basetemp).resolve()))
    config.pluginmanager.register(notes, "start-notes")
    if given is None:
        folders = (root, Path(config.option.basetemp).resolve())
        check = ProcessCheck(root, folders, notes, config.getoption("settle_seconds"))
        config.pluginmanager.register(check, "process-check")


def _memory_folder() -> Path | None:
    """Return a folder in memory, where writing a file to the disk takes no time; None where there is no room for a run.

    A test kills processes, never the machine: what is in memory is there for the next process as it is on a disk.
    """
    if os.environ.get("TMPDIR") or not MEMORY.is_dir():
        return None
    found = os.statvfs(MEMORY)
    is_usable = os.access(MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC
    room = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
    return MEMORY if is_usable and room >= ROOM else None


def _place(process: psutil.Process, folders: Sequence[Path]) -> str:
    """Return where one of the folders is named by a process; empty if nowhere."""
    texts = [*process.cmdline()]
    # What belongs to somebody else cannot be looked into; its arguments can be.
    with suppress(psutil.AccessDenied):
        texts.append(process.cwd())
        texts += [text for name in ("HARKEN_HOME", "HOME", "TMPDIR") if (text := process.environ().get(name))]
    return next((text for text in texts for folder in folders if f"{folder}/" in f"{text}/"), "")[:LONGEST]


def _key(process: psutil.Process) -> str:
    return f"{process.pid} {process.create_time()}"


def _report(config: pytest.Config, left: Sequence[LeftProcess]) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    reporter.write_sep("=", "processes left behind", red=True, bold=True)
    for each in left:
        reporter.write_line(str(each), red=True)
    reporter.write_line(f"{len(left)} left behind: a test ends what it started.", red=True)
