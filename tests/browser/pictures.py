"""Makes a picture of every page with a day of mail in it, to be looked at: `python -m tests.browser.pictures FOLDER`.

Each page is taken on a desk and on a phone, in light and dark, with 300 messages of people, machines and agents, tasks,
sources that listen and sources in trouble, rules with a run and a question, an agent that asks before it uses a tool,
and messages that wait for their time. This module tests nothing: it is for eyes.
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
from tests.fake_host import machine_with_host
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost, asked
from tests.loss.rig import DaemonStarter
from tests.web.rules_rig import ended

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
    "rule-new": "/message/{message}/rule",
    "traces": "/message/{message}/rules",
    "run-now": "/message/{message}/run",
    "runs": "/runs",
    "run": "/runs/{run}",
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
        {"name": "deploys", "channel": "deploys", "mode": "auto", "prompt": "Look.", "tools": ["read_file"]},
    ]
}
AGENT: Final = f"""#!{sys.executable}
import json, sys
if "--version" in sys.argv:
    sys.exit(print("0.50.0"))
for event in (
    {{"type": "tool_use", "tool_name": "read_file", "tool_id": "0", "parameters": {{"path": "deploy.log"}}}},
    {{"type": "message", "role": "assistant", "content": "The migration ran twice: the lock was not taken."}},
    {{"type": "result", "status": "success"}},
):
    print(json.dumps(event), flush=True)
"""


def populate(site: Site) -> dict[str, str]:
    """Let a working day have happened; return what the addresses of pages name."""
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
    for timing in ({"at": "in 2h"}, {"when": "idle"}):
        site.daemon.call("send", text="Look at the nightly build, please.", **timing)
    deployed = site.daemon.call("send", text="deploy 41 failed", sender="ci-bot", channel="deploys")["id"]
    run = ended(site.daemon, deployed)["id"]
    full = site.daemon.call("send", text="disk of db-7 is full", sender="monitor", channel="ci")["id"]
    return {"message": full, "run": run}


def take(site: Site, folder: Path, named: dict[str, str]) -> None:
    """Take every page on every screen in both schemes."""
    for screen, options in SCREENS.items():
        for scheme in ("light", "dark"):
            window: Window = site.window("/conversations", color_scheme=scheme, **options)
            for name, path in PAGES.items():
                window.goto(path.format(**named))
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
        programs = Path(base) / "bin"
        programs.mkdir()
        machine = machine_with_host(starter, programs, AGENT)
        daemon = stack.enter_context(machine.daemon(Path(base) / "home"))
        site = Site(browser, daemon.start(), Path(base), stack)
        named = populate(site)
        stack.enter_context(AskingHost(DaemonFixture(daemon), asked("npm run deploy -- --to production")))
        take(site, folder, named)
    starter.close()
    sys.stdout.write(f"{len(PAGES) * len(SCREENS) * 2} pictures in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))
