"""When the daemon is replaced, the host does not notice: the edge says again what the new one must know."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.rig import (
    DISCOVER,
    INITIALIZE,
    INITIALIZED,
    Connection,
    FakeDaemon,
    Host,
    Json,
    encode,
    request,
    result,
    shake_hands,
    started,
)


def exchange(host: Host, connection: Connection, message: Json, answer: Json) -> None:
    """A request that reaches the daemon, and its answer that reaches the host."""
    host.send(message)
    assert connection.message() == message
    connection.send(answer)
    assert host.read() == answer


def relayed(host: Host, connection: Connection, *messages: Json) -> None:
    """Messages that reach the daemon and stay unanswered."""
    for message in messages:
        host.send(message)
        assert connection.message() == message


def facts(connection: Connection) -> tuple[object, object]:
    """What the hello says about an earlier connection."""
    return connection.hello["resumed"], connection.hello["resent"]


def test_a_new_daemon_gets_the_handshake_the_settings_and_the_unanswered_requests(
    home: Path, daemon: FakeDaemon, transport: str
) -> None:
    """In this order: a server takes no request before `initialize`, and calls may rely on the settings."""
    raw = b'{"jsonrpc":"2.0", "id":"1",  "method":"tools/call","params":{"n":1.0}}\n'
    with started(home, "--transport", transport) as host:
        first = daemon.accept()
        shake_hands(host, first)
        exchange(host, first, request(1, "resources/subscribe", uri="a"), result(1))
        exchange(host, first, request(2, "logging/setLevel", level="info"), result(2))
        exchange(host, first, request(3, "resources/subscribe", uri="b"), result(3))
        exchange(host, first, request(4, "resources/unsubscribe", uri="a"), result(4))
        exchange(host, first, request(5, "logging/setLevel", level="error"), result(5))
        relayed(host, first, request(7))
        host.send(raw)
        assert first.line() == raw
        first.close()

        second = daemon.accept()
        assert facts(second) == (True, [7, "1"])
        assert second.hello["edge"] == first.hello["edge"]
        assert [second.message() for _ in range(5)] == [
            INITIALIZE | {"id": "harken-replay-1"},
            INITIALIZED,
            request("harken-replay-2", "logging/setLevel", level="error"),
            request("harken-replay-3", "resources/subscribe", uri="b"),
            request(7),
        ]
        assert second.line() == raw


@pytest.mark.parametrize("failure", [{"error": {"code": -32000, "message": "no"}}, {"result": {"isError": True}}])
def test_a_new_daemon_is_told_which_calls_failed(home: Path, daemon: FakeDaemon, failure: Json) -> None:
    """An error carries no message: what the store has as offered to that call has reached nobody."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        exchange(host, first, request(7), {"jsonrpc": "2.0", "id": 7, **failure})
        exchange(host, first, request(8), result(8))
        first.close()
        second = daemon.accept()
        assert facts(second) == (True, [7])
        assert second.message() == INITIALIZE | {"id": "harken-replay-1"}


