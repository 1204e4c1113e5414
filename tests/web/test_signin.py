"""A link signs one browser in, once; its cookie lasts, survives a restart, and can be given up."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.surfaces.web.signin import COOKIE_SECONDS, LINK_SECONDS, MAX_LINKS, SignIns, cookie_key, cookie_name
from harken.testing import FakeClock
from tests.loss.rig import Served
from tests.web.rig import NAVIGATION, Web

HOST = "127.0.0.1:8780"
URL = f"http://{HOST}"


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


@pytest.fixture
def clock() -> FakeClock:
    """The time of the links and cookies."""
    return FakeClock()


@pytest.fixture
def sign_ins(clock: FakeClock, tmp_path: Path) -> SignIns:
    """Links and cookies of one token."""
    return SignIns(cookie_key("a token"), clock, tmp_path / "signed-out")


def code_of(url: str) -> str:
    """Return the code of a link."""
    return urlsplit(url).query.removeprefix("code=")


def header(value: str, host: str = HOST) -> str:
    """Return a cookie as a browser sends it."""
    return f"{cookie_name(host)}={value}"


def test_code_works_once(sign_ins: SignIns) -> None:
    """Whoever finds the link later, in a terminal's history or a screenshot, finds nothing of worth."""
    first, second = code_of(sign_ins.link(URL)), code_of(sign_ins.link(URL))
    results = [sign_ins.redeem(code) for code in (first, first, second, second, "", "x")]
    assert results == [True, False, True, False, False, False]


def test_code_ends_after_its_time(sign_ins: SignIns, clock: FakeClock) -> None:
    """A link that nobody opened is not left lying about."""
    in_time, late = code_of(sign_ins.link(URL)), code_of(sign_ins.link(URL))
    clock.advance(LINK_SECONDS - 1)
    assert sign_ins.redeem(in_time)
    clock.advance(1)
    assert not sign_ins.redeem(late)


def test_code_does_not_last_longer_when_the_clock_is_set_back(sign_ins: SignIns, clock: FakeClock) -> None:
    """A corrected clock must not keep old links alive for hours."""
    code = code_of(sign_ins.link(URL))
    clock.set_back(3_600)
    assert not sign_ins.redeem(code)


def test_only_the_newest_links_work(sign_ins: SignIns) -> None:
    """However often someone asks, a few are open."""
    codes = [code_of(sign_ins.link(URL)) for _ in range(MAX_LINKS + 2)]
    assert len(set(codes)) == len(codes)
    assert [sign_ins.redeem(code) for code in codes] == [False] * 2 + [True] * MAX_LINKS


def test_cookie_lasts_thirty_days_and_not_longer(sign_ins: SignIns, clock: FakeClock) -> None:
    """A browser that was signed in once is not the person's for ever."""
    cookie = header(sign_ins.cookie())
    clock.advance(COOKIE_SECONDS - 1)
    assert sign_ins.is_signed_in(cookie, HOST)
    clock.advance(1)
    assert not sign_ins.is_signed_in(cookie, HOST)


def test_cookie_is_good_for_whoever_has_the_same_token_and_no_other(
    sign_ins: SignIns, clock: FakeClock, tmp_path: Path
) -> None:
    """A restart keeps people signed in; a new token signs everyone out."""
    cookie, file = header(sign_ins.cookie()), tmp_path / "signed-out"
    assert SignIns(cookie_key("a token"), clock, file).is_signed_in(cookie, HOST)
    assert not SignIns(cookie_key("another token"), clock, file).is_signed_in(cookie, HOST)
    assert b"a token" not in cookie_key("a token")


def test_cookie_that_was_signed_out_is_good_for_nobody(sign_ins: SignIns, clock: FakeClock, tmp_path: Path) -> None:
    """Whoever has a copy of it has nothing, also after a restart; other browsers stay signed in."""
    mine, other, file = header(sign_ins.cookie()), header(sign_ins.cookie()), tmp_path / "signed-out"
    sign_ins.sign_out(mine, HOST)
    again = SignIns(cookie_key("a token"), clock, file)
    assert [each.is_signed_in(mine, HOST) for each in (sign_ins, again)] == [False, False]
    assert [each.is_signed_in(other, HOST) for each in (sign_ins, again)] == [True, True]
    assert file.stat().st_mode & 0o777 == 0o600
    clock.advance(COOKIE_SECONDS)
    again.sign_out(header(sign_ins.cookie()), HOST)
    assert len(file.read_text().split()) == 1, "what has ended anyway need not be remembered"


