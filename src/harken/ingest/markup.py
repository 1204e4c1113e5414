"""HTML to readable text, in bounded time.

A real parser builds the tree and an iterative walk writes lines: what a person would see, no more. Parsers of HTML are
quadratic in nesting and in the attributes of one element: `affordable` reads the tags once, keeps count of the elements
that are open, and says where the work would get out of hand. What is left out is counted. Characters (control, bidi,
invisible, look-alikes) are the business of `sanitise`, which is the only caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from harken.model import MAX_RAW_CHARS

MAX_MARKUP = MAX_RAW_CHARS
_MAX_LEVEL = 8
_MAX_URL = 2_000
SPACE = " \t\n\f\r"
TABLE_PARTS = frozenset({"caption", "tbody", "td", "tfoot", "th", "thead", "tr"})
BLOCKS = (
    frozenset({"address", "article", "aside", "blockquote", "center", "dd", "details", "dialog", "dir", "div"})
    | {"dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5"}
    | {"h6", "header", "hgroup", "hr", "li", "listing", "main", "menu", "nav", "ol", "p", "pre"}
    | {"search", "section", "summary", "ul", "body", "head"}
)

_SPACES = re.compile(f"[{SPACE}]+")
_DATA_URL = re.compile(r"data:[^\"'\s<>]{1000,}")
# Formatting elements say nothing about the text, but unclosed ones are opened again in every later paragraph: a small
# message could become millions of nodes. As spans they cannot.
_FORMATTING = re.compile(f"<(/?)(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[{SPACE}/>])", re.IGNORECASE)

_DROPPED = frozenset(
    {"applet", "audio", "canvas", "datalist", "embed", "frameset", "head", "iframe", "math", "noembed"}
) | {"noframes", "noscript", "object", "script", "style", "svg", "template", "title", "video"}
_PARAGRAPHS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"}) | {
    "blockquote",
    "codeblock",
    "dl",
    "listing",
    "p",
    "pre",
    "table",
    "xmp",
}
_LINES = (BLOCKS | TABLE_PARTS | {"legend", "optgroup", "option"}) - _PARAGRAPHS - {"td", "th"}
_PREFORMATTED = frozenset({"codeblock", "listing", "plaintext", "pre", "textarea", "xmp"})
_SIGNS = frozenset({"br", "customemoji", "emoji", "hr", "img"})
_INHERITED = _PREFORMATTED | {"blockquote", "li"}


class MarkupText(NamedTuple):
    """The text of some markup, and how many characters of it were left out."""

    text: str
    cut: int


def to_text(html: str, max_chars: int) -> MarkupText:
    """Return what a person would read of this HTML, about `max_chars` of it at most."""
    whole = _DATA_URL.sub("data:", html)
    source = _FORMATTING.sub(r"<\1span", whole[:MAX_MARKUP])
    end = affordable(source)
    writer = _LineWriter(max_chars)
    if body := LexborHTMLParser(source[:end]).body:
        _walk(body, writer)
    cut = max(0, len(whole) - MAX_MARKUP) + len(source) - end + writer.dropped
    return MarkupText(writer.finish(), cut)


@dataclass(frozen=True, slots=True)
class _ElementContext:
    """What an element inherits: its place in quotes and lists, and how its text is shown."""

    quote: int = 0
    level: int = 0
    is_pre: bool = False
    is_unseen: bool = False


class _LineWriter:
    """Lines in the making: breaks are remembered and written only when more text follows."""

    def __init__(self, max_chars: int) -> None:
        self.dropped = 0
        self._left = max_chars
        self._lines: list[str] = []
        self._line: list[str] = []  # pieces: a long line of many is not copied with each of them
        self._prefix = ""
        self._quote = 0
        self._gap = 0
        self._bullet = ""
        self._separator = ""
        self._is_cell_start = False
        self._cells: list[int] = []
        self._linked: list[str] | None = None
        self._numbers: dict[int, int] = {}

    def finish(self) -> str:
        """Return everything written."""
        self._end_line()
        return "\n".join(self._lines)

    def break_line(self, gap: int = 1) -> None:
        """Ask for what follows to begin on a new line (1) or after a blank one (2)."""
        if not self._is_cell_start and not self._bullet:
            self._gap = max(self._gap, gap)

    def hard_break(self, context: _ElementContext) -> None:
        """End the line here, empty or not."""
        self._settle(context)
        if self._line:
            self._end_line()
        else:
            self._lines.append("> " * context.quote)
        self._left -= 1

    def begin_item(self, ordered_list: int) -> None:
        """Put a bullet before the next text, or the next number of that list (0: not an ordered one)."""
        self.break_line()
        self._numbers[ordered_list] = number = self._numbers.get(ordered_list, 0) + 1
        self._bullet = f"{number}. " if ordered_list else "- "

    def end_item(self) -> None:
        """Forget the bullet of an item without text."""
        self._bullet = ""
        self.break_line()

    def begin_row(self) -> None:
        """Begin a row of cells."""
        self.break_line()
        self._cells.append(0)

    def end_row(self) -> None:
        """End a row of cells."""
        self._cells.pop()
        self._separator = ""
        self._is_cell_start = False
        # Paragraphs in cells would pull the rows apart.
        self._gap = 1

    def begin_cell(self) -> None:
        """Continue the row's line behind a separator."""
        if not self._cells:
            return
        if self._cells[-1] and self._line:
            self._gap, self._separator = 0, " | "
        self._is_cell_start = True
        self._cells[-1] += 1

    def begin_link(self) -> None:
        """Remember what is written from here on."""
        self._linked = []

    def end_link(self) -> str:
        """Return what was written since the link began."""
        text = "".join(self._linked or ()).strip()
        self._linked = None
        return text

    def write(self, text: str, context: _ElementContext) -> None:
        """Write text that belongs to the present line, its white space folded unless preformatted."""
        if context.is_unseen:
            return
        if self._left <= 0:
            self.dropped += len(text)
            return
        if context.is_pre:
            first, *rest = text.replace("\r\n", "\n").split("\n")
            self._put(first, context)
            for line in rest:
                self.hard_break(context)
                self._put(line, context)
            return
        folded = _SPACES.sub(" ", text)
        if self._gap or self._separator or not self._line or self._line[-1].endswith(" "):
            # White space beside a break or another space is not shown.
            folded = folded.removeprefix(" ")
        self._put(folded, context)

    def _put(self, text: str, context: _ElementContext) -> None:
        if not text:
            return
        self._settle(context)
        self._line.append(text.replace("\xa0", " "))
        self._left -= len(text)
        if self._linked is not None:
            self._linked.append(text)

    def _settle(self, context: _ElementContext) -> None:
        if self._gap and self._line:
            self._end_line()
        if self._gap > 1 and self._lines and self._lines[-1].strip("> "):
            self._lines.append("> " * min(self._quote, context.quote))
        self._gap = 0
        self._is_cell_start = False
        if not self._line:
            self._quote = context.quote
            inner = max(0, context.level - 1) if self._bullet else context.level
            self._prefix = "> " * context.quote + "  " * inner + self._bullet
            self._bullet = ""
        elif self._separator:
            while self._line and not (last := self._line.pop().rstrip(" ")):
                pass
            self._line += [last, self._separator]
        self._separator = ""

    def _end_line(self) -> None:
        if self._line:
            self._lines.append(self._prefix + "".join(self._line))
            self._left -= len(self._prefix) + 1
        self._line = []


