"""What one run of a hook means: whose session it is, what it proves, and what the session is told now.

A hook is the only moment in which a busy agent can be reached, so everything about it is kept short. Whatever cannot
be understood is answered with silence: no host may ever be held up, or complain, because of Harken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import anyio

from harken.clock import Clock
from harken.hosts.hello import Hello
from harken.hosts.hook import SILENCE, HookAdapter, HookAnswer, HookEvent, HookMoment, Voice
from harken.hosts.host import GENERIC, answers_one_prompt
from harken.hosts.identity import consumer_of, hook_key
from harken.hosts.marks import is_run_by
from harken.hosts.process import command_line, identity_of
from harken.hosts.registry import hook_adapter, host_named, push_channels
from harken.inbox import Inbox
from harken.model import TASK, DeliveryId, SessionKey, TaskId, fresh_id
from harken.sessions.frames import holds
from harken.sessions.reading import NamedTask, ReadingOf
from harken.sessions.session import Session, Waker
from harken.sessions.turns import Carriage, Verdict
from harken.surfaces.composer import NO_TEXT, HookComposer, HookText, SurfaceProfile
from harken.surfaces.hooks.transcript import proven_by
from harken.surfaces.wire import sound_json

MAX_PAYLOAD = 1 << 20
HEAD_CHARS = 4_096
_FIELD = re.compile(r'"(\w{1,40})"\s*:\s*"([^"\\]{0,400})"')
_CARRIAGES: Final[Mapping[HookMoment, Carriage]] = MappingProxyType(
    {
        HookMoment.PROMPT: Carriage.OPENING,
        HookMoment.TOOL: Carriage.STEP,
        HookMoment.STOP: Carriage.OPENING,
        HookMoment.BELL: Carriage.WAKE,
    }
)

PRINT_SECONDS = 0.25  # how long a hook waits for another one of its session to have printed
_RESULT = "result/"  # how carriers begin that are results of Harken's own tools, where hooks tell whose they were
_HELD = f"hook: {HookMoment.STOP.value}/"
_MOMENTS = frozenset(moment.value for moment in HookMoment)

MakeWakers = Callable[[Session, Hello], Sequence[Waker]]
"""Returns the ways to wake the session that a hook speaks for, the best first."""


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
        reading_of: ReadingOf,
        bell_of: Callable[[SessionKey], str],
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._composer = composer
        self._wakers = wakers
        # How carriers begin that are not calls of an edge.
        self._told = ("hook: ", "wake: ", *(f"{each.surface}/" for each in push_channels().values()), _RESULT)
        self._reading_of = reading_of
        self._bell_of = bell_of
        self._printing: list[HookResult] = []  # those that have a text and have not printed it

    async def hear(self, hello: Hello, payload: bytes, pids: Sequence[int]) -> HookResult:
        """Take one run of a hook; `pids` are the process that asks and those it descends from, nearest first."""
        adapter = hook_adapter(hello.host)
        fields = _fields(payload)
        if adapter is None or fields is None or hello.moment not in _MOMENTS:
            return HookResult()
        moment = HookMoment(hello.moment)
        event = adapter.event(moment, fields, hello)
        if event is None or event.is_subagent or self._is_elsewhere(hello, event):
            return HookResult()
        session = await self.meet(hello, event, pids)
        if not session.is_hooked:
            await self.settle_past(session)
        if _is_late(session, event) or _is_past(session, event):
            session.broken_turn = event.turn
            return HookResult()
        session.moments.add(event.moment.value)
        session.notice_moments = _notice_moments(adapter)
        session.moment_chars = {moment.value: most for moment, most in adapter.most_chars.items()}
        session.wakers.update((waker.name, waker) for waker in self._wakers(session, hello))
        await self._wait_for_prints(session)
        told = NO_TEXT if event.is_compacted else await self._act(adapter, session, event)
        self._inbox.sessions.note_change(session.key)
        if told.text:
            result = HookResult(answer=adapter.answer(event.moment, told.text), session=session, told=told)
            self._printing.append(result)
            return result
        watch = self._bell_of(session.key) if event.moment is HookMoment.START else ""
        return HookResult(answer=adapter.context(event.moment, watch), session=session)

    def _is_elsewhere(self, hello: Hello, event: HookEvent) -> bool:
        """Whether a hook that is there for tasks only was run by a session that is in none: it says nothing at all."""
        agent = consumer_of(host_named(hello.host), hello.host)
        reading = self._reading_of(event.cwd or hello.cwd, agent, _task_of(hello))
        return hello.is_in_task and not reading.consumer.startswith(TASK)

    async def settle_past(self, session: Session) -> None:
        """Let the log of a session and its open offers agree after a restart.

        What an earlier daemon told it by hooks and wakes, and nobody is left to prove, is offered again.
        """
        known = session.turns.carriers
        offers = await self._inbox.open_offers(session.key)
        # What a result carried was known to an earlier version's store by the call that it answered.
        named = {offer.carrier for offer in offers} | {name for name in known if name.startswith(_RESULT)}
        for carrier in set(known) - named:
            session.turns.forget(carrier)
        lost = {
            offer.carrier for offer in offers if offer.carrier.startswith(self._told) and offer.carrier not in known
        }
        if lost:
            await self._inbox.release(session.key, lost)

    async def meet(self, hello: Hello, event: HookEvent, pids: Sequence[int]) -> Session:
        """Return the session that a hook speaks for, new or known."""
        host, now = host_named(hello.host), self._clock.now()
        pid = event.pid or hello.ppid
        cwd = event.cwd or hello.cwd
        agent = consumer_of(host, hello.host)
        task = _task_of(hello)
        reading = self._reading_of(cwd, agent, task)
        candidate = Session(
            key=hook_key(host, event.native, pid),
            agent=agent,
            consumer=reading.consumer,
            host=host.name if host is not GENERIC else hello.host,
            client=hello.host,
            cwd=cwd,
            pid=pid,
            mailboxes=reading.mailboxes,
            named=task,
            problem=reading.problem,
            surfaces=(),
            opened_at=now,
            last_active=now,
            process_identity=identity_of(pid),
            is_host_process=host.has_hooks and is_run_by(host.name, host.marks, hello.env, command_line(pid)),
            native=event.native,
            has_many=host.has_many,
            shares_connection=host.shares_connection,
            reports_interrupts=host.reports_interrupts,
            result_bytes=host.result_bytes,
        )
        session, former = self._inbox.sessions.meet(candidate, pids)
        if former is not None:
            await self._inbox.rename(former, session.key)
        if not session.is_hooked:
            session.is_one_shot = answers_one_prompt(host, command_line(session.pid))
        # An edge may have named its task; only with the first hook it is known where the agent runs.
        task = None if session.is_hooked else session.named
        if task is not None and self._inbox.sessions.name_task(session, task, self._reading_of):
            await self._inbox.release(session.key)
        self._inbox.sessions.touch(session.key, now)
        return session

    def confirm(self, result: HookResult) -> None:
        """A hook has printed its text: from now on the events of its host can prove it."""
        if result.session is not None and result.told.text:
            result.session.turns.confirm(result.told.carrier)
            self._settle(result)
            self._inbox.sessions.note_change(result.session.key)

    async def take_back(self, result: HookResult, *, is_unknown: bool = False) -> None:
        """Nothing of what a hook should have printed was printed, or (`is_unknown`) nobody can say."""
        if result.session is None:
            return
        self._settle(result)
        undo = self._composer.give_up if is_unknown else self._composer.take_back
        await undo(result.session, result.told)
        if result.told.text and result.told.carrier.startswith(_HELD):
            result.session.stops -= 1
            result.session.rest()
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

    async def look_again(self, session: Session) -> None:
        """Look into the host's record while a wake is unproven: many hosts write it after their hooks have run."""
        await self._judge(session, session.turns.written(await self._read(session)))

    async def _act(self, adapter: HookAdapter, session: Session, event: HookEvent) -> HookText:
        await self._release_awaited(session, event)
        if event.is_interrupted:
            session.rest(event.turn)
            session.forget_notices()
            await self._abandon_results(session)
            return NO_TEXT
        await self._follow_turn(session, event)
        is_own = _is_own(session, event.prompt)
        await self._take_proof(session, event)
        await self._note_results(session, event)
        match event.moment:
            case HookMoment.START:
                # One that names a turn says that nothing runs in it any more.
                session.rest(event.turn)
                session.forget_notices()
                return NO_TEXT
            case HookMoment.END:
                await self._leave(session, keeps_running=event.keeps_running)
                return NO_TEXT
            case HookMoment.PROMPT:
                session.work(event.turn)
                session.stops = session.stops if is_own else 0
            case HookMoment.TOOL:
                session.work(event.turn)
            case HookMoment.STOP | HookMoment.BELL:
                pass
        is_stop = event.moment is HookMoment.STOP
        if is_stop and session.stops >= adapter.most_stops:
            session.rest()
            return NO_TEXT
        told = await self._tell(adapter, session, event, is_own=is_own)
        if is_stop and told.text:
            session.stops += 1
        elif is_stop:
            session.rest()
        return told

    async def _take_proof(self, session: Session, event: HookEvent) -> None:
        await self._judge(session, _verdict(session, event, await self._recorded(session, event)))
        if event.moment is HookMoment.STOP and not session.shares_connection:
            await self._inbox.prove(_settled(session, event.turn), "end of turn")

    async def _note_results(self, session: Session, event: HookEvent) -> None:
        """Note what a result of Harken's own tools carried: the next step of this turn, or its end, proves it."""
        session.reports_results = session.reports_results or event.results is not None
        if event.moment is not HookMoment.TOOL or not event.results:
            return
        carrier = f"{_RESULT}{fresh_id('c-')}"
        # The call may have been taken for another conversation's: only now it is known whose it was.
        deliveries = await self._inbox.reassign(
            [DeliveryId(each) for each in event.results],
            consumer=session.consumer,
            session=session.key,
            carrier=carrier,
        )
        session.turns.carry(carrier, deliveries, Carriage.STEP, turn=event.turn)
        session.turns.confirm(carrier)

    async def _recorded(self, session: Session, event: HookEvent) -> Collection[str]:
        """Return what the host's own record proves: of a turn without an end, or of a wake that no prompt shows."""
        session.transcript = event.transcript or session.transcript
        return await self._read(session) if event.moment in (HookMoment.PROMPT, HookMoment.STOP) else ()

    async def _read(self, session: Session) -> Collection[str]:
        reader = host_named(session.host).transcript
        if reader is None or not session.turns.carried:
            return ()
        return await proven_by(reader(), session.transcript, session.turns.carried)

    async def _tell(self, adapter: HookAdapter, session: Session, event: HookEvent, *, is_own: bool) -> HookText:
        moment = event.moment
        most_chars = adapter.most_chars.get(moment, 0)
        if not most_chars or session.is_helper:
            return NO_TEXT
        profile = SurfaceProfile(
            surface=f"hook: {moment.value}" if moment is not HookMoment.BELL else "wake: bell",
            most_chars=most_chars,
            carriage=_CARRIAGES[moment],
            speaks_as_user=adapter.voices.get(moment, Voice.USER) is Voice.USER,
            has_block=moment is HookMoment.PROMPT and not is_own,
            is_new_turn=moment is HookMoment.PROMPT and not is_own,
        )
        return await self._composer.tell(session, profile, turn=event.turn)

    async def _release_awaited(self, session: Session, event: HookEvent) -> None:
        """After a restart another turn is told of before an edge is back: what that one carried was in none of it."""
        is_same = event.turn == session.turn and not event.is_interrupted
        is_first = event.moment in (HookMoment.START, HookMoment.PROMPT) and not event.turn
        if not session.awaited or event.moment is HookMoment.BELL or (is_same and not is_first):
            return
        edges, session.awaited = session.awaited, frozenset[str]()
        offers = [each for each in await self._inbox.open_offers(session.key) if each.carrier.split("/")[0] in edges]
        if event.moment is HookMoment.PROMPT:
            # The host's own record may show it; else the prompt lets go of it.
            for offer in offers:
                session.turns.inherit(offer.carrier, offer.delivery_id, session.turn, is_printed=False)
        elif offers:
            await self._inbox.release(session.key, {offer.carrier for offer in offers})

    async def _follow_turn(self, session: Session, event: HookEvent) -> None:
        """Note in which turn a session is; what tool results carried in another one is proven no more."""
        if session.is_replaced:
            session.is_replaced = False
            await self._inbox.release(session.key)
        is_same = bool(event.turn) and event.turn == session.turn
        if event.moment in (HookMoment.START, HookMoment.PROMPT) and not is_same:
            await self._abandon_results(session)
        elif event.moment is HookMoment.TOOL and event.turn:
            # The hook of its prompt was lost.
            await self._abandon_results(session, but_of=event.turn)
        if event.moment in (HookMoment.PROMPT, HookMoment.TOOL):
            session.turn = event.turn

    async def _abandon_results(self, session: Session, *, but_of: str = "") -> None:
        """Another turn begins, or this one was interrupted: what tool results carried in it is offered again."""
        if session.shares_connection:
            await self._abandon_unreported(session, is_going_on=bool(but_of))
            return
        carriers = [carrier for pusher in session.connections.values() for carrier in pusher.abandon(but_of)]
        if carriers:
            await self._inbox.release(session.key, carriers)

    async def _abandon_unreported(self, session: Session, *, is_going_on: bool) -> None:
        """Let go of results that no hook has told of; while the turn goes on, one may still do so."""
        if is_going_on:
            return
        # Any conversation of the process may have been taken for the one that called.
        for each in self._inbox.sessions.all_of_process(session.host, session.pid):
            offers = await self._inbox.open_offers(each.key)
            if carriers := {offer.carrier for offer in offers if not offer.carrier.startswith(self._told)}:
                await self._inbox.release(each.key, carriers)

    async def _judge(self, session: Session, verdict: Verdict) -> None:
        # What a payload names may be anybody's: a session proves what its own reader was given.
        await self._inbox.prove(verdict.proven, verdict.evidence, consumer=session.consumer)
        for carrier, deliveries in verdict.returned.items():
            await self._inbox.renew(session.key, deliveries, carrier)
        if verdict.released:
            session.last_block, session.last_owed = None, frozenset()
            await self._inbox.release(session.key, verdict.released)

    async def _leave(self, session: Session, *, keeps_running: bool) -> None:
        """The conversation is over: what is unproven may be offered to another session."""
        await self.look_again(session)
        await self._inbox.release(session.key)
        session.begin_anew()
        if keeps_running:
            session.rest()
            session.native = ""
        elif session.connections:
            # Its connection ends with the process, or goes on with another conversation; until then it is a session.
            session.forget_hooks()
        else:
            self._inbox.sessions.end(session.key)


