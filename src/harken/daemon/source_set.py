"""The sources of one daemon, and everything that follows from which there are: it alone owns and changes that.

From an entry of `[sources]` to a source by its kind, with its secrets resolved. A source without its secret, or with
code that fails, does not keep the daemon from starting: it is there, and says what a person must do. What is written
wrongly is refused, at start and when the settings are taken over while the daemon runs: then nothing changes. Sources
may be other people's code, so everything is asked of a new one before it takes the place of an old one.

Every feed is followed from its checkpoint, and every batch is stored before the next is asked for. While the store is
away nothing more is read, so that a source that can hold back does. What others post comes through one listener, bound
from the first door of a source on: a door answers only after what it read is stored (`surfaces/doors.py` says what HTTP
may do there). What configuration says about senders, routes and attention becomes the policy of ingest at the end here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from socket import socket
from types import UnionType
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import convert

from harken.clock import Clock
from harken.config.home import Home
from harken.config.settings import HooksSettings, Settings
from harken.config.tables import source_entry
from harken.daemon import http
from harken.daemon.leadership import ALONE, Leader, LedLoop
from harken.daemon.metrics import EventCounters
from harken.daemon.supervisor import Supervisor, contain
from harken.dispatch.outbox import Outbox, Placeholders
from harken.errors import NeedsPerson, Unavailable, UserError
from harken.inbox.caller import CHANNELS_ID
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.policy import AttentionRule, IngestPolicy
from harken.model import LOCAL, OWNER_ID, Attention, Draft, SenderRule, Trust
from harken.plugins import PluginFault, guard
from harken.sources.registry import kinds
from harken.sources.source import (
    Accept,
    Batch,
    Door,
    DoorAnswer,
    Feed,
    PlaceholderWriter,
    PostedRequest,
    ReplySender,
    Source,
    SourceHealth,
    SourceReport,
    SourceState,
    Speakers,
    ToolServerAddress,
    UnreadySource,
)
from harken.store.contract import Store
from harken.store.contract.leases import SOURCE
from harken.store.contract.messages import Checkpoint, CheckpointStore
from harken.store.contract.outbox import OutboxStore
from harken.surfaces.doors import EVENT_DOORS, DoorsApp, create_doors

_log = logging.getLogger("harken.sources")

CLOSE_SECONDS: Final = 5.0
STOP_SECONDS: Final = 20.0  # of all feeds, each of which has a moment to store what it has read
MAX_REMEMBERED: Final = 50_000  # ids of what was sent through a source, more than any source keeps
PLACEHOLDERS: Final = "placeholders"

# What a running daemon takes over; the rest is read at its start.
LIVE: Final = ("sources", "trust", "routes", "attention", "attention_rules", "approvals")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanges:
    """What was taken over of changed settings: sources by name, other settings, and what needs a restart."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    retried: tuple[str, ...] = ()  # waited for the person, and their entries are as they were
    settings: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return it as programs get it."""
        return {each.name: list(getattr(self, each.name)) for each in fields(self)}


class NameSet(Collection[str]):
    """Names that may change while others look; each look sees all of the old or all of the new."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def become(self, names: Collection[str]) -> None:
        """Be these names from now on."""
        self._names = frozenset(names)


def make_source(name: str, settings: Settings, *, home: Home, clock: Clock, environ: Mapping[str, str]) -> Source:
    """Return a configured source; raises `UserError` for an entry that is written wrongly."""
    table = settings.sources[name]
    entry = source_entry(
        name,
        table,
        home=home,
        clock=clock,
        environ=environ,
        public_url=settings.hooks.public_url,
        event_url=settings.http.public_url if settings.http.public_listen else "",
    )
    kind = kinds().named(entry.kind, name)
    try:
        source = guard(_called(name), lambda: kind.make()(entry))
        guard(_called(name), _ask_everything, source, name)
    except PluginFault:
        _log.exception("the source %s cannot be made", name)
        raise
    return source


