"""A host in tmux, as many people run it: a second terminal that is not ours, with the same handles as `Screen`.

tmux runs under a socket in the test's folder. A client in control mode tells when the pane changes, so nothing polls.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harken.trial.screen import COLUMNS, QUIET_SECONDS, ROWS, SETTLE_SECONDS, SHOWN_SECONDS

KEYS: Final[Mapping[str, str]] = {
    "enter": "Enter",
    "escape": "Escape",
    "tab": "Tab",
    "backspace": "BSpace",
    "up": "Up",
    "down": "Down",
    "ctrl-c": "C-c",
    "ctrl-d": "C-d",
}
COMMAND_SECONDS: Final = 10.0


class Terminal:
    """A program in tmux. Use it as a context manager; at the end its server is ended."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], cwd: Path, folder: Path) -> None:
        clean = ("env", "-i", *(f"{name}={value}" for name, value in {**environ, "TERM": "screen-256color"}.items()))
        self._line = shlex.join((*clean, *argv))
        self._cwd = cwd
        self._folder = folder
        self._environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMUX_TMPDIR": str(folder), "LANG": "C.UTF-8"}
        self._changed = threading.Condition()
        self._control: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read, name="tmux-control", daemon=True)

    def __enter__(self) -> Self:
        assert shutil.which("tmux"), "tmux is not installed: an idle session in tmux cannot be tested without it"
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "host", *size, "-c", str(self._cwd), self._line)
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._control = subprocess.Popen(
            [*self._prefix(), "-C", "attach-session", "-t", "host"],
            env={**self._environ, "TERM": "screen-256color"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._reader.start()
        # A client in control mode brings a size of its own.
        self._tmux("resize-window", "-t", "host", *size)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    def text(self) -> str:
        """Return what the pane shows."""
        shown = self._tmux("capture-pane", "-p", "-t", "host")
        return "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n")

    def type(self, text: str) -> None:
        """Press the keys of a text, without Enter."""
        self._tmux("send-keys", "-t", "host", "-l", text)

    def press(self, key: str) -> None:
        """Press a key by name, see `KEYS`."""
        self._tmux("send-keys", "-t", "host", KEYS[key])

    def submit(self, text: str) -> None:
        """Type a text, wait until the program shows it, and press Enter."""
        self.type(text)
        self.wait_for(lambda shown: text in " ".join(shown.split()), SHOWN_SECONDS)
        self.wait_quiet(seconds=SETTLE_SECONDS)
        self.press("enter")

    def wait_for(self, wanted: str | Callable[[str], bool], seconds: float) -> str:
        """Return what the pane shows once it holds a text, or is as a predicate wants it."""
        fits = wanted if callable(wanted) else lambda shown: wanted in shown
        with self._changed:
            if not self._changed.wait_for(lambda: fits(self.text()), seconds):
                raise TimeoutError(f"tmux did not show {wanted!r} within {seconds:g} s; it shows:\n{self.text()}")
            return self.text()

    def wait_quiet(self, quiet_seconds: float = QUIET_SECONDS, seconds: float = SHOWN_SECONDS) -> str:
        """Return what the pane shows once nothing changed for a while, or when the time is up."""
        end = time.monotonic() + seconds
        with self._changed:
            while time.monotonic() < end and self._changed.wait(quiet_seconds):
                pass
        return self.text()

    def close(self) -> None:
        """End tmux and the program in it."""
        control = self._control
        if control is None:
            return
        self._tmux("kill-server")
        # The thread reads to the end; only then may the pipe be closed.
        self._reader.join(COMMAND_SECONDS)
        control.wait(COMMAND_SECONDS)
        for pipe in (control.stdin, control.stdout):
            assert pipe is not None
            pipe.close()
        self._control = None

    def _prefix(self) -> list[str]:
        return ["tmux", "-L", "harken-test"]

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._prefix(), *arguments],
            capture_output=True,
            check=True,
            env=self._environ,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        return done.stdout

    def _read(self) -> None:
        assert self._control is not None
        assert self._control.stdout is not None
        for line in self._control.stdout:
            if line.startswith((b"%output", b"%exit")):
                with self._changed:
                    self._changed.notify_all()
