"""Which port is listened on: the one that was used before, unless somebody else has it."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.daemon.http import UNKNOWN, bind, holder_of
from harken.errors import UserError

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server((HOST, 0)) as other:
        yield other.getsockname()[1]


def test_port_is_kept(tmp_path: Path) -> None:
    """Bookmarks, tunnels and other programs name it."""
    kept = tmp_path / "port"
    with bind(HOST, 0, kept, "http.port") as first:
        port = first.getsockname()[1]
    with bind(HOST, 0, kept, "http.port") as second:
        assert second.getsockname()[1] == port


def test_port_that_only_we_know_is_changed_when_it_is_taken(tmp_path: Path, taken: int) -> None:
    """The page moves: whoever opens it asks for its address."""
    kept = tmp_path / "port"
    kept.write_text(f"{taken}\n")
    with bind(HOST, 0, kept, "http.port") as sock:
        assert sock.getsockname()[1] != taken
        assert kept.read_text() == f"{sock.getsockname()[1]}\n"


def test_port_that_others_know_is_not_changed(tmp_path: Path, taken: int) -> None:
    """A tunnel would go on handing secrets to whoever has taken it, and nobody would notice."""
    kept = tmp_path / "port"
    kept.write_text(f"{taken}\n")
    with pytest.raises(UserError) as caught:
        bind(HOST, 0, kept, "hooks.port", is_known=True)
    assert str(taken) in caught.value.message
    assert "hooks.port" in caught.value.hint
    assert kept.read_text() == f"{taken}\n"


def test_who_has_the_port_is_said_as_far_as_the_system_tells(tmp_path: Path, taken: int) -> None:
    """A person can end their own program; that it is somebody else's they must know as well."""
    holder = holder_of(taken)
    assert f"(process {os.getpid()})" in holder
    assert holder.endswith(f"of the account {pwd.getpwuid(os.geteuid()).pw_name}")
    told: list[tuple[int, str]] = []
    with pytest.raises(UserError) as caught:
        bind(HOST, taken, tmp_path / "port", "http.port", on_taken=lambda *seen: told.append(seen))
    assert f"{holder} does" in caught.value.message
    assert told == [(taken, holder)]


def test_port_that_nobody_has_belongs_to_nobody_we_know() -> None:
    """It may be free again by the time somebody looks."""
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    assert holder_of(port) == UNKNOWN
