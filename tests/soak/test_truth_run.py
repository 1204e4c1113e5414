"""The situations of the truth tests, drawn at random, one after the other on one home of each host.

What one situation leaves behind (a conversation that was left, a lease, a daemon that was killed) meets the next.
`SOAK_SITUATIONS` says how many are played on each host, `SOAK_SEED` which: a failure names both.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Final

import pytest

from harken.hosts.registry import host_names
from tests.hosts.play import ObservedHost, installed
from tests.hosts.situations import SITUATIONS
from tests.soak.draw import draw

pytestmark = pytest.mark.soak

PER_HOST: Final = 20
HIGHEST_SEED: Final = 1_000_000


@pytest.fixture(scope="session")
def seed() -> int:
    """What the draw begins with; another one each time unless it is given."""
    return int(os.environ.get("SOAK_SEED") or secrets.randbelow(HIGHEST_SEED))


@pytest.fixture(scope="session")
def count() -> int:
    """How many situations each host meets."""
    return int(os.environ.get("SOAK_SITUATIONS") or PER_HOST)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say how far it is, also when all is well: it takes an hour."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    return say


@pytest.mark.parametrize("name", host_names())
def test_nothing_is_claimed_lost_or_doubled_whatever_follows_what(
    name: str, seed: int, count: int, tell: Callable[[str], None]
) -> None:
    """No message is called seen too early, gets lost or comes twice without a mark, in any order of situations."""
    again = f"SOAK_SEED={seed} SOAK_SITUATIONS={count}"
    tell(f"\n{name}: {again}")
    failures = []
    with installed(name) as host:
        for number, situation in enumerate(draw(seed, tuple(host_names()), tuple(SITUATIONS), count)[name], 1):
            began = time.monotonic()
            failure = played(host, situation)
            failures += [f"{number}. {situation}: {failure}"] if failure else []
            outcome = "WRONG" if failure else "ok"
            tell(f"{name} {number}/{count} {situation}: {outcome}, {time.monotonic() - began:.0f} s")
    wrong = "\n\n".join(failures)
    assert not failures, f"{len(failures)} of {count} went wrong ({again}):\n{wrong}"


def played(host: ObservedHost, situation: str) -> str:
    """Play a situation, and return what went wrong: the next one is played all the same."""
    host.begin()
    try:
        SITUATIONS[situation](host)
        host.conclude()
    except (AssertionError, TimeoutError) as exc:
        said = str(exc)
        return said if host.observer.timeline() in said else f"{said}\n{host.observer.timeline()}"
    return ""
