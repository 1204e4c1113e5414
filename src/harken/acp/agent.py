"""An agent as its client talks to it: the conversations that it keeps, prompts, what it reports and asks.

`AcpAgent` is above a connection and below what decides: when a prompt is sent, and what is answered to a question, is
its `AgentListener`'s business. It offers no files and no terminals. An agent is started in `runs/process.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from harken.acp.connection import AcpConnection, AcpError
from harken.acp.protocol import (
    NEW,
    OLD,
    VERSIONS,
    AgentGreeting,
    ErrorCode,
    Fields,
    ListedSession,
    McpServer,
    Method,
    PermissionOption,
    PermissionRequest,
    PromptReceipt,
    SessionUpdate,
    greeting_of,
    hello,
    listed_of,
    permission_of,
    receipt_of,
    selected,
    steering_of,
    text,
    text_block,
    update_of,
    withdrawn,
)
from harken.errors import NeedsPerson, Unavailable

GREET_SECONDS: Final = 60.0  # some agents load for half a minute on a busy machine
OPEN_SECONDS: Final = 60.0
CALL_SECONDS: Final = 20.0
MAX_PAGES: Final = 20


class AgentListener(Protocol):
    """What an agent's reports and questions reach."""

    async def updated(self, update: SessionUpdate) -> None:
        """Take a report. The agent's next words wait until it returns."""
        ...

    async def permission(self, request: PermissionRequest) -> PermissionOption | None:
        """Return the answer to a question: one of its options, or None for none. Cancelled when it is called off."""
        ...


TakeNote = Callable[[str, Fields], Awaitable[None]]
"""Takes a notification by its method and its parameters."""


class AcpAgent:
    """An agent that runs. `connected` opens it."""

    def __init__(
        self,
        incoming: ByteReceiveStream,
        outgoing: ByteSendStream,
        listener: AgentListener,
        told: TakeNote | None = None,
    ) -> None:
        self.connection = AcpConnection(incoming, outgoing, _ClientSide(listener, told))
        self.greeting = AgentGreeting(version=OLD)

    async def greet(self) -> AgentGreeting:
        """Greet it: nothing else is answered before that. It chooses the version, of those that we speak."""
        try:
            result = await self.connection.call(Method.INITIALIZE, hello(NEW), seconds=GREET_SECONDS)
        except AcpError:  # of one that refuses what it does not know
            result = await self.connection.call(Method.INITIALIZE, hello(OLD), seconds=GREET_SECONDS)
        self.greeting = greeting_of(result)
        if self.greeting.version not in VERSIONS:
            raise Unavailable(f"The agent speaks version {self.greeting.version} of the protocol.", "Update Harken.")
        return self.greeting

    async def sign_in(self, way: str) -> None:
        """Sign in by one of the ways that its greeting names."""
        await self._ask(Method.AUTHENTICATE, {"methodId": way}, OPEN_SECONDS)

    async def open(self, cwd: str, servers: Sequence[McpServer] = ()) -> str:
        """Begin a conversation in a folder; return its id."""
        result = await self._ask(Method.NEW, self._place(cwd, servers), OPEN_SECONDS)
        if not (session := text(result, "sessionId")):
            raise Unavailable("The agent did not say which conversation it began.")
        return session

    async def load(self, session: str, cwd: str, servers: Sequence[McpServer] = ()) -> None:
        """Take up a conversation; what was said in it is reported again before this returns."""
        params = {"sessionId": session, **self._place(cwd, servers)}
        if self.greeting.version >= NEW:
            await self._ask(Method.RESUME, {**params, "replayFrom": {"type": "start"}}, OPEN_SECONDS)
        else:
            await self._ask(Method.LOAD, params, OPEN_SECONDS)

    async def resume(self, session: str, cwd: str, servers: Sequence[McpServer] = ()) -> None:
        """Take up a conversation, without a report of what was said in it."""
        await self._ask(Method.RESUME, {"sessionId": session, **self._place(cwd, servers)}, OPEN_SECONDS)

    async def sessions(self, cwd: str = "") -> Sequence[ListedSession]:
        """Return the conversations that it has kept, of one folder or of all."""
        found: list[ListedSession] = []
        cursor = ""
        for _ in range(MAX_PAGES):
            params = {**({"cwd": cwd} if cwd else {}), **({"cursor": cursor} if cursor else {})}
            result = await self._ask(Method.LIST, params, CALL_SECONDS)
            found += listed_of(result)
            cursor = text(result, "nextCursor")
            if not cursor:
                break
        return found

    async def close(self, session: str) -> None:
        """End a conversation that is open; the agent may keep it."""
        await self._ask(Method.CLOSE, {"sessionId": session}, CALL_SECONDS)

    async def prompt(self, session: str, said: str) -> PromptReceipt:
        """Say something as the user: of version 1 this returns when the turn is over, of version 2 when it is taken.

        Never while a turn runs, unless the agent is known to let a second prompt join: others cancel what they do.
        """
        result = await self._ask(Method.PROMPT, {"sessionId": session, "prompt": [text_block(said)]}, None)
        return receipt_of(result)

    async def steer(self, session: str, said: str) -> str:
        """Say something into the turn that runs; return what became of it, a `SteeringOutcome` or another word."""
        params = {
            "sessionId": session,
            "prompt": [text_block(said)],
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        }
        return steering_of(await self._ask(Method.STEER, params, CALL_SECONDS))

    async def cancel(self, session: str) -> None:
        """Stop the turn of a conversation: its prompt is answered then."""
        await self.connection.tell(Method.CANCEL, {"sessionId": session})

    def _place(self, cwd: str, servers: Sequence[McpServer]) -> dict[str, object]:
        return {"cwd": cwd, "mcpServers": [each.as_fields(self.greeting.version) for each in servers]}

    async def _ask(self, method: str, params: Fields, seconds: float | None) -> Fields:
        try:
            return await self.connection.call(method, params, seconds=seconds)
        except AcpError as exc:
            if exc.number != ErrorCode.NEEDS_SIGN_IN:
                raise
            name = self.greeting.name or "The agent"
            raise NeedsPerson(f"{name} wants you to sign in first.", exc.message, action="sign in") from exc


@asynccontextmanager
async def connected(
    incoming: ByteReceiveStream, outgoing: ByteSendStream, listener: AgentListener, told: TakeNote | None = None
) -> AsyncIterator[AcpAgent]:
    """Talk to an agent over its streams while the context is open; `told` takes notifications that are no reports."""
    agent = AcpAgent(incoming, outgoing, listener, told)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.connection.run)
        try:
            yield agent
        finally:
            tasks.cancel_scope.cancel()


class _ClientSide:
    """What an agent reaches of its client."""

    def __init__(self, listener: AgentListener, told: TakeNote | None) -> None:
        self._listener = listener
        self._told = told

    async def asked(self, method: str, params: Fields) -> object:
        """Answer a request of the agent."""
        if method != Method.ASK:
            raise AcpError(ErrorCode.NO_METHOD, f"There is no {method[:80]} here.")
        request = permission_of(params)
        if request is None:
            raise AcpError(ErrorCode.BAD_PARAMS, "The question cannot be read.")
        option = await self._listener.permission(request)
        return withdrawn() if option is None else selected(option)

    async def told(self, method: str, params: Fields) -> None:
        """Take a report of the agent."""
        if method == Method.UPDATE:
            if update := update_of(params):
                await self._listener.updated(update)
        elif self._told is not None:
            await self._told(method, params)
