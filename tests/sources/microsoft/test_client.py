"""The client of Microsoft Graph: it reads until it has it, writes once, and tells nobody what is secret."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
import pytest

from harken import log
from harken.errors import Conflict, Forbidden, HarkenError, NeedsPerson, NotFound, Unavailable, UserError
from harken.sources.http import MAX_BODY_BYTES
from harken.sources.microsoft.client import DELTA_LINK, MAX_TRIES, NEXT_LINK, GraphClient, GraphTiming
from harken.sources.microsoft.responses import MissingScope, OutcomeUnknown, PositionGone
from harken.sources.payload import Json
from harken.testing import FakeClock
from tests.sources.microsoft.loopback import (
    FIRST,
    FRESH,
    SECONDS,
    Fault,
    Reply,
    Visit,
    calling,
    refused,
    script,
    serving,
    told,
)

ME: Final[Json] = {"displayName": "Ann"}
BROKEN: Final = (
    Reply(500),
    refused(502),
    Reply(503),
    Reply(504, body=b"<html>gateway</html>"),
    Reply(408),
    Reply(fault=Fault.RESET),
    Reply(fault=Fault.CUT),
    Reply(body=b'{"value": ['),
    Reply(body=b"[1]"),
)


def names(reply: Reply) -> str:
    """Return how a broken reply is called in the name of a test."""
    return reply.fault.value if reply.fault else f"{reply.status}-{len(reply.body)}"


async def test_a_read_says_who_asks_and_wants_ids_that_stay() -> None:
    """Ids that change when a message moves would make every moved mail a new one."""
    async with calling(script(told(ME))) as at:
        read = await at.client.get("/me/messages", {"$top": "5"}, headers={"prefer": "odata.maxpagesize=50"})
        await at.client.get("me")
        first, second = at.service.visits
    assert read == ME
    assert (first.method, first.target) == ("GET", "/v1.0/me/messages?$top=5")
    assert first.headers["prefer"] == 'IdType="ImmutableId", odata.maxpagesize=50'
    assert second.headers["prefer"] == 'IdType="ImmutableId"'
    assert first.headers["authorization"] == f"Bearer {FIRST}"
    assert first.headers["client-request-id"] != second.headers["client-request-id"]


async def test_headers_that_are_the_clients_own_cannot_be_set() -> None:
    """A caller that sets them could send a token elsewhere or hide which request was whose."""
    async with calling(script(told(ME))) as at:
        for name, value in (("Authorization", "x"), ("Host", "x"), ("client-request-id", "x"), ("Prefer", "a\r\nb: c")):
            with pytest.raises(ValueError, match="cannot be set"):
                await at.client.get("/me", headers={name: value})
        assert at.service.visits == []


async def test_pages_are_followed_to_the_end_with_the_same_preference() -> None:
    """A burst of more than one page loses nothing."""

    def answer(visit: Visit) -> Reply:
        number = int(visit.target.partition("page=")[2] or 0)
        more: Json = {NEXT_LINK: f"http://{visit.headers['host']}/v1.0/list?page={number + 1}"}
        return told({"value": [number], **(more if number < 3 else {DELTA_LINK: "d"})})

    async with calling(answer) as at:
        prefer = {"Prefer": "odata.maxpagesize=1"}
        pages = [page async for page in at.client.pages("/list", lane="mailbox", most_pages=9, headers=prefer)]
        assert [page["value"] for page in pages] == [[0], [1], [2], [3]]
        assert {visit.headers["prefer"] for visit in at.service.visits} == {'IdType="ImmutableId", odata.maxpagesize=1'}
        some = [page async for page in at.client.pages("/list", lane="mailbox", most_pages=2)]
    assert [page["value"] for page in some] == [[0], [1]]
    assert NEXT_LINK in some[-1]


async def test_a_next_page_elsewhere_is_refused_and_sees_no_token() -> None:
    """Whoever can write a link into an answer must not get the token, and the rest must not pass for read."""
    async with serving(script(told({"value": ["stolen"]}))) as thief:
        async with calling(script(told({"value": [1], NEXT_LINK: thief.url + "/list"}))) as at:
            pages = at.client.pages("/list", lane="", most_pages=9)
            assert (await anext(pages))["value"] == [1]
            with pytest.raises(Forbidden):
                await anext(pages)
            with pytest.raises(Forbidden):
                await at.client.get(thief.url)
        assert thief.visits == []


async def test_a_redirect_is_not_followed() -> None:
    """It would take the token along."""
    async with serving(script(told(ME))) as thief, calling(script(Reply(302, {"Location": thief.url}))) as at:
        with pytest.raises(UserError, match="302"):
            await at.client.get("/me")
        assert (len(at.service.visits), thief.visits) == (1, [])


async def test_pages_in_a_circle_end() -> None:
    """A service that names the same page again and again would be read for ever."""
    async with calling(lambda visit: told({"value": [], NEXT_LINK: f"http://{visit.headers['host']}/again"})) as at:
        with pytest.raises(Unavailable, match="circle"):
            async for _ in at.client.pages("/list", lane="", most_pages=1_000):
                pass
        assert len(at.service.visits) == 3


@pytest.mark.parametrize("reply", BROKEN, ids=names)
async def test_reading_is_repeated_whatever_happened(reply: Reply) -> None:
    """Reading changes nothing, so a hiccup of the service or the network is none of the reader's business."""
    async with calling(script(reply, reply, told(ME))) as at:
        assert await at.client.get("/me") == ME
        assert len(at.service.visits) == 3
        assert at.time.waits == [0.25, 0.5]


