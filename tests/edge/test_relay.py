"""With a daemon up, the edge is a pipe that says who it is."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from tests.edge.rig import (
    INITIALIZE,
    PROOF,
    WAIT_SECONDS,
    Connection,
    FakeDaemon,
    Host,
    Json,
    encode,
    in_background,
    request,
    result,
    shake_hands,
    started,
)

MEBIBYTE = 1 << 20


def test_hello_says_who_the_edge_and_its_host_are(
    home: Path, daemon: FakeDaemon, transport: str, tmp_path: Path
) -> None:
    """The daemon finds the session by these facts, and must not be given the host's secrets."""
    environment = {"CLAUDE_PROJECT_DIR": "/src/a b", "AI_AGENT": 'x"\\\n', "CODEX_THREAD_ID": "", "API_KEY": "secret"}
    options = ("--transport", transport, "--consumer", "review", "--task", "api")
    with started(home, *options, environment=environment, cwd=tmp_path) as host:
        hello = daemon.accept().hello
        name = hello.pop("edge")
        expected: Json = {
            "harken": 1,
            "kind": "mcp",
            "pid": host.process.pid,
            "ppid": os.getpid(),
            "cwd": str(tmp_path),
            "consumer": "review",
            "task": "api",
            "resumed": False,
            "resent": [],
            "cancelled": [],
            "env": {"CLAUDE_PROJECT_DIR": "/src/a b", "AI_AGENT": 'x"\\\n', "CODEX_THREAD_ID": ""},
        }
    assert hello == (expected | {"token": PROOF} if transport == "tcp" else expected)
    assert isinstance(name, str)
    assert len(bytes.fromhex(name)) == 12


