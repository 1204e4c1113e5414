"""How the page is looked at: on a phone, in the dark, without motion, without scripts, with very much stored."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import expect

from harken.model import NewMessage, Sender
from tests.browser.rig import PHONE, Site, Window
from tests.builders import a_new_message

PLACES: Final = (
    "/conversations",
    "/m/inbox",
    "/m/task:api",
    "/m/replies",
    "/c/local/teams",
    "/t/api",
    "/tasks",
    "/sessions",
    "/pulse",
)
SIZES: Final = ((1280, 800), (390, 844), (740, 360))  # a desk, a phone, and one on its side
MANY: Final = 10_000
TASKS: Final = 200
MAX_ELEMENTS: Final = 6_000  # of which 200 tasks need about 5 each, and 50 messages about 40 each
MAX_BYTES: Final = 600_000

# Everything that has a focus or is pressed, and lies beside the window where nobody can reach it.
OUT_OF_REACH: Final = """() => [...document.querySelectorAll("a, button, input, textarea, summary")]
  .filter((it) => it.checkVisibility({ visibilityProperty: true, opacityProperty: false }))
  .filter((it) => !it.closest(".hidden, .skip, [inert]") && !it.matches(".hidden, .skip"))
  .filter((it) => it.getBoundingClientRect().width)
  .filter((it) => it.getBoundingClientRect().left < -1 || it.getBoundingClientRect().right > innerWidth + 1)
  .map((it) => it.outerHTML.slice(0, 120))"""

# Whether the last channel of the list of places is above the foot of that list.
ABOVE_THE_FOOT: Final = """() => {
  const last = [...document.querySelectorAll("#places a.place[id^='place-local/']")].at(-1);
  const foot = document.querySelector("#places .is-foot");
  return last.getBoundingClientRect().bottom <= foot.getBoundingClientRect().top + 1;
}"""

# The contrast of the text of the page with what is behind it.
CONTRAST: Final = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.body);
  const [text, behind] = [light(style.color), light(style.backgroundColor)];
  return { isDark: behind < 0.1, ratio: (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05) };
}"""


def populate(site: Site) -> None:
    """Let something of every kind happen."""
    site.task("web", title="The page with a title that is longer than any phone is wide, and then some more of it")
    site.task("api", "web", prompt="begin")
    site.send("hello from **anna**", sender="anna", channel="teams")
    agent = site.agent()
    agent.tool("inbox_pull")
    agent.tool("reply", message_id=site.send("a question"), body="an answer")


def test_own_places_stay_in_sight_beside_many_tasks(site: Site) -> None:
    """Whoever works on sixty things still wants to know who runs where, without scrolling past all of them."""
    for number in range(20):
        site.task(f"task-{number}")
        site.send("hello", sender="ann", channel=f"channel-{number}")
    window = site.window()
    for width, height in SIZES:
        window.page.set_viewport_size({"width": width, "height": height})
        window.goto("/m/inbox#sidebar")
        window.reload()
        assert window.count("#places a.place[id^='place-task:']") == 12
        expect(window.place("All 20 tasks")).to_have_attribute("href", "/tasks")
        for name in ("Sessions", "Tasks", "Sources", "Pulse"):
            expect(window.place(name)).to_be_in_viewport(ratio=0.9)
        last = window.page.locator("#places a.place[id^='place-local/']").last
        last.focus()
        expect(last).to_be_in_viewport(ratio=0.9)
        # In one look: the list is put in anew when something arrives, and what is asked of the old one has no place.
        assert window.page.evaluate(ABOVE_THE_FOOT)
        assert window.overflow() <= 0
        window.place("Sessions").focus()
        window.place("Sessions").press("Enter")
        expect(window.page).to_have_url(re.compile("/sessions"))


def test_phone_shows_everything_with_its_places_in_a_drawer(site: Site) -> None:
    """Half of the looks are from a phone: nothing may be cut off, and the list of places is a screen of its own."""
    populate(site)
    window = site.window(viewport=PHONE, has_touch=True, is_mobile=True)
    page, drawer = window.page, window.page.locator("#sidebar")
    expect(drawer).to_be_hidden()
    page.get_by_role("link", name="Show the list of places").tap()
    expect(drawer).to_be_in_viewport(ratio=0.9)
    expect(page.locator("#main")).to_have_attribute("inert", "")
    for name in ("Replies", "api", "Sessions", "Pulse"):
        expect(window.place(name)).to_be_in_viewport()
    page.get_by_role("link", name="Close the list of places").tap()
    expect(drawer).to_be_hidden()
    page.get_by_role("link", name="Show the list of places").tap()
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    page.get_by_role("link", name="Show the list of places").tap()
    window.place("api").tap()
    expect(page).to_have_url(re.compile("task:api$"))
    expect(drawer).to_be_hidden()
    window.field.fill("from the train")
    page.get_by_role("button", name="Send").tap()
    expect(window.items.last.locator(".body")).to_have_text("from the train")
    for path in (*PLACES, "/search?q=hello"):
        window.goto(path)
        expect(page.locator("h1")).to_be_visible()
        assert window.overflow() <= 0, path
        assert page.evaluate(OUT_OF_REACH) == [], path
    assert window.complaints == []