def _ask_everything(source: Source, name: str) -> None:
    """Ask a new source all that it is asked later, so that it fails now if it does; it may not be type-checked."""
    if source.name != name:
        raise TypeError(f"its name cannot be {source.name!r:.60}")
    _expect("sender", source.sender, ReplySender | None)
    _expect("placeholders", source.placeholders, PlaceholderWriter | None)
    _expect("tool server", source.tool_server(), ToolServerAddress | None)
    for feed in source.feeds():
        _expect("feeds", feed, Feed)
        _expect("name of a feed", feed.name, str)
    for door in source.doors():
        _expect("doors", door, Door)
        _expect("path of a door", door.path, str)
    _expect("kind", source.kind, str)
    _expect("address", source.address, str)
    _health_said_by(source)


def _health_said_by(source: Source) -> SourceHealth:
    health = source.health()
    _expect("health", health, SourceHealth)
    return convert({each.name: getattr(health, each.name) for each in fields(health)}, SourceHealth)


def _expect(what: str, found: object, kind: type | UnionType) -> None:
    if not isinstance(found, kind):
        raise TypeError(f"its {what} cannot be {found!r:.60}")


def _called(name: str) -> str:
    return f"The source {name}"


class SourceSet:
    """The sources in force. `senders` and the other mappings always say what is so now."""

    def __init__(
        self, settings: Settings, home: Home, clock: Clock, environ: Mapping[str, str], counters: EventCounters
    ) -> None:
        self._counters = counters
        self._make = partial(make_source, home=home, clock=clock, environ=environ)
        self._home = home
        self._clock = clock
        self.settings = settings
        self.names = NameSet()
        self.heard_only = NameSet()
        self.senders: dict[str, ReplySender] = {}
        self._own_senders: Mapping[str, ReplySender] = {}
        self.placeholders: dict[str, PlaceholderWriter] = {}
        self._sources: dict[str, Source] = {name: self._make_at_start(name) for name in enabled(settings)}
        self._last_at: dict[str, datetime] = {}
        self._lock = anyio.Lock()
        self._join: _SourceWiring | None = None
        self._derive()

    def _make_at_start(self, name: str) -> Source:
        try:
            return self._make(name, self.settings)
        except PluginFault as fault:
            return self._unready(name, fault)

    def _unready(self, name: str, fault: PluginFault) -> UnreadySource:
        return UnreadySource(name, str(self.settings.sources[name].get("kind")), f"{fault.message} {fault.hint}")

    @property
    def sources(self) -> Sequence[Source]:
        """The sources in the order of the configuration."""
        return list(self._sources.values())

    def reports(self) -> Sequence[SourceReport]:
        """Return what people are told about the sources."""
        return [self._report(name, source) for name, source in self._sources.items()]

    def _report(self, name: str, source: Source) -> SourceReport:
        try:
            guard(_called(name), lambda: _expect("address", source.address, str))
            return guard(_called(name), lambda: report(source, self._health(source), self.settings))
        except PluginFault as fault:
            unready = self._unready(name, fault)
            return report(unready, unready.health(), self.settings)

    def _health(self, source: Source) -> SourceHealth:
        """Return what a source says of itself, unless a loop of it has failed: then it knows nothing of that."""
        joined = self._join
        loops = joined.supervisor.health if joined and joined.supervisor else {}
        names = joined.feeds.loops_of(source) if joined else ()
        failed = next((loops[name] for name in names if name in loops and loops[name].is_down), None)
        health = health_of(source)
        if self._join and (machine := self._join.leader.elsewhere(SOURCE + source.name)):
            health = replace(health, state=SourceState.ELSEWHERE, reason=f"read by {machine}")
        health = replace(health, last_message_at=health.last_message_at or self._last_at.get(source.name))
        if failed is None:
            return health
        return replace(health, state=SourceState.RETRYING, reason=f"It has failed: {failed.error}")

    def tool_server(self, name: str) -> ToolServerAddress | None:
        """Return the MCP server that a source is, for runs that may use it."""
        source = self._sources.get(name)
        return None if source is None else source.tool_server()

    async def begin(
        self, store: Store, intake: Intake, policies: PolicyBook, own_senders: Mapping[str, ReplySender]
    ) -> None:
        """Join the sources to the store; nothing is followed yet. `own_senders` answer what this machine said."""
        self._own_senders = own_senders
        self._derive()
        with suppress(Unavailable):  # a full disk: nothing was handed over by another daemon then
            await store.outbox.let_go()
        self._join = _SourceWiring(
            store=store,
            feeds=FeedRunner(intake, store.checkpoints),
            outbox=Outbox(store, self.senders, self._clock, expected=self.names),
            doors=DoorListener(intake, self.settings.hooks, self._home),
            policies=policies,
        )
        for name, source in self._sources.items():
            await self._recall_last(name, store)
            try:
                await _recall(source, store.outbox)
            except PluginFault as fault:
                self._sources[name] = self._unready(name, fault)

    async def _recall_last(self, name: str, store: Store) -> None:
        """Know when a source has brought something last: the source itself knows only since it was made."""
        for newest in await store.timeline.channels(1, source=name):
            self._last_at[name] = newest.last_at

    @property
    def outbox(self) -> Outbox:
        """What sends replies through the sources."""
        return self._joined.outbox

    @property
    def doors(self) -> DoorListener:
        """What takes posts for the sources."""
        return self._joined.doors

    def open_doors(self) -> None:
        """Take posts; raises `UserError` when that cannot be."""
        self._joined.doors.show(_doors_of(self._sources))

    def start(self, supervisor: Supervisor, leader: Leader = ALONE) -> None:
        """Follow the sources, and send through them, where no other daemon does."""
        joined = self._joined
        self._join = replace(joined, supervisor=supervisor, leader=leader)
        self._start_all(dict(self._sources))

    async def take_over(self, wanted: Settings) -> SettingsChanges:
        """Be as the settings say from now on; raises `UserError` with nothing changed."""
        async with self._lock:
            before = self.settings
            after = replace(
                before,
                hooks=replace(before.hooks, public_url=wanted.hooks.public_url),
                **{name: getattr(wanted, name) for name in LIVE},
            )
            policy = configured_policy(after)
            stale = self._stale(after)
            is_elsewhere = before.hooks.public_url != after.hooks.public_url
            unchanged = {name for name in stale if not is_elsewhere and before.sources[name] == after.sources.get(name)}
            joined, had = self._joined, set(self._sources)
            async with AsyncExitStack() as undo:
                made: dict[str, Source] = {}
                for name in enabled(after):
                    if name not in self._sources or name in stale:
                        made[name] = self._make(name, after)
                        undo.push_async_callback(_close, made[name])
                        await _recall(made[name], joined.store.outbox)
                        await self._recall_last(name, joined.store)
                everything = {name: made.get(name) or self._sources[name] for name in enabled(after)}
                joined.doors.show(_doors_of(everything))
                undo.pop_all()
            ended = [source for source in self._sources.values() if source not in everything.values()]
            # From here on all of it happens, also if whoever asked for it goes away.
            with anyio.CancelScope(shield=True):
                for source in ended:
                    await self._stop(source)
                self.settings, self._sources = after, everything
                self._derive()
                await joined.policies.configure(policy)
                self._start_all(made)
            return SettingsChanges(
                added=tuple(name for name in made if name not in had),
                removed=tuple(sorted(had - set(everything))),
                changed=tuple(name for name in made if name in had and name not in unchanged),
                retried=tuple(name for name in made if name in unchanged),
                settings=tuple(n for n in LIVE if n != "sources" and getattr(before, n) != getattr(after, n)),
                restart=tuple(
                    each.name for each in fields(wanted) if getattr(wanted, each.name) != getattr(after, each.name)
                ),
            )

    async def close(self) -> None:
        """Close what is open beyond the feeds."""
        for source in self._sources.values():
            await _close(source)

    def _stale(self, after: Settings) -> set[str]:
        """Return the sources that are made again: those with a changed entry, and those that wait for a person."""
        before = self.settings
        is_elsewhere = before.hooks.public_url != after.hooks.public_url
        return {
            name
            for name, source in self._sources.items()
            if is_elsewhere
            or before.sources.get(name) != after.sources.get(name)
            or health_of(source).state is SourceState.NEEDS_PERSON
        }

    def _derive(self) -> None:
        self.names.become(self.settings.sources.keys())
        self._counters.name_sources(frozenset({LOCAL, *self.settings.sources}))
        self.heard_only.become(heard_only(self.settings))
        senders = _offered(self._sources, lambda source: source.sender)
        _become(self.senders, {**self._own_senders, **senders})
        _become(self.placeholders, _offered(self._sources, lambda source: source.placeholders))

    def _start_all(self, sources: Mapping[str, Source]) -> None:
        for name, source in sources.items():
            try:
                guard(_called(name), self._start, source)
            except PluginFault as fault:
                _log.exception("the source %s cannot be started", name)
                self._sources[name] = self._unready(name, fault)

    def _start(self, source: Source) -> None:
        joined = self._joined
        if joined.supervisor is None:
            return
        lead = partial(joined.lead, source)
        joined.feeds.start(source, joined.supervisor, lead)
        if source.sender is not None:
            # Where it is read: what the source itself has sent must not come back as news.
            joined.supervisor.start(_lane(source.name), partial(lead, partial(joined.outbox.run, source.name)))
        if source.placeholders is not None and not joined.supervisor.has(PLACEHOLDERS):
            loop = Placeholders(joined.store, self._clock, LedWriters(self.placeholders, joined.leader)).run
            joined.supervisor.start(PLACEHOLDERS, loop)

    async def _stop(self, source: Source) -> None:
        joined = self._joined
        if joined.supervisor is not None:
            with anyio.move_on_after(STOP_SECONDS) as scope:
                await joined.feeds.stop(source, joined.supervisor)
                await joined.supervisor.stop(_lane(source.name))
            if scope.cancelled_caught:
                _log.warning("the source %s did not stop within %g s", source.name, STOP_SECONDS)
        await _close(source)

    @property
    def _joined(self) -> _SourceWiring:
        if self._join is None:
            raise RuntimeError("the sources were not begun")
        return self._join


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceWiring:
    store: Store
    feeds: FeedRunner
    outbox: Outbox
    doors: DoorListener
    policies: PolicyBook
    supervisor: Supervisor | None = None
    leader: Leader = ALONE

    async def lead(self, source: Source, loop: LedLoop) -> None:
        """Run a loop of a source while no other daemon does."""

        async def tenure() -> None:
            if self.leader.is_shared:
                # Another daemon may have sent through it meanwhile.
                await _recall(source, self.store.outbox)
            await loop()

        await self.leader.lead(SOURCE + source.name, tenure)


