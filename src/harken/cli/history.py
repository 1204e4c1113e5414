"""The verbs `export` and `replay`: every message with who has seen it, and each mailbox as it was at a time.

`export` goes page by page, to stdout or a file. `replay` reads the files of the journal, which have everything as long
as they are there; what they lack is asked of the daemon, which has the newest events. What the events come to is in
`harken.inbox.replay`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, TextIO

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import BOLD, DIM, Screen, clock_time, cut, json_text, note_to_person
from harken.cli.progress import with_progress
from harken.cli.verbs import Moment, verb, verb_option
from harken.config.home import disk_error
from harken.control.client import DaemonClient, Result
from harken.display import one_line, reader_name
from harken.errors import NotFound, UserError
from harken.model import timestamp
from harken.times import MOMENTS

if TYPE_CHECKING:
    from harken.inbox.replay import ConsumerThen, JournalReplay, MailboxThen, MessageThen, ReplayLine, UntoldPart

MAX_SHOWN = 1_000
NAME_WIDTH = 20
MAX_NAMED = 2
STATES = ("queued", "offered", "seen", "answered", "expired", "refused")
PAGE = 500
DAY_FILES = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl"
_REMOVAL = b'"kind":"pruned"'


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


@verb("replay")
@click.option("--at", required=True, metavar="TIME", type=Moment(), help=f"When: {MOMENTS}.")
@click.option("--mailbox", default="", shell_complete=completer("mailboxes"), help="Only this mailbox.")
@click.option("--consumer", default="", shell_complete=completer("consumers"), help="Only this consumer.")
@click.option("--limit", default=50, show_default=True, help="Maximum number of messages per mailbox, newest first.")
def replay(asked: Invocation, *, at: datetime, mailbox: str, consumer: str, limit: int) -> None:
    """Show a mailbox as it was at a time, and what each consumer had been given.

    Read from the journal; says what the journal does not know.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "look back into every mailbox")
    if at > datetime.now().astimezone():
        raise UserError("That time has not come yet.", f"Give one that is over: {MOMENTS}.")
    if not 1 <= limit <= MAX_SHOWN:
        raise UserError(f"--limit is a number from 1 to {MAX_SHOWN}.", "The default is 50.")
    then = _replayed(asked, timestamp(at), mailbox, consumer, limit)
    found, unknown = then.mailboxes(), then.unknown()
    if mailbox and not found:
        raise NotFound(f"There was no mailbox {mailbox[:80]!r} then.", "Leave out --mailbox to see all there were.")
    if asked.gave_json({"at": timestamp(at), "mailboxes": list(map(_shape, found)), "unknown": asdict(unknown)}):
        return
    shown = [each for each in found if each.head or mailbox]
    for each in shown:
        _show(asked.screen, each)
    if not shown:
        note_to_person("Nothing had arrived by then.")
    for text in _doubts(unknown):
        note_to_person(text)


def _replayed(asked: Invocation, until: str, mailbox: str, consumer: str, limit: int) -> JournalReplay:
    from harken.cli.progress import with_progress
    from harken.inbox.replay import JournalReplay

    then = JournalReplay(mailbox=mailbox, consumer=consumer, most=limit)
    with asked.daemon() as daemon:
        for line, is_by_then in with_progress(events(asked.home.journal_dir, daemon, until), "events"):
            (then.add if is_by_then else then.add_later)(line)
    return then


def _shape(box: MailboxThen) -> dict[str, Any]:
    return {
        "mailbox": box.name,
        "head": box.head,
        "there": box.there,
        "pruned": box.pruned,
        "consumers": [
            {"consumer": each.consumer, "cursor": each.cursor, "unread": each.unread, "states": dict(each.counts)}
            for each in box.consumers
        ],
        "messages": [
            {"message": dict(each.record), "states": dict(each.states), "is_pruned": each.is_pruned}
            for each in box.messages
        ],
    }


