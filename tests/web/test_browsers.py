"""The browsers that are signed in are shown to the person, who can end them; an agent can do neither."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harken.errors import Forbidden, NotFound, UserError
from harken.testing import EdgeClient, edge_command
from tests.cli.rig import Outcome, Rig
from tests.loss.rig import Served, error_of
from tests.web.rig import NAVIGATION, SESSION, Web


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


def ids(web: Web) -> Sequence[str]:
    """Return who is signed in."""
    return [each["id"] for each in web.daemon.call("browsers")["browsers"]]


def ran(web: Web, *words: str) -> Outcome:
    """Run a command."""
    return Rig(web.daemon.home).run(*words)


def test_browsers_are_shown_with_their_last_use(web: Web) -> None:
    """A browser that nobody knows, or that is used when nobody is there, must be seen."""
    assert "No browser is signed in" in ran(web, "browsers").err
    first, second = web.signed_in(), web.signed_in()
    assert web.ask("GET", "/m/inbox", {**NAVIGATION, **first}).status == 200
    assert ids(web) == [first[SESSION], second[SESSION]]
    (used, idle) = web.daemon.call("browsers")["browsers"]
    assert used["used_at"] > used["began_at"]
    assert idle["used_at"] == idle["began_at"]
    assert used["address"] == web.address
    assert web.daemon.call("status")["daemon"]["browsers"] == [used, idle]
    for words in (("browsers",), ("status", "--all")):
        shown = ran(web, *words).out
        assert all(each[SESSION] in shown for each in (first, second)), words
        assert "last used" in shown


def test_browsers_are_completed(web: Web) -> None:
    """Ids are not to be typed."""
    session = web.signed_in()[SESSION]
    words = {"COMP_WORDS": "harken browsers sign-out b-", "COMP_CWORD": "3", "_HARKEN_COMPLETE": "bash_complete"}
    assert Rig(web.daemon.home, words).run().out == f"plain,{session}\n"


def test_browser_that_is_signed_out_ends_with_what_is_open_in_it(web: Web) -> None:
    """Who left a browser behind somewhere ends it from here, at once, and no other."""
    first, second = web.signed_in(), web.signed_in()
    own = {"Harken-Proof": web.proof(first[SESSION], "GET", "/events")}
    with web.opened("/events", own) as stream:
        assert ran(web, "browsers", "sign-out", first[SESSION]).code == 0
        web.daemon.call("send", text="private")
        assert stream.is_ended()
    asked = [web.ask("GET", "/m/inbox", {**NAVIGATION, **each}).status for each in (first, second)]
    assert asked == [401, 200]
    assert "signed out" in ran(web, "browsers", "sign-out", "--all").out
    assert ids(web) == []
    assert web.ask("GET", "/m/inbox", {**NAVIGATION, **second}).status == 401


def test_signing_out_names_what_it_does_not_know_and_ends_nothing_then(web: Web) -> None:
    """A typing error must not look like success, nor end half of what was meant."""
    session = web.signed_in()[SESSION]
    assert error_of(web.daemon, "sign_out", browsers=[session, "b-nobody00"])["code"] == NotFound.code
    assert error_of(web.daemon, "sign_out")["code"] == UserError.code
    assert ids(web) == [session]


def test_agent_may_neither_look_nor_sign_out(web: Web) -> None:
    """Whoever can sign the person out decides when they look away."""
    session = web.signed_in()[SESSION]
    with EdgeClient(edge_command(web.daemon.home), name="claude-code") as agent:
        agent.tool("inbound_queue_stats")
        for words in (("browsers",), ("browsers", "sign-out", session), ("browsers", "sign-out", "--all")):
            done = ran(web, *words)
            assert (done.code, done.out) == (Forbidden.exit_code, ""), words
    assert ids(web) == [session]
