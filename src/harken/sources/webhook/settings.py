"""What a person configures of a webhook: `[sources.NAME]` with `kind = "webhook"`, and how it is set up.

Secrets are only named here; the factory of the source looks them up. A door without a secret is refused: whoever finds
its address could write to agents. Below are `sources/settings.py` and the presets.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from harken.errors import UserError
from harken.sources.settings import SettingsTable, SourceOption, SourceSettings, keys_of, options_of, setting
from harken.sources.setup import (
    SECRETS_FOLDER,
    SetupContext,
    SetupOutcome,
    SetupValues,
    SourceSetup,
    text_of,
    texts_of,
    written,
)
from harken.sources.webhook.preset import Preset, preset_module, preset_names
from harken.sources.webhook.presets.generic import (
    DEFAULT_HEADER,
    NAME,
    PARTS,
    SCHEMES,
    GenericSettings,
    compiled,
    make_preset,
)
from harken.sources.webhook.signing import BASE64, HEX

KIND: Final = "webhook"
PATH: Final = "/hooks/"
MAX_BYTES: Final = 5 << 20
LEAST_BYTES: Final = 1 << 10
MOST_BYTES: Final = 25 << 20
WINDOW_SECONDS: Final = 300.0
LEAST_WINDOW: Final = 1.0
MOST_WINDOW: Final = 86_400.0
MAX_SECRETS: Final = 8

_GENERIC_KEYS: Final = frozenset({*PARTS, "scheme", "header", "encoding", "prefix", "timestamp_header"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class WebhookKeys(SourceSettings, frozen=True, kw_only=True):
    """The keys of a webhook; the last ones say how `generic` posts are signed and read."""

    preset: Annotated[str, setting("Whose posts they are.", example="github")]
    secret: Annotated[str, setting("Where its secret is kept.", example="env:HOOK_SECRET", is_secret=True)] = ""
    secrets: Annotated[
        tuple[str, ...], setting("Where its secrets are kept, if there are several.", is_secret=True)
    ] = ()
    channels: Annotated[
        tuple[str, ...], setting("Keep only this channel; else all.", flag="--channel", metavar="CHANNEL")
    ] = ()
    max_bytes: Annotated[int, setting("How long a post may be.")] = MAX_BYTES
    window: Annotated[float, setting("Seconds that a signed time may be away from now.")] = WINDOW_SECONDS
    scheme: Annotated[
        Literal["hmac-sha256", "hmac-sha1", "token", "bearer"],
        setting("generic: how posts are signed.", flag="--scheme"),
    ] = "hmac-sha256"
    header: Annotated[str, setting("generic: the header that holds the signature.")] = DEFAULT_HEADER
    encoding: Annotated[Literal["hex", "base64"], setting("generic: how the signature is written.")] = "hex"
    prefix: Annotated[str, setting("generic: what stands before the signature.", example="sha256=")] = ""
    timestamp_header: Annotated[str, setting("generic: the header that holds the time that is signed too.")] = ""
    text: Annotated[str, setting("generic: the JMESPath of the text.")] = ""
    channel: Annotated[str, setting("generic: the JMESPath of the channel.")] = ""
    sender: Annotated[str, setting("generic: the JMESPath of the sender.")] = ""
    id: Annotated[str, setting("generic: the JMESPath of what names a delivery.")] = ""


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
    table = SettingsTable(name, entry)
    chosen = table.choice("preset", preset_names())
    _refuse_unknown(table, chosen)
    generic = _generic(table) if chosen == NAME else GenericSettings()
    return WebhookSettings(
        name=name,
        preset=make_preset(generic) if chosen == NAME else preset_module(chosen).PRESET,
        secrets=_secrets(table),
        channels=frozenset(filter(None, map(str.strip, table.texts("channels", 'a list, such as ["push"]')))) - {"*"},
        max_bytes=int(table.number("max_bytes", MAX_BYTES, LEAST_BYTES, MOST_BYTES)),
        window=table.number("window", WINDOW_SECONDS, LEAST_WINDOW, MOST_WINDOW),
        generic=generic,
    )


def _refuse_unknown(table: SettingsTable, preset: str) -> None:
    if preset != NAME:
        table.refuse_meaningless(_GENERIC_KEYS, f'preset = "{preset}"', f'Remove it, or set preset = "{NAME}".')
    known = keys_of(WebhookKeys)
    table.refuse_unknown(known if preset == NAME else known - _GENERIC_KEYS, "a webhook")


def _secrets(table: SettingsTable) -> tuple[str, ...]:
    wanted = 'a reference such as "env:NAME", "file:secrets/NAME" or "keyring:SERVICE/NAME"'
    has_one, has_many = "secret" in table.entry, "secrets" in table.entry
    if has_one == has_many:
        said = "is missing" if not has_one else f"and {table.dotted('secrets')} are both there"
        raise UserError(f"{table.dotted('secret')} {said}.", f"Set one of them to {wanted}.")
    found = (table.entry["secret"],) if has_one else table.texts("secrets", f"a list of {wanted}")
    if not found or len(found) > MAX_SECRETS:
        raise UserError(f"{table.dotted('secrets')} is empty or too long.", f"Name 1 to {MAX_SECRETS}.")
    return tuple(table.kept("secret", each, wanted) for each in found)


def _generic(table: SettingsTable) -> GenericSettings:
    return GenericSettings(
        scheme=table.choice("scheme", SCHEMES, SCHEMES[0]),
        header=_header(table, "header", DEFAULT_HEADER),
        encoding=table.choice("encoding", (HEX, BASE64), HEX),
        prefix=table.verbatim("prefix", 'what stands before the signature, such as "sha256="'),
        timestamp_header=_header(table, "timestamp_header", ""),
        expressions={part: found for part in PARTS if (found := _expression(table, part))},
    )


def _expression(table: SettingsTable, key: str) -> str:
    found = table.verbatim(key, "a JMESPath expression")
    if found:
        compiled(table.dotted(key), found)
    return found


def _header(table: SettingsTable, key: str, default: str) -> str:
    found = table.verbatim(key, "the name of a header") or default
    if found and not _HEADER_NAME.fullmatch(found):
        raise UserError(f"{table.dotted(key)} cannot be the name of a header.", "Use letters and hyphens.")
    return found


SECRET_BYTES: Final = 32
FROM_STDIN: Final = "-"


class WebhookSetup(SourceSetup):
    """How a webhook is set up."""

    help_text = "Make an address to post to, and a secret; its name is that of the preset unless you say so."

    def __init__(self) -> None:
        self.options = (
            SourceOption(flag="--preset", key="preset", help="Whose posts they are.", choices=preset_names()),
            *options_of(WebhookKeys),
            SourceOption(flag="--secret", key="SECRETS", help="env:NAME, file:PATH or -.", metavar="REF", is_many=True),
            SourceOption(
                flag="--take",
                key="TAKE",
                help="generic: text, channel, sender or id.",
                metavar="PART=JMESPATH",
                is_many=True,
            ),
        )
        self._made = ""

    def usual_name(self, values: SetupValues) -> str:
        """Return the preset's name."""
        return text_of(values, "preset")

    def missing(self, values: SetupValues) -> str:
        """Return the preset if it was not given: there is no question that could find it."""
        if not values.get("preset"):
            raise UserError("Missing option '--preset'.", f"Choose one of: {', '.join(preset_names())}.")
        return ""

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written, and keep the secret unless the person keeps it elsewhere."""
        entry = self._written(name, values)
        if not context.is_known(name) and not _is_brought(values):
            secret = self._secret(name, values, entry, context)
            read_settings(name, entry)
            context.keep_secret(name, secret)
            # One that the person brought need not be shown to them.
            self._made = "" if values.get("SECRETS") else secret
        return entry

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say where to post and what to paste."""
        del values
        preset = read_settings(name, entry).preset
        url, file = context.post_address(f"{PATH}{name}"), context.folder / SECRETS_FOLDER / name
        lines, notes = [f"Address: {url}"], list[str]()
        if self._made:
            lines.append(f"Secret: {self._made}")
            notes.append(f"It is shown this once and kept in {file}.")
        notes.append(preset.where)
        if self._made and preset.is_secret_theirs:
            notes.append(f"{preset.title} makes its own secret: write that into {file} instead, then reload.")
        if url.startswith("http://127.") or "localhost" in url:
            notes.append("Only this machine reaches that address. For others see docs/howto/webhooks.md.")
        more = {"url": url, **({"secret": self._made} if self._made else {})}
        return SetupOutcome(lines=lines, notes=notes, more=more)

    def made_secret(self, name: str, entry: Mapping[str, object]) -> bool:
        """Whether the entry names the file in which a secret was made for it."""
        return entry.get("secret") == f"file:{SECRETS_FOLDER}/{name}"

    def _written(self, name: str, values: SetupValues) -> dict[str, object]:
        references = texts_of(values, "SECRETS") if _is_brought(values) else (f"file:{SECRETS_FOLDER}/{name}",)
        found = {
            "preset": values.get("preset"),
            "secret": references[0] if len(references) == 1 else "",
            "secrets": references if len(references) > 1 else (),
            **_parts(texts_of(values, "TAKE")),
            **{key: value for key, value in values.items() if key.islower() and key != "preset"},
        }
        return written(KIND, found)

    def _secret(self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext) -> str:
        """Return the secret that is kept: read, asked for where the service makes it, or a new one."""
        if values.get("SECRETS"):
            if given := context.console.read_line().strip():
                return given
            raise UserError(
                "There is no secret on the standard input.", "Such as: harken source add ... --secret - < FILE"
            )
        preset = read_settings(name, entry).preset
        if preset.is_secret_theirs and context.console.can_ask:
            asked = f"The secret that {preset.title} shows you (empty: make one)"
            if given := context.console.prompt(asked, "", is_hidden=True):
                return given
        return preset.new_secret(secrets.token_bytes(SECRET_BYTES))


def _is_brought(values: SetupValues) -> bool:
    return bool(values.get("SECRETS")) and texts_of(values, "SECRETS") != (FROM_STDIN,)


def _parts(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in words:
        part, equals, expression = each.partition("=")
        if part.strip() not in PARTS or not equals or not expression.strip():
            raise UserError(f"{each[:60]!r} is not PART=JMESPATH.", f"The parts are {', '.join(PARTS)}.")
        found[part.strip()] = expression.strip()
    return found
