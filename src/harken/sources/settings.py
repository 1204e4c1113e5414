"""What a person writes about one source, `[sources.NAME]` in config.toml: declared by each kind, and read from that.

A kind declares its keys as a `SourceSettings` struct, each field with a `SettingKey`: what it means, what would do,
whether it names a secret, and the option of `source add` that sets it. `SourceSettings.read` is the one reader. Every
mistake is a `UserError` that says which key it is and what would do; what may be a secret is not repeated. What keys
mean together is checked by each kind's own `check`. Below are only the errors.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import cache
from math import inf
from typing import ClassVar, Final, Literal, Self, TypeAlias, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from harken.errors import UserError

# What may be said of every source; others read these, and they are no mistake here.
SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
REFERENCES: Final = ("env:", "file:", "keyring:")
WHERE_KEPT: Final = "where it is kept: env:NAME, file:PATH or keyring:SERVICE/NAME"

_SHOWN_CHARS: Final = 60
_COMPARED_CHARS: Final = 100
_MIN_ALIKE: Final = 0.65

TextReader: TypeAlias = Callable[[str], str]
"""Returns a text as it is used; raises `WrongSetting`."""


class WrongSetting(Exception):
    """A text that a key cannot have: `said` goes on after the key; `hint` is for where `wanted` would not do."""

    def __init__(self, said: str, hint: str = "") -> None:
        super().__init__(said)
        self.said = said
        self.hint = hint


def line(text: str) -> str:
    """Return a text of one line without the spaces around it."""
    return verbatim(text).strip()


def verbatim(text: str) -> str:
    """Return a text of one line as it is written."""
    if not text.strip() or not text.isprintable():
        raise WrongSetting("is not a text of one line.")
    return text


def any_text(text: str) -> str:
    """Return any text as it is written: a part of a command may have nearly any characters."""
    if "\0" in text:
        raise WrongSetting("has a character that no text can have.")
    return text


def reference(text: str) -> str:
    """Return where a secret is kept."""
    if not text.strip().startswith(REFERENCES):
        raise WrongSetting("does not say where it is kept.")  # not repeated: people paste the secret itself
    return text.strip()


def private_url(text: str) -> str:
    """Return an address that is believed or gets a secret: over https, or over http on this machine."""
    return _url(text, can_be_local=True)


def https_url(text: str) -> str:
    """Return an address over https."""
    return _url(text, can_be_local=False)


def shaped(pattern: re.Pattern[str], said: str) -> TextReader:
    """Return the reader of a text of one shape; `said` is what is said of any other."""

    def read(text: str) -> str:
        if not pattern.fullmatch(text.strip()):
            raise WrongSetting(said)  # not repeated: it may be a secret in the wrong place
        return text.strip()

    return read


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key: what it means, its option if it has one, and how it is read.

    With `only` it has a meaning where another key has one of some values; with `is_needed` it has to be there then.
    """

    help: str
    _: KW_ONLY
    metavar: str = ""  # makes it an option of `source add`
    flag: str = ""  # the option, where it is not called like the key, or takes no value of its own
    wanted: str = ""  # what would do, for errors, where the help does not say it
    is_secret: bool = False
    read: TextReader | None = None  # of a text, or of each in a list or table
    noun: str = "text"  # what a list holds
    least: float = -inf
    most: float = inf
    is_needed: bool = False
    only: tuple[str, tuple[str, ...]] | None = None


