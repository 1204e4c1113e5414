"""Who is asking, and what that lets them do.

The socket admits only processes of the same user. Of those, one that descends from a registered host, or has a mark of
one in its environment, *is* that agent: it may not speak as the owner or change who may reach what. That guards against
mistakes of a model, not against malice on the same account.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harken.errors import Forbidden
from harken.model import AGENT, OWNER_ID, RUN, TASK, WATCH, Consumer, Sender, SessionKey

CHANNELS_ID = "channels"  # who says what the person injects: nobody's own word, so nobody else may use it
NO_SESSION = SessionKey("")


class Role(StrEnum):
    """The person at the machine, or a program that acts for an agent."""

    OWNER = "owner"
    AGENT = "agent"


def caller_name(role: Role) -> str:
    """Return what people read where the owner, or an agent, has spoken."""
    return "you" if role is Role.OWNER else "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One caller of a use case."""

    role: Role
    consumer: Consumer = WATCH
    session: SessionKey = NO_SESSION
    program: str = ""  # of an agent that is known by its environment: what people call its host
    because: str = ""  # and by what it was known

    @property
    def sender(self) -> Sender:
        """Who a message of this caller is from."""
        if self.role is Role.OWNER:
            return Sender(OWNER_ID, caller_name(Role.OWNER))
        if self.consumer.startswith(TASK):
            return Sender(self.consumer, self.consumer)
        if self.is_run:
            return Sender(self.session, f"run {self.session.removeprefix(RUN)}")
        return Sender(f"{AGENT}{self.consumer}", self.consumer)

    @property
    def is_run(self) -> bool:
        """Whether it is the agent of a run, or something that it started."""
        return self.role is Role.AGENT and self.session.startswith(RUN)

    def require_owner(self, what: str) -> None:
        """Refuse what only the person may do."""
        if self.role is not Role.OWNER:
            raise self.refusal(what)

    def refusal(self, what: str) -> Forbidden:
        """Return why an agent may not do what only the person may."""
        return refusal(what, self.program, self.because)


def refusal(what: str, program: str = "", because: str = "") -> Forbidden:
    """Return what an agent is told that wants to do what only the person may, and by what it was known for one."""
    who = f" This counts as a command of {program}, because {because}." if because else ""
    return Forbidden(f"An agent may not {what}.{who}", "Ask your user to run it in their own terminal.")
