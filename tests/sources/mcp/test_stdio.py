"""A server that we start ourselves: heard from its first line, started again when it dies, gone when we are."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil
import pytest

from harken.sources.source import SourceState
from tests.sources.mcp.rig import SECONDS, following

CHILD: Final = Path(__file__).parent / "child_server.py"
FOLLOWER: Final = """
import sys, anyio
from contextlib import aclosing
from harken.clock import SystemClock
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource

async def main():
    source = McpSource(read_settings("x", {"command": sys.executable, "args": sys.argv[1:]}), SystemClock())
    async with aclosing(source.feeds()[0].follow("")) as batches:
        async for batch in batches:
            for draft in batch.drafts:
                print(draft.text, flush=True)

anyio.run(main, backend_options={"use_uvloop": True})  # as the daemon does
"""


def entry(what: str, **more: object) -> dict[str, object]:
    """Return the settings of a child that does this."""
    return {"command": sys.executable, "args": ["-I", "-S", str(CHILD), what], **more}


def are_gone(pids: Iterable[int]) -> bool:
    """Whether the processes are gone, or are within a few seconds."""
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs([each for each in alive if each.status() != psutil.STATUS_ZOMBIE], timeout=SECONDS)
    return not left


async def test_a_program_is_heard_from_its_first_line_and_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Banners, early announcements, requests; and it gets no variable that it does not need."""
    monkeypatch.setenv("SOMEBODYS_TOKEN", "secret")
    async with following(entry("echo", env={"LEVEL": "1"}, cwd=str(tmp_path))) as ear:
        await ear.hear(5)
        health = ear.source.health()
    banner, early, pong, environment, folder = ear.drafts
    assert (banner.channel, banner.text) == ("raw", "Welcome to the server!")
    assert (early.channel, early.text) == ("news", "before the handshake")
    assert json.loads(pong.text) == {"jsonrpc": "2.0", "id": 0, "result": {}}
    assert {"LEVEL", "PATH"} <= set(json.loads(environment.text))
    assert "SOMEBODYS_TOKEN" not in json.loads(environment.text)
    assert Path(folder.text) == tmp_path
    assert (health.state, health.server) == (SourceState.LISTENING, "child 1")


async def test_a_program_of_the_modern_era_is_subscribed_to() -> None:
    """It refuses the handshake, and is asked in its own way."""
    async with following(entry("echo", env={"ERA": "modern"})) as ear:
        await ear.hear(5)
        assert ear.source.health().state is SourceState.LISTENING


async def test_a_program_that_ends_is_started_again_and_its_last_words_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its exit code as the reason and its stderr in the log, without our secrets."""
    with caplog.at_level(logging.INFO, "harken.sources.mcp"):
        async with following(entry("once", env={"KEY": "k3ysecret"})) as ear:
            await ear.hear(6)
            waits = [await ear.waits.next() for _ in range(2)]
            health = ear.source.health()
    assert ear.texts[:3] == ear.texts[3:6] == ["Welcome to the server!", "before the handshake", "last words"]
    assert [(seconds, told.state) for seconds, told in waits] == [
        (0.5, SourceState.RETRYING),
        (1.0, SourceState.RETRYING),
    ]
    assert waits[0][1].reason == "the program ended with code 3"
    assert health.gaps >= 1
    assert "odd: failed with key ***" in caplog.messages
    assert "k3ysecret" not in caplog.text


async def test_a_stubborn_program_and_what_it_started_end_with_us() -> None:
    """It ignores the end of its input and polite signals; its own child does too."""
    async with following(entry("stubborn")) as ear:
        await ear.hear(3)
        pids = [int(pid) for pid in ear.texts[2].split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert are_gone(pids)


@pytest.mark.skipif(os.name != "posix", reason="there is no leash without a shell")
def test_a_stubborn_program_does_not_outlive_us_when_we_are_killed() -> None:
    """Killed without a chance to clean up, we leave nothing behind."""
    command = [sys.executable, "-c", FOLLOWER, "-I", "-S", str(CHILD), "stubborn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        lines = [follower.stdout.readline() for _ in range(3)]
        pids = [int(pid) for pid in lines[2].split()]
        follower.send_signal(signal.SIGKILL)
        follower.wait(SECONDS)
        assert are_gone(pids)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"command": "/no/such/program"}, "the program program is not found: check sources.odd.command"),
        ({"command": sys.executable, "cwd": "/no/such/folder"}, "its folder does not exist: check sources.odd.cwd"),
        ({"command": str(CHILD)}, "the program child_server.py may not be run: check sources.odd.command"),
        (entry("mute", timeout=1), "the program does not answer within 1 seconds"),
        ({"command": "/bin/sh", "args": ["-c", "kill -9 $$"]}, "the program was ended by signal 9"),
    ],
)
async def test_a_program_that_does_not_run_says_why(settings: dict[str, object], reason: str) -> None:
    """And is tried again: it may be installed any moment."""
    async with following(settings, passing=0) as ear:
        _, health = await ear.waits.next()
    assert (health.state, health.reason) == (SourceState.RETRYING, reason)


async def test_a_line_of_five_megabytes_arrives_and_one_of_nine_is_counted() -> None:
    """As on every other link."""
    async with following(entry("long")) as ear:
        await ear.hear(3)
        assert len(ear.texts[2]) == 5_000_000
        assert sum(batch.dropped for batch in ear.batches) == ear.source.health().too_long == 1


async def test_a_burst_of_a_program_arrives_whole_and_in_order() -> None:
    """A hundred thousand at once, through a pipe."""
    async with following(entry("burst")) as ear:
        await ear.hear(100_002, seconds=60)
        assert ear.texts[2:] == [str(number) for number in range(100_000)]


async def test_nothing_is_left_running_after_many_lives() -> None:
    """Restarts do not pile up processes."""
    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}
    async with following(entry("once")) as ear:
        await ear.hear(9)
    assert {child.pid for child in here.children(recursive=True)} <= before
