"""A home with a short path, and daemons that start quickly."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loss.rig import DaemonStarter, Served
from tests.process_check import end_all_naming


@pytest.fixture(autouse=True)
def no_runtime_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep everything of a home inside it, so that a test can look at all of it."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that does not exist yet, with a short path: a socket's name has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="harken-"))
    yield folder / "home"
    end_all_naming(folder)
    shutil.rmtree(folder)


@pytest.fixture
def daemon(starter: DaemonStarter, home: Path) -> Iterator[Served]:
    """A daemon that is not started yet and is gone at the end."""
    with starter.daemon(home) as served:
        yield served
