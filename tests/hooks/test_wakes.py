"""Waking an idle session for real: Claude Code by its bell, others by a program that waits beside them.

The daemon decides whom to wake and writes the text; here is the other end, as a plugin or a hook is one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from harken.sessions.turns import HookMoment
from tests.hooks.rig import CLAUDE, COPILOT, QWEN, Conversation, DaemonFixture, Json, run_hook
from tests.loss.rig import Wire, until

REPEAT = "Repeat: offered before without proof that it arrived"


def hello_of(guest: Conversation, *, is_once: bool = False) -> Json:
    """Return what a program beside a host says first."""
    return {
        "harken": 1, "kind": "wake", "pid": os.getpid(), "ppid": os.getpid(), "cwd": "/", "env": {}, "token": "",
        "host": guest.kind.name, "native": guest.native, "once": is_once,
    }  # fmt: skip


@contextmanager
def waiting_beside(rig: DaemonFixture, guest: Conversation, *, is_once: bool = False) -> Iterator[Wire]:
    """Wait to wake a session, as an extension does."""
    with Wire(rig.daemon.socket, hello_of(guest, is_once=is_once)) as wire:
        until(lambda: any(each["can_wake"] for each in rig.sessions()), "the way to wake is known", 10)
        yield wire


def bell_of(guest: Conversation) -> Path:
    """Start a Claude Code session; return the bell that it is told to watch."""
    said = json.loads(guest.run(HookMoment.START).out)
    (path,) = said["hookSpecificOutput"]["watchPaths"]
    return Path(path)


def test_the_bell_of_an_idle_session_changes_and_its_hook_brings_the_message(rig: DaemonFixture) -> None:
    """Claude Code watches the file, runs the hook, and starts a turn with what that prints to stderr."""
    guest = rig.session(CLAUDE)
    bell = bell_of(guest)
    assert bell.exists()
    before = bell.read_text()
    message = rig.send("please look", sender="ann")
    until(lambda: bell.read_text() != before, "the session's bell rings", 10)
    woken = guest.run(HookMoment.BELL)
    assert (woken.code, woken.out) == (2, "")
    assert "please look" in woken.err
    line = rig.ledger(message, CLAUDE.name)
    assert (line["state"], line["surface"]) == ("offered", "wake: bell")
    prompt = f"<system-reminder>\nHarken: {woken.err}\n</system-reminder>"
    assert guest.prompt(prompt, turn="w1") == ""
    assert rig.state(message, CLAUDE.name) == "offered"
    guest.stop()
    line = rig.ledger(message, CLAUDE.name)
    assert (line["state"], line["evidence"], line["offers"]) == ("seen", "end of turn", 1)


def test_a_bell_hook_with_nothing_waiting_does_not_start_a_turn(rig: DaemonFixture) -> None:
    """Exit code 2 starts one: it is for a text only."""
    guest = rig.session(CLAUDE)
    bell_of(guest)
    assert guest.run(HookMoment.BELL).is_silent


def test_the_bell_of_a_busy_session_stays_as_it_is(rig: DaemonFixture) -> None:
    """The text would be queued behind the turn, and start one of its own after Esc."""
    guest = rig.session(CLAUDE)
    bell = bell_of(guest)
    guest.prompt()
    before = bell.read_text()
    rig.send("please look")
    assert "please look" in guest.tool()
    guest.stop()
    assert bell.read_text() == before


def test_noise_and_strangers_ring_no_bell(rig: DaemonFixture) -> None:
    """They are there before something that does ring it: so the daemon has looked at them by then."""
    guest = rig.session(CLAUDE)
    bell = bell_of(guest)
    rig.daemon.call("deny", sender="spam")
    rig.send("noise", sender="ci-bot", channel="ci")
    rig.send("buy now", sender="spam", priority="high")
    rig.send("at a boundary", channel="desk")
    before = bell.read_text()
    rig.send("please look", sender="ann")
    until(lambda: bell.read_text() != before, "the session's bell rings", 10)
    assert (before, bell.read_text().split()[0]) == ("", "1")
    text = guest.run(HookMoment.BELL).err
    assert "noise" not in text
    assert "buy now" not in text


def test_a_program_beside_a_host_is_given_the_text_and_says_that_it_was_taken(rig: DaemonFixture) -> None:
    """Taken is not read: the turn that begins with it proves it, and brings nothing twice."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest) as wire:
        assert rig.daemon.call("send", text="please look", sender="ann")["forecast"]["outlook"] == "wake"
        order = json.loads(wire.line())
        assert "please look" in order["text"]
        wire.say({"done": order["wake"]})
        (message,) = [each["id"] for each in rig.daemon.call("list")["messages"]]
        line = rig.ledger(message, COPILOT.name)
        assert (line["state"], line["surface"]) == ("offered", "wake: extension")
        assert guest.prompt(f"<system_notification>\n{order['text']}\n</system_notification>") == ""
        guest.stop()
        assert rig.state(message, COPILOT.name) == "seen"


