"""Teams chats against the service that is built from Microsoft's documentation."""

from __future__ import annotations

import json

import pytest

from harken.errors import NeedsPerson
from harken.model import MessageKind, Sender
from harken.sources.microsoft.responses import MissingScope
from harken.sources.source import SourceHealth, SourceState
from harken.sources.teams.polling import LOOKS_AT_ONCE, MAX_CLOSE, MAX_REFUSALS, PAGE, PAGES_AT_ONCE
from harken.sources.teams.settings import POLL_SECONDS
from tests.graph.faults import Fault
from tests.graph.service import Graph
from tests.sources.microsoft.teams_rig import POLL, begun, rigged

SOON_SECONDS = 10.0


async def test_only_what_is_said_after_the_first_start_arrives(graph: Graph) -> None:
    """A new source must not flood the agent with years of chats, also not when an old message gets a new word."""
    chat = graph.chat(ann := graph.person("Ann"))
    old = graph.say(chat, ann, "<p>old</p>")
    async with rigged(graph) as rig:
        assert await rig.go_round(3) == []
        assert rig.kept.checkpoint
        graph.edit(chat, old, "<p>older</p>")
        new = graph.say(chat, ann, "<p>new</p>")
        (draft,) = await rig.go_round(2)
    assert (draft.text, draft.source, draft.channel) == ("<p>new</p>", "work", "teams")
    assert (draft.sender, draft.conversation) == (Sender(ann.id, "Ann"), chat.id)
    assert (draft.upstream_id, draft.sent_at) == (f"{chat.id}/{new.id}", new.created)


async def test_a_quiet_account_costs_one_request_a_round(graph: Graph) -> None:
    """However many chats there are: what did not change is not read."""
    ann = graph.person("Ann")
    for number in range(30):
        graph.say(graph.chat(ann, topic=f"t{number}"), ann, "<p>x</p>")
    async with rigged(graph) as rig:
        await rig.go_round(12)
    assert [entry.path for entry in graph.requests] == ["/v1.0/me/chats"] * 12


async def test_a_chat_that_is_new_is_discovered(graph: Graph) -> None:
    """Nobody should have to name a chat before somebody can write in it."""
    async with rigged(graph) as rig:
        await rig.go_round(1)
        rig.time.pass_by(5)
        ann = graph.person("Ann")
        chat = graph.chat(ann, topic="Release")
        graph.say(chat, ann, "<p>hi</p>")
        (draft,) = await rig.go_round(1)
    assert (draft.text, draft.meta["topic"]) == ("<p>hi</p>", "Release")


async def test_a_burst_of_more_than_a_page_arrives_whole_and_in_order(graph: Graph) -> None:
    """Reading only the newest page is how messages were lost before."""
    chat = graph.chat(ann := graph.person("Ann"))
    graph.say(chat, ann, "<p>old</p>")
    async with rigged(graph) as rig:
        await rig.go_round(1)
        for number in range(130):
            graph.clock.advance(0.01)
            graph.say(chat, ann, f"{number}")
        await rig.go_round(1)
        assert rig.kept.texts() == [str(number) for number in range(130)]


async def test_a_flood_is_read_over_several_rounds_each_page_once_and_others_do_not_wait(graph: Graph) -> None:
    """Pages come newest first, and order needs the oldest: no page is thrown away for that, and nobody held up."""
    ann = graph.person("Ann")
    chat, other = graph.chat(ann), graph.chat(ann, topic="other")
    graph.say(chat, ann, "<p>old</p>")
    pages = 3 * PAGES_AT_ONCE
    async with rigged(graph) as rig:
        await rig.go_round(1)
        for number in range(pages * PAGE):
            graph.clock.advance(0.2)
            graph.say(chat, ann, f"{number}")
        graph.say(other, ann, "short")
        await rig.go_round(1)
        assert rig.kept.texts() == ["short"]
        asked = len(graph.asked(f"/chats/{chat.id}/messages"))
        await rig.go_round(1)  # begins anew after a restart
        assert rig.kept.texts(chat.id) == []
        await rig.go_round(4)
        assert rig.kept.texts(chat.id) == [str(number) for number in range(pages * PAGE)]
        assert len(graph.asked(f"/chats/{chat.id}/messages")) - asked <= PAGES_AT_ONCE + pages + 4


