"""The loopback Graph keeps the documented rules of change notifications, towards a receiver that a test can turn."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.graph import names
from tests.graph.clock import stamp
from tests.graph.names import strangers
from tests.graph.service import Graph


class Receiver(ThreadingHTTPServer):
    """An https address that answers the handshake and keeps what it is told."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(graph.certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}/hook"
        self.told: list[dict[str, list[dict[str, Any]]]] = []
        self.is_honest = True
        self.status = 202


class Handler(BaseHTTPRequestHandler):
    """One visit of the service."""

    server: Receiver

    def do_POST(self) -> None:
        """Echo the validation token, or take a notification."""
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        tokens = parse_qs(urlsplit(self.path).query).get("validationToken")
        if tokens:
            text = tokens[0] if self.server.is_honest else "something else"
            self._say(200, text.encode())
        else:
            self.server.told.append(json.loads(body))
            self._say(self.server.status, b"")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver(graph: Graph) -> Iterator[Receiver]:
    """A receiver in a thread of its own."""
    with Receiver(graph) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


def _wanted(graph: Graph, resource: str, url: str, **more: object) -> dict[str, object]:
    expires = stamp(graph.clock.now() + timedelta(minutes=50))
    wanted = {"changeType": "created,updated,deleted", "notificationUrl": url, "clientState": "secret"}
    return wanted | {"resource": resource, "expirationDateTime": expires} | more


def test_a_subscription_tells_of_changes(graph: Graph, client: httpx2.Client, receiver: Receiver) -> None:
    """New, edited and deleted messages of the chat are told, with the state that proves who tells."""
    ann = graph.person("Ann Example")
    chat, other = graph.chat(ann), graph.chat(graph.person("Bea"))
    made = client.post("/subscriptions", json=_wanted(graph, f"/chats/{chat.id}/messages", receiver.url))
    assert (made.status_code, strangers(made.json(), names.SUBSCRIPTION)) == (201, set())

    message = graph.say(chat, ann, "hello")
    graph.say(other, graph.me, "not yours")
    graph.edit(chat, message, "hello!")
    graph.delete(chat, message)
    graph.subscriptions.settle()

    told = [told["value"][0] for told in receiver.told]
    assert [(entry["changeType"], entry["clientState"], entry["resourceData"]["id"]) for entry in told] == [
        ("created", "secret", message.id),
        ("updated", "secret", message.id),
        ("deleted", "secret", message.id),
    ]
    assert strangers(receiver.told, names.NOTIFICATION) == set()


def test_an_address_that_fails_the_handshake_is_refused(
    graph: Graph, client: httpx2.Client, receiver: Receiver
) -> None:
    """Nobody can be made to send to an address that does not want it."""
    wanted = _wanted(graph, "me/mailFolders('inbox')/messages", receiver.url)
    receiver.is_honest = False
    assert client.post("/subscriptions", json=wanted).json()["error"]["code"] == "ValidationError"
    assert client.post("/subscriptions", json=wanted | {"notificationUrl": "http://127.0.0.1:1/x"}).status_code == 400
    assert not graph.subscriptions.held

    receiver.is_honest = True
    assert client.post("/subscriptions", json=wanted).status_code == 201


def test_a_long_life_needs_an_address_for_its_own_events(
    graph: Graph, client: httpx2.Client, receiver: Receiver
) -> None:
    """Over an hour for chats only with that address, and never over three days."""
    chat = graph.chat(graph.person("Ann Example"))
    wanted = _wanted(graph, f"chats/{chat.id}/messages", receiver.url)
    hours = {"expirationDateTime": stamp(graph.clock.now() + timedelta(hours=2))}
    days = {"expirationDateTime": stamp(graph.clock.now() + timedelta(days=4))}
    lifecycle = {"lifecycleNotificationUrl": receiver.url}

    assert client.post("/subscriptions", json=wanted | hours).status_code == 400
    assert client.post("/subscriptions", json=wanted | hours | lifecycle).status_code == 201
    assert client.post("/subscriptions", json=wanted | days | lifecycle).status_code == 400

    graph.subscriptions.tell_lifecycle("reauthorizationRequired")
    graph.say(chat, graph.me, "lost")
    graph.subscriptions.settle()
    assert [told["value"][0].get("lifecycleEvent") for told in receiver.told] == ["reauthorizationRequired"]
    held = next(iter(graph.subscriptions.held))
    assert client.post(f"/subscriptions/{held}/reauthorize").status_code == 204
    graph.say(chat, graph.me, "heard")
    graph.subscriptions.settle()
    assert len(receiver.told) == 2


def test_a_subscription_is_renewed_ends_and_is_deleted(graph: Graph, client: httpx2.Client, receiver: Receiver) -> None:
    """What was not renewed in time is not there any more."""
    made = client.post("/subscriptions", json=_wanted(graph, "me/messages", receiver.url)).json()
    path = f"/subscriptions/{made['id']}"
    later = {"expirationDateTime": stamp(graph.clock.now() + timedelta(days=6))}
    too_late = {"expirationDateTime": stamp(graph.clock.now() + timedelta(days=8))}

    assert client.patch(path, json=too_late).status_code == 400
    assert client.patch(path, json=later).json()["expirationDateTime"] == later["expirationDateTime"]
    graph.clock.advance(7 * 24 * 3600)
    headers = {"Authorization": f"Bearer {graph.token()}"}
    assert client.get(path, headers=headers).status_code == 404
    graph.clock.advance(-7 * 24 * 3600)
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_what_was_not_accepted_is_sent_again(graph: Graph, client: httpx2.Client, receiver: Receiver) -> None:
    """A receiver that answers 500 hears of the mail once more."""
    wanted = _wanted(graph, "me/mailFolders/inbox/messages", receiver.url)
    assert client.post("/subscriptions", json=wanted).status_code == 201
    receiver.status = 500
    graph.mail(graph.person("Ann Example"), "Hi", "x")
    graph.subscriptions.settle()
    receiver.status = 202

    graph.subscriptions.send_again()
    graph.subscriptions.settle()

    assert (len(receiver.told), [sent.status for sent in graph.notifications]) == (2, [202])


def test_a_subscription_needs_the_scope_of_its_resource(
    graph: Graph, client: httpx2.Client, receiver: Receiver
) -> None:
    """Whoever may not read may not listen either."""
    poor = {"Authorization": f"Bearer {graph.token('User.Read')}"}
    wanted = _wanted(graph, "me/messages", receiver.url)

    assert client.post("/subscriptions", json=wanted, headers=poor).status_code == 403
    assert client.post("/subscriptions", json=wanted | {"resource": "me/drive/root"}).status_code == 400
