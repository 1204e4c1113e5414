"""The hooks of agent hosts: what one run of a hook means, what it proves, and what its session is told now.

`HookConnection` serves one run over the socket: the payload in, the text out. The hook says `+` once it has printed.
Without it (the host ended the hook, or it was too slow) the model did not get the text, and `HookHandler` takes back
what it carried. A hook is the only moment in which a busy agent can be reached, so everything about it is kept short. A
payload that cannot be understood is answered with silence: no host may ever be held up, or complain, because of
Harken. How a host speaks is in `hosts/`; the text comes from `composer.py`.

An idle session is woken by ringing its bell, which carries nothing: the hook that it starts asks; or by handing a text
to a program that can start its turn. A text carries what waits, and is taken back when the host refuses it. What the
host took it queues, so only its own prompt or record proves that the model got it. `dispatch/wake.py` chooses the way.
A hook, or a program beside a host, may ask for an approval: it waits until you have answered, or goes. Its end
withdraws the question, and its host asks in its own terminal all the time. Only an answer of yours is ever handed on.

A program beside a host may wait to wake its session: an extension, a plugin, or a waiting shell. The daemon writes a
line with a text; the program says whether its host took it. One that is for a single wake is gone after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream

from harken.clock import Clock
from harken.errors import HarkenError
from harken.hosts.hook import (
    ASK,
    SILENCE,
    Hello,
    HookAdapter,
    HookAnswer,
    Voice,
    consumer_of,
    hook_key,
)
from harken.hosts.host import GENERIC, answers_one_prompt, is_run_by
from harken.hosts.registry import hook_adapter, host_named
from harken.hosts.wake import HostQuestion, PushChannel
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals
from harken.memory import json_bytes, sound_json
from harken.model import (
    TASK,
    Approval,
    ApprovalChoice,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    SessionKey,
    TaskId,
    WakeResult,
    approval_digest,
    fresh_id,
)
from harken.processes import Origin
from harken.sessions.proof import ReadRecord
from harken.sessions.registry import MailScopeOf
from harken.sessions.session import NamedTask, Session, Waker
from harken.sessions.turns import Halt, HookEvent, HookMoment, TurnPhase
from harken.surfaces.composer import NO_TEXT, HookComposer, HookText, HookTextRequest
from harken.surfaces.wire import LineReader, LineTooLong

MAX_PAYLOAD = 1 << 20
HEAD_CHARS = 4_096
_FIELD = re.compile(r'"(\w{1,40})"\s*:\s*"([^"\\]{0,400})"')
_PHASES: Final[Mapping[HookMoment, TurnPhase]] = MappingProxyType(
    {
        HookMoment.PROMPT: TurnPhase.OPENING,
        HookMoment.TOOL: TurnPhase.STEP,
        HookMoment.STOP: TurnPhase.OPENING,
        HookMoment.BELL: TurnPhase.WAKE,
    }
)

PRINT_SECONDS = 0.25  # how long a hook waits for another one of its session to have printed
_HELD = f"hook: {HookMoment.STOP.value}/"
_MOMENTS = frozenset(moment.value for moment in HookMoment)

MakeWakers = Callable[[Session, Hello], Sequence[Waker]]
"""Returns the ways to wake the session that a hook speaks for, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReach:
    """What is on the machine of a host: the bell that it watches, its record, and what else its files say."""

    bell_of: Callable[[Session], Awaitable[str]]
    read_record: ReadRecord
    is_asking: Callable[[str, str, Mapping[str, object], int], Awaitable[bool | None]]
    """Whether a host still shows its own question: by its satellite, its name, what it asked, and its process."""
    evidence_of: Callable[[HandedAnswer], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HookResult:
    """What a hook prints, and what goes with it."""

    answer: HookAnswer = SILENCE
    session: Session | None = None
    told: HookText = NO_TEXT
    printed: anyio.Event = field(default_factory=anyio.Event)  # set when it is known what became of the text


class HookHandler:
    """Hears hooks. One per daemon."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        composer: HookComposer,
        *,
        wakers: MakeWakers,
        reading_of: MailScopeOf,
        reach: HostReach,
        approvals: Approvals,
    ) -> None:
        self._inbox = inbox
        self._proofs = inbox.proofs
        self._clock = clock
        self._composer = composer
        self._wakers = wakers
        self._reading_of = reading_of
        self.approvals = approvals
        self._handed: dict[SessionKey, list[HandedAnswer]] = {}  # answers whose effect is not proven yet
        self._bell_of = reach.bell_of
        self._read_record = reach.read_record
        self._evidence_of = reach.evidence_of
        self.is_asking = reach.is_asking
        self._printing: list[HookResult] = []  # those that have a text and have not printed it

    async def hear(self, hello: Hello, payload: bytes, origin: Origin) -> HookResult:
        """Take one run of a hook."""
        adapter = hook_adapter(hello.host)
        fields = _fields(payload)
        if adapter is None or fields is None or hello.moment not in _MOMENTS:
            return HookResult()
        moment = HookMoment(hello.moment)
        event = adapter.event(moment, fields, hello)
        if event is None or event.is_subagent or self.is_elsewhere(hello, event, origin):
            return HookResult()
        session = await self.meet(hello, event, origin)
        if not session.is_hooked:
            await self._proofs.settle_past(session)
        if session.ignores(event):
            return HookResult()
        if event.moment is HookMoment.HALT:
            await self._halt(session, event)
            return HookResult(session=session)
        most_chars = {moment.value: most for moment, most in adapter.most_chars.items()}
        session.hook_ran(event.moment, notice_moments=_notice_moments(adapter), moment_chars=most_chars)
        session.add_wakers(self._wakers(session, hello))
        await self._wait_for_prints(session)
        if event.moment is not HookMoment.TOOL:
            await self._prove_answers(session.key)
        was_busy = session.is_busy
        told = NO_TEXT if event.is_compacted else await self._act(adapter, session, event)
        if session.is_busy is False and (was_busy or event.moment is HookMoment.STOP):
            await self._inbox.note_rest(session)
            await self._note_halt(session, event)
        self._inbox.sessions.note_change(session.key)
        if told.text:
            result = HookResult(answer=adapter.answer(event.moment, told.text), session=session, told=told)
            self._printing.append(result)
            return result
        watch = await self._bell_of(session) if event.moment is HookMoment.START else ""
        return HookResult(answer=adapter.context(event.moment, watch), session=session)

    async def _halt(self, session: Session, event: HookEvent) -> None:
        """Note that a host asks its person, or that what it asked was answered."""
        if event.halt is not None:
            await self._inbox.note_halt(session, event.halt, event.reason)
        elif session.halt is not None and session.halt.kind is Halt.WAITS:
            session.work(event.turn)
            self._inbox.sessions.note_change(session.key)

    async def _note_halt(self, session: Session, event: HookEvent) -> None:
        """Note how a turn has ended, unless its person has ended it."""
        halt = event.halt or (Halt.FINISHED if not event.is_interrupted else None)
        if event.moment is HookMoment.STOP and halt is not None:
            await self._inbox.note_halt(session, halt, event.reason)

    def is_elsewhere(self, hello: Hello, event: HookEvent, origin: Origin) -> bool:
        """Whether a hook that is there for tasks only was run by a session that is in none: it says nothing at all."""
        agent = consumer_of(host_named(hello.host), hello.host)
        cwd = origin.folder(event.cwd or hello.cwd)
        reading = self._reading_of(cwd, agent, _task_of(hello), satellite=origin.satellite)
        return hello.is_in_task and not reading.consumer.startswith(TASK)

    async def meet(self, hello: Hello, event: HookEvent, origin: Origin) -> Session:
        """Return the session that a hook speaks for, new or known."""
        host, now = host_named(hello.host), self._clock.now()
        pid = event.pid or hello.ppid
        cwd = origin.folder(event.cwd or hello.cwd)
        agent = consumer_of(host, hello.host)
        task = _task_of(hello)
        reading = self._reading_of(cwd, agent, task, satellite=origin.satellite)
        candidate = Session(
            key=hook_key(host, event.native, pid, origin.satellite),
            agent=agent,
            consumer=reading.consumer,
            host=host.name if host is not GENERIC else hello.host,
            client=hello.host,
            machine=origin.satellite,
            satellite=origin.satellite,
            cwd=cwd,
            pid=pid,
            mailboxes=reading.mailboxes,
            named=task,
            problem=reading.problem,
            surfaces=(),
            opened_at=now,
            last_active=now,
            process_identity=origin.identity_of(pid),
            is_host_process=host.has_hooks and is_run_by(host.name, host.marks, hello.env, origin.command_line(pid)),
            native=event.native,
            has_many=host.has_many,
            shares_connection=host.shares_connection,
            reports_interrupts=host.reports_interrupts,
            result_bytes=host.result_bytes,
        )
        session, former = self._inbox.sessions.meet(candidate, origin.lineage())
        if former is not None:
            await self._proofs.rename(former, session.key)
        if not session.is_hooked:
            session.note_one_shot(is_one_shot=answers_one_prompt(host, origin.command_line(session.pid)))
        # An edge may have named its task; only with the first hook it is known where the agent runs.
        task = None if session.is_hooked else session.named
        if task is not None and self._inbox.sessions.name_task(session, task, self._reading_of):
            await self._proofs.release(session.key)
        self._inbox.sessions.touch(session.key, now)
        return session

    async def ask_person(self, host: str, question: HostQuestion, lineage: Sequence[str]) -> None:
        """Relay a question that a listener has heard, of a session that hooks have told of, until it is over."""
        keys = (hook_key(host_named(host), native, 0) for native in lineage)
        session = next((found for key in keys if (found := self._inbox.sessions.get(key))), None)
        if session is None:
            return
        try:
            approval = await self.approvals.ask(bound(question.request, session), question.patience)
        except HarkenError:
            return
        answered = await answered_in_time(self.approvals, approval, [question.over])
        if answered is None or answered.choice is None:
            return
        evidence = await question.reply(answered.choice, answered.reason)
        if evidence:
            await self.approvals.obey(approval.id, evidence)
        elif evidence is not None:
            await self.approvals.withdraw(approval.id, NOT_TAKEN)

    def handed(self, session: SessionKey, answer: HandedAnswer) -> None:
        """An answer was handed to a host: its record will show what it did."""
        self._handed.setdefault(session, []).append(answer)

    async def _prove_answers(self, session: SessionKey) -> None:
        """Look in the record of a session's host for what it did with the answers that it was handed."""
        left: list[HandedAnswer] = []
        for each in self._handed.pop(session, []):
            if evidence := await self._evidence_of(each):
                await self.approvals.obey(each.approval, evidence)
            else:
                left.append(each)
        if left:
            self._handed[session] = left[-MAX_HANDED:]

    def confirm(self, result: HookResult) -> None:
        """A hook has printed its text: from now on the events of its host can prove it."""
        if result.session is not None and result.told.text:
            result.session.carried(result.told.carrier)
            self._settle(result)
            self._inbox.sessions.note_change(result.session.key)

    async def take_back(self, result: HookResult, *, is_unknown: bool = False) -> None:
        """Nothing of what a hook should have printed was printed, or (`is_unknown`) it cannot be known."""
        if result.session is None:
            return
        self._settle(result)
        undo = self._composer.give_up if is_unknown else self._composer.take_back
        await undo(result.session, result.told)
        if result.told.text and result.told.carrier.startswith(_HELD):
            result.session.not_held_up()
            await self._inbox.note_rest(result.session)
            await self._inbox.note_halt(result.session, Halt.FINISHED)
        # A notice carries nothing, so no commit says that it is to be said again.
        self._inbox.sessions.note_change(result.session.key)

    def _settle(self, result: HookResult) -> None:
        result.printed.set()
        self._printing = [each for each in self._printing if each is not result]

    async def _wait_for_prints(self, session: Session) -> None:
        """Let hooks of the same session finish: what they carry is proven by an event only once it is printed."""
        with anyio.move_on_after(PRINT_SECONDS):
            for result in [each for each in self._printing if each.session is session]:
                await result.printed.wait()

    async def _act(self, adapter: HookAdapter, session: Session, event: HookEvent) -> HookText:
        is_own = await self._proofs.hear(session, event, self._read_record)
        if event.is_interrupted:
            return NO_TEXT
        match event.moment:
            case HookMoment.START:
                # One that names a turn says that nothing runs in it any more.
                session.went_idle(event.turn)
                return NO_TEXT
            case HookMoment.END:
                await self._proofs.leave(session, self._read_record, keeps_running=event.keeps_running)
                return NO_TEXT
            case HookMoment.PROMPT:
                session.begin_turn(event.turn, is_own=is_own)
            case HookMoment.TOOL:
                session.work(event.turn)
            case HookMoment.STOP | HookMoment.BELL:
                pass
        is_stop = event.moment is HookMoment.STOP
        if is_stop and not session.can_be_held_up(adapter.most_stops):
            session.rest()
            return NO_TEXT
        told = await self._tell(adapter, session, event, is_own=is_own)
        if is_stop and told.text:
            session.held_up()
        elif is_stop:
            session.rest()
        return told

    async def _tell(self, adapter: HookAdapter, session: Session, event: HookEvent, *, is_own: bool) -> HookText:
        moment = event.moment
        most_chars = adapter.most_chars.get(moment, 0)
        if not most_chars or session.is_helper:
            return NO_TEXT
        request = HookTextRequest(
            surface=f"hook: {moment.value}" if moment is not HookMoment.BELL else "wake: bell",
            most_chars=most_chars,
            phase=_PHASES[moment],
            speaks_as_user=adapter.voices.get(moment, Voice.USER) is Voice.USER,
            has_block=moment is HookMoment.PROMPT and not is_own,
            is_new_turn=moment is HookMoment.PROMPT and not is_own,
        )
        return await self._composer.tell(session, request, turn=event.turn)


def _task_of(hello: Hello) -> NamedTask | None:
    return NamedTask(TaskId(hello.task), hello.task_said_by) if hello.task else None


def _notice_moments(adapter: HookAdapter) -> frozenset[str]:
    """Return the moments through which no outsider's words go."""
    return frozenset(m.value for m in HookMoment if adapter.voices.get(m, Voice.USER) is Voice.USER)


def _fields(payload: bytes) -> Mapping[str, object] | None:
    """Return a payload's fields. Of one that is cut off or broken, those at its beginning: they name the session.

    Hosts write what strict readers refuse: half of an emoji that they cut, for example. That must not silence a
    session.
    """
    text = sound_json(payload).decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pairs = _FIELD.findall(text[:HEAD_CHARS])
        return dict(reversed(pairs)) if pairs and len(payload) >= MAX_PAYLOAD else None
    return value if isinstance(value, dict) else None


def bound(asked: ApprovalRequest, session: Session) -> ApprovalRequest:
    """Return what a session asks, with the hash that an answer has to name."""
    digest = approval_digest(session.host, session.key, asked.tool, asked.arguments)
    return replace(asked, host=session.host, session=session.key, digest=digest)


PAYLOAD_SECONDS = 5.0
PRINTED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedAnswer:
    """An answer that a host was handed, and what shows whether it did it."""

    approval: ApprovalId
    choice: ApprovalChoice
    host: str
    payload: Mapping[str, object]
    satellite: str = ""


MAX_HANDED: Final = 50
LOOK_SECONDS: Final = 0.5
TAKEN_BYTES: Final = (b"+", b"!")
UNTOLD: Final = b""  # nobody knows what became of it
GONE: Final = "its host no longer asks"
AWAY: Final = "its machine is out of reach, and it asks there"
LOCAL: Final = "it was answered in its own terminal"
NOT_TAKEN: Final = "its host did not say that it took the answer"
TOOK: Final = "its host says that it took the answer"


async def answered_in_time(
    approvals: Approvals, asked: Approval, endings: Collection[Callable[[], Awaitable[str]]]
) -> Approval | None:
    """Return an approval once it is answered; None when it is over, or the first of the endings says why it is."""
    because, found = "", asked
    try:
        async with anyio.create_task_group() as tasks:

            async def wait_for(ending: Callable[[], Awaitable[str]]) -> None:
                nonlocal because
                said = await ending()
                because = because or said  # another one may end at the same moment
                tasks.cancel_scope.cancel()

            for ending in endings:
                tasks.start_soon(wait_for, ending)
            found = await approvals.wait(asked)
            tasks.cancel_scope.cancel()
    finally:
        # Also when the daemon ends: its host asks by itself, and an answer would reach nobody.
        if found.state is ApprovalState.OPEN:
            with anyio.CancelScope(shield=True):
                found = await approvals.withdraw(asked.id, because or GONE)
    return found if found.state is ApprovalState.ANSWERED else None


class ApprovalConnection:
    """Serves one question of a host, from the hook or the program that asks to the answer that it takes."""

    def __init__(self, stream: ByteStream, lines: LineReader, handler: HookHandler) -> None:
        self._stream = stream
        self._lines = lines
        self._handler = handler
        self._approvals = handler.approvals
        self._is_silent = False  # it was given an answer, and did not say in time whether it took it

    async def serve(self, hello: Hello, payload: bytes, origin: Origin) -> None:
        """Ask the person, and hand the answer on; what cannot be asked, or has no answer, is left to the host."""
        if not await self._serve(hello, payload, origin):
            # One that hears nothing at all asks the next daemon.
            await self._hand_over(SILENCE)

    async def _serve(self, hello: Hello, payload: bytes, origin: Origin) -> bool:
        """Return whether an answer was handed over."""
        host, fields = host_named(hello.host), _fields(payload)
        adapter = host.approvals() if host.approvals else None
        asked = adapter.question(fields, hello) if adapter is not None and fields else None
        if adapter is None or asked is None or fields is None:
            return False
        event = HookEvent(
            moment=HookMoment.TOOL, native=asked.session, cwd=asked.folder or hello.cwd, pid=adapter.pid(hello)
        )
        if self._handler.is_elsewhere(hello, event, origin):
            return False
        session = await self._handler.meet(hello, event, origin)
        try:
            approval = await self._approvals.ask(bound(replace(asked, folder=event.cwd), session), adapter.patience)
        except HarkenError:
            return False
        look = partial(self._handler.is_asking, origin.satellite, hello.host, fields, event.pid or hello.ppid)
        answered = await self._answered(approval, look if adapter.shows_state else None)
        if answered is None or answered.choice is None:
            return False
        word = await self._hand_over(adapter.answer(fields, answered.choice, answered.reason))
        if word is None and origin.satellite and (self._is_silent or self._lines.is_cut):
            word = UNTOLD  # what was on its way over the link may have arrived
        with anyio.CancelScope(shield=True):
            if word not in (*TAKEN_BYTES, UNTOLD):
                await self._approvals.withdraw(approval.id, NOT_TAKEN)
            elif word == b"!":
                await self._approvals.obey(approval.id, TOOK)
            else:
                handed = HandedAnswer(
                    approval=approval.id,
                    choice=answered.choice,
                    host=hello.host,
                    payload=fields,
                    satellite=origin.satellite,
                )
                self._handler.handed(session.key, handed)
        return True

    async def _answered(
        self, approval: Approval, is_asking: Callable[[], Awaitable[bool | None]] | None
    ) -> Approval | None:
        """Return the approval once it is answered; None when it is over, also because its host no longer asks."""

        async def listen() -> str:
            if await self._lines.take(1) == b"-":
                return LOCAL
            return AWAY if self._lines.is_cut else GONE

        async def look() -> str:
            was_asking = False
            while is_asking is not None:
                is_now = await is_asking()
                if was_asking and is_now is False:
                    return LOCAL
                was_asking = was_asking or is_now is True
                await anyio.sleep(LOOK_SECONDS)
            return GONE

        return await answered_in_time(self._approvals, approval, [listen, *([look] if is_asking else [])])

    async def _hand_over(self, answer: HookAnswer) -> bytes | None:
        """Send an answer; return the byte that says what became of it, None when nothing was said."""
        out, err = answer.stdout.encode("utf-8", "replace"), answer.stderr.encode("utf-8", "replace")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._stream.send(f"{answer.exit_code} {len(out)} {len(err)}\n".encode() + out + err)
        with anyio.move_on_after(PRINTED_SECONDS) as waiting, suppress(anyio.ClosedResourceError):
            return await self._lines.take(1)
        self._is_silent = waiting.cancelled_caught
        return None


class HookConnection:
    """Serves one run."""

    def __init__(self, stream: ByteStream, lines: LineReader, handler: HookHandler) -> None:
        self._stream = stream
        self._lines = lines
        self._handler = handler

    async def serve(self, hello: Hello, origin: Origin) -> None:
        """Hear the hook and answer it."""
        payload: bytes | None = None
        with anyio.move_on_after(PAYLOAD_SECONDS):
            payload = await self._lines.take(min(hello.payload, MAX_PAYLOAD))
        if payload is None:
            return
        if hello.moment == ASK:
            await ApprovalConnection(self._stream, self._lines, self._handler).serve(hello, payload, origin)
            return
        result = await self._handler.hear(hello, payload, origin)
        answer = result.answer
        out, err = answer.stdout.encode("utf-8", "replace"), answer.stderr.encode("utf-8", "replace")
        is_printed, is_silent = False, True
        try:
            await self._stream.send(f"{answer.exit_code} {len(out)} {len(err)}\n".encode() + out + err)
            with anyio.move_on_after(PRINTED_SECONDS):
                is_printed = await self._lines.take(1) == b"+"
                # Where the link to another machine broke, the hook may have printed it.
                is_silent = self._lines.is_cut
            if is_printed:
                self._handler.confirm(result)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # One that has left has printed nothing.
            is_silent = bool(origin.satellite) and await self._lines.take(1) is None and self._lines.is_cut
        finally:
            if not is_printed:
                with anyio.CancelScope(shield=True):
                    # One that is still there and says nothing may have printed it.
                    await self._handler.take_back(result, is_unknown=is_silent)


Send = Callable[[HookText], Awaitable[bool | None]]
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
        request = HookTextRequest(
            surface=self.name,
            most_chars=self.most_chars,
            phase=TurnPhase.WAKE,
            speaks_as_user=self.speaks_as_user,
            is_new_turn=True,
        )
        told = await self.composer.tell(self.session, request)
        if not told.text:
            return WakeResult.REFUSED
        # Cancelled in the middle of it, nobody can say whether the host has the text: it stays open until proof.
        try:
            is_taken = await self.send(told)
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

    async def send(told: HookText) -> bool:
        return notify(channel.method, channel.params(told.text, told.messages))

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

    async def serve(self, hello: Hello, host: HookAdapter, origin: Origin) -> None:
        """Be a way to wake the session while the program is there."""
        if not hello.native:
            return
        self._is_once = hello.is_once
        event = HookEvent(moment=HookMoment.START, native=hello.native, cwd=hello.cwd)
        # A waiting shell was left behind by its parent: whose process the session is, a hook or an edge will say.
        session = await self._handler.meet(replace(hello, ppid=0) if hello.is_once else hello, event, origin)
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

    async def _send(self, told: HookText) -> bool | None:
        if self._over.is_set():
            return False
        carrier = fresh_id("w-")
        answered = self._waiting[carrier] = anyio.Event()
        try:
            await self._stream.send(json_bytes({"wake": carrier, "text": told.text}) + b"\n")
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
