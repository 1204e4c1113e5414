"""What a source is, and what a kind of source declares of itself.

A `Source` is a configured inbound connection that yields drafts, feed by feed, and says how it is doing. It knows
nothing of what becomes of its drafts: the daemon asks each feed to `follow` from the last checkpoint, stores every
batch with its checkpoint in one transaction, and only then asks for the next. So a source may lose nothing by being
stopped at any moment. A `SourceKind` is all that Harken knows of a kind: `registry.py` finds them, and nothing outside
a kind's own folder names it. A `Door` is where others post to a source instead of being asked by it: it answers only
after what was posted is stored. Above is the daemon; there is nothing below but the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from harken.errors import HarkenError, UserError
from harken.model import Attention, Draft, Message, OutgoingReply, Trust
from harken.plugins import LazyPart

if TYPE_CHECKING:
    import ssl

    from harken.clock import Clock
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup

Accept = Callable[[Sequence[Draft]], Awaitable[Sequence[bool]]]
"""Stores drafts durably and says of each whether it was new; raises `Unavailable` with nothing changed."""


class SourceState(StrEnum):
    """How a source is doing."""

    CONNECTING = "connecting"
    LISTENING = "listening"  # what is announced arrives
    SILENT = "silent"  # connected, and the other side cannot push: nothing will arrive
    RETRYING = "retrying"  # the connection was lost or refused; it is tried again at `next_try`
    NEEDS_PERSON = "needs person"  # nothing will arrive before somebody acts
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"  # another daemon of the same store reads it

    @property
    def words(self) -> str:
        """The state as a person reads it."""
        return "needs you" if self is SourceState.NEEDS_PERSON else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """What people are told about a source. `reason` says why it is not listening, in one sentence."""

    state: SourceState
    reason: str = ""
    server: str = ""  # what the other side calls itself
    pace: str = ""  # how soon what happens there is known here, for people
    since: datetime | None = None
    next_try: datetime | None = None
    last_message_at: datetime | None = None
    last_poll: datetime | None = None  # of a source that has to look: when it last could
    next_poll: datetime | None = None
    throttled_until: datetime | None = None  # until when the other side asked to wait
    reconnects: int = 0
    gaps: int = 0  # how often something may have been missed, because the other side cannot say what it sent
    too_long: int = 0  # announcements that were given up because nobody can read as much
    known: int = 0  # announcements that were stored before: the other side sent them again
    counts: Mapping[str, int] = field(default_factory=dict[str, int])  # stored, by channel, since the daemon started
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])  # by channel, what the allow-list left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a feed yields at a time: drafts in order, and the checkpoint that follows them (None: there is none)."""

    drafts: Sequence[Draft] = ()
    checkpoint: str | None = None
    dropped: int = 0  # drafts that had to be given up before these


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """A configured source, how it is doing, and what is decided about what it yields."""

    name: str
    kind: str
    address: str
    health: SourceHealth
    trust: Trust
    attention: Attention


@runtime_checkable
class Feed(Protocol):
    """One stream of a source."""

    @property
    def name(self) -> str:
        """Its name, unique in its source; checkpoints are kept under it."""
        ...

    def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is new after a checkpoint (empty: from now on), for ever, reconnecting by itself.

        It ends when nothing will ever come, with the reason in the source's health; it raises `NeedsPerson` when a
        person must act. One task iterates it, inside `contextlib.aclosing`, and may be cancelled at any moment; what it
        yielded before has been stored.
        """
        ...

    def rest(self) -> Batch:
        """Return what was read and not yielded, once, after `follow` was closed."""
        ...

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch, and how many of its drafts had been stored before."""
        ...


@runtime_checkable
class ReplySender(Protocol):
    """Takes replies to the messages of one source.

    It is asked at least once; after a crash again, with the same `key`. Where upstream allows, it should do it once.
    """

    async def send(self, reply: OutgoingReply) -> str:
        """Deliver a reply; return upstream's id of it.

        Raises `Unavailable` (it was surely not sent: try again later), `Uncertain` (it may have been), `NeedsPerson`
        (try again when a person has acted), `Forbidden` or `UserError` (do not try again), `Conflict` (it may have been
        sent, and that cannot be found out: a person must judge). With `reply.tried_at` an earlier try may have been
        sent: it has to be looked for first.
        """
        ...


