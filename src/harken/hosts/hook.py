"""What a hook of a host says and hears, in words of our own: the seam between the host modules and the hook surface.

Pure values. Each host module turns the host's payload into an `HookEvent`, and a text into the `HookAnswer` that this
host passes on to its model. What is said, and whether anything is, is decided by the surface above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from harken.sessions.events import HookEvent, HookMoment


class Voice(StrEnum):
    """Whose word a text seems to be to the model that gets it through a surface."""

    OUTSIDE = "outside"  # marked by the host as coming from elsewhere: bodies may go
    USER = "user"  # like the user's or the developer's own: bodies of the owner only, for the rest a notice


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the hook's process prints and how it ends. The empty one says nothing, which every host accepts."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


SILENCE = HookAnswer()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSample:
    """A payload as a host was seen to send it, and what it means: by these its adapter is held to the host."""

    moment: HookMoment  # of the command that the host ran
    payload: Mapping[str, object]
    event: HookEvent


def hook_sample(
    common: Mapping[str, object],
    meant: Mapping[str, Any],
    moment: HookMoment,
    payload: Mapping[str, object],
    /,
    **more: object,
) -> HookSample:
    """Return a sample from what all payloads of a host share, and what they mean in common, with its own."""
    said: dict[str, Any] = {"moment": moment, **meant, **more}
    return HookSample(moment=moment, payload={**common, **payload}, event=HookEvent(**said))


class HookAdapter(Protocol):
    """How one host's hooks speak. Implemented once per host, as a value without state."""

    @property
    def name(self) -> str:
        """The host's name."""
        ...

    @property
    def most_chars(self) -> Mapping[HookMoment, int]:
        """How many characters each moment can carry; a moment that is missing carries nothing to the model."""
        ...

    @property
    def voices(self) -> Mapping[HookMoment, Voice]:
        """Whose word a text is to the model at each of those moments."""
        ...

    @property
    def most_stops(self) -> int:
        """How often in a row the end of a turn may be held up; 0 when it cannot."""
        ...

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means, None when there is nothing to do (a payload that is not this host's)."""
        ...

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        ...

    def context(self, moment: HookMoment, watch: str) -> HookAnswer:
        """Return what to print without a text; `watch` is the session's bell, for hosts that watch a file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What an edge, a hook or a program beside a host says about where it runs."""

    edge: str = ""
    host: str = ""  # of a hook: the host that runs it, and when
    moment: str = ""
    payload: int = 0  # bytes that follow
    is_in_task: bool = False  # of a hook: it is only for sessions in the folder of a task
    native: str = ""  # of a program that waits to wake: the conversation it is for
    is_once: bool = False
    pid: int = 0
    ppid: int = 0
    cwd: str = ""
    consumer: str = ""
    task: str = ""  # the task that it was started for, as it was named
    task_said_by: str = ""  # of a hook: the agent that named it, which the daemon finds out; empty for the person
    is_resumed: bool = False
    resent: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()  # requests that the host has cancelled although they were answered
    env: Mapping[str, str] = field(default_factory=dict[str, str])
