"""The listener for what others post: bound from the first door of a source on, and apart from the page and the API.

It joins the doors to the intake: a door answers only after what it read is stored. Which doors there are may change
while it listens. Above is `source_set.py`; what HTTP may do there is in `surfaces/doors.py`, what a post means in each
source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from socket import socket

from anyio.abc import TaskGroup

from harken.config.home import Home
from harken.config.settings import HooksSettings
from harken.daemon import http
from harken.errors import UserError
from harken.ingest.intake import Intake
from harken.model import Draft
from harken.sources.source import Accept, Door
from harken.surfaces.doors import create_doors


class DoorListener:
    """Listens for the sources that have doors."""

    def __init__(self, intake: Intake, settings: HooksSettings, home: Home) -> None:
        self._settings = settings
        self._home = home
        self._app = create_doors((), _accept(intake))
        self._sock: socket | None = None
        self._server: http.Server | None = None
        self._tasks: TaskGroup | None = None

    @property
    def url(self) -> str:
        """Its address on this machine; empty while nothing is listened for."""
        return "" if self._sock is None else http.url_of(self._sock)

    def show(self, doors: Sequence[Door]) -> None:
        """Take posts at these doors and no others; raises `UserError` with nothing changed."""
        shared = [path for path, count in Counter(door.path for door in doors).items() if count > 1]
        if shared:
            raise UserError(f"Two sources take posts at {shared[0]}.", "Take one of them out of config.toml.")
        if doors and self._sock is None:
            settings = self._settings
            is_known = bool(settings.public_url)
            self._sock = http.bind(
                settings.host, settings.port, self._home.doors_port_file, "hooks.port", is_known=is_known
            )
            self._server = http.make_server(self._app)
            if self._tasks is not None:
                self._tasks.start_soon(self._serve)
        self._app.show(doors)

    def serve_in(self, tasks: TaskGroup) -> None:
        """Serve from now on, also what is opened later."""
        self._tasks = tasks
        if self._server is not None:
            tasks.start_soon(self._serve)

    def stop(self) -> None:
        """Take nothing any more."""
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self) -> None:
        if self._server is not None and self._sock is not None:
            await self._server.serve(sockets=[self._sock])


def _accept(intake: Intake) -> Accept:
    async def accept(drafts: Sequence[Draft]) -> Sequence[bool]:
        return [each.is_new for each in await intake.accept(drafts)]

    return accept
