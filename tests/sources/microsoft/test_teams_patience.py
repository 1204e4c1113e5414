"""A service whose parts disagree for a while: what the list shows is read in the end, however late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import anyio
import pytest

from harken.errors import NeedsPerson
from harken.model import Draft
from harken.sources.microsoft.sent import SentMessages
from harken.sources.teams.messages import TeamsChat, millis, read_chat, read_message
from harken.sources.teams.polling import (
    MAX_BACK_MS,
    MAX_BEHIND,
    MAX_LATE,
    MAX_REFUSALS,
    REFUSED_SECONDS,
    TROUBLED_SECONDS,
    ChatPoll,
    TeamsCheckpoint,
)
from harken.sources.teams.settings import TeamsSettings
from tests.sources.microsoft.loopback import Calling, Fault, Reply, Visit, calling, refused, told

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """Chats as the list and the reading of messages show them, each in its own way."""

    listed: dict[str, datetime] = field(default_factory=dict)
    answer: Callable[[str], Reply] = lambda _: told({"value": []})
    numbers: dict[str, int] = field(default_factory=dict)  # of the last message of a chat, if it is not the first
    limits: dict[str, anyio.CancelScope] = field(default_factory=dict)

    def __call__(self, visit: Visit) -> Reply:
        """Answer as the service does."""
        if "/me/chats" in visit.target:
            newest = sorted(self.listed.items(), key=lambda item: item[1], reverse=True)
            chats = [
                {"id": name, "lastMessagePreview": {"id": self.last_id(name), "createdDateTime": at.isoformat()}}
                for name, at in newest
            ]
            return told({"value": chats})
        return self.answer(visit.target.split("/chats/")[1].split("/")[0])

    def limit(self, name: str) -> anyio.CancelScope:
        """Return the limit within which a chat is read: it is over when `hang` says so."""
        scope = self.limits[name] = anyio.CancelScope()
        return scope

    def hang(self, name: str) -> Reply:
        """Do not answer for longer than a chat may take."""
        self.limits[name].cancel()
        return Reply(fault=Fault.HANG)

    def last_id(self, name: str) -> str:
        """Return the id of the last message of a chat."""
        return f"{name}-{self.numbers.get(name, 1)}"

    def said(self, name: str) -> Reply:
        """Answer with the message of a chat."""
        at = self.listed[name].isoformat()
        message = {
            "id": self.last_id(name),
            "createdDateTime": at,
            "lastModifiedDateTime": at,
            "from": {"user": {"id": "ann", "displayName": "Ann"}},
            "body": {"contentType": "html", "content": name},
        }
        return told({"value": [message]})


def polling(
    far: Calling, checkpoint: str = "", *, since: datetime | None = None, world: World | None = None
) -> ChatPoll:
    """Return the way through the chats, from a checkpoint, from a sign-in or from now on."""
    made = ChatPoll(
        TeamsSettings(name="work"),
        far.client,
        SentMessages(),
        lambda: "me",
        far.time.monotonic,
        now=lambda: START,
        since=lambda: since,
        chat_limit=world.limit if world else lambda _chat: anyio.CancelScope(),
    )
    if checkpoint:
        made.begin(checkpoint)
    return made


async def go_round(chats: ChatPoll) -> list[Draft]:
    """Go round once."""
    drafts = await chats.read(await chats.look())
    chats.complete()
    return drafts


async def test_a_message_that_can_never_be_read_does_not_keep_the_list_open() -> None:
    """Who joined later does not see what was before: after a while the list goes on."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.listed["new"] = START + timedelta(seconds=60)
        for _ in range(MAX_BEHIND + 1):
            await go_round(chats)
        before = len(far.service.visits)
        await go_round(chats)
        assert len(far.service.visits) == before + 1


async def test_a_chat_that_refuses_us_is_tried_again_also_after_a_restart() -> None:
    """A chat that was just made may refuse for a minute; by then others are newer, and the list hides it."""
    world = World({"old": START}, answer=lambda _: refused(403, "Forbidden"))
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.listed["new"] = START + timedelta(seconds=60)
        for _ in range(5):
            await go_round(chats)
        assert chats.closed == 1
        kept = chats.checkpoint()
        del world.listed["new"]
        world.listed["old"] = START + timedelta(days=1)
        world.answer = lambda name: told({"value": []}) if name == "old" else refused(403, "Forbidden")
        far.time.now += 100_000
        await go_round(chats)
        assert chats.closed == 1
        assert "new" in chats.checkpoint()
        world.listed["new"] = START + timedelta(seconds=60)
        said = world.said("new")
        del world.listed["new"]
        world.answer = lambda name: said if name == "new" else told({"value": []})
        assert [draft.text for draft in await go_round(polling(far, kept))] == ["new"]
        far.time.now += 100_000
        assert [draft.text for draft in await go_round(chats)] == ["new"]
        assert chats.closed == 0


