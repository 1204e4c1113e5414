"""Lines on a pipe, and places in a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harken.sources.mcp.protocol import McpCheckpoint, parse_place
from harken.sources.mcp.stdio import LineSplitter


@given(lines=st.lists(st.text("ab é\t", max_size=8), max_size=10), size=st.integers(1, 9))
def test_any_cutting_gives_the_same_lines(lines: list[str], size: int) -> None:
    """A pipe cuts where it likes, also inside a letter."""
    stream = "".join(line + "\n" for line in lines).encode()
    splitter = LineSplitter()
    heard = [line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size])]
    assert heard == [line.strip() for line in lines if line.strip()]


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_a_place_survives_as_a_checkpoint(session: str, last_id: str, url: str) -> None:
    """After a restart of the daemon the stream goes on where it was left, at the same server only."""
    place = McpCheckpoint(session, last_id, "2025-11-25", "ci")
    found = parse_place(place.checkpoint(url), url)
    assert found == (place if session and last_id else None)
    assert parse_place(place.checkpoint(url), url + "x") is None


def test_what_is_no_place_is_ignored() -> None:
    """A checkpoint of an older release must not stop the source."""
    assert [parse_place(text, "u") for text in ("", "7", "{}", '{"at":1}', "not json")] == [None] * 5
