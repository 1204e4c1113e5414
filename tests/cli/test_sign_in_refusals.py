"""A sign-in at Microsoft that is refused or has ended: what the person reads on the command line, and what to do next.

Declined and not consented to are in `test_source_login.py`; which refusal means what is tested beside the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.rig import SECONDS, Outcome, Rig
from tests.cli.test_source_login import NEEDS_PERSON, NOT_LISTENING, login, write
from tests.daemon.graph_rig import add_agent
from tests.graph.service import Graph, serving
from tests.graph.tokens import Answer
from tests.loss.rig import until

HALF_AN_HOUR = 1_800.0
CODE_SECONDS = 900.0


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A Microsoft on loopback whose person enters every code at once."""
    with serving() as service:
        service.sign_in.device_interval = 1
        yield service


@pytest.fixture
def signed_in(fresh: Rig, graph: Graph) -> Rig:
    """A home in which somebody is signed in to the chats."""
    write(fresh, graph, "teams")
    assert login(fresh, "teams").code == 0
    return fresh


def tried(rig: Rig) -> Outcome:
    """Try the source, which is told that it cannot be read."""
    outcome = rig.run("source", "test", "teams")
    assert outcome.code == NOT_LISTENING, outcome
    # Neither their words, which name people and ids of theirs, nor their addresses are ours to repeat.
    assert not re.search(r"Trace ID|Correlation|eyJ", outcome.out + outcome.err)
    return outcome


def test_a_code_that_nobody_entered_in_time_is_told_with_how_to_get_a_new_one(fresh: Rig, graph: Graph) -> None:
    """The command must end by itself, and not as if the person had refused."""
    graph.sign_in.answer = Answer.WAITS
    write(fresh, graph, "teams")
    with fresh.begin("source", "login", "teams", "--device") as process:
        until(lambda: [each for each in graph.asked("/oauth2/v2.0/token", "POST") if each.status], "it asks", SECONDS)
        graph.clock.advance(CODE_SECONDS + 1)
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == NEEDS_PERSON, said
    assert b"the code was not entered in time" in said
    assert b"harken source login teams" in said


def test_a_sign_in_that_was_revoked_is_told_with_how_to_sign_in_again(signed_in: Rig, graph: Graph) -> None:
    """A changed password ends a sign-in: nothing is broken, and one command mends it."""
    graph.revoke_sign_in()
    outcome = tried(signed_in)
    assert "the sign-in has ended" in outcome.out
    assert "harken source login teams" in outcome.out
    assert login(signed_in, "teams").code == 0
    assert signed_in.run("source", "test", "teams").code == 0


def test_what_an_organisation_asks_for_besides_is_told_as_its_wish(signed_in: Rig, graph: Graph) -> None:
    """Conditional access is not a wrong password: the person needs their second factor, or an administrator."""
    graph.expire_tokens()
    graph.sign_in.needs_second_factor = True
    outcome = tried(signed_in)
    assert "your organisation asks for more" in outcome.out
    assert "harken source login teams" in outcome.out
    # Whoever signs in shows the second factor there.
    assert login(signed_in, "teams").code == 0
    assert signed_in.run("source", "test", "teams").code == 0


@pytest.mark.parametrize("seconds", [HALF_AN_HOUR, -HALF_AN_HOUR])
def test_a_person_signs_in_however_wrong_the_clock_is(fresh: Rig, graph: Graph, seconds: float) -> None:
    """A wrong clock of this machine is no reason to keep somebody out whom the service lets in."""
    graph.clock.advance(seconds)
    write(fresh, graph, "teams")
    done = login(fresh, "teams")
    assert (done.code, graph.me.name in done.out) == (0, True), done
    assert fresh.run("source", "test", "teams").code == 0


@pytest.mark.parametrize(
    ("seconds", "words"), [(HALF_AN_HOUR, "30 minutes behind"), (-HALF_AN_HOUR, "30 minutes ahead")]
)
def test_an_agent_user_whose_clock_is_wrong_is_told_by_how_much(
    fresh: Rig, graph: Graph, seconds: float, words: str
) -> None:
    """What it signs is believed for minutes only: the reason is the clock, and not the certificate."""
    add_agent(fresh.home, graph, "teams")
    graph.clock.advance(seconds)
    outcome = tried(fresh)
    assert f"your clock is {words}" in outcome.out
    assert "Set the clock of this machine" in outcome.out
