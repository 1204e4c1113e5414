"""What plain texts are spared changes nothing: the short way and the long way lead to the same text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from harken.ingest.redact import Redacted, redact
from harken.ingest.sanitise import neutralise, visible

ASCII_PIECES = st.sampled_from(
    ["\x00", "\x07", "\x1b[31m", "\x1b]", "\x1b", "\r\n", "\r", "\n", "\t", "\x0b", "\x7f", "a"]
)
ASCII_TEXT = st.one_of(
    st.text(st.characters(max_codepoint=127)), st.lists(ASCII_PIECES, max_size=20).map("".join), st.text("ab \n\t")
)
TAG_PIECES = st.sampled_from(["<", "[", "\uff1c", "\u3008", "system", "channel", " ", "/", "-reminder", ">", "x", "\n"])
TAG_TEXT = st.one_of(st.text(), st.lists(TAG_PIECES, max_size=20).map("".join))
SECRET_PIECES = st.sampled_from(
    [
        *["ghp_", "a1B2" * 6, "password=", "hunter2!", "https://", "ann:pw1!@host", "@", "bearer ", "token: ", "sk-"],
        *["AKIA", "ABCDEFGH12345678", "\u212aey=", " ", "\n", "x", "-----BEGIN PRIVATE KEY-----", "eyJ", ".", "sig="],
    ]
)
SECRET_TEXT = st.one_of(st.text(), st.lists(SECRET_PIECES, max_size=12).map("".join))


@given(ASCII_TEXT)
@example("two\nlines\tand a tab")
@example("\x1b[31mred")
def test_plain_lines_are_as_visible_as_among_others(text: str) -> None:
    """A letter before them that is no ASCII sends them the long way, and must be all that differs."""
    assert visible(f"\u00e9{text}") == f"\u00e9{visible(text)}"


@given(TAG_TEXT)
@example("no tag at all")
@example("\uff1csystem")
def test_text_without_brackets_is_as_harmless_as_with_one(text: str) -> None:
    """A tag after it sends it the long way; what comes before the tag must be the same."""
    assert neutralise(f"{text}\n<system>") == f"{neutralise(text)}\n\u2039system>"


@given(SECRET_TEXT)
@example("see https://ann:hunter2!@example.org/x")
@example("nothing to hide")
def test_text_without_hints_has_no_secret(text: str) -> None:
    """A hint after it lets every pattern look; none may find what was not found without."""
    alone = redact(text)
    assert redact(f"{text} key") == Redacted(f"{alone.text} key", alone.count)
