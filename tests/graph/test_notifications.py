"""The loopback Graph keeps the documented rules of subscriptions; that it tells of changes, the tests of Teams show."""

from __future__ import annotations

from datetime import timedelta

import httpx2
import pytest

from tests.graph import names
from tests.graph.clock import stamp
from tests.graph.names import strangers
from tests.graph.service import Graph
from tests.graph.subscriptions import Subscription

NOBODY = "https://127.0.0.1:1/hook"
MAIL = {"resource": "me/messages"}
EVENTS = {"lifecycleNotificationUrl": NOBODY}


def _wanted(graph: Graph, minutes: int = 50) -> dict[str, object]:
    chat = graph.chat(graph.person("Ann Example"))
    wanted = {"changeType": "created,updated,deleted", "notificationUrl": NOBODY, "clientState": "secret"}
    expires = stamp(graph.clock.now() + timedelta(minutes=minutes))
    return {**wanted, "resource": f"/chats/{chat.id}/messages", "expirationDateTime": expires}


@pytest.mark.parametrize(
    ("more", "minutes", "code"),
    [
        ({}, 50, "ValidationError"),  # nobody answers the handshake
        ({"notificationUrl": "http://127.0.0.1:1/x"}, 50, "InvalidRequest"),
        ({"resource": "me/drive/root"}, 50, "InvalidRequest"),
        ({"changeType": "renamed"}, 50, "InvalidRequest"),
        # Over an hour for chats only with an address for events of its own, and never over three days.
        ({}, 120, "InvalidRequest"),
        (EVENTS, 120, "ValidationError"),
        (EVENTS, 4 * 24 * 60, "InvalidRequest"),
        (MAIL, 6 * 24 * 60, "ValidationError"),
        (MAIL, 8 * 24 * 60, "InvalidRequest"),
    ],
)
def test_a_subscription_that_breaks_a_rule_is_refused(
    graph: Graph, client: httpx2.Client, more: dict[str, object], minutes: int, code: str
) -> None:
    """Nobody can be made to send to an address that does not want it, nor for longer than is documented."""
    refused = client.post("/subscriptions", json=_wanted(graph, minutes) | more)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)
    assert not graph.subscriptions.held


def test_a_subscription_needs_the_scope_of_its_resource(graph: Graph, client: httpx2.Client) -> None:
    """Whoever may not read may not listen either."""
    poor = {"Authorization": f"Bearer {graph.token('User.Read')}"}
    assert client.post("/subscriptions", json=_wanted(graph) | MAIL, headers=poor).status_code == 403


def test_a_subscription_holds_documented_names_only_until_it_ends(graph: Graph, client: httpx2.Client) -> None:
    """What was not renewed in time is not there any more."""
    expires = graph.clock.now() + timedelta(minutes=50)
    held = Subscription("s", graph.me, graph.client_id, "me/messages", frozenset({"created"}), NOBODY, "", "x", expires)
    graph.subscriptions.held["s"] = held
    shown = client.get("/subscriptions").json()
    assert ([each["id"] for each in shown["value"]], strangers(shown, names.SUBSCRIPTION)) == (["s"], set())
    graph.clock.advance(51 * 60)
    assert client.get("/subscriptions").json()["value"] == []
