"""Outlook as a source: nothing is lost, nothing is heard twice, and people are told how it is doing."""

from __future__ import annotations

from contextlib import aclosing, nullcontext
from datetime import timedelta
from itertools import count
from typing import Final

import anyio
import pytest

from harken.errors import NeedsPerson
from harken.model import Draft, Sender, TextFormat
from harken.sources.microsoft.responses import MissingScope
from harken.sources.outlook.mail import UNREAD, UNREADABLE, own_id_in
from harken.sources.source import SourceState
from tests.graph.faults import BAD_DAY, Fault
from tests.graph.service import Graph
from tests.graph.shapes import mail_id
from tests.sources.microsoft.loopback import Reply, Visit, refused, told
from tests.sources.microsoft.loopback import calling as calling_anyone
from tests.sources.microsoft.outlook_rig import (
    NAME,
    SECONDS,
    Keys,
    Listener,
    begun,
    calling,
    feed_of,
    somebody_is_inside,
    source_of,
)

MAILS: Final = 160
KILLED: Final = 0.3


pytestmark = pytest.mark.usefixtures("unlimited")


async def test_a_mail_that_comes_is_heard_and_older_ones_are_not(graph: Graph) -> None:
    """Whoever connects an old mailbox must not be flooded, and must hear the next mail as it was written."""
    listener = await begun(graph, mails=12)
    ann = graph.person("Ann Example")
    mail = graph.mail(ann, "Lunch?", "<p>At <b>noon</b>?</p>")

    await listener.hear(graph)

    assert listener.heard == [
        Draft(
            source=NAME,
            sender=Sender("ann.example@example.test", "Ann Example"),
            text="<p>Subject: Lunch?</p>\n<p>At <b>noon</b>?</p>",
            upstream_id=listener.heard[0].upstream_id,
            channel="email",
            conversation=mail.conversation,
            thread=mail.conversation,
            format=TextFormat.HTML,
            sent_at=mail.received.replace(microsecond=0),
            meta={
                "subject": "Lunch?",
                "folder": "inbox",
                "to": "robin.owner@example.test",
                "graph_id": mail_id(mail, is_immutable=True),
            },
            is_question=True,
        )
    ]
    assert own_id_in(listener.heard[0].upstream_id) == mail.internet_id


async def test_a_mail_that_comes_during_the_first_look_is_heard(graph: Graph) -> None:
    """The first look takes long in a full mailbox: what comes meanwhile is news, although it is found among the old."""
    listener = Listener()
    graph.mail(graph.person("Ann"), "Before", "x")
    graph.clock.advance(60)
    async with calling(graph) as client:
        feed = feed_of(graph, client)
        with graph.holding("/messages/delta") as release:
            async with anyio.create_task_group() as group:
                group.start_soon(listener.look, feed)
                await somebody_is_inside(graph)
                graph.mail(graph.person("Bea"), "Meanwhile", "x")
                release.set()

    assert listener.subjects == ["Meanwhile"]


async def test_mails_are_heard_in_the_order_in_which_they_came(graph: Graph) -> None:
    """The service tells changes in any order; a conversation told backwards would be misunderstood."""
    listener = await begun(graph)
    expected = []
    for number in range(35):
        graph.clock.advance(60)
        expected.append(graph.mail(graph.person("Ann"), f"Mail {number}", "x").subject)

    await listener.hear(graph)

    assert listener.subjects == expected


@pytest.mark.parametrize("with_place", [True, False])
async def test_a_forgotten_place_loses_nothing_and_repeats_nothing(graph: Graph, *, with_place: bool) -> None:
    """The service forgets links; what came before listening stays unheard, and what came meanwhile is heard once."""
    listener = await begun(graph, mails=3)
    ann = graph.person("Ann")
    graph.mail(ann, "First", "x")
    await listener.hear(graph)
    graph.clock.advance(60)
    graph.mail(ann, "Second", "x")
    graph.expire_deltas(with_place=with_place)

    await listener.hear(graph)
    graph.mail(ann, "Third", "x")
    await listener.hear(graph)

    assert listener.subjects == ["First", "Second", "Third"]
    assert (410 if with_place else 400) in {asked.status for asked in graph.asked("/delta")}


