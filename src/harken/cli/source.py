"""The verb `source`: the words and options of its verbs, over the kinds of sources that there are.

What a kind asks for, how it is tried and how people sign in to it is the kind's own: here it is only shown. What is
done is `setup/sources.py`, for the page too: adding and removing change config.toml, and the running daemon takes it
over at once. The list is what the daemon says of itself. What is done is imported when a verb is run.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.verbs import Seconds, lists, verb, verb_command, verb_options
from harken.display import one_line
from harken.errors import UserError
from harken.plugins import PluginFault, guard
from harken.times import LENGTHS

if TYPE_CHECKING:
    from harken.control.client import Result
    from harken.setup.sources import SourceAddition, SourceDesk
    from harken.sources.check import CheckReport, RunningSources
    from harken.sources.settings import SourceOption
    from harken.sources.setup import AddedSource, SetupValues, SourceSetup
    from harken.sources.source import SourceKind

TEST_SECONDS = 5.0
NOT_LISTENING = 1  # the exit code when a source was tried and nothing would arrive from it
ARGUMENTS: Final = "args"
MORE: Final = "more"
AS_YOU: Final = "Agents' answers are sent in this name, with a line that says so."
NAME_WANTED: Final = "A name for it, such as ci"


@click.group()
def source() -> None:
    """Manage sources of messages: MCP servers, webhooks, mail, Teams and Outlook."""


_name = click.argument("name", metavar="NAME", shell_complete=completer("configured_sources"))
_restart = click.option("--restart", "is_restarted", is_flag=True, help="Restart the daemon (not needed).")


@verb_command("source_list", "list")
def list_sources(asked: Invocation) -> None:
    from harken.cli.source_show import show_sources
    from harken.setup.sources import configured
    from harken.sources.registry import kinds

    found = asked.ask("source_list")
    if asked.gave_json(found):
        return
    show_sources(asked.screen, found["sources"])
    listed = {each["name"] for each in found["sources"]}
    for name in configured(asked.home):
        if name not in listed:
            note_to_person(f"{name} is in config.toml but not loaded: harken reload")
    for fault in kinds().faults:
        note_to_person(fault)
    if not listed and not configured(asked.home):
        note_to_person("There are no sources. To add one: harken source add --help")


class AddGroup(click.Group):
    """One command for each kind of source; what names no kind is of the default one."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Name the kinds."""
        from harken.sources.registry import kinds

        return [kind.name for kind in kinds()]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return the command of a kind."""
        from harken.sources.registry import kinds

        kind = kinds().by_name.get(name)
        if kind is None:
            return None
        try:
            return _add_command(kind)
        except PluginFault as fault:
            return _refusal(kind, fault)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the kind; without one the words are of the default kind, and the first is often a name."""
        from harken.sources.registry import kinds

        default = kinds().default
        kind = kinds().by_name.get(args[0]) if args else None
        if kind is not None and not _is_of(default, kind, args[1:]):
            return super().resolve_command(context, args)
        return default.name, self.get_command(context, default.name), args


@click.group(
    "add",
    cls=AddGroup,
    params=verb_options(),
    invoke_without_command=True,
    context_settings={"ignore_unknown_options": True},
)
@click.pass_context
def add(context: click.Context, /, **_options: object) -> None:
    """Add a source to config.toml, and start listening to it.

    `source add KIND --help` shows what a kind needs. Without a kind it is an MCP server: `source add NAME --url URL`.
    Do not type secrets: name where they are kept, as env:NAME, file:PATH or keyring:SERVICE/NAME.
    """
    if context.invoked_subcommand is None:
        _name, command, _args = add.resolve_command(context, [])
        if command is not None:
            if sys.stdin.isatty():
                note_to_person(f"{command.short_help} Other kinds: harken source add --help")
            with command.make_context(command.name, [], parent=context) as inner:
                command.invoke(inner)


def _is_of(default: SourceKind, kind: SourceKind, args: list[str]) -> bool:
    """Whether the words are of the default kind after all: a server may be called like another kind."""
    own, others = ({each.flag for each in _setup(one).options} for one in (default, kind))
    return any(word.partition("=")[0] in own - others for word in args[: args.index("--") if "--" in args else None])


