"""A link signs one browser in, once; its session lasts, survives a restart, and can be ended."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.surfaces.web.page_sessions import (
    BEGIN_SECONDS,
    LASTS,
    MAX_OPEN,
    MAX_SESSIONS,
    NOTED_AFTER,
    OTHER_TABS,
    WINDOW,
    NumberState,
    PageSession,
    PageSessions,
    Proof,
    SignedRequest,
    TicketBook,
)
from harken.surfaces.web.signin import LINK_SECONDS, MAX_LINKS, SignInAnswer, SignInRequest, SignIns, browser_name
from harken.testing import FakeClock
from tests.loss.rig import Served
from tests.web.rig import NAVIGATION, SESSION, Web, data_of, tag

HOST = "127.0.0.1:8780"
URL = f"http://{HOST}"


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


@pytest.fixture
def clock() -> FakeClock:
    """The time of the links and sessions."""
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where sessions are kept."""
    return tmp_path / "page-sessions.json"


@pytest.fixture
def sign_ins(clock: FakeClock, file: Path) -> SignIns:
    """Links and sessions of one token."""
    return SignIns(PageSessions("a token", clock, file), clock)


def secret_of(url: str) -> bytes:
    """Return the secret of a link."""
    assert url.startswith(f"{URL}/sign-in#")
    return data_of(url.partition("#")[2])


def redeemed(sign_ins: SignIns, secret: bytes, host: str = HOST) -> SignInAnswer | None:
    """Say what the page of a link says."""
    asked = SignInRequest(link=tag(secret, "harken link 1"), nonce="n", proof=tag(secret, "harken page 1", "n", host))
    return sign_ins.redeem(asked, host, "a browser")


def test_link_ends_after_its_time(sign_ins: SignIns, clock: FakeClock) -> None:
    """A link that nobody opened is not left lying about."""
    in_time, late = secret_of(sign_ins.link(URL)), secret_of(sign_ins.link(URL))
    clock.advance(LINK_SECONDS - 1)
    assert redeemed(sign_ins, in_time)
    clock.advance(1)
    assert not redeemed(sign_ins, late)


def test_link_does_not_last_longer_when_the_clock_is_set_back(sign_ins: SignIns, clock: FakeClock) -> None:
    """A corrected clock must not keep old links alive for hours."""
    secret = secret_of(sign_ins.link(URL))
    clock.set_back(3_600)
    assert not redeemed(sign_ins, secret)


def test_only_the_newest_links_work(sign_ins: SignIns) -> None:
    """However often someone asks, a few are open."""
    links = [secret_of(sign_ins.link(URL)) for _ in range(MAX_LINKS + 2)]
    assert len(set(links)) == len(links)
    assert [bool(redeemed(sign_ins, each)) for each in links] == [False] * 2 + [True] * MAX_LINKS


def test_name_of_a_link_without_its_secret_signs_nobody_in_and_uses_nothing_up(sign_ins: SignIns) -> None:
    """The name is what travels: a program that took the port and passes it on gets nothing by it."""
    secret = secret_of(sign_ins.link(URL))
    name = tag(secret, "harken link 1")
    for proof in ("", name, tag(b"x", "harken page 1", "n", HOST), tag(secret, "harken page 1", "n", "127.0.0.1:1")):
        assert sign_ins.redeem(SignInRequest(link=name, nonce="n", proof=proof), HOST, "") is None
    for nonce in ("", "x" * 65, "n\n"):
        proof = tag(secret, "harken page 1", nonce, HOST)
        assert sign_ins.redeem(SignInRequest(link=name, nonce=nonce, proof=proof), HOST, "") is None
    assert redeemed(sign_ins, secret)


def begun(sign_ins: SignIns) -> PageSession:
    """Begin a session."""
    answer = redeemed(sign_ins, secret_of(sign_ins.link(URL)))
    assert answer is not None
    found = sign_ins.sessions.find(answer.session, HOST)
    assert found is not None
    return found


