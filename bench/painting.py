"""The first paint of the page with much stored, against that of an empty one, in a real browser.

The browser says when it first painted something of the page; before that it shows nothing. Where there is no browser,
nothing is measured.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
from playwright.sync_api import Page, sync_playwright

from bench.pages import looked_at
from bench.plan import Plan
from bench.processes import cpu_share, serving
from bench.rows import Budget, Row, Unit, least
from bench.samples import samples

BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MUCH: Final = (50_000, 500)
BUDGET: Final = Budget(at_most=1.5)
PATIENCE_MS: Final = 60_000
QUIET_SECONDS: Final = 1.0
QUIET_PERCENT: Final = 5.0
MAX_WAITS: Final = 60
PAINTED: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"


def browser() -> str:
    """Return the path of a browser; empty where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), "")


def measure(plan: Plan) -> Iterator[Row]:
    """Measure the page that you open first, with 50,000 messages and 500 tasks, against an empty one."""
    program = browser()
    if not program:
        plan.progress.say("painting: there is no browser, so it is not measured")
        return
    messages = min(MUCH[0], plan.size.messages)
    tasks = MUCH[1] if messages == MUCH[0] else messages // 100
    empty, full = list[float](), list[float]()
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="harken-") as short, ExitStack() as stack:
        homes = Path(short) / "empty", Path(short) / "full"
        with serving(homes[1]):
            pass
        anyio.run(_fill, homes[1], messages, tasks)
        daemons = [stack.enter_context(serving(home)) for home in homes]
        playwright = stack.enter_context(sync_playwright())
        window = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        pages = [window.new_context(viewport={"width": 1280, "height": 800}).new_page() for _ in homes]
        for page, daemon in zip(pages, daemons, strict=True):
            _await_quiet(daemon.facts["pid"])
            _open(page, daemon.call("sign_in")["url"])
        for _ in plan.rounds("painting", 30, 10):
            for page, daemon, taken in zip(pages, daemons, (empty, full), strict=True):
                taken.append(_open(page, f"{daemon.facts['url']}/conversations"))
        window.close()
    yield Row(
        name="paint",
        what=f"first paint of the inbox, {messages:,} messages and {tasks} tasks",
        unit=Unit.MILLISECONDS,
        value=least(samples(full)),
        reference_name="nothing stored",
        reference=least(samples(empty)),
        budget=BUDGET,
        limited_by="twenty rows to make, send and lay out, and the list of places",
    )


def _await_quiet(pid: int) -> None:
    """Wait until a daemon has caught up with what was stored without it: it indexes and judges that first."""
    for _ in range(MAX_WAITS):
        if cpu_share(pid, QUIET_SECONDS) < QUIET_PERCENT:
            return


async def _fill(home: Path, messages: int, tasks: int) -> None:
    async with looked_at(home, messages, tasks):
        pass


def _open(page: Page, address: str) -> float:
    """Open an address; return the seconds until something of the page was painted."""
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    page.locator("html[data-ready] #main").wait_for(state="attached")
    page.wait_for_function(PAINTED)
    painted: float = page.evaluate(PAINTED)
    return painted
