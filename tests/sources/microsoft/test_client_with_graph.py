"""The client against the service that is built from Microsoft's documentation, with everything going wrong.

Client and service share one time here that runs faster than the machine's, so that the limits of the service are real
and a test about seconds takes none.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import pytest

from harken.errors import Unavailable
from harken.sources.http import part
from harken.sources.microsoft.client import DELTA_LINK, GraphClient, GraphTiming
from harken.sources.microsoft.responses import Json, MissingScope, OutcomeUnknown, PositionGone
from tests.graph.faults import Fault
from tests.graph.service import Graph, serving

SECONDS: Final = 60
SPEED: Final = 20
LOOK_SECONDS: Final = 0.01
LOOKS: Final = 1_000
CHATS: Final = 20
MESSAGES: Final = 15
PAGE: Final = 5
RATES: Final[Mapping[Fault, float]] = {
    Fault.SERVER_ERROR: 0.05,
    Fault.BAD_GATEWAY: 0.03,
    Fault.UNAVAILABLE: 0.05,
    Fault.GATEWAY_TIMEOUT: 0.03,
    Fault.THROTTLED: 0.04,
    Fault.RESET: 0.05,
    Fault.LOST: 0.03,
    Fault.TRUNCATED: 0.05,
    Fault.REORDERED: 0.05,
    Fault.DUPLICATED: 0.05,
}


class SharedTime:
    """Time that runs faster than the machine's, and is the service's time as well.

    The service learns it whenever the client looks: before a request begins and after it has ended.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shown = anyio.current_time() * SPEED

    def monotonic(self) -> float:
        """Return the present, and let the service know."""
        now = anyio.current_time() * SPEED
        self._graph.clock.advance(now - self._shown)
        self._shown = now
        return now

    async def wait(self, seconds: float) -> None:
        """Wait as long as that is here."""
        await anyio.sleep(seconds / SPEED)


@dataclass
class Keys:
    """Tokens of the service, without the trouble of signing in."""

    graph: Graph
    scopes: tuple[str, ...] = ()
    held: str = ""
    made: int = 0

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return the token that is held, or a fresh one."""
        if is_fresh or not self.held:
            self.made += 1
            self.held = self.graph.token(*self.scopes)
        return self.held


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A service whose clock stands until a client moves it."""
    with serving(seed=11) as service:
        service.clock.freeze()
        yield service


@asynccontextmanager
async def reading(graph: Graph, keys: Keys | None = None) -> AsyncIterator[GraphClient]:
    """Call the service."""
    time = SharedTime(graph)
    verify = ssl.create_default_context(cafile=str(graph.ca))
    # On a busy machine a request may take long in this fast time: patience is not what is tested here.
    timing = GraphTiming(wait=time.wait, monotonic=time.monotonic, patience_seconds=SECONDS * SPEED)
    tokens = keys or Keys(graph)
    with anyio.fail_after(SECONDS):
        async with GraphClient(
            tokens, graph.clock, name="work", base_url=graph.url, verify=verify, timing=timing
        ) as client:
            yield client


def listed(page: Json) -> list[Json]:
    """Return the items of a page."""
    value = page["value"]
    assert isinstance(value, list)
    return value


async def four_are_inside(graph: Graph) -> None:
    """Return when the service, in its own thread, works on four requests."""
    for _ in range(LOOKS):
        if graph.door.holds.inside == 4:
            return
        await anyio.sleep(LOOK_SECONDS)
    pytest.fail("four requests were never made at once")


async def test_every_message_of_many_chats_is_read_under_faults(graph: Graph) -> None:
    """Errors, resets, halves of answers, an expired token: nothing is missed, and no limit of Microsoft is met."""
    ann = graph.person("Ann")
    chats = [graph.chat(ann, topic=f"t{number}") for number in range(CHATS)]
    said = {chat.id: {graph.say(chat, ann, f"<p>{number}</p>").id for number in range(MESSAGES)} for chat in chats}
    read: dict[str, set[object]] = {}
    found: set[object] = set()
    expired: list[str] = []
    keys = Keys(graph)
    graph.faults(**{fault.value: rate for fault, rate in RATES.items()}, under="/v1.0/")

    async def read_chat(client: GraphClient, chat_id: str) -> None:
        path, params = f"/chats/{part(chat_id)}/messages", {"$top": str(PAGE)}
        async for page in client.pages(path, params, lane=f"chat:{chat_id}", most_pages=50):
            read.setdefault(chat_id, set()).update(message["id"] for message in listed(page))
            if len(read) > CHATS // 2 and not expired:
                expired.append(chat_id)
                graph.expire_tokens()

    async def follow(action: Callable[[], Awaitable[None]]) -> None:
        """Read until it was read to its end, as a feed does."""
        is_read = False
        while not is_read:
            with suppress(Unavailable):
                await action()
                is_read = True

    async def read_list() -> None:
        async for page in client.pages("/me/chats", {"$top": "7"}, lane="chats", most_pages=50):
            for chat in listed(page):
                if chat["id"] not in found:
                    found.add(chat["id"])
                    group.start_soon(follow, partial(read_chat, client, str(chat["id"])))

    async with reading(graph, keys) as client, anyio.create_task_group() as group:
        await follow(read_list)
    health = client.health()
    assert read == said
    assert len({asked.fault for asked in graph.requests if asked.fault}) > len(RATES) // 2
    assert [asked.path for asked in graph.requests if asked.status == 429 and not asked.fault] == []
    assert any(asked.status == 401 for asked in graph.requests)
    assert health.requests == len(graph.requests)
    assert keys.made == 2
    ids = [asked.headers["client-request-id"] for asked in graph.requests]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("fault", "count"), [("lost", 1), ("gateway_timeout", 1), ("truncated", 1), ("reset", 0)])
