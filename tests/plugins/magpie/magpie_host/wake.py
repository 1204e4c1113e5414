"""Waking an idle Magpie: each of its terminals reads prompts from a pipe, and tells the programs it starts which."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from anyio import to_thread

from harken.hosts.wake import WakeTarget, WakeWay


class MagpieWaker:
    """Starts a turn in an idle session."""

    def ways(self, target: WakeTarget) -> Sequence[WakeWay]:
        """Return the pipe, where a hook has named one."""
        return [WakeWay(surface="wake: pipe", send=self.wake)] if target.env.get("MAGPIE_INBOX") else []

    async def wake(self, target: WakeTarget, text: str) -> bool | None:
        """Write a text into the pipe; return whether somebody reads there."""
        return await to_thread.run_sync(_write, target.env["MAGPIE_INBOX"], text)


def _write(path: str, text: str) -> bool:
    line = (json.dumps(text) + "\n").encode()
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False  # nobody reads it any more
    try:
        return os.write(pipe, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(pipe)
