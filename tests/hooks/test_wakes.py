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

from harken.sessions.events import HookMoment
from tests.hooks.rig import CLAUDE, COPILOT, QWEN, Conversation, Inn, Json, run_hook
from tests.loss.rig import Wire, until

REPEAT = "Repeat: offered before without proof that it arrived"


def hello_of(guest: Conversation, *, is_once: bool = False) -> Json:
    """Return what a program beside a host says first."""
    return {
        "harken": 1, "kind": "wake", "pid": os.getpid(), "ppid": os.getpid(), "cwd": "/", "env": {}, "token": "",
        "host": guest.kind.name, "native": guest.native, "once": is_once,
    }  # fmt: skip


@contextmanager
def waiting_beside(inn: Inn, guest: Conversation, *, is_once: bool = False) -> Iterator[Wire]:
    """Wait to wake a session, as an extension does."""
    with Wire(inn.daemon.socket, hello_of(guest, is_once=is_once)) as wire:
        until(lambda: any(each["can_wake"] for each in inn.sessions()), "the way to wake is known", 10)
        yield wire


def bell_of(guest: Conversation) -> Path:
    """Start a Claude Code session; return the bell that it is told to watch."""
    said = json.loads(guest.run(HookMoment.START).out)
    (path,) = said["hookSpecificOutput"]["watchPaths"]
    return Path(path)


def test_the_bell_of_an_idle_session_changes_and_its_hook_brings_the_message(inn: Inn) -> None:
    """Claude Code watches the file, runs the hook, and starts a turn with what that prints to stderr."""
    guest = inn.guest(CLAUDE)
    bell = bell_of(guest)
    assert bell.exists()
    before = bell.read_text()
    message = inn.send("please look", sender="ann")
    until(lambda: bell.read_text() != before, "the session's bell rings", 10)
    woken = guest.run(HookMoment.BELL)
    assert (woken.code, woken.out) == (2, "")
    assert "please look" in woken.err
    line = inn.ledger(message, CLAUDE.name)
    assert (line["state"], line["surface"]) == ("offered", "wake: bell")
    prompt = f"<system-reminder>\nHarken: {woken.err}\n</system-reminder>"
    assert guest.prompt(prompt, turn="w1") == ""
    assert inn.state(message, CLAUDE.name) == "offered"
    guest.stop()
    line = inn.ledger(message, CLAUDE.name)
    assert (line["state"], line["evidence"], line["offers"]) == ("seen", "end of turn", 1)


def test_a_bell_hook_with_nothing_waiting_does_not_start_a_turn(inn: Inn) -> None:
    """Exit code 2 starts one: it is for a text only."""
    guest = inn.guest(CLAUDE)
    bell_of(guest)
    assert guest.run(HookMoment.BELL).is_silent


def test_the_bell_of_a_busy_session_stays_as_it_is(inn: Inn) -> None:
    """The text would be queued behind the turn, and start one of its own after Esc."""
    guest = inn.guest(CLAUDE)
    bell = bell_of(guest)
    guest.prompt()
    before = bell.read_text()
    inn.send("please look")
    assert "please look" in guest.tool()
    guest.stop()
    assert bell.read_text() == before


def test_noise_and_strangers_ring_no_bell(inn: Inn) -> None:
    """They are there before something that does ring it: so the daemon has looked at them by then."""
    guest = inn.guest(CLAUDE)
    bell = bell_of(guest)
    inn.daemon.call("deny", sender="spam")
    inn.send("noise", sender="ci-bot", channel="ci")
    inn.send("buy now", sender="spam", priority="high")
    inn.send("at a boundary", channel="desk")
    before = bell.read_text()
    inn.send("please look", sender="ann")
    until(lambda: bell.read_text() != before, "the session's bell rings", 10)
    assert (before, bell.read_text().split()[0]) == ("", "1")
    text = guest.run(HookMoment.BELL).err
    assert "noise" not in text
    assert "buy now" not in text


def test_a_program_beside_a_host_is_given_the_text_and_says_that_it_was_taken(inn: Inn) -> None:
    """Taken is not read: the turn that begins with it proves it, and brings nothing twice."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest) as wire:
        assert inn.daemon.call("send", text="please look", sender="ann")["forecast"]["outlook"] == "wake"
        order = json.loads(wire.line())
        assert "please look" in order["text"]
        wire.say({"done": order["wake"]})
        (message,) = [each["id"] for each in inn.daemon.call("list")["messages"]]
        line = inn.ledger(message, COPILOT.name)
        assert (line["state"], line["surface"]) == ("offered", "wake: extension")
        assert guest.prompt(f"<system_notification>\n{order['text']}\n</system_notification>") == ""
        guest.stop()
        assert inn.state(message, COPILOT.name) == "seen"


@pytest.mark.parametrize("reason", ["busy", "busy \ud83d"], ids=["plain", "half a pair"])
def test_what_the_host_did_not_take_is_queued_as_before(inn: Inn, reason: str) -> None:
    """It said so itself, in words that may be cut within an emoji; nothing is marked, nothing has to run out."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest) as wire:
        message = inn.send("please look")
        order = json.loads(wire.line())
        wire.say({"failed": order["wake"], "reason": reason})
        until(lambda: inn.state(message, COPILOT.name) == "queued", "the offer is taken back", 10)
    text = guest.prompt()
    assert "please look" in text
    assert REPEAT not in text


