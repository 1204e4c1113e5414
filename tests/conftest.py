"""What every test shares: the event loop, and property tests that give the same result on every machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from harken.hosts.host import names_of_marks
from harken.hosts.registry import host_marks

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

# Those that take longest, the slowest first: measured in seconds of CPU, and of waiting.
SLOWEST_FILES: Final = Path(__file__).with_name("slowest_files.txt").read_text(encoding="utf-8").split()

settings.register_profile("harken", derandomize=True, deadline=None, database=None)
settings.load_profile("harken")


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: one that a worker begins last keeps the others waiting for it."""
    places = {name: place for place, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
