"""Told by the service, a source looks at once; what it reads, and how far, is the same as without."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from harken.sources.microsoft.client import MAX_TRIES
from harken.sources.microsoft.notifications import NET_SECONDS
from tests.graph import names
from tests.graph.faults import Fault
from tests.graph.names import strangers
from tests.graph.service import Graph
from tests.sources.microsoft.notices_rig import POLL, Rig, rigged, until

HOUR: Final = 3_600.0
OK: Final = 200
REFUSED: Final = 401


pytestmark = pytest.mark.usefixtures("running")


async def test_a_message_is_read_when_it_is_told_and_not_when_it_is_time(graph: Graph) -> None:
    """That is what a public address is for: nobody waits for the next look."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        looks = rig.looking.passed

        graph.say(chat, ann, "hello")
        await until(lambda: rig.kept.texts() == ["hello"], "the message")

        assert rig.looking.passed == looks
    assert strangers([told.body for told in graph.notifications], names.NOTIFICATION) == set()


async def test_an_edit_that_no_list_shows_is_read_when_it_is_told(graph: Graph) -> None:
    """The list of chats does not change with an edit: only the notification names the chat."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        message = graph.say(chat, ann, "at ten")
        await until(lambda: rig.kept.texts() == ["at ten"], "the message")
        await rig.settle()

        graph.edit(chat, message, "at eleven")
        await until(lambda: len(rig.kept.drafts) > 1, "the edit")

        assert rig.kept.said() == [("message", "at ten"), ("edit", "at eleven")]


async def test_a_chat_that_did_not_exist_is_told_of_too(graph: Graph) -> None:
    """One subscription is for all chats, so a stranger's first message is as quick as any other."""
    async with rigged(graph) as rig, rig.told():
        ann = graph.person("Ann Example")
        graph.say(graph.chat(ann), ann, "may I ask?")
        await until(lambda: rig.kept.texts() == ["may I ask?"], "the message")


async def test_a_mail_is_read_when_it_is_told(graph: Graph) -> None:
    """Outlook's feed looks at its folder in the same way."""
    ann = graph.person("Ann Example")
    async with rigged(graph, "outlook") as rig, rig.told():
        looks = rig.looking.passed

        graph.mail(ann, "Agenda", "<p>see below</p>")
        await until(lambda: len(rig.kept.drafts) == 1, "the mail")

        assert rig.looking.passed == looks


async def test_each_folder_is_told_of_its_own_mail(graph: Graph) -> None:
    """Two folders have two subscriptions at one address; making the second must not take the first for a leftover."""
    ann = graph.person("Ann Example")
    async with rigged(graph, "outlook", "inbox", "archive") as rig, rig.running():
        await until(lambda: rig.works, "word comes")
        resources = {held.resource for held in graph.subscriptions.held.values()}
        assert resources == {"/me/mailFolders('inbox')/messages", "/me/mailFolders('archive')/messages"}

        graph.mail(ann, "Filed", "<p>x</p>", folder="archive")
        await until(lambda: [draft.meta["folder"] for draft in rig.kept.drafts] == ["archive"], "the mail")


async def test_a_burst_is_folded_into_few_looks(graph: Graph) -> None:
    """Each notification must not cost a list of chats: a busy group would use up what Microsoft allows."""
    people = [graph.person(f"Ann {number}") for number in range(4)]
    chats = [graph.chat(person) for person in people]
    async with rigged(graph) as rig, rig.told():
        before = len(graph.asked("/me/chats", "GET"))
        for number in range(60):
            graph.say(chats[number % 4], people[number % 4], f"line {number}")
        await until(lambda: len(rig.kept.texts()) == 60, "all of them")
        await rig.settle()
        await rig.looking.goes_on(most=POLL)

        assert len(graph.notifications) == 60
        assert len(graph.asked("/me/chats", "GET")) - before < 20


