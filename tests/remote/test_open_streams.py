"""What an agent elsewhere holds open: it is told what its token lets it read, and it ends with that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse
from itertools import islice
from typing import Final

import pytest

from tests.loss.rig import Json, until
from tests.remote.rig import PublicDaemon
from tests.remote.test_lost_streams import ERAS, LEGACY, MODERN, RawClient

EVENT: Final = "message.received"


@contextmanager
def listening(client: RawClient) -> Iterator[HTTPResponse]:
    """Open the stream on which a client of 2025 hears what it did not ask for."""
    with closing(client.public.connection()) as connection:
        connection.request("GET", "/mcp", headers=client.headers({}))
        answer = connection.getresponse()
        assert answer.status == 200
        yield answer


def asked(client: RawClient, method: str, **params: Json) -> dict[str, Json]:
    """Return a request."""
    return {"id": next(client.numbers), **client.message(method, **params)}


def frames(answer: HTTPResponse) -> Iterator[Json]:
    """Yield what comes on a stream."""
    for line in iter(answer.readline, b""):
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def test_token_that_may_not_read_is_told_of_nothing(public: PublicDaemon) -> None:
    """Not even from whom and where something came; and nobody is promised that its agent reads it."""
    client = RawClient(public, public.token("talker", may=["send"]), LEGACY).begin()
    with listening(client) as stream:
        sent = public.call("send", text="for readers", sender="Ann", channel="plans")
        (session,) = public.call("status")["sessions"]
        public.call("token_revoke", name="talker")
        heard = list(frames(stream))
    assert "talker" not in sent["forecast"]["sentence"]
    assert (session["consumer"], session["mailboxes"]) == ("talker", [])
    assert heard == []


@ERAS
def test_token_for_every_mailbox_is_for_those_that_come_later(public: PublicDaemon, version: str) -> None:
    """A project begins with its first message, which an agent that is here already must get."""
    client = RawClient(public, public.token(may=["read"], mailboxes=["*"]), version).begin()
    assert client.tool("inbox_pull")["messages"] == []
    sent = public.call("send", text="begin", sender="Ann", to="project:new")["id"]
    assert [each["id"] for each in client.tool("inbox_pull")["messages"]] == [sent]


@ERAS
def test_stream_for_every_mailbox_tells_of_those_that_come_later(public: PublicDaemon, version: str) -> None:
    """Nothing else is asked meanwhile that could have the daemon look again."""
    client = RawClient(public, public.token(may=["read"], mailboxes=["*"]), version).begin()
    with client.posted(asked(client, "events/stream", name=EVENT)) as answer:
        told = frames(answer)
        assert next(told)["method"] == "notifications/events/active"
        sent = public.call("send", text="begin", sender="Ann", to="project:new")["id"]
        # A heartbeat may come before it, where the machine is slow.
        event = next(each for each in islice(told, 4) if each["method"] == "notifications/events/event")
        assert event["params"]["data"]["message_id"] == sent


@pytest.mark.parametrize(
    ("version", "held"),
    [(version, held) for version in (LEGACY, MODERN) for held in ("wait", "events")]
    + [(LEGACY, "stream"), (MODERN, "listen"), (LEGACY, "api")],
)
def test_whatever_is_open_ends_with_its_token(public: PublicDaemon, version: str, held: str) -> None:
    """At once, and what comes afterwards is told to nobody who had it."""
    client = RawClient(public, public.token(), version).begin()
    waiting = client.tool_call("wait_for_inbound_message", timeout_s=50)
    listen = asked(client, "subscriptions/listen", notifications={"resourceSubscriptions": ["harken://inbox"]})
    with closing(public.connection()) as connection:
        headers = {"Authorization": f"Bearer {client.secret}"}
        if held == "stream":
            connection.request("GET", "/mcp", headers=client.headers({}))
        elif held == "api":
            connection.request("POST", "/api/wait", b'{"timeout": 50}', headers)
        else:
            message = {"wait": waiting, "listen": listen, "events": asked(client, "events/stream", name=EVENT)}[held]
            body = json.dumps({"jsonrpc": "2.0", **message})
            connection.request("POST", "/mcp", body, client.headers(message))
        if held in ("wait", "api"):
            until(lambda: _waits(public, held), f"{held} is open")
        answer = None if held in ("wait", "api") else connection.getresponse()
        public.call("token_revoke", name="elsewhere")
        public.call("send", text="too late", sender="Ann", channel="plans")
        assert b"plans" not in (answer or connection.getresponse()).read()
    assert public.ask("/mcp", client.secret, {})[0] == 401


def _waits(public: PublicDaemon, held: str) -> bool:
    if held == "api":
        return bool(public.call("token_list")["tokens"][0]["used_at"])
    return any(each["presence"] == "waiting" for each in public.call("status")["sessions"])
