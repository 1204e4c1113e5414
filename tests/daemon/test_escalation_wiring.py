"""From a message to the phone, as the daemon joins it: real texts, the real library, and a service of ours.

Only the clock and the desktop are replaced, at their seams.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Final

import pytest

from harken.automation import QuietHours
from harken.config.home import Home
from harken.config.secrets import resolve
from harken.config.settings import Settings, ToastSettings, WaitingSettings
from harken.daemon.escalation_wiring import escalation
from harken.dispatch.escalation import Escalation
from harken.dispatch.toast import Phone, Toast
from harken.errors import UserError
from harken.log import configure
from harken.model import INBOX, Draft, Message, Sender
from harken.store.contract.messages import Filter
from harken.store.contract.people import Mute
from tests.dispatch.rig import DispatchFixture, open_dispatch_fixture

MINUTE: Final = timedelta(minutes=1)
TOPIC: Final = "quietfox"  # without digits: of what looks like a key, the library itself leaves the middle out
TEXT: Final = "the password of the vault is hunter2"
PHONE: Final = "HARKEN_TEST_PHONE"
# The library reads pictures with a module that Python is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@dataclass(slots=True)
class Sink:
    """A service for phones, on this machine."""

    address: str
    status: int = 200
    got: list[dict[str, object]] = field(default_factory=list)

    @property
    def said(self) -> list[tuple[object, object]]:
        """Title and body of everything that came."""
        return [(each["title"], each["message"]) for each in self.got]


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A service that takes everything."""
    with serving() as found:
        yield found


