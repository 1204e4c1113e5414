"""Bells ring before the mail is there, and are silent only when nobody who is here has anything.

A bell that rings for nothing costs a question; one that is silent costs a busy agent the message.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Sequence
from datetime import datetime

import anyio
import pytest

from harken.dispatch.bells import LEFT_SECONDS, BellRinger
from harken.model import INBOX, Attention, DeliveryId, Mailbox, Message, MessageId, Priority, Reader, SessionKey
from harken.sessions.turns import TurnPhase
from tests.dispatch.rig import DispatchFixture
from tests.inbox.rig import OWNER
from tests.loss.rig import until

PROJECT = Mailbox("project:harken")


async def ringing(rig: DispatchFixture, host: str = "claude-code", *, is_on: bool) -> None:
    """Return when a host's bell is as it should be."""
    await anyio.to_thread.run_sync(lambda: until(lambda: bool(rig.bell(host)) == is_on, "the bell is right", 5))


# -- ringing -------------------------------------------------------------------------------------------------------


async def test_a_bell_rings_with_the_message_before_anybody_looked(rig: DispatchFixture) -> None:
    """The loop may be slow or the daemon die: the ring comes from the commit itself."""
    rig.come("claude-code")
    rig.come("copilot-cli")
    await rig.look()
    assert (rig.bell("claude-code"), rig.bell("copilot-cli")) == ("", "")
    await rig.say()
    assert rig.bell("claude-code")
    assert rig.bell("copilot-cli")


async def test_only_hosts_that_read_the_mailbox_hear_it(rig: DispatchFixture) -> None:
    """Every tool call of the others would pay for a message that is not theirs."""
    rig.come("claude-code", mailboxes=(PROJECT,))
    rig.come("copilot-cli")
    await rig.say(mailbox=PROJECT)
    assert rig.bell("claude-code")
    assert rig.bell("copilot-cli") == ""
    await rig.look()
    assert rig.bell("copilot-cli") == ""


async def test_mail_of_closed_sessions_rings_nothing(rig: DispatchFixture) -> None:
    """The common case on a machine with old mail: hooks must stay free of charge."""
    session = rig.come()
    await rig.say()
    rig.go(session)
    await rig.look()
    assert rig.bell() == ""
    await rig.say("another")
    assert rig.bell() == ""


async def test_a_session_that_comes_later_is_rung_for(rig: DispatchFixture) -> None:
    """After a restart of the daemon the bells are made anew from what waits and who comes back."""
    rig.come("copilot-cli")
    await rig.inbox.waiting(rig.come("claude-code").reader, {Attention.WAKE}, 1)
    rig.go(rig.sessions.live()[0])
    await rig.say()
    rig.come("claude-code", 2)
    await rig.look()
    assert rig.bell("claude-code")


async def test_what_is_unproven_rings(rig: DispatchFixture) -> None:
    """The next event of the session may prove it: that event must be asked about."""
    session = rig.come()
    await rig.look()
    session.carry("c-1", [DeliveryId("d-1")], TurnPhase.STEP)
    await rig.look()
    assert rig.bell()
    session.forget_carrier("c-1")
    await rig.look()
    assert rig.bell() == ""


async def test_what_was_taken_back_rings(rig: DispatchFixture) -> None:
    """A hook was killed before it printed: the message waits again, and the next tool call must hear of it."""
    session = rig.come()
    message = await rig.say()
    (offer,) = await rig.inbox.hand_over(session.reader, [message], surface="hook: tool", carrier="c-1")
    await rig.look()
    assert rig.bell() == ""
    assert offer.message == message
    await rig.inbox.proofs.withdraw(session.key, "c-1")
    assert rig.bell()


