"""`harken watch` with its flags: fewer channels, toasts instead of lines; and in a real tmux."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Iterator
from datetime import datetime, time
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import QuietHours
from harken.cli.watch.quiet import HINT, MAX_GATHERED, PendingNews, toast_of
from harken.control.client import Result
from harken.dispatch.toast import PAUSE_SECONDS, Toast
from tests.cli.rig import SECONDS, Rig
from tests.cli.terminal_session import TerminalSession
from tests.daemon.test_toasts import Screen, bus_at
from tests.hosts.terminal import Terminal

NOON = datetime(2026, 1, 5, 12).astimezone()
NIGHT = datetime(2026, 1, 5, 23).astimezone()
READY = "q leave"


def record(text: str = "hello", *, who: str = "ann", channel: str = "ci", source: str = "hook") -> Result:
    """Return a message as the verbs give it."""
    return {
        "from": who,
        "sender_id": who,
        "channel": channel,
        "source": source,
        "trust": "known",
        "content_text_sanitized": text,
    }


def send(rig: Rig, text: str, channel: str = "ci") -> None:
    """Let somebody say something."""
    rig.ask("send", text=text, sender="ann", channel=channel)


def test_several_channels_are_watched_at_once(rig: Rig) -> None:
    """A person follows people, and leaves the machines alone."""
    send(rig, "unread mail", "email")
    send(rig, "unread chat", "teams")
    send(rig, "unread build", "ci")
    with TerminalSession(rig, "watch", "--teams", "--email", "--channel", "alerts/disk") as person:
        shown = person.sees("unread mail", "unread chat", READY)
        assert shown.index("unread mail") < shown.index("unread chat")
        send(rig, "left out", "ci")
        send(rig, "a chat", "teams")
        person.sees("a chat", 'tell your agent: "check the inbox"')
        send(rig, "a mail", "email")
        send(rig, "disk is full", "alerts/disk")
        shown = person.sees("a chat", "a mail", "disk is full")
        assert "left out" not in shown
        assert "unread build" not in shown
    assert [
        line.partition("] ")[2].partition("  #")[0] for line in rig.ok("watch", "--once", "--teams").splitlines()[:2]
    ] == [
        'ann: "unread chat"',
        'ann: "a chat"',
    ]


@pytest.mark.parametrize("words", [("--quiet", "--once"), ("--quiet", "--json")])
def test_toasts_and_lines_exclude_each_other(rig: Rig, words: tuple[str, ...]) -> None:
    """A script that asked for both would wait for a line that never comes."""
    done = rig.run("watch", *words)
    assert (done.code, done.out) == (2, "")


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[str]:
    """A bus of the test's own."""
    program = shutil.which("dbus-daemon")
    if program is None:
        pytest.skip("no bus: dbus-daemon is not on PATH. On Debian: apt-get install dbus-daemon")
    with bus_at(program, tmp_path / "session-bus") as address:
        yield address


async def test_quiet_shows_toasts_and_no_lines(rig: Rig, bus: str) -> None:
    """The whole way: message, journal, toast on a real bus; nothing on the terminal, and Ctrl-C ends it."""
    quiet = Rig(rig.home, {"DBUS_SESSION_BUS_ADDRESS": bus})
    async with Screen(bus) as screen:
        with quiet.begin("watch", "--quiet", "--channel", "calls") as process:
            assert process.stderr is not None
            assert await anyio.to_thread.run_sync(process.stderr.readline) == (
                b"Toasts tell what arrives. Ctrl-C ends it.\n"
            )
            await anyio.to_thread.run_sync(partial(send, rig, "left out", "other"))
            await anyio.to_thread.run_sync(partial(send, rig, "<b>are</b> you there?", "calls"))
            await screen.titles(1)
            process.send_signal(signal.SIGINT)
            out, err = await anyio.to_thread.run_sync(partial(process.communicate, timeout=SECONDS))
    assert screen.shown == [("Harken", "ann in calls", f'"\u2039b\u203aare\u2039/b\u203a you there?"\n{HINT}')]
    assert (process.returncode, out, err) == (0, b"", b"")


