"""What a person could read of an inbound text, and nothing that acts.

`clean` is for bodies, `one_line` for names, previews and terminals, `visible` for ids. Markup is parsed by `markup`;
here are the characters: terminal sequences, control, bidi and invisible ones go, and look-alikes of what agent hosts,
models and Harken itself put around words of others are made harmless. It is not a secret filter (`redact`), and it does
not decide which sender to believe (`policy`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harken.ingest.markup import to_text
from harken.ingest.policy import chars_within, utf8_bytes
from harken.model import MAX_TEXT_BYTES, TextFormat

WRAPPERS = (
    "channel",
    "system-reminder",
    "system-notification",
    "system-message",
    "system-prompt",
    "task-notification",
    "task-id",
    "external-",
    "hook-context",
    "hook-prompt",
    "cross-session-message",
    "persisted-output",
    "user-",
    "custom-instruction",
    "current-datetime",
    "skill-context",
    "command-name",
    "command-message",
    "local-command",
    "harken",
    "function-call",
    "function-result",
    "invoke",
    "tool-use",
    "tool-result",
    "tool-call",
    "untrusted",
    "im-start",
    "im-end",
)
"""Beginnings of tag names that agent hosts act on. A hyphen stands for any hyphen, underscore or white space."""

ROLE_TAGS = ("system", "assistant", "developer")
"""Tag names that are look-alikes only as a whole: `<system>`, but not `<system_error>`."""

MARKERS = ("system-notification", "system-reminder", "system-message", "system-prompt")
"""What may not follow an opening bracket: `[SYSTEM NOTIFICATION`."""

_HARMLESS: Final[Mapping[str, str]] = {"<": "\u2039", "[": "\u2045", "]": "\u2046", ":": "\ua789"}
_HARMLESS_RULE: Final = "\u2043"  # in the place of what begins a line that separates
_MAX_MARKS = 8
_MAX_NAME = 40
_SPARE_BYTES = 4  # what the last sign takes more when it is made harmless

_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_EMOJI_STYLE, _JOINER = "\ufe0f", "\u200d"

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_TERMINAL = re.compile(
    # Strings (OSC, DCS, SOS, PM, APC) with their terminator, then CSI, then short escapes. Every class excludes what
    # begins a sequence, so each character is looked at once.
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_UNWANTED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    # Default ignorable: nobody sees them, a model reads them.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\U00013430-\U0001343f\U0001fffe\U0001ffff\U0002fffe\U0002ffff]"
)
_LOOSE_STYLE = re.compile(f"(?<![{_EMOJI}0-9#*]){_EMOJI_STYLE}|(?<=[0-9#*]){_EMOJI_STYLE}(?!\u20e3)")
_LOOSE_JOINER = re.compile(f"(?<![{_EMOJI}{_EMOJI_STYLE}]){_JOINER}|{_JOINER}(?![{_EMOJI}])")
# Marks are no word characters; what else these runs hold is sorted out one by one.
_MARK_RUN = re.compile(r"[^\w\s\x00-\u02ff]{9,}")
_BLANK_LINES = re.compile("\n{5,}")
_LINE_MARKS = re.compile(
    r"[<\[]|  |\A | \Z|(?:harken|trust|treat.as)\W{0,3}:|\b(?:begins|ends|of message)\b|\(", re.IGNORECASE
)


def _fold_table() -> dict[int, str]:
    """Map look-alikes to the ASCII character they pass for, one to one so that places stay the same."""
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    # Letters with accents, circled, raised, in other styles: each passes for the letter that is left of it.
    for code in (*range(0xC0, 0x250), *range(0x1D2C, 0x1D6B), *range(0x1E00, 0x1F00), *range(0x2070, 0x20A0),
                 *range(0x2100, 0x2150), *range(0x24B6, 0x24EA), *range(0x1D400, 0x1D800)):  # fmt: skip
        plain = unicodedata.normalize("NFKD", chr(code))
        if plain[0].isascii() and all(unicodedata.combining(mark) for mark in plain[1:]):
            table[code] = plain[0]
    less_than = "\ufe64\u3008\u27e8\u276e\u276c\u02c2\u1438\u16b2\u227a\u226e\u2a79\u2329\U0001d236"
    table |= dict.fromkeys(map(ord, less_than), "<")
    table |= dict.fromkeys(map(ord, "\ufe65\u3009\u27e9\u276f\u276d\u02c3\u227b\u232a"), ">")
    table |= dict.fromkeys(map(ord, "\u3010\u3014\u3016\u27e6\u2e22"), "[")
    table |= dict.fromkeys(map(ord, "\u3011\u3015\u3017\u27e7\u2e23"), "]")
    table |= dict.fromkeys(map(ord, "\u2236\ua4fd\u02d0\u0589\ufe13\ufe55"), ":")
    table |= dict.fromkeys(map(ord, "\u2223\u23d0\u01c0\u2758"), "|")
    table |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\u02d7"), "-")
    table |= dict.fromkeys(map(ord, "\u2044\u2215\u29f8"), "/")
    odd_letters = (
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u04bb\u0501\u0578"
        "\u057d\u03bf\u03b1\u0131\u0458\u043a\u0442\u043c\u043d\u0261\u03bd\u0433"
    )
    table |= {ord(odd): plain for odd, plain in zip(odd_letters, "aeopcyxishdnuoaijktmhgvr", strict=True)}
    capitals = "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0405\u0408"
    table |= {ord(odd): plain for odd, plain in zip(capitals, "ABEKMHOPCTXYISJ", strict=True)}
    greek = "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    table |= {ord(odd): plain for odd, plain in zip(greek, "ABEZHIKMNOPTYX", strict=True)}
    small = (
        "\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d\u0274\u1d0f\u1d18\u0280\ua731"
    )
    table |= {ord(odd): plain for odd, plain in zip(small, "ABCDEFGHIJKLMNOPRS", strict=True)}
    table |= {ord(odd): plain for odd, plain in zip("\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22", "TUVWYZ", strict=True)}
    for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6):
        table |= {first + place: chr(ord("A") + place) for place in range(26)}
    return table


_FOLD: Final[Mapping[int, str]] = _fold_table()


def _names(names: tuple[str, ...]) -> str:
    return "|".join(re.escape(name).replace(r"\-", r"[-_\s]+" if name.endswith("-") else r"[-_\s]*") for name in names)


_LOOKALIKE = re.compile(
    rf"<(?=[\s/\\!?|]*(?=[\w.\-])(?:[\w.\-]{{1,{_MAX_NAME}}}:)?(?:{_names(WRAPPERS)}|(?:{_names(ROLE_TAGS)})(?=[\s/|>]|$)))"
    rf"|\[(?=\s*(?:{_names(MARKERS)}))"
    # What some models are given around turns: `[INST]`, `<<SYS>>`, `<|im_start|>`, `<start_of_turn>`.
    r"|\[(?=\s{0,4}/?\s{0,4}inst\s{0,4}\])|<(?=\s{0,4}<\s{0,4}/?\s{0,4}sys\s{0,4}>)"
    r"|<(?=\s{0,4}\|[^|<>\n]{1,40}\|\s{0,4}>)|<(?=\s{0,4}/?\s{0,4}(?:start|end)_of_turn)",
    re.IGNORECASE,
)
_SPACED = re.compile(r"[<\[](?=[\s/\\!?|]{0,8}(?:\w[\s._*|-]{1,3}){4})")
_SPACED_NAMES = tuple(name.replace("-", "") for name in (*WRAPPERS, *ROLE_TAGS) if not name.endswith("-"))
_SPACED_CHARS = 120
# What Harken itself puts around a text: the lines that frame it, and what it says of it.
_OWN = re.compile(
    r"[-=_*~](?=[-=_*~\s]{0,20}(?:d-\w{4,40}\s{1,4}(?:begins|ends)\b|(?:begin|end)\s{1,4}of\s{1,4}message\b))"
    r"|(?<=harken):|(?<=harken )\s{0,3}:"
    r"|(?<=treat as):|(?<=treat_as):|(?<=treat_as\"):"
    r"|(?<=trust)\W{0,2}:(?=\W{0,4}(?:owner|known|unknown)\b)"
    r"|\](?=\s{0,4}\(\s{0,4}d-\w{4,40}\s{0,4}\))",
    re.IGNORECASE,
)
_OWN_WORDS = ("begins", "ends", "message", "harken", "treat", "trust", "(d-", "( ")


@dataclass(frozen=True, slots=True)
class CleanText:
    """A text that is safe to store and show, how many characters of it were cut, and how many it had before."""

    text: str
    cut: int
    length: int


def clean(text: str, text_format: TextFormat, max_bytes: int = MAX_TEXT_BYTES, *, left_out: int = 0) -> CleanText:
    """Return the readable text; what is over `max_bytes` of UTF-8 is cut, and a last line says so.

    `left_out` counts the characters that are missing already; of markup that is cut, those of the markup count too.
    """
    room = max_bytes * 4
    if text_format is TextFormat.HTML:
        readable, cut = to_text(text.replace("\x00", "").encode("utf-8", "ignore").decode(), room)
    else:
        readable, cut = text, 0
    cut += left_out + max(0, len(readable) - room)
    tidy = _tidy(visible(readable[:room]))
    length, fits = len(tidy) + cut, chars_within(tidy, max_bytes)
    # Made harmless before it is measured, because that takes more bytes and never fewer; and again after a cut, which
    # can make a look-alike.
    kept, cut = _cap(neutralise(tidy[:fits]), cut + len(tidy) - fits, max_bytes)
    return CleanText(neutralise(kept) if cut else kept, cut, length)


def one_line(text: str, max_chars: int) -> str:
    """Return the text on one line, cleaned, cut with an ellipsis: for names, pings and terminals."""
    if not text:
        return ""
    line = " ".join(visible(text[: max_chars * 8 + 64]).split())
    if len(line) > max_chars:
        line = _beginning(line, max_chars - 1) + "…"
    return neutralise(line)


def is_plain_line(text: str, max_chars: int) -> bool:
    """Whether `one_line` has nothing to do: short printable ASCII without brackets, one space between its words."""
    return len(text) <= max_chars and text.isascii() and text.isprintable() and _LINE_MARKS.search(text) is None


def visible(text: str) -> str:
    """Return the text without terminal sequences and invisible characters; lines end in a line feed."""
    # Most texts are plain ASCII in lines, of which nothing goes: this saves them the patterns.
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = _LINE_ENDS.sub("\n", _TERMINAL.sub("", text))
    text = _UNWANTED.sub("", text).replace("\u2800", " ")
    if text.isascii():
        return text
    text = _LOOSE_JOINER.sub("", _LOOSE_STYLE.sub("", text))
    # Runs of marks are capped before, because ordering them is quadratic, and after, because some letters come apart.
    return _cap_marks(unicodedata.normalize("NFC", _cap_marks(text)))


def bare(name: str) -> str:
    """Return the letters and digits that a name passes for, small and with nothing between them: to compare names."""
    return re.sub(r"[\W_]+", "", visible(name).translate(_FOLD)).casefold()


def neutralise(text: str) -> str:
    """Return the text with look-alikes of the words of hosts, models and Harken made harmless but readable."""
    folded = text if text.isascii() else text.translate(_FOLD)
    places: dict[int, str] = {}
    if "<" in folded or "[" in folded:
        places |= {match.start(): _HARMLESS[match[0]] for match in _LOOKALIKE.finditer(folded)}
        places |= {match.start(): _HARMLESS[match[0]] for match in _SPACED.finditer(folded) if _is_spaced(match)}
    lower = folded.lower()
    if any(word in lower for word in _OWN_WORDS):
        places |= {match.end() - 1: _HARMLESS.get(match[0][-1], _HARMLESS_RULE) for match in _OWN.finditer(folded)}
    if not places:
        return text
    pieces, done = [], 0
    for place in sorted(places):
        pieces += [text[done:place], places[place]]
        done = place + 1
    return "".join([*pieces, text[done:]])


def _is_spaced(match: re.Match[str]) -> bool:
    """Whether the letters after a bracket, without what stands between them, are the name of a wrapper."""
    following = match.string[match.end() : match.end() + _SPACED_CHARS]
    return re.sub(r"[\W_]+", "", following).lower().startswith(_SPACED_NAMES)


def _tidy(text: str) -> str:
    if "\n" not in text:
        return text.rstrip()
    lines = "\n".join([line.rstrip() for line in text.split("\n")])
    return _BLANK_LINES.sub("\n\n\n\n", lines).strip("\n")


def _cap(text: str, cut: int, max_bytes: int) -> tuple[str, int]:
    """Return the text that is kept, with a note if need be, and how many characters of it were cut."""
    if not cut and utf8_bytes(text) <= max_bytes:
        return text, 0
    kept = _beginning(text, chars_within(text, max_bytes - utf8_bytes(_note(cut + len(text))) - _SPARE_BYTES))
    cut += len(text) - len(kept)
    # Of a text that begins with white space only, nothing may be left but the note.
    return (kept + _note(cut)).lstrip("\n"), cut


def _note(cut: int) -> str:
    return f"\n[… {cut} characters cut]"


def _beginning(text: str, end: int) -> str:
    # A chain of joined signs may have no good place; then at least nothing is left that joins them to what follows.
    return text[: _boundary(text, end)].rstrip().rstrip(_JOINER)


def _boundary(text: str, end: int) -> int:
    """Return the place at or shortly before `end` where no sign is torn apart."""
    end = max(0, end)
    if end >= len(text):
        return len(text)
    for place in range(min(end, len(text) - 1), max(0, end - 4 * _MAX_MARKS), -1):
        if not _continues(text[place]) and text[place - 1] != _JOINER:
            return place
    return end


def _continues(character: str) -> bool:
    return (
        character == _JOINER or "\U0001f3fb" <= character <= "\U0001f3ff" or unicodedata.category(character)[0] == "M"
    )


def _cap_marks(text: str) -> str:
    return _MARK_RUN.sub(lambda run: _limit_marks(run[0]), text)


def _limit_marks(run: str) -> str:
    kept, marks = [], 0
    for character in run:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks <= _MAX_MARKS:
            kept.append(character)
    return "".join(kept)
