"""The daemon's log: one line per record, as text or as a JSON object.

Standard library logging, set up for the time of a `with` block and put back afterwards. Text from outside may be part
of a message, so every character that could begin a line or act on a terminal is written as an escape, and what has the
shape of a secret is left out. A log that cannot be written never stops the daemon. It is not the journal: the journal
is the record, this is for finding faults. Beside `config`, of which it knows no more than two paths.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from harken.ingest.redact import redact

LOGGER = "harken"
MAX_MESSAGE_CHARS = 8_000
MAX_TRACEBACK_CHARS = 16_000
JSON = "json"
TEXT = "text"
EXTRAS: Final = ("loop", "failures")
"""What a record may say besides its message, by `extra=`: the only further fields of a line of JSON."""

_LEVELS: Final = MappingProxyType(
    {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
)
_PRIVATE = 0o600


class LogPlace(Protocol):
    """Where the log is kept."""

    @property
    def logs_dir(self) -> Path:
        """The folder of the log files; its parent exists."""
        ...

    @property
    def daemon_log(self) -> Path:
        """The current log file."""
        ...


def escape(text: str) -> str:
    """Return the text with everything that is not plainly visible written as a backslash escape; nothing is lost."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode("ascii") for char in text
    )


@contextmanager
def configure(
    home: LogPlace,
    level: str,
    *,
    to_stderr: bool,
    max_bytes: int = 5_000_000,
    backups: int = 3,
    layout: str = TEXT,
) -> Iterator[None]:
    """Log to the daemon's log file, and to stderr if asked, until the block ends; `layout` is `text` or `json`.

    Harken logs from `level` on. Other packages log from warning on: their chatter may hold addresses with tokens.
    """
    handlers: list[logging.Handler] = []
    failure: OSError | None = None
    try:
        handlers.append(_file_handler(home, max_bytes, backups))
    except OSError as exc:
        failure = exc
    if to_stderr or failure is not None:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(_OneObject() if layout == JSON else _OneLine())
    with _installed(handlers, _LEVELS[level]):
        if failure is not None:
            # As an error, so that no level hides it.
            logging.getLogger(f"{LOGGER}.log").error(
                "Cannot write the log file %s: %s; logging to stderr only.", home.daemon_log, failure.strerror
            )
        yield


@contextmanager
def _installed(handlers: list[logging.Handler], level: int) -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger(LOGGER)
    before = root.level, own.level, logging.raiseExceptions
    root.setLevel(max(level, logging.WARNING))
    own.setLevel(level)
    logging.raiseExceptions = False  # a full disk would print a traceback for every line
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            with suppress(OSError, ValueError):  # lines that a full disk did not take are tried once more, and lost
                handler.close()
        root.setLevel(before[0])
        own.setLevel(before[1])
        logging.raiseExceptions = before[2]


def _file_handler(home: LogPlace, max_bytes: int, backups: int) -> logging.Handler:
    # The folder only, not its parents: a home is made by those who know how private it must be.
    if not home.logs_dir.is_dir():
        home.logs_dir.mkdir(mode=0o700)
    return _PrivateFile(home.daemon_log, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")


class _PrivateFile(RotatingFileHandler):
    """A rotating file that is readable by its owner only, also if it existed with another mode."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _PRIVATE)
        try:
            # A link to a device is possible, and its mode is not ours to change.
            if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, _PRIVATE)
            return os.fdopen(descriptor, "a", encoding=self.encoding)
        except OSError:
            os.close(descriptor)
            raise


class _OneLine(logging.Formatter):
    """Time in UTC, level, logger, message, and the traceback if there is one, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = f"{_moment(record)} {record.levelname.lower()} {escape(record.name)} {escape(_message(record))}"
        trouble = escape(_traceback(record))
        return f"{line} | {trouble}" if trouble else line


class _OneObject(logging.Formatter):
    """The same as a JSON object on one line, for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        said: dict[str, object] = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if trouble := _traceback(record):
            said["traceback"] = trouble
        said |= {name: _plain(getattr(record, name)) for name in EXTRAS if hasattr(record, name)}
        # Plain ASCII: no character of another script, direction or control is left to act on whoever shows it.
        return json.dumps(said).replace("\x7f", "\\u007f")


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str | int | bool | None:
    """Return a value that JSON has a word for; anything else as its text."""
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError):
        text = f"{record.msg} (its arguments do not fit)"
    cut = len(text) - MAX_MESSAGE_CHARS
    return redact(text).text if cut <= 0 else f"{redact(text[:MAX_MESSAGE_CHARS]).text} ({cut} more characters)"


def _traceback(record: logging.LogRecord) -> str:
    """Return the end of the traceback: that is where the reason stands."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
    return redact(text[-MAX_TRACEBACK_CHARS:]).text
