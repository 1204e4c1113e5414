"""The loopback Graph keeps the documented rules of chats: a right request shows each rule, a wrong one meets it."""

from __future__ import annotations

import ssl
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx2
import pytest

from tests.graph import names
from tests.graph.clock import stamp
from tests.graph.faults import Fault
from tests.graph.names import strangers
from tests.graph.service import Graph, serving
from tests.graph.world import Chat

BY_MODIFIED = {"$orderby": "lastModifiedDateTime desc", "$top": "50"}
BY_PREVIEW = {"$orderby": "lastMessagePreview/createdDateTime desc"}


def _talk(graph: Graph, count: int) -> Chat:
    chat = graph.chat(ann := graph.person("Ann Example"))
    start = graph.clock.now() - timedelta(hours=1)
    for number in range(count):
        graph.say(chat, ann, f"<p>{number}</p>", at=start + timedelta(seconds=number))
    return chat


def _texts(response: httpx2.Response) -> list[str]:
    return [item["body"]["content"] for item in response.json()["value"]]


def _walk(client: httpx2.Client, path: str, params: dict[str, str]) -> list[str]:
    found, response = [], client.get(path, params=params)
    for _ in range(50):
        found += [item["id"] for item in response.json()["value"]]
        link = response.json().get("@odata.nextLink")
        if link is None:
            break
        response = client.get(link)
    return found


def test_a_filter_counts_only_with_the_order_of_the_same_property(graph: Graph, client: httpx2.Client) -> None:
    """A client that forgets the order reads everything again on each poll and believes that it asked for little."""
    chat = _talk(graph, 5)
    third = list(chat.messages.values())[2]
    wanted = {"$filter": f"lastModifiedDateTime gt {stamp(third.modified)}"}
    path = f"/chats/{chat.id}/messages"

    assert _texts(client.get(path, params=BY_MODIFIED | wanted)) == ["<p>4</p>", "<p>3</p>"]
    assert len(_texts(client.get(path, params=wanted))) == 5
    assert len(_texts(client.get(path, params={"$orderby": "createdDateTime desc"} | wanted))) == 5


@pytest.mark.parametrize(
    "params",
    [
        {"$top": "51"},
        {"$top": "0"},
        {"$orderby": "createdDateTime asc"},
        {"$orderby": "lastModifiedDateTime"},
        {"$orderby": "createdDateTime desc", "$filter": "createdDateTime gt 2026-01-01T00:00:00Z"},
        {"$orderby": "lastModifiedDateTime desc", "$filter": "lastModifiedDateTime ge 2026-01-01T00:00:00Z"},
        {"$orderby": "lastModifiedDateTime desc", "$filter": "lastModifiedDateTime gt yesterday"},
    ],
)
def test_what_messages_cannot_be_asked_is_refused(graph: Graph, client: httpx2.Client, params: dict[str, str]) -> None:
    """Only two descending orders, `gt` on one property and 50 to a page are documented."""
    chat = _talk(graph, 1)

    response = client.get(f"/chats/{chat.id}/messages", params=params)

    assert (response.status_code, response.json()["error"]["code"]) == (400, "BadRequest")


def test_an_edit_is_found_by_its_change_and_not_by_the_preview(graph: Graph, client: httpx2.Client) -> None:
    """The list of chats stays as it was when an older message is edited; only lastModifiedDateTime tells."""
    chat = _talk(graph, 3)
    first = next(iter(chat.messages.values()))
    listed = client.get("/me/chats", params=BY_PREVIEW | {"$expand": "lastMessagePreview"}).json()["value"]
    since = stamp(graph.clock.now() - timedelta(minutes=1))

    graph.edit(chat, first, "<p>new</p>")

    again = client.get("/me/chats", params=BY_PREVIEW | {"$expand": "lastMessagePreview"}).json()["value"]
    assert again == listed
    changed = client.get(
        f"/chats/{chat.id}/messages", params=BY_MODIFIED | {"$filter": f"lastModifiedDateTime gt {since}"}
    )
    assert [(item["id"], item["lastEditedDateTime"] is not None) for item in changed.json()["value"]] == [
        (first.id, True)
    ]


def test_an_event_has_a_neutral_type_unless_the_client_knows_more(graph: Graph, client: httpx2.Client) -> None:
    """Newer enum members are hidden until a request prefers them, and an event has no sender."""
    chat = _talk(graph, 0)
    graph.rename(chat, graph.me, "Plans")
    path = f"/chats/{chat.id}/messages"

    plain = client.get(path).json()["value"][0]
    knowing = client.get(path, headers={"Prefer": "include-unknown-enum-members"}).json()["value"][0]

    assert (plain["messageType"], plain["from"]) == ("unknownFutureValue", None)
    assert knowing["messageType"] == "systemEventMessage"


