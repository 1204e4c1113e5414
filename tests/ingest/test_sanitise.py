"""Nothing in a cleaned text acts on a terminal, on a reader's eye or on a host."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harken.ingest.sanitise import MARKERS, ROLE_TAGS, WRAPPERS, clean, neutralise, one_line
from harken.model import TextFormat
from tests.cost import costs_at_most

FAMILY = "\U0001f469\U0001f3fd\u200d\U0001f4bb"
INVISIBLE = "\u00ad\u200b\u200c\u2060\ufeff\U000e0041\u034f\u115f\u3164\ufe00\ufff9\u180e\u2063\U000e0100"
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"

SPECIALS = st.sampled_from(
    [
        *INVISIBLE,
        *BIDI,
        *"\x00\x1b\x07\x9b\x9d\x9c\r\n\t \x85\u2028\ufe0f\u200d\u20e3\u0301\u0316\u0338\u093c\u0344<[-_1ab…❤",
        *["\x1b[31m", "\x1b]8;;http://e\x07", "\x1bP", "\x1b\\", "\uff1c", "\u3008", "</", "channel", "system"],
        *["reminder", "user", "external", "harken", "notification", "\U0001f469", "\ud800", "\u0958", "\ufb2c"],
        *["\u1100", "\u1161", "\u2800", "\u00a0", "\n\n\n\n\n\n", "\u0301" * 12],
    ]
)
HOSTILE_TEXT = st.one_of(st.text(), st.lists(SPECIALS, max_size=40).map("".join))


def plain(text: str, max_chars: int = 64_000) -> str:
    """Return the cleaned plain text."""
    return clean(text, TextFormat.PLAIN, max_chars).text


def is_forbidden(character: str) -> bool:
    """Whether a character may not be in a cleaned text, by Unicode's own tables rather than ours."""
    if character in "\n\t\u200d\ufe0f":
        return False
    visible_formats = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    category = unicodedata.category(character)
    return category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and character not in visible_formats)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words, nothing else",
        "if a < b and c > d:\n\treturn <b>bold</b> &amp; <div>",
        "    indented\n\n\nafter two blank lines",
        "Grüße, 日本語, العربية, हिन्दी, ไทย, 한국어",
        f"{FAMILY} ❤\ufe0f 1\ufe0f\u20e3 \U0001f1e9\U0001f1ea ❤\ufe0f\u200d\U0001f525",
        "Foo <foo@example.org> and <user@example.org>, #include <system_error>, vector<system_clock>",
        "const x = <Users/>; <userName>; systems; [system] x; a[system_id]",
    ],
)
def test_text_without_anything_special_is_unchanged(text: str) -> None:
    """Code, markup that is meant as text, and every language must arrive as they were written."""
    assert clean(text, TextFormat.PLAIN).text == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\r\nb\rc\u2028d\u2029e\x85f\x0bg\x0ch", "a\nb\nc\nd\ne\nf\ng\nh"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.test\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x07a\x1bPq#0\x1b\\b\x9b31mc\x9d0;t\x9cd", "abcd"),
        ("\x1b(Ba\x1bcb\x1b7", "ab"),
        ("\x1b]unfinished", "unfinished"),
        ("\x1b\x1b[31m[31mx", "[31mx"),
        ("a\x00b\x08c\x7fd\x9fe", "abcde"),
        ("a\ud800b\udfffc", "abc"),
        ("user\u202etxt.exe", "usertxt.exe"),
        (f"a{INVISIBLE}{BIDI}b", "ab"),
        ("a\u200db x\ufe0f 1\ufe0f", "ab x 1"),
        ("❤\u200d\u200d❤", "❤❤"),
        ("e\u0301", "é"),
        ("a" + "\u0316" * 50, "a" + "\u0316" * 8),
        ("a  \n\tb \t\n", "a\n\tb"),
        ("a\n\n\n\n\n\n\nb", "a\n\n\n\nb"),
        ("\n\n  a\n\n", "  a"),
    ],
)
def test_what_acts_or_hides_is_removed(text: str, cleaned: str) -> None:
    """Whole sequences go, so that no half of one is left, and what can be read stays."""
    assert plain(text) == cleaned


@pytest.mark.parametrize(
    "form",
    ["<{}>", "</{}>", "< / {} >", "<{} a='b'>", "\uff1c{}>", "\u3008{}>", "<\n{}>", "<ns:{}>", "<|{}|>", "<\u200b{}>"],
)
def test_lookalike_of_a_host_wrapper_is_readable_but_harmless(form: str) -> None:
    """A text that closes the host's fence and opens another would speak with the host's voice."""
    for name in (*WRAPPERS, *ROLE_TAGS):
        for spelling in (name, name.upper(), name.replace("-", "_"), "\u200b".join(name)):
            text = plain(form.format(spelling))
            assert text[0] == "\u2039", text
            assert not re.search(r"[<\uff1c\u3008]", text)


@pytest.mark.parametrize(
    "text",
    [
        "<s\u0443stem-reminder>",
        "\uff1c\uff53\uff59\uff53\uff54\uff45\uff4d\uff0d\uff52\uff45\uff4d\uff49\uff4e\uff44\uff45\uff52\uff1e",
        "<\U0001d42c\U0001d432stem_reminder>",
        "<\u0455ystem reminder>",
    ],
)
def test_letters_that_only_look_alike_do_not_help(text: str) -> None:
    """A model reads what it sees, and so does a person."""
    assert plain(text)[0] == "\u2039"


