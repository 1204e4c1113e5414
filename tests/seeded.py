"""Homes in which something waits for an answer before any daemon runs: what a source would have brought."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio

from harken.config.home import Home, ensure
from harken.model import INBOX, LOCAL, Mailbox, MessageId, NewMessage, Sender, Trust
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_new_message

SECONDS: Final = 30
SPARE: Final = timedelta(seconds=20)  # a test takes its time, and "2 h" must still be so at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question as it is seeded: so long ago, by somebody who can be answered on this machine."""

    text: str
    ago: timedelta = timedelta(0)
    sender: str = "ann"
    channel: str = "chat"
    mailbox: Mailbox = INBOX
    conversation: str = ""
    source: str = LOCAL
    thread: str = ""
    trust: Trust = Trust.KNOWN

    def message(self) -> NewMessage:
        """Return it as ingest would hand it over."""
        return a_new_message(
            self.text,
            mailbox=self.mailbox,
            source=self.source,
            sender=Sender(self.sender),
            channel=self.channel,
            conversation=self.conversation,
            thread=self.thread,
            trust=self.trust,
            is_question=self.trust is not Trust.UNKNOWN,
        )


def seed(folder: Path, questions: Sequence[Asked]) -> list[MessageId]:
    """Let questions wait in a home that nobody serves; the oldest must come first. Return their ids."""
    home = Home(folder)
    ensure(home)

    async def fill() -> list[MessageId]:
        now = datetime.now(UTC) - SPARE
        clock = FakeClock(now - max((each.ago for each in questions), default=timedelta(0)))
        found: list[MessageId] = []
        async with open_store(home.database, clock) as store:
            for each in questions:
                clock.advance((now - each.ago - clock.now()).total_seconds())
                found += [made.message.id for made in await store.messages.append([each.message()])]
        return found

    # In a thread: the driver of a browser has an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, fill).result(SECONDS)
