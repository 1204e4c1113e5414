"""Which messages a rule is about, field by field, and what is said when one does not fit."""

from __future__ import annotations

import hashlib
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import Rule
from harken.model import REPLIES, Mailbox, MessageKind
from harken.rules.match import RuleMatcher
from tests.rules.made import message, rule_of, rules_of

CHANNELS: Final = st.text(alphabet="a/*b", max_size=6)


def fits(rule: Rule, **facts: object) -> bool:
    """Whether a message with these facts fits a rule; both ways to ask must agree."""
    matcher, arrived = RuleMatcher((rule,)), message(**facts)
    is_candidate = bool(matcher.candidates(arrived))
    assert is_candidate is (matcher.mismatch(rule, arrived) == "")
    return is_candidate


@pytest.mark.parametrize(
    ("pattern", "channel", "is_fit"),
    [
        ("", "", True),
        ("", "alerts", True),
        ("*", "", True),
        ("*", "alerts/x", True),
        ("alerts", "alerts", True),
        ("alerts", "alerts/critical", False),
        ("alerts", "Alerts", False),
        ("alerts", "", False),
        ("alerts/*", "alerts/critical", True),
        ("alerts/*", "alerts/a/b", True),
        ("alerts/*", "alerts", False),
        ("alerts/*", "alertsx/y", False),
        ("alerts/*", "errors/critical", False),
        ("alerts/a/*", "alerts/a/b", True),
        ("alerts/a/*", "alerts/b/a", False),
        ("al*", "alerts", False),
        ("al*", "al*", True),
    ],
)
def test_a_channel_is_a_name_any_or_what_is_below_a_prefix(pattern: str, channel: str, *, is_fit: bool) -> None:
    """The document's own table; `alerts` alone never means what is below it."""
    assert fits(rule_of(channel=pattern), channel=channel) is is_fit


@pytest.mark.parametrize(
    ("server", "source", "is_fit"),
    [("", "x", True), ("*", "local", True), ("x", "x", True), ("x", "X", False), ("x", "local", False)],
)
def test_a_server_is_the_source_or_any(server: str, source: str, *, is_fit: bool) -> None:
    """What is said on this machine counts as any other."""
    assert fits(rule_of(server=server), source=source) is is_fit


@pytest.mark.parametrize(
    ("wanted", "mailbox", "is_fit"),
    [
        ({}, "inbox", True),
        ({}, "task:t1", False),
        ({"mailbox": "task:t1"}, "task:t1", True),
        ({"mailbox": "task:t1"}, "inbox", False),
        ({"mailbox": "*"}, "project:x", True),
        ({"mailbox": "*"}, REPLIES, False),
        ({"mailbox": "replies"}, REPLIES, True),
    ],
)
def test_a_rule_is_about_one_mailbox(wanted: dict[str, str], mailbox: str, *, is_fit: bool) -> None:
    """What agents answer to the person starts nothing unless a rule names it."""
    assert fits(rule_of(**wanted), mailbox=Mailbox(mailbox)) is is_fit


def test_the_expression_is_searched_anywhere_in_the_text() -> None:
    """As Go does it: not only at the beginning, and by characters rather than bytes."""
    rule = rule_of(contentRegex="(?i)F.IL(ed|ure)$")
    assert fits(rule, text="the build F\u00e4iled")
    assert not fits(rule, text="the build failed twice")


def test_a_deletion_fits_nothing_and_an_edit_does() -> None:
    """An edit says something new; that something is gone asks for no reaction."""
    assert fits(rule_of(), kind=MessageKind.EDIT)
    assert not fits(rule_of(), kind=MessageKind.DELETION)


def test_the_first_field_that_does_not_fit_is_named_with_what_was_found() -> None:
    """It is what `rules test` prints, and what tells the person which field to change."""
    rule = rule_of(server="prom", channel="alerts/*", contentRegex="down", mailbox="*")
    said = [
        RuleMatcher(()).mismatch(rule, message(mailbox=REPLIES, source="x")),
        RuleMatcher(()).mismatch(rule, message(source="x\ny", channel="z")),
        RuleMatcher(()).mismatch(rule, message(source="prom", channel="z")),
        RuleMatcher(()).mismatch(rule, message(source="prom", channel="alerts/z")),
        RuleMatcher(()).mismatch(rule, message(source="prom", channel="alerts/z", text="it is down")),
    ]
    assert said == [
        'mailbox: it is in replies, the rule is about "*"',
        'server: it came from "x\\ny", the rule is about prom',
        'channel: it came on z, the rule is about "alerts/*"',
        "contentRegex: down is not found in its text",
        "",
    ]


def test_candidates_come_in_the_order_of_the_file_with_the_digest_of_the_beginning() -> None:
    """Verdicts are told in that order; only the first 256 bytes tell duplicates."""
    rules = rules_of(
        {"name": "z", "channel": "a/b"},
        {"name": "y", "server": "github", "contentRegex": "x"},
        {"name": "no", "contentRegex": "missing"},
        {"name": "b", "channel": "a/*", "contentRegex": "x"},
        {"name": "a"},
    )
    text = "\u00e4x" * 100
    found = RuleMatcher(rules).candidates(message(channel="a/b", text=text))
    assert [candidate.rule.name for candidate in found] == ["z", "y", "b", "a"]
    assert {candidate.digest for candidate in found} == {hashlib.sha256(text.encode()[:256]).digest()}


@given(st.lists(CHANNELS, max_size=6), CHANNELS)
def test_names_that_look_like_patterns_are_counted_once(patterns: list[str], channel: str) -> None:
    """Whatever a source calls its channel, a rule fits it once or not at all."""
    rules = rules_of(*({"name": str(number), "channel": pattern} for number, pattern in enumerate(patterns)))
    found = [candidate.rule.name for candidate in RuleMatcher(rules).candidates(message(channel=channel))]
    wanted = [
        rule.name
        for rule, pattern in zip(rules, patterns, strict=True)
        if pattern in ("", "*", channel) or (pattern.endswith("/*") and channel.startswith(pattern[:-1]))
    ]
    assert found == wanted
