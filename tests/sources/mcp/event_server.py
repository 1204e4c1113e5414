"""A server of events on a pipe, for tests: standard library only, and only the dialect that it is told to speak.

`event_server.py DIALECT WAYS LOG [KILL]`: `sep` declares the extension and knows the numbers of SEP-3415 and
the era of 2026 only, `sketch` declares the capability at the top in the handshake of 2025. WAYS is a list such as
`poll,push`. It has `incident.created`, so many as EVENTS in its
environment says, and notes in LOG from which cursor it was asked; with KILL it
dies, as by `kill -9`, before it writes its line of that number.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path

DIALECT, WAYS, LOG = sys.argv[1], sys.argv[2].split(","), Path(sys.argv[3])
KILL = int(sys.argv[4]) if sys.argv[4:] else 0
EVENTS = int(os.environ["EVENTS"])
NAME = "incident.created"
IS_SEP = DIALECT == "sep"
LINES = itertools.count(1)


def say(value: dict[str, object]) -> None:
    """Write one line, or die instead: but only in the first life, which the log tells."""
    if next(LINES) == KILL and not LOG.with_suffix(".died").exists():
        LOG.with_suffix(".died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **value}) + "\n")
    sys.stdout.flush()


def result(asked: dict[str, object], value: dict[str, object]) -> None:
    """Answer a request."""
    say({"id": asked["id"], "result": {**value, "resultType": "complete"} if IS_SEP else value})


def refuse(asked: dict[str, object], sketch: int, sep: int) -> None:
    """Refuse a request with the number of our dialect."""
    say({"id": asked["id"], "error": {"code": sep if IS_SEP else sketch, "message": "no"}})


def event(number: int) -> dict[str, object]:
    """Return one event."""
    stamp = f"2026-11-18T08:00:{number:02}Z"
    return {"eventId": f"i-{number}", "name": NAME, "timestamp": stamp, "data": {"incident": number}}


def first(params: dict[str, object]) -> int:
    """Return the number of the first event after a cursor; without one, all are new: this is a test."""
    cursor = params.get("cursor")
    with LOG.open("a") as log:
        log.write(f"{cursor}\n")
    return int(str(cursor)) + 1 if cursor else 1


def stream(asked: dict[str, object], params: dict[str, object]) -> None:
    """Push everything after the cursor."""
    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]}}
    start = first(params)

    def tell(what: str, told: dict[str, object]) -> None:
        say({"method": f"notifications/events/{what}", "params": {**told, **meta}})

    tell("active", {"cursor": str(start - 1), "truncated": False})
    for number in range(start, EVENTS + 1):
        tell("event", {**event(number), "cursor": str(number)})
        tell("heartbeat", {"cursor": str(number)})


def poll(asked: dict[str, object], params: dict[str, object]) -> None:
    """Answer with at most two events."""
    start = first(params)
    told = [event(number) for number in range(start, min(start + 2, EVENTS + 1))]
    last = start + len(told) - 1
    more = {"truncated": False, "hasMore": last < EVENTS, "nextPollMs": 30_000}
    result(asked, {"events": told, "cursor": str(last), **more})


def answer(asked: dict[str, object]) -> None:
    """Answer one request."""
    found = asked.get("params")
    params = found if isinstance(found, dict) else {}
    offered: dict[str, object] = {"extensions": {"io.modelcontextprotocol/events": {}}} if IS_SEP else {"events": {}}
    match asked.get("method"):
        case "initialize" if not IS_SEP:
            info = {"serverInfo": {"name": "events", "version": "1"}}
            result(asked, {"protocolVersion": "2025-11-25", "capabilities": offered, **info})
        case "server/discover" if IS_SEP:
            result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": offered})
        case "events/list":
            kinds = [{"name": "secret", "delivery": WAYS}, {"name": NAME, "delivery": ["push", *WAYS]}]
            result(asked, {"events": kinds, "nextCursor": "2"} if "cursor" not in params else {"events": []})
        case "events/stream" | "events/poll" if params["name"] == "secret":
            refuse(asked, -32012, -32024)
        case "events/stream":
            stream(asked, params) if "push" in WAYS else refuse(asked, -32014, -32026)
        case "events/poll":
            poll(asked, params)
        case _ if "id" in asked:
            refuse(asked, -32601, -32601)


for line in sys.stdin:
    answer(json.loads(line))