@pytest.mark.parametrize("reason", ["busy", "busy \ud83d"], ids=["plain", "half a pair"])
def test_what_the_host_did_not_take_is_queued_as_before(rig: DaemonFixture, reason: str) -> None:
    """It said so itself, in words that may be cut within an emoji; nothing is marked, nothing has to run out."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest) as wire:
        message = rig.send("please look")
        order = json.loads(wire.line())
        wire.say({"failed": order["wake"], "reason": reason})
        until(lambda: rig.state(message, COPILOT.name) == "queued", "the offer is taken back", 10)
    text = guest.prompt()
    assert "please look" in text
    assert REPEAT not in text


def test_program_in_a_folder_whose_name_is_no_text_is_heard(rig: DaemonFixture) -> None:
    """JavaScript writes half of a pair as it is; turned away for it, the session could not be woken at all."""
    guest = rig.session(COPILOT)
    with Wire(rig.daemon.socket, {**hello_of(guest), "cwd": "/code/\ud83d"}) as wire:
        rig.send("please look")
        assert b"please look" in wire.line()


def test_a_program_that_dies_with_the_text_loses_nothing(rig: DaemonFixture) -> None:
    """Nobody knows whether the host got it; the message is given with the next prompt."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest) as wire:
        message = rig.send("please look")
        assert b"please look" in wire.line()
    until(lambda: not rig.sessions()[0]["can_wake"], "the program is gone", 10)
    assert rig.state(message, COPILOT.name) == "offered"
    text = guest.prompt()
    assert "please look" in text
    assert REPEAT in text


def test_a_waiter_for_a_single_wake_is_let_go_after_it(rig: DaemonFixture) -> None:
    """A detached shell ends when it has something to say: the daemon hangs up, and no way is left behind."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest, is_once=True) as wire:
        rig.send("please look")
        order = json.loads(wire.line())
        wire.say({"done": order["wake"]})
        assert wire.line() == b""
    until(lambda: not any(each["can_wake"] for each in rig.sessions()), "no way to wake is left", 10)


def test_nonsense_from_a_program_is_survived(rig: DaemonFixture) -> None:
    """Lines that are not JSON, answers to nothing, answers twice: the right one counts."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest) as wire:
        for line in (b"\xff\xfe\n", b"[1, 2\n", b'{"done": "w-none"}\n', b'{"done": 5}\n', b"null\n", b"\n"):
            wire.say(line)
        message = rig.send("please look")
        order = json.loads(wire.line())
        for _ in range(2):
            wire.say({"done": order["wake"]})
        assert guest.prompt(order["text"]) == ""
        guest.stop()
        assert rig.state(message, COPILOT.name) == "seen"


def test_several_sessions_that_could_be_woken_are_not_woken_for_one_message(rig: DaemonFixture) -> None:
    """The last active one is; the other host finds it with its next prompt."""
    claude, copilot = rig.session(CLAUDE), rig.session(COPILOT)
    bell = bell_of(claude)
    with waiting_beside(rig, copilot) as wire:
        copilot.prompt()
        copilot.stop()
        message = rig.send("please look")
        order = json.loads(wire.line())
        wire.say({"done": order["wake"]})
        copilot.prompt(order["text"])
        copilot.stop()
        assert rig.state(message, COPILOT.name) == "seen"
        second = rig.send("and again")
        assert "and again" in json.loads(wire.line())["text"]
        assert bell.read_text() == ""
        assert rig.state(second, CLAUDE.name) == "queued"
    assert "please look" in claude.prompt()


def test_an_end_makes_a_session_unwakeable(rig: DaemonFixture) -> None:
    """A program that outlives the conversation must not be handed its mail."""
    guest = rig.session(COPILOT)
    with waiting_beside(rig, guest) as wire:
        guest.run(HookMoment.END)
        assert rig.sessions() == []
        message = rig.send("please look")
        wire.sock.settimeout(5)
        assert wire.line() == b""
        assert rig.state(message, COPILOT.name) == "queued"


def taking(peer: socket.socket, count: int) -> list[bytes]:
    """Take messages as Qwen's own inbox does: everything of a connection, then hang up."""
    taken = []
    for _ in range(count):
        connection, _address = peer.accept()
        with connection, connection.makefile("rb") as stream:
            taken.append(stream.read())
    return taken


def test_what_qwens_own_inbox_brought_is_proven_by_its_record_alone(rig: DaemonFixture, tmp_path: Path) -> None:
    """It queues the text: a tool or the end of another turn proves nothing, and the record may be written late."""
    guest, record, address = rig.session(QWEN), tmp_path / "chat.jsonl", tmp_path / "peer"
    env = {"QWEN_CODE_MESSAGING_SOCKET": str(address), "QWEN_CODE_MESSAGING_TOKEN": "t"}

    def run(moment: HookMoment) -> None:
        payload = {**json.loads(guest.payload(moment, prompt="work")), "transcript_path": str(record)}
        run_hook(guest.home, QWEN.name, guest.argument(moment), json.dumps(payload).encode(), env=env)

    with socket.socket(socket.AF_UNIX) as peer, ThreadPoolExecutor(1) as pool:
        peer.bind(str(address))
        peer.listen()
        run(HookMoment.PROMPT)
        run(HookMoment.STOP)
        taken = pool.submit(taking, peer, 1)
        message = rig.send("please look")
        (frames,) = taken.result(20)
        assert b"please look" in frames
        for moment in (HookMoment.TOOL, HookMoment.STOP):
            run(moment)
            assert rig.state(message, QWEN.name) == "offered"
        line = rig.ledger(message, QWEN.name)
        assert (line["surface"], line["offers"]) == ("wake: peer inbox", 1)
        asked = {"uuid": "1", "parentUuid": None, "type": "user", "text": frames.decode()}
        answer = {"uuid": "2", "parentUuid": "1", "type": "assistant"}
        record.write_text("".join(f"{json.dumps(each)}\n" for each in (asked, answer)))
        until(lambda: rig.state(message, QWEN.name) == "seen", "the record is read", 10)
    assert rig.ledger(message, QWEN.name)["evidence"] == "in the transcript"