@pytest.mark.parametrize("reply", BROKEN, ids=names)
async def test_reading_is_given_up_after_a_few_tries_with_a_time_to_come_back(reply: Reply) -> None:
    """A service that is down is left alone, and nothing loops without a pause."""
    async with calling(script(reply)) as at:
        with pytest.raises(Unavailable) as caught:
            await at.client.get("/me")
        assert len(at.service.visits) == MAX_TRIES
    assert at.time.waits == [0.25, 0.5, 1.0, 2.0]
    assert caught.value.retry_after == 4.0


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("reply", BROKEN, ids=names)
async def test_writing_is_never_repeated_when_it_may_have_happened(reply: Reply, method: str) -> None:
    """A second answer in a chat cannot be taken back: the sender has to look first."""
    async with calling(script(reply, told(ME, 201))) as at:
        write = at.client.post if method == "POST" else at.client.patch
        with pytest.raises(OutcomeUnknown):
            await write("/chats/1/messages", {"body": {}}, lane="chat:1", request_id="r-1")
        assert len(at.service.visits) == 1


async def test_a_write_without_an_answer_in_time_may_have_happened() -> None:
    """The service may be slow after it did what was asked."""
    async with calling(script(Reply(fault=Fault.HANG)), request_seconds=0.2) as at:
        with pytest.raises(OutcomeUnknown, match="in time"):
            await at.client.post("/chats/1/messages", {}, lane="chat:1")
        with pytest.raises(Unavailable, match="in time"):
            await at.client.get("/me")
        assert [visit.method for visit in at.service.visits] == ["POST"] + ["GET"] * MAX_TRIES


async def test_an_answer_that_never_ends_is_given_up_in_time() -> None:
    """A byte now and then keeps every time-out of a connection from running out."""
    async with calling(script(Reply(fault=Fault.DRIP)), request_seconds=0.1) as at:
        with pytest.raises(Unavailable, match="in time"):
            await at.client.get("/me")
        assert len(at.service.visits) == MAX_TRIES


async def test_a_write_that_was_turned_away_is_repeated_as_the_same_request() -> None:
    """Too often, or without a valid token: it certainly did not happen, and its id says that it is the same."""
    async with calling(script(refused(429, Retry_After="3"), refused(401), told({"id": "m1"}, 201))) as at:
        sent = await at.client.post("/chats/1/messages", {"body": {"content": "Hi"}}, lane="chat:1", request_id="r-1")
        visits = at.service.visits
    assert sent == {"id": "m1"}
    assert [visit.headers["client-request-id"] for visit in visits] == ["r-1"] * 3
    assert [json.loads(visit.body) for visit in visits] == [{"body": {"content": "Hi"}}] * 3
    assert sum(at.time.waits) >= 3


