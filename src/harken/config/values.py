"""What the value of a setting may be: a type that msgspec reads, and what it must be besides.

A value comes from the file (`read`: already a number, a text, a list), or from an environment variable or a flag
(`parse`: text only), and is shown again the way it is written. `wanted` completes "expected ...". A value that does not
fit raises `ValueError` with an empty text or one more sentence of help, and never with the value. The functions at the
end put a mistake into words: where it is, what was found, what would be accepted or was meant; they repeat nothing that
may be a secret or could act on a terminal. Pure; which setting has which type is said in `settings.py`.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from harken.automation import QuietHours
from harken.hosts.registry import host_names
from harken.rules.fault import FieldMisfit
from harken.rules.fields import quiet_hours
from harken.times import format_duration, parse_duration

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?:\.(?!-)[A-Za-z0-9-]{1,63})*")
_SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCHEMA = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SCHEME = re.compile(r"[A-Za-z]+ ")
_REFERENCE = re.compile(r"(?:env|file|keyring):.+")
_DIGITS = re.compile(r"-?[0-9]+(?:_[0-9]+)*")
_MAX_DIGITS = 20
_PORT_DIGITS = 5
_MAX_PORT = 65_535
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN_CHARS = 60

_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")

LONGEST = timedelta(days=36_500)


def _same(value: object) -> object:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """How one kind of value is read, explained and shown.

    `kind` is the type of the value in the file, `check` returns the setting's value for it or raises `ValueError`;
    `from_text` returns for a text what the file would hold. `show` returns a value as it would be written in the file.
    A refused value of a type that `is_secret` may hold a secret, and is not repeated.
    """

    kind: Any
    expected: str | Callable[[], str]
    check: Callable[[Any], object] = _same
    from_text: Callable[[str], object] = str.strip
    show: Callable[[Any], object] = _same
    is_secret: bool = False

    @property
    def wanted(self) -> str:
        """What would be accepted, to complete "expected ..."."""
        return self.expected if isinstance(self.expected, str) else self.expected()

    def read(self, value: object) -> object:
        """Return the value of a setting for a value of the file; raise `ValueError` if it does not fit."""
        try:
            found = msgspec.convert(value, self.kind)
        except msgspec.ValidationError:
            raise ValueError from None  # its own text may repeat the value
        return self.check(found)

    def parse(self, text: str) -> object:
        """Return the value of a setting for a text; raise `ValueError` if it does not fit."""
        return self.read(self.from_text(text))


def has_password(url: str) -> bool:
    """Whether a URL carries a password, in front of its host or among its parameters."""
    if "://" not in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    return parts.password is not None or any(_is_secret(name) for name, _ in parse_qsl(parts.query))


def without_password(url: str) -> str:
    """Return a URL as people may see it."""
    if not has_password(url):
        return url
    scheme, _, rest = url.partition("://")
    place, question, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    account, at, hosts = authority.rpartition("@")
    shown = [part for part in query.split("&") if part and not _is_secret(part.partition("=")[0])]
    user = account.partition(":")[0]
    return f"{scheme}://{user}{at}{hosts}{slash}{path}{question if shown else ''}{'&'.join(shown)}"


def _is_secret(parameter: str) -> bool:
    return any(word in unquote(parameter).lower() for word in ("password", "secret"))


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


def whole(minimum: int, maximum: int) -> ValueType:
    """Return the type of a whole number between two bounds."""

    def digits(text: str) -> int:
        # What `int` takes besides, such as the digits of other scripts, is a slip of the hand.
        if len(text.strip()) > _MAX_DIGITS or _DIGITS.fullmatch(text.strip()) is None:
            raise ValueError
        return int(text)

    return ValueType(
        kind=Annotated[int, msgspec.Meta(ge=minimum, le=maximum)],
        expected=f"a whole number from {minimum} to {maximum}",
        from_text=digits,
    )


def flag() -> ValueType:
    """Return the type of what is true or false; in a text the usual words for that are accepted."""

    def word(text: str) -> object:
        found = text.strip().lower()
        return found in _YES if found in _YES + _NO else text

    return ValueType(kind=bool, expected="true or false", from_text=word)


def duration(minimum: timedelta, maximum: timedelta = LONGEST) -> ValueType:
    """Return the type of a length of time with its unit; a bare number does not say which unit it counts."""

    def within(value: str | int) -> timedelta:
        if isinstance(value, int):
            raise ValueError("Write the number with its unit, in quotes.")
        try:
            found = parse_duration(value.strip())
        except ValueError:
            raise ValueError from None
        if not minimum <= found <= maximum:
            raise ValueError
        return found

    bounds = f"from {format_duration(minimum)} to {format_duration(maximum)}"
    return ValueType(
        kind=str | int,
        expected=f'a duration {bounds}, written like "90s", "15m", "1h30m" or "365d"',
        check=within,
        show=format_duration,
    )


def choice(*words: StrEnum | str) -> ValueType:
    """Return the type of one of a few words."""

    def one(text: str) -> StrEnum | str:
        for word in words:
            if word == text:
                return word
        raise ValueError(did_you_mean(closest(text, words)).strip())

    *most, last = (f'"{word}"' for word in words)
    return ValueType(kind=str, expected=f"{', '.join(most)} or {last}", check=one, show=str)


def host_name() -> ValueType:
    """Return the type of the name of an agent host, or nothing: found on use, because other packages may add to it."""

    def known() -> ValueType:
        return choice("", *host_names())

    return ValueType(kind=str, expected=lambda: known().wanted, check=lambda text: known().read(text))


def listen_host() -> ValueType:
    """Return the type of an address to listen on; never empty, which would mean every address of the machine."""

    def address(text: str) -> str:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            if _HOST_NAME.fullmatch(text) is None:
                raise ValueError from None
        return text

    wanted = 'an IP address without brackets, or a host name, such as "127.0.0.1"'
    return ValueType(kind=str, expected=wanted, check=address)


def listen_place() -> ValueType:
    """Return the type of an address and a port to listen on, or nothing."""

    def place(text: str) -> str:
        host, _, port = text.rpartition(":")
        if not text:
            return text
        is_bracketed = host.startswith("[") and host.endswith("]")
        if not port.isdecimal() or len(port) > _PORT_DIGITS or int(port) > _MAX_PORT or (":" in host) != is_bracketed:
            raise ValueError
        listen_host().check(host[1:-1] if is_bracketed else host)
        return text

    wanted = 'an address and a port, such as "0.0.0.0:8443" or "[::]:8443"'
    return ValueType(kind=str, expected=wanted, check=place)


def file_path() -> ValueType:
    """Return the type of a file that means the same wherever Harken was started, or nothing."""
    return replace(folder(), expected='a path from the root or from ~/, such as "~/certificates/harken.pem"')


def folder() -> ValueType:
    """Return the type of a folder that means the same wherever Harken was started, or nothing."""

    def path(text: str) -> str:
        if text and not text.startswith(("/", "~/")):
            raise ValueError
        return text

    return ValueType(kind=str, expected='a path from the root or from ~/, such as "~/code/shop"', check=path)


def store_url() -> ValueType:
    """Return the type of a store: the embedded one, or a PostgreSQL database, its password kept elsewhere."""

    def url(text: str) -> str:
        if text == "sqlite" or is_reference(text):
            return text
        if not text.startswith(("postgresql://", "postgres://")):
            raise ValueError
        if has_password(text):
            raise ValueError("A password is not written here: keep it elsewhere, and refer to it in store.password.")
        return text

    wanted = (
        '"sqlite", "postgresql://..." without a password, or a reference to such a URL '
        '("env:NAME", "file:PATH", "keyring:SERVICE/NAME")'
    )
    return ValueType(kind=str, expected=wanted, check=url, is_secret=True)


def machine_name() -> ValueType:
    """Return the type of the name of a machine, or nothing."""

    def name(text: str) -> str:
        if text and _HOST_NAME.fullmatch(text) is None:
            raise ValueError
        return text

    return ValueType(kind=str, expected='letters, digits, "-" and ".", such as "buildbox"', check=name)


def schema_name() -> ValueType:
    """Return the type of the name of a schema, as PostgreSQL has them without quotes."""

    def name(text: str) -> str:
        if _SCHEMA.fullmatch(text) is None or text.startswith("pg_"):
            raise ValueError
        return text

    wanted = 'lower-case letters, digits and "_", beginning with a letter, at most 40 and not with "pg_"'
    return ValueType(kind=str, expected=wanted, check=name)


def public_url() -> ValueType:
    """Return the type of an address at which others reach this machine, or nothing."""

    def address(found: str) -> str:
        text = found.rstrip("/")
        if not text:
            return text
        parts = urlsplit(text)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc) and text.isascii()
        if parts.scheme not in {"https", "http"} or not parts.hostname or not is_plain or not text.isprintable():
            raise ValueError
        return text

    wanted = 'an address such as "https://harken.example.org", without a user, a query or a password'
    return ValueType(kind=str, expected=wanted, check=address, is_secret=True)


def reference() -> ValueType:
    """Return the type of the place where a secret is kept, or nothing; the secret itself is refused."""

    def place(text: str) -> str:
        if text and not is_reference(text):
            raise ValueError("A secret is not written here: keep it elsewhere and refer to it.")
        return text

    wanted = '"env:NAME", "file:PATH" or "keyring:SERVICE/NAME"'
    return ValueType(kind=str, expected=wanted, check=place, is_secret=True)


def hours() -> ValueType:
    """Return the type of a part of each day, or nothing."""

    def part(text: str) -> QuietHours | None:
        try:
            return quiet_hours(text)
        except FieldMisfit as exc:
            raise ValueError from exc

    def shown(value: QuietHours | None) -> str:
        return f"{value.begin:%H:%M}-{value.end:%H:%M}" if value is not None else ""

    return ValueType(kind=str, expected='two times of the day, such as "22:00-07:00"', check=part, show=shown)


def sender_ids() -> ValueType:
    """Return the type of a list of senders, each with the source that vouches for the id; repeated ones count once."""

    def one(item: str) -> str:
        source, colon, sender = item.partition(":")
        if not colon or not is_source_name(source) or not sender or sender != sender.strip():
            raise ValueError
        return item

    return ValueType(
        kind=list[str],
        expected='a list of senders, each written "source:sender"',
        check=lambda items: tuple(dict.fromkeys(map(one, items))),
        from_text=lambda text: [item.strip() for item in text.split(",") if item.strip()],
        show=list,
    )


def some_of(*words: StrEnum | str) -> ValueType:
    """Return the type of a list of some of these words; repeated ones count once."""
    known = tuple(str(word) for word in words)

    def one(item: str) -> str:
        if item not in known:
            raise ValueError
        return item

    return ValueType(
        kind=list[str],
        expected=f"a list of some of {', '.join(known)}",
        check=lambda items: tuple(dict.fromkeys(map(one, items))),
        from_text=lambda text: [item.strip() for item in text.split(",") if item.strip()],
        show=list,
    )


def addresses() -> ValueType:
    """Return the type of a list of IP addresses; repeated ones count once."""

    def one(item: str) -> str:
        return str(ipaddress.ip_address(item.strip()))

    return ValueType(
        kind=list[str],
        expected='a list of IP addresses, such as ["10.0.0.1"]',
        check=lambda items: tuple(dict.fromkeys(map(one, items))),
        from_text=lambda text: [item.strip() for item in text.split(",") if item.strip()],
        show=list,
    )


def dotted(*parts: str) -> str:
    """Return a key's full name; parts that are not plain words are quoted."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else _cut(ascii(part)) for part in parts)


