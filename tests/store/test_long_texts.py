"""Texts of a megabyte: they are stored, found, journaled and recovered whole, and many of them fill no memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harken.model import CUT_FROM, INBOX, MAX_TEXT_BYTES
from harken.store.contract.messages import MAX_READ_CHARS
from harken.store.journal import Journal, lines_after
from harken.store.sql.messages import MAX_CHARS
from harken.store.sql.offers import MAX_LONG_CHARS
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.contracts.store_choices import given, up_to
from tests.contracts.store_suite import AGENT, EVERYTHING, fill, new_message, offered_texts, texts
from tests.store.test_rebuild import rebuilt

LONG = "word " * (MAX_TEXT_BYTES // 5)


async def test_list_of_long_messages_ends_where_memory_would(tmp_path: Path) -> None:
    """A thousand messages may be asked for at once, and each may have a megabyte."""
    count = MAX_READ_CHARS // len(LONG) + 3
    async with open_store(tmp_path / "harken.db", FakeClock()) as store:
        for number in range(count):
            await fill(store, f"{number:3} {LONG[4:]}")
        page = await store.messages.page(EVERYTHING, 1000)
        assert len(page) == count - 3
        assert len(await store.messages.page(EVERYTHING, 1000, newest_first=True)) == count - 3
        seen, after = 0, 0
        while events := await store.events.after(after, 1000):
            seen, after = seen + len(events), events[-1].n
        assert seen == count
        assert await store.messages.index(2_000) == MAX_CHARS // len(LONG)
        while await store.messages.index(2_000):
            pass
        assert len(await store.messages.search("word", EVERYTHING, 1000)) == count - 3
        assert len(await store.rules.unjudged(0, 1000)) == count - 3


async def test_short_message_is_offered_behind_many_that_no_answer_carries(tmp_path: Path) -> None:
    """Somebody who sends long texts must keep nobody else from being heard, nor fill the memory."""
    clock = FakeClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        for _ in range(MAX_LONG_CHARS // len(LONG) + 8):
            await fill(store, LONG)
        await fill(store, "short")
        selection = await given(store, clock, up_to(100))
        assert offered_texts(selection.whole) == ["short"]
        assert len(selection.too_long) == MAX_LONG_CHARS // len(LONG)


async def test_cut_and_a_million_bytes_survive_the_loss_of_the_database(tmp_path: Path) -> None:
    """The journal is enough, however long its lines are: also to know that a text was longer once."""
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal")
    message = replace(new_message("ß" * (MAX_TEXT_BYTES // 2)), meta={CUT_FROM: "1234567"})
    async with open_store(tmp_path / "harken.db", FakeClock(), after_commit=journal.observe) as store:
        await journal.recover(store.events, await store.health.identity())
        await store.messages.append([message, new_message("the next")])
    journal.close()
    lines = list(lines_after(tmp_path / "journal", 0))
    records = [record for line in lines if isinstance(record := line.get("message"), dict)]
    assert [record.get("cut_from") for record in records] == [1234567, None]
    target, report = rebuilt(tmp_path, lines)
    assert (report.strange_lines, report.missing_lines, report.lost_messages) == (0, 0, 0)
    async with open_store(target, FakeClock()) as store:
        assert await texts(store) == [message.text, "the next"]
        assert (await store.messages.get("#1")).cut_from == 1234567
