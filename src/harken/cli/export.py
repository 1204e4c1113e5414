"""The verb `export`: every message with who has seen it, page by page, to stdout or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from time import monotonic
from typing import TextIO

import click

from harken.cli.client import Daemon, Result
from harken.cli.complete import mailboxes
from harken.cli.output import QUIET_SECONDS, json_text
from harken.cli.verbs import Invocation, verb
from harken.config.home import disk_error

PAGE = 500


@verb("export")
@click.option("--format", "layout", type=click.Choice(["jsonl", "json"]), default="jsonl", show_default=True)
@click.option("--mailbox", default="", shell_complete=mailboxes, help="Only this mailbox.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, when complete.")
def export(asked: Invocation, *, layout: str, mailbox: str, output: Path | None) -> None:
    """Print every message, oldest first, mailbox by mailbox.

    jsonl is one message per line; json, and --json, is one document {"messages": [...]}.
    """
    with Daemon(asked.home) as daemon, _target(output) as stream:
        records = _with_progress(_records(daemon, mailbox))
        if asked.as_json or layout == "json":
            _write_document(stream, records)
        else:
            stream.writelines(json_text(record) + "\n" for record in records)
        stream.flush()


def _records(daemon: Daemon, mailbox: str) -> Iterator[Result]:
    for name in [mailbox] if mailbox else daemon.ask("mailboxes")["mailboxes"]:
        after = 0
        while page := daemon.ask("export", mailbox=name, after=after, limit=PAGE)["messages"]:
            yield from page
            after = page[-1]["seq"]


def _write_document(stream: TextIO, records: Iterator[Result]) -> None:
    """Write one document without holding it in memory."""
    stream.write('{"messages": [')
    separator = ""
    for record in records:
        stream.write(separator + json_text(record))
        separator = ", "
    stream.write("]}\n")


def _with_progress(records: Iterator[Result]) -> Iterator[Result]:
    """Pass the records on, and say now and then how many there were, to a person who waits."""
    is_watched = sys.stderr.isatty()
    said_at, count = monotonic(), 0
    has_spoken = False
    for count, record in enumerate(records, start=1):
        if is_watched and monotonic() - said_at > QUIET_SECONDS:
            said_at, has_spoken = monotonic(), True
            print(f"\r{count} messages", end="", file=sys.stderr, flush=True)
        yield record
    if has_spoken:
        print(f"\r{count} messages", file=sys.stderr)


@contextmanager
def _target(path: Path | None) -> Iterator[TextIO]:
    """Open stdout, or a private file that appears under its name only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    try:
        descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as exc:
        raise disk_error("write", path, exc) from exc
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            yield stream
        temporary.replace(path)
    except OSError as exc:
        raise disk_error("write", path, exc) from exc
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
