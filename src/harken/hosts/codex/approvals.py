"""What Codex asks before it runs a command: heard, and answered, at the server that its terminals share.

Its own dialog stays open, and the first answer counts: a second client of the server is sent every request of a thread
that it follows, and hears when one is resolved. A thread is followed only while it waits for an approval, so that the
server lets go of it as it would without us. What cannot be shown whole is not asked here: its dialog is all there is.
So it is with changes of files, which Codex names to other clients without their content.

A refusal carries no reason. An answer was obeyed when the command was run, or when the turn went to its end without it.
Above is the daemon's handler of hooks, below the client in `appserver.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
from anyio.abc import TaskGroup

from harken.errors import Unavailable
from harken.hosts.codex.appserver import CALL_SECONDS, HUNG_UP, Channel, fields_of, result_of, shared_channel
from harken.hosts.codex.hooks import NAME
from harken.hosts.codex.wake import LEFT, CodexWaker, home_of
from harken.hosts.hook import payload_text
from harken.hosts.wake import AskPerson, WakeTarget
from harken.model import ApprovalChoice, ApprovalRequest, SessionKey
from harken.processes import environment

MARK: Final = "harken-approvals.json"
"""Below Codex's home: names the home of the Harken that answers. `connect --approvals` writes it."""

PATIENCE: Final = timedelta(hours=12)
LOOK_SECONDS: Final = 5.0
MAX_PARENTS: Final = 10
_FIRST_CALL: Final = 100  # above the numbers of the handshake
_COMMAND: Final = "item/commandExecution/requestApproval"
_WAITS: Final = "waitingOnApproval"
_DECISIONS: Final[Mapping[ApprovalChoice, str]] = MappingProxyType(
    {ApprovalChoice.ONCE: "accept", ApprovalChoice.NO: "decline"}
)
_AMENDMENT: Final = "acceptWithExecpolicyAmendment"
_SESSION: Final = "acceptForSession"
# Of a request for a command: what says where and when it was asked, not what.
_APART: Final = frozenset(
    {"threadId", "turnId", "itemId", "startedAtMs", "environmentId", "reason", "cwd", "commandActions", "kind"}
    | {"availableDecisions", "proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments", "approvalId"}
)

HERE: Final = "it was answered in its own terminal"
OVER: Final = "its host no longer asks"
RUNS: Final = "Codex ran the command"
NOT_RUN: Final = "Codex went on without the command"

_log = logging.getLogger("harken.hosts.codex")


def mark_text(harken: str) -> bytes:
    """Return what is written below Codex's home where its questions can be answered elsewhere."""
    return json.dumps({"home": harken}).encode() + b"\n"


def is_marked(home: Path, harken: str) -> bool:
    """Whether the person chose that this Harken shows what Codex asks."""
    try:
        return (home / MARK).read_bytes() == mark_text(harken)
    except OSError:
        return False


def request_of(params: Mapping[str, object]) -> ApprovalRequest | None:
    """Return what a request of Codex asks; None for what cannot be shown whole. Pure."""
    thread = payload_text(params, "threadId")
    # Input for a command that runs already, and parts of one, are told from it by ids that no other message names.
    is_whole = params.get("kind", "command") == "command" and not params.get("approvalId") and params.get("command")
    if not thread or not is_whole or "accept" not in (_decisions(params) or ["accept"]):
        return None
    _, always = _lasting(params)
    return ApprovalRequest(
        host=NAME,
        session=SessionKey(thread),
        tool="command",
        arguments={name: value for name, value in params.items() if name not in _APART and value is not None},
        digest="",
        folder=payload_text(params, "cwd"),
        why=payload_text(params, "reason"),
        choices=(ApprovalChoice.ONCE, *([ApprovalChoice.ALWAYS] if always else []), ApprovalChoice.NO),
        always=always,
        turn=payload_text(params, "turnId"),
        carries_reason=False,
    )


def decision_of(params: Mapping[str, object], choice: ApprovalChoice) -> object:
    """Return the decision that Codex is sent: one that it knows, because any other word is a refusal to it. Pure."""
    return _lasting(params)[0] if choice is ApprovalChoice.ALWAYS else _DECISIONS[choice]


def _decisions(params: Mapping[str, object]) -> Sequence[object]:
    found = params.get("availableDecisions")
    return found if isinstance(found, list) else ()


def _lasting(params: Mapping[str, object]) -> tuple[object, str]:
    """Return the decision after which Codex no longer asks, and about what: nothing where it does not offer one."""
    for each in _decisions(params):
        amendment = each.get(_AMENDMENT) if isinstance(each, dict) else None
        words = amendment.get("execpolicy_amendment") if isinstance(amendment, dict) else None
        if isinstance(words, list) and words:
            return each, f"commands that begin with {json.dumps([str(word) for word in words], ensure_ascii=False)}"
    return _SESSION, "this very command, in this conversation" if _SESSION in _decisions(params) else ""