async def test_a_write_that_may_have_happened_is_made_once(graph: Graph, fault: str, count: int) -> None:
    """Whether it did cannot be told from here, so it is not repeated: the chat holds it once or not at all."""
    chat = graph.chat(graph.person("Ann"))
    graph.fail_next(Fault(fault), path="/messages")
    async with reading(graph) as client:
        with pytest.raises(OutcomeUnknown):
            await client.post(
                f"/chats/{part(chat.id)}/messages",
                {"body": {"contentType": "html", "content": "<p>Hi</p>"}},
                lane=f"chat:{chat.id}",
            )
    assert (len(graph.asked("/messages", "POST")), len(chat.messages)) == (1, count)


async def test_a_write_that_was_throttled_or_met_an_old_token_arrives_once(graph: Graph) -> None:
    """It was turned away at the door, so it is made again, and only once more is there."""
    chat = graph.chat(graph.person("Ann"))
    keys = Keys(graph)
    body: Json = {"body": {"contentType": "html", "content": "<p>Hi</p>"}}
    async with reading(graph, keys) as client:
        await keys.token()
        graph.expire_tokens()
        graph.fail_next(Fault.THROTTLED, path="/messages", times=2)
        sent = await client.post(f"/chats/{part(chat.id)}/messages", body, lane=f"chat:{chat.id}", request_id="r-1")
        edit: Json = {"body": {"contentType": "html", "content": "<p>Ho</p>"}}
        path = f"/chats/{part(chat.id)}/messages/{part(str(sent['id']))}"
        await client.patch(path, edit, lane=f"chat:{chat.id}")
    assert keys.made == 2
    assert [message.html for message in chat.messages.values()] == ["<p>Ho</p>"]
    assert {asked.headers["client-request-id"] for asked in graph.asked("/messages", "POST")} == {"r-1"}
    assert [asked.status for asked in graph.requests if asked.status == 429 and not asked.fault] == []


@pytest.mark.parametrize("places", [1, 0])
async def test_an_old_position_of_a_mailbox_leads_to_where_it_begins_again(graph: Graph, places: int) -> None:
    """The place that Microsoft names can be read from; without one the feed begins by itself."""
    ann = graph.person("Ann")
    graph.mail(ann, "One", "<p>1</p>")
    async with reading(graph) as client:
        pages = [
            page async for page in client.pages("/me/mailFolders/inbox/messages/delta", lane="mailbox", most_pages=9)
        ]
        graph.mail(ann, "Two", "<p>2</p>")
        later = await client.get(str(pages[-1][DELTA_LINK]), lane="mailbox")
        assert [mail["subject"] for mail in listed(later)] == ["Two"]
        graph.expire_deltas(with_place=bool(places))
        with pytest.raises(PositionGone) as caught:
            await client.get(str(later[DELTA_LINK]), lane="mailbox")
        assert bool(caught.value.location) == bool(places)
        if places:
            anew = await client.get(caught.value.location, lane="mailbox")
            assert sorted(str(mail["subject"]) for mail in listed(anew)) == ["One", "Two"]


async def test_a_mailbox_is_asked_four_things_at_once_and_no_more(graph: Graph) -> None:
    """More are turned away by the service; fewer would be slower than it allows."""
    for number in range(12):
        graph.mail(graph.person("Ann"), f"{number}", "<p>x</p>")
    async with reading(graph) as client:
        mails = listed(await client.get("/me/messages", {"$select": "id", "$top": "50"}, lane="mailbox"))
        async with anyio.create_task_group() as group:
            with graph.holding("/me/messages/"):
                for mail in mails:
                    path = f"/me/messages/{part(str(mail['id']))}"
                    group.start_soon(lambda each: client.get(each, lane="mailbox"), path)
                await four_are_inside(graph)
    assert len(graph.asked("/me/messages/")) == 12
    assert graph.limits.most_open == 4
    assert {asked.status for asked in graph.requests} == {200}


async def test_a_scope_that_was_not_granted_is_named(graph: Graph) -> None:
    """As the service writes it."""
    async with reading(graph, Keys(graph, ("User.Read",))) as client:
        with pytest.raises(MissingScope) as caught:
            await client.get("/me/chats", lane="chats")
    assert "Chat.ReadBasic" in caught.value.scopes
