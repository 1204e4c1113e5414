"""Replies of which nobody knows whether they were sent: looked for, waited for, and in the chat once in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
import pytest

from harken.errors import Unavailable, Uncertain
from harken.model import Message, MessageId, OutgoingReply
from harken.sources.microsoft.sent import SentMessages
from harken.sources.teams.messages import NOT_ANSWERED, place_mark, standing_in
from harken.sources.teams.settings import TeamsSettings
from harken.sources.teams.source import LOOK_AGAIN_SECONDS, MAX_PAGES, SETTLED, TeamsSender
from tests.graph.faults import Fault
from tests.graph.service import Graph
from tests.sources.microsoft.loopback import Fault as Broken
from tests.sources.microsoft.loopback import Reply, Visit, calling, told
from tests.sources.microsoft.teams_rig import NAME, Rig, asked_in, rigged, said_by_us, stored

MANY: Final = 1_050  # more than were looked at once
TRIES: Final = 20


@dataclass
class Row:
    """A reply that is tried again as the outbox does it: with the note that an earlier try may have been sent."""

    to: Message
    now: Callable[[], datetime]
    tried_at: datetime | None = None
    before_it_leaves: list[Callable[[], None]] = field(default_factory=list)
    created_at: datetime | None = None
    handed: int = 0

    async def hand_over(self) -> None:
        """Note that it leaves now."""
        self.tried_at = self.now()
        self.handed += 1
        if self.before_it_leaves:
            self.before_it_leaves.pop(0)()

    async def send(self, sender: TeamsSender) -> str:
        """Try it once."""
        was_tried = self.tried_at
        reply = OutgoingReply(
            key="o-1",
            to=self.to,
            body="Done.",
            author="claude-code",
            created_at=self.created_at,
            tried_at=self.tried_at,
            hand_over=self.hand_over,
        )
        try:
            return await sender.send(reply)
        except Unavailable as error:
            self.tried_at = self.tried_at if isinstance(error, Uncertain) or was_tried else None
            raise


async def send_at_last(rig: Rig, row: Row) -> tuple[str, list[float]]:
    """Try as often as it takes, each time as another daemon; return the id, and how long was waited each time."""
    waits: list[float] = []
    for _ in range(TRIES):
        try:
            return await row.send(rig.sender()), waits
        except Unavailable as error:
            waits.append(error.retry_after)
            rig.time.pass_by(error.retry_after)
    pytest.fail("it was never sent")


@pytest.mark.parametrize(
    "fault", [Fault.LOST, Fault.GATEWAY_TIMEOUT, Fault.TRUNCATED, Fault.RESET, Fault.SERVER_ERROR, Fault.DELAYED]
)
async def test_a_reply_without_an_answer_is_in_the_chat_once_in_the_end(graph: Graph, fault: Fault) -> None:
    """Whether it happened, happens later or never does: it is looked for before it is repeated."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now)
        row.before_it_leaves.append(lambda: graph.fail_next(fault, path="/messages"))
        sent_id, _ = await send_at_last(rig, row)
        rig.time.pass_by(300)
        await rig.go_round(1)
    assert graph.asked("/messages", "POST")[0].fault == fault
    (mine,) = said_by_us(graph, chat)
    assert sent_id == f"{chat.id}/{mine.id}"


@pytest.mark.parametrize("late_seconds", [12.0, 50.0])
async def test_a_reply_that_is_done_late_is_waited_for(graph: Graph, late_seconds: float) -> None:
    """The request may still be under way: sent again at once, the chat would hold it twice."""
    graph.teams.late_seconds = late_seconds
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now)
        row.before_it_leaves.append(lambda: graph.fail_next(Fault.DELAYED, path="/messages"))
        await send_at_last(rig, row)
    assert len(graph.asked("/messages", "POST")) == len(said_by_us(graph, chat)) == 1


async def test_before_a_reply_is_repeated_it_is_looked_for_several_times(graph: Graph) -> None:
    """One look proves little: what was sent may be shown late."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now)
        row.before_it_leaves.append(lambda: graph.fail_next(Fault.RESET, path="/messages"))
        _, waits = await send_at_last(rig, row)
    first, second = graph.asked("/messages", "POST")
    looks = [each for each in graph.asked("/messages", "GET") if first.at < each.at <= second.at]
    assert second.at - first.at >= SETTLED
    assert len(looks) >= 4
    assert max(waits) <= LOOK_AGAIN_SECONDS
    assert len(said_by_us(graph, chat)) == 1


async def test_that_a_reply_leaves_is_noted_right_before_it_does(graph: Graph) -> None:
    """A crash after that must be known to the next daemon, and one before it is nobody's concern."""
    _, message = asked_in(graph)
    asked: list[list[str]] = []

    def note() -> None:
        asked.append([entry.method for entry in graph.requests])

    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now, before_it_leaves=[note])
        await row.send(rig.sender())
    assert asked == [["GET"]]
    assert [entry.method for entry in graph.requests] == ["GET", "POST"]
    assert row.handed == 1


