"""What the pages for authors of packages show is the example that the tests run, to the letter."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "extending" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_host_that_the_page_shows_is_the_one_that_runs() -> None:
    """An example that nobody runs is wrong within a month."""
    example = ROOT / "tests" / "plugins" / "magpie"
    (declaration,) = _blocks("write-a-host.md", "python")
    assert declaration == (example / "magpie_host" / "host.py").read_text(encoding="utf-8")
    (entry,) = _blocks("write-a-host.md", "toml")
    assert entry in (example / "pyproject.toml").read_text(encoding="utf-8")
