"""Senders and readers of a home whose daemon is killed: each remembers what it was told, and nothing else counts.

Only an answer of success makes a message accepted, or a delivery seen. What was not answered is in doubt: it may be
stored, once, and is sent again under the same id or given up.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from harken.testing import CallFailed, DaemonProcess, EdgeClient
from tests.loss.rig import CALL_HELLO, WAIT_SECONDS, Chance, Json, Wire, agent_of, until
from tests.loss.test_random_kills import as_given

MAILBOXES: Final = ("inbox", "project:soak")
READER: Final = "reader"
AGENT: Final = "loss-agent"
PAUSE_SECONDS: Final = 0.02
GIVEN_UP: Final = 0.2  # of what was not accepted
SENT_TWICE: Final = 0.1
MAX_PULLED: Final = 10
OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A message that a sender was told is stored."""

    id: str
    text: str
    mailbox: str
    sender: str
    key: str


@dataclass(slots=True)
class Promises:
    """What the senders and readers of a home were told."""

    accepted: list[Accepted] = field(default_factory=list[Accepted])
    tried: set[str] = field(default_factory=set[str])  # every text that was ever sent
    seen: set[str] = field(default_factory=set[str])  # the ids that the reader has acknowledged
    given: set[str] = field(default_factory=set[str])  # the texts that the agent was given
    doubled: list[str] = field(default_factory=list[str])  # those that it was given again without the mark
    renamed: list[str] = field(default_factory=list[str])  # what was sent twice and got another id
    refused: int = 0
    doubtful: int = 0


