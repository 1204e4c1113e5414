"""Answers whose connection is lost: fetched again by clients that resume, offered again to all others."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from itertools import count

import pytest

from tests.loss.rig import WAIT_SECONDS, Json, until
from tests.remote.rig import ACCEPT, PublicDaemon

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ACCEPTED = 202
ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])


@dataclass(slots=True)
class RawClient:
    """A client of the protocol that does what no library lets it do."""

    public: PublicDaemon
    secret: str
    version: str
    session: str = ""
    name: str = "raw"
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def begin(self) -> RawClient:
        """Say hello, where that is needed."""
        if self.version == LEGACY:
            info = {"name": self.name, "version": "1"}
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
            with self.posted({"id": 0, "method": "initialize", "params": params}) as answer:
                self.session = answer.headers["mcp-session-id"]
                answer.read()
            with self.posted({"method": "notifications/initialized"}) as answer:
                answer.read()
        return self

    @contextmanager
    def posted(self, message: dict[str, Json]) -> Iterator[HTTPResponse]:
        """Post a message, and close its connection at the end, read or not."""
        message = {"jsonrpc": "2.0", **message}
        client = self.public.connection()
        try:
            client.request("POST", "/mcp", json.dumps(message), self.headers(message))
            yield client.getresponse()
        finally:
            client.close()

    def headers(self, message: dict[str, Json]) -> dict[str, str]:
        """Return what is said with a message."""
        said = {"Authorization": f"Bearer {self.secret}", "Accept": ACCEPT, "Content-Type": "application/json"}
        if self.session:
            return {**said, "Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}
        if self.version == MODERN:
            name = {"Mcp-Name": message["params"]["name"]} if message["method"] == "tools/call" else {}
            return {**said, "MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"], **name}
        return said

    def tool_call(self, tool: str, **arguments: object) -> dict[str, Json]:
        """Return a message that calls a tool."""
        return {"id": next(self.numbers), **self.message("tools/call", name=tool, arguments=arguments)}

    def message(self, method: str, **params: Json) -> dict[str, Json]:
        """Return a message without an id."""
        if self.version == MODERN:
            keys = ("protocolVersion", "clientCapabilities", "clientInfo")
            values: tuple[Json, ...] = (MODERN, {}, {"name": self.name, "version": "1"})
            params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in zip(keys, values, strict=True)}
        return {"method": method, "params": params}

    def tool(self, tool: str, **arguments: object) -> Json:
        """Call a tool and read its answer."""
        with self.posted(self.tool_call(tool, **arguments)) as answer:
            data = answer.read().decode()
        (said,) = [each for each in map(json.loads, _data(data)) if "result" in each]
        return json.loads(said["result"]["content"][0]["text"])


def _data(text: str) -> list[str]:
    if text.startswith("{"):
        return [text]
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]


def _presence(public: PublicDaemon) -> list[str]:
    return [each["presence"] for each in public.call("status")["sessions"]]


def test_session_that_a_client_was_told_of_is_there_however_the_greeting_ends(public: PublicDaemon) -> None:
    """Clients close a connection as soon as they have read what they want."""
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
    secret = public.token()
    for _ in range(10):
        client = RawClient(public, secret, LEGACY)
        with client.posted({"id": 0, "method": "initialize", "params": params}) as answer:
            client.session = answer.headers["mcp-session-id"]
        with client.posted({"method": "notifications/initialized"}) as answer:
            assert answer.status == ACCEPTED


def test_resumed_stream_has_the_answer_that_came_meanwhile(public: PublicDaemon) -> None:
    """A wait goes on without its connection; its answer is fetched, and the next call proves it."""
    client = RawClient(public, public.token(), LEGACY).begin()
    with client.posted(client.tool_call("wait_for_inbound_message", timeout_s=50)) as answer:
        first = next(line for line in iter(answer.readline, b"") if line.startswith(b"id: "))
        until(lambda: _presence(public) == ["waiting"], "it waits")
    sent = public.call("send", text="while you were away", sender="ci-bot")["id"]
    until(lambda: _ledger(public, sent) == "offered", "it was offered")
    headers = client.headers({})
    headers["Last-Event-ID"] = first.removeprefix(b"id: ").strip().decode()
    connection = public.connection()
    connection.request("GET", "/mcp", headers=headers)
    with closing(connection), connection.getresponse() as stream:
        line = next(line for line in iter(stream.readline, b"") if line.startswith(b"data: {"))
        assert sent in line.decode()
        client.tool("inbound_queue_stats")
    assert _ledger(public, sent) == "seen"


def _ledger(public: PublicDaemon, message: str) -> str:
    found = public.call("read", ref=message)["ledger"]
    return next((each["state"] for each in found if each["consumer"] == "elsewhere"), "")


def test_wait_of_a_modern_client_that_is_gone_takes_nothing(public: PublicDaemon) -> None:
    """Closing the answer cancels the call: what comes later waits for the next one, and is no repeat."""
    client = RawClient(public, public.token(), MODERN).begin()
    connection = public.connection()
    message = {"jsonrpc": "2.0", **client.tool_call("wait_for_inbound_message", timeout_s=50)}
    connection.request("POST", "/mcp", json.dumps(message), client.headers(message))
    until(lambda: _presence(public) == ["waiting"], "it waits")
    connection.close()
    until(lambda: _presence(public) == ["connected"], "it waits no more")
    sent = public.call("send", text="later", sender="ci-bot")["id"]
    (given,) = client.tool("inbox_pull")["messages"]
    assert (given["id"], given.get("repeat", False)) == (sent, False)


@ERAS
@pytest.mark.parametrize("ending", ["at once", "as asked", "idle"])
def test_answer_that_was_read_is_seen_however_its_connection_ends(
    public: PublicDaemon, version: str, ending: str
) -> None:
    """A client reads it and closes, says that it wants no other, or thinks for so long that the daemon closes."""
    client = RawClient(public, public.token(), version).begin()
    sent = public.call("send", text="once", sender="ci-bot")["id"]
    message = {"jsonrpc": "2.0", **client.tool_call("inbox_pull")}
    said = client.headers(message) | ({"Connection": "close"} if ending == "as asked" else {})
    with closing(public.connection()) as connection:
        connection.request("POST", "/mcp", json.dumps(message), said)
        assert sent in connection.getresponse().read().decode()
        while ending == "idle" and connection.sock.recv(1):
            pass
    assert client.tool("inbox_pull")["messages"] == []
    assert _ledger(public, sent) == "seen"


@ERAS
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_answer_that_nobody_read_is_given_again(public: PublicDaemon, version: str, connection: str) -> None:
    """A client that is cut off after it has asked has not seen what it was given, whatever it calls next."""
    client = RawClient(public, public.token(), version).begin()
    text = "x" * 5_000
    sent = public.call("send", text=text, sender="ci-bot")["id"]
    client.tool("inbound_queue_stats")
    message = {"jsonrpc": "2.0", **client.tool_call("inbox_pull")}
    with public.main.secure() as sock:
        body = json.dumps(message).encode()
        said = client.headers(message) | {"Host": f"localhost:{public.main.port}", "Content-Length": str(len(body))}
        said["Connection"] = connection
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        head = f"POST /mcp HTTP/1.1\r\n{lines}\r\n"
        sock.sendall(head.encode() + body)
        until(lambda: _ledger(public, sent) == "offered", "it was offered")
        # Closed with something unread, a connection is reset.
    again = client.tool("inbox_pull")["messages"]
    if not again:  # its loss is noticed a moment after the call
        again = until(lambda: client.tool("inbox_pull")["messages"], "it is given again", WAIT_SECONDS)
    assert [each["id"] for each in again] == [sent]


def test_cancellation_of_a_modern_client_takes_no_answer_of_another_call(public: PublicDaemon) -> None:
    """Its ids are its own and may come again: what one names says nothing about the calls that the daemon numbers."""
    client = RawClient(public, public.token(), MODERN, numbers=count(7)).begin()
    sent = public.call("send", text="once", sender="ci-bot")["id"]
    assert [each["id"] for each in client.tool("inbox_pull")["messages"]] == [sent]
    with client.posted(client.message("notifications/cancelled", requestId=1)) as answer:
        answer.read()
    assert client.tool("inbox_pull")["messages"] == []
    assert _ledger(public, sent) == "seen"


def test_requests_that_come_together_are_of_one_agent(public: PublicDaemon) -> None:
    """Else what one of two was given, a later call of the other would not prove, and it would come again."""
    client = RawClient(public, public.token(), MODERN)
    sent = public.call("send", text="once", sender="ci-bot")["id"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.tool, ["inbox_pull", *["inbound_queue_stats"] * 3]))
    assert [each["id"] for each in answers[0]["messages"]] == [sent]
    assert len(public.call("status")["sessions"]) == 1
    client.tool("inbound_queue_stats")
    assert _ledger(public, sent) == "seen"


@ERAS
@pytest.mark.parametrize("way", ["another connection", "behind it"])
def test_call_that_was_on_its_way_before_the_answer_proves_nothing(
    public: PublicDaemon, version: str, way: str
) -> None:
    """Calls of one step go out together; one that needs a handshake first, or waits in line, comes after the answer."""
    client = RawClient(public, public.token(), version).begin()
    sent = public.call("send", text="once", sender="ci-bot")["id"]
    pull, stats = (_request(public, client, name) for name in ("inbox_pull", "inbound_queue_stats"))
    with public.main.raw() as other, public.main.secure() as first:
        first.settimeout(WAIT_SECONDS)
        first.sendall(pull + stats if way == "behind it" else pull)
        _read_until(first, sent)
        if way == "behind it":
            _read_until(first, "dropped_total")
        else:
            with public.main.client_context().wrap_socket(other, server_hostname="localhost") as second:
                second.sendall(stats)
                _read_until(second, "dropped_total")
        assert _ledger(public, sent) == "offered"
        client.tool("inbound_queue_stats")
    assert _ledger(public, sent) == "seen"


def _request(public: PublicDaemon, client: RawClient, tool: str) -> bytes:
    message = {"jsonrpc": "2.0", **client.tool_call(tool)}
    body = json.dumps(message).encode()
    said = client.headers(message) | {"Host": f"localhost:{public.main.port}", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


def _read_until(sock: socket.socket, text: str) -> None:
    found = b""
    while text.encode() not in found:
        part = sock.recv(1 << 16)
        assert part, found
        found += part
