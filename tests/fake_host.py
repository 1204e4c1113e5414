"""A machine on which agent hosts seem to be installed: programs of a test that have their names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loss.rig import Nursery


@contextmanager
def fake_host(folder: Path, program: str, names: Sequence[str] = ("gemini",)) -> Iterator[None]:
    """Let what is started inside the block find a program under these names, made of a text."""
    for name in names:
        path = folder / name
        path.write_text(program, encoding="utf-8")
        path.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield


@contextmanager
def nursery_with_host(folder: Path, program: str) -> Iterator[Nursery]:
    """Start daemons on a machine where Gemini CLI seems to be installed."""
    with fake_host(folder, program):
        nursery = Nursery()
    yield nursery
    nursery.close()
