"""What the verbs for messages do and print: saying, taking, looking. Their words are declared in `message_commands.py`.

It is imported without click: what it imports is what `harken send` costs.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from harken.cli.output import clock_time, is_yours, note_to_person, place_of
from harken.display import YOU, author_name, one_line, reader_name
from harken.errors import NotFound, TooLong, UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harken.cli.invocation import Invocation
    from harken.cli.output import Screen
    from harken.control.client import DaemonClient, Result

MAX_SHOWN = 1_000  # by one answer, whatever was asked for
MAX_TAKEN = 100
MAX_INPUT_BYTES = 8 * 1024 * 1024
SPARE_SECONDS = 15.0
WAIT_SECONDS = 50.0
TIMING = ("at", "delay", "when", "after_turn")


def send(asked: Invocation, *, text: tuple[str, ...], upstream_id: str, **options: str | bool | None) -> None:
    """Send a message, and print what will happen to it."""
    timing = timing_of({name: options.pop(name, "") for name in TIMING})
    body = text_or_stdin(text, 'Say something: harken send "the build is red"')
    # Named here and not by the daemon: it is sent again when the connection breaks, and must be stored once.
    key = upstream_id or f"cli-{os.urandom(12).hex()}"
    with asked.daemon() as daemon:
        # What was not said is left out: a daemon of another version may take nothing in its place.
        said = {name: value for name, value in options.items() if value is not None}
        sent = daemon.ask("send", text=body, upstream_id=key, **said, **timing)
        was_tried = daemon.tries > 1 and not upstream_id
    if asked.gave_json(sent):
        return
    sentence = sent["forecast"]["sentence"]
    if was_tried and sent["state"] == "known":
        sentence = "is stored; the daemon was restarted meanwhile"
    print_sent(sent, sentence)


def timing_of(said: Mapping[str, str | bool | None]) -> dict[str, str]:
    """Return when a message is to be delivered, as the daemon takes it: nothing for at once.

    A time is that of this machine; the daemon may be on another.
    """
    at, delay, when, after_turn = (str(said[name] or "") for name in TIMING)
    if (at and delay) or (when and after_turn):
        raise UserError("That is said twice.", "Use one of --at and --in, and one of --when and --after-turn.")
    timing = {"when": when or "turn"} if when or after_turn else {}
    if at or delay:
        from datetime import datetime

        from harken.times import COMING, LENGTHS, parse_moment

        try:
            timing["at"] = parse_moment(at or f"in {delay}", datetime.now().astimezone()).isoformat()
        except ValueError as exc:
            hint = f"Write --at as {COMING}, --in as {LENGTHS}."
            raise UserError(f"{(at or delay)[:40]!r} is not a time.", hint) from exc
    return timing


def print_sent(sent: Result, sentence: str) -> None:
    """Print what became of a message that was sent."""
    place = f" #{sent['seq']}" if sent["seq"] else ""
    print(f"{one_line(sent['id'])}  {one_line(sent['mailbox'])}{place}  {one_line(sentence)}")
    note_file(sent)


def list_messages(asked: Invocation, **options: str | int) -> None:
    """Print the newest messages."""
    with asked.daemon() as daemon:
        found = daemon.ask("list", **options)
        mailbox = str(options["mailbox"])
        scheduled = found.get("scheduled", ())  # an earlier version of the daemon has none
        if mailbox and not found["messages"] and not scheduled and mailbox not in daemon.ask("mailboxes")["mailboxes"]:
            raise NotFound(f"There is no mailbox {mailbox[:80]!r}.", "`harken status --all` names those that exist.")
    show_rows(asked, found, "" if scheduled else "No messages.")
    for record in scheduled if not asked.as_json else ():
        asked.screen.row(record, f"({one_line(record['scheduled']['sentence'])})")
    note_most(asked, options["limit"], "Older ones: --before SEQ")


def read(asked: Invocation, *, ref: str, offset: int | None, limit: int | None) -> None:
    """Print a message, who has it, and the replies to it; or a part of its text."""
    found = asked.ask("read", ref=ref, offset=offset, limit=limit)
    if asked.as_json:
        asked.print_json(found)
    elif "offset" in found:
        _show_piece(asked.screen, found, limit)
    else:
        _show_details(asked.screen, found)


def wait(asked: Invocation, *, timeout: float, consumer: str, limit: int) -> None:
    """Print what is unread, waiting for it."""
    end = monotonic() + timeout
    with asked.daemon() as daemon:
        while True:
            # The daemon waits a minute at most; somebody who wants to wait longer asks again.
            part = min(max(0.0, end - monotonic()), WAIT_SECONDS)
            found = daemon.ask_within(part + SPARE_SECONDS, "wait", timeout=part, consumer=consumer, limit=limit)
            if found["messages"] or monotonic() >= end:
                break
        hand_over(asked, daemon, found, show_offered, found["unread_remaining"])
    if not found["messages"] and not asked.as_json:
        note_to_person(f"Nothing arrived within {timeout:g} second{'' if timeout == 1 else 's'}.")


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
    asked: Invocation, daemon: DaemonClient, offered: Result, show: Callable[[Screen, Result], None], left: int | None
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


def show_offered(screen: Screen, record: Result) -> None:
    """Print a message that was taken: whole, or what there is of it."""
    if "truncated" in record:
        screen.row(record, f"(cut, {record['length']} characters)")
    else:
        screen.message(record, _note(record))


def note_file(sent: Result) -> None:
    """Say where in a task's folder a text was put."""
    if "file" in sent:
        note_to_person(f"The text is in the task's folder: {one_line(sent['file'])}")


