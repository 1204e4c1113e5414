"""Who is named in a reply to a chat, and what stands in its place until it is there: never two answers."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.dispatch.outbox import SETTLED, Placeholders
from harken.errors import Unavailable
from harken.model import (
    INBOX,
    Attention,
    Consumer,
    Message,
    NewMessage,
    Reader,
    Sender,
    SessionKey,
    Trust,
)
from harken.sources.microsoft.sent import SentMessages, reference, words
from harken.sources.teams.messages import (
    ANSWERED_ELSEWHERE,
    NOT_ANSWERED,
    answer,
    place_mark,
    standing_in,
    whom_to_name,
)
from harken.sources.teams.settings import TeamsSettings
from harken.sources.teams.source import TeamsSender
from harken.store.sqlite import open_store
from tests.graph.faults import Fault
from tests.graph.service import Graph
from tests.graph.world import Chat
from tests.sources.microsoft.loopback import Calling, Reply, Visit, calling, refused, told
from tests.sources.microsoft.teams_rig import (
    NAME,
    Rig,
    asked_in,
    begun,
    reply,
    rigged,
    said_by_us,
    standing_service,
    stored,
)

WORKING: Final = "An agent is working on this."
REQUESTS: Final = 4  # look, hold, look, edit


def holding(rig: Rig, sent: SentMessages | None = None) -> TeamsSender:
    """Return what sends replies of an Agent User, as a daemon that has just started."""
    settings = msgspec.structs.replace(rig.settings, placeholder=WORKING)
    return TeamsSender(settings, rig.client, sent or rig.sent, lambda: rig.graph.me.id, rig.graph.clock)


def sender_of(far: Calling) -> TeamsSender:
    """Return what sends replies through a service that answers as a test says."""
    return TeamsSender(TeamsSettings(name=NAME), far.client, SentMessages(), lambda: "me", far.time.clock)


def placed(message: Message, text: str = WORKING) -> str:
    """Return what stands in the place of an answer, written in a person's name."""
    return standing_in(text, place_mark(message.id), is_for_person=True).html


def said(graph: Graph, chat: Chat) -> list[str]:
    """Return what the account said in a chat and did not take back, without the markup."""
    mine = [each for each in chat.messages.values() if each.sender == graph.me and not each.deleted]
    return [words(each.html) for each in mine]


def ends(text: str, mark: str) -> str:
    """Return a text of an Agent User as it is in the chat."""
    return words(f"{text} {mark}")


async def test_in_a_group_the_person_who_asked_is_named(graph: Graph) -> None:
    """Others read along, and whoever asked is not told otherwise; the reference stays last."""
    chat, message = asked_in(graph, topic="Release")
    async with rigged(graph, sign_in="agent") as rig:
        sent_id = await rig.sender().send(reply(message))
        assert await rig.sender().send(reply(message)) == sent_id
    (mine,) = said_by_us(graph, chat)
    assert mine.html == f'<p><at id="0">Ann</at> It is done.</p><p><em>{reference("o-1")}</em></p>'
    user = {"displayName": "Ann", "id": message.sender.id, "userIdentityType": "aadUser"}
    assert list(mine.mentions) == [{"id": 0, "mentionText": "Ann", "mentioned": {"user": user}}]


