"""A text that is too long for a message, as a file in the folder of the task that it is for.

The file is in `.harken/inbox` of that folder, readable by its owner only, under a name of its own: nothing is
overwritten, and no link is followed, because an agent works in that folder and may have put one there. git leaves the
files alone. What they say is kept as it was given. It blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Final

from harken.errors import Conflict, NotFound, TooLong
from harken.ingest.sanitise import one_line

FOLDERS: Final = (".harken", "inbox")
DATABASE: Final = "harken.db"  # what a home of Harken has in it, by default in a folder of the first name
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MOST_NAMES: Final = 100
BEGINNING_CHARS: Final = 200  # of the text, in the words that name its file
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
IGNORED: Final = b"# Texts that Harken was given for this task. git leaves them alone.\n*\n"

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text that is in a file: the file's path below the task's folder, and the words of a message that names it."""

    path: str
    note: str


def write_text(folder: str, text: str, day: date) -> TextFile:
    """Write a text into a task's folder. The same text of one day is written once."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_FILE_BYTES:
        message = f"A file has at most {MAX_FILE_BYTES:,} bytes here, and this text has {len(data):,}."
        hint = "Copy it into the task's folder yourself, and name the file in a message."
        raise TooLong(message, hint, length=len(text), limit=MAX_FILE_BYTES)
    stem = f"{day.isoformat()}-{hashlib.sha256(data).hexdigest()[:12]}"
    try:
        with _opened(folder) as inbox:
            _write_once(inbox, ".gitignore", IGNORED)
            for number in range(1, MOST_NAMES):
                name = f"{stem}.txt" if number == 1 else f"{stem}-{number}.txt"
                if _write_once(inbox, name, data) or _holds(inbox, name, data):
                    return _named("/".join((*FOLDERS, name)), text)
    except FileNotFoundError as exc:
        raise NotFound(f"The folder of the task is missing: {folder}", "See: harken task list") from exc
    except OSError as exc:
        place = "/".join(FOLDERS)
        message = f"No file can be written into {place} of the task's folder: {exc.strerror}."
        raise Conflict(message, "Look what is there: a link is not followed.") from exc
    raise Conflict(f"Too many files in the task's folder begin with {stem}.", "Remove some of them.")


def _named(path: str, text: str) -> TextFile:
    said = f"A text of {len(text):,} characters for you is in a file in this task's folder: {path}"
    return TextFile(path, f"{said}\nIt begins: {one_line(text, BEGINNING_CHARS)}")


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open the folder for the files inside a task's folder; it is made where it is missing."""
    opened = [os.open(folder, _FOLDER)]
    try:
        for name in FOLDERS:
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE_FOLDER, dir_fd=opened[-1])
            opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            if _is_there(opened[-1], DATABASE):
                message = f"The folder of the task holds a home of Harken: {folder}/{name}"
                raise Conflict(message, "Make a task for another folder.")
        yield opened[-1]
    finally:
        for each in opened:
            os.close(each)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_once(folder: int, name: str, data: bytes) -> bool:
    """Write a file that is not there yet; return whether it was not. A file that was begun and failed is removed."""
    try:
        file = os.open(name, _NEW, PRIVATE_FILE, dir_fd=folder)
    except FileExistsError:
        return False
    is_written = False
    try:
        with os.fdopen(file, "wb") as to:
            to.write(data)
            to.flush()
            os.fsync(to.fileno())
        os.fsync(folder)
        is_written = True
    finally:
        if not is_written:
            os.unlink(name, dir_fd=folder)
    return True


def _holds(folder: int, name: str, data: bytes) -> bool:
    """Whether a file is there with these words: they were handed over before, and the answer to that was lost."""
    try:
        # Not blocking: whatever has this name, it may be a pipe that nobody writes to.
        file = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_LINK, dir_fd=folder)
    except OSError:
        return False
    with os.fdopen(file, "rb") as there:
        is_file = stat.S_ISREG(os.fstat(there.fileno()).st_mode)
        return is_file and there.read(len(data) + 1) == data
