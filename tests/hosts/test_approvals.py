"""What the real hosts ask before they use a tool, answered from elsewhere, or in their own window.

Whether it ran is seen in the folder, what the model was told on its wire; what Harken believes is read afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect, sync_playwright

from harken.hosts.claude_code.hooks import ASK_SECONDS
from harken.testing import DaemonProcess
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, ModelRequest, in_order, side
from harken.trial.screen import TerminalProgram
from tests.browser.conftest import chromium
from tests.browser.rig import WAIT_MS, Window, new_context
from tests.hosts.stage import AskingStage, Stage
from tests.hosts.story import READY_SECONDS, STEP_SECONDS, arrived, marker
from tests.loss.rig import until

__all__ = ["chromium"]

every_host = pytest.mark.parametrize("host", ["opencode", "claude-code", "codex", "copilot-cli"], indirect=True)

ASKS: dict[str, tuple[str, Json]] = {
    "opencode": (".config/opencode/opencode.json", {"permission": {"bash": "ask"}}),
    "claude-code": (".claude/settings.json", {"permissions": {"ask": ["Bash(touch:*)"]}}),
}
SHOWN = {
    "opencode": "Permission required",
    "claude-code": "Do you want to proceed",
    "codex": "Would you like to run the following command?",
    "copilot-cli": "Do you want to run this command?",
}
LUNCH = timedelta(minutes=10)
CONSENT = "wants elevated permissions"  # of Copilot, at its first start in a repository


@pytest.fixture
def asking(offline: Stage) -> Stage:
    """The host, connected so that its questions can be answered elsewhere, and set to ask before a shell command."""
    stage = AskingStage.of(offline)
    if stage.host.name == "codex":
        file = stage.user / ".codex" / "config.toml"
        asks = file.read_text().replace('"never"', '"on-request"').replace("danger-full-access", "workspace-write")
        file.write_text(asks)
    elif stage.host.name in ASKS:
        name, settings = ASKS[stage.host.name]
        file = stage.user / name
        file.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**before, **settings}))
    stage.harken("connect", stage.host.name, "--approvals", "--yes")
    return stage


def shell(stage: Stage, command: str) -> ModelAnswer:
    """Return a call of the host's shell that it asks about: of Codex, one that leaves its sandbox."""
    if stage.host.name != "codex":
        return ModelAnswer.shell(command)
    escalated = {"sandbox_permissions": "require_escalated", "justification": "to make a file", "yield_time_ms": 30_000}
    return ModelAnswer.call("exec_command", {"cmd": command, **escalated})


@contextmanager
def asked(
    stage: Stage,
    *answers: ModelAnswer,
    script: Callable[[ModelRequest], ModelAnswer] | None = None,
    shown: str = "",
    argv: Sequence[str] = (),
) -> Iterator[tuple[TerminalProgram, Json]]:
    """The host in its terminal, at the question whether the first command may run, or another one."""
    stage.model.follow(script or in_order(*(answers or (shell(stage, "touch it"),))))
    with stage.screen(*argv) as screen:
        if stage.host.name == "copilot-cli":
            consent(screen)
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        screen.submit(marker())
        found = asked_first(stage)
        screen.wait_for(shown or SHOWN[stage.host.name], STEP_SECONDS)
        yield screen, found


def consent(screen: TerminalProgram) -> None:
    """Let the extension handle permission requests, always in this repository."""
    screen.wait_for(CONSENT, READY_SECONDS)
    screen.wait_quiet()
    screen.press("down")
    screen.wait_quiet()
    screen.press("enter")
    screen.wait_for(lambda text: CONSENT not in text, STEP_SECONDS)
    screen.wait_quiet()


def asked_first(stage: Stage) -> Json:
    """Return what is asked, once something is."""
    return until(
        lambda: next(iter(json.loads(stage.harken("approve", "--json"))["approvals"]), None), "it asks", STEP_SECONDS
    )


def command_of(approval: Json) -> str:
    """Return the command that is asked about."""
    asked = approval["arguments"]
    return str(asked.get("command") or asked["fullCommandText"])


