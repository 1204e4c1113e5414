"""The earlier mails in an answer: the one that is answered stays, what that one quoted in turn is taken out.

People write their answers into the mail that they answer, so nothing of that one goes. A note says where something was
taken out. Only an answer is folded, never a forwarded mail: there the earlier mail is what is said. A real parser finds
where a quote begins and ends, as it does for whoever sees the mail; making text of what is left, safely, is the
business of ingest. Above is `mail.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

FOLDED: Final = "[earlier messages folded]"
MOST_CHARS: Final = 400_000  # of markup; in more than that nothing is looked for
KEPT_LEVELS: Final = 1
MOST_DEPTH: Final = 500  # of elements in each other; no mail program writes as many
MOST_STEPS: Final = 10_000_000  # of the parser, which may go through all that is open at each tag

_ANSWER: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|vs|rif|res)(?:\s?\[\d{1,4}\])?\s?:", re.IGNORECASE)
_FORWARDED: Final = re.compile(r"\s*(?:fw|fwd|wg|tr|rv|vb|doorst|enc)\s?:", re.IGNORECASE)
# Unclosed formatting is opened again in every later paragraph, without end; ingest writes it so too.
_FORMATTING: Final = re.compile(
    r"<(/?)(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
_CITED: Final = re.compile(r"\b(?:gmail_quote|protonmail_quote|yahoo_quoted|cite)\b", re.IGNORECASE)
_SEPARATORS: Final = frozenset({"appendonsend", "divrplyfwdmsg"})
_EMPTY: Final = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "param", "wbr"})
_UNSEEN: Final = frozenset({"head", "script", "style", "template", "textarea", "title"})
_FROM: Final = re.compile(r"\s*\*?(?:from|von|de|da|van|från|fra|od)\s?:", re.IGNORECASE)
_SENT: Final = re.compile(
    r"\b(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt|wysłano)\s?:", re.IGNORECASE
)
_SUBJECT: Final = re.compile(r"\b(?:subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat)\s?:", re.IGNORECASE)
_PLAIN_SEPARATOR: Final = re.compile(
    r"-{2,20}\s?(?:original message|ursprüngliche nachricht|message d'origine)\s?-{2,20}\s*", re.IGNORECASE
)
_TAG: Final = re.compile(r"<(/?)([a-z][^\s/>]{0,20})", re.IGNORECASE)
_WORD: Final = re.compile(r"\w")
_MOST_HEADS: Final = 50  # lines that may begin the head of a mail
_HEAD_PIECES: Final = 40
_HEAD_CHARS: Final = 300
_HEAD_LINES: Final = 8


def is_answer(subject: str, *, has_original: bool) -> bool:
    """Whether a mail answers another, so that what it quotes was said before; a forwarded mail does not."""
    if _FORWARDED.match(subject):
        return False
    return has_original or _ANSWER.match(subject) is not None


def fold_html(html: str) -> str:
    """Return an answer without what the mail that it answers had quoted, and a note where that was."""
    return _folded(html, KEPT_LEVELS) or html


def above_quotes_html(html: str) -> str:
    """Return only what stands in no quote at all."""
    return _folded(html, 0) or html


def fold_plain(text: str) -> str:
    """Return an answer in plain text without what the mail that it answers had quoted, and a note where that was."""
    return _folded_plain(text, KEPT_LEVELS)


def above_quotes_plain(text: str) -> str:
    """Return only the lines that stand in no quote at all."""
    return _folded_plain(text, 0)


def _folded_plain(text: str, kept_levels: int) -> str:
    if len(text) > MOST_CHARS:
        return text
    lines = text.splitlines()
    kept: list[str] = []
    heads, is_fresh = 0, False
    for place, line in enumerate(lines):
        if _is_plain_head(lines, place):
            heads += not is_fresh
            is_fresh = True
        elif _WORD.search(line):
            is_fresh = False
        if heads > kept_levels:
            kept.append(FOLDED)
            break
        if _depth(line) <= kept_levels:
            kept.append(line)
        elif not kept or kept[-1] != FOLDED:
            kept.append(FOLDED)
    if kept == lines:
        return text
    return "\n".join(kept) if any(line.strip() and line != FOLDED for line in kept) else text


def _depth(line: str) -> int:
    begin = line[: len(line) - len(line.lstrip("> "))]
    return begin.count(">") if line.startswith(">") else 0


def _is_plain_head(lines: Sequence[str], place: int) -> bool:
    line = lines[place][:_HEAD_CHARS]
    if _FROM.match(line):
        return _names_all("\n".join(each[:_HEAD_CHARS] for each in lines[place : place + _HEAD_LINES]))
    return _PLAIN_SEPARATOR.fullmatch(line) is not None


def _folded(html: str, kept_levels: int) -> str:
    """Return the markup without deeper quotes; empty if there are none, or if nothing else is said."""
    if len(html) > MOST_CHARS:
        return ""
    source = _FORMATTING.sub(r"<\1span", html)
    if not _is_affordable(source):
        return ""
    body = LexborHTMLParser(source).body
    if body is None:
        return ""
    found = _QuoteSearch(kept_levels)
    found.walk(body)
    for quote in found.quotes:
        quote.replace_with(f" {FOLDED} ")
    for node, scope in found.cuts:
        _cut(node, scope.root)
    if not found.quotes and not found.cuts:
        return ""
    return (body.html or "") if _WORD.search(body.text().replace(FOLDED, "")) else ""


def _is_affordable(source: str) -> bool:
    """Whether it can be parsed in good time, judged by its tags: an end tag closes only its own kind."""
    still_open: dict[str, int] = {}
    depth = deepest = tags = 0
    for tag in _TAG.finditer(source):
        tags += 1
        if (name := tag[2].lower()) in _EMPTY:
            continue
        count = still_open.get(name, 0)
        step = 1 if not tag[1] else -1 if count else 0
        still_open[name] = count + step
        depth += step
        deepest = max(deepest, depth)
    return deepest <= MOST_DEPTH and tags * deepest <= MOST_STEPS


def _cut(node: LexborNode, root: LexborNode) -> None:
    """Take out a node and all that follows it in its quote, or in the mail; a note takes their place."""
    node.insert_before(f" {FOLDED} ")
    inner: LexborNode | None = node
    is_first = True
    while inner is not None and inner.mem_id != root.mem_id:
        while (after := inner.next) is not None:
            after.decompose()
        outer = inner.parent
        if is_first:
            inner.decompose()
        inner, is_first = outer, False


@dataclass(slots=True)
class _QuoteScope:
    """A quote, or the mail itself: how deep it is, and how many earlier mails have begun in it one after another."""

    root: LexborNode
    depth: int = 0
    heads: int = 0
    is_fresh: bool = False  # nothing was said since the last one began
    is_cut: bool = False


@dataclass(slots=True)
class _QuoteSearch:
    """Looks for quotes that are deeper than wanted, and for the places from which on all is earlier."""

    kept_levels: int
    quotes: list[LexborNode] = field(default_factory=list[LexborNode])
    cuts: list[tuple[LexborNode, _QuoteScope]] = field(default_factory=list[tuple[LexborNode, _QuoteScope]])
    lines: int = 0

    def walk(self, body: LexborNode) -> None:
        """Look at the whole tree: iterative, because nesting is the sender's choice."""
        todo: list[tuple[LexborNode, _QuoteScope]] = [(body, _QuoteScope(body))]
        while todo:
            node, scope = todo.pop()
            if scope.is_cut:
                continue
            if node is not body and (following := node.next) is not None:
                todo.append((following, scope))
            inner = self._look(node, scope)
            if inner is not None and (child := node.first_child) is not None:
                todo.append((child, inner))

    def _look(self, node: LexborNode, scope: _QuoteScope) -> _QuoteScope | None:
        """Take note of what a node is; return the scope of what is in it, None if that is not looked at."""
        tag = node.tag or ""
        if self._begins_earlier(node, tag):
            scope.heads += not scope.is_fresh
            scope.is_fresh = True
            if scope.heads > self.kept_levels:
                scope.is_cut = True
                self.cuts.append((node, scope))
                return None
        elif tag == "-text" and _WORD.search(node.text_content or ""):
            scope.is_fresh = False
        if tag in _UNSEEN or tag.startswith("-"):
            return None
        if not self._is_quote(node, tag):
            return scope
        if scope.depth >= self.kept_levels:
            self.quotes.append(node)
            return None
        return _QuoteScope(node, scope.depth + 1, scope.heads)

    def _is_quote(self, node: LexborNode, tag: str) -> bool:
        if tag not in ("blockquote", "div"):
            return False
        attributes = node.attributes
        said = f"{attributes.get('class') or ''} {attributes.get('type') or ''}"
        if tag == "div":
            return "yahoo_quoted" in said or "mail-editor-reference-message-container" in said
        # People indent with it too; but above all quotes, nothing that might be one counts.
        return self.kept_levels == 0 or "cite" in attributes or _CITED.search(said) is not None

    def _begins_earlier(self, node: LexborNode, tag: str) -> bool:
        """Whether an earlier mail begins here: Outlook puts those last, in no element of their own."""
        if tag == "div":
            return (node.attributes.get("id") or "").lower() in _SEPARATORS
        if tag != "-text" or self.lines >= _MOST_HEADS or not _FROM.match((node.text_content or "")[:_HEAD_CHARS]):
            return False
        self.lines += 1
        return _names_all(_text_from(node))


def _text_from(node: LexborNode) -> str:
    """Return the text that begins at a node, as much as the head of a mail has."""
    pieces: list[str] = []
    todo: list[LexborNode] = [node]
    for _ in range(4 * _HEAD_PIECES):
        if not todo or len(pieces) == _HEAD_PIECES:
            break
        each = todo.pop()
        if each.tag == "-text":
            pieces.append((each.text_content or "")[:_HEAD_CHARS])
        if (child := each.first_child) is not None:
            todo.append(child)
        elif (following := _after(each)) is not None:
            todo.append(following)
    return "\n".join(pieces)


def _after(node: LexborNode) -> LexborNode | None:
    """Return what follows a node and all that is in it."""
    outer: LexborNode | None = node
    for _ in range(_HEAD_PIECES):
        if outer is None or outer.tag == "body":
            return None
        if (following := outer.next) is not None:
            return following
        outer = outer.parent
    return None


def _names_all(text: str) -> bool:
    return _SENT.search(text) is not None and _SUBJECT.search(text) is not None
