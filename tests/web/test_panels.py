"""The further views of the page, asked as a browser asks: what they show is true, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from harken.testing import DaemonProcess, EdgeClient, edge_command
from tests.loss.rig import DaemonStarter, Served, until
from tests.web.rig import NAVIGATION, Web

PANELS = ("/sessions", "/sources", "/pulse", "/search", "/tasks", "/tasks?all=1")
VOID = ("meta", "link", "input", "br", "img", "hr", "rect", "line", "circle", "path")
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)><style>*{}</style>'


class Page(HTMLParser):
    """An HTML document as far as tests look at it: elements with their attributes, and what is said in main."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element; every one that was opened is closed, in order."""
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is said."""
        if "main" in self._open:
            self.words.append(data)

    @property
    def said(self) -> str:
        """What main says, on one line."""
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """Return the attributes of the elements of a name that have these attributes."""
        names = {key.rstrip("_"): value for key, value in wanted.items()}
        return [has for name, has in self.elements if name == tag and names.items() <= has.items()]


class Browser:
    """A signed-in browser."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.web = Web(daemon)
        self.session = self.web.signed_in()

    def page(self, path: str, status: int = 200) -> Page:
        """Open a page."""
        answer = self.web.ask("GET", path, {**NAVIGATION, **self.session})
        assert answer.status == status, answer.text
        assert answer.headers["content-type"].startswith("text/html")
        return Page(answer.text)

    def post(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        """Send a form as a browser without scripts does; return the status and where it leads."""
        own = {"Origin": self.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
        answer = self.web.ask("POST", path, {**NAVIGATION, **self.session, **own}, urlencode(fields).encode())
        return answer.status, answer.headers.get("location", "")

    def task(self, folder: Path, name: str, **more: object) -> None:
        """Make a task with a folder of its own."""
        place = folder / name
        place.mkdir()
        self.daemon.call("task_new", title=f"Task {name}", id=name, dir=str(place), **more)


@pytest.fixture
def browser(daemon: Served) -> Browser:
    """A signed-in browser and a daemon in which nothing has happened."""
    return Browser(daemon.start())


@pytest.fixture(scope="module")
def hostile(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser at a daemon in which everything that others can name is hostile."""
    folder = tmp_path_factory.mktemp("p")
    with starter.daemon(folder / "home") as served:
        shown = Browser(served.start())
        shown.task(folder, "one", prompt=HOSTILE)
        place = folder / "two"
        place.mkdir()
        served.call("task_new", title=HOSTILE[:100], id="two", dir=str(place), branch=HOSTILE, links=["one"])
        served.call("send", text=f"needle {HOSTILE}", sender=HOSTILE[:60], channel=HOSTILE[:60])
        yield shown


def test_new_home_is_told_what_to_do_first(browser: Browser) -> None:
    """Whoever opens a page for the first time sees nothing of their own: the page says how to begin."""
    assert "harken connect claude-code" in browser.page("/sessions").said
    assert 'harken task new "Fix the login page"' in browser.page("/tasks").said
    assert 'harken send "hello"' in browser.page("/pulse").said
    assert "What are you looking for?" in browser.page("/search").said


@pytest.mark.parametrize("path", [*PANELS, "/t/one", "/t/two", "/search?q=needle", f"/search?q={quote(HOSTILE)}"])
def test_hostile_text_stays_text(hostile: Browser, path: str) -> None:
    """Names, titles and texts come from anyone: none becomes an element, a handler or a style."""
    page = hostile.page(path)
    assert not page.all("img")
    assert not page.all("style")
    assert all(has.get("src", "").startswith("/static/") for has in page.all("script"))
    names = {name for _, has in page.elements for name in has}
    assert not {name for name in names if name == "style" or name.startswith(("on", "hx-on", "hx-vals", "hx-vars"))}


def test_hostile_message_is_found_and_marked(hostile: Browser) -> None:
    """What was sent is what is shown, with the word marked, and it leads to the message."""
    page = hostile.page("/search?q=NEEDLE")
    message = hostile.daemon.call("search", text="needle")["messages"][0]
    assert len(page.all("mark")) == 1
    assert f"needle {HOSTILE}"[:40] in page.said
    link = page.all("a", class_="result")[0]["href"]
    assert link.endswith(f"#{message['id']}")
    assert hostile.page(link.partition("#")[0]).all("li", id=message["id"])


def test_search_can_be_narrowed_and_says_when_nothing_is_left(browser: Browser) -> None:
    """An empty list without a word would look like a fault."""
    browser.daemon.call("send", text="the build is red", channel="ci", sender="robot")
    browser.daemon.call("send", text="the door is red", channel="home")
    for path, count in {
        "/search?q=red": 2,
        "/search?q=red&channel=ci": 1,
        "/search?q=red&sender=robot": 1,
        "/search?q=red+door": 1,
        "/search?q=red&mailbox=replies": 0,
    }.items():
        assert len(browser.page(path).all("a", class_="result")) == count, path
    page = browser.page("/search?q=red&mailbox=replies")
    assert "No message contains all these words" in page.said
    assert page.all("a", href="/search?q=red")


def test_search_that_is_too_long_is_told_in_the_page(browser: Browser) -> None:
    """The person sees why, in the place where results would be."""
    assert "at most 300 characters" in browser.page(f"/search?q={'x' * 301}").said


def test_agent_is_shown_with_the_way_that_was_proven(browser: Browser) -> None:
    """That a way is there is a claim; that something came through it is evidence, and is told apart."""
    with EdgeClient(edge_command(browser.daemon.home), name="some-agent") as agent:
        agent.handshake()
        page = browser.page("/sessions")
        assert "some-agent connected" in page.said
        assert "when it asks not used yet" in page.said
        browser.daemon.call("send", text="is this seen?")
        agent.tool("inbox_pull")
        assert "when it asks unproven" in browser.page("/sessions").said
        agent.tool("inbox_pull")
        page = until(lambda: _proven(browser), "the later call proves it")
        assert "last proof" in page.said
    page = until(lambda: _absent(browser), "the session is gone")
    assert "Not here now" in page.said


def test_agent_is_shown_with_what_it_was_not_given(daemon: Served) -> None:
    """Who wonders why an agent does not know of something finds that here, and the way to it."""
    daemon.home.mkdir(parents=True, exist_ok=True)
    (daemon.home / "config.toml").write_text("[limits]\nnew_consumer_most = 1\n")
    browser = Browser(daemon.start())
    for text in ("one", "two", "three"):
        daemon.call("send", text=text)
    with EdgeClient(edge_command(daemon.home), name="some-agent") as agent:
        agent.tool("inbound_queue_stats")
        page = browser.page("/sessions")
    assert "Not given when it began, of inbox : 2 too many." in page.said
    [link] = [has["href"] for has in page.all("a") if "?at=" in has.get("href", "")]
    assert browser.page(link).all("li", id=daemon.call("read", ref="#2")["message"]["id"])


def test_agent_that_reads_nothing_is_shown_with_the_reason(browser: Browser) -> None:
    """It was started for a task that is not there: nobody else would say why no mail arrives."""
    with EdgeClient([*edge_command(browser.daemon.home), "--task", "nowhere"], name="some-agent") as agent:
        agent.request("tools/list", {})
        assert "Reads nothing: There is no task 'nowhere'" in browser.page("/sessions").said


def test_a_session_says_what_it_is_subscribed_to(browser: Browser) -> None:
    """The filter is the agent's own text: it is shown as such, and the person sees what the agent is told of."""
    wanted = {"name": "message.received", "arguments": {"text": HOSTILE}}
    with EdgeClient(edge_command(browser.daemon.home), name="claude-code") as agent:
        assert "Subscribed" not in browser.page("/sessions").said
        agent.request("events/poll", wanted)
        page = browser.page("/sessions")
        assert f"Subscribed to message.received by poll (text {HOSTILE}) , told 0." in page.said
        assert page.all("img") == []


def _proven(browser: Browser) -> Page | None:
    page = browser.page("/sessions")
    return page if page.all("li", class_="way way-proven") else None


def _absent(browser: Browser) -> Page | None:
    page = browser.page("/sessions")
    return page if "No agent is here now" in page.said else None


def test_pulse_shows_the_same_numbers_as_a_table(browser: Browser) -> None:
    """Who does not see the chart gets what it shows: a name, one sentence, and every number."""
    for channel, count in {"ci": 3, "teams": 1}.items():
        for n in range(count):
            browser.daemon.call("send", text=f"{channel} {n}", channel=channel)
    page = browser.page("/pulse")
    assert "4 messages in the last 24 hours" in page.said
    assert "ci 3, teams 1." in page.said
    assert "All 3 1 4" in page.said
    assert len(page.all("th", scope="row")) == 25
    pictures = page.all("svg", role="img")
    named = {has["id"] for tag in ("title", "desc") for has in page.all(tag) if "id" in has}
    assert pictures
    assert all(set(picture["aria-labelledby"].split()) <= named for picture in pictures)


def test_task_is_shown_beside_its_peers(browser: Browser, tmp_path: Path) -> None:
    """Two agents that work on one thing are read side by side, each with its own mail and field."""
    browser.task(tmp_path, "back", prompt="begin with the schema")
    browser.task(tmp_path, "front", links=["back"])
    page = browser.page("/t/back")
    assert [has["id"] for has in page.all("h2") if has.get("id", "").startswith("name-")] == ["name-back", "name-front"]
    assert "begin with the schema" in page.said
    assert "harken task start front" in page.said
    assert [has["value"] for has in page.all("input", name="mailbox")] == ["task:back", "task:front"]


def test_form_of_a_task_works_without_scripts_and_sends_once(browser: Browser, tmp_path: Path) -> None:
    """A person who sends again, because no answer came, has not said it twice."""
    browser.task(tmp_path, "back")
    page = browser.page("/t/back")
    fields = {has["name"]: has["value"] for has in page.all("input", type="hidden")}
    assert [has["action"] for has in page.all("form", method="post") if "data-board" in has] == ["/do/send"]
    for _ in range(2):
        status, leads_to = browser.post("/do/send", {**fields, "text": "keep the old endpoint"})
        assert (status, leads_to.startswith("/m/task:back")) == (303, True)
    assert len(browser.daemon.call("list", mailbox="task:back")["messages"]) == 1


def test_done_task_takes_no_more_mail_and_is_listed_on_demand(browser: Browser, tmp_path: Path) -> None:
    """Done work is out of the way, not gone."""
    browser.task(tmp_path, "back")
    browser.task(tmp_path, "front")
    browser.daemon.call("task_done", task="back")
    open_ones = browser.page("/tasks")
    assert "Task back" not in open_ones.said
    assert open_ones.all("a", href="/tasks?all=1")
    assert "Task back" in browser.page("/tasks?all=1").said
    page = browser.page("/t/back")
    assert "it takes no more mail" in page.said
    assert not page.all("form", method="post", action="/do/send")


def test_unknown_task_is_a_page_that_says_which_exist(browser: Browser, tmp_path: Path) -> None:
    """An old link leads to something one can go on from."""
    browser.task(tmp_path, "back")
    assert "The tasks are: back." in browser.page("/t/nothing", status=404).said


@pytest.mark.parametrize("path", [*PANELS, "/t/one"])
def test_panels_are_for_signed_in_people_only(hostile: Browser, path: str) -> None:
    """Every account of the machine can open the port: what it gets is the same for every address, and holds nothing."""
    ticket = re.compile('content="[0-9]+[^"]+"')
    shells = [ticket.sub("", hostile.web.ask("GET", each, NAVIGATION).text) for each in (path, "/no-such-page")]
    assert shells[0] == shells[1]
    assert "session.js" in shells[0]
    for headers in ({}, {"Accept": "*/*", "HX-Request": "true"}):
        assert hostile.web.ask("GET", path, headers).status == 401
