"""The pictures of the README show what the program says now."""

from __future__ import annotations

import pytest

from scripts import record

LINES = [
    "\x1b[1mA daemon\x1b[0m",
    "",
    "  \x1b[36magent  \x1b[0m gets <one> & m-h6bvqdchqe after 2.6 ms (process 7)",
]


@pytest.mark.parametrize("theme", record.THEMES)
def test_the_recording_is_what_the_demonstration_says(theme: record.Theme, demonstrated: str) -> None:
    """A picture that promises what the program no longer does is worse than none. Run `make record`."""
    picture = (record.IMAGES / f"demo-{theme}.svg").read_text(encoding="utf-8")
    assert record.masked(record.said_by_drawing(picture)) == demonstrated


@pytest.fixture(scope="module")
def demonstrated() -> str:
    """What the demonstration says, without what differs from run to run."""
    return record.masked(record.without_empty_lines(record.plain(record.demonstration())))


def test_a_drawing_says_what_the_terminal_said() -> None:
    """Otherwise the comparison would hold pictures to something else."""
    said = record.said_by_drawing(record.drawing(LINES, "dark"))
    assert said == "A daemon\n  agent   gets <one> & m-h6bvqdchqe after 2.6 ms (process 7)"
    assert record.masked(said) == "A daemon\n  agent   gets <one> & m-… after … ms (process …)"


def test_a_drawing_can_be_read_without_its_movement() -> None:
    """Programs that show pictures without animating them, and people who turned movement off, see all lines."""
    picture = record.drawing(LINES, "light")
    assert "prefers-reduced-motion:reduce" in picture
    assert "opacity:0" in picture.partition("@keyframes")[2]
    assert "opacity" not in picture.partition("@keyframes")[0]
