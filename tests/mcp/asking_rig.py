"""A daemon's parts without its sockets, a rule that asks, and clients on the official SDK with a person behind them.

The clock stands still until a test moves it, so nobody has to wait for a person to read. This module tests nothing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import anyio
import mcp_types as types
from anyio.abc import SocketStream, TaskGroup
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.context import ClientRequestContext
from mcp.shared.message import SessionMessage

from harken.automation import Action, ActionState
from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import Daemon, compose
from harken.daemon.confirmations import Confirmations
from harken.hosts.hook import Hello
from harken.inbox.caller import Caller, Role
from harken.processes import LocalOrigin
from harken.sessions.session import Session
from harken.sessions.turns import HookMoment
from harken.surfaces.mcp.services import FormChoice
from harken.surfaces.wire import LineReader
from harken.testing import FakeClock
from tests.hooks.rig import CLAUDE, Kind, Say

SOON: Final = 15.0
OWNER: Final = Caller(role=Role.OWNER)
RULE: Final = {
    "name": "incident",
    "channel": "ci",
    "mode": "confirm",
    "prompt": "Find out what this is about.",
    "tools": ["read_file"],
    "agent": "gemini-cli",
}


@dataclass(eq=False)
class Person:
    """Somebody before a session: what they were shown, and what they will say."""

    clock: FakeClock
    reads_seconds: float = 5.0
    shown: list[str] = field(default_factory=list)
    forms: list[dict[str, object]] = field(default_factory=list)
    was_taken_away: anyio.Event = field(default_factory=anyio.Event)
    is_asked: anyio.Event = field(default_factory=anyio.Event)
    _decided: anyio.Event = field(default_factory=anyio.Event)
    _answer: types.ElicitResult = field(default_factory=lambda: types.ElicitResult(action="cancel"))

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Show a question until it is answered or taken away."""
        del context
        assert isinstance(params, types.ElicitRequestFormParams)
        self.shown.append(params.message)
        self.forms.append(dict(params.requested_schema))
        self.is_asked.set()
        try:
            await self._decided.wait()
        except anyio.get_cancelled_exc_class():
            self.was_taken_away.set()
            raise
        self.clock.advance(self.reads_seconds)
        self._decided, self.is_asked = anyio.Event(), anyio.Event()
        return self._answer

    def say(self, choice: str, action: str) -> None:
        """Fill in the form."""
        self._give(types.ElicitResult(action="accept", content={action: choice}))

    def dismiss(self, how: Literal["decline", "cancel"]) -> None:
        """Put the form away."""
        self._give(types.ElicitResult(action=how))

    def _give(self, answer: types.ElicitResult) -> None:
        self._answer = answer
        self._decided.set()


