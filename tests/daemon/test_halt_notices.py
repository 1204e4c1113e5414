"""You are told why a session does not go on: each halt once, in every way there is, and not while you are there.

The loop as the daemon joins it, over real sessions; only the clock, the desktop, and where you are, are replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import pytest

from harken.automation import QuietHours
from harken.config.home import Home
from harken.config.secrets import resolve
from harken.config.settings import HaltSettings, NtfySettings, Settings, ToastSettings, WaitingSettings
from harken.daemon.escalation_wiring import HaltNotices, YourTraces, halt_notices, when_told
from harken.daemon.public.ntfy import PhoneNotes
from harken.dispatch.toast import HaltNote, Toast
from harken.errors import Unavailable
from harken.model import ApprovalChoice, ApprovalRequest
from harken.processes import last_key
from harken.sessions.session import Session
from harken.sessions.turns import Halt, SessionHalt
from harken.surfaces.hooks import bound
from tests.daemon.test_escalation_wiring import PHONE, Sink, sink
from tests.dispatch.rig import DispatchFixture, open_dispatch_fixture
from tests.loss.rig import until

__all__ = ["sink"]

NOON: Final = datetime(2026, 1, 5, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
every_halt = pytest.mark.parametrize("halt", list(Halt))
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@dataclass(slots=True)
class You:
    """Where you are, and what you are told."""

    rig: DispatchFixture
    loop: HaltNotices
    toasts: list[Toast]
    phone: list[HaltNote]
    keys: dict[int, datetime] = field(default_factory=dict[int, datetime])
    page: list[datetime] = field(default_factory=list[datetime])

    def come(self, host: str = "claude-code", number: int = 1) -> Session:
        """Let a session come, and work."""
        session = self.rig.come(host, number)
        session.cwd = f"/home/you/shop{number}"
        session.begin_turn("", is_own=False)
        return session

    async def halt(self, session: Session, halt: Halt, reason: str = "") -> None:
        """Let a session not go on."""
        await self.rig.inbox.note_halt(session, halt, reason)

    async def later(self, seconds: float = 3) -> list[str]:
        """Let time pass; return all that you were told on the desktop."""
        self.rig.clock.advance(seconds)
        await self.loop.look()
        return [each.title for each in self.toasts]


def made(
    rig: DispatchFixture,
    *,
    phone: list[HaltNote],
    settings: Settings,
    address: str = "",
    is_broken: bool = False,
) -> You:
    """Return the loop as the daemon makes it."""
    toasts: list[Toast] = []
    keys: dict[int, datetime] = {}
    page: list[datetime] = []

    async def show(toast: Toast) -> bool:
        toasts.append(toast)
        return True

    async def push(note: HaltNote) -> bool:
        if is_broken:
            raise Unavailable("No network.")
        phone.append(note)
        return True

    loop = halt_notices(
        rig.sessions,
        rig.store,
        rig.clock,
        settings,
        show=show,
        secret=partial(resolve, home=Home(rig.folder), environ={PHONE: address}),
        traces=YourTraces(in_terminal=keys.get, at_page=lambda: page[-1] if page else None),
        phones=[push],
    )
    return You(rig, loop, toasts, phone, keys, page)


@pytest.fixture
async def you(tmp_path: Path) -> AsyncIterator[You]:
    """You, with a desktop and a phone."""
    async with open_dispatch_fixture(tmp_path) as rig:
        yield made(rig, phone=[], settings=Settings())


@every_halt
async def test_each_halt_is_told_once_everywhere(you: You, halt: Halt) -> None:
    """On the desktop and on the phone, in one line that names the host and the folder."""
    session = you.come()
    await you.halt(session, halt, "out of tokens")
    title = f"Claude Code in shop1 {halt.words}"
    assert await you.later() == [title]
    assert [(each.title, each.reason) for each in you.phone] == [(title, "out of tokens")]
    assert await you.later(600) == [title]
    session.begin_turn("", is_own=False)
    await you.halt(session, halt, "")
    assert await you.later() == [title, title]


async def test_turn_that_goes_on_at_once_is_not_told(you: You) -> None:
    """What waited for the end of a turn begins the next one: nothing has finished."""
    session = you.come()
    await you.halt(session, Halt.FINISHED)
    session.begin_turn("", is_own=True)
    assert await you.later() == []


@every_halt
async def test_nothing_is_told_while_you_are_at_the_terminal(you: You, halt: Halt) -> None:
    """A key after the halt says that you have seen it; one a moment before, that you may still look."""
    session = you.come()
    await you.halt(session, halt)
    you.keys[session.pid] = you.rig.clock.advance(1)
    assert await you.later() == []
    assert await you.later(3600) == []
    session.begin_turn("", is_own=False)
    you.keys[session.pid] = you.rig.clock.advance(1)
    you.rig.clock.advance(20)
    await you.halt(session, halt)
    assert await you.later() == []
    assert len(await you.later(60)) == 1


async def test_another_terminal_does_not_count_and_the_page_does(you: You) -> None:
    """You cannot see there what happens here; the page shows all sessions."""
    first, second = you.come(number=1), you.come(number=2)
    you.keys[second.pid] = you.rig.clock.now() + MINUTE
    await you.halt(first, Halt.WAITS)
    assert len(await you.later()) == 1
    await you.halt(second, Halt.FAILED)
    you.page.append(you.rig.clock.advance(1))
    assert len(await you.later(100)) == 1


async def test_quiet_hours_keep_it_for_the_morning(tmp_path: Path) -> None:
    """What still halts then is told, several sessions in one line; what went on meanwhile is not."""
    async with open_dispatch_fixture(tmp_path) as rig:
        now = rig.clock.now().astimezone()
        quiet = QuietHours(begin=now.time(), end=(now + timedelta(hours=8)).time())
        you = made(rig, phone=[], settings=Settings(toasts=ToastSettings(quiet_hours=quiet)))
        sessions = [you.come(number=number) for number in range(1, 9)]
        for session in sessions:
            await you.halt(session, Halt.FINISHED)
            rig.clock.advance(1)
        assert await you.later() == []
        sessions[0].begin_turn("", is_own=False)
        assert await you.later(9 * 3600) == ["7 sessions do not go on"]
        assert you.phone[0].reason.splitlines()[0] == "Claude Code in shop2 has finished"
        assert await you.later() == ["7 sessions do not go on"]


async def test_question_that_is_an_approval_is_told_as_that(you: You) -> None:
    """It has buttons there; a second notification of the same would only be noise."""
    session = you.come()
    asked = ApprovalRequest(
        host=session.host,
        session=session.key,
        tool="Bash",
        arguments={"command": "ls"},
        digest="",
        choices=(ApprovalChoice.ONCE, ApprovalChoice.NO),
    )
    await you.rig.wiring.approvals.ask(bound(asked, session), MINUTE)
    await you.halt(session, Halt.WAITS)
    assert await you.later() == []


async def test_only_what_you_want_is_told(tmp_path: Path) -> None:
    """Each kind can be left out; the page shows it all the same."""
    async with open_dispatch_fixture(tmp_path) as rig:
        you = made(rig, phone=[], settings=Settings(halts=HaltSettings(tell=("limited",))))
        for number, halt in enumerate(Halt, 1):
            await you.halt(you.come(number=number), halt)
        assert await you.later() == ["Claude Code in shop4 hit its usage limit"]


async def test_broken_way_does_not_silence_the_others(tmp_path: Path, sink: Sink) -> None:
    """Each way is tried; a service that passes it on never gets what a host says."""
    async with open_dispatch_fixture(tmp_path) as rig:
        settings = Settings(waiting=replace(WaitingSettings(), phone=f"env:{PHONE}"))
        you = made(rig, phone=[], settings=settings, address=sink.address, is_broken=True)
        await you.halt(you.come(), Halt.FAILED, "the key sk-1 is wrong")
        assert len(await you.later()) == 1
        assert sink.said == [("Claude Code in shop1 stopped with an error", "Open Harken to see it.")]


async def test_restarted_daemon_does_not_tell_it_again(you: You) -> None:
    """What was told is part of the session's record."""
    session = you.come()
    await you.halt(session, Halt.LIMITED)
    await you.later()
    assert session.record.halt is not None
    assert session.record.halt.is_told
    assert Session.inherited(session.record).halt == session.record.halt


