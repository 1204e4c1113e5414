"""Files of other programs, looked at and put back: what a path is, and making it that again.

Writing is atomic and keeps the mode; a link is followed to the file it means. Nothing here knows why a file is
written. Above it are the records of what `connect` did; contents are kept in a folder of ours by their hash.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harken.errors import HarkenError, UserError

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_FILES: Final = 5_000
PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_NEW_FILE: Final = 0o666


@dataclass(frozen=True, slots=True)
class FileState:
    """What a path is: a file with some content, a link to somewhere, a folder, or more than we look at."""

    kind: Literal["file", "link", "folder", "other"]
    content: str = ""  # of a file the hash, of a link where it leads
    mode: int = 0


def read(path: Path) -> bytes | None:
    """Return what a file holds, None when there is none; raises `UserError` for what is no file or cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a file.", "Move it away, then run this again.")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise trouble("read", path, exc) from exc


def trouble(verb: str, path: Path, exc: OSError) -> HarkenError:
    """Return the error for a path that the system does not let us use."""
    return UserError(f"Cannot {verb} {path}: {exc.strerror}.", "Check who owns it and its permissions.")


def look(roots: Iterable[Path]) -> dict[str, FileState]:
    """Return what some paths are, and everything below those that are folders; links are not entered."""
    found: dict[str, FileState] = {}
    for root in roots:
        try:
            for path in _below(root):
                if len(found) >= MAX_FILES:
                    found[str(root)] = FileState("other")
                    break
                found[str(path)] = _state(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as exc:
            raise trouble("look at", root, exc) from exc
    return found


def glance(paths: Iterable[Path]) -> dict[str, FileState]:
    """Return what some paths are, without what is below them."""
    found: dict[str, FileState] = {}
    for path in paths:
        try:
            found[str(path)] = _state(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as exc:
            raise trouble("look at", path, exc) from exc
    return found


def _below(root: Path) -> Iterator[Path]:
    status = root.lstat()
    yield root
    if stat.S_ISLNK(status.st_mode):
        target = Path(os.path.realpath(root))
        if target.is_file():
            yield target
    elif stat.S_ISDIR(status.st_mode):
        for folder, folders, files in os.walk(root):
            yield from (Path(folder, name) for name in sorted([*folders, *files]))


def _state(path: Path) -> FileState:
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return FileState("link", str(path.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return FileState("folder")
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        return FileState("other")
    return FileState("file", digest(path.read_bytes()), mode)


def digest(data: bytes) -> str:
    """Return the name under which a content is kept."""
    return hashlib.sha256(data).hexdigest()


def write(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace a file, or the file that a link means: a reader sees the old content or the new, never a part.

    Without a mode the file keeps its own, and a new one gets what the person's programs get.
    """
    target = Path(os.path.realpath(path))
    temporary = unfinished(target)
    try:
        wanted = mode_of(target) if mode is None else mode
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(wanted)
        temporary.replace(target)
    except OSError as exc:
        with suppress(OSError):
            temporary.unlink()
        raise trouble("write", path, exc) from exc


def unfinished(path: Path) -> Path:
    """Return where a file stands until it is complete: always the same, so that what a crash left is found."""
    return path.with_name(f".{path.name}.harken")


def mode_of(path: Path) -> int:
    """Return the mode of a file; for one that is to be made, what the person's programs give theirs."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else _NEW_FILE & ~_umask()


def _umask() -> int:
    # There is no way to ask but to set it; nothing else runs in this process meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def keep(data: bytes, folder: Path) -> str:
    """Keep a content in a folder of ours, and return its name."""
    name = digest(data)
    if not (folder / name).exists():
        write(folder / name, data, PRIVATE_FILE)
    return name


def restore(path: Path, state: FileState | None, kept: Path) -> None:
    """Make a path what it was. A folder that is to go stays when something is in it."""
    try:
        if glance([path]).get(str(path)) == state:
            return
        _clear(path, state)
        if state is None:
            return
        if state.kind == "folder":
            path.mkdir(exist_ok=True)
        elif state.kind == "link":
            path.symlink_to(state.content)
        elif state.kind == "file":
            write(path, (kept / state.content).read_bytes(), state.mode)
    except OSError as exc:
        raise trouble("restore", path, exc) from exc


def _clear(path: Path, state: FileState | None) -> None:
    is_folder = path.is_dir() and not path.is_symlink()
    if is_folder and (state is None or state.kind != "folder"):
        with suppress(OSError):  # somebody else's files are in it
            path.rmdir()
    elif not is_folder and (state is None or state.kind != "file" or path.is_symlink()):
        path.unlink(missing_ok=True)
