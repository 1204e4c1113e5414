"""The daemon of a satellite: it has no store, and carries each connection of its socket to the main daemon.

What only this machine can know goes along with each connection: the processes at its other end, and the marks of hosts
in their environment. What only it can do, the main daemon asks for: ringing bells, waking hosts, reading their records,
looking whether processes are there. Nothing is accepted here: without a link every call is told so at once, hooks are
silent, and edges ask again when the link is back.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import ssl
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import ByteStream
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, InvalidState, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from harken import __version__
from harken.clock import Signal
from harken.config.home import Home
from harken.config.satellite import LINK_PATH, JoinRecord, machine_id
from harken.config.settings import Settings
from harken.control.client import as_error
from harken.daemon.callers import OriginFacts, ProcessFacts, ancestors, environment_of, held_limit, run_of
from harken.daemon.listener import Listener, Ownership, announce, as_line, open_endpoint, places_here, refuse
from harken.daemon.satellites.link import BrokenProtocol, SatelliteLink
from harken.daemon.session_wiring import evidence_of, proven_by, still_asks
from harken.daemon.supervisor import Supervisor
from harken.dispatch.bells import Bells
from harken.errors import Forbidden, HarkenError, NeedsPerson, Unavailable, UserError
from harken.hosts.hook import ASK, Hello
from harken.hosts.registry import host_marks, host_named, host_names, hosts
from harken.hosts.wake import HostWaker, WakeTarget, WakeWay
from harken.memory import json_bytes
from harken.model import ApprovalChoice, SessionKey
from harken.processes import Origin, command_line, identity_of, is_alive
from harken.runs.mark import MARK
from harken.surfaces.wire import LineReader

_log = logging.getLogger("harken.satellite")

LINK_PROTOCOL: Final = 1
CONNECT_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 35.0  # the main daemon gives a sign of life more often
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 5.0
REFUSED_PAUSE_SECONDS: Final = 30.0
GRACE_SECONDS: Final = 2.0  # how long a call waits for a link that was cut just now
LOOK_SECONDS: Final = 2.0
HOOK_SECONDS: Final = 3.0  # how long a hook waits while nothing at all comes over the link
LOOK_SOON_SECONDS: Final = 0.2  # when a connection has ended: its process probably ends too
SOON_SECONDS: Final = 5.0
MAX_WORDS, MAX_WORD_CHARS = 64, 200
MAX_PROCESSES: Final = 32
MAX_WATCHED_BELLS: Final = 2_000
MAX_WATCHED: Final = 2_000
MAX_FRAME: Final = 1 << 20
CHUNK: Final = 65_536
PID_DIGITS: Final = 9
MAX_ENVIRONS: Final = 2_000
GIVEN_ID: Final = re.compile(r"d-[0-9A-Za-z_-]{4,64}")  # of a delivery
EVERYWHERE: Final = ("HOME", "PATH")  # what waking any host may need of its environment
PROCESS_ENDING: Final = "_PID"  # of variables by which hosts name a process

_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
_FAILURES: Final = (HarkenError, OSError, ValueError, anyio.IncompleteRead, *_GONE)


async def serve(home: Home, settings: Settings, record: JoinRecord) -> None:
    """Run the daemon of a satellite until SIGTERM or SIGINT. The caller holds the home's lock."""
    home.down_file.unlink(missing_ok=True)
    satellite = Satellite(home, record)
    lock = Ownership(home.lock_file)
    try:
        async with open_endpoint(home, settings.daemon.transport) as endpoint, anyio.create_task_group() as tasks:
            supervisor = Supervisor(tasks)
            own = Ownership(home.lock_file, *endpoint.files)
            surfaces = {kind: partial(satellite.carry, kind) for kind in ("mcp", "call", "hook", "wake")}
            listener = Listener(surfaces, endpoint.token, places=places_here(), find_run=satellite.run_of)
            supervisor.start("socket", partial(endpoint.listener.serve, listener.handle))
            supervisor.start("link", satellite.run)
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                announce(home, endpoint.address, url=record.url)
                _log.info("Harken %s serves %s as a satellite of %s", __version__, home.path, record.url)
                await own.until_told(signals)
            tasks.cancel_scope.cancel()
    finally:
        satellite.silence()
        for leftover in () if lock.is_lost else (home.address_file, home.daemon_file):
            leftover.unlink(missing_ok=True)
    _log.info("stopped")


