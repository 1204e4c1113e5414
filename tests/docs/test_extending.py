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


def test_the_source_that_the_page_shows_is_the_one_that_runs() -> None:
    """What is shown whole is the file; what is shown in part stands in one, however deep it is there."""
    example = ROOT / "tests" / "plugins" / "bulletin"
    (described,) = _blocks("write-a-source.md", "toml")
    assert described == (example / "pyproject.toml").read_text(encoding="utf-8")
    files = [_plain(file.read_text(encoding="utf-8")) for file in (example / "harken_bulletin").glob("*.py")]
    shown = _blocks("write-a-source.md", "python")
    assert [
        block for block in shown if not _is_shortened(block) and not any(_plain(block) in each for each in files)
    ] == []


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _is_shortened(block: str) -> bool:
    """Whether a block leaves out on purpose what the file has: the docstring of the settings, the outages of a feed."""
    return block.startswith(("class BulletinSettings", "async def follow"))