@pytest.mark.parametrize("marker", MARKERS)
def test_bracketed_marker_of_a_host_is_harmless(marker: str) -> None:
    """Some hosts mark their own words with brackets rather than tags."""
    assert plain(f"[{marker.replace('-', ' ').upper()}] x")[0] == "\u2045"


def test_escaped_wrapper_in_html_is_harmless() -> None:
    """Entities become brackets only when the markup is parsed, so the look comes after."""
    assert clean("&lt;system-reminder&gt;x", TextFormat.HTML).text == "\u2039system-reminder>x"


def test_wrapper_that_the_cut_completes_is_harmless() -> None:
    """`<system_error` is no look-alike, but cut after `system` it would be."""
    whole = "x" * 100 + "<system_error" + "y" * 200
    for size in range(100, 160):
        assert "<system\n" not in plain(whole, size)


def test_long_text_is_cut_with_a_note_of_how_much() -> None:
    """Nothing is left out without saying so."""
    cleaned = clean("x" * 1_000, TextFormat.PLAIN, 100)
    assert cleaned.text == "x" * (1_000 - cleaned.cut) + f"\n[… {cleaned.cut} characters cut]"
    assert 90 <= len(cleaned.text.encode()) <= 100


def test_cut_counts_what_was_never_looked_at() -> None:
    """A huge text is cut before it is cleaned; the count still tells of all of it."""
    cleaned = clean("x" * 1_000_000, TextFormat.PLAIN, 100)
    assert cleaned.text.count("x") + cleaned.cut == 1_000_000


@pytest.mark.parametrize("unit", ["e\u0316\u0323", FAMILY, "❤\ufe0f"])
def test_cut_does_not_tear_a_sign_apart(unit: str) -> None:
    """Half of a sign is another sign."""
    for size in range(60, 80):
        kept = plain(unit * 100, size).split("\n")[0]
        assert kept == unit * (len(kept) // len(unit))


@given(HOSTILE_TEXT, st.integers(50, 200))
@example("\ufb2c" + "\u0316" * 12, 100)
@example("A\ufe0f\u200d❤", 100)
@example("<" + " " * 60 + "system" + "x" * 60, 70)
def test_cleaning_again_changes_nothing(text: str, max_chars: int) -> None:
    """What is cleaned twice on its way must not differ from what is cleaned once."""
    once = plain(text, max_chars)
    assert plain(once, max_chars) == once


@given(HOSTILE_TEXT, st.sampled_from(TextFormat), st.integers(50, 200))
def test_cleaned_text_is_short_normal_visible_and_harmless(text: str, form: TextFormat, max_chars: int) -> None:
    """The promise that everything behind ingest relies on."""
    cleaned = clean(text, form, max_chars).text
    assert len(cleaned.encode()) <= max_chars
    assert unicodedata.is_normalized("NFC", cleaned)
    assert [character for character in cleaned if is_forbidden(character)] == []
    assert neutralise(cleaned) == cleaned
    assert not re.search(r"<[\s/]*(?:channel|harken|system[-_\s]*reminder|external[-_])", cleaned, re.IGNORECASE)
    cleaned.encode()


@given(st.text(alphabet=st.characters(categories=["Ll", "Lu", "Nd"], codec="latin-1"), min_size=1, max_size=64_000))
def test_words_are_never_changed(text: str) -> None:
    """Letters and digits are nobody's weapon."""
    assert plain(text) == text


@given(HOSTILE_TEXT, st.integers(1, 60))
def test_one_line_is_one_short_clean_line(text: str, max_chars: int) -> None:
    """Previews go to terminals and into pings, where a line break or an escape would act."""
    line = one_line(text, max_chars)
    assert len(line) <= max_chars
    assert line == " ".join(line.split())
    assert [character for character in line if is_forbidden(character)] == []
    assert neutralise(line) == line


def test_one_line_folds_and_cuts_with_an_ellipsis() -> None:
    """A preview shows the beginning, and that there is more."""
    assert one_line("  a\n\tb  c ", 10) == "a b c"
    assert one_line("one two three", 8) == "one two…"


def filled(unit: str) -> str:
    """Return the unit over and over, a quarter of a megabyte of it."""
    return unit * (250_000 // len(unit))


@pytest.mark.parametrize(
    "unit",
    [
        *[
            "\u0316\u0301\u0327",
            "\x1b]",
            "\x1b[",
            "\x9d",
            "\x1b]8;;x",
            "<",
            "< ",
            " ",
            " \n",
            "\u200d",
            "❤\ufe0f\u200d",
        ],
        *["[system_", "<system   ", "\uff1c", "<user", "-", "<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\x1b", "\n"],
    ],
)
def test_hostile_text_costs_little(unit: str) -> None:
    """Marks in the wrong order and unfinished sequences are quadratic when met carelessly."""
    with costs_at_most(250):
        clean(filled(unit), TextFormat.PLAIN)
        clean("<\x1b[a" + filled(unit), TextFormat.PLAIN)