async def test_a_write_that_could_not_be_sent_is_repeated() -> None:
    """Nobody listens, so nobody can have read it."""
    async with calling(script(told({}, 201))) as at:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        nobody = f"http://127.0.0.1:{port}"
        async with GraphClient(at.purse, at.time.clock, name="w", base_url=nobody, timing=at.time.timing()) as client:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await client.post("/x", {}, lane="")
    assert len(at.time.waits) == MAX_TRIES - 1


@pytest.mark.parametrize("status", [202, 204])
async def test_what_is_accepted_without_a_body_is_done(status: int) -> None:
    """A mail reply answers 202, a deletion 204, both with nothing."""
    async with calling(script(Reply(status))) as at:
        assert await at.client.post("/me/sendMail", {}, lane="mailbox") == {}


async def test_an_expired_token_is_refreshed_once() -> None:
    """A token lives an hour; the call that meets its end must not fail."""

    def answer(visit: Visit) -> Reply:
        return told(ME) if visit.headers["authorization"] == f"Bearer {FRESH}" else refused(401)

    async with calling(answer) as at:
        assert await at.client.get("/me") == ME
        assert at.purse.refreshes == 1
        assert at.time.waits == []


async def test_many_calls_with_an_expired_token_refresh_it_once() -> None:
    """Twenty refreshes at once look like an attack to the sign-in service."""

    def answer(visit: Visit) -> Reply:
        return told(ME) if visit.headers["authorization"] == f"Bearer {FRESH}" else refused(401)

    async with calling(answer) as at:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(at.client.get, "/me")
        assert sum(f"Bearer {FIRST}" == visit.headers["authorization"] for visit in at.service.visits) > 1
        assert at.purse.refreshes == 1


async def test_a_fresh_token_that_is_refused_needs_a_person() -> None:
    """The sign-in was revoked: asking again and again does not help."""
    async with calling(script(refused(401))) as at:
        with pytest.raises(NeedsPerson) as caught:
            await at.client.get("/me")
        assert len(at.service.visits) == 2
        assert at.purse.refreshes == 1
    assert caught.value.action == "sign in"


async def test_a_refreshed_token_survives_a_hiccup() -> None:
    """A retry after a refresh uses what was refreshed, and does not refresh again."""
    async with calling(script(refused(401), Reply(500), Reply(500), told(ME))) as at:
        assert await at.client.get("/me") == ME
        assert at.purse.refreshes == 1


async def test_a_token_that_cannot_be_sent_is_not_shown() -> None:
    """A broken cache may hold anything; libraries quote a header they refuse."""
    async with calling(script(told(ME))) as at:
        at.purse.held = f"{FIRST}\r\nX: y"
        with pytest.raises(Unavailable, match="no token that can be sent") as caught:
            await at.client.get("/me")
        assert at.service.visits == []
    assert FIRST not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_what_microsoft_asks_to_wait_is_waited() -> None:
    """Whoever comes back earlier is throttled for longer."""
    async with calling(script(refused(429, Retry_After="7"), refused(503, Retry_After="2"), told(ME))) as at:
        assert await at.client.get("/chats/1/messages", lane="chat:1") == ME
    assert at.time.waits[0] >= 7
    assert sum(at.time.waits) >= 9


async def test_a_long_wait_is_told_and_holds_its_lane_only() -> None:
    """The caller does better than to hang for ten minutes; others on that lane are not even sent."""

    def answer(visit: Visit) -> Reply:
        return refused(429, Retry_After="600") if "/chats/1/" in visit.target else told(ME)

    async with calling(answer) as at:
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                await at.client.get("/chats/1/messages", lane="chat:1")
            assert caught.value.retry_after >= 600
        assert await at.client.get("/chats/2/messages", lane="chat:2") == ME
        assert len(at.service.visits) == 2
        assert at.time.waits == []
        assert at.client.throttled_until == at.time.clock.now() + timedelta(seconds=600)
        await at.time.wait(601)
        assert at.client.throttled_until is None


