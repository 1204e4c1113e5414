"""The same homes as the loss tests, and daemons that start quickly."""

from __future__ import annotations

from tests.loss.conftest import home, no_runtime_folder

__all__ = ["home", "no_runtime_folder"]
