"""What a person could read of an inbound text, and nothing that acts.

`clean` is for bodies, `one_line` for names, previews and terminals, `visible` for ids. Markup is parsed by `markup`;
here are the characters: terminal sequences, control, bidi and invisible ones go, and look-alikes of the tags that
agent hosts put around their own words are made harmless. It is not a secret filter (`redact`), and it does not decide
whom to believe (`trust`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harken.ingest.markup import to_text
from harken.model import TextFormat

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

_HARMLESS: Final[Mapping[str, str]] = {"<": "\u2039", "[": "\u2045"}
_MAX_MARKS = 8
_MAX_NAME = 40

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
_LINE_MARKS = re.compile(r"[<\[]|  |\A | \Z")


def _fold_table() -> dict[int, str]:
    """Map look-alikes to the ASCII character they pass for, one to one so that places stay the same."""
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    for code in range(0x1D400, 0x1D800):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii():
            table[code] = plain
    less_than = "\ufe64\u3008\u27e8\u276e\u276c\u02c2\u1438\u16b2\u227a\u226e\u2a79\u2329\U0001d236"
    table |= dict.fromkeys(map(ord, less_than), "<")
    table |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\u02d7"), "-")
    table |= dict.fromkeys(map(ord, "\u2044\u2215\u29f8"), "/")
    odd_letters = (
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u04bb\u0501\u0578"
        "\u057d\u03bf\u03b1\u0131\u0458\u043a\u0442\u043c\u043d\u0261\u03bd\u0433"
    )
    return table | {ord(odd): plain for odd, plain in zip(odd_letters, "aeopcyxishdnuoaijktmhgvr", strict=True)}


_FOLD: Final[Mapping[int, str]] = _fold_table()


def _names(names: tuple[str, ...]) -> str:
    return "|".join(re.escape(name).replace(r"\-", r"[-_\s]+" if name.endswith("-") else r"[-_\s]*") for name in names)


_LOOKALIKE = re.compile(
    rf"<(?=[\s/\\!?|]*(?![\s/\\!?|])(?:[\w.\-]{{1,{_MAX_NAME}}}:)?(?:{_names(WRAPPERS)}|(?:{_names(ROLE_TAGS)})(?=[\s/|>]|$)))"
    rf"|\[(?=\s*(?:{_names(MARKERS)}))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text that is safe to store and show, and how many characters of it were cut."""

    text: str
    cut: int


def clean(text: str, text_format: TextFormat, max_chars: int = 64_000) -> Cleaned:
    """Return the readable text; what is over `max_chars` is cut, and a last line says how much."""
    room = max_chars * 4
    if text_format is TextFormat.HTML:
        readable, cut = to_text(text.replace("\x00", "").encode("utf-8", "ignore").decode(), room)
    else:
        readable, cut = text, 0
    cut += max(0, len(readable) - room)
    kept, cut = _cap(_tidy(visible(readable[:room])), cut, max_chars)
    # Last, because removing and cutting can make a look-alike.
    return Cleaned(neutralise(kept), cut)


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
    """Return the text without terminal sequences and characters that nobody sees; lines end in a line feed."""
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


def neutralise(text: str) -> str:
    """Return the text with look-alikes of host wrappers made harmless but readable."""
    folded = text if text.isascii() else text.translate(_FOLD)
    if "<" not in folded and "[" not in folded:
        return text
    pieces, done = [], 0
    for match in _LOOKALIKE.finditer(folded):
        pieces += [text[done : match.start()], _HARMLESS[match[0]]]
        done = match.end()
    return "".join([*pieces, text[done:]]) if pieces else text


def _tidy(text: str) -> str:
    if "\n" not in text:
        return text.rstrip()
    lines = "\n".join([line.rstrip() for line in text.split("\n")])
    return _BLANK_LINES.sub("\n\n\n\n", lines).strip("\n")


def _cap(text: str, cut: int, max_chars: int) -> tuple[str, int]:
    """Return the text that is kept, with a note if need be, and how many characters of it were cut."""
    if not cut and len(text) <= max_chars:
        return text, 0
    kept = _beginning(text, max_chars - len(_note(cut + len(text))))
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
