"""What the real hosts ask before they use a tool, answered from elsewhere, or in their own window.

Whether it ran is seen in the folder, what the model was told on its wire; what Harken believes is read afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harken.testing import DaemonProcess
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, in_order
from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import READY_SECONDS, STEP_SECONDS, arrived, marker
from tests.loss.rig import until

pytestmark = pytest.mark.parametrize("host", ["opencode", "claude-code"], indirect=True)

ASKS: dict[str, tuple[str, Json]] = {
    "opencode": (".config/opencode/opencode.json", {"permission": {"bash": "ask"}}),
    "claude-code": (".claude/settings.json", {"permissions": {"ask": ["Bash(touch:*)"]}}),
}
SHOWN = {"opencode": "Permission required", "claude-code": "Do you want to proceed"}


@pytest.fixture
def asking(offline: Stage) -> Stage:
    """The host, connected so that its questions can be answered elsewhere, and set to ask before a shell command."""
    name, settings = ASKS[offline.host.name]
    file = offline.user / name
    file.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**before, **settings}))
    offline.harken("connect", offline.host.name, "--approvals", "--yes")
    return offline


@contextmanager
def asked(stage: Stage, *answers: ModelAnswer) -> Iterator[tuple[TerminalProgram, Json]]:
    """The host in its terminal, at the question whether the first command may run."""
    stage.model.follow(in_order(*(answers or (ModelAnswer.shell("touch it"),))))
    with stage.screen() as screen:
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        screen.submit(marker())
        found = asked_first(stage)
        screen.wait_for(SHOWN[stage.host.name], STEP_SECONDS)
        yield screen, found


def asked_first(stage: Stage) -> Json:
    """Return what is asked, once something is."""
    return until(
        lambda: next(iter(json.loads(stage.harken("approve", "--json"))["approvals"]), None), "it asks", STEP_SECONDS
    )


def became(stage: Stage, approval: Json, *states: str) -> Json:
    """Return an approval once it is in one of some states."""

    def find() -> Json | None:
        found = json.loads(stage.harken("approve", approval["id"], "--json"))
        return found if found["state"] in states else None

    return until(find, f"{approval['id']} is {states}", STEP_SECONDS)


def has_run(stage: Stage, name: str = "it") -> bool:
    """Whether the command ran."""
    return (stage.project / name).exists()


def test_allowed_elsewhere_runs_and_is_called_obeyed_by_evidence(asking: Stage) -> None:
    """The whole way: asked while its own window asks too, answered in another terminal, done, and known to be."""
    with asked(asking) as (screen, approval):
        assert approval["arguments"]["command"] == "touch it"
        assert not has_run(asking)
        asking.harken("approve", approval["id"], "once")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        assert became(asking, approval, "obeyed")["because"]
        until(lambda: SHOWN[asking.host.name] not in screen.text(), "its window asks no more", STEP_SECONDS)


def test_refused_elsewhere_with_a_reason_that_the_model_reads(asking: Stage) -> None:
    """The words are yours, and reach the model as they are."""
    why = marker()
    with asked(asking) as (_, approval):
        asking.harken("approve", approval["id"], "no", why)
        arrived(asking, why)
        became(asking, approval, "obeyed")
    assert not has_run(asking)


def test_always_is_offered_only_with_its_rule_and_then_nothing_is_asked(asking: Stage) -> None:
    """What the host would write is shown before; where it suggests no rule there is no such answer."""
    with asked(asking, ModelAnswer.shell("touch it"), ModelAnswer.shell("touch other")) as (_, approval):
        if "always" not in approval["choices"]:
            assert "has no answer 'always'" in asking.try_harken("approve", approval["id"], "always").stderr
            return
        assert "touch" in approval["always"]
        asking.harken("approve", approval["id"], "always")
        until(lambda: has_run(asking, "other"), "the second one ran", STEP_SECONDS)
        assert json.loads(asking.harken("approve", "--json"))["approvals"] == []


def test_of_two_questions_each_gets_its_own_answer(asking: Stage) -> None:
    """Calls that the model makes in one step must not be mixed up."""
    both = ModelAnswer.shell("touch it").beside(ModelAnswer.shell("touch other"))
    with asked(asking, both) as (_, first):
        left = {"touch it", "touch other"}
        while left:
            approval = asked_first(asking)
            command = approval["arguments"]["command"]
            left.remove(command)
            asking.harken("approve", approval["id"], *(["once"] if command == "touch it" else ["no", "not this"]))
            became(asking, approval, "answered", "obeyed")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        arrived(asking, "not this")
    assert first["host"] == asking.host.name
    assert not has_run(asking, "other")


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


def test_daemon_that_is_killed_leaves_the_question_in_its_window(asking: Stage, daemon: DaemonProcess) -> None:
    """Nothing is allowed by it, and the person at the keyboard can answer."""
    with asked(asking) as (screen, _):
        daemon.kill()
        screen.wait_quiet()
        assert screen.seen(SHOWN[asking.host.name])
        assert not has_run(asking)
        screen.press("enter")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)


def test_host_that_is_ended_withdraws_what_it_asked(asking: Stage) -> None:
    """What nobody waits for cannot be answered."""
    with asked(asking) as (_, approval):
        asking.end_everything()
        became(asking, approval, "withdrawn")
    assert not has_run(asking)