@pytest.mark.parametrize(
    ("shows", "title", "text"),
    [
        ("nothing", "Harken", "An agent does not go on."),
        ("sender", "Codex in shop waits for you", "Open the page to see it."),
        ("text", "Codex in shop waits for you", "rm -rf /"),
    ],
)
async def test_lock_screen_shows_what_you_chose(you: You, shows: str, title: str, text: str) -> None:
    """By default one line, without a word of the host."""
    note = PhoneNotes(you.rig.clock, shows).of_halt(
        HaltNote(title="Codex in shop waits for you", reason="rm -rf /", path="/sessions#halt-1")
    )
    assert (note.title, note.text) == (title, text)
    assert NtfySettings().shows == "sender"


@pytest.mark.parametrize(
    ("here", "due"),
    [
        (None, 2),
        (-3600, 2),
        (-30, 30),
        (-1, 59),
        (0, None),
        (5, None),
    ],
)
def test_when_it_is_told(here: int | None, due: int | None) -> None:
    """At once, a minute after your last key, or never when a key followed."""
    halt = SessionHalt(kind=Halt.WAITS, at=NOON)
    found = when_told(halt, None if here is None else NOON + timedelta(seconds=here), MINUTE)
    assert found == (None if due is None else NOON + timedelta(seconds=due))


def test_last_key_is_read_from_the_terminal() -> None:
    """The system notes it; a process without a terminal has none, and neither has one that is gone."""
    spawn = "import pty; pty.spawn(['/bin/cat'])"
    with subprocess.Popen([sys.executable, "-c", spawn], stdin=subprocess.PIPE, start_new_session=True) as outer:
        assert outer.stdin
        (cat,) = until(lambda: psutil.Process(outer.pid).children(), "it runs")
        os.utime(until(cat.terminal, "it has a terminal"), (0, 0))
        assert last_key(cat.pid) == datetime.fromtimestamp(0, UTC)
        outer.stdin.write(b"x\n")
        outer.stdin.flush()
        until(lambda: (last_key(cat.pid) or NOON) > NOON, "a key is noted")
        assert last_key(outer.pid) is None
        cat.kill()
        outer.stdin.close()
        outer.kill()
    assert last_key(cat.pid) is None