def test_session_lasts_thirty_days_and_not_longer(sign_ins: SignIns, clock: FakeClock) -> None:
    """A browser that was signed in once is not the person's for ever, however much it is used."""
    session = begun(sign_ins)
    clock.advance(LASTS.total_seconds() - 1)
    sign_ins.sessions.use(session.id)
    assert sign_ins.sessions.find(session.id, HOST)
    clock.advance(1)
    assert not sign_ins.sessions.find(session.id, HOST)
    assert not sign_ins.sessions.is_open(session.id)
    assert sign_ins.sessions.all() == []


def test_session_is_good_at_its_address_only(sign_ins: SignIns) -> None:
    """A daemon that had to move is at another one; who sits at the old one may be anybody."""
    session = begun(sign_ins)
    assert sign_ins.sessions.find(session.id, HOST)
    for host in ("127.0.0.1:8781", "localhost:8780", ""):
        assert not sign_ins.sessions.find(session.id, host)


def test_session_is_known_to_whoever_has_the_same_token_and_no_other(
    sign_ins: SignIns, clock: FakeClock, file: Path
) -> None:
    """A restart keeps people signed in; a new token signs everyone out. The file alone makes no key."""
    session = begun(sign_ins)
    key = sign_ins.sessions.key(session)
    again = PageSessions("a token", clock, file)
    assert again.all() == [session]
    assert again.key(session) == key
    other = PageSessions("another token", clock, file)
    assert other.all() == []
    assert other.key(session) != key
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_session_that_was_unused_for_longest_goes_when_there_are_too_many(
    sign_ins: SignIns, clock: FakeClock
) -> None:
    """Sessions are bounded, and the one in use is not the one that goes."""
    first = begun(sign_ins)
    for _ in range(MAX_SESSIONS):
        clock.advance(1)
        sign_ins.sessions.use(first.id)
        begun(sign_ins)
    found = [each.id for each in sign_ins.sessions.all()]
    assert len(found) == MAX_SESSIONS
    assert first.id in found


def test_last_use_is_kept_to_the_minute(sign_ins: SignIns, clock: FakeClock, file: Path) -> None:
    """A person looks when it was used last; a file that is written with each request would cost more than it tells."""
    session = begun(sign_ins)
    written = file.stat().st_mtime_ns
    clock.advance(1)
    sign_ins.sessions.use(session.id)
    assert file.stat().st_mtime_ns == written
    clock.advance(NOTED_AFTER.total_seconds())
    sign_ins.sessions.use(session.id)
    (kept,) = PageSessions("a token", clock, file).all()
    assert kept.used_at - session.used_at == NOTED_AFTER + timedelta(seconds=1)


def test_key_before_is_good_until_the_next_was_used_and_a_minute_more(
    sign_ins: SignIns, clock: FakeClock, file: Path
) -> None:
    """The answer that brings a key may be lost, and another tab may not know it yet; after that it is worth nothing."""
    session = begun(sign_ins)
    sessions = sign_ins.sessions
    next_key = sessions.renew(session.id, 0)
    assert next_key not in (None, sessions.key(session))
    clock.advance(86_400)
    assert sessions.renew(session.id, 0) == next_key, "whoever did not get it asks again"
    found = sessions.find(session.id, HOST)
    assert found is not None
    assert sessions.generations(found) == [1, 0]
    sessions.use(session.id, 1)
    for again in (sessions, PageSessions("a token", clock, file)):
        found = again.find(session.id, HOST)
        assert found is not None
        assert again.key(found) == next_key
        assert again.generations(found) == [1, 0]
    clock.advance(OTHER_TABS.total_seconds())
    assert sessions.generations(found) == [1]
    assert sessions.renew(session.id, 0) is None
    assert sessions.renew("b-nobody", 0) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": 1}', '{"token": "x", "sessions": []}', "\udcff"])
def test_file_that_is_damaged_signs_everyone_out_and_no_more(clock: FakeClock, file: Path, content: str) -> None:
    """The daemon starts, and people sign in again."""
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert PageSessions("a token", clock, file).all() == []


