"""Every target by its name, in the order of the way that a text takes: sources, ingest, surfaces, people."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.fuzz import ingest_targets, listening_targets, reading_targets, source_targets, surface_targets
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        target.name: target
        for module in (listening_targets, source_targets, ingest_targets, surface_targets, reading_targets)
        for target in module.TARGETS
    }
)