@runtime_checkable
class PlaceholderWriter(Protocol):
    """Holds the places of answers in the conversations of one source.

    All are safe to repeat, also by another daemon; they raise what sending raises, and may be cancelled.
    """

    async def hold_place(self, message: Message) -> None:
        """Say where the answer to a message will be that an agent works on it."""
        ...

    async def leave_place(self, message: Message) -> None:
        """Say where an answer was promised that there is none yet, if that is so."""
        ...

    async def clear_place(self, message: Message, answers: Collection[str]) -> None:
        """Take away what still promises an answer; `answers` are the upstream ids of those that were sent, and stay."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServerAddress:
    """An MCP server that runs may use: a program, or an address with headers."""

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    is_sse: bool = False


class Source(Protocol):
    """A configured inbound connection. What it can do beyond yielding drafts has a default: nothing of the kind."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        ...

    @property
    def address(self) -> str:
        """Where the other side is, without anything secret."""
        ...

    def feeds(self) -> Sequence[Feed]:
        """Return its streams."""
        return ()

    def health(self) -> SourceHealth:
        """Return how it is doing now. Quick, and safe at any moment."""
        ...

    @property
    def sender(self) -> ReplySender | None:
        """How its messages are answered; None: it is heard only, or cannot be answered before a person has acted."""
        return None

    @property
    def placeholders(self) -> PlaceholderWriter | None:
        """The holder of the places of answers; None: there is none."""
        return None

    def doors(self) -> Sequence[Door]:
        """Return where others post to it."""
        return ()

    def tool_server(self) -> ToolServerAddress | None:
        """Return the MCP server that it is, for runs that may use it."""
        return None

    def remember(self, upstream_ids: Sequence[str]) -> None:
        """Take note of what was sent through it before, the oldest first, to know its own words when it hears them."""
        _do_nothing(upstream_ids)

    async def aclose(self) -> None:
        """Close what is open beyond the feeds."""
        _do_nothing()


def _do_nothing(*_given: object) -> None:
    """Do what a source does by default that need not do anything."""


class NamedSource(Source):
    """A source that is told its name, its kind, and where the other side is."""

    def __init__(self, name: str, kind: str, address: str) -> None:
        self._name = name
        self._kind = kind
        self._address = address

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return self._kind

    @property
    def address(self) -> str:
        """Where the other side is, as far as that is known, without anything secret."""
        return self._address


