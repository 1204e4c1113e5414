"""The table of verbs, and how one is loaded, completed and run.

A verb's module is imported when the verb is called. Every verb takes `--json` and `--home`, before and after its
name; what it gets is an `Invocation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import wraps
from importlib import import_module
from inspect import cleandoc
from math import isnan, nan
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from harken import __version__
from harken.cli.invocation import COMPLETE_VARIABLE, INTERRUPTED, Invocation, body_of
from harken.cli.output import at_home
from harken.cli.verb_options import VERB_HELP, VERB_OPTIONS
from harken.errors import UserError
from harken.times import LENGTHS, MOMENTS, parse_duration, parse_moment

LONGEST = timedelta(days=3_650)

FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)

FIRST: Final = ("up", "connect", "doctor", "send", "list", "read", "reply", "status", "watch", "open")
START: Final = (
    ("connect", "connect your agents"),
    ("doctor --live", "prove that messages reach them"),
    ('send "the build is red" --from ci-bot', "send the first message"),
    ("open", "see your inbox in the browser"),
    ("status", "see what needs you"),
    ("demo", "see it all work in a minute"),
)
TAB_CHARS, WHOLE_CHARS = 45, 200  # how much of a verb's help is shown at the Tab key, and in a list of commands
SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({"max_content_width": 100, "help_option_names": ["--help", "-h"]})
CLOSE: Final = 0.7  # how alike a word must be to be the one that was meant
# What others call it.
MEANT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agents": "status",
        "answer": "reply",
        "block": "deny",
        "init": "connect",
        "install": "connect",
        "log": "journal",
        "login": "open",
        "logs": "journal",
        "ls": "list",
        "messages": "list",
        "page": "open",
        "ps": "status",
        "restart": "up",
        "session": "status",
        "sessions": "status",
        "settings": "config",
        "setup": "connect",
        "show": "read",
        "start": "up",
        "stop": "down",
        "tail": "watch",
        "trust": "allow",
        "web": "open",
    }
)
COMMANDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Messages": {
            "send": "message_commands:send",
            "unsend": "message_commands:unsend",
            "list": "message_commands:list_messages",
            "read": "message_commands:read",
            "pull": "message_commands:pull",
            "wait": "message_commands:wait",
            "ack": "message_commands:ack",
            "reply": "message_commands:reply",
            "conversations": "conversations:conversations",
            "done": "conversations:done",
            "snooze": "conversations:snooze",
            "reopen": "conversations:reopen",
            "unread": "conversations:unread",
            "needs": "conversations:needs",
            "waiting": "conversations:waiting",
            "approve": "conversations:approve",
            "outbox": "conversations:outbox",
            "search": "message_commands:search",
        },
        "Tasks": {
            "task": "task:task",
            "check-inbox": "message_commands:check_inbox",
            "send-to-task": "message_commands:send_to_task",
            "send-to-peer": "message_commands:send_to_peer",
            "inbox-status": "message_commands:inbox_status",
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
        "Inspect": {
            "watch": "watch.command:watch",
            "status": "status_commands:status",
            "stats": "status_commands:stats",
            "journal": "status_commands:journal",
            "open": "open:open_page",
            "browsers": "open:browsers",
            "export": "history:export",
            "replay": "history:replay",
            "retention": "store:retention",
        },
        "Agents": {
            "connect": "connect:connect",
            "disconnect": "connect:disconnect",
            "doctor": "connect:doctor",
            "probe": "connect:probe",
        },
        "Trust": {
            "allow": "access:allow",
            "deny": "access:deny",
            "pair": "access:pair",
            "mute": "access:mute",
            "unmute": "access:unmute",
            "token": "access:token",
        },
        "Run Harken": {
            "up": "lifecycle:up",
            "down": "lifecycle:down",
            "join": "machines:join",
            "leave": "machines:leave",
            "machines": "machines:machines",
            "serve": "serve:serve",
            "mcp": "edge:mcp",
            "acp": "edge:acp",
            "hook": "edge:hook",
            "config": "lifecycle:config",
            "reload": "lifecycle:reload",
            "service": "service:service",
            "store": "store:store",
            "backup": "backup:backup",
            "restore": "backup:restore",
            "recover": "backup:recover",
            "uninstall": "uninstall:uninstall",
            "completion": "complete:completion",
            "demo": "demo:demo",
            "version": "lifecycle:version",
        },
    }
)


def invocation(context: click.Context) -> Invocation:
    """Return what the options say, wherever on the line they stand."""
    places = [each.params for each in _upwards(context)]
    home = next((place["home"] for place in places if place.get("home") is not None), None)
    return Invocation(home, as_json=any(place.get("as_json") for place in places))


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


def lists(group: click.Group, name: str = "list") -> None:
    """Let a group that is called without a verb do what one of its verbs does: show what there is."""

    @click.pass_context
    def run(context: click.Context, /, **_values: object) -> None:
        if context.invoked_subcommand is None:
            command = group.commands[name]
            with command.make_context(name, [], parent=context) as inner:
                command.invoke(inner)

    group.callback = run
    group.help = f"{group.help}\n\nWithout a command, it does the same as `{group.name} {name}`."
    group.invoke_without_command, group.no_args_is_help = True, False
    group.params += verb_options()


class VerbCommand(click.Command):
    """A verb. What is wrong with its words is said with the verb's own help, also where click names none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words that follow the verb."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.ctx = exc.ctx or ctx
            raise

    def get_short_help_str(self, limit: int = TAB_CHARS) -> str:
        """Return the first sentence: whole in a list of commands, which wraps it, and cut where Tab shows it."""
        return super().get_short_help_str(limit if limit == TAB_CHARS else WHOLE_CHARS)


