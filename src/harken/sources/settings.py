"""What a person writes about one source, `[sources.NAME]` in config.toml: declared by each kind, read key by key.

A kind declares its keys as a `SourceSettings` struct, each field with `setting(...)`: what it means, an example,
whether it is a secret, and the option of `source add` that sets it. `SettingsTable` reads them. Every mistake is a
`UserError` that says which key it is and what would do; what may be a secret is not repeated. It knows no source: what
the keys mean together is said by the settings of each kind, above. Below are only the errors.
"""

from __future__ import annotations

import difflib
import ipaddress
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeGuard, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from harken.errors import UserError

# What may be said of every source; others read these, and they are no mistake here.
SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
REFERENCES: Final = ("env:", "file:", "keyring:")

_SHOWN_CHARS: Final = 60
_COMPARED_CHARS: Final = 100
_LEAST_ALIKE: Final = 0.65


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a kind. Each field is declared with `setting`, and has the default that stands where it is not."""


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


def setting(help_text: str, *, example: str = "", flag: str = "", metavar: str = "", is_secret: bool = False) -> object:
    """Declare a key: what it means, how it may look, its option if it has one, and whether it names a secret."""
    examples = [example] if example else None
    return msgspec.Meta(
        description=help_text,
        examples=examples,
        extra={"flag": flag, "metavar": metavar, "is_secret": is_secret},
    )


def keys_of(settings: type[SourceSettings]) -> frozenset[str]:
    """Return the keys of a kind as they are written."""
    return frozenset(each.encode_name for each in msgspec.structs.fields(settings))


def options_of(settings: type[SourceSettings]) -> tuple[SourceOption, ...]:
    """Return the options that set the keys of a kind, in the order in which they are declared."""
    hints = get_type_hints(settings, include_extras=True)
    found: list[SourceOption] = []
    for each in msgspec.structs.fields(settings):
        bare, meta = get_args(hints[each.name])[:2]
        extra = meta.extra or {}
        if extra.get("flag"):
            found.append(_option(each.encode_name, bare, meta))
    return tuple(found)


def _option(key: str, bare: object, meta: msgspec.Meta) -> SourceOption:
    extra = meta.extra or {}
    # `str | None`: what it is without the nothing.
    named = [each for each in get_args(bare) if each is not type(None)]
    if isinstance(bare, types.UnionType) and named:
        bare = named[0]
    origin = get_origin(bare)
    is_many = origin in (tuple, dict)
    value = bare if isinstance(bare, type) and bare in (int, float, bool) else str
    return SourceOption(
        flag=str(extra["flag"]),
        key=key,
        help=meta.description or "",
        metavar=str(extra.get("metavar", "")),
        value=value,
        choices=get_args(bare) if origin is Literal else (),
        is_many=is_many,
    )


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """One table. `name` is the source's; `entry` may hold secrets."""

    name: str
    entry: Mapping[str, object] = field(repr=False)

    def dotted(self, key: str) -> str:
        """Return a key as people find it."""
        return f"sources.{self.name}.{key}"

    def refuse_meaningless(self, keys: Collection[str], given: str, hint: str) -> None:
        """Refuse keys that are settings, but say nothing beside what is given."""
        for key in self.entry:
            if key in keys:
                raise UserError(f"{self.dotted(key)} has no meaning with {given}.", hint)

    def refuse_unknown(self, keys: Collection[str], what: str) -> None:
        """Refuse every key that is neither one of these nor shared, and guess which was meant."""
        known = sorted(SHARED_KEYS.union(keys))
        for key in self.entry:
            if key not in known:
                written = key[:_COMPARED_CHARS].casefold().replace("-", "_")
                near = difflib.get_close_matches(written, known, n=1, cutoff=_LEAST_ALIKE)
                hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
                raise UserError(f"{self.dotted(key)} is not a setting of {what}.", hint)

    def choice(self, key: str, known: Collection[str], default: str = "") -> str:
        """Return one of the known words; without a default, one has to be there."""
        found = self.entry.get(key, default)
        if isinstance(found, str) and found in known:
            return found
        hint = f"Use one of {', '.join(known)}."
        if not default and found in (None, ""):
            raise UserError(f"{self.dotted(key)} is missing.", hint)
        written = found[:_COMPARED_CHARS].casefold() if isinstance(found, str) else ""
        near = difflib.get_close_matches(written, known, n=1)
        raise self.wrong(key, found, f"{hint} Did you mean {near[0]}?" if near else hint)

    def text(self, key: str, wanted: str, *, is_required: bool = False) -> str:
        """Return a text of one line without the spaces around it, or nothing where there is none."""
        if is_required and self.entry.get(key) is None:
            raise self.missing(key, wanted)
        return self.verbatim(key, wanted).strip()

    def verbatim(self, key: str, wanted: str) -> str:
        """Return a text of one line as it is written, or nothing where there is none."""
        found = self.entry.get(key)
        if found is None:
            return ""
        if not _is_line(found):
            raise UserError(f"{self.dotted(key)} is not a text of one line.", f"Use {wanted}.")
        return found

    def texts(self, key: str, wanted: str, noun: str = "text") -> tuple[str, ...]:
        """Return a list of any texts as they are written; it may be empty."""
        found = self.entry.get(key, ())
        if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
            raise UserError(f"{self.dotted(key)} is not a list of {noun}s.", f"Use {wanted}.")
        return tuple(found)

    def lines(self, key: str, wanted: str, noun: str = "text") -> tuple[str, ...]:
        """Return a list of texts of one line each, as they are written; it may be empty."""
        found = self.texts(key, wanted, noun)
        if not all(_is_line(each) for each in found):
            raise UserError(f"{self.dotted(key)} holds something that is not a {noun}.", f"Use {wanted}.")
        return found

    def flag(self, key: str) -> bool:
        """Return whether something is set to true."""
        found = self.entry.get(key, False)
        if not isinstance(found, bool):
            raise self.wrong(key, found, "Use true or false.")
        return found

    def number(self, key: str, default: float, least: float, most: float, unit: str = "") -> float:
        """Return a number within its limits, or the default."""
        found = self.entry.get(key, default)
        # True is a number to Python, and what is no number at all is neither less nor more.
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self.wrong(key, found, f"Use a number{unit} from {least:.0f} to {most:.0f}.")
        return float(found)

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        """Return a number of seconds within its limits, or the default."""
        return self.number(key, default, least, most, " of seconds")

    def reference(self, key: str, wanted: str) -> str:
        """Return where a secret is kept; it has to be there."""
        return self.kept(key, self.text(key, wanted, is_required=True), wanted)

    def kept(self, key: str, found: object, wanted: str) -> str:
        """Return what was found if it says where a secret is kept."""
        if not isinstance(found, str) or not found.startswith(REFERENCES):
            # Not repeated: people paste the secret itself.
            raise UserError(f"{self.dotted(key)} does not say where it is kept.", f"Set it to {wanted}.")
        return found

    def url(self, key: str, default: str, *, can_be_local: bool = True) -> str:
        """Return an address that is believed or gets a secret: over https, or over http on this machine."""
        found = self.text(key, f"an address such as {default}") or default
        if not _is_private(found, can_be_local=can_be_local):
            # The address may hold a password, so it is not repeated.
            raise UserError(
                f"{self.dotted(key)} is not an https address of only a host and a path.", f"Use one such as {default}."
            )
        return found

    def missing(self, key: str, wanted: str) -> UserError:
        """Return the error about a key that has to be there."""
        return UserError(f"{self.dotted(key)} is missing.", f"Set it to {wanted}.")

    def wrong(self, key: str, found: object, hint: str) -> UserError:
        """Return the error about a value that can be shown."""
        return UserError(f"{self.dotted(key)} is {_shown(found)}.", hint)


def _shown(found: object) -> str:
    try:
        return repr(found)[:_SHOWN_CHARS]
    except ValueError:
        # Python writes out no number of more than 4,300 digits, and TOML has them.
        return "too large a number"


def _is_line(found: object) -> TypeGuard[str]:
    return isinstance(found, str) and bool(found.strip()) and found.isprintable()


def _is_private(url: str, *, can_be_local: bool) -> bool:
    try:
        parts = urlsplit(url)
        is_bare = not (parts.query or parts.fragment) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False
    host = parts.hostname or ""
    is_encrypted = parts.scheme == "https" or (can_be_local and parts.scheme == "http" and is_loopback(host))
    return is_bare and is_encrypted and bool(host) and " " not in url


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
