"""The client keeps the limit of a mailbox. What else it does at the service, the tests of Teams and Outlook show."""

from __future__ import annotations

from typing import Final

import anyio
import pytest

from harken.sources.http import part
from tests.graph.service import Graph
from tests.sources.microsoft.teams_rig import rigged

LOOK_SECONDS: Final = 0.01
LOOKS: Final = 1_000


async def four_are_inside(graph: Graph) -> None:
    """Return when the service, in its own thread, works on four requests."""
    for _ in range(LOOKS):
        if graph.door.holds.inside == 4:
            return
        await anyio.sleep(LOOK_SECONDS)
    pytest.fail("four requests were never made at once")


async def test_a_mailbox_is_asked_four_things_at_once_and_no_more(graph: Graph) -> None:
    """More are turned away by the service; fewer would be slower than it allows."""
    for number in range(12):
        graph.mail(graph.person("Ann"), f"{number}", "<p>x</p>")
    async with rigged(graph) as rig:
        page = await rig.client.get("/me/messages", {"$select": "id", "$top": "50"}, lane="mailbox")
        mails = page["value"]
        assert isinstance(mails, list)
        async with anyio.create_task_group() as group:
            with graph.holding("/me/messages/"):
                for mail in mails:
                    path = f"/me/messages/{part(str(mail['id']))}"
                    group.start_soon(lambda each: rig.client.get(each, lane="mailbox"), path)
                await four_are_inside(graph)
    assert len(graph.asked("/me/messages/")) == 12
    assert graph.limits.most_open == 4
    assert {asked.status for asked in graph.requests} == {200}
