"""Sources in config.toml: adding and taking out an entry, with every comment and everything else left as it is.

A secret is never written: only where it is kept. What would be written is checked as the daemon checks it, before
anything changes; an entry that is there already is left alone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from harken.cli.authority import refuse_agent
from harken.cli.names import short
from harken.cli.output import note_to_person
from harken.cli.start import is_reachable, start
from harken.cli.verbs import Invocation
from harken.config.home import Home, ensure, write_private
from harken.config.load import load
from harken.config.secrets import resolve
from harken.config.tables import TableReader, read_tables, references
from harken.config.values import is_source_name, reference_in
from harken.control.stop import stop
from harken.display import visible
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.hosts.connect.edits import toml_remove, toml_set, toml_value
from harken.hosts.connect.files import read
from harken.ingest.redact import redact
from harken.model import LOCAL
from harken.sources.bot.settings import KIND as BOT
from harken.sources.imap.settings import IMAP
from harken.sources.imap.settings import read_settings as read_mail_settings
from harken.sources.mcp.settings import read_settings
from harken.sources.microsoft.settings import KINDS as GRAPH_KINDS
from harken.sources.microsoft.settings import read_settings as read_graph_settings

KIND: Final = "mcp"
WEBHOOK: Final = "webhook"
MIN_SECRET_CHARS: Final = 16
_FORMS: Final = "Keep it elsewhere and name it: env:NAME (in {file}), file:PATH or keyring:SERVICE/NAME."
_SECRET_NAME: Final = re.compile(r"(?i).*(auth|cookie|token|secret|passw|credential|api-?key|access-?key|session).*")
_SECRET_VALUE: Final = re.compile(r"(?i)(bearer|basic|token)\s+\S+")
_WORD: Final = re.compile(r"[A-Za-z0-9_+/=.~-]+")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for. Empty: not asked for."""

    name: str
    args: tuple[str, ...] = ()
    url: str = ""
    transport: str | None = None
    headers: tuple[str, ...] = ()
    command: str = ""
    variables: tuple[str, ...] = ()
    cwd: str = ""
    channels: tuple[str, ...] = ()
    trust: str | None = None
    attention: str | None = None


def configured(home: Home) -> Mapping[str, Mapping[str, object]]:
    """Return the sources of config.toml by their names; none when there is no such file or it cannot be read."""
    try:
        found = toml_value(read(home.config_file), ["sources"], file=home.config_file)
    except HarkenError:
        return {}
    return found if isinstance(found, dict) else {}


def asked_for(wanted: Wanted) -> Wanted:
    """Ask the person for what is missing, a question each."""
    name = click.prompt("A name for it, such as ci").strip()
    place = wanted.url or wanted.command
    if not place:
        place = click.prompt("Its address (https://...), or the command that starts it").strip()
    is_address = place.startswith(("http://", "https://"))
    headers, channels = wanted.headers, wanted.channels
    if is_address and not headers:
        secret = click.prompt("Its secret, as env:NAME or file:PATH (empty: none)", default="", show_default=False)
        headers = (f"Authorization={secret.strip()}",) if secret.strip() else ()
    if not channels:
        kept = click.prompt("Channels to keep, with commas (empty: all)", default="", show_default=False)
        channels = tuple(filter(None, (each.strip() for each in kept.split(","))))
    return msgspec.structs.replace(
        wanted,
        name=name,
        url=place if is_address else "",
        command="" if is_address else place,
        headers=headers,
        channels=channels,
    )


def wants_restart(home: Home) -> bool:
    """Ask the person whether a daemon that runs may be restarted."""
    return is_reachable(home) and click.confirm("Restart the daemon, so that it listens now?", default=True)


def add_source(asked: Invocation, wanted: Wanted, *, is_restarted: bool) -> None:
    """Write the entry of an MCP server."""
    add_entry(asked, wanted.name, lambda: entry_of(wanted, asked.home), is_restarted=is_restarted)


def add_entry(
    asked: Invocation,
    name: str,
    make: Callable[[], dict[str, object]],
    *,
    is_restarted: bool,
    after: str = "test",
    more: Mapping[str, object] | None = None,
) -> None:
    """Write an entry, unless it is there already, and say what was written and what is left to do.

    `after` is the verb of `source` that comes next, `more` is what a program is told besides.
    """
    refuse_agent(asked, "add sources")
    home, file = asked.home, asked.home.config_file
    ensure(home)
    load(home, {}, os.environ)  # a file with mistakes is not added to
    entry = make()
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
        _check(written, name, entry, home)
        write_private(file, written.decode())
    was_restarted = is_restarted and _restarted(home)
    state = "added" if is_new else "unchanged"
    if asked.as_json:
        asked.print_json({"state": state, "name": name, "file": str(file), "entry": entry, **(more or {})})
        return
    said = f"Added to {short(file)}:" if is_new else f"It is in {short(file)} already:"
    asked.screen.line(said)
    asked.screen.text(_shown(name, entry))
    for hint in _missing_secrets(entry, home):
        note_to_person(hint)
    _say_next(asked, name, after, was_restarted=was_restarted)