# -- not ringing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "priority"),
    [("nowhere", Priority.NORMAL), ("nowhere", Priority.HIGH), ("webhook", Priority.NORMAL), ("webhook", Priority.LOW)],
    ids=["unknown sender", "unknown sender, urgent", "attention prompt", "attention prompt, low"],
)
async def test_what_may_not_push_does_not_keep_ringing(rig: DispatchFixture, source: str, priority: Priority) -> None:
    """Noise and strangers wait for the next prompt, or are only counted: no tool call pays for them."""
    rig.come()
    message = await rig.say(source=source, priority=priority)
    assert message.attention in (Attention.COUNT, Attention.PROMPT)
    await rig.look()
    assert rig.bell() == ""


@pytest.mark.parametrize(
    ("kind", "name"),
    [("channel", "teams"), ("sender", "ann"), ("session", "claude-code:1"), ("session", "claude-code")],
)
async def test_what_is_muted_does_not_keep_ringing(rig: DispatchFixture, kind: str, name: str) -> None:
    """The person said so; when they take it back, what waits is rung for."""
    rig.come()
    await rig.access.mute(OWNER, kind, name)
    await rig.say()
    await rig.look()
    assert rig.bell() == ""
    await rig.access.unmute(OWNER, kind, name)
    await rig.look()
    assert rig.bell()


async def test_what_was_announced_in_this_turn_does_not_keep_ringing(rig: DispatchFixture) -> None:
    """A notice is said once a turn: ringing on would start a process at every tool call, to say nothing."""
    session = rig.come()
    first = await rig.say("first")
    session.announce(frozenset({first.id}), "mail waits")
    await rig.look()
    assert rig.bell() == ""
    await rig.say("second")
    await rig.look()
    assert rig.bell()


async def test_a_session_of_a_host_without_hooks_has_no_bell(rig: DispatchFixture) -> None:
    """Nobody would test the file."""
    rig.come("generic")
    await rig.say()
    await rig.look()
    assert [bell.name for bell in rig.folder.iterdir()] == []


# -- silence -------------------------------------------------------------------------------------------------------


async def test_a_message_between_looking_and_silencing_keeps_its_ring(rig: DispatchFixture) -> None:
    """The one race that matters: what was looked at is old when the bell is silenced."""
    rig.come()
    await rig.look()
    arrived: list[Message] = []

    async def waiting(
        reader: Reader,
        attentions: Collection[Attention],
        limit: int,
        *,
        without: Collection[MessageId] = (),
        only: Collection[MessageId] | None = None,
        since: datetime | None = None,
    ) -> Sequence[Message]:
        found = await rig.inbox.waiting(reader, attentions, limit, without=without, only=only, since=since)
        arrived.append(await rig.say("in between"))
        return found

    ringer = BellRinger(rig.bells, rig.store.changes, rig.sessions, waiting, ["claude-code"])
    ringer.note_change(rig.sessions.keys())
    rig.bells.ring("claude-code")
    await ringer.look()
    assert [message.text for message in arrived] == ["in between"]
    assert rig.bell()


async def test_a_look_between_the_ring_and_the_commit_silences_no_bell_for_long(rig: DispatchFixture) -> None:
    """Who looks then finds nothing yet: once the message is there, its bell must ring without another look."""
    rig.come()
    await rig.look()
    rig.bells.before_commit([INBOX])
    await rig.look()
    rig.bells.after_commit([])
    assert rig.bell()
    await rig.look()
    rig.bells.after_commit([])
    assert rig.bell() == "", "what was committed without mail rings no bell"


async def test_silence_does_not_undo_a_later_ring(rig: DispatchFixture) -> None:
    """Rings are counted, because a file cannot tell one ring from two."""
    rig.bells.ring("codex")
    before = rig.bells.rings("codex")
    rig.bells.ring("codex")
    rig.bells.silence("codex", before)
    assert rig.bell("codex")
    rig.bells.silence("codex", rig.bells.rings("codex"))
    assert rig.bell("codex") == ""


