"""The loss test: messages flow from a writer to an agent while the daemon is killed again and again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from harken.testing import DaemonProcess
from tests.loss.rig import Chance, Json, Served, agent_of, check_journal, export, received, stubborn, texts, until

MAILBOXES = ("inbox", "project:loss")
SEED = 20_260_728


@dataclass
class Traffic:
    """What both ends saw."""

    accepted: list[str] = field(default_factory=list[str])
    ids: list[str] = field(default_factory=list[str])
    given: list[Json] = field(default_factory=list[Json])
    excuses: int = 0
    is_over: bool = False
    stop_writing: bool = False


def write(daemon: DaemonProcess, traffic: Traffic) -> None:
    """Send numbered messages, each until it is accepted, to both mailboxes in turn."""
    number = 0
    while not traffic.stop_writing:
        number += 1
        text = f"number {number}"
        answer = stubborn(
            daemon, "send", text=text, sender="writer", to=MAILBOXES[number % 2], upstream_id=f"writer/{number}"
        )
        traffic.ids.append(answer["id"])
        traffic.accepted.append(text)


def read(home: Path, traffic: Traffic) -> None:
    """Wait and pull in turn, over one edge, until told to stop."""
    with agent_of(home) as agent:
        turn = 0
        while not traffic.is_over:
            turn += 1
            request = (
                agent.ask_tool("wait_for_inbound_message", timeout_s=2, max_items=7)
                if turn % 3
                else agent.ask_tool("inbox_pull", limit=25)
            )
            answer = agent.answer(request)
            if "error" in answer:
                traffic.excuses += 1
                continue
            traffic.given += as_given(answer["result"])


def as_given(result: Json) -> list[Json]:
    """The messages that an answer has whole, as (text, whether marked as a repeat)."""
    value = json.loads(result["content"][0]["text"])
    messages = [m for m in (value["messages"] if isinstance(value, dict) else value) if "truncated" not in m]
    return [(m.get("content") or m["content_text_sanitized"], m.get("repeat", False)) for m in messages]


@contextmanager
def running(*threads: threading.Thread) -> Iterator[None]:
    """Threads that have ended at the end."""
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def storm(daemon: DaemonProcess, kills: int) -> Traffic:
    """Kill and restart the daemon so many times in the middle of the traffic; return when all is delivered."""
    home = daemon.home
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[projects.loss]\ndirs = ["{Path.cwd()}"]\n')
    chance = Chance(SEED)
    daemon.start()
    traffic = Traffic()
    writer = threading.Thread(target=write, args=(daemon, traffic))
    reader = threading.Thread(target=read, args=(home, traffic))
    try:
        with running(writer), running(reader):
            for turn in range(kills):
                moving = traffic.accepted if turn % 2 else traffic.given
                goal = len(moving) + chance.randint(1, 60)
                until(partial(has_reached, moving, goal), "the traffic goes on", 60)
                daemon.kill()
                daemon.start()
            traffic.stop_writing = True
            writer.join(60)
            until(lambda: {t for t, _ in traffic.given} >= set(traffic.accepted), "all is delivered", 60)
            traffic.is_over = True
        check(daemon, traffic)
    finally:
        traffic.stop_writing = traffic.is_over = True
        daemon.stop()
    return traffic


def check(daemon: DaemonProcess, traffic: Traffic) -> None:
    """Assert every promise about what was accepted."""
    seen: set[str] = set()
    firsts: list[str] = []
    for text, is_repeat in traffic.given:
        assert is_repeat or text not in seen, f"{text} came twice without the mark"
        if text not in seen:
            firsts.append(text)
        seen.add(text)
    assert sorted(firsts, key=number) == traffic.accepted, "something was lost or invented"
    for index, mailbox in enumerate(MAILBOXES):
        mine = [text for text in traffic.accepted if number(text) % 2 == index]
        assert [text for text in firsts if number(text) % 2 == index] == mine, f"{mailbox} was given out of order"
        stored = export(daemon, mailbox)
        assert texts(stored) == mine
        assert [message["seq"] for message in stored] == list(range(1, len(mine) + 1))
        newest = daemon.call("list", mailbox=mailbox, limit=1000)["messages"]
        assert texts(newest) == mine[-1000:]
    assert received(check_journal(daemon)) == traffic.ids


def has_reached(moving: Sized, goal: int) -> bool:
    """Whether the traffic has come so far."""
    return len(moving) >= goal


def number(text: str) -> int:
    """The number of a message."""
    return int(text.removeprefix("number "))


def test_nothing_is_lost_or_doubled_while_the_daemon_is_killed(daemon: Served) -> None:
    """The one promise: an accepted message is delivered, in order, whatever happens to the process in between."""
    traffic = storm(daemon, kills=20)
    assert len(traffic.accepted) > 100


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_over_fifty_kills(home: Path) -> None:
    """The same for long enough that a kill falls into every kind of moment."""
    traffic = storm(DaemonProcess(home), kills=50)
    assert len(traffic.accepted) > 500
