"""The last look at a result: one that is too large for its host is not given, and nothing of it counts as given."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harken.errors import Unavailable
from harken.sessions.proof import CallLog
from harken.verbs.verb import AgentTool, ToolAnswer, ToolCall, result_of
from tests.inbox.tasks_rig import OWNER, open_workshop
from tests.mcp.call_rig import called

BYTES = 1_000


class Nothing(msgspec.Struct):
    """Arguments of a tool that needs none."""


async def _everything(call: ToolCall, _arguments: Nothing) -> ToolAnswer:
    """Give all that waits, however long it is: what no tool of ours does."""
    pulled = await call.inbox.pull(call.reader, surface="everything", carrier=call.carrier)
    call.note(pulled.offers)
    return ToolAnswer([offer.message.text for offer in pulled.offers], pulled.remaining)


EVERYTHING = AgentTool(name="everything", title="", description="", arguments=Nothing, run=_everything)


async def test_result_that_is_too_large_is_refused_and_taken_back(tmp_path: Path) -> None:
    """Should a size ever be misjudged, the agent is told; it must not cost a message."""
    log = CallLog("edge")
    async with open_workshop(tmp_path) as shop:
        session = shop.session(shop.folder("elsewhere"))
        for text in ("x" * BYTES, "still red"):
            await shop.inbox.send(OWNER, text)
        with pytest.raises(Unavailable, match="too large for this host"):
            await result_of(EVERYTHING, called(shop, session, log, "1", result_bytes=BYTES), {})
        log.answer("1")
        called(shop, session, log, "2", result_bytes=BYTES)
        assert list(log.proven_by("2")) == []
        again = await shop.inbox.pull(session.reader, surface="pull", carrier="edge/2")
        assert [(offer.message.text[:5], offer.is_repeat) for offer in again.offers] == [
            ("xxxxx", False),
            ("still", False),
        ]


async def test_result_that_fits_is_given(tmp_path: Path) -> None:
    """To the byte."""
    log = CallLog("edge")
    async with open_workshop(tmp_path) as shop:
        session = shop.session(shop.folder("elsewhere"))
        await shop.inbox.send(OWNER, "x" * (BYTES - len('[""]')))
        (text,) = await result_of(EVERYTHING, called(shop, session, log, "1", result_bytes=BYTES), {})
        assert len(text) == BYTES
        log.answer("1")
        called(shop, session, log, "2", result_bytes=BYTES)
        assert len(log.proven_by("2")) == 1
