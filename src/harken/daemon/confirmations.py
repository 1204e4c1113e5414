"""Asks the person in a session of theirs, when an action waits for an answer: one question, one session, once.

An open question takes the keys that are typed in its session. So only a session is asked that is idle, was used
lately and has a person before it, never for long, and any other answer takes the question away. What is not answered
there stays for the command line and the page. What is asked, and how, is in `surfaces.mcp.services`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from harken.automation import ACTIONS, MAX_WAITING, ActionId, ActionState
from harken.clock import Clock, Signal
from harken.config.settings import RunSettings
from harken.errors import Conflict, HarkenError
from harken.hosts.registry import host_named, host_title
from harken.inbox.automation import ActionDetails, Automation
from harken.inbox.caller import Caller, Role
from harken.model import TRIAL, Mailbox, SessionKey
from harken.processes import command_line, has_terminal
from harken.sessions.registry import Sessions
from harken.sessions.session import Presence, Session
from harken.store.contract import Changes
from harken.surfaces.mcp.services import Ask, FormChoice, FormQuestion, question

_log = logging.getLogger("harken.asking")

OPEN_SECONDS: Final = 300.0
USED_WITHIN: Final = timedelta(minutes=15)
# Nobody reads and answers within this: the host did it, or a key that was meant for something else.
MIN_READING: Final = timedelta(seconds=1)
LOOK_EVERY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Way:
    """How to ask in a session."""

    session: Session
    ask: Ask


@dataclass(frozen=True, slots=True)
class _Open:
    """A question that a session shows."""

    session: SessionKey
    scope: CancelScope


class Confirmations:
    """The questions that sessions show. One per daemon."""

    def __init__(
        self,
        changes: Changes,
        automation: Automation,
        sessions: Sessions,
        clock: Clock,
        *,
        usual: RunSettings,
        is_manned: Callable[[Session], bool] | None = None,
    ) -> None:
        self._changes = changes
        self._automation = automation
        self._sessions = sessions
        self._clock = clock
        self._usual = usual
        self._is_manned = is_manned or has_person
        self._ways: dict[str, _Way] = {}  # by edge
        self._open: dict[ActionId, _Open] = {}
        self._asked: set[tuple[ActionId, SessionKey]] = set()
        self._put_off: set[ActionId] = set()
        self._waiting: Sequence[ActionDetails] = ()
        self._is_stale = True
        self._ring = Signal()
        self._looking = anyio.Lock()
        sessions.observe(self._ring.ring)

    def welcome(self, session: Session, edge: str, ask: Ask) -> None:
        """A connection is here with a person who can be asked."""
        self._ways[edge] = _Way(session, ask)

    async def run(self) -> None:
        """Ask what waits, for ever."""
        async with anyio.create_task_group() as questions:
            with self._changes.listen(self._note_actions, only=[ACTIONS]):
                while True:
                    await self.look(questions)
                    await self._ring.wait(LOOK_EVERY_SECONDS)

    def _note_actions(self, _grown: Collection[Mailbox]) -> None:
        self._is_stale = True
        self._ring.ring()

    async def look(self, questions: TaskGroup) -> None:
        """Take away what was answered, and ask what no session shows."""
        async with self._looking:
            if self._is_stale:
                self._is_stale = False
                self._waiting = await self._automation.actions([ActionState.WAITING], limit=MAX_WAITING)
                self._forget({told.action.id for told in self._waiting})
            self._ask_all(questions)

    def _ask_all(self, questions: TaskGroup) -> None:
        for told in reversed(self._waiting):
            action = told.action.id
            if action in self._open or action in self._put_off:
                continue
            asked = question(told, agent=self._usual.agent, folder=self._usual.workdir)
            chosen = self._choose(action) if asked is not None else None
            if asked is not None and chosen is not None:
                self._asked.add((action, chosen.session.key))
                shown = self._open[action] = _Open(chosen.session.key, CancelScope(deadline=self._deadline(told)))
                questions.start_soon(self._put, asked, chosen, shown.scope)

    def _forget(self, waiting: Collection[ActionId]) -> None:
        for action, shown in self._open.items():
            if action not in waiting:
                shown.scope.cancel()
        self._asked = {pair for pair in self._asked if pair[0] in waiting}
        self._put_off &= set(waiting)

    def _choose(self, action: ActionId) -> _Way | None:
        """Return the session to ask, of several the last active."""
        self._ways = {edge: way for edge, way in self._ways.items() if edge in way.session.connections}
        taken = {shown.session for shown in self._open.values()}
        fitting = [
            way
            for way in self._ways.values()
            if way.session.key not in taken
            and (action, way.session.key) not in self._asked
            and self._is_fitting(way.session)
        ]
        return max(fitting, key=lambda way: way.session.last_active, default=None)

    def _is_fitting(self, session: Session) -> bool:
        is_trial = any(mailbox.startswith(TRIAL) for mailbox in session.mailboxes)
        is_used = abs(self._clock.now() - session.last_active) <= USED_WITHIN
        is_free = session.presence is Presence.IDLE and not session.is_helper
        return is_free and is_used and not is_trial and self._is_manned(session)

    def _deadline(self, told: ActionDetails) -> float:
        expires_at = told.action.expires_at
        left = (expires_at - self._clock.now()).total_seconds() if expires_at is not None else OPEN_SECONDS
        return anyio.current_time() + min(OPEN_SECONDS, left)

    async def _put(self, asked: FormQuestion, way: _Way, scope: CancelScope) -> None:
        """Ask in one session, and take the answer."""
        _log.info("asking about %s in %s", asked.action, way.session.key)
        began, choice = self._clock.now(), None
        try:
            with scope:
                choice = await way.ask(asked)
            if choice is not None and self._clock.now() - began < MIN_READING:
                _log.warning("%s answered before anyone could have read the question", way.session.key)
            elif choice is FormChoice.LATER:
                self._put_off.add(asked.action)
            elif choice is not None:
                await self._answer(asked.action, way.session, is_yes=choice is FormChoice.YES)
        finally:
            del self._open[asked.action]
            # Another session may be asked now.
            self._ring.ring()

    async def _answer(self, action: ActionId, session: Session, *, is_yes: bool) -> None:
        by = f"you, in {host_title(session.host)}"
        try:
            await self._automation.answer(Caller(role=Role.OWNER), action, is_yes=is_yes, by=by)
        except Conflict:
            _log.info("%s was answered elsewhere first", action)
        except HarkenError as exc:
            _log.warning("the answer about %s could not be kept: %s", action, exc)


def has_person(session: Session) -> bool:
    """Whether a person sits before a session: it has a terminal, and was not started to be used by a program."""
    if session.satellite:
        return False  # whether a person sits there is not known here
    arguments = command_line(session.pid)
    flags = {argument.partition("=")[0] for argument in arguments}
    return bool(arguments) and has_terminal(session.pid) and not flags & host_named(session.host).unmanned_flags
