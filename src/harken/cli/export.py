"""The verb `export`: every message with who has seen it, page by page, to stdout or a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import mkstemp
from typing import TextIO

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import json_text
from harken.cli.progress import with_progress
from harken.cli.verbs import Moment, verb, verb_option
from harken.config.home import disk_error
from harken.control.client import DaemonClient, Result
from harken.times import MOMENTS

PAGE = 500


@verb("export")
@click.option("--format", "layout", type=click.Choice(["jsonl", "json"]), default="jsonl", show_default=True)
@click.option("--mailbox", default="", shell_complete=completer("mailboxes"), help="Only this mailbox.")
@verb_option("export", "channel", shell_complete=completer("channels"))
@verb_option("export", "source", shell_complete=completer("sources_of_channels"))
@verb_option("export", "sender")
@click.option("--since", type=Moment(), help=f"Only messages received at this time or later: {MOMENTS}.")
@click.option("--until", type=Moment(), help="Only messages received before this time.")
@verb_option("export", "ledger")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, once complete.")
def export(asked: Invocation, *, layout: str, mailbox: str, output: Path | None, **chosen: object) -> None:
    """Export every message, oldest first, mailbox by mailbox.

    jsonl is one message per line; json, and --json, is one document {"messages": [...]}.
    """
    with asked.daemon() as daemon, _target(output) as stream:
        records = with_progress(
            _records(daemon, mailbox, {name: _plain(value) for name, value in chosen.items()}), "messages"
        )
        if asked.as_json or layout == "json":
            _write_document(stream, records)
        else:
            stream.writelines(json_text(record) + "\n" for record in records)
        stream.flush()


def _plain(value: object) -> object:
    """Return an option as the verb takes it."""
    return value.isoformat() if isinstance(value, datetime) else "" if value is None else value


def _records(daemon: DaemonClient, mailbox: str, chosen: Result) -> Iterator[Result]:
    for name in [mailbox] if mailbox else daemon.ask("mailboxes")["mailboxes"]:
        after = 0
        while page := daemon.ask("export", mailbox=name, after=after, limit=PAGE, **chosen)["messages"]:
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
