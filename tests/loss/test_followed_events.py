"""One Harken follows another by MCP Events, and any of the three processes between them is killed at any time.

The one is served by its daemon and an edge, which the other's daemon started. Whoever dies, each message of the first
becomes one message of the second: none is missing, none is there twice, and nobody counts a gap.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from harken.testing import edge_command
from tests.loss.rig import Chance, DaemonStarter, Json, Served, stubborn, until

ROUNDS: Final = 12
SECONDS: Final = 60.0
EVENT: Final = "message.received"


@pytest.fixture
def pair(starter: DaemonStarter, home: Path) -> Iterator[tuple[Served, Served]]:
    """A daemon, and another one that follows it."""
    told, teller = home.with_name("b"), home.with_name("a")
    told.mkdir(mode=0o700)
    command, *args = edge_command(teller)
    source = f'[sources.other]\nkind = "mcp"\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n'
    (told / "config.toml").write_text(f'{source}channels = ["{EVENT}"]\n')
    with starter.daemon(teller) as first, starter.daemon(told) as second:
        yield first.start(), second.start()


def source_of(daemon: Served) -> Json:
    """Return what a daemon says of the other one."""
    return stubborn(daemon, "source_list")["sources"][0]


def heard(daemon: Served) -> list[str]:
    """Return the messages of the other that a daemon was told of, in the order in which they came."""
    found = stubborn(daemon, "list", channel=EVENT, limit=1_000)["messages"]
    texts = [each["content_text_sanitized"] for each in sorted(found, key=by_number)]
    return [text.split('"')[3] for text in texts if text.startswith('{"message_id"')]


def by_number(message: Json) -> int:
    """Return the number of a message in its mailbox."""
    return int(message["seq"])


def edges_of(home: Path) -> list[int]:
    """Return the processes that are edges of a home."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            line = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            if b"/edge/mcp.py\0" in line and os.fsencode(home) in line.split(b"\0"):
                found.append(int(process.name))
    return found


def test_whichever_side_is_killed_each_message_is_told_once(pair: tuple[Served, Served]) -> None:
    """The promise of events is that of messages: a kill at any step loses none, and none comes twice."""
    teller, told = pair
    chance = Chance(7)
    until(lambda: source_of(told)["state"] == "listening", "it listens", SECONDS)
    sent: list[str] = []

    def send() -> None:
        sent.append(stubborn(teller, "send", text=f"number {len(sent)}", sender="ci-bot", channel="ci")["id"])

    for number in range(ROUNDS):
        for _ in range(chance.randrange(4)):
            send()
        if chance.random() < 0.5:
            until(lambda: len(heard(told)) == len(sent), "all is told", SECONDS)
        match number % 3:
            case 0:
                teller.kill()
                teller.start()
            case 1:
                for edge in edges_of(teller.home):
                    with suppress(ProcessLookupError):
                        os.kill(edge, signal.SIGKILL)
            case _:
                told.kill()
                told.start()
        send()
    until(lambda: len(heard(told)) >= len(sent), "all is told", SECONDS)
    send()
    until(lambda: len(heard(told)) >= len(sent), "the last is told", SECONDS)
    assert heard(told) == sent
    assert source_of(told)["gaps"] == 0
