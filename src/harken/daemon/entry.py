"""One entry of `[sources]`, with all that its source is made with; and the source that cannot be made yet.

Above are the modules that make sources, one for each kind, and `sources.py`, which knows the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harken.clock import Clock
from harken.config.home import Home
from harken.errors import HarkenError
from harken.sources.base import Feed, SourceHealth, SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry as it is written, and where it is written."""

    name: str
    table: Mapping[str, object]
    home: Home
    clock: Clock
    environ: Mapping[str, str]
    public_url: str = ""  # where others reach what is posted

    @property
    def kind(self) -> str:
        """What kind of source it is, as it is written."""
        return str(self.table.get("kind"))

    def unready(self, error: HarkenError, address: str = "") -> UnreadySource:
        """Return what stands for a source whose secret or certificate is missing."""
        return UnreadySource(self.name, self.kind, f"{error.message} {error.hint}", address)


@dataclass(frozen=True, slots=True)
class UnreadySource:
    """A source that cannot be opened before a person has acted."""

    name: str
    kind: str
    reason: str
    address: str = ""

    def feeds(self) -> Sequence[Feed]:
        """Return nothing: there is nothing to follow yet."""
        return ()

    def health(self) -> SourceHealth:
        """Say what is missing."""
        return SourceHealth(state=SourceState.NEEDS_PERSON, reason=self.reason)
