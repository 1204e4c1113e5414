"""Reads Markdown as far as the tests of the pages need it: blocks of code, prose, links and anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_HARKEN = re.compile(r"""(?:^|[|(;&]|\$\()\s*harken((?: +(?:"[^"]*"|'[^']*'|[^\s"'|;&)>#]+))+)""", re.MULTILINE)


def pages() -> list[Path]:
    """Return every page for people."""
    return sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md"))])


def name_of(page: Path) -> str:
    """Return a page's name for the report of a test."""
    return page.relative_to(ROOT).as_posix()


def fences(page: Path, language: str = "") -> list[str]:
    """Return the blocks of code of a page, of one language or all."""
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [block[3] for block in found if language in ("", block[2])]


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return where a page links to."""
    return [str(target) for target in _LINK.findall(prose(page))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = (str(title) for title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in headings}


def commands(block: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of `harken` in a block of shell."""
    for line in block.replace("\\\n", " ").splitlines():
        for found in _HARKEN.finditer(line):
            yield shlex.split(found[1])
