"""What a person configures of a webhook: `[sources.NAME]` with `kind = "webhook"`, and how it is set up.

Secrets are only named here; the factory of the source looks them up. A door without a secret is refused: whoever finds
its address could write to agents. Below are `sources/settings.py` and the presets.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec

from harken.errors import UserError
from harken.sources.settings import SettingKey, SourceOption, SourceSettings, one_of, options_of, shaped, verbatim
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
    GenericSettings,
    compiled,
    make_preset,
)

KIND: Final = "webhook"
PATH: Final = "/hooks/"
DEFAULT_MAX_BYTES: Final = 5 << 20
MIN_BYTES: Final = 1 << 10
MAX_BYTES: Final = 25 << 20
WINDOW_SECONDS: Final = 300.0
MIN_WINDOW: Final = 1.0
MAX_WINDOW: Final = 86_400.0
MAX_SECRETS: Final = 8

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_WHERE: Final = 'a reference such as "env:NAME", "file:secrets/NAME" or "keyring:SERVICE/NAME"'
_GENERIC: Final = ("preset", (NAME,))
_CHANNELS: Final = 'a list, such as ["push"]'

SECRET_BYTES: Final = 32
FROM_STDIN: Final = "-"


def _preset(text: str) -> str:
    return one_of(text, preset_names())


def _channel(text: str) -> str:
    return "" if text.strip() == "*" else text.strip()


def _header(help_text: str) -> SettingKey:
    read = shaped(_HEADER_NAME, "cannot be the name of a header.")
    return SettingKey(help_text, wanted="letters and hyphens", read=read, only=_GENERIC)


def _expression(what: str) -> SettingKey:
    return SettingKey(f"A JMESPath expression for {what}.", read=verbatim, only=_GENERIC)


class WebhookSettings(SourceSettings, frozen=True, kw_only=True):
    """One webhook; the last keys say how `generic` posts are signed and read."""

    what = "a webhook"

    preset_name: Annotated[str, SettingKey("Whose posts they are.", wanted="the name of a preset", read=_preset)] = (
        msgspec.field(name="preset")
    )
    secret: Annotated[str, SettingKey("Where its secret is kept.", wanted=_WHERE, is_secret=True)] = ""
    several: Annotated[
        tuple[str, ...] | None,
        SettingKey("Where its secrets are kept, if there are several.", wanted=f"a list of {_WHERE}", is_secret=True),
    ] = msgspec.field(name="secrets", default=None)
    channels: Annotated[
        frozenset[str],
        SettingKey(
            "Keep only this channel; else all.", wanted=_CHANNELS, flag="--channel", metavar="CHANNEL", read=_channel
        ),
    ] = frozenset()
    max_bytes: Annotated[int, SettingKey("How long a post may be.", least=MIN_BYTES, most=MAX_BYTES)] = (
        DEFAULT_MAX_BYTES
    )
    window: Annotated[
        float, SettingKey("How far a signed time may be away from now.", least=MIN_WINDOW, most=MAX_WINDOW)
    ] = WINDOW_SECONDS
    scheme: Annotated[
        Literal["hmac-sha256", "hmac-sha1", "token", "bearer"],
        SettingKey("generic: how posts are signed.", flag="--scheme", only=_GENERIC),
    ] = "hmac-sha256"
    header: Annotated[str, _header("The header that holds the signature.")] = DEFAULT_HEADER
    encoding: Annotated[Literal["hex", "base64"], SettingKey("How the signature is written.", only=_GENERIC)] = "hex"
    prefix: Annotated[
        str, SettingKey("What stands before the signature, such as sha256=.", read=verbatim, only=_GENERIC)
    ] = ""
    timestamp_header: Annotated[str, _header("The header that holds the time that is signed too.")] = ""
    text: Annotated[str, _expression("the text")] = ""
    channel: Annotated[str, _expression("the channel")] = ""
    sender: Annotated[str, _expression("the sender")] = ""
    id: Annotated[str, _expression("what names a delivery")] = ""

    def check(self) -> None:
        """Refuse a webhook without a secret, and expressions that cannot be read."""
        if bool(self.secret) == (self.several is not None):
            said = "is missing" if not self.secret else f"and {self.dotted('secrets')} are both there"
            raise UserError(f"{self.dotted('secret')} {said}.", f"Set one of them to {_WHERE}.")
        if not 0 < len(self.secrets) <= MAX_SECRETS:
            raise UserError(f"{self.dotted('secrets')} is empty or too long.", f"Name 1 to {MAX_SECRETS}.")
        for part, expression in self.generic.expressions.items():
            compiled(self.dotted(part), expression)

    @property
    def path(self) -> str:
        """Where it is posted to."""
        return f"{PATH}{self.name}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Where the secrets are kept: any of what they name may have signed."""
        return (self.secret,) if self.secret else self.several or ()

    @property
    def generic(self) -> GenericSettings:
        """How `generic` posts are signed and read."""
        return GenericSettings(
            scheme=self.scheme,
            header=self.header,
            encoding=self.encoding,
            prefix=self.prefix,
            timestamp_header=self.timestamp_header,
            expressions={part: found for part in PARTS if (found := getattr(self, part))},
        )

    @cached_property
    def preset(self) -> Preset:
        """The service that posts."""
        is_generic = self.preset_name == NAME
        return make_preset(self.generic) if is_generic else preset_module(self.preset_name).PRESET


read_settings: Final = WebhookSettings.read


class WebhookSetup(SourceSetup):
    """How a webhook is set up."""

    kind = KIND
    help_text = "Make an address to post to, and a secret (default name: that of the preset)."

    def __init__(self) -> None:
        self.options = (
            SourceOption(flag="--preset", key="preset", help="Whose posts they are.", choices=preset_names()),
            *options_of(WebhookSettings),
            SourceOption(
                flag="--secret",
                key="SECRETS",
                help="env:NAME, file:PATH or -.",
                metavar="REF",
                is_many=True,
                is_secret=True,
            ),
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
            raise UserError("There is no secret on standard input.", "Such as: harken source add ... --secret - < FILE")
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