def test_quiet_without_a_desktop_says_so_once_and_goes_on(rig: Rig, tmp_path: Path) -> None:
    """Over ssh there is no desktop: a person who waits for toasts must know."""
    away = Rig(rig.home, {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path / 'none'}"})
    with away.begin("watch", "--quiet", "--channel", "lonely") as process:
        assert process.stderr is not None
        process.stderr.readline()
        send(rig, "anybody?", "lonely")
        assert process.stderr.readline().startswith(b"Toasts are not shown: ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")


def test_quiet_says_at_once_that_there_is_no_desktop(rig: Rig) -> None:
    """Nobody should wait for a first message to learn that it was not shown."""
    away = Rig(rig.home, {"DBUS_SESSION_BUS_ADDRESS": "", "DISPLAY": ""})
    with away.begin("watch", "--quiet", "--channel", "lonelier") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"Toasts are not shown: no desktop session. Ctrl-C ends it.\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)


def test_a_burst_is_one_toast_after_the_first() -> None:
    """Ten toasts in a row are dismissed unread."""
    gathered = PendingNews(None)
    assert gathered.take(NOON, 0.0) is None
    gathered.add([record("first")])
    assert gathered.take(NOON, 0.0) == Toast("ann in ci", f'"first"\n{HINT}')
    gathered.add([record("2"), record("3", who="bob")])
    gathered.add([record("4", who="bob", channel="")])
    assert gathered.take(NOON, PAUSE_SECONDS - 1) is None
    assert gathered.take(NOON, PAUSE_SECONDS) == Toast(
        "3 messages", f'ann in ci: 1, bob in ci: 1, bob in hook: 1\nNewest: "4"\n{HINT}'
    )
    assert gathered.take(NOON, 10 * PAUSE_SECONDS) is None


def test_in_quiet_hours_nothing_is_shown_until_they_are_over() -> None:
    """What comes in the night is told in the morning, in one toast, however much it is."""
    gathered = PendingNews(QuietHours(time(22), time(7)))
    gathered.add([record(str(number)) for number in range(MAX_GATHERED + 5)])
    assert gathered.take(NIGHT, 0.0) is None
    found = gathered.take(NOON, 1.0)
    assert found is not None
    assert found.title == f"{MAX_GATHERED + 5} messages"


def test_what_the_person_wrote_here_is_no_news_to_them() -> None:
    """A toast for one's own words is noise."""
    gathered = PendingNews(None)
    gathered.add([record(source="local") | {"trust": "owner"}])
    assert gathered.take(NOON, 0.0) is None


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=6))
def test_a_toast_is_short_and_no_markup(said: list[tuple[str, str, str]]) -> None:
    """Everything on it is from outside, and desktops take pictures and links."""
    records = [record(text, who=who, channel=channel) for text, who, channel in said]
    toast = toast_of(records, len(records))
    assert not set("<>&") & set(toast.title + toast.body)
    assert "\n" not in toast.title
    assert len(toast.body.split("\n")) <= len(("names", "newest", "hint"))
    assert len(toast.title) + len(toast.body) < 1_000


def test_in_tmux_the_screen_is_as_expected_and_ctrl_c_gives_it_back(rig: Rig, tmp_path: Path) -> None:
    """Many people live in tmux: lines above, the banner once below them, nothing left of it afterwards."""
    folder = tmp_path / "tmux"
    folder.mkdir()
    environ = {name: value for name, value in rig.environment.items() if name != "TERM"}
    argv = (
        "sh",
        "-c",
        f"trap : INT; {sys.executable} -m harken watch --channel tmux; echo ended with $?; exec sleep 60",
    )
    with Terminal(argv, environ, rig.home, folder) as terminal:
        terminal.wait_for(READY, SECONDS)
        send(rig, "the build is red\nand more", "tmux")
        send(rig, "\u00fcber \u754c", "tmux")
        shown = terminal.wait_for("\u754c", SECONDS).splitlines()
        assert re.fullmatch(r'\[tmux \d\d:\d\d\] ann: "the build is red …"  #\d+', shown[0])
        assert re.fullmatch(r'\[tmux \d\d:\d\d\] ann: "\u00fcber \u754c"  #\d+', shown[1])
        assert re.match(r"\d+ unread · ", shown[-1])
        assert sum(READY in line for line in shown) == 1
        terminal.press("ctrl-c")
        left = terminal.wait_for("ended with 0", SECONDS)
        assert READY not in left
        assert "the build is red" in left
