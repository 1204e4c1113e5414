"""The figures and lists of hosts on the page about delivery are those of the code."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from harken.budget import LISTING_PART
from harken.config.settings import Settings
from harken.dispatch import wake
from harken.hosts.registry import hosts
from harken.surfaces.composer import BLOCK_MESSAGES
from tests.docs.pages import DOCS, prose

LIMITS = Settings().limits


@pytest.mark.parametrize(
    ("words", "figure"),
    [
        ("15 minutes have passed without evidence", LIMITS.lease == timedelta(minutes=15)),
        ("of the last 24 hours", LIMITS.new_consumer_window == timedelta(hours=24)),
        ("the newest 10,000 at most", LIMITS.new_consumer_most == 10_000),
        ("The server waits 55 seconds at most", LIMITS.max_wait_seconds == 55),
        ("takes nothing for 20 seconds is woken too", timedelta(seconds=20) == wake.PATIENCE),
        ("left alone for half an hour", timedelta(minutes=30) == wake.LONGEST_STEP),
        ("two minutes after a restart", timedelta(minutes=2) == wake.UNSURE),
        ("nothing proves within a minute is given up", timedelta(minutes=1) == wake.PROOF),
        ("one minute after an unproven wake", timedelta(minutes=1) == wake.PROOF),
        ("wake it only if none comes within 10 seconds", timedelta(seconds=10) == wake.FIRST_PROMPT_GRACE),
        ("waited for more than an hour wakes nobody", timedelta(hours=1) == wake.FRESH),
        ("the five newest channel messages", BLOCK_MESSAGES == 5),
        ("as far as a quarter of the budget goes", LISTING_PART == 4),
    ],
)
def test_figures_of_the_delivery_page_are_those_of_the_code(words: str, *, figure: bool) -> None:
    """People count on them; tests of the behaviour take them from the code, whatever they are."""
    assert words in " ".join(prose(DOCS / "explanation" / "delivery.md").split())
    assert figure


def test_hosts_that_tell_of_interruptions_are_those_of_the_page() -> None:
    """What is said of a host that keeps silent would be a promise that nothing holds."""
    (said,) = re.findall(r"; ([\w\s,]+) say it,\s", prose(DOCS / "explanation" / "delivery.md"))
    named = {"-".join(name.lower().split()) for name in re.split(r",|\sand\s", said)}
    assert named == {host.name for host in hosts().values() if host.reports_interrupts}