def note_most_taken(limit: int, pulled: Result) -> None:
    """Say that no more than a bound are taken at once."""
    if limit > MAX_TAKEN and len(pulled["messages"]) == MAX_TAKEN:
        note_to_person(f"At most {MAX_TAKEN} are taken at once. For more, run the command again.")


def note_cut(records: list[Result]) -> None:
    """Say how an agent reads what does not fit into what its host shows."""
    if any("truncated" in record for record in records):
        note_to_person(
            "Messages that were cut stay unread. Read one in pieces: harken read ID --offset 0."
            " Mark it as seen: harken ack ID"
        )


def _note(record: Result) -> str:
    words = ["repeat"] if record["repeat"] else []
    words += [f"answered by {reader_name(record['answered_by'])}"] if record["answered_by"] else []
    return f"({', '.join(words)})" if words else ""


def show_rows(asked: Invocation, found: Result, nothing: str) -> None:
    """Print messages, a line for each, or that there are none."""
    if asked.gave_json(found):
        return
    for record in found["messages"]:
        asked.screen.row(record)
    if not found["messages"] and nothing:
        note_to_person(nothing)


def note_most(asked: Invocation, limit: str | int, hint: str) -> None:
    """Say that no more than a bound are shown, and how to see others."""
    if int(limit) > MAX_SHOWN and not asked.as_json:
        note_to_person(f"At most {MAX_SHOWN} are shown at once. {hint}")


def _show_piece(screen: Screen, found: Result, limit: int | None) -> None:
    screen.message(found["message"])
    ref, following, length = one_line(found["message"]["id"]), found["next_offset"], found["length"]
    if following is not None:
        more = f"--offset {following}" + (f" --limit {limit}" if limit else "")
        note_to_person(f"Up to character {following} of {length}. The next: harken read {ref} {more}")
    elif (written := found["message"].get("cut_from")) is not None:
        note_to_person(f"Cut on arrival: {length:,} of {written:,} characters are stored.")


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
    screen.flow(" · ".join(facts), "  ", 2, "2")
    if (length := record.get("cut_from")) is not None:
        kept = len(record["content_text_sanitized"])
        screen.line(f"Cut on arrival: {kept:,} of {length:,} characters are stored.")
    if scheduled := details.get("scheduled"):
        by = f" by {author_name(scheduled['withdrawn_by'])}" if scheduled["withdrawn_by"] else ""
        screen.line(f"It {one_line(scheduled['sentence'])}{by}.")
    if question := details["question"]:
        screen.line(f"Waits for an answer, for {one_line(question['how_long'])}: {standing(question)}")
    for verdict in details["rules"]:
        why = f": {one_line(verdict['reason'])}" if verdict["reason"] else ""
        action = f", {one_line(verdict['action'])}" if verdict["action"] else ""
        screen.line(
            f"Rule {one_line(verdict['rule'])} ({verdict['mode']}): {one_line(verdict['outcome'])}{action}{why}"
        )
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


def standing(question: Result) -> str:
    """Return how far a question got, in a few words."""
    if question["has_reply"]:
        return "an answer is on its way"
    seen = "seen by an agent" if question["is_seen"] else "no agent has seen it"
    count = question["reminders"]
    return f"{seen}, {'1 reminder' if count == 1 else f'{count} reminders'}" if count else seen


def _ledger_row(entry: Result) -> tuple[str, ...]:
    if "delivery_id" not in entry:
        return (reader_name(entry["consumer"]), entry["state"], "")
    is_over = entry["state"] in ("expired", "refused")
    way = f" by {entry['surface']}" if entry["surface"] else ""
    # An earlier version of the daemon does not say it.
    way += f" on {entry['machine']}" if entry.get("machine") else ""
    words = [f"offered {clock_time(entry['offered_at'])}{way}"] if entry["offers"] else []
    words += [f"{entry['offers']} times"] if entry["offers"] > 1 else []
    words += [clock_time(entry["offered_at"])] if is_over and not entry["offers"] else []
    words += [f"seen {clock_time(entry['seen_at'])} ({entry['evidence']})"] if entry["seen_at"] else []
    words += [f"answered {clock_time(entry['answered_at'])}"] if entry["answered_at"] else []
    words += [entry["reason"]] if entry["reason"] else []
    return (reader_name(entry["consumer"]), entry["state"], ", ".join(words))
