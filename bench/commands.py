"""What a person feels: how long a command of `harken` takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from bench.plan import Plan
from bench.processes import serving, time_to_end
from bench.rows import Row, Unit, least
from bench.samples import samples

PYTHON: Final = (sys.executable, "-c", "pass")


def measure(plan: Plan) -> Iterator[Row]:
    """Measure commands against an interpreter that does nothing."""
    home = plan.home("commands")
    harken = (sys.executable, "-m", "harken")
    verbs = {"version": (*harken, "version"), "send": (*harken, "send", "hello", "--home", str(home))}
    with serving(home):
        for verb, command in verbs.items():
            bare, taken = [], []
            for _ in plan.rounds(f"harken {verb}", 12, 5):
                bare.append(time_to_end(PYTHON))
                taken.append(time_to_end(command))
            yield Row(
                name=f"cli-{verb}",
                what=f"harken {verb}",
                unit=Unit.MILLISECONDS,
                value=least(samples(taken)),
                reference_name="python -c pass",
                reference=least(samples(bare)),
            )
