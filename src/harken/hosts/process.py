"""What the system tells about a host's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil


def command_line(pid: int) -> Sequence[str]:
    """Return the words that a process was started with; none when it is not known or gone."""
    try:
        return psutil.Process(pid).cmdline() if pid > 1 else ()
    except psutil.Error:
        return ()


def environment(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with; nothing when it is not known or gone."""
    try:
        return psutil.Process(pid).environ() if pid > 1 else {}
    except (psutil.Error, OSError):
        return {}
