"""opencode, whose conversations share one connection: the plugin says which of them had the result of a tool."""

from __future__ import annotations

import pytest

from harken.sessions.turns import HookMoment
from tests.hooks.rig import CLAUDE, OPENCODE, DaemonFixture

REPEAT = "Repeat: offered before without proof that it arrived"


def test_what_a_result_carried_is_proven_by_the_end_of_the_turn(rig: DaemonFixture) -> None:
    """It is the plain way of a message that the agent asks for."""
    guest = rig.session(OPENCODE)
    guest.run(HookMoment.PROMPT, prompt="go")
    with guest.agent() as agent:
        message = rig.send("please look")
        pulled = agent.tool("inbox_pull")["messages"]
        guest.run(HookMoment.TOOL, results=[each["delivery_id"] for each in pulled])
        guest.run(HookMoment.STOP)
        assert rig.state(message, OPENCODE.name) == "seen"


@pytest.mark.parametrize(
    ("told", "reported"), [(True, "before"), (False, ""), (False, "late"), (True, ""), (True, "late")]
)
def test_result_of_an_interrupted_turn_is_offered_with_the_next_prompt(
    rig: DaemonFixture, *, told: bool, reported: str
) -> None:
    """Nobody knows how far the model had read; interrupted in the call, the plugin reports its result late or never."""
    guest = rig.session(OPENCODE)
    guest.run(HookMoment.PROMPT, prompt="go")
    if reported != "before":
        guest.run(HookMoment.TOOL)
    with guest.agent() as agent:
        message = rig.send("please look")
        results = [each["delivery_id"] for each in agent.tool("inbox_pull")["messages"]]
        if reported == "before":
            guest.run(HookMoment.TOOL, results=results)
        if told:
            guest.run(HookMoment.STOP, is_interrupted=True)
        if reported == "late":
            guest.run(HookMoment.TOOL, results=results)
        guest.turn = "t2"
        again = guest.run(HookMoment.PROMPT, prompt="something else").out
        assert "please look" in again
        assert REPEAT in again
        assert rig.ledger(message, OPENCODE.name)["offers"] == 2


def test_result_belongs_to_the_conversation_that_had_it(rig: DaemonFixture) -> None:
    """The connection cannot tell two conversations apart: with the one that had the result, its lease ends."""
    first, second = rig.session(OPENCODE, "ses_1"), rig.session(OPENCODE, "ses_2")
    first.run(HookMoment.PROMPT, prompt="go")
    second.run(HookMoment.PROMPT, prompt="go")
    with second.agent() as agent:
        message = rig.send("please look")
        pulled = agent.tool("inbox_pull")["messages"]
        first.run(HookMoment.TOOL, results=[each["delivery_id"] for each in pulled])
        assert rig.ledger(message, OPENCODE.name)["session"] == first.key
        first.run(HookMoment.END)
        assert REPEAT in second.run(HookMoment.TOOL).out


def test_later_call_over_a_shared_connection_proves_nothing(rig: DaemonFixture) -> None:
    """It may be of another conversation, which never saw the result of the first."""
    guest = rig.session(OPENCODE)
    guest.run(HookMoment.PROMPT, prompt="go")
    with guest.agent() as agent:
        message = rig.send("please look")
        assert agent.tool("inbox_pull")["messages"]
        agent.tool("inbound_queue_stats")
        assert rig.state(message, OPENCODE.name) == "offered"


def test_plugin_proves_nothing_of_another_reader(rig: DaemonFixture) -> None:
    """A delivery id that a program heard of somewhere is not a sign that the agent it belongs to has read anything."""
    other, guest = rig.session(CLAUDE), rig.session(OPENCODE)
    message = rig.send("please look")
    other.prompt()
    delivery = rig.ledger(message, CLAUDE.name)["delivery_id"]
    guest.run(HookMoment.PROMPT, prompt="go")
    guest.run(HookMoment.TOOL, results=[delivery])
    guest.run(HookMoment.STOP)
    assert rig.state(message, CLAUDE.name) == "offered"
    other.tool()
    assert rig.state(message, CLAUDE.name) == "seen"


@pytest.mark.parametrize("odd", ["\ud800", "d-\udfff", "x" * 100_000, "", "d-nobody"])
def test_odd_deliveries_in_a_report_cost_nothing(rig: DaemonFixture, odd: str) -> None:
    """What stands beside them is a message that the model had, and the session must go on being heard."""
    guest = rig.session(OPENCODE)
    guest.run(HookMoment.PROMPT, prompt="go")
    with guest.agent() as agent:
        message = rig.send("please look")
        pulled = agent.tool("inbox_pull")["messages"]
        guest.run(HookMoment.TOOL, results=[odd, *(each["delivery_id"] for each in pulled)])
        rig.send("and here")
        assert "and here" in guest.run(HookMoment.TOOL).out
        guest.run(HookMoment.STOP)
        assert rig.state(message, OPENCODE.name) == "seen"
        assert rig.presence(guest) == "idle"
