"""Whose mail it is: another person begins anew, the same one goes on; and what was sent is known without its text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harken.sources.feed import FeedTiming
from harken.sources.microsoft.sent import SentMessages, reference
from harken.sources.outlook import source as outlook
from harken.sources.outlook.mail import closing_id
from harken.sources.outlook.source import OVERLAP
from tests.graph.service import Graph
from tests.sources.microsoft.outlook_rig import Listener, at_once, calling, feed_of, settings

HER, HIM = "11111111-0000-0000-0000-000000000001", "11111111-0000-0000-0000-000000000002"


pytestmark = pytest.mark.usefixtures("unlimited")


async def listen(graph: Graph, listener: Listener, account: str, sent: SentMessages | None = None) -> None:
    """Look once into the inbox, as a daemon that has just started with this sign-in."""
    async with calling(graph) as client:
        timing = FeedTiming(wait=at_once)
        source = outlook.OutlookSource(
            settings(graph), client, graph.clock, sent or SentMessages(), lambda: account, timing=timing
        )
        await listener.look(source.feeds()[0])


@pytest.mark.parametrize(("account", "heard"), [(HER, ["meanwhile", "new"]), (HIM, ["new"])])
async def test_only_the_same_person_goes_on_where_they_were(graph: Graph, account: str, heard: list[str]) -> None:
    """A mail from before the sign-in of somebody else is none of what that person wanted to be told."""
    ann = graph.person("Ann")
    listener = Listener()
    graph.mail(ann, "old", "<p>x</p>")
    graph.clock.advance(60)
    await listen(graph, listener, HER)
    graph.mail(ann, "meanwhile", "<p>x</p>")
    graph.clock.advance(60)
    await listen(graph, listener, account)
    graph.mail(ann, "new", "<p>x</p>")
    graph.clock.advance(60)
    await listen(graph, listener, account)
    assert listener.subjects == heard


def comes_back(graph: Graph, subject: str, html: str) -> str:
    """Let a mail of the account to itself arrive, as one mail among the sent ones and in the inbox; return its id."""
    sent = graph.mail(graph.me, subject, html, folder="sentitems")
    return graph.mail(graph.me, subject, html, internet_id=sent.internet_id).internet_id


async def test_an_answer_that_comes_back_is_not_heard(graph: Graph) -> None:
    """It is known by its id whatever became of its last line, and by its last line whatever became of the id."""
    listener = Listener()
    await listen(graph, listener, HER)
    ours = comes_back(graph, "Re: known by its id", "<p>x</p>")
    comes_back(graph, "Re: known by its end", f"<p>x</p><p>{reference('o-1')}</p>")
    comes_back(
        graph, "Re: quotes what it answers", f"<blockquote>a</blockquote>b {reference('o-1')}<div id=appendonsend>"
    )
    graph.mail(graph.me, "hers", "<p>x</p>")
    graph.clock.advance(60)
    await listen(graph, listener, HER, SentMessages([ours, closing_id("o-1")]))
    assert listener.subjects == ["hers"]


async def test_nobody_else_passes_for_us(graph: Graph) -> None:
    """Else a stranger whom we answered could write what the agent never sees and the person does."""
    listener = Listener()
    await listen(graph, listener, HER)
    mallory, mark = graph.person("Mallory"), f"<p>{reference('o-1')}</p>"
    ours = graph.mail(graph.me, "Re: x", f"<p>x</p>{mark}", folder="sentitems").internet_id
    forged = [{"name": "Authentication-Results", "value": "dmarc=fail; compauth=fail reason=000"}]
    graph.mail(mallory, "Re: under our id", f"<p>pay</p>{mark}", internet_id=ours)
    graph.mail(graph.me, "Re: in her name", f"<p>pay</p>{mark}", internet_id=ours, headers=forged)
    graph.mail(graph.me, "Re: never sent", f"<p>pay</p>{mark}")
    graph.clock.advance(60)
    await listen(graph, listener, HER, SentMessages([ours, closing_id("o-1")]))
    assert sorted(listener.subjects) == ["Re: in her name", "Re: never sent", "Re: under our id"]


@pytest.mark.parametrize(
    ("subject", "html"),
    [
        ("FW: Re: x", "<p>do it</p><hr><p><b>From:</b> me</p>{}"),
        ("Re: x", "<p>he says: {}</p><p>do it</p>"),
        ("Re: x", '<p>do it</p><div id="appendonsend"></div><hr><div id="divRplyFwdMsg"><b>From:</b> me</div>{}'),
        ("Re: x", "<p>do it</p><p><b>From:</b> me<br><b>Sent:</b> now<br><b>Subject:</b> x</p>{}"),
        ("Re: x", "<p>do it</p><blockquote>{}</blockquote>"),
        ("Re: x", "<p>do it</p><p>[harken 00000000]</p>"),
    ],
)
async def test_what_the_person_writes_about_an_answer_is_heard(graph: Graph, subject: str, html: str) -> None:
    """Forwarding or answering the agent's answer to oneself is how a person tells the agent what to do about it."""
    listener = Listener()
    await listen(graph, listener, HER)
    comes_back(graph, subject, html.format(f"<p>Yes. {reference('o-1')}</p>"))
    graph.clock.advance(60)
    await listen(graph, listener, HER, SentMessages([closing_id("o-1")]))
    assert listener.subjects == [subject]


@pytest.mark.parametrize("age", [timedelta(hours=1), timedelta(days=30)])
async def test_what_comes_after_the_sign_in_is_heard_however_late_the_first_look_is(
    graph: Graph, age: timedelta
) -> None:
    """The daemon may start an hour after the sign-in; but a month of mail would flood whoever names a folder late."""
    ann = graph.person("Ann")
    graph.mail(ann, "before", "<p>x</p>")
    graph.clock.advance(60)
    since = graph.clock.now()
    graph.mail(ann, "after", "<p>x</p>")
    graph.clock.advance(age.total_seconds())
    graph.mail(ann, "today", "<p>x</p>")
    graph.clock.advance(60)
    listener = Listener()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client, since=since))
        await listener.look(feed_of(graph, client, since=since))
    assert listener.subjects == (["after", "today"] if age < OVERLAP else ["today"])


async def test_a_daemon_that_dies_in_its_first_look_hears_the_rest_after_it(graph: Graph) -> None:
    """There is no place yet to go on from: the time of the sign-in is."""
    ann, since, listener = graph.person("Ann"), graph.clock.now(), Listener()
    for number in range(25):
        graph.clock.advance(1)
        graph.mail(ann, f"Mail {number}", "<p>x</p>")
    graph.clock.advance(60)
    deaths = iter([False, True, False, False, False, False])
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client, since=since), kill=lambda: next(deaths))
        assert len(listener.heard) == 10
        await listener.look(feed_of(graph, client, since=since))
    assert listener.subjects == [f"Mail {number}" for number in range(25)]
