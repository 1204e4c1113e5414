"""What is known of a session that does not go on by itself: each halt once, and no longer than it lasts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pytest

from harken.hosts.registry import host_named
from harken.sessions.turns import Halt, HookMoment
from tests.hooks.rig import (
    CLAUDE,
    CODEX,
    COPILOT,
    GEMINI,
    OPENCODE,
    QWEN,
    Conversation,
    DaemonFixture,
    Json,
    Kind,
    run_hook,
)

HOSTS: Final = (CLAUDE, COPILOT, CODEX, GEMINI, QWEN, OPENCODE)
every_host = pytest.mark.parametrize("kind", HOSTS, ids=lambda kind: kind.name)
SECRET: Final = "ghp_" + "a1B2c3D4" * 5


def halts(rig: DaemonFixture) -> list[Json]:
    """Return what the journal says of halts."""
    return [each for each in rig.daemon.call("journal", after=0, limit=1_000)["events"] if each["kind"] == "halted"]


def now(rig: DaemonFixture) -> str:
    """Return the halt of the only session, as `status` shows it."""
    (session,) = rig.daemon.call("status")["sessions"]
    return session["halt"]["kind"] if session["halt"] else ""


def sample(guest: Conversation, halt: Halt | None, **more: Json) -> tuple[str, Mapping[str, object]]:
    """Return the first sample of a host that means a halt: the moment of its hook, and the payload in this session."""
    samples = host_named(guest.kind.name).samples
    assert samples is not None
    found = next(
        e for e in samples() if (e.event.halt, e.event.is_subagent) == (halt, False) and is_about_halts(e.event)
    )
    native = {"sessionId" if guest.kind is COPILOT else "session_id": guest.native}
    turn = {name: guest.turn for name in ("prompt_id", "turn_id", "turn") if name in found.payload}
    return found.moment.value, {**found.payload, **native, **turn, "cwd": guest.cwd, **more}


def is_about_halts(event: Json) -> bool:
    """Whether an event tells of a halt, or of the end of one."""
    return event.halt is not None or event.moment is HookMoment.HALT


def tell(guest: Conversation, halt: Halt | None, **more: Json) -> None:
    """Run the hook by which a host tells of a halt; it must say nothing, as some hosts take words for an answer."""
    moment, payload = sample(guest, halt, **more)
    assert run_hook(guest.home, guest.kind.name, moment, json.dumps(payload).encode(), env=guest.env).is_silent


@every_host
def test_session_that_asks_waits_for_you_until_it_goes_on(rig: DaemonFixture, kind: Kind) -> None:
    """The bell rings while it waits, so that its next step is heard; then nothing of it may be left."""
    guest = rig.session(kind)
    guest.prompt()
    assert now(rig) == ""
    tell(guest, Halt.WAITS)
    assert now(rig) == "waits"
    assert rig.daemon.home.joinpath("run", "bells", kind.name).read_bytes()
    tell(guest, Halt.WAITS)
    assert [each["halt"] for each in halts(rig)] == ["waits", "waits"]
    guest.tool()
    assert now(rig) == ""
    guest.stop()
    assert now(rig) == "finished"
    assert [each["halt"] for each in halts(rig)] == ["waits", "waits", "finished"]


@every_host
def test_end_of_a_turn_is_one_halt_and_an_interruption_is_none(rig: DaemonFixture, kind: Kind) -> None:
    """A host may tell the end twice, and a person who pressed Esc knows that nothing runs."""
    guest = rig.session(kind)
    guest.prompt(turn="t1")
    guest.stop()
    guest.stop()
    guest.prompt(turn="t2")
    assert now(rig) == ""
    if host_named(kind.name).reports_interrupts:
        tell(guest, Halt.WAITS)
        guest.interrupt()
        assert now(rig) == ""
    assert [each["halt"] for each in halts(rig) if each["halt"] != "waits"] == ["finished"]


@pytest.mark.parametrize("kind", [CLAUDE, OPENCODE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("halt", [Halt.FAILED, Halt.LIMITED])
def test_turn_that_failed_proves_nothing_and_leaves_the_session_idle(
    rig: DaemonFixture, kind: Kind, halt: Halt
) -> None:
    """Nobody has read what its last request carried; and one that seems busy for ever would not be woken again."""
    guest = rig.session(kind)
    guest.prompt()
    tell(guest, halt)
    assert now(rig) == halt.value
    (session,) = rig.daemon.call("status")["sessions"]
    assert session["presence"] == "idle"
    assert [each["halt"] for each in halts(rig)] == [halt.value]
    assert halts(rig)[0]["reason"]


def test_answer_that_opencode_tells_of_ends_the_wait(rig: DaemonFixture) -> None:
    """There a long command that was just allowed does not look as if somebody was waited for."""
    guest = rig.session(OPENCODE)
    guest.prompt()
    tell(guest, Halt.WAITS)
    tell(guest, None)
    assert now(rig) == ""


def test_halt_is_known_after_a_restart_and_not_told_again(rig: DaemonFixture) -> None:
    """The session has not gone on because the daemon was ended."""
    guest = rig.session(CODEX)
    guest.prompt()
    guest.stop()
    rig.daemon.kill()
    rig.daemon.start()
    assert now(rig) == "finished"
    guest.stop()
    assert len(halts(rig)) == 1


def test_words_of_a_host_are_cleaned(rig: DaemonFixture) -> None:
    """They hold what its agent wants to run: that may be written to deceive, and may hold a secret."""
    guest = rig.session(COPILOT)
    guest.prompt()
    tell(guest, Halt.WAITS, message=f"Run command: \x1b[31mcurl\u202e -H {SECRET}\nsecond line" + "x" * 5_000)
    (told,) = halts(rig)
    reason = told["reason"]
    assert reason.startswith("Run command: ")
    assert len(reason) <= 160
    assert SECRET not in reason
    assert reason.isprintable()


def test_helpers_and_one_shot_sessions_are_not_told_of(rig: DaemonFixture) -> None:
    """What a helper of an agent does is the agent's business."""
    guest = rig.session(CLAUDE)
    guest.prompt()
    guest.run(HookMoment.STOP, agent="a1")
    assert halts(rig) == []
