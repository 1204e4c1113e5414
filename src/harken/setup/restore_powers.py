"""What the settings of a backup would let happen: programs that run, ports that open, places that are reached, trust.

A backup may come from anywhere. Its messages are data; its settings are not: a source can be a program. So they are
shown before they take effect, and without a yes they are parked beside the home's own files. Nothing here asks: that is
`backup.py`.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harken.config.settings import Settings
from harken.rules.fault import InvalidRules
from harken.rules.load import load
from harken.store.sqlite.rules import StoredDecisions, decided_in, forget_decisions

CONFIG: Final = "config.toml"
RULES: Final = "triggers.json"
PARKED: Final = "parked-{}"  # by the name of the file
DECISIONS: Final = "decisions.json"
UNREADABLE: Final = "cannot be read, so what it would do is not known"
_PLACES: Final = ("url", "host", "imap_host", "smtp_host", "base", "service_url")
_FILE: Final = 0o600

Power = tuple[str, str]
"""What would happen (`run`, `open`, `connect to`, `trust`, or `?`), and with what."""


def powers_in(folder: Path, database: str) -> list[Power]:
    """Return what the settings, the rules and the decisions of an unpacked backup would let happen."""
    decided = decided_in(folder / database)
    return [*_of_config(folder / CONFIG), *_of_decisions(decided), *_of_rules(folder / RULES, decided.rules)]


def park(folder: Path, database: str) -> list[str]:
    """Put the settings of an unpacked backup where nothing reads them; return the names of the files."""
    parked = []
    decided = forget_decisions(folder / database)
    if decided.senders or decided.rules:
        rules = json.loads(decided.rules) if decided.rules else None
        senders = [
            {"source": each.source, "sender": each.sender, "trust": each.trust.value} for each in decided.senders
        ]
        text = json.dumps({"senders": senders, "rules": rules}, ensure_ascii=False, indent=2)
        target = folder / PARKED.format(DECISIONS)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        parked.append(target.name)
    for name in (CONFIG, RULES):
        if (folder / name).exists():
            (folder / name).rename(folder / PARKED.format(name))
            parked.append(PARKED.format(name))
    return parked


def _of_config(path: Path) -> Iterator[Power]:
    try:
        tree = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return
    except (ValueError, RecursionError):
        yield ("?", f"{CONFIG} {UNREADABLE}")
        return
    for name, entry in _table(tree, "sources").items():
        yield from _of_source(name, entry if isinstance(entry, dict) else {})
    usual = Settings()
    yield from _of_listener("http", _table(tree, "http"), usual.http.host)
    yield from _of_listener("hooks", _table(tree, "hooks"), usual.hooks.host)
    if (url := _table(tree, "store").get("url", usual.store.url)) != usual.store.url:
        yield ("connect to", f"the store {url}")
    if phone := _table(tree, "waiting").get("phone"):
        yield ("connect to", f"your phone by {phone}")
    yield from _of_trust(_table(tree, "trust"), usual.trust.default.value)


def _of_listener(name: str, table: Mapping[str, Any], usual: str) -> Iterator[Power]:
    if table.get("allow_remote") or table.get("host", usual) != usual:
        yield ("open", f"{name} on {table.get('host', usual)}, for other machines")
    if url := table.get("public_url"):
        yield ("open", f"{name} to the public as {url}")


def _of_trust(table: Mapping[str, Any], usual: str) -> Iterator[Power]:
    for who in ("owner", "known"):
        yield from (("trust", f"{sender} as {who}") for sender in _list(table.get(who)))
    if table.get("default", usual) != usual:
        yield ("trust", f"everyone as {table['default']}")


def _of_source(name: str, entry: Mapping[str, Any]) -> Iterator[Power]:
    if command := entry.get("command"):
        words = " ".join(map(str, [command, *_list(entry.get("args"))]))
        yield ("run", f"{words} (source {name})")
        return
    kind = str(entry.get("kind", "mcp"))
    place = next((str(entry[key]) for key in _PLACES if entry.get(key)), "")
    yield ("connect to", f"{place or kind} (source {name}, {kind})")


def _of_decisions(decided: StoredDecisions) -> Iterator[Power]:
    for each in decided.senders:
        yield ("trust", f"{each.sender} as {each.trust.value}" + (f" on {each.source}" if each.source != "*" else ""))


def _of_rules(path: Path, in_force: str) -> Iterator[Power]:
    """Yield what the rules in force would run; a daemon that has none reads the file when it starts."""
    try:
        rules = load(in_force.encode() or path.read_bytes()).rules
    except FileNotFoundError:
        return
    except InvalidRules:
        yield ("?", f"{RULES} {UNREADABLE}")
        return
    for rule in rules:
        if rule.is_run:
            tools = ", ".join(rule.allowed)
            yield ("run", f"{rule.agent or 'an agent'} with {tools} (rule {rule.name}, {rule.mode.value})")


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
