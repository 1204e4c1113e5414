"""Posts as the services send them, signed here with the standard library alone, and a door over a store of its own.

The signatures are made from the services' documents and share no code with what checks them.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from harken.model import Draft
from harken.sources.source import DoorAnswer, PostedRequest
from harken.sources.webhook.settings import read_settings
from harken.sources.webhook.source import WebhookSource

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RAW_KEY: Final = b"0123456789abcdef01234567"
SECRET: Final = RAW_KEY.hex()
STANDARD_SECRET: Final = "whsec_" + base64.b64encode(RAW_KEY).decode()
Headers = Mapping[str, str]


class StillClock:
    """A clock that a test sets."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        """Return the time that was set."""
        return self.at


@dataclass
class Kept:
    """Stands for the store: what was accepted, each delivery once."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    known: set[str] = field(default_factory=set[str])

    async def accept(self, drafts: Sequence[Draft]) -> Sequence[bool]:
        """Keep what is new."""
        fresh = []
        for draft in drafts:
            fresh.append(not draft.upstream_id or draft.upstream_id not in self.known)
            self.known.add(draft.upstream_id)
            if fresh[-1]:
                self.drafts.append(draft)
        return fresh


def mac(key: bytes, signed: bytes, digest: str = "sha256") -> bytes:
    """Sign some bytes."""
    return hmac.new(key, signed, digest).digest()


def github(body: bytes, key: bytes = SECRET.encode(), event: str = "push", delivery: str = "d-1") -> Headers:
    """Sign as GitHub does."""
    signature = mac(key, body).hex()
    return {"x-github-event": event, "x-github-delivery": delivery, "x-hub-signature-256": f"sha256={signature}"}


def gitlab(_body: bytes, key: bytes = SECRET.encode(), delivery: str = "d-1") -> Headers:
    """Say the secret, as GitLab does."""
    return {"x-gitlab-event": "Push Hook", "x-gitlab-token": key.decode("latin-1"), "idempotency-key": delivery}


def standard(body: bytes, key: bytes = RAW_KEY, delivery: str = "d-1", at: datetime = NOW) -> Headers:
    """Sign as Standard Webhooks says."""
    stamp = str(int(at.timestamp()))
    made = base64.b64encode(mac(key, f"{delivery}.{stamp}.".encode() + body)).decode()
    return {"webhook-id": delivery, "webhook-timestamp": stamp, "webhook-signature": f"v1,{made}"}


def slack(body: bytes, key: bytes = SECRET.encode(), at: datetime = NOW) -> Headers:
    """Sign as Slack does."""
    stamp = str(int(at.timestamp()))
    made = mac(key, f"v0:{stamp}:".encode() + body).hex()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={made}"}


def alertmanager(_body: bytes, key: bytes = SECRET.encode()) -> Headers:
    """Bring the secret, as Alertmanager does."""
    return {"authorization": f"Bearer {key.decode('latin-1')}"}


def jira(body: bytes, key: bytes = SECRET.encode(), delivery: str = "d-1") -> Headers:
    """Sign as Jira does."""
    return {"x-hub-signature": f"sha256={mac(key, body).hex()}", "x-atlassian-webhook-identifier": delivery}


def sentry(body: bytes, key: bytes = SECRET.encode(), resource: str = "issue", delivery: str = "d-1") -> Headers:
    """Sign as Sentry does."""
    signature = mac(key, body).hex()
    return {"sentry-hook-signature": signature, "sentry-hook-resource": resource, "request-id": delivery}


def generic(body: bytes, key: bytes = SECRET.encode()) -> Headers:
    """Sign as a webhook without further settings is."""
    return {"x-signature": mac(key, body).hex()}


SIGNERS: Final[Mapping[str, Callable[..., Headers]]] = MappingProxyType(
    {
        "github": github,
        "gitlab": gitlab,
        "slack": slack,
        "alertmanager": alertmanager,
        "jira": jira,
        "sentry": sentry,
        "standard": standard,
        "generic": generic,
    }
)
PRESETS: Final = tuple(SIGNERS)
# Where the signature itself stands: flipping any bit of it must matter.
SIGNED_IN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "github": "x-hub-signature-256",
        "gitlab": "x-gitlab-token",
        "slack": "x-slack-signature",
        "alertmanager": "authorization",
        "jira": "x-hub-signature",
        "sentry": "sentry-hook-signature",
        "standard": "webhook-signature",
        "generic": "x-signature",
    }
)


@dataclass
class Rig:
    """A webhook, what it stored, and the time."""

    source: WebhookSource
    clock: StillClock
    kept: Kept = field(default_factory=Kept)

    async def post(self, headers: Headers, body: bytes, media: str = "application/json") -> DoorAnswer:
        """Post something."""
        (door,) = self.source.doors()
        return await door.take(PostedRequest(headers={"content-type": media, **headers}, body=body), self.kept.accept)

    async def say(self, payload: object, **named: object) -> DoorAnswer:
        """Post JSON, signed as its preset wants it."""
        body = json.dumps(payload).encode()
        return await self.post(SIGNERS[self.source.settings.preset.name](body, **named), body)

    @property
    def last(self) -> Draft:
        """What was stored last."""
        return self.kept.drafts[-1]


def rig(preset: str, secrets: Sequence[str] = (), **entry: object) -> Rig:
    """Return a webhook of a preset, with its usual secret unless others are given."""
    settings = read_settings("ci", {"kind": "webhook", "preset": preset, "secret": "env:IT", **entry})
    usual = STANDARD_SECRET if preset == "standard" else SECRET
    keys = tuple(key for secret in secrets or (usual,) for key in settings.preset.keys(secret))
    clock = StillClock()
    return Rig(WebhookSource(settings, keys, clock), clock)


async def told(preset: str, payload: Mapping[str, object], **named: str) -> Draft:
    """Return what becomes of a payload."""
    hook = rig(preset)
    assert (await hook.say(payload, **named)).status == 202
    return hook.last
