"""Webhook ingest, durable: signed posts, each of them a message of its own, against a bare Starlette 'ok'.

Both run on the daemon's server and get the same bytes from the same client, in turns; of the daemon only 202 counts,
which it says after the message is on the disk.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from bench.ingest import CONNECTIONS, WARM_UP_SECONDS, Load, Target, cpu_row
from bench.load import SLOT
from bench.plan import Plan
from bench.processes import running, script, serving
from bench.rows import Budget, Row, Unit, least, most
from bench.samples import samples

BUDGET: Final = Budget(at_least=0.35)
CPU_BUDGET: Final = Budget(at_most=350, is_of_ratio=False)
ACCEPTED: Final = 202
KEY: Final = b"a secret of the benchmark"
CONFIG: Final = """[sources.ci]
kind = "webhook"
preset = "generic"
text = "compare"
channel = "ref"
secret = "file:ci.secret"
"""
LIMITED_BY: Final = "Python for each request: the same loop parses HTTP, checks, cleans and waits for the writer"


def measure(plan: Plan) -> Iterator[Row]:
    """Measure accepted posts a second with many connections."""
    home = plan.home("webhooks")
    home.mkdir(mode=0o700)
    for name, text in (("config.toml", CONFIG.encode()), ("ci.secret", KEY)):
        (home / name).touch(mode=0o600)
        (home / name).write_bytes(text)
    folder = plan.home("bare")
    folder.mkdir(mode=0o700)
    with serving(home) as daemon, running(script("bare_hooks.py", str(folder))) as bare_server:
        port = urlsplit(daemon.call("status")["daemon"]["hooks_url"]).port or 0
        hooks = Target(port, request(), daemon.pid, ACCEPTED)
        bare = Target(int(bare_server.said), request(), bare_server.pid)
        ok: list[Load] = []
        posted: list[Load] = []
        for target in (bare, hooks):
            target.load(CONNECTIONS, WARM_UP_SECONDS)
        for _ in plan.rounds("webhooks", 5, 3):
            ok.append(bare.load(CONNECTIONS, plan.size.load_seconds))
            posted.append(hooks.load(CONNECTIONS, plan.size.load_seconds))
        yield Row(
            name="webhooks",
            what=f"webhook post, {CONNECTIONS} connections, signed, durable",
            unit=Unit.PER_SECOND,
            value=most(samples(seen.rate for seen in posted)),
            reference_name="Starlette ok",
            reference=most(samples(seen.rate for seen in ok)),
            budget=BUDGET,
            limited_by=LIMITED_BY,
        )
        yield Row(
            name="webhooks-p99",
            what=f"webhook post, {CONNECTIONS} connections: p99",
            unit=Unit.MILLISECONDS,
            value=least(samples(seen.p99 for seen in posted)),
            reference_name="Starlette ok",
            reference=least(samples(seen.p99 for seen in ok)),
        )
        yield cpu_row("webhooks-cpu", "webhook post: processor time of the daemon", (posted, ok), CPU_BUDGET)


def request() -> bytes:
    """Return a signed push of two commits. No id is taken from it, so that each is new."""
    commits = [
        {"id": f"{number:040x}", "message": f"Change {number}", "author": {"name": "Ann", "username": "ann"}}
        for number in (1, 2)
    ]
    payload = {
        "ref": "refs/heads/main",
        "compare": "https://github.com/octo/shop/compare/1...2",
        "commits": commits,
        "head_commit": {**commits[-1], "timestamp": "2026-01-02T03:04:05+00:00"},
        "repository": {"full_name": "octo/shop", "html_url": "https://github.com/octo/shop"},
        "sender": {"login": "ann", "type": "User"},
    }
    body = json.dumps(payload).encode()
    head = (
        f"POST /hooks/ci HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-Delivery: {SLOT.decode()}\r\nX-Signature: {hmac.new(KEY, body, hashlib.sha256).hexdigest()}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
