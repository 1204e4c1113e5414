"""The loopback Graph keeps the documented rules of mail: a right request shows each rule, a wrong one meets it."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pytest

from tests.graph import names
from tests.graph.limits import MAILBOX_CONCURRENCY
from tests.graph.names import strangers
from tests.graph.service import Graph
from tests.graph.world import Mail

DELTA = "/me/mailFolders/inbox/messages/delta"


def _mails(graph: Graph, count: int) -> list[Mail]:
    ann = graph.person("Ann Example")
    start = graph.clock.now() - timedelta(hours=1)
    return [
        graph.mail(ann, f"Mail {number}", "<p>text</p>", at=start + timedelta(minutes=number))
        for number in range(count)
    ]


@pytest.mark.parametrize("query", ["$filter=isRead eq false", "$orderby=subject", "$search=x", "changeType=moved"])
def test_changes_cannot_be_asked_for_otherwise(client: httpx2.Client, query: str) -> None:
    """A query that the service leaves out in silence would give a client more, or less, than it believes."""
    assert client.get(f"{DELTA}?{query}").status_code == 400


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
