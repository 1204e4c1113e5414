"""The page, asked as a browser asks: what it shows is true, hostile text stays text, and what is sent is sent once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlencode

import anyio
import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from harken.config.home import Home, ensure
from harken.model import CUT_FROM, MessageKind, NewMessage, Sender
from harken.store.sqlite import open_store
from harken.surfaces.web.shell import static_files
from harken.testing import EdgeClient, FakeClock, edge_command
from tests.builders import a_new_message
from tests.loss.rig import Served, until
from tests.web.rig import NAVIGATION, Answer, Web

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)><style>p{}</style>{{ 7+7 }}'
STATIC = Path(__file__).parents[2] / "src" / "harken" / "surfaces" / "web" / "page" / "static"


class Browser:
    """A signed-in browser without a screen."""

    def __init__(self, daemon: Served) -> None:
        self.daemon = daemon
        self.web = Web(daemon)
        self._session = self.web.signed_in()

    def get(self, path: str, status: int = 200, **headers: str) -> Answer:
        """Ask for an address as a person does who enters it."""
        answer = self.web.ask("GET", path, {**NAVIGATION, **self._session, **headers})
        assert answer.status == status, answer.text
        return answer

    def page(self, path: str, status: int = 200) -> LexborHTMLParser:
        """Open a page or a part of one."""
        answer = self.get(path, status)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return LexborHTMLParser(answer.text)

    def post(self, path: str, fields: Mapping[str, str], *, is_part: bool = False) -> Answer:
        """Send a form, as the browser itself or as the page's script does."""
        own = {"Origin": self.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
        script = {"HX-Request": "true"} if is_part else NAVIGATION
        return self.web.ask("POST", path, {**self._session, **own, **script}, urlencode(fields).encode())

    def send(self, text: str, **more: str) -> str:
        """Let somebody say something; return the message's id."""
        return str(self.daemon.call("send", text=text, **more)["id"])

    def texts(self, mailbox: str = "inbox") -> list[str]:
        """Return what is stored in a mailbox, oldest first."""
        found = self.daemon.call("list", mailbox=mailbox, limit=1000)["messages"]
        return [message["content_text_sanitized"] for message in found]


def one(tree: LexborHTMLParser, selector: str) -> LexborNode:
    """Return the first of some elements."""
    node = tree.css_first(selector)
    assert node is not None, selector
    return node


def said(tree: LexborHTMLParser, selector: str) -> str:
    """Return what an element says, on one line."""
    return " ".join(one(tree, selector).text().split())


def ids(tree: LexborHTMLParser) -> list[str]:
    """Return the messages that are shown, in order."""
    return [node.attributes["id"] or "" for node in tree.css(".item")]


@pytest.fixture
def browser(daemon: Served) -> Browser:
    """A signed-in browser at a daemon in which nothing has happened."""
    return Browser(daemon.start())


def test_page_can_be_installed_and_an_address_of_nothing_leads_back(browser: Browser) -> None:
    """A manifest whose icon is not served is none; and nobody should have to edit an address to get out."""
    link = one(browser.page("/m/inbox"), "link[rel=manifest]").attributes["href"] or ""
    manifest = browser.get(link).json
    assert (manifest["start_url"], manifest["display"]) == ("/", "standalone")
    for icon in manifest["icons"]:
        assert browser.get(icon["src"]).headers["content-type"] == "image/svg+xml"
    assert one(browser.page("/no-such-page", 404), "a").attributes["href"] == "/"


def test_start_page_is_the_inbox_and_says_what_to_do_first(browser: Browser) -> None:
    """Whoever opens the page for the first time sees nothing of their own: it says how to begin."""
    assert browser.get("/", 303).headers["location"] == "/conversations"
    empty = browser.page("/m/inbox")
    assert "harken connect claude-code" in said(empty, ".empty")
    assert 'harken send "hello"' in said(empty, ".empty")
    assert "harken task new" in said(empty, "[aria-label=Tasks]")
    assert said(empty, "#outlook") == "Your message waits for the next session: none is connected now."


def test_timeline_has_the_newest_at_the_bottom_with_its_ledger(browser: Browser) -> None:
    """People read downwards, and beside each message they see what became of it."""
    sent = [browser.send(f"message {number}") for number in range(3)]
    with EdgeClient(edge_command(browser.daemon.home, "claude-code"), name="claude-code") as agent:
        agent.tool("inbox_pull")
        agent.tool("inbox_status")
        until(lambda: "seen by" in said(browser.page("/m/inbox"), f"#ledger-{sent[0]} summary"), "proof")
        shown = browser.page("/m/inbox")
        assert ids(shown) == sent
        assert re.fullmatch(r"seen by claude-code \d\d:\d\d UTC it asked", said(shown, f"#ledger-{sent[2]} summary"))
        agent.tool("reply", message_id=sent[1], body="Understood.")
    part = browser.page(f"/part/item/{sent[1]}")
    assert ids(part) == [sent[1]]
    assert "claude-code answered" in said(part, ".reply-row")
    assert said(part, f"#ledger-{sent[1]} summary").startswith("answered by claude-code")


def test_older_messages_are_loaded_in_parts_and_none_is_missing(browser: Browser) -> None:
    """A page shows a bounded number; the rest is one step away, with scripts and without."""
    sent = [browser.send(f"message {number}") for number in range(120)]
    page = browser.page("/m/inbox")
    shown = ids(page)
    while (older := page.css_first(".older a")) is not None:
        assert browser.page(f"/m/inbox{older.attributes['href']}").css(".item")
        page = browser.page(older.attributes["hx-get"] or "")
        shown = [*ids(page), *shown]
    assert shown == sent


def test_what_is_new_is_given_after_a_position(browser: Browser) -> None:
    """An open page asks only for what it does not show yet."""
    browser.send("before")
    newest = one(browser.page("/m/inbox"), "#items").attributes["data-newest"]
    assert ids(browser.page(f"/part/items?mailbox=inbox&after={newest}")) == []
    new = browser.send("after")
    answer = browser.get(f"/part/items?mailbox=inbox&after={newest}")
    assert ids(LexborHTMLParser(answer.text)) == [new]
    assert int(answer.headers["harken-newest"]) == int(newest or 0) + 1


def test_address_of_a_message_shows_it_among_its_neighbours(browser: Browser) -> None:
    """A link to a message must work however much was said since, and must not pretend to be up to date."""
    sent = [browser.send(f"message {number}") for number in range(120)]
    location = browser.get(f"/message/{sent[10]}", 303).headers["location"]
    assert location.endswith(f"#{sent[10]}")
    page = browser.page(location.partition("#")[0])
    assert sent[10] in ids(page)
    assert one(page, "#items").attributes["data-newest"] == ""
    assert said(page, "main").endswith("Send")
    assert "Go to the newest" in said(page, "main")
    recent = browser.get(f"/message/{sent[119]}", 303).headers["location"].partition("#")[0]
    assert ids(browser.page(recent)) == sent[70:]


def test_message_that_is_sent_twice_is_stored_once(browser: Browser) -> None:
    """After an answer that never came people send again: the message must not arrive twice, nor a changed one never."""
    fields = {"mailbox": "inbox", "text": "deploy now\r\nplease", "key": "k1", "priority": "high"}
    first = browser.post("/do/send", fields, is_part=True)
    assert (first.status, first.headers["hx-trigger"]) == (200, "sent")
    assert "Sent. It waits for the next session" in " ".join(first.text.replace("</span>", "").split())
    again = browser.post("/do/send", fields, is_part=True)
    assert "Sent before." in again.text
    browser.post("/do/send", {**fields, "text": "do not deploy"}, is_part=True)
    assert browser.texts() == ["deploy now\nplease", "do not deploy"]
    stored = browser.daemon.call("list", limit=1)["messages"][0]
    assert (stored["priority"], stored["trust"], stored["channel"]) == ("high", "owner", "page")


def test_form_works_without_scripts(browser: Browser) -> None:
    """The page must send even where a script did not load."""
    form = one(browser.page("/m/inbox"), "form#composer")
    fields = {
        node.attributes["name"] or "": node.attributes.get("value") or "" for node in form.css("input[type=hidden]")
    }
    answer = browser.post(form.attributes["action"] or "", {**fields, "text": "hello"})
    assert (answer.status, answer.headers["location"]) == (303, "/m/inbox")
    assert browser.texts() == ["hello"]


def test_answer_goes_where_the_message_came_from(browser: Browser) -> None:
    """Replying in the page is the same use case as everywhere else."""
    with EdgeClient(edge_command(browser.daemon.home, "claude-code"), name="claude-code") as agent:
        question = browser.send("which branch?")
        agent.tool("inbox_pull")
        agent.tool("reply", message_id=question, body="main, or release?")
        until(lambda: browser.texts("replies") == ["main, or release?"], "the answer")
        page = browser.page("/m/replies")
        assert "Reply" in said(page, "#why-not")
        answer = ids(page)[0]
        told = said(browser.page(f"/part/forecast?ref={answer}"), "body")
        assert told == "Your answer goes to the inbox, where claude-code reads."
        fields = {"ref": answer, "mailbox": "replies", "text": "release", "key": "k1"}
        for _ in range(2):
            assert "Answered." in browser.post("/do/send", fields, is_part=True).text
        until(lambda: browser.texts() == ["which branch?", "release"], "the reply")


def test_what_cannot_be_sent_is_said_in_a_line(browser: Browser) -> None:
    """The person keeps the text and learns what to do; nothing is stored."""
    for fields, status in [
        ({"mailbox": "replies", "text": "hello"}, 422),
        ({"mailbox": "inbox", "text": "  "}, 422),
        ({"mailbox": "inbox", "text": "hello", "priority": "urgent"}, 422),
        ({"mailbox": "task:none", "text": "hello"}, 404),
        ({"ref": "m-none", "text": "hello"}, 404),
        ({"text": "hello"}, 422),
    ]:
        answer = browser.post("/do/send", fields, is_part=True)
        assert answer.status == status
        assert answer.text.startswith('<span class="problem" role="alert">')
        assert "hx-trigger" not in answer.headers
        assert browser.texts() == []


def test_showing_a_timeline_marks_it_as_seen_only_when_the_page_says_so(browser: Browser) -> None:
    """A page that is loaded in the background has shown nobody anything."""
    browser.send("hello", sender="ann")
    assert browser.page("/m/inbox").css_first("#place-inbox .unread") is not None
    newest = one(browser.page("/m/inbox"), "#items").attributes["data-newest"] or ""
    assert browser.post("/do/seen", {"mailbox": "inbox", "up_to": newest}, is_part=True).status == 204
    assert browser.page("/part/sidebar").css_first("#place-inbox .unread") is None


def test_everything_can_be_marked_as_seen_where_more_is_new_than_shown(browser: Browser) -> None:
    """What was on no screen stays new until the person says that they are done with it, also without scripts."""
    for number in range(70):
        browser.send(f"message {number}", sender="ann")
    page = browser.page("/m/inbox")
    since = one(page, "#items > .older").attributes["data-before"] or ""
    newest = one(page, "#items").attributes["data-newest"] or ""
    browser.post("/do/seen", {"mailbox": "inbox", "since": since, "up_to": newest}, is_part=True)
    assert "20 you have not seen" in (one(browser.page("/part/sidebar"), "#place-inbox").attributes["title"] or "")

    later = browser.page("/m/inbox")
    fields = {node.attributes["name"] or "": node.attributes["value"] or "" for node in later.css("#all-seen input")}
    assert said(later, "#all-seen button") == "Mark all as seen"
    browser.send("meanwhile", sender="ann")
    answer = browser.post(one(later, "#all-seen").attributes["action"] or "", fields)
    assert (answer.status, answer.headers["location"]) == (303, "/m/inbox")
    after = browser.page("/m/inbox")
    assert "1 you have not seen" in (one(after, "#place-inbox").attributes["title"] or "")
    assert after.css_first("#all-seen") is None


def test_old_part_of_a_timeline_knows_that_newer_ones_are_unseen(browser: Browser) -> None:
    """Whoever follows a link to an old message sees a part; the rest can be marked from there as well."""
    sent = [browser.send(f"message {number}", sender="ann") for number in range(120)]
    past = browser.page(browser.get(f"/message/{sent[10]}", 303).headers["location"])
    shown = ids(past)
    assert one(past, "#items").attributes["data-last"] == str(1 + sent.index(shown[-1]))
    assert one(past, "#all-seen [name=up_to]").attributes["value"] == "120"


def test_badge_counts_what_waits_for_the_agent_of_a_task(browser: Browser, tmp_path: Path) -> None:
    """The number at a task is what its agent has not seen, whoever else has."""
    browser.daemon.call("task_new", title="Fix the login page", id="login", dir=str(tmp_path))
    for number in range(3):
        browser.send(f"message {number}", sender="ci", to="task:login")
    place = one(browser.page("/part/sidebar?here=/m/task:login"), "[id='place-task:login']")
    assert place.attributes["aria-current"] == "page"
    words = "Fix the login page, not started yet, 3 waiting for its agent, 3 you have not seen"
    assert (place.attributes["title"], " ".join(place.text().split())) == (words, words)
    assert said(browser.page("/m/task:login"), "h1") == "Fix the login page"
    browser.daemon.call("task_done", task="login")
    done = browser.page("/m/task:login")
    assert said(done, "#task-note").startswith("done")
    assert said(done, "#why-not") == "This task is done and accepts no more messages."
    browser.daemon.call("task_rm", task="login")
    assert said(browser.page("/m/task:login"), "h1") == "task:login"


def test_hostile_names_and_texts_stay_text(browser: Browser, tmp_path: Path) -> None:
    """Nothing that others can choose may become a part of the page, in whatever place it is shown."""
    browser.daemon.call("task_new", title=HOSTILE, id="bad", dir=str(tmp_path), branch=HOSTILE, prompt=HOSTILE)
    sent = browser.send(HOSTILE, sender=HOSTILE[:100], channel=HOSTILE[:60], to="task:bad")
    clean = browser.page("/m/inbox")
    for path in ("/m/task:bad", "/part/items?mailbox=task:bad", f"/part/item/{sent}", f"/part/text/{sent}"):
        page = browser.page(path)
        assert len(page.css("script")) == (len(clean.css("script")) if path.startswith("/m/") else 0)
        assert not page.css("img, style, iframe, [onerror], [style]")
        assert "alert(1)" in said(page, "body")
        assert "{{ 7+7 }}" in said(page, "body")


def test_sender_who_takes_your_name_is_told_apart(browser: Browser) -> None:
    """A name is the sender's own choice: the page shows the id and the trust beside it."""
    browser.daemon.call("deny", sender="you")
    mine, other = browser.send("mine"), browser.send("other", sender="you")
    page = browser.page("/m/inbox")
    assert said(page, f"#{mine} .sender") == "You"
    assert page.css_first(f"#{mine} .avatar.is-owner") is not None
    assert said(page, f"#{other} .mark-unknown") == "not pushed: unknown sender"
    assert page.css_first(f"#{other} .avatar.is-unknown") is not None


def test_huge_text_is_cut_and_shown_whole_on_demand(browser: Browser) -> None:
    """One message must not push the others away, and nothing of it may be out of reach."""
    sent = browser.send("x" * 10_000)
    cut = one(browser.page("/m/inbox"), f"#text-{sent}")
    assert "10,000 characters" in cut.text()
    assert cut.text().count("x") < 5_000
    path = one(browser.page("/m/inbox"), f"#text-{sent} a.more").attributes["hx-get"] or ""
    assert said(browser.page(path), ".body") == "x" * 10_000


def test_text_of_a_megabyte_is_shown_in_pieces_and_a_cut_is_said(daemon: Served) -> None:
    """A browser that is given all of it at once stands still; and whoever reads the end must know that it is none."""
    home = Home(daemon.home)
    ensure(home)
    lines = "".join(f"line {number:07}\n" for number in range(76_000))
    cut = replace(spoken(lines), meta={CUT_FROM: "1234567"})

    async def fill() -> str:
        async with open_store(home.database, FakeClock()) as store:
            return (await store.messages.append([cut]))[0].message.id

    sent = anyio.run(fill)
    browser = Browser(daemon.start())
    page = browser.page("/m/inbox")
    assert said(page, f"#{sent} .cut-note") == "Cut on arrival: 988,000 of 1,234,567 characters are stored."
    path, found = one(page, f"#text-{sent} a.more").attributes["hx-get"] or "", ""
    while path:
        piece = browser.page(path)
        assert len(one(piece, ".body").text()) <= 100_200
        found += one(piece, ".body .plain").text()
        more = piece.css_first("a.more")
        path = "" if more is None else more.attributes["hx-get"] or ""
    assert found == lines


def test_text_that_is_too_long_is_refused_with_an_offer_for_a_task(browser: Browser, tmp_path: Path) -> None:
    """Nothing is stored; below the reason is the button that sends it as a file, where there is a folder for it."""
    (tmp_path / "shop").mkdir()
    browser.daemon.call("task_new", title="shop", id="shop", dir=str(tmp_path / "shop"))
    text = "日" * 64_001
    plain = browser.post("/do/send", {"mailbox": "inbox", "text": text}, is_part=True)
    assert (plain.status, "as_file" in plain.text, "and this has 64,001" in plain.text) == (413, False, True)
    offered = browser.post("/do/send", {"mailbox": "task:shop", "text": text}, is_part=True)
    assert offered.status == 413
    assert LexborHTMLParser(offered.text).css_first('button[name="as_file"][value="1"]') is not None
    assert (browser.texts(), browser.texts("task:shop")) == ([], [])
    taken = browser.post("/do/send", {"mailbox": "task:shop", "text": text, "as_file": "1"}, is_part=True)
    assert (taken.status, "The text is in .harken/inbox/" in taken.text) == (200, True)
    (file,) = (tmp_path / "shop" / ".harken" / "inbox").glob("*.txt")
    assert file.read_text() == text
    assert file.name in browser.texts("task:shop")[0]


def test_what_does_not_exist_is_said_with_a_way_back(browser: Browser) -> None:
    """A person who follows an old link must see where they are."""
    for path in [
        "/m/nowhere",
        "/m/",
        "/m/task:none",
        "/message/m-none",
        "/part/item/m-none",
        "/part/text/m-none",
        "/part/task/none",
    ]:
        assert browser.page(path, 404).css_first("a[href='/m/inbox']") is not None


def test_position_that_is_none_is_refused(browser: Browser) -> None:
    """What comes in an address is hostile too."""
    for position in ["-1", "x", "1e3", "9" * 40, "٣"]:
        assert browser.get(f"/part/items?mailbox=inbox&before={quote(position)}", 422).status == 422


def test_page_needs_nothing_inline_and_nothing_from_elsewhere(browser: Browser) -> None:
    """The content security policy allows neither: a page that needs them would be broken, or the policy weakened."""
    browser.send("[a](https://e.example) **b**")
    answer = browser.get("/m/inbox")
    page = LexborHTMLParser(answer.text)
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'"
    )
    assert not page.css("style, [style], [onclick], [onload], iframe, object, base")
    loaded = [node.attributes.get("src") or node.attributes.get("href") or "" for node in page.css("script, link")]
    assert [path for path in loaded if not path.startswith("/static/")] == []
    assert all(node.text() == "" for node in page.css("script"))
    for path in loaded:
        file = browser.web.ask("GET", path)
        assert (file.status, file.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert browser.web.ask("GET", path, {"If-None-Match": file.headers["etag"]}).status == 304


def test_only_the_files_of_the_table_are_served(browser: Browser) -> None:
    """No path of the file system may come from a request."""
    for path in [
        "app.css",
        "../routes.py",
        "%2e%2e/routes.py",
        "x/app.css",
        "VENDORED.md",
        "",
        "..%2f..%2fapp.py",
        "%00",
    ]:
        assert browser.web.ask("GET", f"/static/{path}").status == 404


def test_vendored_library_is_the_one_that_is_named() -> None:
    """Whoever looks for what we took from others must find it, unchanged, with its licence."""
    named = (STATIC / "VENDORED.md").read_text()
    assert hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest() in named
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE").read_text()
    assert 'version:"2.0.11"' in (STATIC / "htmx.min.js").read_text()
    assert set(static_files()) >= {"app.css", "app.js", "writing.js", "htmx.min.js", "icon.svg"}


def test_long_answer_can_be_read_whole(browser: Browser) -> None:
    """An answer to a message elsewhere is only here: nothing of it may be out of reach."""
    sent = browser.send("why is it slow?")
    with EdgeClient(edge_command(browser.daemon.home, "claude-code"), name="claude-code") as agent:
        agent.tool("inbox_pull")
        agent.tool("reply", message_id=sent, body="`y` " + "z" * 9_000)
    box = one(browser.page(f"/part/item/{sent}"), ".reply-row .text")
    assert box.css_first("code") is not None
    path = one(browser.page(f"/part/item/{sent}"), ".reply-row a.more").attributes["href"] or ""
    assert said(browser.page(path), ".body") == "y " + "z" * 9_000
    assert browser.get(f"/part/reply/{sent}/none", 404).status == 404


def spoken(
    text: str, kind: MessageKind = MessageKind.MESSAGE, own: bytes | None = None, about: bytes | None = None
) -> NewMessage:
    """Return what Ann says in a channel of a source."""
    return a_new_message(
        text, channel="general", sender=Sender("ann@example.org", "Ann"), kind=kind, dedup_key=own, refers_key=about
    )


def test_edits_deletions_and_answers_are_shown_with_what_they_are_about(daemon: Served) -> None:
    """A message never changes silently: people see the last wording, the earlier ones, and what was taken back."""
    home = Home(daemon.home)
    ensure(home)

    async def fill() -> list[str]:
        async with open_store(home.database, FakeClock()) as store:
            said_so = [
                spoken("at 15:00", own=b"1"),
                spoken("at 15:30", MessageKind.EDIT, about=b"1"),
                spoken("a secret", own=b"2"),
                spoken("", MessageKind.DELETION, about=b"2"),
                spoken("I come", about=b"1"),
            ]
            return [appended.message.id for appended in await store.messages.append(said_so)]

    first, _edit, second, _deletion, answer = anyio.run(fill)
    browser = Browser(daemon.start())
    for path in ("/m/inbox", "/c/teams/general"):
        page = browser.page(path)
        assert ids(page) == [first, second, answer]
        assert said(page, f"#{first} .body") == "at 15:30"
        assert said(page, f"#{first} .edits") == "Edited: show earlier wordings at 15:00"
        assert said(page, f"#{second} .gone") == "Deleted by its sender."
        assert page.css_first(f"#{second} .body") is None
        assert said(page, f"#{second} .edits") == "Show what it said a secret"
        assert said(page, f"#{answer} .quoted") == "Ann: at 15:00"
        assert said(page, f"#{answer} .from") == "teams · general"
    assert "comes from teams" in said(browser.page("/c/teams/general"), "#why-not")
    assert said(browser.page("/part/sidebar?here=/c/teams/general"), "[aria-current]").startswith("general teams")