async def test_the_loop_rings_and_silences_by_itself(rig: DispatchFixture) -> None:
    """Whatever changes (mail, sessions, proof), the bell follows without being asked."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.wiring.ringer.run)
        session = rig.come()
        await ringing(rig, is_on=False)
        message = await rig.say()
        assert rig.bell()
        (offer,) = await rig.inbox.hand_over(session.reader, [message], surface="hook: tool", carrier="c-1")
        rig.sessions.note_change()
        await ringing(rig, is_on=False)
        await rig.inbox.proofs.release(session.key, ["c-1"])
        await ringing(rig, is_on=True)
        await rig.inbox.proofs.prove([offer.delivery_id], "ack")
        rig.sessions.note_change()
        await ringing(rig, is_on=False)
        tasks.cancel_scope.cancel()


async def test_the_loop_notices_that_the_last_session_has_gone(rig: DispatchFixture) -> None:
    """Nothing else would silence a bell that rang for it."""
    session = rig.come()
    await rig.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.wiring.ringer.run)
        await ringing(rig, is_on=True)
        rig.go(session)
        await ringing(rig, is_on=False)
        tasks.cancel_scope.cancel()


# -- files ---------------------------------------------------------------------------------------------------------


async def test_a_session_bell_exists_before_it_rings_and_changes_with_every_ring(rig: DispatchFixture) -> None:
    """Hosts watch only a file that is there, and wake when it changes, not when it is written the same."""
    session = rig.come()
    path = rig.bells.path(session.key)
    contents = [path.read_text()]
    for _ in range(3):
        assert rig.bells.ring_session(session.key)
        contents.append(path.read_text())
    assert len(set(contents)) == 4


async def test_a_session_bell_goes_with_its_session(rig: DispatchFixture) -> None:
    """The folder must not fill up with the bells of the dead."""
    kept, gone = rig.come(number=1), rig.come(number=2)
    paths = [rig.bells.path(session.key) for session in (kept, gone)]
    await rig.look()
    rig.go(gone)
    await rig.look()
    assert [path.exists() for path in paths] == [True, False]


@pytest.mark.parametrize("native", ["../../etc/passwd", "a/b", "x\0y", "ü" * 128, "..", "", "$(reboot)"])
async def test_a_hostile_session_name_stays_in_the_folder(rig: DispatchFixture, native: str) -> None:
    """The name is the host's to choose, the folder is ours."""
    path = rig.bells.path(SessionKey(f"copilot-cli:{native}"))
    assert path.parent == rig.folder
    assert path.is_file()
    assert not path.is_symlink()


async def test_bells_are_for_their_owner_only(rig: DispatchFixture) -> None:
    """Who has mail, and when, is nobody else's business."""
    rig.come()
    await rig.say()
    rig.bells.path(SessionKey("claude-code:1"))
    assert {bell.stat().st_mode & 0o777 for bell in rig.folder.iterdir()} == {0o600}


async def test_what_an_earlier_daemon_left_is_removed(rig: DispatchFixture) -> None:
    """A bell that rings for nobody would cost every tool call a question; what a live host watches must stay."""
    ringing, watched, forgotten = (rig.folder / name for name in ("claude-code", "session-now", "session-old"))
    for bell in (ringing, watched, forgotten):
        bell.write_text("1\n")
    long_ago = time.time() - LEFT_SECONDS - 60
    os.utime(forgotten, (long_ago, long_ago))
    rig.bells.clear()
    assert list(rig.folder.iterdir()) == [watched]
    rig.come()
    await rig.say()
    assert rig.bell()


async def test_a_bell_that_cannot_be_rung_costs_no_message(rig: DispatchFixture) -> None:
    """The folder is gone or the disk is full: mail is accepted all the same, and rings when it can."""
    rig.come()
    shutil.rmtree(rig.folder)
    message = await rig.say()
    assert (await rig.store.messages.get(message.id)).text == "is it done?"
    rig.folder.mkdir()
    await rig.look()
    assert rig.bell()
