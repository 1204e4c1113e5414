"""One session that the daemon hosts: its agent speaks the Agent Client Protocol, and has no terminal.

`HostedSession` hears what the agent reports and asks. It says what waits, when no turn runs: with a prompt, in the
voice of the user, so outsiders' words are only announced. It never sends a second prompt into a turn, because most
agents then cancel what they do; where the agent has a way to be told in between, that is used, and hooks of the host
come first. What the host's hooks do not tell, its reports stand for: that a prompt began a turn, that a tool was called
after it, that the turn is over. What is asked becomes an approval; without an answer of yours nothing is allowed.

The daemon starts and ends the agent (`daemon/hosting.py`). `HostedRecord` is what pages show of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import unified_diff
from typing import Final

import anyio
from anyio.abc import TaskGroup

from harken.acp.agent import AcpAgent
from harken.acp.connection import AcpError
from harken.acp.protocol import (
    AcpToolCall,
    ErrorCode,
    OptionKind,
    PermissionOption,
    PermissionRequest,
    SessionState,
    SessionUpdate,
    SteeringOutcome,
    StopReason,
    UpdateKind,
    fields,
)
from harken.clock import Clock, Signal
from harken.display import legible
from harken.errors import HarkenError, NeedsPerson
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals
from harken.inbox.results import HostedPart
from harken.model import ApprovalChoice, ApprovalId, ApprovalRequest, DeliveryId, WakeResult
from harken.sessions.proof import ReadRecord
from harken.sessions.session import Session
from harken.sessions.turns import Halt, HookEvent, HookMoment, TurnPhase
from harken.surfaces.composer import HookComposer, HookText, HookTextRequest
from harken.surfaces.hooks import answered_in_time, bound

SURFACE: Final = "wake: acp"
STEERED: Final = "acp: steering"
PATIENCE: Final = timedelta(hours=12)
MAX_CHARS: Final = 8_000  # of a prompt
MAX_PARTS: Final = 300
MAX_PART_CHARS: Final = 20_000
MAX_PLAN: Final = 100
MAX_CHANGES: Final = 50
MAX_DIFF_CHARS: Final = 40_000
LOOK_SECONDS: Final = 30.0
BREATH_SECONDS: Final = 0.3  # between two signs that something was said
IN_TURN: Final = "its turn is not over"
RAN: Final = "the agent went on with the tool"
NOT_RUN: Final = "the agent went on without the tool"
OVER: Final = "its turn is over"
IN_EDITOR: Final = "answered in the editor"
# After these the model has read all that its turn began with. What is cut off otherwise proves nothing.
_READ_ALL: Final = (StopReason.END_TURN, StopReason.MAX_TOKENS, StopReason.MAX_REQUESTS)
_KINDS: Final[Mapping[str, str]] = {
    UpdateKind.AGENT_CHUNK: "said",
    UpdateKind.AGENT: "said",
    UpdateKind.THOUGHT_CHUNK: "thought",
    UpdateKind.THOUGHT: "thought",
}
_WHOLE: Final = (UpdateKind.AGENT, UpdateKind.THOUGHT)
_GOES_ON: Final = ("in_progress", "completed")
# Of a tool's use, what says when and where it was, and not what it does.
_APART: Final = frozenset(
    {"toolCallId", "status", "sessionUpdate", "_meta", "content", "rawInput", "rawOutput", "type"}
)


_log = logging.getLogger("harken.hosted")


class HostedRecord:
    """What a hosted agent said and did lately, as pages show it. Every text is data, and is kept legible."""

    def __init__(self) -> None:
        self.parts: list[HostedPart] = []
        self.plan: Sequence[tuple[str, str]] = ()
        self.left_out = 0
        self._places: dict[str, int] = {}  # of parts, by the id of their message or tool; counted from the first ever
        self._open = ""  # the id of the part that texts go on

    def take(self, update: SessionUpdate) -> None:
        """Take a report."""
        if (kind := _KINDS.get(update.kind)) is not None:
            self._say(kind, update)
        elif update.tool is not None:
            self._use(update.tool)
        elif update.kind in (UpdateKind.PLAN, UpdateKind.PLAN_CHANGE):
            self.plan = [(_shown(each.text)[0], legible(each.status)[:40]) for each in update.plan[:MAX_PLAN]]

    def add(self, part: HostedPart) -> None:
        """Add a part of our own: what the agent was told, or a problem."""
        self._open = ""
        self._append(part)

    def _say(self, kind: str, update: SessionUpdate) -> None:
        name = f"{kind}/{update.message}"
        known = self._part(name) if name == self._open or update.message else None
        if known is None:
            text, is_cut = _shown(update.text)
            self._append(HostedPart(kind=kind, text=text, is_cut=is_cut))
            self._places[name] = self.left_out + len(self.parts) - 1
        else:
            text, is_cut = _shown(update.text if update.kind in _WHOLE else known.text + update.text)
            self._put(name, replace(known, text=text, is_cut=is_cut or known.is_cut))
        self._open = name

    def _use(self, tool: AcpToolCall) -> None:
        name = f"tool/{tool.id}"
        text, is_cut = _shown(tool.text or _said(tool.input))
        part = HostedPart(
            kind="tool",
            title=legible(tool.title or tool.name or tool.kind)[:400],
            status=legible(tool.status)[:40],
            text=text,
            changes=_differences(tool),
            is_cut=is_cut,
        )
        self._open = ""
        if (known := self._part(name)) is None:
            self._append(part)
            self._places[name] = self.left_out + len(self.parts) - 1
            return
        self._put(
            name,
            replace(
                known,
                title=part.title or known.title,
                status=part.status or known.status,
                text=part.text or known.text,
                changes=part.changes or known.changes,
                is_cut=part.is_cut or known.is_cut,
            ),
        )

    def _part(self, name: str) -> HostedPart | None:
        place = self._places.get(name, -1) - self.left_out
        return self.parts[place] if place >= 0 else None

    def _put(self, name: str, part: HostedPart) -> None:
        self.parts[self._places[name] - self.left_out] = part

    def _append(self, part: HostedPart) -> None:
        self.parts.append(part)
        if len(self.parts) > MAX_PARTS:
            self.left_out += 1
            del self.parts[0]
            self._places = {name: place for name, place in self._places.items() if place >= self.left_out}


def _shown(text: str) -> tuple[str, bool]:
    """Return a text as it is shown, and whether that is only its beginning."""
    return legible(text[:MAX_PART_CHARS]), len(text) > MAX_PART_CHARS


def _said(value: object) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, Mapping) and isinstance(command := value.get("command"), str):
        return command
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[: MAX_PART_CHARS + 1]


def _differences(tool: AcpToolCall) -> Sequence[tuple[str, str]]:
    """Return the changes of files that a tool makes, each as its difference."""
    found: list[tuple[str, str]] = []
    for each in tool.changes[:MAX_CHANGES]:
        old, new = each.old[:MAX_DIFF_CHARS].split("\n"), each.new[:MAX_DIFF_CHARS].split("\n")
        lines = list(unified_diff([] if not each.old else old, new, lineterm=""))[2:]
        found.append((legible(each.path)[:400], legible("\n".join(lines))))
    return found


def question_of(request: PermissionRequest, known: AcpToolCall | None, session: Session) -> ApprovalRequest:
    """Return what an agent asks, with everything that it says of the tool; `known` is what it said before. Pure."""
    tool = request.tool
    given = tool.input if tool.input is not None else (known.input if known else None)
    raw = request.raw.get("toolCall") or request.raw.get("subject")
    arguments = {name: value for name, value in (raw if isinstance(raw, Mapping) else {}).items() if name not in _APART}
    arguments |= given if isinstance(given, Mapping) else {} if given is None else {"input": given}
    changes = tool.changes or (known.changes if known else ())
    if len(changes) == 1:
        arguments |= {"path": changes[0].path, "old_string": changes[0].old, "new_string": changes[0].new}
    elif changes:
        arguments["changes"] = [{"path": each.path, "old": each.old, "new": each.new} for each in changes]
    if tool.text:
        arguments["shown"] = tool.text
    always = request.option(OptionKind.ALLOW_ALWAYS)
    return ApprovalRequest(
        host=session.host,
        session=session.key,
        tool=tool.name or tool.kind or (known.kind if known else "") or "a tool",
        arguments=arguments,
        digest="",
        folder=request.cwd or session.cwd,
        why=request.why,
        choices=(
            *([ApprovalChoice.ONCE] if request.option(OptionKind.ALLOW_ONCE) else []),
            *([ApprovalChoice.ALWAYS] if always else []),
            ApprovalChoice.NO,
        ),
        always=always.name if always else "",
        carries_reason=False,
    )


_OPTIONS: Final[Mapping[ApprovalChoice, tuple[OptionKind, ...]]] = {
    ApprovalChoice.ONCE: (OptionKind.ALLOW_ONCE,),
    ApprovalChoice.ALWAYS: (OptionKind.ALLOW_ALWAYS,),
    ApprovalChoice.NO: (OptionKind.REJECT_ONCE,),
}


@dataclass(slots=True)
class _ToolUse:
    """A tool that the agent uses in its turn, and an answer of yours about it that is not proven to be obeyed."""

    call: AcpToolCall
    approval: ApprovalId | None = None
    is_allowed: bool = False


@dataclass(slots=True)
class _Turn:
    """One turn, from its prompt to its end."""

    told: HookText
    message: str = ""  # the id that version 2 gave the prompt
    reported: set[str] = field(default_factory=set[str])  # ids of what the agent has put into the conversation
    is_own: bool = True  # begun by the daemon, and not in an editor
    is_running: bool = False  # as version 2 says
    is_stopped: bool = False  # by you
    tools: dict[str, _ToolUse] = field(default_factory=dict[str, _ToolUse])
    over: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True)
class _EditorAnswer:
    """What became of a question in an editor."""

    said: str = ""
    is_there: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> str:
        """Return it, once it is there."""
        await self.is_there.wait()
        return self.said


ListenForMail = Callable[[Callable[[object], None]], AbstractContextManager[None]]
"""Calls something when messages may have arrived, while its context is open."""


class HostedSession:
    """One conversation that the daemon holds with an agent. It is the `AgentListener` of that, and a `Waker`."""

    name = SURFACE

    def __init__(
        self,
        inbox: Inbox,
        composer: HookComposer,
        approvals: Approvals,
        clock: Clock,
        *,
        read_record: ReadRecord,
        tasks: TaskGroup,
    ) -> None:
        self._inbox = inbox
        self._composer = composer
        self._approvals = approvals
        self._clock = clock
        self._read_record = read_record
        self._tasks = tasks
        self._said = Signal()
        self._turn: _Turn | None = None
        self._session: Session | None = None
        self._agent: AcpAgent | None = None
        self._conversation = ""
        self._obstacle = ""  # why no prompt is taken
        self._in_editor: dict[int, _EditorAnswer] = {}  # by the number of the question
        self._editor_prompt: str | None = None  # of a turn there, of which was heard before ours was seen to be over
        self.record = HostedRecord()

    @property
    def is_in_turn(self) -> bool:
        """Whether a prompt was sent, and its turn is not over."""
        return self._turn is not None

    def begin(self, agent: AcpAgent, conversation: str, session: Session) -> None:
        """The conversation is open: from now on what waits for the session goes to the agent."""
        self._agent, self._conversation, self._session = agent, conversation, session
        session.ask_before_waking(self._hindrance)
        session.add_wakers([self])

    async def run(self, listen: ListenForMail) -> None:
        """Tell pages what is said, not too often, and a turn what arrives for it, until the agent is gone."""
        arrived = Signal()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show)
            with listen(arrived.ring):
                while True:
                    await arrived.wait(LOOK_SECONDS)
                    await self._steer()
                    await anyio.sleep(BREATH_SECONDS)

    async def _show(self) -> None:
        while True:
            await self._said.wait(LOOK_SECONDS)
            self._inbox.sessions.note_change()
            await anyio.sleep(BREATH_SECONDS)

    # -- what it is told ---------------------------------------------------------------------------------------

    async def _hindrance(self) -> str:
        return IN_TURN if self.is_in_turn else self._obstacle

    async def wake(self) -> WakeResult:
        """Say what waits, as a prompt; never while a turn runs."""
        session = self._session
        if session is None or await session.look():
            return WakeResult.POSTPONED
        # Taken before anything is awaited: of two that come at once, the second waits for the end of the turn.
        turn = self._turn = _Turn(HookText())
        try:
            request = HookTextRequest(
                surface=SURFACE,
                most_chars=MAX_CHARS,
                phase=TurnPhase.WAKE,
                speaks_as_user=True,
                has_block=True,
                is_new_turn=True,
            )
            turn.told = await self._composer.tell(session, request)
        finally:
            if not turn.told.text:
                self._turn = None
        if not turn.told.text:
            await self._follow_editor()
            return WakeResult.REFUSED
        self._tasks.start_soon(self._prompt, turn)
        return WakeResult.TAKEN

    async def _prompt(self, turn: _Turn) -> None:
        try:
            await self._take_turn(turn)
        except HarkenError as exc:  # the store is away: what was told is offered again when its lease ends
            _log.warning("a turn of %s is not followed: %s", self._conversation, exc.message)
        finally:
            if self._turn is turn:
                self._turn = None
        await self._follow_editor()

    async def _follow_editor(self) -> None:
        """Follow the turn that was begun in the editor meanwhile, if one was."""
        prompt, self._editor_prompt = self._editor_prompt, None
        if prompt is not None:
            await self.begin_in_editor(prompt)

    async def _take_turn(self, turn: _Turn) -> None:
        """Send a prompt, and follow its turn to the end."""
        session, agent = self._open
        self.record.add(HostedPart(kind="told", text=legible(turn.told.text)))
        await self._stand_in(HookMoment.PROMPT, turn.told.text)
        session.begin_turn(session.turn, is_own=True)
        self._inbox.sessions.touch(session.key, self._clock.now())
        self._inbox.sessions.note_change(session.key)
        stop, problem = "", ""
        try:
            receipt = await agent.prompt(self._conversation, turn.told.text)
            stop, turn.message = receipt.stop, receipt.message
            if not stop:
                await self._prove_message(turn, session)
                await turn.over.wait()
                return
        except HarkenError as exc:
            if isinstance(exc, AcpError) and exc.number == ErrorCode.BUSY:
                await self._come_later(turn, session)
                return
            problem = f"{exc.message} {exc.hint}".strip()
            self._obstacle = exc.message if isinstance(exc, NeedsPerson) else ""
        await self._end(turn, stop, problem)

    async def _come_later(self, turn: _Turn, session: Session) -> None:
        """A turn has begun in the editor at the same moment: what was to be said waits for its end."""
        if self._turn is turn:
            self._turn = None
        turn.over.set()
        await self._composer.take_back(session, turn.told)
        session.rest()

    async def _steer(self) -> None:
        """Say something into the turn that runs, where the agent has a way for that, and no hook of the host."""
        session, turn, agent = self._session, self._turn, self._agent
        if session is None or turn is None or agent is None or not agent.greeting.can_steer:
            return
        if HookMoment.TOOL in session.moments or not session.is_busy:
            return
        request = HookTextRequest(
            surface=STEERED, most_chars=MAX_CHARS, phase=TurnPhase.STEP, speaks_as_user=True, is_new_turn=False
        )
        told = await self._composer.tell(session, request, turn=session.turn)
        if not told.text:
            return
        try:
            outcome = await agent.steer(self._conversation, told.text)
        except HarkenError:
            await self._composer.give_up(session, told)
            return
        if outcome == SteeringOutcome.INJECTED and self._turn is turn:
            session.carried(told.carrier)
            self.record.add(HostedPart(kind="told", text=legible(told.text)))
        elif outcome == SteeringOutcome.PROMPT_REQUIRED:
            await self._composer.take_back(session, told)
        else:
            await self._composer.give_up(session, told)

    async def begin_in_editor(self, prompt: str) -> None:
        """A turn begins that you have begun in an editor."""
        session, _ = self._open
        if self._turn is not None:
            self._editor_prompt = prompt if self._turn.is_own else None
            return
        self._turn = _Turn(HookText(), is_own=False)
        await self._stand_in(HookMoment.PROMPT, prompt)
        session.begin_turn(session.turn, is_own=False)
        self._inbox.sessions.touch(session.key, self._clock.now())
        self._inbox.sessions.note_change(session.key)

    async def end_in_editor(self, stop: str) -> None:
        """The turn is over; so is one of the daemon, if its end was not heard."""
        if self._editor_prompt is not None:
            self._editor_prompt = None
        elif self._turn is not None:
            await self._end(self._turn, stop, "")

    def answered_in_editor(self, question: int, answer: str) -> None:
        """A question was answered there first."""
        found = self._in_editor.setdefault(question, _EditorAnswer())
        found.said = f"{IN_EDITOR}: {legible(answer)[:200]}" if answer else IN_EDITOR
        found.is_there.set()

    async def stop(self) -> bool:
        """Stop the turn that runs; return whether there was one of ours."""
        if self._turn is None or self._agent is None or not self._turn.is_own:
            return False
        self._turn.is_stopped = True
        await self._agent.cancel(self._conversation)
        return True

    # -- what it reports ---------------------------------------------------------------------------------------

    async def updated(self, update: SessionUpdate) -> None:
        """Take a report of the agent."""
        if self._conversation and update.session != self._conversation:
            return
        if not update.is_from_user:
            self.record.take(update)
        self._said.ring()
        if self._turn is None or self._session is None:
            return
        try:
            await self._follow(self._turn, self._session, update)
        except HarkenError as exc:  # the store is away: what is not noted is not proven
            _log.warning("what %s reports is not noted: %s", self._session.key, exc.message)

    async def _follow(self, turn: _Turn, session: Session, update: SessionUpdate) -> None:
        if update.is_from_user and update.message:
            turn.reported.add(update.message)
            await self._prove_message(turn, session)
        elif update.tool is not None:
            await self._used(turn, update.tool)
        elif update.state == SessionState.RUNNING:
            turn.is_running = True
        elif update.state == SessionState.IDLE and turn.is_running:
            await self._end(turn, update.stop or StopReason.END_TURN, "")

    async def _prove_message(self, turn: _Turn, session: Session) -> None:
        """The agent has put the prompt into the conversation, under the id that it gave it."""
        if turn.message and turn.message in turn.reported:
            await self._inbox.proofs.look_again(session, _recording(turn.told.deliveries))

    async def _used(self, turn: _Turn, call: AcpToolCall) -> None:
        """A tool is used: the model has read what the turn began with."""
        session, _ = self._open
        use = turn.tools.get(call.id)
        if use is None:
            turn.tools[call.id] = _ToolUse(call)
            self._inbox.sessions.touch(session.key, self._clock.now())
            await self._stand_in(HookMoment.TOOL)
            return
        before = use.call
        use.call = replace(
            before,
            input=call.input if call.input is not None else before.input,
            changes=call.changes or before.changes,
            kind=call.kind or before.kind,
        )
        if use.approval is None or not call.status:
            return
        if use.is_allowed and call.status in _GOES_ON:
            await self._obeyed(use, RAN)
        elif not use.is_allowed and call.status == "failed":
            await self._obeyed(use, NOT_RUN)

    async def _obeyed(self, use: _ToolUse, evidence: str) -> None:
        if use.approval is not None:
            approval, use.approval = use.approval, None
            await self._approvals.obey(approval, evidence)

    async def permission(self, request: PermissionRequest) -> PermissionOption | None:
        """Ask you, and return the option that you chose; without an answer None, which allows nothing."""
        session, turn = self._session, self._turn
        if session is None or request.session != self._conversation:
            return None
        # Taken before anything is waited for: the editor may answer, and the turn end, before the question is stored.
        number = fields(request.raw, "_meta").get("harken")
        in_editor = self._in_editor.setdefault(number, _EditorAnswer()) if isinstance(number, int) else None
        use = turn.tools.get(request.tool.id) if turn else None
        asked = question_of(request, use.call if use else None, session)
        if turn is not None and use is None:
            use = turn.tools[request.tool.id] = _ToolUse(request.tool)
            await self._stand_in(HookMoment.TOOL)
        try:
            approval = await self._approvals.ask(bound(asked, session), PATIENCE)
        except HarkenError as exc:
            self.record.add(HostedPart(kind="problem", text=legible(f"{exc.message} It was not allowed.")))
            return None
        endings: list[Callable[[], Awaitable[str]]] = [in_editor.wait] if in_editor else []
        if turn is not None:
            endings.append(_waiter(turn.over, OVER))
        answered = await answered_in_time(self._approvals, approval, endings)
        if isinstance(number, int):
            self._in_editor.pop(number, None)
        if answered is None or answered.choice is None:
            return None
        if use is not None:
            use.approval, use.is_allowed = approval.id, answered.choice is not ApprovalChoice.NO
        return request.option(*_OPTIONS[answered.choice])

    # -- its turn ----------------------------------------------------------------------------------------------

    async def _end(self, turn: _Turn, stop: str, problem: str) -> None:
        """A turn is over: by itself, stopped, or because the agent failed."""
        if self._turn is not turn:
            return
        session, _ = self._open
        self._turn = None
        turn.over.set()
        self._in_editor.clear()
        for use in turn.tools.values():
            if not use.is_allowed:
                await self._obeyed(use, NOT_RUN)
        if problem:
            self.record.add(HostedPart(kind="problem", text=legible(problem)))
        if stop not in _READ_ALL:
            # Stopped, refused or broken off: how far the model has read is not known.
            if turn.told.text:
                await self._composer.give_up(session, turn.told)
            await self._hear(HookEvent(moment=HookMoment.STOP, native=self._conversation, is_interrupted=True))
            if turn.is_stopped:
                # You did not want it now: it goes with the next prompt, and starts none.
                session.announce(turn.told.noticed.union(each.id for each in turn.told.messages), "")
        elif session.is_busy:
            await self._hear(HookEvent(moment=HookMoment.STOP, native=self._conversation, turn=session.turn))
        session.rest()
        await self._note_halt(session, turn, stop, problem)
        if session.hindrance == IN_TURN:
            session.note_hindrance("")
        await self._inbox.note_rest(session)
        self._inbox.sessions.note_change(session.key)
        self._said.ring()

    async def _note_halt(self, session: Session, turn: _Turn, stop: str, problem: str) -> None:
        """You may want to know why it does not go on, unless you have stopped it."""
        if problem:
            await self._inbox.note_halt(session, Halt.FAILED, problem)
        elif stop in _READ_ALL and not turn.is_stopped:
            await self._inbox.note_halt(session, Halt.FINISHED)

    def over(self) -> None:
        """The agent is gone: nothing more is heard of its turn."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.over.set()

    async def _stand_in(self, moment: HookMoment, prompt: str = "") -> None:
        """Take what the agent reports for an event of a hook that its host does not run."""
        session, _ = self._open
        if moment not in session.moments:
            event = HookEvent(moment=moment, native=self._conversation, turn=session.turn, prompt=prompt)
            await self._hear(event)

    async def _hear(self, event: HookEvent) -> None:
        session, _ = self._open
        await self._inbox.proofs.hear(session, event, self._read_record)
        self._inbox.sessions.note_change(session.key)

    @property
    def _open(self) -> tuple[Session, AcpAgent]:
        if self._session is None or self._agent is None:
            raise RuntimeError("The conversation is not open.")
        return self._session, self._agent


def _recording(deliveries: Collection[DeliveryId]) -> ReadRecord:
    """Return a record that shows some deliveries."""

    async def read(_session: Session) -> Collection[str]:
        return deliveries

    return read


def _waiter(event: anyio.Event, because: str) -> Callable[[], Awaitable[str]]:
    async def wait() -> str:
        await event.wait()
        return because

    return wait