def test_number_under_a_ticket_counts_once_in_any_order(clock: FakeClock) -> None:
    """Requests of a page overtake each other; one that is told again is somebody else's."""
    tickets = TicketBook(clock)
    ticket = tickets.issue()
    turns = [tickets.take("s", ticket, number) for number in (3, 1, 2, 3, 1, 2, 4 + WINDOW, 4, 5, 5)]
    expected = (
        [NumberState.NEW] * 3
        + [NumberState.SPENT] * 3
        + [NumberState.NEW, NumberState.SPENT, NumberState.NEW, NumberState.SPENT]
    )
    assert turns == expected


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=60))
def test_no_order_of_numbers_lets_one_count_twice(numbers: list[int]) -> None:
    """What is replayed is never new, however it is mixed with what is."""
    tickets = TicketBook(FakeClock())
    ticket = tickets.issue()
    new = [number for number in numbers if tickets.take("s", ticket, number) is NumberState.NEW]
    assert len(new) == len(set(new))


def test_ticket_is_begun_soon_or_never_and_by_this_run_only(clock: FakeClock) -> None:
    """What was captured long ago, or of another run, is stale; what began goes on for as long as the page is open."""
    tickets = TicketBook(clock)
    begun_in_time, late = tickets.issue(), tickets.issue()
    assert tickets.take("s", begun_in_time, 1) is NumberState.NEW
    assert TicketBook(clock).take("s", begun_in_time, 2) is NumberState.STALE
    clock.advance(BEGIN_SECONDS + 1)
    assert tickets.take("s", late, 1) is NumberState.STALE
    assert tickets.take("s", begun_in_time, 2) is NumberState.NEW
    assert [tickets.take("s", each, 1) for each in ("", "x", "1.2.3", f"{late}x")] == [NumberState.STALE] * 4


def test_ticket_that_was_forgotten_does_not_begin_again(clock: FakeClock) -> None:
    """What is remembered is bounded: forgetting must cost a round trip, never a replay."""
    tickets = TicketBook(clock)
    old = tickets.issue()
    assert tickets.take("s", old, 1) is NumberState.NEW
    for number in range(MAX_OPEN - 1):
        assert tickets.take(f"s{number}", tickets.issue(), 1) is NumberState.NEW
    assert tickets.take("more", tickets.issue(), 1) is NumberState.STALE, "none is old enough to be forgotten"
    clock.advance(BEGIN_SECONDS + 1)
    assert tickets.take("more", tickets.issue(), 1) is NumberState.NEW
    assert tickets.take("s", old, 1) is NumberState.STALE


@given(st.text(max_size=200))
def test_no_other_text_is_a_proof(text: str) -> None:
    """Whatever a client invents, it proves nothing and breaks nothing."""
    sign_ins = SignIns(PageSessions("a token", FakeClock(), Path("/nowhere/sessions")), FakeClock())
    assert sign_ins.check(text, SignedRequest(method="GET", host=HOST, target="/")) is None
    proof = Proof.parse(text)
    assert proof is None or not proof.is_signed(b"key", SignedRequest(method="GET", host=HOST, target="/"))


AGENTS = (
    ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 on Linux"),
    (
        "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36 Edg/140.0",
        "Edge 140 on Windows",
    ),
    ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Version/18.0 Safari/605.1", "Safari 605 on macOS"),
    ("curl/8.0", "a browser"),
    ("", "a browser"),
)


@pytest.mark.parametrize(("agent", "name"), AGENTS)
def test_browser_is_called_what_a_person_calls_it(agent: str, name: str) -> None:
    """Whoever ends a session must know which one it is."""
    assert browser_name(agent) == name