async def test_changes_that_are_told_again_are_not_heard_again(graph: Graph) -> None:
    """Replays reach back before the beginning: those mails were never heard, and must not be now."""
    listener = await begun(graph, mails=3)
    ann = graph.person("Ann")
    graph.mail(ann, "First", "x")
    await listener.hear(graph)
    graph.replay(10)
    graph.mail(ann, "Second", "x")
    await listener.hear(graph)

    assert listener.subjects == ["First", "Second"]
    assert listener.repeated == 1


async def test_a_mail_of_the_very_second_of_the_last_old_one_is_heard(graph: Graph) -> None:
    """Times are whole seconds: the old mail of that second is known by its id, and any other is news."""
    listener = Listener()
    ann = graph.person("Ann")
    old = graph.mail(ann, "Old", "x")
    graph.clock.advance(60)
    await listener.hear(graph)
    graph.mail(ann, "Same second", "x", at=old.received)
    graph.replay(5)
    await listener.hear(graph)

    assert listener.subjects == ["Same second"]


async def test_a_mail_that_moves_between_folders_is_heard_once(graph: Graph) -> None:
    """Both folders are followed and both tell it: it is one mail."""
    inbox, archive = Listener(), Listener()
    async with calling(graph) as client:
        feeds = source_of(graph, client, "inbox", "archive").feeds()
        assert [feed.name for feed in feeds] == ["inbox", "archive"]
        for listener, feed in zip((inbox, archive), feeds, strict=True):
            await listener.look(feed)
        graph.clock.advance(60)
        mail = graph.mail(graph.person("Ann"), "Moves", "x")
        await inbox.look(feeds[0])
        graph.world.move(mail, "archive")
        archive.keys = inbox.keys
        await archive.look(feeds[1])

    assert (inbox.subjects, archive.subjects, archive.repeated) == (["Moves"], [], 1)


async def test_a_mail_that_is_copied_is_heard_once(graph: Graph) -> None:
    """People file copies, and a resync calls a mail otherwise: it says the same, so it is the same."""
    listener = await begun(graph)
    ann = graph.person("Ann")
    mail = graph.mail(ann, "Once", "<p>x</p>")
    graph.mail(ann, "Once", "<p>x</p>", internet_id=mail.internet_id, conversation=mail.conversation)

    await listener.hear(graph)

    assert (listener.subjects, listener.repeated) == (["Once"], 1)


async def test_nobody_hides_a_mail_by_guessing_its_id(graph: Graph) -> None:
    """Notifications have ids that anybody can foretell: what came first with such an id hides nothing."""
    listener = await begun(graph)
    foretold = "<acme/app/issues/124@example.test>"
    async with calling(graph) as client:
        graph.mail(graph.person("Mallory"), "hello", "<p>nothing</p>", internet_id=foretold)
        await listener.look(feed_of(graph, client))
        graph.clock.advance(60)
        graph.mail(graph.person("Forge"), "Production is down", "<p>help</p>", internet_id=foretold)
        await listener.look(feed_of(graph, client))

    assert listener.subjects == ["hello", "Production is down"]


async def test_everything_is_heard_once_under_faults_and_kills(graph: Graph) -> None:
    """Errors, resets, halves of answers, pages twice, forgotten links, and a daemon that dies at any moment."""
    draws = count()

    def chance() -> float:
        return graph.world.dice.fraction("test", next(draws))

    listener = await begun(graph, mails=5)
    ann = graph.person("Ann")
    graph.faults(**BAD_DAY, under="/v1.0/")
    expected: list[str] = []
    async with calling(graph) as client:
        while len(expected) < MAILS:
            for _ in range(int(chance() * 25)):
                graph.clock.advance(1)
                expected.append(graph.mail(ann, f"Mail {len(expected)}", "x").subject)
            if chance() < KILLED:
                graph.expire_deltas(with_place=chance() < KILLED)
            await listener.look(feed_of(graph, client), kill=lambda: chance() < KILLED)
        await listener.look(feed_of(graph, client))

    assert sorted(listener.subjects) == sorted(expected)
    assert {asked.fault for asked in graph.requests} >= set(BAD_DAY)
    assert listener.repeated


async def test_what_is_gone_or_unfinished_is_passed_over(graph: Graph) -> None:
    """A mail that was deleted before it could be read, and a draft of the person, are nobody's message."""
    listener = await begun(graph)
    ann = graph.person("Ann")
    gone = graph.mail(ann, "Gone", "x")
    graph.mail(ann, "Unfinished", "x", is_draft=True)
    graph.mail(ann, "Stays", "x")
    graph.world.discard(gone)

    await listener.hear(graph)

    assert listener.subjects == ["Stays"]


