"""The verbs `up`, `down` and `version`: whether a daemon runs, and which."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import struct
import sys
from time import monotonic, sleep

from harken import __version__
from harken.cli.output import note_to_person
from harken.cli.verbs import Invocation, verb
from harken.config.home import Home, write_private
from harken.config.lock import is_locked
from harken.control.client import NoDaemon, Result, dial, no_daemon
from harken.control.start import daemon_facts, is_reachable, start
from harken.display import one_line
from harken.errors import Unavailable
from harken.setup.service import installed, start_by_service

STOP_SECONDS = 10.0
FACTS_SECONDS = 2.0
LOOK_SECONDS = 0.02


@verb("up")
def up(asked: Invocation) -> None:
    """Start Harken in the background, and return when it is ready.

    A daemon of another version is replaced. Where a service is installed, that starts it.
    """
    home = asked.home
    found = _running(home)
    replaced = found["version"] if found and found["version"] != __version__ else ""
    if found and replaced:
        stop(home, only=found["pid"])
    if (not found or replaced) and not start_by_service(home, os.environ):
        start(home)
    facts = _running(home)
    if facts is None:
        raise Unavailable("The daemon ended as soon as it had started.", f"Look at {home.daemon_log}")
    state = "restarted" if replaced else "running" if found else "started"
    if asked.as_json:
        asked.print_json({"state": state, **facts})
        return
    words = {"running": "was running already", "started": "runs now", "restarted": f"replaced version {replaced}"}
    if facts["port_problem"]:
        note_to_person(one_line(facts["port_problem"]))
    more = shlex.join(asked.home_option)
    prefix = f"harken {more}" if more else "harken"
    asked.screen.line(f"Harken {facts['version']} {words[state]} (process {facts['pid']}).")
    asked.screen.table([("address", facts["url"]), ("home", facts["home"])])
    asked.screen.line("Try:")
    asked.screen.line(f'  {prefix} send "the build is red" --from ci-bot --channel ci')
    asked.screen.line(f"  {prefix} status")
    asked.screen.line(f"  {prefix} connect")


@verb("down")
def down(asked: Invocation) -> None:
    """Stop the daemon; nothing that was accepted is lost.

    It stays down until `harken up` or another command starts it: agents do not, neither open ones nor new ones. A
    service starts it again when you log in.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "stop Harken")
    if asked.home.run_dir.is_dir():
        write_private(asked.home.down_file, "")
    stopped = stop_all(asked.home)
    if asked.as_json:
        state = "stopped" if stopped else "not_running"
        asked.print_json({"state": state, "pid": stopped[0] if stopped else None, "pids": stopped})
    elif stopped:
        for pid in stopped:
            asked.screen.line(f"Harken stopped (process {pid}).")
    else:
        asked.screen.line(f"No daemon runs for {asked.home.path}.")
    if not asked.as_json and installed(asked.home, os.environ) is not None:
        note_to_person("The service starts it again when you log in. To end that: harken service remove")


@verb("version")
def version(asked: Invocation) -> None:
    """Show the version of this command and of the running daemon."""
    daemon = (_running(asked.home) or {}).get("version")
    if asked.as_json:
        asked.print_json({"version": __version__, "python": sys.version.split()[0], "daemon": daemon})
        return
    other = f" (the running daemon: {daemon})" if daemon and daemon != __version__ else ""
    asked.screen.line(f"harken {__version__}{other}")


def stop_all(home: Home) -> list[int]:
    """Stop every daemon of a home, also one that cannot be found in it any more; return their process ids."""
    from harken.control.processes import daemons_of, end

    first = stop(home)
    others = [pid for pid in daemons_of(home) if pid != first]
    if left := end(others, STOP_SECONDS):
        raise _does_not_stop(home, left[0])
    return [pid for pid in (first, *others) if pid]


def stop(home: Home, only: int = 0) -> int:
    """Stop the daemon of a home, or `only` the one with this process id, and return that id; 0 if there was none."""
    end = monotonic() + STOP_SECONDS
    while is_locked(home.lock_file):
        try:
            pid = _signal(home, only)
        except NoDaemon:  # it holds the lock and cannot be reached: it is starting or stopping
            if monotonic() > end:
                raise Unavailable(
                    "The daemon can neither be reached nor does it end.", f"Look at {home.daemon_log}"
                ) from None
            sleep(LOOK_SECONDS)
            continue
        if pid:
            _await_end(home, pid, end)
        return pid
    return 0


def _signal(home: Home, only: int) -> int:
    """Tell the daemon to end. Its process is the one that listens: a number in a file may be somebody else's by now."""
    try:
        sock, _ = dial(home)
        with sock:
            pid = _listener(sock) or int(daemon_facts(home)["pid"])
            if only not in {0, pid}:
                return 0  # another command was faster and replaced it
            os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, KeyError) as exc:
        raise no_daemon(home) from exc
    return pid


def _listener(sock: socket.socket) -> int:
    """Return the process at the other end of a unix socket, 0 where the system does not tell."""
    if sys.platform != "linux" or sock.family != socket.AF_UNIX:
        return 0
    pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return pid


def _await_end(home: Home, pid: int, end: float) -> None:
    while is_locked(home.lock_file):
        if monotonic() > end:
            raise _does_not_stop(home, pid)
        sleep(LOOK_SECONDS)


def _does_not_stop(home: Home, pid: int) -> Unavailable:
    return Unavailable(
        f"The daemon (process {pid}) did not stop within {STOP_SECONDS:.0f} seconds.",
        f"Look at {home.daemon_log}, or end it with kill -9 {pid}: nothing that was accepted is lost.",
    )


def _running(home: Home) -> Result | None:
    """Return which daemon runs, whatever its version."""
    keys = ("pid", "version", "url")
    end = monotonic() + FACTS_SECONDS
    while is_reachable(home):
        said = daemon_facts(home)
        if said.keys() >= set(keys):
            found = {**{key: said[key] for key in keys}, "home": str(home.path)}
            return {**found, "port_problem": str(said.get("port_problem", ""))}
        if monotonic() > end:
            break
        sleep(LOOK_SECONDS)  # it listens before it has written who it is
    return None
