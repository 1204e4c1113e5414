"""A bot as the daemon makes it, on a fake clock, with a memory for drafts instead of a store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from harken.errors import Unavailable
from harken.model import (
    Draft,
    OutgoingReply,
)
from harken.sources.bot.settings import BotSettings, read_settings
from harken.sources.bot.source import BotSource
from harken.sources.source import DoorAnswer, PostedRequest
from harken.testing import FakeClock
from tests.sources.bot.service import APP_ID, KEPT, TENANT, Json, Service, serving
from tests.sources.messages_rig import stored_message


def settings_of(service: Service, **more: object) -> BotSettings:
    """Return the settings of a bot of the service."""
    entry: Json = {
        "kind": "bot",
        "app_id": APP_ID,
        "tenant": TENANT,
        "secret": "env:BOT_SECRET",
        "openid_url": f"{service.url}/v1/.well-known/openidconfiguration",
        "token_url": f"{service.url}/{TENANT}/oauth2/v2.0/token",
        "service_hosts": ["127.0.0.1"],
        **more,
    }
    return read_settings("desk", entry)


@dataclass
class Rig:
    """A bot and what it yielded."""

    service: Service
    clock: FakeClock
    bot: BotSource
    drafts: list[Draft] = field(default_factory=list[Draft])

    async def accept(self, drafts: Sequence[Draft]) -> Sequence[bool]:
        """Keep drafts; one is new if nothing of its id was said before."""
        known = [(each.kind, each.upstream_id, each.text) for each in self.drafts]
        self.drafts += drafts
        return [(each.kind, each.upstream_id, each.text) not in known for each in drafts]

    async def post(self, activity: object, token: str | None = None, **headers: str) -> DoorAnswer:
        """Post an activity, or any bytes, with a good token unless another is given."""
        body = activity if isinstance(activity, bytes) else json.dumps(activity).encode()
        bearer = {"authorization": f"Bearer {self.service.token() if token is None else token}"}
        (door,) = self.bot.doors()
        return await door.take(PostedRequest(headers={**bearer, **headers}, body=body), self.accept)


class Notes(list[str]):
    """What was noted before it left."""

    async def nowhere(self) -> None:
        """Fail as a store does whose disk is full."""
        raise Unavailable("The disk is full.", "Free some space.")


def answer_to(
    draft: Draft,
    body: str = "Done.",
    *,
    key: str = "r-1",
    author: str = "agent:claude-code",
    tried_at: datetime | None = None,
    notes: Notes | None = None,
) -> OutgoingReply:
    """Return a reply to a draft, as the outbox hands it over."""

    async def hand_over() -> None:
        if notes is not None:
            notes.append(key)

    return OutgoingReply(
        key=key, to=stored_message(draft), body=body, author=author, tried_at=tried_at, hand_over=hand_over
    )


def _bot(service: Service, clock: FakeClock, **more: object) -> BotSource:
    return BotSource(settings_of(service, **more), lambda: KEPT, clock)


@asynccontextmanager
async def bot_rig(**more: object) -> AsyncIterator[Rig]:
    """A bot beside its service."""
    clock = FakeClock()
    with serving(clock.now) as service:
        bot = _bot(service, clock, **more)
        try:
            yield Rig(service, clock, bot)
        finally:
            await bot.aclose()
