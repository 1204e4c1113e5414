"""Regular expressions are RE2: whatever a pattern or a text is, searching ends, and says so quietly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.rules.match import MAX_PATTERN_CHARS, PatternFault, PatternSet, compile_pattern

TEXT_CHARS: Final = 64_000
# Each of these takes longer than anyone lives, where a search goes back to try again.
HOSTILE: Final = (r"(a+)+$", r"(a|aa)*b", r"(.*)*x", r"(a|b|ab)*c", r"((a*)*)*d", r"(x+x+)+y", r"a?a?a?a?a?a?a?a?a{8}z")
SMALL_PATTERNS: Final = st.lists(
    st.sampled_from(["a", "ab", "b$", "^a", "(?i)B", "a+c", "[^a]b", "a|c", "\u00e4", ".", "a{2}"]), max_size=8
)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a(b", 4),
        ("ab)c", 3),
        ("ab**", 3),
        (r"\**+*x", 3),
        ("ab[cd", 3),
        ("x[z-a]", 3),
        ("\u00e4\u00f6(?<=a)", 3),
        (r"ab\1", 3),
        ("a{1001}", 2),
        ("*a", 1),
        ("ab\\", 3),
    ],
)
def test_a_fault_says_at_which_character(text: str, position: int) -> None:
    """In a long pattern `missing bracket` alone helps nobody."""
    with pytest.raises(PatternFault) as caught:
        compile_pattern(text)
    assert caught.value.position == position


def test_a_pattern_that_is_too_long_or_too_large_is_refused() -> None:
    """Compiling it would take memory by the gigabyte."""
    with pytest.raises(PatternFault, match="10,001 characters"):
        compile_pattern("a" * (MAX_PATTERN_CHARS + 1))
    with pytest.raises(PatternFault, match="too large"):
        compile_pattern(r"((\pL{100}){10}|x)" * 400)


def test_half_a_character_is_refused() -> None:
    """JSON can say it, and no text can hold it."""
    with pytest.raises(PatternFault):
        compile_pattern("\ud800")


def test_hostile_patterns_and_texts_come_to_an_end() -> None:
    """One message must not stall the rest; this test ends only because each search is linear."""
    patterns = PatternSet(HOSTILE)
    for text in ("a" * TEXT_CHARS + "!", "ab" * (TEXT_CHARS // 2), "x" * TEXT_CHARS):
        alone = {number for number, item in enumerate(HOSTILE) if compile_pattern(item).is_in(text.encode())}
        assert patterns.found_in(text.encode()) == alone


def test_patterns_too_large_to_be_searched_together_are_all_searched() -> None:
    """A set that does not fit into its memory is cut; none of its patterns may be forgotten."""
    large = [rf"\pL{{60}}number {number}\b" for number in range(12)]
    patterns = PatternSet([*large, "needle", ""])
    text = "\u00e4" * 60 + "number 7 and a needle"
    assert patterns.found_in(text.encode()) == {7, 12, 13}


@given(SMALL_PATTERNS, st.text(alphabet="abcAB\u00e4\n", max_size=12))
def test_searched_together_is_as_searched_one_by_one(items: Sequence[str], text: str) -> None:
    """One pass for all is only a matter of speed."""
    alone = {number for number, item in enumerate(items) if compile_pattern(item).is_in(text.encode())}
    assert PatternSet(items).found_in(text.encode()) == alone


def test_nothing_is_printed_about_a_bad_pattern() -> None:
    """The library writes to the terminal by itself; a rule file must not be able to write there."""
    code = (
        "import json, sys\nfrom harken.rules.match import *\n"
        "for text in json.loads(sys.argv[1]):\n    try:\n        compile_pattern(text)\n"
        "    except PatternFault:\n        continue\n    raise SystemExit(1)"
    )
    bad = json.dumps(["(a", "[", "a**", r"((\pL{100}){10}|x)" * 400])
    done = subprocess.run([sys.executable, "-c", code, bad], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