async def test_while_word_comes_little_is_asked(graph: Graph) -> None:
    """An hour of quiet costs one request in five minutes, where polling makes one in eight seconds."""
    graph.chat(graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        before = len(graph.requests)
        for _ in range(int(HOUR / NET_SECONDS)):
            await rig.looking.let_pass()

        asked = [each.path for each in graph.requests[before:]]
        assert asked == ["/v1.0/me/chats"] * 12


async def test_a_lost_notification_is_found_and_then_nobody_relies_on_them(graph: Graph) -> None:
    """A tunnel that died must not make every message five minutes late; the next word shows that it is back."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        (held,) = graph.subscriptions.held.values()
        held.is_paused = True
        graph.say(chat, ann, "lost")

        await rig.looking.let_pass()
        await until(lambda: rig.kept.texts() == ["lost"], "what was lost")
        await rig.looking.goes_on(most=POLL)
        assert not rig.works
        assert "do not arrive" in rig.notices.reason

        held.is_paused = False
        graph.say(chat, ann, "told")
        await until(lambda: rig.kept.texts() == ["lost", "told"], "what was told")
        assert (rig.works, rig.notices.reason) == (True, "")


async def test_a_chat_that_could_not_be_read_is_not_left_for_minutes(graph: Graph) -> None:
    """That word will come of the next change is no reason to wait with what failed."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        graph.fail_next(Fault.SERVER_ERROR, "/messages", times=2 * MAX_TRIES)
        graph.say(chat, ann, "hello")
        await rig.looking.goes_on(most=POLL)
        await rig.looking.let_pass()
        await rig.looking.goes_on(most=POLL)
        assert rig.kept.texts() == []

        await rig.looking.let_pass()
        assert rig.kept.texts() == ["hello"]


async def test_a_subscription_is_renewed_long_before_it_ends(graph: Graph) -> None:
    """Two days, also of a machine that sleeps for hours: it never ends, and is not renewed more than twice a day."""
    async with rigged(graph) as rig, rig.told():
        (own_id,) = graph.subscriptions.held
        for _ in range(8):
            graph.clock.advance(6 * HOUR)
            await rig.keeping.let_pass()
            await rig.quiet()  # what is renewed is followed by a look
            assert graph.subscriptions.held[own_id].expires > graph.clock.now() + timedelta(hours=11)

        assert len([each for each in graph.asked("/subscriptions/", "PATCH") if each.status == OK]) == 4
        assert len(graph.asked("/subscriptions", "POST")) == 1


async def test_a_challenge_is_answered_and_what_was_not_told_is_found(graph: Graph) -> None:
    """Microsoft stops telling until the subscription is authorized again; what was said meanwhile is looked for."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        await _pass_the_gap(rig)
        (held,) = graph.subscriptions.held.values()

        graph.subscriptions.tell_lifecycle("reauthorizationRequired")
        graph.say(chat, ann, "not told")
        await until(lambda: not held.is_paused, "it is authorized again")
        await until(lambda: rig.kept.texts() == ["not told"], "what was not told")
        assert rig.works


async def test_a_removed_subscription_is_made_anew(graph: Graph) -> None:
    """After a changed password it is gone; there is another one with the same address, and nothing is missed."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        await _pass_the_gap(rig)
        (first,) = graph.subscriptions.held

        graph.subscriptions.tell_lifecycle("subscriptionRemoved")
        graph.say(chat, ann, "in between")
        await until(lambda: graph.subscriptions.held, "another one")
        await until(lambda: rig.kept.texts() == ["in between"], "what was said in between")
        assert first not in graph.subscriptions.held
        await until(lambda: rig.works, "word comes")


async def test_what_microsoft_says_was_missed_is_looked_for(graph: Graph) -> None:
    """It says only that something is missing, not what."""
    ann = graph.person("Ann Example")
    async with rigged(graph, "outlook") as rig, rig.told():
        (held,) = graph.subscriptions.held.values()
        held.is_paused = True
        graph.mail(ann, "Missed", "<p>x</p>")

        graph.subscriptions.tell_lifecycle("missed")
        await until(lambda: len(rig.kept.drafts) == 1, "the mail")
        assert rig.works


async def test_what_refuses_to_be_subscribed_to_is_asked_as_before(graph: Graph) -> None:
    """Without the permission the messages still come; the reason is told, and it is tried again."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph, url="http://127.0.0.1:9/graph/work") as rig, rig.running():
        await until(lambda: rig.notices.reason, "a reason")
        assert "ValidationError" in rig.notices.reason
        await rig.looking.goes_on(most=POLL)

        graph.say(chat, ann, "hello")
        await rig.looking.let_pass()
        assert rig.kept.texts() == ["hello"]
        assert not rig.works

        tries = len(graph.asked("/subscriptions", "POST"))
        await rig.keeping.let_pass()
        assert len(graph.asked("/subscriptions", "POST")) > tries


async def test_a_permission_that_is_granted_later_is_found(graph: Graph) -> None:
    """Nobody restarts a daemon because an administrator agreed."""
    async with rigged(graph) as rig:
        rig.keys.scopes = ("User.Read", "Chat.ReadBasic")
        async with rig.running():
            await until(lambda: "403" in rig.notices.reason, "it is refused")
            rig.keys.scopes, rig.keys.held = (), ""
            for _ in range(3):
                await rig.keeping.let_pass()
            await until(lambda: rig.works, "word comes")
            assert rig.notices.reason == ""


async def test_a_permission_that_is_withdrawn_brings_the_usual_pace_back(graph: Graph) -> None:
    """A subscription that cannot be renewed tells nothing soon: waiting for it would be waiting in vain."""
    async with rigged(graph) as rig, rig.told():
        rig.keys.scopes, rig.keys.held = ("User.Read", "Chat.ReadBasic"), ""
        graph.clock.advance(13 * HOUR)

        await rig.keeping.let_pass()

        await rig.looking.goes_on(most=POLL)
        assert not rig.works
        assert "403" in rig.notices.reason


async def test_a_machine_that_slept_too_long_subscribes_anew(graph: Graph) -> None:
    """The lid was closed for more than a day: what is not there any more cannot be renewed."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    async with rigged(graph) as rig, rig.told():
        (first,) = graph.subscriptions.held
        graph.clock.advance(30 * HOUR)
        graph.say(chat, ann, "while it slept")

        await rig.keeping.let_pass()
        await until(lambda: rig.kept.texts() == ["while it slept"], "what was said meanwhile")

        living = [each.id for each in graph.subscriptions.held.values() if each.expires > graph.clock.now()]
        assert len(living) == 1
        assert living != [first]
        assert rig.works


async def test_what_an_earlier_daemon_left_is_deleted(graph: Graph) -> None:
    """Its secret is not known any more: whatever it posts is refused, for as long as it lives."""
    async with rigged(graph) as rig:
        wanted = {
            "changeType": "created",
            "resource": "/me/chats/getAllMessages",
            "notificationUrl": rig.url,
            "clientState": "of an earlier daemon",
            "expirationDateTime": (graph.clock.now() + timedelta(minutes=50)).isoformat(),
        }
        left = await rig.client.post("/subscriptions", wanted, lane="")
        async with rig.told():
            assert left["id"] not in graph.subscriptions.held
            assert len(graph.subscriptions.held) == 1


async def test_a_daemon_that_stops_ends_its_subscription(graph: Graph) -> None:
    """Microsoft should not post to nobody for a day."""
    async with rigged(graph) as rig:
        async with rig.told():
            assert len(graph.subscriptions.held) == 1
        assert not graph.subscriptions.held
        assert not rig.works


async def test_somebody_elses_sign_in_gets_a_subscription_of_its_own(graph: Graph) -> None:
    """What the first person is told is not the second one's business."""
    async with rigged(graph) as rig, rig.told():
        bea = graph.person("Bea Example")
        rig.who.append(bea)
        rig.keys.held = graph.token(user=bea)

        await rig.keeping.let_pass()

        owned = {held.owner.id: held for held in graph.subscriptions.held.values()}
        assert owned[bea.id].resource == f"/users/{bea.id}/chats/getAllMessages"
        old = owned[graph.me.id].state
        assert (await rig.post({"value": [{"clientState": old}]})).status_code == REFUSED


async def _pass_the_gap(rig: Rig) -> None:
    """Let pass what has to lie between two answers to Microsoft's own events."""
    await rig.keeping.let_pass()
