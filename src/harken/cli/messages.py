"""The verbs for messages: saying, taking, looking and answering."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from math import isnan
from time import monotonic

import click

from harken.cli.complete import channels, consumers, mailboxes, messages
from harken.cli.output import Screen, clock_time, is_yours, note_to_person, place_of
from harken.cli.verbs import Invocation, verb_command, verb_option
from harken.control.client import DaemonClient, Result
from harken.display import YOU, author_name, one_line, reader_name
from harken.errors import TooLong, UserError

MOST_SHOWN = 1_000  # by one answer, whatever was asked for
MOST_TAKEN = 100
MAX_INPUT_BYTES = 8 * 1024 * 1024
SPARE_SECONDS = 15.0
WAIT_SECONDS = 50.0
PRIORITIES = click.Choice(["high", "normal", "low"])


class Seconds(click.FloatRange):
    """A number of seconds that ends."""

    def __init__(self) -> None:
        super().__init__(min=0, max=86_400)

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse what compares with nothing: a loop until then would not end."""
        seconds = float(super().convert(value, param, ctx))
        return self.fail(f"{value!r} is not a number of seconds.", param, ctx) if isnan(seconds) else seconds


@verb_command("send")
@click.argument("text", nargs=-1)
@verb_option("send", "sender", metavar="NAME")
@verb_option("send", "channel", shell_complete=channels)
@verb_option("send", "to", metavar="MAILBOX", shell_complete=mailboxes)
@verb_option("send", "priority", type=PRIORITIES, show_default=True)
@verb_option("send", "conversation")
@verb_option("send", "upstream_id")
@verb_option("send", "as_file")
def send(asked: Invocation, *, text: tuple[str, ...], upstream_id: str, **options: str | bool) -> None:
    """TEXT is joined with spaces; `-`, or no text and a pipe, reads it from stdin.

    One that is too long is refused; with --as-file, to a task, it becomes a file in the task's folder.
    """
    body = text_or_stdin(text, 'Say something: harken send "the build is red"')
    # Named here and not by the daemon: it is sent again when the connection breaks, and must be stored once.
    key = upstream_id or f"cli-{os.urandom(12).hex()}"
    with asked.daemon() as daemon:
        sent = daemon.ask("send", text=body, upstream_id=key, **options)
        was_tried = daemon.tries > 1 and not upstream_id
    if asked.gave_json(sent):
        return
    sentence = sent["forecast"]["sentence"]
    if was_tried and sent["state"] == "known":
        sentence = "is stored; the daemon was restarted meanwhile"
    print(f"{one_line(sent['id'])}  {one_line(sent['mailbox'])} #{sent['seq']}  {one_line(sentence)}")
    note_file(sent)


@verb_command("list")
@verb_option("list", "mailbox", shell_complete=mailboxes)
@verb_option("list", "channel", shell_complete=channels)
@verb_option("list", "sender")
@verb_option("list", "limit", show_default=True)
@verb_option("list", "before", metavar="SEQ")
def list_messages(asked: Invocation, **options: str | int) -> None:
    with asked.daemon() as daemon:
        found = daemon.ask("list", **options)
        mailbox = str(options["mailbox"])
        is_known = not mailbox or bool(found["messages"]) or mailbox in daemon.ask("mailboxes")["mailboxes"]
    _show_rows(asked, found, "No messages." if is_known else f"There is no mailbox {mailbox[:80]!r}.")
    _note_most(asked, options["limit"], "Older ones: --before SEQ")


@verb_command("search")
@click.argument("words", nargs=-1, required=True)
@verb_option("search", "mailbox", shell_complete=mailboxes)
@verb_option("search", "channel", shell_complete=channels)
@verb_option("search", "sender")
@verb_option("search", "limit", show_default=True)
def search(asked: Invocation, *, words: tuple[str, ...], **options: str | int) -> None:
    found = asked.ask("search", text=" ".join(words), **options)
    _show_rows(asked, found, "No message contains all of that.")
    _note_most(asked, options["limit"], "More words find fewer.")


@verb_command("read")
@click.argument("ref", metavar="ID", shell_complete=messages)
@verb_option("read", "offset", type=click.IntRange(min=0), metavar="N")
@verb_option("read", "limit", type=click.IntRange(min=1), metavar="CHARS")
def read(asked: Invocation, *, ref: str, offset: int | None, limit: int | None) -> None:
    """ID is a message id, its beginning, or #seq."""
    found = asked.ask("read", ref=ref, offset=offset, limit=limit)
    if asked.as_json:
        asked.print_json(found)
    elif "offset" in found:
        _show_piece(asked.screen, found, limit)
    else:
        _show_details(asked.screen, found)


