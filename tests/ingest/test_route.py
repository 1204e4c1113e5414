"""Where a draft goes and how far it may push."""

from __future__ import annotations

from itertools import product

import pytest

from harken.ingest.policy import AttentionRule, Route, attention, channel_matches, route
from harken.model import INBOX, Attention, Draft, Mailbox, Priority, Sender, Trust

WEB = Mailbox("project:web")
OPS = Mailbox("project:ops")
DRAFT = Draft(source="hook", sender=Sender("ci", "CI"), text="raw", channel="alerts/critical")
WAKE, BOUNDARY, PROMPT, COUNT = Attention


@pytest.mark.parametrize(
    ("pattern", "channel"),
    [
        ("alerts", "alerts"),
        ("alerts/*", "alerts/critical"),
        ("alerts/*", "alerts/critical/db"),
        ("*", "anything"),
        ("*", ""),
    ],
)
def test_channel_pattern_is_literal_any_or_below_a_prefix(pattern: str, channel: str) -> None:
    """People must be able to say what a route catches by reading it."""
    assert channel_matches(pattern, channel)


@pytest.mark.parametrize(
    ("pattern", "channel"),
    [
        ("alerts", "alerts/critical"),
        ("alerts/*", "alerts"),
        ("alerts/*", "alertsx/critical"),
        ("Alerts", "alerts"),
        ("al*", "alerts"),
    ],
)
def test_channel_pattern_catches_nothing_beside_it(pattern: str, channel: str) -> None:
    """A route that catches more than it says takes messages away from where people look."""
    assert not channel_matches(pattern, channel)


@pytest.mark.parametrize(
    ("candidate", "mailbox"),
    [
        (Route(WEB), WEB),
        (Route(WEB, channel="alerts/*"), WEB),
        (Route(WEB, channel=" alerts/critical "), WEB),
        (Route(WEB, channel="alerts"), INBOX),
        (Route(WEB, sender="CI"), WEB),
        (Route(WEB, sender="c"), INBOX),
        (Route(WEB, source="hook"), WEB),
        (Route(WEB, source="teams"), INBOX),
        (Route(WEB, contains="DEPLOY of web"), WEB),
        (Route(WEB, contains="raw"), INBOX),
        (Route(WEB, channel="alerts/*", sender="ci", source="hook", contains="web"), WEB),
        (Route(WEB, channel="alerts/*", sender="ci", source="hook", contains="api"), INBOX),
    ],
)
def test_route_matches_when_all_it_names_matches(candidate: Route, mailbox: Mailbox) -> None:
    """Empty fields do not narrow; the text is the cleaned one, not the draft's."""
    assert route(DRAFT, "The deploy of Web failed", [candidate]) == mailbox


def test_first_matching_route_wins_and_none_means_inbox() -> None:
    """The order in the configuration is the order of decision, and nothing is ever without a mailbox."""
    routes = [Route(OPS, channel="ops"), Route(WEB, channel="alerts/*"), Route(OPS)]
    assert route(DRAFT, "x", routes) == WEB
    assert route(DRAFT, "x", []) == INBOX


def test_name_of_a_sender_routes_nothing() -> None:
    """Names are free to choose."""
    assert route(Draft(source="hook", sender=Sender("eve", "ci"), text=""), "", [Route(WEB, sender="ci")]) == INBOX


def pushed(
    default: Attention, priority: Priority = Priority.NORMAL, trust: Trust = Trust.KNOWN, *rules: AttentionRule
) -> Attention:
    """Return how far a draft with this priority may push."""
    draft = Draft(source="hook", sender=Sender("ci"), text="", channel="alerts", priority=priority)
    return attention(draft, trust, rules, default)


@pytest.mark.parametrize(
    ("default", "high", "normal", "low"),
    [
        (WAKE, WAKE, WAKE, BOUNDARY),
        (BOUNDARY, WAKE, BOUNDARY, BOUNDARY),
        (PROMPT, BOUNDARY, PROMPT, PROMPT),
        (COUNT, COUNT, COUNT, COUNT),
    ],
)
@pytest.mark.parametrize("trust", [Trust.OWNER, Trust.KNOWN])
def test_priority_moves_attention_by_one_step(
    default: Attention, high: Attention, normal: Attention, low: Attention, trust: Trust
) -> None:
    """A sender may ask for more or less, but not from the bottom to the top."""
    assert [pushed(default, priority, trust) for priority in Priority] == [high, normal, low]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AttentionRule(COUNT), COUNT),
        (AttentionRule(COUNT, source="hook", channel="alerts", sender="CI"), COUNT),
        (AttentionRule(COUNT, source="mail"), PROMPT),
        (AttentionRule(COUNT, channel="alerts/*"), PROMPT),
        (AttentionRule(COUNT, sender="someone"), PROMPT),
    ],
)
def test_matching_rule_replaces_the_default(rule: AttentionRule, expected: Attention) -> None:
    """A rule speaks about what it names and nothing else."""
    assert pushed(PROMPT, Priority.NORMAL, Trust.KNOWN, rule) is expected


def test_first_matching_attention_rule_wins_then_priority_counts() -> None:
    """Rules replace the default; priority comes after them."""
    rules = (AttentionRule(BOUNDARY), AttentionRule(COUNT))
    assert pushed(PROMPT, Priority.NORMAL, Trust.KNOWN, *rules) is BOUNDARY
    assert pushed(PROMPT, Priority.HIGH, Trust.KNOWN, *rules) is WAKE


@pytest.mark.parametrize(("default", "priority"), list(product(Attention, Priority)))
def test_unknown_sender_is_only_counted(default: Attention, priority: Priority) -> None:
    """Anyone who finds the address could otherwise wake a session: a rule for all does not mean them."""
    assert pushed(default, priority, Trust.UNKNOWN) is COUNT
    assert pushed(default, priority, Trust.UNKNOWN, AttentionRule(WAKE)) is COUNT


@pytest.mark.parametrize(
    ("allowed", "priority", "expected"),
    [
        (BOUNDARY, Priority.NORMAL, BOUNDARY),
        (BOUNDARY, Priority.HIGH, BOUNDARY),
        (PROMPT, Priority.HIGH, PROMPT),
        (WAKE, Priority.LOW, BOUNDARY),
        (WAKE, Priority.HIGH, WAKE),
    ],
)
def test_unknown_sender_gets_what_a_rule_allows_and_never_more(
    allowed: Attention, priority: Priority, expected: Attention
) -> None:
    """The owner said how far; the stranger's own priority does not raise it."""
    rules = (AttentionRule(WAKE), AttentionRule(allowed, allow_unknown=True))
    assert pushed(COUNT, priority, Trust.UNKNOWN, *rules) is expected
