"""Questions of rules in a session: shown to the person, answered once, and never by anything but a person."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import Action, ActionId, ActionState, Mode, Order
from harken.daemon.confirmations import USED_WITHIN, has_person
from harken.inbox.automation import ActionDetails
from harken.model import MessageId, Sender, SessionKey
from harken.sessions.session import Session
from harken.surfaces.mcp.services import question
from harken.testing import FakeClock
from harken.trial.screen import TerminalProgram
from tests.builders import a_message, a_session
from tests.fake_host import fake_host
from tests.hooks.rig import CLAUDE, CODEX, COPILOT, QWEN, Kind
from tests.mcp.asking_rig import LATER, NO, OWNER, SOON, YES, Person, Room, open_room


@pytest.fixture
async def room(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    """A machine on which Gemini CLI seems to be installed, and a rule that asks whether to run it."""
    with fake_host(tmp_path, "#!/bin/sh\n"):
        async with open_room(tmp_path / "home", has_person=getattr(request, "param", True)) as opened:
            yield opened


async def asked(person: Person) -> None:
    """Return when a person sees a question."""
    with anyio.fail_after(SOON):
        await person.is_asked.wait()


async def test_yes_in_a_session_lets_it_run(room: Room) -> None:
    """Whoever sits before their agent should not have to look for another terminal; and they see what would run."""
    person = room.person()
    async with room.session(person):
        action = await room.fire("the build\x1b[2J is red\n\nplease look")
        await asked(person)
        (shown,) = person.shown
        assert shown.splitlines() == [
            f"Run gemini-cli? Rule incident, {action.id}",
            "Folder: a folder of its own",
            "Tools: read_file",
            "Trust known: “ci-bot” in “ci”: “the build is red please look”",
        ]
        assert person.forms[0]["required"] == [action.id]
        person.say(YES, action.id)
        assert await room.until(action, ActionState.QUEUED) == "you, in Claude Code"


async def test_no_in_a_session_declines(room: Room) -> None:
    """A no is an answer like any other."""
    person = room.person()
    async with room.session(person, kind=COPILOT):
        action = await room.fire()
        await asked(person)
        person.say(NO, action.id)
        assert await room.until(action, ActionState.DECLINED) == "you, in Copilot CLI"


@pytest.mark.parametrize("how", ["decline", "cancel", LATER, "something else"])
async def test_question_that_is_put_away_stays_for_the_page_and_is_asked_nowhere_else(room: Room, how: str) -> None:
    """Closing a form that came unasked is no answer, and a person who did so does not want it from the next window."""
    person, other = room.person(), room.person()
    async with room.session(other), room.session(person):
        room.clock.advance(1)
        action = await room.fire()
        with anyio.fail_after(SOON):
            while not (shown := [each for each in (person, other) if each.shown]):
                await anyio.lowlevel.checkpoint()
        if how in ("decline", "cancel"):
            shown[0].dismiss("decline" if how == "decline" else "cancel")
        else:
            shown[0].say(how, action.id)
        await room.settled()
        assert len(person.shown) + len(other.shown) == 1
        assert await room.state(action) == (ActionState.WAITING, "")


async def test_answer_elsewhere_takes_the_question_away(room: Room) -> None:
    """A form that can no longer be answered is in the way, and would suggest that something still waits."""
    person = room.person()
    async with room.session(person):
        action = await room.fire()
        await asked(person)
        await room.daemon.rule_wiring.automation.answer(OWNER, action.id, is_yes=False)
        with anyio.fail_after(SOON):
            await person.was_taken_away.wait()
        assert await room.state(action) == (ActionState.DECLINED, "you")


async def test_answer_that_nobody_could_have_read_is_none(room: Room) -> None:
    """A program that fills in forms by itself, or a key that was meant for the prompt, must not start an agent."""
    person, other = room.person(reads_seconds=0.2), room.person()
    async with room.session(person) as first:
        action = await room.fire()
        await asked(person)
        person.say(YES, action.id)
        async with room.session(other):
            await asked(other)
        assert await room.state(action) == (ActionState.WAITING, "")
        assert len(person.shown) == 1, f"{first.key} was asked twice"


async def test_answer_to_another_question_is_none(room: Room) -> None:
    """After a restart a form of the earlier daemon is still open, and its number is given out again."""
    person = room.person()
    async with room.session(person):
        action = await room.fire()
        await asked(person)
        person.say(YES, "a-before")
        await room.settled()
        assert await room.state(action) == (ActionState.WAITING, "")


async def test_session_shows_one_question_at_a_time(room: Room) -> None:
    """Ten messages must not become ten windows over the prompt."""
    person = room.person()
    async with room.session(person):
        first = await room.fire("one")
        await asked(person)
        second = await room.fire("two")
        await room.settled()
        assert len(person.shown) == 1
        person.say(NO, first.id)
        await room.until(first, ActionState.DECLINED)
        await asked(person)
        person.say(YES, second.id)
        await room.until(second, ActionState.QUEUED)


async def test_question_goes_to_the_next_session_when_one_is_gone(room: Room) -> None:
    """A session that is closed has answered nothing."""
    person, other = room.person(), room.person()
    async with room.session(person):
        action = await room.fire()
        await asked(person)
    async with room.session(other):
        await asked(other)
        other.say(YES, action.id)
        await room.until(action, ActionState.QUEUED)


SOMEBODY_ELSES = replace(CLAUDE, name="generic", client="somebody-elses")


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(CODEX, "legacy"), (SOMEBODY_ELSES, "legacy"), (QWEN, "auto")],
    ids=["codex", "somebody-elses", "qwen-code"],
)
async def test_other_hosts_are_never_asked(room: Room, kind: Kind, mode: Literal["legacy", "auto"]) -> None:
    """Of them nobody knows that a person answers: an agent could confirm for its owner."""
    person = room.person()
    async with room.session(person, kind=kind, mode=mode, is_idle=False) as session:
        session.is_busy = False
        await room.fire()
        await room.settled()
        assert person.shown == []


async def test_busy_session_is_asked_when_its_turn_ends(room: Room) -> None:
    """The form takes the keys: whoever types to a working agent would lose them."""
    person = room.person()
    async with room.session(person, is_idle=False) as session:
        action = await room.fire()
        await room.settled()
        assert person.shown == []
        session.is_busy = False
        room.daemon.inbox.sessions.note_change()
        await asked(person)
        person.say(YES, action.id)
        await room.until(action, ActionState.QUEUED)


async def test_session_that_was_left_alone_is_not_asked(room: Room) -> None:
    """Nobody is there to see it."""
    person = room.person()
    async with room.session(person):
        room.clock.advance(USED_WITHIN.total_seconds() + 1)
        await room.fire()
        await room.settled()
        assert person.shown == []


@pytest.mark.parametrize("kind", ["helper", "trial"])
async def test_session_that_is_nobodys_is_not_asked(room: Room, kind: str) -> None:
    """Another agent, or a check of Harken's own, sits before it."""
    person = room.person()
    cwd = str(room.daemon.home.trial_dir / "t1") if kind == "trial" else "/"
    async with room.session(person, cwd=cwd) as session:
        session.is_helper = kind == "helper"
        await room.fire()
        await room.settled()
        assert person.shown == []


