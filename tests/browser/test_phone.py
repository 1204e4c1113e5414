"""The page on a phone, in a real browser, over TLS at another origin: scanned, used, left alone, revoked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import zxingcpp
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.rig import PHONE, Site, Window, new_context
from tests.cli.rig import Rig
from tests.cli.terminal_session import TerminalSession
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost
from tests.hooks.test_approvals import asked as asked_by_host
from tests.loss.rig import Served
from tests.satellite.rig import MainDaemon, free_port, let_machines_in

DOT: Final = 4  # pixels
UPPER, LOWER, BOTH = "▀", "▄", "█"
ON_PHONE: Final = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "ignore_https_errors": True}


def scanned(shown: str) -> str:
    """Return what the code on a terminal says, as a camera reads it."""
    lines = [line for line in shown.splitlines() if line.count(BOTH) + line.count(UPPER) + line.count(LOWER) > 12]
    width = max(map(len, lines))
    rows = [
        bytes(255 if each in (BOTH, half) else 0 for each in line.ljust(width) for _ in range(DOT))
        for line in lines
        for half in (UPPER, LOWER)
        for _ in range(DOT)
    ]
    image = memoryview(b"".join(rows)).cast("B", (len(rows), width * DOT))
    (found,) = zxingcpp.read_barcodes(image)
    return found.text


@pytest.fixture
def site(browser: Browser, daemon: Served, tmp_path: Path) -> Iterator[Site]:
    """A daemon with a public address."""
    port = free_port()
    authority = let_machines_in(daemon.home, port, tmp_path)
    MainDaemon(daemon, authority, port).start()
    with ExitStack() as stack:
        yield Site(browser, daemon, tmp_path, stack)


@pytest.fixture
def phone(browser: Browser) -> Iterator[BrowserContext]:
    """A phone that trusts the certificate of the test."""
    context = new_context(browser, **ON_PHONE)
    yield context
    context.close()


def shown_code(site: Site, *words: str) -> str:
    """Run the command in a terminal and return the link that its code holds; it is printed below the code, too."""
    with TerminalSession(Rig(site.daemon.home), "open", "--phone", *words, columns=90, rows=40) as terminal:
        shown = terminal.sees("harken token revoke")
        assert terminal.leaves() == 0
    link = scanned(shown)
    assert link in "".join(shown.split("\n"))
    return link


def enter(site: Site, phone: BrowserContext, link: str) -> Window:
    """Open the link on the phone."""
    origin = str(site.daemon.call("status")["daemon"]["public_url"])
    assert link.startswith(f"{origin}/sign-in#")
    assert origin != site.origin
    window = Window(phone.new_page(), origin)
    window.watch()
    window.enter(link)
    return window


def test_phone_is_signed_in_by_its_camera_reads_answers_approves_and_is_revoked(
    site: Site, phone: BrowserContext
) -> None:
    """The whole story: scan, see, answer, approve, and be told that it is over."""
    asked = site.send("when is the release?", sender="Ann", channel="chat")
    window = enter(site, phone, shown_code(site, "--name", "my-phone", "--may", "read,answer,approve"))
    page = window.page
    expect(page.get_by_text("when is the release?")).to_be_visible()
    page.get_by_text("when is the release?").click()
    page.get_by_role("button", name="Reply to Ann").click()
    window.say("on Friday")
    expect(page.locator(".reply-row")).to_contain_text("on Friday")
    assert site.daemon.call("read", ref=asked)["replies"][0]["body"] == "on Friday"
    window.goto("/needs")
    with AskingHost(DaemonFixture(site.daemon), asked_by_host("make test")) as host:
        expect(page.locator(".asked pre").first).to_contain_text("make test")
        assert window.overflow() <= 0
        page.get_by_role("button", name="Allow once").click()
        assert host.reply() == {"reply": "once"}
    (approval,) = site.daemon.call("approvals", all=True)["approvals"]
    assert approval["answered_by"] == "token my-phone"
    assert (window.strangers(), window.complaints) == ([], [])
    site.daemon.call("token_revoke", name="my-phone")
    expect(page.locator("#connection")).to_have_text("You are signed out. In a terminal: harken open --phone")
    page.reload()
    expect(page.get_by_role("heading", name="You are not signed in.")).to_be_visible()
    # Another link, pasted: an installed app has no camera, and on some phones a store of its own.
    page.get_by_label("Or paste the link").fill(site.daemon.call("phone_link")["url"])
    page.get_by_role("button", name="Sign in").click()
    window.ready()
    expect(page.get_by_text("on Friday")).to_be_visible()


def test_app_opens_again_without_signing_in_also_after_a_restart(site: Site, phone: BrowserContext) -> None:
    """The manifest's start page, in a new tab of the same phone; there is no cookie, and nothing from elsewhere."""
    link = site.daemon.call("phone_link")["url"]
    window = enter(site, phone, link)
    manifest = window.page.evaluate("document.querySelector('link[rel=manifest]').href")
    start = phone.request.get(manifest).json()["start_url"]
    assert phone.cookies() == []
    window.page.close()
    site.daemon.stop()
    MainDaemon(site.daemon, site.daemon.home, int(window.origin.rpartition(":")[2])).start()
    again = Window(phone.new_page(), window.origin)
    again.watch()
    again.goto(start)
    expect(again.page.get_by_role("heading", name="Inbox", exact=True)).to_be_visible()
    assert (again.strangers(), again.complaints) == ([], [])
    phone.new_page().goto(link)  # it was used
    expect(phone.pages[-1].get_by_role("heading", name="You are not signed in.")).to_have_count(0)


def test_reader_has_no_buttons_on_its_phone(site: Site, phone: BrowserContext) -> None:
    """What it may not do is not there, and what is there fits."""
    site.send("when is the release?", sender="Ann", channel="chat")
    window = enter(site, phone, site.daemon.call("phone_link")["url"])
    for path in ("/conversations", "/m/inbox", "/needs", "/waiting", "/search?q=release", "/conversations#sidebar"):
        window.goto(path)
        assert window.overflow() <= 0, path
        offered = "[data-reply], [data-triage], [data-allow], #composer, form[data-act], .row-check"
        expect(window.page.locator(f":is({offered}):visible")).to_have_count(0)
    assert (window.strangers(), window.complaints) == ([], [])