def became(stage: Stage, approval: Json, *states: str) -> Json:
    """Return an approval once it is in one of some states."""

    def now() -> Json:
        return json.loads(stage.harken("approve", approval["id"], "--json"))

    def find() -> Json | None:
        found = now()
        return found if found["state"] in states else None

    try:
        return until(find, f"{approval['id']} is {states}", STEP_SECONDS)
    except AssertionError as exc:
        exc.add_note(f"it is {now()}")
        raise


def has_run(stage: Stage, name: str = "it") -> bool:
    """Whether the command ran."""
    return (stage.project / name).exists()


@every_host
def test_allowed_elsewhere_runs_and_is_called_obeyed_by_evidence(asking: Stage) -> None:
    """The whole way: asked while its own window asks too, answered in another terminal, done, and known to be."""
    with asked(asking) as (screen, approval):
        assert "touch it" in command_of(approval)
        assert not has_run(asking)
        asking.harken("approve", approval["id"], "once")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        assert became(asking, approval, "obeyed")["because"]
        until(lambda: SHOWN[asking.host.name] not in screen.text(), "its window asks no more", STEP_SECONDS)


def pressed(window: Window, button: str) -> bool:
    """Press a button of the page, if it is there."""
    with suppress(PlaywrightError):
        window.page.get_by_role("button", name=button).click(timeout=1_000)
    return True


def state_of(stage: Stage, approval: Json) -> str:
    """Return where an approval is now."""
    return str(json.loads(stage.harken("approve", approval["id"], "--json"))["state"])


@every_host
@pytest.mark.parametrize("button", ["Allow once", "Refuse"])
def test_seen_and_answered_on_the_page_in_a_browser(
    asking: Stage, daemon: DaemonProcess, chromium: str, button: str
) -> None:
    """The page is what most people answer on: it shows the command, and its buttons do what they say."""
    with sync_playwright() as playwright, asked(asking) as (screen, approval):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        window = Window(new_context(browser).new_page(), str(daemon.facts["url"]))
        window.watch()
        window.enter(daemon.call("sign_in")["url"])
        window.goto("/needs")
        expect(window.page.locator(".asked pre").first).to_contain_text("touch it", timeout=WAIT_MS)
        # A button that has just moved does nothing: a person presses it again.
        until(lambda: pressed(window, button) and state_of(asking, approval) != "open", "it is answered", STEP_SECONDS)
        assert became(asking, approval, "obeyed")["through"] == "page"
        assert has_run(asking) is (button == "Allow once")
        expect(window.page.locator(".asked")).to_have_count(0, timeout=WAIT_MS)
        until(lambda: SHOWN[asking.host.name] not in screen.text(), "its window asks no more", STEP_SECONDS)
        assert (window.strangers(), window.complaints) == ([], [])
        browser.close()


@every_host
def test_refused_elsewhere_with_a_reason_that_the_model_reads(asking: Stage) -> None:
    """The words are yours, and reach the model as they are; where the host passes none on, none is taken."""
    why = marker()
    with asked(asking) as (_, approval):
        if not approval["carries_reason"]:
            assert "passes no reason on" in asking.try_harken("approve", approval["id"], "no", why).stderr
            why = "rejected by user"
            asking.harken("approve", approval["id"], "no")
        else:
            asking.harken("approve", approval["id"], "no", why)
        arrived(asking, why)
        became(asking, approval, "obeyed")
    assert not has_run(asking)


COLOURS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
COLOUR = {"question": "Which colour?", "header": "Colour", "options": COLOURS}
QUESTIONS = {
    "opencode": ModelAnswer.call("question", {"questions": [COLOUR]}),
    "claude-code": ModelAnswer.call("AskUserQuestion", {"questions": [{**COLOUR, "multiSelect": False}]}),
}
with_questions = pytest.mark.parametrize("host", QUESTIONS, indirect=True)


@with_questions
@pytest.mark.parametrize("said", ["Blue", "neither of them"])
def test_question_of_the_agent_is_answered_elsewhere(asking: Stage, said: str) -> None:
    """An option or other words: the model reads them as yours, and its host is known to have taken them."""
    with asked(asking, QUESTIONS[asking.host.name], shown="Which colour?") as (screen, approval):
        assert approval["choices"] == ["answer", "no"]
        asking.harken("approve", approval["id"], "answer", said)
        arrived(asking, f'"Which colour?"="{said}"')
        became(asking, approval, "obeyed")
        until(lambda: "warm" not in screen.text(), "its window asks no more", STEP_SECONDS)


