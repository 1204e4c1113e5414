"""The table of verbs, and how one is loaded, completed and run.

A verb's module is imported when the verb is called. Every verb takes `--json` and `--home`, before and after its
name; what it gets is an `Invocation`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import cleandoc
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from harken import __version__
from harken.cli.hints import HOME_OPTION, at_home
from harken.cli.output import Screen
from harken.cli.verb_options import VERB_HELP, VERB_OPTIONS
from harken.config.home import Home, find_home
from harken.errors import HarkenError

if TYPE_CHECKING:  # `--help` and `version` need no client
    from harken.control.client import DaemonClient, Result

FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)
PIPE_CLOSED = 141  # what a shell reports of a program that SIGPIPE ended

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Messages": {
            "send": "messages:send",
            "list": "messages:list_messages",
            "read": "messages:read",
            "pull": "messages:pull",
            "wait": "messages:wait",
            "ack": "messages:ack",
            "reply": "messages:reply",
            "waiting": "waiting:waiting",
            "outbox": "outbox:outbox",
            "search": "messages:search",
        },
        "Tasks": {
            "task": "task:task",
            "check-inbox": "task_mail:check_inbox",
            "send-to-task": "task_mail:send_to_task",
            "send-to-peer": "task_mail:send_to_peer",
            "inbox-status": "task_mail:inbox_status",
        },
        "Channels": {
            "channel": "channel:channel",
        },
        "Rules and runs": {
            "rules": "rules:rules",
            "run": "runs:run",
        },
        "Sources": {
            "source": "source:source",
        },
        "Looking": {
            "watch": "watch.command:watch",
            "status": "look:status",
            "stats": "look:stats",
            "journal": "look:journal",
            "open": "open:open_page",
            "browsers": "open:browsers",
            "export": "export:export",
            "replay": "replay:replay",
            "retention": "retention:retention",
        },
        "Agents": {
            "connect": "connect:connect",
            "disconnect": "connect:disconnect",
            "doctor": "connect:doctor",
            "probe": "connect:probe",
        },
        "Who may reach what": {
            "allow": "access:allow",
            "deny": "access:deny",
            "pair": "access:pair",
            "mute": "access:mute",
            "unmute": "access:unmute",
        },
        "Running": {
            "up": "lifecycle:up",
            "down": "lifecycle:down",
            "serve": "serve:serve",
            "mcp": "edge:mcp",
            "hook": "edge:hook",
            "config": "config:config",
            "reload": "config:reload",
            "service": "service:service",
            "backup": "backup:backup",
            "restore": "backup:restore",
            "recover": "recover:recover",
            "uninstall": "uninstall:uninstall",
            "completion": "complete:completion",
            "demo": "demo:demo",
            "version": "lifecycle:version",
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What every verb is told: which home, and how to print."""

    home: Home
    as_json: bool
    screen: Screen
    home_option: tuple[str, ...] = ()  # how to name the same home in another command

    def daemon(self, *, can_start: bool = True) -> DaemonClient:
        """Return the daemon of the home, started when it is asked something and does not run."""
        from harken.cli.progress import start_notice
        from harken.control.client import DaemonClient

        return DaemonClient(self.home, can_start=can_start, notice=start_notice)

    def ask(self, method: str, /, **params: object) -> Result:
        """Ask the daemon one verb."""
        with self.daemon() as daemon:
            return daemon.ask(method, **params)

    def print_json(self, value: object) -> None:
        """Print one JSON document."""
        self.screen.json(value)

    def gave_json(self, value: object) -> bool:
        """Print a result as JSON if that was asked for; return whether it was."""
        if self.as_json:
            self.print_json(value)
        return self.as_json


def invocation(context: click.Context) -> Invocation:
    """Return what the options say, wherever on the line they stand."""
    places = [each.params for each in _upwards(context)]
    home = next((place["home"] for place in places if place.get("home") is not None), None)
    return Invocation(
        home=find_home(home, os.environ),
        as_json=any(place.get("as_json") for place in places),
        screen=Screen.of_stdout(),
        home_option=("--home", home) if home is not None else (),
    )