class LedWriters(Mapping[str, PlaceholderWriter]):
    """What writes placeholders, of the sources that this daemon leads."""

    def __init__(self, writers: Mapping[str, PlaceholderWriter], leader: Leader) -> None:
        self._writers = writers
        self._leader = leader

    def __getitem__(self, name: str) -> PlaceholderWriter:
        if self._leader.elsewhere(SOURCE + name):
            raise KeyError(name)
        return self._writers[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in tuple(self._writers) if not self._leader.elsewhere(SOURCE + name))

    def __len__(self) -> int:
        return len(list(iter(self)))


_Value = TypeVar("_Value")


def _become(mapping: dict[str, _Value], wanted: Mapping[str, _Value]) -> None:
    for name in set(mapping) - set(wanted):
        del mapping[name]
    mapping.update(wanted)


def _offered(sources: Mapping[str, Source], ask: Callable[[Source], _Value | None]) -> dict[str, _Value]:
    """Return what those sources have that have it; one that fails at this has nothing."""
    found: dict[str, _Value] = {}
    for name, source in sources.items():
        with suppress(PluginFault):
            offered = guard(_called(name), ask, source)
            if offered is not None:
                found[name] = offered
    return found


def _doors_of(sources: Mapping[str, Source]) -> list[_OwnDoor]:
    return [_OwnDoor(name, door) for name, source in sources.items() for door in guard(_called(name), source.doors)]