@dataclass(kw_only=True)
class CodexQuestion:
    """One request that waits for an answer, here and in its terminal. Implements `HostQuestion`."""

    request: ApprovalRequest
    number: object  # Codex's own id of the request
    thread: str
    item: str
    params: Mapping[str, object]
    send: Callable[[str], Awaitable[None]]
    is_left: Callable[[], Awaitable[bool]]
    because: str = ""  # why it is over; empty while it is not
    ended: anyio.Event = field(default_factory=anyio.Event)  # it cannot be answered any more
    evidence: str | None = None  # what shows that an answer of ours was obeyed; empty: it was not; None: not known
    settled: anyio.Event = field(default_factory=anyio.Event)  # that is known, or never will be
    choice: ApprovalChoice | None = None  # as we answered

    patience = PATIENCE

    async def over(self) -> str:
        """Return why it can no longer be answered, once that is so."""
        while not self.ended.is_set():
            with anyio.move_on_after(LOOK_SECONDS):
                await self.ended.wait()
            if not self.ended.is_set() and await self.is_left():
                return LEFT
        return self.because

    async def reply(self, choice: ApprovalChoice, reason: str) -> str | None:
        """Hand an answer over, once; return what shows that it was obeyed: nothing if it was not, None if unknown."""
        del reason
        if self.ended.is_set():
            return ""
        self.choice = choice
        decision = decision_of(self.params, choice)
        try:
            await self.send(json.dumps({"id": self.number, "result": {"decision": decision}}))
        except (*HUNG_UP, OSError):
            return None
        await self.settled.wait()
        return self.evidence

    def resolve(self) -> None:
        """Codex has an answer, from here or from elsewhere."""
        if self.choice is None:
            self.end(HERE)

    def end(self, because: str) -> None:
        """It is over, and nothing more is heard of it."""
        self.because = self.because or because
        self.ended.set()
        self.settled.set()

    def run(self) -> None:
        """Codex runs the command."""
        self._settle(RUNS, is_obeyed=self.choice is not ApprovalChoice.NO)

    def pass_over(self) -> None:
        """The command did not run, and will not."""
        self._settle(NOT_RUN, is_obeyed=self.choice is ApprovalChoice.NO)

    def _settle(self, evidence: str, *, is_obeyed: bool) -> None:
        if self.choice is not None and not self.settled.is_set():
            self.evidence = evidence if is_obeyed else ""
        self.end(HERE)


