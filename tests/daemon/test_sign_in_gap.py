"""Accounts of Microsoft from their sign-in on, with a real daemon: what arrives, and what waits for an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harken.testing import running_daemon
from tests.cli.rig import Rig
from tests.daemon.graph_rig import Arrivals, add_account, add_agent, sign_in
from tests.graph.service import Graph, serving
from tests.graph.world import Person
from tests.loss.rig import until


def test_what_is_said_after_the_sign_in_arrives_also_if_the_daemon_starts_later(home: Path) -> None:
    """Whoever signs in expects to be reached from then on, whether the daemon runs already or not."""
    with serving(seed=3) as graph:
        chat = graph.chat(ann := graph.person("Ann"))
        graph.say(chat, ann, "<p>before the sign-in</p>")
        add_account(home, graph, "chats", "teams")
        sign_in(home, graph, "chats")
        graph.say(chat, ann, "<p>after the sign-in</p>")
        with running_daemon(home):
            arrivals = Arrivals(home)
            until(lambda: len(graph.asked("/me/chats")) >= 3 or arrivals.find("after"), "two looks", 30)
            assert arrivals.find("after the sign-in") is not None
            assert arrivals.find("before the sign-in") is None


def test_a_mail_after_the_sign_in_arrives_also_if_the_daemon_starts_later(home: Path) -> None:
    """Whoever signs in expects the next mail to arrive, and none of those before."""
    with serving(seed=3) as graph:
        ann = graph.person("Ann")
        graph.mail(ann, "Old", "<p>before the sign-in</p>")
        graph.clock.advance(60)
        add_account(home, graph, "mail", "outlook")
        sign_in(home, graph, "mail")
        graph.clock.advance(60)
        graph.mail(ann, "New", "<p>after the sign-in</p>")
        with running_daemon(home):
            arrivals = Arrivals(home)
            until(lambda: len(graph.asked("/delta")) >= 2 or arrivals.find("after"), "two looks", 30)
            assert arrivals.find("after the sign-in") is not None
            assert arrivals.find("before the sign-in") is None


def person(home: Path, graph: Graph) -> Person:
    """Sign in a person whose name for that is not their address."""
    graph.world.me = replace(graph.me, upn="r1234@corp.example.test", proxies=("smtp:robin@example.test",))
    add_account(home, graph, "mail", "outlook")
    sign_in(home, graph, "mail")
    return replace(graph.me, address="robin@example.test")


def agent_user(home: Path, graph: Graph) -> Person:
    """Configure an Agent User."""
    add_agent(home, graph, "mail")
    config = home / "config.toml"
    config.write_text(config.read_text().replace('kind = "teams"', 'kind = "outlook"\ntrust = "known"'))
    (agent,) = graph.tokens.agents.values()
    return agent.user


@pytest.mark.parametrize("signs_in", [person, agent_user])
def test_a_mail_to_an_address_that_the_service_tells_waits_for_an_answer(
    home: Path, signs_in: Callable[[Path, Graph], Person]
) -> None:
    """Else whoever writes to the alias of a person, or to an agent, is never answered, and nobody is reminded."""
    with serving(seed=3) as graph:
        own = signs_in(home, graph)
        ann = graph.person("Ann")
        with running_daemon(home):
            arrivals = Arrivals(home)
            until(lambda: graph.asked("/delta"), "the first look", 30)
            graph.clock.advance(60)
            graph.mail(ann, "For others", "<p>not for us</p>", to=(graph.person("Bob"),))
            graph.mail(ann, "For us", "<p>are you there?</p>", to=(own,))
            until(lambda: arrivals.find("are you there?") and arrivals.find("not for us"), "both mails", 30)
            (waiting,) = Rig(home).json("waiting")["questions"]
        assert "are you there?" in str(waiting)
        assert len([each for each in graph.requests if "proxyAddresses" in each.query]) == 1
