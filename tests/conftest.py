"""What every test shares: the event loop, and property tests that give the same result on every machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from harken.hosts.host import names_of_marks
from harken.hosts.registry import host_marks
from tests.examples import ALL, QUARTER
from tests.loss.rig import DaemonStarter

pytest_plugins = ("tests.process_check", "tests.forked_daemons")
pytest.register_assert_rewrite("tests.contracts")

# A developer's desktop is not to be filled with the toasts of tests; those that are about toasts turn them on.
os.environ["HARKEN_TOASTS_ENABLED"] = "false"

# What a test runs is the person's, also when an agent runs the tests; those that are about marks set them.
for name in names_of_marks(host_marks()):
    os.environ.pop(name, None)

# Who uses Harken has no such variable: with it every program writes at once, which hides what is written too late.
os.environ.pop("PYTHONUNBUFFERED", None)

# A shell lets what it runs in the background ignore Ctrl-C, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Those that take longest, in seconds of CPU and of waiting: first those that share a browser, one after another.
SLOWEST_FILES: Final = Path(__file__).with_name("slowest_files.txt").read_text(encoding="utf-8").split()

# Every test in this folder has the mark `hosts`.
REAL_HOSTS: Final = Path(__file__).with_name("hosts")

settings.register_profile("soak", derandomize=True, deadline=None, database=None, max_examples=ALL)
settings.register_profile("test", settings.get_profile("soak"), max_examples=QUARTER)
settings.load_profile("test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a worker send its report: what a test of hostile text has logged may hold half of a surrogate pair."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, which the daemon runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def starter() -> Iterator[DaemonStarter]:
    """Starts daemons without importing everything each time."""
    starter = DaemonStarter()
    yield starter
    starter.close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests of the real hosts unread where none of them is run: importing them takes a second per worker."""
    is_asked_for = any("tests/hosts" in argument for argument in config.invocation_params.args)
    is_left_out = "not hosts" in config.option.markexpr and not is_asked_for
    return True if is_left_out and collection_path == REAL_HOSTS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: one that a worker begins last keeps the others waiting for it."""
    places = {name: place for place, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
