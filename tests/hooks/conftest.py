"""A daemon of its own for each test, started quickly."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.rig import CONFIG, DaemonFixture
from tests.loss.rig import DaemonStarter
from tests.process_check import end_all_naming


@pytest.fixture(autouse=True)
def no_runtime_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep everything of a home inside it."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path (a socket's name has at most 107 bytes) and noisy channels."""
    folder = Path(tempfile.mkdtemp(prefix="harken-"))
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)
    yield home
    end_all_naming(folder)
    shutil.rmtree(folder)


@pytest.fixture
def rig(starter: DaemonStarter, home: Path) -> Iterator[DaemonFixture]:
    """A running daemon."""
    with starter.daemon(home) as daemon:
        daemon.start()
        yield DaemonFixture(daemon)
