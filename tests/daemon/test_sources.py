"""A daemon that listens to an MCP server: what is announced becomes mail, and stays so whatever happens."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from harken.clock import SystemClock
from harken.config.home import Home
from harken.config.settings import Settings
from harken.daemon.metrics import EventCounters
from harken.daemon.source_set import FeedRunner, SourceSet
from harken.daemon.supervisor import Supervisor
from harken.errors import Unavailable
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.model import Draft, Sender
from harken.sources.feed import FeedTiming
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource
from harken.sources.source import Batch, Feed, Source, SourceHealth, SourceState
from harken.store.contract import Store
from harken.store.contract.messages import AppendResult, Checkpoint, Filter
from harken.store.sqlite import open_store
from harken.testing.agent import Json
from harken.testing.daemon import CallFailed, running_daemon
from tests.loss import rig
from tests.loss.rig import DaemonStarter, Served
from tests.sources.mcp.rig import Server, Visit, serving, streams
from tests.sources.mcp.rig import said as words

TESTS: Final = Path(__file__).parent.parent
# On the official SDK, as servers are; it takes seconds to start.
REAL: Final = [str(TESTS / "interop" / "announcer.py"), "stdio"]
QUICK: Final = ["-I", "-S", str(TESTS / "cli" / "announcer.py"), "ci=build is green", "ci=build is green"]
SECONDS: Final = 30.0


def configured(home: Path, **entry: object) -> Path:
    """Write the configuration of a home that listens to an announcer."""
    home.mkdir(mode=0o700, exist_ok=True)
    known: Mapping[str, object] = {"kind": "mcp", "command": sys.executable, "args": QUICK}
    # What is JSON here is TOML too.
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**known, **entry}.items())
    (home / "config.toml").write_text(f"[sources.ci]\n{lines}\n")
    return home


def until(daemon: Served, is_so: Callable[[Json], bool]) -> Json:
    """Return the source's state once it is as wanted."""

    def look() -> Json:
        source = daemon.call("source_list")["sources"][0]
        return source if is_so(source) else None

    return rig.until(look, "the source is as wanted", SECONDS)


def test_what_a_server_announces_becomes_mail(starter: DaemonStarter, tmp_path: Path) -> None:
    """In the channel it was announced on, from the server, with prompts only; what was not asked for is counted."""
    with starter.daemon(configured(tmp_path / "home", channels=["ci"], args=REAL)) as daemon:
        daemon.start()
        source = until(daemon, lambda each: each["counts"].get("ci", 0) > 1 and bool(each["dropped"].get("deploys")))
        assert (source["name"], source["kind"], source["state"], source["server"]) == (
            "ci",
            "mcp",
            "listening",
            "announcer 1",
        )
        messages = daemon.call("list", limit=100)["messages"]
    assert {(each["source"], each["channel"], each["content_text_sanitized"]) for each in messages} == {
        ("ci", "ci", "build is green")
    }
    assert {(each["sender_id"], each["trust"], each["attention"]) for each in messages} == {("ci", "unknown", "prompt")}


def test_an_announcement_cannot_be_answered_and_is_not_said_to_be(starter: DaemonStarter, tmp_path: Path) -> None:
    """A reply that can never leave would stand in the ledger as an answer."""
    with starter.daemon(configured(tmp_path / "home", channels=["ci"])) as daemon:
        daemon.start()
        until(daemon, lambda _: bool(daemon.call("list", channel="ci")["messages"]))
        message = daemon.call("list", channel="ci", limit=1)["messages"][0]["id"]
        with pytest.raises(CallFailed, match="cannot be answered"):
            daemon.call("reply", ref=message, body="thank you")
        details = daemon.call("read", ref=message)
        assert (details["replies"], [line["state"] for line in details["ledger"]]) == ([], ["queued"])


def test_what_was_unread_stays_unread_over_a_restart(starter: DaemonStarter, tmp_path: Path) -> None:
    """Announcements are mail: nobody has read them because the daemon was killed."""
    with starter.daemon(configured(tmp_path / "home", channels=["ci"])) as daemon:
        daemon.start()
        until(daemon, lambda _: len(daemon.call("list", channel="ci")["messages"]) > 1)
        daemon.kill()
        daemon.start()
        assert daemon.call("stats")["unread_by_channel"]["ci"] > 1


def test_what_was_announced_while_the_daemon_was_down_is_told_as_a_gap(starter: DaemonStarter, tmp_path: Path) -> None:
    """A program that is not running announces to nobody: who looks afterwards must not think that all is there."""
    with starter.daemon(configured(tmp_path / "home", channels=["ci"])) as daemon:
        daemon.start()
        assert until(daemon, lambda each: bool(each["counts"]))["gaps"] == 0
        daemon.kill()
        daemon.start()
        assert until(daemon, lambda each: each["state"] == "listening")["gaps"] == 1


