"""The sources of config.toml: added, tried, signed in to and removed, for the command line and for the page.

A secret is never written into config.toml: only where it is kept. What would be written is checked as the daemon checks
it, before anything changes, and everything else in the file stays as it is. Secrets are looked for where a daemon in
the background looks for them, so that what works here works there. What a kind asks for, and how it is tried, is the
kind's own. Nothing is shown or asked here: that is the caller's, who also says how a daemon takes the file over.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio

from harken.clock import Signal, SystemClock
from harken.config.home import Home, disk_error, ensure, write_private
from harken.config.load import load
from harken.config.secrets import resolve
from harken.config.settings import HooksSettings
from harken.config.tables import TableReader, read_tables, references, source_entry
from harken.config.values import is_source_name, reference_in
from harken.control.start import VARIABLES
from harken.display import visible
from harken.errors import Conflict, HarkenError, NotFound, Unavailable, UserError
from harken.hosts.connect.edits import toml_remove, toml_set, toml_value
from harken.hosts.connect.files import read
from harken.hosts.connect.record import locked
from harken.ingest.redact import redact
from harken.model import LOCAL
from harken.plugins import PluginFault, guard, guard_awaited
from harken.sources.check import CheckContext, CheckReport, RunningSources
from harken.sources.registry import kinds
from harken.sources.setup import (
    SECRETS_FOLDER,
    AddedSource,
    RemovedSource,
    SetupConsole,
    SetupContext,
    SetupValues,
    SignInProgress,
    SourceSetup,
)
from harken.sources.source import SourceEntry, SourceKind, SourceSignIn

NO_NAME: Final = "Give it a name of letters, digits, dots, hyphens and underscores."
MAX_SIGN_INS: Final = 8  # at once
LOOK_EVERY_SECONDS: Final = 3600.0  # a sign-in rings when it begins


class SilentConsole:
    """Nobody at a terminal: whoever sets a source up has said all there is."""

    can_ask = False

    def tell(self, text: str) -> None:
        """Tell nobody."""

    def prompt(self, text: str, default: str | None = None, *, is_hidden: bool = False) -> str:
        """Refuse to ask."""
        del text, default, is_hidden
        raise UserError("Something is missing, and there is no terminal to ask in.", "Fill in what the kind needs.")

    def confirm(self, text: str) -> bool:
        """Take nothing for agreed."""
        del text
        return False

    def read_line(self) -> str:
        """Return nothing."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDesk:
    """Adds, tries and removes sources of one home; `put_in_force` says whether a daemon took the file over."""

    home: Home
    put_in_force: Callable[[], bool]
    running: Callable[[], RunningSources]

    def begin(self, kind: SourceKind, console: SetupConsole) -> SourceAddition:
        """Begin to add a source of a kind."""
        ensure(self.home)
        kept: list[Path] = []
        context = _context(self.home, console, kept)
        return SourceAddition(desk=self, kind=kind, setup=_setup_of(kind), context=context, kept=kept)

    def setup_of(self, kind: str) -> SourceSetup:
        """Return the options of a kind; raises `NotFound` when there is none."""
        found = kinds().by_name.get(kind)
        if found is None:
            raise NotFound(f"There is no kind of source {kind[:60]!r}.", f"There are: {', '.join(kinds().by_name)}.")
        return _setup_of(found)

    def add(self, kind: str, name: str, values: SetupValues, secrets: Mapping[str, str]) -> AddedSource:
        """Add a source that was filled in as a form; `secrets` are what was typed for its keys, or where that is kept.

        A secret is written into a file of its own that only you can read, and goes with the source.
        """
        self.setup_of(kind)
        addition = self.begin(kinds().by_name[kind], SilentConsole())
        name = name or addition.usual_name(values)
        check_name(name)
        if name in configured(self.home):
            raise _taken(name, self.home)
        return addition.add(name, values, secrets)

    def alone(self) -> AbstractContextManager[None]:
        """Return what lets one program at a time change the sources: each writes the whole file anew."""
        return locked(self.home.path, "sources", what="changing the sources")

    def remove(self, name: str) -> RemovedSource:
        """Take a source out of config.toml, with the secrets that were made for it."""
        entry_named(self.home, name)
        with self.alone():
            return self._remove(name)

    def _remove(self, name: str) -> RemovedSource:
        file = self.home.config_file
        before = read(file)
        entry = entry_named(self.home, name)
        after = toml_remove(before, ["sources", name], file=file) or b""
        write_private(file, after.decode())
        try:
            is_in_force = self.put_in_force()
        except UserError:
            now = read(file)
            back = before if now == after else toml_set(now, ["sources", name], dict(entry), file=file)
            write_private(file, (back or b"").decode())
            raise
        secrets = {path: path.read_bytes() for path in self._made_secrets(name, entry) if path.is_file()}
        for path in secrets:
            path.unlink(missing_ok=True)
        return RemovedSource(name=name, entry=entry, secrets=secrets, is_in_force=is_in_force)

    def put_back(self, removed: RemovedSource) -> bool:
        """Write what was removed again, with its secrets; return whether it is in force."""
        with self.alone():
            return self._put_back(removed)

    def _put_back(self, removed: RemovedSource) -> bool:
        if removed.name in configured(self.home):
            raise _taken(removed.name, self.home)
        kind = kinds().named(str(removed.entry.get("kind")), removed.name)
        for path, secret in removed.secrets.items():
            write_private(path, secret.decode("utf-8", "surrogateescape"))
        try:
            return self.write(kind, removed.name, dict(removed.entry))[1]
        except HarkenError:
            for path in removed.secrets:
                path.unlink(missing_ok=True)
            raise

    def check(self, name: str, seconds: float) -> CheckReport:
        """Try a source of config.toml; one that is turned off can be tried before it is turned on."""
        entry = self.entry(name)
        kind = kinds().named(entry.kind, name)
        context = CheckContext(
            seconds=seconds, running=self.running, post_address=lambda path: post_address(self.home, path)
        )
        return guard(f"The source {name}", lambda: kind.check()(entry, context))

    def entry(self, name: str) -> SourceEntry:
        """Return a source of config.toml as the daemon would make it with."""
        return _entry(self.home, name, entry_named(self.home, name))

    def shown(self, name: str) -> str:
        """Return what config.toml says of a source; it names secrets and holds none."""
        return shown_entry(name, entry_named(self.home, name))

    def can_sign_in(self, name: str) -> bool:
        """Whether people sign in to a source."""
        kind = kinds().by_name.get(str(entry_named(self.home, name).get("kind")))
        return kind is not None and kind.sign_in is not None

    def sign_in_of(self, name: str) -> SourceSignIn:
        """Return the sign-in of a source of config.toml; raises `UserError` if its kind has no sign-in."""
        entry = self.entry(name)
        kind = kinds().named(entry.kind, name)
        if kind.sign_in is None:
            with_one = [each.name for each in kinds() if each.sign_in is not None]
            raise UserError(
                f"{name} has no sign-in: it is not of kind {' or '.join(with_one)}.",
                "Its secrets are named in config.toml.",
            )
        make = kind.sign_in
        return guard(f"The source {name}", lambda: make()(entry))

    def write(self, kind: SourceKind, name: str, entry: dict[str, object]) -> tuple[bool, bool]:
        """Write an entry, unless it is there already; return whether it is new, and whether it is in force."""
        file = self.home.config_file
        load(self.home, {}, os.environ)  # a file with mistakes is not added to
        before = read(file)
        there = toml_value(before, ["sources", name], file=file)
        if there is not None and there != entry:
            raise _taken(name, self.home)
        if there is not None:
            return False, self.put_in_force()
        after = toml_set(before, ["sources", name], entry, file=file)
        _check(after, kind, name, entry, self.home)
        write_private(file, after.decode())
        try:
            return True, self.put_in_force()
        except UserError:
            # All or nothing: what the daemon does not take does not stay in the file either; what others wrote does.
            now = read(file)
            back = before if now == after else toml_remove(now, ["sources", name], file=file)
            write_private(file, (back or b"").decode())
            raise

    def _made_secrets(self, name: str, entry: Mapping[str, object]) -> Iterator[Path]:
        """Yield the files that were made for this source: the kind's own, and what was typed into a form."""
        folder = self.home.path / SECRETS_FOLDER
        kind = kinds().by_name.get(str(entry.get("kind")))
        if kind is not None and _is_made(kind, name, entry):
            yield folder / name
        own = f"file:{SECRETS_FOLDER}/{name}."
        for reference in references(dict(entry)):
            if reference.startswith(own) and "/" not in reference.removeprefix(own):
                yield folder / reference.removeprefix(f"file:{SECRETS_FOLDER}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAddition:
    """One source that is being added: what its kind asks for, and what was kept for it so far."""

    desk: SourceDesk
    kind: SourceKind
    setup: SourceSetup
    context: SetupContext
    kept: list[Path]

    @property
    def _subject(self) -> str:
        return f"The kind of source {self.kind.name}"

    def usual_name(self, values: SetupValues) -> str:
        """Return the name of a source that you give none."""
        return guard(self._subject, self.setup.usual_name, values)

    def missing(self, values: SetupValues) -> str:
        """Return the option that cannot be done without and was not given."""
        return guard(self._subject, self.setup.missing, values)

    def ask(self, name: str, values: SetupValues) -> SetupValues:
        """Ask for what is missing."""
        return self.setup.ask(name, values, self.context)

    def add(self, name: str, values: SetupValues, secrets: Mapping[str, str] | None = None) -> AddedSource:
        """Write the entry and have it taken over; where that fails, nothing is kept."""
        check_name(name)
        with self.desk.alone():
            return self._add(name, values, secrets or {})

    def _add(self, name: str, values: SetupValues, secrets: Mapping[str, str]) -> AddedSource:
        try:
            values = {**values, **self._references(name, secrets)}
            if missing := self.missing(values):
                raise UserError(f"{missing.strip('-').replace('-', ' ').capitalize()} is missing.", "Fill it in.")
            next_step = guard(self._subject, self.setup.next_step, values)
            entry = guard(self._subject, self.setup.entry, name, values, self.context)
            outcome = guard(self._subject, self.setup.outcome, name, values, entry, self.context)
            is_new, is_in_force = self.desk.write(self.kind, name, entry)
        except HarkenError:
            for file in self.kept:
                file.unlink(missing_ok=True)
            raise
        return AddedSource(
            name=name,
            entry=entry,
            shown=shown_entry(name, entry),
            is_new=is_new,
            is_in_force=is_in_force,
            next_step=next_step,
            outcome=outcome,
            missing=list(_missing_secrets(entry, self.desk.home)),
        )

    def _references(self, name: str, secrets: Mapping[str, str]) -> dict[str, object]:
        """Keep what was typed, and return where each is kept, as the options take it."""
        found: dict[str, object] = {}
        for option in self.setup.options:
            if secret := secrets.get(option.key, "").strip():
                is_there = reference_in(secret) == secret
                file = f"{name}.{option.key.lower()}"
                kept = secret if is_there else f"file:{SECRETS_FOLDER}/{file}"
                if not is_there:
                    self.context.keep_secret(file, secret)
                found[option.key] = (kept,) if option.is_many else kept
        return found


def _context(home: Home, console: SetupConsole, kept: list[Path]) -> SetupContext:
    def keep_secret(name: str, secret: str) -> Path:
        file = home.path / SECRETS_FOLDER / name
        reference = f"file:{SECRETS_FOLDER}/{name}"
        owner = next((each for each, table in configured(home).items() if reference in references(dict(table))), "")
        if owner and file.exists():
            raise Conflict(f"The secret of {owner} is kept in {file}.", "Give this source another name.")
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise disk_error("create", file.parent, exc) from exc
        write_private(file, f"{secret}\n")
        kept.append(file)
        return file

    return SetupContext(
        console=console,
        folder=home.path,
        env_file=home.env_file,
        entry=lambda name, table: _entry(home, name, table),
        is_known=lambda name: name in configured(home),
        is_secret=lambda text: bool(redact(text).count),
        keep_secret=keep_secret,
        post_address=lambda path: post_address(home, path),
        public_url=_public_url(home),
    )


def _setup_of(kind: SourceKind) -> SourceSetup:
    def make() -> SourceSetup:
        setup = kind.setup()
        return setup()

    return guard(f"The kind of source {kind.name}", make)


def _is_made(kind: SourceKind, name: str, entry: Mapping[str, object]) -> bool:
    try:
        return guard(f"The kind of source {kind.name}", _setup_of(kind).made_secret, name, entry)
    except PluginFault:
        return False  # the entry is taken out; whose the secret is cannot be said, so it stays


def post_address(home: Home, path: str) -> str:
    """Return where a path is posted to: at the address for others if there is one, else on this machine."""
    settings = load(home, {}, {}).settings.hooks
    if settings.public_url:
        return f"{settings.public_url}{path}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port or _port(home, settings)}{path}"


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


def _entry(home: Home, name: str, table: Mapping[str, object]) -> SourceEntry:
    environ = {variable: os.environ[variable] for variable in VARIABLES if variable in os.environ}
    return source_entry(name, table, home=home, clock=SystemClock(), environ=environ, public_url=_public_url(home))


def _public_url(home: Home) -> str:
    return load(home, {}, os.environ).settings.hooks.public_url


def configured(home: Home) -> Mapping[str, Mapping[str, object]]:
    """Return the sources of config.toml by their names; none when there is no such file or it cannot be read."""
    try:
        found = toml_value(read(home.config_file), ["sources"], file=home.config_file)
    except HarkenError:
        return {}
    return found if isinstance(found, dict) else {}


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


def shown_entry(name: str, entry: Mapping[str, object]) -> str:
    """Return an entry as it is written."""
    return visible(toml_set(None, ["sources", name], dict(entry), file=Path("config.toml")).decode().strip())


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a source."""
    if not name:
        raise UserError("A source needs a name.", NO_NAME)
    if not is_source_name(name) or name == LOCAL:
        raise UserError(
            f"{name[:60]!r} cannot be the name of a source.",
            "Use letters, digits, dots, hyphens and underscores; local is this machine.",
        )


def _taken(name: str, home: Home) -> Conflict:
    return Conflict(
        f"There is already another source {name}.",
        f"Change it in {home.config_file}, or remove it first: harken source remove {name}",
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


@dataclass(slots=True)
class _SignInState:
    """A sign-in that goes on, or has ended."""

    said: list[str] = field(default_factory=list)
    progress: SignInProgress = field(default_factory=SignInProgress)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class SourceSignIns:
    """Signs people in to sources while their page looks on: a sign-in takes minutes, and a request seconds."""

    def __init__(self, sign_in_of: Callable[[str], SourceSignIn]) -> None:
        self._sign_in_of = sign_in_of
        self._states: dict[str, _SignInState] = {}
        self._begun: list[tuple[str, _SignInState]] = []
        self._look = Signal()

    async def run(self) -> None:
        """Sign people in, for ever."""
        async with anyio.create_task_group() as tasks:
            while True:
                begun, self._begun = self._begun, []
                for name, state in begun:
                    tasks.start_soon(self._follow, name, state)
                await self._look.wait(LOOK_EVERY_SECONDS)

    def begin(self, name: str) -> None:
        """Begin to sign a person in by a code; one that goes on already goes on."""
        known = self._states.get(name)
        if known is not None and not known.progress.is_over:
            return
        if sum(not state.progress.is_over for state in self._states.values()) >= MAX_SIGN_INS:
            raise Unavailable("Too many sign-ins are in progress.", "Finish one of them.")
        self._states[name] = state = _SignInState()
        self._begun.append((name, state))
        self._look.ring()

    def progress(self, name: str) -> SignInProgress | None:
        """Return how far a sign-in is; None: none was begun."""
        state = self._states.get(name)
        return None if state is None else replace(state.progress, said=tuple(state.said))

    def give_up(self, name: str) -> None:
        """End a sign-in that goes on."""
        state = self._states.pop(name, None)
        if state is not None:
            state.scope.cancel()

    async def sign_out(self, name: str) -> bool:
        """Remove the sign-in from this machine; return whether there was one."""
        self._states.pop(name, None)
        return await guard_awaited(f"The source {name}", self._sign_in_of(name).sign_out())

    async def _follow(self, name: str, state: _SignInState) -> None:
        with state.scope:
            try:
                signing = self._sign_in_of(name).sign_in(state.said.append, is_device=True)
                done = await guard_awaited(f"The source {name}", signing)
                state.progress = SignInProgress(is_over=True, result=done)
            except HarkenError as exc:
                state.progress = SignInProgress(is_over=True, error=exc)
