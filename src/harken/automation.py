"""The nouns of automation: a rule, what it asked for (an action), and one headless agent execution (a run).

Values only, like `model`: rules decide in them, `store/` persists them, `runs/` carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Final, NewType

from harken.model import INBOX, Mailbox, MessageId, Trust

ActionId = NewType("ActionId", str)
RunId = NewType("RunId", str)

ACTIONS: Final = Mailbox("actions")  # never holds messages: named when the change feed rings for actions and runs
MAX_WAITING: Final = 64  # actions that wait for an answer or for a free agent
DEEPEST_CHAIN: Final = 3  # runs that lead to one another
SHELL: Final = "shell"  # the tool that no fence holds
ANY_AGENT: Final = "the first agent that can"
OWN_FOLDER: Final = "a folder of its own"


class Mode(StrEnum):
    """What a rule does when it fires."""

    NOTIFY = "notify"
    CONFIRM = "confirm"
    AUTO = "auto"


class Outcome(StrEnum):
    """What one rule makes of one message, in the order in which it is decided."""

    NO_MATCH = "no match"
    CANNOT_RUN = "cannot run"
    PAUSED = "paused"
    QUIET = "quiet hours"
    UNTRUSTED = "not trusted"
    LOOP = "loop"
    TOO_DEEP = "chain too long"
    DUPLICATE = "duplicate"
    LIMITED = "rate limit"
    FULL = "queue full"
    FIRED = "fired"


class ActionState(StrEnum):
    """Where an action is. Those that wait are `waiting` and `queued`."""

    TOLD = "told"  # notify: there is nothing left to do
    WAITING = "waiting"  # for the person's yes or no
    QUEUED = "queued"  # for its agent and its folder to be free
    STARTED = "started"  # its run has the rest of the story
    DECLINED = "declined"
    EXPIRED = "expired"
    REFUSED = "refused"  # it could not be run after all; the reason says why

    @property
    def is_waiting(self) -> bool:
        """Whether it counts among those that may wait."""
        return self in (ActionState.WAITING, ActionState.QUEUED)


class RunState(StrEnum):
    """Where a run is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"  # the daemon ended while it ran; it is not started again by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run is to do. Kept with its action, so that rules that change meanwhile change nothing about it."""

    agent: str  # the host that runs it; the first that can when empty
    workdir: str  # one of its own when empty
    tools: tuple[str, ...]
    prompt: str  # complete: the message's text is in it, fenced
    timeout: timedelta
    max_turns: int
    has_reply: bool = False  # its answer goes back to the channel
    machine: str = ""  # where it is run; any that has the agent and the folder when empty


def consent(agent: str, folder: str, tools: Sequence[str]) -> str:
    """Return what a yes lets happen, in the same words on every surface: who runs, where, and with what.

    `agent` and `folder` are as people know them; where they are empty, it says what is taken instead.
    """
    fence = "; a shell is not fenced: it can do what you can do" if SHELL in tools else ""
    return f"{agent or ANY_AGENT} in {folder or OWN_FOLDER} with {', '.join(tools) or 'no tools'}{fence}"


@dataclass(frozen=True, slots=True)
class RuleFiring:
    """When a rule fired last, and for which message."""

    message: MessageId
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """What one rule makes of one message, and why."""

    message: MessageId
    rule: str
    mode: Mode
    outcome: Outcome
    reason: str = ""  # for people: which field, whose window
    earlier: MessageId | None = None  # the message it duplicates, or whose window it is in
    digest: bytes = b""  # of the beginning of its content; what duplicates are told by
    order: Order | None = None  # of confirm and auto, when it fired


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """Everything besides rules and messages that decides. `revision` changes with every change of the rest."""

    revision: int = 0
    judged: int = 0  # place in the order of receipt up to which every message was judged
    head: int = 0  # place of the newest message
    is_paused: bool = False
    waiting: int = 0
    fired: Mapping[str, RuleFiring] = field(default_factory=dict[str, RuleFiring])  # by rule
    duplicates: Mapping[tuple[str, bytes], RuleFiring] = field(default_factory=dict[tuple[str, bytes], RuleFiring])


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a match asked for."""

    id: ActionId
    rule: str  # empty: the person asked for it by hand
    mode: Mode
    message: MessageId
    state: ActionState
    created_at: datetime
    order: Order | None = None
    expires_at: datetime | None = None  # when its question can no longer be answered
    decided_at: datetime | None = None
    decided_by: str = ""
    reason: str = ""
    run: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAgent:
    """An agent that rules do not start any more: nobody is signed in to it. `run` is the one that found out."""

    agent: str
    run: RunId
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One headless agent execution, and how it went."""

    id: RunId
    action: ActionId
    rule: str
    message: MessageId
    agent: str
    workdir: str
    tools: tuple[str, ...]
    state: RunState
    started_at: datetime
    pid: int = 0  # of its process group
    leftover: tuple[str, ...] = ()  # built-in tools that the host cannot take away
    ended_at: datetime | None = None
    exit_code: int | None = None
    turns: int = 0
    denied: tuple[str, ...] = ()  # each call that it was denied: the tool, and what it was about
    answer: str = ""
    reason: str = ""  # why it failed or was ended
    machine: str = ""  # the other machine that has its folder; empty: this one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended."""

    state: RunState
    exit_code: int | None = None
    turns: int = 0
    denied: tuple[str, ...] = ()
    answer: str = ""
    reason: str = ""


