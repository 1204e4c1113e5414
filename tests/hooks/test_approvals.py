"""What a host asks is answered from elsewhere by you alone; whatever goes wrong, its own question is all there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import pytest

from harken.display import visible
from tests.hooks.rig import CLAUDE, DaemonFixture, hook_process
from tests.loss.rig import CALL_HELLO, Wire, error_of, journal_lines, until
from tests.web.test_page import Browser

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

HOSTILE: Final = "touch a\x1b[2J\u202e\x00 <script>alert(1)</script> {{ 7*7 }}\nrm -rf ~\r# safe"
OLD, NEW = "one\ntwo\n", "one\nthree\n"


def asked(command: str = "touch a", *, native: str = "per_1", **metadata: object) -> Mapping[str, object]:
    """Return what opencode asks, as its event says it."""
    return {
        "id": native,
        "permission": "bash",
        "patterns": [command],
        "metadata": {"command": command, **metadata},
        "always": ["touch *"],
    }


class AskingHost:
    """A plugin of opencode that asks, byte by byte."""

    def __init__(self, rig: DaemonFixture, question: object, session: str = "ses_1") -> None:
        body = json.dumps({"session_id": session, "cwd": "/code/shop", "turn": "msg_1", "asked": question}).encode()
        hello = {
            "harken": 1, "kind": "hook", "host": "opencode", "moment": "ask", "payload": len(body), "pid": 0,
            "ppid": os.getpid(), "cwd": "/", "env": {}, "token": "",
        }  # fmt: skip
        self._wire = Wire(rig.daemon.socket, hello)
        self._wire.say(body)

    def reply(self) -> Json:
        """Return what the host is given; None when it is left to the host, or the daemon hangs up."""
        return json.loads(self._wire.line()) if self._wire.line() not in (b"", b"0 0 0") else None

    def say(self, word: bytes) -> None:
        """Say what became of the answer, or that it was answered here."""
        self._wire.say(word)

    def close(self) -> None:
        """Go away."""
        self._wire.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()


def one(rig: DaemonFixture, **wanted: object) -> Json:
    """Return the approval that is as wanted, once there is one."""
    return until(lambda: next(iter(some(rig, **wanted)), None), f"an approval is {wanted}")


def some(rig: DaemonFixture, **wanted: object) -> list[Json]:
    """Return the approvals that are as wanted."""
    found = rig.daemon.call("approvals", all=True)["approvals"]
    return [each for each in found if all(each[name] == value for name, value in wanted.items())]


def answer(rig: DaemonFixture, approval: Json, choice: str, **more: object) -> Json:
    """Answer exactly what was asked."""
    return rig.daemon.call("approve", approval=approval["id"], digest=approval["digest"], choice=choice, **more)


def steps(home: Path) -> list[object]:
    """Return the steps in the journal."""
    return [line["change"] for line in journal_lines(home) if line["kind"] == "approval"]


@pytest.mark.parametrize(
    ("choice", "more", "reply"),
    [
        ("once", {}, {"reply": "once"}),
        ("always", {}, {"reply": "always"}),
        ("no", {"reason": "not on Fridays"}, {"reply": "reject", "message": "not on Fridays"}),
        ("no", {}, {"reply": "reject"}),
    ],
)
def test_host_gets_your_answer_and_says_that_it_took_it(
    rig: DaemonFixture, choice: str, more: Mapping[str, object], reply: Json
) -> None:
    """Asked, shown, answered, obeyed: each step is in the journal, with who and by what."""
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        assert (found["host"], found["session"], found["tool"]) == ("opencode", "opencode:ses_1", "bash")
        assert found["arguments"] == {"command": "touch a", "patterns": ["touch a"]}
        assert (found["folder"], found["always"], found["choices"]) == (
            "/code/shop",
            "touch *",
            ["once", "always", "no"],
        )
        answered = answer(rig, found, choice, **more)
        assert (answered["state"], answered["answered_by"], answered["through"]) == ("answered", "you", "cli")
        assert host.reply() == reply
        host.say(b"!")
        assert one(rig, state="obeyed")["because"] == "its host says that it took the answer"
    assert steps(rig.daemon.home) == ["asked", "shown", "answered", "obeyed"]


@pytest.mark.parametrize(("word", "because"), [(b"-", "in its own terminal"), (b"?", "no longer asks"), (b"", "no lo")])
def test_question_that_was_answered_at_the_terminal_or_whose_host_is_gone_is_withdrawn(
    rig: DaemonFixture, word: bytes, because: str
) -> None:
    """The first answer counts, wherever it is given: the other side is told, and can answer no more."""
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        host.say(word) if word else host.close()
        assert because in one(rig, state="withdrawn")["because"]
    assert error_of(rig.daemon, "approve", approval=found["id"], digest=found["digest"], choice="once")["code"] == (
        "conflict"
    )
    assert rig.daemon.call("needs")["needs"] == []


def test_answer_that_its_host_did_not_take_is_not_called_obeyed(rig: DaemonFixture) -> None:
    """Nothing is claimed: the host may have died with the answer in its hand."""
    with AskingHost(rig, asked()) as host:
        answer(rig, one(rig, state="open"), "once")
        assert host.reply() == {"reply": "once"}
    assert one(rig, state="withdrawn")["because"] == "its host did not say that it took the answer"


def test_daemon_that_is_killed_allows_nothing_and_withdraws_after_its_restart(rig: DaemonFixture) -> None:
    """The host hears nothing and asks by itself; when it asks again, that is another question."""
    with AskingHost(rig, asked()) as host:
        first = one(rig, state="open")
        rig.daemon.kill()
        assert host.reply() is None
    rig.daemon.start()
    assert "restarted" in one(rig, id=first["id"], state="withdrawn")["because"]
    with AskingHost(rig, asked()) as host:
        second = one(rig, state="open")
        assert second["id"] != first["id"]
        answer(rig, second, "no")
        assert host.reply() == {"reply": "reject"}


def test_first_of_two_answers_counts(rig: DaemonFixture) -> None:
    """The page and the phone: the second learns what was answered, and the host is told once."""
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        answer(rig, found, "no")
        late = error_of(rig.daemon, "approve", approval=found["id"], digest=found["digest"], choice="once")
        assert (late["code"], "answered already (by you)" in late["message"]) == ("conflict", True)
        assert host.reply() == {"reply": "reject"}


@pytest.mark.parametrize("forge", ["digest", "empty", "beginning", "unknown", "choice"])
def test_forged_answer_counts_for_nothing(rig: DaemonFixture, forge: str) -> None:
    """An answer names one question, and everything that it asks."""
    with AskingHost(rig, asked()), AskingHost(rig, asked("rm -rf /", native="per_2"), "ses_2"):
        mine, other = one(rig, session="opencode:ses_1", state="open"), one(rig, session="opencode:ses_2")
        given = {"approval": mine["id"], "digest": mine["digest"], "choice": "once"}
        forged = {
            "digest": {"digest": other["digest"]},
            "empty": {"digest": ""},
            "beginning": {"approval": mine["id"][:5]},
            "unknown": {"approval": "ap-zzzzzz"},
            "choice": {"choice": "yes"},
        }
        error = error_of(rig.daemon, "approve", **{**given, **forged[forge]})
        assert error["code"] in ("conflict", "not_found", "user_error")
        assert {each["state"] for each in some(rig)} == {"open"}


def test_answer_does_not_pass_to_what_the_host_asks_instead(rig: DaemonFixture) -> None:
    """Arguments that change between question and answer make another question; the old answer is replayed in vain."""
    with AskingHost(rig, asked()):
        first = one(rig, state="open")
        with AskingHost(rig, asked("rm -rf /")) as changed:
            second = one(rig, state="open", digest=one(rig, state="withdrawn") and some(rig)[-1]["digest"])
            for approval in (first["id"], second["id"]):
                given = {"approval": approval, "digest": first["digest"], "choice": "once"}
                assert error_of(rig.daemon, "approve", **given)["code"] == "conflict"
            answer(rig, second, "no")
            assert changed.reply() == {"reply": "reject"}


@pytest.mark.parametrize(
    "question",
    [None, [], "x", {}, {**asked(), "id": 7}, {**asked(), "metadata": "x"}, {**asked(), "permission": ""},
     asked("x" * 300_000), {**asked(), "metadata": {"\ud800": "\udc00"}},
     asked(deep=json.loads("[" * 300 + "]" * 300))],
    ids=[str(number) for number in range(10)],
)  # fmt: skip
def test_what_cannot_be_understood_or_shown_is_left_to_the_host(rig: DaemonFixture, question: object) -> None:
    """No word at all: the host asks in its own terminal."""
    with AskingHost(rig, question) as host:
        if isinstance(question, dict) and question.get("metadata") == {"\ud800": "\udc00"}:
            assert one(rig, state="open")["tool"] == "bash"  # with a mark in the place of what is no letter
            return
        assert host.reply() is None
    assert some(rig) == []


COLOUR: Final = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "like <b>fire</b>"}, {"label": "Blue"}],
}
SIZES: Final = {"question": "Which sizes?", "options": [{"label": "S"}, {"label": "L"}], "multiple": True}


def test_questions_of_an_agent_are_shown_with_their_options_and_answered(
    rig: DaemonFixture, harken: Callable[..., str]
) -> None:
    """An answer to each, on the page, and nothing that would be an answer to less."""
    with AskingHost(rig, {"id": "que_1", "questions": [COLOUR, SIZES]}) as host:
        found = one(rig, state="open")
        assert (found["choices"], found["always"]) == (["answer", "no"], "")
        for wrong in ({"choice": "once"}, {"choice": "answer"}, {"choice": "answer", "reason": "Red"}):
            assert error_of(rig.daemon, "approve", approval=found["id"], digest=found["digest"], **wrong)
        assert "asks you a question" in harken("needs")
        assert "- Red: like <b>fire</b>" in harken("approve")
        browser = Browser(rig.daemon)
        (form,) = browser.page("/needs").css(".in-words")
        assert [each.text(strip=True) for each in form.css("label")] == ["Red", "Blue", "S", "L"]
        fields = {
            str(each.attributes["name"]): str(each.attributes["value"]) for each in form.css("input[type=hidden]")
        }
        chosen = {"answer-0": "Red", "words-0": "", "answer-1-0": "S", "answer-1-1": "L", "words-1": ""}
        sent = browser.post("/do/approve", {**fields, **chosen, "choice": "answer"}, is_part=True)
        assert (sent.status, "Answered." in sent.text) == (200, True)
        assert host.reply() == {"answers": [["Red"], ["S", "L"]]}
        host.say(b"!")
        assert one(rig, state="obeyed")["reason"] == "Red\nS, L"


def test_question_is_refused_or_answered_in_other_words(rig: DaemonFixture, harken: Callable[..., str]) -> None:
    """What is offered is not all there is; what was refused has no answer."""
    with AskingHost(rig, {"id": "que_1", "questions": [COLOUR]}) as host:
        assert "answer, by you" in harken("approve", one(rig, state="open")["id"], "answer", "green\u202e, please")
        assert host.reply() == {"answers": [["green\\u202e, please"]]}
        host.say(b"!")
    with AskingHost(rig, {"id": "que_2", "questions": [COLOUR]}) as host:
        harken("approve", one(rig, state="open")["id"], "no")
        assert host.reply() == {"reject": True}


@pytest.mark.parametrize("questions", [[], "x", [COLOUR, COLOUR], [{**COLOUR, "more": 1}], [COLOUR] * 11])
def test_question_that_cannot_be_shown_whole_stays_in_its_terminal(rig: DaemonFixture, questions: object) -> None:
    """What is not understood is not answered."""
    with AskingHost(rig, {"id": "que_1", "questions": questions}) as host:
        assert host.reply() is None
    assert some(rig) == []


RULES: Final = """
[[approvals]]
answer = "ask"
tool = "BASH"
argument = "touch *"

