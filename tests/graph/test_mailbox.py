"""The loopback Graph keeps the documented rules of mail: a right request shows each rule, a wrong one meets it."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pytest

from tests.graph import names
from tests.graph.clock import stamp
from tests.graph.limits import MAILBOX_CONCURRENCY
from tests.graph.names import strangers
from tests.graph.service import Graph
from tests.graph.world import Mail

DELTA = "/me/mailFolders/inbox/messages/delta"
STAYS = {"Prefer": 'IdType="ImmutableId"'}


def _mails(graph: Graph, count: int) -> list[Mail]:
    ann = graph.person("Ann Example")
    start = graph.clock.now() - timedelta(hours=1)
    return [
        graph.mail(ann, f"Mail {number}", "<p>text</p>", at=start + timedelta(minutes=number))
        for number in range(count)
    ]


def _round(client: httpx2.Client, link: str, **headers: str) -> tuple[list[dict[str, object]], str, int]:
    found: list[dict[str, object]] = []
    for pages in range(1, 50):
        body = client.get(link, headers=headers).raise_for_status().json()
        found += body["value"]
        if done := body.get("@odata.deltaLink"):
            return found, done, pages
        link = body["@odata.nextLink"]
    raise AssertionError("no end")


def _subjects(items: list[dict[str, object]]) -> set[object]:
    return {item.get("subject", "gone") for item in items}


def test_a_round_gives_everything_and_the_next_one_what_changed(graph: Graph, client: httpx2.Client) -> None:
    """The link of the last page is where the next round starts, with its selection baked in."""
    mails = _mails(graph, 5)
    first, link, pages = _round(client, f"{DELTA}?$select=subject", Prefer="odata.maxpagesize=2")
    assert (len(first), pages) == (5, 3)
    assert set(first[0]) == {"@odata.type", "@odata.etag", "id", "subject"}

    graph.world.discard(mails[0])
    mails[1].is_read = True
    graph.world.touch(mails[1])
    _mails(graph, 1)

    second, link, _ = _round(client, link)
    assert (len(second), _subjects(second)) == (3, {"gone", "Mail 1", "Mail 0"})
    assert _round(client, link)[0] == []


def test_a_round_of_created_mails_leaves_out_other_changes(graph: Graph, client: httpx2.Client) -> None:
    """ChangeType counts from the second round on."""
    mails = _mails(graph, 2)
    first, link, _ = _round(client, f"{DELTA}?changeType=created")
    assert len(first) == 2

    graph.world.touch(mails[0])
    graph.mail(mails[0].sender, "New", "x")

    assert _subjects(_round(client, link)[0]) == {"New"}


def test_a_filter_by_time_is_baked_into_the_link(graph: Graph, client: httpx2.Client) -> None:
    """Starting from now is possible, with one kind of filter only."""
    mails = _mails(graph, 3)
    since = stamp(mails[1].received)

    after, _, _ = _round(client, f"{DELTA}?$filter=receivedDateTime+gt+{since}")
    from_then, _, _ = _round(client, f"{DELTA}?$filter=receivedDateTime+ge+{since}")

    assert (_subjects(after), _subjects(from_then)) == ({"Mail 2"}, {"Mail 1", "Mail 2"})
    for query in ("$filter=isRead eq false", "$orderby=subject", "$search=x", "changeType=moved"):
        assert client.get(f"{DELTA}?{query}").status_code == 400


@pytest.mark.parametrize(("with_place", "status"), [(True, 410), (False, 400)])
def test_an_old_link_is_gone(graph: Graph, client: httpx2.Client, status: int, *, with_place: bool) -> None:
    """A client has to start over, from the place that is named or from the beginning."""
    _mails(graph, 2)
    _, link, _ = _round(client, DELTA)

    graph.expire_deltas(with_place=with_place)

    response = client.get(link)
    assert (response.status_code, response.json()["error"]["code"]) == (status, "SyncStateNotFound")
    assert ("location" in response.headers) == with_place
    assert len(_round(client, response.headers.get("location", DELTA))[0]) == 2


def test_changes_can_come_again(graph: Graph, client: httpx2.Client) -> None:
    """A round may repeat what an earlier one gave, so that only the message's own id tells."""
    _mails(graph, 2)
    _, link, _ = _round(client, DELTA)
    graph.replay(2)

    assert _subjects(_round(client, link)[0]) == {"Mail 0", "Mail 1"}