@pytest.mark.parametrize("room", [False], indirect=True)
async def test_session_that_works_for_a_program_is_not_asked(room: Room) -> None:
    """A program that drives an agent may fill in forms by itself."""
    person = room.person()
    async with room.session(person):
        await room.fire()
        await room.settled()
        assert person.shown == []


@pytest.mark.parametrize("arguments", [("-p",), ("--input-format=stream-json",), ()])
def test_person_is_seen_by_a_terminal_and_by_how_the_host_was_started(arguments: tuple[str, ...]) -> None:
    """The same host works for a person, for a program, and in the background."""
    with in_terminal(*arguments) as pid:
        assert has_person(session_of(pid)) is (arguments == ())
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True) as background:
        assert not has_person(session_of(background.pid))
        background.terminate()
    assert not has_person(session_of(background.pid))


def test_person_is_seen_in_a_terminal_that_was_opened_after_the_first_look() -> None:
    """A daemon runs for weeks, and people open windows every day."""
    with in_terminal() as earlier, ExitStack() as opened:
        assert has_person(session_of(earlier))
        for _ in range(3):
            assert has_person(session_of(opened.enter_context(in_terminal())))


@contextmanager
def in_terminal(*arguments: str) -> Iterator[int]:
    """A process with a terminal of its own."""
    # The words after the script are its arguments, as those of a host are.
    command = ["/bin/sh", "-c", "echo ready; read line", "claude", *arguments]
    screen = TerminalProgram(command, {"PATH": os.defpath}, Path("/"))
    with screen:
        screen.wait_for("ready", SOON)
        yield screen.pid


def session_of(pid: int) -> Session:
    """Return a session of Claude Code in a process."""
    now = FakeClock().now()
    return a_session(at=now, key=SessionKey("s"), pid=pid, mailboxes=(), surfaces=())


def told(*, agent: str = "", workdir: str = "", tools: tuple[str, ...] = ("read_file",)) -> ActionDetails:
    """Return an action that waits."""
    clock = FakeClock()
    order = Order(agent=agent, workdir=workdir, tools=tools, prompt="p", timeout=timedelta(60), max_turns=1)
    action = Action(
        id=ActionId("a-1"),
        rule="r",
        mode=Mode.CONFIRM,
        message=MessageId("m-1"),
        state=ActionState.WAITING,
        created_at=clock.now(),
        order=order,
    )
    message = a_message("red", source="ci", channel="ci", sender=Sender("ann", "Ann"), received_at=clock.now())
    return ActionDetails(action=action, message=message)


def test_the_folder_and_the_agent_that_are_asked_about_are_those_that_would_be_taken() -> None:
    """A rule that names neither runs in the folder and with the agent of the settings: that is what is said yes to."""
    asked = question(replace(told(), runs_on="codex", folder="/srv/app"), agent="", folder="")
    assert asked is not None
    assert asked.text.splitlines()[:2] == ["Run codex? Rule r, a-1", "Folder: /srv/app"]


@pytest.mark.parametrize("more", [{"tools": ("read_file",) * 9}, {"workdir": "/x" * 40}, {"agent": "a" * 80}])
def test_what_does_not_fit_is_not_asked(more: Mapping[str, Any]) -> None:
    """Claude Code cuts lines at the edge of the terminal: nobody should say yes to what they cannot see."""
    assert question(told(), agent="", folder="") is not None
    assert question(told(**more), agent="", folder="") is None


@given(st.text(), st.text(), st.text())
def test_hostile_text_stays_on_its_line(text: str, name: str, channel: str) -> None:
    """What a stranger writes must not look like a line of Harken's own, nor reach the terminal as anything but text."""
    one = told()
    assert one.message is not None
    said = replace(one.message, text=text, channel=channel, sender=Sender("x", name))
    asked = question(replace(one, message=said), agent="codex", folder="~/app")
    assert asked is not None
    lines = asked.text.split("\n")
    assert lines[:3] == ["Run codex? Rule r, a-1", "Folder: ~/app", "Tools: read_file"]
    assert len(lines) == 4
    assert lines[3].isprintable()
