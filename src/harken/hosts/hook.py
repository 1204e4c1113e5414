"""What a hook of a host says and hears, in words of our own: the seam between the host modules and the hook surface.

Pure values. Each host module turns the host's payload into a `HookEvent`, and a text into the `HookAnswer` that this
host passes on to its model. The surface above decides what is said, and whether anything is.

`above_an_answer` reads the records of hosts that link each entry to the one before it. A line with a delivery's id was
part of the conversation; only an answer that follows from it shows that the model read it. A prompt that was taken back
before any answer stays in the file for ever, and proves nothing.

What a connection says of itself, its `Hello`, also tells the name that it reads under, and the key of its session.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final

from harken.hosts.host import GENERIC, RESERVED, Host
from harken.model import ApprovalChoice, ApprovalRequest, Consumer, SessionKey
from harken.sessions.turns import Halt, HookEvent, HookMoment, holds

MAX_NAME: Final = 56
MAX_NATIVE: Final = 128


class Voice(StrEnum):
    """Who seems to speak, to the model that gets a text through a surface."""

    OUTSIDE = "outside"  # marked by the host as coming from elsewhere: bodies may go
    USER = "user"  # like the user's or the developer's own: bodies of the owner only, for the rest a notice


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the hook's process prints and how it ends. The empty one says nothing, which every host accepts."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


SILENCE = HookAnswer()


def printed(value: Mapping[str, object]) -> HookAnswer:
    """Return the answer that prints a value as a line of JSON."""
    return HookAnswer(stdout=json.dumps(value) + "\n")


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


class HookAdapter:
    """How one host's hooks speak. Implemented once per host, as a value without state.

    What it does by itself is what most hosts have in common, which took it over from Claude Code.
    """

    name: ClassVar[str]  # the host's
    most_chars: ClassVar[Mapping[HookMoment, int]]  # a moment that is missing carries nothing to the model
    voices: ClassVar[Mapping[HookMoment, Voice]]  # in which the model takes a text
    most_stops: ClassVar[int] = 0  # how often in a row the end of a turn may be held up; 0 when it cannot
    events: ClassVar[Mapping[HookMoment, str]] = MappingProxyType({})  # as payloads name them; empty: they do not

    # Where a payload says which conversation and which turn it is of, where its record is, and that it is a helper's.
    native_key: ClassVar[str] = "session_id"
    turn_key: ClassVar[str] = ""
    transcript_key: ClassVar[str] = "transcript_path"
    subagent_key: ClassVar[str] = "agent_id"

    # Of what it tells; the end of a turn is one by itself. `doctor` and the documentation name them.
    halts: ClassVar[frozenset[Halt]] = frozenset({Halt.FINISHED})
    says_when_answered: ClassVar[bool] = False  # what it asked; else only its next step shows that

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not this host's, or not of this moment."""
        native = payload_text(payload, self.native_key)
        halt = self.halt(payload) if moment is HookMoment.HALT else None
        is_other = bool(self.events) and payload_text(payload, "hook_event_name") != self.events.get(moment)
        if not native or (is_other if moment is not HookMoment.HALT else halt is None):
            return None
        kind, reason = halt or (None, "")
        is_failed = kind in (Halt.FAILED, Halt.LIMITED)
        return HookEvent(
            moment=HookMoment.STOP if is_failed else moment,
            native=native,
            turn=payload_text(payload, self.turn_key),
            cwd=payload_text(payload, "cwd") or hello.cwd,
            prompt=payload_text(payload, "prompt") if moment is HookMoment.PROMPT else "",
            transcript=payload_text(payload, self.transcript_key),
            # What a helper of the agent asks, the person is asked.
            is_subagent=bool(payload.get(self.subagent_key)) and kind is not Halt.WAITS,
            is_interrupted=is_failed,
            halt=kind,
            reason=reason,
        )

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return which halt a payload of `halt` tells, and the host's words; None for what is nothing of that."""
        del payload
        return None

    def is_asking(self, transcript: str, pid: int) -> bool | None:
        """Whether a session of which it was told that it asks still does; None: not known. May read a small file."""
        del transcript, pid
        return True if self.says_when_answered else None

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if not text.strip() or moment not in self.events or moment not in self.most_chars:
            return SILENCE
        if moment is HookMoment.STOP:
            return printed({"decision": "block", "reason": text})
        return printed({"hookSpecificOutput": {"hookEventName": self.events[moment], "additionalContext": text}})

    def context(self, moment: HookMoment, watch: str) -> HookAnswer:
        """Return what to print without a text; `watch` is the session's bell, for hosts that watch a file."""
        del moment, watch
        return SILENCE


