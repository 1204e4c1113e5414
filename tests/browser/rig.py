"""What the tests of the page in a browser share: a daemon to look at, windows that are signed in, and agents.

A window notes what it loads and what its browser complains about, so that a test can say that nothing of it was wrong.
The page forbids eval to itself; what a test asks the browser directly is not bound by that. This module tests nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
from playwright.sync_api import Browser, BrowserContext, CDPSession, ConsoleMessage, Locator, Page

from harken.config.home import ensure, find_home
from harken.model import NewMessage
from harken.store.sqlite import open_store
from harken.testing import EdgeClient, FakeClock, edge_command
from tests.hooks.rig import CLAUDE, Conversation
from tests.loss.rig import Served

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

WAIT_MS: Final = 15_000
HOME_PAGE: Final = "/conversations"
STORE_SECONDS: Final = 60
BATCH: Final = 500
PHONE: Final = {"width": 390, "height": 844}
DESK: Final = {"width": 1280, "height": 800}
AWAY: Final = ("net::ERR", "htmx:afterRequest", "htmx:sendError", "401")
"""What a browser, and the library of the page, complain of when the daemon does not answer, or is a new one."""

# A tab without a screen is never hidden by its browser: this says that it is, as the browser would.
_HIDING: Final = """
let isHidden = false;
Object.defineProperty(Document.prototype, "hidden", { get: () => isHidden });
Object.defineProperty(Document.prototype, "visibilityState", { get: () => (isHidden ? "hidden" : "visible") });
window.hideTab = (value) => { isHidden = value; document.dispatchEvent(new Event("visibilitychange")); };
"""

# What is made to be scrolled sideways, code and tables and columns, is inside of these and does not make them wider.
_TOO_WIDE: Final = """() => Math.max(
  document.documentElement.scrollWidth - innerWidth,
  ...[...document.querySelectorAll("body, main, .scroll, .content, .places, .foot, .timeline, .board-mail")]
    .map((it) => it.scrollWidth - it.clientWidth),
)"""


@dataclass  # without slots: the driver notes its handlers on it
class Window:
    """One tab, and what was noticed about it."""

    page: Page
    origin: str
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note everything that is loaded and every complaint of the browser."""
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def goto(self, path: str) -> None:
        """Open a page of the site; return when its scripts have run."""
        self.page.goto(f"{self.origin}{path}")
        self.ready()

    def reload(self) -> None:
        """Load the page again; return when its scripts have run."""
        self.page.reload()
        self.ready()

    def ready(self) -> None:
        """Wait until the page stands in place of its shell."""
        self.page.locator("html[data-ready] #main").wait_for(state="attached")

    def enter(self, link: str) -> None:
        """Sign in with a link."""
        self.page.goto(link)
        self.ready()

    def strangers(self) -> list[str]:
        """Return what was loaded from elsewhere; `data:` leaves nowhere."""
        own = urlsplit(self.origin).netloc
        return [url for url in self.requested if urlsplit(url).netloc != own and not url.startswith("data:")]

    @property
    def items(self) -> Locator:
        """The messages of the timeline."""
        return self.page.locator("#items > .item")

    @property
    def field(self) -> Locator:
        """Where a message is written."""
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def outlook(self) -> Locator:
        """What is said about the message that is written, or was sent."""
        return self.page.locator("#outlook")

    def place(self, name: str) -> Locator:
        """The line of a mailbox, task or channel in the list."""
        return self.page.locator("#places a.place").filter(has_text=re.compile(rf"^\s*{re.escape(name)}"))

    def say(self, text: str) -> None:
        """Write and send."""
        self.field.fill(text)
        self.field.press("Enter")

    def hide(self, *, is_hidden: bool = True) -> None:
        """Let the tab be hidden, or shown again."""
        self.page.evaluate("(value) => hideTab(value)", is_hidden)

    def overflow(self) -> int:
        """Return by how many pixels the page, or a part that is only scrolled downwards, is too wide."""
        wide: int = self.page.evaluate(_TOO_WIDE)
        return wide

    def count(self, selector: str = "*") -> int:
        """Return how many elements there are."""
        return self.page.locator(selector).count()

    def console(self) -> CDPSession:
        """Return a session of the browser's own protocol."""
        return self.page.context.new_cdp_session(self.page)


def new_context(browser: Browser, **options: Json) -> BrowserContext:
    """A browser of somebody who asked for no motion: drawing it is half of the work."""
    settled = {"viewport": DESK, "locale": "en-GB", "timezone_id": "Europe/Berlin", "reduced_motion": "reduce"}
    context = browser.new_context(**{**settled, **options})
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(_HIDING)
    return context


