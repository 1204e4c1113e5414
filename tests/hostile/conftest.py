"""The same homes and daemons as the loss tests."""

from __future__ import annotations

from tests.loss.conftest import daemon, home, no_runtime_folder

__all__ = ["daemon", "home", "no_runtime_folder"]