async def test_more_chats_than_a_page_of_the_list_are_all_read(graph: Graph) -> None:
    """The list has pages too, and all of them are followed as far as there is something new."""
    ann = graph.person("Ann")
    async with rigged(graph) as rig:
        await rig.go_round(1)
        rig.time.pass_by(5)
        for number in range(70):
            graph.clock.advance(0.01)
            graph.say(graph.chat(ann, topic=f"t{number}"), ann, f"{number}")
        await rig.go_round(1)
        assert sorted(rig.kept.texts()) == sorted(str(number) for number in range(70))


async def test_edits_and_deletions_arrive_although_the_list_does_not_show_them(graph: Graph) -> None:
    """What was taken back must not go on being believed; the list of chats says nothing of it."""
    chat = graph.chat(ann := graph.person("Ann"))
    graph.say(chat, ann, "<p>old</p>")
    async with begun(graph) as rig:
        first, second = graph.say(chat, ann, "<p>one</p>"), graph.say(chat, ann, "<p>two</p>")
        graph.say(chat, ann, "<p>three</p>")
        await rig.go_round(4)
        graph.edit(chat, first, "<p>uno</p>")
        graph.delete(chat, second)
        edit, deletion = sorted(await rig.go_round(8), key=lambda draft: draft.kind is MessageKind.DELETION)
    assert (edit.kind, edit.text, edit.refers_to) == (MessageKind.EDIT, "<p>uno</p>", f"{chat.id}/{first.id}")
    assert (deletion.kind, deletion.text, deletion.refers_to) == (MessageKind.DELETION, "", f"{chat.id}/{second.id}")


async def test_a_message_that_was_edited_before_it_was_read_is_a_new_one(graph: Graph) -> None:
    """An edit of something nobody has seen would be shown as a change of nothing."""
    chat = graph.chat(ann := graph.person("Ann"))
    graph.say(chat, ann, "<p>old</p>")
    async with begun(graph) as rig:
        message = graph.say(chat, ann, "<p>one</p>")
        gone = graph.say(chat, ann, "<p>oops</p>")
        graph.say(chat, ann, "<p>two</p>")
        graph.clock.advance(1)
        graph.edit(chat, message, "<p>uno</p>")
        graph.delete(chat, gone)
        await rig.go_round(6)
        assert rig.kept.said() == [("message", "<p>uno</p>"), ("message", "<p>two</p>")]


async def test_what_is_edited_or_deleted_arrives_with_the_next_look(graph: Graph) -> None:
    """Ten seconds after somebody has taken a word back nobody should act on it: in every chat, at the usual pace."""
    ann = graph.person("Ann")
    chats = [graph.chat(ann, topic=f"t{number}") for number in range(MAX_CLOSE)]
    rounds = 0
    late: dict[str, int] = {}  # how many rounds each change took
    pending: dict[str, int] = {}
    async with begun(graph) as rig:
        said = [(chat, graph.say(chat, ann, "<p>one</p>"), graph.say(chat, ann, "<p>two</p>")) for chat in chats]
        for chat in chats:
            graph.say(chat, ann, "<p>three</p>")

        def look() -> None:
            """Note what has come, then change something right after the source has looked: it cannot be later."""
            nonlocal rounds
            rounds += 1
            late.update(
                {
                    each.refers_to: rounds - pending.pop(each.refers_to)
                    for each in rig.kept.drafts
                    if each.refers_to in pending
                }
            )
            if len(rig.kept.texts()) == 3 * len(chats) and said:
                chat, first, second = said.pop()
                graph.edit(chat, first, "<p>uno</p>")
                graph.delete(chat, second)
                pending.update({f"{chat.id}/{first.id}": rounds, f"{chat.id}/{second.id}": rounds})

        rig.time.at_leaps.append(look)
        await rig.go_round(4 * MAX_CLOSE)
    assert sorted(late.values()) == [1] * 2 * MAX_CLOSE, "all of it came, in the round that follows"
    assert POLL_SECONDS == POLL < SOON_SECONDS, "which begins that soon"
    assert {entry.status for entry in graph.requests} == {200}, "and nothing was asked for too often"