def _setup(kind: SourceKind) -> SourceSetup:
    def make() -> SourceSetup:
        setup = kind.setup()
        return setup()

    return guard(f"The kind of source {kind.name}", make)


def _refusal(kind: SourceKind, fault: PluginFault) -> click.Command:
    """Return what stands for the command of a kind that cannot say what it needs: the others are listed with it."""

    def run(**_words: object) -> None:
        raise fault

    words = click.Argument([MORE], nargs=-1, type=click.UNPROCESSED, required=False)
    settings = {"ignore_unknown_options": True}
    return click.Command(kind.name, settings, run, [words], short_help=kind.summary, add_help_option=False)


def _add_command(kind: SourceKind) -> click.Command:
    """Return the command that adds a source of a kind, with the options of that kind and no others."""
    setup = _setup(kind)

    def run(asked: Invocation, *, name: str, is_restarted: bool, **options: object) -> None:
        if options.pop(MORE, ()):
            raise click.UsageError(f"One name is enough: harken source add {kind.name} NAME")
        values = {key.removeprefix("opt_"): value for key, value in options.items()}
        add_source(asked, kind, name, _given(setup, values), is_restarted=is_restarted)

    run.__doc__ = setup.help_text or kind.summary
    command = verb(kind.name)(run)
    command.params[:0] = [
        click.Argument(["name"], metavar="[NAME]", default="", required=False),
        _arguments() if setup.takes_arguments else click.Argument([MORE], metavar="", nargs=-1, required=False),
        *(_option(each) for each in setup.options),
        click.Option(["--trust"], type=click.Choice(["known", "unknown"]), help="How far its senders are trusted."),
        click.Option(
            ["--attention"],
            type=click.Choice(["wake", "boundary", "prompt", "count"]),
            help="How intrusive its messages may be.",
        ),
        click.Option(["--restart", "is_restarted"], is_flag=True, help="Restart the daemon (not needed)."),
    ]
    command.short_help = kind.summary
    return command


def _arguments() -> click.Argument:
    return click.Argument([ARGUMENTS], metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED, required=False)


def _option(option: SourceOption) -> click.Option:
    # By place and not by key: a key may be a word of Python, or only differ in its letters' case.
    names = [option.flag, _parameter(option)]
    if option.value is bool:
        return click.Option(names, is_flag=True, help=option.help)
    kind = click.Choice(option.choices) if option.choices else option.value
    return click.Option(
        names, type=kind, multiple=option.is_many, metavar=option.metavar or None, help=option.help, default=None
    )


def _parameter(option: SourceOption) -> str:
    return f"opt_{option.flag.strip('-').replace('-', '_')}"


def _given(setup: SourceSetup, options: dict[str, object]) -> dict[str, object]:
    """Return what was given, by the keys of the kind."""
    keys = {_parameter(each).removeprefix("opt_"): each.key for each in setup.options}
    # In the order in which the kind declares them, whatever the order on the line.
    ordered = sorted(options, key=[*keys, *options].index)
    named = {keys.get(name, name): options[name] for name in ordered}
    return {key: value for key, value in named.items() if value is not False and value not in (None, "", ())}


@verb("login")
@_name
@click.option("--device", "is_device", is_flag=True, help="Use a code that you enter on any device.")
def login(asked: Invocation, *, name: str, is_device: bool) -> None:
    """Sign in to Teams or Outlook, in the browser or with a code.

    The daemon notices by itself. Agents' answers are sent in your name, and say so.
    """
    sign_in(asked, name, is_device=is_device)


@verb("logout")
@_name
def logout(asked: Invocation, *, name: str) -> None:
    """Sign out of Teams or Outlook on this machine. Messages and the checkpoint stay."""
    import anyio

    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "sign out of sources")
    was_in = anyio.run(_desk(asked).sign_in_of(name).sign_out)
    state = "signed out" if was_in else "was not signed in"
    if asked.gave_json({"name": name, "state": state}):
        return
    asked.screen.line(f"{one_line(name)}: {state}.")
    if was_in:
        note_to_person(
            "The same person continues from here after signing in again; somebody else starts with new messages."
        )


