"""A hosted agent on the page: what it says and does, stopping it, starting it again, and asking for one in the form."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.parse import urlencode

from tests.daemon.test_hosted import HOST, hosting, served
from tests.loss.rig import until
from tests.web.rig import NAVIGATION
from tests.web.test_panels import Browser, Page

AGENT_PAGE = "/t/one/agent"


def posted(browser: Browser, path: str, **fields: str) -> Page:
    """Send a form, and return the page that answers."""
    own = {"Origin": browser.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
    answer = browser.web.ask("POST", path, {**NAVIGATION, **browser.session, **own}, urlencode(fields).encode())
    assert answer.status == 200, answer.text
    return Page(answer.text)


def test_page_shows_text_tools_changes_and_plan_and_nothing_of_them_acts(tmp_path: Path) -> None:
    """Everything that an agent shows is text of a model that read text from outside."""
    with hosting(tmp_path) as rig:
        browser = Browser(rig.daemon)
        rig.send("EDIT it. <b>&</b>")
        until(lambda: rig.task["hosted"]["plan"], "it has a plan")
        rig.until_state("idle")
        page = browser.page(AGENT_PAGE)
        for said in (
            "I have read it.",
            "EDIT it. <b>&</b>",
            "Edit app.py \\x1b[31m\\u202e",
            "-one",
            "+two",
            "change it",
        ):
            assert said in page.said
        assert "\u202e" not in page.said
        assert "hosted: idle" in browser.page("/t/one").said
        assert "hosted: idle" in browser.page("/tasks").said


def test_turn_is_stopped_and_an_ended_agent_started_again_on_the_page(tmp_path: Path) -> None:
    """There is no terminal in which one could press Esc, or start it."""
    with hosting(tmp_path) as rig:
        browser = Browser(rig.daemon)
        rig.send("HOLD this.")
        rig.until_state("busy")
        assert "Stop this turn" in browser.page(AGENT_PAGE).said
        assert "It is told to stop." in posted(browser, "/do/task-stop", task="one").said
        rig.until_state("idle")
        assert rig.heard("session/cancel")
        os.kill(rig.pid, signal.SIGKILL)
        rig.until_state("stopped")
        page = browser.page(AGENT_PAGE)
        assert "Its agent has ended" in page.said
        assert "Start it again" in page.said
        posted(browser, "/do/task-host", task="one")
        rig.until_state("idle")


def test_page_says_what_it_asks_and_where_to_answer(tmp_path: Path) -> None:
    """Somebody who watches an agent that waits for an answer must see that it waits for them."""
    with hosting(tmp_path) as rig:
        browser = Browser(rig.daemon)
        rig.send("ASK me.")
        rig.asked()
        page = browser.page(AGENT_PAGE)
        assert "asks whether it may use execute" in page.said
        assert "touch made" in browser.page("/needs").said


def test_form_makes_a_task_that_is_hosted(tmp_path: Path) -> None:
    """As `harken task new --hosted` does; one that is not hosted has no such page."""
    folder = tmp_path / "one"
    folder.mkdir()
    with served(tmp_path) as daemon:
        browser = Browser(daemon)
        named = {"title": "One", "folder": str(folder), "agent": HOST, "is_here": "1", "is_hosted": "1", "key": "k"}
        assert "Watch its agent" in posted(browser, "/do/task", **named).said
        assert daemon.call("task_show", task="one")["hosted"]["state"] == "idle"
        daemon.call("task_stop", task="one", is_end=True)
        browser.page(AGENT_PAGE, status=404)