async def test_looking_for_edits_ends_in_a_quiet_chat(graph: Graph) -> None:
    """Microsoft asks not to be polled without need: an hour after the last word only the list is read."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with begun(graph) as rig:
        graph.say(chat, ann, "<p>one</p>")
        await rig.go_round(int(3_700 / POLL))
        reads = len(graph.asked("/messages"))
        assert reads <= 3_600 / POLL + 1
        await rig.go_round(2)
        quiet_from = len(graph.asked("/messages"))
        # A restart may look once more; going on may not.
        assert quiet_from <= reads + 1


async def test_however_many_chats_are_busy_only_some_are_looked_at_in_a_round(graph: Graph) -> None:
    """All who use the app share what Microsoft allows it: twenty requests a second in an organisation."""
    ann = graph.person("Ann")
    chats = [graph.chat(ann, topic=f"t{number}") for number in range(3 * MAX_CLOSE)]
    async with begun(graph) as rig:
        for chat in chats:
            graph.say(chat, ann, "<p>one</p>")
        await rig.go_round(1)
        assert len(rig.kept.drafts) == len(chats)
        first = len(graph.asked("/messages"))
        rounds = 60
        counts: list[int] = []
        rig.time.at_leaps.append(lambda: counts.append(len(graph.asked("/messages"))))
        await rig.go_round(rounds)
        assert counts[-1] - first <= rounds * (MAX_CLOSE + LOOKS_AT_ONCE)
        looked_at = {entry.path for entry in graph.asked("/messages")[first:]}
        assert len(looked_at) == len(chats), "the others have their turns"


async def test_what_the_system_says_is_left_out(graph: Graph) -> None:
    """That a chat was renamed is nothing anybody said."""
    ann = graph.person("Ann")
    chat = graph.chat(ann, topic="One")
    async with begun(graph) as rig:
        graph.rename(chat, ann, "Two")
        graph.say(chat, ann, "<p>hi</p>")
        (draft,) = await rig.go_round(2)
    assert (draft.text, draft.meta["topic"]) == ("<p>hi</p>", "Two")


async def test_a_muted_chat_and_a_muted_bot_are_not_heard(graph: Graph) -> None:
    """A bot is muted by its id: anybody can call themselves what it is called."""
    ann, bot = graph.person("Ann"), graph.person("Build", is_bot=True)
    chat, lunch = graph.chat(ann, topic="Work"), graph.chat(ann, topic="Lunch")
    async with begun(graph, muted=("lunch", bot.id)) as rig:
        graph.say(lunch, ann, "<p>pizza?</p>")
        graph.say(chat, bot, "<p>build 1</p>")
        graph.say(chat, graph.person("Build"), "<p>I am no bot</p>")
        other = graph.person("Build", is_bot=True)
        graph.say(chat, other, "<p>build 2</p>")
        await rig.go_round(3)
        assert rig.kept.texts() == ["<p>I am no bot</p>", "<p>build 2</p>"]
        assert rig.kept.drafts[1].sender == Sender(other.id, "Build")
        assert rig.kept.drafts[1].meta["bot"] == "true"
        assert graph.asked(f"{lunch.id}/messages") == []


async def test_only_watched_chats_are_read_where_some_are_named(graph: Graph) -> None:
    """Who names chats wants these and no others, by topic or by id."""
    ann = graph.person("Ann")
    one, two, three = (graph.chat(ann, topic=topic) for topic in ("One", "Two", "Three"))
    async with begun(graph, watched=("ONE", two.id)) as rig:
        for chat in (one, two, three):
            graph.say(chat, ann, chat.topic or "")
        await rig.go_round(2)
        assert sorted(rig.kept.texts()) == ["One", "Two"]


async def test_mentions_quotes_and_attachments_become_text(graph: Graph) -> None:
    """What only Teams can show would be missing from what the agent reads; and it is as hostile as the rest."""
    chat = graph.chat(ann := graph.person("Ann"))
    quoted = {
        "messageId": "17",
        "messagePreview": "Ship it? <b>now</b>",
        "messageSender": {"user": {"displayName": "Bob <x>"}},
    }
    html = '<attachment id="17"></attachment><p><at id="0">Robin</at> see <b>this</b></p>'
    async with begun(graph) as rig:
        graph.say(
            chat,
            ann,
            html,
            mentions=[{"id": 0, "mentionText": "Robin", "mentioned": {"user": {"id": graph.me.id}}}],
            attachments=[
                {"id": "17", "contentType": "messageReference", "content": json.dumps(quoted), "name": None},
                {"id": "f", "contentType": "reference", "name": "plan <1>.docx", "contentUrl": "https://x.test"},
                {"id": "c", "contentType": "application/vnd.microsoft.card.hero", "content": '{"title": "Poll"}'},
            ],
        )
        (draft,) = await rig.go_round(1)
    assert draft.text == (
        "<blockquote>Bob &lt;x&gt; wrote: Ship it? &lt;b&gt;now&lt;/b&gt;</blockquote>"
        "<p>@Robin see <b>this</b></p>"
        "<p>[attachment: plan &lt;1&gt;.docx]</p><p>[card: Poll]</p>"
    )
    assert (draft.refers_to, draft.meta["mentions_me"]) == (f"{chat.id}/17", "true")


async def test_a_chat_that_fails_is_read_later_and_the_others_now(graph: Graph) -> None:
    """One broken chat must not hold up the rest, nor be forgotten."""
    ann = graph.person("Ann")
    good, bad = graph.chat(ann, topic="good"), graph.chat(ann, topic="bad")
    async with begun(graph) as rig:
        graph.say(bad, ann, "<p>later</p>")
        rig.time.pass_by(60)
        graph.say(good, ann, "<p>now</p>")
        graph.fail_next(Fault.SERVER_ERROR, path=f"{bad.id}/messages", times=5)
        await rig.go_round(1)
        assert rig.kept.texts() == ["<p>now</p>"]
        rig.restart()
        await rig.go_round(1)
        assert rig.kept.texts() == ["<p>now</p>", "<p>later</p>"]


async def test_a_chat_that_goes_on_refusing_us_is_left_alone_until_something_new_is_in_it(graph: Graph) -> None:
    """It is asked a few times, people are told, everything else goes on; and when it opens, nothing was missed."""
    ann = graph.person("Ann")
    closed, open_chat = graph.chat(ann, topic="closed"), graph.chat(ann, topic="open")
    async with begun(graph) as rig:
        graph.say(closed, ann, "<p>one</p>")
        # Listed, and not to be found under its id.
        graph.world.chats["elsewhere"] = graph.world.chats.pop(closed.id)
        reasons: list[str] = []
        rig.time.at_leaps.append(lambda: reasons.append(rig.source.health().reason))
        graph.say(open_chat, ann, "<p>hi</p>")
        await rig.go_round(8)
        assert rig.kept.texts() == ["<p>hi</p>"]
        assert len(graph.asked(f"{closed.id}/messages")) == MAX_REFUSALS
        assert reasons[-1] == "1 of the chats cannot be read"
        graph.world.chats[closed.id] = graph.world.chats.pop("elsewhere")
        graph.say(closed, ann, "<p>two</p>")
        await rig.go_round(2)
        assert rig.kept.texts(closed.id) == ["<p>one</p>", "<p>two</p>"]


async def test_while_the_service_fails_people_see_when_it_is_tried_again(graph: Graph) -> None:
    """Silence must not look like peace."""
    chat = graph.chat(ann := graph.person("Ann"))
    states: list[SourceHealth] = []
    async with begun(graph) as rig:
        graph.say(chat, ann, "<p>hi</p>")
        graph.fail_next(Fault.SERVER_ERROR, path="/me/chats", times=5)
        rig.time.at_leaps.append(lambda: states.append(rig.source.health()))
        await rig.go_round(2)
        assert [health.state for health in states] == [SourceState.RETRYING, SourceState.LISTENING]
        assert states[0].reason
        assert states[0].next_try is not None
        assert states[1].reconnects == 1
        assert rig.kept.texts() == ["<p>hi</p>"]


async def test_a_missing_permission_is_told_and_nothing_is_passed_over(graph: Graph) -> None:
    """What could not be read for want of a permission arrives when it was granted."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with rigged(graph, scopes=("Chat.ReadBasic",)) as rig:
        await rig.go_round(1)
        rig.time.pass_by(1)
        graph.say(chat, ann, "<p>hi</p>")
        with pytest.raises(MissingScope):
            await rig.go_round(3)
        health = rig.source.health()
        assert (health.state, "Chat.Read" in health.reason) == (SourceState.NEEDS_PERSON, True)
        kept = rig.kept
    async with rigged(graph) as rig:
        rig.kept = kept
        await rig.go_round(1)
        assert rig.kept.texts() == ["<p>hi</p>"]


async def test_an_ended_sign_in_is_told_and_the_place_is_kept(graph: Graph) -> None:
    """With an expired sign-in nothing is lost: the checkpoint waits."""
    chat = graph.chat(ann := graph.person("Ann"))
    async with rigged(graph, scopes=("User.Read",)) as rig:
        with pytest.raises(NeedsPerson):
            await rig.go_round(1)
        assert rig.kept.checkpoint == ""
    async with begun(graph) as rig:
        graph.say(chat, ann, "<p>hi</p>")
        assert [draft.text for draft in await rig.go_round(1)] == ["<p>hi</p>"]
