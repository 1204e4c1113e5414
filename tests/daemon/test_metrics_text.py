"""What Prometheus reads is what was measured, whatever the labels contain: judged by the library's own parser."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harken.daemon.metrics import Buckets, FamilyInfo, MetricFamily, MetricKind, MetricSample, exposition

SEEN = FamilyInfo("seen_total", MetricKind.COUNTER, "Seen.\nAnd \\ more.", ("source", "state"))
TOOK = FamilyInfo("took_seconds", MetricKind.HISTOGRAM, "How long.")


def read(found: MetricFamily) -> Sequence[Sample]:
    """Return the samples of a family as its reader takes them; the text holds no other."""
    [family] = text_string_to_metric_families(exposition([found]))
    assert (family.type, family.documentation) == (found.family.kind.value, found.family.help)
    return family.samples


def test_a_family_is_written_with_its_help_its_type_and_its_samples() -> None:
    """Dashboards are built on these names: a library that writes them must not change them."""
    found = MetricFamily(family=SEEN, samples=[MetricSample(3, ("ci", "seen")), MetricSample(0.5, ("mail", "offered"))])
    assert exposition([found]) == (
        "# HELP seen_total Seen.\\nAnd \\\\ more.\n"
        "# TYPE seen_total counter\n"
        'seen_total{source="ci",state="seen"} 3.0\n'
        'seen_total{source="mail",state="offered"} 0.5\n'
    )


@given(st.text(), st.text(), st.floats())
def test_any_label_and_number_survive_the_reading(source: str, state: str, value: float) -> None:
    """A source's name is the person's choice, and must not be able to end a line or pose as another sample."""
    [sample] = read(MetricFamily(family=SEEN, samples=[MetricSample(value, (source, state))]))
    sound = [part.encode("utf-8", "replace").decode() for part in (source, state)]
    assert (sample.name, sample.labels) == (SEEN.name, dict(zip(SEEN.labels, sound, strict=True)))
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


@given(st.lists(st.floats(0, 1e6)))
def test_a_histogram_counts_everything_at_or_below_each_bound(values: list[float]) -> None:
    """Buckets are cumulative: the last has all, and none has less than the one before."""
    buckets = Buckets((0.1, 1.0, 10.0))
    for value in values:
        buckets.add(value)
    *bounds, total, count = read(MetricFamily(family=TOOK, spread=buckets.spread()))
    assert {sample.labels["le"]: sample.value for sample in bounds} == {
        name: sum(value <= bound for value in values)
        for name, bound in (("0.1", 0.1), ("1", 1.0), ("10", 10.0), ("+Inf", math.inf))
    }
    assert (total.name, count.name, count.value) == ("took_seconds_sum", "took_seconds_count", len(values))
    assert math.isclose(total.value, sum(values), abs_tol=1e-9)
