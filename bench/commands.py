"""What a person feels: how long a command of `harken` takes.

Processor time is measured, which other work on the machine changes less than the time on the clock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.plan import Plan
from bench.processes import cpu_to_end, serving
from bench.rows import Budget, Row, Unit, least
from bench.samples import samples

PYTHON: Final = (sys.executable, "-c", "pass")
BUDGET: Final = Budget(at_most=2.2)
SCRIPT: Final = str(Path(sys.executable).with_name("harken"))  # as it is installed for people


def measure(plan: Plan) -> Iterator[Row]:
    """Measure commands against an interpreter that does nothing."""
    home = plan.home("commands")
    at = ("--home", str(home))
    tab = ("env", f"COMP_WORDS=harken read --home {home} m", "COMP_CWORD=4", "_HARKEN_COMPLETE=bash_complete", SCRIPT)
    verbs = {
        "version": (SCRIPT, "version"),
        "send": (SCRIPT, "send", "hello", *at),
        "list": (SCRIPT, "list", *at),
        "read": (SCRIPT, "read", "1", *at),
        "status": (SCRIPT, "status", *at),
        "wait": (SCRIPT, "wait", "--timeout", "0", *at),
        "completion": tab,
    }
    with serving(home):
        for verb, command in verbs.items():
            bare, taken = [], []
            for _ in plan.rounds(f"harken {verb}", 12, 5):
                bare.append(cpu_to_end(PYTHON))
                taken.append(cpu_to_end(command))
            yield Row(
                name=f"cli-{verb}",
                what=f"{'harken ' + verb if verb != 'completion' else 'Tab after harken read'}, processor time",
                unit=Unit.MILLISECONDS,
                value=least(samples(taken)),
                reference_name="python -c pass",
                reference=least(samples(bare)),
                budget=BUDGET if verb != "version" else None,
            )
