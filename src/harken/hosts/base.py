"""Hosts: recognised by the name they give themselves, and what follows from it.

Pure facts and functions. A host chooses surfaces; it never decides whether a message is kept. Programs that are
not in the table are `generic`: they get everything that needs nothing but tools.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harken.model import Consumer, SessionKey

_LOG_PING = "log ping"
_PULL_SURFACES = ("tool", _LOG_PING, "resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One kind of agent program."""

    name: str
    client_names: tuple[str, ...]
    surfaces: tuple[str, ...] = _PULL_SURFACES
    session_variable: str = ""  # environment variable that holds the host's own session id
    keys_by_process: bool = False  # the session is the host process: its session id changes while it runs
    has_many: bool = False  # one process may have several conversations
    shares_connection: bool = False  # and one MCP connection for all of them
    reports_interrupts: bool = False  # its hooks say when the person interrupts a turn
    one_shot_words: frozenset[str] = frozenset()  # with one of these arguments it answers one prompt and ends
    lasting_words: frozenset[str] = frozenset()  # unless one of these is there too
    has_hooks: bool = True  # `connect` gives it some: what waits is handed to it, its agent need not ask
    needs_handshake: bool = False  # push works only after the 2025 handshake, so `server/discover` is declined
    cancels_answered: bool = True  # it may cancel a call whose answer it has taken, so that says nothing
    asks_person: bool = False  # an MCP form is shown to the person at once, and the host never fills it in by itself
    unmanned_flags: frozenset[str] = frozenset()  # with one of these arguments it works for a program
    # What the result of a tool, or of a command, may have so that the host shows its model all of it. Each is below
    # what was measured (see `docs/howto`), in bytes, because no text has more characters or tokens than bytes. Of a
    # host that is not known the least is assumed: no known one cuts a result that short.
    result_bytes: int = 9_500

    @property
    def modern_surfaces(self) -> tuple[str, ...]:
        """The surfaces on a 2026-07-28 connection, which has no unasked notifications."""
        return tuple(surface for surface in self.surfaces if surface != _LOG_PING)


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


RESERVED = frozenset({"watch", "rules"})
MAX_NAME = 56
MAX_NATIVE = 128

GENERIC = Host(name="generic", client_names=(), has_hooks=False)
HOSTS = (
    Host(
        name="claude-code",
        client_names=("claude-code", "claude code"),
        cancels_answered=False,
        result_bytes=24_000,  # 50,000 characters, 30,000 bytes of a command, and 25,000 tokens are shown
        session_variable="CLAUDE_CODE_SESSION_ID",
        keys_by_process=True,
        needs_handshake=True,
        asks_person=True,
        unmanned_flags=frozenset({"-p", "--print", "--input-format", "--output-format"}),
        one_shot_words=frozenset({"-p", "--print"}),
        lasting_words=frozenset({"stream-json"}),  # of --input-format: prompts may follow
    ),
    Host(
        name="copilot-cli",
        client_names=("copilot-cli", "github-copilot-cli", "copilot"),
        cancels_answered=False,
        result_bytes=18_000,  # 20,480 bytes are shown
        session_variable="COPILOT_AGENT_SESSION_ID",
        needs_handshake=True,
        asks_person=True,
        unmanned_flags=frozenset({"-p", "--prompt", "--acp", "--server", "--headless", "--output-format"}),
        one_shot_words=frozenset({"-p", "--prompt"}),
    ),
    Host(
        name="codex",
        client_names=("codex-mcp-client",),
        cancels_answered=False,
        result_bytes=9_500,  # to a model that it does not know, 12,000 bytes are shown, and 10,000 of a command
        session_variable="CODEX_THREAD_ID",
        has_many=True,
        reports_interrupts=True,
        one_shot_words=frozenset({"exec", "e", "review"}),
        lasting_words=frozenset({"app-server"}),
    ),
    Host(
        name="gemini-cli",
        client_names=("gemini-cli-mcp-client",),
        cancels_answered=False,
        result_bytes=32_000,  # 40,000 characters are shown
        session_variable="GEMINI_SESSION_ID",
        one_shot_words=frozenset({"-p", "--prompt"}),
    ),
    Host(
        name="opencode",
        client_names=("opencode",),
        result_bytes=30_000,  # 51,200 bytes are shown, but 2,000 lines of a command
        session_variable="OPENCODE_SESSION_ID",
        has_many=True,
        shares_connection=True,
        reports_interrupts=True,
        one_shot_words=frozenset({"run"}),
    ),
    Host(
        name="qwen-code",
        client_names=("qwen-cli-mcp-client",),
        cancels_answered=False,
        result_bytes=24_000,  # 28,000 characters are shown
        session_variable="QWEN_CODE_SESSION_ID",
        reports_interrupts=True,
        one_shot_words=frozenset({"-p", "--prompt"}),
        lasting_words=frozenset({"stream-json", "--acp", "serve"}),
    ),
)


def answers_one_prompt(host: Host, argv: Sequence[str]) -> bool:
    """Whether a host that was started with these words answers one prompt and ends: nobody can wake it."""
    words = {part for word in argv[1:] for part in ((word, *word.split("=", 1)) if word.startswith("--") else (word,))}
    return not host.one_shot_words.isdisjoint(words) and host.lasting_words.isdisjoint(words)


def detect(client_name: str) -> Host:
    """Return the host that a clientInfo name belongs to. Some append a version or a number to theirs."""
    name = client_name.strip().lower()
    for host in HOSTS:
        if any(name == known or name.startswith(known + "-") for known in host.client_names):
            return host
    return GENERIC


def consumer_of(host: Host, client_name: str, override: str = "") -> Consumer:
    """Return the name that a connection reads under."""
    if not override and host is not GENERIC:
        return Consumer(host.name)
    name = _slug(override or client_name)
    # Two of these are not agents: whoever took their name would read the person's mail away.
    return Consumer(f"{name}-agent" if name in RESERVED else name)


def session_key(host: Host, hello: Hello) -> SessionKey:
    """Return the key of the session behind an edge; the connection itself where the host names none."""
    # A second edge of the same process that reads under another name is a session of its own.
    apart = f"/{_slug(hello.consumer)}" if hello.consumer else ""
    if host.keys_by_process and hello.ppid > 1:
        return SessionKey(f"{host.name}:{hello.ppid}{apart}")
    own = hello.env.get(host.session_variable, "") if host.session_variable else ""
    return SessionKey(f"{host.name}:{own}{apart}" if own else f"edge:{hello.edge}")


def hook_key(host: Host, native: str, pid: int) -> SessionKey:
    """Return the key of the session that a hook speaks for."""
    if (host.keys_by_process or not native) and pid > 1:
        return SessionKey(f"{host.name}:{pid}")
    return SessionKey(f"{host.name}:{native[:MAX_NATIVE]}")


def named(name: str) -> Host:
    """Return a host by its own name; unknown ones are generic."""
    return next((host for host in HOSTS if host.name == name), GENERIC)


def _slug(name: str) -> str:
    """Return a name as a consumer's; letters that cannot be kept are told apart by a few digits."""
    plain = name.strip().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain)[:MAX_NAME].strip("-._") or "mcp-client"
    if plain.isascii() and len(plain) <= MAX_NAME:
        return slug
    return f"{slug}-{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:6]}"
