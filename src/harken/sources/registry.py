"""The kinds of sources there are: one for each folder here that has a `kind.py`, and those of other packages.

A package adds kinds by entry points of the group `harken.sources`, each of which names a `SourceKind`. They are equal
to those that come with Harken. One that cannot be loaded, or takes a name that another has, is a fault that people are
told of; all others are there. Only `kind.py` is imported: what talks to a service is imported when a source is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.sources.source import SourceKind

GROUP: Final = "harken.sources"
MODULE: Final = "kind"
ATTRIBUTE: Final = "KIND"


@dataclass(frozen=True, slots=True)
class KindFault:
    """A package that promises a kind and does not have it."""

    name: str
    reason: str

    @property
    def sentence(self) -> str:
        """What people are told."""
        return f"The kind of source {self.name} cannot be loaded: {self.reason}"


@dataclass(frozen=True, slots=True)
class SourceKinds:
    """The kinds by their names, and what could not be loaded."""

    by_name: Mapping[str, SourceKind]
    faults: tuple[KindFault, ...] = field(default=())

    def __iter__(self) -> Iterator[SourceKind]:
        return iter(self.by_name.values())

    def named(self, name: str, source: str) -> SourceKind:
        """Return a kind; raises `UserError` when there is none of that name, with the fault if that is why."""
        kind = self.by_name.get(name)
        if kind is not None:
            return kind
        for fault in self.faults:
            if fault.name == name:
                raise UserError(fault.sentence, f"Repair or remove that package, or take out [sources.{source}].")
        raise UserError(
            f"This version of Harken has no sources of kind {name!r}.",
            f"Take [sources.{source}] out of config.toml, or use kind = {', '.join(self.by_name)}.",
        )

    @property
    def default(self) -> SourceKind:
        """The kind that is meant where none is named."""
        return next(kind for kind in self if kind.is_default)


@cache
def kinds() -> SourceKinds:
    """Return the kinds of this installation."""
    return gathered(_own(), entry_points(group=GROUP))


def gathered(own: Iterable[SourceKind], others: Iterable[EntryPoint]) -> SourceKinds:
    """Return our own kinds and those of other packages; our own keep their names."""
    found = {kind.name: kind for kind in own}
    faults: list[KindFault] = []
    for point in sorted(others, key=lambda each: each.name):
        kind = _loaded(point)
        if isinstance(kind, KindFault):
            faults.append(kind)
        elif kind.name in found:
            faults.append(KindFault(point.name, f"there is a kind {kind.name} already."))
        else:
            found[kind.name] = kind
    return SourceKinds(found, tuple(faults))


def _own() -> Iterator[SourceKind]:
    here = Path(__file__).parent
    for folder in sorted(path.parent.name for path in here.glob(f"*/{MODULE}.py")):
        kind: SourceKind = getattr(importlib.import_module(f"{__package__}.{folder}.{MODULE}"), ATTRIBUTE)
        yield kind


def _loaded(point: EntryPoint) -> SourceKind | KindFault:
    try:
        found = point.load()
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError, NameError, OSError) as exc:
        # It is another package's code: what it raises is told, and keeps nobody else's source away.
        return KindFault(point.name, f"{type(exc).__name__}: {exc}"[:200])
    if not isinstance(found, SourceKind):
        return KindFault(point.name, f"{point.value} is not a SourceKind.")
    return found
