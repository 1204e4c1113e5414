"""The tables in which users name the entries: attention, routes, attention rules, projects, sources.

Each reader takes what the file holds and returns the finished values; each mistake is added to `problems`, so that all
mistakes of a file are reported at once. Sources are kept as they are written, for the package that knows their kinds;
only their names, their `kind` and plain secrets are looked at here, and `source_entry` is what a source is made with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from harken.clock import Clock
from harken.config.home import Home, expand_user
from harken.config.secrets import resolve
from harken.config.settings import Project
from harken.config.values import (
    ValueType,
    choice,
    closest,
    dotted,
    flag,
    has_password,
    is_source_name,
    reference_in,
    unfit,
    unknown,
    wrong,
)
from harken.errors import UserError
from harken.hosts.registry import host_names
from harken.ingest.policy import ApprovalRule, ApprovalRuling, AttentionRule, Route
from harken.model import LOCAL, Attention, Mailbox
from harken.sources.source import SourceEntry

_ATTENTION = choice(*Attention)
_RULING = choice(*ApprovalRuling)
_TEXT = ValueType(kind=str, expected="a text")
_MAILBOX = re.compile(r"inbox|(?:task|project):[A-Za-z0-9][A-Za-z0-9._-]*")
_SECRET_KEY = re.compile(
    r".*(?:passw(?:or)?d|passphrase|secret|token|credential|authorization|cookie|(?:api|private|signing)[_-]?key)s?",
    re.IGNORECASE | re.DOTALL,
)
_NAME_WANTED = "a name of letters, digits, dots, hyphens and underscores"
_REFERENCE_WANTED = 'a reference to the secret: "env:NAME", "file:PATH" or "keyring:SERVICE/NAME"'


@dataclass(frozen=True, slots=True)
class TableReader:
    """One reading of a file: its name, the environment for `~`, and the problems found so far."""

    where: str
    environ: Mapping[str, str]
    problems: list[str]

    def wrong(self, name: str, value: object, wanted: str, *, more: str = "", hide: bool = False) -> None:
        """Note a value that does not fit."""
        self.problems.append(wrong(self.where, name, value, wanted, more=more, hide=hide))

    def fits(self, name: str, value: object, value_type: ValueType) -> bool:
        """Whether a value fits its type; one that does not is noted."""
        try:
            value_type.read(value)
        except ValueError as exc:
            self.problems.append(unfit(self.where, name, value, value_type, exc))
            return False
        return True

    def unknown(self, name: str, known: Mapping[str, object] | tuple[str, ...]) -> None:
        """Note a key that does not exist."""
        self.problems.append(unknown(self.where, name, known))


def read_tables(tree: Mapping[str, object], reading: TableReader) -> dict[str, Any]:
    """Return the tables that the file has, by their name in the settings."""
    readers = {
        "attention": _read_attention,
        "routes": _read_routes,
        "attention_rules": _read_attention_rules,
        "approvals": _read_approvals,
        "projects": _read_projects,
        "sources": _read_sources,
    }
    return {name: read(tree[name], reading) for name, read in readers.items() if name in tree}


def references(tree: object) -> Iterator[str]:
    """Yield every reference to a secret in a file."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from references(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from references(value)
    elif isinstance(tree, str) and (reference := reference_in(tree)):
        yield reference


def _read_attention(value: object, reading: TableReader) -> dict[str, Attention]:
    found: dict[str, Attention] = {}
    for source, word in _named(value, "attention", 'a table such as teams = "wake"', reading):
        if reading.fits(dotted("attention", source), word, _ATTENTION):
            found[source] = Attention(str(word))
    return found


def _read_routes(value: object, reading: TableReader) -> tuple[Route, ...]:
    routes = []
    for name, entry in _entries(value, "routes", reading):
        row = _row(entry, name, fields(Route), reading)
        if row is None:
            continue
        if not _MAILBOX.fullmatch(row["mailbox"]):
            reading.wrong(f"{name}.mailbox", row["mailbox"], '"inbox", "project:NAME" or "task:ID"')
            continue
        routes.append(Route(**{**row, "mailbox": Mailbox(row["mailbox"])}))
    return tuple(routes)


def _read_attention_rules(value: object, reading: TableReader) -> tuple[AttentionRule, ...]:
    rules = []
    for name, entry in _entries(value, "attention_rules", reading):
        row = _row(entry, name, fields(AttentionRule), reading)
        if row is None:
            continue
        if reading.fits(f"{name}.attention", row["attention"], _ATTENTION):
            rules.append(AttentionRule(**{**row, "attention": Attention(row["attention"])}))
    return tuple(rules)


def _read_approvals(value: object, reading: TableReader) -> tuple[ApprovalRule, ...]:
    rules = []
    for name, entry in _entries(value, "approvals", reading):
        row = _row(entry, name, fields(ApprovalRule), reading)
        if row is None or not reading.fits(f"{name}.answer", row["answer"], _RULING):
            continue
        rule = ApprovalRule(**{**row, "answer": ApprovalRuling(row["answer"])})
        if rule.host and rule.host not in host_names():
            reading.wrong(f"{name}.host", rule.host, f"one of {', '.join(host_names())}")
        elif rule.answer is ApprovalRuling.REFUSE and not (rule.tool or rule.argument):
            reading.problems.append(
                f'{reading.where}: {name} refuses everything; name a tool (a pattern, "*" for any).'
            )
        elif rule.reason and rule.answer is not ApprovalRuling.REFUSE:
            reading.wrong(f"{name}.reason", rule.reason, "nothing: only a refusal has a reason")
        else:
            rules.append(rule)
    return tuple(rules)