@contextmanager
def serving() -> Iterator[Sink]:
    """Take what is posted, for the time of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Sink(f"json://you:{TOPIC}@127.0.0.1:{server.server_port}/{TOPIC}/")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@dataclass(slots=True)
class Person:
    """Who is told: their desktop and their phone, and what their agent finds in its mailbox."""

    rig: DispatchFixture
    loop: Escalation
    toasts: list[Toast]
    sink: Sink

    async def ask(self, text: str = TEXT, *, conversation: str = "") -> Message:
        """Let somebody ask."""
        draft = Draft(
            source="teams",
            sender=Sender("ann", "Ann Berg"),
            text=text,
            channel="one-on-one",
            conversation=conversation,
            is_question=True,
        )
        (appended,) = await self.rig.intake.accept([draft])
        return appended.message

    async def minutes(self, count: int) -> None:
        """Let time pass, with a look at each minute."""
        for _ in range(count):
            self.rig.clock.advance(60)
            await self.loop.look()

    async def reminders(self) -> list[str]:
        """Return what the agent was told."""
        found = await self.rig.store.messages.page(Filter(mailbox=INBOX), 50)
        return [message.text for message in found if message.channel == "reminders"]


@pytest.fixture
async def person(tmp_path: Path, sink: Sink) -> AsyncIterator[Person]:
    """An agent is reminded after 15 minutes, the person on the desktop after 30, on the phone after two hours."""
    async with open_dispatch_fixture(tmp_path) as rig:
        toasts: list[Toast] = []
        yield Person(rig, made(rig, show_to=toasts, address=sink.address), toasts, sink)


def made(rig: DispatchFixture, *, show_to: list[Toast], address: str, quiet: QuietHours | None = None) -> Escalation:
    """Return the loop as the daemon makes it."""

    async def show(toast: Toast) -> bool:
        show_to.append(toast)
        return True

    waiting = WaitingSettings(
        remind_after=15 * MINUTE, toast_after=30 * MINUTE, phone_after=120 * MINUTE, phone=f"env:{PHONE}"
    )
    settings = Settings(waiting=waiting, toasts=ToastSettings(enabled=True, quiet_hours=quiet))
    environ = {PHONE: address}
    home = Home(rig.folder)
    return escalation(
        rig.store,
        rig.clock,
        settings,
        intake=rig.intake,
        mutes=rig.policies.mutes,
        show=show,
        secret=partial(resolve, home=home, environ=environ),
    )


async def have_seen(person: Person, message: Message) -> None:
    """Let an agent have seen a message."""
    session = person.rig.come()
    await person.rig.inbox.ack(session.reader, [message.id])


async def test_question_climbs_from_its_agent_to_the_phone(person: Person) -> None:
    """Each is told once, at its time, in plain words: the agent by an id, the desktop with the first words."""
    message = await person.ask()
    await have_seen(person, message)
    await person.minutes(15)
    [reminder] = await person.reminders()
    assert reminder.splitlines() == [
        "1 waits for an answer, for 15 min. Answer with the reply tool; if no answer is needed, tell your user.",
        f"- {message.id}, 15 min ago",
    ]
    assert person.toasts == []
    await person.minutes(15)
    [toast] = person.toasts
    assert toast.title == "1 waits for an answer, for 30 min"
    assert toast.body.startswith("Ann Berg in one-on-one: ")
    assert person.sink.got == []
    await person.minutes(90)
    assert person.sink.said == [("1 waits for an answer, for 2 h", "Ann Berg in one-on-one")]
    await person.minutes(300)
    assert (len(await person.reminders()), len(person.toasts), len(person.sink.got)) == (1, 1, 1)


async def test_nothing_that_somebody_wrote_goes_to_the_phone(person: Person) -> None:
    """A push passes through a service of others, and stands on a locked screen."""
    await person.ask()
    await person.ask("another secret")
    await person.minutes(121)
    [pushed] = person.sink.got
    assert (pushed["title"], pushed["message"]) == ("2 wait for an answer, oldest 2 h", "Ann Berg in one-on-one")
    assert "vault" not in json.dumps(pushed)
    assert "another" not in json.dumps(pushed)


@pytest.mark.parametrize("minutes", [5, 20, 40, 119])
async def test_answer_at_any_step_stops_it(person: Person, minutes: int) -> None:
    """Nobody is told of what was answered."""
    message = await person.ask()
    await have_seen(person, message)
    await person.minutes(minutes)
    before = (len(await person.reminders()), len(person.toasts), len(person.sink.got))
    row = await person.rig.store.outbox.add(message.id, "so", author="you", consumer=person.rig.come().consumer)
    await person.rig.store.outbox.sent(row.id, "u-1")
    await person.minutes(300)
    assert (len(await person.reminders()), len(person.toasts), len(person.sink.got)) == before


async def test_quiet_hours_leave_the_person_alone_until_they_end(person: Person) -> None:
    """At night nobody is called; the agent may be reminded, and the morning brings what is due."""
    now = person.rig.clock.now().astimezone()
    quiet = QuietHours(now.time(), (now + 180 * MINUTE).time())
    person.loop = made(person.rig, show_to=person.toasts, address=person.sink.address, quiet=quiet)
    await have_seen(person, await person.ask())
    await person.minutes(179)
    assert (len(await person.reminders()), person.toasts, person.sink.got) == (1, [], [])
    await person.minutes(2)
    assert [len(person.toasts), len(person.sink.got)] == [1, 0]
    await person.minutes(120)
    assert len(person.sink.got) == 1


async def test_service_that_refuses_is_tried_again(person: Person) -> None:
    """The phone is the last step: giving up silently would be losing the question."""
    await person.ask()
    person.sink.status = 500
    await person.minutes(121)
    tries = len(person.sink.got)
    assert tries >= 1
    person.sink.status = 200
    await person.minutes(6)
    assert len(person.sink.got) == tries + 1
    await person.minutes(60)
    assert len(person.sink.got) == tries + 1


@pytest.mark.parametrize("address", [f"json://you:{TOPIC}@127.0.0.1:9/{TOPIC}/", f"nowhere://host/{TOPIC}", TOPIC])
async def test_address_of_the_phone_is_in_no_log_and_no_error(person: Person, tmp_path: Path, address: str) -> None:
    """It is a secret: whoever has it can write to the phone. Also the library must not log it."""
    place = Home(tmp_path / "logged")
    place.path.mkdir()
    loop = made(person.rig, show_to=[], address=address)
    await person.ask()
    person.rig.clock.advance(60 * 60 * 3)
    with configure(place, "debug", to_stderr=False):
        for _ in range(3):
            await loop.look()
            person.rig.clock.advance(60 * 60)
        logging.getLogger("harken").info("the end")
    log = place.daemon_log.read_text()
    assert "the end" in log
    assert TOPIC not in log


async def test_address_that_the_library_does_not_know_is_the_persons_to_correct() -> None:
    """They typed it; the error says which setting, and not what is in it."""
    with pytest.raises(UserError) as caught:
        await Phone(f"nowhere://{TOPIC}").tell("title", "body")
    assert "waiting.phone" in caught.value.message
    assert TOPIC not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(("kind", "name"), [("channel", "one-on-one"), ("sender", "ann")])
async def test_reminder_pushes_no_further_than_its_question_may(person: Person, kind: str, name: str) -> None:
    """Whoever mutes a chat does not want to be reminded of it; the person is still told."""
    message = await person.ask()
    await have_seen(person, message)
    muted = message.sender.id if kind == "sender" else name
    await person.rig.store.people.set_mute(Mute(kind, muted, None), is_on=True)
    await person.rig.policies.refresh()
    await person.minutes(31)
    assert (await person.reminders(), len(person.toasts)) == ([], 1)
