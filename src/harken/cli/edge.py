"""The verbs `mcp`, `hook` and `acp`: what hosts and editors are given to start.

The first two become the programs of the edge; the third is `acp.py`.
"""

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
from harken.errors import UserError


@verb("mcp")
@click.option("--print-command", "is_shown", is_flag=True, help="Print the command that agents should start, and exit.")
@click.option(
    "--consumer", default="", envvar="HARKEN_CONSUMER", help="Read as this consumer (default: the agent's name)."
)
@click.option("--task", default="", envvar="HARKEN_TASK", help="Read as this task, wherever it runs; a task's id.")
@click.option("--url", default="", metavar="URL", help="Serve from a Harken elsewhere: https://HOST/mcp.")
@click.option("--token-file", default="", metavar="FILE", help="With --url: the file that holds the token.")
def mcp(asked: Invocation, *, is_shown: bool, consumer: str, task: str, url: str, token_file: str) -> None:
    """Serve MCP on stdin and stdout, for an agent.

    The command that --print-command shows starts fastest. --task, or HARKEN_TASK in the environment, is for programs
    that do not start in their task's folder, such as desktop apps.
    """
    if bool(url) != bool(token_file):
        raise UserError("--url and --token-file belong together.", "See: docs/howto/remote-mcp.md")
    if url:
        # The token says as whom it reads.
        arguments = [*_program("mcp.py"), "--url", url, "--token-file", str(Path(token_file).absolute())]
    else:
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
    """Answer an agent's hook, with its payload on stdin.

    `harken connect` sets up a faster way to do the same.
    """
    _become([*_arguments(asked, "hook.py"), host, moment])


@verb("acp")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="AGENT | -- COMMAND...")
def acp(asked: Invocation, *, command: tuple[str, ...]) -> int:
    """Be the agent of an editor, with an inbox: for Zed, JetBrains, Neovim and others.

    Starts the agent, and passes on all that the two say to each other in the Agent Client Protocol. When the agent is
    idle, it is told what waits for it; what it asks before it uses a tool can be answered in the editor or elsewhere,
    and the first answer counts.

    The name of an agent stands for its command; anything else is the command itself.
    """
    from harken.cli.acp import serve

    return serve(asked.home, command)


acp.context_settings.update(ignore_unknown_options=True, allow_interspersed_args=False)  # the rest is the agent's


def _arguments(asked: Invocation, script: str) -> list[str]:
    return [*_program(script), "--home", str(asked.home.path)]


def _program(script: str) -> list[str]:
    # By path: a program of its own that must not see this package, nor `site`.
    return ["-I", "-S", str(Path(__file__).parent.parent / "edge" / script)]


def _become(arguments: list[str]) -> None:
    become([sys.executable, *arguments])


def become(argv: Sequence[str]) -> NoReturn:
    """Let a program, found on the PATH, take the place of this one; raises `OSError` when it cannot be started."""
    os.execvp(argv[0], list(argv))  # noqa: S606 - our own interpreter and script, or the person's own agent, no shell
