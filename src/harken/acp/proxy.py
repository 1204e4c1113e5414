"""`AcpProxy`: between an editor and its agent, so that the daemon hears what goes on, and can say something too.

What the editor and the agent say to each other passes through as it is, and goes on while no daemon is there. Only this
differs: a conversation is given one more server of tools; a question of the agent may be answered by the daemon first,
and the later answer is dropped; and while a turn goes on that the daemon began, the editor's next prompt is held back,
because most agents cancel what they do when they are prompted again. The daemon's prompts are refused while a turn of
the editor's goes on.

To the daemon it is an agent with several conversations, told of by the notifications of `ProxyMethod`. A daemon that is
slow to read is let go, and told how everything stands when it comes back: the editor never waits for it. Programs and
sockets are the caller's business.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import MemoryObjectSendStream

from harken.acp.connection import HUNG_UP, decoded, lines
from harken.acp.protocol import (
    NEW,
    OLD,
    ErrorCode,
    Fields,
    McpServer,
    Method,
    ProxyMethod,
    SessionState,
    UpdateKind,
    content_text,
    fields,
    objects,
    text,
    text_block,
    update_of,
)
from harken.memory import json_bytes

MAX_BEHIND: Final = 4_000  # lines that a daemon may be behind
MAX_PROMPT_CHARS: Final = 100_000
META: Final = "harken"

_OPENS: Final = frozenset({Method.NEW, Method.LOAD, Method.RESUME, "session/fork"})
_ENDS: Final = frozenset({Method.CLOSE, "session/delete"})


@dataclass(slots=True)
class _AcpLine:
    """Something that was said: its bytes, as they came, and what they say."""

    data: bytes
    said: Fields

    @property
    def method(self) -> str:
        return text(self.said, "method")

    @property
    def params(self) -> Fields:
        return fields(self.said, "params")

    @property
    def key(self) -> str:
        """What tells its id apart: 1 is another one than "1"."""
        return repr(self.said.get("id"))


@dataclass(slots=True)
class _Conversation:
    """One conversation of the agent, with the turn that goes on in it."""

    id: str
    cwd: str
    prompts: set[str] = field(default_factory=set[str])  # the editor's, by their ids, while their turn is not over
    own: str = ""  # the id of the daemon's prompt, while its turn is not over
    is_running: bool = False  # as version 2 says
    held: list[_AcpLine] = field(default_factory=list[_AcpLine])

    @property
    def is_busy(self) -> bool:
        return bool(self.prompts or self.own)


@dataclass(slots=True)
class _AgentQuestion:
    """A question of the agent that has no answer yet."""

    said: Fields
    number: int  # by which the daemon answers it


@dataclass(slots=True)
class _DaemonCall:
    """What the daemon asked of the agent."""

    link: _DaemonLink
    request: object
    method: str
    session: str


class _DaemonLink:
    """The way to one daemon, while it is there."""

    def __init__(self, queue: MemoryObjectSendStream[bytes], scope: anyio.CancelScope) -> None:
        self._queue = queue
        self._scope = scope

    def say(self, said: Mapping[str, object]) -> None:
        """Say something without waiting; a daemon that is too far behind is let go."""
        try:
            self._queue.send_nowait(json_bytes({"jsonrpc": "2.0", **said}) + b"\n")
        except (anyio.WouldBlock, *HUNG_UP):
            self._scope.cancel()


class _Writer:
    """Writes whole lines to one side, even if the task that says one is cancelled; they wait while it does not read."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream
        self._said, self._lines = anyio.create_memory_object_stream[bytes]()
        self._over = anyio.Event()

    async def run(self) -> None:
        """Write until it is closed, or the other side is gone; then end the stream."""
        try:
            async with self._lines, self._stream:
                async for line in self._lines:
                    await self._stream.send(line + b"\n")
        except (*HUNG_UP, OSError):
            return
        finally:
            self._said.close()
            self._over.set()

    async def say(self, line: bytes) -> None:
        """Say a line; one who is gone is told nothing."""
        with suppress(*HUNG_UP):
            await self._said.send(line)

    async def close(self) -> None:
        """Say no more, and return when all is written."""
        self._said.close()
        await self._over.wait()


