"""Where a sign-in is kept: private, whole, one process at a time, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harken.errors import NeedsPerson, Unavailable, UserError
from harken.sources.microsoft.sign_in import TokenCache

SECONDS = 30
HUSH = "hushhush"

_HOLDER = """
import sys, pathlib
from harken.sources.microsoft.sign_in import TokenCache
with TokenCache(pathlib.Path(sys.argv[1]), "work").locked():
    print("held", flush=True)
    sys.stdin.read()
"""
_WRITER = """
import sys, pathlib, itertools
from harken.sources.microsoft.sign_in import TokenCache
cache = TokenCache(pathlib.Path(sys.argv[1]), "work")
for number in itertools.count():
    with cache.locked():
        cache.save(f"{number % 10}" * 300_000)
    print(number, flush=True)
"""


@contextmanager
def process(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which is gone afterwards."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=SECONDS)


def line(child: subprocess.Popen[str]) -> str:
    """What the process says next."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_what_was_saved_is_there_for_the_next_and_private(tmp_path: Path) -> None:
    """Nobody else on the machine may read it, whatever the umask says."""
    folder = tmp_path / "tokens"
    before = os.umask(0)
    try:
        with TokenCache(folder, "a/b.c").locked():
            TokenCache(folder, "a/b.c").save(HUSH)
    finally:
        os.umask(before)

    assert TokenCache(folder, "a/b.c").load() == HUSH
    assert TokenCache(folder, "other").load() is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert sorted(path.name for path in folder.iterdir()) == [".a%2Fb%2Ec.lock", "a%2Fb%2Ec.json"]


def test_every_change_has_a_stamp_of_its_own(tmp_path: Path) -> None:
    """Other processes notice a change by the stamp alone: two quick ones must not look like one or none."""
    cache, seen = TokenCache(tmp_path, "work"), set[int]()

    for _ in range(20):
        with cache.locked():
            cache.save(HUSH)
            seen.add(TokenCache(tmp_path, "work").stamp())
            cache.clear()
            seen.add(TokenCache(tmp_path, "work").stamp())

    assert len(seen) == 40


def test_two_processes_are_never_inside_at_once(tmp_path: Path) -> None:
    """Both would renew with one refresh token, and one of them would lose its sign-in. A killed one holds nothing."""
    cache = TokenCache(tmp_path, "work")
    with process(_HOLDER, tmp_path) as holder:
        assert line(holder) == "held"
        with pytest.raises(Unavailable, match="Another process is busy with the sign-in of work"), cache.locked(0.2):
            pytest.fail("two are inside")
        holder.send_signal(signal.SIGKILL)
        with cache.locked(SECONDS):
            cache.save(HUSH)

    assert cache.load() == HUSH


def test_being_killed_while_writing_leaves_a_whole_text(tmp_path: Path) -> None:
    """Half a sign-in is none: after any crash there is the old one or the new one."""
    cache = TokenCache(tmp_path, "work")
    for count in range(1, 9):
        with process(_WRITER, tmp_path) as writer:
            for _ in range(count):
                assert line(writer).isdigit()
            writer.send_signal(signal.SIGKILL)
        text = cache.load()
        assert text is not None
        assert len(text) == 300_000
        assert len(set(text)) == 1

    with cache.locked(SECONDS):
        cache.save(HUSH)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".work.lock", "work.json"]


def test_clearing_leaves_no_secret_behind(tmp_path: Path) -> None:
    """Also what a killed process had half written is a secret."""
    cache = TokenCache(tmp_path, "work")
    (tmp_path / ".work.new").write_text(HUSH)
    with cache.locked():
        cache.save(HUSH)
        (tmp_path / ".work.new").write_text(HUSH)
        assert cache.clear()
        assert not cache.clear()

    assert [path.name for path in tmp_path.iterdir()] == [".work.lock"]
    assert cache.load() is None


def test_a_file_that_others_could_read_is_made_private_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A restored backup may have lost its mode; the person is told, since somebody may have read it."""
    cache = TokenCache(tmp_path, "work")
    with cache.locked():
        cache.save(HUSH)
    (tmp_path / "work.json").chmod(0o644)

    assert cache.load() == HUSH

    assert stat.S_IMODE((tmp_path / "work.json").stat().st_mode) == 0o600
    assert "work: the kept sign-in could be read by others" in caplog.text
    assert HUSH not in caplog.text


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    """Whoever can put a link there must not have us read, or overwrite, a file of their choice."""
    other = tmp_path / "other"
    other.write_text("mine")
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "work.json").symlink_to(other)
    cache = TokenCache(folder, "work")

    with pytest.raises(Unavailable, match="cannot be read or kept"):
        cache.load()
    with cache.locked():
        cache.save(HUSH)

    assert other.read_text() == "mine"
    assert cache.load() == HUSH


class Ring:
    """A keyring as the `keyring` package has it."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = False
        self.errors = types.ModuleType("keyring.errors")
        base = type("KeyringError", (Exception,), {})
        self.locked_error = type("KeyringLocked", (base,), {})
        self.delete_error = type("PasswordDeleteError", (base,), {})
        vars(self.errors).update(
            KeyringError=base, KeyringLocked=self.locked_error, PasswordDeleteError=self.delete_error
        )

    def get_password(self, service: str, name: str) -> str | None:
        """Return an entry."""
        if self.is_locked:
            raise self.locked_error
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        """Keep an entry."""
        self.entries[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        """Remove an entry."""
        if self.entries.pop((service, name), None) is None:
            raise self.delete_error


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """A keyring of our own in the place of the person's."""
    ring, module = Ring(), types.ModuleType("keyring")
    for name in ("errors", "get_password", "set_password", "delete_password"):
        setattr(module, name, getattr(ring, name))
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setitem(sys.modules, "keyring.errors", ring.errors)
    return ring


def test_with_the_keyring_the_file_alone_is_worth_nothing(tmp_path: Path, ring: Ring) -> None:
    """A copied disk or backup must not be a sign-in: the key is elsewhere, and goes when the person signs out."""
    cache = TokenCache(tmp_path, "work", is_in_keyring=True)
    with cache.locked():
        cache.save(HUSH)
        cache.save(HUSH * 2)

    assert cache.load() == HUSH * 2
    assert HUSH.encode() not in (tmp_path / "work.json").read_bytes()
    assert len(ring.entries) == 1
    ring.entries[next(iter(ring.entries))] = "somebody changed it"
    assert cache.load() is None
    with cache.locked():
        cache.clear()
        cache.clear()
    assert ring.entries == {}


def test_a_locked_keyring_waits_for_the_person(tmp_path: Path, ring: Ring) -> None:
    """After a restart the keyring may be locked: nothing is wrong with the sign-in."""
    cache = TokenCache(tmp_path, "work", is_in_keyring=True)
    with cache.locked():
        cache.save(HUSH)
    ring.is_locked = True

    with pytest.raises(NeedsPerson) as caught:
        cache.load()

    assert caught.value.action == "unlock the keyring"


def test_without_the_keyring_package_its_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: whoever asks for it must be told how to get it, and no plain file is written instead."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    cache = TokenCache(tmp_path, "work", is_in_keyring=True)

    with cache.locked(), pytest.raises(UserError) as caught:
        cache.save(HUSH)

    assert "the package keyring" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == [".work.lock"]
