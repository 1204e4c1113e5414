"""The verbs `mcp` and `hook`: they become the programs of the edge, which are what hosts are given to start."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from harken.cli.invocation import Invocation
from harken.cli.verbs import verb


@verb("mcp")
@click.option("--print-command", "is_shown", is_flag=True, help="Print the command that hosts should start, and end.")
@click.option("--consumer", default="", envvar="HARKEN_CONSUMER", help="Read as this consumer; else the host's name.")
@click.option("--task", default="", envvar="HARKEN_TASK", help="Read as this task, wherever it runs; a task's id.")
def mcp(asked: Invocation, *, is_shown: bool, consumer: str, task: str) -> None:
    """Serve MCP on stdin and stdout, for an agent.

    Hosts start it fastest with the command that --print-command shows. --task, or HARKEN_TASK in the environment, is
    for programs that are not started in the folder of their task, such as desktop apps.
    """
    arguments = _arguments(asked, "mcp.py") + (["--consumer", consumer] if consumer else [])
    arguments += ["--task", task] if task else []
    if not is_shown:
        _become(arguments)
    elif asked.as_json:
        asked.print_json({"command": sys.executable, "args": arguments})
    else:
        asked.screen.line(shlex.join([sys.executable, *arguments]))


@verb("hook")
@click.argument("host")
@click.argument("moment", type=click.Choice(["start", "prompt", "tool", "stop", "end", "bell"]))
def hook(asked: Invocation, *, host: str, moment: str) -> None:
    """Ask what a host's hook should say, with the host's payload on stdin.

    What `harken connect` writes into a host's settings is a quicker way to the same.
    """
    _become([*_arguments(asked, "hook.py"), host, moment])


def _arguments(asked: Invocation, script: str) -> list[str]:
    # By path: a program of its own that must not see this package, nor `site`.
    path = Path(__file__).parent.parent / "edge" / script
    return ["-I", "-S", str(path), "--home", str(asked.home.path)]


def _become(arguments: list[str]) -> None:
    become([sys.executable, *arguments])


def become(argv: Sequence[str]) -> NoReturn:
    """Let a program, found on the PATH, take the place of this one; raises `OSError` when it cannot be started."""
    os.execvp(argv[0], list(argv))  # noqa: S606 - our own interpreter and script, or the person's own agent, no shell