def test_page_of_a_link_is_for_everyone_and_holds_nothing(web: Web) -> None:
    """The secret is not sent, so the page cannot hold it; nothing is used up by looking, or by fetching ahead."""
    secret = web.secret()
    for _ in range(2):
        page = web.ask("GET", "/sign-in", NAVIGATION)
        assert page.status == 200
        assert "signin.js" in page.text
        assert "set-cookie" not in page.headers
    assert web.redeem(secret).status == 200


def test_replayed_and_invented_requests_to_sign_in_are_refused(web: Web) -> None:
    """Whoever comes second gets no session, and learns how a person goes on."""
    secret = web.secret()
    assert web.redeem(secret).status == 200
    for answer in (web.redeem(secret), web.redeem(b"invented"), web.redeem(web.secret(), proof="x")):
        assert answer.status == 403
        assert "harken open" in answer.text
    for body in (b"", b"{", b"[]", b'{"link": 1}', b"[" * 100_000, b"\xff"):
        assert web.ask("POST", "/sign-in", {"Origin": web.origin}, body).status == 403
    assert web.ask("POST", "/sign-in", {"Origin": "http://evil.example"}, b"{}").status == 403


def test_session_survives_a_restart_of_the_daemon(web: Web) -> None:
    """The daemon restarts with each new version; the page stays open. A new token ends every session."""
    session = web.signed_in()[SESSION]
    web.daemon.kill()
    web.daemon.start()
    again = Web(web.daemon)
    assert again.address == web.address
    again.keys = web.keys
    assert again.ask("GET", "/m/inbox", {**NAVIGATION, SESSION: session}).status == 200
    (web.daemon.home / "token").unlink()
    web.daemon.kill()
    web.daemon.start()
    last = Web(web.daemon)
    last.keys = web.keys
    assert last.ask("GET", "/m/inbox", {**NAVIGATION, SESSION: session}).status == 401


def test_request_of_an_earlier_run_is_worth_nothing_and_says_how_to_go_on(web: Web) -> None:
    """What was captured while the daemon was away cannot be told it later; the page itself gets a new ticket."""
    session = web.signed_in()[SESSION]
    captured = {"Harken-Proof": web.proof(session, "POST", "/api/send", b'{"text": "again"}'), "Origin": web.origin}
    web.daemon.kill()
    web.daemon.start()
    answer = web.ask("POST", "/api/send", captured, b'{"text": "again"}')
    assert answer.status == 401
    fresh = web.proof(session, "GET", "/m/inbox", ticket=answer.headers["harken-ticket"], number=1)
    assert web.ask("GET", "/m/inbox", {"Harken-Proof": fresh}).status == 200
    assert web.daemon.call("list")["messages"] == []


def test_page_gets_its_next_key_and_goes_on_with_it(web: Web) -> None:
    """No key is used for long, and the new one does not travel either."""
    session = web.signed_in()[SESSION]
    old, new = web.keys[session], web.renewed(session)
    assert old != new
    for key in (old, new, old):
        web.keys[session] = key
        assert web.ask("GET", "/m/inbox", {**NAVIGATION, SESSION: session}).status == 200
    own = {SESSION: session, "Origin": web.origin}
    for body in (b"", b"{}", b'{"nonce": ""}', b'{"nonce": "a\\nb"}', b"[" * 10_000):
        assert web.ask("POST", "/renew-key", own, body).status == 403
    assert web.ask("POST", "/renew-key", web.bearer, b'{"nonce": "n"}').status == 403


def test_signing_out_ends_the_session_and_its_stream(web: Web) -> None:
    """Whoever leaves a browser behind can leave it signed out: nothing that is open goes on."""
    session = web.signed_in()
    own = {"Harken-Proof": web.proof(session[SESSION], "GET", "/events")}
    with web.opened("/events", own) as stream:
        assert web.ask("POST", "/sign-out", {**session, "Origin": web.origin}, b"").status == 204
        web.daemon.call("send", text="private")
        assert stream.is_ended()
    assert web.ask("GET", "/m/inbox", {**session, **NAVIGATION}).status == 401
    assert json.loads((web.daemon.home / "page-sessions.json").read_text())["sessions"] == []
