"""The table and the JSON: what people and programs read of a run."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.plan import Progress
from bench.report import FOOTNOTE, as_json, page, table
from bench.rows import TIMES, Budget, Figure, Row, Unit, least, most, once
from bench.samples import samples

MET = Row(
    name="edge",
    what="edge start",
    unit=Unit.MILLISECONDS,
    value=Figure(usual=0.015, best=0.0125),
    reference_name="python",
    reference=Figure(usual=0.0125, best=0.01),
    budget=Budget(at_most=1.5),
    limited_by="never shown while the budget is met",
)
MISSED = Row(
    name="ingest",
    what="HTTP send",
    unit=Unit.PER_SECOND,
    value=Figure(usual=2_000.0, best=2_500.0),
    reference_name="ok",
    reference=Figure(usual=10_000.0, best=10_000.0),
    budget=Budget(at_least=0.45),
    limited_by="the interpreter lock",
)
UNBUDGETED = Row(name="cli", what="harken version", unit=Unit.MILLISECONDS, value=once(0.05))
TABLE = f"""\
row     what            value (best)      reference (best)         ratio (best)   budget    met
------  --------------  ----------------  -----------------------  -------------  --------  ---
edge    edge start      15.00 ms (12.50)  python 12.50 ms (10.00)  1.20 {TIMES} (1.25)  ≤ 1.5 {TIMES}   yes
ingest  HTTP send       2,000 /s (2,500)  ok 10,000 /s             0.20 {TIMES} (0.25)  ≥ 0.45 {TIMES}  NO
        ^ the interpreter lock
cli     harken version  50.00 ms          -                        -              -         -

{FOOTNOTE}"""


def test_the_table_is_aligned_and_explains_only_what_is_missed() -> None:
    """A reader compares columns by eye, and needs the reason exactly where a budget is missed."""
    assert table([MET, MISSED, UNBUDGETED]) == TABLE


def test_the_page_says_where_and_when_it_was_measured_and_what_limits_what_is_missed() -> None:
    """Figures without their machine, and a missed budget without its reason, would be advertisement."""
    machine: dict[str, object] = {
        "at": "2026-01-02T03:04:05+00:00",
        "cores": 2,
        "load": 0.4,
        "system": "Linux 6.1",
        "file_system": "ext4",
        "fdatasync_us": {"usual": 210.0, "best": 190.0},
        "python": "3.11.7",
        "sqlite": "3.45.0",
        "messages": 1_000_000,
    }
    written = page([MET, MISSED, UNBUDGETED], machine, {"reads": "OSError: disk full"})
    assert "- measured: 2026-01-02T03:04:05+00:00\n" in written
    assert "- machine: 2 cores, Linux 6.1, ext4, fdatasync 210.0 µs\n" in written
    assert f"| HTTP send | 2,000 /s (2,500) | ok 10,000 /s | 0.20 {TIMES} (0.25) | ≥ 0.45 {TIMES} | NO |" in written
    assert "- **HTTP send**: the interpreter lock." in written
    assert "- reads: OSError: disk full" in written
    assert "other programs were running" not in written
    assert "other programs were running" in page([MET], {**machine, "load": 5.0}, {})


def test_the_json_has_figures_in_the_unit_of_the_row() -> None:
    """Programs that compare runs must not need to know that times are taken in seconds."""
    run = as_json([MET, UNBUDGETED], {"cores": 2}, {"reads": "OSError: disk full"})
    assert json.loads(json.dumps(run)) == {
        "machine": {"cores": 2},
        "rows": [
            {
                "name": "edge",
                "what": "edge start",
                "unit": "ms",
                "value": {"usual": 15.0, "best": 12.5},
                "reference_name": "python",
                "reference": {"usual": 12.5, "best": 10.0},
                "ratio": {"usual": 1.2, "best": 1.25},
                "budget": f"≤ 1.5 {TIMES}",
                "met": True,
                "limited_by": "",
            },
            {
                "name": "cli",
                "what": "harken version",
                "unit": "ms",
                "value": {"usual": 50.0, "best": 50.0},
                "reference_name": "",
                "reference": None,
                "ratio": None,
                "budget": None,
                "met": None,
                "limited_by": "",
            },
        ],
        "failed": {"reads": "OSError: disk full"},
    }


@pytest.mark.parametrize(
    ("budget", "value", "is_met"),
    [
        (Budget(at_most=20, is_of_ratio=False), 0.020, True),
        (Budget(at_most=20, is_of_ratio=False), 0.021, False),
        (Budget(at_least=20, is_of_ratio=False), 0.019, False),
        (Budget(at_most=2), 0.020, True),
        (Budget(at_most=2), 0.021, False),
        (Budget(at_least=2), 0.019, False),
    ],
)
def test_a_budget_is_of_the_ratio_or_of_the_value_in_the_unit_shown(
    budget: Budget, value: float, *, is_met: bool
) -> None:
    """An absolute budget is written in milliseconds; comparing it with seconds would always be met."""
    row = Row(name="r", what="", unit=Unit.MILLISECONDS, value=once(value), reference=once(0.010), budget=budget)
    assert row.is_met is is_met


def test_a_budget_of_a_ratio_is_missed_without_a_reference() -> None:
    """A reference that measured as nothing must not pass for a met budget."""
    row = Row(name="r", what="", unit=Unit.PERCENT, value=once(1), reference=once(0), budget=Budget(at_most=9))
    assert row.ratio is None
    assert row.is_met is False


def test_a_speedup_says_how_much_faster_than_the_reference() -> None:
    """`40 times faster` is the reference over the value, the other way round than usual."""
    row = Row(
        name="r", what="", unit=Unit.MILLISECONDS, value=once(2), reference=once(100), is_speedup=True,
        budget=Budget(at_least=40),
    )  # fmt: skip
    assert row.ratio == once(50)
    assert row.is_met is True


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200))
def test_what_is_said_of_samples_is_among_them_and_in_order(values: list[float]) -> None:
    """A percentile by nearest rank is a value that was measured, and at least 95 of 100 are not above it."""
    taken = samples(values)
    assert min(values) == taken.minimum <= taken.median <= taken.maximum == max(values)
    assert taken.p95 in values
    assert sum(value <= taken.p95 for value in values) >= 0.95 * len(values)
    assert sum(value < taken.p95 for value in values) < 0.95 * len(values)
    assert (least(taken).best, most(taken).best) == (min(values), max(values))


def test_nothing_measured_is_an_error() -> None:
    """A benchmark that did no rounds must not report a number."""
    with pytest.raises(ValueError, match="nothing was measured"):
        samples([])


def test_progress_is_drawn_on_terminals_only() -> None:
    """In a log, hundreds of redrawn lines would bury the table."""
    out = io.StringIO()
    Progress(out).step("append", 1, 2)
    Progress(out).say("append: done")
    assert out.getvalue() == "append: done\n"


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--only", "nothing"], ["--messages", "-1"]])
def test_options_that_make_no_sense_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A run takes minutes: a mistyped option is told at once."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: python -m bench" in capsys.readouterr().err
