"""A home and a person for the tests of setting up: nobody can be asked, and nothing is kept."""

from __future__ import annotations

from pathlib import Path

from harken.clock import SystemClock
from harken.config.home import Home
from harken.config.tables import source_entry
from harken.sources.setup import SetupContext


class Nobody:
    """Nobody is there."""

    can_ask = False

    def tell(self, text: str) -> None:
        """Say nothing."""

    def prompt(self, text: str, default: str | None = None, *, is_hidden: bool = False) -> str:
        """Refuse."""
        raise AssertionError(text, default, is_hidden)

    def confirm(self, text: str) -> bool:
        """Refuse."""
        raise AssertionError(text)

    def read_line(self) -> str:
        """Return nothing."""
        return ""


def setup_context(folder: Path = Path("/nowhere")) -> SetupContext:
    """Return what setting up uses, in a home that need not be there."""
    home, clock = Home(folder), SystemClock()
    return SetupContext(
        console=Nobody(),
        folder=folder,
        env_file=home.env_file,
        entry=lambda name, table: source_entry(name, table, home=home, clock=clock, environ={}),
        is_known=lambda _name: False,
        is_secret=lambda _text: False,
        keep_secret=lambda name, _secret: folder / name,
        post_address=lambda path: f"http://127.0.0.1:1{path}",
    )
