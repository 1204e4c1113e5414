"""A server that we start ourselves and that speaks line by line on a pipe, in either era.

Every line without an id is an announcement, also before and during the handshake. What it writes to stderr goes to our
log, within limits. A child that ends is lost like any connection; `source.py` starts it again. Below is `child.py`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

import anyio
from anyio.abc import ByteReceiveStream, Process

from harken.sources.mcp import protocol
from harken.sources.mcp.child import running
from harken.sources.mcp.hearing import AT_ONCE
from harken.sources.mcp.lines import LineSplitter
from harken.sources.mcp.link import Closed, Desk, Lost, Pulse, Trouble, bounded, watched
from harken.sources.mcp.replies import Replies
from harken.sources.mcp.routing import Announcement, Answer, Request, read_frame
from harken.sources.mcp.settings import McpSettings

READ_BYTES: Final = 65_536
MAX_LOG_LINE_BYTES: Final = 2_000
LOG_LINES_PER_MINUTE: Final = 60
EXIT_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
DAY_SECONDS: Final = 86_400.0

_log = logging.getLogger("harken.sources.mcp")


class Stdio:
    """The link to one server over stdio: each `listen` is one life of its process."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._awaited = 0  # the number of the request whose answer decides how to go on
        self._is_modern = False
        self._is_deaf = False  # it did not take all of an answer: what follows would be read as the rest of that
        self._saying = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        pass

    async def listen(self, desk: Desk) -> Closed:
        """Start the program, introduce ourselves, and hand over what it announces until it ends."""
        desk.waits("waiting for the program to answer")
        self._is_modern = self._is_deaf = False
        self._awaited = next(self._numbers)
        failed: list[Trouble] = []
        logged = anyio.Event()

        async def keep_log(stderr: ByteReceiveStream | None) -> None:
            await self._keep_log(stderr)
            logged.set()

        async def run(process: Process) -> None:
            replies = Replies(self._settings.name, partial(self._reply, process))
            try:
                await watched(
                    lambda pulse: self._hear(process, desk, pulse, replies),
                    self._probe,
                    self._idle_seconds,
                    replies.run,
                )
            except Trouble as exc:
                failed.append(exc)
            with anyio.move_on_after(EXIT_SECONDS):
                await logged.wait()  # its last words are often the reason
            group.cancel_scope.cancel()

        async with running(self._settings) as process, anyio.create_task_group() as group:
            group.start_soon(keep_log, process.stderr)
            group.start_soon(run, process)
        raise failed[0]

    async def _hear(self, process: Process, desk: Desk, pulse: Pulse, replies: Replies) -> Closed:
        await self._say(process, [protocol.initialize(self._awaited)])
        splitter = LineSplitter()
        dropped = 0
        while (chunk := await _receive(process.stdout)) is not None:
            lines = splitter.feed(chunk)
            heard: list[Announcement] = []
            requests: list[Request] = []
            answers: list[Answer] = []
            for line in lines:
                frame = read_frame(line)
                heard.extend(
                    each
                    for each in frame.announcements
                    if not (self._is_modern and each.channel in protocol.OWN_CHANNELS)
                )
                requests.extend(frame.requests)
                answers.extend(frame.answers)
                if len(heard) >= AT_ONCE:
                    await desk.take(heard)
                    heard = []
            if splitter.dropped > dropped:
                desk.gave_up(splitter.dropped - dropped)
                dropped = splitter.dropped
            if heard:
                await desk.take(heard)
            replies.add(requests)
            for answer in answers:
                if answer.id == self._awaited:
                    await self._settle(process, desk, answer)
            pulse.beat()
        with anyio.move_on_after(EXIT_SECONDS):
            await process.wait()
        raise Lost(_exit_reason(process.returncode))

    async def _settle(self, process: Process, desk: Desk, answer: Answer) -> None:
        """Go on after an answer: to the session, or to the other era if the server does not know this one."""
        number = next(self._numbers)
        if answer.error_code is not None:
            if self._is_modern:
                raise Lost(f"the server refuses to begin (error {answer.error_code})")
            self._is_modern = True
            self._awaited = number
            await self._say(process, [protocol.modern(number, "server/discover")])
            return
        self._awaited = 0
        desk.met(protocol.server_name(answer))
        desk.opened(is_resumed=False)
        resources = self._settings.resources
        if self._is_modern:
            wanted = protocol.subscription(number, answer.result.get("capabilities"), resources)
            await self._say(process, [wanted] if wanted else [])
            return
        asks = [protocol.request(next(self._numbers), "resources/subscribe", {"uri": uri}) for uri in resources]
        await self._say(process, [protocol.notification("notifications/initialized"), *asks])

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