async def test_with_one_person_nobody_is_named(graph: Graph) -> None:
    """There is nobody else who could feel meant."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        await rig.sender().send(reply(message))
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


async def test_a_name_is_text_and_no_markup(graph: Graph) -> None:
    """A name is chosen by its owner: it must neither become a picture nor mention somebody else."""
    hostile = '</at><img src=x><at id="1">Everyone</at>\u202e'
    chat, message = asked_in(graph, topic="Release", name=hostile)
    async with rigged(graph) as rig:
        await rig.sender().send(reply(message))
    (mine,) = said_by_us(graph, chat)
    assert mine.html.count("<at ") == 1
    assert "<img" not in mine.html
    assert "\u202e" not in mine.html


async def test_a_reply_whose_mention_is_refused_leaves_without_it(graph: Graph) -> None:
    """Somebody who cannot be named there, such as one who has left, must not cost the answer."""
    _, message = asked_in(graph, topic="Release")

    def judge(visit: Visit) -> Reply:
        if visit.method == "GET":
            return told({"value": []})
        return refused(400, message="The mention is invalid.") if b"mentions" in visit.body else told({"id": "7"}, 201)

    async with calling(judge) as far:
        sent_id = await sender_of(far).send(reply(message))
    assert sent_id == f"{message.conversation}/7"
    assert [visit.method for visit in far.service.visits] == ["GET", "POST", "POST"]


async def test_an_answer_takes_the_place_that_was_held_for_it(graph: Graph) -> None:
    """The chat shows one message that becomes the answer, whichever daemon began it."""
    chat, message = asked_in(graph, topic="Release")
    async with rigged(graph, sign_in="agent") as rig:
        await holding(rig).hold_place(message)
        assert said(graph, chat) == [ends(WORKING, place_mark(message.id))]
        await holding(rig).hold_place(message)
        await holding(rig).leave_place(message)
        assert said(graph, chat) == [ends(NOT_ANSWERED, place_mark(message.id))]
        sent_id = await holding(rig, SentMessages()).send(reply(message))
        assert await holding(rig, SentMessages()).send(reply(message)) == sent_id
        await holding(rig).leave_place(message)
    assert said(graph, chat) == [ends("Ann It is done.", reference("o-1"))]
    assert sent_id == f"{chat.id}/{list(chat.messages)[-1]}"


async def test_a_second_answer_is_a_message_of_its_own(graph: Graph) -> None:
    """The first has taken the place; neither may be overwritten."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        sender = holding(rig)
        await sender.hold_place(message)
        for key in ("o-1", "o-2"):
            await sender.send(reply(message, key, key))
    assert said(graph, chat) == [ends("o-1", reference("o-1")), ends("o-2", reference("o-2"))]


async def test_no_place_is_held_for_what_is_answered_already(graph: Graph) -> None:
    """A reply that was sent in the same moment needs nothing in its place."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        sender = holding(rig)
        await sender.send(reply(message))
        await sender.hold_place(message)
        await sender.leave_place(message)
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


async def test_an_answer_is_sent_where_its_place_cannot_be_edited(graph: Graph) -> None:
    """Somebody took the placeholder away: the answer is a new message, and the only one."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        sender = holding(rig)
        await sender.hold_place(message)
        (placeholder,) = said_by_us(graph, chat)
        graph.delete(chat, placeholder)
        await sender.send(reply(message))
    assert [each.status for each in graph.asked("/messages/", "PATCH")] == [403]
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


async def test_a_place_that_may_not_be_edited_is_taken_back(graph: Graph) -> None:
    """Without the permission to change what was written, the placeholder must not stay beside the answer."""
    _, message = asked_in(graph)

    def judge(visit: Visit) -> Reply:
        mine = {"from": {"user": {"id": "me"}}, "body": {"content": placed(message, NOT_ANSWERED)}}
        match visit.method:
            case "GET":
                return told({"value": [{**mine, "id": "5"}]})
            case "PATCH":
                return refused(405, "methodNotAllowed")
            case _:
                return told({"id": "7"}, 201)

    async with calling(judge) as far:
        await sender_of(far).send(reply(message))
    told_to = [(visit.method, visit.target.partition("/messages")[2]) for visit in far.service.visits]
    assert told_to[1:] == [("PATCH", "/5"), ("POST", ""), ("POST", "/5/softDelete")]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_placeholder_that_shows_after_the_answer_is_taken_away(graph: Graph, *, is_restarted: bool) -> None:
    """It was on its way while the answer was written, which did not see it: nobody may be left waiting beside it."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        sender = holding(rig)
        graph.fail_next(Fault.DELAYED, path="/messages", method="POST")
        with pytest.raises(Unavailable):
            await sender.hold_place(message)
        sent_id = await sender.send(reply(message))
        rig.time.pass_by(60)
        graph.world.settle()
        assert len(said(graph, chat)) == 2
        later = holding(rig, SentMessages()) if is_restarted else sender
        for _ in range(2):
            await later.clear_place(message, [sent_id])
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


async def test_every_placeholder_of_a_message_is_taken_away(graph: Graph) -> None:
    """Each daemon that ended in the wrong moment may have left one."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        sender = holding(rig)
        sent_id = await sender.send(reply(message))
        for _ in range(2):
            graph.say(chat, graph.me, f"<p>{WORKING}</p><p>{place_mark(message.id)}</p>")
        await sender.clear_place(message, [sent_id])
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


