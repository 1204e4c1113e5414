"""What a main daemon can make a satellite do: ring bells, wake sessions that are there, read proofs; nothing else."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from harken.daemon.satellites.link import HEAD, FrameKind
from tests.loss.rig import WAIT_SECONDS, DaemonStarter, Served, Wire, until
from tests.satellite.rig import FakeMain, ask, join, take

INBOX_WORD = "the-token-of-a-session"


@pytest.fixture
def main(tmp_path: Path) -> Iterator[FakeMain]:
    """A main daemon that is none."""
    with FakeMain(tmp_path) as fake:
        yield fake


@pytest.fixture(autouse=True)
def satellite(main: FakeMain, starter: DaemonStarter, home: Path) -> Iterator[Served]:
    """A satellite of it."""
    join(home, main, "harken_x", main.port)
    with starter.daemon(home) as served:
        yield served.start()


@contextmanager
def inbox(path: Path) -> Iterator[socket.socket]:
    """A socket as a session of Qwen Code has one."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(WAIT_SECONDS)
        yield listening


def run_hook(satellite: Served, link: ServerConnection, **env: str) -> bytes:
    """Run a hook on the satellite; return what the main daemon hears of it."""
    hello = {"harken": 1, "kind": "hook", "host": "qwen-code", "moment": "prompt", "payload": 2, "cwd": "/w"}
    with Wire(satellite.socket, hello | {"ppid": os.getpid(), "env": env}) as wire:
        wire.say(b"{}")
        _, number, facts = take(link, FrameKind.OPEN)
        heard = facts
        while not heard.endswith(b"{}"):
            heard += take(link, FrameKind.DATA)[2]
        link.send(HEAD.pack(FrameKind.RESET, number))
        return heard


def test_secrets_of_hosts_stay_on_their_machine_and_wake_them_there(
    main: FakeMain, satellite: Served, home: Path
) -> None:
    """Whoever had the token of a session's own inbox could speak to it without Harken, from anywhere."""
    link, path = main.link(), home.with_name("q")
    heard = run_hook(
        satellite,
        link,
        QWEN_CODE_MESSAGING_SOCKET=str(path),
        QWEN_CODE_MESSAGING_TOKEN=INBOX_WORD,
        QWEN_CODE_SESSION_ID="s-1",
        PATH="/usr/bin",
        HOME="/home/of/the/person",
    )
    assert b"s-1" in heard
    for kept in (INBOX_WORD, str(path), "/usr/bin", "/home/of/the/person"):
        assert kept.encode() not in heard
    target = {"native": "s-1", "pid": os.getpid(), "cwd": "/w", "env": {}}
    (way,) = ask(link, 1, do="ways", host="qwen-code", target=target)["ways"]
    with inbox(path) as listening:
        asked = {"do": "wake", "host": "qwen-code", "surface": way["surface"], "target": target, "text": "hello"}
        link.send(HEAD.pack(FrameKind.ASK, 2) + json.dumps(asked).encode())
        session, _ = listening.accept()
        with session, session.makefile() as said:
            assert json.loads(said.readline())["token"] == INBOX_WORD
            assert json.loads(said.readline())["message"]["content"] == "hello"
    assert json.loads(take(link, FrameKind.ANSWER)[2]) == {"taken": True}


def test_main_daemon_does_not_say_where_a_host_is_found(main: FakeMain, satellite: Served, home: Path) -> None:
    """A program, a folder of settings or a socket that it names could be anything: the satellite looks at its own."""
    link, path = main.link(), home.with_name("q")
    run_hook(satellite, link, QWEN_CODE_SESSION_ID="s-1")
    program = home.with_name("bin") / "codex"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho ran > {path}\n")
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}", "QWEN_CODE_MESSAGING_SOCKET": str(path), "QWEN_CODE_MESSAGING_TOKEN": "x"}
    target = {"native": "s-1", "pid": os.getpid(), "cwd": "/w", "env": env}
    assert ask(link, 1, do="ways", host="qwen-code", target=target) == {"ways": []}
    asked = {"host": "codex", "surface": "wake: app server", "target": target, "text": "x"}
    assert ask(link, 2, do="wake", **asked) == {"taken": False}
    assert not path.exists()


