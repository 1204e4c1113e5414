"""An MCP server that is a program: started, spoken to line by line, ended, and started again when it ends.

Its lines are split within bounds, its environment is small, and what it writes to stderr is read so that it never
waits for us. Above is `source.py`; below is `link.py`.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

import anyio
from anyio.abc import ByteReceiveStream, Process

from harken.sources.mcp import protocol
from harken.sources.mcp.link import (
    FIRST_POLL_SECONDS,
    NOT_FOR_US,
    STREAM,
    AskServer,
    EventPositions,
    EventSubscription,
    IdleTimer,
    LinkClosed,
    LinkLost,
    LinkReceiver,
    LinkTrouble,
    PollResult,
    ServerReplies,
    bounded,
    list_events,
    poll_events,
    watched,
)
from harken.sources.mcp.protocol import Announcement, RpcAnswer, RpcRequest, read_frame
from harken.sources.mcp.settings import McpSettings
from harken.sources.mcp.web import AT_ONCE

MAX_LINE_BYTES: Final = 8_000_000

END_SECONDS: Final = 1.0  # for each step of ending it

# What programs need to find themselves and their files. Everything else may be a secret of somebody else.
PASSED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL") + (
    ("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
    if os.name == "nt"
    else ()
)
_LEASH: Final = 'read -r _; kill -s TERM -- "-$1" 2>/dev/null; sleep 2; kill -s KILL -- "-$1" 2>/dev/null'

READ_BYTES: Final = 65_536
MAX_LOG_LINE_BYTES: Final = 2_000
LOG_LINES_PER_MINUTE: Final = 60
EXIT_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
DAY_SECONDS: Final = 86_400.0
LAST_WAIT_SECONDS: Final = 60.0  # between two tries of a subscription

_log = logging.getLogger("harken.sources.mcp")


class LineSplitter:
    """Cuts one stream into lines; `dropped` counts the lines that were too long."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self.dropped = 0
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_too_long = False

    def feed(self, chunk: bytes) -> list[str]:
        """Take the next bytes and return the lines that they complete, without their ends; blank ones are left out."""
        *ended, rest = chunk.split(b"\n")
        lines: list[str] = []
        for piece in ended:
            self._add(piece)
            line = self._end()
            if line:
                lines.append(line)
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            if piece:
                self._pieces.append(piece)
        elif not self._is_too_long:
            self._is_too_long = True
            self.dropped += 1
            self._pieces = []

    def _end(self) -> str:
        line = b"".join(self._pieces)
        self._pieces, self._size, self._is_too_long = [], 0, False
        return line.decode("utf-8", "replace").strip()