def test_colours_follow_the_system_and_can_be_read(site: Site) -> None:
    """A white page at night is turned off; grey on grey is not read."""
    window = site.window()
    for is_dark in (False, True):
        window.page.emulate_media(color_scheme="dark" if is_dark else "light")
        found = window.page.evaluate(CONTRAST)
        assert found["isDark"] is is_dark
        assert found["ratio"] >= 7


def test_nothing_moves_for_those_who_asked_for_it(site: Site) -> None:
    """Motion makes some people ill: the system says so, and the page obeys."""
    counts = {}
    for motion in ("no-preference", "reduce"):
        window = site.window(reduced_motion=motion, viewport=PHONE)
        window.page.evaluate(
            "() => { window.moved = 0; for (const name of ['animationstart', 'transitionrun']) "
            "document.addEventListener(name, () => { window.moved += 1; }); }"
        )
        window.page.get_by_role("link", name="Show the list of places").click()
        expect(window.page.locator("#sidebar")).to_be_in_viewport(ratio=0.9)
        counts[motion] = window.page.evaluate("() => window.moved")
    assert counts["no-preference"] > 0
    assert counts["reduce"] == 0


def test_without_scripts_the_page_says_what_it_needs(site: Site) -> None:
    """Nothing can be proven without a script: a blank page would be taken for a broken one."""
    site.send("private")
    page = site.context(java_script_enabled=False).new_page()
    for path in ("/m/inbox", "/sign-in#x"):
        page.goto(f"{site.origin}{path}")
        assert "needs JavaScript" in (page.locator("noscript").text_content() or "")
        expect(page.locator("body")).not_to_contain_text("private")


def test_sign_out_ends_what_the_link_began(site: Site) -> None:
    """On somebody else's screen one wants to be sure to have left, also when one goes back."""
    site.send("private")
    window = site.window(is_own=True)
    expect(window.items).to_have_count(1)
    window.page.get_by_role("button", name="Sign out").click()
    expect(window.page.locator("body")).to_contain_text("You are not signed in")
    window.page.go_back()
    expect(window.page.locator("body")).not_to_contain_text("private")


def test_link_for_signing_in_leaves_no_secret_behind_and_works_once(site: Site) -> None:
    """An address bar is photographed, synchronised and kept: the secret must be gone from it, and of no use."""
    link = site.daemon.call("sign_in")["url"]
    first = site.context().new_page()
    first.goto(link)
    expect(first).to_have_url(f"{site.origin}/conversations")
    first.go_back()
    assert link.partition("#")[2] not in first.url
    second = site.context().new_page()
    second.goto(link)
    expect(second.locator("body")).to_contain_text("does not work any more")


# -- very much stored ----------------------------------------------------------------------------------------------


def _message(number: int) -> NewMessage:
    return a_new_message(f"message {number}", source="mail", sender=Sender("anna@example.org", "Anna"), channel="team")


@pytest.fixture
def full(site: Site) -> Site:
    """A site with 10,000 messages and 200 tasks."""
    site.store([_message(number) for number in range(MANY)])
    with site.daemon.caller() as caller:
        for number in range(TASKS):
            caller.call("task_new", title=f"Task {number}", dir=str(site.folder / str(number)))
    return site


def size(window: Window, path: str) -> int:
    """Return how many bytes of HTML a page is."""
    asked = "async (path) => (await (await harken.ask(path, { headers: { Accept: 'text/html' } })).text()).length"
    length: int = window.page.evaluate(asked, path)
    return length


def test_page_has_the_size_of_what_it_shows(full: Site) -> None:
    """With 10,000 messages and 200 tasks a page must be as light as with a hundred; the rest comes on demand."""
    window = full.window()
    expect(window.items).to_have_count(50)
    expect(window.items.last.locator(".body")).to_have_text(f"message {MANY - 1}")
    expect(window.items.last).to_be_in_viewport()
    for path in ("/m/inbox", "/c/mail/team", "/tasks", "/sessions", "/pulse", "/search?q=message"):
        window.goto(path)
        expect(window.page.locator("h1")).to_be_visible()
        assert window.count() <= MAX_ELEMENTS, path
        assert size(window, path) <= MAX_BYTES, path
    window.goto("/m/inbox")
    window.page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 0; }")
    expect(window.items).to_have_count(100)
    expect(window.items.first.locator(".body")).to_have_text(f"message {MANY - 100}")
    expect(window.page.locator("#items > .older")).to_have_count(1)
    expect(window.page.locator("#items > .day")).to_have_count(1)
    assert window.complaints == []
