"""Waits on loopback for what the person's browser brings back from the sign-in page.

The sign-in page has the browser post a form to an address on this machine. Only a post with the state that we made up
is believed; whatever else knocks is turned away and the wait goes on. msal has such a receiver too, but it listens to
the whole network inside a container, cannot be cancelled, and leaves a thread behind when nobody comes.
Above is `delegated.py`; below is only anyio.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from harken.errors import UserError

KNOCK_SECONDS: Final = 10.0  # for one connection
MAX_HEAD_BYTES: Final = 16_384
MAX_FORM_BYTES: Final = 65_536
MAX_FIELDS: Final = 50

_DONE: Final = ("200 OK", "The answer has arrived. You can close this page; how it went is shown where you began.")
_NOT_THAT: Final = ("400 Bad Request", "This address waits for a sign-in, and that was none.")


class Receiver:
    """Believes one answer: the first that brings `state`."""

    def __init__(self, port: int, state: str) -> None:
        self.address = f"http://localhost:{port}"  # the one name that Entra takes with any port
        self.state = state
        self._given: dict[str, str] = {}
        self._has_come = anyio.Event()

    async def given(self) -> Mapping[str, str]:
        """Wait for the answer; whoever calls this bounds the wait."""
        await self._has_come.wait()
        return self._given

    async def serve(self, stream: ByteStream) -> None:
        """Hear one visitor."""
        async with stream:
            try:
                with anyio.move_on_after(KNOCK_SECONDS):
                    form = await _read_form(stream)
                    is_it = secrets.compare_digest(form.get("state", "").encode(), self.state.encode())
                    is_it = is_it and ("code" in form or "error" in form)
                    await stream.send(_page(*(_DONE if is_it else _NOT_THAT)))
                    if is_it and not self._has_come.is_set():
                        self._given = form
                        self._has_come.set()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # gone before the page was there; the answer, if any, is asked for again by the person


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[Receiver]:
    """Listen on this machine only, on any port unless told; raises `UserError` if that one is taken."""
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError:
        raise UserError(
            f"The port {port} of this machine is taken." if port else "No port of this machine can be had.",
            "Choose another port, or sign in with a code.",
        ) from None
    async with listener, anyio.create_task_group() as group:
        receiver = Receiver(listener.extra(SocketAttribute.local_port), secrets.token_urlsafe(24))
        group.start_soon(listener.serve, receiver.serve)
        try:
            yield receiver
        finally:
            group.cancel_scope.cancel()


async def _read_form(stream: ByteStream) -> dict[str, str]:
    """Return the fields of a posted form; nothing for any other request."""
    reader = BufferedByteReceiveStream(stream)
    try:
        head = (await reader.receive_until(b"\r\n\r\n", MAX_HEAD_BYTES)).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        length = headers.get("content-length", "")
        is_form = headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded")
        if not head[0].startswith("POST ") or not is_form or not (length.isascii() and length.isdigit()):
            return {}
        if len(length) > len(str(MAX_FORM_BYTES)) or int(length) > MAX_FORM_BYTES:
            return {}
        body = (await reader.receive_exactly(int(length))).decode("utf-8", "replace")
        return dict(parse_qsl(body, max_num_fields=MAX_FIELDS))
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream, ValueError):
        return {}


def _page(status: str, sentence: str) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Security-Policy: default-src 'none'",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
        f"Content-Length: {len(sentence.encode())}",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + sentence).encode()