def test_answers_to_what_the_edge_said_again_do_not_reach_the_host(home: Path, daemon: FakeDaemon) -> None:
    """The host never asked for them; an unknown id makes some clients drop the connection."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        exchange(host, first, request(2, "logging/setLevel", level="info"), result(2))
        relayed(host, first, request(3))
        first.close()

        second = daemon.accept()
        assert [second.message()["id"] for _ in range(1)] == ["harken-replay-1"]
        assert second.message() == INITIALIZED
        assert second.message()["id"] == "harken-replay-2"
        assert second.message() == request(3)
        second.send(result("harken-replay-1"))
        second.send({"jsonrpc": "2.0", "id": "harken-replay-2", "error": {"code": -32601, "message": "no"}})
        second.send(result(3, text="done"))
        assert host.read() == result(3, text="done")
        exchange(host, second, request(4), result(4))


def test_an_unanswered_initialize_is_sent_again_and_its_answer_reaches_the_host(home: Path, daemon: FakeDaemon) -> None:
    """The host still waits for it."""
    with started(home) as host:
        first = daemon.accept()
        exchange(host, first, DISCOVER, {"jsonrpc": "2.0", "id": "probe-1", "error": {"code": -32601, "message": ""}})
        relayed(host, first, INITIALIZE)
        first.close()
        second = daemon.accept()
        assert facts(second) == (True, [0, "probe-1"])
        assert second.message() == INITIALIZE
        second.send(result(0))
        assert host.read() == result(0)


def test_a_daemon_lost_before_its_first_answer_is_replaced_too(home: Path, daemon: FakeDaemon, transport: str) -> None:
    """Lines relayed unread must not be lost with the daemon that got them."""
    with started(home, "--transport", transport) as host:
        first = daemon.accept()
        relayed(host, first, DISCOVER, INITIALIZE)
        first.close()
        second = daemon.accept()
        assert facts(second) == (True, ["probe-1", 0])
        assert [second.message() for _ in range(2)] == [DISCOVER, INITIALIZE]


def test_without_a_handshake_only_unanswered_requests_are_sent_again(home: Path, daemon: FakeDaemon) -> None:
    """In the 2026 protocol a connection has no state; a subscription is a request that stays open."""
    listen = request("l", "subscriptions/listen", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})
    with started(home) as host:
        first = daemon.accept()
        exchange(host, first, DISCOVER, result("probe-1", supportedVersions=["2026-07-28"]))
        relayed(host, first, listen)
        first.close()
        second = daemon.accept()
        assert facts(second) == (True, ["l"])
        assert second.message() == listen
        assert second.is_quiet()


def test_a_cancelled_request_is_not_sent_again(home: Path, daemon: FakeDaemon) -> None:
    """Doing what was taken back is worse than not doing it; the daemon is told that nobody got its answer either."""
    cancel: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        relayed(host, first, request(1), request("1"), cancel)
        first.close()
        second = daemon.accept()
        assert facts(second) == (True, ["1", 1])
        while (message := second.message()) != request("1"):
            assert message != request(1)


def test_new_daemon_is_told_what_the_host_cancelled_after_the_answer(home: Path, daemon: FakeDaemon) -> None:
    """The two may have crossed while no daemon was there to hear of it; a number that is used again means a new one."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        for number in (1, 2, 3):
            exchange(host, first, request(number), result(number))
        first.close()
        for cancelled in (2, 3, "never", None):
            host.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled}})
        host.send(request(3))
        second = daemon.accept()
        while second.message() != request(3):
            pass
        second.close()
        third = daemon.accept()
        assert third.hello["cancelled"] == [2, "never"]
        assert facts(third) == (True, [3])


def test_the_ids_1_and_text_1_are_different_requests(home: Path, daemon: FakeDaemon) -> None:
    """JSON-RPC says so; mixing them up loses one of two answers."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        relayed(host, first, request(1), request("1"))
        first.send(result("1"))
        assert host.read() == result("1")
        first.close()
        assert facts(daemon.accept()) == (True, [1])


def test_a_setting_that_was_refused_is_not_repeated(home: Path, daemon: FakeDaemon) -> None:
    """The first daemon did not take it either."""
    error: Json = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such level"}}
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        exchange(host, first, request(1, "logging/setLevel", level="loud"), error)
        first.close()
        second = daemon.accept()
        assert [second.message()["method"] for _ in range(2)] == ["initialize", "notifications/initialized"]
        assert second.is_quiet()


def test_half_a_line_of_a_lost_daemon_does_not_reach_the_host(home: Path, daemon: FakeDaemon) -> None:
    """It would run into the next line and spoil both."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        relayed(host, first, request(1))
        first.send(encode(result(1, text="half"))[:20])
        first.close()
        second = daemon.accept()
        assert [second.message().get("method") for _ in range(3)] == [
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]
        second.send(result(1, text="whole"))
        assert host.read() == result(1, text="whole")


def test_answers_sent_just_before_the_end_reach_the_host(home: Path, daemon: FakeDaemon) -> None:
    """A daemon that stops in good order answers first; asking the next one again would do the work twice."""
    with started(home) as host:
        first = daemon.accept()
        shake_hands(host, first)
        relayed(host, first, request(1), request(2))
        first.send(encode(result(1)) + encode(result(2)))
        first.close()
        assert [host.read(), host.read()] == [result(1), result(2)]
        assert facts(daemon.accept()) == (True, [])


def test_a_request_that_ends_the_daemon_each_time_gets_an_error(home: Path, daemon: FakeDaemon) -> None:
    """Otherwise one poisonous message would keep every daemon from coming up, for all sessions."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        relayed(host, connection, request(1))
        for _ in range(2):
            connection.close()
            connection = daemon.accept()
            assert facts(connection) == (True, [1])
            while connection.message() != request(1):
                pass
        connection.close()
        connection = daemon.accept()
        assert facts(connection) == (True, [1])
        answer = host.read()
        assert (answer["id"], set(answer)) == (1, {"jsonrpc", "id", "error"})


@pytest.mark.parametrize("count", [40])
def test_many_restarts_lose_no_request(home: Path, daemon: FakeDaemon, count: int) -> None:
    """Each restart is a chance to forget or to double something."""
    with started(home) as host:
        connection = daemon.accept()
        shake_hands(host, connection)
        for number in range(1, count):
            relayed(host, connection, request(number))
            connection.close()
            connection = daemon.accept()
            assert facts(connection) == (True, [number])
            while connection.message() != request(number):
                pass
            connection.send(result(f"harken-replay-{number}"))
            connection.send(result(number))
            assert host.read() == result(number)
