"""What needs you: runs that wait for a sign-in, rules that no agent can run, several questions of one conversation."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from harken.model import Trust
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
