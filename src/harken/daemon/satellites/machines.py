"""The machines that are joined to this daemon: lets satellites in by their tokens, and reaches their sessions.

A satellite asks for a web socket at `/link` with its token, its id and the protocol that it speaks. All of that is
checked before the web socket is there; a wrong token is answered slowly. A token that is revoked ends its links at
once, and its use is noted again and again, so that one that ran out or was revoked elsewhere ends them too.

Each stream of a link is a connection of the satellite's socket, served like one of ours. What only that machine can do
is asked of it: `SatelliteReach` in `session_wiring.py` says what. A link that is cut is to its sessions what a restart
of the daemon is: what they did meanwhile is not known.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from harken import __version__
from harken.clock import Signal
from harken.config.home import Home
from harken.config.satellite import LINK_PATH, machine_id
from harken.daemon.callers import DistantOrigin, OriginFacts
from harken.daemon.listener import Listener
from harken.daemon.public.gate import GateSettings, address_of
from harken.daemon.public.listener import WRONG_SECONDS
from harken.daemon.satellites.link import MAX_FACTS, BrokenProtocol, LinkStream, SatelliteLink
from harken.daemon.session_wiring import SessionWiring
from harken.daemon.supervisor import contain
from harken.dispatch.bells import Bells, bell_file
from harken.display import one_line
from harken.errors import Forbidden, HarkenError, Unavailable, Uncertain, UserError
from harken.hosts.hook import Hello
from harken.hosts.wake import WakeTarget, WakeWay
from harken.inbox.access import MACHINE, ConnectedMachine, Tokens
from harken.memory import json_bytes
from harken.model import SessionKey
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.store.contract.tokens import Token

_log = logging.getLogger("harken.machines")

LINK_PROTOCOL: Final = 1
PROTOCOL_HEADER: Final = "harken-link"
MACHINE_HEADER: Final = "harken-machine"
HELLO_SECONDS: Final = 10.0
USED_EVERY_SECONDS: Final = 60.0
WAKE_SECONDS: Final = 25.0
WAYS_PAUSES: Final = (1.0, 5.0, 15.0, 60.0, 0.0)  # between two times that the ways to wake a session are asked for
MAX_WATCHED: Final = 2_000
MAX_VERSION_CHARS: Final = 40
REVOKED: Final = 4_001
REPLACED: Final = 4_002
NOT_OURS: Final = 4_003
ENDED: Final = 1_001
BROKEN: Final = "The link was not kept to its protocol."
_BEARER: Final = "Bearer "
_MACHINE_ID: Final = re.compile(r"[0-9a-f]{16,64}")
_REACHED: Final = "its machine is out of reach"


class SatelliteHello(msgspec.Struct, kw_only=True):
    """What a satellite says of itself first."""

    version: str = ""
    trial_dir: str = ""
    watched: tuple[str, ...] = ()  # bells of which sessions were told


class WayFacts(msgspec.Struct, kw_only=True):
    """A host's own way to wake a session, as a satellite tells of it."""

    surface: str
    has_hindrance: bool = False
    speaks_as_user: bool = False
    runs_prompt_hook: bool = True


@dataclass(slots=True, eq=False)
class JoinedMachine:
    """A satellite while its web socket is open."""

    token: Token
    socket: WebSocket
    address: str
    hello: SatelliteHello = field(default_factory=SatelliteHello)
    link: SatelliteLink | None = None
    tasks: TaskGroup | None = None
    gone: frozenset[tuple[int, str]] = frozenset()  # processes of sessions that have ended
    watched: set[str] = field(default_factory=set[str])
    news: Signal = field(default_factory=Signal)
    rung: list[SessionKey] = field(default_factory=list[SessionKey])
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    reason: tuple[int, str] = (ENDED, "The main daemon has stopped.")
    is_over: anyio.Event = field(default_factory=anyio.Event)  # nothing of its link is left

    @property
    def name(self) -> str:
        """The machine, as people call it: its token's name."""
        return self.token.name

    @property
    def is_revoked(self) -> bool:
        """Whether it may not come back."""
        return self.reason[0] == REVOKED

    def end(self, code: int, why: str) -> None:
        """End the link, and say why."""
        if not self.scope.cancel_called:
            self.reason = code, why
            if self.link is not None:
                self.link.break_off()
            self.scope.cancel()


