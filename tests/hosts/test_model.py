"""The ground that all other tests of hosts stand on: each real host talks to our model, and to no other."""

from __future__ import annotations

import pytest

from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.hosts.story import arrived, assert_once, marker, places

READY_SECONDS = 120.0
SHOWN_SECONDS = 90.0


def test_a_host_asks_our_model_and_prints_its_answer(bare_stage: Stage) -> None:
    """If the prompt were not on our wire, or the answer not from us, no other test here would mean anything."""
    prompt, answer = marker(), marker()
    bare_stage.model.follow(in_order(then=answer))
    done = bare_stage.ask(f"{prompt} hello")
    assert answer in done.stdout
    assert_once(bare_stage, prompt)
    assert bare_stage.model.strays == ()


def test_a_host_runs_its_shell_when_the_model_calls_it(bare_stage: Stage) -> None:
    """Messages that arrive between tool calls need a tool call that really happens, and lasts as long as we say."""
    printed = marker()
    with bare_stage.gate() as gate:
        bare_stage.model.follow(in_order(ModelAnswer.shell(f"{gate.command}; echo {printed}")))
        with bare_stage.headless("run it") as running:
            gate.wait(SHOWN_SECONDS)
            assert len(bare_stage.model.conversation) == 1
            gate.open()
            assert running.finish().returncode == 0
    last = bare_stage.model.conversation[-1]
    assert [turn.role for turn in places(last, printed)] == ["tool"]


@pytest.mark.parametrize("way", ["screen", "tmux"])
def test_a_host_in_a_terminal_answers_what_is_typed(bare_stage: Stage, way: str) -> None:
    """A private home has to start without asking who you are; in tmux programs see another kind of terminal."""
    prompt, answer = marker(), marker()
    bare_stage.model.follow(in_order(then=answer))
    with bare_stage.screen() if way == "screen" else bare_stage.tmux() as terminal:
        terminal.wait_for(bare_stage.recipe.ready, READY_SECONDS)
        terminal.submit(f"{prompt} hello")
        arrived(bare_stage, prompt)
        terminal.wait_for(answer, SHOWN_SECONDS)
    assert_once(bare_stage, prompt)