@verb_command("pull")
@verb_option("pull", "consumer", shell_complete=consumers)
@verb_option("pull", "channel", shell_complete=channels)
@verb_option("pull", "limit", show_default=True)
@verb_option("pull", "peek")
def pull(asked: Invocation, **options: str | int | bool) -> None:
    """It counts as seen when it was printed."""
    with asked.daemon() as daemon:
        pulled = daemon.ask("pull", **options)
        hand_over(asked, daemon, pulled, _show_offered, pulled["unread_remaining"])
    if not asked.as_json:
        _note_most_taken(int(options["limit"]), pulled)
    if not pulled["messages"] and not asked.as_json:
        note_to_person("Nothing is unread.")


@verb_command("wait")
@verb_option("wait", "consumer", shell_complete=consumers)
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, type=Seconds(), help="Seconds to wait.")
@verb_option("wait", "limit", show_default=True)
def wait(asked: Invocation, *, timeout: float, consumer: str, limit: int) -> None:
    """Exits with 0 also when nothing came. Ctrl-C takes nothing."""
    end = monotonic() + timeout
    with asked.daemon() as daemon:
        while True:
            # The daemon waits a minute at most; somebody who wants to wait longer asks again.
            part = min(max(0.0, end - monotonic()), WAIT_SECONDS)
            found = daemon.ask_within(part + SPARE_SECONDS, "wait", timeout=part, consumer=consumer, limit=limit)
            if found["messages"] or monotonic() >= end:
                break
        hand_over(asked, daemon, found, _show_offered, found["unread_remaining"])
    if not found["messages"] and not asked.as_json:
        note_to_person(f"Nothing came within {timeout:g} second{'' if timeout == 1 else 's'}.")


@verb_command("ack")
@click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=messages)
@verb_option("ack", "consumer", shell_complete=consumers)
def ack(asked: Invocation, *, refs: tuple[str, ...], consumer: str) -> None:
    result = asked.ask("ack", refs=list(refs), consumer=consumer)
    if asked.gave_json(result):
        return
    if not result["acknowledged"]:
        note_to_person("All of that was seen before.")
    for message_id in result["acknowledged"]:
        print(f"{one_line(message_id)}  seen by {reader_name(consumer or YOU)}")


@verb_command("reply")
@click.argument("ref", metavar="ID", shell_complete=messages)
@click.argument("text", nargs=-1)
def reply(asked: Invocation, *, ref: str, text: tuple[str, ...]) -> None:
    """`-`, or no TEXT and a pipe, reads stdin."""
    body = text_or_stdin(text, f'Say what to answer: harken reply {ref} "thank you"')
    result = asked.ask("reply", ref=ref, body=body, key=os.urandom(12).hex())
    if asked.gave_json(result):
        return
    print(f"{one_line(result['reply_id'])}  answers {one_line(result['message_id'])}  {one_line(result['state'])}")


def text_or_stdin(words: tuple[str, ...], hint: str) -> str:
    """Return what is to be said: the words, or what a pipe gives."""
    if words and words != ("-",):
        return " ".join(words)
    if not words and sys.stdin.isatty():
        raise UserError("There is no text.", hint)
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        # What is longer still was not read: nobody knows how long it is.
        message = f"The text has more than {MAX_INPUT_BYTES:,} bytes."
        raise TooLong(message, "Put it in a file, and name that file.", length=len(data), limit=MAX_INPUT_BYTES)
    return data.decode(errors="replace").rstrip("\n")


def hand_over(
    asked: Invocation, daemon: DaemonClient, offered: Result, show: Callable[[Screen, Result], None], left: int
) -> None:
    """Print what was offered, and only then say that it was shown: after an error it is offered again."""
    if asked.as_json:
        asked.print_json(offered)
    else:
        for record in offered["messages"]:
            show(asked.screen, record)
        note_cut(offered["messages"])
        if offered["messages"] and left:
            note_to_person("1 more waits." if left == 1 else f"{left} more wait.")
    sys.stdout.flush()
    shown = [record["delivery_id"] for record in offered["messages"] if record["delivery_id"]]
    if shown:
        daemon.ask("prove", deliveries=shown)


def _show_offered(screen: Screen, record: Result) -> None:
    if "truncated" in record:
        screen.row(record, f"(cut, {record['length']} characters)")
    else:
        screen.message(record, _note(record))


