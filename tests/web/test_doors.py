"""What others post passes bounds before a door sees it, and hears nothing about the daemon."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from starlette.types import ASGIApp, Message, Receive

from harken.errors import Forbidden, Unavailable, UserError
from harken.model import Draft
from harken.sources.source import Accept, DoorAnswer, PostedRequest
from harken.surfaces import doors
from harken.surfaces.doors import create_doors


async def accept(_drafts: Sequence[Draft]) -> Sequence[bool]:
    """Store nothing: the doors of these tests have no drafts."""
    return ()


@dataclass
class Hook:
    """A door that keeps what it was given, and answers what a test wants."""

    path: str = "/hooks/ci"
    max_bytes: int = 100
    fails: Exception | None = None
    seen: list[PostedRequest] = field(default_factory=list)
    is_open: anyio.Event | None = None

    async def take(self, posted: PostedRequest, accept: Accept) -> DoorAnswer:
        """Keep what was posted."""
        self.seen.append(posted)
        if self.is_open is not None:
            await self.is_open.wait()
        if self.fails is not None:
            raise self.fails
        await accept([])
        return DoorAnswer(status=202, body=b'{"status":"accepted"}')


def request(
    path: str = "/hooks/ci", *, method: str = "POST", headers: Sequence[tuple[str, str]] = (), query: str = ""
) -> Message:
    """The beginning of a request."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return {"type": "http", "path": path, "method": method, "headers": raw, "query_string": query.encode()}


def saying(*parts: bytes, is_whole: bool = True) -> Receive:
    """Give a body in parts; one that is not whole ends with the other side going away."""
    last = len(parts) - 1
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": number < last or not is_whole}
        for number, part in enumerate(parts)
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> Message:
        await anyio.lowlevel.checkpoint()
        return messages.pop(0)

    return receive


