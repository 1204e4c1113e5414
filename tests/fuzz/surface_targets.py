"""The targets at the surfaces: hooks of every host, first lines on the socket, posts to the doors, and the edge itself.

Hooks and sockets are served by the parts that the daemon joins, over a real store in which a message waits. Whatever a
host or another program says, the connection ends in time, nothing is raised, and nothing is written beside the bells.
"""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream, UNIXSocketStream
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.types import Message, Receive, Scope

from harken.daemon.listener import Listener
from harken.edge.ask import receive
from harken.edge.link import Codec, quote
from harken.edge.link import Lines as EdgeLines
from harken.hosts.claude_code import hooks as claude_code
from harken.hosts.copilot import hooks as copilot
from harken.hosts.hook import Hello
from harken.hosts.registry import hosts
from harken.processes import LocalOrigin, Origin
from harken.sessions.turns import HookMoment
from harken.surfaces.doors import create_doors
from harken.surfaces.wire import LineReader
from tests.dispatch.rig import DispatchFixture, open_dispatch_fixture
from tests.fuzz.source_targets import stored, webhook
from tests.fuzz.target import Judge, Letter, Target, letter, must, plain
from tests.sources.webhook.rig import RAW_KEY, SECRET, SIGNERS, Kept

CASE_SECONDS: Final = 20.0
MAX_ANSWER: Final = 1 << 16
ASKED_EVERY: Final = 5
HOOKED: Final = tuple(sorted(hosts()))
MOMENTS: Final = tuple(moment.value for moment in HookMoment)
DOOR_STATUSES: Final = frozenset({200, 202, 401, 404, 405, 408, 413, 415, 422, 429, 503})


class _Errors(logging.Handler):
    """What a surface could not handle: the daemon contains it, so that only its log tells."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.raised: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was raised."""
        if record.exc_info and record.exc_info[1] is not None:
            self.raised.append(record.exc_info[1])

    def check(self) -> None:
        """Raise what was kept."""
        if self.raised:
            raise self.raised.pop()


@contextmanager
def _house() -> Iterator[tuple[BlockingPortal, DispatchFixture, Path]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_dispatch_fixture(Path(folder))) as rig,
    ):
        yield portal, rig, Path(folder)


@asynccontextmanager
async def _connected(data: bytes) -> AsyncIterator[tuple[UNIXSocketStream, socket.socket]]:
    """Give both ends of a connection over which everything was said already."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(0)
        theirs.send(data[:MAX_ANSWER])
        theirs.shutdown(socket.SHUT_WR)
        async with await UNIXSocketStream.from_socket(ours) as stream:
            yield stream, theirs


def _heard(theirs: socket.socket) -> bytes:
    try:
        return theirs.recv(MAX_ANSWER)
    except (BlockingIOError, ConnectionError):
        return b""


class _Order:
    """Puts a rig in order after each case, so that none depends on those before it more than it must."""

    def __init__(self, rig: DispatchFixture, folder: Path) -> None:
        self._house = rig
        self._folder = folder
        self._files = self._found()
        self._told = 0

    async def settle(self, *, is_told: bool) -> None:
        """End every session, look at the bells, and see to it that a message waits."""
        rig = self._house
        await rig.look()
        for session in rig.sessions.live():
            rig.sessions.end(session.key)
            await rig.inbox.proofs.release(session.key)
        must(self._found() == self._files, "a file beside the bells", self._found())
        self._told += is_told
        if self._told % ASKED_EVERY == 1:
            # What was told may be proven by now, and then nothing would ever be told again.
            self._told += 1
            await rig.say()

    def _found(self) -> frozenset[str]:
        # The database makes and removes files of its own.
        return frozenset(path.name for path in self._folder.iterdir() if not path.name.startswith("harken.db"))


@contextmanager
def _hooks() -> Iterator[Judge]:
    with _house() as (portal, rig, folder):
        portal.call(rig.say)
        order = _Order(rig, folder)

        async def case(data: bytes) -> str:
            said = letter(data)
            hello = _hello(said)
            with anyio.fail_after(CASE_SECONDS):
                async with _connected(said.body + b"+") as (stream, theirs):
                    await rig.wiring.serve_hook(stream, LineReader(stream), hello, LocalOrigin())
                    answer = _heard(theirs)
                is_met = bool(rig.sessions.live())
                await order.settle(is_told=bool(answer))
            claude_code.recorded(said.body.split(b"\n"), {"d-1"})
            copilot.recorded(said.body.split(b"\n"), {"d-1"})
            is_told = bool(answer) and _is_printed(answer, hello.host)
            return "told" if is_told else "met" if is_met else "silent"

        yield lambda data: portal.call(case, data)


def _hello(said: Letter) -> Hello:
    host, _, moment = said.word.partition("/")
    count = said.headers.get("payload", "")
    return Hello(
        edge="e1",
        host=host if host in HOOKED else Letter(host).chosen(HOOKED),
        moment=moment if moment in MOMENTS else Letter(moment).chosen(MOMENTS),
        payload=int(count) if count.isdecimal() and len(count) < 9 else len(said.body),
        ppid=1,
        cwd=said.headers.get("cwd", "/"),
        env={name.upper(): value for name, value in said.headers.items()},
    )


def _is_printed(answer: bytes, host: str) -> bool:
    """Look at what a hook is to print as the edge does; return whether there is anything."""
    code, out, err = receive(_Given(answer))
    must(code in {0, 2}, "an exit code that no host knows", code)
    must(b"\x1b" not in out + err, "an escape for the terminal", out, err)
    if out.strip() and host != "opencode":
        msgspec.json.decode(out)
    return bool(out or err)


class _Given(socket.socket):
    """A connection that holds what was said."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data
        self.close()

    def recv(self, size: int, _flags: int = 0, /) -> bytes:
        """Return the next bytes."""
        piece, self._data = self._data[:size], self._data[size:]
        return piece


