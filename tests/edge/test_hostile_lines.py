"""Whatever a host writes, the edge stays up, answers what it can, and keeps no more than it must."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.edge.link import MAX_LINE, Lines, quote
from tests.edge.rig import FakeDaemon, Host, Json, encode, in_background, request, result, shake_hands, started

PARSE_ERROR, INVALID_REQUEST, UNAVAILABLE = -32700, -32600, -32000
DEEP = 100_000

MALFORMED = {
    "text": (b"nonsense", PARSE_ERROR),
    "half": (b'{"jsonrpc":"2.0","id":1,"method":', PARSE_ERROR),
    "two in one line": (b'{"jsonrpc":"2.0","id":1,"method":"a"}{}', PARSE_ERROR),
    "not utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR),
    "utf-16": ('{"jsonrpc":"2.0","id":1,"method":"a"}'.encode("utf-16"), PARSE_ERROR),
    "byte order mark": (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"a"}', PARSE_ERROR),
    "nul": (b"\0", PARSE_ERROR),
    "not a number": (b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":NaN}}', PARSE_ERROR),
    "endless number": (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"a"}', PARSE_ERROR),
    "deep lists": (b"[" * DEEP + b"]" * DEEP, PARSE_ERROR),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, PARSE_ERROR),
    "batch": (b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', INVALID_REQUEST),
    "number": (b"1", INVALID_REQUEST),
    "null": (b"null", INVALID_REQUEST),
    "empty object": (b"{}", INVALID_REQUEST),
    "null id": (b'{"jsonrpc":"2.0","id":null,"method":"a"}', INVALID_REQUEST),
    "broken id": (b'{"jsonrpc":"2.0","id":1.5,"method":"a"}', INVALID_REQUEST),
    "list id": (b'{"jsonrpc":"2.0","id":[1],"method":"a"}', INVALID_REQUEST),
    "method is no text": (b'{"jsonrpc":"2.0","id":1,"method":{}}', INVALID_REQUEST),
}


@pytest.fixture
def transport() -> str:
    """One transport is enough: these lines do not get as far as the socket."""
    return "unix"


def error_code(answer: Json) -> object:
    """The code of an error that belongs to no request."""
    assert answer["id"] is None
    error = answer["error"]
    assert isinstance(error, dict)
    return error["code"]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_answered_here_and_disturbs_nobody(home: Path, daemon: FakeDaemon, name: str) -> None:
    """An SDK server may close the connection over one bad line, and with it everything in flight."""
    line, code = MALFORMED[name]
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        with in_background(lambda: host.send(line + b"\n")):
            assert error_code(host.read()) == code
        host.send(request(1))
        assert connection.message() == request(1)


@pytest.mark.parametrize("identifier", ["", 'é\u2028\ud800"\\\n', -1, 2**63, "x" * 10_000])
def test_any_id_comes_back_unchanged(home: Path, identifier: object) -> None:
    """A host can only match an error by the very id it chose."""
    with started(home, "--spawn", "/nowhere/python", "--patience", "0.4") as host:
        host.send(request(identifier))
        assert host.read()["id"] == identifier


def test_a_line_that_is_too_long_is_skipped_and_not_kept(home: Path, daemon: FakeDaemon) -> None:
    """One line of a runaway tool must not cost the machine's memory."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        with in_background(lambda: host.send(b'{"a":"' + b"x" * (6 * MAX_LINE) + b'"}\n' + encode(request(1)))):
            assert error_code(host.read()) == INVALID_REQUEST
            assert connection.message() == request(1)
        assert host.memory_kb("VmHWM") < 12_000 + 2 * MAX_LINE // 1024
        assert host.stdout.is_quiet()


def test_an_answer_that_is_too_long_becomes_an_error(home: Path, daemon: FakeDaemon) -> None:
    """The request must not stay open for ever because its answer cannot be passed on."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        host.send(request(1))
        assert connection.message() == request(1)
        with in_background(lambda: connection.send(encode(result(1, text="x" * MAX_LINE)))):
            answer = host.read()
        assert (answer["id"], "error" in answer) == (1, True)
        host.send(request(2))
        assert connection.message() == request(2)


def test_a_daemon_line_that_is_no_message_does_not_reach_the_host(home: Path, daemon: FakeDaemon) -> None:
    """Stdout carries JSON-RPC and nothing else."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        connection.send(b'Traceback\n[]\n"x"\n\xff\n{"harken":1,"later":true}\n')
        connection.send(result(1))
        assert host.read() == result(1)


