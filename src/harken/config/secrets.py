"""Resolves references to secrets: `env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`.

Settings hold references only, so the value exists in memory where it is used and nowhere else: a plain value is
refused, and neither a value nor anything that contains one is put into an error, a log or a chained exception.
What a reference is for is not known here.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from harken.config.home import Home, expand_user
from harken.errors import NeedsPerson, UserError

MAX_SECRET_BYTES = 65_536

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_FORMS = "Write env:NAME, file:PATH or keyring:SERVICE/NAME and keep the secret there."


def resolve(reference: str, home: Home, environ: Mapping[str, str]) -> str:
    """Return the secret that a reference names; raise `UserError` if it is not one or leads nowhere."""
    kind, _, rest = reference.partition(":")
    if rest and kind == "env":
        return _from_environment(rest, home, environ)
    if rest and kind == "file":
        return _from_file(rest, home, environ)
    if rest and kind == "keyring":
        return _from_keyring(rest)
    raise UserError("A secret is written in the settings; only a reference to it may be.", _FORMS)


def env_values(home: Home) -> dict[str, str]:
    """Return what the file for `env:` references sets; raise `UserError` where it cannot be read as such."""
    return _env_file(home.env_file)


def _from_environment(name: str, home: Home, environ: Mapping[str, str]) -> str:
    if _NAME.fullmatch(name) is None:
        # The text is not repeated: people paste the secret itself here.
        raise UserError("An env: reference does not name an environment variable.", _FORMS)
    value = environ.get(name) or _env_file(home.env_file).get(name)
    if not value:
        raise UserError(
            f"The secret env:{name} is not set.", f"Set {name} in the environment or add {name}=... to {home.env_file}."
        )
    return value


def _env_file(path: Path) -> dict[str, str]:
    """Return the NAME=value lines of the file; blank lines, comments and quotes around a value are left out."""
    if not path.exists():
        return {}
    values: dict[str, str] = {}
    for number, line in enumerate(_read_private(path).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(f"{path}, line {number} is not of the form NAME=value.", "Correct or remove that line.")
        values[match[1]] = _unquote(match[2].strip())
    return values


def _unquote(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _from_file(text: str, home: Home, environ: Mapping[str, str]) -> str:
    path = home.path / expand_user(text, environ)  # a relative path is relative to the home
    value = _read_private(path).rstrip("\r\n")
    if not value:
        raise UserError(f"The secret file {path} is empty.", "Write the secret into it.")
    return value


def _read_private(path: Path) -> str:
    """Return the text of a file that only its owner can read; what is checked is what is read."""
    try:
        # Without O_NONBLOCK a named pipe would wait here for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "not a possible file name"
        raise UserError(f"The secret file {path} cannot be read: {reason}.", "Check the path and its owner.") from None
    try:
        _refuse_readable(path, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MAX_SECRET_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_SECRET_BYTES:
        raise UserError(f"The secret file {path} is too large.", f"At most {MAX_SECRET_BYTES} bytes are read.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"The secret file {path} is not UTF-8 text.", "Save it as UTF-8.") from None


def _refuse_readable(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"The secret file {path} is not a plain file.", "Name a file that holds only the secret.")
    if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
        raise UserError(f"The secret file {path} can be read by others.", f"Run: chmod 600 {path}")


def _from_keyring(text: str) -> str:
    service, slash, name = text.rpartition("/")
    if not slash or not service or not name:
        raise UserError("A keyring: reference does not name a service and an entry.", "Write keyring:SERVICE/NAME.")
    try:
        keyring = importlib.import_module("keyring")
        errors = importlib.import_module("keyring.errors")
    except ImportError:
        raise UserError(
            f"The secret keyring:{service}/{name} needs the keyring package, which is not installed.",
            "Install the package keyring where Harken is, or keep the secret with env: or file:.",
        ) from None
    try:
        value = keyring.get_password(service, name)
    except errors.KeyringLocked:
        raise NeedsPerson(
            f"The keyring that holds {service}/{name} is locked.", "Unlock it.", action="unlock the keyring"
        ) from None
    except errors.KeyringError:
        raise UserError(
            f"The keyring cannot be asked for {service}/{name}.", "Check that this session has a keyring."
        ) from None
    if not value:
        raise UserError(f"The keyring has no entry {service}/{name}.", f"Store it with: keyring set {service} {name}")
    return str(value)
