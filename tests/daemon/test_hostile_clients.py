"""Whoever can connect may send anything: a bad line gets an error or a closed connection, nobody else notices."""

from __future__ import annotations

import json
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from harken.config.home import Home
from harken.daemon.listener import AGENT_PLACES, SPARE_FILES, Listener, Places, Serve, places_here
from harken.hosts.hook import Hello
from harken.processes import Origin
from harken.setup.doctor import own_health
from harken.surfaces.wire import LineReader
from harken.testing.daemon import DaemonProcess
from tests.loss.rig import CALL_HELLO, Chance, Json, Served, Wire, agent_of, texts, until

MB = 1 << 20
LINES, ROUND = 1_000, 10
MCP_HELLO = b"""{"harken":1,"kind":"mcp","edge":"hostile"}
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},\
"clientInfo":{"name":"hostile","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"""
TOOLS = ("inbox_pull", "wait_for_inbound_message", "inbound_queue_stats", "ack", "reply", "inbox_search", "inbox_read")
VERBS = ("send", "list", "read", "pull", "wait", "prove", "ack", "search", "stats", "export", "journal", "reply")
MORE_VERBS = ("allow", "deny", "pair", "mute", "unmute", "mailboxes", "status", "nonsense", "__class__", "")
NAMES = (
    "text",
    "ref",
    "refs",
    "limit",
    "consumer",
    "kind",
    "name",
    "mailbox",
    "channel",
    "sender",
    "body",
    "ids",
    "offset",
)


