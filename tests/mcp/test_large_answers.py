"""An answer has a size that the way to the host can carry; what does not fit is not lost on it."""

from __future__ import annotations

import json

import anyio
from anyio.abc import ByteSendStream

from harken.budget import MAX_LINE
from harken.surfaces.mcp.server import Outlet
from harken.testing import DaemonProcess
from tests.mcp.rig import Connect, fresh_name, ids, standing

MESSAGES = 80
BODY = '"\\\n' * 500
"""Every character takes two bytes as JSON: all together are more than one answer may have, of any host."""


class Wire(ByteSendStream):
    """The way out, which keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, item: bytes) -> None:
        """Keep it."""
        self.sent.append(item)

    async def aclose(self) -> None:
        """Nothing is open."""


def test_what_does_not_fit_into_one_answer_is_pulled_with_the_next(daemon: DaemonProcess, connect: Connect) -> None:
    """Mail of one busy night must reach the agent, and count as seen only as far as it did."""
    agent = connect(name := fresh_name())
    with daemon.caller() as caller:
        sent = [str(caller.call("send", text=f"{n} {BODY}", sender="bulk")["id"]) for n in range(MESSAGES)]

    received: list[str] = []
    while len(received) < MESSAGES:
        pulled = agent.tool("inbox_pull", limit=100)
        given = ids([each for each in pulled["messages"] if "truncated" not in each])
        assert given
        received += given
        assert pulled["unread_remaining"] == MESSAGES - len(received)
        if len(received) < MESSAGES:
            assert standing(daemon, sent[len(received)], name) == ("queued", "")
            assert standing(daemon, sent[-1], name) == ("queued", "")
    assert received == sent
    agent.tool("inbound_queue_stats")
    assert standing(daemon, sent[-1], name) == ("seen", "later call")


async def test_an_answer_too_large_for_a_line_becomes_an_error() -> None:
    """No edge would relay it: the host is told, and what the answer carried is not taken for handed over."""
    wire, answered, lost = Wire(), list[str](), list[str]()
    outlet = Outlet(wire, answered.append, lost.append)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outlet.run)
            for request, size in ((7, MAX_LINE), (8, MAX_LINE - 1)):
                await outlet.answer(request, b"x" * (size - len("\n")))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    outlet.close()
    error, fits = wire.sent
    assert json.loads(error)["id"] == 7
    assert json.loads(error)["error"]["message"] == "The answer is too large; ask for less at once."
    assert len(fits) == MAX_LINE - 1
    assert (lost, answered) == (["7"], ["8"])
