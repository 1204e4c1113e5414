"""What a person configures of a webhook: `[sources.NAME]` with `kind = "webhook"`, checked key by key.

Secrets are only named here; whoever makes the source looks them up. A door without a secret is refused: whoever finds
its address could write to agents. Below are only the errors and the presets.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harken.errors import UserError
from harken.sources.webhook.preset import Preset
from harken.sources.webhook.presets.generic import (
    DEFAULT_HEADER,
    NAME,
    PARTS,
    SCHEMES,
    GenericSettings,
    compiled,
    make_preset,
)
from harken.sources.webhook.registry import PRESETS
from harken.sources.webhook.signing import BASE64, HEX

KIND: Final = "webhook"
CHOICES: Final = (*PRESETS, NAME)
PATH: Final = "/hooks/"
MAX_BYTES: Final = 5 << 20
LEAST_BYTES: Final = 1 << 10
MOST_BYTES: Final = 25 << 20
WINDOW_SECONDS: Final = 300.0
LEAST_WINDOW: Final = 1.0
MOST_WINDOW: Final = 86_400.0
MAX_SECRETS: Final = 8

_REFERENCES: Final = ("env:", "file:", "keyring:")
# What everybody who makes a source may say; others read these, and they are no mistake here.
_SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
_OWN_KEYS: Final = frozenset({"preset", "secret", "secrets", "channels", "max_bytes", "window"})
_GENERIC_KEYS: Final = frozenset({*PARTS, "scheme", "header", "encoding", "prefix", "timestamp_header"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """One webhook. `secrets` are references: any of what they name may have signed."""

    name: str
    preset: Preset
    secrets: tuple[str, ...]
    channels: frozenset[str] = frozenset()  # empty: all
    max_bytes: int = MAX_BYTES
    window: float = WINDOW_SECONDS  # seconds that a signed time may be away from now
    generic: GenericSettings = field(default_factory=GenericSettings)

    @property
    def path(self) -> str:
        """Where it is posted to."""
        return f"{PATH}{self.name}"


def read_settings(name: str, entry: Mapping[str, object]) -> WebhookSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    reading = _Reading(name, entry)
    chosen = reading.choice("preset", CHOICES, "")
    reading.refuse_unknown(chosen)
    generic = reading.generic() if chosen == NAME else GenericSettings()
    return WebhookSettings(
        name=name,
        preset=make_preset(generic) if chosen == NAME else PRESETS[chosen],
        secrets=reading.secrets(),
        channels=frozenset(filter(None, map(str.strip, reading.texts("channels", 'a list, such as ["push"]')))) - {"*"},
        max_bytes=int(reading.number("max_bytes", MAX_BYTES, LEAST_BYTES, MOST_BYTES)),
        window=reading.number("window", WINDOW_SECONDS, LEAST_WINDOW, MOST_WINDOW),
        generic=generic,
    )


class _Reading:
    """Reads one entry; every mistake is a `UserError` that says which key and what would do."""

    def __init__(self, name: str, entry: Mapping[str, object]) -> None:
        self._name = name
        self._entry = entry

    def choice(self, key: str, known: tuple[str, ...], default: str) -> str:
        found = self._entry.get(key, default)
        if not isinstance(found, str) or found not in known:
            said = f"is {repr(found)[:60]}" if found else "is missing"
            raise UserError(f"{self._dotted(key)} {said}.", f"Use one of {', '.join(known)}.")
        return found

    def refuse_unknown(self, preset: str) -> None:
        known = _SHARED_KEYS | _OWN_KEYS | (_GENERIC_KEYS if preset == NAME else frozenset())
        for key in self._entry:
            if key in known:
                continue
            if key in _GENERIC_KEYS:
                raise UserError(
                    f'{self._dotted(key)} has no meaning with preset = "{preset}".',
                    f'Remove it, or set preset = "{NAME}".',
                )
            near = difflib.get_close_matches(key[:100].casefold().replace("-", "_"), sorted(known), n=1, cutoff=0.65)
            guess = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
            raise UserError(f"{self._dotted(key)} is not a setting of a webhook.", guess)

    def secrets(self) -> tuple[str, ...]:
        wanted = 'a reference such as "env:NAME", "file:secrets/NAME" or "keyring:SERVICE/NAME"'
        has_one, has_many = "secret" in self._entry, "secrets" in self._entry
        if has_one == has_many:
            said = "is missing" if not has_one else f"and {self._dotted('secrets')} are both there"
            raise UserError(f"{self._dotted('secret')} {said}.", f"Set one of them to {wanted}.")
        found = (self._entry["secret"],) if has_one else self.texts("secrets", f"a list of {wanted}")
        if not found or len(found) > MAX_SECRETS:
            raise UserError(f"{self._dotted('secrets')} is empty or too long.", f"Name 1 to {MAX_SECRETS}.")
        for each in found:
            if not isinstance(each, str) or not each.startswith(_REFERENCES):
                # Not repeated: people paste the secret itself.
                raise UserError(f"{self._dotted('secret')} does not say where it is kept.", f"Set it to {wanted}.")
        return tuple(map(str, found))

    def generic(self) -> GenericSettings:
        scheme = self.choice("scheme", SCHEMES, SCHEMES[0])
        return GenericSettings(
            scheme=scheme,
            header=self._header("header", DEFAULT_HEADER),
            encoding=self.choice("encoding", (HEX, BASE64), HEX),
            prefix=self.text("prefix", 'what stands before the signature, such as "sha256="'),
            timestamp_header=self._header("timestamp_header", ""),
            expressions={part: found for part in PARTS if (found := self._expression(part))},
        )

    def text(self, key: str, wanted: str) -> str:
        found = self._entry.get(key)
        if found is None:
            return ""
        if not isinstance(found, str) or not found.strip() or not found.isprintable():
            raise UserError(f"{self._dotted(key)} is not a text of one line.", f"Use {wanted}.")
        return found

    def texts(self, key: str, wanted: str) -> tuple[str, ...]:
        found = self._entry.get(key, ())
        if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
            raise UserError(f"{self._dotted(key)} is not a list of texts.", f"Use {wanted}.")
        return tuple(found)

    def number(self, key: str, default: float, least: float, most: float) -> float:
        found = self._entry.get(key, default)
        is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        if not is_number or not least <= float(str(found)) <= most:
            raise UserError(
                f"{self._dotted(key)} is {repr(found)[:60]}.", f"Use a number from {least:.0f} to {most:.0f}."
            )
        return float(str(found))

    def _expression(self, key: str) -> str:
        found = self.text(key, "a JMESPath expression")
        if found:
            compiled(self._dotted(key), found)
        return found

    def _header(self, key: str, default: str) -> str:
        found = self.text(key, "the name of a header") or default
        if found and not _HEADER_NAME.fullmatch(found):
            raise UserError(f"{self._dotted(key)} cannot be the name of a header.", "Use letters and hyphens.")
        return found

    def _dotted(self, key: str) -> str:
        return f"sources.{self._name}.{key}"