def test_a_folder_name_that_is_not_text_still_makes_a_valid_hello(
    home: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    """Folder names are any bytes; a hello the daemon cannot read would cost the whole session."""
    folder = tmp_path / os.fsdecode(b'a"\\\x01\xff\n\xc3\xa4')
    folder.mkdir()
    with started(home, cwd=folder):
        cwd = daemon.accept().hello["cwd"]
    assert isinstance(cwd, str)
    assert cwd.startswith(str(tmp_path) + '/a"\\\x01')
    assert cwd.endswith("\nä")


def test_lines_pass_both_ways_byte_for_byte(home: Path, daemon: FakeDaemon, transport: str) -> None:
    """Rewriting a message could change what it means to either side."""
    lines = [
        b'{"id": 1,  "jsonrpc":"2.0","method":"x", "params":{"n":1.10,"e":1E+2,"t":"\\u00e4\xc3\xa4"}}\r\n',
        b'  {"jsonrpc":"2.0","method":"notifications/progress","method":"notifications/progress"}\n',
        b'{"jsonrpc":"2.0","id":"s1","result":{}}\n',
    ]
    answers = [
        b'{"id":1, "jsonrpc" : "2.0","result":{"x":"\\ud83d\\ude00 \xe2\x82\xac"}}\n',
        b'{"jsonrpc":"2.0","id":"s1","method":"roots/list"}\n',
        b'{"jsonrpc":"2.0","method":"notifications/claude/channel","params":{"content":"hi"}}\n',
    ]
    with started(home, "--transport", transport) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        host.send(b"".join(lines))
        assert [connection.line() for _ in lines] == lines
        connection.send(b"".join(answers))
        assert [host.stdout.line() for _ in answers] == answers


def test_a_message_split_into_single_bytes_arrives_whole(home: Path, daemon: FakeDaemon) -> None:
    """Pipes cut wherever they like, also inside a character."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        line = encode(request(1, text="ä€"))
        for position in range(len(line)):
            host.send(line[position : position + 1])
        assert connection.line() == line


def test_empty_lines_are_not_relayed(home: Path, daemon: FakeDaemon) -> None:
    """They mean nothing, and an SDK server answers them with errors."""
    with started(home) as host:
        connection = daemon.accept()
        host.send(b"\n \r\n" + encode(INITIALIZE))
        assert connection.message() == INITIALIZE
        connection.send(result(0))
        assert host.read() == result(0)
        host.send(b"\n\t\n" + encode(request(1)))
        assert connection.message() == request(1)


def test_what_is_malformed_before_the_first_answer_is_the_daemons_to_answer(home: Path, daemon: FakeDaemon) -> None:
    """Reading lines needs json, which would double the start."""
    with started(home) as host:
        connection = daemon.accept()
        host.send(b"nonsense\n")
        assert connection.line() == b"nonsense\n"
        error: Json = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse"}}
        connection.send(error)
        assert host.read() == error
        host.send(INITIALIZE)
        assert connection.message() == INITIALIZE


def test_a_message_of_eight_mebibytes_passes_both_ways(home: Path, daemon: FakeDaemon, transport: str) -> None:
    """Tool results may be long; the pipes between are 64 KiB."""
    with started(home, "--transport", transport) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        big = encode(request(1, text="x" * 8 * MEBIBYTE))
        with in_background(lambda: host.send(big)):
            assert connection.line() == big
        with in_background(lambda: connection.send(big)):
            assert host.stdout.line() == big


def test_the_edge_ends_when_the_host_closes_stdin(home: Path, daemon: FakeDaemon, transport: str) -> None:
    """A closed stdin is how hosts end a server; one that stays is a leak in every session."""
    with started(home, "--transport", transport) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        host.send(request(1))
        assert connection.message() == request(1)
        host.stdin.close()
        assert host.exit_code() == 0
        assert connection.line() == b""


def test_the_edge_ends_when_nobody_reads_stdout(home: Path, daemon: FakeDaemon, transport: str) -> None:
    """A host that crashed may leave stdin open in another child."""
    with started(home, "--transport", transport) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        host.close_stdout()
        connection.send(result(1))
        assert host.exit_code() == 0
        assert connection.line() == b""


@pytest.mark.parametrize("is_greeted", [False, True])
def test_sigterm_is_a_clean_end(home: Path, daemon: FakeDaemon, *, is_greeted: bool) -> None:
    """Hosts report a server that dies by a signal as crashed."""
    with started(home) as host:
        connection = daemon.accept()
        if is_greeted:
            shake_hands(host, connection)
        host.process.send_signal(signal.SIGTERM)
        assert host.exit_code() == 0


def fill(descriptor: int, line: bytes) -> tuple[int, bytes]:
    """Write the line again and again until it is not taken for half a second; return how often, and the rest."""
    os.set_blocking(descriptor, False)
    count = 0
    rest = line
    while select.select([], [descriptor], [], 0.5)[1]:
        rest = rest[os.write(descriptor, rest) :]
        if not rest:
            count, rest = count + 1, line
        assert count * len(line) < 64 * MEBIBYTE, "nothing holds the writer back"
    os.set_blocking(descriptor, True)
    return count, rest


def test_a_host_that_does_not_read_stops_the_daemon(home: Path, daemon: FakeDaemon) -> None:
    """Otherwise a stuck host would fill the machine's memory with its mail."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        line = encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 10_000}})
        count, rest = fill(connection.descriptor, line)
        assert host.memory_kb("VmHWM") < 24_000
        with in_background(lambda: connection.send(rest)):
            assert [host.stdout.line() == line for _ in range(count + 1)] == [True] * (count + 1)


def test_a_daemon_that_does_not_read_stops_the_host(home: Path, daemon: FakeDaemon) -> None:
    """The same the other way round: nothing between the two may grow without end."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        line = encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"text": "x" * 10_000}})
        count, rest = fill(host.stdin.fileno(), line)
        assert host.memory_kb("VmHWM") < 24_000
        with in_background(lambda: host.send(rest)):
            assert [connection.line() == line for _ in range(count + 1)] == [True] * (count + 1)


def test_a_full_stdout_does_not_stop_requests(home: Path, daemon: FakeDaemon) -> None:
    """A host that writes before it reads must not wait for itself."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        fill(
            connection.descriptor, encode({"jsonrpc": "2.0", "method": "notifications/x", "params": {"d": "x" * 9_000}})
        )
        host.send(request(1))
        assert connection.message() == request(1)


def answered(host: Host, connection: Connection, identifier: object) -> None:
    """One request and its answer."""
    host.send(request(identifier))
    assert connection.message() == request(identifier)
    connection.send(result(identifier))
    assert host.read() == result(identifier)


def test_several_edges_share_a_daemon(home: Path, daemon: FakeDaemon) -> None:
    """Each session has its own connection and its own name."""
    with started(home) as one:
        first = daemon.accept()
        with started(home) as two:
            second = daemon.accept()
            answered(two, second, 1)
            answered(one, first, 1)
            assert first.hello["edge"] != second.hello["edge"]


def test_a_wrong_option_is_said_and_nothing_is_written_to_stdout(home: Path) -> None:
    """Stdout belongs to the protocol, also when the command is wrong."""
    with started(home, "--nonsense", "1") as host:
        out, err = host.process.communicate(timeout=WAIT_SECONDS)
        assert (host.process.returncode, out) == (2, b"")
        assert err.startswith(b"harken mcp: usage:")