def test_a_server_may_be_trusted_and_wake(starter: DaemonStarter, tmp_path: Path) -> None:
    """The person says so for this server, and for no other."""
    with starter.daemon(configured(tmp_path / "home", trust="known", attention="wake")) as daemon:
        daemon.start()
        until(daemon, lambda _: bool(daemon.call("list", channel="ci")["messages"]))
        message = daemon.call("list", channel="ci", limit=1)["messages"][0]
    assert (message["trust"], message["attention"]) == ("known", "wake")


def test_a_secret_that_is_missing_keeps_only_its_source_away(starter: DaemonStarter, tmp_path: Path) -> None:
    """Everything else works, and `status` says what to do."""
    home = configured(tmp_path / "home", **{"env.API_TOKEN": "env:HARKEN_TEST_NOT_SET"})
    with starter.daemon(home) as daemon:
        daemon.start()
        source = daemon.call("source_list")["sources"][0]
        assert source["state"] == "needs person"
        assert "HARKEN_TEST_NOT_SET" in source["reason"]
        assert daemon.call("send", text="hello")["state"] == "queued"


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"trust": "friend"}, "sources.ci.trust"),
        ({"attention": "loud"}, "sources.ci.attention"),
        ({"kind": "x"}, "'x'"),
    ],
)
def test_a_mistake_in_a_source_is_named_at_start(tmp_path: Path, entry: Mapping[str, object], named: str) -> None:
    """A daemon that ignored it would lose mail."""
    with pytest.raises(RuntimeError, match=named), running_daemon(configured(tmp_path / "home", **entry)):
        pass


def made(tmp_path: Path, environ: Mapping[str, str], **entry: object) -> list[McpSource]:
    """Return the sources of a configuration with one entry."""
    settings = Settings(sources={"ci": {"kind": "mcp", **entry}})
    sources = SourceSet(settings, Home(tmp_path), SystemClock(), environ, EventCounters()).sources
    return [source for source in sources if isinstance(source, McpSource)]


def test_a_source_that_is_turned_off_is_not_there(tmp_path: Path) -> None:
    """Turning it off for a while is easier than taking it out."""
    assert made(tmp_path, {}, command="x", enabled=False) == []


def test_only_what_can_be_a_secret_is_looked_up(tmp_path: Path) -> None:
    """The address of a resource looks like a reference to a file, whose content would be sent to the server."""
    (tmp_path / "build.log").write_text("private")
    address = f"file://{tmp_path}/build.log"
    entry = {"command": "x", "args": ["--token", "env:TOKEN", address], "resources": [address]}
    (source,) = made(tmp_path, {"TOKEN": "a long secret"}, **entry)
    settings = source.settings
    assert (settings.args, settings.resources) == (("--token", "a long secret", address), (address,))
    assert "secret" not in settings.scrub("it was started with --token 'a long secret'")


def test_no_source_is_called_like_the_machine_itself(tmp_path: Path) -> None:
    """What a server says would be what was said here, and be trusted so."""
    home = configured(tmp_path / "home")
    text = (home / "config.toml").read_text().replace("sources.ci", "sources.local")
    (home / "config.toml").write_text(text)
    with pytest.raises(RuntimeError, match="the machine itself"), running_daemon(home):
        pass


async def test_what_was_in_hand_is_stored_before_what_came_after_it(tmp_path: Path) -> None:
    """The checkpoint of what came later would step over it, and nobody would send it again."""
    clock = SystemClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        intake = Stubborn(store, PolicyBook(store.people, store.tokens, IngestPolicy()), Pairings(clock))
        source = Batches(
            [Batch(drafts=[said("first")], checkpoint="c1")], Batch(drafts=[said("second")], checkpoint="c2")
        )
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as loops:
                FeedRunner(intake, store.checkpoints).start(source, Supervisor(loops))
                await intake.refused.wait()
                intake.is_away = False
                loops.cancel_scope.cancel()
        stored = [message.text for message in await store.messages.page(Filter(), 10)]
        assert (stored, await store.checkpoints.get("ci", "f")) == (["first", "second"], "c2")


async def test_what_a_source_had_to_give_up_is_counted_and_in_the_journal(tmp_path: Path) -> None:
    """An agent that asks how much was dropped, and whoever audits it later, is told the same."""
    clock = SystemClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        intake = Intake(store, PolicyBook(store.people, store.tokens, IngestPolicy()), Pairings(clock))
        source = Batches([Batch(drafts=[said("one")], dropped=2), Batch(dropped=3)])
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as loops:
                FeedRunner(intake, store.checkpoints).start(source, Supervisor(loops))
        events = [event.data for event in await store.events.after(0, 100) if event.kind == "dropped"]
        assert (intake.dropped_total, events) == (5, [{"source": "ci", "count": n} for n in (2, 3)])