def test_an_id_changes_with_a_move_unless_it_is_to_stay(graph: Graph, client: httpx2.Client) -> None:
    """What was stored under a plain id is not found again; the message's own id and the fixed one remain."""
    _mails(graph, 1)
    plain = client.get(DELTA).json()["value"][0]
    fixed = client.get(DELTA, headers=STAYS)
    fixed_id = fixed.json()["value"][0]["id"]
    assert fixed.headers["preference-applied"] == 'IdType="ImmutableId"'

    moved = client.post(f"/me/messages/{plain['id']}/move", json={"destinationId": "archive"})

    assert (moved.status_code, moved.json()["id"] == plain["id"]) == (201, False)
    assert client.get(f"/me/messages/{plain['id']}").status_code == 404
    same = client.get(f"/me/messages/{fixed_id}", headers=STAYS).json()
    assert (same["id"], same["internetMessageId"]) == (fixed_id, plain["internetMessageId"])


def test_a_reply_has_a_comment_or_a_body(graph: Graph, client: httpx2.Client) -> None:
    """Both together are refused; either goes to whoever is to be replied to, in the same conversation."""
    desk = graph.person("Help Desk")
    mail = graph.mail(graph.person("Ann Example"), "Question", "<p>?</p>", reply_to=(desk,))
    path = f"/me/messages/{client.get(DELTA).json()['value'][0]['id']}/reply"
    body = {"body": {"contentType": "HTML", "content": "<p>answer</p>"}}

    assert client.post(path, json={"comment": "x", "message": body}).status_code == 400
    assert not graph.sent_mails
    assert client.post(path, json={"comment": "short"}).status_code == 202
    assert client.post(path, json={"message": body}).content == b""

    assert [sent.html for sent in graph.sent_mails] == ["short", "<p>answer</p>"]
    assert {
        (sent.subject, sent.conversation, sent.to) == ("RE: Question", mail.conversation, [desk])
        for sent in graph.sent_mails
    } == {True}


def test_a_reply_to_all_leaves_out_only_oneself(graph: Graph, client: httpx2.Client) -> None:
    """A plain reply goes to the sender alone, a reply to all to everyone else as well."""
    ann, bea, cleo = (graph.person(name) for name in ("Ann", "Bea", "Cleo"))
    graph.mail(ann, "Plan", "x", to=(graph.me, bea), copies=(cleo,))
    path = f"/me/messages/{client.get(DELTA).json()['value'][0]['id']}"

    client.post(f"{path}/reply", json={"comment": "only you"})
    client.post(f"{path}/replyAll", json={"comment": "all of you"})

    assert [(sent.to, sent.copies) for sent in graph.sent_mails] == [([ann], ()), ([ann, bea], [cleo])]


def test_a_draft_of_a_reply_is_sent_once(graph: Graph, client: httpx2.Client) -> None:
    """A draft has an id before it leaves, which lets a client look before it repeats."""
    _mails(graph, 1)
    mail_id = client.get(DELTA).json()["value"][0]["id"]
    assert client.post(f"/me/messages/{mail_id}/send").status_code == 400

    draft = client.post(f"/me/messages/{mail_id}/createReply", json={"comment": "soon"}, headers=STAYS)
    assert (draft.status_code, draft.json()["isDraft"], graph.sent_mails) == (201, True, [])
    path = f"/me/messages/{draft.json()['id']}"
    assert client.patch(path, json={"body": {"contentType": "html", "content": "now"}}).status_code == 200

    assert client.post(f"{path}/send").status_code == 202
    assert client.post(f"{path}/send").status_code == 400
    assert [sent.html for sent in graph.sent_mails] == ["now"]
    assert client.get(path, headers=STAYS).json()["isDraft"] is False