ASK: Final = "ask"
"""The moment of a hook that waits for an approval; no moment of a turn."""


class ApprovalAdapter:
    """How one host asks before a tool is used, and takes the answer. Implemented once per host, as a value.

    What it cannot read it leaves to the host: its own question stays.
    """

    patience: ClassVar[timedelta] = timedelta(hours=12)  # how long the host waits
    shows_state: ClassVar[bool] = False  # whether `is_asking` can tell anything

    def question(self, payload: Mapping[str, object], hello: Hello) -> ApprovalRequest | None:
        """Return what a payload asks, with the host's own id of the conversation as its session; None: nothing."""
        raise NotImplementedError

    def answer(self, payload: Mapping[str, object], choice: ApprovalChoice, reason: str) -> HookAnswer:
        """Return what the host is given for an answer of the person."""
        raise NotImplementedError

    def pid(self, hello: Hello) -> int:
        """Return the host's process, where a program beside it names it; 0: found by ancestry."""
        del hello
        return 0

    def is_asking(self, payload: Mapping[str, object], hello: Hello) -> bool | None:
        """Whether the host still shows its own question; None where that cannot be told. May read a small file."""
        del payload, hello
        return None

    def evidence(self, payload: Mapping[str, object], choice: ApprovalChoice, record: Sequence[bytes]) -> str:
        """Return what in the host's record shows that it did what was answered; empty for nothing."""
        del payload, choice, record
        return ""

    def record(self, payload: Mapping[str, object]) -> str:
        """Return the path of the host's record of the conversation; empty where there is none."""
        del payload
        return ""


def payload_text(payload: Mapping[str, object], key: str) -> str:
    """Return a text of a payload; empty when it is missing, or no text."""
    value = payload.get(key)
    return value if isinstance(value, str) else ""


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


def above_an_answer(lines: Sequence[bytes], ids: Collection[str], kinds: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand in an entry of one of these kinds, above an answer of the model."""
    entries = [(line, entry) for line in lines if (entry := record_entry(line))]
    parents = {str(entry.get("uuid")): str(entry.get("parentUuid") or "") for _, entry in entries}
    read: set[str] = set()
    for _, entry in entries:
        place = str(entry.get("uuid")) if entry.get("type") == "assistant" else ""
        while place and place not in read:
            read.add(place)
            place = parents.get(place, "")
    held = [line for line, entry in entries if entry.get("type") in kinds and str(entry.get("uuid")) in read]
    return {each for each in ids if any(holds(line, each) for line in held)}


def record_entry(line: bytes) -> Mapping[str, object]:
    """Return the object on a line of a host's record; empty for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def consumer_of(host: Host, client_name: str, override: str = "") -> Consumer:
    """Return the name that a connection reads under."""
    if not override and host is not GENERIC:
        return Consumer(host.name)
    name = _slug(override or client_name)
    # Two of these are not agents: whoever took their name would read the person's mail away.
    return Consumer(f"{name}-agent" if name in RESERVED else name)


def session_key(host: Host, hello: Hello, satellite: str = "") -> SessionKey:
    """Return the key of the session behind an edge; the connection itself where the host names none."""
    at = _at(satellite)
    # A second edge of the same process that reads under another name is a session of its own.
    apart = f"/{_slug(hello.consumer)}" if hello.consumer else ""
    if host.keys_by_process and hello.ppid > 1:
        return SessionKey(f"{host.name}:{hello.ppid}{apart}{at}")
    own = hello.env.get(host.session_variable, "") if host.session_variable else ""
    return SessionKey(f"{host.name}:{own}{apart}{at}" if own else f"edge:{hello.edge}")


def hook_key(host: Host, native: str, pid: int, satellite: str = "") -> SessionKey:
    """Return the key of the session that a hook speaks for."""
    if (host.keys_by_process or not native) and pid > 1:
        return SessionKey(f"{host.name}:{pid}{_at(satellite)}")
    return SessionKey(f"{host.name}:{native[:MAX_NATIVE]}{_at(satellite)}")


def _at(satellite: str) -> str:
    """Return what tells the sessions of a satellite apart: processes of two machines may have the same number."""
    return f"@{satellite}" if satellite else ""


def _slug(name: str) -> str:
    """Return a name as a consumer's; letters that cannot be kept are told apart by a few digits."""
    plain = name.strip().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain)[:MAX_NAME].strip("-._") or "mcp-client"
    if plain.isascii() and len(plain) <= MAX_NAME:
        return slug
    return f"{slug}-{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:6]}"
