"""The source itself: batches, back pressure, and health that is true at any moment."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import anyio.lowlevel

from harken.sources.feed import MAX_COUNTED, OTHERS
from harken.sources.mcp.protocol import Announcement
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import MAX_WAITING, AnnouncementQueue, McpSource
from harken.sources.source import SourceState
from harken.testing import FakeClock
from tests.sources.mcp.rig import SECONDS, Server, following, said, serving, streams

SETTINGS = read_settings("ci", {"url": "http://127.0.0.1/mcp"})


def announcements(count: int, text: str = "x") -> list[Announcement]:
    """Return so many announcements."""
    return [Announcement(channel="news", content=text) for _ in range(count)]


async def test_what_arrives_while_a_batch_is_stored_is_the_next_batch() -> None:
    """Storing costs a disk write each time: a busy server must not pay it for every message."""
    standing = AnnouncementQueue(SETTINGS, FakeClock())
    await standing.take(announcements(1), "begin")
    first = await standing.next_batch()
    for _ in range(5):
        await standing.take(announcements(2), "place")
    second = await standing.next_batch()
    assert (len(first.drafts), first.checkpoint) == (1, "begin")
    assert (len(second.drafts), second.checkpoint) == (10, "place")


async def test_a_server_is_not_read_while_too_much_waits() -> None:
    """Memory stays flat however slow the disk is: by number, and by size."""
    for many in (announcements(MAX_WAITING), announcements(2, "x" * 8_000_000)):
        standing = AnnouncementQueue(SETTINGS, FakeClock())
        has_gone_on = anyio.Event()

        async def link(
            standing: AnnouncementQueue = standing, done: anyio.Event = has_gone_on, many: list[Announcement] = many
        ) -> None:
            await standing.take(many)
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(link)
            await anyio.wait_all_tasks_blocked()
            assert not has_gone_on.is_set()
            assert len((await standing.next_batch()).drafts) == len(many)
            with anyio.fail_after(SECONDS):
                await has_gone_on.wait()


async def test_everybody_who_waits_goes_on_when_there_is_room() -> None:
    """A link may hand in from two places at once, its stream and the answer to a question."""
    standing = AnnouncementQueue(SETTINGS, FakeClock())
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(standing.take, announcements(MAX_WAITING))
            await anyio.wait_all_tasks_blocked()
            await standing.next_batch()


async def test_channels_without_end_are_counted_together() -> None:
    """A server may invent names; what people are shown stays short, and the sum is right."""
    standing = AnnouncementQueue(SETTINGS, FakeClock())
    for number in range(MAX_COUNTED + 50):
        await standing.take([Announcement(channel=f"c{number}", content="x")])
        standing.stored((await standing.next_batch()).drafts, known=0)
    counts = standing.health().counts
    assert (len(counts), counts[OTHERS], sum(counts.values())) == (MAX_COUNTED + 1, 50, MAX_COUNTED + 50)


async def test_health_says_when_the_last_message_came_and_since_when_it_is_so() -> None:
    """By the daemon's clock, not by what the server claims."""
    async with serving(Server([streams(said("one"))])) as server, following({"url": server.url}) as ear:
        begun = ear.clock.now()
        await ear.hear(1)
        health = ear.source.health()
        assert (health.last_message_at, health.since) == (begun, begun)
        ear.clock.advance(60)
        assert ear.source.health() == health
    assert ear.source.health().state is SourceState.STOPPED
    assert ear.source.health().since == ear.clock.now()


async def test_a_feed_that_is_followed_again_goes_on_counting() -> None:
    """The daemon may begin again after a fault of its own; people see one history."""
    server = Server([streams(said("one")), streams(said("two"))])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
    assert ear.source.health().counts == {"news": 1}
    async with serving(server), anyio.create_task_group() as group:
        group.start_soon(ear.run, "")
        await ear.hear(2)
        health = ear.source.health()
        group.cancel_scope.cancel()
    assert (health.counts, health.gaps, health.state) == ({"news": 2}, 1, SourceState.LISTENING)


async def test_a_feed_can_be_left_at_any_moment() -> None:
    """While a batch is being stored, by going away or by being cancelled: it ends cleanly and hangs up."""
    server = Server([streams(said("one"))])
    async with serving(server):
        source = McpSource(read_settings("odd", {"url": server.url}), FakeClock())
        with anyio.fail_after(SECONDS):
            async with aclosing(source.feeds()[0].follow("")) as batches:
                async for batch in batches:
                    assert [draft.text for draft in batch.drafts] == ["one"]
                    break
        assert source.health().state is SourceState.STOPPED
        assert len(server.seen("DELETE")) == 1
        with anyio.CancelScope() as scope:
            async with aclosing(source.feeds()[0].follow("")) as batches:
                async for _ in batches:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert len(server.seen("DELETE")) == 2


async def test_a_source_names_itself_and_its_feed() -> None:
    """Checkpoints are kept under these names."""
    async with serving(Server([streams()])) as server, following({"url": server.url}) as ear:
        assert (ear.source.name, ear.source.kind, [feed.name for feed in ear.source.feeds()]) == (
            "odd",
            "mcp",
            ["notifications"],
        )
