"""Answers of a server that are JSON, and nothing like what was asked for. Found by `make fuzz`."""

from __future__ import annotations

import httpx2
import pytest

from harken.sources.mcp.link import EventPositions
from harken.sources.mcp.protocol import RpcAnswer
from harken.sources.mcp.web import retry_after


@pytest.mark.parametrize(
    ("delivery", "names"),
    [
        (None, ["build"]),
        ([], ["build"]),
        (["push"], ["build"]),
        ("push", ["build"]),
        (["poll"], []),
        (5, []),
        (True, []),
        (1.5, []),
        ({"push": {}}, []),
    ],
)
def test_event_with_any_delivery_is_taken_or_left_out(delivery: object, names: list[str]) -> None:
    """A number where a list belongs once ended the whole connection to the server, again and again."""
    event = {"name": "build", "delivery": delivery}
    offered = EventPositions("", "").wanted(RpcAnswer(1, {"events": [event]}))
    assert [each.name for each in offered if each.is_pushed] == names


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 05 Jan 2026 10:00:00 +99999999999999999999",
        "Mon, 05 Jan 99999999999 10:00:00 GMT",
        "Mon, 05 Jan 2026 99:99:99 GMT",
        "0 Jan 0",
        "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_time_to_wait_until_that_cannot_be_is_none(date: str) -> None:
    """A server that is busy says when to come back; whatever it says, the link only tries again by its own clock."""
    raw = [(b"retry-after", date.encode("latin-1")), (b"date", date.encode("latin-1"))]
    assert retry_after(httpx2.Response(503, headers=raw)) is None
