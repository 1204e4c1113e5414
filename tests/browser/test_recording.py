"""The picture of the page in the README shows the page as it is now."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from scripts import record


def test_the_picture_of_the_page_is_what_it_says(browser: Browser, home: Path) -> None:
    """What the page says has changed: look at it, and run `make record`."""
    with record.shown_daemon(home) as daemon:
        said = record.page_pictures(browser, daemon, None)
    assert said == (record.IMAGES / record.PAGE_TEXT).read_text(encoding="utf-8")
    assert all((record.IMAGES / f"page-{theme}.png").stat().st_size > 10_000 for theme in record.THEMES)
