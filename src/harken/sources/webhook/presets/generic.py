"""Any other service: the person says how it signs, and which JMESPath finds the text, the channel, the sender, the id.

An expression is the person's and is short; what it is run on is not, and may have any shape. One that finds nothing,
or fails, costs its part of the message and never the message: without a text the whole payload is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import jmespath
import jmespath.exceptions

from harken.errors import UserError
from harken.model import MAX_RAW_CHARS, Sender
from harken.sources.payload import Payload, one_line
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    HEX,
    SHA1,
    SHA256,
    Preset,
    Reading,
    ShellSignature,
    SignatureCheck,
    WebhookEvent,
    check_bearer,
    check_body,
    check_signed,
    check_stamp,
    check_token,
    shell_header,
    shell_hmac,
    signed_id,
)

NAME: Final = "generic"
SCHEMES: Final = ("hmac-sha256", "hmac-sha1", "token", "bearer")
PARTS: Final = ("text", "channel", "sender", "id")
MAX_EXPRESSION: Final = 1_000
DEFAULT_CHANNEL: Final = "default"
DEFAULT_HEADER: Final = "X-Signature"
_PLACE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
# Where people often put it; an expression is better.
TEXTS: Final = ("text", "message", "content", "title", "summary", "description", "body")


class PayloadExpression(Protocol):
    """A compiled JMESPath."""

    def search(self, value: object) -> object:
        """Return what it finds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericSettings:
    """How a post is signed, and where its parts are. `expressions` are by the name of the part."""

    scheme: str = "hmac-sha256"
    header: str = DEFAULT_HEADER
    encoding: str = HEX
    prefix: str = ""
    timestamp_header: str = ""
    expressions: Mapping[str, str] = field(default_factory=dict[str, str])


def make_preset(settings: GenericSettings) -> Preset:
    """Return the preset of these settings; raises `UserError` that names an expression that is none."""
    signer = _Signer(settings)
    reader = _Reader({part: compiled(part, text) for part, text in settings.expressions.items()})
    return Preset(
        name=NAME,
        title="Webhook",
        check=signer.check,
        read=reader.read,
        has_form=True,
        where="At the service that posts, or in your script.",
        shell=partial(_shell, settings),
    )


def _shell(how: GenericSettings, secret: str) -> ShellSignature:
    """Return how a shell signs as the person said."""
    if how.scheme == "bearer":
        return shell_header("Authorization: Bearer ", secret)
    if how.scheme == "token":
        return shell_header(f"{how.header}: {how.prefix}", secret)
    signed = "$t.$body" if how.timestamp_header else "$body"
    made = shell_hmac(secret, signed, digest=how.scheme.removeprefix("hmac-"), encoding=how.encoding)
    headers = (f'"{how.header}: {how.prefix}{made}"',)
    if how.timestamp_header:
        return ShellSignature("t=$(date +%s); ", (f'"{how.timestamp_header}: $t"', *headers))
    return ShellSignature("", headers)


def compiled(part: str, text: str) -> PayloadExpression:
    """Return an expression ready to be run, or raise `UserError`."""
    hint = "See jmespath.org for how it is written."
    if len(text) > MAX_EXPRESSION:
        raise UserError(f"{part} is longer than {MAX_EXPRESSION} characters.", hint)
    try:
        made: PayloadExpression = jmespath.compile(text)
    except (jmespath.exceptions.JMESPathError, RecursionError, ValueError) as exc:
        raise UserError(f"{part} is not a JMESPath expression: {one_line(text, 40)}", hint) from exc
    # Most only name a place, which means the same here and is found ten times as fast.
    return _PayloadPlace(tuple(text.split("."))) if _PLACE.fullmatch(text) else made


@dataclass(frozen=True, slots=True)
class _PayloadPlace:
    """An expression of nothing but keys."""

    path: tuple[str, ...]

    def search(self, value: object) -> object:
        """Return what is there."""
        return Payload(value).at(*self.path)


@dataclass(frozen=True, slots=True)
class _Signer:
    settings: GenericSettings

    def check(self, posted: PostedRequest, judging: SignatureCheck) -> None:
        """Refuse what is not signed as the person said."""
        how, header = self.settings, self.settings.header.lower()
        if how.scheme == "bearer":
            check_bearer(posted, judging.keys)
            return
        if how.scheme == "token":
            check_token(posted, judging.keys, header, prefix=how.prefix)
            return
        digest = SHA1 if how.scheme == "hmac-sha1" else SHA256
        if not how.timestamp_header:
            check_body(posted, judging.keys, header, prefix=how.prefix, digest=digest, encoding=how.encoding)
            return
        stamp = posted.headers.get(how.timestamp_header.lower(), "")
        check_stamp(stamp, judging.now, judging.window)
        signed = b"%b.%b" % (stamp.encode(), posted.body)
        given = posted.headers.get(header, "")
        check_signed(given, signed, judging.keys, prefix=how.prefix, digest=digest, encoding=how.encoding)


@dataclass(frozen=True, slots=True)
class _Reader:
    expressions: Mapping[str, PayloadExpression]

    def read(self, _posted: PostedRequest, payload: object) -> Reading:
        """Return what the expressions find."""
        who = one_line(self._find("sender", payload), 120)
        text = (
            self._find("text", payload)
            or Payload(payload).first(*TEXTS, most=MAX_RAW_CHARS)
            or Payload(payload).as_json()
        )
        return WebhookEvent(
            channel=one_line(self._find("channel", payload), 100) or DEFAULT_CHANNEL,
            text=text,
            sender=Sender(f"{NAME}:{who}" if who else NAME, who or "Webhook"),
            id=signed_id(self._find("id", payload)),
        )

    def _find(self, part: str, payload: object) -> str:
        expression = self.expressions.get(part)
        if expression is None:
            return ""
        try:
            found = expression.search(payload)
        except (jmespath.exceptions.JMESPathError, RecursionError, ValueError, TypeError, ArithmeticError):
            return ""
        if found is None or isinstance(found, str):
            return found or ""
        return Payload(found).word() or Payload(found).as_json()
