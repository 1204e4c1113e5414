"""Reads the settings: flag, then environment, then config.toml, then default.

Everything is optional. An empty environment variable counts as not set. All mistakes are collected and raised as one
`UserError`, a line each; environment variables that only look like settings become warnings, because other programs
may have set them. The file is read once, here; nothing is cached. What a setting is stands in `settings.py`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from harken.config.home import Home
from harken.config.secrets import resolve
from harken.config.settings import (
    SCALARS,
    SETTINGS,
    TABLES,
    DaemonSettings,
    HaltSettings,
    HooksSettings,
    HttpSettings,
    LimitSettings,
    LogSettings,
    NtfySettings,
    PushSettings,
    RunSettings,
    Setting,
    Settings,
    StoreSettings,
    ToastSettings,
    TrustSettings,
    WaitingSettings,
)
from harken.config.tables import TableReader, read_tables, references
from harken.config.values import closest, did_you_mean, dotted, is_reference, unfit, unknown
from harken.errors import HarkenError, UserError
from harken.sources.settings import is_loopback

if TYPE_CHECKING:  # importing it here is what this module puts off
    from harken.store.postgres.connection import PostgresTarget

SCHEMES: Final = ("postgresql://", "postgres://")

_NOT_SETTINGS = ("HARKEN_HOME", "HARKEN_CONSUMER", "HARKEN_TASK")
_SYNTAX_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HINT = "Correct what is named, or remove it: every setting is optional."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, where each one came from, and what looked odd on the way."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _SettingsLayer:
    """The settings that one place holds, and what that place is called for each of them."""

    values: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict[str, str])


def load(home: Home, flags: Mapping[str, object], environ: Mapping[str, str]) -> LoadedSettings:
    """Return the settings of a home; a flag is named like its setting, and None means that it was not given."""
    tree = _read_file(home)
    problems: list[str] = []
    layers = (
        _from_flags(flags, problems),
        _from_environment(environ, problems),
        _from_file(tree, TableReader(str(home.config_file), environ, problems)),
    )
    chosen: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        layer = next((layer for layer in layers if setting.name in layer.values), None)
        chosen[setting.name] = setting.default if layer is None else layer.values[setting.name]
        origins[setting.name] = "default" if layer is None else layer.origins[setting.name]
    problems.extend(_contradictions(chosen, origins))
    if problems:
        raise UserError("\n".join(problems), _HINT)
    return LoadedSettings(settings=_build(chosen), origins=origins, warnings=tuple(_strangers(environ, tree)))


def describe(loaded: LoadedSettings) -> list[dict[str, object]]:
    """Return every setting with its value as it would be written, its origin and its help."""
    rows: list[dict[str, object]] = []
    for setting in SETTINGS:
        group = getattr(loaded.settings, setting.group)
        value = _plain(group) if setting.type is None else setting.type.show(getattr(group, setting.leaf))
        rows.append(
            {"name": setting.name, "value": value, "origin": loaded.origins[setting.name], "help": setting.help}
        )
    return rows


def _read_file(home: Home) -> dict[str, Any]:
    path = home.config_file
    try:
        text = path.read_bytes().decode("utf-8-sig")  # some editors put a byte order mark in front
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise UserError(f"{path}: cannot be read: {exc.strerror}.", "Check what it is and who may read it.") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise UserError(f"{path}:{line}: the text is not UTF-8.", "Save the file as UTF-8.") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{path}: lists or tables are nested too deeply.", _HINT) from None
    except ValueError as exc:  # TOMLDecodeError, and plain ones for numbers without end
        # Not chained: the exception keeps the whole text of the file.
        raise UserError(
            _syntax_problem(str(path), str(exc), text), "See https://toml.io for how to write it."
        ) from None


def _syntax_problem(path: str, message: str, text: str) -> str:
    place = _SYNTAX_PLACE.search(message)
    if place is None:
        return f"{path}: {message}."
    before = text.rstrip("\n").split("\n")
    line, column = (place[1], place[2]) if place[1] else (str(len(before)), str(len(before[-1]) + 1))
    return f"{path}, line {line}, column {column}: {message[: place.start()]}."


def _from_flags(flags: Mapping[str, object], problems: list[str]) -> _SettingsLayer:
    known = {setting.name: setting for setting in SCALARS}
    layer = _SettingsLayer({})
    for name, value in flags.items():
        if value is None:
            continue
        setting = known.get(name)
        if setting is None:
            problems.append(unknown("flag", name, known))
            continue
        _take(layer, setting, value, ("flag", name), problems)
    return layer


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> _SettingsLayer:
    layer = _SettingsLayer({})
    for setting in SCALARS:
        text = environ.get(setting.variable, "")
        if text:
            _take(layer, setting, text, ("environment", setting.variable), problems)
    return layer


def _take(layer: _SettingsLayer, setting: Setting, value: object, place: tuple[str, str], problems: list[str]) -> None:
    where, name = place
    if setting.type is None:
        return
    try:
        read = setting.type.parse(value) if isinstance(value, str) else setting.type.read(value)
    except ValueError as exc:
        problems.append(unfit(where, name, value, setting.type, exc))
        return
    layer.values[setting.name] = read
    layer.origins[setting.name] = where if where == "flag" else f"{where} {name}"


def _from_file(tree: dict[str, Any], reading: TableReader) -> _SettingsLayer:
    groups: dict[str, dict[str, Setting]] = {}
    for setting in SCALARS:
        groups.setdefault(setting.group, {})[setting.leaf] = setting
    layer = _SettingsLayer(read_tables(tree, reading))
    known = [setting.name for setting in SETTINGS]
    for key, value in tree.items():
        if key in groups:
            _read_group(layer, key, value, groups[key], reading)
        elif all(key != table.name for table in TABLES):
            reading.problems.append(unknown(reading.where, dotted(key), [*known, *groups]))
    layer.origins.update(dict.fromkeys(layer.values, reading.where))
    return layer


def _read_group(
    layer: _SettingsLayer, group: str, value: object, known: dict[str, Setting], reading: TableReader
) -> None:
    if not isinstance(value, dict):
        reading.wrong(group, value, f"a table that begins with [{group}]", hide=True)
        return
    for key, item in value.items():
        setting = known.get(key)
        if setting is None or setting.type is None:
            reading.problems.append(unknown(reading.where, dotted(group, key), [one.name for one in SETTINGS]))
            continue
        try:
            layer.values[setting.name] = setting.type.read(item)
        except ValueError as exc:
            reading.problems.append(unfit(reading.where, setting.name, item, setting.type, exc))


def _contradictions(chosen: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    for group in ("http", "hooks"):
        host = chosen[f"{group}.host"]
        if not is_loopback(host) and not chosen[f"{group}.allow_remote"]:
            yield (
                f'{origins[f"{group}.host"]}: {group}.host is "{host}", which other machines can reach; '
                f'expected "127.0.0.1", "::1" or "localhost", or {group}.allow_remote = true.'
            )
    for sender in chosen["trust.owner"]:
        if sender.partition(":")[2].strip() == "*":
            yield f'{origins["trust.owner"]}: trust.owner holds "{sender}", which is everyone; expected senders by id.'
    for sender in chosen["trust.known"]:
        if sender in chosen["trust.owner"]:
            yield f'{origins["trust.known"]}: trust.known holds "{sender}", which trust.owner holds too.'


def _strangers(environ: Mapping[str, str], tree: dict[str, Any]) -> Iterator[str]:
    """Yield a warning for each variable that looks like ours but is not."""
    variables = [setting.variable for setting in SCALARS]
    referred = {reference.partition(":")[2] for reference in references(tree) if reference.startswith("env:")}
    fine = {*variables, *_NOT_SETTINGS, *referred}
    for name in sorted(environ):
        if name.startswith("HARKEN_") and name not in fine and name.isprintable():
            guess = did_you_mean(closest(name, [*variables, *_NOT_SETTINGS]))
            yield f"The environment variable {name} is not a setting and is ignored.{guess}"


def _build(chosen: Mapping[str, Any]) -> Settings:
    def group(name: str) -> dict[str, Any]:
        return {setting.leaf: chosen[setting.name] for setting in SCALARS if setting.group == name}

    return Settings(
        http=HttpSettings(**group("http")),
        hooks=HooksSettings(**group("hooks")),
        daemon=DaemonSettings(**group("daemon")),
        store=StoreSettings(**group("store")),
        limits=LimitSettings(**group("limits")),
        log=LogSettings(**group("log")),
        trust=TrustSettings(**group("trust")),
        runs=RunSettings(**group("runs")),
        toasts=ToastSettings(**group("toasts")),
        waiting=WaitingSettings(**group("waiting")),
        halts=HaltSettings(**group("halts")),
        ntfy=NtfySettings(**group("ntfy")),
        push=PushSettings(**group("push")),
        **{table.name: chosen[table.name] for table in TABLES},
    )


def _plain(value: object) -> object:
    """Return the value of a table as JSON and TOML would hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, bool | int | float):
        return value
    return str(value)


def target_of(home: Home, settings: StoreSettings, environ: Mapping[str, str]) -> PostgresTarget | None:
    """Return the PostgreSQL that settings name, None for the file of the home."""
    url = resolve(settings.url, home, environ) if is_reference(settings.url) else settings.url
    if url == StoreSettings().url:
        return None
    if not url.startswith(SCHEMES):
        raise UserError("What store.url refers to is not a URL of PostgreSQL.", "It begins with postgresql://")
    try:
        from harken.store.postgres.connection import PostgresTarget, refuse_unreadable
    except ImportError as exc:
        raise UserError(
            f"A store in PostgreSQL needs the package psycopg, which cannot be used ({exc}).",
            "Install the package psycopg[binary] where Harken is.",
        ) from exc
    password = resolve(settings.password, home, environ) if settings.password else ""
    target = PostgresTarget(url, settings.schema, password)
    refuse_unreadable(target)
    return target


def is_elsewhere(home: Home) -> bool:
    """Whether a home has its messages in PostgreSQL, as far as its settings can be read."""
    try:
        return load(home, {}, os.environ).settings.store.url != StoreSettings().url
    except HarkenError:
        return False
