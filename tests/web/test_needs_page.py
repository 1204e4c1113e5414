"""What needs you: runs that wait for a sign-in, rules that no agent can run, several questions of one conversation."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from selectolax.lexbor import LexborHTMLParser

from harken.config.home import Home
from harken.model import Trust
from harken.setup.doctor import own_health
from tests.fake_host import machine_with_host
from tests.loss.rig import DaemonStarter, Served, until
from tests.seeded import Asked, seed
from tests.web.rules_rig import BACK, CANNOT, PROGRAM, ended, ruled
from tests.web.test_page import Browser

SIGNED: Final = {**BACK, "name": "signed", "prompt": "sign-in: {{content}}", "reply": False, "rateLimit": "0s"}


@pytest.fixture
def daemon(starter: DaemonStarter, tmp_path: Path) -> Served:
    """A daemon of a person who has not signed in to Gemini CLI."""
    folder = tmp_path / "g"
    folder.mkdir()
    machine_with_host(starter, folder, PROGRAM)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return starter.daemon(tmp_path / "home", {"PATH": path, "HOME": str(tmp_path / "user")})


def needs(daemon: Served) -> list[dict[str, Any]]:
    """Return what needs you."""
    found: list[dict[str, Any]] = daemon.call("needs")["needs"]
    return found


def test_rules_try_an_agent_without_sign_in_once_and_go_on_when_you_have_signed_in(
    daemon: Served, tmp_path: Path
) -> None:
    """Each message would start, fail and tell you again; nothing is lost, and one entry says what to do."""
    with daemon.start():
        ruled(daemon, [SIGNED])
        first, *rest = [daemon.call("send", text=text, channel="deploys")["id"] for text in ("one", "two", "three")]
        assert "not signed in" in ended(daemon, first)["reason"]
        [need] = until(lambda: [each for each in needs(daemon) if "2 runs wait" in each["said"]], "it is listed")
        assert (need["kind"], need["said"]) == (
            "agent",
            "Nobody is signed in to gemini-cli, so 2 runs wait. Sign in to it",
        )
        assert Browser(daemon).page("/needs").css_first('form[action="/do/rules-again"]') is not None
        assert daemon.call("rules")["rules"][0]["cannot_run"] == "not signed in"
        waiting = daemon.call("actions", message=rest[0])["actions"]
        assert [(each["state"], each["reason"]) for each in waiting] == [("queued", "not signed in to gemini-cli")]
        unsound = [each for each in own_health(Home(daemon.home)).findings if not each.is_good]
        assert [each.what for each in unsound] == ["rules can run gemini-cli"]
        sign_in = tmp_path / "user" / ".gemini" / "oauth_creds.json"
        sign_in.parent.mkdir(parents=True)
        sign_in.write_text("{}")
        assert [ended(daemon, each)["state"] for each in rest] == ["done", "done"]
        assert needs(daemon) == []
        assert [run["state"] for run in daemon.call("runs")["runs"]].count("failed") == 1


def test_rule_that_no_agent_can_run_says_so_until_it_is_put_away_and_again_when_it_was_wanted(daemon: Served) -> None:
    """It would ask you and never does: without an agent that can, nothing waits for your yes."""
    with daemon.start():
        ruled(daemon, [{**CANNOT, "mode": "confirm"}])
        [need] = needs(daemon)
        assert (need["kind"], need["ref"]) == ("rule", "cannot")
        assert "Teleport" in need["about"]
        assert Browser(daemon).page("/needs").css_first('a[href="/rules#rule-cannot"]') is not None
        daemon.call("put_away", keys=[need["key"]])
        assert needs(daemon) == []
        daemon.call("send", text="disk full", channel="ops")
        until(lambda: needs(daemon), "it was wanted")


def test_questions_of_one_conversation_are_one_entry_and_are_settled_together(daemon: Served) -> None:
    """One person who writes three lines needs you once; one more question is another occasion."""
    hours = [Asked(text=text, ago=timedelta(hours=ago), thread="ship") for text, ago in (("When?", 2), ("Why?", 1))]
    asked = seed(daemon.home, hours)
    with daemon.start():
        [need] = needs(daemon)
        assert (need["said"], need["ref"], need["refs"]) == ("ann waits for 2 answers", asked[-1], asked)
        daemon.call("put_away", keys=[need["key"]])
        daemon.stop()
        asked += seed(daemon.home, [Asked(text="Hello?", thread="ship")])
        daemon.start()
        [again] = needs(daemon)
        assert again["refs"] == asked
        browser = Browser(daemon)
        form = browser.page("/needs").css_first('form[action="/do/settle"] input[name=ref]')
        assert form is not None
        browser.post("/do/settle", {"ref": form.attributes["value"] or "", "is_brief": "1"}, is_part=True)
        assert needs(daemon) == []


def test_unknown_sender_who_was_put_away_comes_back_when_they_write_again(daemon: Served) -> None:
    """You put away what they said, not them: to hear no more of them there is Deny."""
    stranger = Asked(text="Buy this", sender="offers@example.net", source="mail", trust=Trust.UNKNOWN)
    seed(daemon.home, [stranger])
    with daemon.start():
        [need] = needs(daemon)
        daemon.call("put_away", keys=[need["key"]])
        assert needs(daemon) == []
        daemon.stop()
        [newer] = seed(daemon.home, [stranger])
        daemon.start()
        assert [each["ref"] for each in needs(daemon)] == [newer]


@pytest.mark.parametrize("decision", ["known", "unknown"])
def test_undoing_a_decision_about_a_sender_leaves_them_as_they_were(daemon: Served, decision: str) -> None:
    """To take a refusal back must not let a stranger reach agents, and to take back a yes must not be a no for ever."""
    stranger = Asked(text="Buy this", sender="Offers@Example.net", source="mail", trust=Trust.UNKNOWN)
    [ref] = seed(daemon.home, [stranger])
    with daemon.start():
        browser = Browser(daemon)
        told = LexborHTMLParser(browser.post("/do/allow", {"ref": ref, "decision": decision}, is_part=True).text)
        assert [each["trust"] for each in daemon.call("status")["senders"]] == [decision]
        assert needs(daemon) == [], "it is decided, however the source spells them"
        form = {each.attributes["name"] or "": each.attributes["value"] or "" for each in told.css("form input")}
        assert "as before" in browser.post("/do/allow", form, is_part=True).text
        assert daemon.call("status")["senders"] == []
        assert [each["kind"] for each in needs(daemon)] == ["sender"]


def test_nobody_is_asked_about_senders_of_a_source_for_whom_all_is_decided(daemon: Served) -> None:
    """Who has refused everyone of a source does not want to be asked about each of them."""
    seed(daemon.home, [Asked(text="Buy this", sender="a@example.net", source="mail", trust=Trust.UNKNOWN)])
    with daemon.start():
        assert len(needs(daemon)) == 1
        daemon.call("deny", sender="*", source="mail")
        assert needs(daemon) == []
        taken = daemon.call("deny", sender="*", source="mail", is_undone=True)
        assert taken == {"source": "mail", "sender": "*", "trust": None}
        assert len(needs(daemon)) == 1


def test_sender_is_denied_and_allowed_where_a_message_of_theirs_is_read(daemon: Served) -> None:
    """The page that makes a pairing code says how to take it back: what was allowed must not be for ever."""
    [ref] = seed(daemon.home, [Asked(text="Hello", sender="ann@example.org", source="mail")])
    with daemon.start():
        browser = Browser(daemon)
        for decision, offered in (("unknown", "Deny"), ("known", "Allow"), ("unknown", "Deny")):
            [form] = browser.page(f"/part/message-rules/{ref}").css('form[action="/do/allow"]')
            fields = {each.attributes["name"] or "": each.attributes["value"] or "" for each in form.css("input")}
            assert (form.text(strip=True), fields) == (f"{offered} this sender", {"ref": ref, "decision": decision})
            assert browser.post("/do/allow", fields, is_part=True).status == 200
        senders = daemon.call("status")["senders"]
        assert [(each["sender"], each["trust"]) for each in senders] == [("ann@example.org", "unknown")]