def _lane(name: str) -> str:
    return f"outbox {name}"


async def _recall(source: Source, outbox: OutboxStore) -> None:
    guard(_called(source.name), source.remember, await outbox.sent_ids(source.name, MAX_REMEMBERED))


async def _close(source: Source) -> None:
    with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
        await contain(f"closing the source {source.name}", source.aclose())
    if scope.cancelled_caught:
        _log.warning("the source %s was not closed within %g s", source.name, CLOSE_SECONDS)


def enabled(settings: Settings) -> list[str]:
    """Return the sources that are turned on."""
    found: list[str] = []
    for name, table in settings.sources.items():
        is_on = table.get("enabled", True)
        if not isinstance(is_on, bool):
            raise UserError(f"sources.{name}.enabled is {str(is_on)[:40]!r}.", "Use true or false.")
        if is_on:
            found.append(name)
    return found


def heard_only(settings: Settings) -> frozenset[str]:
    """Return the sources with messages that cannot be answered, by what is written about them."""
    return frozenset(name for name, entry in settings.sources.items() if not _can_answer(name, entry))


def _can_answer(name: str, entry: Mapping[str, object]) -> bool:
    kind = kinds().by_name.get(str(entry.get("kind")))
    try:
        return kind is None or guard(_called(name), kind.can_answer, name, entry)
    except PluginFault:
        return False