def child_environment(own: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the few variables it needs, and what the person configured."""
    return {**{name: own[name] for name in PASSED if name in own}, **extra}


@asynccontextmanager
async def running(settings: McpSettings) -> AsyncIterator[Process]:
    """Start the server's program and end it, with everything it started, when the block is left; raises `LinkLost`."""
    try:
        process = await anyio.open_process(
            [settings.command, *settings.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_folder(settings),
            env=child_environment(os.environ, settings.env),
            start_new_session=True,
        )
    except (OSError, ValueError, RuntimeError) as exc:
        raise LinkLost(_not_started(exc, settings)) from exc
    leash: Process | None = None
    try:
        leash = await _leash(process.pid)
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            await _let_go(leash)


def _folder(settings: McpSettings) -> Path | None:
    return Path(settings.cwd).expanduser() if settings.cwd else None


async def _leash(group: int) -> Process | None:
    if os.name != "posix":
        return None
    return await anyio.open_process(
        ["/bin/sh", "-c", _LEASH, "harken-leash", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        start_new_session=True,
    )


async def _let_go(leash: Process | None) -> None:
    if leash is None:
        return
    with suppress(ProcessLookupError):
        leash.kill()
    await leash.wait()
    await leash.aclose()


async def _end(process: Process) -> None:
    """End politely: first its input, then a signal, then by force; the whole group each time."""
    if process.stdin is not None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    _signal(process, signal.SIGTERM)
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    _signal(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    with anyio.move_on_after(END_SECONDS):
        await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    # The group also when its leader is gone: what it started may still run.
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _not_started(exc: Exception, settings: McpSettings) -> str:
    folder = _folder(settings)
    if isinstance(exc, (FileNotFoundError, NotADirectoryError)) and folder is not None and not folder.is_dir():
        return f"its folder does not exist: check sources.{settings.name}.cwd"
    if isinstance(exc, FileNotFoundError):
        return f"the program {settings.address} is not found: check sources.{settings.name}.command"
    if isinstance(exc, PermissionError):
        return f"the program {settings.address} may not be run: check sources.{settings.name}.command"
    return f"the program {settings.address} cannot be started"


Send = Callable[[int, str, Mapping[str, object]], Awaitable[None]]
"""Sends a request with this number."""


class _PendingAnswer:
    """An answer that is waited for."""

    def __init__(self) -> None:
        self.came = anyio.Event()
        self.answer: RpcAnswer | None = None


class ProgramEvents:
    """The subscriptions of one life of a program. One that ends is made again, and stops nothing else."""

    def __init__(self, name: str, positions: EventPositions, numbers: Iterator[int]) -> None:
        self._name = name
        self._positions = positions
        self._numbers = numbers
        self.is_held = False  # the program is not read just now, because too much waits to be stored
        self._begun = anyio.Event()
        self._is_expected = False
        self._answers: dict[int, _PendingAnswer] = {}
        self._streams: dict[int, EventSubscription] = {}
        self._ends: dict[int, anyio.Event] = {}
        self._unconfirmed = set[str]()
        self._is_resumed = False
        self._is_open = False
        self._cursors: dict[str, str] = {}

    @property
    def is_begun(self) -> bool:
        """Whether the server was asked for events."""
        return self._begun.is_set()

    def begin(self, *, is_expected: bool) -> None:
        """Let the server be asked for its events; expected: the source is open when all of them stand."""
        self._is_expected = is_expected
        self._begun.set()

    def moved(self, heard: Sequence[Announcement]) -> str | None:
        """Return the checkpoint after these, if there is a new one."""
        for each in heard:
            if each.is_event and (stream := self._of(each)) is not None:
                self._cursors[stream.name] = each.cursor
        moved = [self._positions.move(name, cursor) for name, cursor in self._cursors.items()]
        self._cursors = {}
        return self._positions.checkpoint() if any(moved) else None

    def note(self, said: Announcement, desk: LinkReceiver) -> None:
        """Take note of what the server says about a subscription."""
        stream = self._of(said)
        if stream is None:
            return
        if said.cursor:
            self._cursors[stream.name] = said.cursor
        if said.about_link == protocol.ACTIVE:
            self._confirm(stream.name, desk, is_truncated=said.is_truncated)
        elif said.about_link == protocol.TERMINATED:
            _log.warning("%s: the server ended the subscription of %s", self._name, stream.name)
            self._positions.refuse(stream, 0)
            self._end(stream)

    def answered(self, answer: RpcAnswer) -> None:
        """Take an answer; that of a stream says that it has ended."""
        if not isinstance(answer.id, int):
            return
        stream = self._streams.get(answer.id)
        if stream is not None:
            if answer.error_code in NOT_FOR_US:
                self._positions.refuse(stream, answer.error_code or 0)
            self._end(stream)
        elif answer.id in self._answers:
            self._answers[answer.id].answer = answer
            self._answers[answer.id].came.set()

    async def run(self, send: Send, desk: LinkReceiver, seconds: float) -> None:
        """Subscribe to everything there is, and again to what ends; raises nothing."""
        await self._begun.wait()
        ask = partial(self._ask, send, seconds)
        wanted = await list_events(self._positions, ask)
        self._unconfirmed = {each.name for each in wanted}
        self._is_resumed = bool(wanted) and all(each.name in self._positions.cursors for each in wanted)
        self._is_open = not self._is_expected
        if not wanted:
            self._confirm("", desk, is_truncated=False)
        async with anyio.create_task_group() as group:
            for each in wanted:
                group.start_soon(self._follow, each, send, ask, desk)

    async def _follow(self, wanted: EventSubscription, send: Send, ask: AskServer, desk: LinkReceiver) -> None:
        """Keep one subscription until the server refuses it."""
        wait = FIRST_POLL_SECONDS
        while not self._positions.is_refused(wanted.name):
            begun = anyio.current_time()
            if self._positions.is_pushed(wanted):
                number = next(self._numbers)
                self._streams[number], self._ends[number] = wanted, anyio.Event()
                await send(number, STREAM, wanted.asked(self._positions.cursors.get(wanted.name, "")))
                await self._ends[number].wait()
                del self._ends[number]
                if not self._positions.is_pushed(wanted):
                    continue  # but perhaps polled
            else:

                def confirm(told: PollResult) -> None:
                    self._confirm(wanted.name, desk, is_truncated=told.is_truncated)

                with suppress(LinkTrouble):
                    await poll_events(wanted, self._positions, ask, desk, confirm)
            wait = FIRST_POLL_SECONDS if anyio.current_time() - begun > LAST_WAIT_SECONDS else wait
            await anyio.sleep(wait)
            wait = min(2 * wait, LAST_WAIT_SECONDS)
        self._confirm(wanted.name, desk, is_truncated=False)

    async def _ask(self, send: Send, seconds: float, method: str, params: Mapping[str, object]) -> RpcAnswer | None:
        number, pending = next(self._numbers), _PendingAnswer()
        self._answers[number] = pending
        try:
            await send(number, method, params)
            while not pending.came.is_set():
                with anyio.move_on_after(seconds):
                    await pending.came.wait()
                if not self.is_held:
                    break
            return pending.answer
        finally:
            del self._answers[number]

    def _of(self, said: Announcement) -> EventSubscription | None:
        """Return the subscription that something belongs to; where the server does not say, by its name."""
        if isinstance(said.subscription, int) and said.subscription in self._streams:
            return self._streams[said.subscription]
        same = [each for each in self._streams.values() if each.name == said.channel]
        return same[0] if same else None

    def _end(self, stream: EventSubscription) -> None:
        for number in [number for number, each in self._streams.items() if each is stream]:
            del self._streams[number]
            self._ends[number].set()

    def _confirm(self, name: str, desk: LinkReceiver, *, is_truncated: bool) -> None:
        if self._is_open:
            if is_truncated:
                desk.missed()
            return
        self._is_resumed = self._is_resumed and not is_truncated
        self._unconfirmed.discard(name)
        if not self._unconfirmed:
            self._is_open = True
            desk.opened(is_resumed=self._is_resumed)


class StdioLink:
    """The link to one server over stdio: each `listen` is one life of its process."""

    def __init__(self, settings: McpSettings, checkpoint: str = "") -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._positions = EventPositions(settings.where, checkpoint)
        self._events = ProgramEvents(settings.name, self._positions, self._numbers)
        self._awaited = 0  # the number of the request whose answer decides how to go on
        self._is_modern = False
        self._is_deaf = False  # it did not take all of an answer: what follows would be read as the rest of that
        self._saying = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        pass

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Start the program, introduce ourselves, and hand over what it announces until it ends."""
        desk.waits("waiting for the program to answer")
        self._is_modern = self._is_deaf = False
        self._awaited = next(self._numbers)
        self._events = ProgramEvents(self._settings.name, self._positions, self._numbers)
        failed: list[LinkTrouble] = []
        logged = anyio.Event()

        async def keep_log(stderr: ByteReceiveStream | None) -> None:
            await self._keep_log(stderr)
            logged.set()

        async def run(process: Process) -> None:
            replies = ServerReplies(self._settings.name, partial(self._reply, process))
            try:
                await watched(
                    lambda pulse: self._hear(process, desk, pulse, replies),
                    self._probe,
                    self._idle_seconds,
                    replies.run,
                    partial(self._events.run, partial(self._send, process), desk, self._settings.timeout),
                )
            except LinkTrouble as exc:
                failed.append(exc)
            with anyio.move_on_after(EXIT_SECONDS):
                await logged.wait()  # its last words are often the reason
            group.cancel_scope.cancel()

        async with running(self._settings) as process, anyio.create_task_group() as group:
            group.start_soon(keep_log, process.stderr)
            group.start_soon(run, process)
        raise failed[0]

    async def _hear(self, process: Process, desk: LinkReceiver, pulse: IdleTimer, replies: ServerReplies) -> LinkClosed:
        await self._say(process, [protocol.initialize(self._awaited)])
        splitter = LineSplitter()
        dropped = 0
        while (chunk := await _receive(process.stdout)) is not None:
            lines = splitter.feed(chunk)
            heard: list[Announcement] = []
            requests: list[RpcRequest] = []
            answers: list[RpcAnswer] = []
            for line in lines:
                frame = read_frame(line)
                heard.extend(each for each in frame.announcements if not self._is_about_link(each, desk))
                requests.extend(frame.requests)
                answers.extend(frame.answers)
                if len(heard) >= AT_ONCE:
                    await self._take(desk, heard)
                    heard = []
            if splitter.dropped > dropped:
                desk.gave_up(splitter.dropped - dropped)
                dropped = splitter.dropped
            await self._take(desk, heard)
            replies.add(requests)
            for answer in answers:
                if answer.id == self._awaited:
                    await self._settle(process, desk, answer)
                else:
                    self._events.answered(answer)
            pulse.beat()
        with anyio.move_on_after(EXIT_SECONDS):
            await process.wait()
        raise LinkLost(_exit_reason(process.returncode))

    async def _settle(self, process: Process, desk: LinkReceiver, answer: RpcAnswer) -> None:
        """Go on after an answer: to the session, or to the other era if the server does not know this one."""
        number = next(self._numbers)
        if answer.error_code is not None:
            if self._is_modern:
                raise LinkLost(f"the server refuses to begin (error {answer.error_code})")
            self._is_modern = True
            self._awaited = number
            await self._say(process, [protocol.modern(number, "server/discover")])
            return
        self._awaited = 0
        desk.met(protocol.server_name(answer))
        capabilities, resources = answer.result.get("capabilities"), self._settings.resources
        is_expected = protocol.offers_events(capabilities) or bool(self._positions.cursors)
        if not is_expected:
            desk.opened(is_resumed=False)
        # A server of that version may have events without saying so in this era.
        if is_expected or answer.result.get("protocolVersion") == protocol.HANDSHAKE:
            self._events.begin(is_expected=is_expected)
        if self._is_modern:
            wanted = protocol.subscription(number, capabilities, resources)
            await self._say(process, [wanted] if wanted else [])
            return
        asks = [protocol.request(next(self._numbers), "resources/subscribe", {"uri": uri}) for uri in resources]
        await self._say(process, [protocol.notification("notifications/initialized"), *asks])

    def _is_about_link(self, said: Announcement, desk: LinkReceiver) -> bool:
        """Whether this only says how a subscription is doing; takes note of it."""
        if not said.about_link or not (self._is_modern or self._events.is_begun):
            return False
        self._events.note(said, desk)
        return True

    async def _take(self, desk: LinkReceiver, heard: Sequence[Announcement]) -> None:
        checkpoint = self._events.moved(heard)
        if not heard and checkpoint is None:
            return
        self._events.is_held = True
        await desk.take(heard, checkpoint)
        self._events.is_held = False

    async def _send(self, process: Process, number: int, method: str, params: Mapping[str, object]) -> None:
        frame = protocol.modern if self._is_modern else protocol.request
        await self._say(process, [frame(number, method, params)])

    def _idle_seconds(self) -> float:
        # Once it has answered it may be silent for as long as it lives: its end is seen at once.
        return self._settings.timeout if self._awaited else DAY_SECONDS

    async def _probe(self) -> str:
        return f"the program does not answer within {self._settings.timeout:g} seconds" if self._awaited else ""

    async def _reply(self, process: Process, body: bytes) -> None:
        if not self._is_deaf:
            self._is_deaf = True
            await self._say(process, [body])
            self._is_deaf = False

    async def _say(self, process: Process, messages: Sequence[bytes]) -> None:
        if process.stdin is None or not messages:
            return
        try:
            with bounded(self._settings.timeout, "our messages"):
                async with self._saying:
                    await process.stdin.send(b"".join(message + b"\n" for message in messages))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return  # it is ending: its output says so next

    async def _keep_log(self, stderr: ByteReceiveStream | None) -> None:
        """Write what the program says about itself to our log; what is too much is counted."""
        splitter = LineSplitter(MAX_LOG_LINE_BYTES)
        begun, written, left_out = anyio.current_time(), 0, 0
        while (chunk := await _receive(stderr)) is not None:
            for line in splitter.feed(chunk):
                if anyio.current_time() - begun >= MINUTE_SECONDS:
                    if left_out:
                        _log.info("%s: %d more lines were not kept", self._settings.name, left_out)
                    begun, written, left_out = anyio.current_time(), 0, 0
                if written < LOG_LINES_PER_MINUTE:
                    written += 1
                    _log.info("%s: %s", self._settings.name, self._settings.scrub(line))
                else:
                    left_out += 1


async def _receive(stream: ByteReceiveStream | None) -> bytes | None:
    """Return the next bytes, or nothing at the end."""
    if stream is None:
        return None
    try:
        return await stream.receive(READ_BYTES)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "the program closed its output"
    return f"the program was ended by signal {-code}" if code < 0 else f"the program ended with code {code}"
