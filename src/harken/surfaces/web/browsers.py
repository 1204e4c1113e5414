"""What a browser is called where people look at who is signed in: a label of its own, by which nothing is decided."""

from __future__ import annotations

import re
from typing import Final

UNKNOWN: Final = "a browser"

# The order matters: each of them also calls itself what comes after it.
_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_name(agent: str) -> str:
    """Return the name and version of a browser and its system, as far as its User-Agent says."""
    for mark, name in _BROWSERS:
        if (found := re.search(rf"{re.escape(mark)}(\d{{1,4}})", agent)) is not None:
            system = next((f" on {title}" for sign, title in _SYSTEMS if sign in agent), "")
            return f"{name} {found[1]}{system}"
    return UNKNOWN
