"""Setting up a source, for `source add`: the options and questions of a kind, and what is written for them.

The command line knows no kind: it shows the options, asks the questions through a `SetupConsole`, and writes the entry
that a kind makes of the answers. Nothing here reads or writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from harken.errors import HarkenError
from harken.sources.settings import SourceOption
from harken.sources.source import SignInResult, SourceEntry

SetupValues: TypeAlias = Mapping[str, object]
"""What the options say, by their keys; what was not given is not there."""

SECRETS_FOLDER: Final = "secrets"  # in Harken's folder, for secrets that are made or brought


class SetupConsole(Protocol):
    """The person at the other end."""

    @property
    def can_ask(self) -> bool:
        """Whether there is a person who can be asked."""
        ...

    def tell(self, text: str) -> None:
        """Tell the person something."""
        ...

    def prompt(self, text: str, default: str | None = None, *, is_hidden: bool = False) -> str:
        """Ask for a text; an empty default means that it may be left empty."""
        ...

    def confirm(self, text: str) -> bool:
        """Ask for a yes or no; yes unless the person says otherwise."""
        ...

    def read_line(self) -> str:
        """Return a line of the standard input."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupContext:
    """What setting up may use: the person, this home, and the daemon's addresses."""

    console: SetupConsole
    folder: Path
    env_file: Path
    entry: Callable[[str, Mapping[str, object]], SourceEntry]  # as the daemon would make the source with
    is_known: Callable[[str], bool]  # whether a source of that name is there
    is_secret: Callable[[str], bool]  # whether a text holds what looks like a secret
    keep_secret: Callable[[str, str], Path]  # under a name in the folder of secrets
    post_address: Callable[[str], str]  # where others post to a path
    public_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOutcome:
    """What a person is told after an entry was written: lines of the result, notes, and what a program gets besides."""

    lines: Sequence[str] = ()
    notes: Sequence[str] = ()
    more: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSource:
    """What was written for a source, and what is left to do. `missing` are secrets that are not where it says."""

    name: str
    entry: Mapping[str, object]
    shown: str  # the entry as it is written
    is_new: bool
    is_in_force: bool
    next_step: str
    outcome: SetupOutcome
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSource:
    """What was taken out, with all that puts it back."""

    name: str
    entry: Mapping[str, object]
    is_in_force: bool
    secrets: Mapping[Path, bytes] = field(default_factory=dict[Path, bytes], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInProgress:
    """How far a sign-in is: what you were told to open or enter, and what came of it."""

    said: Sequence[str] = ()
    is_over: bool = False
    result: SignInResult | None = None
    error: HarkenError | None = None


class SourceSetup:
    """How a kind of source is set up."""

    kind: str  # as `kind` in the configuration
    default_name: str = ""  # of a source that the person gives none; empty: one has to be given
    needed: tuple[str, ...] = ()  # keys that cannot be done without
    options: tuple[SourceOption, ...] = ()
    takes_arguments: bool = False  # what follows `--` is part of the source
    help_text: str = ""  # what `source add KIND --help` says

    def usual_name(self, values: SetupValues) -> str:
        """Return the name of a source that the person gives none; empty: one has to be given."""
        del values
        return self.default_name

    def missing(self, values: SetupValues) -> str:
        """Return the option that cannot be done without and was not given; empty: all is there."""
        return next((f"--{key.replace('_', '-')}" for key in self.needed if not values.get(key)), "")

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask the person for what is missing, a question each."""
        del name, context
        return values

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written, without the empty; raises `UserError` for what cannot be, or is a secret."""
        del name, context
        return written(self.kind, {key: value for key, value in values.items() if key.islower()})

    def next_step(self, values: SetupValues) -> str:
        """Return the verb of `source` that comes next: test or login."""
        del values
        return "test"

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Return what is told after the entry was written."""
        del name, values, entry, context
        return SetupOutcome()

    def made_secret(self, name: str, entry: Mapping[str, object]) -> bool:
        """Whether the secret in the folder of secrets was made for this entry, and goes with it."""
        del name, entry
        return False


def written(kind: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return an entry of these values, without the empty; a number that is 0 was given, and is judged as any other."""
    entry = {"kind": kind, **values}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in entry.items()
        if value or (isinstance(value, int | float) and value is not False)
    }


def text_of(values: SetupValues, key: str) -> str:
    """Return a text among the values; empty where there is none."""
    return str(values.get(key) or "")


def texts_of(values: SetupValues, key: str) -> tuple[str, ...]:
    """Return a list among the values; empty where there is none."""
    found = values.get(key)
    return tuple(str(each) for each in found) if isinstance(found, list | tuple) else ()
