"""Who said it, in a terminal: the person is shown in a way that no name can have."""

from __future__ import annotations

import pytest

from harken.cli.output import name_of, sender_of


def record(name: str, trust: str = "known", sender_id: str = "github:x") -> dict[str, str]:
    """Return of a message what says who said it."""
    return {"from": name, "sender_id": sender_id, "trust": trust}


def test_mark_says_how_far_a_sender_is_trusted() -> None:
    """It stands before the name, where nothing of the name can be."""
    assert sender_of(record("you", "owner", "owner")) == "★ you"
    assert sender_of(record("Ann", "owner", "ann@example.org")) == "★ Ann"
    assert [sender_of(record("Ann", trust)) for trust in ("known", "unknown", "something new")] == [
        "Ann",
        "? Ann",
        "? Ann",
    ]


@pytest.mark.parametrize("name", ["you", "You", "owner", " you ", "you:", "★ you", "? owner"])
@pytest.mark.parametrize("trust", ["known", "unknown", "owner"])
def test_somebody_who_calls_themselves_you_is_shown_with_their_id(name: str, trust: str) -> None:
    """A GitHub user may have that name; the id is what the source vouches for."""
    shown = name_of(record(name, trust))
    assert shown.endswith(" (github:x)")
    assert "★" not in shown
