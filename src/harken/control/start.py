"""Starts the daemon in the background and waits until it can be reached.

The daemon gets a session of its own, no terminal, no parent, and a fixed small environment, so that it is the same
whoever started it. One that cannot start leaves the reason in `run/failed`; that reason becomes the caller's error.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from time import monotonic, sleep
from typing import Any

from harken.config.home import Home, ensure, write_private
from harken.control.client import NoDaemon, as_error, dial
from harken.control.launch import DetachedProcess, launch
from harken.control.slow_notice import SlowNotice
from harken.errors import HarkenError, Unavailable

START_SECONDS = 15.0
AGAIN_SECONDS = 0.5
LOOK_SECONDS = 0.02
LOG_LINES = 5
LITTLE_BYTES = 65_536
LOG_BYTES = 32_768
LINE_CHARS = 300
VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "XDG_RUNTIME_DIR", "TMPDIR"),
    *("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"),  # by which toasts find the desktop
)
WINDOWS_VARIABLES = ("SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP")


def command(home: Home) -> list[str]:
    """Return the command that serves a home in the background."""
    return [sys.executable, "-I", "-m", "harken", "serve", "--home", str(home.path), "--detached"]


def start(home: Home) -> None:
    """Start the daemon and return when it can be reached; raises why it could not start."""
    ensure(home)
    deadline = monotonic() + START_SECONDS
    with ExitStack() as watched:
        ours, began = watched.enter_context(_spawn(home)), monotonic()
        notice = SlowNotice("Starting the daemon …")
        while not is_reachable(home):
            notice.check()
            code = ours.poll()
            if code:
                raise failure(home, ours.pid, code)
            if code == 0 and monotonic() - began > AGAIN_SECONDS:
                # It found another daemon, which was on its way out: there is none now.
                ours, began = watched.enter_context(_spawn(home)), monotonic()
            if monotonic() > deadline:
                raise Unavailable(
                    f"The daemon did not start within {START_SECONDS:.0f} seconds.", _log_hint(home), retry_after=5.0
                )
            sleep(LOOK_SECONDS)
        # When somebody else's was faster, ours ends by itself. It is waited for: one that is still on its way up would
        # find the lock free, and serve, after the person has stopped the other one.
        while ours.poll() is None and daemon_facts(home).get("pid") != ours.pid and monotonic() < deadline:
            sleep(LOOK_SECONDS)


def daemon_facts(home: Home) -> dict[str, Any]:
    """Return what a daemon has written of itself: from its file, so that any version can be asked."""
    try:
        said: dict[str, Any] = json.loads(home.daemon_file.read_text())
    except (OSError, ValueError):
        return {}  # there is none, or it is about to end
    return said


def is_reachable(home: Home) -> bool:
    """Whether a daemon accepts connections."""
    try:
        sock, _ = dial(home)
    except (NoDaemon, OSError):
        return False
    sock.close()
    return True


def leave_reason(home: Home, error: HarkenError) -> None:
    """Leave the reason why this process cannot serve, for the process that started it."""
    write_private(home.run_dir / "failed", json.dumps({"pid": os.getpid(), "error": error.as_dict()}) + "\n")


def failure(home: Home, pid: int, code: int) -> HarkenError:
    """Return why a daemon ended: in its own words, else with the end of its log."""
    try:
        left = json.loads((home.run_dir / "failed").read_text())
    except (OSError, ValueError):
        left = {}
    if left.get("pid") == pid:
        return as_error(left["error"])
    if _is_full(home):
        return Unavailable("The disk is full: the daemon cannot start.", "Free some space.", retry_after=60.0)
    return Unavailable(f"The daemon could not start (it ended with code {code}).", _log_hint(home))


def _is_full(home: Home) -> bool:
    """Whether there was no room, not even to leave a reason."""
    if not hasattr(os, "statvfs"):
        return False
    found = os.statvfs(home.path)
    return found.f_bavail * found.f_frsize < LITTLE_BYTES


def log_tail(home: Home, lines: int = LOG_LINES) -> list[str]:
    """Return the last lines of the daemon's log."""
    try:
        with home.daemon_log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    # A traceback is one long line: its end holds the reason.
    return [line if len(line) <= LINE_CHARS else f"… {line[-LINE_CHARS:]}" for line in text.splitlines()[-lines:]]


def _log_hint(home: Home) -> str:
    return "\n".join([f"Its log, {home.daemon_log}, ends with:", *(log_tail(home) or ["(nothing)"])])


def _spawn(home: Home) -> DetachedProcess:
    names = VARIABLES + (WINDOWS_VARIABLES if sys.platform == "win32" else ())
    return launch(command(home), {name: os.environ[name] for name in names if name in os.environ})
