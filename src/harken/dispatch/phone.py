"""The person's phone, as far as Harken can reach it: the adapter to the library Apprise, which is an extra.

Apprise knows the services (Pushover, ntfy, Telegram, …) by an address that holds a secret; Harken only hands it a text.
It is imported when it is needed. What is said to a phone passes through a service of others: it never holds what
somebody wrote.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final, Protocol

import anyio
import anyio.to_thread

from harken.errors import NeedsPerson, Unavailable, UserError

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