async def test_a_position_that_is_too_old_is_told_with_where_to_begin_again() -> None:
    """Outlook forgets delta links; what was missed is read again, not given up."""
    async with calling(lambda visit: Reply(410, {"Location": f"http://{visit.headers['host']}/v1.0/anew?x=1"})) as at:
        with pytest.raises(PositionGone) as caught:
            await at.client.get("/delta")
        assert caught.value.location == f"{at.service.url}/anew?x=1"
    async with calling(script(Reply(410, {"Location": "https://elsewhere.example/v1.0/anew"}))) as at:
        with pytest.raises(PositionGone) as caught:
            await at.client.get("/delta")
        assert caught.value.location == ""
    inner = {"error": {"code": "badRequest", "message": "x", "innerError": {"code": "SyncStateNotFound"}}}
    for reply in (refused(400, "syncStateNotFound"), refused(404, "SyncStateNotFound"), told(inner, 400)):
        async with calling(script(reply)) as at:
            with pytest.raises(PositionGone):
                await at.client.get("/delta")


async def test_a_missing_permission_is_named() -> None:
    """Only then a person knows what to ask the administrator for."""
    message = (
        "Missing scope permissions on the request. API requires one of 'Chat.ReadBasic, Chat.Read'. "
        "Scopes on the request 'User.Read'"
    )
    async with calling(script(refused(403, "Forbidden", message), refused(403, "ErrorAccessDenied", "Denied."))) as at:
        with pytest.raises(MissingScope) as caught:
            await at.client.get("/me/chats")
        assert caught.value.scopes == ("Chat.ReadBasic", "Chat.Read")
        assert "Chat.ReadBasic" in caught.value.action
        with pytest.raises(NeedsPerson, match="ErrorAccessDenied: Denied") as plain:
            await at.client.get("/me/chats")
        assert plain.value.action
        assert len(at.service.visits) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(400, UserError), (404, NotFound), (409, Conflict), (412, UserError), (413, UserError)]
)
async def test_a_refusal_is_told_in_graphs_words_and_not_repeated(status: int, kind: type[HarkenError]) -> None:
    """The same request would be refused again."""
    async with calling(script(refused(status, "theCode", "Both cannot be."))) as at:
        with pytest.raises(kind, match="theCode: Both cannot be"):
            await at.client.get("/x")
        assert len(at.service.visits) == 1


async def test_graphs_words_are_told_without_what_is_secret_or_hostile() -> None:
    """Services echo what they were sent, and what people wrote; an error ends up on terminals and pages."""
    message = f"Bad {FIRST} at https://host/x?$deltatoken=abcdefghijklmnop \x1b[31m<b>bold</b> \u202e " + "word " * 900
    async with calling(script(refused(400, "x<y", message))) as at:
        with pytest.raises(UserError) as caught:
            await at.client.get("/x")
    shown = caught.value.message
    assert FIRST not in shown
    assert "deltatoken" not in shown
    assert not set(shown) & set("<>\x1b\u202e")
    assert "Bad" in shown
    assert len(shown) < 300


async def test_an_answer_that_is_too_long_is_not_read() -> None:
    """A few kilobytes on the wire can be gigabytes in memory."""
    bomb = Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * (MAX_BODY_BYTES + 1)))
    async with calling(script(bomb)) as at:
        with pytest.raises(UserError, match="too long"):
            await at.client.get("/x")
        with pytest.raises(OutcomeUnknown):
            await at.client.post("/x", {}, lane="")
        assert len(at.service.visits) == 2


async def test_compressed_answers_are_read() -> None:
    """Graph compresses what it sends."""
    packed = Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(json.dumps(ME).encode()))
    async with calling(script(Reply(200, {"Content-Encoding": "gzip"}, b"nonsense"), packed)) as at:
        assert await at.client.get("/me") == ME