async def test_a_mail_that_goes_while_it_is_read_is_passed_over(graph: Graph) -> None:
    """Somebody deletes it in the moment between its announcement and our asking for it."""
    listener = await begun(graph)
    gone = graph.mail(graph.person("Ann"), "Gone", "x")
    async with calling(graph) as client:
        with graph.holding("/messages/AAkAL") as release:
            async with anyio.create_task_group() as group:
                group.start_soon(listener.look, feed_of(graph, client))
                await somebody_is_inside(graph)
                graph.world.discard(gone)
                release.set()

    assert listener.heard == []
    assert [asked.status for asked in graph.asked("/messages/AAkAL")] == [404]


async def test_a_mail_that_is_marked_as_read_is_not_read_again(graph: Graph) -> None:
    """People read, flag and sort their mail all day: each of these would cost a request."""
    listener = await begun(graph)
    mail = graph.mail(graph.person("Ann"), "Once", "x")
    await listener.hear(graph)
    graph.world.touch(mail)
    await listener.hear(graph)

    assert listener.subjects == ["Once"]
    assert len(graph.asked("/messages/AAkAL")) == 1


async def test_a_broken_mail_is_announced_and_does_not_stop_those_behind_it(graph: Graph) -> None:
    """There are mails that the service itself cannot read: it fails with each of them, for ever."""
    listener = await begun(graph)
    graph.mail(graph.person("Ann"), "Broken", "It begins", extra={"body": object()})
    graph.clock.advance(60)
    graph.mail(graph.person("Ann"), "Whole", "x")

    await listener.hear(graph)

    assert listener.subjects == ["Broken", "Whole"]
    assert listener.heard[0].text == f"Subject: Broken\n{UNREADABLE}\nIt begins"


async def test_a_mail_that_says_nothing_at_all_does_not_stop_those_behind_it(graph: Graph) -> None:
    """Not even who wrote it can be had, for ever: that it came is said, and the folder goes on."""
    listener = await begun(graph)
    graph.mail(graph.person("Ann"), "Broken", "x", extra={"subject": object()})
    graph.clock.advance(60)
    graph.mail(graph.person("Ann"), "Whole", "x")

    await listener.hear(graph)

    assert [draft.text.partition("\n")[0] for draft in listener.heard] == [UNREAD, "<p>Subject: Whole</p>"]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_mail_that_is_refused_is_announced_unless_all_is_refused(graph: Graph, *, is_closed: bool) -> None:
    """One mail may be locked away; but when the account may not read, a person must act before any mail is passed."""

    def judge(visit: Visit) -> Reply:
        if "delta" in visit.target:
            rows = [{"id": "7", "receivedDateTime": "2099-01-01T00:00:00Z"}]
            return told({"value": rows, "@odata.deltaLink": "http://127.0.0.1/v1.0/delta"})
        is_refused = is_closed or "/me/messages/7" in visit.target
        return refused(403, "ErrorAccessDenied") if is_refused else told({"value": []})

    heard: list[Draft] = []
    async with calling_anyone(judge) as far:
        source = source_of(graph, far.client)
        async with aclosing(source.feeds()[0].follow("")) as batches:
            with pytest.raises(NeedsPerson) if is_closed else nullcontext():
                async for batch in batches:
                    heard += batch.drafts
                    if batch.checkpoint:
                        break
    assert [draft.text for draft in heard] == ([] if is_closed else [UNREAD])


async def test_an_invitation_can_be_read(graph: Graph) -> None:
    """An invitation often has no text at all: what it is about is in its own fields."""
    listener = await begun(graph)
    zone = {"timeZone": "Europe/Berlin"}
    extra = {
        "@odata.type": "#microsoft.graph.eventMessageRequest",
        "meetingMessageType": "meetingRequest",
        "startDateTime": {"dateTime": "2026-03-02T09:00:00.0000000", **zone},
        "endDateTime": {"dateTime": "2026-03-02T09:30:00.0000000", **zone},
        "location": {"displayName": "Room <4>"},
        "event": {"organizer": {"emailAddress": {"name": "Ann", "address": "ann@example.test"}}},
    }
    graph.mail(graph.person("Ann"), "Planning", "<p></p>", extra=extra)

    await listener.hear(graph)

    (draft,) = listener.heard
    assert draft.text == (
        "<p>Subject: Planning</p>\n<p>[Meeting invitation]</p>\n"
        "<p>When: 2026-03-02 09:00:00 Europe/Berlin to 2026-03-02 09:30:00 Europe/Berlin</p>\n"
        "<p>Where: Room &lt;4&gt;</p>\n<p>Organiser: Ann &lt;ann@example.test&gt;</p>\n<p></p>"
    )


