"""The same homes and daemons as the loss tests."""

from __future__ import annotations

from tests.loss.conftest import daemon, home, no_runtime_folder
from tests.second_account import account_name, second_account

__all__ = ["account_name", "daemon", "home", "no_runtime_folder", "second_account"]
