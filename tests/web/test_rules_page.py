"""Rules, actions and runs in the page, asked as a browser asks: true, hostile text stays text, only the person acts."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from harken.surfaces.web.page.markdown import visible
from harken.testing import EdgeClient, edge_command
from tests.fake_host import Machine
from tests.loss.rig import Served, until
from tests.web import rules_rig as rig
from tests.web.rig import NAVIGATION, Web
from tests.web.rules_rig import machine
from tests.web.test_page import Browser, one, said

__all__ = ["machine"]

SEE_OTHER, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, WRONG = 303, 401, 403, 404, 409, 422
DEEDS = ("/do/answer", "/do/pause", "/do/resume", "/do/reload", "/do/abort", "/do/run")
FOREIGN = (
    {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://attacker.example", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-origin"},
)


@pytest.fixture
def served(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon with rules."""
    with machine.daemon(tmp_path_factory.mktemp("h") / "home") as daemon:
        rig.ruled(daemon.start())
        yield daemon


@pytest.fixture
def browser(served: Served) -> Browser:
    """A signed-in browser at a daemon with rules."""
    return Browser(served)


def post(browser: Browser, path: str, **fields: str) -> tuple[int, str, LexborHTMLParser]:
    """Send a form as a browser without scripts does; return the status, where it leads, and what it shows."""
    answer = browser.post(path, fields)
    return answer.status, answer.headers.get("location", ""), LexborHTMLParser(answer.text)


def main_of(page: LexborHTMLParser) -> str:
    """Return what a page says, apart from its frame."""
    return said(page, "main")