class AcpProxy:
    """Stands between one editor and one agent. `run` passes on; `attend` serves a daemon, which may come and go."""

    def __init__(
        self,
        editor: tuple[ByteReceiveStream, ByteSendStream],
        agent: tuple[ByteReceiveStream, ByteSendStream],
        *,
        server: McpServer | None,
        pid: int,
    ) -> None:
        self._editor_in, self._agent_in = editor[0], agent[0]
        self._to_editor, self._to_agent = _Writer(editor[1]), _Writer(agent[1])
        self._server = server
        self._pid = pid
        self._version = OLD
        self._greeting: Fields = {}
        self._asked: dict[str, _AcpLine] = {}  # requests of the editor that change what is known here
        self._calls: dict[str, _DaemonCall] = {}  # requests of the daemon, by the id that the agent was given
        self._questions: dict[str, _AgentQuestion] = {}  # of the agent, by its id
        self._decided: set[str] = set()  # of those that the daemon answered, what the editor has not
        self._conversations: dict[str, _Conversation] = {}
        self._link: _DaemonLink | None = None
        self._prefix = f"harken-{secrets.token_hex(4)}"
        self._numbers = count(1)
        self.editor_left = anyio.Event()

    async def run(self) -> None:
        """Pass on what is said until the agent hangs up. An editor that hangs up is heard no more, and the agent is."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._to_editor.run)
            tasks.start_soon(self._to_agent.run)
            tasks.start_soon(self._read_editor)
            async for data in lines(self._agent_in):
                if data is None:
                    break
                if (said := decoded(data)) is None:
                    await self._to_editor.say(data)
                else:
                    await self._from_agent(_AcpLine(data, said))
            await self._to_editor.close()
            tasks.cancel_scope.cancel()

    async def attend(self, incoming: ByteReceiveStream, outgoing: ByteSendStream) -> None:
        """Serve a daemon until it hangs up, or is let go."""
        queue, said = anyio.create_memory_object_stream[bytes](MAX_BEHIND)
        async with anyio.create_task_group() as tasks:
            link = self._link = _DaemonLink(queue, tasks.cancel_scope)

            async def write() -> None:
                try:
                    async with said:
                        async for line in said:
                            await outgoing.send(line)
                except (*HUNG_UP, OSError):
                    tasks.cancel_scope.cancel()

            tasks.start_soon(write)
            try:
                self._tell_all(link)
                async for data in lines(incoming):
                    if data is None:
                        break
                    if (heard := decoded(data)) is not None:
                        await self._from_daemon(link, _AcpLine(data, heard))
            finally:
                if self._link is link:
                    self._link = None
                queue.close()
                tasks.cancel_scope.cancel()

    def _tell_all(self, link: _DaemonLink) -> None:
        """Say how everything stands, to a daemon that has just come."""
        if not self._greeting:
            return
        link.say(_note(ProxyMethod.AGENT, {"pid": self._pid, "greeting": self._greeting}))
        for each in self._conversations.values():
            link.say(_note(ProxyMethod.SESSION, {"sessionId": each.id, "cwd": each.cwd, "isInTurn": each.is_busy}))
        for question in self._questions.values():
            link.say(_copy(question))

    # -- what the editor says ----------------------------------------------------------------------------------

    async def _read_editor(self) -> None:
        async for data in lines(self._editor_in):
            if data is None:
                break
            said = decoded(data)
            if said is None:
                await self._to_agent.say(data)
                continue
            line = _AcpLine(data, said)
            if not line.method:
                await self._answered_in_editor(line)
            elif "id" in said:
                await self._asked_by_editor(line)
            else:
                await self._told_by_editor(line)
        self.editor_left.set()
        await self._to_agent.close()

    async def _asked_by_editor(self, line: _AcpLine) -> None:
        if line.method in _OPENS:
            line = _AcpLine(self._with_server(line), line.said)
        if line.method == Method.PROMPT:
            found = self._conversations.get(text(line.params, "sessionId"))
            if found is not None and found.own:
                found.held.append(line)
                return
            await self._begin(found, line)
            return
        if line.method == Method.INITIALIZE or line.method in _OPENS or line.method in _ENDS:
            self._asked[line.key] = line
        await self._to_agent.say(line.data)

    async def _begin(self, found: _Conversation | None, line: _AcpLine) -> None:
        """A turn of the editor's begins, or one more prompt goes into it."""
        if found is not None:
            self._asked[line.key] = line
            found.prompts.add(line.key)
            prompt = content_text(line.params.get("prompt"))[:MAX_PROMPT_CHARS]
            self._note(ProxyMethod.TURN, {"sessionId": found.id, "isOver": False, "prompt": prompt})
        await self._to_agent.say(line.data)

    async def _told_by_editor(self, line: _AcpLine) -> None:
        if line.method == Method.CANCEL:
            found = self._conversations.get(text(line.params, "sessionId"))
            while found is not None and found.held:
                await self._not_prompted(found.held.pop(0))
        elif line.method == Method.CANCEL_REQUEST:
            key = repr(line.params.get("requestId"))
            for found in self._conversations.values():
                held = next((each for each in found.held if each.key == key), None)
                if held is not None:
                    found.held.remove(held)
                    await self._not_prompted(held)
                    return
        await self._to_agent.say(line.data)

    async def _not_prompted(self, line: _AcpLine) -> None:
        """Answer a prompt that was held back, and cancelled before the agent had it."""
        cancelled = {"error": {"code": ErrorCode.CANCELLED, "message": "The prompt was cancelled."}}
        answer = {"result": {"stopReason": "cancelled"}} if self._version < NEW else cancelled
        await self._to_editor.say(_line({"id": line.said.get("id"), **answer}))

    async def _answered_in_editor(self, line: _AcpLine) -> None:
        if line.key in self._decided:
            self._decided.discard(line.key)  # the daemon was first
            return
        if line.key not in self._questions:
            await self._to_agent.say(line.data)
            return
        question = self._questions.pop(line.key)
        chosen = text(fields(fields(line.said, "result"), "outcome"), "optionId")
        options = objects(fields(question.said, "params"), "options")
        name = next((text(each, "name") for each in options if text(each, "optionId") == chosen), "")
        session = text(fields(question.said, "params"), "sessionId")
        self._note(ProxyMethod.ANSWERED, {"sessionId": session, "question": question.number, "answer": name})
        await self._to_agent.say(line.data)

    # -- what the agent says -----------------------------------------------------------------------------------

    async def _from_agent(self, line: _AcpLine) -> None:
        if not line.method and line.key in self._calls:
            await self._answered_daemon(line, self._calls.pop(line.key))
            return
        asked = self._asked.pop(line.key, None) if not line.method else None
        if asked is not None:
            self._learn(asked, line)
        elif line.method == Method.ASK and "id" in line.said:
            self._ask(line)
        elif line.method == Method.CANCEL_REQUEST:
            called_off = self._questions.pop(repr(line.params.get("requestId")), None)
            if called_off is not None and self._link:
                self._link.say(_note(Method.CANCEL_REQUEST, {"requestId": called_off.number}))
        await self._to_editor.say(line.data)
        if line.method == Method.UPDATE:
            await self._report(line)

    def _learn(self, asked: _AcpLine, answer: _AcpLine) -> None:
        """An answer to the editor says which conversations there are, and what became of a turn."""
        result, is_refused = fields(answer.said, "result"), "result" not in answer.said
        name = text(result, "sessionId") or text(asked.params, "sessionId")
        if asked.method == Method.PROMPT:
            found = self._conversations.get(name)
            if found is not None and (is_refused or "stopReason" in result):
                found.prompts.discard(asked.key)
                if not found.prompts:
                    self._over(found, text(result, "stopReason"))
        elif is_refused:
            return
        elif asked.method == Method.INITIALIZE:
            version = result.get("protocolVersion")
            self._version = version if isinstance(version, int) else OLD
            self._greeting = result
            self._note(ProxyMethod.AGENT, {"pid": self._pid, "greeting": result})
        elif asked.method in _ENDS:
            if self._conversations.pop(name, None):
                self._note(ProxyMethod.CLOSED, {"sessionId": name})
        elif name:
            found = self._conversations[name] = _Conversation(name, text(asked.params, "cwd"))
            self._note(ProxyMethod.SESSION, {"sessionId": name, "cwd": found.cwd, "isInTurn": False})

    def _ask(self, line: _AcpLine) -> None:
        self._decided.discard(line.key)
        question = self._questions[line.key] = _AgentQuestion(line.said, next(self._numbers))
        if self._link:
            self._link.say(_copy(question))

    async def _report(self, line: _AcpLine) -> None:
        if self._link:
            self._link.say({"method": Method.UPDATE, "params": line.params})
        update = update_of(line.params)
        found = self._conversations.get(update.session) if update else None
        if update is None or found is None or update.kind != UpdateKind.STATE:
            return
        if update.state == SessionState.RUNNING:
            found.is_running = True
        elif update.state == SessionState.IDLE and found.is_running:
            found.is_running = False
            is_own, found.own = bool(found.own), ""
            found.prompts.clear()
            if not is_own:  # else the daemon has read it
                self._over(found, update.stop or "end_turn")
            await self._let_go(found)

    def _over(self, found: _Conversation, stop: str) -> None:
        self._note(ProxyMethod.TURN, {"sessionId": found.id, "isOver": True, "stopReason": stop})

    async def _answered_daemon(self, line: _AcpLine, call: _DaemonCall) -> None:
        """The agent has answered what the daemon asked; one that has gone since hears only that the turn is over."""
        answer = {name: line.said[name] for name in ("result", "error") if name in line.said}
        if call.link is self._link:
            call.link.say({"id": call.request, **answer})
        found = self._conversations.get(call.session)
        result = fields(line.said, "result")
        if found is None or found.own != line.key or ("result" in answer and "stopReason" not in result):
            return
        found.own = ""
        if call.link is not self._link:
            self._over(found, text(result, "stopReason"))
        await self._let_go(found)

    async def _let_go(self, found: _Conversation) -> None:
        """The daemon's turn is over: what the editor has said meanwhile goes to the agent."""
        held, found.held = found.held, []
        for each in held:
            await self._begin(found, each)

    # -- what the daemon says ----------------------------------------------------------------------------------

    async def _from_daemon(self, link: _DaemonLink, line: _AcpLine) -> None:
        if not line.method:
            await self._answered_by_daemon(line)
        elif line.method == Method.CANCEL:
            found = self._conversations.get(text(line.params, "sessionId"))
            if found is not None and found.own:
                await self._to_agent.say(line.data)
        elif "id" in line.said and line.method in (Method.PROMPT, Method.STEER):
            await self._asked_by_daemon(link, line)
        elif "id" in line.said:
            link.say(_refusal(line, ErrorCode.NO_METHOD, "There is no such thing between an editor and its agent."))

    async def _asked_by_daemon(self, link: _DaemonLink, line: _AcpLine) -> None:
        found = self._conversations.get(text(line.params, "sessionId"))
        if found is None:
            link.say(_refusal(line, ErrorCode.NOT_FOUND, "There is no such conversation."))
            return
        is_prompt = line.method == Method.PROMPT
        if is_prompt and found.is_busy:
            link.say(_refusal(line, ErrorCode.BUSY, "A turn goes on."))
            return
        name = f"{self._prefix}-{next(self._numbers)}"
        self._calls[repr(name)] = _DaemonCall(link, line.said["id"], line.method, found.id)
        if is_prompt:
            found.own = repr(name)
            if self._version < NEW:  # of version 2 the agent reports it itself
                prompt = text_block(content_text(line.params.get("prompt")))
                update = {"sessionUpdate": UpdateKind.USER_CHUNK, "content": prompt}
                await self._to_editor.say(_line(_note(Method.UPDATE, {"sessionId": found.id, "update": update})))
        await self._to_agent.say(_line({"id": name, "method": line.method, "params": line.params}))

    async def _answered_by_daemon(self, line: _AcpLine) -> None:
        """The daemon has answered a question, if it did: without a choice the editor goes on asking."""
        outcome = fields(fields(line.said, "result"), "outcome")
        asked = next((each for each in self._questions.items() if each[1].number == line.said.get("id")), None)
        if asked is None or text(outcome, "outcome") != "selected":
            return
        key, question = asked
        del self._questions[key]
        self._decided.add(key)
        request = question.said["id"]
        await self._to_agent.say(_line({"id": request, "result": {"outcome": outcome}}))
        await self._to_editor.say(_line(_note(Method.CANCEL_REQUEST, {"requestId": request})))

    # -- how it is said ----------------------------------------------------------------------------------------

    def _with_server(self, line: _AcpLine) -> bytes:
        """Return a request for a conversation with one more server of tools, unless it has one of that name."""
        servers = objects(line.params, "mcpServers")
        if self._server is None or any(text(each, "name") == self._server.name for each in servers):
            return line.data
        given = [*servers, self._server.as_fields(self._version)]
        return json_bytes({**line.said, "params": {**line.params, "mcpServers": given}})

    def _note(self, method: ProxyMethod, params: Fields) -> None:
        if self._link:
            self._link.say(_note(method, params))


def _line(said: Mapping[str, object]) -> bytes:
    return json_bytes({"jsonrpc": "2.0", **said})


def _note(method: str, params: Fields) -> dict[str, object]:
    return {"method": method, "params": params}


def _refusal(line: _AcpLine, number: int, message: str) -> dict[str, object]:
    return {"id": line.said["id"], "error": {"code": number, "message": message}}


def _copy(question: _AgentQuestion) -> dict[str, object]:
    """Return a question as the daemon is asked it, with the number that says which one it is."""
    params = fields(question.said, "params")
    marked = {**params, "_meta": {**fields(params, "_meta"), META: question.number}}
    return {"id": question.number, "method": Method.ASK, "params": marked}
