"""Keeps one sign-in on disk: a 0600 file in a 0700 folder, replaced whole, one process at a time.

With the keyring the file is encrypted and the keyring holds its key: some keyrings hold 2 KB an entry, a sign-in is
larger, and the file is replaced as a whole either way. Being killed at any moment leaves the old text or the new one.
Everything here waits for the disk or for another process: it is called in a thread. It knows nothing of what it keeps.
"""

from __future__ import annotations

import importlib
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import quote

from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
MAX_BYTES: Final = 4_000_000
LOCK_SECONDS: Final = 45.0  # longer than one renewal takes at most, which happens inside the lock
LOOK_SECONDS: Final = 0.05
STAMP_STEP_NS: Final = 2_000_000_000
KEYRING_SERVICE: Final = "harken"

_log = logging.getLogger("harken.sources.microsoft")

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class TokenCache:
    """The place of one source's sign-in. `save` and `clear` are called inside `locked` only."""

    def __init__(self, folder: Path, name: str, *, is_in_keyring: bool = False) -> None:
        self._name = name
        self._folder = folder
        file = quote(name, safe="").replace(".", "%2E")
        self._path = folder / f"{file}.json"
        self._draft = folder / f".{file}.new"  # one name: what a killed process left is overwritten, never piled up
        self._lock_path = folder / f".{file}.lock"
        # The path is part of it, because two homes may have sources of one name.
        self._entry = f"sign-in {self._path}"
        self._is_in_keyring = is_in_keyring

    @contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep every other process out; raises `Unavailable` if one holds it for longer than `seconds`."""
        with self._on_disk():
            self._make_folder()
            file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | _no_follow(), PRIVATE_FILE)
        try:
            end = monotonic() + seconds
            while not _has_locked(file):
                if monotonic() >= end:
                    raise Unavailable(
                        f"Another process is busy with the sign-in of {self._name}.",
                        "Wait until it has ended.",
                        retry_after=5.0,
                    )
                sleep(LOOK_SECONDS)
            yield
        finally:
            os.close(file)  # which also gives the lock back

    def stamp(self) -> int:
        """Return a number that is another one after every `save` and `clear` of any process. Quick."""
        try:
            return self._lock_path.stat().st_mtime_ns
        except OSError:
            return 0

    def load(self) -> str | None:
        """Return what was saved, or nothing; what cannot be read any more counts as nothing."""
        data = self._read()
        if data is None or not self._is_in_keyring:
            return None if data is None else data.decode("utf-8", "replace")
        key = self._keyring_key()
        fernet = importlib.import_module("cryptography.fernet")
        try:
            return str(fernet.Fernet(key).decrypt(data).decode()) if key else None
        except (fernet.InvalidToken, ValueError):
            _log.warning("%s: the kept sign-in cannot be decrypted", self._name)
            return None

    def save(self, text: str) -> None:
        """Replace what was saved. After a crash there is the old text or the new, never a part."""
        data = text.encode()
        if self._is_in_keyring:
            fernet = importlib.import_module("cryptography.fernet")
            data = fernet.Fernet(self._keyring_key() or self._new_key()).encrypt(data)
        with self._on_disk():
            with suppress(FileNotFoundError):
                self._draft.unlink()
            file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _no_follow(), PRIVATE_FILE)
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._draft.replace(self._path)
            self._changed()

    def clear(self) -> bool:
        """Remove what was saved, and its key; returns whether there was anything."""
        with self._on_disk():
            is_there = self._path.exists()
            for path in (self._path, self._draft):
                with suppress(FileNotFoundError):
                    path.unlink()
            self._changed()
        if self._is_in_keyring:
            with self._asking_keyring() as keyring, suppress(keyring.errors.PasswordDeleteError):
                keyring.delete_password(KEYRING_SERVICE, self._entry)
        return is_there

    def _changed(self) -> None:
        """Make the renaming survive power loss, where folders can be synced, and the stamp another one."""
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        # Not the clock's time: two quick changes would look like one. Some file systems count in steps of 2 seconds.
        stamp = self._lock_path.stat().st_mtime_ns + STAMP_STEP_NS
        os.utime(self._lock_path, ns=(stamp, stamp))

    def _read(self) -> bytes | None:
        with self._on_disk():
            try:
                file = os.open(self._path, os.O_RDONLY | _no_follow())
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as stream:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode) or not _is_own(status):
                    raise UserError(f"{self._path} is not a file of yours.", "Move it away, and sign in again.")
                if os.name == "posix" and stat.S_IMODE(status.st_mode) != PRIVATE_FILE:
                    _log.warning("%s: the kept sign-in could be read by others; it is private again", self._name)
                    os.fchmod(file, PRIVATE_FILE)
                return stream.read(MAX_BYTES)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_own(status):
            raise UserError(f"{self._folder} is not a folder of yours.", "Move it away, and sign in again.")
        if os.name == "posix" and stat.S_IMODE(status.st_mode) != PRIVATE_FOLDER:
            self._folder.chmod(PRIVATE_FOLDER)

    def _keyring_key(self) -> str | None:
        with self._asking_keyring() as keyring:
            value = keyring.get_password(KEYRING_SERVICE, self._entry)
        return str(value) if value else None

    def _new_key(self) -> str:
        key = str(importlib.import_module("cryptography.fernet").Fernet.generate_key().decode())
        with self._asking_keyring() as keyring:
            keyring.set_password(KEYRING_SERVICE, self._entry, key)
        return key

    @contextmanager
    def _asking_keyring(self) -> Iterator[Any]:
        try:
            keyring = importlib.import_module("keyring")
            errors = importlib.import_module("keyring.errors")
        except ImportError:
            raise UserError(
                f"The sign-in of {self._name} is to be kept with the keyring, which is not installed.",
                "Install harken[keyring], or keep it in a private file.",
            ) from None
        try:
            yield keyring
        except errors.KeyringLocked:
            raise NeedsPerson(
                f"The keyring that holds the sign-in of {self._name} is locked.",
                "Unlock it.",
                action="unlock the keyring",
            ) from None
        except errors.KeyringError:
            raise UserError(
                f"The keyring cannot be asked for the sign-in of {self._name}.",
                "Check that this session has a keyring at all, or keep it in a private file.",
            ) from None

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise _disk_error(self._name, exc) from exc


def _disk_error(name: str, exc: OSError) -> HarkenError:
    return Unavailable(
        f"The sign-in of {name} cannot be read or kept: {exc.strerror}.",
        "Check the space on the disk, and who owns the folder of Harken.",
        retry_after=60.0,
    )


def _has_locked(file: int) -> bool:
    try:
        _lock(file)
    except OSError:
        return False
    return True


def _no_follow() -> int:
    return getattr(os, "O_NOFOLLOW", 0)


def _is_own(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
