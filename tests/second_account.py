"""A second account on this machine, made for the tests and removed after them, and a program that runs as it.

The fixtures are imported by the folders that need them. Only root may make accounts: elsewhere the tests are skipped,
and say so. Each worker has an account of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

ANSWER_SECONDS: Final = 20.0
LOCK_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.1
LOCKED: Final = (1, 10)  # exit codes of useradd and userdel while another program changes the accounts
USERADD, USERDEL = shutil.which("useradd"), shutil.which("userdel")

Json: TypeAlias = Any
"""Whatever the answer says."""


class SecondAccount:
    """A program that runs as the account, and does what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        script = Path(__file__).with_name("stranger.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, what: str, **order: object) -> Json:
        """Let it do something; return what came of it, `error` when the system did not let it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **order}) + "\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0], "the other account does not answer"
        return json.loads(self._process.stdout.readline())

    def ask(
        self, address: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: str = ""
    ) -> int:
        """Send a request; return the status."""
        told = self.do("ask", address=address, method=method, path=path, headers=dict(headers or {}), body=body)
        return int(told["status"])

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=ANSWER_SECONDS)


def open_way_to(folder: Path) -> None:
    """Let every account come as far as a folder, so that it is the folder itself that keeps them out."""
    for parent in folder.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)


def _changed(command: list[str]) -> None:
    """Change the accounts of this machine; another program may be at it."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        if done.returncode not in LOCKED or time.monotonic() > end:
            assert done.returncode == 0, done
            return
        select.select([], [], [], PAUSE_SECONDS)


@pytest.fixture(scope="session")
def account_name() -> Iterator[str]:
    """The name of a second account, which is gone at the end."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a second account")
    if USERADD is None or USERDEL is None:
        pytest.skip("there is no useradd: on Debian, apt-get install passwd")
    name = f"harken-{secrets.token_hex(4)}"
    shell = shutil.which("nologin") or "/bin/false"
    _changed([USERADD, "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", shell, name])
    yield name
    _changed([USERDEL, name])


@pytest.fixture
def second_account(account_name: str) -> Iterator[SecondAccount]:
    """A program of the second account."""
    account = SecondAccount(account_name)
    yield account
    account.close()
