"""What hooks cost an agent: with nothing to say, with a text, and for a question that is answered elsewhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import harken
from bench.plan import Plan
from bench.processes import BARE, serving, time_to_end
from bench.rows import Budget, Figure, Row, Unit, least
from bench.samples import samples
from harken.hosts.connect.command import hook_line
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.hook import ASK
from harken.sessions.turns import HookMoment
from harken.testing.daemon import DaemonProcess

HOST: Final = "claude-code"
SHELL: Final = ("/bin/sh", "-c", ":")
EMPTY_BUDGET: Final = Budget(at_most=1.2)
UNASKED_BUDGET: Final = Budget(at_most=1.5)
ASKED_BUDGET: Final = Budget(at_most=50, is_of_ratio=False)
ANSWER_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 4_096
TEXT_BUDGET: Final = Budget(at_most=1.3)
START: Final = json.dumps({"session_id": "bench", "hook_event_name": "SessionStart", "cwd": "/"}).encode()
AFTER: Final = json.dumps({"session_id": "bench", "hook_event_name": "PostToolBatch", "cwd": "/"}).encode()


def measure(plan: Plan) -> Iterator[Row]:
    """Measure the installed line against the least that any hook costs."""
    with serving(plan.home("hooks")) as daemon:
        place = InstallTarget(
            user=daemon.home,
            environ={},
            project=None,
            harken=daemon.home,
            python=sys.executable,
            edge=Path(harken.__file__).parent / "edge",
        )
        tool = ("/bin/sh", "-c", hook_line(place, HOST, HookMoment.TOOL))
        start = ("/bin/sh", "-c", hook_line(place, HOST, HookMoment.START))
        # Mail for whoever comes next, and a session of this host that is here and has had all of its own.
        with daemon.caller() as caller:
            caller.call("send", text="for nobody in particular", channel="bench")
        yield from _silent(plan, tool)
        yield _unasked(plan, ("/bin/sh", "-c", hook_line(replace(place, harken=plan.home("nobody")), HOST, ASK)))
        _run(start, START)
        yield from _speaking(plan, daemon, tool)
        yield from _asking(plan, daemon)


def _silent(plan: Plan, tool: Sequence[str]) -> Iterator[Row]:
    shell, hook = [], []
    for _ in plan.rounds("hook, nothing waiting", 100, 20):
        shell.append(time_to_end(SHELL))
        hook.append(time_to_end(tool))
    yield Row(
        name="hook-empty",
        what="hook after a tool, nothing for a live session",
        unit=Unit.MILLISECONDS,
        value=least(samples(hook)),
        reference_name="/bin/sh -c :",
        reference=least(samples(shell)),
        budget=EMPTY_BUDGET,
        limited_by="starting the shell: the line only tests a file",
    )


def _speaking(plan: Plan, daemon: DaemonProcess, tool: Sequence[str]) -> Iterator[Row]:
    bare, hook = [], []
    with daemon.caller() as caller:
        for number in plan.rounds("hook, something waiting", 40, 12):
            caller.call("send", text=f"the build is red {number}", channel="bench")
            bare.append(time_to_end(BARE))
            took, said = _run(tool, AFTER)
            if b"the build is red" not in said:
                raise RuntimeError(f"the hook said nothing: {said[:200]!r}")
            hook.append(took)
    yield Row(
        name="hook-text",
        what="hook after a tool, to the text on stdout",
        unit=Unit.MILLISECONDS,
        value=least(samples(hook)),
        reference_name="python -I -S -c pass",
        reference=least(samples(bare)),
        budget=TEXT_BUDGET,
        limited_by="the shell and the interpreter's start, then one offer that is committed",
    )


def _unasked(plan: Plan, ask: Sequence[str]) -> Row:
    shell, hook = [], []
    for _ in plan.rounds("approval hook, nobody to ask", 100, 20):
        shell.append(time_to_end(SHELL))
        hook.append(time_to_end(ask))
    return Row(
        name="approval-empty",
        what="hook for approvals, no daemon to ask",
        unit=Unit.MILLISECONDS,
        value=least(samples(hook)),
        reference_name="/bin/sh -c :",
        reference=least(samples(shell)),
        budget=UNASKED_BUDGET,
        limited_by="starting the shell: the line only tests a file",
    )


def _asking(plan: Plan, daemon: DaemonProcess) -> Iterator[Row]:
    asked, answered = [], []
    with daemon.caller() as caller:
        for number in plan.rounds("approval, asked and answered", 100, 12):
            with _question(daemon, number) as host:
                began = time.perf_counter()
                while not (found := caller.call("approvals")["approvals"]):
                    pass
                asked.append(time.perf_counter() - began)
                began = time.perf_counter()
                caller.call("approve", approval=found[0]["id"], digest=found[0]["digest"], choice="once")
                if b'"once"' not in host.recv(ANSWER_BYTES):
                    raise RuntimeError("the host was given no answer")
                answered.append(time.perf_counter() - began)
                host.sendall(b"!")
    for name, what, times in (
        ("approval-asked", "a host's question until it is listed, p95", asked),
        ("approval-answered", "an answer until the host has it, p95", answered),
    ):
        found_p95 = Figure(usual=samples(times).p95, best=samples(times).minimum)
        limit = "one commit that is synced, and one listing"
        yield Row(name=name, what=what, unit=Unit.MILLISECONDS, value=found_p95, budget=ASKED_BUDGET, limited_by=limit)


@contextmanager
def _question(daemon: DaemonProcess, number: int) -> Iterator[socket.socket]:
    """A plugin of opencode that asks."""
    asked = {"id": f"per_{number}", "permission": "bash", "patterns": [], "metadata": {"command": "ls"}, "always": []}
    body = json.dumps({"session_id": "bench", "cwd": "/", "asked": asked}).encode()
    hello = {
        "harken": 1, "kind": "hook", "host": "opencode", "moment": "ask", "payload": len(body), "pid": 0,
        "ppid": os.getpid(), "cwd": "/", "env": {}, "token": "",
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX) as host:
        host.settimeout(ANSWER_SECONDS)
        host.connect((daemon.home / "run" / "address").read_text().strip().removeprefix("unix:"))
        host.sendall(json.dumps(hello).encode() + b"\n" + body)
        yield host


def _run(command: Sequence[str], payload: bytes) -> tuple[float, bytes]:
    environ = {**os.environ, "CLAUDE_PID": str(os.getpid())}
    began = time.perf_counter()
    done = subprocess.run(command, input=payload, capture_output=True, check=True, env=environ)
    return time.perf_counter() - began, done.stdout