def verb(name: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function, with the options that every verb has."""

    def make(body: Callable[..., int | None]) -> click.Command:
        @wraps(body)
        @click.pass_context
        def run(context: click.Context, /, **values: object) -> None:
            asked = invocation(context)
            del values["home"], values["as_json"]
            if code := asked.call(body, values):
                context.exit(code)

        command = click.command(name, cls=VerbCommand)(run)
        command.params += verb_options()
        return command

    return make


def verb_command(of: str, name: str = "") -> Callable[[Callable[..., int | None]], click.Command]:
    """Make the command of a verb that the daemon has: its help is the verb's, then the function's own docstring."""

    def make(body: Callable[..., int | None]) -> click.Command:
        command = verb(name or of.replace("_", "-"))(body)
        command.help = "\n\n".join(filter(None, (VERB_HELP[of], cleandoc(command.help or ""))))
        return command

    return make


def light_command(of: str) -> Callable[[Callable[[], None]], click.Command]:
    """Make the command of one of `BODIES`: what is decorated has its words and its help, and is not called."""

    def make(words: Callable[[], None]) -> click.Command:
        @wraps(words)
        def run(asked: Invocation, **values: object) -> int | None:
            return body_of(of)(asked, **values)

        return verb_command(of)(run)

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
            help="Harken's home folder (default: HARKEN_HOME, or ~/.harken).",
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
        """Find the verb, or say which one was probably meant; `help` is what many people type first."""
        if args and args[0] == "help":
            if not args[1:]:
                click.echo(context.get_help())
                context.exit()
            args = [*args[1:], "--help"]
        if args and not args[0].startswith("-") and self.get_command(context, args[0]) is None:
            from difflib import get_close_matches

            known = self.list_commands(context)
            alike = [each for each in known if sorted(each) == sorted(args[0])]
            meant = MEANT.get(args[0]) or next(iter(alike or get_close_matches(args[0], known, 1, CLOSE)), "")
            guess = f" Did you mean {meant}?" if meant else ""
            raise click.UsageError(f"There is no command {args[0][:40]!r}.{guess}", context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs of every day, then all others by what they are for."""
        sections = {title: [name for name in names if name not in FIRST] for title, names in COMMANDS.items()}
        for title, section in {"Every day": list(FIRST), **sections}.items():
            rows = [(name, self._help(context, name)) for name in section]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=13)

    def _help(self, context: click.Context, name: str) -> str:
        command = self.get_command(context, name)
        return command.get_short_help_str(WHOLE_CHARS) if command else ""


@click.group(cls=Verbs, params=verb_options(), invoke_without_command=True, context_settings=SETTINGS)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def harken(context: click.Context, /, **_options: object) -> None:
    """An inbox for coding agents.

    Delivers messages from people, machines and agents to the right agent session.
    """
    if context.invoked_subcommand is None:
        asked = invocation(context)
        asked.call(show_start, {})


def show_start(asked: Invocation) -> None:
    """Print how to begin."""
    asked.screen.line("Harken, an inbox for coding agents. To get started:")
    asked.screen.table([(at_home(f"harken {words}"), about) for words, about in START])
    asked.screen.hint("Every command: harken --help")


def run_click(arguments: Sequence[str]) -> int:
    """Let click read the words and run the verb; return the exit code."""
    try:
        code = harken.main(list(arguments), prog_name="harken", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.UsageError as exc:
        verb = exc.ctx.command_path if exc.ctx else "harken"
        raise UserError(_plain(exc.format_message()), f"See: {verb} --help") from exc
    except click.ClickException as exc:
        raise UserError(exc.format_message()) from exc
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _plain(message: str) -> str:
    """Return what click says of a number, a choice or a verb in one line of plain words."""
    message = ", ".join(line.strip(" \t,") for line in message.splitlines()).replace(" from:, ", " from: ")
    message = message.replace("No such command", "There is no command")
    for kind, words in (("integer", "whole number"), ("float", "number")):
        message = message.replace(f"is not a valid {kind} range", f"is not a {words}")
        message = message.replace(f"is not a valid {kind}", f"is not a {words}")
    return message


class Moment(click.ParamType[datetime]):
    """A point in time."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return it, aware of its zone."""
        if isinstance(value, datetime):
            return value
        try:
            return parse_moment(value, datetime.now().astimezone())
        except ValueError:
            self.fail(f"{value[:40]!r} is not a time: write it as {MOMENTS}.", param, ctx)


class Length(click.ParamType[float]):
    """A length of time, as seconds."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return its seconds."""
        if not isinstance(value, str):
            return value
        try:
            found = parse_duration(value.strip())
        except ValueError:
            found = timedelta()
        if not timedelta() < found <= LONGEST:
            self.fail(f"{value[:40]!r} is not a duration: write it as {LENGTHS}.", param, ctx)
        return found.total_seconds()


class Seconds(click.FloatRange):
    """A length of time that ends, as seconds; a bare number is seconds too."""

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse what compares with nothing: a loop until then would not end."""
        if isinstance(value, str):
            with suppress(ValueError):
                value = parse_duration(value.strip()).total_seconds()
        try:
            seconds = float(value)
        except ValueError:
            seconds = nan
        if isnan(seconds):
            self.fail(f"{value!r:.40} is not a duration: write it as {LENGTHS}, or as seconds.", param, ctx)
        return float(super().convert(seconds, param, ctx))