@contextmanager
def _sockets() -> Iterator[Judge]:
    with _house() as (portal, rig, folder), _logged() as errors:
        portal.call(rig.say)
        order = _Order(rig, folder)
        met: list[Hello] = []

        async def other(_stream: ByteStream, lines: LineReader, hello: Hello, _origin: Origin) -> None:
            met.append(hello)
            while await lines.read() is not None:
                pass

        surfaces = {
            "hook": rig.wiring.serve_hook,
            "wake": rig.wiring.serve_wake,
            "call": other,
            "mcp": other,
        }
        listener = Listener(surfaces)

        async def case(data: bytes) -> str:
            met.clear()
            with anyio.fail_after(CASE_SECONDS):
                async with _connected(data) as (stream, theirs):
                    await listener.handle(stream)
                    answer = _heard(theirs)
                errors.check()
                await order.settle(is_told=bool(answer))
            if answer.startswith(b'{"harken"'):
                msgspec.json.decode(answer)
                return "refused"
            return "met" if met else "answered" if answer else "silent"

        yield lambda data: portal.call(case, data)


@contextmanager
def _logged() -> Iterator[_Errors]:
    errors = _Errors()
    log = logging.getLogger("harken")
    before = log.propagate, log.level
    log.addHandler(errors)
    log.propagate = False
    try:
        yield errors
    finally:
        log.removeHandler(errors)
        log.propagate, log.level = before


@contextmanager
def _doors() -> Iterator[Judge]:
    doors = [door for name in sorted(SIGNERS) for door in webhook(name).doors()]
    with start_blocking_portal() as portal:

        async def case(data: bytes) -> str:
            kept = Kept()
            app = create_doors(doors, kept.accept)
            sent: list[Mapping[str, object]] = []

            async def send(message: Mapping[str, object]) -> None:
                sent.append(message)

            scope, receive_next = _asked(letter(data))
            with anyio.fail_after(CASE_SECONDS):
                await app(scope, receive_next, send)
            for draft in kept.drafts:
                stored(draft)
            return str(_answered(sent))

        yield lambda data: portal.call(case, data)


def _asked(said: Letter) -> tuple[Scope, Receive]:
    method, _, target = said.word.partition(" ")
    path, _, query = target.partition("?")
    name = path.rpartition("/")[2]
    key = RAW_KEY if name == "standard" else SECRET.encode()
    signed = SIGNERS[name](said.body, key) if name in SIGNERS and said.headers.get("signed") != "no" else {}
    headers = [*({"content-type": "application/json"} | dict(signed)).items(), *said.headers.items()]
    size = max(1, len(said.headers.get("pieces", "")) * 7 or len(said.body))
    pieces = [said.body[start : start + size] for start in range(0, len(said.body), size)] or [b""]

    async def receive_next() -> Message:
        if not pieces or (len(pieces) == 1 and "gone" in said.headers):
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(header.encode("latin-1"), value.encode("latin-1")) for header, value in headers],
    }
    return scope, receive_next


def _answered(sent: list[Mapping[str, object]]) -> object:
    must([each["type"] for each in sent] == ["http.response.start", "http.response.body"], "no one answer", sent)
    must(sent[0]["status"] in DOOR_STATUSES, "an answer that is none", sent[0])
    body = sent[1]["body"]
    must(isinstance(body, bytes) and isinstance(msgspec.json.decode(body), dict), "an answer that is no JSON", body)
    return sent[0]["status"]


def _edge(data: bytes) -> str:
    """The edge reads what the daemon and the host write, and must not fall over either."""
    codec, whole, cut = Codec(), EdgeLines(), EdgeLines()
    lines = [*whole.feed(data)]
    pieces = [line for byte in data for line in cut.feed(bytes([byte]))]
    must(lines == pieces, "lines depend on how bytes are cut", lines, pieces)
    for line in lines:
        codec.key(codec.read(line or b"").get("id"))
    text = data.decode("utf-8", "surrogateescape")
    must(msgspec.json.decode(quote(text)) == text.encode("utf-8", "replace").decode(), "quoted as something else", data)
    try:
        receive(_Given(data))
    except (OSError, ValueError):
        return "no answer"
    return "answer"


TOKENS: Final = (
    *(
        b'"session_id":',
        b'"hook_event_name":',
        b'"prompt":',
        b'"cwd":',
        b'"transcript_path":"/dev/stdin"',
        b"/etc/passwd",
    ),
    *(b'"agent_id":', b'"turn_id":', b'"tool_response":', b'"stop_hook_active":true', b'"reason":"clear"', b"../../x"),
)
TARGETS: Final = (
    Target(
        name="hook",
        opened=_hooks,
        reaches=frozenset({"told", "met", "silent"}),
        tokens=TOKENS,
        small_cases=150,
    ),
    Target(
        name="socket",
        opened=_sockets,
        reaches=frozenset({"met", "refused", "answered", "silent"}),
        tokens=(b'{"harken":1,"kind":"hook"', b'"native":"n1"', b'"once":true', b'"payload":9', b'{"done":"w-1"}\n'),
        small_cases=150,
    ),
    Target(
        name="doors",
        opened=_doors,
        reaches=frozenset({"202", "401", "404", "405", "413", "415", "422"}),
        tokens=(b"POST /hooks/github", b"GET ", b"?a=%ff", b"content-length: 9\n", b"signed: no\n", b"gone: 1\n"),
    ),
    Target(name="edge", opened=plain(_edge), reaches=frozenset({"answer", "no answer"}), tokens=(b"0 2 0\n", b"{}\n")),
)
