"""Modules that scripts write from declarations: written, or compared by `make check`, which writes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "harken"


def run(script: str, module: Path, text: Callable[[], str], arguments: Sequence[str]) -> int:
    """Write a module; with `--check` only say whether it is current, and return 1 when it is not."""
    if "--check" not in arguments:
        module.write_text(text(), encoding="utf-8")
        return 0
    is_current = module.is_file() and module.read_text(encoding="utf-8") == text()
    state = "current" if is_current else f"stale, run `python scripts/{script}.py`"
    sys.stdout.write(f"{script.replace('_', ' ')}: {state}\n")
    return 0 if is_current else 1
