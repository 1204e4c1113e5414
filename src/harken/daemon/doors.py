"""The listener for what others post: bound only while a source has a door, and apart from the page and the API.

It joins the doors to the intake: a door answers only after what it read is stored. Above is `compose.py`; what HTTP may
do there is in `surfaces/doors.py`, what a post means in each source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from socket import socket
from typing import Protocol, runtime_checkable

from harken.config.home import Home
from harken.config.settings import HooksSettings
from harken.daemon import http
from harken.errors import UserError
from harken.ingest.intake import Intake
from harken.model import Draft
from harken.sources.base import Source
from harken.sources.door import Accept, Door
from harken.surfaces.doors import create_doors


@runtime_checkable
class Posted(Protocol):
    """A source that others post to."""

    def doors(self) -> Sequence[Door]:
        """Return where they post."""
        ...


@dataclass(frozen=True, slots=True)
class DoorListener:
    """What is listened on, and who serves it."""

    sock: socket
    server: http.Server

    @property
    def url(self) -> str:
        """Its address on this machine."""
        return http.url_of(self.sock)

    async def serve(self) -> None:
        """Serve until told to stop."""
        await self.server.serve(sockets=[self.sock])


def open_doors(sources: Sequence[Source], intake: Intake, settings: HooksSettings, home: Home) -> DoorListener | None:
    """Listen for the sources that have doors; None when none has."""
    doors = [door for source in sources if isinstance(source, Posted) for door in source.doors()]
    if not doors:
        return None
    shared = [path for path, count in Counter(door.path for door in doors).items() if count > 1]
    if shared:
        raise UserError(f"Two sources take posts at {shared[0]}.", "Take one of them out of config.toml.")
    sock = http.bind(
        settings.host, settings.port, home.doors_port_file, "hooks.port", is_known=bool(settings.public_url)
    )
    return DoorListener(sock, http.make_server(create_doors(doors, _accept(intake))))


def _accept(intake: Intake) -> Accept:
    async def accept(drafts: Sequence[Draft]) -> Sequence[bool]:
        return [each.is_new for each in await intake.accept(drafts)]

    return accept