def test_a_mail_needs_someone_to_go_to(graph: Graph, client: httpx2.Client) -> None:
    """Nothing is said about a sent mail, and one may ask not to keep it."""
    message = {"subject": "Hi", "body": {"contentType": "Text", "content": "x"}}
    to = {"toRecipients": [{"emailAddress": {"address": "ann@example.test"}}]}
    header = {"internetMessageHeaders": [{"name": "Received", "value": "x"}]}

    assert client.post("/me/sendMail", json={"message": message}).status_code == 400
    assert client.post("/me/sendMail", json={"message": message | to | header}).status_code == 400
    assert client.post("/me/sendMail", json={"message": message | to}).status_code == 202
    assert client.post("/me/sendMail", json={"message": message | to, "saveToSentItems": False}).status_code == 202

    assert len(graph.sent_mails) == 2
    assert len(client.get("/me/mailFolders/sentitems/messages").json()["value"]) == 1


def test_a_sent_mail_can_be_looked_up_by_its_own_id(graph: Graph, client: httpx2.Client) -> None:
    """Looking before repeating needs this one filter; others are refused."""
    mail = _mails(graph, 3)[1]

    found = client.get("/me/messages", params={"$filter": f"internetMessageId eq '{mail.internet_id}'"})

    assert [item["subject"] for item in found.json()["value"]] == ["Mail 1"]
    assert client.get("/me/messages", params={"$filter": "subject gt 5"}).status_code == 400


def test_a_basic_scope_shows_no_body(graph: Graph, client: httpx2.Client) -> None:
    """Mail.ReadBasic is not enough to read what people wrote."""
    _mails(graph, 1)
    basic = {"Authorization": f"Bearer {graph.token('Mail.ReadBasic')}"}

    assert "body" in client.get(DELTA).json()["value"][0]
    shown = client.get(DELTA, headers=basic).json()["value"][0]
    assert not {"body", "bodyPreview", "uniqueBody"} & set(shown)
    assert client.post("/me/sendMail", json={}, headers=basic).status_code == 403


def test_a_mailbox_serves_four_at_a_time(graph: Graph, trust: ssl.SSLContext) -> None:
    """The fifth request that overlaps four others is turned away."""
    graph.limits.is_on = True
    headers = {"Authorization": f"Bearer {graph.token()}"}

    def ask(_: int) -> int:
        with httpx2.Client(verify=trust, headers=headers, timeout=10) as client:
            status = client.get(f"{graph.url}{DELTA}").status_code
        if status == 429:
            release.set()
        return status

    with ThreadPoolExecutor(5) as pool, graph.holding(DELTA) as release:
        asked = [pool.submit(ask, number) for number in range(5)]
        assert release.wait(10)
    assert sorted(done.result(10) for done in asked) == [200] * 4 + [429]
    assert graph.limits.most_open == MAILBOX_CONCURRENCY


def test_bodies_hold_documented_names_only(graph: Graph, client: httpx2.Client) -> None:
    """The service may say nothing that the documentation does not: a client could come to rely on it."""
    mail = _mails(graph, 1)[0]
    shown = client.get(DELTA).json()
    one = f"/me/messages/{shown['value'][0]['id']}"

    assert strangers(shown, names.MESSAGE) == set()
    outside = client.get(one, params={"$select": "internetMessageHeaders,uniqueBody"})
    assert strangers(outside.json(), names.MESSAGE) == set()
    graph.world.discard(mail)
    assert strangers(client.get(shown["@odata.deltaLink"]).json(), names.MESSAGE) == set()
    assert strangers(client.get(one).json(), names.ERROR) == set()
