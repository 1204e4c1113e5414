"""Teams and Outlook for minutes: a real daemon, a service that fails at random, and SIGKILL again and again.

Nothing of the time is scaled: the service enforces its limits by the second, and the daemon keeps to them by the same
second. What is denser than in life is the traffic: what many people say in hours is said here within minutes.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from harken.testing import DaemonProcess
from tests.daemon.graph_rig import Arrivals, Json, add_account, sign_in
from tests.graph.faults import Fault
from tests.graph.service import Graph, serving
from tests.graph.world import Chat, ChatMessage, Mail, Person
from tests.loss.rig import Chance, check_journal, export, received, until

pytestmark = pytest.mark.soak

CHATS: Final = 1_000
MESSAGES: Final = 20_000
WAVES: Final = 20
CHATS_PER_WAVE: Final = 100
BURST: Final = 130  # more than two pages
LATE_PER_WAVE: Final = 2
CHANGES_PER_WAVE: Final = 6
KILLS: Final = 18
MAILS: Final = 2_000
MAIL_WAVES: Final = 10
MAIL_KILLS: Final = 9
FOLDERS: Final = ("inbox", "archive", "deleteditems")
REPLAYED: Final = 7
REVOKED_WAVE: Final = 6  # the person has to sign in again, and until then the place waits
MAX_REQUESTS: Final = 140  # from the start of a daemon to its end
KILL_SECONDS: Final = 15.0
WRITE_SECONDS: Final = 0.0005
LAST_SECONDS: Final = 180.0
QUIET_REQUESTS: Final = 30
NAIVE_SECONDS: Final = 5.0
TOO_MANY: Final = 429
RATES: Final[Mapping[Fault, float]] = {
    Fault.SERVER_ERROR: 0.01,
    Fault.BAD_GATEWAY: 0.005,
    Fault.UNAVAILABLE: 0.01,
    Fault.GATEWAY_TIMEOUT: 0.005,
    Fault.THROTTLED: 0.01,
    Fault.RESET: 0.01,
    Fault.LOST: 0.01,
    Fault.TRUNCATED: 0.01,
    Fault.REORDERED: 0.03,
    Fault.DUPLICATED: 0.03,
}


@pytest.fixture
def graph() -> Iterator[Graph]:
    """The service, with the same surprises in every run."""
    with serving(seed=71) as service:
        yield service


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say what was measured, also when all is well."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return say


@dataclass
class Run:
    """A daemon, the service it reads, and what came of it."""

    graph: Graph
    daemon: DaemonProcess
    chance: Chance
    arrivals: Arrivals
    kills: int = 0
    begun: float = 0.0
    asked: int = 0

    def begin(self, source: str) -> None:
        """Start the daemon, wait until it knows where it begins, and let things go wrong from then on."""
        self.daemon.start()
        until(lambda: self._is_listening(source), "the source listens", KILL_SECONDS)
        self.graph.faults(**{fault.value: rate for fault, rate in RATES.items()}, under="/v1.0/")
        self.begun, self.asked = time.monotonic(), len(self.graph.requests)

    def be_killed(self) -> None:
        """Kill the daemon after a number of requests that chance names, and start it again."""
        goal = len(self.graph.requests) + self.chance.choice((1, 5, 20, MAX_REQUESTS)) * self.chance.random()
        end = time.monotonic() + KILL_SECONDS
        until(lambda: len(self.graph.requests) > goal or time.monotonic() > end, "it asks", 2 * KILL_SECONDS)
        if self.kills % 2:
            self._until_it_writes()
        self.daemon.kill()
        self.kills += 1
        self.daemon.start()

    def _until_it_writes(self) -> None:
        """Return right when the store has written something: what belongs together must be there together."""
        log = self.daemon.home / "harken.db-wal"
        before, end = log.stat().st_mtime_ns, time.monotonic() + KILL_SECONDS
        while log.stat().st_mtime_ns == before and time.monotonic() < end:
            select.select([], [], [], WRITE_SECONDS)

    def until_arrived(self, count: int) -> None:
        """Wait until there are so many messages, edits and deletions."""

        def is_there() -> bool:
            self.arrivals.look()
            return len(self.arrivals.messages) >= count

        until(is_there, "all arrives", LAST_SECONDS)

    def per_minute(self) -> float:
        """Return the requests for each minute so far."""
        return (len(self.graph.requests) - self.asked) * 60 / (time.monotonic() - self.begun)

    def when_quiet(self) -> float:
        """Return the requests for each minute while nothing happens."""
        self.begun, self.asked = time.monotonic(), len(self.graph.requests)
        goal = self.asked + QUIET_REQUESTS
        until(lambda: len(self.graph.requests) >= goal, "it asks", LAST_SECONDS)
        return self.per_minute()

    def stored(self) -> list[Json]:
        """Return every message of the store; the journal must say the same."""
        stored = export(self.daemon, "inbox")
        assert [each["seq"] for each in stored] == list(range(1, len(stored) + 1))
        assert received(check_journal(self.daemon)) == [each["id"] for each in stored]
        return stored

    def _is_listening(self, source: str) -> bool:
        sources: list[Json] = self.daemon.call("source_list")["sources"]
        return [each["state"] for each in sources if each["name"] == source] == ["listening"]


@pytest.fixture
def run(graph: Graph, home: Path) -> Iterator[Run]:
    """A run whose daemon is not started yet."""
    daemon = DaemonProcess(home)
    yield Run(graph, daemon, Chance(20_261_116), Arrivals(home))
    daemon.stop()


@dataclass
class Talk:
    """What was said in the chats, and what became of it."""

    graph: Graph
    chance: Chance
    people: list[Person]
    chats: list[Chat] = field(default_factory=list[Chat])
    said: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_text: dict[str, tuple[Chat, ChatMessage]] = field(default_factory=dict[str, tuple[Chat, ChatMessage]])
    edited: dict[str, str] = field(default_factory=dict[str, str])  # the new text by the old
    deleted: set[str] = field(default_factory=set[str])

    @property
    def count(self) -> int:
        """How many messages were said."""
        return len(self.by_text)

    def open(self, count: int) -> list[Chat]:
        """Begin some chats."""
        new = [self.graph.chat(self.chance.choice(self.people), topic=f"t{len(self.chats) + n}") for n in range(count)]
        self.chats += new
        return new

    def say(self, chat: Chat, times: int = 1) -> None:
        """Let the other in a chat say something, some of it with markup."""
        for _ in range(times):
            text = f"{len(self.said[chat.id])} in {chat.topic}"
            self.by_text[text] = (chat, self.graph.say(chat, chat.members[1], f"<p>{text}</p>"))
            self.said[chat.id].append(text)

    def change(self, text: str) -> None:
        """Let somebody edit or take back what has arrived; the chat goes on, because only that is seen at once."""
        chat, message = self.by_text[text]
        if text in self.edited or text in self.deleted:
            return
        if self.chance.random() < 1 / 2:
            self.edited[text] = f"corrected: {text}"
            self.graph.edit(chat, message, f"<p>{self.edited[text]}</p>")
        else:
            self.deleted.add(text)
            self.graph.delete(chat, message)
        self.say(chat)

    def wave(self, number: int, arrived: list[str]) -> None:
        """Let a tenth of the chats talk, one of them in a burst, a few new ones appear, and some be corrected."""
        late = self.open(LATE_PER_WAVE) if number else []
        turn = [self.chats[(number * CHATS_PER_WAVE + n) % len(self.chats)] for n in range(CHATS_PER_WAVE)]
        for text in self.chance.sample(arrived, min(CHANGES_PER_WAVE, len(arrived))):
            self.change(text)
        self.say(self.chance.choice(turn), BURST)
        left = (number + 1) * MESSAGES // WAVES - self.count
        speakers = [*late, *turn]
        for index, chat in enumerate(speakers):
            self.say(chat, left // len(speakers) + (index < left % len(speakers)))


def check_talk(talk: Talk, stored: list[Json]) -> None:
    """Assert that each chat arrived whole, once and in order, and that what refers to a message refers to it."""
    by_id = {each["id"]: each["content_text_sanitized"] for each in stored}
    got: dict[str, list[str]] = defaultdict(list)
    for each in stored:
        if each["kind"] == "message":
            got[each["chat_id"]].append(each["content_text_sanitized"])
    assert got == talk.said
    edits = [(by_id[each["refers_to"]], each["content_text_sanitized"]) for each in stored if each["kind"] == "edit"]
    assert sorted(edits) == sorted(talk.edited.items())
    deletions = [by_id[each["refers_to"]] for each in stored if each["kind"] == "deletion"]
    assert sorted(deletions) == sorted(talk.deleted)


def test_a_thousand_chats_arrive_once_and_in_order_whatever_fails_and_is_killed(
    run: Run, tell: Callable[[str], None]
) -> None:
    """An accepted message is never lost: by no error, ended token or page twice, nor by SIGKILL at any moment."""
    graph, chance = run.graph, run.chance
    talk = Talk(graph, chance, [graph.person(f"P{number}") for number in range(20)])
    talk.open(CHATS - LATE_PER_WAVE * (WAVES - 1))
    old = talk.chats[0]
    graph.say(old, old.members[1], "<p>before the sign-in</p>")
    add_account(run.daemon.home, graph, "chats", "teams")
    sign_in(run.daemon.home, graph, "chats")
    run.begin("chats")
    for number in range(WAVES):
        run.arrivals.look()
        talk.wave(number, [each for each in run.arrivals.texts() if each in talk.by_text])
        if number % 4 == 1:
            graph.expire_tokens()
        if number % 5 == 2:
            graph.expire_pages()
        if number == REVOKED_WAVE:
            graph.revoke_sign_in()
        if run.kills < KILLS:
            run.be_killed()
        if number == REVOKED_WAVE:
            sign_in(run.daemon.home, graph, "chats")
    run.until_arrived(talk.count)
    busy = run.per_minute()
    graph.faults()
    for text in [*talk.edited, *talk.deleted]:
        talk.say(talk.by_text[text][0])
    wanted = talk.count + len(talk.edited) + len(talk.deleted)
    run.until_arrived(wanted)
    naive, quiet = len(talk.chats) * 60 / NAIVE_SECONDS, run.when_quiet()
    tell(f"Teams: {busy:.0f} requests a minute, {quiet:.0f} when nothing is said, naively {naive:.0f}")
    check_talk(talk, run.stored())
    assert (len(talk.chats), run.kills) == (CHATS, KILLS)
    assert talk.count >= MESSAGES
    assert min(len(talk.edited), len(talk.deleted)) > WAVES
    assert {entry.fault for entry in graph.requests if entry.fault} == set(RATES)
    assert busy < naive / 5
    # Only the service's own faults say that it was too much. A daemon cannot know what the one before it, which was
    # killed a moment ago, has asked: there a limit may be met once.
    assert len([entry for entry in graph.requests if entry.status == TOO_MANY and not entry.fault]) <= run.kills


def receive(run: Run, ann: Person, count: int) -> list[Mail]:
    """Let mails come into the folders, some of them marked or read later, which is no new mail."""
    graph, mails = run.graph, run.graph.world.mails
    new: list[Mail] = []
    for _ in range(count):
        subject, folder = f"mail {len(mails)}", run.chance.choice(FOLDERS)
        new.append(graph.mail(ann, subject, f"<div>{subject} says <b>hello</b></div>", folder=folder))
        if run.chance.random() < 1 / 4:
            graph.world.touch(mails[run.chance.randint(1, len(mails))])
    return new


def test_two_thousand_mails_arrive_once_and_in_order_whatever_fails_and_is_killed(
    run: Run, tell: Callable[[str], None]
) -> None:
    """Changes that come twice, links that are forgotten and SIGKILL at any moment neither lose a mail nor double it."""
    graph, ann = run.graph, run.graph.person("Ann")
    graph.mail(ann, "before", "<p>before the sign-in</p>", at=graph.clock.now() - timedelta(minutes=1))
    add_account(run.daemon.home, graph, "mail", "outlook", f"folders = {json.dumps(FOLDERS)}\n")
    sign_in(run.daemon.home, graph, "mail")
    run.begin("mail")
    came: list[Mail] = []
    for number in range(MAIL_WAVES):
        came += receive(run, ann, MAILS // MAIL_WAVES)
        graph.replay(REPLAYED * (number % 2))
        if number % 3 == 1:
            graph.expire_deltas(with_place=number % 2 == 0)
        if number % 4 == 2:
            graph.expire_tokens()
        if number == REVOKED_WAVE:
            graph.revoke_sign_in()
        if run.kills < MAIL_KILLS:
            run.be_killed()
        if number == REVOKED_WAVE:
            sign_in(run.daemon.home, graph, "mail")
    run.until_arrived(len(came))
    busy = run.per_minute()
    graph.faults()
    graph.replay(0)
    last = receive(run, ann, len(FOLDERS))
    run.until_arrived(len(came) + len(last))
    tell(f"Outlook: {busy:.0f} requests a minute for {len(came)} mails, {run.when_quiet():.0f} when none comes")
    stored = run.stored()
    assert sorted(each["meta"]["subject"] for each in stored) == sorted(mail.subject for mail in [*came, *last])
    assert {each["content_text_sanitized"].count("<b>") for each in stored} == {0}
    for folder in FOLDERS:
        mine = {mail.subject: mail.received.replace(microsecond=0) for mail in came if mail.folder == folder}
        times = [mine[each["meta"]["subject"]] for each in stored if each["meta"]["subject"] in mine]
        assert times == sorted(times), f"{folder} is not in order"
    assert run.kills == MAIL_KILLS
    assert {410, 400} <= {entry.status for entry in graph.asked("/messages/delta")}
    assert len({entry.fault for entry in graph.requests if entry.fault}) > len(RATES) // 2
    assert len([entry for entry in graph.requests if entry.status == TOO_MANY and not entry.fault]) <= run.kills
