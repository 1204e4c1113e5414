"""The list of conversations as the daemon sends it: what a row says, what hostile text can do, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.loss.rig import Served
from tests.web.test_page import HOSTILE, Browser, one, said


@pytest.fixture
def browser(daemon: Served) -> Browser:
    """A signed-in browser at a daemon with two conversations; the older one is hostile."""
    browser = Browser(daemon.start())
    for number in range(2):
        daemon.call("send", text=f"{HOSTILE} {number}", sender=HOSTILE[:60], conversation=HOSTILE)
    daemon.call("send", text="hello", sender="anna")
    return browser


def refs_of(browser: Browser, view: str = "open") -> list[str]:
    """Return the messages that the rows of a list name."""
    return [node.attributes["data-ref"] or "" for node in browser.page(f"/conversations?view={view}").css(".row")]


def back_in(html: str) -> str:
    """Return what undoes something."""
    return one(LexborHTMLParser(html), "input[name=back]").attributes["value"] or ""


def test_row_says_who_how_often_and_what_and_leads_to_the_messages(browser: Browser) -> None:
    """The address of a conversation is made of what its source says; it stays an address, and text stays text."""
    page = browser.page("/conversations")
    assert [node.text().strip() for node in page.css(".row-count")] == ["2"]
    assert not page.css("#rows img, #rows script")
    href = page.css(".row-what")[1].attributes["href"] or ""
    assert parse_qs(urlsplit(href).query)["source"] == ["local"]
    shown = browser.page(href)
    assert len(shown.css(".item")) == 2
    assert not shown.css(".item script, .item img")
    assert said(page, "#count-open") == "2"


def test_what_is_done_can_be_undone_by_what_the_answer_says(browser: Browser) -> None:
    """A slip of the hand must cost nothing, several at once included."""
    refs = refs_of(browser)
    told = browser.post("/do/triage", {"what": "done", "refs": ",".join(refs)}, is_part=True)
    assert "2 conversations are done." in told.text
    assert not browser.page("/conversations").css(".row")
    assert "Undone" in browser.post("/do/undo", {"back": back_in(told.text)}, is_part=True).text
    rows = browser.page("/conversations").css(".row.is-unread")
    assert [node.attributes["data-ref"] for node in rows] == refs


def test_what_arrived_after_the_list_was_drawn_stays_in_it(browser: Browser, daemon: Served) -> None:
    """You cannot be done with what you have not seen, and the page says that something is left."""
    [anna, hostile] = refs_of(browser)
    newer = daemon.call("send", text="one more", sender=HOSTILE[:60], conversation=HOSTILE)["id"]
    told = browser.post("/do/triage", {"what": "done", "refs": f"{anna},{hostile}"}, is_part=True)
    assert "1 has something newer and stays. 1 conversation is done." in told.text
    assert (refs_of(browser), len(browser.page("/conversations").css(".row.is-unread"))) == ([newer], 1)


def test_undo_leaves_what_arrived_meanwhile(browser: Browser, daemon: Served) -> None:
    """It takes back what you did, and nothing that others did."""
    [anna, hostile] = refs_of(browser)
    told = browser.post("/do/triage", {"what": "done", "refs": f"{anna},{hostile}"}, is_part=True)
    newer = daemon.call("send", text="one more", sender=HOSTILE[:60], conversation=HOSTILE)["id"]
    browser.post("/do/undo", {"back": back_in(told.text)}, is_part=True)
    assert refs_of(browser) == [newer, anna]
    assert len(browser.page("/conversations").css(".row.is-unread")) == 2


def test_what_changed_nothing_has_nothing_to_undo(browser: Browser) -> None:
    """Done once more from another window: an undo there would bring back "done" after yours brought back the mail."""
    [anna, _] = refs_of(browser)
    fields = {"what": "done", "refs": anna}
    assert back_in(browser.post("/do/triage", fields, is_part=True).text)
    again = browser.post("/do/triage", fields, is_part=True)
    assert "1 conversation is done." in again.text
    assert not LexborHTMLParser(again.text).css("form")


def test_two_windows_that_sort_at_once_agree_in_the_end(browser: Browser, daemon: Served) -> None:
    """Each is answered, one of them is last, and neither leaves half."""
    other = Browser(daemon)
    [anna, _] = refs_of(browser)
    asks = [(browser, {"what": "done"}), (other, {"what": "reopen"})] * 4
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda ask: ask[0].post("/do/triage", {**ask[1], "refs": anna}, is_part=True), asks))
    assert [answer.status for answer in told] == [200] * len(asks)
    places = [refs_of(browser, view) for view in ("open", "done")]
    assert [anna in place for place in places].count(True) == 1
    assert [refs_of(other, view) for view in ("open", "done")] == places


def test_form_that_makes_no_sense_changes_nothing(browser: Browser) -> None:
    """What a page sends is not trusted, and a refusal says what to do."""
    for path, fields in [
        ("/do/triage", {"what": "done", "refs": ""}),
        ("/do/triage", {"what": "burn", "refs": "1"}),
        ("/do/triage", {"what": "snooze", "refs": "1", "until": "soon"}),
        ("/do/triage", {"what": "snooze", "refs": "1", "until": "2001-01-01T00:00:00Z"}),
        ("/do/undo", {"back": "m-nothing open"}),
        ("/do/undo", {"back": "m-nothing burnt"}),
        ("/do/undo", {"back": ""}),
        ("/do/allow", {"ref": "m-nothing"}),
    ]:
        assert browser.post(path, fields, is_part=True).status in (404, 422)
        assert len(browser.page("/conversations").css(".row")) == 2


def test_address_of_nothing_says_so(browser: Browser) -> None:
    """A conversation that retention took, or a list that never was, is no empty page."""
    browser.get("/conversation?source=local&thread=none", 404)
    browser.get("/conversations?view=none", 422)
