"""What the value of a setting may be: one small type per kind of value.

A type reads a value from the file (`read`: already a number, a text, a list), from an environment variable or a
flag (`parse`: text only), and shows it again the way it is written. `wanted` completes "expected ...". A value
that does not fit raises `ValueError`, whose text is empty or one more sentence of help, and never holds the value.
Pure; which setting has which type is said in `settings.py`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from harken.automation import QuietHours
from harken.config.suggest import closest, did_you_mean
from harken.hosts.registry import host_names
from harken.rules.fault import FieldMisfit
from harken.rules.fields import quiet_hours
from harken.times import format_duration, parse_duration

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?:\.(?!-)[A-Za-z0-9-]{1,63})*")
_SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCHEME = re.compile(r"[A-Za-z]+ ")
_REFERENCE = re.compile(r"(?:env|file|keyring):.+")

_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")

LONGEST = timedelta(days=36_500)


class ValueType(Protocol):
    """How one kind of value is read, explained and shown."""

    @property
    def wanted(self) -> str:
        """What would be accepted, to complete "expected ..."."""
        ...

    @property
    def is_secret(self) -> bool:
        """Whether a value that was refused may hold a secret and must not be repeated."""
        ...

    def read(self, value: object) -> object:
        """Return the value of a setting for a value of the file; raise `ValueError` if it does not fit."""
        ...

    def parse(self, text: str) -> object:
        """Return the value of a setting for a text; raise `ValueError` if it does not fit."""
        ...

    def show(self, value: object) -> object:
        """Return the value as it would be written in the file."""
        ...


def has_password(url: str) -> bool:
    """Whether a URL carries a password, in front of its host or among its parameters."""
    if "://" not in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    return parts.password is not None or any(name.lower() == "password" for name, _ in parse_qsl(parts.query))


def is_reference(text: str) -> bool:
    """Whether a text refers to a secret that is kept elsewhere."""
    return _REFERENCE.fullmatch(text) is not None


def reference_in(text: str) -> str:
    """Return the reference that a text is, as a whole or after a word such as `Bearer`; empty when it is none."""
    rest = _SCHEME.sub("", text, count=1)
    return next((part for part in (text, rest) if is_reference(part)), "")


def is_source_name(text: str) -> bool:
    """Whether a text can name a source or a project; a colon cannot, it ends the source in `source:sender`."""
    return _SOURCE_NAME.fullmatch(text) is not None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds."""

    minimum: int
    maximum: int
    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return f"a whole number from {self.minimum} to {self.maximum}"

    def read(self, value: object) -> int:
        """Accept a number, but not true or false, which are numbers to Python."""
        if not isinstance(value, int) or isinstance(value, bool) or not self.minimum <= value <= self.maximum:
            raise ValueError
        return value

    def parse(self, text: str) -> int:
        """Accept digits."""
        if re.fullmatch(r"-?[0-9_]{1,20}", text.strip()) is None:
            raise ValueError
        try:
            number = int(text.strip())
        except ValueError:
            raise ValueError from None  # its own text repeats the value
        return self.read(number)

    def show(self, value: object) -> object:
        """Return the number."""
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return "true or false"

    def read(self, value: object) -> bool:
        """Accept true and false only."""
        if not isinstance(value, bool):
            raise ValueError
        return value

    def parse(self, text: str) -> bool:
        """Accept the usual words for true and false."""
        word = text.strip().lower()
        if word not in _YES + _NO:
            raise ValueError
        return word in _YES

    def show(self, value: object) -> object:
        """Return the truth value."""
        return value


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time with its unit."""

    minimum: timedelta
    maximum: timedelta = LONGEST
    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        bounds = f"from {format_duration(self.minimum)} to {format_duration(self.maximum)}"
        return f'a duration {bounds}, written like "90s", "15m", "1h30m" or "365d"'

    def read(self, value: object) -> timedelta:
        """Accept a text with units; a bare number does not say which unit it counts."""
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError("Write the number with its unit, in quotes.")
        return self.parse(_text(value))

    def parse(self, text: str) -> timedelta:
        """Accept a text with units."""
        try:
            duration = parse_duration(text.strip())
        except ValueError:
            raise ValueError from None
        if not self.minimum <= duration <= self.maximum:
            raise ValueError
        return duration

    def show(self, value: object) -> object:
        """Return the text with units."""
        return format_duration(value) if isinstance(value, timedelta) else value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[StrEnum | str, ...]
    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        *most, last = (f'"{word}"' for word in self.words)
        return f"{', '.join(most)} or {last}"

    def read(self, value: object) -> StrEnum | str:
        """Accept exactly one of the words."""
        text = _text(value)
        for word in self.words:
            if word == text:
                return word
        raise ValueError(did_you_mean(closest(text, self.words)).strip())

    def parse(self, text: str) -> StrEnum | str:
        """Accept exactly one of the words."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the word."""
        return str(value)