async def try_link(home: Home, record: JoinRecord) -> str:
    """Connect once, and return what the main daemon calls this machine; raises why it cannot be."""
    async with connected(home, record) as socket:
        return await _greeting(socket, record)


@dataclass(frozen=True, slots=True)
class _WakeEnvironment:
    """What a host's process had in its environment that waking it needs."""

    identity: str
    variables: Mapping[str, str]


class Satellite:
    """The local side."""

    def __init__(self, home: Home, record: JoinRecord) -> None:
        self._home = home
        self._record = record
        self._trial_dir = os.path.realpath(home.trial_dir)
        self._bells = Bells(home.bells_dir)
        self._link: SatelliteLink | None = None
        self._socket: MainSocket | None = None
        self._deaf_since = float("inf")  # since when nothing was heard over the link, as far as a hook has found out
        self._wanted: Collection[str] = ()  # the bells that are to ring
        self._linked = anyio.Event()
        self._cut_at = float("-inf")
        self._problem: HarkenError = Unavailable(
            f"The link to {record.url} is not there yet.", "Harken tries by itself. Try again.", retry_after=1.0
        )
        self._host_wakers: dict[str, HostWaker] = {}
        self._watch: Sequence[tuple[int, str]] = ()
        self._gone: Sequence[tuple[int, str]] = ()  # of those, what the main daemon was told is gone
        self._ended, self._ended_at = Signal(), float("-inf")  # a connection by which a host knows that it is here
        self._own_limit = held_limit(os.getpid())
        known = host_marks().values()
        marks = {MARK, *(name for each in known for name in (*each.variables, each.session, each.process))}
        self._marks = tuple(sorted(filter(None, marks)))
        self._hosts = frozenset(host_names())
        self._kept_here = frozenset({*EVERYWHERE, *(name for each in hosts().values() for name in each.wake_variables)})
        self._environs: dict[int, _WakeEnvironment] = {}  # of processes that are hosts, perhaps

    def run_of(self, pid: int) -> str:
        """Return the run that a process belongs to; empty when none."""
        return run_of(pid, self._own_limit)

    def silence(self) -> None:
        """Let no bell ring: no question would be answered."""
        for host in self._bells.ringing:
            self._bells.silence(host, self._bells.rings(host))

    async def run(self) -> None:
        """Keep the link, for ever."""
        self._bells.clear()
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = anyio.current_time()
            try:
                await self._be_linked()
            except HarkenError as exc:
                if exc.message != self._problem.message:
                    _log.warning("no link: %s", exc.message)
                self._problem = exc
            if self._cut_at >= began:  # there was a link
                pause = FIRST_PAUSE_SECONDS
            is_refused = not isinstance(self._problem, Unavailable)
            await anyio.sleep(REFUSED_PAUSE_SECONDS if is_refused else pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _be_linked(self) -> None:
        async with connected(self._home, self._record) as socket:
            machine = await _greeting(socket, self._record)
            watched = list(islice(self._bells.watched(), MAX_WATCHED_BELLS))
            hello = {"version": __version__, "trial_dir": self._trial_dir, "watched": watched}
            with suppress(anyio.BrokenResourceError):  # the link will find out
                await socket.send(json_bytes(hello))
            link = SatelliteLink(socket, is_first=True, told=self._told, answer=self._answer)
            _log.info("linked to %s as %s", self._record.url, machine)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._look_at_processes, link)
                    tasks.start_soon(self._note_linked, link, socket)
                    try:
                        await link.run()
                    except BrokenProtocol:
                        _log.warning("the main daemon did not keep to the protocol of the link")
                    tasks.cancel_scope.cancel()
            finally:
                self._note_cut(socket.reason)

    async def _note_linked(self, link: SatelliteLink, socket: MainSocket) -> None:
        self._link, self._socket, self._deaf_since = link, socket, float("inf")
        self._linked.set()

    def _note_cut(self, reason: str) -> None:
        self._link, self._socket, self._linked = None, None, anyio.Event()
        self._cut_at = anyio.current_time()
        why = f" ({reason.rstrip('.')})" if reason else ""
        self._problem = _away(self._record.url, f"the link was cut{why}")
        self._watch = self._gone = self._wanted = ()
        _log.warning("%s", self._problem.message)
        self.silence()

    # -- connections of this machine --------------------------------------------------------------------------

    async def carry(self, kind: str, stream: ByteStream, lines: LineReader, hello: Hello, origin: Origin) -> None:
        """Carry a connection to the main daemon and back, until either side ends it."""
        link = await self._link_for(kind)
        is_brief = kind == "hook" and hello.moment != ASK  # its host waits for it
        if link is None or (is_brief and self._is_deaf()):
            # A hook says nothing; a program that waits to wake its session comes back.
            if kind in ("mcp", "call"):
                await refuse(stream, self._problem)
            return
        facts = await anyio.to_thread.run_sync(self._facts_of, hello, origin)
        hello = self._keep_environment(hello, facts)
        try:
            # A session that begins is given what one before it was told, and cannot have read.
            await self._tell_gone(link)
            distant = await link.open(facts)
        except anyio.BrokenResourceError:
            if kind in ("mcp", "call"):
                await refuse(stream, self._problem)
            return
        async with distant:
            try:
                await distant.send(as_line(kind, hello) + lines.rest())
            except _GONE:
                return
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pass_on, stream, distant)
                if is_brief:
                    tasks.start_soon(self._hang_up, stream, tasks.cancel_scope)
                await _pass_on(distant, stream)
                tasks.cancel_scope.cancel()
        if kind in ("mcp", "wake"):
            self._ended_at = anyio.current_time()
            self._ended.ring()

    def _is_deaf(self) -> bool:
        """Whether nothing has come over the link since a hook waited in vain."""
        return self._socket is not None and self._socket.heard_at < self._deaf_since < float("inf")

    async def _hang_up(self, stream: ByteStream, carrying: anyio.CancelScope) -> None:
        """Let a hook go when its link says nothing: a network that went silent is not to hold up its host."""
        began = anyio.current_time()
        while self._socket is not None:
            left = max(began, self._socket.heard_at) + HOOK_SECONDS - anyio.current_time()
            if left <= 0:
                self._deaf_since = anyio.current_time()
                await stream.aclose()
                carrying.cancel()
                return
            await anyio.sleep(left)

    async def _link_for(self, kind: str) -> SatelliteLink | None:
        """Return the link; a call that comes right after it was cut waits a moment for the next one."""
        left = self._cut_at + GRACE_SECONDS - anyio.current_time()
        if self._link is None and kind in ("mcp", "call") and left > 0:
            with anyio.move_on_after(left):
                await self._linked.wait()
        return self._link

    def _facts_of(self, hello: Hello, origin: Origin) -> OriginFacts:
        pid = origin.pid or hello.pid
        above = ancestors(pid)
        pids = (pid, *(above or ())) if pid > 0 else ()
        wanted = islice(dict.fromkeys((hello.ppid, hello.pid, *_named_processes(hello), *pids)), MAX_PROCESSES)
        environ = {**hello.env, **environment_of(pid)}
        return OriginFacts(
            pids=pids,
            processes={each: ProcessFacts(identity_of(each), _words(each)) for each in wanted if each > 1},
            env={name: environ[name] for name in self._marks if name in environ},
            run=self.run_of(pid),
            is_clear=above is not None,
        )

    def _keep_environment(self, hello: Hello, facts: OriginFacts) -> Hello:
        """Keep what a host's processes were told of it; return the hello without what only waking it needs."""
        own = [pid for pid in (hello.ppid, *_named_processes(hello)) if pid in facts.processes]
        above = [pid for pid in facts.pids[1:] if pid in facts.processes and pid not in own]
        for pid in (*own, *above) if hello.env else ():
            identity, before = facts.processes[pid].identity, self._environs.get(pid)
            same = before.variables if before is not None and before.identity == identity else {}
            # An agent that another one started says nothing of that one.
            both = {**same, **hello.env} if pid in own else {**hello.env, **same}
            self._environs.pop(pid, None)
            self._environs[pid] = _WakeEnvironment(identity, both)
        while len(self._environs) > MAX_ENVIRONS:
            del self._environs[next(iter(self._environs))]
        told = {name: value for name, value in hello.env.items() if name not in self._kept_here}
        return replace(hello, env=told)

    def _target(self, asked: Mapping[str, Any]) -> WakeTarget:
        """Return a conversation that the main daemon names: what its host is started and found with is known here."""
        target = msgspec.convert(asked["target"], WakeTarget)
        kept = self._environs.get(target.pid)
        is_same = kept is not None and is_alive(target.pid, kept.identity) is not False
        return replace(target, env=kept.variables if kept is not None and is_same else {})

    # -- what the main daemon says and asks -------------------------------------------------------------------

    def _told(self, said: Mapping[str, Any]) -> None:
        try:
            if "bells" in said:
                self._wanted = msgspec.convert(said["bells"], list[str])
                self._ring()
            if "watch" in said:
                self._watch = msgspec.convert(said["watch"], list[tuple[int, str]])[:MAX_WATCHED]
            if "ring" in said:
                session = SessionKey(msgspec.convert(said["ring"], str))
                if self._bells.is_watched(session):
                    self._bells.ring_session(session)
        except (msgspec.ValidationError, OSError, ValueError) as exc:
            _log.warning("what the main daemon says cannot be done: %s", exc)

    def _ring(self) -> None:
        for host in self._hosts.intersection(self._bells.ringing).difference(self._wanted):
            self._bells.silence(host, self._bells.rings(host))
        for host in self._hosts.intersection(self._wanted).difference(self._bells.ringing):
            self._bells.ring(host)

    async def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        """Do what the main daemon asks of this machine."""
        try:
            with anyio.fail_after(SILENT_SECONDS):
                return await self._done(asked)
        except (KeyError, msgspec.ValidationError) as exc:
            raise UserError(
                f"The question cannot be understood ({exc}).", "Install the same version of Harken on both machines."
            ) from exc
        except _FAILURES as exc:
            _log.warning("what the main daemon asked for failed: %s", exc)
            return {}

    async def _done(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        match asked.get("do"):
            case "bell":
                path = self._bells.path(SessionKey(str(asked["session"])))
                self._bells.keep_newest(MAX_WATCHED_BELLS)
                return {"path": str(path)}
            case "record":
                return {"proven": await _recorded(asked)}
            case "asking" | "evidence":
                return await _looked_up(asked)
            case "ways":
                return {"ways": [_way_facts(each) for each in self._ways(asked)]}
            case "hindrance":
                way = self._way(asked)
                return {"hindrance": await way.hindrance(self._target(asked)) if way and way.hindrance else ""}
            case "wake":
                way = self._way(asked)
                return {"taken": await way.send(self._target(asked), str(asked["text"])) if way else False}
        raise KeyError("do")

    def _ways(self, asked: Mapping[str, Any]) -> Sequence[WakeWay]:
        host = host_named(str(asked["host"]))
        if host.waker is None:
            return ()
        return self._host_wakers.setdefault(host.name, host.waker()()).ways(self._target(asked))

    def _way(self, asked: Mapping[str, Any]) -> WakeWay | None:
        return next((each for each in self._ways(asked) if each.surface == asked["surface"]), None)

    async def _look_at_processes(self, link: SatelliteLink) -> None:
        """Say which processes of sessions are gone: soon after a connection ended, else now and then."""
        while True:
            if anyio.current_time() < self._ended_at + SOON_SECONDS:
                await anyio.sleep(LOOK_SOON_SECONDS)
            else:
                await self._ended.wait(LOOK_SECONDS)
            with suppress(OSError):  # the disk may have been full when it was said
                self._ring()
            with suppress(anyio.BrokenResourceError):
                await self._tell_gone(link)

    async def _tell_gone(self, link: SatelliteLink) -> None:
        gone = [(pid, identity) for pid, identity in self._watch if is_alive(pid, identity) is False]
        if gone != self._gone:
            self._gone = gone
            await link.tell(gone=gone)


async def _pass_on(source: ByteStream, to: ByteStream) -> None:
    with suppress(*_GONE):
        while True:
            await to.send(await source.receive(CHUNK))
    with suppress(*_GONE, OSError):
        await to.send_eof()


async def _recorded(asked: Mapping[str, Any]) -> Collection[str]:
    reader = host_named(str(asked["host"])).transcript
    # Of no file it is told whether it holds anything else.
    ids = [each for each in msgspec.convert(asked["ids"], list[str]) if GIVEN_ID.fullmatch(each)]
    return sorted(await proven_by(reader(), str(asked["path"]), ids)) if reader is not None else ()


async def _looked_up(asked: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what the files of a host say of a question that it asks its person."""
    host, payload = str(asked["host"]), msgspec.convert(asked["payload"], dict[str, Any])
    if asked["do"] == "asking":
        return {"asking": await still_asks(host, payload, msgspec.convert(asked["pid"], int))}
    return {"evidence": await evidence_of(host, payload, msgspec.convert(asked["choice"], ApprovalChoice))}


def _named_processes(hello: Hello) -> Sequence[int]:
    """Return the processes that variables of a host name."""
    return [int(value) for name, value in hello.env.items() if name.endswith(PROCESS_ENDING) and _is_number(value)]


def _way_facts(way: WakeWay) -> Mapping[str, object]:
    return {
        "surface": way.surface,
        "has_hindrance": way.hindrance is not None,
        "speaks_as_user": way.speaks_as_user,
        "runs_prompt_hook": way.runs_prompt_hook,
    }


def _words(pid: int) -> tuple[str, ...]:
    return tuple(word[:MAX_WORD_CHARS] for word in command_line(pid)[:MAX_WORDS])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= PID_DIGITS


async def _greeting(socket: MainSocket, record: JoinRecord) -> str:
    """Return what the main daemon calls this machine, which it says first."""
    try:
        hello = await socket.receive()
        return str(msgspec.json.decode(hello, type=dict[str, Any])["machine"])
    except _GONE as exc:
        raise _away(record.url, socket.reason.rstrip(".") or "it hung up") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as exc:
        raise UserError("What answers there is no main daemon of Harken.", "Check the address.") from exc


def _away(url: str, why: str) -> Unavailable:
    return Unavailable(
        f"The main daemon {url} is out of reach: {why}.", "Nothing was stored. Harken connects again by itself.",
        retry_after=1.0,
    )  # fmt: skip


@asynccontextmanager
async def connected(home: Home, record: JoinRecord) -> AsyncIterator[MainSocket]:
    """Connect to the main daemon, and show the token; raises why that cannot be."""
    host, port = record.place
    try:
        context = ssl.create_default_context(cafile=record.authority or None)
    except (OSError, ssl.SSLError) as exc:
        raise UserError(f"{record.authority} cannot be used as an authority: {exc}.", "Give a PEM file.") from exc
    headers = Headers()
    headers["Authorization"] = f"Bearer {record.token}"
    headers["Harken-Machine"] = machine_id(home)
    headers["Harken-Link"] = str(LINK_PROTOCOL)
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            stream = await anyio.connect_tcp(host, port, tls=True, ssl_context=context, tls_standard_compatible=False)
    except ssl.SSLCertVerificationError as exc:
        raise NeedsPerson(
            f"The certificate of {record.url} is not to be trusted: {exc.verify_message.rstrip('.')}.",
            "Join again with --authority FILE, if you run an authority of your own.",
            action="authority",
        ) from exc
    except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it does not answer"
        raise _away(record.url, why) from exc
    async with stream:
        socket = MainSocket(stream, f"wss://{host}:{port}{LINK_PATH}", headers)
        await socket.open(record)
        yield socket


class MainSocket:
    """The web socket to the main daemon: the protocol is the library's, the bytes go through anyio."""

    def __init__(self, stream: ByteStream, url: str, headers: Headers) -> None:
        self._stream = stream
        self._headers = headers
        self._protocol = ClientProtocol(parse_uri(url), max_size=MAX_FRAME)
        self._frames: list[Frame] = []
        self.heard_at = float("-inf")  # when something came last

    @property
    def reason(self) -> str:
        """Why the main daemon has ended it, in its words."""
        closing = self._protocol.close_rcvd
        return closing.reason if closing is not None else ""

    async def open(self, record: JoinRecord) -> None:
        """Shake hands; raises what the main daemon says against it."""
        request = self._protocol.connect()
        request.headers.update(self._headers)
        try:
            self._protocol.send_request(request)
            with anyio.fail_after(CONNECT_SECONDS):
                await self._flush()
                while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
                    await self._feed()
        except (OSError, TimeoutError, InvalidHandshake, *_GONE) as exc:
            raise _away(record.url, "it does not answer") from exc
        failure = self._protocol.handshake_exc
        if isinstance(failure, InvalidStatus):
            raise _refusal(failure, record)
        if failure is not None:
            raise _away(record.url, "it did not take the connection")

    async def send(self, data: bytes) -> None:
        """Send one message, whole: half of one would be the end of the link."""
        try:
            with anyio.fail_after(SILENT_SECONDS, shield=True):
                self._protocol.send_binary(data)
                await self._flush()
        except TimeoutError as exc:
            await anyio.aclose_forcefully(self._stream)
            raise anyio.BrokenResourceError from exc
        except (InvalidState, OSError, anyio.ClosedResourceError) as exc:
            raise anyio.BrokenResourceError from exc

    async def receive(self) -> bytes:
        """Return the next message."""
        parts: list[bytes] = []
        while True:
            while not self._frames:
                await self._feed()
            frame = self._frames.pop(0)
            if frame.opcode is Opcode.CLOSE:
                raise anyio.EndOfStream
            if frame.opcode in {Opcode.BINARY, Opcode.CONT}:
                parts.append(bytes(frame.data))
                if frame.fin:
                    return b"".join(parts)

    async def _feed(self) -> None:
        try:
            with anyio.fail_after(SILENT_SECONDS):
                data = await self._stream.receive()
        except (TimeoutError, OSError) as exc:
            raise anyio.BrokenResourceError from exc
        except anyio.EndOfStream:
            self._protocol.receive_eof()
            self._frames += [event for event in self._protocol.events_received() if isinstance(event, Frame)]
            if not self._frames:
                raise
            return
        self.heard_at = anyio.current_time()
        self._protocol.receive_data(data)
        self._frames += [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        if self._protocol.parser_exc is not None and not self._frames and self._protocol.handshake_exc is None:
            raise anyio.BrokenResourceError
        await self._flush()

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                await self._stream.send(data)


def _refusal(failure: InvalidStatus, record: JoinRecord) -> HarkenError:
    """Return what the main daemon says against this machine."""
    body = failure.response.body
    try:
        error = as_error(msgspec.json.decode(body or b"", type=dict[str, Any])["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return _away(record.url, f"it answered with {failure.response.status_code}")
    if isinstance(error, Forbidden):
        return Forbidden(f"The main daemon {record.url} refuses this machine: {error.message}", error.hint)
    return error