def test_chats_come_by_their_last_message_in_one_order_only(graph: Graph, client: httpx2.Client) -> None:
    """The preview order is what makes one list call enough; any other order is refused."""
    old, new = _talk(graph, 1), _talk(graph, 1)
    graph.say(new, graph.me, "later")

    assert _walk(client, "/me/chats", BY_PREVIEW | {"$top": "1"}) == [new.id, old.id]
    for order in ("lastUpdatedDateTime desc", "lastMessagePreview/createdDateTime", "createdDateTime desc"):
        assert client.get("/me/chats", params={"$orderby": order}).status_code == 400
    assert client.get("/me/chats", params={"$top": "51"}).status_code == 400
    assert client.get("/me/chats", params={"$expand": "messages"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"body": {"contentType": "markdown", "content": "x"}}, 400),
        ({"body": {"contentType": "html", "content": "x" * 29_000}}, 413),
        ({"body": {"contentType": "html", "content": '<at id="0">Ann</at>'}}, 400),
        ({"body": {"contentType": "html", "content": "Ann"}, "mentions": [{"id": 0, "mentionText": "Ann"}]}, 400),
    ],
)
def test_a_message_that_breaks_a_rule_is_not_sent(
    graph: Graph, client: httpx2.Client, body: dict[str, object], status: int
) -> None:
    """No text, an unknown type, too much, and mentions that do not match their tags are refused."""
    chat = _talk(graph, 0)

    assert client.post(f"/chats/{chat.id}/messages", json=body).status_code == status
    assert not chat.messages


def test_only_the_sender_edits_and_deletes(graph: Graph, client: httpx2.Client) -> None:
    """A placeholder can be edited into the answer; what others wrote cannot be touched."""
    chat = _talk(graph, 1)
    theirs = next(iter(chat.messages))
    mine = graph.say(chat, graph.me, "working on it")
    body = {"body": {"contentType": "html", "content": "done"}}

    assert client.patch(f"/chats/{chat.id}/messages/{mine.id}", json=body).status_code == 204
    assert (mine.html, mine.edited is not None) == ("done", True)
    assert client.patch(f"/chats/{chat.id}/messages/{theirs}", json=body).status_code == 403
    assert client.post(f"/chats/{chat.id}/messages/{mine.id}/softDelete").status_code == 405
    assert mine.deleted is None
    assert client.post(f"/me/chats/{chat.id}/messages/{mine.id}/softDelete").status_code == 204
    assert mine.deleted is not None


def test_one_chat_is_read_once_a_second(graph: Graph, client: httpx2.Client) -> None:
    """Above the limit the answer names the seconds to wait, and after them the read works."""
    graph.limits.is_on = True
    graph.clock.freeze()
    first, second = _talk(graph, 1), _talk(graph, 1)

    assert client.get(f"/chats/{first.id}/messages").status_code == 200
    throttled = client.get(f"/chats/{first.id}/messages")
    assert (throttled.status_code, throttled.headers["retry-after"]) == (429, "1")
    assert client.get(f"/chats/{second.id}/messages").status_code == 200
    graph.clock.advance(1)
    assert client.get(f"/chats/{first.id}/messages").status_code == 200


def test_chats_are_listed_five_times_a_second_and_reads_stop_at_twenty(graph: Graph, client: httpx2.Client) -> None:
    """The limits of the list and of the app are apart from those of a chat."""
    graph.limits.is_on = True
    graph.clock.freeze()
    chats = [_talk(graph, 1) for _ in range(21)]

    assert [client.get("/me/chats").status_code for _ in range(6)] == [200] * 5 + [429]
    assert [client.get(f"/chats/{chat.id}/messages").status_code for chat in chats] == [200] * 20 + [429]
    graph.limits.states_wait = False
    assert "retry-after" not in client.get("/me/chats").headers


def test_a_token_ends_with_the_clock(graph: Graph, client: httpx2.Client) -> None:
    """Tokens live a little over an hour."""
    graph.clock.advance(60 * 60)
    assert client.get("/me").status_code == 200

    graph.clock.advance(10 * 60)

    assert client.get("/me").status_code == 401


def test_answers_carry_the_time_of_the_service(graph: Graph, client: httpx2.Client) -> None:
    """A client can find out from any answer that its own clock is wrong."""
    graph.clock.advance(24 * 3600)
    headers = {"Authorization": f"Bearer {graph.token()}"}

    said = parsedate_to_datetime(client.get("/me", headers=headers).headers["date"])

    assert abs(said - graph.clock.now()) < timedelta(minutes=1)


