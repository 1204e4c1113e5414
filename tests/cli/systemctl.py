"""A `systemctl --user` for tests, put on the PATH: it keeps one person's units as the manual says, and starts them.

Run as a program. Beside it are its memory (`state.json`) and, one line each, the commands it was given (`asked.jsonl`).
A file `no-bus` beside it stands for a machine without systemd for the person: then it says so and exits with 1; with a
file `failing` no unit starts.
It starts what `ExecStart` says, with the unit's environment and nothing else, and ends it by its process id.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

STOP_SECONDS = 20.0
Json: TypeAlias = Any
"""What it remembers."""


class Units:
    """The units of one person."""

    def __init__(self, place: Path, folder: Path) -> None:
        self._file = place / "state.json"
        self._folder = folder
        self._state: Json = json.loads(self._file.read_text()) if self._file.exists() else {}

    def show(self, name: str) -> None:
        """Print properties; of a unit that is not there too."""
        unit = self._state.get(name, {})
        is_alive = self._is_alive(unit.get("pid", 0))
        word = "enabled" if unit.get("enabled") else "disabled"
        facts = {
            "MainPID": unit["pid"] if is_alive else 0,
            "ActiveState": "active" if is_alive else "inactive",
            "UnitFileState": word if (self._folder / name).exists() else "",
        }
        sys.stdout.writelines(f"{key}={value}\n" for key, value in facts.items())

    def enable(self, name: str, *, is_on: bool) -> None:
        """Remember whether a unit starts by itself; to enable one, it has to be there."""
        if is_on and not (self._folder / name).exists():
            self.fail(f"Failed to enable unit: Unit file {name} does not exist.")
        self._state.setdefault(name, {})["enabled"] = is_on

    def start(self, name: str) -> None:
        """Start a unit that does not run."""
        if self._is_alive(self._state.get(name, {}).get("pid", 0)):
            return
        lines = (self._folder / name).read_text().splitlines()
        command = [_value(line) for line in lines if line.startswith("ExecStart=")]
        variables = [shlex.split(_value(line))[0] for line in lines if line.startswith("Environment=")]
        environ = dict(variable.replace("%%", "%").partition("=")[::2] for variable in variables)
        environ["HOME"] = os.environ["HOME"]
        words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command[0])]
        process = subprocess.Popen(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self._state.setdefault(name, {})["pid"] = process.pid

    def stop(self, name: str) -> None:
        """Stop a unit, and return when it has ended."""
        pid = self._state.get(name, {}).get("pid", 0)
        end = time.monotonic() + STOP_SECONDS
        if self._is_alive(pid):
            os.kill(pid, signal.SIGTERM)
        while self._is_alive(pid) and time.monotonic() < end:
            select.select([], [], [], 0.01)

    def save(self) -> None:
        """Remember."""
        self._file.write_text(json.dumps(self._state))

    def fail(self, text: str) -> None:
        """End as the program does: with its words on stderr, and 1."""
        sys.exit(text)

    @staticmethod
    def _is_alive(pid: int) -> bool:
        try:
            return pid > 0 and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


def _value(line: str) -> str:
    return line.partition("=")[2]


def main(arguments: list[str]) -> None:
    """Do what a command says."""
    place = Path(__file__).parent
    with (place / "asked.jsonl").open("a") as asked:
        asked.write(json.dumps(arguments) + "\n")
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.environ["HOME"]) / ".config") / "systemd" / "user"
    units = Units(place, folder)
    if (place / "no-bus").exists():
        units.fail("Failed to connect to bus: No medium found")
    assert arguments[0] == "--user"
    verb, *names = [word for word in arguments[1:] if not word.startswith("--")]
    is_now = "--now" in arguments
    if verb == "show":
        units.show(names[0])
    elif verb in ("enable", "disable"):
        units.enable(names[0], is_on=verb == "enable")
    if verb in ("stop", "restart") or (verb == "disable" and is_now):
        units.stop(names[0])
    if verb in ("start", "restart") or (verb == "enable" and is_now):
        if (place / "failing").exists():
            units.save()
            units.fail(f"Job for {names[0]} failed.")
        units.start(names[0])
    units.save()


if __name__ == "__main__":
    main(sys.argv[1:])
