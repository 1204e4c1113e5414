"""What plain texts are spared changes nothing: the short way and the long way lead to the same text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from harken.ingest.prepare import safe_id
from harken.ingest.redact import RedactedText, redact
from harken.ingest.sanitise import is_plain_line, neutralise, one_line, visible

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
    assert redact(f"{text} key") == RedactedText(f"{alone.text} key", alone.count)


@given(st.one_of(st.text(), ASCII_TEXT, TAG_TEXT, st.text("ab ")), st.integers(10, 40))
@example("refs/heads/main", 20)
@example("two  words", 20)
@example("word ", 20)
@example("[system notification", 40)
@example("x" * 11, 10)
def test_line_that_is_plain_stays_as_it_is(text: str, most: int) -> None:
    """Names that need no cleaning are not cleaned: then the cleaning must not have changed them."""
    if is_plain_line(text, most):
        assert one_line(text, most) == text
        assert safe_id(text, most) == text or text == "*"


def test_names_of_services_are_plain() -> None:
    """The short way is for them; if none of them could take it, nothing would be gained."""
    assert all(is_plain_line(name, 40) for name in ("", "a", "generic:ann", "refs/heads/main", "Ann B. Lee"))