@dataclass(frozen=True, slots=True)
class HostName:
    """The name of an agent host, or nothing."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return _hosts().wanted

    def read(self, value: object) -> StrEnum | str:
        """Accept exactly one of the names, or an empty text."""
        return _hosts().read(value)

    def parse(self, text: str) -> StrEnum | str:
        """Accept exactly one of the names, or an empty text."""
        return _hosts().parse(text)

    def show(self, value: object) -> object:
        """Return the name."""
        return str(value)


def _hosts() -> Choice:
    """Return the choice there is: found on use, because other packages may add to it."""
    return Choice(("", *host_names()))


@dataclass(frozen=True, slots=True)
class ListenHost:
    """An address or host name to listen on."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return 'an IP address without brackets, or a host name, such as "127.0.0.1"'

    def read(self, value: object) -> str:
        """Accept an address or a name; never an empty text, which would mean every address of the machine."""
        text = _text(value)
        try:
            ipaddress.ip_address(text)
        except ValueError:
            if _HOST_NAME.fullmatch(text) is None:
                raise ValueError from None
        return text

    def parse(self, text: str) -> str:
        """Accept an address or a name."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the address."""
        return value


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, or nothing."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return 'a path from the root or from ~/, such as "~/code/shop"'

    def read(self, value: object) -> str:
        """Accept a path that means the same wherever Harken was started."""
        text = _text(value)
        if text and not text.startswith(("/", "~/")):
            raise ValueError
        return text

    def parse(self, text: str) -> str:
        """Accept a path."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the path."""
        return value


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Which store: the embedded one, or a PostgreSQL database, its password kept elsewhere."""

    is_secret: bool = True

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return (
            '"sqlite", "postgresql://..." without a password, or a reference to such a URL '
            '("env:NAME", "file:PATH", "keyring:SERVICE/NAME")'
        )

    def read(self, value: object) -> str:
        """Accept a store's URL or a reference to one."""
        text = _text(value)
        if text == "sqlite" or is_reference(text):
            return text
        if not text.startswith(("postgresql://", "postgres://")):
            raise ValueError
        if has_password(text):
            raise ValueError("A password is not written here: keep the whole URL elsewhere and refer to it.")
        return text

    def parse(self, text: str) -> str:
        """Accept a store's URL or a reference to one."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the URL or the reference, never what it refers to."""
        return value


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """An address at which others reach this machine, or nothing. One with a password in it is not repeated."""

    is_secret: bool = True

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return 'an address such as "https://harken.example.org", without a user, a query or a password'

    def read(self, value: object) -> str:
        """Accept the address of a server and a path, https or http."""
        text = _text(value).rstrip("/")
        if not text:
            return text
        parts = urlsplit(text)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and text.isascii()
        if parts.scheme not in {"https", "http"} or not parts.hostname or not is_plain or not text.isprintable():
            raise ValueError
        return text

    def parse(self, text: str) -> str:
        """Accept an address."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the address."""
        return value


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a secret is kept, or nothing."""

    is_secret: bool = True

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return '"env:NAME", "file:PATH" or "keyring:SERVICE/NAME"'

    def read(self, value: object) -> str:
        """Accept a reference; the secret itself is refused."""
        text = _text(value)
        if text and not is_reference(text):
            raise ValueError("A secret is not written here: keep it elsewhere and refer to it.")
        return text

    def parse(self, text: str) -> str:
        """Accept a reference."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the reference, never what it refers to."""
        return value


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of each day, or nothing."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return 'two times of the day, such as "22:00-07:00"'

    def read(self, value: object) -> QuietHours | None:
        """Accept two times that differ."""
        try:
            return quiet_hours(_text(value))
        except FieldMisfit as exc:
            raise ValueError from exc

    def parse(self, text: str) -> QuietHours | None:
        """Accept two times that differ."""
        return self.read(text.strip())

    def show(self, value: object) -> object:
        """Return the two times."""
        return f"{value.begin:%H:%M}-{value.end:%H:%M}" if isinstance(value, QuietHours) else ""


@dataclass(frozen=True, slots=True)
class SenderIds:
    """A list of senders, each with the source that vouches for the id."""

    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted."""
        return 'a list of senders, each written "source:sender"'

    def read(self, value: object) -> tuple[str, ...]:
        """Accept a list of `source:sender`; repeated ones count once."""
        if not isinstance(value, list | tuple):
            raise ValueError
        return tuple(dict.fromkeys(self._one(item) for item in value))

    def parse(self, text: str) -> tuple[str, ...]:
        """Accept `source:sender` separated by commas."""
        return self.read([item.strip() for item in text.split(",") if item.strip()])

    def show(self, value: object) -> object:
        """Return the list."""
        return list(value) if isinstance(value, tuple) else value

    def _one(self, item: object) -> str:
        source, colon, sender = _text(item).partition(":")
        if not colon or not is_source_name(source) or not sender or sender != sender.strip():
            raise ValueError
        return f"{source}:{sender}"