def test_cookie_among_many_of_the_same_name_is_found_within_bounds(sign_ins: SignIns) -> None:
    """Other servers of this machine can plant cookies: a few do not sign the person out, thousands cost nothing."""
    good, planted = header(sign_ins.cookie()), header("1.x.y")
    assert sign_ins.is_signed_in(f"other=1; {planted}; {good}", HOST)
    assert not sign_ins.is_signed_in("; ".join([planted] * 1_000 + [good]), HOST)
    assert not sign_ins.is_signed_in(good.replace("8780", "8781"), HOST)


@given(st.text(max_size=200), st.integers(0, 200), st.characters(codec="latin-1"))
def test_no_other_text_is_a_cookie(header_text: str, place: int, letter: str) -> None:
    """Whatever a client invents, or changes about a good cookie, it is not signed in by it."""
    sign_ins = SignIns(cookie_key("a token"), FakeClock(), Path("/nowhere/signed-out"))
    good = sign_ins.cookie()
    changed = good[: place % len(good)] + letter + good[place % len(good) + 1 :]
    assert not sign_ins.is_signed_in(header_text, HOST)
    assert not sign_ins.is_signed_in(header(header_text), HOST)
    assert sign_ins.is_signed_in(header(changed), HOST) == (changed == good)


def test_link_signs_in_and_leaves_no_code_in_the_address(web: Web) -> None:
    """The browser ends at the page itself, with a cookie that scripts and other sites cannot get at."""
    answer = web.ask("GET", web.link(), NAVIGATION)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    value, *attributes = answer.headers["set-cookie"].split("; ")
    port = web.address.rpartition(":")[2]
    assert value.startswith(f"harken-{port}=")
    assert set(attributes) == {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={COOKIE_SECONDS}"}
    page = web.ask("GET", "/no-such-page", {**NAVIGATION, "Cookie": value})
    assert page.status == 404


def test_replayed_and_invented_codes_say_what_to_do(web: Web) -> None:
    """Whoever comes second gets no cookie, and a person who comes late learns how to go on."""
    link = web.link()
    assert web.ask("GET", link, NAVIGATION).status == 303
    for path in (link, "/sign-in", "/sign-in?code=", "/sign-in?code=invented", "/sign-in?code=%00%ff"):
        answer = web.ask("GET", path, NAVIGATION)
        assert answer.status == 403
        assert "harken open" in answer.text
        assert "set-cookie" not in answer.headers
        assert "invented" not in answer.text


def test_looking_at_a_link_does_not_use_it_up(web: Web) -> None:
    """Browsers and chat programs fetch what the person may open next; the person then still gets in."""
    link = web.link()
    assert web.ask("HEAD", link, NAVIGATION).status == 403
    assert web.ask("GET", link, {**NAVIGATION, "Sec-Purpose": "prefetch;prerender"}).status == 403
    assert web.ask("POST", link, NAVIGATION, b"").status == 405
    assert web.ask("GET", link, NAVIGATION).status == 303


def test_cookie_survives_a_restart_of_the_daemon(web: Web) -> None:
    """The daemon restarts with each new version; the page stays open."""
    cookie = web.signed_in()
    web.daemon.kill()
    web.daemon.start()
    assert Web(web.daemon).address == web.address
    assert web.ask("GET", "/no-such-page", {**cookie, **NAVIGATION}).status == 404
    (web.daemon.home / "token").unlink()
    web.daemon.kill()
    web.daemon.start()
    assert web.ask("GET", "/no-such-page", {**cookie, **NAVIGATION}).status == 401


def test_signing_out_takes_the_cookie_away(web: Web) -> None:
    """Whoever leaves a browser behind can leave it signed out."""
    cookie = web.signed_in()
    answer = web.ask("POST", "/sign-out", {**cookie, "Origin": web.origin}, b"")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    value, *attributes = answer.headers["set-cookie"].split("; ")
    assert value == f'{cookie["Cookie"].partition("=")[0]}=""'
    assert {"Max-Age=0", "Path=/", "HttpOnly"} <= set(attributes)