def _show(screen: Screen, box: MailboxThen) -> None:
    gone = f", {box.pruned} of them removed since" if box.pruned else ""
    count = "1 message" if box.there == 1 else f"{box.there} messages"
    screen.line(screen.paint(screen.fit(f"{box.name}: {count}{gone}"), BOLD))
    if box.consumers:
        screen.table([("consumer", "cursor", "unread", *STATES), *(_row(each) for each in box.consumers)])
    if left := box.there - len(box.messages):
        screen.line(screen.paint(f"  the newest {len(box.messages)}; {left} older ones are not shown", DIM))
    screen.table([_message(each) for each in box.messages])
    screen.line()


def _row(each: ConsumerThen) -> tuple[str, ...]:
    counts = each.counts
    numbers = [str(counts[state]) if state in counts else "-" for state in STATES]
    return (cut(reader_name(each.consumer), NAME_WIDTH), f"#{each.cursor}", str(each.unread), *numbers)


def _message(each: MessageThen) -> tuple[str, ...]:
    record: Mapping[str, Any] = each.record
    text = str(record.get("content_text_sanitized", ""))
    return (
        f"#{record['seq']}",
        _when(str(record.get("received_at", ""))),
        cut(one_line(str(record.get("from", ""))), NAME_WIDTH),
        _standing(each.states) + ("; removed since" if each.is_pruned else ""),
        text,
    )


def _standing(states: Mapping[str, str]) -> str:
    """Return who had a message in which state; of many in one state only how many, so that the text has room."""
    names = {
        state: [reader_name(name) for name, found in states.items() if found == state] for state in reversed(STATES)
    }
    parts = [
        f"{state} {', '.join(who) if len(who) <= MAX_NAMED else f'{len(who)} consumers'}"
        for state, who in names.items()
        if who
    ]
    return "; ".join(parts) or "for no reader"


def _when(stamp: str) -> str:
    try:
        return clock_time(stamp)
    except ValueError:  # a line that somebody edited
        return "-"


def _doubts(unknown: UntoldPart) -> Sequence[str]:
    """Return what cannot be known, in sentences."""
    found = (
        (unknown.missing, "{} events before then have no line: their files are gone, and so is what they told."),
        (unknown.nameless, "{} messages came in of which only that is left."),
        (unknown.strange, "{} events are about messages whose arrival has no line; they are left out."),
        (
            unknown.removed,
            "{} messages were removed by an earlier version, which did not note which; some may be shown.",
        ),
    )
    return [text.format(count) for count, text in found if count]


def events(folder: Path, daemon: DaemonClient, until: str) -> Iterator[tuple[ReplayLine, bool]]:
    """Yield the events up to a time, each with True, and what retention removed later, each with False."""
    last = 0
    later: list[ReplayLine] = []
    for line in _of_files(folder, until):
        if line.at > until:
            later.append(line)
            continue
        if line.n > last + 1:
            yield from ((each, True) for each in _of_store(daemon, last, until) if each.n < line.n)
        last = max(last, line.n)
        yield line, True
    for each in _of_store(daemon, last, until):
        last = each.n
        yield each, True
    yield from ((each, False) for each in later)


def _of_files(folder: Path, until: str) -> Iterator[ReplayLine]:
    """Yield the lines of the files, day by day; of what is later than a time only what was removed."""
    from harken.inbox.replay import read_line

    for path in sorted(folder.glob(DAY_FILES)):
        is_later_day = path.stem > until[:10]
        try:
            with path.open("rb") as stream:
                for data in stream:
                    if is_later_day and _REMOVAL not in data:
                        continue
                    line = read_line(data)
                    if line is not None and (line.at <= until or line.kind == "pruned"):
                        yield line
        except OSError as exc:
            raise disk_error("read", path, exc) from exc


def _of_store(daemon: DaemonClient, after: int, until: str) -> Iterator[ReplayLine]:
    """Yield the events of the store that follow a number, up to a time."""
    from harken.inbox.replay import read_line
    from harken.memory import json_bytes

    while page := daemon.ask("journal", after=after, limit=PAGE)["events"]:
        for event in page:
            # The verb gives the message as a record too; replay reads both as they stand in the files.
            line = read_line(json_bytes(event))
            if line is not None and line.at <= until:
                yield line
        after = page[-1]["n"]
        if page[-1]["at"] > until:
            return
