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
from harken.model import Attention, DeliveryId, Mailbox, Message, MessageId, Priority, Reader, SessionKey
from harken.sessions.turns import TurnPhase
from tests.dispatch.rig import House
from tests.inbox.rig import OWNER
from tests.loss.rig import until

PROJECT = Mailbox("project:harken")


async def ringing(house: House, host: str = "claude-code", *, is_on: bool) -> None:
    """Return when a host's bell is as it should be."""
    await anyio.to_thread.run_sync(lambda: until(lambda: bool(house.bell(host)) == is_on, "the bell is right", 5))


# -- ringing -------------------------------------------------------------------------------------------------------


async def test_a_bell_rings_with_the_message_before_anybody_looked(house: House) -> None:
    """The loop may be slow or the daemon die: the ring comes from the commit itself."""
    house.come("claude-code")
    house.come("copilot-cli")
    await house.look()
    assert (house.bell("claude-code"), house.bell("copilot-cli")) == ("", "")
    await house.say()
    assert house.bell("claude-code")
    assert house.bell("copilot-cli")


async def test_only_hosts_that_read_the_mailbox_hear_it(house: House) -> None:
    """Every tool call of the others would pay for a message that is not theirs."""
    house.come("claude-code", mailboxes=(PROJECT,))
    house.come("copilot-cli")
    await house.say(mailbox=PROJECT)
    assert house.bell("claude-code")
    assert house.bell("copilot-cli") == ""
    await house.look()
    assert house.bell("copilot-cli") == ""


async def test_mail_of_closed_sessions_rings_nothing(house: House) -> None:
    """The common case on a machine with old mail: hooks must stay free of charge."""
    session = house.come()
    await house.say()
    house.go(session)
    await house.look()
    assert house.bell() == ""
    await house.say("another")
    assert house.bell() == ""


async def test_a_session_that_comes_later_is_rung_for(house: House) -> None:
    """After a restart of the daemon the bells are made anew from what waits and who comes back."""
    house.come("copilot-cli")
    await house.inbox.waiting(house.come("claude-code").reader, {Attention.WAKE}, 1)
    house.go(house.sessions.live()[0])
    await house.say()
    house.come("claude-code", 2)
    await house.look()
    assert house.bell("claude-code")


async def test_what_is_unproven_rings(house: House) -> None:
    """The next event of the session may prove it: that event must be asked about."""
    session = house.come()
    await house.look()
    session.carry("c-1", [DeliveryId("d-1")], TurnPhase.STEP)
    await house.look()
    assert house.bell()
    session.forget_carrier("c-1")
    await house.look()
    assert house.bell() == ""


async def test_what_was_taken_back_rings(house: House) -> None:
    """A hook was killed before it printed: the message waits again, and the next tool call must hear of it."""
    session = house.come()
    message = await house.say()
    (offer,) = await house.inbox.hand_over(session.reader, [message], surface="hook: tool", carrier="c-1")
    await house.look()
    assert house.bell() == ""
    assert offer.message == message
    await house.inbox.proofs.withdraw(session.key, "c-1")
    assert house.bell()


# -- not ringing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "priority"),
    [("nowhere", Priority.NORMAL), ("nowhere", Priority.HIGH), ("webhook", Priority.NORMAL), ("webhook", Priority.LOW)],
    ids=["unknown sender", "unknown sender, urgent", "attention prompt", "attention prompt, low"],
)
async def test_what_may_not_push_does_not_keep_ringing(house: House, source: str, priority: Priority) -> None:
    """Noise and strangers wait for the next prompt, or are only counted: no tool call pays for them."""
    house.come()
    message = await house.say(source=source, priority=priority)
    assert message.attention in (Attention.COUNT, Attention.PROMPT)
    await house.look()
    assert house.bell() == ""


@pytest.mark.parametrize(
    ("kind", "name"),
    [("channel", "teams"), ("sender", "ann"), ("session", "claude-code:1"), ("session", "claude-code")],
)
async def test_what_is_muted_does_not_keep_ringing(house: House, kind: str, name: str) -> None:
    """The person said so; when they take it back, what waits is rung for."""
    house.come()
    await house.access.mute(OWNER, kind, name)
    await house.say()
    await house.look()
    assert house.bell() == ""
    await house.access.unmute(OWNER, kind, name)
    await house.look()
    assert house.bell()


async def test_what_was_announced_in_this_turn_does_not_keep_ringing(house: House) -> None:
    """A notice is said once a turn: ringing on would start a process at every tool call, to say nothing."""
    session = house.come()
    first = await house.say("first")
    session.announce(frozenset({first.id}), "mail waits")
    await house.look()
    assert house.bell() == ""
    await house.say("second")
    await house.look()
    assert house.bell()


async def test_a_session_of_a_host_without_hooks_has_no_bell(house: House) -> None:
    """Nobody would test the file."""
    house.come("generic")
    await house.say()
    await house.look()
    assert [bell.name for bell in house.folder.iterdir()] == []


