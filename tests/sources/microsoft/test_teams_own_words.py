"""What the account itself says, what is done to it, and what changes without a word: heard as what it is, or not."""

from __future__ import annotations

import pytest

from harken.model import INBOX, Attention, Message, MessageId, MessageKind, OutgoingReply, Sender, Trust
from harken.sources.microsoft.sent import SentMessages
from tests.graph.service import Graph
from tests.graph.world import Chat, ChatMessage
from tests.sources.microsoft.teams_rig import NAME, Rig, begun, rigged


async def answered(rig: Rig, chat: Chat) -> ChatMessage:
    """Let Ann ask, the agent answer, and both be read."""
    ann = chat.members[1]
    said = rig.graph.say(chat, ann, "<p>done?</p>")
    await rig.go_round(2)
    message = Message(
        id=MessageId("m1"),
        mailbox=INBOX,
        seq=1,
        received_at=said.created,
        source=NAME,
        sender=Sender(ann.id, "Ann"),
        text="done?",
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        conversation=chat.id,
        upstream_id=f"{chat.id}/{said.id}",
        sent_at=said.created,
    )
    rig.time.pass_by(1)
    sent_id = await rig.sender().send(
        OutgoingReply(key="o-1", to=message, body="I deploy **now**.", author="claude-code")
    )
    await rig.go_round(3)
    return chat.messages[sent_id.partition("/")[2]]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_answer_of_the_agent_that_the_person_corrects_is_not_the_persons_word(
    graph: Graph, *, is_restarted: bool
) -> None:
    """Without its last line an answer looks like an instruction of the owner: it is known by its id, for ever."""
    chat = graph.chat(graph.person("Ann"))
    graph.say(chat, chat.members[1], "<p>old</p>")
    async with begun(graph, seconds=60) as rig:
        own = await answered(rig, chat)
        rig.time.pass_by(120)
        if is_restarted:
            # As the daemon does it: the store tells what was sent before.
            rig.sent = SentMessages([f"{chat.id}/{own.id}"])
            rig.restart()
        graph.edit(chat, own, "<p>I deploy <b>now</b>, please.</p>")
        assert await rig.go_round(20) == []
        graph.delete(chat, own)
        assert await rig.go_round(20) == []


async def test_our_own_words_are_known_by_their_id_whoever_is_said_to_have_written_them(graph: Graph) -> None:
    """Who is signed in may be known wrongly for a moment: the id was given to us, and to nobody else."""
    chat = graph.chat(graph.person("Ann"))
    async with begun(graph, seconds=60) as rig:
        graph.say(chat, chat.members[1], "<p>hi</p>")
        own = graph.say(chat, graph.person("Bob"), "<p>done</p>")
        rig.sent.note(f"{chat.id}/{own.id}")
        assert [draft.text for draft in await rig.go_round(2)] == ["<p>hi</p>"]


async def test_a_reaction_is_no_edit(graph: Graph) -> None:
    """A thumb on a message changes when it was modified and not what it says: nobody is to be woken by it again."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with begun(graph, seconds=60) as rig:
        plain, edited = graph.say(chat, ann, "<p>one</p>"), graph.say(chat, ann, "<p>two</p>")
        early = graph.say(chat, ann, "<p>three</p>")
        graph.clock.advance(1)
        graph.edit(chat, early, "<p>tre</p>")
        await rig.go_round(3)
        graph.edit(chat, edited, "<p>due</p>")
        assert [(draft.kind, draft.text) for draft in await rig.go_round(10)] == [(MessageKind.EDIT, "<p>due</p>")]
        for _ in range(3):
            rig.time.pass_by(60)
            for message in (plain, edited, early):
                graph.react(chat, message, ann)
            assert await rig.go_round(10) == []
        rig.time.pass_by(60)
        graph.react(chat, edited, ann)
        graph.edit(chat, edited, "<p>deux</p>")
        graph.react(chat, edited, ann)
        assert [(draft.kind, draft.text) for draft in await rig.go_round(10)] == [(MessageKind.EDIT, "<p>deux</p>")]


async def test_a_message_that_is_in_the_list_before_it_is_in_its_chat_is_heard(graph: Graph) -> None:
    """The list of chats and the messages of a chat are two answers of two moments."""
    ann = graph.person("Ann")
    chat, other = graph.chat(ann), graph.chat(ann, topic="other")
    graph.say(chat, ann, "<p>old</p>")
    async with rigged(graph) as rig:
        await rig.go_round(1)
        graph.teams.lag_seconds = 30.0
        rig.time.pass_by(60)
        graph.say(chat, ann, "<p>important</p>")
        graph.say(other, ann, "<p>elsewhere</p>")
        assert await rig.go_round(1) == []
        rig.restart()
        assert sorted(draft.text for draft in await rig.go_round(6)) == ["<p>elsewhere</p>", "<p>important</p>"]


async def test_half_an_emoji_keeps_nobody_from_being_heard(graph: Graph) -> None:
    """A text that was cut in the middle of a letter stands in one chat; it and the others go on."""
    ann = graph.person("Ann")
    bad, good = graph.chat(ann), graph.chat(ann, topic="good")
    async with begun(graph, seconds=60) as rig:
        graph.say(bad, ann, "<p>cut \ud83d</p>")
        graph.say(good, ann, "<p>are you there?</p>")
        await rig.go_round(2)
    assert sorted(rig.kept.texts()) == ["<p>are you there?</p>", "<p>cut \ufffd</p>"]
