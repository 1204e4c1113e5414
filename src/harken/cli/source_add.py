"""Adding, trying and removing sources, and signing in to them: the person's side of what each kind declares.

A secret is never written: only where it is kept. What would be written is checked as the daemon checks it, before
anything changes, and everything else in config.toml stays as it is. Secrets are looked for where a daemon in the
background looks for them, so that what works here works there.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import click

from harken.cli.authority import refuse_agent
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.progress import start_notice
from harken.cli.source_show import show_trial
from harken.clock import SystemClock
from harken.config.home import Home, disk_error, ensure, write_private
from harken.config.load import load
from harken.config.secrets import resolve
from harken.config.settings import HooksSettings
from harken.config.tables import TableReader, read_tables, references, source_entry
from harken.config.values import is_source_name
from harken.control.client import DaemonClient, Result
from harken.control.start import VARIABLES, is_reachable, start
from harken.control.stop import stop
from harken.display import one_line, visible
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.hosts.connect.edits import toml_remove, toml_set, toml_value
from harken.hosts.connect.files import read
from harken.hosts.registry import short
from harken.ingest.redact import redact
from harken.model import LOCAL, timestamp
from harken.plugins import PluginFault, guard, guard_awaited
from harken.sources.check import CheckContext, CheckReport, RunningSources
from harken.sources.registry import kinds
from harken.sources.setup import SECRETS_FOLDER, SetupContext, SetupValues, SourceSetup
from harken.sources.source import SourceEntry, SourceKind, SourceSignIn, SourceState

AS_YOU = "What an agent answers there is sent in this name, with a line that says so."
TEST_SECONDS = 5.0
NAME_WANTED = "A name for it, such as ci"


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


def add_source(
    asked: Invocation, kind: SourceKind, setup: SourceSetup, name: str, values: SetupValues, *, is_restarted: bool
) -> None:
    """Ask for what is missing, write the entry, have it taken over, and say what is left to do."""
    # Before anything is looked at: an agent must not have a secret tried or kept anywhere.
    refuse_agent(asked, "add sources")
    ensure(asked.home)
    can_ask = sys.stdin.isatty() and not asked.as_json
    context, kept = _context(asked.home, can_ask=can_ask)
    subject = f"The kind of source {kind.name}"
    name = name or guard(subject, setup.usual_name, values)
    missing = _missing(subject, setup, values)
    is_guided = bool(missing) or not name
    if is_guided:
        if not can_ask:
            raise click.UsageError(f"Missing option '{missing}'." if missing else "Missing argument 'NAME'.")
        name = name or context.console.prompt(NAME_WANTED)
        values = setup.ask(name, values, context)
    check_name(name)
    next_step = guard(subject, setup.next_step, values)
    try:
        entry = guard(subject, setup.entry, name, values, context)
        outcome = guard(subject, setup.outcome, name, values, entry, context) if asked.as_json else None
        more = outcome.more if outcome is not None else {}
        add_entry(asked, kind, name, entry, is_restarted=is_restarted, next_step=next_step, more=more)
    except HarkenError:
        for file in kept:
            file.unlink(missing_ok=True)
        raise
    if not asked.as_json:
        outcome = guard(subject, setup.outcome, name, values, entry, context)
        for line in outcome.lines:
            asked.screen.line(line)
        for note in outcome.notes:
            note_to_person(note.replace(str(asked.home.path), short(asked.home.path)))
    if is_guided and next_step == "login":
        _offer_sign_in(asked, name)
    elif can_ask and next_step == "test" and is_reachable(asked.home):
        note_to_person(f"It is tried for {TEST_SECONDS:g} seconds.")
        show_trial(asked.screen, check_source(asked.home, name, TEST_SECONDS))


def remove_source(asked: Invocation, name: str, *, is_restarted: bool) -> None:
    """Take a source out, with the secret that was made for it."""
    entry = configured(asked.home).get(name)
    kind = kinds().by_name.get(str(entry.get("kind"))) if isinstance(entry, dict) else None
    remove_entry(asked, name, is_restarted=is_restarted)
    if kind is not None and entry is not None and _made_secret(kind, name, entry):
        (asked.home.path / SECRETS_FOLDER / name).unlink(missing_ok=True)


def _made_secret(kind: SourceKind, name: str, entry: Mapping[str, object]) -> bool:
    try:
        return guard(f"The kind of source {kind.name}", lambda: kind.setup()().made_secret(name, entry))
    except PluginFault:
        return False  # the entry is taken out; whose the secret is cannot be said, so it stays


def check_source(home: Home, name: str, seconds: float) -> Result:
    """Try a source of config.toml; one that is turned off can be tried before it is turned on."""
    entry = _entry(home, name, entry_named(home, name))
    kind = kinds().named(entry.kind, name)
    return guard(f"The source {name}", lambda: _shown_report(entry, kind.check()(entry, _checking(home, seconds))))


def _shown_report(entry: SourceEntry, report: CheckReport) -> Result:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "address": report.address,
        "state": report.state.value,
        "reason": report.reason,
        "server": report.server,
        **({} if report.found is None else {"found": report.found}),
        **({} if report.shell_line is None else {"curl": report.shell_line}),
        "messages": sum(report.counts.values()),
        "counts": dict(report.counts),
        "dropped": dict(report.dropped),
        "too_long": report.too_long,
        "last_message_at": None if report.last_message_at is None else timestamp(report.last_message_at),
    }


def sign_in(asked: Invocation, name: str, *, is_device: bool) -> None:
    """Sign a person in, in the browser or by a code, and name the account."""
    refuse_agent(asked, "sign in to sources")
    ensure(asked.home)
    signing = sign_in_of(asked.home, name)

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
        note_to_person(f"Not granted: {', '.join(record['not_granted'])}. What needs it will say so.")
    note_to_person(AS_YOU)


def sign_in_of(home: Home, name: str) -> SourceSignIn:
    """Return the sign-in of a source of config.toml; raises `UserError` if its kind has no sign-in."""
    entry = _entry(home, name, entry_named(home, name))
    kind = kinds().named(entry.kind, name)
    if kind.sign_in is None:
        with_one = [each.name for each in kinds() if each.sign_in is not None]
        raise UserError(
            f"Nobody signs in to {name}: it is not of kind {' or '.join(with_one)}.",
            "Its secrets are named in config.toml.",
        )
    make = kind.sign_in
    return guard(f"The source {name}", lambda: make()(entry))


def post_address(home: Home, path: str) -> str:
    """Return where a path is posted to: at the address for others if there is one, else on this machine."""
    settings = load(home, {}, {}).settings.hooks
    if settings.public_url:
        return f"{settings.public_url}{path}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port or _port(home, settings)}{path}"


def _missing(subject: str, setup: SourceSetup, values: SetupValues) -> str:
    try:
        return guard(subject, setup.missing, values)
    except PluginFault:
        raise
    except UserError as exc:
        raise click.UsageError(f"{exc.message} {exc.hint}") from exc


def _offer_sign_in(asked: Invocation, name: str) -> None:
    ways = click.Choice(["browser", "code", "later"])
    how = click.prompt("Sign in now (browser, code, later)", type=ways, default="browser", show_choices=False)
    if how != "later":
        sign_in(asked, name, is_device=how == "code")


def _context(home: Home, *, can_ask: bool) -> tuple[SetupContext, list[Path]]:
    """Return what a kind may use to set a source up, and the list of files it kept."""
    kept: list[Path] = []

    def keep_secret(name: str, secret: str) -> Path:
        file = home.path / SECRETS_FOLDER / name
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise disk_error("create", file.parent, exc) from exc
        write_private(file, f"{secret}\n")
        kept.append(file)
        return file

    context = SetupContext(
        console=Console(can_ask=can_ask),
        folder=home.path,
        env_file=home.env_file,
        entry=lambda name, table: _entry(home, name, table),
        is_known=lambda name: name in configured(home),
        is_secret=lambda text: bool(redact(text).count),
        keep_secret=keep_secret,
        post_address=lambda path: post_address(home, path),
        public_url=_public_url(home),
    )
    return context, kept


def _checking(home: Home, seconds: float) -> CheckContext:
    def running() -> RunningSources:
        with DaemonClient(home, notice=start_notice) as daemon:
            base = str(daemon.ask("status")["daemon"].get("hooks_url", ""))
            found = daemon.ask("source_list")["sources"]
        states = {each["name"]: (SourceState(each["state"]), str(each["reason"])) for each in found}
        return RunningSources(hooks_url=base, states=states)

    return CheckContext(seconds=seconds, running=running, post_address=lambda path: post_address(home, path))


def _entry(home: Home, name: str, table: Mapping[str, object]) -> SourceEntry:
    environ = {variable: os.environ[variable] for variable in VARIABLES if variable in os.environ}
    return source_entry(name, table, home=home, clock=SystemClock(), environ=environ, public_url=_public_url(home))


def _public_url(home: Home) -> str:
    return load(home, {}, os.environ).settings.hooks.public_url


def _port(home: Home, settings: HooksSettings) -> int:
    """Return the port that the daemon will take: the one it had, or a free one that is kept for it."""
    try:
        return int(home.doors_port_file.read_text())
    except (OSError, ValueError):
        pass
    try:
        with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as sock:
            sock.bind((settings.host, 0))
            port = int(sock.getsockname()[1])
    except OSError as exc:
        raise UserError(
            f"Cannot listen on {settings.host} ({exc.strerror}).", "Set hooks.host in config.toml."
        ) from exc
    write_private(home.doors_port_file, f"{port}\n")
    return port


def configured(home: Home) -> Mapping[str, Mapping[str, object]]:
    """Return the sources of config.toml by their names; none when there is no such file or it cannot be read."""
    try:
        found = toml_value(read(home.config_file), ["sources"], file=home.config_file)
    except HarkenError:
        return {}
    return found if isinstance(found, dict) else {}


def add_entry(
    asked: Invocation,
    kind: SourceKind,
    name: str,
    entry: dict[str, object],
    *,
    is_restarted: bool,
    next_step: str = "test",
    more: Mapping[str, object] | None = None,
) -> None:
    """Write an entry, unless it is there already, and say what was written and what is left to do.

    `next_step` is the verb of `source` that comes next, `more` is what a program is told besides.
    """
    home, file = asked.home, asked.home.config_file
    load(home, {}, os.environ)  # a file with mistakes is not added to
    before = read(file)
    there = toml_value(before, ["sources", name], file=file)
    if there is not None and there != entry:
        raise Conflict(
            f"There is a source {name} already, and it is another one.",
            f"Change it in {file}, or take it out first: harken source remove {name}",
        )
    is_new = there is None
    if is_new:
        written = toml_set(before, ["sources", name], entry, file=file)
        _check(written, kind, name, entry, home)
        write_private(file, written.decode())
    try:
        is_in_force = _put_in_force(home, is_restarted=is_restarted)
    except UserError:
        # All or nothing: what the daemon does not take does not stay in the file either.
        write_private(file, (before or b"").decode())
        raise
    state = "added" if is_new else "unchanged"
    if asked.as_json:
        found = {"state": state, "name": name, "file": str(file), "entry": entry, "in_force": is_in_force}
        asked.print_json({**found, **(more or {})})
        return
    said = f"Added to {short(file)}:" if is_new else f"It is in {short(file)} already:"
    asked.screen.line(said)
    asked.screen.text(_shown(name, entry))
    for hint in _missing_secrets(entry, home):
        note_to_person(hint)
    _say_next(asked, name, next_step, is_in_force=is_in_force)


def remove_entry(asked: Invocation, name: str, *, is_restarted: bool) -> None:
    """Take an entry out, and show what it was."""
    refuse_agent(asked, "remove sources")
    file = asked.home.config_file
    entry = entry_named(asked.home, name)
    after = toml_remove(read(file), ["sources", name], file=file)
    write_private(file, (after or b"").decode())
    is_in_force = _put_in_force(asked.home, is_restarted=is_restarted)
    if asked.as_json:
        found = {"state": "removed", "name": name, "file": str(file), "entry": entry, "in_force": is_in_force}
        asked.print_json(found)
        return
    asked.screen.line(f"Taken out of {short(file)}:")
    asked.screen.text(_shown(name, entry))
    if is_in_force:
        note_to_person("It is listened to no longer.")


def entry_named(home: Home, name: str) -> Mapping[str, object]:
    """Return the entry of a source, with its references as they are written."""
    found = toml_value(read(home.config_file), ["sources"], file=home.config_file)
    known = found if isinstance(found, dict) else {}
    entry = known.get(name)
    if not isinstance(entry, dict):
        names = (
            f"There are: {', '.join(known)}." if known else "The kinds, and what each needs: harken source add --help"
        )
        raise NotFound(f"There is no source {name[:80]!r}.", names)
    return entry


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a source."""
    if not is_source_name(name) or name == LOCAL:
        raise UserError(
            f"{name[:60]!r} cannot be the name of a source.",
            "Use letters, digits, dots, hyphens and underscores; local is this machine.",
        )