def remove_source(asked: Invocation, name: str, *, is_restarted: bool) -> None:
    """Take an entry out, and show what it was."""
    refuse_agent(asked, "remove sources")
    file = asked.home.config_file
    entry = entry_named(asked.home, name)
    after = toml_remove(read(file), ["sources", name], file=file)
    write_private(file, (after or b"").decode())
    was_restarted = is_restarted and _restarted(asked.home)
    if asked.as_json:
        asked.print_json({"state": "removed", "name": name, "file": str(file), "entry": entry})
        return
    asked.screen.line(f"Taken out of {short(file)}:")
    asked.screen.text(_shown(name, entry))
    if not was_restarted and is_reachable(asked.home):
        note_to_person("The daemon goes on with it until it is restarted: harken down")


def entry_named(home: Home, name: str) -> Mapping[str, object]:
    """Return the entry of a source, with its references as they are written."""
    found = toml_value(read(home.config_file), ["sources"], file=home.config_file)
    known = found if isinstance(found, dict) else {}
    entry = known.get(name)
    if not isinstance(entry, dict):
        names = f"There are: {', '.join(known)}." if known else "Add one: harken source add NAME --url URL"
        raise NotFound(f"There is no source {name[:80]!r}.", names)
    return entry


def entry_of(wanted: Wanted, home: Home) -> dict[str, object]:
    """Return what is written for what a person asked for; raises `UserError` for what cannot be, or is a secret."""
    check_name(wanted.name)
    if bool(wanted.url) == bool(wanted.command):
        raise UserError(
            "A source is an address or a program, one of them.",
            f"harken source add {wanted.name} --url https://..., or --command PROGRAM",
        )
    command, *args = _command(wanted) if wanted.command else ("",)
    forms = _FORMS.format(file=home.env_file)
    entry: dict[str, object] = {
        "kind": KIND,
        "transport": wanted.transport,
        "url": wanted.url,
        "headers": _pairs(wanted.headers, "--header", forms),
        "command": command,
        "args": args,
        "env": _pairs(wanted.variables, "--env", forms),
        "cwd": str(Path(wanted.cwd).expanduser().resolve()) if wanted.cwd else "",
        "channels": list(wanted.channels),
        "trust": wanted.trust,
        "attention": wanted.attention,
    }
    for place in (wanted.url, *args):
        if redact(place).count:
            raise UserError("There is a secret in the address or in an argument of the program.", forms)
    return {key: value for key, value in entry.items() if value}


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a source."""
    if not is_source_name(name) or name == LOCAL:
        raise UserError(
            f"{name[:60]!r} cannot be the name of a source.",
            "Use letters, digits, dots, hyphens and underscores; local is this machine.",
        )


def _command(wanted: Wanted) -> list[str]:
    """Return the program and its arguments; a whole command line in one word is taken apart."""
    if wanted.args or " " not in wanted.command or Path(wanted.command).exists():
        return [wanted.command, *wanted.args]
    try:
        return shlex.split(wanted.command)
    except ValueError as exc:
        raise UserError("The command has a quote that does not end.", "Put its arguments after --.") from exc


def _pairs(words: tuple[str, ...], option: str, forms: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            # Not repeated: it may be a secret.
            raise UserError(f"What {option} was given is not NAME=VALUE.", f"Such as: {option} X-Team=shop")
        if not reference_in(value.strip()) and _looks_secret(name, value.strip()):
            raise UserError(f"The value of {name.strip()[:60]} looks like a secret.", forms)
        pairs[name.strip()] = value.strip()
    return pairs


def _looks_secret(name: str, value: str) -> bool:
    """Whether a value must not stand in a file of settings: better a reference too many than a secret too few."""
    if _SECRET_NAME.fullmatch(name) or _SECRET_VALUE.match(value) or redact(f"{name}: {value}").count:
        return True
    kinds = (str.isdigit, str.isupper, str.islower)
    is_mixed = sum(any(kind(char) for char in value) for kind in kinds) > 1
    return len(value) >= MIN_SECRET_CHARS and is_mixed and _WORD.fullmatch(value) is not None


def _check(after: bytes, name: str, entry: Mapping[str, object], home: Home) -> None:
    """Refuse what the daemon would refuse. Secrets need not be there yet."""
    problems: list[str] = []
    tree = {"sources": toml_value(after, ["sources"], file=home.config_file)}
    read_tables(tree, TableReader(str(home.config_file), os.environ, problems))
    if problems:
        raise UserError("\n".join(problems), "Nothing was changed.")
    if entry["kind"] in (WEBHOOK, BOT):
        return  # its settings, which bring JMESPath, are read where it is added
    if entry["kind"] in GRAPH_KINDS:
        read_graph_settings(name, entry)
    elif entry["kind"] == IMAP:
        read_mail_settings(name, entry)
    else:
        read_settings(name, entry)


def _missing_secrets(entry: Mapping[str, object], home: Home) -> Iterator[str]:
    for reference in references(dict(entry)):
        try:
            resolve(reference, home, {})
        except HarkenError as exc:
            yield f"{exc.message} {exc.hint}"


def _shown(name: str, entry: Mapping[str, object]) -> str:
    return visible(toml_set(None, ["sources", name], dict(entry), file=Path("config.toml")).decode().strip())


def _say_next(asked: Invocation, name: str, after: str, *, was_restarted: bool) -> None:
    prefix = shlex.join(["harken", *asked.home_option])
    note_to_person(f"{'Try it' if after == 'test' else 'Sign in'}: {prefix} source {after} {name}")
    if not was_restarted and is_reachable(asked.home):
        note_to_person(f"The daemon listens to it when it is restarted: {prefix} down && {prefix} up")


def _restarted(home: Home) -> bool:
    """Restart a daemon that runs, or start one."""
    stop(home)
    start(home)
    return True
