"""An IMAP server that misbehaves as it is told: for what a real one does only on its worst days.

It knows one folder and as much of the protocol as is asked of it here.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

LONGEST = 65_536
_UIDS = re.compile(r"UID FETCH ([0-9,:]+) ")


@dataclass(slots=True)
class BrokenImap:
    """What it holds, and what it does wrong."""

    port: int = 0
    mails: dict[int, bytes] = field(default_factory=dict[int, bytes])
    withheld: set[int] = field(default_factory=set[int])  # the connection ends when one of these is read
    refused: str = ""  # a command that is answered with no
    dropped: str = ""  # a command on which the connection ends
    garbage: str = ""  # a command that is answered with what makes no sense
    coming: bytes | None = None  # a mail that comes in the very moment in which we begin to wait
    has_next: bool = True  # it says which number comes next
    asked: list[str] = field(default_factory=list[str])
    tokens: list[str] = field(default_factory=list[str])
    _open_tag: str = ""  # of a command that goes on over more lines

    async def talk(self, stream: SocketStream) -> None:
        """Answer one connection until it ends."""
        lines = BufferedByteReceiveStream(stream)
        try:
            await stream.send(b"* OK ready\r\n")
            while True:
                tag, _, command = (await lines.receive_until(b"\r\n", LONGEST)).decode().partition(" ")
                self.asked.append(command)
                if not await self._answer(stream, tag, command):
                    return
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            await stream.aclose()

    async def _answer(self, stream: SocketStream, tag: str, command: str) -> bool:
        """Answer one command; return whether the connection goes on."""
        is_withheld = command.startswith("UID FETCH") and "BODY" in command and self.withheld & self._named(command)
        if is_withheld or (self.dropped and command.startswith(self.dropped)):
            return False
        done = f"{tag} OK done\r\n".encode()
        if tag == "DONE":
            answer = f"{self._open_tag} OK done\r\n".encode()
        elif self.refused and command.startswith(self.refused):
            answer = f"{tag} NO [CANNOT] not today\r\n".encode()
        elif self.garbage and command.startswith(self.garbage):
            answer = b"* 1 FETCH ((((\xff\r\n" + done
        elif command.startswith("IDLE"):
            self._open_tag = tag
            answer = b"+ idling\r\n"
            if self.coming is not None:
                number = len(self.mails) + 1
                self.mails[number], self.coming = self.coming, None
                answer += f"* {number} EXISTS\r\n".encode()
        elif command.startswith("AUTHENTICATE"):
            self._open_tag = tag
            answer = b"+ \r\n"
        elif not command:
            self.tokens.append(b64decode(tag).decode())
            answer = f"{self._open_tag} OK done\r\n".encode()
        else:
            answer = self._said(command) + done
        await stream.send(answer)
        return True

    def _named(self, command: str) -> set[int]:
        found = _UIDS.match(command)
        numbers = found[1].split(",") if found else []
        return {
            uid
            for each in numbers
            for uid in range(int(each.partition(":")[0]), int(each.rpartition(":")[2]) + 1)
            if uid in self.mails
        }

    def _said(self, command: str) -> bytes:
        if command.startswith("CAPABILITY"):
            return b"* CAPABILITY IMAP4rev1 IDLE\r\n"
        if command.startswith("EXAMINE"):
            coming = f"* OK [UIDNEXT {max(self.mails, default=0) + 1}] next\r\n" if self.has_next else ""
            return f"* {len(self.mails)} EXISTS\r\n* OK [UIDVALIDITY 7] same\r\n{coming}".encode()
        if command.startswith("UID SEARCH"):
            return f"* SEARCH {' '.join(map(str, self.mails))}\r\n".encode()
        if command.startswith("UID FETCH"):
            return b"".join(self._mail(uid, command) for uid in sorted(self._named(command)))
        return b""

    def _mail(self, uid: int, command: str) -> bytes:
        raw = self.mails[uid]
        known = f'* {uid} FETCH (UID {uid} RFC822.SIZE {len(raw)} INTERNALDATE "16-Nov-2026 09:00:00 +0000"'
        if "BODY" not in command:
            return f"{known})\r\n".encode()
        shown = raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if "HEADER" in command else raw
        return f"{known} BODY[] {{{len(shown)}}}\r\n".encode() + shown + b")\r\n"


@asynccontextmanager
async def misbehaving() -> AsyncIterator[BrokenImap]:
    """Such a server for the time of the block."""
    server = BrokenImap()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        server.port = listener.extra(SocketAttribute.local_port)
        group.start_soon(listener.serve, server.talk)
        yield server
        group.cancel_scope.cancel()
