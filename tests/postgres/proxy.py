"""A way to a server that is worse than most: connections can be dropped, delayed, held up and half-closed on it."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 1 << 16
LINGER: Final = struct.pack("ii", 1, 0)  # closing sends a reset
LOOK_SECONDS: Final = 0.2


class BadWay:
    """Listens on a port of the loopback, and relays each connection to a socket or a port of the server."""

    def __init__(self, server: Path | tuple[str, int]) -> None:
        self._server = str(server) if isinstance(server, Path) else server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_SECONDS)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_refusing = threading.Event()
        self._is_free = {is_to_server: threading.Event() for is_to_server in (True, False)}
        self.delay_seconds = 0.0
        self._cut_from, self._cut_at = b"", b""
        self.let_go()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def refuse(self) -> None:
        """Take no new connections until they are admitted again."""
        self._is_refusing.set()

    def admit(self) -> None:
        """Take new connections."""
        self._is_refusing.clear()

    def drop(self) -> None:
        """End every connection, as a network does that forgets them."""
        for pair in self._taken():
            for end in pair:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                    end.shutdown(socket.SHUT_RDWR)

    def half_close(self, *, to_server: bool) -> None:
        """End one direction of every connection: what the other one still carries arrives."""
        for client, server in self._taken():
            with suppress(OSError):
                (server if to_server else client).shutdown(socket.SHUT_WR)

    def cut_at(self, words: bytes, *, after: bytes = b"") -> None:
        """End each connection on which these words are said to the server, before it hears them.

        `after`: once others were said, on whichever connection. Without words, no more are ended.
        """
        self._cut_from, self._cut_at = after, words

    def hold_up(self, *, to_server: bool) -> None:
        """Carry nothing more in one direction; what is sent meanwhile arrives when it is let go."""
        self._is_free[to_server].clear()

    def let_go(self) -> None:
        """Carry what was held up."""
        for is_free in self._is_free.values():
            is_free.set()

    def _taken(self) -> list[tuple[socket.socket, socket.socket]]:
        with self._lock:
            return list(self._pairs)

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._is_refusing.is_set():
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET)
            try:
                server.connect(self._server)
            except OSError:  # it does not run now
                server.close()
                client.close()
                continue
            client.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            self._start(self._relay, client, server)

    def _start(self, work: Callable[..., None], *values: socket.socket) -> None:
        thread = threading.Thread(target=work, args=values, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        open_ends = [client, server]
        with client, server:
            while open_ends and not self._is_over.is_set():
                for end in select.select(open_ends, [], [], LOOK_SECONDS)[0]:
                    if not self._pass_on(end, other[end], self._is_free[end is client]):
                        open_ends.remove(end)
        with self._lock:
            self._pairs.remove((client, server))

    def _pass_on(self, end: socket.socket, other: socket.socket, is_free: threading.Event) -> bool:
        """Relay what there is when it may pass; return whether more may come from that end."""
        try:
            data = end.recv(CHUNK)
            is_free.wait()
            if self.delay_seconds:
                self._is_over.wait(self.delay_seconds)
            if self._is_cut_at(data):
                data = b""
                end.shutdown(socket.SHUT_RDWR)
            if data:
                other.sendall(data)
                return True
        except OSError:
            pass
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        return False

    def _is_cut_at(self, data: bytes) -> bool:
        if self._cut_from and self._cut_from in data:
            self._cut_from = b""
        return bool(self._cut_at and not self._cut_from and self._cut_at in data)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._is_over.set()
        self.let_go()
        self.drop()
        for thread in self._threads:
            thread.join()
        self._listener.close()
