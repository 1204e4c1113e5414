"""The page on a phone, in a real browser, over TLS at another origin: scanned, used, left alone, revoked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import zxingcpp
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.rig import PHONE, Json, Site, Window, new_context
from tests.cli.rig import Rig
from tests.cli.terminal_session import TerminalSession
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost
from tests.hooks.test_approvals import asked as asked_by_host
from tests.loss.rig import Served, until
from tests.remote.push_service import PushService, push_service, raw
from tests.satellite.rig import MainDaemon, free_port, let_machines_in
from tests.web.rig import letters

DOT: Final = 4  # pixels
UPPER, LOWER, BOTH = "▀", "▄", "█"
ON_PHONE: Final = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "ignore_https_errors": True}

WORKERS: Final = """async () => (await navigator.serviceWorker.getRegistrations())
  .map((each) => new URL((each.active ?? each.waiting ?? each.installing).scriptURL).pathname)"""
# A browser without a screen shows no notifications: what it is given to show is kept instead, and pressed.
SHOWING: Final = """() => {
  self.shown = [];
  self.registration.showNotification = async (title, { body, data }) => { self.shown.push([title, body, data]); };
}"""
PRESS: Final = """() => {
  const notification = { data: self.shown.at(-1)[2], close() {} };
  self.dispatchEvent(Object.assign(new ExtendableEvent("notificationclick"), { notification }));
}"""
# No push service of a browser can be reached: what it would say is said by the test. The rest is the browser's own.
SUBSCRIBED: Final = """({ endpoint, keys }) => {
  let made = null;
  PushManager.prototype.getSubscription = async () => made;
  PushManager.prototype.subscribe = async (options) => made = {
    options: { applicationServerKey: options.applicationServerKey.buffer ?? options.applicationServerKey },
    toJSON: () => ({ endpoint, expirationTime: null, keys }),
    unsubscribe: async () => { made = null; return true; },
  };
}"""


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
    with (daemon.home / "config.toml").open("a") as config:
        config.write('callbacks_to_loopback = true\n[push]\nshows = "text"\n')
    MainDaemon(daemon, authority, port).start()
    with ExitStack() as stack:
        yield Site(browser, daemon, tmp_path, stack)


@pytest.fixture
def service() -> Iterator[PushService]:
    """A push service."""
    with push_service() as found:
        yield found


@pytest.fixture
def phone(browser: Browser) -> Iterator[BrowserContext]:
    """A phone that trusts the certificate of the test."""
    context = new_context(browser, **ON_PHONE)
    yield context
    context.close()


@pytest.fixture
def app(browser: Browser, chromium: str) -> Iterator[BrowserContext]:
    """A phone whose browser trusts every certificate, also for the script of a worker."""
    trusting = ["--no-sandbox", "--ignore-certificate-errors"]
    launched = browser.browser_type.launch(executable_path=chromium, args=trusting)
    yield new_context(launched, **ON_PHONE)
    launched.close()


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


def handed(window: Window, said: Json) -> None:
    """Hand the page's worker what was pushed, decrypted, as its browser does."""
    console, found = window.console(), list[str]()
    console.on("ServiceWorker.workerRegistrationUpdated", lambda told: found.extend(_of(told, window.origin)))
    console.send("ServiceWorker.enable")
    until(lambda: window.page.evaluate(WORKERS) and found, "the worker is known")
    said = {"origin": window.origin, "registrationId": found[-1], "data": json.dumps(said)}
    console.send("ServiceWorker.deliverPushMessage", said)


def _of(told: Json, origin: str) -> list[str]:
    return [each["registrationId"] for each in told["registrations"] if each["scopeURL"].startswith(origin)]


def test_notification_is_switched_on_shown_and_opens_the_page_where_it_is_answered(
    site: Site, app: BrowserContext, service: PushService
) -> None:
    """The button and the worker are the page's own; the push service and the lock screen are the test's."""
    browser = service.browser()
    keys = {"p256dh": letters(raw(browser.key.public_key())), "auth": letters(browser.auth)}
    app.add_init_script(f"({SUBSCRIBED})({json.dumps({'endpoint': browser.endpoint, 'keys': keys})})")
    link = site.daemon.call("phone_link", may=["read", "approve"])["url"]
    app.grant_permissions(["notifications"], origin=link.partition("/sign-in")[0])
    window = enter(site, app, link)
    window.goto("/conversations#sidebar")
    window.page.get_by_role("button", name="Notify me here").click()
    expect(window.page.get_by_role("button", name="Notifications on")).to_be_visible()
    assert browser.read(service.pushed(0))["title"] == "Harken"
    with AskingHost(DaemonFixture(site.daemon), asked_by_host("make test")):
        said = browser.read(service.pushed(1))
        worker = app.service_workers[0]
        worker.evaluate(SHOWING)
        handed(window, said)
        until(lambda: worker.evaluate("self.shown.length"), "it is shown")
        assert worker.evaluate("self.shown") == [[said["title"], said["text"], {"path": said["path"]}]]
        window.reload()
        assert window.page.evaluate(WORKERS) == ["/push-worker.js"]
        worker.evaluate(PRESS)
        expect(window.page.locator(".asked pre").first).to_contain_text("make test")
        assert window.page.url == f"{window.origin}{said['path']}"
    window.goto("/conversations#sidebar")
    assert window.strangers() == []
    site.daemon.call("token_revoke", name="phone")
    window.page.reload()
    expect(window.page.get_by_role("heading", name="You are not signed in.")).to_be_visible()
    until(lambda: window.page.evaluate(WORKERS) == [], "the worker has gone with the sign-in")
