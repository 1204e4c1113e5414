"""What people come to the page for, from the beginning to the end, in a real browser.

Each story is played on a screen of one size and in one scheme, with a reload and a restart of the daemon in the middle;
`make soak` plays them on every screen in both. Nothing serious may be wrong with any page they stop at, and the browser
may complain of nothing but the daemon that was away.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.mail import ALERTS, ANNA, CI, GITHUB, STRANGER, TOM, day_of_mail
from tests.browser.mail import said as mail
from tests.browser.rig import AWAY, DESK, PHONE, Json, SignedInBrowser, Site, Window, only_expected, said
from tests.browser.test_accessibility import AXE, Scheme, violations
from tests.fake_host import Machine
from tests.loss.rig import WAIT_SECONDS, DaemonStarter
from tests.web import rules_rig
from tests.web.rules_rig import machine

__all__ = ["machine"]

F = TypeVar("F", bound=Callable[..., None])
LOOKS: Final[tuple[tuple[str, Scheme], ...]] = (
    ("desk", "light"),
    ("phone", "dark"),
    ("desk", "dark"),
    ("phone", "light"),
)
SCREENS: Final[dict[str, Json]] = {
    "desk": {"viewport": DESK},
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True},
}
ROWS_ON_A_SCREEN: Final = 16
REFUSED: Final = "422"  # what cannot be done is said on the page
SHARED: Final = "correct-horse-battery-staple"


def story(usual: int) -> Callable[[F], F]:
    """Play a story on one screen in every run of the tests, and on all of them in `make soak`."""
    mark = pytest.mark
    looks = [
        pytest.param(look, id="-".join(look), marks=mark.story if number == usual % len(LOOKS) else mark.soak)
        for number, look in enumerate(LOOKS)
    ]
    return pytest.mark.parametrize("look", looks)


@dataclass
class Visit:
    """A window of a story, and what happens around it."""

    site: Site
    window: Window
    scheme: Scheme
    is_phone: bool

    @property
    def rows(self) -> Locator:
        """The conversations of the list."""
        return self.window.page.locator("#rows > .row")

    @property
    def toast(self) -> Locator:
        """What was said about what was done."""
        return self.window.page.locator("#toast")

    def row(self, text: str) -> Locator:
        """The row of a conversation."""
        return self.rows.filter(has_text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.window.page.keyboard.press(key)

    def interrupt(self) -> None:
        """Load the page again, and let the daemon be killed and come back while it is open."""
        self.window.reload()
        self.site.daemon.kill()
        self.site.restart()
        expect(self.window.page.locator("#connection")).to_be_hidden()

    def check(self) -> None:
        """Look whether anything is wrong with the page as it is."""
        assert self.window.overflow() <= 0
        if AXE.exists():
            assert violations(self.window.page, AXE.read_text(), self.scheme) == []

    def finish(self) -> None:
        """Look whether anything was wrong on the way."""
        assert self.window.strangers() == []
        assert only_expected(self.window.complaints, (*AWAY, REFUSED)) == []


@pytest.fixture
def visit(site: Site, look: tuple[str, Scheme]) -> Iterator[Callable[[], Visit]]:
    """Begins a visit when what came before is there."""
    screen, scheme = look
    begun: list[Visit] = []

    def begin() -> Visit:
        window = site.window("/conversations", color_scheme=scheme, **SCREENS[screen])
        begun.append(Visit(site, window, scheme, screen == "phone"))
        return begun[-1]

    yield begin
    for each in begun:
        each.finish()


def texts(rows: Locator) -> Sequence[str]:
    """Return what the rows are about."""
    return said(rows.locator(".row-text"))


@story(0)
def test_from_signing_in_to_an_empty_inbox(site: Site, visit: Callable[[], Visit]) -> None:
    """It is what an inbox is for: everything is decided about, and what comes back has a reason."""
    site.store([*day_of_mail(40), mail(CI, "build 900 failed"), mail(TOM, "lunch?", "chat-lunch")])
    here = visit()
    if not here.is_phone:
        last = here.rows.nth(ROWS_ON_A_SCREEN - 1).bounding_box()
        assert last
        assert last["y"] + last["height"] <= DESK["height"], "a screen shows sixteen conversations"
    here.check()
    here.press("j", "e")
    expect(here.toast).to_contain_text("1 conversation is done.")
    expect(here.row("lunch?")).to_have_count(0)
    expect(here.row("build 900")).to_be_focused()
    here.press("z")
    expect(here.row("lunch?")).to_have_class(re.compile("is-unread"))
    here.interrupt()
    here.press("j", "x", "j", "x", "s")
    here.window.page.get_by_role("button", name="Tomorrow").press("Enter")
    expect(here.toast).to_contain_text("2 conversations are put off until")
    expect(here.row("lunch?")).to_have_count(0)
    while count := here.rows.count():
        for _ in range(count):
            here.press("j", "x")
        here.press("e")
        expect(here.rows.filter(has=here.window.page.locator(":checked"))).to_have_count(0)
        expect(here.toast).to_contain_text("done")
        here.window.reload()
    expect(here.window.page.locator(".rows-empty")).to_contain_text("Nothing left to do")
    here.check()
    site.send("back again", sender="tom", conversation="chat-other")
    expect(here.rows).to_have_count(1)
    here.window.goto("/conversations?view=snoozed")
    assert set(texts(here.rows)) == {"lunch?", "build 900 failed"}


@story(1)
def test_from_an_unknown_sender_to_one_who_is_allowed(site: Site, visit: Callable[[], Visit]) -> None:
    """A stranger is counted and no more, until you say otherwise where you read it; and that can be undone."""
    site.store([mail(STRANGER, "I am your new colleague")])
    here = visit()
    row = here.row("colleague")
    expect(row).to_contain_text("not pushed: unknown sender")
    here.check()
    here.interrupt()
    row.get_by_role("button", name="Allow").press("Enter")
    expect(here.toast).to_contain_text("offers@example.net of mail may reach your agents from now on.")
    assert [(each["sender"], each["trust"]) for each in site.daemon.call("status")["senders"]] == [
        ("offers@example.net", "known")
    ]
    expect(row).to_contain_text("not pushed: allowed since then")
    expect(row.get_by_role("button", name="Allow")).to_have_count(0)
    here.press("z")
    expect(here.toast).to_contain_text("nothing is decided about them")
    assert site.daemon.call("status")["senders"] == []
    expect(row).to_contain_text("not pushed: unknown sender")
    row.locator(".row-what").press("Enter")
    here.window.page.wait_for_url("**/conversation?**")
    here.window.ready()
    item = here.window.items.first
    item.get_by_role("button", name="Allow").press("Enter")
    expect(item).to_contain_text("not pushed: allowed since then")


@story(2)
def test_from_a_question_to_its_answer(site: Site, visit: Callable[[], Visit]) -> None:
    """Somebody waits; you read all of it, answer, and are done, without leaving the keys."""
    site.store([mail(ALERTS, "disk full", "disk"), mail(ALERTS, "disk still full", "disk")])
    site.send("Can we ship?", sender="anna", conversation="release")
    here = visit()
    expect(here.row("disk still full").locator(".row-count")).to_have_text("2")
    here.press("j", "r")
    here.window.ready()
    expect(here.window.field).to_be_focused()
    expect(here.window.page.locator("#replying")).to_contain_text("Can we ship?")
    here.check()
    here.window.field.fill("Yes, today.")
    here.interrupt()
    expect(here.window.field).to_have_value("Yes, today.")
    here.window.field.press("Enter")
    expect(here.window.page.locator(".reply-row")).to_contain_text("Yes, today.")
    here.press("Escape", "e")
    here.window.page.wait_for_url("**/conversations")
    here.window.ready()
    expect(here.toast).to_contain_text("1 conversation is done.")
    assert texts(here.rows) == ["disk still full"]
    here.press("j", "u")
    expect(here.toast).to_contain_text("read")


@story(3)
def test_from_a_full_list_to_what_is_for_you(site: Site, visit: Callable[[], Visit]) -> None:
    """Machines say much; what people and agents want of you is one step away, and so is what you have not read."""
    site.store(
        [*(mail(CI, f"build {n}") for n in range(60)), mail(ANNA, "Can you look?", "a"), mail(GITHUB, "PR", "p")]
    )
    here = visit()
    expect(here.rows).to_have_count(50)
    here.window.page.get_by_role("link", name="Older").scroll_into_view_if_needed()
    expect(here.rows).to_have_count(62)
    here.interrupt()
    here.window.page.get_by_role("link", name="For you", exact=True).press("Enter")
    here.window.page.wait_for_url("**view=for-you")
    here.window.ready()
    assert texts(here.rows) == ["Can you look?"]
    expect(here.row("Can you look?")).to_contain_text("person")
    here.press("j", "Enter")
    here.window.page.wait_for_url("**/conversation?**")
    here.window.ready()
    expect(here.window.items).to_have_count(1)
    here.check()
    here.press("g", "i")
    here.window.page.wait_for_url("**/conversations")
    here.window.goto("/conversations?view=unread")
    expect(here.row("Can you look?")).to_have_count(0)
    density = here.window.page.get_by_role("button", name="Density of the list")
    density.press("Enter")
    expect(here.window.page.locator("body")).to_have_attribute("data-density", "compact")
    here.window.reload()
    expect(here.window.page.locator("body")).to_have_attribute("data-density", "compact")


@story(4)
def test_from_what_needs_you_to_nothing(site: Site, visit: Callable[[], Visit]) -> None:
    """One list, the oldest first, each with what to do; what you put away stays away, and can be had back."""
    site.store([mail(ANNA, "Can we ship?", "chat"), mail(STRANGER, "Buy this")])
    here = visit()
    page, entries = here.window.page, here.window.page.locator(".need")
    expect(page).to_have_title(re.compile(r"^\(2\) "))
    assert "icon-asking" in (page.locator("link[rel=icon]").get_attribute("href") or "")
    here.press("g", "n")
    page.wait_for_url("**/needs")
    here.window.ready()
    expect(entries).to_have_count(2)
    assert next(text.split(" waits")[0] for text in said(page.locator(".need-said"))) == "Anna Berg"
    here.check()
    entries.nth(1).get_by_role("button", name="Put away").press("Enter")
    expect(entries).to_have_count(1)
    here.press("z")
    expect(entries).to_have_count(2)
    here.interrupt()
    entries.nth(1).get_by_role("button", name="Deny").press("Enter")
    expect(here.toast).to_contain_text("only counted")
    expect(entries).to_have_count(1)
    here.press("z")
    expect(entries).to_have_count(2)
    entries.nth(1).get_by_role("button", name="Deny").press("Enter")
    expect(entries).to_have_count(1)
    entries.nth(0).get_by_role("button", name="No answer needed").press("Enter")
    expect(page.locator(".empty")).to_contain_text("Nothing needs you")
    expect(page).not_to_have_title(re.compile(r"^\("))
    here.window.reload()
    expect(page.locator(".empty")).to_contain_text("Nothing needs you")


@pytest.fixture
def alarmed(
    browser: Browser,
    signed_in: SignedInBrowser,
    machine: Machine,
    tmp_path_factory: pytest.TempPathFactory,
    look: tuple[str, Scheme],
) -> Iterator[Visit]:
    """A visit to a machine on which an agent can run, with an alert."""
    folder = tmp_path_factory.mktemp("h")
    screen, scheme = look
    with machine.daemon(folder / "home") as daemon, ExitStack() as stack:
        rules_rig.ruled(daemon.start())
        site = Site(browser, daemon, folder, stack, signed_in)
        site.send("disk of db-1 is full", sender="monitor", channel="alerts")
        window = site.window("/conversations", color_scheme=scheme, **SCREENS[screen])
        here = Visit(site, window, scheme, screen == "phone")
        yield here
        here.finish()


@story(5)
def test_from_an_alert_to_a_rule_to_a_run(alarmed: Visit) -> None:
    """What comes again and again is handed to an agent: tried on what is stored, put in force, asked, and run."""
    here, page = alarmed, alarmed.window.page
    here.press("j", "Enter")
    page.wait_for_url("**/conversation?**")
    here.window.ready()
    here.press("j", "o")
    page.get_by_role("link", name="Make a rule of this").press("Enter")
    page.wait_for_url("**/rule")
    here.window.ready()
    here.interrupt()
    page.get_by_label("Text").fill("disk .* full")
    page.get_by_label("Then").select_option("confirm")
    page.get_by_label("Agent").select_option("gemini-cli")
    here.check()
    page.get_by_role("button", name="Try it on stored mail").press("Enter")
    expect(page.locator("#tried-title")).to_contain_text("It would have fired 1 time for")
    assert "alerts" not in [rule["name"] for rule in here.site.daemon.call("rules")["rules"]]
    page.get_by_role("button", name="Put it in force").press("Enter")
    page.wait_for_url("**/rules#rule-alerts")
    here.window.ready()
    expect(page.locator("#rule-alerts")).to_contain_text("disk .* full")
    here.site.send("disk of db-2 is full", sender="monitor", channel="alerts")
    expect(page.locator(".ask")).to_contain_text("disk of db-2 is full")
    here.window.goto("/needs")
    page.get_by_role("link", name="Look and answer").press("Enter")
    page.wait_for_url("**/rules#**")
    here.window.ready()
    here.check()
    page.get_by_role("button", name="Accept").press("Enter")
    expect(page.locator(".lately")).to_contain_text("run ")
    page.locator("#rule-alerts").get_by_role("button", name="Remove").press("Enter")
    expect(page.locator("#rule-alerts")).to_have_count(0)


@story(6)
def test_from_anywhere_to_anything_by_the_palette(site: Site, visit: Callable[[], Visit]) -> None:
    """Nobody remembers where everything is: a part of its name is enough, and nothing happens before Enter."""
    for number in range(30):
        site.task(f"t{number}", title=f"Task number {number}")
    site.send("hello", sender="anna", channel="lobby")
    here = visit()
    page, lines = here.window.page, here.window.page.locator("#palette-list li")
    here.interrupt()
    here.press("Control+k")
    expect(lines.filter(has_text="Needs you")).to_have_count(1)
    here.check()
    page.keyboard.type("number 27")
    expect(lines).to_have_count(2)
    here.press("Enter")
    page.wait_for_url("**/m/task:t27")
    here.window.ready()
    here.press("Control+k")
    page.keyboard.type("lobby")
    expect(lines.first).to_contain_text("channel of local")
    here.press("ArrowDown", "ArrowUp", "Enter")
    page.wait_for_url("**/c/local/lobby")
    here.window.ready()
    here.press("Control+k")
    page.keyboard.type("hello")
    here.press("Enter")
    page.wait_for_url("**/search?q=hello")
    here.window.goto("/conversations")
    here.press("j", "Control+k")
    page.keyboard.type("density")
    here.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-density", "compact")


@story(7)
def test_from_nothing_to_a_task_that_answered(site: Site, visit: Callable[[], Visit]) -> None:
    """A piece of work begins in the page and its answer ends there: folder, prompt, agent, reply."""
    folder = site.folder / "shop"
    folder.mkdir()
    here = visit()
    page = here.window.page
    here.press("Control+k")
    page.keyboard.type("new task")
    here.press("Enter")
    page.wait_for_url("**/tasks/new")
    here.window.ready()
    here.check()
    here.interrupt()
    page.get_by_label("Title").fill("Fix the checkout")
    page.get_by_label("Folder", exact=True).fill(str(folder))
    page.get_by_label("What to do").fill("The total is wrong.")
    page.get_by_role("button", name="Create the task").press("Enter")
    expect(page.get_by_text("harken task start fix-checkout")).to_be_visible()
    page.get_by_role("link", name="Open the task").press("Enter")
    page.wait_for_url("**/t/fix-checkout")
    here.window.ready()
    agent = site.agent(task="shop")
    (told,) = agent.tool("inbox_pull")["messages"]
    expect(page.locator(".item .ledger").first).to_contain_text("offered")
    agent.tool("reply", message_id=told["id"], body="It rounds up now.")
    expect(page.get_by_text("It rounds up now.").first).to_be_visible()
    here.check()
    here.window.goto("/conversations?view=for-you")
    expect(here.row("It rounds up now.")).to_have_count(1)


@story(8)
def test_from_a_form_to_the_first_message_of_a_source(visit: Callable[[], Visit]) -> None:
    """What posts to you is set up without a terminal; it is tried, heard, and can be taken out and put back."""
    here = visit()
    page = here.window.page
    here.window.goto("/sources")
    page.get_by_role("link", name="Add a source").press("Enter")
    page.wait_for_url("**/sources/new")
    here.window.ready()
    here.check()
    page.get_by_role("link", name="Webhook").press("Enter")
    page.wait_for_url("**/sources/new/webhook")
    here.window.ready()
    here.interrupt()
    page.get_by_label("Name", exact=True).fill("builds")
    page.get_by_role("button", name="Add it").press("Enter")
    expect(page.locator("#told")).to_contain_text("Preset is missing.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("builds")
    page.get_by_label("Preset").select_option("generic")
    page.get_by_label("Secret").fill(SHARED)
    here.check()
    page.get_by_role("button", name="Add it").press("Enter")
    expect(page.get_by_text("Harken is listening to it.")).to_be_visible()
    address = re.search(r"Address: (\S+)", page.locator("#main").inner_text())
    assert address
    page.get_by_role("button", name="Try it").press("Enter")
    expect(page.locator("#told")).to_contain_text("Tried: listening.")
    here.check()
    assert SHARED not in page.content()
    _post(address[1], b'{"text": "build 7 is red"}')
    here.window.goto("/conversations")
    expect(here.row("build 7 is red")).to_have_count(1)
    here.window.goto("/source/builds")
    page.get_by_role("button", name="Remove it").press("Enter")
    expect(page.locator("#told")).to_contain_text("builds is taken out of config.toml")
    page.get_by_role("button", name="Undo").press("Enter")
    expect(page.locator("#source-builds")).to_contain_text("listening")
    here.window.goto("/conversations")
    _post(address[1], b'{"text": "build 8 is green"}')
    expect(here.row("build 8 is green")).to_have_count(1)


def _post(address: str, body: bytes) -> None:
    """Post as a service does that was told the secret."""
    signed = hmac.new(SHARED.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Signature": signed, "Content-Type": "application/json"}
    place = urlsplit(address)
    with closing(HTTPConnection(place.netloc, timeout=WAIT_SECONDS)) as there:
        there.request("POST", place.path, body, headers)
        assert there.getresponse().status == 202


@story(9)
def test_from_a_plan_to_an_agent_that_is_connected(
    browser: Browser, signed_in: SignedInBrowser, starter: DaemonStarter, look: tuple[str, Scheme], tmp_path: Path
) -> None:
    """Settings of an agent are changed only as you have seen it, and are as before when it is disconnected."""
    screen, scheme = look
    settings = tmp_path / "user" / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('# mine\nmodel = "x"\n')
    home = tmp_path / "home"
    environ = {"HOME": str(tmp_path / "user"), "PATH": os.defpath}
    signed_in.introduce(home)
    with starter.daemon(home, environ) as daemon, ExitStack() as stack:
        site = Site(browser, daemon.start(), tmp_path, stack, signed_in)
        window = site.window("/sessions", color_scheme=scheme, **SCREENS[screen])
        here, page = Visit(site, window, scheme, screen == "phone"), window.page
        page.locator("#connect-agent").press("Enter")
        page.wait_for_url("**/agents")
        here.window.ready()
        here.check()
        page.get_by_role("link", name="Codex").press("Enter")
        page.wait_for_url("**/agents/codex")
        here.window.ready()
        expect(page.locator(".diff-added").filter(has_text="[mcp_servers.harken]").first).to_be_visible()
        here.check()
        here.interrupt()
        settings.write_text('# mine\nmodel = "y"\n')
        page.get_by_role("button", name="Connect").press("Enter")
        expect(page.locator("#told")).to_contain_text("has changed since you looked")
        page.get_by_role("button", name="Connect").press("Enter")
        expect(page.locator("#told")).to_contain_text("Codex is connected.")
        assert "[mcp_servers.harken]" in settings.read_text()
        here.check()
        page.get_by_role("button", name="Disconnect").press("Enter")
        expect(page.locator("#told")).to_contain_text("Codex is disconnected.")
        assert settings.read_text() == '# mine\nmodel = "y"\n'
        here.finish()