def _walk(root: LexborNode, writer: _LineWriter) -> None:
    """Write the tree below `root`: iterative, because nesting is the sender's choice."""
    todo: list[tuple[LexborNode, _ElementContext, bool]] = [(root, _ElementContext(), False)]
    while todo:
        node, context, is_leaving = todo.pop()
        tag = node.tag or ""
        if is_leaving:
            _leave(node, tag, context, writer)
            continue
        if node is not root and (following := node.next) is not None:
            todo.append((following, context, False))
        if tag == "-text":
            writer.write(node.text_content or "", context)
        elif not tag.startswith("-") and tag not in _DROPPED:
            attributes = node.attributes
            style = _style(attributes.get("style"))
            if "hidden" in attributes or _is_gone(tag, attributes, style):
                continue
            inner = _inherit(tag, style, context)
            _enter(node, tag, attributes, inner, writer)
            todo.append((node, inner, True))
            if (child := node.first_child) is not None:
                todo.append((child, inner, False))


def _style(text: str | None) -> dict[str, str]:
    """Return the declarations of a style attribute, names and values in lower case and without white space."""
    declarations: dict[str, str] = {}
    if not text:
        return declarations
    for declaration in text[:4_000].split(";"):
        name, _, value = declaration.partition(":")
        declarations[name.strip().lower()] = "".join(value.lower().split()).removesuffix("!important")
    return declarations


