"""A daemon for programs that other people wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing import DaemonProcess, running_daemon


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon with nothing configured."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder, running_daemon(Path(folder)) as running:
        yield running
