"""The commands that hosts are given: the edge over stdio, and a hook as one line for `sh`.

A hook after a tool runs at every tool call of an agent, so the line first looks whether the host's bell rings, which
costs about a millisecond. Where something is missing (an interpreter that was removed, a home that is gone), it ends
with 0 and prints nothing: a host must never notice a Harken that is not there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import list2cmdline
from typing import Final

from harken.hosts.connect.plan import InstallTarget
from harken.hosts.hook import ASK
from harken.hosts.registry import built_in_hosts, host_named
from harken.sessions.turns import HookMoment

IN_TASK: Final = "--in-task"
SERVER: Final = "harken"  # what our MCP server is called in the settings of hosts
# Above the 55 seconds that a tool of ours waits, and the time that a daemon needs to start.
TOOL_SECONDS: Final = 90
RUN_SECONDS: Final = 30.0
_PACKAGE_DEPTH: Final = 2  # a package has its program in its folder, or in one below
# Tools that a host need not ask about, where it can be told so: what only reads and marks this agent's own mail. Not
# `reply`, which speaks to people outside, nor what speaks to other tasks, whose agents may act on it.
UNASKED: Final = (
    "ack",
    "channels",
    "check_inbox",
    "inbound_queue_stats",
    "inbox_pull",
    "inbox_read",
    "inbox_search",
    "inbox_status",
    "wait_for_inbound_message",
)


def mcp_command(place: InstallTarget, host: str = "") -> tuple[str, ...]:
    """Return the command that a host starts as MCP server; one of another package has to be named."""
    script = str(place.edge / "mcp.py")
    named = _named_variables(host, host_named(host).server_variables)
    return (place.python, "-I", "-S", script, "--home", str(place.harken), *named)


def hook_command(place: InstallTarget, host: str, moment: str) -> tuple[str, ...]:
    """Return the command that asks the daemon on behalf of a hook."""
    script = str(place.edge / "hook.py")
    named = _named_variables(host, host_named(host).hook_variables)
    return (place.python, "-I", "-S", script, "--home", str(place.harken), host, f"{moment}", *named)


def _named_variables(host: str, variables: Sequence[str]) -> tuple[str, ...]:
    """Return the option that names environment variables which the edge does not know of by its own table."""
    is_known = not variables or any(each.name == host for each in built_in_hosts())
    return () if is_known else ("--variables", ",".join(variables))


def hook_line(place: InstallTarget, host: str, moment: str, *, is_in_task: bool = False) -> str:
    """Return the line that `connect` writes into a host's settings: for `sh`, or where there is none, one command.

    With `is_in_task` it is silent in sessions that are in no task's folder.
    """
    command = (*hook_command(place, host, moment), *([IN_TASK] if is_in_task else []))
    if not place.has_shell:
        # The script itself looks at the bell then: dearer, but there is nothing cheaper to do it.
        return list2cmdline([*command, "--bell"] if moment == HookMoment.TOOL else command)
    # A script that is gone would make the interpreter end with 2, which hosts take for a veto.
    tests = [f"[ -x {shlex.quote(command[0])} ]", f"[ -f {shlex.quote(command[3])} ]"]
    if moment == HookMoment.TOOL:
        tests.insert(0, f"[ -s {shlex.quote(str(place.harken / 'run' / 'bells' / host))} ]")
    elif moment == ASK:
        # Nobody to ask: the host's own question is all there is, and is not held up by the start of an interpreter.
        tests.insert(0, f"[ -s {shlex.quote(str(place.harken / 'run' / 'address'))} ]")
    return f"{' && '.join(tests)} || exit 0; exec {shlex.join(command)}"


def find_program(place: InstallTarget, name: str, *more: Path) -> str | None:
    """Return the path of a program on the person's PATH, or in some more folders."""
    return shutil.which(name, path=os.pathsep.join((place.environ.get("PATH", os.defpath), *map(str, more))))


def packaged_version(program: str, package: str) -> str:
    """Return the version in the npm package that a program belongs to: quicker than a start, and without its traces."""
    for folder in list(Path(program).resolve().parents)[:_PACKAGE_DEPTH]:
        try:
            told = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and str(told.get("name", "")).startswith(package):
            return str(told.get("version", ""))
    return ""


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def output_of(argv: Sequence[str], environ: Mapping[str, str], cwd: Path | None = None, *, is_all: bool = True) -> str:
    """Return what a command prints, with its complaints if `is_all`; nothing when it does not start or end in time."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            timeout=RUN_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + (done.stderr if is_all else b"")).decode("utf-8", "replace")
