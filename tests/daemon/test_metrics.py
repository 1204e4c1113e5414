"""What machines ask of a daemon: its numbers, and whether it can work. Bounded, truthful, and only for the person."""

from __future__ import annotations

import http.client
import json
import math
import re
import resource
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harken.daemon.metrics import (
    FAMILIES,
    MAX_LABELS,
    MAX_REMEMBERED,
    Buckets,
    EventCounters,
    FamilyInfo,
    MetricFamily,
    MetricKind,
    MetricSample,
    exposition,
)
from harken.daemon.storage import Readiness
from harken.errors import Unavailable
from harken.model import Message
from harken.store.contract.events import Event
from harken.store.sqlite import open_store
from harken.surfaces.web.app import METRICS_TYPE
from harken.testing import FakeClock
from tests.contracts.store_suite import new_message
from tests.docs.pages import DOCS
from tests.loss.rig import WAIT_SECONDS, Json, Served, until

SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
ASKED = 50
SECRET_WORDS = ("mallory", "war-room", "launch codes")


def get(daemon: Served, path: str, *, has_token: bool = True) -> tuple[int, str, str]:
    """Return the status, the type and the body of an answer."""
    address = daemon.facts["url"].removeprefix("http://")
    token = (daemon.home / "token").read_text().strip()
    with closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if has_token else {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type") or "", answer.read().decode()


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels; fails on a line that is none."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[line.rpartition(" ")[0]] = float(match[3])
    return found


def readiness(daemon: Served) -> tuple[int, Json]:
    """Return what the daemon says of itself."""
    status, _, body = get(daemon, "/readyz", has_token=False)
    return status, json.loads(body)


def test_numbers_are_for_the_person_only(daemon: Served) -> None:
    """How much arrives from where is nobody else's business."""
    daemon.start()
    assert get(daemon, "/metrics", has_token=False)[0] == 401
    status, kind, _ = get(daemon, "/metrics")
    assert (status, kind) == (200, METRICS_TYPE)


def test_numbers_follow_what_happens_and_name_nobody(daemon: Served) -> None:
    """Counters move with messages and deliveries; senders, channels and texts are in none of them."""
    daemon.start()
    before = samples(get(daemon, "/metrics")[2])
    for _ in range(3):
        daemon.call("send", text=SECRET_WORDS[2], sender=SECRET_WORDS[0], channel=SECRET_WORDS[1])
    daemon.call("pull", limit=2)
    text = get(daemon, "/metrics")[2]
    found = samples(text)
    assert found['harken_messages_received_total{source="local"}'] == 3
    assert found['harken_deliveries_total{state="offered",surface="pull"}'] == 2
    assert found["harken_offered_seconds_count"] == 2
    assert found['harken_offered_seconds_bucket{le="+Inf"}'] == 2
    assert found['harken_journal_events_total{kind="received"}'] == 3
    assert (
        found['harken_loops{state="parked"}'] == found["harken_store_problem"] == found["harken_journal_problem"] == 0
    )
    assert found['harken_store_bytes{part="database"}'] == (daemon.home / "harken.db").stat().st_size
    assert found["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"]
    assert not [word for word in SECRET_WORDS if word in text]


def test_every_family_is_there_and_documented(daemon: Served) -> None:
    """A dashboard is built from the page: what it names exists, and nothing is left out."""
    daemon.start()
    text = get(daemon, "/metrics")[2]
    names = [family.name for family in FAMILIES]
    assert re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) == names
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    wanted = [
        (family.name, family.kind.value, ", ".join(f"`{label}`" for label in family.labels), family.help)
        for family in FAMILIES
    ]
    assert rows == wanted


def test_a_full_disk_makes_it_not_ready_and_room_makes_it_ready_again(daemon: Served) -> None:
    """A supervisor is told what people are told: nothing can be accepted now."""
    daemon.start()
    assert readiness(daemon) == (200, {"status": "ready"})
    soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (1, hard))
    until(lambda: readiness(daemon) == (503, {"status": "not ready", "reason": "store"}), "it is not ready")
    assert get(daemon, "/healthz", has_token=False)[0] == 200
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (soft, hard))
    until(lambda: readiness(daemon)[0] == 200, "it is ready again")