def test_program_in_a_folder_whose_name_is_no_text_is_heard(inn: Inn) -> None:
    """JavaScript writes half of a pair as it is; turned away for it, the session could not be woken at all."""
    guest = inn.guest(COPILOT)
    with Wire(inn.daemon.socket, {**hello_of(guest), "cwd": "/code/\ud83d"}) as wire:
        inn.send("please look")
        assert b"please look" in wire.line()


def test_a_program_that_dies_with_the_text_loses_nothing(inn: Inn) -> None:
    """Nobody knows whether the host got it; the message is given with the next prompt."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest) as wire:
        message = inn.send("please look")
        assert b"please look" in wire.line()
    until(lambda: not inn.sessions()[0]["can_wake"], "the program is gone", 10)
    assert inn.state(message, COPILOT.name) == "offered"
    text = guest.prompt()
    assert "please look" in text
    assert REPEAT in text


def test_a_waiter_for_a_single_wake_is_let_go_after_it(inn: Inn) -> None:
    """A detached shell ends when it has something to say: the daemon hangs up, and no way is left behind."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest, is_once=True) as wire:
        inn.send("please look")
        order = json.loads(wire.line())
        wire.say({"done": order["wake"]})
        assert wire.line() == b""
    until(lambda: not any(each["can_wake"] for each in inn.sessions()), "no way to wake is left", 10)


def test_nonsense_from_a_program_is_survived(inn: Inn) -> None:
    """Lines that are not JSON, answers to nothing, answers twice: the right one counts."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest) as wire:
        for line in (b"\xff\xfe\n", b"[1, 2\n", b'{"done": "w-none"}\n', b'{"done": 5}\n', b"null\n", b"\n"):
            wire.say(line)
        message = inn.send("please look")
        order = json.loads(wire.line())
        for _ in range(2):
            wire.say({"done": order["wake"]})
        assert guest.prompt(order["text"]) == ""
        guest.stop()
        assert inn.state(message, COPILOT.name) == "seen"


def test_several_sessions_that_could_be_woken_are_not_woken_for_one_message(inn: Inn) -> None:
    """The last active one is; the other host finds it with its next prompt."""
    claude, copilot = inn.guest(CLAUDE), inn.guest(COPILOT)
    bell = bell_of(claude)
    with waiting_beside(inn, copilot) as wire:
        copilot.prompt()
        copilot.stop()
        message = inn.send("please look")
        order = json.loads(wire.line())
        wire.say({"done": order["wake"]})
        copilot.prompt(order["text"])
        copilot.stop()
        assert inn.state(message, COPILOT.name) == "seen"
        second = inn.send("and again")
        assert "and again" in json.loads(wire.line())["text"]
        assert bell.read_text() == ""
        assert inn.state(second, CLAUDE.name) == "queued"
    assert "please look" in claude.prompt()


def test_an_end_makes_a_session_unwakeable(inn: Inn) -> None:
    """A program that outlives the conversation must not be handed its mail."""
    guest = inn.guest(COPILOT)
    with waiting_beside(inn, guest) as wire:
        guest.run(HookMoment.END)
        assert inn.sessions() == []
        message = inn.send("please look")
        wire.sock.settimeout(5)
        assert wire.line() == b""
        assert inn.state(message, COPILOT.name) == "queued"


def taking(peer: socket.socket, count: int) -> list[bytes]:
    """Take messages as Qwen's own inbox does: everything of a connection, then hang up."""
    taken = []
    for _ in range(count):
        connection, _address = peer.accept()
        with connection, connection.makefile("rb") as stream:
            taken.append(stream.read())
    return taken


def test_what_qwens_own_inbox_brought_is_proven_by_its_record_alone(inn: Inn, tmp_path: Path) -> None:
    """It queues the text: a tool or the end of another turn proves nothing, and the record may be written late."""
    guest, record, address = inn.guest(QWEN), tmp_path / "chat.jsonl", tmp_path / "peer"
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
        message = inn.send("please look")
        (frames,) = taken.result(20)
        assert b"please look" in frames
        for moment in (HookMoment.TOOL, HookMoment.STOP):
            run(moment)
            assert inn.state(message, QWEN.name) == "offered"
        line = inn.ledger(message, QWEN.name)
        assert (line["surface"], line["offers"]) == ("wake: peer inbox", 1)
        asked = {"uuid": "1", "parentUuid": None, "type": "user", "text": frames.decode()}
        answer = {"uuid": "2", "parentUuid": "1", "type": "assistant"}
        record.write_text("".join(f"{json.dumps(each)}\n" for each in (asked, answer)))
        until(lambda: inn.state(message, QWEN.name) == "seen", "the record is read", 10)
    assert inn.ledger(message, QWEN.name)["evidence"] == "in the transcript"