class SharedServerEar:
    """One connection to the server of a Codex home: hears which threads wait, and what they ask."""

    def __init__(self, channel: Channel, home: Path, ask: AskPerson, waker: CodexWaker) -> None:
        self._channel = channel
        self._home = home
        self._ask = ask
        self._waker = waker
        self._numbers = count(_FIRST_CALL)
        self._calls: dict[int, _PendingCall] = {}
        self._questions: dict[tuple[str, str], CodexQuestion] = {}  # by thread, and Codex's id of the request
        self._followed: set[str] = set()

    async def run(self) -> None:
        """Hear until the other side hangs up; what waits here then is over."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._begin, tasks)
            with suppress(*HUNG_UP, OSError):
                while True:
                    self._hear(fields_of(await self._channel.receive()), tasks)
            tasks.cancel_scope.cancel()

    async def call(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Ask the server one thing; raises `Unavailable` when it is refused or does not come."""
        number, call = next(self._numbers), _PendingCall()
        self._calls[number] = call
        try:
            with anyio.fail_after(CALL_SECONDS):
                await self._channel.send(json.dumps({"id": number, "method": method, "params": params}))
                await call.answered.wait()
        except (*HUNG_UP, OSError) as exc:
            raise Unavailable(f"Codex did not answer {method}.") from exc
        finally:
            del self._calls[number]
        return result_of(method, call.answer)

    async def _begin(self, tasks: TaskGroup) -> None:
        """Look for what waits already: it was asked while nothing listened."""
        with suppress(Unavailable, TimeoutError):
            loaded = (await self.call("thread/loaded/list", {})).get("data")
            for name in loaded if isinstance(loaded, list) else ():
                thread = (await self.call("thread/read", {"threadId": name})).get("thread")
                if isinstance(thread, dict) and _is_waiting(thread.get("status")):
                    self._follow(str(name), tasks)

    def _hear(self, said: Mapping[str, object], tasks: TaskGroup) -> None:
        method, number, params = payload_text(said, "method"), said.get("id"), said.get("params")
        if not method:
            if isinstance(number, int) and (call := self._calls.get(number)):
                call.answer = said
                call.answered.set()
        elif isinstance(params, dict) and number is None:
            self._notice(method, payload_text(params, "threadId"), params, tasks)
        elif isinstance(params, dict) and method == _COMMAND:
            tasks.start_soon(self._question, number, params)

    def _notice(self, method: str, thread: str, params: Mapping[str, object], tasks: TaskGroup) -> None:
        if method == "thread/status/changed":
            self._status_changed(thread, params.get("status"), tasks)
        elif method == "serverRequest/resolved":
            if question := self._questions.get((thread, str(params.get("requestId")))):
                question.resolve()
        elif method in ("item/started", "item/completed") and isinstance(item := params.get("item"), dict):
            self._item(thread, payload_text(item, "id"), payload_text(item, "status"))
        elif method in ("turn/completed", "thread/closed"):
            self._end(thread)

    def _status_changed(self, thread: str, status: object, tasks: TaskGroup) -> None:
        if _is_waiting(status):
            self._follow(thread, tasks)
            return
        if isinstance(status, dict) and status.get("type") != "active":
            self._end(thread)
        if thread in self._followed and not self._asks(thread):
            tasks.start_soon(self._let_go, thread)

    def _asks(self, thread: str) -> bool:
        """Whether something that a thread asked is not over."""
        return any(each.thread == thread for each in self._questions.values())

    def _item(self, thread: str, item: str, status: str) -> None:
        for question in self._questions.values():
            if (question.thread, question.item) == (thread, item):
                question.pass_over() if status == "declined" else question.run()

    def _end(self, thread: str) -> None:
        """The turn of a thread is over."""
        for question in self._questions.values():
            if question.thread == thread:
                question.pass_over()

    def _follow(self, thread: str, tasks: TaskGroup) -> None:
        if thread not in self._followed:
            self._followed.add(thread)
            tasks.start_soon(self._resume, thread)

    async def _resume(self, thread: str) -> None:
        """Let the server send what a thread asks, now and while anything of it waits."""
        try:
            await self.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        except (Unavailable, TimeoutError) as exc:
            _log.info("what the Codex thread %s asks is left to its terminal: %s", thread, exc)
            self._followed.discard(thread)

    async def _question(self, number: object, params: Mapping[str, object]) -> None:
        thread, item = payload_text(params, "threadId"), payload_text(params, "itemId")
        key = (thread, str(number))
        asked = request_of(params)
        if asked is None or key in self._questions:
            return
        question = CodexQuestion(
            request=asked,
            number=number,
            thread=thread,
            item=item,
            params=params,
            send=self._channel.send,
            is_left=lambda: self._is_left(thread),
        )
        self._questions[key] = question
        try:
            await self._ask(NAME, question, await self._lineage(thread))
        finally:
            del self._questions[key]
            question.end(OVER)
        if not self._asks(thread):
            await self._let_go(thread)

    async def _let_go(self, thread: str) -> None:
        """Follow a thread no longer, unless it waits for something else."""
        with suppress(Unavailable, TimeoutError):
            found = (await self.call("thread/read", {"threadId": thread})).get("thread")
            if not isinstance(found, dict) or not _is_waiting(found.get("status")):
                self._followed.discard(thread)
                await self.call("thread/unsubscribe", {"threadId": thread})

    async def _lineage(self, thread: str) -> Sequence[str]:
        """Return a thread, and those that it was begun by."""
        found = [thread]
        with suppress(Unavailable, TimeoutError):
            while len(found) < MAX_PARENTS:
                above = (await self.call("thread/read", {"threadId": found[-1]})).get("thread")
                parent = payload_text(above, "parentThreadId") if isinstance(above, dict) else ""
                if not parent:
                    break
                found.append(parent)
        return found

    async def _is_left(self, thread: str) -> bool:
        try:
            return await self._waker.is_left(self, (await self._lineage(thread))[-1], self._home)
        except (Unavailable, TimeoutError):
            return False


@dataclass(eq=False)
class _PendingCall:
    """A call that waits for its answer."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, object] = field(default_factory=dict[str, object])


class CodexListener:
    """Hears what Codex asks, in every home where the person chose that. Implements `QuestionListener`."""

    def __init__(self) -> None:
        self._waker = CodexWaker()

    def places(self, targets: Sequence[WakeTarget], harken: str) -> Collection[str]:
        """Return the homes of some sessions in which they ask this Harken too."""
        homes = {home_of(target.env or environment(target.pid)) for target in targets}
        return {str(home) for home in homes if is_marked(home, harken)}

    async def listen(self, place: str, ask: AskPerson) -> None:
        """Hear the questions of one home until its server hangs up, or there is none."""
        home = Path(place)
        async with shared_channel(home) as channel:
            if channel is not None:
                await SharedServerEar(channel, home, ask, self._waker).run()


def _is_waiting(status: object) -> bool:
    flags = status.get("activeFlags") if isinstance(status, dict) else None
    return isinstance(flags, list) and _WAITS in flags
