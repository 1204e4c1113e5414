"""Processes that are killed while they work with a store."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.contracts.store_suite import WAIT_SECONDS
from tests.store import stories

ROOT = Path(__file__).parents[2]

Storyteller: TypeAlias = Callable[..., tuple[int, Sequence[Any]]]
"""Lets a process live through a story, and says how it ended and what it told: see `stories.py`."""


@pytest.fixture(scope="session")
def storyteller() -> Iterator[Storyteller]:
    """Stories that are killed, without importing everything for each."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(stories.__file__)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0) as server:

        def tell(name: str, path: Path, *when: object) -> tuple[int, Sequence[Any]]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([name, str(path), *map(str, when)]).encode() + b"\n")
            assert select.select([server.stdout], [], [], WAIT_SECONDS)[0], "the process did not end"
            code = int(server.stdout.readline())
            return code, [json.loads(line) for line in stories.told_file(path).read_text().splitlines()]

        yield tell
