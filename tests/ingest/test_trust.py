"""Who is trusted is the owner's decision, and about ids only."""

from __future__ import annotations

import pytest

from harken.ingest.policy import judge
from harken.model import Draft, Sender, SenderRule, Trust


def trust_of(sender: Sender, *rules: SenderRule, source: str = "teams", default: Trust = Trust.UNKNOWN) -> Trust:
    """Return how far a sender is trusted under these rules."""
    return judge(Draft(source=source, sender=sender, text="x"), rules, default)


EXACT = SenderRule("teams", "ann@example.org", Trust.OWNER)
SOURCE_WIDE = SenderRule("teams", "*", Trust.KNOWN)
ANY_SOURCE = SenderRule("*", "ann@example.org", Trust.OWNER)
EVERYONE = SenderRule("*", "*", Trust.KNOWN)
ANN = Sender("ann@example.org", "Ann")


@pytest.mark.parametrize("default", Trust)
def test_without_a_rule_the_default_of_the_source_counts(default: Trust) -> None:
    """Nobody becomes the owner unless the caller says so."""
    assert trust_of(ANN, default=default) is default
    assert trust_of(ANN, SenderRule("mail", "ann@example.org", Trust.OWNER), default=default) is default


@pytest.mark.parametrize(
    ("closer", "wider"),
    [(EXACT, SOURCE_WIDE), (EXACT, EVERYONE), (ANY_SOURCE, SOURCE_WIDE), (ANY_SOURCE, EVERYONE)],
)
def test_closer_rule_beats_a_wider_one_in_any_order(closer: SenderRule, wider: SenderRule) -> None:
    """A decision about one sender is meant more than one about everyone."""
    assert trust_of(ANN, closer, wider) is closer.trust
    assert trust_of(ANN, wider, closer) is closer.trust


def test_denied_sender_stays_unknown_in_a_trusted_source() -> None:
    """Deny must work where everyone else is known."""
    assert trust_of(ANN, SOURCE_WIDE, SenderRule("teams", "ann@example.org", Trust.UNKNOWN)) is Trust.UNKNOWN


def test_of_equally_close_rules_the_first_counts() -> None:
    """The person's decisions are put before what the configuration says."""
    assert trust_of(ANN, EXACT, SenderRule("teams", "ann@example.org", Trust.UNKNOWN)) is Trust.OWNER


@pytest.mark.parametrize("sender_id", ["ANN@example.org", " ann@Example.org\n"])
def test_case_and_spaces_around_an_id_do_not_matter(sender_id: str) -> None:
    """Mail addresses are written in any case."""
    assert trust_of(Sender(sender_id), EXACT) is Trust.OWNER


@pytest.mark.parametrize(
    "sender",
    [
        Sender("eve", "ann@example.org"),
        Sender("eve", "Ann"),
        Sender("", "ann@example.org"),
        Sender("ann@example.org.evil.test"),
        Sender("ann@example.or\u0261"),
        Sender("\uff41nn@example.org"),
        Sender("ann@example.org\u200b"),
    ],
)
def test_who_only_looks_like_the_owner_is_not(sender: Sender) -> None:
    """Names are free to choose, and letters have look-alikes: only the same id is the same sender."""
    assert trust_of(sender, EXACT) is Trust.UNKNOWN


def test_letters_that_fold_into_ascii_are_other_letters() -> None:
    """The Kelvin sign in lower case is a k: two ids for the source, so two for us."""
    assert trust_of(Sender("mi\u212ae"), SenderRule("teams", "mike", Trust.OWNER)) is Trust.UNKNOWN


def test_rule_without_a_sender_is_about_nobody() -> None:
    """An empty id in a rule must not admit everyone whose source gives no id."""
    assert trust_of(Sender(""), SenderRule("teams", " ", Trust.OWNER)) is Trust.UNKNOWN
    assert trust_of(Sender(""), SOURCE_WIDE) is Trust.KNOWN


def test_a_decision_beats_what_is_configured_for_the_same_sender() -> None:
    """The person who denies someone names no source; the configuration that admitted them did."""
    configured, denied = SenderRule("teams", ANN.id, Trust.KNOWN), SenderRule("*", ANN.id, Trust.UNKNOWN)
    draft = Draft(source="teams", sender=ANN, text="x")
    assert judge(draft, [configured], Trust.KNOWN, decisions=[denied]) is Trust.UNKNOWN
    assert judge(draft, [configured], Trust.KNOWN, decisions=[SenderRule("*", "*", Trust.UNKNOWN)]) is Trust.KNOWN