def _upwards(context: click.Context | None) -> Iterator[click.Context]:
    while context is not None:
        yield context
        context = context.parent


def or_subcommand(command: click.Command) -> click.Group:
    """Make a group of a verb that does something of its own when none of its verbs is named."""

    @click.pass_context
    def run(context: click.Context, /, **values: object) -> None:
        if context.invoked_subcommand is None and command.callback is not None:
            context.invoke(command.callback, **values)

    return click.Group(
        command.name, invoke_without_command=True, callback=run, params=command.params, help=command.help
    )


class VerbCommand(click.Command):
    """A verb. What is wrong with its words is said with the verb's own help, also where click names none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words that follow the verb."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise


def verb(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function, with the options that every verb has."""

    def make(body: Callable[..., None]) -> click.Command:
        @wraps(body)
        @click.pass_context
        def run(context: click.Context, /, **values: object) -> None:
            asked = invocation(context)
            context.meta[HOME_OPTION] = asked.home_option
            del values["home"], values["as_json"]
            try:
                body(asked, **values)
                sys.stdout.flush()
            except BrokenPipeError:
                raise click.exceptions.Exit(PIPE_CLOSED) from None
            except HarkenError as exc:
                exc.hint = at_home(exc.hint)
                raise

        command = click.command(name, cls=VerbCommand)(run)
        command.params += verb_options()
        return command

    return make


def verb_command(of: str, name: str = "") -> Callable[[Callable[..., None]], click.Command]:
    """Make the command of a verb that the daemon has: its help is the verb's, then the function's own docstring."""

    def make(body: Callable[..., None]) -> click.Command:
        command = verb(name or of.replace("_", "-"))(body)
        command.help = "\n\n".join(filter(None, (VERB_HELP[of], cleandoc(command.help or ""))))
        return command

    return make


def verb_option(of: str, name: str, *flags: str, **attributes: object) -> Callable[[FC], FC]:
    """Make an option of an argument of a verb that the daemon has: its flag, default and help are the verb's."""
    flag, default, text = VERB_OPTIONS[of][name]
    kind: Mapping[str, object] = {"is_flag": True} if default is False else {"default": default}
    settings: dict[str, Any] = {"help": text, **kind, **attributes}
    return click.option(flag, *flags, name, **settings)


def verb_options() -> list[click.Parameter]:
    """Return the options that every verb has."""
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON document."),
        click.Option(
            ["--home"],
            metavar="DIR",
            type=click.Path(file_okay=False),
            help="Harken's folder; else HARKEN_HOME, else ~/.harken.",
        ),
    ]


class Verbs(click.Group):
    """Loads each verb when it is called."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Name the verbs, in the order people meet them."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Import the verb. The names of tools work too: they have the same words with underscores."""
        name = name.replace("_", "-")
        for section in COMMANDS.values():
            if name in section:
                module, _, attribute = section[name].partition(":")
                command: click.Command = getattr(import_module(f"harken.cli.{module}"), attribute)
                return command
        return None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which one was probably meant."""
        if args and not args[0].startswith("-") and self.get_command(context, args[0]) is None:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.list_commands(context), 1)
            guess = f" Did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"There is no command {args[0][:40]!r}.{guess}", context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, by what they are for."""
        for title, section in COMMANDS.items():
            rows = [(name, self._help(context, name)) for name in section]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=12)

    def _help(self, context: click.Context, name: str) -> str:
        command = self.get_command(context, name)
        return command.get_short_help_str(90) if command else ""


@click.group(cls=Verbs, params=verb_options(), invoke_without_command=True, context_settings={"max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def harken(context: click.Context, /, **_options: object) -> None:
    """The inbox of coding agents.

    Messages from people, machines and agents are stored once and given to the right agent session.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
