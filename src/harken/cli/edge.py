"""The verb `mcp`: becomes the edge, which is what hosts are given to start."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from harken.cli.verbs import Invocation, verb


@verb("mcp")
@click.option("--print-command", "is_shown", is_flag=True, help="Print the command that hosts should start, and end.")
@click.option("--consumer", default="", envvar="HARKEN_CONSUMER", help="Read as this consumer; else the host's name.")
def mcp(asked: Invocation, *, is_shown: bool, consumer: str) -> None:
    """Serve MCP on stdin and stdout, for an agent.

    Hosts start it fastest with the command that --print-command shows.
    """
    # By path: a program of its own that must not see this package, nor `site`.
    script = Path(__file__).parent.parent / "edge" / "mcp.py"
    arguments = ["-I", "-S", str(script), "--home", str(asked.home.path)]
    arguments += ["--consumer", consumer] if consumer else []
    if not is_shown:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - our own interpreter and script, no shell
    elif asked.as_json:
        asked.print_json({"command": sys.executable, "args": arguments})
    else:
        asked.screen.line(shlex.join([sys.executable, *arguments]))