class SignedInBrowser:
    """A browser that is signed in at one address, and the files by which every new home knows it there.

    Signing a browser in costs more than most tests do. A daemon that finds these files in its home takes the same port
    and knows the browser; all else in that home is new. If the port is taken meanwhile, the daemon has another one and
    `is_known` says no.
    """

    def __init__(self, context: BrowserContext, daemon: Served) -> None:
        self._context = context
        self._origin = str(daemon.facts["url"])
        Window(context.new_page(), self._origin).enter(daemon.call("sign_in")["url"])
        kept = find_home(str(daemon.home), {})
        files = (kept.token_file, kept.port_file, kept.page_sessions_file)
        self._files = {file.relative_to(kept.path): file.read_bytes() for file in files}
        for page in context.pages:
            page.close()

    def introduce(self, home: Path) -> None:
        """Let the daemon that is started next in a home know this browser."""
        ensure(find_home(str(home), {}))
        for name, data in self._files.items():
            (home / name).write_bytes(data)
            (home / name).chmod(0o600)

    def is_known(self, daemon: Served) -> bool:
        """Whether this daemon is at the address of the browser."""
        return bool(daemon.facts["url"] == self._origin)

    def page(self) -> Page:
        """Open a tab in which nothing is remembered of an earlier one."""
        page = self._context.new_page()
        forget = {"origin": self._origin, "storageTypes": "local_storage"}
        self._context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
        return page


class Site:
    """A daemon and the browser that looks at it."""

    def __init__(
        self, browser: Browser, daemon: Served, folder: Path, stack: ExitStack, signed_in: SignedInBrowser | None = None
    ) -> None:
        self.daemon = daemon
        self.folder = folder
        self._browser = browser
        self._stack = stack
        self._signed_in = signed_in if signed_in and signed_in.is_known(daemon) else None

    @property
    def origin(self) -> str:
        """Where the daemon is reached."""
        return str(self.daemon.facts["url"])

    def window(self, path: str = "/m/inbox", *, is_own: bool = False, **options: Json) -> Window:
        """Open a tab of a browser that no other window of this test is in.

        The first window without options is in the browser that is signed in already, unless the test does something
        to the sign-in or the clock and wants its own.
        """
        if self._signed_in is not None and not is_own and not options:
            window = Window(self._signed_in.page(), self.origin)
            self._signed_in = None
            self._stack.callback(window.page.close)
            window.watch()
            window.goto(path)
            return window
        window = Window(self.context(**options).new_page(), self.origin)
        window.watch()
        window.enter(self.daemon.call("sign_in")["url"])
        if path != HOME_PAGE:
            window.goto(path)
        return window

    def context(self, **options: Json) -> BrowserContext:
        """A browser of its own: nothing is known to it."""
        context = new_context(self._browser, **options)
        self._stack.callback(context.close)
        return context

    def send(self, text: str, **more: str) -> str:
        """Say something outside the page; return the message's id."""
        return str(self.daemon.call("send", **{"text": text, **more})["id"])

    def texts(self, mailbox: str = "inbox") -> list[str]:
        """Return what is stored in a mailbox, oldest first."""
        found = self.daemon.call("list", mailbox=mailbox, limit=1000)["messages"]
        return [message["content_text_sanitized"] for message in found]

    def task(self, name: str, *links: str, title: str = "", **more: str) -> str:
        """Make a task in a folder of its own; return its mailbox."""
        folder = self.folder / name
        folder.mkdir()
        made = self.daemon.call("task_new", title=title or name, id=name, dir=str(folder), links=list(links), **more)
        return str(made["mailbox"])

    def agent(self, name: str = "claude-code", *, task: str = "") -> EdgeClient:
        """Start an MCP client as hosts do, in the folder of a task if one is named."""
        folder = str(self.folder / task) if task else "/"
        command = [*edge_command(self.daemon.home), "--spawn", "/bin/true"]
        # With something left to do afterwards the shell stays: a host of its own, by which its session is known.
        shell = ["/bin/sh", "-c", 'cd "$1" && shift && "$@"; exit $?', "host", folder, *command]
        return self._enter(EdgeClient(shell, name=name))

    def conversation(self, task: str = "") -> Conversation:
        """A session of Claude Code, known by its hooks."""
        return Conversation(kind=CLAUDE, home=self.daemon.home, cwd=str(self.folder / task) if task else "/")

    def store(self, messages: Sequence[NewMessage], over: timedelta = timedelta(0)) -> None:
        """Put messages into the store as they are, while the daemon is away; as if they had come over a time."""
        self.daemon.stop()
        with ThreadPoolExecutor(1) as elsewhere:  # this thread's event loop is the browser's
            elsewhere.submit(anyio.run, _append, self.daemon.home, messages, over).result(STORE_SECONDS)
        self.daemon.start()

    def restart(self) -> None:
        """Start the daemon again after it was killed; it takes the port it had."""
        before = self.daemon.facts["url"]
        self.daemon.start()
        assert self.daemon.facts["url"] == before

    def _enter(self, agent: AbstractContextManager[EdgeClient]) -> EdgeClient:
        return self._stack.enter_context(agent)


async def _append(home: Path, messages: Sequence[NewMessage], over: timedelta) -> None:
    clock, at_once = FakeClock(datetime.now(UTC) - over), 1 if over else BATCH
    async with open_store(home / "harken.db", clock) as store:
        for begin in range(0, len(messages), at_once):
            await store.messages.append(messages[begin : begin + at_once])
            clock.advance(over.total_seconds() / len(messages))


def said(locator: Locator) -> Sequence[str]:
    """Return what each element says, on one line."""
    return [" ".join(text.split()) for text in locator.all_inner_texts()]


def only_expected(complaints: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Return the complaints that hold none of the expected words."""
    return [line for line in complaints if not any(part in line for part in expected)]
