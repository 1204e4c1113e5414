"""The second run of a live check, without a real host: ended and started again, a tool that takes long, a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harken.trial.live import CASES, LONG_TOOL, REOPENED, RESTART, run_again
from harken.trial.model import MockModel
from harken.trial.outcome import TrialResult, TrialVerdict
from harken.trial.turn import HostFailed, Trial, TrialPauses
from tests.trial.rig import trial_in

QUICK = TrialPauses(long_tool_seconds=0.2, still_seconds=0.2, back_seconds=0.2)


@dataclass(slots=True)
class Restarts:
    """A Harken that can be restarted, and counts how often it was."""

    count: int = 0

    def __call__(self) -> None:
        """Restart it."""
        self.count += 1


def outcomes(trial: Trial, restart: Restarts | None = None) -> dict[str, TrialResult]:
    """Return what came of each case, with short pauses."""
    found = run_again(replace(trial, restart=restart, pauses=QUICK))
    assert tuple(outcome.surface for outcome in found) == CASES
    return {outcome.surface: outcome for outcome in found}


def test_a_host_that_passes_everything_on_is_good_in_every_case(tmp_path: Path) -> None:
    """What was sent to nobody waits for the next run; what comes during a tool is in the next request."""
    restart = Restarts()
    with MockModel() as model:
        found = outcomes(trial_in(tmp_path, model, "prompt,tool,stop"), restart)
    assert {each.verdict for each in found.values()} == {TrialVerdict.ARRIVED}
    assert restart.count == 1


def test_nobodys_harken_is_restarted_unasked(tmp_path: Path) -> None:
    """It is the person's own, and other agents may be at work with it."""
    with MockModel() as model:
        found = outcomes(trial_in(tmp_path, model, "prompt,tool,stop"))
    assert found[RESTART].verdict is TrialVerdict.NOT_TRIED
    assert "--restart" in found[RESTART].hint
    assert (found[REOPENED].verdict, found[LONG_TOOL].verdict) == (TrialVerdict.ARRIVED, TrialVerdict.ARRIVED)


@pytest.mark.parametrize(
    ("hooks", "missing"), [("tool,stop", {REOPENED}), ("prompt,stop", {LONG_TOOL, RESTART}), ("", set(CASES))]
)
def test_only_the_case_that_fails_is_missing(tmp_path: Path, hooks: str, missing: set[str]) -> None:
    """What comes later, by another way, must not make a case look sound."""
    with MockModel() as model:
        found = outcomes(trial_in(tmp_path, model, hooks), Restarts())
    assert {case for case, each in found.items() if each.verdict is TrialVerdict.MISSING} == missing


def test_a_policy_against_shells_hides_only_what_needs_one(tmp_path: Path) -> None:
    """Whether a message waits for the next start can be shown all the same."""
    with MockModel() as model:
        found = outcomes(trial_in(tmp_path, model, "prompt,tool,stop,no shell"), Restarts())
    assert [each.verdict for each in found.values()] == [
        TrialVerdict.ARRIVED,
        TrialVerdict.NOT_TRIED,
        TrialVerdict.NOT_TRIED,
    ]


def test_a_host_that_does_not_start_again_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """It started a moment ago, so what it says now is what is wrong."""
    with MockModel() as model, pytest.raises(HostFailed) as failed:
        outcomes(trial_in(tmp_path, model, "", "/bin/sh", "-c", "echo no more seats >&2; exit 3"))
    assert "no more seats" in failed.value.hint
