"""The page keeps its port; when another program has it, the page moves, says so, and nobody stays signed in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.rig import Rig
from tests.loss.rig import WAIT_SECONDS, Served
from tests.web.rig import NAVIGATION, SESSION, Web


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


@contextmanager
def taken(address: str) -> Iterator[None]:
    """Let another program have a port."""
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))):
        yield


def said(home: Path, *words: str) -> str:
    """Run a command; return what it says to a person."""
    done = Rig(home).run(*words)
    assert done.code == 0, done
    return done.out + done.err


def test_page_moves_says_by_whom_and_signs_everyone_out(web: Web) -> None:
    """What is open at the old address may be the other program's by now: its key must open nothing anywhere."""
    session = web.signed_in()[SESSION]
    assert said(web.daemon.home, "status").count("is taken by") == 0
    web.daemon.kill()
    with taken(web.address):
        web.daemon.start()
        moved = Web(web.daemon)
        assert moved.address != web.address
        moved.keys = web.keys
        assert moved.ask("GET", "/m/inbox", {**NAVIGATION, SESSION: session}).status == 401
        port = web.address.partition(":")[2]
        for words in (("up",), ("open", "--print"), ("status",)):
            shown = said(web.daemon.home, *words)
            assert f"Port {port} is taken by" in shown, words
            assert f"(process {os.getpid()})" in shown, words
    again = moved.signed_in()
    assert moved.ask("GET", "/m/inbox", {**NAVIGATION, **again}).status == 200
    web.daemon.kill()
    web.daemon.start()
    assert Web(web.daemon).address == moved.address
    assert web.daemon.call("status")["daemon"]["port_problem"] == ""


def test_fixed_port_that_was_taken_signs_everyone_out_too(daemon: Served, home: Path) -> None:
    """The daemon does not start then. When the other program has gone, its page may still be open in a browser."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f"[http]\nport = {port}\n")
    (home / "config.toml").chmod(0o600)
    web = Web(daemon.start())
    session = web.signed_in()[SESSION]
    daemon.kill()
    with taken(web.address):
        daemon.start(side="after", at=1_000_000)
        assert daemon.is_gone(WAIT_SECONDS)
        assert f"(process {os.getpid()})" in daemon.errors()
    again = Web(daemon.start())
    assert again.address == web.address
    again.keys = web.keys
    assert again.ask("GET", "/m/inbox", {**NAVIGATION, SESSION: session}).status == 401
