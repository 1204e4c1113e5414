"""How much of a source an HTML parser can take without trouble.

Parsers of HTML are quadratic in nesting and in the attributes of one element. `affordable` reads the tags once, keeps
count of the elements that are open, and says where the work would get out of hand. It never decides what the text of
a message is: `markup` asks it, cuts there, and gives what is left to a real parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

SPACE = " \t\n\f\r"

_MAX_UNSURE = 32_000
_BUDGET = 30_000_000
_TAG_COST = 150
_HARMLESS_SIZE = 16_000
_FEW_ATTRIBUTES = 512  # characters: fewer hold too few attributes to matter

# One step through a tag: what separates, or an attribute. A value without quotes cannot begin with one.
_STEP = re.compile(
    rf"[{SPACE}/]*([^{SPACE}/>][^{SPACE}/>=]*"
    rf"(?:[{SPACE}]*=[{SPACE}]*(?:\"[^\"]*\"|'[^']*'|(?![\"'{SPACE}])[^{SPACE}>]*))?)|[{SPACE}/]+"
)
_TAG_NAME = re.compile(rf"<(/?)([a-zA-Z][^{SPACE}/>]*)(>?)")
_MARK = re.compile(r"<(?:!--|[!?]|/?[a-zA-Z]|/)")
_COMMENT_END = re.compile(r"--!?>")

TABLE_PARTS = frozenset({"caption", "tbody", "td", "tfoot", "th", "thead", "tr"})
BLOCKS = (
    frozenset({"address", "article", "aside", "blockquote", "center", "dd", "details", "dialog", "dir", "div"})
    | {"dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5"}
    | {"h6", "header", "hgroup", "hr", "li", "listing", "main", "menu", "nav", "ol", "p", "pre"}
    | {"search", "section", "summary", "ul", "body", "head"}
)
_VOID = frozenset(
    {"area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "image", "img", "input"}
) | {"keygen", "link", "meta", "param", "source", "track", "wbr"}
_RAW = frozenset({"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"})
_RAW_ENDS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(f"</{name}(?=[{SPACE}/>])", re.IGNORECASE) for name in _RAW
}
# Inside these the parser follows rules of their own; from there on only a bounded rest is parsed.
_UNSURE = frozenset({"frameset", "math", "noscript", "plaintext", "select", "svg", "template"})
_SCOPE = frozenset({"applet", "button", "caption", "html", "marquee", "object", "table", "td", "th"})
_SPECIAL = BLOCKS | _SCOPE | TABLE_PARTS
_ITEMS: Final[Mapping[str, frozenset[str]]] = {
    "li": frozenset({"li"}),
    "dd": frozenset({"dd", "dt"}),
    "dt": frozenset({"dd", "dt"}),
}
_CELLS: Final[Mapping[str, frozenset[str]]] = {
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
    "tr": frozenset({"tr"}),
}


def affordable(html: str) -> int:
    """Return up to where the source can be parsed within the budget."""
    if len(html) <= _HARMLESS_SIZE:
        return len(html)
    elements = _OpenElements()
    cost = position = 0
    while mark := _MARK.search(html, position):
        start = mark.start()
        tag = _tag_at(html, start)
        end = tag.end if tag else _comment_end(html, mark)
        if end is None:
            # An unfinished tag or comment swallows the rest: no parser shows any of it.
            return start
        cost += _TAG_COST
        if tag:
            cost += tag.attribute_cost + (elements.close(tag.name) if tag.is_end else elements.open(tag.name))
            if tag.name in _RAW and not tag.is_end:
                end = _raw_text_end(html, tag.name, end)
            if tag.name in _UNSURE or (tag.name == "script" and html.find("<!--", start, end) >= 0):
                return min(len(html), start + _MAX_UNSURE)
        if cost > _BUDGET:
            return start
        position = end
    return len(html)


class _TagCost(NamedTuple):
    """A start or end tag, up to where it goes, and what its attributes cost."""

    name: str
    is_end: bool
    end: int
    attribute_cost: int


def _tag_at(html: str, start: int) -> _TagCost | None:
    """Return the tag that begins here; none if it is no tag, or does not end."""
    head = _TAG_NAME.match(html, start)
    if head is None:
        return None
    slash, name, bracket = head.groups()
    first = position = head.end()
    if bracket:
        return _TagCost(name.lower(), bool(slash), position, 0)
    attributes = 0
    # Step by step, and never back: one expression for all of it would try every way to part a tag that does not end.
    while step := _STEP.match(html, position):
        position = step.end()
        attributes += step.lastindex is not None
    if not html.startswith(">", position):
        return None
    # Each attribute is compared with every earlier one of its element.
    cost = attributes**2 if position - first >= _FEW_ATTRIBUTES else 0
    return _TagCost(name.lower(), bool(slash), position + 1, cost)


def _comment_end(html: str, mark: re.Match[str]) -> int | None:
    if mark[0] == "<!--":
        if html.startswith((">", "->"), mark.end()):
            return mark.end()
        found = _COMMENT_END.search(html, mark.end())
        return found.end() if found else None
    if mark[0][-1].isalpha():
        return None
    return html.find(">", mark.end()) + 1 or None


def _raw_text_end(html: str, name: str, position: int) -> int:
    found = _RAW_ENDS[name].search(html, position)
    return found.start() if found else len(html)


class _OpenElements:
    """The open elements as a parser would have them, or more: an opening always counts, a closing only when sure."""

    __slots__ = ("_names", "_tables")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._tables = 0

    def open(self, name: str) -> int:
        """Note a start tag and return what it costs."""
        if name in _VOID or (name in TABLE_PARTS and not self._tables):
            return len(self._names)
        steps = self._close_implied(name)
        self._names.append(name)
        self._tables += name == "table"
        return len(self._names) + steps

    def close(self, name: str) -> int:
        """Note an end tag and return what it costs."""
        depth = len(self._names)
        if name in TABLE_PARTS or name == "table":
            stop = frozenset({"table"})
        elif name == "li":
            stop = _SCOPE | {"ol", "ul"}
        elif name in BLOCKS or name in _SCOPE:
            stop = _SCOPE
        else:
            stop = _SPECIAL
        return depth + self._pop_through(frozenset({name}), stop, only_one=name == "form")

    def _close_implied(self, name: str) -> int:
        if name == "p":
            return self._pop_through(frozenset({"p"}), _SPECIAL)
        if name in _ITEMS:
            return self._pop_through(_ITEMS[name], _SPECIAL - {"address", "div", "p"})
        if name in _CELLS:
            return self._pop_through(_CELLS[name], frozenset({"table"}))
        return 0

    def _pop_through(self, wanted: frozenset[str], stop: frozenset[str], *, only_one: bool = False) -> int:
        names = self._names
        for index in range(len(names) - 1, -1, -1):
            if names[index] in wanted:
                end = index + 1 if only_one else len(names)
                self._tables -= names[index:end].count("table")
                del names[index:end]
                return 10 * (len(names) - index + 1)
            if names[index] in stop:
                return 10 * (len(names) - index)
        return 10 * len(names)
