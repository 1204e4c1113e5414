"""What packages offer Harken by entry points, such as hosts and sources, the parts of it, and which of it is broken.

A package that cannot be used is named with the reason, and stops nothing else. Read from the installed packages'
own files: `importlib.metadata` would add 30 ms to every command that asks who has started it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, Generic, ParamSpec, TypeVar, cast

from harken.errors import HarkenError, UserError

_INFO: Final = ".dist-info"
_MAX_REASON: Final = 300

Offered = TypeVar("Offered")
Part = TypeVar("Part")
Returned = TypeVar("Returned")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class LazyPart(Generic[Part]):
    """A part of a declaration that is imported when it is called for: `package.module:NAME`."""

    path: str

    def __call__(self) -> Part:
        """Return the part."""
        module, _, name = self.path.partition(":")
        found: Part = getattr(import_module(module), name)
        return found


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One entry point: a name, where its object is, and which package says so."""

    name: str
    target: str  # package.module:NAME
    package: str  # with its version, as in its folder's name


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """An entry point that cannot be used, and why."""

    entry: PluginEntry
    reason: str

    def __str__(self) -> str:
        return f"{self.entry.name} of {self.entry.package} ({self.entry.target}): {self.reason}"


def plugin_entries(group: str, path: Sequence[str] | None = None) -> Sequence[PluginEntry]:
    """Return the entry points of a group; of a package that is installed twice, those of the first."""
    found: dict[str, list[PluginEntry]] = {}
    for folder in sys.path if path is None else path:
        for file in sorted(Path(folder).glob(f"*{_INFO}/entry_points.txt")):
            package = file.parent.name.removesuffix(_INFO)
            name = package.partition("-")[0].lower()
            if name not in found:
                found[name] = list(_entries(file, package, group))
    return [entry for entries in found.values() for entry in entries]


def load_plugin(entry: PluginEntry, kind: type[Offered]) -> Offered | BrokenPlugin:
    """Return what an entry point names, if it is of a kind; else why it cannot be used."""
    module, _, name = entry.target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (Exception, SystemExit) as exc:  # other people's code: whatever it raises, the others go on
        return BrokenPlugin(entry, _reason(exc))
    if not isinstance(found, kind):
        return BrokenPlugin(entry, f"it is no {kind.__name__}")
    return found


class PluginFault(UserError):
    """The code of a source or a host has failed at something that has nothing to do with what a person wrote."""


def guard(
    subject: str, call: Callable[Arguments, Returned], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Returned:
    """Call code that may be another package's; raises `PluginFault` for what it raises that is no `HarkenError`."""
    try:
        return call(*args, **kwargs)
    except HarkenError:
        raise
    except (Exception, SystemExit) as exc:
        raise _fault(subject, exc) from exc


def guarded(subject: str, make: Callable[[], Part], **known: object) -> Part:
    """Return what stands for a part of another package; asked for what is not known, it may raise as `guard` does."""
    return cast(Part, _GuardedPart(subject, make, known))


@dataclass(frozen=True, slots=True)
class _GuardedPart:
    """Makes the part for each question: importing it is other people's code too."""

    subject: str
    make: Callable[[], object]
    known: Mapping[str, object]

    def __getattr__(self, name: str) -> object:
        if name in self.known:
            return self.known[name]
        found = guard(self.subject, lambda: getattr(self.make(), name))
        return partial(guard, self.subject, found) if callable(found) else found


async def guard_awaited(subject: str, work: Awaitable[Returned]) -> Returned:
    """Await what may be another package's work; raises as `guard` does."""
    try:
        return await work
    except HarkenError:
        raise
    except (Exception, SystemExit) as exc:
        raise _fault(subject, exc) from exc


def _fault(subject: str, exc: BaseException) -> PluginFault:
    hint = "Where another package brought it, repair or remove that; else please report it."
    return PluginFault(f"{subject} has failed: {_reason(exc)}.", hint)


def _reason(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]  # a group of tasks says of itself only that one of them has failed
    return f"{type(exc).__name__}: {exc}"[:_MAX_REASON]


def _entries(file: Path, package: str, group: str) -> Iterator[PluginEntry]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # nothing can be imported from there either
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and not line.startswith(("#", ";")):
            name, _, target = (part.strip() for part in line.partition("="))
            yield PluginEntry(name, target.partition("[")[0].strip(), package)
