"""Which files runs do not change, with those that belong to the hosts: no run writes what another host obeys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from harken.hosts.registry import hosts
from harken.runs.held import HeldPaths
from harken.runs.tools import Tool


@cache
def held_paths() -> HeldPaths:
    """Return the parts of paths that runs do not change, of every host."""
    settings = [path for host in hosts().values() for path in host.settings_paths]
    return HeldPaths().beside(settings, [path for host in hosts().values() for path in host.instruction_paths])


def held_parts(tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of paths that a run with some tools does not change, in any folder."""
    return held_paths().parts(tools)
