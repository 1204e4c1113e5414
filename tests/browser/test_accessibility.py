"""What axe-core finds on every page, and on the most colourful ones in the dark: nothing serious or critical."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, TypeAlias

import pytest
from playwright.sync_api import Page, expect

from tests.browser.rig import PHONE, Site

Scheme: TypeAlias = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
AXE: Final = Path(__file__).parents[1] / "interop" / "node_modules" / "axe-core" / "axe.min.js"
PAGES: Final = (
    *(
        "/conversations",
        "/conversations?view=done",
        "/needs",
        "/m/inbox",
        "/m/task:api",
        "/m/replies",
        "/c/local/teams",
        "/t/api",
        "/tasks",
        "/sessions",
        "/sources",
        "/pulse",
    ),
    *("/search?q=hello", "/m/unknown"),
    *("/sources/new", "/sources/new/imap", "/source/ci", "/agents", "/agents/codex", "/pair", "/tasks/new"),
)
# One for each way in which a page is empty.
EMPTY: Final = ("/conversations", "/m/inbox", "/needs", "/tasks", "/pulse", "/search", "/rules")
# These have every colour between them.
DARK: Final = ("/conversations", "/m/inbox", "/t/api", "/sources", "/pulse", "/agents/codex")
# Colours differ by the scheme, and nothing else does.
RUN: Final = """async (isColoursOnly) => {
  const options = isColoursOnly ? { runOnly: { type: "rule", values: ["color-contrast"] } } : {};
  const found = await axe.run(document, { resultTypes: ["violations"], ...options });
  return found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test installs it")
    return AXE.read_text()


def violations(page: Page, axe: str, scheme: Scheme = "light") -> list[str]:
    """Return what is wrong with a page. It forbids foreign scripts to itself: the browser is asked to run axe."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(f"{axe}; undefined")
    found: list[str] = page.evaluate(RUN, scheme == "dark")
    return found


def populate(site: Site) -> None:
    """Let something of every kind happen, so that every part is there to be judged."""
    config = site.daemon.home / "config.toml"
    config.write_text('[sources.ci]\nkind = "webhook"\npreset = "github"\nsecret = "env:NOT_SET"\n')
    config.chmod(0o600)
    site.daemon.call("reload")
    site.task("web")
    site.task("api", "web", title="The new interface", prompt="begin")
    site.daemon.call("deny", sender="stranger")
    agent = site.agent()
    agent.tool("inbox_pull")
    site.send("hello\n\n> quoted\n\n`code`\n\n[link](https://example.org)", sender="anna", channel="teams")
    site.send("hello, is this seen?", sender="stranger", channel="email")
    agent.tool("inbox_pull")
    agent.tool("reply", message_id=site.send("a question", priority="high"), body="an answer")
    site.agent("some-agent", task="web").tool("send_to_peer", body="hello from the web")
    site.send("hello " * 2_000, sender="anna", channel="teams")


def in_both_schemes(page: Page, axe: str) -> list[str]:
    """Return what is wrong with a page in the light, and with its colours in the dark."""
    found: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found += violations(page, axe, scheme)
    return found


def test_nothing_serious_is_wrong_with_any_page(site: Site, axe: str) -> None:
    """People read with screen readers, high zoom and tired eyes: names, roles, order and contrast must be right."""
    populate(site)
    window = site.window()
    for path in PAGES:
        window.goto(path)
        expect(window.page.locator("h1")).to_be_visible()
        found = in_both_schemes(window.page, axe) if path in DARK else violations(window.page, axe)
        assert found == [], path
        window.page.emulate_media(color_scheme="light")
    window.goto("/m/inbox")
    window.page.keyboard.press("?")
    assert in_both_schemes(window.page, axe) == []
    window.page.keyboard.press("Escape")
    window.items.last.locator(".ledger summary").click()
    window.page.keyboard.press("r")
    assert in_both_schemes(window.page, axe) == []


def test_nothing_serious_is_wrong_with_empty_pages_and_the_way_in(site: Site, axe: str) -> None:
    """The first look is at empty pages, and it decides whether there is a second."""
    window = site.window()
    for path in EMPTY:
        window.goto(path)
        expect(window.page.locator(".empty").first).to_be_visible()
        assert violations(window.page, axe) == [], path
    assert in_both_schemes(window.page, axe) == []
    stranger = site.context().new_page()
    for path in ("/m/inbox", "/sign-in#old"):
        stranger.goto(f"{site.origin}{path}")
        expect(stranger.locator("main h1").locator("visible=true")).to_have_count(1)
        assert in_both_schemes(stranger, axe) == [], path


def test_nothing_serious_is_wrong_on_a_phone(site: Site, axe: str) -> None:
    """Labels that are hidden for room must still be there for those who hear them."""
    populate(site)
    window = site.window(viewport=PHONE, has_touch=True, is_mobile=True)
    for path in (
        *("/conversations", "/m/inbox", "/t/api", "/m/inbox#sidebar"),
        *("/sources/new/imap", "/agents/codex", "/tasks/new"),
    ):
        window.goto(path)
        assert violations(window.page, axe) == [], path
        assert window.overflow() <= 0, path
