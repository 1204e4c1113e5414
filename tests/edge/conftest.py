"""A home folder, and a daemon in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.rig import FakeDaemon, LineReader
from tests.process_check import end_all_naming


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder with a short path: a socket's name has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="harken-"))
    (folder / "run").mkdir()
    yield folder
    end_all_naming(folder)
    shutil.rmtree(folder)


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    """Both ways to reach a daemon; with tcp, stdin is read by a thread as on Windows."""
    return str(request.param)


@pytest.fixture
def daemon(home: Path, transport: str) -> Iterator[FakeDaemon]:
    """A daemon that is up."""
    with FakeDaemon(home, transport) as fake:
        yield fake


@pytest.fixture
def pipe(home: Path) -> Iterator[LineReader]:
    """Where started programs tell about themselves; held open for writing too, so that it never ends."""
    os.mkfifo(home / "pipe")
    descriptor = os.open(home / "pipe", os.O_RDWR)
    yield LineReader(descriptor)
    os.close(descriptor)
