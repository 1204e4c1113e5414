"""A task is made in the page, by the keyboard, and its page is one click away."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.rig import Site
from tests.workspaces.repos import repository


def test_task_is_made_with_its_worktree_and_opened(site: Site) -> None:
    """From the list of tasks to the new one, with nothing loaded from elsewhere and nothing complained of."""
    repo = repository(site.folder / "app")
    window = site.window("/tasks")
    window.page.locator("#new-task").click()
    window.page.get_by_label("Title").fill("Fix the login page")
    window.page.get_by_label("Folder", exact=True).fill(str(repo))
    window.page.get_by_label("Agent").select_option("codex")
    window.page.get_by_label("What to do").fill("Sign-in fails.")
    window.page.locator("#make").press("Enter")
    expect(window.page.get_by_text("harken task start fix-login-page")).to_be_visible()
    expect(window.page.get_by_text(re.compile("Codex is connected there"))).to_be_visible()
    assert (site.folder / "app.worktrees" / "fix-login-page" / "README.md").exists()
    window.page.get_by_role("link", name="Open the task").click()
    expect(window.page.get_by_text("Sign-in fails.").first).to_be_visible()
    assert (window.complaints, window.strangers()) == ([], [])


def test_problem_is_shown_above_what_was_filled_in(site: Site) -> None:
    """Nobody writes a prompt twice because a folder was mistyped."""
    window = site.window("/tasks/new")
    window.page.get_by_label("Title").fill("Fix it")
    window.page.get_by_label("Folder", exact=True).fill("/nowhere/at/all")
    window.page.get_by_label("What to do").fill("a long story")
    window.page.locator("#make").click()
    expect(window.page.locator("#told")).to_contain_text("There is no folder /nowhere/at/all.")
    expect(window.page.get_by_label("What to do")).to_have_value("a long story")


def test_form_keeps_what_was_filled_in_when_you_are_signed_out_meanwhile(site: Site) -> None:
    """Signed in again, in another tab, it is sent as it was."""
    folder = site.folder / "shop"
    folder.mkdir()
    window = site.window("/tasks/new", is_own=True)
    page = window.page
    page.get_by_label("Title").fill("Fix the login")
    page.get_by_label("Folder", exact=True).fill(str(folder))
    page.get_by_label("What to do").fill("a long story")
    page.evaluate("() => harken.ask('/sign-out', { method: 'POST' })")
    page.locator("#make").click()
    expect(page.locator("#connection")).to_contain_text("signed out. In a terminal: harken open")
    expect(page.get_by_label("What to do")).to_have_value("a long story")
    other = page.context.new_page()
    other.goto(site.daemon.call("sign_in")["url"])
    other.locator("html[data-ready] #main").wait_for(state="attached")
    page.locator("#make").click()
    expect(page.get_by_text("harken task start fix-login")).to_be_visible()
    assert site.texts("task:fix-login") == ["a long story"]
