"""The connector of a host of another package: whatever its code raises names the host, and stops no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    InstalledProgram,
    InstallTarget,
)
from harken.plugins import guard


@dataclass(frozen=True, slots=True)
class GuardedConnector:
    """Asks the host's own connector; raises `PluginFault` for what that raises and is no `HarkenError`."""

    name: str
    make: Callable[[], Connector]

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose."""
        return guard(self._subject, lambda: self.make().wakes)

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program; None when there is none."""
        return guard(self._subject, lambda: self.make().find(place))

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        return guard(self._subject, lambda: self.make().plan(place, options))

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take out our entries by hand."""
        return guard(self._subject, lambda: self.make().removal(place))

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look, after writing, whether the host sees what was written."""
        return guard(self._subject, lambda: self.make().check(place))

    @property
    def _subject(self) -> str:
        return f"The host {self.name}"
