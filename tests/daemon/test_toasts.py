"""Toasts of a real daemon, over a real bus: what a desktop is asked to show.

The bus is a `dbus-daemon` of the test's own, and the service for notifications on it is ours. Without the program the
tests are skipped and say how to get it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import pytest
from dbus_fast import Message, MessageType, RequestNameReply
from dbus_fast.aio import MessageBus

from harken.dispatch.toast import MAX_KEPT, NO_SERVICE, NO_SESSION, NOT_TRIED, SHOWN, Desktop, Toast
from harken.testing import DaemonProcess
from tests.cli.rig import Rig
from tests.fake_host import fake_host
from tests.loss.rig import until

NAME: Final = "org.freedesktop.Notifications"
WAIT_SECONDS: Final = 30.0
TELL: Final = {"name": "ci", "channel": "ci", "contentRegex": "failed"}
ASK: Final = {"name": "ask", "channel": "incidents", "mode": "confirm", "prompt": "Look.", "tools": ["read_file"]}
KINDS: Final = ("s", "u", "s", "s", "s", "as", "a{sv}", "i")
DESCRIPTION: Final = f"""<node><interface name="{NAME}">
<method name="GetCapabilities"><arg type="as" direction="out"/></method>
<method name="GetServerInformation">{'<arg type="s" direction="out"/>' * 4}</method>
<method name="CloseNotification"><arg type="u" direction="in"/></method>
<method name="Notify">{"".join(f'<arg type="{kind}" direction="in"/>' for kind in KINDS)}
<arg type="u" direction="out"/></method>
<signal name="NotificationClosed"><arg type="u"/><arg type="u"/></signal>
<signal name="ActionInvoked"><arg type="u"/><arg type="s"/></signal>
</interface></node>"""


class Screen:
    """The service for notifications of a desktop: it notes what it is asked to show."""

    def __init__(self, address: str) -> None:
        self._bus = MessageBus(bus_address=address)
        self.shown: list[tuple[str, str, str]] = []  # who, title, body
        self.buttons: list[list[str]] = []
        self.closed: list[int] = []
        self._changed = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._bus.connect()
        self._bus.add_message_handler(self._answer)
        assert await self._bus.request_name(NAME) is RequestNameReply.PRIMARY_OWNER
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._bus.disconnect()
        gone: Callable[[], Awaitable[None]] = self._bus.wait_for_disconnect  # it comes without types
        with anyio.fail_after(WAIT_SECONDS):
            await gone()

    async def titles(self, number: int) -> list[str]:
        """Return the titles of what was shown, once there are so many."""
        with anyio.fail_after(WAIT_SECONDS):
            while len(self.shown) < number:
                self._changed = anyio.Event()
                await self._changed.wait()
        return [title for _, title, _ in self.shown]

    def _answer(self, call: Message) -> Message | None:
        if call.message_type is not MessageType.METHOD_CALL:
            return None
        answers: Mapping[str | None, tuple[str, list[object]]] = {
            "Introspect": ("s", [DESCRIPTION]),
            "GetCapabilities": ("as", [["actions", "body", "body-markup"]]),
            "GetServerInformation": ("ssss", ["screen", "us", "1", "1.2"]),
            "CloseNotification": ("", []),
            "Notify": ("u", [len(self.shown) + 1]),
        }
        if call.member == "Notify":
            self.shown.append((call.body[0], call.body[3], call.body[4]))
            self.buttons.append(call.body[5])
        if call.member == "CloseNotification":
            self.closed += call.body
        self._changed.set()
        return Message.new_method_return(call, *answers[call.member]) if call.member in answers else None


@pytest.fixture(scope="session")
def bus_program() -> str:
    """The path of the program that is a bus."""
    found = shutil.which("dbus-daemon")
    if found is None:
        pytest.skip("no bus: dbus-daemon is not on PATH. On Debian: apt-get install dbus-daemon")
    return found


@contextmanager
def bus_at(program: str, path: Path) -> Iterator[str]:
    """Serve a bus in a file; yield its address."""
    command = [program, "--session", "--nofork", "--nopidfile", "--print-address=1", f"--address=unix:path={path}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(autouse=True)
def toasts_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are what it is about."""
    monkeypatch.delenv("HARKEN_TOASTS_ENABLED")