def note_file(sent: Result) -> None:
    """Say where in a task's folder a text was put."""
    if "file" in sent:
        note_to_person(f"The text is in the task's folder: {one_line(sent['file'])}")


def _note_most_taken(limit: int, pulled: Result) -> None:
    if limit > MOST_TAKEN and len(pulled["messages"]) == MOST_TAKEN:
        note_to_person(f"At most {MOST_TAKEN} are taken at once. The next: the same command again.")


def note_cut(records: list[Result]) -> None:
    """Say how an agent reads what does not fit into what its host shows."""
    if any("truncated" in record for record in records):
        note_to_person(
            "What is cut stays unread: harken read ID --offset 0 reads it in pieces, harken ack ID marks it as seen."
        )


def _note(record: Result) -> str:
    words = ["repeat"] if record["repeat"] else []
    words += [f"answered by {reader_name(record['answered_by'])}"] if record["answered_by"] else []
    return f"({', '.join(words)})" if words else ""


def _show_rows(asked: Invocation, found: Result, nothing: str) -> None:
    if asked.gave_json(found):
        return
    for record in found["messages"]:
        asked.screen.row(record)
    if not found["messages"]:
        note_to_person(nothing)


def _note_most(asked: Invocation, limit: str | int, hint: str) -> None:
    if int(limit) > MOST_SHOWN and not asked.as_json:
        note_to_person(f"At most {MOST_SHOWN} are shown at once. {hint}")


def _show_piece(screen: Screen, found: Result, limit: int | None) -> None:
    screen.message(found["message"])
    ref, following, length = one_line(found["message"]["id"]), found["next_offset"], found["length"]
    if following is not None:
        more = f"--offset {following}" + (f" --limit {limit}" if limit else "")
        note_to_person(f"Up to character {following} of {length}. The next: harken read {ref} {more}")
    elif (written := found["message"].get("cut_from")) is not None:
        note_to_person(f"It was cut when it came: {length:,} of {written:,} characters are stored.")


def _show_details(screen: Screen, details: Result) -> None:
    record = details["message"]
    screen.message(record)
    who = YOU if is_yours(record) else record["sender_id"]
    facts = [record["mailbox"] + " " + place_of(record).split()[-1], f"from {who}"]
    facts += [
        "your own word" if record["trust"] == "owner" else f"trust {record['trust']}",
        record["kind"],
        f"{record['priority']} priority",
        f"attention {record['attention']}",
    ]
    facts += [f"refers to {record['refers_to']}"] if record["refers_to"] else []
    screen.line("  " + screen.paint(screen.fit(" · ".join(facts), 2), "2"))
    if (length := record.get("cut_from")) is not None:
        kept = len(record["content_text_sanitized"])
        screen.line(f"Cut when it came: {kept:,} of {length:,} characters are stored.")
    if question := details["question"]:
        from harken.cli.waiting import standing

        screen.line(f"Waits for an answer, for {one_line(question['how_long'])}: {standing(question)}")
    rows = [_ledger_row(entry) for entry in details["ledger"]]
    rows += [
        (reader_name(name), "not given", "older, or one of too many, when it began")
        for name in details.get("not_given", ())
    ]
    screen.line("Ledger:" if rows else "Ledger: no agent reads this mailbox yet.")
    screen.table(rows)
    for answer in details["replies"]:
        error = f" ({one_line(answer['error'])})" if answer["error"] else ""
        when, who = clock_time(answer["created_at"]), author_name(answer["author"])
        screen.line(f"Reply {one_line(answer['reply_id'])} {when} by {who}, {one_line(answer['state'])}{error}:")
        screen.text(answer["body"])


def _ledger_row(entry: Result) -> tuple[str, ...]:
    if "delivery_id" not in entry:
        return (reader_name(entry["consumer"]), entry["state"], "")
    is_over = entry["state"] in ("expired", "refused")
    words = [f"offered {clock_time(entry['offered_at'])} by {entry['surface']}"] if entry["offers"] else []
    words += [f"{entry['offers']} times"] if entry["offers"] > 1 else []
    words += [clock_time(entry["offered_at"])] if is_over and not entry["offers"] else []
    words += [f"seen {clock_time(entry['seen_at'])} ({entry['evidence']})"] if entry["seen_at"] else []
    words += [f"answered {clock_time(entry['answered_at'])}"] if entry["answered_at"] else []
    words += [entry["reason"]] if entry["reason"] else []
    return (reader_name(entry["consumer"]), entry["state"], ", ".join(words))
