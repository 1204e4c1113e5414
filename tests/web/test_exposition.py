"""What Prometheus reads is what was measured, whatever the labels contain."""

from __future__ import annotations

import math
import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harken.surfaces.web.exposition import Buckets, FamilyInfo, MetricFamily, MetricKind, MetricSample, exposition

LINE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (?P<value>\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
SEEN = FamilyInfo("seen_total", MetricKind.COUNTER, "Seen.\nAnd \\ more.", ("source", "state"))
TOOK = FamilyInfo("took_seconds", MetricKind.HISTOGRAM, "How long.")


def unescaped(text: str) -> str:
    """A label's value as its reader takes it."""
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def test_a_family_is_written_with_its_help_its_type_and_its_samples() -> None:
    """The form that the format demands, to the letter."""
    found = MetricFamily(family=SEEN, samples=[MetricSample(3, ("ci", "seen")), MetricSample(0.5, ("mail", "offered"))])
    assert exposition([found]) == (
        "# HELP seen_total Seen.\\nAnd \\\\ more.\n"
        "# TYPE seen_total counter\n"
        'seen_total{source="ci",state="seen"} 3\n'
        'seen_total{source="mail",state="offered"} 0.5\n'
    )


@given(st.text(), st.text(), st.floats())
def test_any_label_and_number_survive_the_reading(source: str, state: str, value: float) -> None:
    """A source's name is the person's choice, and must not be able to end a line or pose as another sample."""
    text = exposition([MetricFamily(family=SEEN, samples=[MetricSample(value, (source, state))])])
    _help, _type, line, end = text.split("\n")
    assert end == ""
    match = LINE.fullmatch(line)
    assert match is not None
    labels = {name: unescaped(label) for name, label in LABEL.findall(match["labels"])}
    sound = [part.encode("utf-8", "replace").decode() for part in (source, state)]
    assert labels == dict(zip(("source", "state"), sound, strict=True))
    read = float(match["value"].replace("Inf", "inf"))
    assert read == value or (math.isnan(read) and math.isnan(value))


@given(st.lists(st.floats(0, 1e6)))
def test_a_histogram_counts_everything_at_or_below_each_bound(values: list[float]) -> None:
    """Buckets are cumulative: the last has all, and none has less than the one before."""
    buckets = Buckets((0.1, 1.0, 10.0))
    for value in values:
        buckets.add(value)
    lines = exposition([MetricFamily(family=TOOK, spread=buckets.spread())]).splitlines()[2:]
    counts = [int(line.rpartition(" ")[2]) for line in lines[:4]]
    assert counts == [sum(value <= bound for value in values) for bound in (0.1, 1.0, 10.0, math.inf)]
    assert all(one <= two for one, two in pairwise(counts))
    assert [line.partition(" ")[0] for line in lines] == [
        *(f'took_seconds_bucket{{le="{bound}"}}' for bound in ("0.1", "1", "10", "+Inf")),
        "took_seconds_sum",
        "took_seconds_count",
    ]
    assert int(lines[-1].rpartition(" ")[2]) == len(values)
    assert math.isclose(float(lines[-2].rpartition(" ")[2]), sum(values), abs_tol=1e-9)
