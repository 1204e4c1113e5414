"""What Codex asks, without Codex: a server that forgets, garbles and hangs up, as the real one cannot be made to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import anyio
import pytest

from harken.hosts.codex.approvals import MARK, CodexListener, SharedServerEar, decision_of, mark_text, request_of
from harken.hosts.codex.wake import CodexWaker
from harken.hosts.wake import HostQuestion, WakeTarget
from harken.model import ApprovalChoice

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

WAIT_SECONDS = 30.0
THREAD = "01a1"
RULE = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "a"]}}
PARAMS: Mapping[str, object] = {
    "kind": "command", "threadId": THREAD, "turnId": "t1", "itemId": "call_1", "startedAtMs": 1,
    "environmentId": "local", "reason": "to make a file", "command": "/bin/bash -lc 'touch a'", "cwd": "/code/shop",
    "commandActions": [], "availableDecisions": ["accept", RULE, "cancel"],
}  # fmt: skip


def waiting(*, is_waiting: bool = True) -> Json:
    """Return what Codex says of a thread in the middle of a turn."""
    return {"type": "active", "activeFlags": ["waitingOnApproval"] if is_waiting else []}


@dataclass
class Server:
    """A stand-in for the shared server: answers calls, and says what a test lets it say."""

    status: Json = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    decisions: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._out, self._said = anyio.create_memory_object_stream[str](1_000)
        self.heard = anyio.Event()

    def say(self, **said: object) -> None:
        """Say something unasked."""
        self._out.send_nowait(json.dumps(said))

    def ask(self, number: int = 6, **changed: object) -> None:
        """Ask for an approval."""
        self.say(id=number, method="item/commandExecution/requestApproval", params={**PARAMS, **changed})

    def notify(self, method: str, **params: object) -> None:
        """Tell what happened in the thread."""
        self.say(method=method, params={"threadId": THREAD, **params})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ended: object) -> None:
        self._out.close()
        self._said.close()

    def hang_up(self) -> None:
        """Go away."""
        self._out.close()

    async def send(self, text: str) -> None:
        """Take what the client sends."""
        said = json.loads(text)
        if "method" not in said:
            self.decisions.append((said["id"], said["result"]["decision"]))
        else:
            self.calls.append((said["method"], said["params"].get("threadId", "")))
            thread = {"id": THREAD, "status": self.status, "parentThreadId": None, "originator": "vscode"}
            self.say(id=said["id"], result={"data": [THREAD], "thread": thread})
        self.heard.set()
        self.heard = anyio.Event()

    async def receive(self) -> str:
        """Return the next text."""
        return await self._said.receive()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the client has said something that makes it so."""
        with anyio.fail_after(WAIT_SECONDS):
            while not is_so():
                await self.heard.wait()


class Person:
    """Takes questions in the place of the daemon."""

    def __init__(self) -> None:
        self._out, self._asked = anyio.create_memory_object_stream[HostQuestion](100)
        self.ended: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ended: object) -> None:
        self._out.close()
        self._asked.close()

    async def ask(self, host: str, question: HostQuestion, lineage: Sequence[str]) -> None:
        """Keep a question until it is over."""
        assert (host, list(lineage)) == ("codex", [THREAD])
        self._out.send_nowait(question)
        self.ended.append(await question.over())

    async def asked(self) -> HostQuestion:
        """Return the next question."""
        with anyio.fail_after(WAIT_SECONDS):
            return await self._asked.receive()

    @property
    def is_asked(self) -> bool:
        """Whether a question is there."""
        return bool(self._asked.statistics().current_buffer_used)


@asynccontextmanager
async def hearing(server: Server, person: Person) -> AsyncIterator[None]:
    """Listen to a server while the block runs; it hangs up at its end."""
    ear = SharedServerEar(server, Path("/home/ann/.codex"), person.ask, CodexWaker(terminals=lambda _: [0.0]))
    with server, person:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ear.run)
            yield
            server.hang_up()


async def test_thread_is_followed_only_while_it_waits() -> None:
    """A server keeps a thread that somebody follows; a conversation that was closed would stay for ever."""
    server, person = Server(status=waiting(is_waiting=False)), Person()
    async with hearing(server, person):
        server.notify("thread/status/changed", status=waiting(is_waiting=False))
        server.notify("thread/status/changed", status=waiting())
        await server.until(lambda: ("thread/resume", THREAD) in server.calls)
        server.ask()
        await person.asked()
        server.notify("serverRequest/resolved", requestId=6)
        await server.until(lambda: ("thread/unsubscribe", THREAD) in server.calls)
    assert person.ended == ["it was answered in its own terminal"]
    assert server.decisions == []


async def test_thread_that_asks_what_is_left_to_codex_is_let_go_too() -> None:
    """Nothing of it is asked here, so no end of a question says that it waits no more."""
    server, person = Server(status=waiting(is_waiting=False)), Person()
    async with hearing(server, person):
        server.notify("thread/status/changed", status=waiting())
        await server.until(lambda: ("thread/resume", THREAD) in server.calls)
        server.say(id=7, method="item/fileChange/requestApproval", params={**PARAMS, "command": None})
        server.ask(kind="writeStdin")
        server.notify("thread/status/changed", status=waiting(is_waiting=False))
        await server.until(lambda: ("thread/unsubscribe", THREAD) in server.calls)
        assert not person.is_asked
    assert server.decisions == []