@verb("test")
@_name
@click.option(
    "--seconds",
    default=TEST_SECONDS,
    show_default=f"{TEST_SECONDS:g}s",
    metavar="TIME",
    type=Seconds(0.5, 300),
    help=f"How long to listen: {LENGTHS}, or seconds.",
)
def test(asked: Invocation, *, name: str, seconds: float) -> None:
    """Connect to a source for a few seconds, as the daemon does, and report what happens.

    For Teams and Outlook, reports who is signed in and what is there. A running webhook must refuse an unsigned post.
    Stores nothing. Exits with 1 if nothing would arrive.
    """
    from harken.cli.source_show import show_trial

    trial = _trial(_desk(asked), name, seconds)
    if asked.as_json:
        asked.print_json(trial)
    else:
        show_trial(asked.screen, trial)
        if trial.get("curl"):
            note_to_person("This post would be accepted:")
            asked.screen.line(trial["curl"])
    if trial["state"] != "listening":
        click.get_current_context().exit(NOT_LISTENING)


@verb("remove")
@_name
@_restart
def remove(asked: Invocation, *, name: str, is_restarted: bool) -> None:
    """Remove a source from config.toml, with the secret made for it. Its messages stay."""
    from harken.cli.authority import refuse_agent
    from harken.hosts.registry import short
    from harken.setup.sources import shown_entry

    refuse_agent(asked, "remove sources")
    file = asked.home.config_file
    removed = _desk(asked, is_restarted=is_restarted).remove(name)
    record = {"state": "removed", "name": name, "file": str(file), "entry": removed.entry}
    if asked.gave_json({**record, "in_force": removed.is_in_force}):
        return
    asked.screen.line(f"Taken out of {short(file)}:")
    asked.screen.text(shown_entry(name, removed.entry))
    if removed.is_in_force:
        note_to_person("Harken no longer listens to it.")


class Console:
    """The person at the terminal."""

    def __init__(self, *, can_ask: bool) -> None:
        self._can_ask = can_ask

    @property
    def can_ask(self) -> bool:
        """Whether there is a person who can be asked."""
        return self._can_ask

    def tell(self, text: str) -> None:
        """Tell the person something."""
        note_to_person(text)

    def prompt(self, text: str, default: str | None = None, *, is_hidden: bool = False) -> str:
        """Ask for a text."""
        return str(click.prompt(text, default=default, show_default=bool(default), hide_input=is_hidden)).strip()

    def confirm(self, text: str) -> bool:
        """Ask for a yes or no."""
        return click.confirm(text, default=True)

    def read_line(self) -> str:
        """Return a line of the standard input."""
        return sys.stdin.readline()


def _desk(asked: Invocation, *, is_restarted: bool = False) -> SourceDesk:
    """Return what changes the sources of a home: a daemon that runs takes the settings over, or is restarted."""
    from harken.cli.progress import start_notice
    from harken.control.client import DaemonClient
    from harken.control.start import is_reachable, start
    from harken.control.stop import stop
    from harken.setup.sources import SourceDesk
    from harken.sources.check import RunningSources
    from harken.sources.source import SourceState

    home = asked.home

    def put_in_force() -> bool:
        if is_restarted:
            stop(home)
            start(home, start_notice())
            return True
        if not is_reachable(home):
            return False
        with DaemonClient(home, can_start=False) as daemon:
            daemon.ask("reload")
        return True

    def running() -> RunningSources:
        with DaemonClient(home, notice=start_notice) as daemon:
            base = str(daemon.ask("status")["daemon"].get("hooks_url", ""))
            found = daemon.ask("source_list")["sources"]
        states = {each["name"]: (SourceState(each["state"]), str(each["reason"])) for each in found}
        return RunningSources(hooks_url=base, states=states)

    return SourceDesk(home=home, put_in_force=put_in_force, running=running)