@with_questions
def test_question_of_the_agent_that_you_refuse_is_closed_in_its_window(asking: Stage) -> None:
    """No answer is made up."""
    with asked(asking, QUESTIONS[asking.host.name], shown="Which colour?") as (screen, approval):
        asking.harken("approve", approval["id"], "no")
        became(asking, approval, "obeyed")
        until(lambda: "warm" not in screen.text(), "its window asks no more", STEP_SECONDS)
    assert not any(request.count('"Which colour?"="') for request in asking.model.conversation)


@with_questions
def test_question_of_the_agent_that_is_dismissed_in_its_window_is_withdrawn(asking: Stage) -> None:
    """The first answer counts, also when it is none."""
    with asked(asking, QUESTIONS[asking.host.name], shown="Which colour?") as (screen, approval):
        screen.press("escape")
        became(asking, approval, "withdrawn")
        assert "withdrawn already" in asking.try_harken("approve", approval["id"], "answer", "Red").stderr


def planning(then: ModelAnswer) -> Callable[[ModelRequest], ModelAnswer]:
    """Return the script of a model that finds the tool for plans, writes its plan down and shows it, and goes on."""
    steps = 0

    def script(request: ModelRequest) -> ModelAnswer:
        nonlocal steps
        if request.is_side:
            return side(request)
        (file, *_) = re.findall(r"/\S+/plans/\S+?\.md", " ".join(turn.text for turn in request.turns))
        steps += 1
        said = (
            ModelAnswer.call("ToolSearch", {"query": "select:ExitPlanMode", "max_results": 1}),
            ModelAnswer.call("Write", {"file_path": file, "content": PLAN}),
            ModelAnswer.call("ExitPlanMode", {"allowedPrompts": [{"tool": "Bash", "prompt": "touch files"}]}),
            then,
        )
        return said[steps - 1] if steps <= len(said) else ModelAnswer.text("done")

    return script


PLAN = "# Plan\n\nMake a file.\n"


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
@pytest.mark.parametrize("choice", ["once", "no"])
def test_plan_is_approved_or_sent_back_elsewhere(asking: Stage, choice: str) -> None:
    """Refused with your words, the agent goes on planning; approved, each command is still asked for."""
    script = planning(shell(asking, "touch it"))
    with asked(asking, script=script, shown="Make a file.", argv=("--permission-mode", "plan")) as (screen, approval):
        assert any("Make a file." in part["text"] for part in approval["parts"])
        assert approval["choices"] == ["once", "no"]
        if choice == "no":
            asking.harken("approve", approval["id"], "no", "shorter, please")
            arrived(asking, "shorter, please")
        else:
            asking.harken("approve", approval["id"], "once")
            arrived(asking, "approved your plan")
            screen.wait_for(SHOWN["claude-code"], STEP_SECONDS)
        assert not has_run(asking)


@every_host
def test_always_is_offered_only_with_its_rule_and_then_nothing_is_asked(asking: Stage) -> None:
    """What the host would write is shown before; where it suggests no rule there is no such answer."""
    # Codex would write a rule for the words of the command, and what follows them.
    with asked(asking, shell(asking, "touch it"), shell(asking, "touch it other")) as (_, approval):
        if "always" not in approval["choices"]:
            assert "has no answer 'always'" in asking.try_harken("approve", approval["id"], "always").stderr
            return
        assert "touch" in approval["always"]
        asking.harken("approve", approval["id"], "always")
        until(lambda: has_run(asking, "other"), "the second one ran", STEP_SECONDS)
        assert json.loads(asking.harken("approve", "--json"))["approvals"] == []