class Traffic:
    """Threads that go on through every kill, and can be held still to look at what they were told."""

    def __init__(self, daemon: DaemonProcess, seed: int) -> None:
        self.promises = Promises()
        self._daemon = daemon
        self._gate = threading.Event()
        self._busy = [threading.Lock() for _ in range(5)]
        self._is_over = False
        self._agent: EdgeClient | None = None
        self._broken: list[BaseException] = []
        jobs: list[Callable[[Chance], None]] = [
            self._sends("one", over_socket),
            self._sends("two", over_socket),
            self._sends("web", over_http),
            self._read,
            self._pull,
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(job, Chance(f"{seed}/{number}")))
            for number, job in enumerate(jobs)
        ]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Let it flow for the time of the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            self._gate.set()
            for thread in self._threads:
                thread.join(2 * WAIT_SECONDS)
        assert not self._broken, self._broken
        assert not any(thread.is_alive() for thread in self._threads)

    def go_on(self) -> None:
        """Let everyone send and read."""
        self._gate.set()

    def hold(self) -> None:
        """Return when nobody waits for an answer, and let nobody begin."""
        self._gate.clear()
        if (agent := self._agent) is not None:
            with suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGKILL)  # its edge would wait for the next daemon
        for lock in self._busy:
            assert lock.acquire(timeout=2 * WAIT_SECONDS), "somebody waits for ever"
            lock.release()
        assert not self._broken, self._broken

    def until_accepted(self, count: int) -> None:
        """Return when so many more were accepted."""
        goal = len(self.promises.accepted) + count
        until(lambda: len(self.promises.accepted) >= goal or self._broken, "messages are accepted", 60)

    def _work(self, job: Callable[[Chance], None], chance: Chance) -> None:
        try:
            job(chance)
        except BaseException as exc:
            self._broken.append(exc)
            raise

    def _turns(self, place: int) -> Iterator[None]:
        """Yield whenever something may be done."""
        while True:
            self._gate.wait()
            if self._is_over:
                return
            with self._busy[place]:
                if self._gate.is_set():
                    yield

    def _sends(self, name: str, post: Callable[[DaemonProcess, Json], Json]) -> Callable[[Chance], None]:
        place = ("one", "two", "web").index(name)

        def send(chance: Chance) -> None:
            number = 1
            for _ in self._turns(place):
                mailbox = chance.choice(MAILBOXES) if number % 7 == 0 else MAILBOXES[0]
                text, key = f"{number} of {name} {'x' * chance.randrange(1, 400)}", f"{name}/{number}"
                told = {"text": text, "sender": name, "to": mailbox, "upstream_id": key}
                self.promises.tried.add(text)
                if not self._sent(post, told) and chance.random() >= GIVEN_UP:
                    while not (self._sent(post, told) or self._is_over or not self._gate.is_set()):
                        select.select([], [], [], PAUSE_SECONDS)
                elif chance.random() < SENT_TWICE:
                    self._sent(post, told)
                number += 1

        return send

    def _sent(self, post: Callable[[DaemonProcess, Json], Json], told: Json) -> bool:
        """Send a message; return whether it was accepted, and note it if it was."""
        try:
            answer = post(self._daemon, told)
        except CallFailed:
            self.promises.refused += 1
            return False
        except (OSError, http.client.HTTPException, ValueError):
            self.promises.doubtful += 1
            return False
        before = [each for each in self.promises.accepted[-50:] if each.key == told["upstream_id"]]
        if before:
            self.promises.renamed += [told["upstream_id"]] if before[0].id != answer["id"] else []
        else:
            self.promises.accepted.append(
                Accepted(
                    id=answer["id"],
                    text=told["text"],
                    mailbox=told["to"],
                    sender=told["sender"],
                    key=told["upstream_id"],
                )
            )
        return True

    def _read(self, chance: Chance) -> None:
        for _ in self._turns(3):
            try:
                pulled = pull(self._daemon, chance.randint(1, MAX_PULLED))
                if chance.random() < 1 / 2:
                    acknowledge(self._daemon, self.promises, pulled)
            except (OSError, CallFailed, ValueError):
                select.select([], [], [], PAUSE_SECONDS)

    def _pull(self, _chance: Chance) -> None:
        try:
            for _ in self._turns(4):
                try:
                    answer = self._asked()
                except (OSError, EOFError, KeyError):
                    self._end_agent()
                    continue
                if "error" in answer or answer["result"].get("isError"):
                    select.select([], [], [], PAUSE_SECONDS)
                    continue
                for text, is_repeat in as_given(answer["result"]):
                    self.promises.doubled += [text] if text in self.promises.given and not is_repeat else []
                    self.promises.given.add(text)
        finally:
            self._end_agent()

    def _asked(self) -> Json:
        """Let the agent pull; one whose edge was killed is another one."""
        if self._agent is None:
            self._agent = agent_of(self._daemon.home)
            self._agent.handshake()
        return self._agent.answer(self._agent.ask_tool("inbox_pull", limit=MAX_PULLED))

    def _end_agent(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.kill()
            agent.close()


def pull(daemon: DaemonProcess, limit: int) -> list[Json]:
    """Return what the reader has not acknowledged."""
    return list(daemon.call("pull", consumer=READER, limit=limit)["messages"])


def acknowledge(daemon: DaemonProcess, promises: Promises, pulled: list[Json]) -> None:
    """Acknowledge messages as the reader, and note it when that was answered."""
    if not pulled:
        return
    ids = [message["id"] for message in pulled]
    daemon.call("ack", consumer=READER, refs=ids)
    promises.seen.update(ids)


def over_socket(daemon: DaemonProcess, told: Json) -> Json:
    """Send as the command line does."""
    with Wire(daemon.socket, CALL_HELLO) as wire:
        wire.say({"id": 1, "method": "send", "params": told})
        answer = json.loads(wire.line())
    if "error" in answer:
        raise CallFailed(answer["error"])
    return answer["result"]


def over_http(daemon: DaemonProcess, told: Json) -> Json:
    """Send as a program does."""
    token = (daemon.home / "token").read_text().strip()
    place = urlsplit(daemon.facts["url"]).netloc
    with closing(http.client.HTTPConnection(place, timeout=WAIT_SECONDS)) as there:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        there.request("POST", "/api/send", json.dumps(told), headers)
        answer = there.getresponse()
        body = json.loads(answer.read())
    if answer.status != OK:
        raise CallFailed(body.get("error", body))
    return body
