"""An agent of our own as a process, as its client sees it, in both versions of the protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from harken.acp.agent import AcpAgent, connected
from harken.acp.protocol import (
    AcpToolCall,
    OptionKind,
    PermissionOption,
    PermissionRequest,
    SessionState,
    SessionUpdate,
)
from harken.errors import NeedsPerson, UserError
from harken.runs.process import ChildProcess, started
from harken.runs.sandbox import SandboxCommand

AGENT = Path(__file__).with_name("echo_agent.py")
BOUND_SECONDS = 30.0


class Listener:
    """Keeps what it hears, and answers questions with one kind of option."""

    def __init__(self, kind: OptionKind | None = None) -> None:
        self._kind = kind
        self.updates: list[SessionUpdate] = []
        self.questions: list[PermissionRequest] = []
        self.idle = anyio.Event()

    async def updated(self, update: SessionUpdate) -> None:
        """Keep it."""
        self.updates.append(update)
        if update.state == SessionState.IDLE:
            self.idle.set()

    async def permission(self, request: PermissionRequest) -> PermissionOption | None:
        """Answer with the kind of option, where there is one."""
        self.questions.append(request)
        return request.option(self._kind) if self._kind else None


@asynccontextmanager
async def running(listener: Listener, cwd: Path, version: int = 1) -> AsyncIterator[tuple[AcpAgent, ChildProcess]]:
    """The agent, started and greeted."""
    command = SandboxCommand(argv=(sys.executable, str(AGENT), str(version)), env=dict(os.environ))
    with anyio.fail_after(BOUND_SECONDS):
        async with started(command, cwd) as child, anyio.create_task_group() as tasks:
            tasks.start_soon(child.see_through)
            async with connected(child.incoming, child.outgoing, listener) as agent:
                await agent.greet()
                yield agent, child
            tasks.cancel_scope.cancel()


async def test_a_prompt_of_version_1_is_answered_at_the_end_of_its_turn(tmp_path: Path) -> None:
    """That answer is the only sign of the end there."""
    listener = Listener()
    async with running(listener, tmp_path) as (agent, child):
        assert (agent.greeting.version, agent.greeting.name) == (1, "echo")
        assert agent.greeting.can_load
        assert agent.greeting.can_steer
        assert not agent.greeting.can_resume
        session = await agent.open(str(tmp_path))
        receipt = await agent.prompt(session, "hello")
        assert (receipt.stop, receipt.message) == ("end_turn", "")
        assert [each.text for each in listener.updates] == ["hello"]
        assert await agent.sessions()
    assert child.stderr == "a word on standard error"


async def test_a_prompt_of_version_2_is_taken_with_an_id_that_its_message_has(tmp_path: Path) -> None:
    """The message with that id in the conversation is the proof that the model gets it."""
    listener = Listener()
    async with running(listener, tmp_path, version=2) as (agent, _):
        assert agent.greeting.version == 2
        receipt = await agent.prompt(await agent.open(str(tmp_path)), "hello")
        await listener.idle.wait()
        assert receipt.message == "m-1"
        reported = [each for each in listener.updates if each.is_from_user]
        assert [(each.message, each.text) for each in reported] == [("m-1", "hello")]
        assert listener.updates[-1].stop == "end_turn"


async def test_all_pages_of_a_listing_are_read(tmp_path: Path) -> None:
    """A conversation on the second page can be resumed, too."""
    async with running(Listener(), tmp_path) as (agent, _):
        assert [each.id for each in await agent.sessions()] == ["s-1", "s-2"]


@pytest.mark.parametrize(
    ("kind", "outcome"), [(OptionKind.REJECT_ONCE, '"no"'), (OptionKind.ALLOW_ONCE, '"yes"'), (None, "cancelled")]
)
async def test_a_question_is_answered_with_one_of_its_options(
    tmp_path: Path, kind: OptionKind | None, outcome: str
) -> None:
    """What the agent is answered is what was chosen, and no answer is never an allow."""
    listener = Listener(kind)
    async with running(listener, tmp_path) as (agent, _):
        await agent.prompt(await agent.open(str(tmp_path)), "ask")
        assert listener.questions[0].tool.input == {"command": "rm -rf /"}
        assert outcome in listener.updates[-1].text


async def test_an_agent_that_wants_a_sign_in_says_so_to_the_person(tmp_path: Path) -> None:
    """It is told by a number only, and nothing else helps."""
    async with running(Listener(), tmp_path) as (agent, _):
        with pytest.raises(NeedsPerson, match="sign in"):
            await agent.prompt(await agent.open(str(tmp_path)), "sign in")


async def test_what_an_agent_left_behind_ends_with_it(tmp_path: Path) -> None:
    """A server that an agent started, in a session of its own, would go on for ever."""
    async with running(Listener(), tmp_path) as (agent, child):
        await agent.prompt(await agent.open(str(tmp_path)), "leave a child")
        left = [each for each in psutil.Process(child.pid).children(recursive=True) if "600" in each.cmdline()]
        assert left
    assert not any(each.is_running() for each in left)


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The agent of an editor's settings may never have been installed."""
    with pytest.raises(UserError, match="no-such-agent could not be started"):
        async with started(SandboxCommand(argv=("no-such-agent",), env=dict(os.environ)), tmp_path):
            pass


def test_of_two_options_of_one_kind_none_is_chosen() -> None:
    """Two ways to allow once may mean different things: the person chooses at the agent."""
    options = [PermissionOption(id=name, name=name, kind=OptionKind.ALLOW_ONCE) for name in ("a", "b")]
    request = PermissionRequest(session="s", tool=AcpToolCall(id="c"), options=options)
    assert request.option(OptionKind.ALLOW_ONCE) is None
