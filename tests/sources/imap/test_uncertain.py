"""An answer of which nobody knows whether it left, through the real outbox: looked for, then sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harken.dispatch.outbox import Outbox
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import WATCH
from harken.sources.imap.messages import ArrivedMail, draft_of
from harken.sources.imap.sender import LOOKED_FOR, SmtpSender
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.mailserver.dovecot import Dovecot, serving
from tests.mailserver.sink import Sink, sinking
from tests.sources.imap.rig import NAME, credentials, mail, settings_of


@dataclass(slots=True)
class Answering:
    """A stored mail with an answer in the outbox, whose first try is cut when it has been taken."""

    store: Store
    clock: FakeClock
    server: Dovecot
    sink: Sink

    async def tries(self, seconds: float = 0.0) -> tuple[str, bool]:
        """Let time pass, try what is due, and return how far it is and whether it may have left."""
        self.clock.advance(seconds)
        sender = SmtpSender(settings_of(self.server, self.sink), credentials(), self.clock)
        await Outbox(self.store, {NAME: sender}, self.clock).send_due(NAME)
        (row,) = await self.store.outbox.list()
        return row.state, row.tried_at is not None


@asynccontextmanager
async def answering(folder: Path) -> AsyncIterator[Answering]:
    """Hear a mail, store it, and answer it."""
    clock = FakeClock()
    with serving() as server, sinking() as sink:
        async with open_store(folder / "harken.db", clock) as store:
            draft = draft_of(ArrivedMail(raw=mail("Well?")), source=NAME, folder="INBOX")
            message = (await store.messages.append([prepare(draft, IngestPolicy())]))[0].message
            await store.outbox.add(message.id, "Yes.", author="agent:x", consumer=WATCH)
            sink.is_cut = True
            yield Answering(store, clock, server, sink)


async def test_an_answer_that_the_provider_kept_is_not_sent_again(tmp_path: Path) -> None:
    """Nobody gets it twice, although nobody said that it left."""
    async with answering(tmp_path) as answer:
        assert await answer.tries() == ("queued", True)
        assert await answer.tries(31) == ("queued", True)
        answer.server.deliver(answer.sink.mails[0], folder="Sent")
        assert (await answer.tries(31))[0] == "sent"
        assert len(answer.sink.mails) == 1


async def test_an_answer_that_nobody_kept_is_sent_again_with_the_same_id_after_minutes(tmp_path: Path) -> None:
    """At once it would come twice whenever the provider is only slow to show it; never, it might not come at all."""
    async with answering(tmp_path) as answer:
        assert await answer.tries() == ("queued", True)
        assert await answer.tries(LOOKED_FOR.total_seconds() - 1) == ("queued", True)
        assert len(answer.sink.mails) == 1
        assert (await answer.tries(31))[0] == "sent"
        first, second = answer.sink.read()
        assert first["Message-ID"] == second["Message-ID"]


async def test_an_answer_that_surely_did_not_leave_is_tried_again_at_once(tmp_path: Path) -> None:
    """Minutes of waiting are for what may have left."""
    async with answering(tmp_path) as answer:
        answer.sink.is_cut, answer.sink.answers = False, ["451 later"]
        assert await answer.tries() == ("queued", False)
        assert (await answer.tries(31))[0] == "sent"
        assert len(answer.sink.mails) == 1
