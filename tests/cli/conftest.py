"""The three ways a test gets a home: with a daemon that serves the module, or the test, or with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.rig import Rig, serving


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Commands on a home whose daemon runs; its mailboxes are shared by the tests of a module."""
    with serving(tmp_path_factory.mktemp("cli") / "home") as served:
        yield served


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Rig]:
    """Commands on a home that nobody serves; a daemon that a test has started ends with it."""
    bare = Rig(tmp_path / "home")
    yield bare
    (bare.home / "config.toml").unlink(missing_ok=True)
    assert bare.run("down").code == 0


@pytest.fixture
def served(fresh: Rig) -> Iterator[Rig]:
    """Commands on a home of the test's own whose daemon runs."""
    with fresh.serving():
        yield fresh
