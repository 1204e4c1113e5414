"""What `connect` did, step by step, kept in Harken's home: the ground on which `disconnect` takes it back.

A step is recorded before it is done, with what its files were; a crash leaves a record that can be undone. Contents
are kept beside it. This module keeps records; what to do with them is `hosts/connect/apply.py`'s business.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import msgspec

from harken.errors import Conflict, UserError
from harken.hosts.connect.files import PRIVATE_FILE, PRIVATE_FOLDER, FileState, read, trouble, write
from harken.hosts.connect.plan import InstallTarget, RemoteInbox

FOLDER: Final = "connected"
VERSION: Final = 1
LOCK_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.05

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step: what its paths were and became; with a command, how that is undone."""

    before: Mapping[str, FileState]
    after: Mapping[str, FileState] | None = None  # None: begun, and nobody saw the end
    roots: tuple[str, ...] = ()  # of a command: where it may write
    is_look: bool = False  # only the host's own look at what was written
    undo: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict[str, str])  # what the command's environment has of its own
    passes: tuple[str, ...] = ()  # what it has from the person's


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRecord:
    """One host, connected for the person or for one project."""

    host: str
    project: str = ""
    python: str = ""
    wake: str = ""
    is_whole: bool = False  # every step was done
    is_for_tasks: bool = False  # a main checkout, connected only as far as tasks in its worktrees need it
    has_approvals: bool = False  # what the host asks is answered elsewhere too
    can_tell: bool = True  # the file that agents are told by may be written
    blocks: tuple[str, ...] = ()  # files with a marked block that some connection wrote and this one uses
    deeds: tuple[RecordedStep, ...] = ()
    url: str = ""  # of the inbox on another machine that it is connected to; empty: to the one on this machine
    token_variable: str = ""
    token_file: str = ""
    file: str = ""  # the key under which it was found; its folder may be a link to elsewhere by now
    version: int = VERSION

    @property
    def key(self) -> str:
        """The name of its files."""
        return self.file or key_of(self.host, Path(self.project) if self.project else None)

    @property
    def remote(self) -> RemoteInbox | None:
        """The inbox on another machine that it is connected to, if it is."""
        remote = RemoteInbox(url=self.url, variable=self.token_variable, token_file=self.token_file)
        return remote if self.url else None

    def place(self, place: InstallTarget) -> InstallTarget:
        """Return a place as far as it was connected there."""
        return replace(place, is_for_tasks=self.is_for_tasks, has_approvals=self.has_approvals, can_tell=self.can_tell)


def key_of(host: str, project: Path | None) -> str:
    """Return the name under which a connection is recorded; a project is the same by any link that leads to it."""
    if project is None:
        return host
    try:
        return _key(host, os.path.realpath(project))
    except OSError as exc:
        raise trouble("look at", project, exc) from exc


def _key(host: str, real: str) -> str:
    return f"{host}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:12]}"


def kept(harken: Path, key: str) -> Path:
    """Return the folder with the contents that a record refers to."""
    return harken / FOLDER / key


def load(harken: Path, host: str, project: Path | None) -> ConnectRecord | None:
    """Return what is recorded of a connection; None when nothing is.

    What was connected under this very name comes first: a folder that was moved may have left a link there.
    """
    named = _read(harken / FOLDER / f"{_key(host, str(project))}.json") if project else None
    return named or _read(harken / FOLDER / f"{key_of(host, project)}.json")


def records(harken: Path) -> list[ConnectRecord]:
    """Return every connection that is recorded."""
    found = (_read(path) for path in sorted((harken / FOLDER).glob("*.json")))
    return [record for record in found if record is not None]


def shared_blocks(harken: Path, key: str) -> frozenset[str]:
    """Return the files with a marked block that other connections use."""
    return frozenset(path for record in records(harken) if record.key != key for path in record.blocks)


def save(harken: Path, record: ConnectRecord) -> None:
    """Record a connection, durably."""
    # Not msgspec: names of files that are not UTF-8 have to survive.
    text = json.dumps(asdict(record), indent=1)
    write(harken / FOLDER / f"{record.key}.json", text.encode(), PRIVATE_FILE)


def forget(harken: Path, key: str) -> None:
    """Remove a record and what was kept for it."""
    folder = harken / FOLDER
    try:
        (folder / f"{key}.json").unlink(missing_ok=True)
        shutil.rmtree(kept(harken, key), ignore_errors=True)
    except OSError as exc:
        raise trouble("remove", folder / key, exc) from exc


@contextmanager
def locked(
    harken: Path, name: str = "lock", seconds: float = LOCK_SECONDS, *, what: str = "connecting or disconnecting"
) -> Iterator[None]:
    """Let one process at a time connect and disconnect; raises `Conflict` when another does not get done.

    Who does several of these as one has a lock of another name around them, and so has who does something else.
    """
    folder = harken / FOLDER
    try:
        for path in (harken, folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir(mode=PRIVATE_FOLDER)
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as exc:
        raise trouble("use", folder, exc) from exc
    try:
        _wait_for(file, seconds, what)
        yield
    finally:
        os.close(file)


def _wait_for(file: int, seconds: float, what: str) -> None:
    end = monotonic() + seconds
    while True:
        try:
            _lock(file)
        except OSError as exc:
            if monotonic() > end:
                raise Conflict(f"Another command is {what}.", "Wait until it is done.") from exc
            sleep(LOOK_SECONDS)
        else:
            return


def _read(path: Path) -> ConnectRecord | None:
    data = read(path)
    if data is None:
        return None
    hint = "Remove it; our entries are then found in the host's files, without it."
    try:
        record = msgspec.convert(json.loads(data), ConnectRecord)
    except (ValueError, msgspec.ValidationError) as exc:
        raise UserError(f"{path} is damaged: what was connected cannot be read.", hint) from exc
    if record.version > VERSION:
        raise UserError(f"{path} was written by a newer Harken.", "Use that version.")
    return replace(record, file=path.stem)
