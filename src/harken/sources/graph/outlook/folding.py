"""The earlier mails in an answer, taken out: what is left is what its sender wrote now. Pure, and linear in its length.

Only an answer is folded, never a forwarded mail: there the earlier mail is what is said. Nor is anything folded if
nothing would be left. What is taken out is said in its place. It reads tags and no tree, because it only has to find
where an element ends: making text of what is left, safely, is the business of ingest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from itertools import islice
from typing import Final

FOLDED: Final = "[earlier messages folded]"
MOST_CHARS: Final = 400_000  # of markup; in more than that nothing is looked for

_NOTE: Final = f"<p>{FOLDED}</p>"
_ANSWER: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|vs|rif|res)(?:\s?\[\d{1,4}\])?\s?:", re.IGNORECASE)
_FORWARDED: Final = re.compile(r"\s*(?:fw|fwd|wg|tr|rv|vb|doorst|enc)\s?:", re.IGNORECASE)
_TAGS: Final = re.compile(r"<(?P<end>/?)(?P<name>blockquote|div)\b(?P<attributes>[^<>]{0,2000}+)>", re.IGNORECASE)
_HOLDS_EARLIER: Final = re.compile(
    r"\b(?:gmail_quote|yahoo_quoted|protonmail_quote|mail-editor-reference-message-container)\b", re.IGNORECASE
)
_FROM: Final = r"(?:from|von|de|da|van|från|fra|od)\s?:"
_SENT: Final = re.compile(
    r"\b(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt|wysłano)\s?:", re.IGNORECASE
)
_SUBJECT: Final = re.compile(r"\b(?:subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat)\s?:", re.IGNORECASE)
# Outlook puts earlier mails last and in no element of their own: from the head of the first, all the rest is earlier.
_HEAD: Final = re.compile(rf"<(?:b|strong|span)\b[^<>]{{0,300}}+>\s{{0,20}}{_FROM}", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"<div\b[^<>]{0,300}?\bid=[\"']?(?:appendonsend|divRplyFwdMsg)\b", re.IGNORECASE)
_PLAIN_HEAD: Final = re.compile(rf"\*?{_FROM}", re.IGNORECASE)
_PLAIN_SEPARATOR: Final = re.compile(
    r"-{2,20}\s?(?:original message|ursprüngliche nachricht|message d'origine)\s?-{2,20}\s*", re.IGNORECASE
)
_ANY_TAG: Final = re.compile(r"<[^<>]*+>")
_WORD: Final = re.compile(r"\w")
_MOST_HEADS: Final = 50
_HEAD_CHARS: Final = 4_000
_HEAD_LINES: Final = 8


def is_answer(subject: str, *, has_original: bool) -> bool:
    """Whether a mail answers another, so that what it quotes was said before; a forwarded mail does not."""
    if _FORWARDED.match(subject):
        return False
    return has_original or _ANSWER.match(subject) is not None


def fold_html(html: str) -> str:
    """Return an answer without the earlier mails in it, and a note where they were."""
    if len(html) > MOST_CHARS:
        return html
    folded = _without_rest(_without_quotes(html))
    return folded if _says_something(folded) else html


def fold_plain(text: str) -> str:
    """Return an answer in plain text without the earlier mails in it, and a note where they were."""
    if len(text) > MOST_CHARS:
        return text
    lines = text.splitlines()
    kept: list[str] = []
    for place, line in enumerate(lines):
        if _begins_rest(lines, place):
            kept.append(FOLDED)
            break
        if not line.startswith(">"):
            kept.append(line)
        elif not kept or kept[-1] != FOLDED:
            kept.append(FOLDED)
    if len(kept) == len(lines):
        return text
    return "\n".join(kept) if any(line.strip() and line != FOLDED for line in kept) else text


def _without_quotes(html: str) -> str:
    """Return the markup without the outermost elements that hold earlier mails; one that never ends goes to the end."""
    kept: list[str] = []
    begin, depth, inside = 0, 0, ""
    for tag in _TAGS.finditer(html):
        name, is_end = tag["name"].lower(), bool(tag["end"])
        if inside:
            depth += (-1 if is_end else 1) if name == inside else 0
            if depth == 0:
                begin, inside = tag.end(), ""
        elif not is_end and (name == "blockquote" or _HOLDS_EARLIER.search(tag["attributes"])):
            kept += [html[begin : tag.start()], _NOTE]
            depth, inside = 1, name
    if not inside:
        kept.append(html[begin:])
    return "".join(kept)


def _without_rest(html: str) -> str:
    starts = [tag.start() for tag in islice(_HEAD.finditer(html), _MOST_HEADS) if _is_head(html, tag.start())][:1]
    if separator := _SEPARATOR.search(html):
        starts.append(separator.start())
    return f"{html[: min(starts)]}{_NOTE}" if starts else html


def _is_head(html: str, start: int) -> bool:
    return _names_all(unescape(_ANY_TAG.sub(" ", html[start : start + _HEAD_CHARS])))


def _begins_rest(lines: Sequence[str], place: int) -> bool:
    line = lines[place]
    if _PLAIN_HEAD.match(line):
        return _names_all("\n".join(each[:300] for each in lines[place : place + _HEAD_LINES]))
    return _PLAIN_SEPARATOR.fullmatch(line[:200]) is not None


def _names_all(text: str) -> bool:
    return _SENT.search(text) is not None and _SUBJECT.search(text) is not None


def _says_something(html: str) -> bool:
    """Whether a reader would see any word of the sender in it."""
    lowered = html.lower()
    begin = max(lowered.rfind("</head>"), lowered.rfind("</style>"), 0)
    return _WORD.search(_ANY_TAG.sub(" ", html[begin:].replace(FOLDED, ""))) is not None