def _task_of(hello: Hello) -> NamedTask | None:
    return NamedTask(TaskId(hello.task), hello.task_said_by) if hello.task else None


def _verdict(session: Session, event: HookEvent, recorded: Collection[str]) -> Verdict:
    turns, turn = session.turns, event.turn
    match event.moment:
        case HookMoment.PROMPT:
            return turns.submitted(event.prompt, turn, recorded=recorded)
        case HookMoment.TOOL:
            return turns.stepped(turn, is_step=event.is_step)
        case HookMoment.STOP:
            return turns.ended(turn, recorded=recorded)
        case _:
            return Verdict()


def _is_past(session: Session, event: HookEvent) -> bool:
    """Whether an interruption is of a turn that another one has followed: it came late, and ends nothing."""
    is_end = event.is_interrupted or (event.moment is HookMoment.START and session.reports_interrupts)
    is_named = bool(event.turn) and bool(session.turn)
    return is_end and is_named and event.turn != session.turn and not session.is_inherited


def _is_late(session: Session, event: HookEvent) -> bool:
    """Whether a tool is of a turn that was interrupted: no model reads what its hook says, and nothing is at work."""
    return event.moment is HookMoment.TOOL and event.turn == session.broken_turn != ""


def _settled(session: Session, turn: str) -> Collection[DeliveryId]:
    return [delivery for pusher in session.connections.values() for delivery in pusher.settle(turn)]


def _notice_moments(adapter: HookAdapter) -> frozenset[str]:
    """Return the moments through which no outsider's words go."""
    return frozenset(m.value for m in HookMoment if adapter.voices.get(m, Voice.USER) is Voice.USER)


def _is_own(session: Session, prompt: str) -> bool:
    """Whether a prompt is what Harken itself said: it is not a new one of the person's."""
    notice = session.last_notice
    return any(holds(prompt, each) for each in session.turns.carried) or (bool(notice) and notice in prompt)


def _fields(payload: bytes) -> Mapping[str, object] | None:
    """Return a payload's fields. Of one that is cut off or broken, those at its beginning: they name the session.

    Hosts write what strict readers refuse: half of an emoji that they cut, for example. That must silence nobody.
    """
    text = sound_json(payload).decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pairs = _FIELD.findall(text[:HEAD_CHARS])
        return dict(reversed(pairs)) if pairs and len(payload) >= MAX_PAYLOAD else None
    return value if isinstance(value, dict) else None
