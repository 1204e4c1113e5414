"""A diff says exactly what is different, and costs little whatever the texts are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.runs.snapshot import MAX_STEPS, NO_END, unified_diff

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "+", "-x", "@@", "\\"])).map("\n".join)


def patched(before: str, diff: str) -> str:
    """Return a text, whose lines all have an end, with the changes of a diff, which has to fit it exactly."""
    old, new, at = before.split("\n")[:-1], list[str](), 0
    for line in diff.split("\n") if diff else ():
        if found := re.fullmatch(r"@@ -(\d+),(\d+) \+\d+,\d+ @@", line):
            begin = int(found[1]) - (int(found[2]) > 0)
            new += old[at:begin]
            at = begin
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            new += [old[at]] if line[0] == " " else []
            at += 1
    return "".join(f"{line}\n" for line in [*new, *old[at:]])


@given(before=TEXTS, after=TEXTS)
def test_diff_makes_the_one_of_the_other(before: str, after: str) -> None:
    """A person judges by it what an agent did."""
    ended_before, ended_after = f"{before}\n" if before else "", f"{after}\n" if after else ""
    diff = unified_diff(ended_before, ended_after)
    assert (diff == "") is (ended_before == ended_after)
    assert patched(ended_before, diff) == ended_after


def test_missing_end_of_the_last_line_is_said() -> None:
    """Else two texts that differ would look the same."""
    assert unified_diff("a\n", "a") == f"@@ -1,1 +1,1 @@\n-a\n+a\n{NO_END}"


def test_only_what_is_around_a_change_is_shown() -> None:
    """A file may have thousands of lines."""
    lines = [f"{number}\n" for number in range(1_000)]
    changed = [*lines[:500], "new\n", *lines[500:]]
    assert unified_diff("".join(lines), "".join(changed)).split("\n") == [
        "@@ -498,6 +498,7 @@",
        *(" 497", " 498", " 499", "+new", " 500", " 501", " 502"),
    ]


@pytest.mark.parametrize("times", [MAX_STEPS, 40_000])
def test_texts_that_have_little_in_common_are_shown_whole(times: int) -> None:
    """The shortest edit of two such texts takes minutes to find, and says nothing."""
    diff = unified_diff("a\nb\n" * times, "b\na\na\n" * times).split("\n")
    assert sum(line.startswith("-") for line in diff) + sum(line.startswith(" ") for line in diff) == 2 * times
    assert sum(line.startswith("+") for line in diff) + sum(line.startswith(" ") for line in diff) == 3 * times
