"""A rule, as `triggers.json` says it: which messages it is about, and what is to happen.

Values only. How the file is read is in `load`, which message a rule fits in `match`, what comes of it in `engine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final

from harken.automation import Mode
from harken.model import INBOX, Trust

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

    @property
    def allowed(self) -> tuple[str, ...]:
        """The tools of its runs: where none are named, those that only read files."""
        return self.tools or DEFAULT_TOOLS

    @property
    def is_run(self) -> bool:
        """Whether it may lead to a run."""
        return self.mode is not Mode.NOTIFY
