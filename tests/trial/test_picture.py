"""The picture that hosts paint: the same however the bytes are cut, and never stopped by a sequence we do not know."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harken.trial.screen import TerminalPicture

ESC = b"\x1b"
pieces = st.lists(
    st.sampled_from(
        [ESC, b"[", b"]", b"P", b"?", b">", b"1;2", b"38:5:1", b"h", b"m", b"J", b"H", b"F", b"\x07", b"\\"]
    )
    | st.binary(max_size=6)
    | st.text(max_size=6).map(str.encode),
    max_size=30,
)


def painted(*parts: bytes) -> str:
    """What is shown after these bytes."""
    picture = TerminalPicture(40, 6)
    for part in parts:
        picture.feed(part)
    return picture.text()


@given(parts=pieces)
@example(parts=[ESC, b"[", b"1;2;3", b"F"])
@example(parts=[ESC, b"[", b"7", b"J"])
def test_no_bytes_stop_the_picture(parts: list[bytes]) -> None:
    """A host prints what it likes, and people can make it print what they like."""
    picture = TerminalPicture(40, 6)
    picture.feed(b"".join(parts))
    # Ends whatever was begun, as a terminal that is reset.
    picture.feed(b"\x18\x1b\\\x07\x1bc\x1b[2J\x1b[Hstill here")
    assert "still here" in picture.text()


@given(
    parts=st.lists(
        st.sampled_from([b"ab", b"\r\n", b"\x1b[3;5Hx", b"\x1b[2K", b"\x1b[>4;2m", b"\x1b]0;t\x07", b"\xc3\xa9"])
    )
)
def test_the_cuts_between_reads_do_not_matter(parts: list[bytes]) -> None:
    """Where a read ends is chance; a sequence in two halves is still that sequence."""
    whole = b"".join(parts)
    assert painted(whole) == painted(*(whole[at : at + 1] for at in range(len(whole))))


@pytest.mark.parametrize(
    "odd",
    [
        b"\x1b[>4;2m",
        b"\x1b[?1u",
        b"\x1b[<u",
        b"\x1b[=5u",
        b"\x1b[?2026h",
        b"\x1b[?25r",
        b"\x1b[>0q",
        b"\x1b[4:3m",
        b"\x1b[2 q",
        b"\x1b[!p",
        b"\x1b[?2026$p",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1b]11;?\x07",
        b"\x1bP+q544e\x1b\\",
        b"\x1b_Gi=1\x1b\\",
    ],
)
def test_sequences_of_newer_terminals_change_nothing(odd: bytes) -> None:
    """They ask for colours, links and keys; printed as text they would hide what the host says."""
    assert painted(b"before", odd, b" after") == "before after"


def test_what_was_painted_over_is_gone() -> None:
    """The screen is what a person sees, not what was printed."""
    assert painted(b"before\r\x1b[2Kafter\x1b[3;5Hbelow") == "after\n\n    below"


def test_the_terminal_says_where_the_cursor_is() -> None:
    """Some hosts refuse to start in a terminal that does not answer."""
    assert TerminalPicture(40, 6).feed(b"ab\x1b[6n") == b"\x1b[1;3R"