async def ask(app: ASGIApp, scope: Message, receive: Receive) -> tuple[int, dict[str, str], dict[str, str]]:
    """Return status, headers and JSON of the answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(message)

    with anyio.fail_after(10):
        await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(sent[1]["body"])


async def test_what_is_posted_reaches_its_door_as_it_came() -> None:
    """A signature is over the bytes: not one may be changed."""
    hook = Hook()
    scope = request(headers=[("x-signature", "abc")], query="validationToken=a%20b&x=")
    status, _, body = await ask(create_doors([hook], accept), scope, saying(b'{"a":', b" 1}"))
    assert (status, body) == (202, {"status": "accepted"})
    assert hook.seen[0].body == b'{"a": 1}'
    assert hook.seen[0].headers["x-signature"] == "abc"
    assert hook.seen[0].query == {"validationToken": "a b", "x": ""}


@pytest.mark.parametrize("path", ["/", "/hooks", "/hooks/", "/hooks/other", "/hooks/ci/", "/api/send", "/healthz"])
async def test_nothing_but_the_doors_is_there(path: str) -> None:
    """The listener may be shown to the world: the page and the API are not on it."""
    status, _, body = await ask(create_doors([Hook()], accept), request(path), saying(b""))
    assert (status, body) == (404, {"error": "There is nothing at this address."})


async def test_only_post_is_taken() -> None:
    """A browser that opens the address does nothing."""
    hook = Hook()
    status, headers, _ = await ask(create_doors([hook], accept), request(method="GET"), saying(b""))
    assert (status, headers["allow"], hook.seen) == (405, "POST", [])


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        ([("content-length", "101")], [b""]),
        ([("content-length", "1e2")], [b""]),
        ([("content-length", "9" * 5_000)], [b""]),
        ([], [b"x" * 101]),
        ([], [b"x" * 60, b"x" * 60]),
        ([("content-length", "10")], [b"x" * 60, b"x" * 60]),
    ],
)
async def test_body_that_is_too_large_is_refused(headers: list[tuple[str, str]], parts: list[bytes]) -> None:
    """Whatever it says of its length, no more than the limit is kept in memory."""
    hook = Hook()
    status, _, _ = await ask(create_doors([hook], accept), request(headers=headers), saying(*parts))
    assert (status, hook.seen) == (413, [])


async def test_half_a_body_is_not_taken() -> None:
    """A sender that goes away in the middle did not say what it had begun."""
    hook = Hook()
    status, _, _ = await ask(create_doors([hook], accept), request(), saying(b"{", is_whole=False))
    assert (status, hook.seen) == (422, [])


async def nothing() -> Message:
    """Say nothing, for ever."""
    await anyio.sleep_forever()
    return {}


async def test_body_that_does_not_come_is_given_up() -> None:
    """Each open request costs memory; nobody may keep one for ever."""
    hook = Hook()
    app = create_doors([hook], accept, body_seconds=0.01)
    status, _, _ = await ask(app, request(), nothing)
    assert (status, hook.seen) == (408, [])


async def test_header_that_is_there_twice_counts_as_none() -> None:
    """Of two signatures one could be checked and the other meant."""
    hook = Hook()
    scope = request(headers=[("x-signature", "good"), ("x-signature", "bad")])
    await ask(create_doors([hook], accept), scope, saying(b""))
    assert hook.seen[0].headers["x-signature"] == ""


@pytest.mark.parametrize(
    ("fails", "status", "retry"),
    [
        (Forbidden("The signature of /home/ann is wrong.", "Fix it."), 401, None),
        (UserError("Line 3 of the payload is odd.", "Fix it."), 422, None),
        (Unavailable("The disk of /home/ann is full.", "Free some.", retry_after=7.5), 503, "7"),
        (Unavailable("Soon.", "Wait.", retry_after=0), 503, "1"),
    ],
)
async def test_what_went_wrong_is_told_without_details(fails: Exception, status: int, retry: str | None) -> None:
    """Whoever posts may be a stranger: how the daemon is built and where it stands is not theirs to know."""
    found, headers, body = await ask(create_doors([Hook(fails=fails)], accept), request(), saying(b"{}"))
    assert (found, headers.get("retry-after")) == (status, retry)
    assert list(body) == ["error"]
    assert str(fails) not in body["error"]
    assert "/home" not in body["error"]


async def test_too_many_at_once_are_told_to_come_back() -> None:
    """One sender that floods its door takes neither the memory of the daemon nor the place of other doors."""
    busy, other = Hook(is_open=anyio.Event()), Hook("/hooks/other")
    app = create_doors([busy, other], accept)
    async with anyio.create_task_group() as tasks:
        for _ in range(doors.MAX_AT_ONCE):
            tasks.start_soon(ask, app, request(), saying(b""))
        with anyio.fail_after(10):
            while len(busy.seen) < doors.MAX_AT_ONCE:
                await anyio.lowlevel.checkpoint()
        assert (await ask(app, request(), saying(b"")))[0] == 429
        assert (await ask(app, request("/hooks/other"), saying(b"")))[0] == 202
        assert busy.is_open is not None
        busy.is_open.set()
    busy.is_open = None
    assert (await ask(app, request(), saying(b"")))[0] == 202


async def test_whoever_is_slow_to_say_something_takes_nobodys_place() -> None:
    """Without a secret one could else close a door for everyone, with a few connections that send one byte."""
    hook = Hook()
    app = create_doors([hook], accept)
    async with anyio.create_task_group() as tasks:
        for _ in range(2 * doors.MAX_AT_ONCE):
            tasks.start_soon(ask, app, request(), nothing)
        await anyio.wait_all_tasks_blocked()
        assert (await ask(app, request(), saying(b"")))[0] == 202
        tasks.cancel_scope.cancel()


async def test_bodies_on_their_way_are_bounded_together() -> None:
    """Each alone may be as large as its door allows; nobody may fill the memory with many that never end."""
    hook = Hook(max_bytes=doors.MAX_HELD)
    app = create_doors([hook], accept)
    half = bytes(doors.MAX_HELD // 2 + 1)
    is_begun = anyio.Event()

    async def begun() -> Message:
        if is_begun.is_set():
            await anyio.sleep_forever()
        is_begun.set()
        return {"type": "http.request", "body": half, "more_body": True}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, app, request(), begun)
        await is_begun.wait()
        await anyio.wait_all_tasks_blocked()
        status, headers, _ = await ask(app, request(), saying(half, b"rest"))
        assert (status, headers["retry-after"]) == (429, "1")
        tasks.cancel_scope.cancel()
    assert (await ask(app, request(), saying(half, b"rest")))[0] == 202


async def test_answer_before_the_body_is_there_ends_the_connection() -> None:
    """What is still to come would keep it, byte by byte, for as long as its sender likes."""
    app = create_doors([Hook()], accept, body_seconds=0.01)
    for scope in (request("/nowhere"), request(headers=[("content-length", "1000")])):
        assert (await ask(app, scope, nothing))[1]["connection"] == "close"
    whole = {**request("/nowhere"), "extensions": {doors.WHOLE_BODY: {}}}
    assert "connection" not in (await ask(app, whole, nothing))[1]


async def test_request_that_wants_another_protocol_is_told_why_not() -> None:
    """The server drops the body of such a request, and a correct signature over it would count as wrong."""
    hook = Hook()
    status, _, body = await ask(create_doors([hook], accept), request(headers=[("upgrade", "h2c")]), saying(b"{}"))
    assert (status, hook.seen) == (400, [])
    assert "Upgrade" in body["error"]
