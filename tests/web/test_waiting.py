"""What waits for an answer, in the page: it is listed, counted, answered, settled, and told by the stream."""

from __future__ import annotations

from datetime import timedelta

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.loss.rig import Served, until
from tests.seeded import Asked, seed
from tests.web.rig import Web
from tests.web.test_page import HOSTILE, Browser


@pytest.fixture
def asked(daemon: Served) -> tuple[Browser, list[str]]:
    """A signed-in browser, and two that wait: the older one is hostile."""
    ids = seed(
        daemon.home,
        [
            Asked(text=HOSTILE, ago=timedelta(hours=2), sender=HOSTILE),
            Asked(text="is it done?", ago=timedelta(minutes=3)),
        ],
    )
    daemon.start()
    return Browser(daemon), [str(each) for each in ids]


def _one(page: LexborHTMLParser, selector: str) -> LexborNode:
    [found] = page.css(selector)
    return found


def test_page_lists_what_waits_with_the_oldest_first(asked: tuple[Browser, list[str]]) -> None:
    """Whoever waited longest is answered first; what they wrote stays text."""
    browser, ids = asked
    page = browser.page("/waiting")
    assert [item.attributes["id"] for item in page.css(".item")] == ids
    assert _one(page, "#how-much").text() == "2 wait for an answer, oldest 2 h"
    assert [mark.text(strip=True) for mark in page.css(".open-question .mark")] == [
        "waits for an answer · 2 h",
        "waits for an answer · 3 min",
    ]
    assert page.css_first(".item script, .item img, .item style") is None
    assert page.css_first("#composer") is not None


def test_every_page_says_how_much_waits(asked: tuple[Browser, list[str]]) -> None:
    """A person is on some page; the line and the number in the list lead to what waits."""
    for path in ["/m/inbox", "/sessions", "/pulse"]:
        browser, _ = asked
        page = browser.page(path)
        line = _one(page, "a.asks")
        assert (line.attributes["href"], line.text()) == ("/waiting", "2 wait for an answer, oldest 2 h")
        assert _one(page, "#place-needs .badge").text() == "2"
        assert _one(browser.page("/part/asks"), "a.asks").text() == line.text()
        assert _one(browser.page("/part/sidebar"), "#place-needs .badge").text() == "2"


def test_message_in_its_timeline_says_that_it_waits(asked: tuple[Browser, list[str]]) -> None:
    """The place where people read is where they decide."""
    browser, (first, second) = asked
    other = browser.send("nobody waits for this", sender="ann")
    page = browser.page("/m/inbox")
    waiting = [item.attributes["id"] for item in page.css(".item") if item.css_first(".open-question")]
    assert waiting == [first, second]
    assert browser.page(f"/part/item/{other}").css_first(".open-question") is None


def test_button_settles_and_gives_the_message_as_it_is_now(asked: tuple[Browser, list[str]]) -> None:
    """With the page's script the mark goes at once; without it the list is shown again. Twice is once."""
    browser, (first, second) = asked
    for _ in range(2):
        answer = browser.post("/do/settle", {"ref": second}, is_part=True)
        assert answer.status == 200
        assert f'id="{second}"' in answer.text
        assert "open-question" not in answer.text
    answer = browser.post("/do/settle", {"ref": first})
    assert (answer.status, answer.headers["location"]) == (303, "/waiting")
    page = browser.page("/waiting")
    assert page.css(".item") == []
    assert page.css_first("a.asks") is None
    assert page.css_first("#place-needs .badge") is None
    assert "Nothing waits for an answer" in _one(page, "#panel").text()
    assert browser.post("/do/settle", {"ref": "m-nobody"}).status == 404
    assert browser.post("/do/settle", {}).status == 404


def test_settling_is_told_by_the_stream(asked: tuple[Browser, list[str]]) -> None:
    """An open page takes the mark away by itself, also when it was done elsewhere."""
    browser, (first, second) = asked
    with Web(browser.daemon).stream("?types=question.changed") as stream:
        browser.daemon.call("question_done", refs=[second])
        told = stream.next()
        assert (told.name, told.data["message_id"], told.data["state"]) == ("question.changed", second, "settled")
        assert (told.data["mailbox"], told.data["seq"]) == ("inbox", 2)
        assert browser.post("/do/send", {"ref": first, "text": "yes", "key": "k"}).status == 303
        assert stream.next().data["message_id"] == first
    until(lambda: browser.daemon.call("questions")["count"] == 0, "both are settled")