def strange(chance: Chance, depth: int = 0) -> Json:
    """A JSON value that someone might send."""
    values: list[Json] = [
        None, True, 0, -1, 1 << 62, 1 << 63, -(1 << 63) - 1, 10**40, 1e308, -0.0, "", "\x00", "\u202e", "d-x", "m-xx",
        "#1", "#999999999999999", "inbox#1", "x" * 10_000, "' OR 1=1 --", "%s%n", "../../etc/passwd", [], {}, [[]],
        "NaN", "\U0001f600" * 50, "high", "channel", "session",
    ]  # fmt: skip
    if depth < 3 and chance.random() < 0.2:
        return [strange(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    if depth < 3 and chance.random() < 0.2:
        return {chance.choice(NAMES): strange(chance, depth + 1) for _ in range(chance.randint(0, 4))}
    return chance.choice(values)


def bad_line(chance: Chance) -> bytes:
    """A line that is garbage, almost JSON, or JSON that means nothing good."""
    kind = chance.randint(0, 5)
    if kind == 0:
        return chance.randbytes(chance.randint(1, 300)).replace(b"\n", b"") + b"\n"
    if kind == 1:
        return (
            chance.choice((b"{", b"[]", b"null", b"\x00\x00", b"{}", b'{"id":', b"\xef\xbb\xbf{}", b'"\\ud800"'))
            + b"\n"
        )
    if kind == 2:
        return b"[" * chance.randint(1, 50_000) + b"\n"
    method = chance.choice(VERBS + MORE_VERBS)
    arguments = {chance.choice(NAMES): strange(chance) for _ in range(chance.randint(0, 4))}
    if kind == 3:
        request = {"jsonrpc": "2.0", "id": strange(chance), "method": strange(chance), "params": strange(chance)}
    elif kind == 4:
        tool = chance.choice(TOOLS)
        call = {"name": tool, "arguments": {**arguments, "timeout_s": 0} if "wait" in tool else arguments}
        request = {"jsonrpc": "2.0", "id": chance.randint(1, 9), "method": "tools/call", "params": call}
    else:
        arguments |= {"timeout": 0} if method == "wait" else {}
        request = {"id": chance.randint(1, 9), "method": method, "params": arguments}
    return json.dumps(request).encode() + b"\n"


def memory(daemon: Served) -> int:
    """What the daemon holds in memory now, in bytes."""
    pages = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def bombard(daemon: Served, hello: bytes, seed: int) -> None:
    """Send a thousand bad lines and see that they were dealt with, on as many connections as it takes."""
    chance = Chance(seed)
    left = LINES
    while left > 0:
        with suppress(OSError), Wire(daemon.socket, hello) as wire:
            is_open = True
            while is_open and left > 0:
                wire.say(b"".join(bad_line(chance) for _ in range(ROUND)))
                left -= ROUND
                is_open = is_answered(wire, f"sentinel-{left}")


def is_answered(wire: Wire, name: str) -> bool:
    """Ask something harmless under a name and read until it is answered; return whether the connection is alive."""
    wire.say({"jsonrpc": "2.0", "id": name, "method": "ping"})
    while line := wire.line():
        if name.encode() in line:
            return True
    return False


@pytest.mark.parametrize("hello", [b"", CALL_HELLO, MCP_HELLO], ids=["no hello", "call", "mcp"])
def test_thousand_bad_lines_harm_nobody(daemon: Served, hello: bytes) -> None:
    """The daemon lives, serves the others, and remembers nothing of it."""
    daemon.start()
    bombard(daemon, hello, seed=1)
    before = memory(daemon)
    with agent_of(daemon.home) as agent:
        bombard(daemon, hello, seed=2)
        assert not daemon.is_gone()
        daemon.call("send", text="still here", to="inbox", sender="witness", priority="high")
        assert "still here" in texts(agent.tool("inbox_pull", limit=100)["messages"])
    assert memory(daemon) - before < 12 * MB
    assert "the daemon ended" not in (daemon.home / "logs" / "daemon.log").read_text()


def test_no_line_ends_its_connection_by_a_fault(daemon: Served) -> None:
    """A fault is contained, but it is still one: no line may raise anything that is not an answer."""
    daemon.start()
    bombard(daemon, CALL_HELLO, seed=3)
    bombard(daemon, MCP_HELLO, seed=4)
    assert faults(daemon) == []


@pytest.mark.parametrize(
    ("verb", "name", "value"),
    [
        ("list", "before", 1 << 63),
        ("export", "after", 10**40),
        ("journal", "after", 1 << 64),
        ("mute", "seconds", 1e12),
        ("mute", "seconds", -1e300),
    ],
)
def test_number_out_of_range_is_an_error_and_no_fault(daemon: Served, verb: str, name: str, value: float) -> None:
    """A number that no database or calendar can hold is a mistake of the caller, and is said so."""
    daemon.start()
    others = {"kind": "channel", "name": "ci"} if verb == "mute" else {}
    with Wire(daemon.socket, CALL_HELLO) as wire:
        wire.say({"id": 1, "method": verb, "params": {**others, name: value}})
        assert json.loads(wire.line() or b"{}").get("error", {}).get("code") == "user_error"
    assert faults(daemon) == []


def faults(daemon: Served) -> list[str]:
    """What the log says about connections that ended by a fault."""
    log = (daemon.home / "logs" / "daemon.log").read_text()
    return [line[-400:] for line in log.splitlines() if "a connection failed" in line]


def test_huge_lines_are_answered_or_cut_off(daemon: Served) -> None:
    """Ten megabytes are read and refused; more than the bound closes the connection; none of it stays."""
    daemon.start()
    daemon.call("status")
    huge = b'{"id":1,"method":"send","params":{"text":"' + b"x" * (10 * MB) + b'"}}\n'
    endless = b"x" * (17 * MB)
    for hello in (b"", CALL_HELLO, MCP_HELLO):
        for line in (huge, endless):
            with suppress(OSError), Wire(daemon.socket) as wire:
                wire.say(hello)
                wire.say(line)
    until(lambda: daemon.call("status"), "it answers")
    before = memory(daemon)
    for _ in range(5):
        with suppress(OSError), Wire(daemon.socket) as wire:
            wire.say(CALL_HELLO)
            wire.say(endless)
    assert daemon.call("send", text="small")["state"] == "queued"
    assert memory(daemon) - before < 24 * MB


def test_no_more_connections_than_file_descriptors_are_taken() -> None:
    """A program that leaks connections must not take the person's inbox with it."""
    assert places_here().all <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES
    assert Places.within(1_024).all == 1_024 - SPARE_FILES
    assert Places.within(100_000).agents == AGENT_PLACES
    assert min(vars_of(Places.within(10))) > 0


def vars_of(places: Places) -> tuple[int, int, int]:
    """How many places there are of each kind."""
    return places.agents, places.hooks, places.calls


def test_the_person_is_served_and_told_when_agents_have_all_places(home: Path) -> None:
    """`status` and `doctor` say what is true in just the situation in which people ask them."""
    command = (sys.executable, "-I", "-m", "harken", "serve", "--detached", "--home", str(home))
    limited = ("/bin/sh", "-c", 'ulimit -n 160 && exec "$@"', "sh", *command)
    daemon = DaemonProcess(home, limited).start()
    try:
        wires = [Wire(daemon.socket, MCP_HELLO) for _ in range(Places.within(160).agents)]
        until(lambda: daemon.call("status")["daemon"]["places_problem"], "all places are taken")
        with Wire(daemon.socket, MCP_HELLO) as late:
            refused = json.loads(late.line() or b"{}")
        assert refused["error"]["code"] == "unavailable"
        assert "places for agents are taken" in refused["error"]["message"]
        assert daemon.call("send", text="from the person")["state"] == "queued"
        told = own_health(Home(home))
        assert [each.is_good for each in told.findings if each.what == "an agent that starts finds a place"] == [False]
        for wire in wires:
            wire.sock.close()
        until(lambda: not daemon.call("status")["daemon"]["places_problem"], "there are places")
        assert not [each for each in own_health(Home(home)).findings if "finds a place" in each.what]
    finally:
        daemon.stop()


def test_running_out_of_file_descriptors_is_survived(daemon: Served) -> None:
    """They may also go elsewhere, to HTTP or a library: accepting fails, and works again when some are free."""
    daemon.start()
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (256, 256))
    wires: list[Wire] = []
    with suppress(OSError):
        for _ in range(400):
            wires.append(Wire(daemon.socket, CALL_HELLO))
            wires[-1].sock.settimeout(2)
    log = daemon.home / "logs" / "daemon.log"
    # Accepting fails, or the last file goes to accepting and none is left to see who it is.
    until(lambda: "the loop socket failed" in log.read_text() or is_refused(wires[-1]), "there were too many")
    for wire in wires:
        wire.sock.close()
    until(lambda: answers(daemon), "it serves again", 10)
    assert not daemon.is_gone()


def is_refused(wire: Wire) -> bool:
    """Whether the other side has said no, or hung up."""
    try:
        wire.sock.recv(1_000, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def answers(daemon: Served) -> bool:
    """Whether a call is answered."""
    try:
        return bool(daemon.call("status"))
    except OSError:
        return False


@asynccontextmanager
async def listening(path: Path, listener: Listener) -> AsyncIterator[None]:
    """A real listener on a real socket, without a daemon around it."""
    async with await anyio.create_unix_listener(path) as sockets, anyio.create_task_group() as tasks:
        tasks.start_soon(sockets.serve, listener.handle)
        yield
        tasks.cancel_scope.cancel()


async def echo(stream: ByteStream, _lines: LineReader, hello: Hello, _origin: Origin) -> None:
    """Say who called, and wait for more."""
    await stream.send(hello.edge.encode() + b"\n")
    await anyio.sleep_forever()


async def fail(_stream: ByteStream, _lines: LineReader, _hello: Hello, _origin: Origin) -> None:
    """A surface with a bug."""
    raise ZeroDivisionError


@pytest.mark.anyio
async def test_connection_without_a_hello_is_closed(home: Path) -> None:
    """Half-open connections go away by themselves."""
    path = home.with_name("socket")
    async with listening(path, Listener({"echo": echo}, hello_seconds=0.05)):
        with anyio.fail_after(5):
            async with await anyio.connect_unix(path) as silent:
                with pytest.raises(anyio.EndOfStream):
                    await silent.receive()
            async with await anyio.connect_unix(path) as slow:
                await slow.send(b'{"harken":1,')
                with pytest.raises(anyio.EndOfStream):
                    await slow.receive()


@pytest.mark.anyio
async def test_connections_beyond_the_bound_are_told_so(home: Path) -> None:
    """Whoever comes too late gets an answer instead of silence, and a place when one is free."""
    path = home.with_name("socket")
    hello = b'{"harken":1,"kind":"echo","edge":"me"}\n'
    async with listening(path, Listener({"echo": echo}, places=Places(agents=1, hooks=0, calls=0))):
        with anyio.fail_after(5):
            async with await anyio.connect_unix(path) as first:
                await first.send(hello)
                assert await first.receive() == b"me\n"
                async with await anyio.connect_unix(path) as second:
                    refusal = json.loads(await second.receive())
                    assert refusal["error"]["code"] == "unavailable"


@pytest.mark.anyio
async def test_places_are_kept_for_hooks_and_for_the_persons_calls(home: Path) -> None:
    """Agents that leak connections must not lock the person out, nor keep mail from the others; theirs are refused."""
    path = home.with_name("socket")
    surfaces: dict[str, Serve] = dict.fromkeys(("mcp", "wake", "hook", "call"), echo)
    listener = Listener(
        surfaces, places=Places(agents=2, hooks=1, calls=1), is_agent=lambda _origin, hello: hello.cwd == "/agent"
    )
    async with listening(path, listener), AsyncExitStack() as open_here:

        async def come(kind: str, cwd: str = "") -> str:
            stream = await open_here.enter_async_context(await anyio.connect_unix(path))
            hello = {"harken": 1, "kind": kind, "edge": "served", "cwd": cwd}
            await stream.send(json.dumps(hello).encode() + b"\n")
            answer = (await stream.receive()).decode()
            if answer != "served\n":
                await stream.aclose()
            return answer

        with anyio.fail_after(10):
            assert listener.problem == ""
            assert [await come("mcp") for _ in range(2)] == ["served\n"] * 2
            assert "All 2 places" in listener.problem
            for kind, cwd in (("mcp", ""), ("wake", ""), ("call", "/agent")):
                error = json.loads(await come(kind, cwd))["error"]
                assert error["code"] == "unavailable"
                assert error["message"] == "All 2 places for agents are taken."
                assert "End some agents" in error["hint"]
            assert await come("hook") == "served\n"
            assert json.loads(await come("hook"))["error"]["message"] == "Too many hooks are running."
            assert await come("call") == "served\n"


@pytest.mark.anyio
async def test_connections_that_say_nothing_take_nobodys_place(home: Path) -> None:
    """Else any program of the account could keep the person out, ten seconds at a time."""
    path = home.with_name("socket")
    listener = Listener({"call": echo}, places=Places(agents=1, hooks=1, calls=1))
    async with listening(path, listener), AsyncExitStack() as open_here:
        with anyio.fail_after(10):
            silent = [await open_here.enter_async_context(await anyio.connect_unix(path)) for _ in range(3)]
            stream = await open_here.enter_async_context(await anyio.connect_unix(path))
            await stream.send(b'{"harken":1,"kind":"call","edge":"me"}\n')
            assert await stream.receive() == b"me\n"
            with pytest.raises(anyio.EndOfStream):
                await silent[0].receive()


@pytest.mark.anyio
async def test_fault_in_one_connection_leaves_the_others_alone(home: Path) -> None:
    """One agent's bug must not end the daemon for all."""
    path = home.with_name("socket")
    async with listening(path, Listener({"echo": echo, "fail": fail})):
        with anyio.fail_after(5):
            async with await anyio.connect_unix(path) as good, await anyio.connect_unix(path) as bad:
                await good.send(b'{"harken":1,"kind":"echo","edge":"good"}\n')
                assert await good.receive() == b"good\n"
                await bad.send(b'{"harken":1,"kind":"fail"}\n')
                with pytest.raises(anyio.EndOfStream):
                    await bad.receive()
                async with await anyio.connect_unix(path) as later:
                    await later.send(b'{"harken":1,"kind":"echo","edge":"later"}\n')
                    assert await later.receive() == b"later\n"