CERTIFICATES: Final = SettingKey("A file of certificates that are believed besides the system's.")


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The settings of one source. A field with a `SettingKey` is a key; its default stands where it is not written."""

    what: ClassVar[str] = "a source"  # what errors call a source of the kind

    name: str  # of the source

    def __repr__(self) -> str:
        # Some of it may be secret, and what is in a `repr` ends up in a log.
        return f"{type(self).__name__}({self.name!r})"

    @classmethod
    def read(cls, name: str, table: Mapping[str, object]) -> Self:
        """Return the settings of the source `name`, or raise a `UserError` that names the key."""
        known = _meaningful(cls, name, table)
        _refuse_unknown(cls.what, name, table, known)
        found = {each.attribute: each.value(name, table) for each in known.values() if each.is_there(name, table)}
        settings = cls(name=name, **found)
        settings.check()
        return settings

    def check(self) -> None:
        """Refuse what keys cannot mean together, with a `UserError`."""

    def dotted(self, key: str) -> str:
        """Return a key as people find it."""
        return dotted(self.name, key)


def dotted(name: str, key: str) -> str:
    """Return a key of a source as people find it."""
    return f"sources.{name}.{key}"


def missing(name: str, key: str, wanted: str) -> UserError:
    """Return the error about a key that has to be there."""
    return UserError(f"{dotted(name, key)} is missing.", f"Set it to {wanted}.")


def shown(found: object) -> str:
    """Return a value as it can be shown."""
    try:
        return repr(found)[:_SHOWN_CHARS]
    except ValueError:
        # Python writes out no number of more than 4,300 digits, and TOML has them.
        return "too large a number"


def one_of(found: object, known: Collection[str]) -> str:
    """Return one of the known words; raises `WrongSetting` with a guess."""
    if isinstance(found, str) and found in known:
        return found
    hint = f"Use one of {', '.join(known)}."
    written = found[:_COMPARED_CHARS].casefold() if isinstance(found, str) else ""
    near = difflib.get_close_matches(written, known, n=1)
    raise WrongSetting(f"is {shown(found)}.", f"{hint} Did you mean {near[0]}?" if near else hint)


@dataclass(frozen=True, slots=True)
class _DeclaredKey:
    """One key of a kind, as its struct declares it."""

    key: str
    attribute: str
    kind: object  # of what is written, without the nothing of an optional one
    setting: SettingKey
    is_needed: bool
    default: object

    def is_there(self, name: str, table: Mapping[str, object]) -> bool:
        if table.get(self.key) is not None:
            return True
        if self.is_needed:
            raise missing(name, self.key, self._wanted())
        return False

    def value(self, name: str, table: Mapping[str, object]) -> object:
        try:
            return self._read(table[self.key])
        except WrongSetting as wrong:
            verb = "Set it to" if self.setting.is_secret else "Use"
            hint = wrong.hint or f"{verb} {self._wanted()}."
            raise UserError(f"{dotted(name, self.key)} {wrong.said}", hint) from None

    def _read(self, written: object) -> object:
        if choices := _choices(self.kind):
            written = one_of(written, choices)
        try:
            found: object = msgspec.convert(written, self.kind)
        except (msgspec.ValidationError, OverflowError):
            raise WrongSetting(self._mistake(written)) from None
        if isinstance(found, bool | Enum) or choices:
            return found
        if isinstance(found, int | float):
            if not self.setting.least <= found <= self.setting.most:
                raise WrongSetting(self._mistake(written))
            return found
        if isinstance(found, str):
            return self._text(found)
        if isinstance(found, dict):
            return {any_text(key): self._text(value) for key, value in found.items()}
        return self._texts(found) if isinstance(found, tuple | frozenset) else found

    def _texts(self, found: tuple[str, ...] | frozenset[str]) -> object:
        try:
            texts = [self._text(each) for each in found]
        except WrongSetting as wrong:
            said = wrong.said if wrong.hint else f"holds something that is not a {self.setting.noun}."
            raise WrongSetting(said, wrong.hint) from None
        return tuple(texts) if isinstance(found, tuple) else frozenset(filter(None, texts))

    def _text(self, text: str) -> str:
        usual = reference if self.setting.is_secret else line
        return (self.setting.read or usual)(text)

    def _mistake(self, written: object) -> str:
        origin = get_origin(self.kind)
        if origin in (tuple, frozenset):
            return f"is not a list of {self.setting.noun}s."
        if origin is dict:
            return f"is not a table of {self.setting.noun}s."
        if self.kind is str:
            return "does not say where it is kept." if self.setting.is_secret else "is not a text of one line."
        return f"is {shown(written)}."

    def _wanted(self) -> str:
        if self.setting.wanted:
            return self.setting.wanted
        if choices := _choices(self.kind):
            return f"one of {', '.join(choices)}"
        if self.kind is bool:
            return "true or false"
        if self.kind in (int, float):
            unit = " of seconds" if self.kind is float else ""
            return f"a number{unit}{_span(self.setting.least, self.setting.most)}"
        return f"{self.setting.help[:1].lower()}{self.setting.help[1:].removesuffix('.')}"


def _span(least: float, most: float) -> str:
    """Return between which numbers one has to be, as people say it; nothing where any would do."""
    if least == -inf:
        return "" if most == inf else f" up to {most:.15g}"
    return f" from {least:.15g} on" if most == inf else f" from {least:.15g} to {most:.15g}"


@cache
def _declared(settings: type[SourceSettings]) -> Mapping[str, _DeclaredKey]:
    hints = get_type_hints(settings, include_extras=True)
    found: dict[str, _DeclaredKey] = {}
    for each in msgspec.structs.fields(settings):
        said = [more for more in get_args(hints[each.name])[1:] if isinstance(more, SettingKey)]
        if said:
            kind = _present(get_args(hints[each.name])[0])
            needed = said[0].is_needed or each.required
            found[each.encode_name] = _DeclaredKey(
                each.encode_name, each.name, kind, said[0], needed, None if each.required else each.default
            )
    return types.MappingProxyType(found)


def _present(kind: object) -> object:
    """Return `int` for `int | None`."""
    named = [each for each in get_args(kind) if each is not type(None)]
    return named[0] if get_origin(kind) in (types.UnionType, Union) else kind


def _choices(kind: object) -> tuple[str, ...]:
    """Return the words of which one has to be written; none where anything may be."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(each.value for each in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _meaningful(settings: type[SourceSettings], name: str, table: Mapping[str, object]) -> Mapping[str, _DeclaredKey]:
    """Return the keys that have a meaning here; raises `UserError` for one that is there and has none."""
    declared = _declared(settings)
    deciding = dict.fromkeys(each.setting.only[0] for each in declared.values() if each.setting.only)
    decided = {
        key: declared[key].value(name, table) if declared[key].is_there(name, table) else declared[key].default
        for key in deciding
    }
    found: dict[str, _DeclaredKey] = {}
    for key, each in declared.items():
        by, values = each.setting.only or ("", ())
        if not by or decided[by] in values:
            found[key] = each
        elif key in table:
            raise UserError(
                f'{dotted(name, key)} has no meaning with {by} = "{decided[by]}".',
                f"Remove it, or set {by} to {' or '.join(values)}.",
            )
    return found