def test_files_are_looked_at_for_deliveries_only(main: FakeMain, home: Path) -> None:
    """A record is asked whether it holds what Harken gave: no file tells of anything else in it."""
    link, file = main.link(), home.with_name("notes")
    entry = {"uuid": "1", "type": "user", "message": "] (password) hunter2 ] (d-abcdefgh12) mine"}
    answer = {"uuid": "2", "parentUuid": "1", "type": "assistant"}
    file.write_text("".join(json.dumps(each) + "\n" for each in (entry, answer)))
    asked = {"do": "record", "host": "claude-code", "path": str(file), "ids": ["password", "d-abcdefgh12"]}
    assert ask(link, 1, **asked) == {"proven": ["d-abcdefgh12"]}


@pytest.mark.parametrize(
    "asked",
    [
        {"do": "run", "command": "true"},
        {"do": "bell"},
        {"do": "ways", "host": "codex", "target": 7},
        {"do": "wake", "host": "../x", "surface": 1, "target": {"native": "x"}, "text": []},
        {"do": "record", "host": "codex", "path": "/dev/zero", "ids": ["d-abcdefgh12"]},
        {"do": "bell", "session": "../../config.toml"},
        {"do": "bell", "session": "x" * 5_000},
        {},
    ],
    ids=range(8),
)
def test_question_that_is_none_is_answered_and_changes_nothing(
    main: FakeMain, home: Path, asked: dict[str, object]
) -> None:
    """The link goes on, and nothing but a bell is written."""
    link = main.link()
    before = {path for path in home.rglob("*") if path.is_file()}
    assert isinstance(ask(link, 1, **asked), dict)
    made = {path for path in home.rglob("*") if path.is_file()} - before
    assert all(path.parent == home / "run" / "bells" for path in made)
    assert ask(link, 2, do="ways", host="codex", target={"native": "x"})


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xff" * 40, HEAD.pack(FrameKind.OPEN, 2) + b"{}", HEAD.pack(FrameKind.TELL, 0) + b"[", b"x" * (2 << 20)],
    ids=["empty", "unknown", "a stream", "no object", "too large"],
)
def test_frame_against_the_protocol_costs_the_link_and_nothing_else(
    main: FakeMain, satellite: Served, frame: bytes
) -> None:
    """The satellite lives on, and connects again."""
    link = main.link()
    with suppress(ConnectionClosed):  # it may end the link before it has read all of a frame
        link.send(frame)
    main.link()
    assert not satellite.is_gone()


def test_bells_that_a_main_daemon_asks_for_fill_no_disk(main: FakeMain) -> None:
    """There are no more of them than sessions could watch: the oldest go."""
    link = main.link()
    for number in range(2_050):
        ask(link, number, do="bell", session=f"claude-code:{number}@buildbox")
    path = Path(ask(link, 3_000, do="bell", session="one more")["path"])
    assert path.exists()
    assert len(list(path.parent.glob("session-*"))) == 2_000


def test_bell_that_could_not_be_rung_rings_when_the_disk_has_room(
    main: FakeMain, satellite: Served, home: Path
) -> None:
    """The main daemon says it once; a full disk must not make an agent deaf until something else changes."""
    link, bell = main.link(), home / "run" / "bells" / "claude-code"
    resource.prlimit(satellite.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    link.send(HEAD.pack(FrameKind.TELL, 0) + b'{"bells": ["claude-code"]}')
    ask(link, 1, do="ways", host="codex", target={"native": "x"})  # it has heard of the bells before
    assert not bell.exists() or not bell.stat().st_size
    resource.prlimit(satellite.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: bell.exists() and bell.stat().st_size, "the bell rings")
