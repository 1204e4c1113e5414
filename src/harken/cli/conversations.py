"""Your own order of what came: `conversations`, `done`, `snooze` and so on; `needs`, `waiting`, `approve`, `outbox`.

`waiting` is what was asked and not answered, `outbox` the replies that have not left. Which messages are questions, and
when you are reminded of them, is decided by the daemon. Answering is `reply`; `waiting done` is for what needs no
answer, `outbox retry` for replies that could not be sent. What a host asks before its agent uses a tool is answered by
`approve`, after it was shown whole: the answer names the hash of what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import click

from harken.cli.actions import show_action
from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.messages import standing
from harken.cli.output import BOLD, Screen, at_home, clock_time, cut, note_to_person, sender_of
from harken.cli.verbs import Length, Moment, or_subcommand, verb, verb_command, verb_option
from harken.control.client import Result
from harken.display import one_line
from harken.hosts.registry import title_of
from harken.model import timestamp
from harken.times import LENGTHS

VIEWS = ("open", "unread", "for-you", "snoozed", "done", "sent")
NAME_WIDTH = 20
_open = click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("conversations"))
_any = click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("messages"))


@verb_command("conversations")
@verb_option("conversations", "view", type=click.Choice(VIEWS), show_default=True)
@verb_option("conversations", "limit", show_default=True)
@verb_option("conversations", "before")
def conversations(asked: Invocation, *, view: str, limit: int, before: int) -> None:
    found = asked.ask("conversations", view=view, limit=limit, before=before)
    if not asked.gave_json(found):
        _show_conversations(asked.screen, found, view)


@verb_command("done")
@_open
def done(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("done", refs=list(refs))
    if not asked.gave_json(result):
        _told(asked.screen, result, "done", "is done")


@verb_command("snooze")
@_open
@click.option("--for", "seconds", metavar="TIME", type=Length(), help=f"For this long: {LENGTHS}.")
@click.option("--until", metavar="TIME", type=Moment(), help="Until then: 14:00, tomorrow 9:00, 2026-01-05T09:00.")
def snooze(asked: Invocation, *, refs: tuple[str, ...], seconds: float | None, until: datetime | None) -> None:
    named = timestamp(until.astimezone(UTC)) if until else ""
    result = asked.ask("snooze", refs=list(refs), seconds=seconds, until=named)
    if not asked.gave_json(result):
        _told(asked.screen, result, "snoozed", "is put off until")


@verb_command("reopen")
@_any
def reopen(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("reopen", refs=list(refs))
    if not asked.gave_json(result):
        _told(asked.screen, result, "open", "is in your list")


@verb_command("unread")
@_any
@verb_option("unread", "is_read")
def unread(asked: Invocation, *, refs: tuple[str, ...], is_read: bool) -> None:
    result = asked.ask("unread", refs=list(refs), is_read=is_read)
    if asked.gave_json(result):
        return
    for each in result["conversations"]:
        asked.screen.line(f"{one_line(each['newest']['id'])}  is {'read' if is_read else 'unread'}")


def _told(screen: Screen, result: Result, state: str, what: str) -> None:
    for each in result["conversations"]:
        told, until = what, f" {clock_time(each['until'])}" if each["until"] else ""
        if each["state"] != state:
            told, until = f"stays in your list: there is something newer, {one_line(each['newest_id'])}", ""
        screen.line(f"{one_line(each['message_id'])}  {told}{until}")


def _show_conversations(screen: Screen, found: Result, view: str) -> None:
    screen.table([_conversation_row(each) for each in found["conversations"]])
    if not found["conversations"]:
        note_to_person("Nothing is left to decide." if view == "open" else "There is nothing here.")
    elif view == "open":
        left = found["counts"]["open"] - len(found["conversations"])
        more = f"{left} more. " if left > 0 else ""
        note_to_person(f"{more}Read: harken read ID. Done: harken done ID. Later: harken snooze ID")


def _conversation_row(each: Result) -> tuple[str, ...]:
    newest = each["newest"]
    count = f"({each['count']})" if each["count"] > 1 else ""
    return (
        newest["id"],
        "unread" if each["is_unread"] else clock_time(each["until"]) if each["until"] else "",
        cut(sender_of(newest), NAME_WIDTH),
        cut(one_line(newest["channel"] or newest["source"]), NAME_WIDTH),
        count,
        newest["content_text_sanitized"],
    )


CLOCK_WIDTH = 5
NEXT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "approval": "harken approve {}",
        "confirm": "harken channel confirm {}",
        "question": "harken reply {} TEXT",
        "reply": "harken outbox retry {}",
        "sign-in": "harken source login {}",
        "source": "harken source test {}",
        "sender": "harken read {}",
        "agent": "harken rules reload",
        "rule": "harken rules list",
    }
)


@verb_command("needs")
def needs(asked: Invocation) -> None:
    found = asked.ask("needs")
    if asked.gave_json(found):
        return
    if asked.screen.width:
        for each in found["needs"]:
            _show_need(asked.screen, each)
    else:
        asked.screen.table([_need_row(each) for each in found["needs"]])
    if not found["needs"]:
        note_to_person("Nothing needs you.")


def _show_need(screen: Screen, each: Result) -> None:
    """Print what needs you, and below it what to do about it: a command that is cut is of no use."""
    since, said, command, about = _need_row(each)
    screen.line(screen.fit(f"  {since:<{CLOCK_WIDTH}}  {said}"))
    screen.line(screen.fit(f"{' ' * (CLOCK_WIDTH + 4)}{command}  {about}"))


def _need_row(each: Result) -> tuple[str, ...]:
    since = clock_time(each["since"]) if each["since"] else ""
    command = at_home(NEXT.get(each["kind"], "{}").format(one_line(each["ref"])))
    return (since, one_line(each["said"]), command, one_line(each["about"]))


@or_subcommand
@verb_command("questions", "waiting")
@verb_option("questions", "mailbox", shell_complete=completer("mailboxes"))
@verb_option("questions", "limit", show_default=True)
def waiting(asked: Invocation, *, mailbox: str, limit: int) -> None:
    """First come the agents that ask before they use a tool: answer them with `harken approve ID`.

    Answer a message with `harken reply ID TEXT`, or take it off the list with `harken waiting done ID`.
    """
    found = asked.ask("questions", mailbox=mailbox, limit=limit)
    if asked.as_json:
        asked.print_json(found)
    else:
        _show_questions(asked.screen, found)


@verb_command("question_done", "done")
@click.argument("refs", nargs=-1, required=True, metavar="ID...", shell_complete=completer("open_questions"))
def no_answer(asked: Invocation, *, refs: tuple[str, ...]) -> None:
    result = asked.ask("question_done", refs=list(refs))
    if asked.gave_json(result):
        return
    for message_id in result["settled"]:
        asked.screen.line(f"{one_line(message_id)}  needs no answer")


waiting.add_command(no_answer)


def _show_questions(screen: Screen, found: Result) -> None:
    # An earlier version of the daemon has none.
    asked = found.get("approvals", [])
    show_approvals(screen, asked)
    if asked:
        note_to_person(_HOW)
    screen.table([_question_row(each) for each in found["questions"]])
    if not found["count"]:
        note_to_person("No unanswered questions.")
        return
    left = found["count"] - len(found["questions"])
    screen.line(one_line(found["sentence"]) + (f", {left} of them not shown" if left > 0 else ""))
    note_to_person("Answer: harken reply ID TEXT. If none is needed: harken waiting done ID")


def _question_row(question: Result) -> tuple[str, ...]:
    record = question["message"]
    return (
        record["id"],
        cut(sender_of(record), NAME_WIDTH),
        cut(one_line(record["channel"] or record["source"]), NAME_WIDTH),
        question["how_long"],
        standing(question),
        record["content_text_sanitized"],
    )


ACTION = "a-"
ANSWERS = ("once", "always", "no")
WORDS = "answer"
_HOW = 'Answer: harken approve ID once, or harken approve ID no "REASON"'
_HOW_IN_WORDS = 'Answer: harken approve ID answer "ANSWER", one for each question, or harken approve ID no'


@verb("approve")
@click.argument("ref", metavar="[ID]", default="", shell_complete=completer("open_approvals"))
@click.argument("choice", metavar="[once|always|no|answer]", default="", type=click.Choice(["", *ANSWERS, WORDS]))
@click.argument("said", metavar="[REASON | ANSWER...]", nargs=-1)
def approve(asked: Invocation, *, ref: str, choice: str, said: tuple[str, ...]) -> None:
    """Answer an agent that asks before it uses a tool, or asks you a question. Without ID, show what they ask.

    With an ID alone, show what is asked, whole. REASON is for the agent, with no. With answer, give an ANSWER to each
    question: an option, or other words. The first answer counts, also one in the agent's own terminal. The ID of a
    rule's question is answered like `harken channel confirm` does.
    """
    reason = ("\n" if choice == WORDS else " ").join(said)
    with asked.daemon() as daemon:
        if ref.startswith(ACTION) and choice in ANSWERS:
            found = daemon.ask("confirm", action=ref, yes=choice != "no")
            if not asked.gave_json(found):
                show_action(asked.screen, found)
            return
        if not ref:
            found = daemon.ask("approvals")
        else:
            found = daemon.ask("approval", approval=ref)
            if choice:
                found = daemon.ask(
                    "approve", approval=found["id"], choice=choice, digest=found["digest"], reason=reason
                )
    if asked.gave_json(found):
        return
    listed = found["approvals"] if not ref else [found]
    show_approvals(asked.screen, listed)
    if not listed:
        note_to_person("No agent asks you anything.")
    elif waiting := [each for each in listed if each["state"] == "open"]:
        note_to_person(_HOW if any("once" in each["choices"] for each in waiting) else _HOW_IN_WORDS)


def show_approvals(screen: Screen, approvals: Sequence[Result]) -> None:
    """Print what hosts ask, whole: a command that is cut would be answered unseen."""
    for each in approvals:
        what = "asks you a question" if WORDS in each["choices"] else f"asks to use {one_line(each['tool'])}"
        head = f"{one_line(each['id'])}  {title_of(each['host'])} {what}"
        screen.flow(head, "", 0, BOLD)
        for part in each["parts"]:
            screen.line(f"  {screen.fit(part['name'], 3)}:")
            screen.text(part["text"])
        rows = [("in", each["folder"]), ("because", each["why"]), ("asked", clock_time(each["asked_at"]))]
        if "always" in each["choices"]:
            rows.append(("always", f"allows {each['always']}" if each["always"] else "as the agent decides"))
        if not each.get("carries_reason", True):
            rows.append(("no", "the agent is not told why"))
        for name, text in rows:
            if text:
                screen.flow(text, f"  {name}: ", len(name) + 4)
        if each["state"] != "open":
            screen.line(screen.fit(f"  {each['state']}: {_outcome(each)}"))


def _outcome(approval: Result) -> str:
    """Return what became of it, in a few words."""
    if not approval["answered_by"]:
        return one_line(approval["because"])
    said = f"{approval['choice']}, by {one_line(approval['answered_by'])} ({one_line(approval['through'])})"
    return f"{said}. {one_line(approval['because'])}" if approval["because"] else said


@or_subcommand
@verb_command("outbox")
@verb_option("outbox", "state", type=click.Choice(["queued", "parked", "sent"]), default=None)
def outbox(asked: Invocation, *, state: str | None) -> None:
    found = asked.ask("outbox", state=state or "")
    if asked.as_json:
        asked.print_json(found)
    else:
        _show_replies(asked.screen, found["replies"])


@verb_command("outbox_retry", "retry")
@click.argument("replies", nargs=-1, required=True, metavar="ID...")
@verb_option("outbox_retry", "is_unsent")
def retry(asked: Invocation, *, replies: tuple[str, ...], is_unsent: bool) -> None:
    """If a reply may have been sent after all, Harken first asks the service.

    If the service cannot be asked, as for a bot, look into the conversation yourself and add --not-sent.
    """
    result = asked.ask("outbox_retry", replies=list(replies), is_unsent=is_unsent)
    if asked.gave_json(result):
        return
    for reply in result["replies"]:
        asked.screen.line(f"{one_line(reply['reply_id'])}  {one_line(reply['state'])}")


outbox.add_command(retry)


def _show_replies(screen: Screen, replies: list[Result]) -> None:
    screen.table([_reply_row(each) for each in replies])
    if not replies:
        note_to_person("All replies have been sent.")
    elif any(each["state"] == "parked" for each in replies):
        note_to_person("Try a parked one again: harken outbox retry ID")


def _reply_row(reply: Result) -> tuple[str, ...]:
    why = reply["error"] if reply["state"] != "sent" else ""
    return (reply["reply_id"], reply["state"], reply["message_id"], one_line(why), one_line(reply["body"]))
