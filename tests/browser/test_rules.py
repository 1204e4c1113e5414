"""Rules, questions and runs in a page that stays open: answered, counted down, told and ended as it happens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.rig import PHONE, SignedInBrowser, Site, Window
from tests.browser.test_accessibility import axe, in_both_schemes, violations
from tests.browser.test_live import is_the_same, stays
from tests.fake_host import Machine
from tests.web import rules_rig as rig
from tests.web.rules_rig import machine

__all__ = ["axe", "machine"]

HALF_AN_HOUR_MS = 30 * 60 * 1000
PLACE = "(it) => { const box = it.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }"


@pytest.fixture
def site(
    browser: Browser, signed_in: SignedInBrowser, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A daemon with rules, and windows that are closed at the end."""
    folder: Path = tmp_path_factory.mktemp("h")
    signed_in.introduce(folder / "home")
    with machine.daemon(folder / "home") as daemon, ExitStack() as stack:
        rig.ruled(daemon.start())
        yield Site(browser, daemon, folder, stack, signed_in)


def accept(window: Window, action: str) -> None:
    """Press Accept, by the keyboard."""
    button = window.page.locator(f"#yes-{action}")
    button.focus()
    button.press("Enter")


def test_question_appears_is_accepted_by_a_key_and_is_gone_in_every_window(site: Site) -> None:
    """One answer counts, and whoever looks elsewhere sees that it was given."""
    inbox, here, other = site.window(), site.window("/rules"), site.window("/rules")
    stays(inbox, here, other)
    action = rig.asked(site.daemon, "disk is full")

    expect(inbox.page.locator("#asks")).to_have_text(re.compile("1 question waits for your answer"))
    expect(inbox.page.locator("#place-rules")).to_have_accessible_name(re.compile("1 waiting for your answer"))
    for window in (here, other):
        expect(window.page.locator(f"#{action['id']}")).to_contain_text("disk is full")
        expect(window.page.locator("#asked-news")).to_have_text("1 waiting for your answer")
    accept(here, action["id"])

    expect(here.page.locator("#told")).to_contain_text("Accepted.")
    expect(here.page.locator("#told")).to_be_focused()
    run = rig.ended(site.daemon, action["message_id"])
    for window in (here, other):
        expect(window.page.locator(".ask")).to_have_count(0)
        expect(window.page.locator("#asked-news")).to_have_text("Nothing waits for your answer any more")
        expect(window.page.locator(".lately")).to_contain_text(f"run {run['id']}")
    expect(inbox.page.locator("#asks")).to_be_empty()
    assert all(is_the_same(window) for window in (inbox, here, other))
    assert [*inbox.complaints, *here.complaints, *other.complaints] == []


def test_answer_from_a_page_that_did_not_hear_is_told_who_was_faster(site: Site) -> None:
    """A laptop that slept shows old questions: its answer must neither count nor look like an error."""
    action = rig.asked(site.daemon, "disk is full")
    window = site.window("/rules")
    expect(window.page.locator(".ask")).to_have_count(1)
    window.page.route("**/rules", lambda route: route.abort())
    window.hide()
    site.daemon.call("confirm", action=action["id"], yes=False)
    accept(window, action["id"])
    expect(window.page.locator("#told")).to_contain_text(f"Action {action['id']} is declined already (by you).")
    expect(window.page.locator(".ask")).to_have_count(0)
    assert site.daemon.call("runs")["runs"] == []


def test_answer_that_did_not_arrive_is_said_to_be_missing(site: Site) -> None:
    """A button that does nothing is taken for one that did: without an answer the page says so."""
    action = rig.asked(site.daemon, "disk is full")
    window = site.window("/rules")
    window.page.route("**/do/answer", lambda route: route.abort())
    accept(window, action["id"])
    expect(window.page.locator("#told")).to_contain_text("No answer came")
    window.page.unroute("**/do/answer")
    accept(window, action["id"])
    expect(window.page.locator("#told")).to_contain_text("Accepted.")


def test_open_ledger_goes_on_saying_what_rules_made_of_it(site: Site) -> None:
    """Its message is drawn anew whenever something happens to it: what was looked at must not fall shut or grow old."""
    action = rig.asked(site.daemon, "disk is full")
    window = site.window()
    window.items.first.locator(".ledger summary").click()
    part = window.items.first.locator(".message-rules")
    expect(part).to_contain_text("ask fired: waits for your answer")
    agent = site.agent()
    agent.tool("inbox_pull")
    agent.tool("inbox_status")
    expect(window.items.first.locator(".ledger summary")).to_contain_text("seen by claude-code")
    expect(part).to_contain_text("ask fired: waits for your answer")
    site.daemon.call("confirm", action=action["id"], yes=False)
    expect(part).to_contain_text("ask fired: was refused: nothing runs")
    assert window.complaints == []


