"""Answers that people read: an agent's Markdown as HTML, and addresses that no person reads. Pure.

Two independent parts see to it that nothing else gets out: the renderer escapes all markup of the text, and the
sanitiser keeps a short list of tags of what the renderer made. Pictures are left out: loading one would tell a stranger
that a person has read it. It knows nothing of limits of a service; the senders above do.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

import nh3
from markdown_it import MarkdownIt

MAX_MARKED_UP: Final = 50_000  # characters; above, a text is sent as it is
MAX_NESTED: Final = 60  # the parser leaves out what is deeper; a text with that much is sent as it is

# What Teams and Outlook both show; anything else of a text is left as its words.
_TAGS: Final = (
    *("a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s"),
    *("strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
)
_SCHEMES: Final = frozenset({"http", "https", "mailto"})

_CLEANER: Final = nh3.Cleaner(
    tags=set(_TAGS),
    attributes={"*": set(), "a": {"href"}, "ol": {"start"}},
    link_rel=None,
    url_schemes=set(_SCHEMES),
    url_relative="deny",
)

_NOBODY: Final = re.compile(
    r"(?:.*[._+-])?(?:no|not|do[._-]?not)[._-]?reply(?:[._+-].*)?"
    r"|(?:mailer-daemon|postmaster|bounces?|notifications?|alerts?|newsletters?)(?:[._+-].*)?"
)
MAX_CHARS: Final = 64  # what a name before the @ may have


def to_html(text: str) -> str:
    """Return a text in Markdown as HTML of a few harmless tags; a very long or very deep one as plain lines."""
    if len(text) > MAX_MARKED_UP:
        return _plain(text)
    tokens = _RENDERER.parse(text)
    if any(token.level >= MAX_NESTED - 1 for token in tokens):
        return _plain(text)
    return _CLEANER.clean(_RENDERER.renderer.render(tokens, _RENDERER.options, {})).strip()


def closing_line(text: str) -> str:
    """Return a short plain text as the line below an answer that says who wrote it."""
    return f"<p><em>{escape(' '.join(text.split()), quote=False)}</em></p>"


def _plain(text: str) -> str:
    return f"<p>{'<br>'.join(escape(text, quote=False).splitlines())}</p>"


def _renderer() -> MarkdownIt:
    renderer = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True, "maxNesting": MAX_NESTED})
    return renderer.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])


# Both are made once: they only read, and making them costs more than most texts.
_RENDERER: Final = _renderer()


def is_unattended(address: str) -> bool:
    """Whether an address says by its name that no person reads what is sent to it."""
    name, at, _ = address.strip().lower().rpartition("@")
    return bool(at) and (len(name) > MAX_CHARS or _NOBODY.fullmatch(name) is not None)