[[approvals]]
answer = "refuse"
host = "opencode"
tool = "b*"
argument = "*rm -rf*"
reason = "Use trash."
"""


def test_rule_refuses_at_once_and_is_taken_over_while_the_daemon_runs(rig: DaemonFixture) -> None:
    """What is refused is in the journal with its rule, and was never shown; what matches none is asked."""
    (rig.daemon.home / "config.toml").write_text(RULES)
    assert "approvals" in rig.daemon.call("reload")["settings"]
    with AskingHost(rig, asked("cd / && RM -RF ~")) as host:
        assert host.reply() == {"reply": "reject", "message": "Use trash."}
        host.say(b"!")
        found = one(rig, state="obeyed")
    assert (found["answered_by"], found["through"], found["shown"]) == ("rule 2", "rules", [])
    with AskingHost(rig, asked("ls", native="per_2")):
        assert one(rig, state="open")["choices"] == ["once", "always", "no"]
    assert rig.daemon.call("status")["approvals"]["rules"] == 2
    for words in (["status"], ["doctor"]):
        command = [sys.executable, "-m", "harken", "--home", str(rig.daemon.home), *words]
        assert b"2 rules in the settings" in subprocess.run(command, capture_output=True, check=False).stdout


def test_rule_that_has_something_asked_each_time_takes_always_away(rig: DaemonFixture) -> None:
    """The first rule that fits decides, so that part of what another one refuses can be asked."""
    (rig.daemon.home / "config.toml").write_text(RULES)
    rig.daemon.call("reload")
    with AskingHost(rig, asked("touch rm -rf")) as host:
        found = one(rig, state="open")
        assert (found["choices"], found["always"]) == (["once", "no"], "")
        assert error_of(rig.daemon, "approve", approval=found["id"], digest=found["digest"], choice="always")
        answer(rig, found, "once")
        assert host.reply() == {"reply": "once"}


def test_agent_cannot_answer_its_own_question(rig: DaemonFixture) -> None:
    """By the command, a raw socket, the API with the token file, or words in a chat: it is known by what it is."""
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        given = {"approval": found["id"], "digest": found["digest"], "choice": "once"}
        marked = {**json.loads(CALL_HELLO), "env": {"OPENCODE": "1"}}
        with Wire(rig.daemon.socket, marked) as wire:
            wire.say({"id": 1, "method": "approve", "params": given})
            assert json.loads(wire.line())["error"]["code"] == "refused"
            for verb, params in (("approvals", {}), ("approval", {"approval": found["id"]}), ("needs", {})):
                wire.say({"id": 2, "method": verb, "params": params})
                assert json.loads(wire.line())["error"]["code"] == "refused"
            for text in (f"yes {found['id']}", f"answer {found['id']} Blue"):
                wire.say({"id": 4, "method": "send", "params": {"text": text, "source": "teams", "sender": "owner"}})
                wire.line()
                wire.say({"id": 5, "method": "send", "params": {"text": text}})
                assert "result" in json.loads(wire.line())
            wire.say({"id": 3, "method": "journal", "params": {"after": 0}})
            assert "approval" not in {each["kind"] for each in json.loads(wire.line())["result"]["events"]}
        command = [sys.executable, "-m", "harken", "--home", str(rig.daemon.home), "approve", found["id"], "once"]
        done = subprocess.run(command, env={**os.environ, "OPENCODE": "1"}, capture_output=True, check=False)
        assert (done.returncode != 0, b"agent may not" in done.stderr) == (True, True)
        for text in ("yes", f"yes {found['id']}", f"answer {found['id']} x", f"/approve {found['id']} once"):
            rig.daemon.call("send", text=text, sender="eve", channel="chat")
        assert one(rig, id=found["id"])["state"] == "open"
        answer(rig, found, "no")
        assert host.reply() == {"reply": "reject"}


def test_token_file_in_the_hands_of_an_agent_answers_nothing(rig: DaemonFixture) -> None:
    """It can read the file like everything else of yours, and speak HTTP: its process is known by its mark."""
    with AskingHost(rig, asked()):
        found = one(rig, state="open")
        given = json.dumps({"approval": found["id"], "digest": found["digest"], "choice": "once"})
        program = (
            "import sys, urllib.request, urllib.error\n"
            "url, token, body = sys.argv[1:]\n"
            "asked = urllib.request.Request(url, body.encode(), {'Authorization': 'Bearer ' + token})\n"
            "try: print(urllib.request.urlopen(asked).status)\n"
            "except urllib.error.HTTPError as exc: print(exc.code, exc.read().decode())\n"
        )
        url = f"{rig.daemon.facts['url'].rstrip('/')}/api/approve"
        token = (rig.daemon.home / "token").read_text().strip()
        command = [sys.executable, "-c", program, url, token, given]
        environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        done = subprocess.run(command, env={**environ, "OPENCODE": "1"}, capture_output=True, check=True)
        assert done.stdout.startswith(b"403"), done
        assert one(rig, id=found["id"])["state"] == "open"
        done = subprocess.run(command, env=environ, capture_output=True, check=True)
        assert done.stdout.startswith(b"200"), done
        assert one(rig, id=found["id"])["state"] == "answered"


def test_page_shows_everything_that_is_asked_and_takes_the_answer(rig: DaemonFixture) -> None:
    """Hostile text stays text that can be seen, nothing of it is cut, and the form answers what it shows."""
    with AskingHost(rig, asked(HOSTILE)) as host:
        found = one(rig, state="open")
        browser = Browser(rig.daemon)
        page = browser.page("/needs")
        shown = [each.text() for each in page.css(".asked pre")]
        assert shown[0].split("\n") == [line.replace("\r", "\\r") for line in visible(HOSTILE).split("\n")] or (
            "rm -rf ~" in shown[0] and "\x1b" not in shown[0] and "\u202e" not in shown[0]
        )
        assert page.css_first(".asked script") is None
        hidden = page.css(".approve")[0].css("input[type=hidden]")
        form = {str(each.attributes["name"]): str(each.attributes["value"]) for each in hidden}
        assert form == {"approval": found["id"], "digest": found["digest"]}
        assert [each.attributes["value"] for each in page.css(".approve button")] == ["once", "always", "no"]
        sent = browser.post("/do/approve", {**form, "choice": "no", "reason": "no\u202e!"}, is_part=True)
        assert (sent.status, "Refused." in sent.text) == (200, True)
        assert host.reply() == {"reply": "reject", "message": "no\\u202e!"}
        again = browser.post("/do/approve", {**form, "choice": "once"}, is_part=True)
        assert again.status == 409
        assert one(rig, id=found["id"])["through"] == "page"


def test_edit_is_shown_as_its_diff(rig: DaemonFixture) -> None:
    """A change is judged by what it changes."""
    with AskingHost(rig, asked(old_string=OLD, new_string=NEW, filePath="/code/shop/a")):
        parts = {each["name"]: each["text"] for each in one(rig, state="open")["parts"]}
        assert parts["change"].splitlines()[1:] == [" one", "-two", "+three"]
        assert parts["filePath"] == "/code/shop/a"


def test_edit_of_line_ends_is_shown(rig: DaemonFixture) -> None:
    """A character that looks like the end of a line keeps a command in a comment, until an edit makes it a real one."""
    hidden = "# safe\u2028import os"
    with AskingHost(rig, asked(old_string=hidden, new_string=hidden.replace("\u2028", "\n"))):
        (change,) = [each["text"] for each in one(rig, state="open")["parts"] if each["name"] == "change"]
        assert change.splitlines()[1:] == ["-# safe\\u2028import os", "+# safe", "+import os"]


@pytest.mark.parametrize("letter", ["\xa0", "\u3164", "\ufe0f", "\u2800"])
def test_letter_that_nobody_sees_is_shown(rig: DaemonFixture, letter: str) -> None:
    """A program whose name only looks like one that you know is another one."""
    escape = letter.encode("unicode_escape").decode()
    with AskingHost(rig, asked(f"./git{letter}status")):
        found = one(rig, state="open")
        assert {each["text"] for each in found["parts"] if each["name"] == "command"} == {f"./git{escape}status"}
        shown = Browser(rig.daemon).page("/needs").css(".asked pre")
        assert f"./git{escape}status" in shown[0].text()


def test_question_that_offers_another_rule_is_another_one(rig: DaemonFixture) -> None:
    """Who asks the same again by the same id may not have you allow for ever what you were not shown."""
    with AskingHost(rig, asked()), AskingHost(rig, {**asked(), "always": ["*"]}):
        first = one(rig, state="withdrawn")
        assert error_of(rig.daemon, "approve", approval=first["id"], digest=first["digest"], choice="always")
        assert one(rig, state="open")["always"] == "*"


def test_command_line_shows_it_whole_and_answers(rig: DaemonFixture, harken: Callable[..., str]) -> None:
    """What is cut would be answered unseen; what could act on a terminal is written as an escape."""
    with AskingHost(rig, asked("x" * 3_000 + HOSTILE)) as host:
        found = one(rig, state="open")
        for words in (["approve"], ["approve", found["id"][:6]], ["waiting"]):
            told = harken(*words)
            assert "x" * 3_000 in told
            assert "\x1b" not in told
            assert "\\u202e" in told
        assert "1 agent asks before a tool is used" in harken("status")
        assert f"approve {found['id']}" in harken("needs")
        assert "no, by you (cli)" in harken("approve", found["id"][:6], "no", "use make")
        assert host.reply() == {"reply": "reject", "message": "use make"}


def test_doctor_says_what_answers_have_proven(rig: DaemonFixture) -> None:
    """That it is switched on proves nothing: what counts is a host that did what was answered."""
    with AskingHost(rig, asked()) as host, AskingHost(rig, asked(), "ses_2"):
        one(rig, session="opencode:ses_2")
        answer(rig, one(rig, session="opencode:ses_1"), "once")
        host.reply()
        host.say(b"!")
        until(lambda: some(rig, state="obeyed"), "one is obeyed")
        command = [sys.executable, "-m", "harken", "--home", str(rig.daemon.home), "doctor", "opencode", "--json"]
        done = subprocess.run(command, capture_output=True, check=False)
    (said,) = json.loads(done.stdout)["hosts"]
    assert (said["approvals"]["asked"], said["approvals"]["obeyed"]) == (2, 1)
    assert said["approvals"]["last_obeyed_at"]


@pytest.fixture
def harken(rig: DaemonFixture) -> Callable[..., str]:
    """Run a command as you do in a terminal."""

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "harken", "--home", str(rig.daemon.home), *words]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()

    return run


def permission(command: str = "touch a", **more: object) -> bytes:
    """Return what Claude Code writes to its hook."""
    return json.dumps(
        {
            "session_id": "776f", "transcript_path": "/nowhere/p/s/776f.jsonl",
            "cwd": "/code/shop", "prompt_id": "03a0",
            "permission_mode": "default", "hook_event_name": "PermissionRequest", "tool_name": "Bash",
            "tool_input": {"command": command, "description": "make a file"}, "permission_suggestions": [
                {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
                {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "behavior": "allow",
                 "destination": "localSettings"},
            ], **more,
        }
    ).encode()  # fmt: skip


@pytest.mark.parametrize("choice", ["once", "always", "no"])
def test_hook_of_a_host_waits_for_you_and_prints_your_answer(rig: DaemonFixture, choice: str) -> None:
    """The real script: what it prints is the decision, and for `always` only the rule that was shown."""
    with hook_process(rig.daemon.home, CLAUDE.name, "ask") as hook:
        assert hook.stdin is not None
        hook.stdin.write(permission())
        hook.stdin.close()
        found = one(rig, state="open")
        assert found["always"] == "Bash(touch:*) in localSettings"
        answer(rig, found, choice, **({"reason": "use make"} if choice == "no" else {}))
        assert hook.wait(30) == 0
        assert hook.stdout is not None
        decision = json.loads(hook.stdout.read())["hookSpecificOutput"]["decision"]
    rule = {"rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "behavior": "allow"}
    expected = {
        "once": {"behavior": "allow"},
        "always": {"behavior": "allow", "updatedPermissions": [
            {"type": "addRules", **rule, "destination": "localSettings"}]},
        "no": {"behavior": "deny", "message": "use make"},
    }  # fmt: skip
    assert decision == expected[choice]
    assert one(rig, id=found["id"])["state"] == "answered"  # no evidence yet of what the host did


PICKED: Final = {"questions": [COLOUR, SIZES], "answers": {"Which colour?": "Blue", "Which sizes?": "S, L"}}


@pytest.mark.parametrize(
    ("asked_for", "given", "decision"),
    [
        (("AskUserQuestion", {"questions": [COLOUR, SIZES]}), ("answer", "Blue\nS, L"),
         {"behavior": "allow", "updatedInput": PICKED}),
        (("AskUserQuestion", {"questions": [COLOUR]}), ("no", "later"), {"behavior": "deny", "message": "later"}),
        (("ExitPlanMode", {"plan": "# Plan", "allowedPrompts": [{"tool": "Bash"}]}), ("once", ""),
         {"behavior": "allow", "updatedInput": {"allowedPrompts": []}}),
        (("ExitPlanMode", {"plan": "# Plan"}), ("no", "too long"), {"behavior": "deny", "message": "too long"}),
    ],
)  # fmt: skip
def test_plans_and_questions_of_claude_code_go_the_same_way(
    rig: DaemonFixture, asked_for: tuple[str, Json], given: tuple[str, str], decision: Json
) -> None:
    """What a plan would allow in advance is asked for all the same, and `always` is not offered for either."""
    (tool, arguments), (choice, reason) = asked_for, given
    with hook_process(rig.daemon.home, CLAUDE.name, "ask") as hook:
        assert hook.stdin is not None
        hook.stdin.write(permission(tool_name=tool, tool_input=arguments))
        hook.stdin.close()
        found = one(rig, state="open")
        assert found["choices"] == ["answer" if tool == "AskUserQuestion" else "once", "no"]
        answer(rig, found, choice, **({"reason": reason} if reason else {}))
        assert hook.wait(30) == 0
        assert hook.stdout is not None
        assert json.loads(hook.stdout.read())["hookSpecificOutput"]["decision"] == decision


@pytest.mark.parametrize("how", ["term", "kill", "daemon"])
def test_hook_that_ends_without_an_answer_prints_nothing(rig: DaemonFixture, how: str) -> None:
    """A No in the terminal ends it; a daemon that dies must look like one that has no opinion."""
    with hook_process(rig.daemon.home, CLAUDE.name, "ask") as hook:
        assert hook.stdin is not None
        hook.stdin.write(permission())
        hook.stdin.close()
        one(rig, state="open")
        if how == "daemon":
            rig.daemon.kill()
        else:
            hook.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
        code = hook.wait(30)
        assert hook.stdout is not None
        assert hook.stdout.read() == b""
    assert (code == 0) == (how == "daemon")
    if how != "daemon":
        assert one(rig, state="withdrawn")["because"] == "its host no longer asks"


def test_yes_in_the_terminal_is_seen_in_the_hosts_own_file(rig: DaemonFixture, tmp_path: Path) -> None:
    """Claude Code does not tell its hook of it; its answer would change nothing any more."""
    transcript, state = tmp_path / "projects" / "p" / "t.jsonl", tmp_path / "sessions" / f"{os.getpid()}.json"
    state.parent.mkdir()
    with hook_process(rig.daemon.home, CLAUDE.name, "ask") as hook:
        assert hook.stdin is not None
        hook.stdin.write(permission(transcript_path=str(transcript)))
        hook.stdin.close()
        one(rig, state="open")
        # The daemon looks now and then: sooner or later it has seen the one, and then the other.
        said = cycle(["waiting", "busy"])

        def is_withdrawn() -> bool:
            state.write_text(json.dumps({"status": next(said)}))
            return bool(some(rig, state="withdrawn"))

        until(is_withdrawn, "the daemon has seen it")
        assert one(rig, state="withdrawn")["because"] == "it was answered in its own terminal"
        assert hook.wait(30) == 0


def test_record_of_the_host_proves_what_it_did(rig: DaemonFixture, tmp_path: Path) -> None:
    """Printed is not obeyed: the result of this very call in the transcript is."""
    transcript = tmp_path / "projects" / "p" / "t.jsonl"
    transcript.parent.mkdir(parents=True)
    with hook_process(rig.daemon.home, CLAUDE.name, "ask") as hook:
        assert hook.stdin is not None
        hook.stdin.write(permission(transcript_path=str(transcript)))
        hook.stdin.close()
        found = one(rig, state="open")
        answer(rig, found, "once")
        assert hook.wait(30) == 0
    guest = rig.session(CLAUDE)
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash"}
    given = {"command": "touch a", "description": "make a file"}
    lines: list[Json] = [{"type": "assistant", "message": {"content": [{**call, "input": {"command": "touch b"}}]}}]
    for entry, state in (
        ({"type": "assistant", "message": {"content": [{**call, "input": given}]}}, "answered"),
        ({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}}, "obeyed"),
    ):
        lines.append(entry)
        transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))
        guest.stop()
        assert one(rig, id=found["id"])["state"] == state
    assert one(rig, id=found["id"])["because"] == "the result of toolu_1 in its record"