@pytest.fixture
def bus(bus_program: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bus that a daemon finds by its environment."""
    with bus_at(bus_program, home.parent / "session-bus") as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        yield address


@contextmanager
def ruled(home: Path, *rules: Mapping[str, object], config: str = "") -> Iterator[DaemonProcess]:
    """Serve a home with these rules."""
    home.mkdir(mode=0o700)
    for name, text in (("triggers.json", json.dumps({"rules": rules})), ("config.toml", config)):
        file = home / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
    daemon = DaemonProcess(home).start()
    try:
        yield daemon
    finally:
        daemon.stop()


def said(daemon: DaemonProcess) -> str:
    """Return what the daemon says of toasts."""
    return str(daemon.call("status")["daemon"]["toasts"])


async def aside(work: Callable[[], object]) -> object:
    """Do what blocks in a thread: the screen is in this one."""
    return await anyio.to_thread.run_sync(work)


async def send(daemon: DaemonProcess, text: str, channel: str = "ci") -> None:
    """Let somebody say something."""
    await aside(partial(daemon.call, "send", text=text, sender="build bot", channel=channel))


async def test_rule_that_tells_makes_one_toast_with_the_text(home: Path, bus: str) -> None:
    """The whole way: message, rule, action, bus, screen. What does not match is not shown."""
    async with Screen(bus) as screen:
        with ruled(home, TELL) as daemon:
            assert await aside(lambda: said(daemon)) == NOT_TRIED
            await send(daemon, "build 455 passed")
            await send(daemon, "build 456 <b>failed</b>")
            await screen.titles(1)
            assert await aside(lambda: until(lambda: said(daemon) == SHOWN, "it says so")) is True
    assert screen.shown == [("Harken", "ci: build 456 \u2039b\u203afailed\u2039/b\u203a", "build bot in ci")]


async def test_question_is_shown_again_by_the_next_daemon_and_has_no_buttons(
    home: Path, bus: str, tmp_path: Path
) -> None:
    """What waits must not be forgotten with a restart, and a toast under the pointer must not answer it."""
    async with Screen(bus) as screen:
        # A rule that no agent can run asks nothing: there is one, which is never started.
        with fake_host(tmp_path, "#!/bin/false\n"), ruled(home, TELL, ASK) as daemon:
            await send(daemon, "may I?", "incidents")
            assert await screen.titles(1) == ["ask: may I?"]
            await aside(daemon.kill)
            await aside(daemon.start)
            assert await screen.titles(2) == ["ask: may I?"] * 2
    assert "harken channel confirm a-" in screen.shown[1][2]
    assert screen.buttons == [["default", ""]] * 2  # the library's own, for a click, which does nothing here


async def test_bus_in_its_usual_place_is_found(
    home: Path, bus_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agent hosts start the daemon too, and not all of them hand on where the bus is."""
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    runtime = home.parent / "run time"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with bus_at(bus_program, tmp_path / "real-bus") as address:
        (runtime / "bus").symlink_to(tmp_path / "real-bus")
        async with Screen(address) as screen:
            with ruled(home, TELL) as daemon:
                await send(daemon, "failed")
                assert await screen.titles(1) == ["ci: failed"]


@pytest.mark.parametrize(
    ("config", "expected"), [("", NO_SESSION), ("[toasts]\nenabled = false\n", "off")], ids=["no desktop", "off"]
)
def test_without_toasts_rules_go_on(home: Path, monkeypatch: pytest.MonkeyPatch, config: str, expected: str) -> None:
    """A machine without a screen loses nothing but the toast."""
    for name in ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with ruled(home, TELL, config=config) as daemon:
        daemon.call("send", text="failed", sender="bot", channel="ci")
        until(lambda: daemon.call("actions", state="told")["actions"], "the rule told it")
        assert said(daemon) == expected
        assert f"toasts  {expected}\n" in Rig(home).run("doctor").out
        assert daemon.call("status")["daemon"]["parked_loops"] == {}


# -- the adapter alone -------------------------------------------------------------------------------------------


async def test_bus_without_a_screen_is_said_and_left_alone_until_there_is_one(
    bus: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A person may log in after the daemon started; and each failure must give back what it opened."""
    desktop = Desktop(os.environ)
    with caplog.at_level("INFO"), anyio.fail_after(WAIT_SECONDS):
        before = _open_files()
        for _ in range(5):
            assert not await desktop.show(Toast("title", "body"))
        assert _open_files() <= before
        assert desktop.state == NO_SERVICE
        async with Screen(bus) as screen:
            assert await desktop.show(Toast("title", "body"))
            assert screen.shown == [("Harken", "title", "body")]
        assert desktop.state == SHOWN
        await desktop.close()
        assert _open_files() <= before
    assert [record.getMessage() for record in caplog.records] == [f"toasts: {NO_SERVICE}", f"toasts: {SHOWN}"]


async def test_bus_that_ends_is_survived_and_the_next_one_is_used(
    home: Path, bus_program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person logs out and in again; the daemon stays."""
    desktop, path = Desktop(os.environ), home.parent / "session-bus"
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={path}")
    # The library may find its socket closed in a callback of the loop's, where nobody can catch it; a daemon logs that.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    with anyio.fail_after(WAIT_SECONDS):
        with bus_at(bus_program, path) as address:
            async with Screen(address):
                assert await desktop.show(Toast("first", "body"))
        assert not await desktop.show(Toast("lost", "body"))
        assert desktop.state == NO_SERVICE
        path.unlink(missing_ok=True)
        with bus_at(bus_program, path) as address:
            async with Screen(address) as screen:
                assert await desktop.show(Toast("second", "body"))
                await desktop.close()
    assert screen.shown == [("Harken", "second", "body")]


async def test_old_toasts_are_taken_away(bus: str) -> None:
    """Who comes back after a weekend wants to see the desktop."""
    desktop = Desktop(os.environ)
    with anyio.fail_after(WAIT_SECONDS):
        async with Screen(bus) as screen:
            for number in range(MAX_KEPT + 3):
                assert await desktop.show(Toast(f"{number}", "body"))
            await desktop.close()
    assert screen.closed == [1, 2, 3]


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