# -- silence -------------------------------------------------------------------------------------------------------


async def test_a_message_between_looking_and_silencing_keeps_its_ring(house: House) -> None:
    """The one race that matters: what was looked at is old when the bell is silenced."""
    house.come()
    await house.look()
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
        found = await house.inbox.waiting(reader, attentions, limit, without=without, only=only, since=since)
        arrived.append(await house.say("in between"))
        return found

    ringer = BellRinger(house.bells, house.store.changes, house.sessions, waiting, ["claude-code"])
    ringer.note_change()
    house.bells.ring("claude-code")
    await ringer.look()
    assert [message.text for message in arrived] == ["in between"]
    assert house.bell()


async def test_silence_does_not_undo_a_later_ring(house: House) -> None:
    """Rings are counted, because a file cannot tell one ring from two."""
    house.bells.ring("codex")
    before = house.bells.rings("codex")
    house.bells.ring("codex")
    house.bells.silence("codex", before)
    assert house.bell("codex")
    house.bells.silence("codex", house.bells.rings("codex"))
    assert house.bell("codex") == ""


async def test_the_loop_rings_and_silences_by_itself(house: House) -> None:
    """Whatever changes (mail, sessions, proof), the bell follows without being asked."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.wiring.ringer.run)
        session = house.come()
        await ringing(house, is_on=False)
        message = await house.say()
        assert house.bell()
        (offer,) = await house.inbox.hand_over(session.reader, [message], surface="hook: tool", carrier="c-1")
        house.sessions.note_change()
        await ringing(house, is_on=False)
        await house.inbox.proofs.release(session.key, ["c-1"])
        await ringing(house, is_on=True)
        await house.inbox.proofs.prove([offer.delivery_id], "ack")
        house.sessions.note_change()
        await ringing(house, is_on=False)
        tasks.cancel_scope.cancel()


async def test_the_loop_notices_that_the_last_session_has_gone(house: House) -> None:
    """Nothing else would silence a bell that rang for it."""
    session = house.come()
    await house.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.wiring.ringer.run)
        await ringing(house, is_on=True)
        house.go(session)
        await ringing(house, is_on=False)
        tasks.cancel_scope.cancel()


# -- files ---------------------------------------------------------------------------------------------------------


async def test_a_session_bell_exists_before_it_rings_and_changes_with_every_ring(house: House) -> None:
    """Hosts watch only a file that is there, and wake when it changes, not when it is written the same."""
    session = house.come()
    path = house.bells.path(session.key)
    contents = [path.read_text()]
    for _ in range(3):
        assert house.bells.ring_session(session.key)
        contents.append(path.read_text())
    assert len(set(contents)) == 4


async def test_a_session_bell_goes_with_its_session(house: House) -> None:
    """The folder must not fill up with the bells of the dead."""
    kept, gone = house.come(number=1), house.come(number=2)
    paths = [house.bells.path(session.key) for session in (kept, gone)]
    await house.look()
    house.go(gone)
    await house.look()
    assert [path.exists() for path in paths] == [True, False]


@pytest.mark.parametrize("native", ["../../etc/passwd", "a/b", "x\0y", "ü" * 128, "..", "", "$(reboot)"])
async def test_a_hostile_session_name_stays_in_the_folder(house: House, native: str) -> None:
    """The name is the host's to choose, the folder is ours."""
    path = house.bells.path(SessionKey(f"copilot-cli:{native}"))
    assert path.parent == house.folder
    assert path.is_file()
    assert not path.is_symlink()


async def test_bells_are_for_their_owner_only(house: House) -> None:
    """Who has mail, and when, is nobody else's business."""
    house.come()
    await house.say()
    house.bells.path(SessionKey("claude-code:1"))
    assert {bell.stat().st_mode & 0o777 for bell in house.folder.iterdir()} == {0o600}


async def test_what_an_earlier_daemon_left_is_removed(house: House) -> None:
    """A bell that rings for nobody would cost every tool call a question; what a live host watches must stay."""
    ringing, watched, forgotten = (house.folder / name for name in ("claude-code", "session-now", "session-old"))
    for bell in (ringing, watched, forgotten):
        bell.write_text("1\n")
    long_ago = time.time() - LEFT_SECONDS - 60
    os.utime(forgotten, (long_ago, long_ago))
    house.bells.clear()
    assert list(house.folder.iterdir()) == [watched]
    house.come()
    await house.say()
    assert house.bell()


async def test_a_bell_that_cannot_be_rung_costs_no_message(house: House) -> None:
    """The folder is gone or the disk is full: mail is accepted all the same, and rings when it can."""
    house.come()
    shutil.rmtree(house.folder)
    message = await house.say()
    assert (await house.store.messages.get(message.id)).text == "is it done?"
    house.folder.mkdir()
    await house.look()
    assert house.bell()
