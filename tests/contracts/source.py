"""What every kind of source keeps, whoever wrote it: its declaration, its settings, and how feeds and answers behave.

`check_declaration` and the others that take a `SourceKind` hold for all kinds of the registry. `SourceBench` is the
other side of one kind, for the tests that need one: it says things, repeats them, goes away and speaks nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import pytest

from harken.config.home import Home
from harken.config.tables import source_entry
from harken.errors import NeedsPerson, UserError
from harken.model import Draft, OutgoingReply
from harken.sources.source import Batch, Source, SourceEntry, SourceHealth, SourceKind, SourceState, Speakers
from harken.testing import FakeClock
from tests.sources.messages_rig import stored_message

SECONDS: Final = 20.0
PASTED: Final = "hunter2-is-no-secret-any-more"


class SourceBench(Protocol):
    """The other side of a source, ready to be spoken with."""

    def open(self) -> Source:
        """Return a source that listens to it, as after a start of the daemon."""
        ...

    async def say(self, *texts: str) -> None:
        """Say things, in order."""
        ...

    async def babble(self) -> None:
        """Say something that has no shape that anybody documents."""
        ...

    def away(self) -> AbstractAsyncContextManager[None]:
        """Be away for the time of the block."""
        ...

    def said(self, draft: Draft) -> str:
        """Return what was said, of a draft that was made of it."""
        ...

    def answers(self) -> Sequence[str]:
        """Return what was answered so far."""
        ...


class ServiceBench(SourceBench, Protocol):
    """The other side of a source that asks a service, which can be too busy or not know who asks."""

    def be_busy(self) -> None:
        """Ask to wait, a few times."""
        ...

    def end_sign_in(self) -> None:
        """Let the sign-in be over, until a person signs in again."""
        ...


def entry_for(kind: SourceKind, table: Mapping[str, object], folder: Path) -> SourceEntry:
    """Return an entry in a home where no secret is kept."""
    whole = {"kind": kind.name, **table}
    return source_entry("it", whole, home=Home(folder), clock=FakeClock(), environ={})


def check_declaration(kind: SourceKind) -> None:
    """Everything that people are shown is there."""
    assert kind.name.isidentifier()
    assert kind.name.islower()
    assert kind.title
    assert kind.summary.endswith(".")
    assert kind.speakers in Speakers
    setup = kind.setup()()
    assert setup.help_text
    flags = [option.flag for option in setup.options]
    assert len(set(flags)) == len(flags)
    assert all(option.flag.startswith("--") and option.help for option in setup.options)


def check_settings(kind: SourceKind, good: Mapping[str, object], secret_key: str) -> None:
    """A good entry is taken; a slip is named with a guess, and what may be a secret is not repeated."""
    whole = {"kind": kind.name, **good}
    kind.read_settings()("it", whole)
    assert kind.can_answer("it", whole) in (True, False)
    for shared in ({"enabled": False}, {"trust": "known"}, {"attention": "wake"}):
        kind.read_settings()("it", {**whole, **shared})
    some_key = max(good, key=len)
    slip = f"{some_key}x"
    with pytest.raises(UserError) as caught:
        kind.read_settings()("it", {**whole, slip: "1"})
    assert f"sources.it.{slip}" in caught.value.message
    assert some_key in caught.value.hint
    if secret_key:
        with pytest.raises(UserError) as caught:
            kind.read_settings()("it", {**whole, secret_key: PASTED})
        assert PASTED not in f"{caught.value.message} {caught.value.hint}"


def check_unready(kind: SourceKind, good: Mapping[str, object], folder: Path) -> None:
    """A source whose secret is nowhere is there, and its health says so or can at least be asked."""
    source = kind.make()(entry_for(kind, good, folder))
    assert (source.name, source.kind) == ("it", kind.name)
    health = source.health()
    assert isinstance(health, SourceHealth)
    assert PASTED not in f"{source.address} {health.reason}"


async def gather(source: Source, checkpoint: str, wanted: int) -> list[Batch]:
    """Return the batches of the first feed until so many drafts came, and the checkpoint behind them."""
    batches: list[Batch] = []
    feed = source.feeds()[0]
    with anyio.fail_after(SECONDS):
        async with aclosing(feed.follow(checkpoint)) as following:
            async for batch in following:
                batches.append(batch)
                feed.stored(batch.drafts, known=0)
                if sum(len(each.drafts) for each in batches) >= wanted and batch.checkpoint is not None:
                    break
    await source.aclose()
    return batches


def said_in(bench: SourceBench, batches: Sequence[Batch]) -> list[str]:
    """Return what was said, in order."""
    return [bench.said(draft) for batch in batches for draft in batch.drafts]


async def check_restarts(bench: SourceBench) -> None:
    """From every checkpoint that it yielded it goes on with what came after, and loses nothing."""
    await bench.say("one", "two", "three")
    batches = await gather(bench.open(), "", 3)
    assert said_in(bench, batches) == ["one", "two", "three"]
    for number, batch in enumerate(batches[:-1], start=1):
        left = said_in(bench, batches[number:])
        if batch.checkpoint is not None and left:
            again = await gather(bench.open(), batch.checkpoint, len(left))
            assert said_in(bench, again)[-len(left) :] == left
    last = batches[-1].checkpoint
    assert last is not None
    await bench.say("four")
    assert said_in(bench, await gather(bench.open(), last, 1))[-1] == "four"


async def check_repeats(bench: SourceBench) -> None:
    """What is read twice has the same upstream id, by which it is stored once."""
    await bench.say("one", "two")
    first, again = [await gather(bench.open(), "", 2) for _ in range(2)]

    def ids(batches: Sequence[Batch]) -> list[str]:
        return [draft.upstream_id for batch in batches for draft in batch.drafts]

    assert all(ids(first))
    assert ids(first) == ids(again)
    assert len(set(ids(first))) == len(ids(first))


async def check_garbage(bench: SourceBench) -> None:
    """What has no shape does not keep what comes after it from being heard."""
    await bench.babble()
    await bench.say("after that")
    source = bench.open()
    drafts: list[Draft] = []
    feed = source.feeds()[0]
    with anyio.fail_after(SECONDS):
        async with aclosing(feed.follow("")) as following:
            async for batch in following:
                drafts += batch.drafts
                if any(bench.said(draft) == "after that" for draft in drafts):
                    break
    await source.aclose()


async def check_outage(bench: SourceBench) -> None:
    """While the other side is away it says so and when it tries again; then it goes on, and says that too."""
    source = bench.open()
    feed = source.feeds()[0]
    found: list[str] = []

    async def follow() -> None:
        async with aclosing(feed.follow("")) as following:
            async for batch in following:
                found.extend(bench.said(draft) for draft in batch.drafts)
                feed.stored(batch.drafts, known=0)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            async with bench.away():
                group.start_soon(follow)
                await until(lambda: source.health().state is SourceState.RETRYING)
                assert source.health().reason
                assert source.health().next_try is not None
            await bench.say("back again")
            await until(lambda: "back again" in found)
            await until(lambda: source.health().state is SourceState.LISTENING)
            group.cancel_scope.cancel()
    assert source.health().counts
    assert source.health().last_message_at is not None
    assert source.health().state is SourceState.STOPPED
    await source.aclose()


async def check_throttling(bench: ServiceBench) -> None:
    """A service that asks to wait is waited for, and nothing is lost by it."""
    bench.be_busy()
    await bench.say("one", "two")
    assert said_in(bench, await gather(bench.open(), "", 2)) == ["one", "two"]


async def check_expired_sign_in(bench: ServiceBench) -> None:
    """Where only a person can help it stops and says so, and never asks on and on."""
    bench.end_sign_in()
    source = bench.open()
    with anyio.fail_after(SECONDS), pytest.raises(NeedsPerson):
        await anext(source.feeds()[0].follow(""))
    health = source.health()
    assert (health.state, bool(health.reason)) == (SourceState.NEEDS_PERSON, True)
    await source.aclose()


async def check_answers(bench: SourceBench) -> None:
    """An answer is there once, also when the try before it is not known to have worked; it is handed over first."""
    await bench.say("a question")
    (question,) = [draft for batch in await gather(bench.open(), "", 1) for draft in batch.drafts]
    source = bench.open()
    sender = source.sender
    assert sender is not None
    handed: list[str] = []

    async def hand_over() -> None:
        handed.append("over")

    reply = OutgoingReply(
        key="r1",
        to=stored_message(question),
        body="an answer",
        author="agent:claude-code",
        created_at=datetime.now(UTC),
        tried_at=None,
        hand_over=hand_over,
    )
    first = await sender.send(reply)
    assert first
    assert handed == ["over"]
    # As after a crash: the store knows that it was handed over, and not what became of it.
    assert await sender.send(replace(reply, tried_at=datetime.now(UTC))) == first
    assert list(bench.answers()) == ["an answer"]
    await source.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; the caller bounds it."""
    while not is_so():
        await anyio.lowlevel.checkpoint()