async def test_words_of_the_person_under_which_a_placeholder_is_quoted_stay(graph: Graph) -> None:
    """With a person's sign-in they are written by the same account, and nobody else may take them away or edit them."""
    chat, message = asked_in(graph)
    quote = f"<p>Ann, do not wait for this:</p><blockquote>{placed(message)}</blockquote>"
    async with rigged(graph) as rig:
        sender = holding(rig)
        graph.say(chat, graph.me, quote)
        await sender.leave_place(message)
        sent_id = await sender.send(reply(message))
        rig.time.pass_by(60)
        await sender.clear_place(message, [sent_id])
    assert said(graph, chat)[0] == words(quote)
    assert len(said(graph, chat)) == 2


async def test_a_placeholder_that_somebody_took_away_keeps_none_of_the_others(graph: Graph) -> None:
    """Between the look and the deletion a person may be faster."""
    _, message = asked_in(graph)

    def judge(visit: Visit) -> Reply:
        mine = {"from": {"user": {"id": "me"}}, "body": {"content": placed(message, NOT_ANSWERED)}}
        if visit.method == "GET":
            return told({"value": [{**mine, "id": "5"}, {**mine, "id": "6"}]})
        return refused(404, "NotFound") if "/messages/5" in visit.target else told({})

    async with calling(judge) as far:
        await sender_of(far).clear_place(message, ["c/9"])
    deleted = [visit.target.partition("/messages")[2] for visit in far.service.visits if visit.method == "POST"]
    assert deleted == ["/5/softDelete", "/6/softDelete"]


UNDER_WAY: Final = 2  # look, hold
KILLED_WITHIN: Final = 5  # look, look, answer


@pytest.mark.parametrize("requests", range(UNDER_WAY, KILLED_WITHIN + 1))
async def test_wherever_the_daemon_ends_no_placeholder_stays_beside_the_answer(
    graph: Graph, tmp_path: Path, requests: int
) -> None:
    """A placeholder is under way as the daemon is killed, and the next one answers before it shows."""
    ann, agent = graph.person("Ann"), Consumer("claude-code")
    chat = graph.chat(ann)
    at = graph.say(chat, ann, "<p>done?</p>").created
    asked = NewMessage(
        mailbox=INBOX,
        source=NAME,
        sender=Sender(ann.id, "Ann"),
        text="done?",
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        conversation=chat.id,
        sent_at=at,
    )
    async with rigged(graph, sign_in="agent") as rig, open_store(tmp_path / "harken.db", graph.clock) as store:
        rig.time.pass_by(1)
        await store.deliveries.enroll(agent, INBOX, graph.clock.now())
        (appended,) = await store.messages.append([asked])

        async def answer_it(sender: TeamsSender) -> None:
            rows = await store.outbox.to_message(appended.message.id)
            row = rows[0] if rows else await store.outbox.add(appended.message.id, "Yes.", author="a", consumer=agent)
            if row.state != "sent":
                await store.outbox.sent(row.id, await sender.send(reply(appended.message, "Yes.", "o-1")))

        async def work() -> None:
            sender = holding(rig)
            loop = Placeholders(store, graph.clock, {NAME: sender})
            await loop.look()
            reader = Reader(consumer=agent, session=SessionKey("s"))
            await store.deliveries.acknowledge(reader, [appended.message.id], "ack")
            await loop.look()
            await answer_it(sender)

        graph.fail_next(Fault.DELAYED, path="/messages", method="POST")
        rig.keys.end_after(requests)
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            if requests < KILLED_WITHIN:
                await rig.until_stuck()
                group.cancel_scope.cancel()
        rig.keys.end_after(-1)
        later = holding(rig, SentMessages())
        loop = Placeholders(store, graph.clock, {NAME: later})
        await loop.look()
        with suppress(Unavailable):
            await answer_it(later)
        await answer_it(later)
        for _ in range(3):
            await loop.look()
            rig.time.pass_by(SETTLED.total_seconds())
            graph.world.settle()
    assert said(graph, chat) == [ends("Yes.", reference("o-1"))]


