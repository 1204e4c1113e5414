"""When it is journaled that a session has nothing to do, and who is told of it by events."""

from __future__ import annotations

from typing import Final

import pytest

from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient, edge_command
from tests.hooks.rig import CLAUDE, CODEX, COPILOT, Conversation, DaemonFixture, Json, Kind

some_hosts = pytest.mark.parametrize("kind", [CLAUDE, COPILOT], ids=lambda kind: kind.name)
WAITING: Final = "session.waiting"


def rests(rig: DaemonFixture) -> list[Json]:
    """Return what the journal says of sessions."""
    return [each for each in rig.daemon.call("journal", after=0, limit=1_000)["events"] if each["kind"] == "session"]


def poll(client: EdgeClient, cursor: str | None = None, **arguments: str) -> Json:
    """Ask for sessions that wait."""
    return client.request("events/poll", {"name": WAITING, "cursor": cursor, "arguments": arguments})["result"]


def told(guest: Conversation) -> Json:
    """Return what is told of a session of a host."""
    name = guest.kind.name
    return {"session": guest.key, "agent": name, "consumer": name, "host": name, "mailboxes": ["inbox"]}


@some_hosts
def test_end_of_a_turn_is_told_once_to_others(rig: DaemonFixture, kind: Kind) -> None:
    """Whoever hands out work wants to know who is free; a session that goes on, or begins, is not."""
    guest = rig.session(kind)
    with rig.session(CODEX, native="other").agent() as agent:
        cursor = poll(agent)["cursor"]
        guest.run(HookMoment.START)
        guest.prompt()
        guest.tool()
        assert poll(agent, cursor)["events"] == []
        rig.send("one more thing")
        assert "one more thing" in guest.stop()
        assert poll(agent, cursor)["events"] == []
        assert guest.stop(is_held=True) == ""
        assert guest.stop(is_held=True) == ""
        assert [each["data"] for each in poll(agent, cursor)["events"]] == [told(guest)]
        assert poll(agent, cursor, agent=kind.name)["events"] != []
        assert poll(agent, cursor, agent="codex")["events"] == []
        guest.prompt(turn="t2")
        guest.stop()
    assert len(rests(rig)) == 2


def test_interrupted_turn_is_told_and_a_restart_tells_nothing_again(rig: DaemonFixture) -> None:
    """A session waits for its person after Esc too; that the daemon was killed is not news about the session."""
    guest = rig.session(CODEX)
    guest.prompt()
    guest.interrupt()
    assert [each["session"] for each in rests(rig)] == [guest.key]
    rig.daemon.kill()
    rig.daemon.start()
    guest.interrupt()
    assert len(rests(rig)) == 1


def test_client_that_waits_is_told_once_until_it_was_given_something(rig: DaemonFixture) -> None:
    """A client without hooks waits again and again, for a minute each; that is one rest, and its own is not told."""
    with (
        EdgeClient(edge_command(rig.daemon.home), name="editor") as editor,
        rig.session(CODEX, native="other").agent() as other,
    ):
        mine, cursor = poll(editor)["cursor"], poll(other)["cursor"]
        for _ in range(2):
            assert editor.tool("wait_for_inbound_message", timeout_s=0.05) == []
        assert len(rests(rig)) == 1
        rig.send("do this")
        assert len(editor.tool("wait_for_inbound_message", timeout_s=5)) == 1
        assert len(rests(rig)) == 1
        assert editor.tool("wait_for_inbound_message", timeout_s=0.05) == []
        assert len(rests(rig)) == 2
        assert [each["data"]["agent"] for each in poll(other, cursor)["events"]] == ["editor", "editor"]
        assert poll(editor, mine)["events"] == []