class ChangeKind(StrEnum):
    """What became of a file."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What became of one file in the folder of a run, while it ran."""

    path: str  # in the folder
    kind: ChangeKind
    is_held: bool = False  # a run does not change it
    is_undone: bool = False  # it is as it was before
    note: str = ""  # why there is no diff, or what could not be done
    diff: str = ""
    aside: str = ""  # where what the run left there is now


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderChanges:
    """What became of the files in the folder of a run, while it ran."""

    files: tuple[FileChange, ...] = ()
    more: int = 0  # files that changed and are not named
    note: str = ""  # why something may be missing
    is_known: bool = True  # the folder could be looked at

    @property
    def undone(self) -> tuple[FileChange, ...]:
        """What the run does not change, and is as it was before."""
        return tuple(each for each in self.files if each.is_undone)

    @property
    def kept(self) -> tuple[FileChange, ...]:
        """What is held, and is not as it was."""
        return tuple(each for each in self.files if each.is_held and not each.is_undone)


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of what a run told. Its kind says what: `text`, `tool`, `denied`, `changed`, `begin`, `end` and more."""

    at: str
    kind: str
    text: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Some lines of a run's output, and the number of the line before those that follow."""

    lines: Sequence[OutputLine]
    following: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """How often a rule matched, by what came of it, and when it fired last."""

    outcomes: Mapping[Outcome, int] = field(default_factory=dict[Outcome, int])
    last_fired_at: datetime | None = None


ANY: Final = "*"
DEFAULT_TIMEOUT: Final = timedelta(minutes=10)
DEFAULT_TURNS: Final = 20
DEFAULT_TOOLS: Final = ("read_file", "list_files", "search_files")
EDIT_FILE: Final = "edit_file"
EDIT_INSTRUCTIONS: Final = "edit_instructions"  # with the former: also what agents take for instructions


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A part of each day, by the clock on this machine, in which a person is left alone; it may go over midnight."""

    begin: time
    end: time

    def covers(self, moment: datetime) -> bool:
        """Whether a moment, given in local time, is inside."""
        now = moment.time()
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def until(self, moment: datetime) -> datetime:
        """Return when the hours that a moment is inside of end, in the same time zone."""
        end = moment.replace(hour=self.end.hour, minute=self.end.minute, second=0, microsecond=0)
        return end if end > moment else end + timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. The first nine fields are those of the documents' schema, the rest are ours and optional."""

    name: str
    server: str = ""  # the source; empty or `*`: any
    channel: str = ""  # a name, `*`, or `prefix/*`; empty: any
    content_regex: str = ""  # RE2
    mode: Mode = Mode.NOTIFY
    prompt: str = ""
    tools: tuple[str, ...] = ()
    rate_limit: timedelta = timedelta(0)  # 0: none
    dedup_window: timedelta = timedelta(0)

    agent: str = ""
    workdir: str = ""
    trust: Trust = Trust.UNKNOWN  # the least that its sender must be
    timeout: timedelta = DEFAULT_TIMEOUT
    max_turns: int = DEFAULT_TURNS
    has_reply: bool = False
    quiet_hours: QuietHours | None = None
    mailbox: str = INBOX  # `*`: any
    machine: str = ""  # where it is run; empty: any that has the agent and the folder

    @property
    def allowed(self) -> tuple[str, ...]:
        """The tools of its runs: where none are named, those that only read files."""
        return self.tools or DEFAULT_TOOLS

    @property
    def is_run(self) -> bool:
        """Whether it may lead to a run."""
        return self.mode is not Mode.NOTIFY
