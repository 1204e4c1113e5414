"""What people call a host, and how they write a path. Safe to print, and nothing heavy is imported for it."""

from __future__ import annotations

from pathlib import Path

from harken.display import one_line
from harken.hosts.registry import host_title


def title_of(host: str) -> str:
    """Return what people call a host."""
    return one_line(host_title(host))


def short(path: Path) -> str:
    """Return a path as people write it."""
    home = Path.home()
    return one_line(f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path))
