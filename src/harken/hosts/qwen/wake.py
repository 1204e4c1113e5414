"""Waking an idle Qwen Code session: by the inbox that each of its terminals has, or by the file it reads prompts from.

Every process that a session starts, our hooks too, is told a socket and a token for messages to that session. What
comes by it is shown to the model as the word of such a process, not of the user. The file exists only where the person
started Qwen with `--input-file`, and what it submits is as if they had typed it: the caller must know which it uses.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import psutil
from anyio import to_thread
from anyio.abc import SocketStream

from harken.hosts.wake import WakeTarget, WakeWay
from harken.processes import command_line

VARIABLES: Final = ("QWEN_CODE_MESSAGING_SOCKET", "QWEN_CODE_MESSAGING_TOKEN")
TAKE_SECONDS: Final = 5.0
MAX_BYTES: Final = 512 * 1024
_FRAME: Final = 1  # the version of the frames
_OPTIONS: Final = ("--input-file", "--inputFile")

_log = logging.getLogger("harken.hosts.qwen")


class QwenWakers:
    """The ways to wake a session that there are."""

    def ways(self, target: WakeTarget) -> Sequence[WakeWay]:
        """Return its inbox, and the file that it reads prompts from, as far as it has them."""
        found: list[WakeWay] = []
        if target.env.get(VARIABLES[0]):
            found.append(WakeWay(surface="wake: peer inbox", send=QwenWaker().wake, runs_prompt_hook=False))
        if input_file(command_line(target.pid), target.cwd) is not None:
            # What is read from that file is the user's own prompt to the model.
            found.append(WakeWay(surface="wake: input file", send=InputFileWaker().wake, speaks_as_user=True))
        return found


class QwenWaker:
    """Starts a turn in an idle session by its own inbox; a busy one reads it only when its turn is over."""

    def __init__(self, *, take_seconds: float = TAKE_SECONDS) -> None:
        self._take_seconds = take_seconds

    async def wake(self, target: WakeTarget, text: str) -> bool | None:
        """Hand a text over; return whether it was taken, None when Qwen may have it. Never raises."""
        path, token = (target.env.get(name, "") for name in VARIABLES)
        if not path.startswith("/") or not token or not text:
            return False
        is_sent = False
        try:
            with anyio.fail_after(self._take_seconds):
                async with await anyio.connect_unix(path) as stream:
                    is_sent = True
                    await _submit(stream, frames(token, target.native, text))
        except (OSError, TimeoutError, anyio.BrokenResourceError) as exc:
            _log.info("the Qwen session %s did not say that it was woken: %s", target.native, str(exc) or "too slow")
            return None if is_sent else False
        return True


class InputFileWaker:
    """Starts a turn in a session that was started with `--input-file`. The text becomes the user's own prompt."""

    async def wake(self, target: WakeTarget, text: str) -> bool:
        """Submit a text; return whether it was written. Never raises."""
        try:
            process = psutil.Process(target.pid)
            path = input_file(process.cmdline(), process.cwd())
        except (psutil.Error, OSError, ValueError):
            return False
        line = (json.dumps({"type": "submit", "text": text}) + "\n").encode()
        if path is None or len(line) > MAX_BYTES:
            return False
        try:
            return await to_thread.run_sync(_append, path, line)
        except OSError as exc:
            _log.info("the Qwen session %s was not woken: %s", target.native, exc)
            return False


def input_file(argv: Sequence[str], cwd: str) -> Path | None:
    """Return the file that a session reads prompts from, by the command line it was started with."""
    found = ""
    for number, word in enumerate(argv):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            found = value if equals else next(iter(argv[number + 1 :]), "")
    return Path(cwd, found) if found and not found.startswith("-") else None


def frames(token: str, session: str, text: str) -> bytes:
    """Return what is sent to a session's inbox: who speaks, and the message for that very conversation."""
    message = {
        "msgV": _FRAME,
        "msgId": str(uuid.uuid4()),
        "type": "user",
        "fromName": "Harken",
        # After /clear the terminal holds another conversation: it drops what is meant for the one before.
        **({"toSessionId": session} if session else {}),
        "priority": "next",
        "message": {"role": "user", "content": text},
    }
    lines = ({"msgV": _FRAME, "type": "auth", "token": token}, message)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def _submit(stream: SocketStream, data: bytes) -> None:
    await stream.send(data)
    await stream.send_eof()
    try:
        # Qwen says nothing; it closes when it has read everything.
        await stream.receive()
    except anyio.EndOfStream:
        return


def _append(path: Path, line: bytes) -> bool:
    """Append one line in a single write, so that no other writer comes between; return whether all of it is there."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return False
        is_open_line = status.st_size > 0 and os.pread(descriptor, 1, status.st_size - 1) != b"\n"
        data = b"\n" + line if is_open_line else line
        return os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)