async def test_an_edit_is_noted_before_it_is_made() -> None:
    """What becomes of a place is an answer too."""
    methods: list[list[str]] = []

    def judge(visit: Visit) -> Reply:
        placed = standing_in(NOT_ANSWERED, place_mark(MessageId("m1")), is_for_person=True)
        mine = {"id": "5", "from": {"user": {"id": "me"}}, "body": {"content": placed.html}}
        return told({"value": [mine]}) if visit.method == "GET" else Reply(204)

    async with calling(judge) as far:
        now = far.time.clock.now
        row = Row(stored("c", now()), now)
        row.before_it_leaves.append(lambda: methods.append([visit.method for visit in far.service.visits]))
        sender = TeamsSender(TeamsSettings(name=NAME), far.client, SentMessages(), lambda: "me", far.time.clock)
        await row.send(sender)
    assert methods == [["GET"]]
    assert [visit.method for visit in far.service.visits] == ["GET", "PATCH"]


async def test_a_reply_is_found_behind_very_many_newer_messages(graph: Graph) -> None:
    """A busy chat must not hide that it is there."""
    chat, message = asked_in(graph)
    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now)
        sent_id = await row.send(rig.sender())
        for number in range(MANY):
            graph.clock.advance(0.1)
            graph.say(chat, chat.members[1], f"{number}")
        assert await row.send(rig.sender()) == sent_id
    assert len(said_by_us(graph, chat)) == 1


async def test_what_was_not_looked_at_to_its_end_may_hold_the_reply() -> None:
    """Not found is not the same as not there: nothing is sent then, and it is said."""
    link = ""

    def judge(visit: Visit) -> Reply:
        return told({"value": [], "@odata.nextLink": f"{link}{len(visit.target)}/{len(far.service.visits)}"})

    async with calling(judge) as far:
        link = f"{far.service.url}/chats/c/messages/"
        now = far.time.clock.now()
        row = Row(stored("c", now), far.time.clock.now, tried_at=now - timedelta(hours=2))
        sender = TeamsSender(TeamsSettings(name=NAME), far.client, SentMessages(), lambda: "me", far.time.clock)
        with pytest.raises(Uncertain):
            await row.send(sender)
    assert [visit.method for visit in far.service.visits] == ["GET"] * MAX_PAGES


async def test_a_first_try_in_a_busy_chat_looks_only_where_it_could_be(graph: Graph) -> None:
    """What was said since the question is long; a reply is not older than the moment it was written."""
    chat, message = asked_in(graph)
    for number in range(MANY):
        graph.clock.advance(10)
        graph.say(chat, chat.members[1], f"{number}")
    async with rigged(graph) as rig:
        row = Row(message, graph.clock.now, created_at=graph.clock.now())
        await row.send(rig.sender())
    assert len(graph.requests) <= 6
    assert len(said_by_us(graph, chat)) == 1


async def test_a_chat_that_does_not_answer_holds_up_no_other() -> None:
    """Two chats are two people, and one of them must not wait for the other."""

    def judge(visit: Visit) -> Reply:
        if "/chats/bad/" in visit.target:
            return Reply(fault=Broken.HANG)
        return told({"value": []}) if visit.method == "GET" else told({"id": "7"}, 201)

    async with calling(judge) as far:
        now = far.time.clock.now
        sender = TeamsSender(TeamsSettings(name=NAME), far.client, SentMessages(), lambda: "me", far.time.clock)
        async with anyio.create_task_group() as group:
            group.start_soon(Row(stored("bad", now()), now).send, sender)
            await far.service.visited.wait()
            assert await Row(stored("good", now()), now).send(sender) == "good/7"
            group.cancel_scope.cancel()


async def test_nothing_is_sent_while_it_is_not_known_who_speaks() -> None:
    """Our own words could not be told from the person's: they would be heard, and sent again."""
    async with calling(lambda _: told({"value": []})) as far:
        now = far.time.clock.now
        sender = TeamsSender(TeamsSettings(name=NAME), far.client, SentMessages(), lambda: "", far.time.clock)
        with pytest.raises(Unavailable):
            await Row(stored("c", now()), now).send(sender)
    assert far.service.visits == []
