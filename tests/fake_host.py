"""A machine on which agent hosts seem to be installed: programs of a test that have their names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.loss.rig import DaemonStarter, Served


@contextmanager
def fake_host(folder: Path, program: str, names: Sequence[str] = ("gemini",)) -> Iterator[None]:
    """Let what is started inside the block find a program under these names, made of a text."""
    _install(folder, program, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", _first(folder))
        yield


@dataclass(frozen=True, slots=True)
class Machine:
    """Daemons of a machine where Gemini CLI seems to be installed in a folder."""

    starter: DaemonStarter
    folder: Path

    def daemon(self, home: Path) -> Served:
        """A daemon for a home, not started yet."""
        return self.starter.daemon(home, {"PATH": _first(self.folder)})


def machine_with_host(starter: DaemonStarter, folder: Path, program: str) -> Machine:
    """Install a program as Gemini CLI."""
    _install(folder, program, ("gemini",))
    return Machine(starter, folder)


def _install(folder: Path, program: str, names: Sequence[str]) -> None:
    for name in names:
        path = folder / name
        path.write_text(program, encoding="utf-8")
        path.chmod(0o700)


def _first(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