async def test_a_server_that_does_everything_wrong_is_stored_once_with_its_gap(tmp_path: Path) -> None:
    """It breaks off within a word, sends again what we have, and forgets us: nothing is lost or there twice."""

    async def breaks(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(words("one"), "1")
        await visit.event(words("two"), "2")
        await visit.write(b"id: 3\ndata: " + words("three").encode()[:20])
        await visit.wire.aclose()

    async def forgets(visit: Visit) -> None:
        server.session = "another"
        await visit.reply(404)

    again = streams(words("one"), words("two"), words("three"), first_id=1, held=False)
    server = Server([breaks, again, forgets, streams(words("one"), first_id=1)])
    clock = SystemClock()
    async with open_store(tmp_path / "harken.db", clock) as store, serving(server):
        intake = Intake(store, PolicyBook(store.people, store.tokens, IngestPolicy()), Pairings(clock))
        source = McpSource(read_settings("ci", {"url": server.url}), clock, FeedTiming(chance=lambda: 0.0))
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as loops:
                FeedRunner(intake, store.checkpoints).start(source, Supervisor(loops))
                while (health := source.health()).counts.get("news", 0) < 4:
                    await anyio.lowlevel.checkpoint()
                loops.cancel_scope.cancel()
        stored = [message.text for message in await store.messages.page(Filter(), 10)]
    assert stored == ["one", "two", "three", "one"]
    assert (health.counts, health.known, health.gaps, health.reconnects) == ({"news": 4}, 2, 1, 2)


async def test_a_feed_is_told_what_was_stored_and_what_was_known(tmp_path: Path) -> None:
    """People are shown how much came: what a server sends twice is there once."""
    clock = SystemClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        intake = Intake(store, PolicyBook(store.people, store.tokens, IngestPolicy()), Pairings(clock))
        one, two = (replace(said(text), upstream_id=text) for text in ("one", "two"))
        source = Batches([Batch(drafts=[one]), Batch(drafts=[one, two], checkpoint="c"), Batch(checkpoint="d")])
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as loops:
                FeedRunner(intake, store.checkpoints).start(source, Supervisor(loops))
    assert source.feed.told == [(["one"], 0), (["two"], 1), ([], 0)]


async def test_a_loop_can_be_stopped_before_it_has_begun() -> None:
    """A source may be removed in the moment in which it was added; a loop of that name can be started anew."""
    begun: list[int] = []

    async def loop() -> None:
        begun.append(1)
        await anyio.sleep_forever()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            supervisor = Supervisor(tasks)
            supervisor.start("it", loop)
            await supervisor.stop("it")
            assert not supervisor.has("it")
            await supervisor.stop("it")
            supervisor.start("it", loop)
            while not begun:
                await anyio.lowlevel.checkpoint()
            await supervisor.stop("it")
    assert dict(supervisor.health) == {}


class Stubborn(Intake):
    """An intake whose store is away at first."""

    is_away = True

    def __init__(self, store: Store, policies: PolicyBook, pairings: Pairings) -> None:
        super().__init__(store, policies, pairings)
        self.refused = anyio.Event()

    async def accept(
        self, drafts: Sequence[Draft], checkpoint: Checkpoint | None = None, *, dropped: int = 0
    ) -> list[AppendResult]:
        """Refuse until told otherwise."""
        if self.is_away:
            self.refused.set()
            raise Unavailable("the store is away", "Wait.")
        return await super().accept(drafts, checkpoint, dropped=dropped)


class Batches(Source):
    """A source with one stream, that yields some batches and has read another."""

    name, kind, address = "ci", "mcp", ""

    def __init__(self, batches: Sequence[Batch], rest: Batch | None = None) -> None:
        self.feed = BatchesFeed(batches, rest or Batch())

    def feeds(self) -> Sequence[Feed]:
        """Its stream."""
        return (self.feed,)

    def health(self) -> SourceHealth:
        """Well."""
        return SourceHealth(state=SourceState.LISTENING)


class BatchesFeed:
    """The stream."""

    name = "f"

    def __init__(self, batches: Sequence[Batch], rest: Batch) -> None:
        self._batches, self._rest = batches, rest
        self.told: list[tuple[list[str], int]] = []

    async def follow(self, _checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the batches, and end."""
        for batch in self._batches:
            yield batch

    def rest(self) -> Batch:
        """Return what is left."""
        return self._rest

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Keep what is told."""
        self.told.append(([draft.text for draft in drafts], known))


def said(text: str) -> Draft:
    """Something that a server announced."""
    return Draft(source="ci", sender=Sender("ci"), text=text)
