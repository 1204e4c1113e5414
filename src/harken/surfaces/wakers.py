"""Ways to wake an idle session: by ringing its bell, or by handing a text to the program that can start its turn.

A bell carries nothing: the hook that it starts asks. A text carries what waits, and is taken back when the host refuses
it. What the host took it queues, so only its own prompt or record proves that the model got it. Both are kept by the
session, for `dispatch/wake.py` to choose from.

A program beside a host may wait to wake its session: an extension, a plugin, or a waiting shell. The daemon writes a
line with a text; the program says whether its host took it. One that is for a single wake is gone after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
import msgspec
from anyio.abc import ByteStream

from harken.hosts.hook import Hello, HookAdapter, Voice
from harken.hosts.registry import host_named
from harken.hosts.wake import PushChannel
from harken.inbox import Inbox
from harken.memory import json_bytes
from harken.model import WakeResult, fresh_id
from harken.sessions.events import HookEvent, HookMoment
from harken.sessions.session import Session
from harken.sessions.turns import TurnPhase
from harken.surfaces.composer import HookComposer, SurfaceProfile
from harken.surfaces.hooks import HookHandler
from harken.surfaces.socket import LineReader, LineTooLong, sound_json

Send = Callable[[str], Awaitable[bool | None]]
"""Brings a text to a host; returns whether it was taken: None when it may have been, and its record will show it.

Raises `ConnectionResetError` when nobody is left who could say it: then it goes by the next way, as a repeat.
"""


Notify = Callable[[str, Mapping[str, object]], bool]
"""Sends a notification if there is room for it, and returns whether there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BellWaker:
    """Wakes a session by its bell, which the host watches."""

    session: Session
    ring: Callable[[Session], bool]

    @property
    def name(self) -> str:
        """The surface."""
        return "wake: bell"

    async def wake(self) -> WakeResult:
        """Ring."""
        return WakeResult.TAKEN if self.ring(self.session) else WakeResult.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWaker:
    """Wakes a session by a text that a program beside it brings."""

    name: str
    session: Session
    composer: HookComposer
    send: Send
    most_chars: int
    speaks_as_user: bool
    runs_prompt_hook: bool = True  # the host runs its prompt hook for the turn that this begins
    close: Callable[[], None] | None = None  # ends what it goes through, when another one takes its place

    async def wake(self) -> WakeResult:
        """Hand over what waits, if the session can be woken now."""
        if await self.session.look():
            return WakeResult.POSTPONED
        profile = SurfaceProfile(
            surface=self.name,
            most_chars=self.most_chars,
            phase=TurnPhase.WAKE,
            speaks_as_user=self.speaks_as_user,
            is_new_turn=True,
        )
        told = await self.composer.tell(self.session, profile)
        if not told.text:
            return WakeResult.REFUSED
        # Cancelled in the middle of it, nobody can say whether the host has the text: it stays open until proof.
        try:
            is_taken = await self.send(told.text)
        except ConnectionResetError:
            await self.composer.give_up(self.session, told)
            return WakeResult.REFUSED
        if is_taken is False:
            with anyio.CancelScope(shield=True):
                await self.composer.take_back(self.session, told)
            return WakeResult.REFUSED
        if is_taken and not self.runs_prompt_hook:
            self.session.work()
        return WakeResult.TAKEN


def push_waker(channel: PushChannel, session: Session, composer: HookComposer, notify: Notify) -> TextWaker:
    """Return the way to wake a session that listens to a push channel of its host."""

    async def send(text: str) -> bool:
        return notify(channel.method, channel.params(text))

    return TextWaker(
        name=channel.surface,
        session=session,
        composer=composer,
        send=send,
        most_chars=channel.most_chars,
        speaks_as_user=False,
    )


TAKEN_SECONDS = 10.0


class _Word(msgspec.Struct):
    done: str = ""
    failed: str = ""
    reason: str = ""


class LineConnection:
    """Serves one such program until it goes away."""

    def __init__(
        self, stream: ByteStream, lines: LineReader, handler: HookHandler, composer: HookComposer, inbox: Inbox
    ) -> None:
        self._stream = stream
        self._lines = lines
        self._handler = handler
        self._composer = composer
        self._inbox = inbox
        self._waiting: dict[str, anyio.Event] = {}
        self._taken: set[str] = set()
        self._refused: set[str] = set()
        self._over = anyio.Event()
        self._is_once = False

    async def serve(self, hello: Hello, host: HookAdapter, pids: Sequence[int]) -> None:
        """Be a way to wake the session while the program is there."""
        if not hello.native:
            return
        self._is_once = hello.is_once
        event = HookEvent(moment=HookMoment.START, native=hello.native, cwd=hello.cwd)
        # A waiting shell was left behind by its parent: whose process the session is, a hook or an edge will say.
        session = await self._handler.meet(replace(hello, ppid=0) if hello.is_once else hello, event, pids)
        way = "waiter" if hello.is_once else host_named(hello.host).waiter
        waker = TextWaker(
            name=f"wake: {way}",
            session=session,
            composer=self._composer,
            send=self._send,
            close=self._over.set,
            most_chars=host.most_chars.get(HookMoment.BELL, 0),
            speaks_as_user=host.voices.get(HookMoment.BELL, Voice.USER) is Voice.USER,
        )
        former = session.wakers.get(waker.name)
        if isinstance(former, TextWaker) and former.close is not None:
            # Two would not know of each other: the older one connects again if its program is still there.
            former.close()
        try:
            with session.woken_by(waker, self._over.set):
                self._inbox.sessions.note_change()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen)
                    await self._over.wait()
                    tasks.cancel_scope.cancel()
        finally:
            for waiting in self._waiting.values():
                waiting.set()

    async def _send(self, text: str) -> bool | None:
        if self._over.is_set():
            return False
        carrier = fresh_id("w-")
        answered = self._waiting[carrier] = anyio.Event()
        try:
            await self._stream.send(json_bytes({"wake": carrier, "text": text}) + b"\n")
            with anyio.move_on_after(TAKEN_SECONDS):
                await answered.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._over.set()
        finally:
            self._waiting.pop(carrier, None)
        if carrier in self._refused:
            self._refused.discard(carrier)
            return False
        if carrier not in self._taken and self._over.is_set():
            raise ConnectionResetError
        if carrier not in self._taken:
            return None
        self._taken.discard(carrier)
        if self._is_once:
            self._over.set()
        return True

    async def _listen(self) -> None:
        try:
            while (line := await self._lines.read()) is not None:
                word = _decoded(line)
                if word.done in self._waiting:
                    self._taken.add(word.done)
                elif word.failed in self._waiting:
                    self._refused.add(word.failed)
                if event := self._waiting.get(word.done or word.failed):
                    event.set()
        except LineTooLong:
            return
        finally:
            self._over.set()


def _decoded(line: bytes) -> _Word:
    try:
        return msgspec.json.decode(sound_json(line), type=_Word)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Word()
