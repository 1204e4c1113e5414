"""Finding daemons by what the system says of its processes: for those that left no trace in their home any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harken.config.home import Home, find_home
from harken.errors import HarkenError

if TYPE_CHECKING:  # it takes longer to load than most verbs to run
    import psutil


def daemons_of(home: Home) -> list[int]:
    """Return the processes of this user that serve a home, as far as the system tells."""
    real = os.path.realpath(home.path)
    return [pid for pid, served in _daemons() if os.path.realpath(served) == real]


def end(pids: Sequence[int], seconds: float) -> list[int]:
    """Tell processes to end, and return which of them have not when the seconds are over."""
    import psutil

    told: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            told.append(process)
    _gone, left = psutil.wait_procs(told, timeout=seconds)
    return [process.pid for process in left]


def _daemons() -> Iterator[tuple[int, Path]]:
    import psutil

    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or not _is_own(process) or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = process.cmdline()
            served = _served(words, process.environ(), process.cwd()) if is_daemon(words) else None
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile, or is not ours to look at
        if served is not None:
            yield process.pid, served


def _is_own(process: psutil.Process) -> bool:
    return sys.platform == "win32" or process.uids().real == os.getuid()


def is_daemon(words: Sequence[str]) -> bool:
    """Whether a command is `harken serve`, as a module or as a script, and not a program that starts one."""
    rest = list(words)
    if rest and Path(rest[0]).name.startswith("python"):
        del rest[0]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        del rest[0]
    if rest[:1] == ["-m"]:
        del rest[0]
    is_ours = bool(rest) and Path(rest[0]).name == "harken"
    del rest[:1]
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "--home" else 1]
    return is_ours and rest[:1] == ["serve"]


def _served(words: Sequence[str], environ: Mapping[str, str], folder: str) -> Path | None:
    flag = next((word.partition("=")[2] for word in words if word.startswith("--home=")), None)
    if "--home" in words[:-1]:
        flag = words[words.index("--home") + 1]
    try:
        return Path(folder, find_home(str(Path(folder, flag)) if flag else None, environ).path)
    except HarkenError:
        return None