@pytest.mark.parametrize("status", [200, 403])
async def test_what_may_not_be_deleted_says_where_the_answer_is_and_the_answer_stays(status: int) -> None:
    """An edit shows late, so the answer may still look like its placeholder: it must not be touched."""
    with standing_service() as graph:
        _, message = asked_in(graph)

    def judge(visit: Visit) -> Reply:
        mine = {"from": {"user": {"id": "me"}}, "body": {"content": placed(message, NOT_ANSWERED)}}
        if visit.method == "GET":
            return told({"value": [{**mine, "id": "5"}, {**mine, "id": "6"}]})
        return told({}) if status == 200 or visit.method == "PATCH" else refused(status, "Forbidden")

    async with calling(judge) as far:
        await sender_of(far).clear_place(message, [f"{message.conversation}/5"])
    told_to = [(visit.method, visit.target.partition("/messages")[2]) for visit in far.service.visits]
    written = [each for each in told_to if each[0] != "GET"]
    assert written == [("POST", "/6/softDelete"), *([("PATCH", "/6")] if status == 403 else [])]
    assert (ANSWERED_ELSEWHERE.encode() in far.service.visits[-2].body) is (status == 403)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.GATEWAY_TIMEOUT, Fault.RESET, Fault.SERVER_ERROR])
async def test_an_edit_without_an_answer_is_looked_for_before_anything_is_sent(graph: Graph, fault: Fault) -> None:
    """Whether the edit happened or not: there is one message in the end, and it is the answer."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        await holding(rig).hold_place(message)
        place = list(chat.messages)[-1]
        graph.fail_next(fault, path=f"/messages/{place}")
        for _ in range(3):
            with suppress(Unavailable):
                await holding(rig).send(reply(message))
                break
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]
    assert list(chat.messages)[-1] == place


@pytest.mark.parametrize("requests", range(5))
async def test_wherever_the_daemon_ends_there_is_one_answer(graph: Graph, requests: int) -> None:
    """Holding a place and answering are four requests: after any of them the next daemon must find what was done."""
    chat, message = asked_in(graph)
    async with rigged(graph, sign_in="agent") as rig:
        rig.keys.end_after(requests)
        async with anyio.create_task_group() as group:

            async def work() -> None:
                sender = holding(rig)
                await sender.hold_place(message)
                await sender.send(reply(message))

            group.start_soon(work)
            if requests < REQUESTS:
                await rig.until_stuck()
                group.cancel_scope.cancel()
        rig.keys.end_after(-1)
        later = holding(rig, SentMessages())
        await later.hold_place(message)
        await later.send(reply(message))
        await later.send(reply(message))
    assert said(graph, chat) == [ends("It is done.", reference("o-1"))]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_neither_placeholder_nor_edits_are_heard(graph: Graph, *, is_restarted: bool) -> None:
    """With a person's sign-in they come from the account of the person, who must be heard and has said none of it."""
    chat, message = asked_in(graph)
    async with begun(graph) as rig:
        for step in ("hold_place", "leave_place", "send"):
            sender = holding(rig)
            await (sender.send(reply(message)) if step == "send" else getattr(sender, step)(message))
            rig.sent = SentMessages() if is_restarted else rig.sent
            if is_restarted:
                rig.restart()
            rig.time.pass_by(60)
            assert await rig.go_round(2) == []
        graph.say(chat, graph.me, "<p>And I say so too.</p>")
        assert len(await rig.go_round(2)) == 1


async def test_that_a_placeholder_was_taken_away_is_not_heard(graph: Graph) -> None:
    """With a person's sign-in it would read as if the person had taken a word back, also after a restart."""
    chat, message = asked_in(graph)
    async with begun(graph) as rig:
        sent_id = await holding(rig).send(reply(message))
        graph.say(chat, graph.me, placed(message))
        assert await rig.go_round(2) == []
        rig.sent = SentMessages([sent_id])
        rig.restart()
        rig.time.pass_by(60)
        await holding(rig).clear_place(message, [sent_id])
        assert len(said(graph, chat)) == 1
        for _ in range(3):
            rig.time.pass_by(60)
            assert await rig.go_round(2) == []


@given(st.text(max_size=300), st.text(min_size=1).filter(str.strip))
def test_whatever_somebody_is_called_an_answer_has_at_most_one_mention_and_ends_with_its_reference(
    name: str, body: str
) -> None:
    """The service refuses a text whose tags do not fit its mentions, and we know an answer by its end."""
    message = stored("c", datetime(2026, 1, 1, tzinfo=UTC), sender=Sender("a", name), kind="group")
    content = answer(body, reference("o-1"), is_for_person=True, named=whom_to_name(message, "me"))
    assert content.html.count("<at ") == len(content.mentions) <= 1
    assert words(content.html).endswith(words(reference("o-1")))
    assert words(content.plain).endswith(words(reference("o-1")))