def health_of(source: Source) -> SourceHealth:
    """Return how a source is doing; one that cannot say so needs a person."""
    try:
        return guard(_called(source.name), _health_said_by, source)
    except PluginFault as fault:
        return SourceHealth(state=SourceState.NEEDS_PERSON, reason=f"{fault.message} {fault.hint}")


def report(source: Source, health: SourceHealth, settings: Settings) -> SourceReport:
    """Return what people are told about a source."""
    return SourceReport(
        name=source.name,
        kind=source.kind,
        address=source.address,
        health=health,
        trust=trust_of(source.name, settings),
        attention=attention_of(source.name, settings),
    )


ASK_AGAIN_SECONDS = 300.0
LAST_SECONDS = 2.0


class FeedRunner:
    """Follows the feeds of sources."""

    def __init__(self, intake: Intake, checkpoints: CheckpointStore) -> None:
        self._intake = intake
        self._checkpoints = checkpoints
        self._loops: dict[str, list[str]] = {}

    def start(
        self, source: Source, supervisor: Supervisor, lead: Callable[[LedLoop], Awaitable[None]] | None = None
    ) -> None:
        """Follow every feed of a source until it is stopped, or while this daemon leads it."""
        feeds = {f"source {source.name}/{feed.name}": feed for feed in source.feeds()}
        self._loops[source.name] = list(feeds)
        for loop, feed in feeds.items():
            follow = partial(self._follow, source, feed)
            supervisor.start(loop, follow if lead is None else partial(lead, follow))

    async def stop(self, source: Source, supervisor: Supervisor) -> None:
        """Follow a source no longer; what was read of it is stored first."""
        for loop in self._loops.pop(source.name, ()):
            await supervisor.stop(loop)

    def loops_of(self, source: Source) -> Sequence[str]:
        """Return the names of the loops that follow a source."""
        return self._loops.get(source.name, ())

    async def _follow(self, source: Source, feed: Feed) -> None:
        while True:
            position = await self._checkpoints.get(source.name, feed.name)
            try:
                await self._take_all(source, feed, position)
            except NeedsPerson:
                # The source says in its health what to do; that it was done, nobody tells us.
                await anyio.sleep(ASK_AGAIN_SECONDS)
            else:
                return

    async def _take_all(self, source: Source, feed: Feed, position: str) -> None:
        in_hand: Batch | None = None
        try:
            async with aclosing(feed.follow(position)) as batches:
                async for batch in batches:
                    in_hand = batch
                    await self._take(source, feed, batch)
                    in_hand = None
        finally:
            # The daemon stops while a server speaks: what was read from it cannot be read again. In order, because the
            # checkpoint of what came later would step over what did not get stored before it.
            with anyio.move_on_after(LAST_SECONDS, shield=True):
                if in_hand is not None:
                    await self._take(source, feed, in_hand)
                await self._take(source, feed, feed.rest())

    async def _take(self, source: Source, feed: Feed, batch: Batch) -> None:
        checkpoint = None
        _require_own(source.name, batch.drafts)
        if batch.checkpoint is not None:
            checkpoint = Checkpoint(source.name, feed.name, batch.checkpoint)
        if batch.drafts or checkpoint is not None:
            appended = await self._intake.accept_at_last(batch.drafts, checkpoint, dropped=batch.dropped)
            new = [draft for draft, each in zip(batch.drafts, appended, strict=True) if each.is_new]
            feed.stored(new, known=len(appended) - len(new))
        elif batch.dropped:
            await self._intake.give_up(source.name, batch.dropped)


