"""Taking back where one file says what is ours in another: as Codex's hooks say which entries of its settings are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harken.hosts.connect.apply import apply, undo
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
)
from tests.hosts_connect.madeup import place_in


@dataclass(frozen=True, slots=True)
class Paired:
    """A host whose settings trust what its list of hooks names."""

    name: str = "paired"
    wakes: Mapping[str, str] = field(default_factory=dict)

    def find(self, _place: InstallTarget) -> InstalledProgram | None:
        """It is not installed."""
        return None

    def plan(self, place: InstallTarget, _wishes: ConnectOptions) -> ConnectPlan:
        """Name a hook in the one, and trust it in the other."""
        hooks, trust = (read(path) for path in self.files(place))
        return self._plan(place, (hooks or b"") + b"ours\n", (trust or b"") + b"trusts ours\n")

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Take trust out for what the list names as ours, then that."""
        hooks, trust = (read(path) for path in self.files(place))
        if not hooks or b"ours\n" not in hooks:
            return ConnectPlan(host=self.name, steps=())
        less = (trust or b"").replace(b"trusts ours\n", b"")
        return self._plan(place, hooks.replace(b"ours\n", b"") or None, less or None)

    def check(self, _place: InstallTarget) -> Sequence[CheckFinding]:
        """Nothing to ask."""
        return ()

    def files(self, place: InstallTarget) -> tuple[Path, Path]:
        """The list and the settings."""
        return place.user / "hooks", place.user / "settings"

    def _plan(self, place: InstallTarget, hooks: bytes | None, trust: bytes | None) -> ConnectPlan:
        pairs = zip(self.files(place), (hooks, trust), strict=True)
        steps = [FileEdit(path=path, before=read(path), after=after, why="x") for path, after in pairs]
        return ConnectPlan(host=self.name, steps=steps)


def test_an_entry_goes_although_the_file_that_names_it_has_gone_first(tmp_path: Path) -> None:
    """Settings that others wrote in meanwhile keep their own lines, and none of ours."""
    place, host = place_in(tmp_path), Paired()
    hooks, settings = host.files(place)
    apply(host.plan(place, ConnectOptions()), place, ConnectOptions())
    settings.write_bytes(b"theirs\n" + settings.read_bytes())
    undone = undo(host, place)
    assert (read(hooks), read(settings)) == (None, b"theirs\n")
    assert (undone.restored, undone.cleaned) == ((hooks,), (settings,))


def test_what_was_ours_before_connecting_stays(tmp_path: Path) -> None:
    """A file that is as it was is not cleaned on top of that."""
    place, host = place_in(tmp_path), Paired()
    hooks, settings = host.files(place)
    hooks.parent.mkdir(parents=True)
    hooks.write_bytes(b"ours\n")
    apply(ConnectPlan(host=host.name, steps=host.plan(place, ConnectOptions()).steps[1:]), place, ConnectOptions())
    undo(host, place)
    assert (read(hooks), read(settings)) == (b"ours\n", None)