async def test_people_are_told_how_it_is_doing(graph: Graph) -> None:
    """A person must see that it listens, that it tries again and when, and that it has stopped."""
    async with calling(graph) as client:
        source = source_of(graph, client)
        feed = source.feeds()[0]
        seen = [source.health()]
        async with aclosing(feed.follow("")) as batches:
            first = await anext(batches)
            await anext(batches)
            seen.append(source.health())
        seen.append(source.health())
        feed.stored([], known=3)

    assert [health.state for health in seen] == [SourceState.CONNECTING, SourceState.LISTENING, SourceState.STOPPED]
    assert (first.drafts, source.health().known, source.kind) == ((), 3, "outlook")
    assert source.address in graph.url


async def test_a_service_in_trouble_is_tried_again_and_people_see_when(graph: Graph) -> None:
    """Trouble passes by itself: nobody has to act, and the next try is announced."""
    graph.fail_next(Fault.SERVER_ERROR, "/delta", times=12)
    states = []
    async with calling(graph) as client:
        source = source_of(graph, client)

        async with aclosing(source.feeds()[0].follow("")) as batches:
            await anext(batches)
            states.append(source.health())

    assert (states[0].state, "500" in states[0].reason) == (SourceState.RETRYING, True)
    assert states[0].next_try is not None
    assert states[0].next_try > graph.clock.now()


async def test_an_unknown_folder_needs_a_person(graph: Graph) -> None:
    """A typing mistake in the settings is told with what to correct, and stays told after the feed has ended."""
    listener = Listener()
    async with calling(graph) as client:
        source = source_of(graph, client, "inbox", "invoices")
        await listener.look(source.feeds()[0])
        with pytest.raises(NeedsPerson, match="invoices"):
            await Listener().look(source.feeds()[1])

    health = source.health()
    assert health.state is SourceState.NEEDS_PERSON
    assert "invoices" in health.reason
    assert f"check folders of the source {NAME}" in health.reason


async def test_without_permission_nothing_is_passed_over(graph: Graph) -> None:
    """With the outside of mails only, what they say would be lost: the place waits until the permission is there."""
    listener = await begun(graph)
    graph.mail(graph.person("Ann"), "Secret", "<p>x</p>")
    async with calling(graph, Keys(graph, ("Mail.ReadBasic",))) as client:
        with pytest.raises(MissingScope):
            await listener.look(feed_of(graph, client))
    assert listener.heard == []

    await listener.hear(graph)

    assert listener.subjects == ["Secret"]


async def test_a_checkpoint_that_cannot_be_read_begins_from_now_and_is_told(graph: Graph) -> None:
    """Nobody knows what came in between, so people are told of a gap, and old mail does not flood in."""
    graph.mail(graph.person("Ann"), "Old", "x")
    graph.clock.advance(60)
    listener = Listener(checkpoint="{broken")
    async with calling(graph) as client:
        source = source_of(graph, client)
        await listener.look(source.feeds()[0])

    assert (listener.heard, source.health().gaps) == ([], 1)


async def test_a_link_to_elsewhere_is_not_followed(graph: Graph) -> None:
    """The configured address may change: a token goes only there, and the folder is read anew from it."""
    listener = await begun(graph)
    graph.mail(graph.person("Ann"), "Still heard", "x")
    listener.checkpoint = listener.checkpoint.replace("127.0.0.1", "127.0.0.2")

    await listener.hear(graph)

    assert listener.subjects == ["Still heard"]


async def test_a_mail_that_arrives_much_later_than_its_time_is_heard(graph: Graph) -> None:
    """A mail that somebody moves in days later has its old time; only what came before listening began is left out."""
    listener = await begun(graph)
    late = graph.mail(graph.person("Ann"), "Late", "x", folder="archive")
    graph.clock.advance(timedelta(days=2).total_seconds())
    graph.mail(graph.person("Bea"), "Today", "x")
    with anyio.fail_after(SECONDS):
        async with calling(graph) as client:
            await listener.look(feed_of(graph, client))
            graph.world.move(late, "inbox")
            graph.expire_deltas()
            await listener.look(feed_of(graph, client))

    assert listener.subjects == ["Today", "Late"]