def add_source(asked: Invocation, kind: SourceKind, name: str, values: SetupValues, *, is_restarted: bool) -> None:
    """Ask for what is missing, write the entry, have it taken over, and say what is left to do."""
    from harken.cli.authority import refuse_agent
    from harken.cli.source_show import show_trial
    from harken.control.start import is_reachable

    # Before anything is looked at: an agent must not have a secret tried or kept anywhere.
    refuse_agent(asked, "add sources")
    desk = _desk(asked, is_restarted=is_restarted)
    can_ask = sys.stdin.isatty() and not asked.as_json
    addition = desk.begin(kind, Console(can_ask=can_ask))
    name = name or addition.usual_name(values)
    missing = _missing(addition, values)
    is_guided = bool(missing) or not name
    if is_guided:
        if not can_ask:
            raise click.UsageError(f"Missing option '{missing}'." if missing else "Missing argument 'NAME'.")
        name = name or addition.context.console.prompt(NAME_WANTED)
        values = addition.ask(name, values)
    added = addition.add(name, values)
    if asked.as_json:
        record = {"state": "added" if added.is_new else "unchanged", "name": name, "file": str(asked.home.config_file)}
        asked.print_json({**record, "entry": added.entry, "in_force": added.is_in_force, **added.outcome.more})
        return
    _say_added(asked, added)
    if is_guided and added.next_step == "login":
        _offer_sign_in(asked, name)
    elif can_ask and added.next_step == "test" and is_reachable(asked.home):
        note_to_person(f"Testing it for {TEST_SECONDS:g} seconds.")
        show_trial(asked.screen, _trial(desk, name, TEST_SECONDS))


def _missing(addition: SourceAddition, values: SetupValues) -> str:
    try:
        return addition.missing(values)
    except PluginFault:
        raise
    except UserError as exc:
        raise click.UsageError(f"{exc.message} {exc.hint}") from exc


def _say_added(asked: Invocation, added: AddedSource) -> None:
    from harken.hosts.registry import short

    file = short(asked.home.config_file)
    asked.screen.line(f"Added to {file}:" if added.is_new else f"It is in {file} already:")
    asked.screen.text(added.shown)
    for hint in added.missing:
        note_to_person(hint)
    prefix = shlex.join(["harken", *asked.home_option])
    said = "Try it" if added.next_step == "test" else "Sign in"
    note_to_person(f"{said}: {prefix} source {added.next_step} {added.name}")
    if added.is_in_force:
        note_to_person("Harken is listening to it.")
    for line in added.outcome.lines:
        asked.screen.line(line)
    for note in added.outcome.notes:
        note_to_person(note.replace(str(asked.home.path), short(asked.home.path)))


def _offer_sign_in(asked: Invocation, name: str) -> None:
    ways = click.Choice(["browser", "code", "later"])
    how = click.prompt("Sign in now (browser, code, later)", type=ways, default="browser", show_choices=False)
    if how != "later":
        sign_in(asked, name, is_device=how == "code")


def sign_in(asked: Invocation, name: str, *, is_device: bool) -> None:
    """Sign a person in, in the browser or by a code, and name the account."""
    import anyio

    from harken.cli.authority import refuse_agent
    from harken.config.home import ensure
    from harken.model import timestamp
    from harken.plugins import guard_awaited

    refuse_agent(asked, "sign in to sources")
    ensure(asked.home)
    signing = _desk(asked).sign_in_of(name)

    async def run() -> Result:
        done = await guard_awaited(f"The source {name}", signing.sign_in(note_to_person, is_device=is_device))
        return {
            "name": name,
            "state": "signed in",
            "as": done.title,
            "user_id": done.user_id,
            "since": timestamp(done.since),
            "granted": list(done.granted),
            "not_granted": list(done.not_granted),
        }

    record = anyio.run(run)
    if asked.gave_json(record):
        return
    asked.screen.line(f"{one_line(name)}: signed in as {one_line(record['as'])}.")
    if record["not_granted"]:
        note_to_person(f"Not granted: {', '.join(record['not_granted'])}. Features that need it will say so.")
    note_to_person(AS_YOU)


def _trial(desk: SourceDesk, name: str, seconds: float) -> Result:
    """Try a source, and return how that went as a program is told."""
    report: CheckReport = desk.check(name, seconds)
    return report.as_json(name, desk.entry(name).kind)


for _verb in (list_sources, add, login, logout, test, remove):
    source.add_command(_verb)
lists(source)
