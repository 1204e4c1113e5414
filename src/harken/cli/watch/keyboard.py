"""The keyboard while something goes on: all keys for `harken watch`, and Esc alone for a run that is followed.

Keys come one by one for the time of a block; the terminal is as before afterwards. Pasted text is no key, and neither
is the beginning of a key that sends several characters. It does not know what a key is for.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, MappingProxyType
from typing import Final, NoReturn

RESIZED: Final = "resized"
GONE: Final = "gone"  # whoever sat there closed the terminal, or pressed Ctrl-D
TOGETHER_SECONDS: Final = 0.1  # over a slow line the parts of one key arrive apart
MAX_TYPED: Final = 8
_CHUNK: Final = 4_096
_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
_KEY: Final = re.compile(rb"\x1b{1,2}[\[O][0-?]*[ -/]*[@-~]|\x1b[^\x1b\[O]|\x1b|[^\x1b]", re.DOTALL)
_NAMES: Final[Mapping[bytes, str]] = MappingProxyType(
    {
        b"\x1b": "escape",
        b"\r": "enter",
        b"\n": "enter",
        b"\x04": GONE,
        b"\x1b[A": "up",
        b"\x1bOA": "up",
        b"\x1b[B": "down",
        b"\x1bOB": "down",
    }
)
ESCAPE = b"\x1b"
LOOK_SECONDS = 0.2
INTERRUPT_SECONDS: Final = 0.2


class Keys:
    """Turns what a terminal sends into names of keys. Pure; knows only whether a paste is going on."""

    def __init__(self) -> None:
        self._is_pasting = False
        self._tail = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys in what was read at once, without pasted text and keys that mean nothing here."""
        keys: list[str] = []
        while data:
            if self._is_pasting:
                _, end, data = self._after_paste(data)
                self._is_pasting = not end
                continue
            typed, begin, data = data.partition(_PASTE_BEGINS)
            self._is_pasting = bool(begin)
            keys += _keys(typed)
        return keys

    def _after_paste(self, data: bytes) -> tuple[bytes, bytes, bytes]:
        # The end itself may come in two parts.
        pasted, end, rest = (self._tail + data).partition(_PASTE_ENDS)
        self._tail = b"" if end else pasted[1 - len(_PASTE_ENDS) :]
        return pasted, end, rest


def _keys(typed: bytes) -> list[str]:
    found = _KEY.findall(typed)
    # So much at once is text that was pasted into the wrong window, in a terminal that does not say so.
    if len(found) > MAX_TYPED:
        return []
    names = [_NAMES.get(key, key.decode("ascii", "ignore")) for key in found]
    return [name for name in names if name and name.isprintable()]


class Keyboard:
    """What a person types, while the terminal hands it over key by key."""

    def __init__(self, descriptor: int, signals: int) -> None:
        import termios

        self._descriptor = descriptor
        self._signals = signals
        self._keys = Keys()
        self._by_line = termios.tcgetattr(descriptor)

    def wait(self, seconds: float) -> list[str]:
        """Return the keys that were pressed, `RESIZED` and `GONE` among them; nothing when the time is up."""
        ready, _, _ = select.select([self._descriptor, self._signals], [], [], max(0.0, seconds))
        keys: list[str] = []
        if self._signals in ready:
            os.read(self._signals, _CHUNK)
            # After a stop the shell has put the terminal back to lines.
            _by_key(self._descriptor)
            keys.append(RESIZED)
        if self._descriptor in ready:
            keys += self._read()
        return keys

    def forget(self) -> None:
        """Drop what was typed and not read."""
        import termios

        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def line(self, prompt: str) -> str:
        """Let the person write a line, with the editing that they are used to; empty when they leave it."""
        import readline
        import termios

        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._by_line)
        try:
            readline.set_auto_history(False)
            with _interruptible():
                return input(prompt)
        except (EOFError, KeyboardInterrupt):
            return ""
        finally:
            _by_key(self._descriptor)

    def _read(self) -> list[str]:
        try:
            data = os.read(self._descriptor, _CHUNK)
            while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
                if not select.select([self._descriptor], [], [], TOGETHER_SECONDS)[0]:
                    break
                data += os.read(self._descriptor, _CHUNK)
        except OSError:
            return [GONE]
        return self._keys.feed(data) if data else [GONE]


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys one by one for the time of the block."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    with _signals() as signals:
        try:
            keys = Keyboard(descriptor, signals)
            _by_key(descriptor)
            yield keys
        finally:
            # The terminal may be gone with whoever sat there.
            with suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _by_key(descriptor: int) -> None:
    import termios
    import tty

    with suppress(termios.error):
        tty.setcbreak(descriptor, termios.TCSANOW)


@contextmanager
def _signals() -> Iterator[int]:
    """Give a descriptor that can be read when the terminal changed; being ended unwinds, so that all is put back."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.settimeout(0.0)
    handlers = {
        signal.SIGWINCH: _nothing,
        signal.SIGCONT: _nothing,
        signal.SIGTERM: _leave,
        signal.SIGHUP: _leave,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    waker = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader.fileno()
    finally:
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a line that is being read, also when it comes just before readline waits for the next key.

    Python looks at its signals when readline's wait is interrupted. A signal that was there before does not interrupt
    it; a timer does.
    """
    before = signal.signal(signal.SIGALRM, _nothing)
    waker = signal.set_wakeup_fd(-1)  # the timer is no news
    signal.setitimer(signal.ITIMER_REAL, INTERRUPT_SECONDS, INTERRUPT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Let the wake-up tell it."""


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


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