def test_too_many_open_requests_are_refused_one_by_one(home: Path, daemon: FakeDaemon) -> None:
    """Each is kept for a later daemon, so their number has an end."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        with in_background(lambda: host.send(b"".join(encode(request(number)) for number in range(1, 1026)))):
            assert [connection.message()["id"] for _ in range(1024)] == list(range(1, 1025))
        assert host.read()["id"] == 1025
        connection.send(result(1))
        assert host.read() == result(1)
        host.send(request(1025))
        assert connection.message() == request(1025)


def noise(seed: int, size: int) -> bytes:
    """Bytes without order, the same in every run."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def malformed_line(seed: int) -> bytes:
    """Bytes that look more or less like a message."""
    size = int.from_bytes(noise(seed, 2)) % 5000 + 10
    match seed % 6:
        case 0:
            return b"\xff" + noise(seed, size).replace(b"\n", b"")
        case 1:
            return b"[" * size
        case 2:
            return encode(request(1, text="x" * size * 4))[: -(size % 7) - 2]
        case 3:
            return json.dumps([seed / 7] * size).encode()
        case 4:
            line = bytearray(encode(request(seed, x="\u00e4" * 50))[:-1])
            line[size % len(line)] = 0xFF
            return bytes(line)
        case _:
            return json.dumps("\\" * size).encode()


def pelted(host: Host, seeds: range) -> int:
    """Send malformed lines, each with its answer; return the memory after it."""
    for seed in seeds:
        host.send(malformed_line(seed) + b"\n")
        assert error_code(host.read()) in {PARSE_ERROR, INVALID_REQUEST}
    return host.memory_kb("VmRSS")


def test_a_thousand_malformed_lines_leave_memory_flat(home: Path, daemon: FakeDaemon) -> None:
    """An edge lives as long as its session, which may be weeks."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        before = pelted(host, range(200))
        after = pelted(host, range(200, 1200))
        assert after - before < 512
        host.send(request(1))
        assert connection.message() == request(1)


def test_a_thousand_answered_requests_leave_memory_flat(home: Path, daemon: FakeDaemon) -> None:
    """What is kept for a later daemon must go with its answer."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        memory = []
        for number in range(1, 1201):
            host.send(request(number, text="x" * 5000))
            assert connection.message()["id"] == number
            connection.send(result(number, text="x" * 5000))
            assert host.read()["id"] == number
            memory.append(host.memory_kb("VmRSS"))
        assert memory[-1] - memory[200] < 512


def test_open_requests_have_a_limit_in_bytes_too(home: Path, daemon: FakeDaemon) -> None:
    """A thousand of the longest requests would be sixteen gigabytes."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        text = "x" * (MAX_LINE * 3 // 4)
        with in_background(lambda: host.send(b"".join(encode(request(number, text=text)) for number in (1, 2, 3)))):
            assert [connection.message()["id"] for _ in range(2)] == [1, 2]
            assert host.read()["id"] == 3


@given(st.lists(st.binary(max_size=40)))
def test_lines_are_the_same_however_the_stream_is_cut(chunks: list[bytes]) -> None:
    """Where a read ends says nothing about the messages."""
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    assert found == [line + b"\n" for line in b"".join(chunks).split(b"\n")[:-1]]


@pytest.mark.parametrize("cut", [1, 1 << 16, MAX_LINE - 1, MAX_LINE, 2 * MAX_LINE])
def test_the_longest_line_passes_and_one_byte_more_does_not(cut: int) -> None:
    """The limit is the same wherever reads end."""
    for size, passes in ((MAX_LINE - 1, True), (MAX_LINE, False)):
        stream = b"x" * size + b"\n" + b"next\n"
        lines = Lines()
        step = cut if cut > 1 else len(stream) - 1
        found = [line for at in range(0, len(stream), step) for line in lines.feed(stream[at : at + step])]
        assert [line and len(line) for line in found] == [size + 1 if passes else None, 5]


@given(st.text())
def test_quoted_text_is_that_text_in_json(text: str) -> None:
    """The hello and every error are written without `json`."""
    assert json.loads(quote(text)) == text
    assert "\n" not in quote(text)
