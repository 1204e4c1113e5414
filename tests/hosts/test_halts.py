"""What the real hosts tell of a session that does not go on by itself: that it asks, has finished, or failed.

What Harken believes is read from `status`, and what it noted from its journal; nothing is answered from elsewhere.
"""

from __future__ import annotations

import json

import pytest

from harken.hosts.registry import hook_host
from harken.sessions.turns import Halt
from harken.testing import DaemonProcess
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, ModelRequest, in_order, side
from tests.hosts.stage import AskingStage, Stage
from tests.hosts.story import READY_SECONDS, STEP_SECONDS, marker, sessions
from tests.hosts.test_approvals import ASKS, has_run, shell
from tests.loss.rig import until

FAIL_SECONDS = 100.0
BAD, TOO_MANY = 400, 429


@pytest.fixture
def asking(offline: Stage) -> Stage:
    """The host, connected, and set to ask before a shell command."""
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
    stage.harken("connect", stage.host.name, "--yes")
    return stage


def halt_of(stage: Stage) -> Json:
    """Return the halt of the session that is here."""
    return next((each["halt"] for each in sessions(stage) if each["halt"]), None)


def halts(daemon: DaemonProcess) -> list[Json]:
    """Return the halts that the journal has."""
    events = daemon.call("journal", after=0, limit=1_000)["events"]
    return [each for each in events if each["kind"] == "halted"]


def test_question_and_end_are_told_once_each(asking: Stage, daemon: DaemonProcess) -> None:
    """Told as soon as it asks; when it was answered here and goes on, no longer; its end once."""
    asking.model.follow(in_order(shell(asking, "touch it")))
    with asking.screen() as screen:
        screen.wait_for(asking.recipe.ready, READY_SECONDS)
        screen.submit(marker())
        asked = until(lambda: halt_of(asking), "it asks", STEP_SECONDS)
        assert asked["kind"] == "waits"
        assert asked["reason"]
        assert not has_run(asking)
        screen.wait_quiet()
        screen.press("enter")
        until(lambda: has_run(asking), "it ran", STEP_SECONDS)
        until(lambda: (halt_of(asking) or {}).get("kind") == "finished", "it has finished", STEP_SECONDS)
        screen.wait_quiet()
        kinds = [each["halt"] for each in halts(daemon)]
        assert kinds == ["waits", "finished"]


@pytest.mark.parametrize("status", [BAD, TOO_MANY])
def test_turn_that_fails_is_told_where_the_host_tells_it(asking: Stage, daemon: DaemonProcess, status: int) -> None:
    """Where it does not, nothing else is said in its place: that it finished would be a lie."""

    def script(request: ModelRequest) -> ModelAnswer:
        return side(request) if request.is_side else ModelAnswer.failure(status, "You have used up what you may.")

    asking.model.follow(script)
    told = hook_host(asking.host.name).halts
    with asking.screen() as screen:
        screen.wait_for(asking.recipe.ready, READY_SECONDS)
        screen.submit(marker())
        wanted = {Halt.FAILED.value if status == BAD else Halt.LIMITED.value}
        if wanted & told:
            until(lambda: halt_of(asking), "it failed", FAIL_SECONDS)
        else:
            screen.wait_quiet()
        found = {each["halt"] for each in halts(daemon)}
        assert found == wanted & told, screen.text()
        assert len(halts(daemon)) == len(found)