def _refuse_unknown(what: str, name: str, table: Mapping[str, object], keys: Collection[str]) -> None:
    """Refuse every key that is neither one of these nor shared, and guess which was meant."""
    known = sorted(SHARED_KEYS.union(keys))
    for key in table:
        if key not in known:
            written = key[:_COMPARED_CHARS].casefold().replace("-", "_")
            near = difflib.get_close_matches(written, known, n=1, cutoff=_MIN_ALIKE)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
            raise UserError(f"{dotted(name, key)} is not a setting of {what}.", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOption:
    """One option of `source add`, and the key it sets; a key in capitals is no setting but is read by the kind."""

    flag: str
    key: str
    help: str
    metavar: str = ""
    value: type = str  # str, int, float, bool
    choices: tuple[str, ...] = ()
    is_many: bool = False
    is_secret: bool = False  # it says where a secret is kept


def options_of(settings: type[SourceSettings]) -> tuple[SourceOption, ...]:
    """Return the options that set the keys of a kind, in the order in which they are declared."""
    return tuple(
        SourceOption(
            flag=each.setting.flag or f"--{each.key.replace('_', '-')}",
            key=each.key,
            help=each.setting.help,
            metavar=each.setting.metavar,
            value=each.kind if isinstance(each.kind, type) and each.kind in (int, float, bool) else str,
            choices=_choices(each.kind),
            is_many=get_origin(each.kind) in (tuple, frozenset, dict),
            is_secret=each.setting.is_secret and get_origin(each.kind) is not dict,
        )
        for each in _declared(settings).values()
        if each.setting.flag or each.setting.metavar
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name alone: another name may be another machine tomorrow."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _url(text: str, *, can_be_local: bool) -> str:
    url = line(text)
    # The address may hold a password, so it is not repeated.
    wrong = WrongSetting("is not an https address of only a host and a path.")
    try:
        parts = urlsplit(url)
        is_bare = not (parts.query or parts.fragment) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        raise wrong from None
    host = parts.hostname or ""
    is_encrypted = parts.scheme == "https" or (can_be_local and parts.scheme == "http" and is_loopback(host))
    if not (is_bare and is_encrypted and host) or " " in url:
        raise wrong
    return url