def test_time_to_answer_is_counted_down_in_place_and_ends(site: Site) -> None:
    """A number that moves the buttons is pressed wrongly; one that is over must not be pressed at all."""
    action = rig.asked(site.daemon, "disk is full")
    window = site.window(is_own=True)
    window.page.clock.install()
    window.goto("/rules")
    window.page.route("**/rules", lambda route: route.abort())  # the daemon's clock does not go faster
    card = window.page.locator(f"#{action['id']}")
    shown, button = card.locator(".countdown"), card.get_by_role("button", name="Accept")
    expect(shown).to_have_text(re.compile(r"^(30:00|29:\d\d) left$"))
    before = button.evaluate(PLACE), shown.evaluate(PLACE)
    window.page.clock.fast_forward(HALF_AN_HOUR_MS - 120_000)
    expect(shown).to_have_text(re.compile(r"^[12]:\d\d left$"))
    assert (button.evaluate(PLACE), shown.evaluate(PLACE)) == before
    window.page.clock.fast_forward(180_000)
    expect(shown).to_have_text("expired")
    expect(button).to_be_disabled()
    expect(card).to_contain_text("Expired: it can no longer be accepted.")
    expect(window.page.locator("#asked-news")).to_contain_text("is over")


def test_run_is_told_as_it_happens_and_ended_by_a_button(site: Site) -> None:
    """Whoever lets an agent work alone wants to see what it does now, and to stop it now."""
    action = rig.asked(site.daemon, "hold on")
    site.daemon.call("confirm", action=action["id"])
    run = rig.begun(site.daemon, action["message_id"])
    window, every = site.window(f"/runs/{run['id']}"), site.window("/runs")
    stays(window, every)
    output = window.page.locator("#output")
    expect(output).to_contain_text("DENIED run_shell_command")
    expect(output).not_to_contain_text("list_files")

    rig.go_on(run)
    expect(output).to_contain_text("list_files")
    expect(window.page.locator(".envelope .presence")).to_have_text("running")
    expect(every.page.locator(".run-row .presence")).to_have_text("running")
    window.page.get_by_role("button", name="Abort").press("Enter")

    expect(window.page.locator(".envelope .presence")).to_have_text("aborted")
    expect(window.page.locator("#abort")).to_have_count(0)
    expect(window.page.locator("#outcome .course")).to_contain_text("aborted")
    expect(every.page.locator(".run-row .presence")).to_have_text("aborted")
    expect(output).to_have_attribute("data-over", "")
    assert (is_the_same(window), is_the_same(every)) == (True, True)
    assert [*window.complaints, *every.complaints] == []


def test_agent_is_sent_to_a_message_from_its_ledger(site: Site) -> None:
    """From what became of a message to what could be done about it, and back with its answer."""
    site.send("what is this about", sender="anna", channel="talk")
    window = site.window()
    window.items.first.locator(".ledger summary").click()
    part = window.items.first.locator(".message-rules")
    expect(part).to_contain_text("No rule was about it")
    part.get_by_role("link", name="Run an agent on this").click()
    page = window.page
    expect(page.locator("form.card")).to_contain_text("read_file list_files search_files")
    page.get_by_label("Agent").select_option("gemini-cli")
    page.get_by_role("button", name="Run it").click()
    expect(page.locator("#panel")).to_contain_text("by hand asked for: AUTO run r-")
    expect(page.locator("#panel")).to_contain_text("done")
    page.get_by_role("link", name=re.compile("AUTO run")).first.click()
    expect(page.locator(".envelope")).to_contain_text("AUTO")
    assert window.complaints == []


def test_differences_are_opened_and_fit_on_a_phone(site: Site, axe: str) -> None:
    """Whoever lets an agent edit alone looks at what it did, often on the way."""
    rig.edits(site.daemon, "notes.txt", "one\ntwo\nthree\n")
    run = rig.ended(site.daemon, site.send("rewrite it", channel="edits", sender="anna"))
    window = site.window(f"/runs/{run['id']}")
    phone = site.window(f"/runs/{run['id']}", viewport=PHONE, has_touch=True, is_mobile=True)
    for each in (window, phone):
        files = each.page.locator(".change")
        expect(files).to_have_count(3)
        expect(files.first).to_contain_text("removed again")
        expect(each.page.locator(".diff").first).not_to_be_visible()
        for summary in each.page.locator(".changes summary").all():
            summary.focus()
            summary.press("Enter")
        expect(each.page.locator(".diff-removed")).to_have_text("-two")
        expect(each.page.locator(".diff-removed")).to_be_visible()
        assert each.overflow() <= 0
    assert in_both_schemes(window.page, axe) == []
    assert violations(phone.page, axe) == []
    assert [*window.complaints, *phone.complaints] == []


def test_nothing_serious_is_wrong_with_rules_and_runs(site: Site, axe: str) -> None:
    """A question that some cannot read is not asked of them; on a phone nothing may stick out."""
    done = rig.asked(site.daemon, "x" * 300)
    site.daemon.call("confirm", action=done["id"])
    run = rig.ended(site.daemon, done["message_id"])
    rig.asked(site.daemon, "still waiting " * 60, sender="a" * 100)
    site.daemon.call("rules_pause")
    rig.write(site.daemon, [{"name": "x", "mode": "Notify"}])
    window = site.window()
    phone = site.window(viewport=PHONE, has_touch=True, is_mobile=True)
    message = done["message_id"]
    paths = ("/rules", "/runs", f"/runs/{run['id']}", f"/message/{message}/rules", f"/message/{message}/run?rule=ask")
    for path in paths:
        window.goto(path)
        expect(window.page.locator("h1")).to_be_visible()
        for details in window.page.locator("main details").all():
            details.locator("summary").click()
        assert in_both_schemes(window.page, axe) == [], path
        phone.goto(path)
        assert violations(phone.page, axe) == [], path
        assert phone.overflow() <= 0, path
    assert [*window.complaints, *phone.complaints] == []
