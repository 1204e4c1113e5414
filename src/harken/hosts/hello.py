"""What programs say of themselves when they begin to talk to the daemon, and what a wake must know. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeTarget:
    """An idle conversation, as far as a host's own way of waking needs to know it."""

    native: str
    pid: int = 0
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