class Machines:
    """The satellites of one daemon."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        listener: Listener,
        wiring: SessionWiring,
        sessions: Sessions,
        bells: Bells,
        home: Home,
        gate: GateSettings,
    ) -> None:
        self._tokens = tokens
        self._listener = listener
        self._wiring = wiring
        self._sessions = sessions
        self._bells = bells
        self._trial_dir = str(home.trial_dir)
        self._own_id = machine_id(home)
        self._proxies = gate.proxies
        self._slowdown, self._looks = gate.memory.slowdown, gate.memory.looks
        self._open: set[JoinedMachine] = set()  # also before a machine has said who it is
        self._here: dict[str, JoinedMachine] = {}
        self._last: dict[str, JoinedMachine] = {}  # of each name, the one that came last and may not be here yet
        self._leaving: set[str] = set()
        self._news = Signal()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def route(self) -> WebSocketRoute:
        """Where satellites are let in."""
        return WebSocketRoute(LINK_PATH, self.serve)

    def here(self) -> Mapping[str, ConnectedMachine]:
        """Return the machines that are here, by name."""
        return {
            name: ConnectedMachine(version=each.hello.version, address=each.address, sessions=self._count(name))
            for name, each in self._here.items()
        }

    async def run(self) -> None:
        """Reach the sessions of satellites while this runs, and let those go with a revoked token."""
        self._loop = asyncio.get_running_loop()
        self._tokens.observe(self._revoked)
        self._bells.reach_satellites(self._bells_changed)
        self._sessions.observe(self._sessions_changed)
        self._wiring.reach_satellites(self)
        while True:
            while self._leaving:
                name = self._leaving.pop()
                if name not in self._here:
                    await self._wiring.dismiss(name)
            await self._news.wait(USED_EVERY_SECONDS)

    # -- letting them in --------------------------------------------------------------------------------------

    async def serve(self, socket: WebSocket) -> None:
        """Serve one satellite, or say why not."""
        try:
            token = await self._admit(socket)
        except HarkenError as exc:
            _log.debug("refused a satellite: %s", exc.message)
            answer = Response(json_bytes({"error": exc.as_dict()}), exc.http_status, media_type="application/json")
            await socket.send_denial_response(answer)
            return
        machine = JoinedMachine(token, socket, address_of(socket.scope, self._proxies))
        self._open.add(machine)
        try:
            await socket.accept()
            with machine.scope:
                await self._serve(machine)
        except (WebSocketDisconnect, ClientDisconnected, anyio.EndOfStream, anyio.BrokenResourceError):
            return
        finally:
            self._open.discard(machine)
        if machine.scope.cancelled_caught:
            with anyio.CancelScope(shield=True), anyio.move_on_after(HELLO_SECONDS):
                await socket.close(*machine.reason)

    async def _admit(self, socket: WebSocket) -> Token:
        address = address_of(socket.scope, self._proxies)
        spoken = socket.headers.get(PROTOCOL_HEADER, "")
        machine = socket.headers.get(MACHINE_HEADER, "")
        if machine == self._own_id:
            raise UserError("This is the home of that main daemon.", "It needs no link: it has the inbox itself.")
        said = socket.headers.get("authorization", "")
        # A wrong id is like a wrong token: nobody finds out which it was.
        secret = said.removeprefix(_BEARER) if said.startswith(_BEARER) and _MACHINE_ID.fullmatch(machine) else ""
        if self._slowdown.is_shut_out(address) and not self._tokens.is_known(secret):
            await anyio.sleep(WRONG_SECONDS)
            raise Unavailable("Too many wrong tokens came from this address.", "Wait a minute.", retry_after=60.0)
        try:
            async with self._looks:
                token = await self._tokens.admit(secret, MACHINE, machine, address)
        except Forbidden:
            await self._slowdown.hold_up(address)
            raise
        if spoken != str(LINK_PROTOCOL):
            raise UserError(
                f"The main daemon {__version__} speaks link protocol {LINK_PROTOCOL}, this machine {spoken[:20]!r}.",
                "Install the same version of Harken on both machines.",
            )
        return token

    async def _serve(self, machine: JoinedMachine) -> None:
        socket = AsgiSocket(machine.socket)
        await socket.send(json_bytes({"machine": machine.name, "version": __version__, "protocol": LINK_PROTOCOL}))
        try:
            machine.hello = await _hello_of(socket)
        except (BrokenProtocol, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            machine.end(NOT_OURS, "This is not the hello of a satellite.")
        # It may have been revoked since it was looked at.
        await self._note_use(machine)
        machine.watched.update(machine.hello.watched[:MAX_WATCHED])
        former, self._last[machine.name] = self._last.get(machine.name), machine
        try:
            if former is not None:
                # What its sessions did since it fell silent is not known: it has to be lost before it is regained.
                former.end(REPLACED, "The machine has connected again.")
                await former.is_over.wait()
            await self._keep(
                machine,
                SatelliteLink(
                    socket, is_first=False, accept=partial(self._accept, machine), told=partial(self._told, machine)
                ),
            )
        finally:
            machine.is_over.set()
            if self._last.get(machine.name) is machine:
                del self._last[machine.name]

    async def _keep(self, machine: JoinedMachine, link: SatelliteLink) -> None:
        """Know a machine as here while its link lives."""
        self._here[machine.name], machine.link = machine, link
        _log.info("the machine %s is here, from %s", machine.name, machine.address)
        try:
            await self._relay(machine, link)
        finally:
            with anyio.CancelScope(shield=True):
                await self._forget(machine)

    async def _relay(self, machine: JoinedMachine, link: SatelliteLink) -> None:
        async with anyio.create_task_group() as machine.tasks:
            machine.tasks.start_soon(self._keep_noted, machine)
            machine.tasks.start_soon(self._tell_news, machine)
            machine.tasks.start_soon(self._wiring.reap, machine.name)
            self._wiring.regain(machine.name)
            try:
                await link.run()
            except BrokenProtocol:
                machine.end(NOT_OURS, BROKEN)
            machine.tasks.cancel_scope.cancel()

    async def _forget(self, machine: JoinedMachine) -> None:
        _log.info("the machine %s is gone", machine.name)
        del self._here[machine.name]
        if machine.is_revoked:
            await self._wiring.dismiss(machine.name)
        else:
            await self._wiring.lose_touch(machine.name)

    async def _accept(self, machine: JoinedMachine, stream: LinkStream, facts: bytes) -> None:
        """Serve a connection of the satellite's socket."""
        try:
            told = msgspec.json.decode(facts, type=OriginFacts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            machine.end(NOT_OURS, BROKEN)
            return
        if machine.gone:
            await self._wiring.bury(machine.name)
        origin = DistantOrigin(
            satellite=machine.name, facts=told, trials=(machine.hello.trial_dir.rstrip("/"), self._trial_dir)
        )
        serving = self._listener.handle_distant(stream, origin, is_in_run=bool(told.run))
        await contain("a connection of a satellite", serving)

    def _told(self, machine: JoinedMachine, said: Mapping[str, Any]) -> None:
        try:
            gone = msgspec.convert(said.get("gone", ()), list[tuple[int, str]])
        except msgspec.ValidationError as exc:
            raise BrokenProtocol from exc
        machine.gone = frozenset(gone[:MAX_WATCHED])

    async def _keep_noted(self, machine: JoinedMachine) -> None:
        """Note that a machine is here, for as long as its token is good."""
        while True:
            await anyio.sleep(min(USED_EVERY_SECONDS, self._tokens.seconds_left(machine.token)))
            await self._note_use(machine)

    async def _note_use(self, machine: JoinedMachine) -> None:
        try:
            await self._tokens.note_use(machine.token, machine.address)
        except Forbidden as exc:
            machine.end(REVOKED, exc.message)
        except HarkenError as exc:
            _log.warning("it could not be noted that %s is here: %s", machine.name, exc.message)
        # One that was ended goes no further.
        await anyio.lowlevel.checkpoint()

    def _revoked(self, token: Token) -> None:
        for machine in tuple(self._open):
            if machine.token.id == token.id:
                machine.end(REVOKED, "The token of this machine was revoked.")
        self._leaving.add(token.name)
        self._news.ring()

    # -- telling them what is new -----------------------------------------------------------------------------

    def _bells_changed(self, satellite: str) -> None:
        """Tell a satellite of its bells; called from any thread, and before a commit."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ring_news, satellite)

    def _ring_news(self, satellite: str) -> None:
        if (machine := self._here.get(satellite)) is not None:
            machine.news.ring()

    def _sessions_changed(self) -> None:
        for machine in self._here.values():
            machine.news.ring()

    async def _tell_news(self, machine: JoinedMachine) -> None:
        """Keep the bells of a satellite true, and let it look at the processes of its sessions."""
        bells: Collection[str] | None = None
        watch: Collection[tuple[int, str]] | None = None
        while machine.link is not None:
            ringing = sorted(self._bells.ringing_on(machine.name))
            processes = sorted({(each.pid, each.process_identity) for each in self._of(machine) if each.pid > 1})
            rung, machine.rung = machine.rung, []
            try:
                if ringing != bells:
                    await machine.link.tell(bells=ringing)
                if processes != watch:
                    await machine.link.tell(watch=processes[:MAX_WATCHED])
                for session in rung:
                    await machine.link.tell(ring=session)
            except anyio.BrokenResourceError:
                return
            bells, watch = ringing, processes
            await machine.news.wait(USED_EVERY_SECONDS)

    def _of(self, machine: JoinedMachine) -> Sequence[Session]:
        return self._sessions.of_satellite(machine.name)

    def _count(self, name: str) -> int:
        return len(self._sessions.of_satellite(name))

    # -- reaching their sessions ------------------------------------------------------------------------------

    async def bell_path(self, session: Session) -> str:
        """Return where the session's own bell is there; it is there when the host hears of it."""
        machine = self._here.get(session.satellite)
        if machine is None or machine.link is None:
            return ""
        try:
            answer = await machine.link.ask(do="bell", session=session.key)
        except HarkenError:
            return ""
        path = str(answer.get("path", ""))
        if path:
            machine.watched.add(bell_file(session.key))
        return path

    def is_watched(self, session: Session) -> bool:
        """Whether the session was told of its bell."""
        machine = self._here.get(session.satellite)
        return machine is not None and bell_file(session.key) in machine.watched

    def ring(self, session: Session) -> bool:
        """Let the session's own bell change; return whether the machine can be reached."""
        machine = self._here.get(session.satellite)
        if machine is None:
            return False
        machine.rung.append(session.key)
        machine.news.ring()
        return True

    def is_gone(self, session: Session) -> bool:
        """Whether the machine has said that the session's process is gone."""
        machine = self._here.get(session.satellite)
        return machine is not None and (session.pid, session.process_identity) in machine.gone

    async def read_record(self, session: Session) -> Collection[str]:
        """Return what the host's record there proves; nothing while the machine is out of reach."""
        machine = self._here.get(session.satellite)
        unproven = [str(each) for each in session.unproven]
        if machine is None or machine.link is None or not unproven or not session.transcript:
            return ()
        try:
            answer = await machine.link.ask(do="record", host=session.host, path=session.transcript, ids=unproven)
            found = msgspec.convert(answer.get("proven", ()), list[str])
        except (HarkenError, msgspec.ValidationError):
            return ()
        return [each for each in found if each in unproven]

    async def look_up(self, satellite: str, asked: Mapping[str, object]) -> Mapping[str, Any]:
        """Return what the files of a host there say; nothing while the machine is out of reach, or of a long text."""
        machine = self._here.get(satellite)
        if machine is None or machine.link is None or len(json_bytes(asked)) > MAX_FACTS:
            return {}
        try:
            return await machine.link.ask(**asked)
        except HarkenError:
            return {}

    def find_ways(self, session: Session, hello: Hello) -> None:
        """Ask for the host's own ways to wake the session, and add them when the answer is here."""
        machine = self._here.get(session.satellite)
        if machine is not None and machine.tasks is not None:
            machine.tasks.start_soon(self._find_ways, machine, session, hello)

    async def _find_ways(self, machine: JoinedMachine, session: Session, hello: Hello) -> None:
        target = WakeTarget(native=session.native, pid=session.pid, cwd=session.cwd, env=hello.env)
        for pause in WAYS_PAUSES:
            try:
                if machine.link is None:
                    return
                answer = await machine.link.ask(do="ways", host=session.host, target=target)
                found = msgspec.convert(answer["ways"], list[WayFacts])
            except (HarkenError, KeyError, msgspec.ValidationError) as exc:
                _log.warning("the ways to wake %s are not known: %s", session.key, exc)
                # An idle session has no hook that would ask once more.
                await anyio.sleep(pause)
            else:
                self._wiring.add_ways([self._way(session, each) for each in found], session, hello)
                return

    def _way(self, session: Session, facts: WayFacts) -> WakeWay:
        name, host, surface = session.satellite, session.host, facts.surface

        async def send(target: WakeTarget, text: str) -> bool | None:
            machine = self._here.get(name)
            try:
                if machine is None or machine.link is None:
                    return False
                answer = await machine.link.ask(
                    WAKE_SECONDS, do="wake", host=host, surface=surface, target=target, text=text
                )
            except Uncertain:
                return None  # it may have been asked: then its host has the text
            except Unavailable:
                return False
            taken = answer.get("taken")
            return taken if isinstance(taken, bool) else None

        async def hindrance(target: WakeTarget) -> str:
            machine = self._here.get(name)
            try:
                if machine is None or machine.link is None:
                    return _REACHED
                answer = await machine.link.ask(do="hindrance", host=host, surface=surface, target=target)
            except HarkenError:
                return _REACHED
            return str(answer.get("hindrance", ""))

        return WakeWay(
            surface=surface,
            send=send,
            hindrance=hindrance if facts.has_hindrance else None,
            speaks_as_user=facts.speaks_as_user,
            runs_prompt_hook=facts.runs_prompt_hook,
        )


class AsgiSocket:
    """The web socket of a satellite, as a link needs it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Send one message."""
        try:
            await self._socket.send_bytes(data)
        except (WebSocketDisconnect, ClientDisconnected, RuntimeError) as exc:
            raise anyio.BrokenResourceError from exc

    async def receive(self) -> bytes:
        """Return the next message."""
        message = await self._socket.receive()
        if message["type"] != "websocket.receive":
            raise anyio.EndOfStream
        data = message.get("bytes")
        if data is None:
            raise BrokenProtocol
        return bytes(data)


async def _hello_of(socket: AsgiSocket) -> SatelliteHello:
    """Return what a satellite says of itself; one that says nothing in time has said nothing."""
    said = b""
    with anyio.move_on_after(HELLO_SECONDS):
        said = await socket.receive()
    hello = msgspec.json.decode(said, type=SatelliteHello)
    # It is shown to people, for as long as the machine is here.
    hello.version = one_line(hello.version[:MAX_VERSION_CHARS])
    return hello
