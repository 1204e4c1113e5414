"""HTTP ingest, durable: `POST /api/send` against a bare Starlette 'ok' on an equal server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bench.disk import MESSAGE_BYTES
from bench.plan import Plan
from bench.processes import exact_cpu_seconds, running, script, serving
from bench.rows import Budget, Row, Unit, least, most
from bench.samples import samples

CONNECTIONS: Final = 32
BUDGET: Final = Budget(at_least=0.25)
CPU_BUDGET: Final = Budget(at_most=300, is_of_ratio=False)
WARM_UP_SECONDS: Final = 0.3
EXTRA_SECONDS: Final = 60
LIMITED_BY: Final = "Python for each request, and the lock of the interpreter that loop and writer take from each other"


def measure(plan: Plan) -> Iterator[Row]:
    """Measure requests a second with many connections, and the latency with one."""
    with serving(plan.home("ingest")) as daemon, running(script("bare_http.py")) as bare_server:
        token = (daemon.home / "token").read_text().strip()
        harken = _target(urlsplit(daemon.facts["url"]).port or 0, token, daemon.pid)
        bare = _target(int(bare_server.said), "none", bare_server.pid)
        ok, sent = [], []
        for target in (bare, harken):
            target.load(CONNECTIONS, WARM_UP_SECONDS)
        for _ in plan.rounds("ingest", 5, 3):
            ok.append(bare.load(CONNECTIONS, plan.size.load_seconds))
            sent.append(harken.load(CONNECTIONS, plan.size.load_seconds))
        yield Row(
            name="ingest",
            what=f"HTTP send, {CONNECTIONS} connections, durable",
            unit=Unit.PER_SECOND,
            value=most(samples(seen.rate for seen in sent)),
            reference_name="Starlette ok",
            reference=most(samples(seen.rate for seen in ok)),
            budget=BUDGET,
            limited_by=LIMITED_BY,
        )
        yield _slowest(sent, ok)
        yield cpu_row("ingest-cpu", "HTTP send: processor time of the daemon", (sent, ok), CPU_BUDGET)
        yield _alone(plan, harken, bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a load generator saw."""

    rate: float
    p50: float
    p99: float
    cpu: float  # seconds that the server took for each request


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the request it is sent."""

    port: int
    request: bytes
    pid: int
    status: int = 200

    def load(self, connections: int, seconds: float) -> Load:
        """Send the request over and over, from a process of its own."""
        command = script("load.py", str(self.port), str(connections), str(seconds), str(self.status))
        before = exact_cpu_seconds(self.pid)
        done = subprocess.run(
            command, input=self.request, stdout=subprocess.PIPE, check=True, timeout=seconds + EXTRA_SECONDS
        )
        result = json.loads(done.stdout)
        if result["failure"]:
            raise RuntimeError(f"a request was not answered with {self.status}: {result['failure']}")
        answered = result["answered"]
        return Load(
            rate=answered / result["seconds"],
            p50=result["p50"],
            p99=result["p99"],
            cpu=(exact_cpu_seconds(self.pid) - before) / answered,
        )


def cpu_row(name: str, what: str, loads: tuple[Sequence[Load], Sequence[Load]], budget: Budget) -> Row:
    """Return the processor time for each request, beside that of the bare server."""
    ours, bare = loads
    return Row(
        name=name,
        what=what,
        unit=Unit.MICROSECONDS,
        value=least(samples(seen.cpu for seen in ours)),
        reference_name="Starlette ok",
        reference=least(samples(seen.cpu for seen in bare)),
        budget=budget,
        limited_by=LIMITED_BY,
    )


def _slowest(sent: Sequence[Load], ok: Sequence[Load]) -> Row:
    return Row(
        name="ingest-p99",
        what=f"HTTP send, {CONNECTIONS} connections: p99",
        unit=Unit.MILLISECONDS,
        value=least(samples(seen.p99 for seen in sent)),
        reference_name="Starlette ok",
        reference=least(samples(seen.p99 for seen in ok)),
    )


def _alone(plan: Plan, harken: Target, bare: Target) -> Row:
    ok, sent = [], []
    for _ in plan.rounds("ingest alone", 3, 2):
        ok.append(bare.load(1, plan.size.load_seconds / 2).p50)
        sent.append(harken.load(1, plan.size.load_seconds / 2).p50)
    return Row(
        name="ingest-one",
        what="HTTP send, one connection: p50",
        unit=Unit.MILLISECONDS,
        value=least(samples(sent)),
        reference_name="Starlette ok",
        reference=least(samples(ok)),
    )


def _target(port: int, token: str, pid: int) -> Target:
    body = json.dumps({"text": "x" * MESSAGE_BYTES, "channel": "ci"}).encode()
    head = (
        f"POST /api/send HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return Target(port, head.encode() + body, pid)