def test_every_answer_carries_its_id_and_the_client_s(graph: Graph, client: httpx2.Client) -> None:
    """Without ids nobody can ask Microsoft about a request; a large answer is compressed."""
    chat = _talk(graph, 5)

    response = client.get(f"/chats/{chat.id}/messages", headers={"client-request-id": "mine"})
    refused = client.get("/chats/none/messages", headers={"client-request-id": "mine"})

    assert response.headers["client-request-id"] == refused.json()["error"]["innerError"]["client-request-id"] == "mine"
    assert response.headers["request-id"] != refused.headers["request-id"]
    assert response.headers["content-encoding"] == "gzip"
    assert "authorization" not in graph.requests[0].headers


@pytest.mark.parametrize(
    ("fault", "status", "count"),
    [
        (Fault.SERVER_ERROR, 500, 0),
        (Fault.BAD_GATEWAY, 502, 0),
        (Fault.UNAVAILABLE, 503, 0),
        (Fault.THROTTLED, 429, 0),
        (Fault.GATEWAY_TIMEOUT, 504, 1),
        (Fault.LOST, 0, 1),
        (Fault.TRUNCATED, 0, 1),
    ],
)
def test_an_error_did_nothing_and_what_is_lost_was_done(
    graph: Graph, client: httpx2.Client, fault: Fault, status: int, count: int
) -> None:
    """A send that failed in the one way may be repeated, in the other not without looking."""
    chat = _talk(graph, 0)
    graph.fail_next(fault, "/messages")
    try:
        found = client.post(f"/chats/{chat.id}/messages", json={"body": {"content": "x"}}).status_code
    except httpx2.TransportError:
        found = 0
    assert (found, len(chat.messages), graph.requests[-1].fault) == (status, count, fault)


def test_a_reset_and_a_silence_did_nothing(graph: Graph, client: httpx2.Client) -> None:
    """The connection goes or nothing comes, and the chat is as it was."""
    chat = _talk(graph, 0)
    for fault in (Fault.RESET, Fault.STALLED):
        graph.fail_next(fault)
        with pytest.raises(httpx2.TransportError):
            client.post(f"/chats/{chat.id}/messages", json={"body": {"content": "x"}}, timeout=0.5)

    assert not chat.messages


def test_a_page_can_come_twice_and_out_of_order(graph: Graph, client: httpx2.Client) -> None:
    """A client that believes in neat pages stores messages twice or in another order."""
    chat = _talk(graph, 9)
    path = f"/chats/{chat.id}/messages"
    graph.fail_next(Fault.DUPLICATED)
    twice = _walk(client, path, {"$top": "3"})
    graph.fail_next(Fault.REORDERED)
    mixed = _walk(client, path, {"$top": "9"})

    newest_first = sorted(chat.messages, reverse=True)
    assert twice == newest_first[:3] + newest_first
    assert mixed != newest_first
    assert sorted(mixed, reverse=True) == newest_first


def _statuses(seed: int) -> list[int]:
    with serving(seed) as graph:
        trust = ssl.create_default_context(cafile=str(graph.ca))
        headers = {"Authorization": f"Bearer {graph.token()}"}
        with httpx2.Client(verify=trust, base_url=graph.url, headers=headers) as client:
            graph.faults(server_error=0.3, unavailable=0.2)
            return [client.get("/me").status_code for _ in range(40)]


def test_chance_follows_from_the_seed() -> None:
    """A run that failed can be run again."""
    first = _statuses(1)

    assert first == _statuses(1)
    assert first != _statuses(2)
    assert {200, 500, 503} == set(first)


def test_bodies_hold_documented_names_only(graph: Graph, client: httpx2.Client) -> None:
    """The service may say nothing that the documentation does not: a client could come to rely on it."""
    chat = _talk(graph, 2)
    graph.rename(chat, graph.me, "Plans")
    graph.say(chat, graph.person("Bot", is_bot=True), "beep")
    shown = client.get("/me/chats", params={"$expand": "lastMessagePreview"}).json()

    assert strangers(shown, names.CHAT) == set()
    assert strangers(client.get(f"/chats/{chat.id}/messages").json(), names.CHAT_MESSAGE) == set()
    assert strangers(client.get("/chats/none/messages").json(), names.ERROR) == set()
    assert strangers(client.get("/me").json(), names.USER) == set()
    assert strangers({"value": [{"invented": 1}]}, names.CHAT) == {"invented"}