async def test_a_cancelled_call_gives_its_place_back() -> None:
    """A source is stopped at any moment; its lane must not stay closed."""
    async with calling(script(Reply(fault=Fault.HANG), told(ME))) as at:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: at.client.get("/x", lane="chat:1"))
            await at.service.visited.wait()
            group.cancel_scope.cancel()
        assert await at.client.get("/x", lane="chat:1") == ME


async def test_a_sign_in_that_hangs_is_not_waited_for_without_end() -> None:
    """Somebody else's thread must not stop a feed for good."""

    class Stuck:
        async def token(self, *, is_fresh: bool = False) -> str:
            await anyio.Event().wait()
            return f"{is_fresh}"

    with anyio.fail_after(SECONDS):
        async with GraphClient(Stuck(), FakeClock(), name="work", timing=GraphTiming(token_seconds=0.05)) as client:
            with pytest.raises(Unavailable, match="sign-in"):
                await client.get("/me")


async def test_what_the_sign_in_says_reaches_the_caller() -> None:
    """It knows best what a person has to do."""

    class SignedOut:
        async def token(self, *, is_fresh: bool = False) -> str:
            raise NeedsPerson("Nobody is signed in.", "sign in", action=f"sign in {is_fresh}")

    async with GraphClient(SignedOut(), FakeClock(), name="work") as client:
        with pytest.raises(NeedsPerson, match="Nobody is signed in"):
            await client.get("/me")


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logs are pasted into bug reports: they name requests by their ids, not by what was in them."""

    class Place:
        logs_dir = tmp_path / "logs"
        daemon_log = tmp_path / "logs" / "daemon.log"

    caplog.set_level(logging.DEBUG, logger="harken")
    replies = [refused(400, "c", f"echo {FIRST}"), *BROKEN, refused(401), refused(429, Retry_After="600")]
    with log.configure(Place(), "debug", to_stderr=False):
        for reply in replies:
            async with calling(script(reply)) as at:
                link = f"{at.service.url}/me/mailFolders/inbox/messages/delta?$deltatoken=secret-position"
                with pytest.raises(HarkenError) as caught:
                    await at.client.get(link)
                assert "secret-position" not in str(caught.value.as_dict())
                with pytest.raises(HarkenError):
                    await at.client.post("/chats/1/messages", {"body": "private words"}, lane="", request_id="r-77")
    written = Place.daemon_log.read_text() + caplog.text
    for secret in (FIRST, FRESH, "c2VjcmV0", "Bearer", "secret-position", "deltatoken", "private words"):
        assert secret not in written
    assert "client-request-id r-77, request-id upstream-1" in written
    assert "GET /v1.0/me/mailFolders/inbox/messages/delta: answered 500" in written


async def test_a_request_id_is_checked_before_it_is_sent() -> None:
    """It is a header, and it comes from a row in the store."""
    async with calling(script(told(ME))) as at:
        with pytest.raises(ValueError, match="request id"):
            await at.client.post("/x", {}, lane="", request_id="a\r\nb: c")
        assert at.service.visits == []


async def test_a_closed_client_is_not_used_again() -> None:
    """It would open connections that nobody closes."""
    async with calling(script(told(ME))) as at:
        await at.client.get("/me")
        await at.client.aclose()
        with pytest.raises(RuntimeError):
            await at.client.get("/me")


async def test_what_a_failed_call_leaves_behind_shows_no_token() -> None:
    """Whatever shows the values of a traceback, such as a crash report, must not show it."""
    async with calling(script(refused(401, "InvalidAuthenticationToken"))) as far:
        with pytest.raises(NeedsPerson) as caught:
            await far.client.get("/me")
    shown = [repr(value) for frame in caught.traceback[1:] for value in frame.locals.values()]
    assert any("refused=" not in text and "_Tries(" in text for text in shown)
    assert not any(token in text for text in shown for token in (FIRST, FRESH))
