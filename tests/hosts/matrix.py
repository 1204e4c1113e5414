"""The table of what each host's sandbox was seen to do, printed when the tests of hosts end.

A test notes what it saw; the notes travel with its report, so that workers of their own change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pytest

from harken.hosts.registry import host_names

FAILED: Final = "FAILED"
_PROPERTY: Final = "sandbox"
_FILES: Final = ("test_headless", "test_runs.py", "test_hostile_runs.py")


class Matrix:
    """Where one test notes what it saw."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def note(self, host: str, case: str, outcome: str) -> None:
        """Keep what became of a case on a host: `ran`, `denied`, `no such tool`, `refused`."""
        self._node.user_properties.append((_PROPERTY, (host, case, outcome)))


def rows(reports: Iterable[pytest.TestReport]) -> dict[str, dict[str, str]]:
    """Return the outcomes by case and host, from the reports of all tests; of a test that failed, its name."""
    found: dict[str, dict[str, str]] = {}
    for report in reports:
        if not any(file in report.nodeid for file in _FILES):
            continue
        if report.failed:
            host = _host(report.nodeid)
            test = report.nodeid.partition("::")[2].replace(f"[{host}", "[")
            found.setdefault(test, {})[host] = FAILED
        elif report.when == "call":
            for name, value in report.user_properties:
                if name == _PROPERTY and isinstance(value, list | tuple):
                    host, case, outcome = map(str, value)
                    found.setdefault(case, {})[host] = outcome
    return found


def table(found: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """Return the lines of the table: one per case, one column per host."""
    hosts = sorted({host for outcomes in found.values() for host in outcomes})
    cells = [["", *hosts], *([case, *(outcomes.get(host, "-") for host in hosts)] for case, outcomes in found.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _host(test: str) -> str:
    """Return the host that a test is about, which its first parameter names."""
    return next((name for name in host_names() if f"[{name}" in test), "?")