async def tries_of(chats: ChatPoll, far: Calling, hours: float, name: str = "gone") -> list[int]:
    """Go round every half an hour, and return the minutes in which a chat was asked for."""
    tries: list[int] = []
    for minute in range(0, round(hours * 60), 30):
        before = len(far.service.visits)
        await go_round(chats)
        tries += [minute for visit in far.service.visits[before:] if f"/chats/{name}/" in visit.target]
        far.time.now += 1_800
    return tries


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_chat_that_goes_on_refusing_us_is_tried_ever_less_and_at_last_once_a_day(
    status: int, *, is_listed: bool
) -> None:
    """Whoever has left a chat has left it for good: asking every few minutes for ever helps nobody."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.listed["gone"] = START + timedelta(seconds=60)
        world.answer = lambda name: refused(status, "Refused") if name == "gone" else told({"value": []})
        for _ in range(MAX_REFUSALS):
            await go_round(chats)
        if not is_listed:
            del world.listed["gone"]
        tries = await tries_of(chats, far, 4 * 24)
        assert chats.closed == 1
        pauses = [later - sooner for sooner, later in pairwise([0, *tries])]
        assert pauses == sorted(pauses)
        assert pauses[-2:] == [24 * 60, 24 * 60]
        assert len(tries) <= 10


async def test_a_chat_that_was_slow_for_long_and_refuses_once_does_not_wait_for_a_day() -> None:
    """Each counts for itself: one odd answer after an outage is no reason to believe that the chat was left."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far, world=world)
        await go_round(chats)
        world.listed["slow"] = START + timedelta(seconds=60)
        world.answer = lambda name: world.hang(name) if name == "slow" else told({"value": []})
        for _ in range(MAX_LATE + 5):
            await go_round(chats)
            far.time.now += max(TROUBLED_SECONDS)
        world.answer = lambda name: refused(403, "Forbidden") if name == "slow" else told({"value": []})
        await go_round(chats)
        assert chats.closed == 1
        world.answer = lambda name: world.said("slow") if name == "slow" else told({"value": []})
        far.time.now += REFUSED_SECONDS[0]
        assert [draft.text for draft in await go_round(chats)] == ["slow"]


@pytest.mark.parametrize("was_listed", [True, False])
async def test_a_chat_that_refused_us_is_read_at_once_when_the_list_shows_something_new(*, was_listed: bool) -> None:
    """Somebody was let in again: what is said then must not wait for a day, and what the list showed before may."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.listed["gone"] = shown = START + timedelta(seconds=60)
        world.answer = lambda name: refused(403, "Forbidden") if name == "gone" else told({"value": []})
        for _ in range(MAX_REFUSALS):
            await go_round(chats)
        if not was_listed:
            del world.listed["gone"]
        await tries_of(chats, far, 2 * 24)
        world.listed["gone"] = shown
        assert await tries_of(chats, far, 1.5) == []
        world.listed["gone"], world.numbers["gone"] = shown + timedelta(days=3), 2
        world.answer = world.said
        assert [draft.text for draft in await go_round(chats)] == ["gone"]
        assert chats.closed == 0


def test_a_chat_without_a_last_message_hides_none_behind_it() -> None:
    """A preview can be null: a page that holds one is no reason to stop, and one of nothing else is."""
    place = TeamsCheckpoint(start=1, listed=20_000, floor=1)
    assert place.reaches_further([TeamsChat("new", last_at=100_000), TeamsChat("empty")])
    assert not place.reaches_further([TeamsChat("empty")])


async def test_a_page_without_its_list_is_asked_for_again_and_hides_nothing() -> None:
    """An empty answer that counts as a chat with nothing new would lose what is there."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.listed["new"] = START + timedelta(seconds=60)
        answers = [Reply(), told({}), told({"value": None}), world.said("new")]
        world.answer = lambda _: answers.pop(0) if len(answers) > 1 else answers[0]
        assert [draft.text for draft in await go_round(chats)] == ["new"]