def _read_projects(value: object, reading: TableReader) -> dict[str, Project]:
    projects: dict[str, Project] = {}
    for project, entry in _named(value, "projects", "tables such as [projects.shop]", reading):
        name = dotted("projects", project)
        if not isinstance(entry, dict):
            reading.wrong(name, entry, 'a table with dirs = ["..."]')
            continue
        for key in entry.keys() - {"dirs"}:
            reading.unknown(f"{name}.{dotted(key)}", (f"{name}.dirs",))
        projects[project] = Project(dirs=_read_dirs(entry.get("dirs"), f"{name}.dirs", reading))
    return projects


def _read_dirs(value: object, name: str, reading: TableReader) -> tuple[Path, ...]:
    wanted = 'a list of absolute folders, such as ["~/code/shop"]'
    if not isinstance(value, list) or not value:
        if value is None:
            reading.problems.append(f"{reading.where}: {name} is missing; expected {wanted}.")
        else:
            reading.wrong(name, value, wanted)
        return ()
    dirs = []
    for item in value:
        try:
            path = expand_user(item, reading.environ) if isinstance(item, str) else Path()
        except UserError as exc:
            reading.wrong(name, item, wanted, more=exc.message)
            continue
        if not path.is_absolute():
            reading.wrong(name, item, wanted)
            continue
        dirs.append(path)
    return tuple(dirs)


def _read_sources(value: object, reading: TableReader) -> dict[str, Mapping[str, object]]:
    sources: dict[str, Mapping[str, object]] = {}
    for source, entry in _named(value, "sources", "tables such as [sources.mail]", reading):
        name = dotted("sources", source)
        if not isinstance(entry, dict):
            reading.wrong(name, entry, 'a table with at least kind = "..."', hide=True)
            continue
        if source.strip().lower() == LOCAL:
            reading.problems.append(f"{reading.where}: {name} is the machine itself; choose another name for a source.")
        kind = entry.get("kind")
        if kind is None:
            guess = closest("kind", entry)
            more = f" Did you mean kind where it says {dotted(guess)}?" if guess else ""
            reading.problems.append(f'{reading.where}: {name}.kind is missing; expected a text such as "imap".{more}')
        elif not isinstance(kind, str) or not kind.strip():
            reading.wrong(f"{name}.kind", kind, 'a text such as "imap"')
        for place, secret in _plain_secrets(entry, name):
            reading.wrong(place, secret, _REFERENCE_WANTED, hide=True)
        sources[source] = entry
    return sources


def _plain_secrets(value: object, name: str, *, is_named_secret: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every text that stands where only a reference to a secret may stand."""
    if isinstance(value, dict):
        for key, item in value.items():
            is_secret = _SECRET_KEY.fullmatch(key) is not None
            yield from _plain_secrets(item, f"{name}.{dotted(key)}", is_named_secret=is_secret)
    elif isinstance(value, list):
        for item in value:
            yield from _plain_secrets(item, name, is_named_secret=is_named_secret)
    elif isinstance(value, str) and value and not reference_in(value) and (is_named_secret or has_password(value)):
        yield name, value


def _named(value: object, name: str, wanted: str, reading: TableReader) -> Iterator[tuple[str, object]]:
    """Yield the entries of a table with names of sources or projects as keys."""
    if not isinstance(value, dict):
        reading.wrong(name, value, wanted, hide=True)
        return
    for key, item in value.items():
        if is_source_name(key):
            yield key, item
        else:
            reading.problems.append(f"{reading.where}: {dotted(name, key)} is not possible; expected {_NAME_WANTED}.")


def _entries(value: object, name: str, reading: TableReader) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the entries of an array of tables, counted from 1 as people do."""
    if not isinstance(value, list):
        reading.wrong(name, value, f"tables that begin with [[{name}]]")
        return
    for number, entry in enumerate(value, start=1):
        if isinstance(entry, dict):
            yield f"{name}[{number}]", entry
        else:
            reading.wrong(f"{name}[{number}]", entry, f"a table that begins with [[{name}]]")


def _row(
    entry: dict[str, object], name: str, columns: tuple[Field[Any], ...], reading: TableReader
) -> dict[str, Any] | None:
    """Return the fields of one entry if all of them fit, else note what does not and return None."""
    before = len(reading.problems)
    known = {column.name: column for column in columns}
    for key, value in entry.items():
        if key not in known:
            reading.unknown(f"{name}.{dotted(key)}", tuple(f"{name}.{column}" for column in known))
        else:
            reading.fits(f"{name}.{key}", value, flag() if isinstance(known[key].default, bool) else _TEXT)
    for column in columns:
        if column.default is MISSING and column.name not in entry:
            reading.problems.append(f"{reading.where}: {name}.{column.name} is missing.")
    return dict(entry) if len(reading.problems) == before else None


def source_entry(
    name: str,
    table: Mapping[str, object],
    *,
    home: Home,
    clock: Clock,
    environ: Mapping[str, str],
    public_url: str = "",
    event_url: str = "",
) -> SourceEntry:
    """Return the entry of a source; nothing is looked up yet."""
    return SourceEntry(
        name=name,
        table=table,
        clock=clock,
        folder=home.path,
        secret=partial(resolve, home=home, environ=environ),
        locate=lambda path: home.path / expand_user(path, environ),
        public_url=public_url,
        event_url=event_url,
    )
