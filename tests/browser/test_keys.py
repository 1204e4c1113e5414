"""The page by keyboard: every key that is promised works, the focus is seen, and nothing holds it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.mail import CI, TOM
from tests.browser.mail import said as mail
from tests.browser.rig import Site, Window, said

# Where the focus is, in few words.
FOCUSED = """() => {
  const it = document.activeElement;
  return it.id || it.getAttribute("aria-label") || it.className.toString() || it.tagName;
}"""

# By how many pixels something with the focus is set apart, itself or what stands for it.
OUTLINE = """() => {
  const it = document.activeElement;
  const shown = [it, it.nextElementSibling, it.closest("form")].filter(Boolean);
  return Math.max(...shown.map((each) => {
    const style = getComputedStyle(each);
    const outline = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
    return Math.max(outline, style.boxShadow.includes("0px 0px 0px 1px") ? 1 : 0);
  }));
}"""

MAX_STOPS = 80
PLACES = (
    ("n", "/needs"),
    ("w", "/waiting"),
    ("t", "/tasks"),
    ("s", "/sessions"),
    ("p", "/pulse"),
    ("r", "/rules"),
    ("u", "/runs"),
    ("i", "/conversations"),
    ("m", "/m/inbox"),
)


def focused(page: Page) -> str:
    """Return what has the focus."""
    return str(page.evaluate(FOCUSED))


def listed(page: Page) -> set[str]:
    """Return the keys that the page promises."""
    return {keys.replace("\n", " ") for keys in page.locator("#keys dt").all_inner_texts()}


@pytest.fixture
def window(site: Site) -> Window:
    """An inbox with three messages of somebody else."""
    for number in range(3):
        site.send(f"message {number}", sender="anna", channel="teams")
    window = site.window()
    expect(window.items).to_have_count(3)
    return window


def test_keys_between_messages_and_for_one(window: Window) -> None:
    """Reading and answering without a mouse is what the keys are for."""
    keys, items = window.page.keyboard, window.items
    keys.press("j")
    expect(items.nth(2)).to_be_focused()
    keys.press("k")
    keys.press("k")
    expect(items.nth(0)).to_be_focused()
    keys.press("k")
    expect(items.nth(0)).to_be_focused()
    keys.press("j")
    expect(items.nth(1)).to_be_focused()
    keys.press("ArrowDown")
    expect(items.nth(2)).to_be_focused()
    ledger = items.nth(2).locator(".ledger")
    keys.press("o")
    expect(ledger).to_have_attribute("open", "")
    keys.press("o")
    expect(ledger).not_to_have_attribute("open", "")
    keys.press("r")
    expect(window.field).to_be_focused()
    expect(window.page.locator("#replying")).to_contain_text("message 2")
    keys.press("Escape")
    expect(window.page.locator("#replying")).to_be_hidden()
    keys.press("Escape")
    expect(window.field).not_to_be_focused()


def test_keys_to_places(window: Window) -> None:
    """Two keys lead to every place; letters in a field stay letters."""
    page, keys = window.page, window.page.keyboard
    for key, path in PLACES:
        keys.press("g")
        keys.press(key)
        expect(page).to_have_url(re.compile(f"{path}$"))
        window.ready()
        expect(page.locator("h1")).to_be_visible()
    keys.press("/")
    expect(page.locator("#find")).to_be_focused()
    keys.press("Escape")
    expect(page.locator("#find")).not_to_be_focused()
    keys.press("c")
    expect(window.field).to_be_focused()
    keys.type("gi jkor?/c")
    expect(window.field).to_have_value("gi jkor?/c")
    keys.press("Alt+h")
    expect(page.get_by_role("checkbox", name="High priority")).to_be_checked()
    keys.press("Alt+h")
    expect(page.get_by_role("checkbox", name="High priority")).not_to_be_checked()


def test_dialog_lists_the_keys_that_work_and_closes(window: Window) -> None:
    """A key that is listed and does nothing is worse than none: those below are the ones these tests press."""
    page, dialog = window.page, window.page.locator("#keys")
    page.keyboard.press("?")
    expect(dialog).to_be_visible()
    assert {re.sub(r"\s+", "", keys) for keys in listed(page)} == {
        *("jk", "o", "r", "e", "s", "u", "x", "z", "c", "Enter", "ShiftEnter", "AltH", "/", "CtrlK", "?", "Esc"),
        *("gi", "gm", "gn", "gw", "gt", "gs", "gp", "gr", "gu"),
    }
    page.keyboard.press("j")
    expect(window.items.nth(2)).not_to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Keys")).to_be_focused()


def tab_through(page: Page) -> list[str]:
    """Press Tab until the page is left; return what had the focus, each of which must be seen to have it."""
    page.evaluate("() => document.activeElement.blur()")
    visited: list[str] = []
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement === document.body"):
            return visited
        visited.append(focused(page))
        assert page.evaluate(OUTLINE) >= 1, f"the focus is not seen on {visited[-1]}"
    raise AssertionError(f"Tab does not come to an end: {visited}")


def test_tab_goes_through_everything_with_a_visible_focus(site: Site) -> None:
    """Whoever cannot use a mouse must see where they are, reach everything, and get out again."""
    site.task("web")
    site.task("api", "web")
    site.send("message one", sender="anna", channel="teams")
    window = site.window()
    for path in ("/m/inbox", "/t/api", "/search?q=message", "/sessions", "/pulse", "/tasks"):
        window.goto(path)
        visited = tab_through(window.page)
        assert visited[0] == "skip", path
        assert visited.index("find") < visited.index("place-inbox"), path
        if path == "/m/inbox":
            assert visited[visited.index("scroll") :][-3:] == ["text", "priority", "send"]
            assert any(stop == "button quiet" for stop in visited[visited.index("scroll") :]), "Reply cannot be reached"


def test_skip_link_leads_to_the_messages(window: Window) -> None:
    """With a long list of places, Tab alone would take minutes to get to what matters."""
    page = window.page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert focused(page) == "main"
    page.keyboard.press("Tab")
    assert focused(page) == "scroll"


def test_focus_stays_where_it_is_when_things_change(site: Site, window: Window) -> None:
    """A live page that takes the focus away cannot be used by keyboard."""
    page = window.page
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(window.items.nth(1)).to_be_focused()
    agent = site.agent()
    agent.tool("inbox_pull")
    agent.tool("inbound_queue_stats")
    expect(window.items.nth(1).locator(".ledger summary")).to_contain_text("seen by claude-code")
    expect(window.items.nth(1)).to_be_focused()
    page.locator("#place-inbox").focus()
    site.send("new", sender="anna", channel="teams")
    expect(window.items).to_have_count(4)
    expect(window.place("All messages").locator(".badge")).to_be_visible()
    expect(page.locator("#place-inbox")).to_be_focused()
    assert said(page.locator("#announce")) == ["anna: new"]


def test_search_finds_as_one_writes_and_leads_to_the_message(site: Site, window: Window) -> None:
    """Search is how people find what an agent was told last week: words in, the message out, the address to keep."""
    wanted = site.send("the lighthouse keeper", sender="anna", channel="teams")
    page = window.page
    page.keyboard.press("/")
    page.keyboard.type("lighthouse")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/search\?q=lighthouse"))
    results = page.locator(".results .result")
    expect(results).to_have_count(1)
    expect(results.locator("mark")).to_have_text("lighthouse")
    words = page.get_by_role("searchbox", name="Words to look for")
    words.fill("message")
    expect(results).to_have_count(3)
    expect(page).to_have_url(re.compile(r"q=message"))
    words.fill("nothingofthekind")
    expect(page.locator("#found")).to_contain_text("No message contains all these words")
    words.fill("keeper lighthouse")
    expect(results).to_have_count(1)
    results.click()
    expect(page).to_have_url(re.compile(f"#{wanted}$"))
    expect(page.locator(f"#{wanted}")).to_be_focused()
    expect(page.locator(f"#{wanted}")).to_be_in_viewport()
    assert window.complaints == []


def test_what_was_typed_before_the_page_could_listen_is_looked_for(window: Window) -> None:
    """On a slow line one types faster than the scripts come; the words must not stand there without an answer."""
    held: list[Route] = []
    page = window.page

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/htmx.min.js", hold)
    page.goto(f"{window.origin}/search?q=nothingofthekind", wait_until="commit")
    words = page.get_by_role("searchbox", name="Words to look for")
    words.fill("message")
    expect(page.locator("#found")).to_contain_text("No message contains all these words")
    assert len(held) == 1
    held.pop().continue_()
    expect(page.locator(".results .result")).to_have_count(3)

    page.goto(f"{window.origin}/search?q=message", wait_until="commit")
    page.get_by_text("Narrow it down").click()
    page.get_by_label("From").fill("nobody")
    expect(page.locator(".results .result")).to_have_count(3)
    held.pop().continue_()
    expect(page.locator("#found")).to_contain_text("No message contains all these words")


def test_focus_that_moves_while_the_rows_are_asked_for_is_not_taken_back(site: Site) -> None:
    """Keys that are pressed in that moment are meant for the row that has the focus then."""
    site.store([mail(CI, "build 900 failed"), mail(TOM, "lunch?", "chat-lunch")])
    window = site.window("/conversations")
    first, second = window.page.locator("#rows > .row").all()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    window.page.route("**/part/conversations*", hold)
    window.page.keyboard.press("j")
    expect(first).to_be_focused()
    with window.page.expect_request("**/part/conversations*"):
        window.page.evaluate('() => document.body.dispatchEvent(new CustomEvent("message-changed"))')
    window.page.keyboard.press("j")
    expect(second).to_be_focused()
    with window.page.expect_response("**/part/conversations*"):
        held.pop().continue_()
    window.page.evaluate("() => new Promise((done) => setTimeout(done))")
    expect(second).to_be_focused()


def test_keys_pressed_before_the_answer_are_meant_for_what_is_left(site: Site) -> None:
    """Who presses a key twice means two rows, and each can be undone by itself, the last one first."""
    site.store([mail(TOM, text, text) for text in ("one", "two", "three")])
    window = site.window("/conversations")
    page, rows, toast = window.page, window.page.locator("#rows > .row"), window.page.locator("#toast")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/do/triage", hold, times=1)
    page.keyboard.press("j")
    with page.expect_request("**/do/triage"):
        page.keyboard.press("e")
    page.keyboard.press("e")
    page.keyboard.press("z")
    held.pop().continue_()
    expect(toast).to_contain_text("Undone.")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="three")).to_have_count(0)
    expect(rows.filter(has_text="two")).to_have_count(1)


@pytest.mark.parametrize(
    ("now", "offered"),
    [
        ("11-18T10:00+01:00", "In 3 hours Wed 13:00, This evening Wed 18:00, Tomorrow Thu 09:00, Next week Mon 09:00"),
        ("03-28T23:30+01:00", "In 3 hours Sun 03:30, Tomorrow Sun 09:00, Next week Mon 09:00"),
        (
            "10-25T00:30+02:00",
            "In 3 hours Sun 02:30, This morning Sun 09:00, This evening Sun 18:00, Tomorrow Mon 09:00",
        ),
    ],
)
def test_times_to_put_off_until_are_each_another_one(site: Site, now: str, offered: str) -> None:
    """After midnight the morning is today, on a Sunday next week is tomorrow, and clocks are changed in some nights."""
    site.store([mail(TOM, "lunch?", "chat-lunch")])
    page = site.window("/conversations", is_own=True).page
    page.clock.set_fixed_time(f"2026-{now}")
    page.keyboard.press("j")
    page.keyboard.press("s")
    assert ", ".join(said(page.locator(".snooze-times button"))) == offered