def _require_own(name: str, drafts: Sequence[Draft]) -> None:
    """Refuse drafts of another source: how far they are trusted follows from that."""
    for draft in drafts:
        if draft.source != name:
            raise ValueError(f"a draft says that it is of the source {draft.source!r:.60}, and not of {name!r}")


@dataclass(frozen=True, slots=True)
class _OwnDoor(Door):
    """A door through which comes only what is of its source."""

    source: str
    door: Door

    @property
    def path(self) -> str:
        return self.door.path

    @property
    def max_bytes(self) -> int:
        return self.door.max_bytes

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        async def accept_own(drafts: Sequence[Draft]) -> Sequence[bool]:
            _require_own(self.source, drafts)
            return await accept(drafts)

        return await self.door.take(posted, accept_own)


class DoorListener:
    """Listens for the sources that have doors."""

    def __init__(self, intake: Intake, settings: HooksSettings, home: Home) -> None:
        self._settings = settings
        self._home = home
        self._app = create_doors((), _accept(intake))
        self._sock: socket | None = None
        self._server: http.Server | None = None
        self._tasks: TaskGroup | None = None

    @property
    def app(self) -> DoorsApp:
        """The doors, for the public listener to show those for events."""
        return self._app

    @property
    def url(self) -> str:
        """Its address on this machine; empty while nothing is listened for."""
        return "" if self._sock is None else http.url_of(self._sock)

    def show(self, doors: Sequence[Door]) -> None:
        """Take posts at these doors and no others; raises `UserError` with nothing changed."""
        shared = [path for path, count in Counter(door.path for door in doors).items() if count > 1]
        if shared:
            raise UserError(f"Two sources take posts at {shared[0]}.", "Remove one of them from config.toml.")
        # Those for events of other servers are at the public listener.
        has_own = any(not door.path.startswith(EVENT_DOORS) for door in doors)
        if has_own and self._sock is None:
            settings = self._settings
            is_known = bool(settings.public_url)
            self._sock = http.bind(
                settings.host, settings.port, self._home.doors_port_file, "hooks.port", is_known=is_known
            )
            self._server = http.make_server(self._app)
            if self._tasks is not None:
                self._tasks.start_soon(self._serve)
        self._app.show(doors)
        if not has_own:
            self._close()

    def serve_in(self, tasks: TaskGroup) -> None:
        """Serve from now on, also what is opened later."""
        self._tasks = tasks
        if self._server is not None:
            tasks.start_soon(self._serve)

    def stop(self) -> None:
        """Take nothing any more."""
        if self._server is not None:
            self._server.should_exit = True

    def _close(self) -> None:
        """Close the port: without a door there is nothing to post to."""
        if self._server is not None and self._sock is not None:
            self._server.stop_listening()
            self._sock.close()
        self._server = self._sock = None

    async def _serve(self) -> None:
        if self._server is not None and self._sock is not None:
            await self._server.serve(sockets=[self._sock])


