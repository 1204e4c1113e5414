"""Unpacks the home of the earlier version somewhere else, as if that version had written it there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import harken
from tests.cli.rig import Rig, serving
from tests.upgrade.make_home import PROGRAMS, Json

ARCHIVE: Final = Path(__file__).with_name("home.tar.xz")
PROGRAM: Final = "#!/bin/sh\necho 99.0.0\n"
_ROWS: Final = (
    "UPDATE events SET data = replace(data, :old, :new)",
    "UPDATE tasks SET dir = replace(dir, :old, :new), repo = replace(repo, :old, :new)",
    "UPDATE rule_state SET text = replace(text, :old, :new)",
    "UPDATE actions SET work = replace(work, :old, :new)",
)
_COMMAND: Final = re.compile(r"hook\.py --home \S+ ([a-z-]+) ([a-z]+)")


@dataclass(frozen=True, slots=True)
class UpgradedMachine:
    """The machine of a person who had the earlier version, with a daemon of this one."""

    root: Path
    rig: Rig
    answers: Mapping[str, Json]  # of the earlier version, by the words of a command

    @property
    def user(self) -> Path:
        """The person's own folder."""
        return self.root / "user"

    def hook_command(self, host: str, moment: str) -> str:
        """Return the command that the earlier version wrote into the settings of a host."""
        files = [*self.user.rglob("*.json"), *(self.root / "home" / "plugins").rglob("*.json")]
        for command in (each for file in files for each in _texts(json.loads(file.read_text()))):
            if (found := _COMMAND.search(command)) and found.groups() == (host, moment):
                return command
        raise AssertionError(f"{host} has no hook for {moment}")


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


@contextmanager
def upgraded_machine(root: Path) -> Iterator[UpgradedMachine]:
    """Serve the unpacked home for the time of the block; nothing of the real person is seen there."""
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(root, filter="data")
    kept = json.loads((root / "answers.json").read_text())
    places = kept["places"]
    moved = {
        places["root"]: str(root),
        places["package"]: str(Path(harken.__file__).parent),
        places["python"]: sys.executable,
    }
    relocate(root, list(moved.items()))
    (root / "bin").mkdir()
    for name in PROGRAMS:
        (root / "bin" / name).write_text(PROGRAM)
        (root / "bin" / name).chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("HOME", str(root / "user"))
        with serving(root / "home") as rig:
            answers = json.loads((root / "answers.json").read_text())["answers"]
            yield UpgradedMachine(root, rig, answers)


def relocate(root: Path, moved: Sequence[tuple[str, str]]) -> None:
    """Write other paths into everything, and the digests by which files are known of what was changed so."""
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".db" and path.name != "index"]
    before = {path: path.read_bytes() for path in files}
    after = {path: _replaced(data, moved) for path, data in before.items()}
    mark = (_plugin_mark(root, before), _plugin_mark(root, after))
    after = {path: _replaced(data, [mark]) for path, data in after.items()}
    digests = {_digest(before[path]): _digest(after[path]) for path in files} | {mark[0]: mark[1]}
    for path in files:
        data = _replaced(after[path], list(digests.items()))
        if data != before[path]:
            path.write_bytes(data)
    for path in sorted(root.rglob("*"), reverse=True):  # what is kept under its digest
        if (name := _replaced(path.name.encode(), list(digests.items())).decode()) != path.name:
            path.rename(path.with_name(name))
    _relocate_rows(root / "home" / "harken.db", moved)


def _relocate_rows(database: Path, moved: Sequence[tuple[str, str]]) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in _ROWS:
            connection.executemany(statement, [{"old": old, "new": new} for old, new in moved])


def _replaced(data: bytes, moved: Sequence[tuple[str, str]]) -> bytes:
    for old, new in moved:
        data = data.replace(old.encode(), new.encode())
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plugin_mark(root: Path, contents: Mapping[Path, bytes]) -> str:
    """Return by what Claude Code tells one plugin of Harken from another: a digest of its parts."""
    folder = root / "home" / "plugins" / "claude-code"
    manifests = {folder / ".claude-plugin" / "marketplace.json", folder / "harken" / ".claude-plugin" / "plugin.json"}
    parts = sorted(path for path in contents if path.is_relative_to(folder) and path not in manifests)
    return _digest(b"\0".join(contents[path] for path in parts))[:8]