_ZERO = re.compile(r"0*\.?0+(?:px|pt|em|rem|ex|ch|vw|vh|%)?")


def _is_zero(value: str | None) -> bool:
    return bool(value) and _ZERO.fullmatch(value or "") is not None


def _is_gone(tag: str, attributes: dict[str, str | None], style: dict[str, str]) -> bool:
    """Whether the element is invisible, with everything in it."""
    if not style:
        return tag == "dialog" and "open" not in attributes
    if style.get("display") == "none" or style.get("mso-hide") == "all" or _is_zero(style.get("opacity")):
        return True
    if _is_zero(style.get("max-height")) or _is_zero(style.get("max-width")):
        return True
    return tag == "dialog" and "open" not in attributes


def _inherit(tag: str, style: dict[str, str], context: _ElementContext) -> _ElementContext:
    if not style and tag not in _INHERITED:
        return context
    is_unseen, is_pre = context.is_unseen, context.is_pre or tag in _PREFORMATTED
    if size := style.get("font-size"):
        # A relative size of nothing stays nothing; newsletters set zero on a cell and a real size inside it.
        is_unseen = _is_zero(size) or (is_unseen and size.endswith(("em", "%")))
    if visibility := style.get("visibility"):
        is_unseen = visibility != "visible"
    if white_space := style.get("white-space"):
        is_pre = white_space.startswith(("pre", "break-spaces"))
    quote = min(context.quote + (tag == "blockquote"), _MAX_LEVEL)
    level = min(context.level + (tag == "li"), _MAX_LEVEL)
    return _ElementContext(quote, level, is_pre, is_unseen)


def _enter(
    node: LexborNode, tag: str, attributes: dict[str, str | None], context: _ElementContext, writer: _LineWriter
) -> None:
    if tag in _SIGNS:
        _write_sign(tag, attributes, context, writer)
    elif tag == "a":
        writer.begin_link()
    elif tag == "li":
        parent = node.parent
        writer.begin_item(parent.mem_id if parent is not None and parent.tag == "ol" else 0)
    elif tag == "tr":
        writer.begin_row()
    elif tag in ("td", "th"):
        writer.begin_cell()
    elif tag in _PARAGRAPHS:
        writer.break_line(2)
    elif tag in _LINES:
        writer.break_line()


def _write_sign(tag: str, attributes: dict[str, str | None], context: _ElementContext, writer: _LineWriter) -> None:
    """Write an element that says something by itself."""
    if tag == "br":
        writer.hard_break(context)
    elif tag == "hr":
        writer.break_line()
        writer.write("---", context)
    elif tag == "img":
        writer.write(_picture(attributes), context)
    else:
        alt = attributes.get("alt") or ""
        writer.write(alt if tag == "emoji" else f":{alt}:", context)


def _leave(node: LexborNode, tag: str, context: _ElementContext, writer: _LineWriter) -> None:
    if tag == "a":
        _finish_link(node.attributes.get("href") or "", context, writer)
    elif tag == "li":
        writer.end_item()
    elif tag == "tr":
        writer.end_row()
    elif tag in _PARAGRAPHS:
        writer.break_line(2)
    elif tag in _LINES:
        writer.break_line()


def _finish_link(href: str, context: _ElementContext, writer: _LineWriter) -> None:
    text = writer.end_link()
    url = "".join(href.split())[:_MAX_URL]
    if not text or not url.lower().startswith(("http://", "https://", "mailto:")):
        return
    bare = url.partition(":")[2].removeprefix("//")
    if text.rstrip("/") not in (url.rstrip("/"), bare.rstrip("/")):
        writer.write(f" ({url})", replace(context, is_pre=True))


def _picture(attributes: dict[str, str | None]) -> str:
    if any((attributes.get(side) or "").strip() in ("0", "1") for side in ("width", "height")):
        # A picture of one pixel is there to report that the mail was opened.
        return ""
    alt = _SPACES.sub(" ", attributes.get("alt") or "").strip()
    if alt and not any(character.isalnum() or character.isspace() for character in alt):
        return alt
    return f"[{alt or 'image'}]"


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