@every_host
def test_of_two_questions_each_gets_its_own_answer(asking: Stage) -> None:
    """Calls that the model makes in one step must not be mixed up."""
    both = shell(asking, "touch it").beside(shell(asking, "touch other"))
    with asked(asking, both) as (_, first):
        left = {"touch it", "touch other"}
        told = "not this" if first["carries_reason"] else "rejected by user"
        while left:
            approval = asked_first(asking)
            (command,) = (each for each in left if each in command_of(approval))
            left.remove(command)
            why = ["not this"] if approval["carries_reason"] else []
            asking.harken("approve", approval["id"], *(["once"] if command == "touch it" else ["no", *why]))
            became(asking, approval, "answered", "obeyed")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        arrived(asking, told)
    assert first["host"] == asking.host.name
    assert not has_run(asking, "other")


@every_host
@pytest.mark.parametrize("key", ["enter", "escape"])
def test_answered_in_its_own_window_is_withdrawn_elsewhere(asking: Stage, key: str) -> None:
    """The first answer counts, wherever it is given."""
    with asked(asking) as (screen, approval):
        screen.press(key)
        assert became(asking, approval, "withdrawn")["answered_by"] == ""
        if key == "enter":
            until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        late = asking.try_harken("approve", approval["id"], "no")
        assert "withdrawn already" in late.stderr


@every_host
def test_daemon_that_is_killed_leaves_the_question_in_its_window(asking: Stage, daemon: DaemonProcess) -> None:
    """Nothing is allowed by it, and the person at the keyboard can answer."""
    with asked(asking) as (screen, _):
        daemon.kill()
        screen.wait_quiet()
        assert screen.seen(SHOWN[asking.host.name])
        assert not has_run(asking)
        screen.press("enter")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)


@pytest.mark.parametrize("host", ["opencode", "codex", "copilot-cli"], indirect=True)
def test_host_asks_the_daemon_that_comes_after_a_killed_one(asking: Stage, daemon: DaemonProcess) -> None:
    """What was asked before is withdrawn; it is another question now, and is answered as any other."""
    with asked(asking) as (_, before):
        daemon.kill()
        daemon.start()
        became(asking, before, "withdrawn")
        approval = asked_first(asking)
        asking.harken("approve", approval["id"], "once")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        became(asking, approval, "obeyed")


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_hook_that_its_host_ends_in_time_leaves_the_question_in_its_window(asking: Stage) -> None:
    """Nothing is allowed by it, here or there; the other hosts keep nobody waiting, so none of their time ends."""
    for file in (asking.harken_home / "plugins").rglob("hooks.json"):
        file.write_text(file.read_text().replace(f'"timeout": {ASK_SECONDS}', '"timeout": 3'))
    with asked(asking) as (screen, approval):
        assert became(asking, approval, "withdrawn")["answered_by"] == ""
        screen.wait_quiet()
        assert SHOWN["claude-code"] in screen.text()
        assert not has_run(asking)
        screen.press("enter")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)


@pytest.mark.soak
@every_host
def test_answer_after_ten_minutes_is_taken(asking: Stage) -> None:
    """You may be at lunch: no host may give up earlier than that."""
    with asked(asking) as (screen, approval):
        asked_at = datetime.fromisoformat(approval["asked_at"])
        until(lambda: datetime.now(UTC) - asked_at >= LUNCH, "ten minutes are over", 2 * LUNCH.seconds, pause_seconds=5)
        assert screen.seen(SHOWN[asking.host.name])
        assert not has_run(asking)
        asking.harken("approve", approval["id"], "once")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        became(asking, approval, "obeyed")


@every_host
def test_host_that_is_ended_withdraws_what_it_asked(asking: Stage) -> None:
    """What nobody waits for cannot be answered."""
    with asked(asking) as (_, approval):
        asking.end_everything()
        became(asking, approval, "withdrawn")
    assert not has_run(asking)


@pytest.mark.parametrize("host", ["codex"], indirect=True)
def test_question_of_a_closed_terminal_is_withdrawn_though_its_server_lives_on(asking: Stage) -> None:
    """The server of Codex keeps the conversation: an answer would run a command that no window shows."""
    with asked(asking) as (_, approval):
        for process in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                is_terminal = process.info["name"] == "codex" and "app-server" not in process.cmdline()
                if is_terminal and process.environ().get("HOME") == str(asking.user):
                    process.kill()
        assert became(asking, approval, "withdrawn")["answered_by"] == ""
    assert not has_run(asking)
