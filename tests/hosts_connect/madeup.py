"""A host that does not exist: a settings file, a file of ours, and a command of its own that keeps a registry.

Run as a program it is that command: `add FILE` and `remove FILE` write a registry and a log beside it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harken.hosts.connect.edits import block_put, block_remove, json_remove, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import (
    CheckFinding,
    CommandStep,
    ConnectOptions,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
    Step,
)

NAME = "made-up"


def place_in(root: Path, project: Path | None = None) -> InstallTarget:
    """A person's home and a Harken home below a folder."""
    environ = {
        "HOME": str(root / "user"),
        "PATH": os.defpath,
        "SECRET": "s3cret",
        "MADE_UP": str(root / "user/.made-up"),
    }
    return InstallTarget(
        user=root / "user",
        environ=environ,
        project=project,
        harken=root / "harken",
        python=sys.executable,
        edge=root / "edge",
    )


@dataclass(frozen=True, slots=True)
class MadeUp:
    """How the host that does not exist is connected."""

    name: str = NAME
    wakes: Mapping[str, str] = field(default_factory=lambda: {"loud": "It rings."})
    has_command: bool = True
    command_fails: bool = False
    check_leaves_log: bool = False

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """It is there when its folder is."""
        return InstalledProgram(program=place.user / "bin/made-up", version="1.2") if place.user.exists() else None

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Set one key, write one file of ours, mark a block, and run a command when the registry has no entry."""
        settings, notes = self.settings(place), self.base(place) / "NOTES.md"
        server = {"command": place.python, "wake": options.wake}
        old, text = read(settings), read(notes)
        steps: list[Step] = [
            FileEdit(
                path=settings,
                before=old,
                after=json_set(old, ("servers", "harken"), server, file=settings),
                why="the server",
            ),
            self._own(self.base(place) / "deep/er/ours.txt", b"ours\n"),
            FileEdit(path=notes, before=text, after=block_put(text, "be kind", file=notes), why="what agents read"),
        ]
        registry = self.base(place) / "state/registry.json"
        if self.has_command and "harken" not in json.loads(read(registry) or b"[]"):
            steps.append(self._command(place, registry))
        return ConnectPlan(host=self.name, steps=steps, notes=("It cannot be woken.",))

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Take out the key, the block, the file and the entry."""
        settings, notes, own = (
            self.settings(place),
            self.base(place) / "NOTES.md",
            self.base(place) / "deep/er/ours.txt",
        )
        steps: list[Step] = [
            FileEdit(
                path=settings,
                before=read(settings),
                after=json_remove(read(settings), ("servers", "harken"), file=settings),
                why="the server",
            ),
            FileEdit(path=notes, before=read(notes), after=block_remove(read(notes), file=notes), why="the block"),
            FileEdit(path=own, before=read(own), after=None, why="ours", is_ours=True),
        ]
        registry = self.base(place) / "state/registry.json"
        if "harken" in json.loads(read(registry) or b"[]"):
            command = self._command(place, registry)
            steps.append(
                CommandStep(argv=command.undo, undo=(), why="its own list", environ=command.environ, touches=())
            )
        return ConnectPlan(host=self.name, steps=steps)

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look whether the key is there."""
        settings = self.settings(place)
        if self.check_leaves_log:
            with (self.base(place) / "state/log").open("a") as log:
                log.write("looked\n")
        is_there = json_value(read(settings), ("servers", "harken"), file=settings) is not None
        return [CheckFinding(what="the server is listed", is_good=is_there, hint="Run: harken connect made-up")]

    def base(self, place: InstallTarget) -> Path:
        """Where its files are."""
        return (place.project or place.user) / ".made-up"

    def settings(self, place: InstallTarget) -> Path:
        """Its settings."""
        return self.base(place) / "settings.json"

    def _own(self, path: Path, data: bytes) -> FileEdit:
        return FileEdit(path=path, before=read(path), after=data, why="a file of ours", is_ours=True)

    def _command(self, place: InstallTarget, registry: Path) -> CommandStep:
        words = (sys.executable, "-I", __file__)
        verb = "fail" if self.command_fails else "add"
        return CommandStep(
            argv=(*words, verb, str(registry)),
            undo=(*words, "remove", str(registry)),
            why="its own list",
            environ={**place.environ, "EXTRA": "1"},
            touches=(registry, registry.with_name("log")),
        )


def _command(verb: str, registry: Path) -> int:
    """Be the host's own command."""
    if os.environ.get("MADE_UP") is None or os.environ.get("EXTRA") != "1":
        return 9
    registry.parent.mkdir(parents=True, exist_ok=True)
    entries = json.loads(registry.read_text()) if registry.exists() else []
    entries = [entry for entry in entries if entry != "harken"] + (["harken"] if verb != "remove" else [])
    registry.write_text(json.dumps(entries))
    with registry.with_name("log").open("a") as log:
        log.write(f"{verb}\n")
    sys.stdout.write("no luck" if verb == "fail" else "done")
    return 3 if verb == "fail" else 0


def killed_at(number: int, deed: Callable[[], None]) -> int:
    """Do something in a process of its own that dies when its numbered call to change a disk is about to be made."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _die_at(number)
            deed()
            code = 0
        finally:
            os._exit(code)  # never back into the test's own code
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _die_at(number: int) -> None:
    calls = 0

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in {"os.rename", "os.mkdir", "os.chmod", "os.remove", "subprocess.Popen"}:
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


if __name__ == "__main__":
    sys.exit(_command(sys.argv[1], Path(sys.argv[2])))
