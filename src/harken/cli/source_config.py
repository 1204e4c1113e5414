"""Sources in config.toml: adding and taking out an entry, with every comment and everything else left as it is.

A secret is never written: only where it is kept. What would be written is checked as the daemon checks it, before
anything changes; an entry that is there already is left alone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from harken.cli.authority import refuse_agent
from harken.cli.output import note_to_person
from harken.cli.verbs import Invocation
from harken.config.home import Home, write_private
from harken.config.load import load
from harken.config.secrets import resolve
from harken.config.tables import TableReader, read_tables, references
from harken.config.values import is_source_name
from harken.control.client import DaemonClient
from harken.control.start import is_reachable, start
from harken.control.stop import stop
from harken.display import visible
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.hosts.connect.edits import toml_remove, toml_set, toml_value
from harken.hosts.connect.files import read
from harken.hosts.registry import short
from harken.model import LOCAL
from harken.sources.source import SourceKind


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
        names = f"There are: {', '.join(known)}." if known else "Add one: harken source add NAME --url URL"
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
    kind.read_settings()(name, entry)


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
        start(home)
        return True
    if not is_reachable(home):
        return False
    with DaemonClient(home, can_start=False) as daemon:
        daemon.ask("reload")
    return True
