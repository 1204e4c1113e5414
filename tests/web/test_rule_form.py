"""A rule that is made in the page: its faults are said, and nothing else of the file comes in force by it."""

from __future__ import annotations

import json

import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.loss.rig import Served
from tests.web.test_page import HOSTILE, Browser


@pytest.fixture
def browser(daemon: Served) -> Browser:
    """A signed-in browser at a daemon with a message."""
    browser = Browser(daemon.start())
    daemon.call("send", text=HOSTILE, sender="monitor", channel="alerts")
    return browser


def names(browser: Browser) -> list[str]:
    """Return the rules in force."""
    return [rule["name"] for rule in browser.daemon.call("rules")["rules"]]


def fields(browser: Browser, **changed: str) -> dict[str, str]:
    """Return what a form sends that was filled in from the message."""
    message = browser.daemon.call("list")["messages"][0]["id"]
    return {"message": message, "name": "alerts", "channel": "alerts", "mode": "notify", "act": "add", **changed}


def test_rule_is_tried_added_and_removed(browser: Browser) -> None:
    """The file has it as if it had been written by hand, and trying alone changes nothing."""
    form = fields(browser)
    filled = browser.page(f"/message/{form['message']}/rule")
    values = [filled.css(f"#rule-{each}")[0].attributes["value"] for each in ("name", "server", "channel")]
    assert values == ["alerts", "local", "alerts"]  # another source may have a channel of that name
    tried = browser.post("/do/rule", form | {"act": "try"})
    assert "It would have fired 1 time for 1 message of the last" in " ".join(tried.text.split())
    assert "<script>alert" not in tried.text
    assert names(browser) == []
    assert browser.post("/do/rule", form).headers["location"] == "/rules#rule-alerts"
    assert names(browser) == ["alerts"]
    file = browser.daemon.home / "triggers.json"
    assert json.loads(file.read_text())["rules"] == [{"name": "alerts", "channel": "alerts", "mode": "notify"}]
    assert file.stat().st_mode & 0o077 == 0
    browser.post("/do/rule-remove", {"rule": "alerts"})
    assert names(browser) == []


def test_fault_is_said_beside_what_was_filled_in(browser: Browser) -> None:
    """A refusal that loses the form would be filled in twice."""
    for changed, told in [({"content": "("}, "contentRegex"), ({"name": ""}, "name"), ({"mode": "burn"}, "mode")]:
        answer = browser.post("/do/rule", fields(browser, **changed))
        assert answer.status == 422
        assert told in answer.text
        assert names(browser) == []


def test_file_that_was_changed_meanwhile_is_not_put_in_force_on_the_way(browser: Browser) -> None:
    """Many programs can write a file; only what you have looked at may come in force."""
    other = {"rules": [{"name": "other", "channel": "x", "mode": "notify"}]}
    (browser.daemon.home / "triggers.json").write_text(json.dumps(other))
    (browser.daemon.home / "triggers.json").chmod(0o600)
    answer = browser.post("/do/rule", fields(browser))
    assert (answer.status, "harken rules reload" in answer.text) == (409, True)
    assert names(browser) == []
    assert json.loads((browser.daemon.home / "triggers.json").read_text()) == other


def test_muted_sender_can_be_unmuted_by_the_same_button(browser: Browser) -> None:
    """What was done where a message is read is undone there."""
    ref = fields(browser)["message"]
    told = browser.post("/do/mute", {"ref": ref}, is_part=True)
    assert "monitor is muted" in told.text
    assert [each["name"] for each in browser.daemon.call("status")["mutes"]] == ["monitor"]
    assert "Not muted" in browser.post("/do/mute", {"ref": ref, "undo": "1"}, is_part=True).text
    assert browser.daemon.call("status")["mutes"] == []


def test_sender_who_is_muted_for_a_while_stays_so(browser: Browser) -> None:
    """The undo of a mute that changed nothing would end one that you decided on before."""
    ref = fields(browser)["message"]
    until = browser.daemon.call("mute", kind="sender", name="monitor", seconds=3600)["until"]
    told = browser.post("/do/mute", {"ref": ref}, is_part=True)
    assert "monitor is muted already" in told.text
    assert not LexborHTMLParser(told.text).css("form")
    assert [each["until"] for each in browser.daemon.call("status")["mutes"]] == [until]
