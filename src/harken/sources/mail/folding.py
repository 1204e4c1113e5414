"""The earlier mails in an answer, taken out: what is left is what its sender wrote now. Pure, and linear in its length.

Only an answer is folded, never a forwarded mail: there the earlier mail is what is said. Nor is anything folded if
nothing would be left. What is taken out is said in its place. What stands below a quotation stays: people answer there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

FOLDED: Final = "[earlier messages folded]"
MOST_CHARS: Final = 400_000  # in more than that nothing is looked for

_ANSWER: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|vs|rif|res)(?:\s?\[\d{1,4}\])?\s?:", re.IGNORECASE)
_FORWARDED: Final = re.compile(r"\s*(?:fw|fwd|wg|tr|rv|vb|doorst|enc)\s?:", re.IGNORECASE)
# "On Monday, Ann wrote:", as mail programs of several languages write it; often broken over two or three lines.
_WROTE: Final = re.compile(
    r"(?:on|am|le|el|il|op|den|em|dnia)\b[^\n]{2,300}\b"
    r"(?:wrote|schrieb|a écrit|escribió|ha scritto|schreef|skrev|escreveu|napisał)\b[^\n]{0,120}:\s*",
    re.IGNORECASE,
)
_WROTE_BEGINS: Final = re.compile(r"(?:on|am|le|el|il|op|den|em|dnia)\b", re.IGNORECASE)
_WROTE_LINES: Final = 3
_SEPARATOR: Final = re.compile(
    r"-{2,20}\s?(?:original message|ursprüngliche nachricht|message d'origine|mensaje original)\s?-{2,20}\s*",
    re.IGNORECASE,
)
_HEAD: Final = re.compile(r"\*?(?:from|von|de|da|van|från|fra|od)\s?:", re.IGNORECASE)
_HEAD_SENT: Final = re.compile(
    r"^\*?(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt|wysłano)\s?:",
    re.IGNORECASE | re.MULTILINE,
)
_HEAD_SUBJECT: Final = re.compile(
    r"^\*?(?:subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat)\s?:", re.IGNORECASE | re.MULTILINE
)
_HEAD_LINES: Final = 8
_QUOTES: Final = re.compile(r"<(?P<end>/?)(?P<name>blockquote|div)\b(?P<attributes>[^<>]{0,2000})>", re.IGNORECASE)
_HOLDS_EARLIER: Final = re.compile(r"\b(?:gmail_quote|yahoo_quoted|protonmail_quote|moz-cite-prefix)\b", re.IGNORECASE)
_ANY_TAG: Final = re.compile(r"<[^<>]*>")
_WORD: Final = re.compile(r"\w")


def is_answer(subject: str, *, has_original: bool) -> bool:
    """Whether a mail answers another, so that what it quotes was said before; a forwarded mail does not."""
    if _FORWARDED.match(subject):
        return False
    return has_original or _ANSWER.match(subject) is not None


def fold_plain(text: str) -> str:
    """Return an answer in plain text without the earlier mails in it, and a note where they were."""
    if len(text) > MOST_CHARS:
        return text
    lines = text.splitlines()
    kept: list[str] = []
    place = 0
    while place < len(lines):
        if _begins_rest(lines, place):
            kept.append(FOLDED)
            break
        quoted = _quotation(lines, place)
        if quoted:
            kept += [] if kept and kept[-1] == FOLDED else [FOLDED]
        else:
            kept.append(lines[place])
        place += quoted or 1
    if FOLDED not in kept or not any(_WORD.search(line) for line in kept if line != FOLDED):
        return text
    return "\n".join(kept)


def fold_html(html: str) -> str:
    """Return an answer in HTML without the outermost elements that hold earlier mails, and a note where they were."""
    if len(html) > MOST_CHARS:
        return html
    kept: list[str] = []
    begin, depth, inside = 0, 0, ""
    for tag in _QUOTES.finditer(html):
        name, is_end = tag["name"].lower(), bool(tag["end"])
        if inside:
            depth += (-1 if is_end else 1) if name == inside else 0
            if depth == 0:
                begin, inside = tag.end(), ""
        elif not is_end and (name == "blockquote" or _HOLDS_EARLIER.search(tag["attributes"])):
            kept += [html[begin : tag.start()], f"<p>{FOLDED}</p>"]
            depth, inside = 1, name
    # One that never ends is no element: what follows may be what the sender says.
    if inside or not kept:
        return html
    folded = "".join([*kept, html[begin:]])
    return folded if _WORD.search(_ANY_TAG.sub(" ", folded.replace(FOLDED, ""))) else html


def _quotation(lines: Sequence[str], place: int) -> int:
    """Return how many lines from here on quote an earlier mail, with the line that says whose it was."""
    lead = _introduction(lines, place)
    end = place + lead
    while lead and end < len(lines) and not lines[end].strip():
        end += 1
    begin = end
    while end < len(lines) and lines[end].startswith(">"):
        end += 1
    return end - place if end > begin else 0


def _introduction(lines: Sequence[str], place: int) -> int:
    """Return over how many lines somebody is said to have written what follows."""
    if _WROTE_BEGINS.match(lines[place]) is None:
        return 0
    for count in range(1, _WROTE_LINES + 1):
        if _WROTE.fullmatch(" ".join(line.strip()[:300] for line in lines[place : place + count])[:500]):
            return count
    return 0


def _begins_rest(lines: Sequence[str], place: int) -> bool:
    """Whether everything from here on is an earlier mail, as Outlook puts it: a head of From, Sent, Subject."""
    line = lines[place][:300]
    if _HEAD.match(line):
        head = "\n".join(each[:300] for each in lines[place : place + _HEAD_LINES])
        return _HEAD_SENT.search(head) is not None and _HEAD_SUBJECT.search(head) is not None
    return _SEPARATOR.fullmatch(line) is not None