class UnreadySource(NamedSource):
    """A source that cannot be opened before a person has acted."""

    def __init__(self, name: str, kind: str, reason: str, address: str = "") -> None:
        super().__init__(name, kind, address)
        self._reason = reason

    def health(self) -> SourceHealth:
        """Say what is missing."""
        return SourceHealth(state=SourceState.NEEDS_PERSON, reason=self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """One entry of `[sources]` as it is written, with all that its source is made with."""

    name: str
    table: Mapping[str, object] = field(repr=False)
    clock: Clock
    folder: Path  # Harken's own, in which a source may keep what is its own
    secret: Callable[[str], str]  # what a reference names; raises `UserError` and `NeedsPerson`
    locate: Callable[[str], Path]  # a path as a person writes it; a relative one is in the folder
    public_url: str = ""  # where others reach what is posted
    event_url: str = ""  # where other servers reach the public listener

    @property
    def kind(self) -> str:
        """What kind of source it is, as it is written."""
        return str(self.table.get("kind"))

    def unready(self, error: HarkenError, address: str = "") -> UnreadySource:
        """Return what stands for a source without its secret or certificate."""
        return UnreadySource(self.name, self.kind, f"{error.message} {error.hint}", address)

    def certificates(self, ca: str) -> ssl.SSLContext | None:
        """Return the certificates that are believed: the system's, and those in a file; None for the system's alone."""
        if not ca:
            return None
        import ssl

        try:
            trust = ssl.create_default_context()
            trust.load_verify_locations(cafile=self.locate(ca))
        except (OSError, ssl.SSLError) as exc:
            raise UserError(
                f"The certificates in sources.{self.name}.ca cannot be read.", "Name a PEM file that you can read."
            ) from exc
        return trust


class Speakers(StrEnum):
    """Who speaks through a source: what people write wakes agents, what machines say goes with the next prompt."""

    PEOPLE = "people"
    MACHINES = "machines"


# The fields of a kind that are no parts.
_FACTS: Final[Mapping[str, type]] = MappingProxyType(
    {"name": str, "title": str, "summary": str, "speakers": Speakers, "channel": str, "is_default": bool}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """All that Harken knows of a kind of source. Its parts are imported when they are used."""

    name: str  # as `kind` in the configuration
    title: str  # as people call it
    summary: str  # what it listens to, in one sentence
    speakers: Speakers
    read_settings: LazyPart[Callable[[str, Mapping[str, object]], object]]  # raises `UserError` that names the key
    make: LazyPart[Callable[[SourceEntry], Source]]  # raises `UserError` for what is written wrongly
    setup: LazyPart[Callable[[], SourceSetup]]  # the options and questions that `source add` has for it
    check: LazyPart[Callable[[SourceEntry, CheckContext], CheckReport]]  # what `source test` does
    sign_in: LazyPart[Callable[[SourceEntry], SourceSignIn]] | None = None  # for `source login` and `source logout`
    answers: bool | LazyPart[Callable[[str, Mapping[str, object]], bool]] = True  # whether its messages can be answered
    channel: str = ""  # what its messages are filed under; gives `watch --CHANNEL`
    is_default: bool = False  # whether `source add NAME` without a kind means it

    def __post_init__(self) -> None:
        """Refuse a declaration with a field of the wrong type: another package's may not be type-checked."""
        for each in fields(self):
            value, wanted = getattr(self, each.name), _FACTS.get(each.name)
            is_left_out = value is None and each.default is None
            is_part = callable(value) or is_left_out or (each.name == "answers" and isinstance(value, bool))
            if not (isinstance(value, wanted) if wanted else is_part):
                needed = wanted.__name__ if wanted else LazyPart.__name__
                raise TypeError(f"{each.name} of a SourceKind has to be a {needed}, and is {value!r:.60}")

    def can_answer(self, name: str, table: Mapping[str, object]) -> bool:
        """Whether the messages of a source can be answered, by what is written about it."""
        return self.answers if isinstance(self.answers, bool) else self.answers()(name, table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInResult:
    """Who signed in, since when, and with which permissions; never a token."""

    title: str
    user_id: str
    since: datetime
    granted: tuple[str, ...] = ()
    not_granted: tuple[str, ...] = ()


class SourceSignIn(Protocol):
    """The sign-in of one source."""

    async def sign_in(self, show: Callable[[str], None], *, is_device: bool) -> SignInResult:
        """Sign a person in, in the browser or by a code; `show` tells the person what to open or enter."""
        ...

    async def sign_out(self) -> bool:
        """Remove the sign-in from this machine; return whether there was one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedRequest:
    """A request that was posted. `headers` have names in lower case; `body` is as it came over the wire."""

    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAnswer:
    """What is answered. It repeats nothing of what was posted, but for what a protocol wants to hear back."""

    status: int
    body: bytes = b""
    media_type: str = "application/json"


@runtime_checkable
class Door(Protocol):
    """One address that takes posts."""

    @property
    def path(self) -> str:
        """Its path, such as `/hooks/ci`."""
        ...

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        ...

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Judge what was posted, have it stored, and answer.

        Raises `Forbidden` (not genuine), `UserError` (cannot be read) and `Unavailable` (try again); the caller turns
        them into answers that say no more than that.
        """
        ...
