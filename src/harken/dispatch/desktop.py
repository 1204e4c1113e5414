"""Your desktop and your phone, as far as they show notifications: adapters to `desktop-notifier` and Apprise.

Each library is imported with the first notification, because most daemons never show one. Without a desktop, a bus or
the permission nothing happens: the log says so once, and `state` says so when asked. Nothing on a toast can be pressed
to any effect: one that appears under the pointer must not answer a question. Apprise knows the services (Pushover,
ntfy, Telegram, …) by an address that holds a secret. What is said to a phone passes through a service of others: it
never holds the text of a message.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import anyio
import anyio.to_thread

from harken.dispatch.toast import Toast
from harken.errors import NeedsPerson, Unavailable, UserError

if TYPE_CHECKING:
    from desktop_notifier.backends.base import DesktopNotifierBackend

_log = logging.getLogger("harken.toasts")

SHOW_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 2.0
MOST_KEPT: Final = 20  # toasts that stay on the desktop until they are dismissed
BUS: Final = "DBUS_SESSION_BUS_ADDRESS"

NOT_TRIED: Final = "not tried yet"
SHOWN: Final = "shown"
NO_SESSION: Final = "no desktop session"
NO_SERVICE: Final = "the desktop shows no notifications: no service for them answers"
NO_PERMISSION: Final = "the desktop does not permit them"
NO_WAY: Final = "this Python cannot show any on this system"


class Desktop:
    """Shows toasts. `environ` is the process's own: the library looks for the bus there, and nowhere else."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._backend: DesktopNotifierBackend | None = None
        self._said = NOT_TRIED

    @property
    def state(self) -> str:
        """Whether toasts are shown, or why not, in words for people."""
        return self._said if self._has_session() else NO_SESSION

    async def show(self, toast: Toast) -> bool:
        """Put a toast on the screen; return whether the desktop took it."""
        said = NO_SERVICE
        if not self._has_session():
            said = NO_SESSION
        else:
            with anyio.move_on_after(SHOW_SECONDS):
                said = await self._send(toast)
        if said != SHOWN:
            # The next toast begins anew: a connection that once failed may never work again.
            await self.close()
        if said != self._said:
            _log.info("toasts: %s", said)
        self._said = said
        return said == SHOWN

    async def close(self) -> None:
        """Leave the bus, if there is one; what is on the screen stays there."""
        backend, self._backend = self._backend, None
        if (bus := getattr(backend, "bus", None)) is None:
            return
        bus.disconnect()
        with anyio.move_on_after(CLOSE_SECONDS), suppress(OSError, EOFError, ValueError):  # it was broken before
            await bus.wait_for_disconnect()

    def _has_session(self) -> bool:
        """Whether there seems to be a desktop; where the bus is in its usual place, that place is noted."""
        if sys.platform != "linux":
            return True
        if self._environ.get(BUS):
            return True
        folder = self._environ.get("XDG_RUNTIME_DIR")
        if folder and (usual := Path(folder) / "bus").is_socket():
            self._environ[BUS] = f"unix:path={quote(str(usual))}"
            return True
        return bool(self._environ.get("DISPLAY"))  # by which the library finds the bus of old desktops

    async def _send(self, toast: Toast) -> str:
        library = await anyio.to_thread.run_sync(import_module, "desktop_notifier.main")
        if self._backend is None:
            # It logs every failure with a traceback. We say it once.
            logging.getLogger("desktop_notifier").setLevel(logging.CRITICAL)
            self._backend = library.get_backend_class()("Harken", None)
            if not await self._backend.request_authorisation():
                return NO_PERMISSION
        backend, taken = self._backend, list[bool]()
        note = library.Notification(toast.title, toast.body, on_dispatched=lambda: taken.append(True))
        await backend.send(note)
        if not taken:
            return NO_SERVICE
        # The library's answer to systems it knows nothing of is a backend that can do nothing.
        if not await backend.get_capabilities():
            return NO_WAY
        shown = await backend.get_current_notifications()
        for oldest in shown[:-MOST_KEPT]:
            with suppress(KeyError):  # dismissed in this moment
                await backend.clear(oldest)
        return SHOWN


SEND_SECONDS: Final = 30.0
EXTRA: Final = "harken[phone]"
LIBRARY: Final = "apprise"


class Notifier(Protocol):
    """What is used of Apprise."""

    def add(self, servers: str) -> bool:
        """Add a service by its address."""
        ...

    def notify(self, body: str, title: str) -> bool | None:
        """Tell every service."""
        ...


class Phone:
    """A phone behind one address. The address is a secret: it is in no error and no log."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def tell(self, title: str, body: str) -> bool:
        """Send a text; return whether the service took it. Raises `NeedsPerson` and `UserError` for what is missing."""
        with anyio.move_on_after(SEND_SECONDS):
            return await anyio.to_thread.run_sync(self._send, title, body, abandon_on_cancel=True)
        raise Unavailable("The service for your phone does not answer.", "It is tried again.")

    def _send(self, title: str, body: str) -> bool:
        # All of it in a thread: the library takes a second to load what it knows.
        return bool(self._notifier().notify(body=body, title=title))

    def _notifier(self) -> Notifier:
        try:
            library = import_module(LIBRARY)
        except ImportError as exc:
            raise NeedsPerson("The library for phones is not installed.", f"Install it: pip install '{EXTRA}'") from exc
        # What it logs about an address that it cannot use holds parts of that address.
        logging.getLogger(LIBRARY).disabled = True
        notifier: Notifier = library.Apprise()
        if not notifier.add(self._address):
            raise UserError("Apprise cannot use waiting.phone.", "See the addresses that Apprise knows.")
        return notifier
