"""Runs the real `harken` in processes of its own, on a home of its own; a command with a prefix is never forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from harken.config.home import Home
from harken.control.client import DaemonClient
from harken.testing.daemon import start_harken
from tests.loss.rig import until

SECONDS = 30.0

Json = dict[str, Any]
COMMAND = (sys.executable, "-m", "harken")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Rig:
    """A home, and commands on it."""

    home: Path
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        """What a command gets: nothing of Harken but the home, and no colours of whoever runs the tests."""
        # Compiled files are kept as for any user: without them a command takes three times as long to start.
        dropped = ("HARKEN_", "NO_COLOR", "COLUMNS", "TERM", "XDG_RUNTIME_DIR", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {**kept, "HARKEN_HOME": str(self.home), "TERM": "xterm", "TZ": "UTC", **self.extra}

    def run(
        self,
        *words: str,
        stdin: str = "",
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        prefix: tuple[str, ...] = COMMAND,
        cwd: Path | None = None,
    ) -> Outcome:
        """Run a command to its end."""
        start = start_harken if prefix == COMMAND else subprocess.Popen[bytes]
        with start(
            [*prefix, *words],
            stdin=subprocess.PIPE,
            stdout=stdout or subprocess.PIPE,
            stderr=stderr or subprocess.PIPE,
            env=self.environment,
            cwd=cwd,
        ) as process:
            try:
                out, err = process.communicate(stdin.encode(), SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Outcome(process.returncode, (out or b"").decode(), (err or b"").decode())

    def ok(self, *words: str, stdin: str = "") -> str:
        """Run a command that must succeed, and return what it printed."""
        done = self.run(*words, stdin=stdin)
        assert done.code == 0, done
        assert "harken:" not in done.err
        return done.out

    def json(self, *words: str, stdin: str = "") -> Json:
        """Run a command that must succeed, and return its JSON."""
        result: Json = json.loads(self.ok(*words, "--json", stdin=stdin))
        return result

    @contextmanager
    def begin(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command in the background for the time of the block."""
        with start_harken(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serve the home for the time of the block, unless a command ends the daemon before.

        A daemon that a command starts by itself imports everything anew: a test that is not about its start has this.
        """
        with self.begin("serve") as process:
            assert process.stderr is not None
            lines: list[bytes] = []
            for line in process.stderr:
                lines.append(line)
                if b" serves " in line:
                    break
            assert b" serves " in b"".join(lines[-1:]), lines
            yield self
            process.terminate()
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0

    def until(self, is_so: Callable[[Json], bool]) -> None:
        """Look at the running daemon's status until something is so."""
        with DaemonClient(Home(self.home), can_start=False) as daemon:
            until(lambda: is_so(daemon.ask("status")), "it is so", SECONDS)

    def ask(self, verb: str, **params: object) -> Json:
        """Ask the running daemon itself, for what a test needs and is not about: a command takes ten times as long."""
        with DaemonClient(Home(self.home), can_start=False) as daemon:
            return daemon.ask(verb, **params)

    @property
    def pid(self) -> int:
        """The process id of the running daemon."""
        return int(json.loads((self.home / "run" / "daemon.json").read_text())["pid"])


@contextmanager
def serving(home: Path) -> Iterator[Rig]:
    """Serve a home in the foreground for the time of the block."""
    with Rig(home).serving() as rig:
        yield rig
