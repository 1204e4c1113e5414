"""The kinds of sources there are: one for each folder here that has a `kind.py`, and those of other packages.

A package adds kinds by entry points of the group `harken.sources`, each of which names a `SourceKind`. They are equal
to those that come with Harken. One that cannot be loaded, or takes a name that another has, is a fault that people are
told of; all others are there. Only `kind.py` is imported: what talks to a service is imported when a source is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.plugins import BrokenPlugin, load_plugin, plugin_entries
from harken.sources.source import SourceKind

GROUP: Final = "harken.sources"
MODULE: Final = "kind"
ATTRIBUTE: Final = "KIND"


@dataclass(frozen=True, slots=True)
class SourceKinds:
    """The kinds by their names, and what could not be loaded."""

    by_name: Mapping[str, SourceKind]
    broken: tuple[BrokenPlugin, ...] = ()

    def __iter__(self) -> Iterator[SourceKind]:
        return iter(self.by_name.values())

    def named(self, name: str, source: str) -> SourceKind:
        """Return a kind; raises `UserError` when there is none of that name, with the fault if that is why."""
        kind = self.by_name.get(name)
        if kind is not None:
            return kind
        for broken in self.broken:
            if broken.entry.name == name:
                raise UserError(_fault(broken), f"Repair or remove that package, or take out [sources.{source}].")
        raise UserError(
            f"This version of Harken has no sources of kind {name!r}.",
            f"Use kind = {', '.join(self.by_name)}, or take [sources.{source}] out of config.toml. A package that was"
            " installed while the daemon was running needs a restart: harken down, harken up.",
        )

    @property
    def faults(self) -> list[str]:
        """What people are told of packages with a kind that cannot be used."""
        return [_fault(broken) for broken in self.broken]

    @property
    def default(self) -> SourceKind:
        """The kind that is meant where none is named."""
        return next(kind for kind in self if kind.is_default)


@cache
def kinds() -> SourceKinds:
    """Return the kinds of this installation; our own keep their names."""
    found = {kind.name: kind for kind in _own()}
    broken: list[BrokenPlugin] = []
    for entry in sorted(plugin_entries(GROUP), key=lambda each: each.name):
        kind = load_plugin(entry, SourceKind)
        if isinstance(kind, BrokenPlugin):
            broken.append(kind)
        elif kind.name in found:
            broken.append(BrokenPlugin(entry, f"there is a kind {kind.name} already."))
        else:
            found[kind.name] = kind
    return SourceKinds(found, tuple(broken))


def _own() -> Iterator[SourceKind]:
    here = Path(__file__).parent
    for folder in sorted(path.parent.name for path in here.glob(f"*/{MODULE}.py")):
        kind: SourceKind = getattr(import_module(f"{__package__}.{folder}.{MODULE}"), ATTRIBUTE)
        yield kind


def _fault(broken: BrokenPlugin) -> str:
    return f"The kind of source {broken.entry.name} cannot be loaded: {broken.reason}"
