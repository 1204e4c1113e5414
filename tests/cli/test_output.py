"""How text is made safe and fitted: pure, so that any text can be tried."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from time import gmtime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.demo import Stage
from harken.cli.output import Screen, clock_time, cut, json_text, name_of, sender_of, width_of, wrapped
from harken.display import author_name, one_line, reader_name, task_sender_name, visible
from harken.model import timestamp

anything = st.text(st.characters(exclude_categories=[]))


@given(anything)
def test_visible_text_holds_nothing_that_acts_on_a_terminal(text: str) -> None:
    """Here is the last thing between a stranger's text and the terminal."""
    assert all(char.isprintable() or char == "\n" for char in visible(text))
    assert one_line(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_plain_text_is_printed_as_it_is(text: str) -> None:
    """Letters of every script, signs and emoji are not touched."""
    assert visible(text) == text


@given(st.dictionaries(anything, anything), st.sampled_from([None, 2]))
def test_json_for_a_terminal_is_the_same_json(value: dict[str, str], indent: int | None) -> None:
    """Escaping must not change what a program reads."""
    text = json_text(value, indent=indent)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert json.loads(text) == value


@given(st.text(), st.integers(1, 60))
def test_a_cut_text_fits_and_is_a_beginning(text: str, width: int) -> None:
    """Nothing is wider than the terminal, and what is cut is marked."""
    shown = cut(text, width)
    assert width_of(shown) <= width
    assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1]))


@given(st.text(st.characters(categories=["L", "P", "Zs"], include_characters=" 漢")), st.integers(2, 40))
def test_wrapping_keeps_every_word_and_every_line_fits(text: str, width: int) -> None:
    """A message is shown whole, on any terminal."""
    lines = list(wrapped(text, width))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width_of(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("stamp", "shown"),
    [
        ("2026-03-18T18:21:00.000Z", "18:21"),
        ("2026-03-17T18:21:00.000Z", "03-17 18:21"),
        ("2025-03-18T18:21:00.000Z", "2025-03-18 18:21"),
        (None, "-"),
    ],
)
def test_times_are_as_short_as_they_can_be(stamp: str | None, shown: str) -> None:
    """Today the hour is enough."""
    assert clock_time(stamp, datetime(2026, 3, 18, 20, 0, tzinfo=UTC).timestamp(), gmtime) == shown


LONG_AGO = -10_000_000_000.0


@given(st.integers(-2_000_000_000, 30_000_000_000))
def test_a_time_is_that_of_the_calendar(seconds: int) -> None:
    """Times are read without `datetime`, which costs more than the rest of a command: leap years must not differ."""
    moment = datetime.fromtimestamp(seconds, UTC)
    assert clock_time(timestamp(moment), LONG_AGO, gmtime) == f"{moment:%Y-%m-%d %H:%M}"
    assert clock_time(timestamp(moment), moment.timestamp(), gmtime) == f"{moment:%H:%M}"


def test_stored_names_of_the_person_are_shown_as_you() -> None:
    """The store has three names for one person; an agent that takes one of them for itself is not shown as you."""
    assert [reader_name(name) for name in ("watch", "owner", "codex\n")] == ["you", "owner", "codex "]
    assert [author_name(name) for name in ("owner", "watch", "agent:codex")] == ["you", "watch", "agent:codex"]
    assert task_sender_name("user", "owner") == "you"
    assert task_sender_name("user", "unknown") == "user"


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


@pytest.mark.parametrize(
    "name", ["you", "You", "owner", " you ", "you:", "★ you", "? owner", "\u0443\u043eu", "\uff59\uff4f\uff55"]
)
@pytest.mark.parametrize("trust", ["known", "unknown", "owner"])
def test_somebody_who_calls_themselves_you_is_shown_with_their_id(name: str, trust: str) -> None:
    """A GitHub user may have that name; the id is what the source vouches for."""
    shown = name_of(record(name, trust))
    assert shown.endswith(" (github:x)")
    assert "★" not in shown


@pytest.mark.parametrize(("columns", "is_cut"), [(80, True), (0, False)])
def test_a_long_value_does_not_push_the_last_column_off_the_terminal(
    capsys: pytest.CaptureFixture[str], columns: int, *, is_cut: bool
) -> None:
    """Who asks where a setting came from must see it, however long the value of another one is."""
    Screen(columns, has_colour=False).table([("http.port", "0", "default"), ("projects", "x" * 90, "~/.harken/config")])
    short, long = capsys.readouterr().out.splitlines()
    assert short.endswith("default")
    assert long.endswith("~/.harken/config")
    assert ("…" in long, width_of(long) <= 80) == (is_cut, is_cut)


def test_the_demonstration_breaks_no_word_where_the_terminal_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first thing that a newcomer sees, often at 80 columns."""
    Stage(pause=0, is_quiet=False, width=40).line("agent", "calls again on the same connection; that started a daemon")
    assert capsys.readouterr().out.splitlines() == [
        "  agent   calls again on the same",
        "          connection; that started a",
        "          daemon",
    ]


def test_text_that_goes_on_is_indented_as_its_line_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A hint below a finding would look like two."""
    Screen(30, has_colour=False).text("  Run: harken connect codex --project /tmp\nnext")
    assert capsys.readouterr().out == "      Run: harken connect\n      codex --project /tmp\n    next\n"


def test_facts_and_reasons_go_on_below_instead_of_being_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """What a line ends with is often what explains it: the attention of a message, the evidence of a live trial."""
    Screen(40, has_colour=False).flow("prompt hook: arrived after 0.4 s; ledger: seen through hook", "  ok  ", 6)
    assert capsys.readouterr().out.splitlines() == [
        "  ok  prompt hook: arrived after 0.4 s;",
        "      ledger: seen through hook",
    ]
