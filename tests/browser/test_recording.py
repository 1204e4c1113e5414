"""The pictures of the page in the README and in the documentation show it as it is now."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scripts import record


@pytest.mark.parametrize("name", record.PAGES)
def test_the_picture_of_the_page_is_what_it_says(browser: Browser, home: Path, name: str) -> None:
    """What the page says has changed: look at it, and run `make record`."""
    with record.shown_daemon(home) as daemon, record.asking(daemon) if name == "approve" else nullcontext():
        said = record.page_pictures(browser, daemon, None, name)
    assert said == (record.IMAGES / f"{name}.txt").read_text(encoding="utf-8")
    assert all((record.IMAGES / f"{name}-{theme}.png").stat().st_size > 10_000 for theme in record.THEMES)
