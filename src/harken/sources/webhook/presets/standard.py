"""Standard Webhooks: `webhook-id`, `webhook-timestamp` and one or more `webhook-signature`, with `whsec_` secrets.

Many services sign so. What they say has a `type`, a `timestamp` and `data`, and beyond that no shape: it is shown as
it is.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from harken.model import Sender
from harken.sources.payload import Payload, joined
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    BASE64,
    STANDARD_PREFIX,
    Preset,
    Reading,
    ShellSignature,
    SignatureCheck,
    WebhookEvent,
    check_standard,
    shell_hmac,
    signed_id,
    standard_keys,
)

DELIVERY: Final = "webhook-id"
DEFAULT: Final = "default"


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what is not signed, or was too long ago."""
    check_standard(posted, judging.keys, judging.now, judging.window)


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what was posted."""
    said = Payload(payload)
    kind = said.first("type", "event", "eventType", "event_type", most=100)
    data = said.at("data")
    body = said if data is None else Payload(data)
    words = body.first("message", "text", "title", "summary", "description", most=1_000)
    return WebhookEvent(
        channel=kind or DEFAULT,
        text=joined([f"{kind}: {words}" if kind and words else kind or words, body.as_json()]),
        sender=Sender("standard", "Webhook"),
        id=signed_id(posted.headers.get(DELIVERY, "")),
        thread=body.word("id"),
        sent_at=said.moment("timestamp"),
    )


def shell(secret: str) -> ShellSignature:
    """Return how a shell signs as Standard Webhooks says."""
    key = f'k=base64.b64decode(k[{len(STANDARD_PREFIX)}:]) if k.startswith(b"{STANDARD_PREFIX}") else k; '
    made = shell_hmac(secret, "$i.$t.$body", encoding=BASE64, key=key)
    stamp = ('"webhook-id: $i"', '"webhook-timestamp: $t"')
    return ShellSignature("t=$(date +%s) i=curl-$t; ", (*stamp, f'"webhook-signature: v1,{made}"'))


PRESET: Final = Preset(
    name="standard",
    title="Standard Webhooks",
    check=check,
    read=read,
    keys=standard_keys,
    where="At the service that posts: its page for webhooks or endpoints.",
    shell=shell,
    new_secret=lambda made: STANDARD_PREFIX + b64encode(made).decode(),
)