def _check(after: bytes, kind: SourceKind, name: str, entry: Mapping[str, object], home: Home) -> None:
    """Refuse what the daemon would refuse. Secrets need not be there yet."""
    problems: list[str] = []
    tree = {"sources": toml_value(after, ["sources"], file=home.config_file)}
    read_tables(tree, TableReader(str(home.config_file), os.environ, problems))
    if problems:
        raise UserError("\n".join(problems), "Nothing was changed.")
    guard(f"The kind of source {kind.name}", lambda: kind.read_settings()(name, entry))


def _missing_secrets(entry: Mapping[str, object], home: Home) -> Iterator[str]:
    for reference in references(dict(entry)):
        try:
            resolve(reference, home, {})
        except HarkenError as exc:
            yield f"{exc.message} {exc.hint}"


def _shown(name: str, entry: Mapping[str, object]) -> str:
    return visible(toml_set(None, ["sources", name], dict(entry), file=Path("config.toml")).decode().strip())


def _say_next(asked: Invocation, name: str, after: str, *, is_in_force: bool) -> None:
    prefix = shlex.join(["harken", *asked.home_option])
    note_to_person(f"{'Try it' if after == 'test' else 'Sign in'}: {prefix} source {after} {name}")
    if is_in_force:
        note_to_person("The daemon listens to it from now on.")


def _put_in_force(home: Home, *, is_restarted: bool) -> bool:
    """Have a daemon that runs take the settings over, or restart it; return whether one did."""
    if is_restarted:
        stop(home)
        start(home, start_notice())
        return True
    if not is_reachable(home):
        return False
    with DaemonClient(home, can_start=False) as daemon:
        daemon.ask("reload")
    return True