def shown(value: object) -> str:
    """Return what was found, short and harmless."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _cut(f'"{value}"' if value.isprintable() else ascii(value))
    if isinstance(value, int | float):
        return _cut(_number(value))
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list of " + shown(value[0]) + (" and more" if len(value) > 1 else "") if value else "an empty list"
    return "a date or time"


def wrong(where: str, name: str, value: object, wanted: str, *, more: str = "", hide: bool = False) -> str:
    """Say that a value does not fit."""
    found = "a value that is not shown here" if hide else shown(value)
    return f"{where}: {name} is {found}; expected {wanted}.{' ' + more if more else ''}"


def unfit(where: str, name: str, value: object, value_type: ValueType, exc: ValueError) -> str:
    """Say that a value does not fit its type."""
    # A number or a truth value in the place of a text is no secret, and seeing it helps.
    hide = value_type.is_secret and not isinstance(value, bool | int | float)
    return wrong(where, name, value, value_type.wanted, more=str(exc), hide=hide)


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no such setting, and which was probably meant."""
    return f"{where}: {name} is not a setting.{did_you_mean(closest_name(name, known))}"


def _number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python is willing to print
        return "a very large number"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like this one, or nothing when none is near; case and hyphens do not count."""
    plain: dict[str, str] = {}
    for candidate in known:
        plain.setdefault(_plain(candidate), candidate)
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.65)
    return plain[near[0]] if near else ""


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the dotted name most like this one: as a whole, else by its last part alone."""
    names = list(known)
    leaves: dict[str, str] = {}
    for candidate in names:
        leaves.setdefault(_plain(candidate).rpartition(".")[2], candidate)
    leaf = _plain(name).rpartition(".")[2]
    return closest(name, names) or leaves.get(closest(leaf, leaves), "")


def did_you_mean(guess: str) -> str:
    """Return the question to add to an error, or nothing without a guess."""
    return f" Did you mean {guess}?" if guess else ""


def _plain(word: str) -> str:
    # Without the bound, comparing a very long word with every candidate takes seconds.
    return word[:100].casefold().replace("-", "_")
