"""Keys that a person presses while something goes on: Esc, alone.

The terminal hands keys over one by one for that time, and is as before afterwards; Ctrl-C works as ever. A key that
sends several characters begins with the same one as Esc: what follows at once belongs to it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ESCAPE = b"\x1b"
TOGETHER_SECONDS = 0.05
LOOK_SECONDS = 0.2


def has_keys() -> bool:
    """Whether there is a person at a keyboard, on a system where keys can be read one by one."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.platform != "win32"


@contextmanager
def on_escape(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` in a thread, once, when Esc is pressed before the block ends; nothing without a keyboard."""
    if not has_keys():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    over = threading.Event()
    listener = threading.Thread(target=_listen, args=(descriptor, over, act), daemon=True)
    try:
        # What was typed before counts too.
        tty.setcbreak(descriptor, termios.TCSANOW)
        listener.start()
        yield
    finally:
        over.set()
        listener.join()
        # The terminal may be gone with whoever sat there.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _listen(descriptor: int, over: threading.Event, act: Callable[[], None]) -> None:
    while not over.is_set():
        if not select.select([descriptor], [], [], LOOK_SECONDS)[0]:
            continue
        try:
            typed = os.read(descriptor, 1)
        except OSError:
            return
        if not typed:
            return
        if typed != ESCAPE:
            continue
        if select.select([descriptor], [], [], TOGETHER_SECONDS)[0]:
            os.read(descriptor, 32)
            continue
        act()
        return
