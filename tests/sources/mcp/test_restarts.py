"""What a restart of the daemon leaves open: where a server cannot say what it announced meanwhile, people are told."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from harken.sources.mcp.protocol import McpCheckpoint, mark_checkpoint, was_heard
from tests.sources.mcp.rig import Handler, Server, Visit, following, said, serving, streams
from tests.sources.mcp.test_legacy_sse import Old

CHILD: Final = Path(__file__).parent / "child_server.py"


@asynccontextmanager
async def without_ids(transport: str) -> AsyncIterator[tuple[Mapping[str, object], int]]:
    """Run a server that gives its events no ids; yield the settings to listen to it, and how much it says each time."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": ["-I", "-S", str(CHILD), "echo"]}, 5
        return
    server = Server([streams(said("news"))])
    if transport == "sse":
        lives = [Old(said("news")) for _ in range(3)]
        server = Server([life.stream for life in lives], {"initialize": [life.post for life in lives]})
    async with serving(server):
        yield {"url": server.url, "transport": transport}, 1


@pytest.mark.parametrize("transport", ["http", "sse", "stdio"])
async def test_a_restart_is_a_gap_where_events_have_no_ids(transport: str) -> None:
    """Nobody knows what was said while the daemon was down: each restart is told, and each is told once."""
    async with without_ids(transport) as (entry, count):
        async with following(entry) as first:
            await first.hear(count)
            assert first.source.health().gaps == 0
        for _ in range(2):
            async with following(entry, checkpoint=first.checkpoint) as later:
                await later.hear(count)
                assert (later.source.health().gaps, later.source.health().reconnects) == (1, 0)
            # What is stored says it already.
            assert later.checkpoint == ""


async def test_a_restart_is_no_gap_while_nothing_was_ever_heard() -> None:
    """A server that is new to us has nothing that we could have missed."""
    server = Server([streams(), streams(said("first"))])
    async with serving(server):
        async with following({"url": server.url}) as before:
            await server.visit("GET")
        assert (before.texts, before.checkpoint) == ([], "")
        async with following({"url": server.url}, checkpoint=before.checkpoint) as ear:
            await ear.hear(1)
            assert ear.source.health().gaps == 0


async def test_what_the_allow_list_leaves_out_was_heard_all_the_same() -> None:
    """The list says what is kept, not whether a server speaks."""
    server = Server([streams(said("noise", "other"))])
    async with serving(server), following({"url": server.url, "channels": ["news"]}) as ear:
        assert was_heard(await ear.next_checkpoint(), server.url)
        assert ear.texts == []


async def test_a_mark_of_another_server_is_no_gap() -> None:
    """The name stays and the address changes: of the new server nothing was missed."""
    server = Server([streams(said("hello"))])
    async with serving(server), following({"url": server.url}, checkpoint=mark_checkpoint("http://other/")) as ear:
        await ear.hear(1)
        assert ear.source.health().gaps == 0
        assert was_heard(ear.checkpoint, server.url)


async def test_a_mark_never_takes_the_place_of_a_position() -> None:
    """The position says more: with it nothing is missed."""

    async def heard(*events: tuple[str, str]) -> str:
        async with serving(Server([sends(events)])) as server, following({"url": server.url}) as ear:
            await ear.hear(len(events))
            return ear.checkpoint

    assert '"last_id":"1"' in await heard(("without", ""), ("with", "1"))
    assert '"last_id":"1"' in await heard(("with", "1"), ("without", ""))


def sends(events: tuple[tuple[str, str], ...]) -> Handler:
    """Return a handler that sends texts, some with ids."""

    async def handle(visit: Visit) -> None:
        await visit.begin_stream()
        for text, event_id in events:
            await visit.event(said(text), event_id)
        await visit.hold()

    return handle


def test_a_checkpoint_of_any_kind_says_that_something_was_heard() -> None:
    """Also one of an older version, which knew positions only."""
    place = McpCheckpoint("s", "1", "2025-06-18").checkpoint("http://here/")
    assert was_heard(place, "http://here/")
    assert not was_heard(place, "http://there/")
    assert not any(was_heard(text, "http://here/") for text in ("", "null", "7", "{}", "[]", "not json"))
