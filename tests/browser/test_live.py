"""Pages that stay open: what happens elsewhere appears in them, without a reload and without anything missing."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from playwright.sync_api import expect

from tests.browser.rig import AWAY, Site, Window, only_expected, said

MARK = "() => { window.isTheSamePage = true; }"


def stays(*windows: Window) -> None:
    """Mark pages, so that a reload would show."""
    for window in windows:
        window.page.evaluate(MARK)


def is_the_same(window: Window) -> bool:
    """Whether a page was not loaded again since it was marked."""
    return bool(window.page.evaluate("() => window.isTheSamePage === true"))


def test_message_sent_in_one_page_appears_in_the_other_with_its_badge(site: Site) -> None:
    """Two people, or two screens, must see the same; an agent that reads there makes the badge count."""
    agent = site.agent()
    agent.tool("inbox_pull")
    writing, reading = site.window(), site.window("/sessions")
    other = site.window()
    stays(writing, reading, other)
    expect(writing.place("All messages").locator(".badge")).to_have_count(0)

    writing.say("the build is **red**")

    for window in (writing, other):
        expect(window.items).to_have_count(1)
        expect(window.items.locator(".body strong")).to_have_text("red")
        expect(window.items.locator(".ledger summary")).to_contain_text("waiting for claude-code")
        expect(window.place("All messages").locator(".badge")).to_have_text(re.compile(r"^1\b"))
    expect(reading.place("All messages").locator(".badge")).to_have_text(re.compile(r"^1\b"))
    expect(reading.place("All messages")).to_have_accessible_name(re.compile("^All messages.* 1 waiting for an agent"))
    assert all(is_the_same(window) for window in (writing, reading, other))
    assert [*writing.complaints, *reading.complaints, *other.complaints] == []


def test_what_was_not_looked_at_is_marked_as_unread_until_it_is(site: Site) -> None:
    """The dot is for the person, the badge for the agent: neither may stand for the other."""
    away = site.window("/pulse")
    stays(away)
    site.send("look here", sender="ci-bot", channel="ci")
    expect(away.place("All messages")).to_have_class(re.compile("is-unread"))
    expect(away.page).to_have_title(re.compile("^• "))
    site.window()
    expect(away.place("All messages")).not_to_have_class(re.compile("is-unread"))
    expect(away.page).to_have_title("Pulse · Harken")
    assert is_the_same(away)


def test_only_what_was_on_the_screen_counts_as_seen(site: Site) -> None:
    """Fifty of seventy are loaded: `watch` must still show the others, until they are loaded or marked by a key."""
    for number in range(70):
        site.send(f"message {number}", sender="ann")
    away, window = site.window("/pulse"), site.window()
    unread = re.compile("20 you have not seen")
    expect(away.place("All messages")).to_have_accessible_name(unread)
    button = window.page.get_by_role("button", name="Mark all as seen")
    expect(button).to_be_visible()
    window.page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 0; }")
    expect(window.items).to_have_count(70)
    expect(away.place("All messages")).not_to_have_class(re.compile("is-unread"))
    expect(button).to_have_count(0)

    # After a week away nobody scrolls through a thousand messages; a button that only a mouse reaches is none.
    window.goto("/pulse")
    for number in range(70):
        site.send(f"another {number}", sender="ann")
    window.goto("/m/inbox")
    expect(away.place("All messages")).to_have_accessible_name(unread)
    window.field.fill("half a thought")
    button.focus()
    button.press("Enter")
    expect(button).to_have_count(0)
    expect(away.place("All messages")).not_to_have_class(re.compile("is-unread"))
    expect(window.field).to_have_value("half a thought")
    assert window.complaints == []


def test_check_inbox_of_an_agent_clears_the_badge_and_its_answer_appears(site: Site) -> None:
    """The one thing people want to know is whether the agent has it: seen, then answered, as it happens."""
    mailbox = site.task("api")
    window = site.window(f"/m/{mailbox}")
    stays(window)
    window.say("use the new form")
    ledger = window.items.locator(".ledger summary")
    expect(ledger).to_contain_text("waiting for api")
    expect(window.place("api").locator(".badge")).to_have_text(re.compile(r"^1\b"))

    agent = site.agent("some-agent", task="api")
    expect(window.page.locator("#task-note")).to_contain_text("running")
    (given,) = agent.tool("check_inbox")
    assert given["body"] == "use the new form"
    expect(ledger).to_contain_text("offered to api")
    agent.tool("inbox_status")

    expect(ledger).to_contain_text("seen by api")
    expect(window.place("api").locator(".badge")).to_have_count(0)
    agent.tool("reply", message_id=given["id"], body="The form is in.")
    expect(ledger).to_contain_text("answered by api")
    expect(window.items.first).to_contain_text("The form is in.")
    assert is_the_same(window)
    assert window.complaints == []


def test_peers_side_by_side_are_live(site: Site) -> None:
    """Two agents that talk to each other are watched in one place."""
    site.task("web")
    site.task("api", "web")
    window = site.window("/t/api")
    stays(window)
    api = site.agent("agent-one", task="api")
    columns = window.page.locator(".board")
    expect(columns).to_have_count(2)
    api.tool("send_to_peer", body="v2 is ready")
    expect(columns.nth(1).locator(".item .body")).to_have_text("v2 is ready")
    expect(columns.nth(1)).to_contain_text("1 waiting")
    web = site.agent("agent-two", task="web")
    web.tool("check_inbox")
    web.tool("send_to_peer", body="I use it")
    expect(columns.nth(0).locator(".item .body")).to_have_text("I use it")
    expect(columns.nth(1).locator(".item .ledger summary")).to_contain_text("seen by web")
    expect(columns.nth(1)).not_to_contain_text("waiting")
    columns.nth(0).get_by_role("textbox").fill("well done")
    columns.nth(0).get_by_role("textbox").press("Enter")
    expect(columns.nth(0).locator(".item .body").last).to_have_text("well done")
    assert is_the_same(window)
    assert window.complaints == []


def test_stream_goes_on_after_the_daemon_was_killed(site: Site) -> None:
    """A daemon restarts; a page that was open must say so meanwhile, and then show what came without being asked."""
    window = site.window()
    stays(window)
    site.send("before")
    expect(window.items).to_have_count(1)
    notice = window.page.locator("#connection")
    expect(notice).to_be_hidden()

    site.daemon.kill()
    expect(notice).to_have_text("Not connected. Trying again…")
    expect(notice).to_contain_text("Harken does not answer; what you see is from before. In a terminal: harken up")
    site.restart()
    site.send("meanwhile")

    expect(window.items).to_have_count(2)
    expect(window.items.last.locator(".body")).to_have_text("meanwhile")
    expect(notice).to_be_hidden()
    site.send("after")
    expect(window.items).to_have_count(3)
    assert said(window.items.locator(".body")) == ["before", "meanwhile", "after"]
    assert is_the_same(window)
    assert only_expected(window.complaints, AWAY) == []


def test_hidden_tab_holds_no_connection_and_catches_up(site: Site) -> None:
    """A browser has six connections to a host: tabs in the background must not use them up, and must miss nothing."""
    texts = [f"message {number}" for number in range(120)]
    window = site.window()
    expect(window.items).to_have_count(0)
    expect(window.place("All messages")).not_to_have_class(re.compile("is-unread"))
    stays(window)
    with window.page.expect_event("requestfailed", lambda request: "/events" in request.url):
        window.hide()
    asked = len(window.requested)
    for text in texts:
        site.send(text)
    other = site.window()
    expect(other.items).to_have_count(50)
    assert window.count("#items > .item") == 0
    assert window.requested[asked:] == []

    window.hide(is_hidden=False)
    expect(window.items).to_have_count(120)
    assert said(window.items.locator(".body")) == texts
    assert is_the_same(window)
    assert window.complaints == []


def test_presence_and_forecast_follow_the_session(site: Site) -> None:
    """What will happen to a message depends on what the agent does now, not when the page was opened."""
    mailbox = site.task("api")
    window = site.window(f"/m/{mailbox}")
    sessions = site.window("/sessions")
    stays(window, sessions)
    expect(window.outlook).to_contain_text("waits until a session of the task starts")
    expect(window.place("api")).to_have_accessible_name(re.compile("^api.*not started yet"))

    claude = site.conversation("api")
    claude.prompt("begin")
    expect(window.place("api")).to_have_accessible_name(re.compile("^api.*busy"))
    expect(window.outlook).to_contain_text("tool call")
    expect(window.page.locator("#task-note")).to_contain_text("running, busy")
    expect(sessions.page.locator(".session")).to_contain_text("busy")

    claude.stop()
    expect(window.place("api")).to_have_accessible_name(re.compile("^api.*idle"))
    expect(window.outlook).not_to_contain_text("tool call")
    expect(sessions.page.locator(".session")).to_contain_text("idle")
    assert is_the_same(window)
    assert is_the_same(sessions)


def test_what_comes_while_reading_above_does_not_move_the_page(site: Site) -> None:
    """Somebody who reads older messages must keep their place, and be told that there is more."""
    for number in range(40):
        site.send(f"message {number}")
    window = site.window()
    expect(window.items).to_have_count(40)
    window.page.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 200; }")
    site.send("one more")
    news = window.page.get_by_role("button", name="1 new message")
    expect(news).to_be_visible()
    top = window.page.locator("#scroll").evaluate("(scroll) => scroll.scrollTop")
    assert top == 200
    news.click()
    expect(window.items.last).to_be_in_viewport()
    expect(news).to_be_hidden()


def test_channel_is_live_and_shows_only_its_own(site: Site) -> None:
    """A channel collects what one source says in all mailboxes, as it is said."""
    site.send("first", sender="ci-bot", channel="ci")
    window = site.window("/c/local/ci")
    stays(window)
    expect(window.items).to_have_count(1)
    site.send("elsewhere", sender="anna", channel="teams")
    site.send("second", sender="ci-bot", channel="ci")
    expect(window.items).to_have_count(2)
    assert said(window.items.locator(".body")) == ["first", "second"]
    expect(window.place("teams")).to_have_class(re.compile("is-unread"))
    assert is_the_same(window)


def test_opened_ledger_stays_open_while_it_changes(site: Site) -> None:
    """Whoever watches what becomes of a message opens its ledger: it must not close at the moment that matters."""
    agent = site.agent()
    agent.tool("inbox_pull")
    message = site.send("watched", sender="anna", channel="teams")
    window = site.window()
    ledger = window.page.locator(f"#ledger-{message}")
    ledger.locator("summary").click()
    expect(ledger).to_contain_text("waits: nobody was given it yet")
    agent.tool("inbox_pull")
    agent.tool("inbound_queue_stats")
    expect(ledger).to_contain_text("seen by claude-code")
    expect(ledger).to_contain_text("proof: later call")
    expect(ledger).to_have_attribute("open", "")
    agent.tool("reply", message_id=message, body="`done`")
    expect(ledger).to_contain_text("answered by claude-code")
    expect(ledger).to_have_attribute("open", "")


def test_address_of_an_old_message_leads_back_to_the_newest(site: Site) -> None:
    """A link into the past must say that it is the past, and not pretend to be live."""
    sent = [site.send(f"message {number}") for number in range(120)]
    window = site.window(f"/message/{sent[10]}")
    expect(window.page.locator(f"#{sent[10]}")).to_be_focused()
    expect(window.page.locator(f"#{sent[10]}")).to_be_in_viewport()
    site.send("new")
    expect(window.page.get_by_text("new", exact=True)).to_have_count(0)
    window.page.get_by_role("link", name="Go to the newest").click()
    expect(window.items.last.locator(".body")).to_have_text("new")
    expect(window.items.last).to_be_in_viewport()


def test_times_and_days_are_those_of_the_person(site: Site) -> None:
    """People read clocks, not UTC: a message around midnight belongs to their day."""
    message = site.send("when")
    received = site.daemon.call("read", ref=message)["message"]["received_at"]
    zone = "Pacific/Kiritimati"
    window = site.window(timezone_id=zone)
    at = datetime.fromisoformat(received).astimezone(ZoneInfo(zone))
    expect(window.items.locator("a.when time")).to_have_text(at.strftime("%H:%M"))
    expect(window.page.locator("#items .day")).to_have_text("Today")
    later = window.page.context.new_page()
    later.clock.install(time=at.replace(year=at.year + 3))
    later.goto(f"{site.origin}/m/inbox")
    expect(later.locator("#items .day")).to_contain_text(str(at.year))