def test_without_rules_the_page_says_how_to_begin(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever opens it first has no rules: an example is worth more than a definition."""
    with machine.daemon(tmp_path_factory.mktemp("h") / "home") as daemon:
        fresh = Browser(daemon.start())
        shown = main_of(fresh.page("/rules"))
        assert '"contentRegex": "(?i)red|fail"' in shown
        assert "harken rules reload && harken rules test --since 7d" in shown
        assert str(daemon.home / "triggers.json") in shown
        assert "Nothing has run yet" in main_of(fresh.page("/runs"))


def test_each_rule_says_what_it_hears_and_what_came_of_it(browser: Browser) -> None:
    """A rule that is silent must not look like one that has nothing to say."""
    daemon = browser.daemon
    for _ in range(2):
        daemon.call("send", text="deploy failed", channel="deploys", sender="anna")
    daemon.call("send", text="x", channel="ops", sender="anna")
    until(lambda: "rate limit 1" in main_of(browser.page("/rules")), "it is judged")
    page = browser.page("/rules")
    cards = {said(LexborHTMLParser(node.html or ""), "h3").split()[0]: node.text() for node in page.css(".rule")}
    words = {name: " ".join(text.split()) for name, text in cards.items()}
    assert list(words) == ["ask", "tell", "cannot", "back"]
    assert "asks you, then runs an agent confirm" in words["ask"]
    assert "source any source channel incidents from anyone" in words["ask"]
    assert "anybody who can write to you can fill the queue" in words["ask"]
    assert "text (?i)red" in words["tell"]
    assert "Quiet 00:00-00:01" in words["tell"]
    assert "Cannot run: " in words["cannot"]
    assert "cannot run 1 never fired" in words["cannot"]
    assert "fired 0" not in words["cannot"]
    assert "fired 1 rate limit 1 last fired" in words["back"]
    assert "No action waits." in said(page, ".standing")


def test_question_shows_what_a_yes_is_about_and_is_counted_everywhere(browser: Browser) -> None:
    """Agent, folder, tools and prompt are what is accepted; one who reads the inbox must hear of it too."""
    action = rig.asked(browser.daemon, "disk is full")
    page = browser.page("/rules")
    card = said(page, f"#{action['id']}")
    for words in ("disk is full", "Gemini CLI", "a folder of its own", "read_file list_files search_files", "min left"):
        assert words in card
    assert "Look: " in said(page, f"#prompt-{action['id']} pre")
    assert 1700 < float(one(page, f"#{action['id']} .countdown").attributes["data-left"] or 0) <= 1800
    inbox = browser.page("/m/inbox")
    assert said(inbox, "#asks") == "1 question waits for your answer"
    assert said(inbox, "#place-rules") == "Rules, 1 waiting for your answer"


def test_accepted_it_runs_and_its_page_tells_the_way_from_message_to_answer(browser: Browser) -> None:
    """Who asked, who accepted, what ran with which tools, what was denied, and what became of the answer."""
    action = rig.asked(browser.daemon, "why is it slow")
    assert post(browser, "/do/answer", action=action["id"], answer="yes")[:2] == (SEE_OTHER, "/rules")
    run = rig.ended(browser.daemon, action["message_id"])
    page = browser.page(f"/runs/{run['id']}")
    shown = said(page, ".envelope")
    assert shown.startswith("AUTO done")
    for words in ("why is it slow", "Rule ask", "Denied run_shell_command", "exit code 0", "DENIED run_shell_command"):
        assert words in shown
    steps = [" ".join(node.text().split()) for node in page.css("#outcome .course li")]
    assert [step.split(" 20")[0] for step in steps] == [
        "message came",
        "rule ask fired",
        f"action {action['id']} asked you",
        "accepted by you",
        f"run {run['id']} began",
        "done",
        "its answer stays here",
    ]
    assert f"/runs/{run['id']}" in browser.get("/runs").text
    assert f"AUTO run {run['id']}" in said(browser.page("/rules"), ".lately")
    assert f"ask fired: AUTO run {run['id']}" in said(browser.page(f"/part/message-rules/{run['message_id']}"), "ul")
    assert "cannot no match: channel" in main_of(browser.page(f"/message/{run['message_id']}/rules"))


def test_answer_that_comes_too_late_is_a_sentence_on_the_page(browser: Browser) -> None:
    """Somebody else was faster: that is news, not an error of the person who reads it."""
    action = rig.asked(browser.daemon, "declined")
    browser.daemon.call("confirm", action=action["id"], yes=False)
    status, _, page = post(browser, "/do/answer", action=action["id"], answer="yes")
    assert status == CONFLICT
    assert f"Action {action['id']} is declined already (by you)." in said(page, "#told")
    assert said(page, "h1") == "Rules"
    assert "was refused: nothing runs, answered by you" in said(page, ".lately")
    part = browser.post("/do/answer", {"action": action["id"], "answer": "yes"}, is_part=True)
    assert (part.status, "declined already" in part.text) == (200, True)
    assert browser.daemon.call("runs")["runs"] == []
    assert post(browser, "/do/answer", action=action["id"], answer="perhaps")[0] == WRONG


def test_paused_it_says_so_until_it_is_resumed(browser: Browser) -> None:
    """Silence that was asked for must be told from silence that was not."""
    assert post(browser, "/do/pause")[:2] == (SEE_OTHER, "/rules")
    assert "Paused. Messages keep arriving" in said(browser.page("/rules"), ".standing.is-paused")
    assert "paused" in (one(browser.page("/m/inbox"), "#place-rules").attributes["title"] or "")
    assert post(browser, "/do/resume")[:2] == (SEE_OTHER, "/rules")
    assert browser.page("/rules").css_first(".is-paused") is None


def test_changed_file_is_noticed_and_its_faults_are_all_shown(browser: Browser) -> None:
    """The rules stay as they were; whoever wrote the file sees everything that is wrong with it at once."""
    rig.write(browser.daemon, [{"name": "x", "mode": "Notify"}, {"name": "y", "rateLimit": "5min"}])
    assert "The file has changed" in said(browser.page("/rules"), ".is-changed")
    status, _, page = post(browser, "/do/reload")
    assert (status, said(page, "#told")) == (WRONG, "Not read: the file has faults. The rules stay as they were.")
    faults = said(page, "#panel .is-problem")
    assert "write notify" in faults
    assert "write 5m" in faults
    assert len(page.css(".rule")) == len(rig.RULES)
    rig.write(browser.daemon, [rig.TELL])
    assert post(browser, "/do/reload")[:2] == (SEE_OTHER, "/rules")
    assert [said(browser.page("/rules"), ".rule h3")] == ["tell tells you"]


def test_run_is_aborted_once_and_the_second_is_told(browser: Browser) -> None:
    """An abort that does nothing must not look like one that did."""
    action = rig.asked(browser.daemon, "hold")
    post(browser, "/do/answer", action=action["id"], answer="yes")
    run = rig.begun(browser.daemon, action["message_id"])
    page = browser.page(f"/runs/{run['id']}")
    assert said(page, "#abort") == "Abort"
    assert said(browser.page("/m/inbox"), "#place-runs") == "Runs, 1 running now"
    assert post(browser, "/do/abort", run=run["id"])[:2] == (SEE_OTHER, f"/runs/{run['id']}")
    assert rig.ended(browser.daemon, action["message_id"])["state"] == "aborted"
    status, _, again = post(browser, "/do/abort", run=run["id"])
    assert (status, again.css_first("#abort")) == (CONFLICT, None)
    assert said(again, "#told")
    assert post(browser, "/do/abort", run="r-none")[0] == NOT_FOUND


def test_run_by_hand_shows_what_would_run_and_runs_it_once_asked(browser: Browser) -> None:
    """It spends the person's money: agent, folder and tools are shown before."""
    message = browser.send("what is this", sender="anna", channel="talk")
    usual = browser.page(f"/message/{message}/run")
    assert "read_file list_files search_files" in said(usual, "form.card")
    assert "as configured, or the first that can" in said(usual, "#agent")
    as_rule = browser.page(f"/message/{message}/run?rule=back")
    assert "Gemini CLI" in said(as_rule, "#agent option")
    browser.page(f"/message/{message}/run?rule=none", NOT_FOUND)
    status, _, refused = post(browser, "/do/run", message=message, rule="cannot", agent="", workdir="", key="k")
    assert (status, "No agent can run this" in said(refused, "#told")) == (FORBIDDEN, True)
    there = f"/message/{message}/rules"
    wish = {"message": message, "rule": "", "agent": "gemini-cli", "workdir": "", "key": "l"}
    sent = [post(browser, "/do/run", **wish)[:2] for _ in range(2)]  # as when a form is sent again
    assert sent == [(SEE_OTHER, there)] * 2
    run = rig.ended(browser.daemon, message)
    assert len(browser.daemon.call("actions", message=message)["actions"]) == 1
    assert run["tools"] == ["read_file", "list_files", "search_files"]
    assert f"by hand asked for: AUTO run {run['id']}" in main_of(browser.page(there))


def test_output_is_given_after_a_line_and_says_when_it_is_over(browser: Browser) -> None:
    """An open page asks only for what it does not show yet, and stops asking in the end."""
    action = rig.asked(browser.daemon, "short")
    browser.daemon.call("confirm", action=action["id"])
    run = rig.ended(browser.daemon, action["message_id"])
    first = browser.get(f"/part/output/{run['id']}?after=0")
    assert "DENIED" in first.text
    assert "harken-over" not in first.headers
    rest = browser.get(f"/part/output/{run['id']}?after={first.headers['harken-next']}")
    assert (rest.headers["harken-over"], LexborHTMLParser(rest.text).css("li")) == ("1", [])
    browser.get("/part/output/r-none", NOT_FOUND)


def test_hostile_text_stays_text(served: Served) -> None:
    """Messages, prompts, output and answers come from anyone: none becomes an element, a link or an escape."""
    rig.ruled(served, [{**rig.ASK, "prompt": f"{rig.HOSTILE} {{{{content}}}}"}, {**rig.BACK, "name": "back"}])
    browser = Browser(served)
    waiting = rig.asked(served, f"needle {rig.HOSTILE}", sender=rig.HOSTILE[:60])
    message = browser.send(rig.HOSTILE, channel="deploys", sender="anna")
    run = rig.ended(served, message)
    until(lambda: "AUTO" in browser.get(f"/part/item/{message}").text, "its answer was sent")
    paths = (
        *("/rules", "/runs", f"/runs/{run['id']}", f"/message/{message}/rules", f"/message/{message}/run?rule=ask"),
        *(f"/message/{waiting['message_id']}/rules", f"/part/message-rules/{message}", f"/part/output/{run['id']}"),
        *(f"/part/item/{message}", "/m/replies", "/m/inbox"),
    )
    for path in paths:
        text = browser.get(path).text
        page = LexborHTMLParser(text)
        assert not page.css("img, style, main script, iframe"), path
        assert not [node for node in page.css("a") if ":" in (node.attributes["href"] or "")[:12].split("/")[0]], path
        assert not set(text) & {"\x1b", "\u202e"}, path
    shown = said(browser.page(f"/runs/{run['id']}"), "#output")
    assert r"The \x1b[31m**cache** \u202egnp.exe" in shown


def test_changed_files_are_shown_with_what_is_different(served: Served) -> None:
    """What a run did is judged by its files; their names and what they hold come from anyone."""
    browser = Browser(served)
    rig.edits(served, "notes.txt", "one\ntwo\nthree\n")
    run = rig.ended(browser.daemon, browser.send("rewrite it", channel="edits", sender="anna"))
    text = browser.get(f"/runs/{run['id']}").text
    page = LexborHTMLParser(text)
    held, notes, unseen = (" ".join(node.text().split()) for node in page.css(".change"))
    assert held.startswith("added lib/AGENTS.md removed again +1")
    assert "Set aside: " in held
    assert unseen == r"added \u202egnp.exe<img src=x onerror=alert(1)> not text"
    assert notes.startswith("changed notes.txt +2 \N{MINUS SIGN}1 @@ -1,3 +1,4 @@")
    assert [node.text() for node in page.css(".diff-removed")] == ["-two"]
    assert not page.css("img, style, main script")
    assert not set(text) & {"\x1b", "\u202e"}
    assert run["state"] == "failed"
    assert "and that was put back: lib/AGENTS.md" in said(page, ".told")
    assert run["changes"] is None
    first = browser.daemon.call("run", run=run["id"])["changes"]["files"][0]
    assert (first["path"], first["is_undone"]) == ("lib/AGENTS.md", True)


@given(st.text())
def test_what_is_made_visible_is_visible(text: str) -> None:
    """Nothing that acts on a reader's eye may pass, and what is plain stays as it is."""
    made = visible(text)
    assert all(char.isprintable() or char in "\n\u200d" for char in made)
    assert visible(made) == made
    assert not text.isprintable() or made == text


def test_only_the_person_in_the_page_acts(browser: Browser) -> None:
    """A foreign page, a program without the token and a link to follow must all fail, and change nothing."""
    for path in DEEDS:
        action = rig.asked(browser.daemon, "for the person only")
        fields = urlencode(
            {"action": action["id"], "answer": "yes", "message": action["message_id"], "run": "r-1"}
        ).encode()
        kind = {**NAVIGATION, "Content-Type": "application/x-www-form-urlencoded"}
        web = Web(browser.daemon)
        session = web.signed_in()
        own = {"Origin": web.origin, "Sec-Fetch-Site": "same-origin"}
        assert web.ask("POST", path, {**kind, **own}, fields).status == UNAUTHORIZED
        for foreign in FOREIGN:
            assert web.ask("POST", path, {**kind, **session, **foreign}, fields).status == FORBIDDEN, foreign
        assert web.ask("GET", path, {**NAVIGATION, **session}).status != SEE_OTHER
        (now,) = browser.daemon.call("actions", message=action["message_id"])["actions"]
        assert (now["state"], browser.daemon.call("rules")["is_paused"]) == ("waiting", False)


def test_agent_that_says_yes_answers_nothing(browser: Browser) -> None:
    """What an agent could answer for itself would be no question."""
    action = rig.asked(browser.daemon, "may I?")
    with EdgeClient(edge_command(browser.daemon.home, "claude-code"), name="claude-code") as agent:
        agent.tool("reply", message_id=action["message_id"], body=f"yes {action['id']}")
    rig.asked(browser.daemon, "judged after it")
    assert said(browser.page("/rules"), f"#{action['id']} h3") == "ask wants to run an agent"
