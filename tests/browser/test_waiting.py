"""What waits for an answer, in a real browser: it goes by itself, wherever it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.rig import PHONE, SignedInBrowser, Site
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import HOSTILE, AskingHost
from tests.hooks.test_approvals import asked as asked_by_host
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
    expect(window.page.locator(f"#{first} .open-question")).to_contain_text("waits for an answer · 9 min")
    window.page.locator(f"#{first}").get_by_role("button", name="Reply").click()
    window.page.locator("#text").fill("on Friday")
    window.page.keyboard.press("Enter")
    expect(items).to_have_count(2)
    window.page.locator(f"#{second}").get_by_role("button", name="No answer needed").click()
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


def test_question_of_an_agent_is_answered_where_its_command_is_shown(
    browser: Browser, signed_in: SignedInBrowser, daemon: Served, tmp_path: Path
) -> None:
    """It appears by itself, hostile text stays text, Enter behind a reason refuses, and another window is told."""
    signed_in.introduce(daemon.home)
    daemon.start()
    rig = DaemonFixture(daemon)
    with ExitStack() as stack:
        site = Site(browser, daemon, tmp_path, stack, signed_in)
        window, other = site.window("/needs"), site.window("/needs", viewport=PHONE, has_touch=True, is_mobile=True)
        with AskingHost(rig, asked_by_host(HOSTILE)) as host:
            commands = window.page.locator(".asked pre")
            expect(commands.first).to_contain_text("rm -rf ~")
            expect(commands.first).to_contain_text("<script>alert(1)</script>")
            expect(window.page.locator("#place-needs .badge")).to_have_text("1")
            expect(other.page.get_by_role("button", name="Refuse")).to_be_visible()
            assert other.overflow() <= 0
            window.page.get_by_label("Why you refuse").fill("use make")
            window.page.locator("#panel").evaluate("panel => panel.dataset.isFormer = true")
            site.daemon.call("send", text="the list is read anew meanwhile", sender="ann")
            expect(window.page.locator("#panel[data-is-former]")).to_have_count(0)
            expect(window.page.get_by_role("button", name="Allow once")).to_be_enabled()
            expect(window.page.get_by_label("Why you refuse")).to_have_value("use make")
            window.page.get_by_label("Why you refuse").press("Enter")
            assert host.reply() == {"reply": "reject", "message": "use make"}
            expect(window.page.get_by_role("heading", name="Nothing needs you")).to_be_visible()
            expect(other.page.get_by_role("heading", name="Nothing needs you")).to_be_visible()
        with AskingHost(rig, asked_by_host("make test", native="per_2")) as host:
            other.page.get_by_role("button", name="Allow once").click()
            assert host.reply() == {"reply": "once"}
        assert window.complaints + other.complaints == []
