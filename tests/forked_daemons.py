"""A plugin of pytest that lets the commands of a run be forked from one process: see `fork_server.py`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from harken.testing.daemon import ENVIRONMENT_FILE, FORK_SERVER, at_start

READY_SECONDS: Final = 60.0
END_SECONDS: Final = 10.0
PADDING: Final = "-" * 10_000  # more than any command line, and than what a test adds to the environment
_SERVER: Final = Path(__file__).with_name("fork_server.py")


class ForkedDaemons:
    """The server of one worker, or of a run without workers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fork-server-")
        path = Path(self._folder.name) / "socket"
        command = [sys.executable, "-I", str(_SERVER), str(path), PADDING]
        env = {**os.environ, "PADDING": PADDING}
        path.with_name(ENVIRONMENT_FILE).write_text(json.dumps(at_start(env)))
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
        end = time.monotonic() + READY_SECONDS
        while not path.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the fork server did not start")
            select.select([], [], [], 0.01)
        os.environ[FORK_SERVER] = str(path)

    def pytest_sessionfinish(self) -> None:
        """End the server before anybody looks for processes that are left."""
        os.environ.pop(FORK_SERVER, None)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._folder.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    """Start a server in each process that runs tests: what a test starts must descend from it, as always.

    The process that only waits for workers needs none, nor does a run that lists its tests or prints its help.
    """
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    is_listing = config.option.collectonly or config.option.help or config.option.version
    if sys.platform == "linux" and runs_tests and not is_listing:
        config.pluginmanager.register(ForkedDaemons(), "forked-daemons")