@dataclass
class Room:
    """The parts, and who is here."""

    daemon: Daemon
    clock: FakeClock
    tasks: TaskGroup
    clients: list[Client] = field(default_factory=list)
    _pids: int = 4_000_000  # higher than any process has

    def person(self, reads_seconds: float = 5.0) -> Person:
        """Return somebody who takes their time."""
        return Person(self.clock, reads_seconds)

    async def fire(self, text: str = "the build is red", sender: str = "ci-bot") -> Action:
        """Let a message come that the rule asks about; return what waits."""
        await self.daemon.inbox.send(OWNER, text, sender=sender, channel="ci")
        await self.daemon.rule_wiring.judge.catch_up()
        return (await self.daemon.store.actions.list([ActionState.WAITING]))[0]

    async def state(self, action: Action) -> tuple[ActionState, str]:
        """Return what became of an action, and who decided."""
        now = await self.daemon.store.actions.get(action.id)
        return now.state, now.decided_by

    async def until(self, action: Action, state: ActionState) -> str:
        """Return who decided, once an action is in a state."""
        with anyio.fail_after(SOON):
            while (now := await self.state(action))[0] is not state:
                await anyio.lowlevel.checkpoint()
        return now[1]

    async def settled(self) -> None:
        """Return once everything that could be asked was asked, and has reached whoever it was for."""
        await anyio.wait_all_tasks_blocked()
        await self.daemon.confirmations.look(self.tasks)
        await anyio.wait_all_tasks_blocked()
        # What was sent before an answer is read before it.
        for client in self.clients:
            await client.list_tools()
        await anyio.wait_all_tasks_blocked()

    @asynccontextmanager
    async def session(
        self,
        person: Person | None,
        *,
        kind: Kind = CLAUDE,
        mode: Literal["legacy", "auto"] = "legacy",
        cwd: str = "/",
        is_idle: bool = True,
    ) -> AsyncIterator[Session]:
        """A client that is connected; idle as its host's hook says at the end of a turn."""
        self._pids += 1
        hello = Hello(edge=f"e{self._pids}", ppid=self._pids, cwd=cwd)
        hello = replace(hello, env={kind.variable: _native(hello)} if kind.variable else {})
        info = types.Implementation(name=kind.client, version="1")
        with anyio.fail_after(4 * SOON):
            async with Client(self._wire(hello), mode=mode, client_info=info, elicitation_callback=person) as connected:
                await connected.list_tools()
                (session,) = [each for each in self.daemon.inbox.sessions.live() if each.pid == hello.ppid]
                if is_idle:
                    await self._end_turn(hello, kind)
                self.clients.append(connected)
                yield session
                self.clients.remove(connected)

    async def _end_turn(self, hello: Hello, kind: Kind) -> None:
        """Run the hook that a host runs at the end of a turn, again when it was held up by what waits."""
        if not await self._stop(hello, kind, is_held=False):
            assert await self._stop(hello, kind, is_held=True), "the turn does not end"

    async def _stop(self, hello: Hello, kind: Kind, *, is_held: bool) -> bool:
        """Return whether the turn ended."""
        words = kind.words(HookMoment.STOP, Say(native=_native(hello), turn="t1", cwd=hello.cwd, is_held=is_held))
        payload = json.dumps(words).encode()
        env = {"CLAUDE_PID": str(hello.ppid)} if kind is CLAUDE else {}
        said = Hello(host=kind.name, moment="stop", payload=len(payload), ppid=hello.ppid, env=env)
        ours, theirs = await _pair()
        async with ours, theirs, anyio.create_task_group() as tasks:
            tasks.start_soon(self.daemon.wiring.serve_hook, theirs, LineReader(theirs), said, LocalOrigin(1))
            await ours.send(payload)
            printed = await LineReader(ours).read()
            await ours.send(b"+")
        return printed == b"0 0 0"

    @asynccontextmanager
    async def _wire(self, hello: Hello) -> AsyncIterator[TransportStreams]:
        ours, theirs = await _pair()
        to_client, for_client = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        to_wire, for_wire = anyio.create_memory_object_stream[SessionMessage](16)

        async def read() -> None:
            lines = LineReader(ours)
            async with to_client:
                while (line := await lines.read()) is not None:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await to_client.send(SessionMessage(message))

        async def write() -> None:
            async for item in for_wire:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await ours.send(data.encode() + b"\n")

        async with ours, theirs, for_client, to_wire, for_wire, anyio.create_task_group() as tasks:
            self.tasks.start_soon(self.daemon.serve_mcp, theirs, LineReader(theirs), hello, LocalOrigin())
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield for_client, to_wire
            tasks.cancel_scope.cancel()


def _native(hello: Hello) -> str:
    return f"n{hello.ppid}"


async def _pair() -> Sequence[SocketStream]:
    return [await SocketStream.from_socket(each) for each in socket.socketpair()]


@asynccontextmanager
async def open_room(folder: Path, *, has_person: bool = True) -> AsyncIterator[Room]:
    """Open the parts over a home with one rule that asks."""
    home, clock, settings = Home(folder), FakeClock(), Settings()
    ensure(home)
    home.triggers_file.write_text(json.dumps({"rules": [RULE]}))
    home.triggers_file.chmod(0o600)
    async with compose(home, settings, clock) as daemon, anyio.create_task_group() as tasks:
        daemon.confirmations = Confirmations(
            daemon.store.changes,
            daemon.rule_wiring.automation,
            daemon.inbox.sessions,
            clock,
            usual=settings.runs,
            is_manned=lambda _session: has_person,
        )
        tasks.start_soon(daemon.confirmations.run)
        yield Room(daemon, clock, tasks)
        tasks.cancel_scope.cancel()


YES: Final = FormChoice.YES.value
NO: Final = FormChoice.NO.value
LATER: Final = FormChoice.LATER.value
