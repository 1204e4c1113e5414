"""A second account of this machine against the page: its own server, the page's port while that is free, and requests.

A real account, made for the test, and a real browser. What programs of this account could do with what they were sent
is in `test_strangers.py`; here the system tells whose they are, and the daemon does not even talk to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from harken.daemon.callers import is_told
from tests.browser.rig import AWAY, Site, only_expected
from tests.browser.test_strangers import DEEDS, STEAL, Caught, replayed, signed_in
from tests.loss.rig import until
from tests.second_account import SecondAccount

__all__ = ["signed_in"]

pytestmark = pytest.mark.skipif(not is_told(), reason="this system does not tell whose a connection is")

NOT_SENT_AGAIN: Final = frozenset({"host", "connection", "content-length", "accept-encoding"})


class Listening:
    """The second account's server."""

    def __init__(self, account: SecondAccount) -> None:
        self._account = account

    def begin(self, port: int = 0) -> str:
        """Listen; return the address."""
        told = self._account.do("listen", port=port, status=200, answer=STEAL.decode())
        return f"http://127.0.0.1:{told['port']}"

    @property
    def caught(self) -> list[Caught]:
        """What was sent to it."""
        return [
            Caught(
                method=each["method"], path=each["path"], headers=each["headers"], body=each["body"].encode("latin-1")
            )
            for each in self._account.do("caught")["caught"]
        ]

    def has_caught(self, path: str) -> bool:
        """Whether something was asked of it."""
        return any(each.path.startswith(path) for each in self.caught)

    def replayed(self, origin: str, caught: Caught, **changed: str) -> int:
        """Send what was caught to the daemon, as the second account, with any header it likes; return the status."""
        kept = {name: value for name, value in caught.headers.items() if name not in NOT_SENT_AGAIN}
        return self._account.ask(
            urlsplit(origin).netloc,
            changed.get("method", caught.method),
            changed.get("path", caught.path),
            {**kept, "origin": origin, "sec-fetch-site": "same-origin", "accept": "*/*"},
            caught.body.decode("latin-1"),
        )


@pytest.fixture
def stranger(second_account: SecondAccount) -> Iterator[Listening]:
    """The second account's server, which has given its port up at the end."""
    yield Listening(second_account)
    second_account.do("leave")


def test_server_of_another_account_gets_nothing_of_worth(site: Site, stranger: Listening) -> None:
    """A link in a message is enough to be there: what the browser sends opens nothing, for that account or for us."""
    window = site.window()
    window.page.goto(f"{stranger.begin()}/anything")
    until(lambda: stranger.has_caught("/stolen"), "the stranger's script ran")
    for caught in stranger.caught:
        assert "cookie" not in caught.headers
        assert not [name for name in caught.headers if name.startswith(("harken", "authorization"))]
        for method, path in DEEDS:
            assert stranger.replayed(site.origin, caught, method=method, path=path) == 403
            assert replayed(site.origin, caught, method=method, path=path) == 401
    assert site.texts() == []


def test_other_account_at_the_free_port_gets_nothing_that_works_later(
    site: Site, stranger: Listening, second_account: SecondAccount
) -> None:
    """The daemon is down for a moment, the tab is open, and somebody was waiting for the port."""
    window = site.window()
    site.daemon.kill()
    stranger.begin(urlsplit(site.origin).port or 0)
    until(lambda: stranger.has_caught("/events"), "the tab tried to connect")
    window.say("meant for Harken")
    until(lambda: stranger.has_caught("/do/send"), "the tab tried to send")
    expect(window.outlook).to_contain_text("Not sent")
    expect(window.page.locator("body")).not_to_contain_text("fabricated")
    second_account.do("leave")
    site.restart()
    for caught in stranger.caught:
        assert "cookie" not in caught.headers
        assert stranger.replayed(site.origin, caught) == 403
        assert replayed(site.origin, caught) == 401
    expect(window.page.locator("#connection")).to_be_hidden()
    assert site.texts() == [], "only the person sends it, once more"
    window.field.press("Enter")
    expect(window.items).to_have_count(1)
    assert only_expected(window.complaints, (*AWAY, "401", "404")) == []


def test_other_account_that_keeps_the_port_is_named_and_signs_every_browser_out(
    site: Site, stranger: Listening, second_account: SecondAccount
) -> None:
    """What is open at that address may be that account's page by now: the daemon moves, and trusts none of it."""
    window = site.window()
    before = site.origin
    site.daemon.kill()
    stranger.begin(urlsplit(before).port or 0)
    until(lambda: stranger.has_caught("/events"), "the tab tried to connect")
    site.daemon.start()
    assert site.origin != before
    said = site.daemon.call("status")["daemon"]
    assert second_account.name in said["port_problem"]
    assert said["browsers"] == []
    expect(window.page.locator("#connection")).to_contain_text("Another program answers at this address")
    for caught in stranger.caught:
        assert stranger.replayed(site.origin, caught) == 403
        assert replayed(site.origin, caught) in (401, 403)
