"""Messages that are too long for a result, in conversations that hooks tell of."""

from __future__ import annotations

import pytest

from harken.sessions.turns import HookMoment
from tests.hooks.rig import CLAUDE, GEMINI, QWEN, DaemonFixture, Kind

LONG = "lorem ipsum " * 5_000


@pytest.mark.parametrize("kind", [CLAUDE, GEMINI, QWEN], ids=lambda kind: kind.name)
def test_cleared_conversation_has_to_read_from_the_beginning(rig: DaemonFixture, kind: Kind) -> None:
    """What the one before was given is not in front of the model any more: it is listed again, and read again."""
    guest = rig.session(kind, "old")
    with guest.agent() as agent:
        message = rig.send(LONG)
        guest.prompt()
        (listed,) = agent.tool("wait_for_inbound_message", timeout_s=0)
        assert (listed["message_id"], listed["truncated"]) == (message, True)
        assert agent.tool("wait_for_inbound_message", timeout_s=0) == []
        first = agent.tool("inbox_read", message_id=message)
        guest.run(HookMoment.END, reason="clear")
        guest.native = "new"
        guest.run(HookMoment.START)
        guest.prompt(turn="t9")
        offset = first["next_offset"]
        while offset is not None:
            piece = agent.tool("inbox_read", message_id=message, offset=offset)
            assert piece["unread_from"] == 0
            offset = piece["next_offset"]
        assert [each["message_id"] for each in agent.tool("wait_for_inbound_message", timeout_s=0)] == [message]
        assert rig.state(message, kind.name) == "queued"
        assert agent.tool("inbox_read", message_id=message)["unread_from"] is None
        agent.tool("inbound_queue_stats")
        assert rig.state(message, kind.name) == "seen"


def test_end_of_the_turn_proves_what_was_read_in_pieces(rig: DaemonFixture) -> None:
    """As it proves every other result that was written in it."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt()
        message = rig.send(LONG)
        offset: int | None = 0
        while offset is not None:
            offset = agent.tool("inbox_read", message_id=message, offset=offset)["next_offset"]
        assert rig.state(message, CLAUDE.name) == "offered"
        guest.stop()
        assert rig.state(message, CLAUDE.name) == "seen"