def test_asking_often_costs_no_more_than_asking_once(daemon: Served) -> None:
    """Everyone on the machine may ask: each time a write would be a way to keep the disk busy."""
    daemon.start()
    for _ in range(ASKED):
        assert readiness(daemon)[0] == 200
    assert daemon.call("journal", after=-1)["last"] == 0
    with closing(sqlite3.connect(daemon.home / "harken.db")) as database:
        [[written]] = database.execute("SELECT value FROM progress WHERE name = 'written'")
    assert written < ASKED


async def test_what_cannot_be_written_or_does_not_answer_is_said_in_a_word(tmp_path: Path) -> None:
    """The word is for whoever reads the supervisor's log."""
    async with open_store(tmp_path / "harken.db", FakeClock()) as store:
        check = store.health.check_writable
        ready = Readiness(check)
        with anyio.fail_after(WAIT_SECONDS):
            assert await ready.reason() == "starting"
            gone = Readiness(check)
            gone.serves_at(f"unix:{tmp_path / 'nobody'}")
            assert await gone.reason() == "socket"
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.bind(str(tmp_path / "deaf"))
                deaf.listen()
                silent = Readiness(check)
                silent.serves_at(f"unix:{tmp_path / 'deaf'}")
                assert await silent.reason() == "socket"
    closed = Readiness(check)
    closed.serves_at(f"unix:{tmp_path / 'nobody'}")
    with anyio.fail_after(WAIT_SECONDS):
        assert await closed.reason() == "store"


async def test_a_look_holds_for_a_moment(tmp_path: Path) -> None:
    """Two that ask at once share one look."""
    looks: list[int] = []

    async def check() -> None:
        looks.append(1)
        await anyio.lowlevel.checkpoint()
        raise Unavailable("No.")

    ready = Readiness(check)
    ready.serves_at(f"unix:{tmp_path / 'nobody'}")
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ready.reason)
    assert len(looks) == 1


async def test_what_is_remembered_and_told_apart_is_bounded(tmp_path: Path) -> None:
    """A daemon runs for months, and a surface or kind that somebody makes up must not fill its memory."""
    clock = FakeClock()
    message = await _stored(tmp_path, clock)
    tally = EventCounters()
    tally.name_sources(frozenset({"local"}))
    for number in range(MAX_LABELS * 2):
        surface = {"surface": f"s{number}", "deliveries": {f"d-{number}": "m-1"}}
        tally.observe([Event(n=number + 1, at=clock.now(), kind="offered", data=surface)])
    tally.observe([Event(n=999, at=clock.now(), kind="received", data={}, message=message)])
    counts = tally.counts()
    assert len(counts.deliveries) == MAX_LABELS + 1
    assert counts.deliveries["offered", "other"] == MAX_LABELS
    assert counts.received == {"other": 1}  # its source is not one that is configured
    many = {f"d{number}": f"m{number}" for number in range(MAX_REMEMBERED + 50)}
    tally.observe([Event(n=1000, at=clock.now(), kind="offered", data={"surface": "s1", "deliveries": many})])
    tally.observe([Event(n=1001, at=clock.now(), kind="seen", data={"deliveries": {"d0": "m0", "d60": "m60"}})])
    assert tally.counts().deliveries["seen", "other"] == 2  # one forgotten, one beyond the bound of labels


async def _stored(folder: Path, clock: FakeClock) -> Message:
    async with open_store(folder / "harken.db", clock) as store:
        return (await store.messages.append([new_message("x")]))[0].message


def test_the_process_that_is_measured_is_the_daemon(daemon: Served) -> None:
    """Numbers of another process would look right for a long time."""
    daemon.start()
    found = samples(get(daemon, "/metrics")[2])
    files = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    assert abs(found["process_open_fds"] - files) <= 3


def test_nothing_else_answers_there(daemon: Served) -> None:
    """A prefix is not an open door."""
    for path in ["/metrics/", "/readyz/x", "/metrics?x=1"]:
        daemon.start()
        status, _, body = get(daemon, path, has_token=False)
        assert status == 401
        assert "harken_" not in body


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
