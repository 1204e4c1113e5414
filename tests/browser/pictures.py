"""Makes a picture of every page with a day of mail in it, to be looked at: `python -m tests.browser.pictures FOLDER`.

Each page is taken on a desk and on a phone, in light and dark, with 300 messages of people, machines and agents, tasks,
sources that listen and sources in trouble, rules, and a question that waits. This module tests nothing: it is for eyes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.browser.conftest import NAMES
from tests.browser.mail import day_of_mail
from tests.browser.rig import DESK, PHONE, Json, Site, Window
from tests.loss.rig import DaemonStarter

PAGES: Final[dict[str, str]] = {
    "inbox": "/conversations",
    "inbox-for-you": "/conversations?view=for-you",
    "conversation": "/conversation?source=teams&thread=chat-release",
    "messages": "/m/inbox",
    "channel": "/c/alerts/alerts%2Fcritical",
    "needs": "/needs",
    "waiting": "/waiting",
    "task": "/t/checkout",
    "tasks": "/tasks",
    "task-new": "/tasks/new",
    "sessions": "/sessions",
    "agents": "/agents",
    "agent": "/agents/codex",
    "sources": "/sources",
    "source": "/source/ci",
    "source-kinds": "/sources/new",
    "source-form": "/sources/new/imap",
    "pair": "/pair",
    "pulse": "/pulse",
    "rules": "/rules",
    "runs": "/runs",
    "search": "/search?q=checkout",
    "nothing": "/m/unknown",
    "places": "/conversations#sidebar",
}
SCREENS: Final[dict[str, Json]] = {
    "desk": {"viewport": DESK},
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True, "device_scale_factor": 2},
}
CONFIG: Final = """
[sources.ci]
kind = "webhook"
preset = "github"
secret = "env:NOT_SET"

[sources.builds]
kind = "mcp"
url = "http://127.0.0.1:9/mcp"
"""
RULES: Final = {
    "rules": [
        {"name": "red builds", "channel": "ci", "contentRegex": "failed", "mode": "notify"},
        {"name": "disks", "channel": "ci", "contentRegex": "disk", "mode": "confirm", "prompt": "Look why."},
    ]
}


def populate(site: Site) -> None:
    """Let a working day have happened."""
    site.store(day_of_mail(300), over=timedelta(hours=20))
    home = site.daemon.home
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)
    (home / "triggers.json").write_text(json.dumps(RULES))
    site.daemon.call("reload")
    site.daemon.call("rules_reload")
    site.task("checkout", title="Retry the payment when the gateway is busy", prompt="Begin with the tests.")
    site.task("docs", "checkout", title="Describe the new checkout", prompt="A page for the shop's staff.")
    agent = site.agent(task="checkout")
    (told,) = agent.tool("inbox_pull")["messages"]
    agent.tool("reply", message_id=told["id"], body="The tests are there: three answers of the gateway, one each.")
    site.agent().tool("inbox_pull")
    site.send("disk of db-7 is full", sender="monitor", channel="ci")


def take(site: Site, folder: Path) -> None:
    """Take every page on every screen in both schemes."""
    for screen, options in SCREENS.items():
        for scheme in ("light", "dark"):
            window: Window = site.window("/conversations", color_scheme=scheme, **options)
            for name, path in PAGES.items():
                window.goto(path)
                window.page.screenshot(path=folder / f"{name}-{screen}-{scheme}.png")
                wide = window.overflow()
                if wide > 0:
                    sys.stdout.write(f"{name} on {screen}: {wide} px too wide\n")
            window.page.context.close()


def main(folder: Path) -> None:
    """Make the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    program = next(path for name in NAMES if (path := shutil.which(name)))
    starter = DaemonStarter()
    with tempfile.TemporaryDirectory(prefix="harken-") as base, sync_playwright() as playwright, ExitStack() as stack:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        daemon = stack.enter_context(starter.daemon(Path(base) / "home", {"HOME": base}))
        site = Site(browser, daemon.start(), Path(base), stack)
        populate(site)
        take(site, folder)
    starter.close()
    sys.stdout.write(f"{len(PAGES) * len(SCREENS) * 2} pictures in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))
