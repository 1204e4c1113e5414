"""Texts of messages as HTML that can do nothing: no script, no style, no image, no way out of its box. Pure.

Two independent parts see to it: the renderer escapes all markup of the text, and the sanitiser keeps only a short list
of tags of what the renderer made. Every text is hostile, and long ones cost time: above a bound they are shown as they
are, without markup. Links name the host they lead to beside their own text; and where markup would hide words that an
agent reads, the text is shown as it is: people see what agents see.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Final
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import escape

MAX_MARKED_UP: Final = 20_000  # characters; above, a text is shown as it is
MAX_SHOWN: Final = 4_000  # characters shown before "show all"
MAX_LINES: Final = 40
PIECE_CHARS: Final = 100_000  # characters that one request to show more gives
MAX_NESTED: Final = 12
EXCERPT: Final = 160

_TAGS: Final = (
    *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "span", "strong"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
)
_WORD: Final = re.compile(r"[^\W_]+")
_TAG: Final = re.compile(r"<[^>]*>")
_INLINE_TAG: Final = re.compile(r"</?(?:em|strong|del|code)>")
_HREF: Final = re.compile(r'href="([^"]*)"')
_SCHEMES: Final = frozenset({"http", "https", "mailto"})


@dataclass(frozen=True, slots=True)
class SafeHtml:
    """HTML that templates take as it is. Made here only."""

    html: str

    def __html__(self) -> str:
        return self.html


@dataclass(frozen=True, slots=True)
class MessageBody:
    """A text to show, and whether more of it is left to show."""

    html: SafeHtml
    is_cut: bool


def body_of(text: str) -> MessageBody:
    """Return the beginning of a text, as much as a timeline shows of it."""
    shown = _beginning(text)
    return MessageBody(html=rendered(shown), is_cut=len(shown) < len(text))


def rendered(text: str) -> SafeHtml:
    """Return a whole text as HTML."""
    if len(text) > MAX_MARKED_UP:
        return _plain(text)
    made = _CLEANER.clean(_RENDERER.render(text))
    return SafeHtml(made) if _words(text) <= _shown_words(made) else _plain(text)


def piece_of(text: str, start: int) -> tuple[SafeHtml, int]:
    """Return the next piece of a text as HTML, and where the one after it begins; 0 at the end of the text.

    A text in several pieces is shown as it is: markup that goes on from one to the next would be torn apart.
    """
    end = min(len(text), start + PIECE_CHARS)
    if end < len(text):
        end = (text.rfind("\n", start + PIECE_CHARS // 2, end) + 1) or end
    is_whole = start == 0 and end == len(text)
    return rendered(text) if is_whole else _plain(text[start:end]), end if end < len(text) else 0


def excerpt(text: str, most: int = EXCERPT) -> str:
    """Return the beginning of a text on one line, as plain text."""
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most and len(text) <= most * 4 else line[: most - 1].rstrip() + "…"


def _beginning(text: str) -> str:
    cut = text[:MAX_SHOWN]
    lines = cut.split("\n", MAX_LINES)
    return "\n".join(lines[:MAX_LINES]) if len(lines) > MAX_LINES else cut


def _plain(text: str) -> SafeHtml:
    return SafeHtml(f'<div class="plain">{escape(text)}</div>')


def _words(text: str) -> frozenset[str]:
    # Numbers are left out: those of a list are counted anew.
    return frozenset(word for word in _WORD.findall(text) if not word.isdecimal())


def _shown_words(made: str) -> frozenset[str]:
    """Return the words that a reader sees, or sees where a link leads."""
    said = unescape(_TAG.sub(" ", _INLINE_TAG.sub("", made)))
    apart = unescape(_TAG.sub(" ", made))
    targets = unescape(" ".join(_HREF.findall(made)))
    return _words(said) | _words(apart) | _words(targets) | _words(unquote(targets))


def _renderer() -> MarkdownIt:
    renderer = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True, "maxNesting": MAX_NESTED})
    renderer.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline", "reference"])
    renderer.core.ruler.push("hosts", _name_hosts)
    for name, made in (("heading_open", "<p><strong>"), ("heading_close", "</strong></p>\n")):
        # A heading in a message must not disturb the outline of the page.
        renderer.add_render_rule(name, _constant(made))
    renderer.add_render_rule("host", _host)
    renderer.add_render_rule("fence", _fence)
    return renderer


def _constant(made: str) -> Callable[..., str]:
    def rule(_renderer: RendererHTML, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        return made

    return rule


def _host(_renderer: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
    return f'<span class="host"> ({escape(tokens[at].content)})</span>'


def _fence(_renderer: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
    token = tokens[at]
    label = f'<span class="label">{escape(token.info.strip())}</span>\n' if token.info.strip() else ""
    return f"<pre>{label}<code>{escape(token.content)}</code></pre>\n"


def _name_hosts(state: StateCore) -> None:
    for token in state.tokens:
        if token.children:
            token.children = _with_hosts(token.children)


def _with_hosts(tokens: Sequence[Token]) -> list[Token]:
    """Return the parts of a line, each link followed by where it leads; a link that leads nowhere is only its text."""
    result: list[Token] = []
    target, begin = "", 0
    for token in tokens:
        if token.type == "link_open":
            target, begin = _target(str(token.attrGet("href") or "")), len(result) + 1
            if target:
                result.append(token)
        elif token.type == "link_close":
            if target:
                result.append(token)
                if not _says(target, "".join(part.content for part in result[begin:-1])):
                    result.append(Token("host", "", 0, content=target.removeprefix("mailto:")))
        else:
            result.append(token)
    return result


def _target(href: str) -> str:
    """Return the host that an address leads to (or the whole of a mail address); empty where it is none."""
    try:
        parts = urlsplit(href)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme == "mailto":
        return f"mailto:{parts.path}" if "@" in parts.path else ""
    return host if parts.scheme in _SCHEMES else ""


def _says(target: str, text: str) -> bool:
    """Whether the text of a link begins with where it leads, so that it does not mislead."""
    bare = text.strip().lower().removeprefix("mailto:").removeprefix("https://").removeprefix("http://")
    wanted = target.removeprefix("mailto:").lower()
    return bare == wanted or bare.startswith((f"{wanted}/", f"{wanted}:", f"{wanted}?", f"{wanted}#"))


# Both are made once: they only read, and making them costs more than most texts.
_RENDERER: Final = _renderer()
_CLEANER: Final = nh3.Cleaner(
    tags=set(_TAGS),
    attributes={"*": set(), "a": {"href"}, "ol": {"start"}},
    allowed_classes={"span": {"host", "label"}},
    # What scrolls must be reachable by keys.
    set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}, "table": {"tabindex": "0"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes=set(_SCHEMES),
    url_relative="deny",
)


_KEPT: Final = "\n\N{ZERO WIDTH JOINER}"  # the joiner makes one sign of several, and hides none


def visible(text: str) -> str:
    """Return a text in which everything but line ends and joiners is a letter to be seen."""
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in text.replace("\r\n", "\n"))


def _visible(char: str) -> str:
    if char in _KEPT or char.isprintable():
        return char
    if char == "\t" or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