def _accept(intake: Intake) -> Accept:
    async def accept(drafts: Sequence[Draft]) -> Sequence[bool]:
        return [each.is_new for each in await intake.accept(drafts)]

    return accept


_Choice = TypeVar("_Choice", Trust, Attention)


def configured_policy(settings: Settings) -> IngestPolicy:
    """Return the policy before the person's decisions in the store."""
    # What a person injects is not their word but that of machines: data, that comes between two tool calls.
    local = (SenderRule(LOCAL, OWNER_ID, Trust.OWNER), SenderRule(LOCAL, CHANNELS_ID, Trust.UNKNOWN))
    injected = AttentionRule(Attention.BOUNDARY, source=LOCAL, sender=CHANNELS_ID, allow_unknown=True)
    return IngestPolicy(
        sender_rules=(
            *local,
            *_rules(settings.trust.owner, Trust.OWNER),
            *_rules(settings.trust.known, Trust.KNOWN),
        ),
        machines=frozenset(name for name in settings.sources if is_machine(name, settings)),
        # Whoever reaches the local socket is the same user: people and programs there are known unless denied.
        default_trust={LOCAL: Trust.KNOWN, **{name: trust_of(name, settings) for name in settings.sources}},
        routes=settings.routes,
        # Whoever configures a server wants to hear of it: what it announces goes with prompts, trusted or not. Where
        # people write, everyone can: a stranger there is only counted.
        attention_rules=(
            injected,
            *settings.attention_rules,
            *(
                AttentionRule(attention=attention_of(name, settings), source=name, allow_unknown=True)
                for name in settings.sources
                if is_machine(name, settings)
            ),
        ),
        default_attention={
            LOCAL: Attention.WAKE,
            **settings.attention,
            **{name: attention_of(name, settings) for name in settings.sources},
        },
    )


def trust_of(name: str, settings: Settings) -> Trust:
    """Return how far what comes through a source is trusted, where nothing is decided about its sender."""
    entry = settings.sources[name]
    trust = _choice(Trust, entry, "trust", name, settings.trust.default)
    if trust is Trust.OWNER:
        raise UserError(f"sources.{name} cannot be trusted like you.", 'Use trust = "known" or "unknown".')
    return trust


def attention_of(name: str, settings: Settings) -> Attention:
    """Return how far what comes through a source may push: what people write wakes, what machines say does not."""
    entry = settings.sources[name]
    usual = Attention.PROMPT if is_machine(name, settings) else Attention.WAKE
    return _choice(Attention, entry, "attention", name, settings.attention.get(name, usual))


def is_machine(name: str, settings: Settings) -> bool:
    """Whether it is programs that speak through a source."""
    kind = kinds().by_name.get(str(settings.sources[name].get("kind")))
    return kind is not None and kind.speakers is Speakers.MACHINES


def _choice(kind: type[_Choice], entry: Mapping[str, object], key: str, name: str, default: _Choice) -> _Choice:
    found = entry.get(key, default.value)
    for choice in kind:
        if choice.value == found:
            return choice
    known = ", ".join(choice.value for choice in kind)
    raise UserError(f"sources.{name}.{key} is {str(found)[:40]!r}.", f"Use one of: {known}.")


def _rules(senders: Sequence[str], trust: Trust) -> list[SenderRule]:
    pairs = (entry.partition(":") for entry in senders)
    return [SenderRule(source, sender, trust) for source, _, sender in pairs]
