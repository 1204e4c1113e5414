"""Replies to Teams chats: once, only where they belong, and never heard as the person's own word."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Forbidden, UserError
from harken.model import OWNER_ID
from harken.sources.microsoft.sent import MAX_IDS, SentMessages, reference
from tests.graph.service import Graph
from tests.sources.microsoft.teams_rig import asked_in, begun, reply, rigged, said_by_us, stored

DONE: Final = "It is **done**."
MARKED: Final = "Written by an AI agent on my behalf."


async def test_a_reply_is_in_the_chat_once_with_a_line_that_says_who_wrote_it(graph: Graph) -> None:
    """With the person's own sign-in others cannot tell otherwise that an agent speaks."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        sent_id = await rig.sender().send(reply(message, DONE))
        assert await rig.sender().send(reply(message, DONE)) == sent_id
    (mine,) = said_by_us(graph, chat)
    assert mine.html == f"<p>It is <strong>done</strong>.</p><p><em>{MARKED} {reference('o-1')}</em></p>"
    assert sent_id == f"{chat.id}/{list(chat.messages)[-1]}"


async def test_reply_of_the_person_is_not_said_to_be_an_agents(graph: Graph) -> None:
    """The reference stays, by which Harken knows it again; the sentence would be false."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        await rig.sender().send(replace(reply(message, DONE), author=OWNER_ID))
    (mine,) = said_by_us(graph, chat)
    assert mine.html == f"<p>It is <strong>done</strong>.</p><p><em>{reference('o-1')}</em></p>"


async def test_two_replies_of_the_same_words_are_two(graph: Graph) -> None:
    """The key tells replies apart, not their text."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        await rig.sender().send(reply(message, "ok", "o-1"))
        await rig.sender().send(reply(message, "ok", "o-2"))
    assert len(said_by_us(graph, chat)) == 2


async def test_our_reply_is_not_heard_and_the_person_is(graph: Graph) -> None:
    """Both come from one account: who hears himself goes on for ever, and the owner must be heard."""
    chat, message = asked_in(graph)
    async with begun(graph) as rig:
        await rig.sender().send(reply(message))
        graph.say(chat, graph.me, "<p>And I say so too.</p>")
        (draft,) = await rig.go_round(2)
    assert (draft.text, draft.sender.id) == ("<p>And I say so too.</p>", graph.me.id)


async def test_our_reply_is_not_heard_after_a_restart(graph: Graph) -> None:
    """What was sent and not noted before the end is known by its last line."""
    chat, message = asked_in(graph)
    async with begun(graph) as rig:
        await rig.sender().send(reply(message))
        rig.sent = SentMessages()
        rig.restart()
        assert await rig.go_round(2) == []
    assert len(said_by_us(graph, chat)) == 1


async def test_what_others_write_with_our_line_is_heard(graph: Graph) -> None:
    """Else anybody could write what the agent never sees."""
    chat, _ = asked_in(graph)
    ann = chat.members[1]
    async with begun(graph) as rig:
        graph.say(chat, ann, f"<p>{reference('o-1')}</p>")
        assert len(await rig.go_round(2)) == 1


async def test_an_agent_user_does_not_hear_itself_and_claims_to_be_nobody_else(graph: Graph) -> None:
    """It has an account of its own: whatever comes from there is its own."""
    chat, message = asked_in(graph)
    async with begun(graph, sign_in="agent") as rig:
        await rig.sender().send(reply(message))
        graph.say(chat, graph.me, "<p>by hand</p>")
        assert await rig.go_round(2) == []
    assert MARKED not in said_by_us(graph, chat)[0].html


async def test_a_reply_goes_only_where_the_message_came_from(graph: Graph) -> None:
    """A message of another source names a conversation that means nothing here, or something else."""
    chat, message = asked_in(graph)
    other = stored(chat.id, graph.clock.now(), source="other")
    async with rigged(graph) as rig:
        with pytest.raises(Forbidden):
            await rig.sender().send(reply(other))
        with pytest.raises(UserError):
            await rig.sender().send(reply(message, "x" * 30_000))
        with pytest.raises(UserError):
            await rig.sender().send(reply(message, " \n"))
    assert graph.requests == ()


def test_ids_are_remembered_up_to_a_bound() -> None:
    """A daemon that runs for years must not grow with every reply; the newest are the ones that come back."""
    sent = SentMessages(f"c/{number}" for number in range(MAX_IDS + 1))
    assert not sent.is_ours({"chatId": "c", "id": "0"})
    assert sent.is_ours({"chatId": "c", "id": "1"})
    assert sent.is_ours({"chatId": "c", "id": str(MAX_IDS)})


def test_what_is_being_sent_is_ours_until_the_block_ends() -> None:
    """It can be read before its id is known; the same words later are the person's."""
    sent = SentMessages()
    with sent.pending("<p>Hi &amp; <b>bye</b></p>"):
        assert sent.is_ours({"chatId": "c", "id": "1", "body": {"content": "<div>Hi&nbsp;&amp; bye</div>"}})
    assert sent.is_ours({"chatId": "c", "id": "1"})
    assert not sent.is_ours({"chatId": "c", "id": "2", "body": {"content": "<p>Hi &amp; bye</p>"}})


@given(
    st.dictionaries(
        st.sampled_from(["id", "chatId", "body"]), st.none() | st.text() | st.dictionaries(st.text(), st.text())
    )
)
def test_garbage_is_nothing_of_ours(message: dict[str, object]) -> None:
    """Whatever the service answers, it is judged and nothing breaks."""
    assert not SentMessages().is_ours(message)