async def test_a_chat_that_does_not_answer_holds_up_no_other_and_is_read_later() -> None:
    """A black hole costs a bounded time, a few times, and then only now and then; nothing in it is lost."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far, world=world)
        await go_round(chats)
        world.listed |= {"bad": START + timedelta(seconds=60), "good": START + timedelta(seconds=61)}
        world.answer = lambda name: world.hang(name) if name == "bad" else world.said(name)
        assert [draft.text for draft in await go_round(chats)] == ["good"]
        for _ in range(MAX_LATE):
            await go_round(chats)
        assert (chats.closed, chats.is_complete) == (1, True)
        asked = len(far.service.visits)
        await go_round(chats)
        assert len(far.service.visits) == asked + 1
        world.answer = world.said
        far.time.now += TROUBLED_SECONDS[0]
        assert [draft.text for draft in await go_round(chats)] == ["bad"]
        assert chats.closed == 0


async def test_a_chat_that_fails_for_ever_lets_the_list_go_on_and_is_told_of() -> None:
    """Else everything that is said elsewhere is kept in the checkpoint, and each look reaches further back."""
    world = World({"old": START})
    async with calling(world) as far:
        chats = polling(far)
        await go_round(chats)
        world.answer = lambda name: refused(500, "InternalServerError") if name == "bad" else world.said(name)
        world.listed["bad"] = START + timedelta(seconds=1)
        sizes: list[int] = []
        for number in range(30):
            world.listed[f"chat-{number}"] = START + timedelta(hours=1 + number)
            assert [draft.text for draft in await go_round(chats)] == [f"chat-{number}"]
            sizes.append(len(chats.checkpoint()))
        assert chats.closed == 1
        assert "bad" in chats.checkpoint()
        assert max(sizes[10:]) <= max(sizes[:10]) + 50
        world.answer = world.said
        far.time.now += TROUBLED_SECONDS[-1]
        assert "bad" in [draft.text for draft in await go_round(chats)]


async def test_nothing_is_read_while_it_is_not_known_whose_chats_they_are() -> None:
    """The person's own words, and ours, could not be told from those of others."""
    async with calling(World({"old": START})) as far:
        settings = TeamsSettings(name="work")
        chats = ChatPoll(settings, far.client, SentMessages(), lambda: "", far.time.monotonic, now=lambda: START)
        with pytest.raises(NeedsPerson):
            await chats.look()
        assert far.service.visits == []


async def test_what_was_read_while_somebody_else_signed_in_is_nobodys() -> None:
    """Tokens change in the midst of a round: what one person may read is not stored as another's."""
    world = World({"old": START})
    who = ["ann"]
    async with calling(world) as far:
        settings = TeamsSettings(name="work")
        chats = ChatPoll(settings, far.client, SentMessages(), lambda: who[0], lambda: 0.0, now=lambda: START)
        await go_round(chats)
        world.listed["new"] = START + timedelta(seconds=60)

        def switch(name: str) -> Reply:
            who[0] = "bob"
            return world.said(name)

        world.answer = switch
        assert await go_round(chats) == []
        assert not chats.is_complete
        assert "bob" not in chats.checkpoint()
        who[0] = "ann"
        world.answer = world.said
        assert [draft.text for draft in await go_round(chats)] == ["new"]


async def test_the_first_look_begins_at_the_sign_in() -> None:
    """What was said between the sign-in and the first look is to be heard, and what was said before is not."""
    world = World({"before": START, "after": START + timedelta(seconds=60)})
    world.answer = world.said
    async with calling(world) as far:
        chats = polling(far, since=START + timedelta(seconds=30))
        await go_round(chats)
        assert [draft.text for draft in await go_round(chats)] == ["after"]


def test_an_old_sign_in_does_not_bring_weeks_of_chats() -> None:
    """A source that is added again must not flood the agent with what was said in between."""
    newest = millis((START + timedelta(days=60)).isoformat())
    place = TeamsCheckpoint.beginning([TeamsChat("c", gate="g", last_at=newest)], millis(START.isoformat()))
    assert place.start == newest - MAX_BACK_MS


def test_without_any_message_everything_to_come_is_new() -> None:
    """Our clock may be ahead of the service's: nothing that is said from now on may be older than the beginning."""
    place = TeamsCheckpoint.beginning([])
    assert place.start == 0
    assert place.is_changed(TeamsChat("c", gate="g", last_at=1_000))


@pytest.mark.parametrize(
    "stamp", ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "no time", ""]
)
def test_a_time_that_cannot_be_is_none(stamp: str) -> None:
    """One odd stamp must not end the feed again and again."""
    assert millis(stamp) == 0
    chat = read_chat({"id": "c", "lastMessagePreview": {"id": "1", "createdDateTime": stamp}})
    assert chat is not None
    assert chat.last_at == 0
    assert read_message({"id": "1", "createdDateTime": stamp}) is None