async def test_what_waited_before_anybody_listened_is_asked() -> None:
    """The daemon was restarted, or the session is younger than the last look."""
    server, person = Server(status=waiting()), Person()
    async with hearing(server, person):
        await server.until(lambda: ("thread/resume", THREAD) in server.calls)
        server.ask()
        server.ask()  # sent again to a client that follows it already
        question = await person.asked()
        assert question.request.arguments == {"command": "/bin/bash -lc 'touch a'"}
        assert question.request.always == 'commands that begin with ["touch", "a"]'
        assert not person.is_asked


@pytest.mark.parametrize(
    ("choice", "decision"), [("once", "accept"), ("always", RULE), ("no", "decline")], ids=["once", "always", "no"]
)
@pytest.mark.parametrize("did", ["ran", "did not run", "hung up"])
async def test_answer_is_obeyed_by_what_codex_does(choice: str, decision: object, did: str) -> None:
    """A request is resolved by the first answer, which may have been given in the terminal: only the deed tells."""
    server, person, evidence = Server(status=waiting()), Person(), list[str | None]()
    async with anyio.create_task_group() as tasks:

        async def reply() -> None:
            evidence.append(await question.reply(ApprovalChoice(choice), ""))

        async with hearing(server, person):
            server.ask()
            question = await person.asked()
            tasks.start_soon(reply)
            await server.until(lambda: server.decisions == [(6, decision)])
            server.notify("serverRequest/resolved", requestId=6)
            if did == "ran":
                server.notify("item/started", item={"id": "call_1", "type": "commandExecution"})
            if did != "hung up":
                server.notify("turn/completed", turn={"id": "t1"})
    is_obeyed = (did == "ran") == (choice != "no")
    assert len(evidence) == 1
    if did == "hung up":
        assert evidence == [None]
    else:
        assert bool(evidence[0]) is is_obeyed


async def test_late_answer_is_not_sent() -> None:
    """The one at the keyboard was first: a second decision for the same number might be another request's by then."""
    server, person = Server(status=waiting()), Person()
    async with hearing(server, person):
        server.ask()
        question = await person.asked()
        server.notify("serverRequest/resolved", requestId=6)
        await question.over()
        assert await question.reply(ApprovalChoice.ONCE, "") == ""
    assert server.decisions == []


@pytest.mark.parametrize(
    "changed",
    [
        {"command": None}, {"command": ""}, {"threadId": 7}, {"threadId": ""}, {"kind": "writeStdin"},
        {"approvalId": "zsh"}, {"availableDecisions": ["cancel"]},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_whole_is_left_to_codex(changed: Mapping[str, object]) -> None:
    """Its own dialog is open all the time."""
    assert request_of({**PARAMS, **changed}) is None


@pytest.mark.parametrize("offered", [None, "x", ["accept"], ["accept", {}], ["accept", {"x": 1}, 7]], ids=str)
def test_always_is_offered_only_as_codex_offers_it(offered: object) -> None:
    """To any word that it does not know Codex says no, and a rule that was not shown must not be written."""
    found = request_of({**PARAMS, "availableDecisions": offered})
    assert found is not None
    assert found.choices == (ApprovalChoice.ONCE, ApprovalChoice.NO)


def test_everything_that_a_command_would_be_given_is_shown() -> None:
    """More rights than the command says are part of what is asked, and of the hash that an answer names."""
    more = {"additionalPermissions": {"network": True}, "networkApprovalContext": {"host": "evil", "protocol": "https"}}
    found = request_of({**PARAMS, **more})
    assert found is not None
    assert found.arguments == {"command": "/bin/bash -lc 'touch a'", **more}
    assert decision_of(PARAMS, ApprovalChoice.ALWAYS) == RULE


@pytest.mark.parametrize("said", [None, b"{}", b"", mark_text("/other"), mark_text("/home/ann/.harken")])
def test_only_the_harken_that_was_chosen_listens(tmp_path: Path, said: bytes | None) -> None:
    """Codex is asked for its questions only by the home that `connect --approvals` was run for."""
    if said is not None:
        (tmp_path / MARK).write_bytes(said)
    target, mine = WakeTarget(native=THREAD, env={"CODEX_HOME": str(tmp_path)}), "/home/ann/.harken"
    assert list(CodexListener().places([target], mine)) == ([str(tmp_path)] if said == mark_text(mine) else [])


async def test_home_without_a_server_has_nothing_to_hear(tmp_path: Path) -> None:
    """A terminal may run by itself: it asks there, and the daemon looks again."""

    async def never(host: str, question: HostQuestion, lineage: Sequence[str]) -> None:
        raise AssertionError((host, question, lineage))

    with anyio.fail_after(WAIT_SECONDS):
        await CodexListener().listen(str(tmp_path), never)
