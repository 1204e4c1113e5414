"""What waits for an answer, in a real browser: it goes by itself, wherever it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.rig import PHONE, SignedInBrowser, Site
from tests.loss.rig import Served
from tests.seeded import Asked, seed


@pytest.fixture
def asked(
    browser: Browser, signed_in: SignedInBrowser, daemon: Served, tmp_path: Path
) -> Iterator[tuple[Site, list[str]]]:
    """A site in which three wait."""
    texts = ("when is the release?", "is it done?", "and the tests?")
    ids = seed(daemon.home, [Asked(text=text, ago=timedelta(minutes=9 - n)) for n, text in enumerate(texts)])
    signed_in.introduce(daemon.home)
    daemon.start()
    with ExitStack() as stack:
        yield Site(browser, daemon, tmp_path, stack, signed_in), [str(each) for each in ids]


def test_what_waits_is_answered_and_settled_where_it_is_listed(asked: tuple[Site, list[str]]) -> None:
    """Another window shows the same a moment later, without being asked."""
    site, (first, second, third) = asked
    window, inbox = site.window("/waiting"), site.window("/m/inbox")
    items, line = window.page.locator(".item"), inbox.page.locator("a.asks")
    expect(items).to_have_count(3)
    expect(line).to_have_text("3 wait for an answer, oldest 9 min")
    window.page.locator(f"#{first}").hover()
    window.page.locator(f"#{first} [data-reply]").click()
    window.page.locator("#text").fill("on Friday")
    window.page.keyboard.press("Enter")
    expect(items).to_have_count(2)
    window.page.locator(f"#{second} .open-question button").click()
    expect(items).to_have_count(1)
    expect(window.page.locator("#how-much")).to_contain_text("1 waits for an answer")
    expect(inbox.page.locator(f"#{third} .open-question")).to_be_visible()
    expect(inbox.page.locator(".open-question")).to_have_count(1)
    expect(inbox.page.locator("#place-needs .badge")).to_have_text("1")
    site.daemon.call("question_done", refs=[third])
    expect(inbox.page.locator(".open-question, a.asks, #place-needs .badge")).to_have_count(0)
    expect(window.page.get_by_role("heading", name="Nothing waits for an answer")).to_be_visible()
    assert window.complaints + inbox.complaints == []


def test_list_fits_on_a_phone(asked: tuple[Site, list[str]]) -> None:
    """That is where people are told of it."""
    site, _ = asked
    window = site.window("/waiting", viewport=PHONE, has_touch=True, is_mobile=True)
    expect(window.page.locator(".open-question button").first).to_be_visible()
    assert window.overflow() <= 0
