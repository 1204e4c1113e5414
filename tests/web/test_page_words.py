"""What the page says in words: who spoke, what became of a message, what a place's signs mean."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.inbox.results import ChannelLine, LedgerEntry, TaskProgress
from harken.inbox.views import MailboxLine, MailOverview, TimelineItem
from harken.model import (
    INBOX,
    REPLIES,
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    Mailbox,
    Message,
    Sender,
    SessionKey,
    Task,
    TaskId,
    TaskState,
    Trust,
)
from harken.surfaces.web.page.links import channel_href, mailbox_href
from harken.surfaces.web.page.messages import LedgerStep, ledger_of, sender_of
from harken.surfaces.web.page.rendering import once_key
from harken.surfaces.web.page.sidebar import sections_of
from tests.builders import a_message

AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LATER = AT + timedelta(minutes=3)
MESSAGE = a_message(received_at=AT, channel="general", sender=Sender("ann@example.org", "Ann"))


def entry(consumer: str, state: DeliveryState, surface: str = "hook: tool", **more: str) -> LedgerEntry:
    """Return a consumer's line of a ledger, as far as its state goes."""
    delivery = Delivery(
        id=DeliveryId(f"d-{consumer}"),
        message_id=MESSAGE.id,
        consumer=Consumer(consumer),
        state=state,
        surface=surface,
        session=SessionKey("s"),
        offered_at=AT,
        seen_at=LATER if state in (DeliveryState.SEEN, DeliveryState.ANSWERED) else None,
        evidence="later step" if state in (DeliveryState.SEEN, DeliveryState.ANSWERED) else "",
        answered_at=LATER if state is DeliveryState.ANSWERED else None,
        reason=more.get("reason", ""),
    )
    return LedgerEntry(
        consumer=Consumer(consumer), state=state, delivery=None if state is DeliveryState.QUEUED else delivery
    )


def item(*ledger: LedgerEntry, message: Message = MESSAGE) -> TimelineItem:
    """Return a message with a ledger."""
    return TimelineItem(message=message, ledger=ledger, replies=())


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (DeliveryState.QUEUED, LedgerStep(text="waiting for codex")),
        (DeliveryState.OFFERED, LedgerStep(text="offered to codex", at=AT, note="not proven yet")),
        (DeliveryState.SEEN, LedgerStep(text="seen by codex", at=LATER, note="between tool calls")),
        (DeliveryState.ANSWERED, LedgerStep(text="answered by codex", at=LATER)),
        (DeliveryState.EXPIRED, LedgerStep(text="expired for codex", note="why")),
        (DeliveryState.REFUSED, LedgerStep(text="refused by codex", note="why")),
        (DeliveryState.FAILED, LedgerStep(text="failed for codex", note="why")),
    ],
)
def test_ledger_says_each_state_in_a_line(state: DeliveryState, line: LedgerStep) -> None:
    """No state may be without words: what cannot be seen would be silently unread."""
    ledger = ledger_of(item(entry("codex", state, reason="why")))
    assert ledger is not None
    assert (ledger.state, ledger.line, ledger.rest) == (state.value, line, "")
    assert ledger.courses[0].steps


def test_you_are_you_in_a_ledger_and_not_your_stored_name() -> None:
    """`watch` is what the store calls you; in the page it would be one more name for one person."""
    ledger = ledger_of(item(entry("watch", DeliveryState.SEEN)))
    assert ledger is not None
    assert (ledger.line.text, ledger.courses[0].consumer) == ("seen by you", "you")


@given(st.lists(st.sampled_from(DeliveryState), min_size=1, max_size=6))
def test_ledger_hides_no_reader(states: list[DeliveryState]) -> None:
    """The line is short, so the rest is on demand: every consumer, in every combination."""
    ledger = ledger_of(item(*(entry(f"agent{number}", state) for number, state in enumerate(states))))
    assert ledger is not None
    assert [course.consumer for course in ledger.courses] == [f"agent{number}" for number in range(len(states))]
    open_for = [state for state in states if not state.is_final]
    assert not open_for or "not yet" in ledger.rest or DeliveryState(ledger.state) in open_for


def test_ledger_says_what_is_open_or_lost_for_others() -> None:
    """Seen by one is not seen by all."""
    ledger = ledger_of(
        item(
            entry("claude-code", DeliveryState.SEEN),
            entry("codex", DeliveryState.QUEUED),
            entry("task:old", DeliveryState.REFUSED),
        )
    )
    assert ledger is not None
    assert ledger.rest == "not yet by codex, refused for old"


def test_long_name_of_a_reader_is_cut_in_the_line_and_whole_behind_it() -> None:
    """A program chooses its own name: it may not fill the page, and must be known in full on demand."""
    ledger = ledger_of(item(entry("x" * 60, DeliveryState.QUEUED)))
    assert ledger is not None
    assert (ledger.line.text, ledger.courses[0].consumer) == (f"waiting for {'x' * 23}…", "x" * 60)


def test_message_nobody_reads_says_so_except_among_the_replies() -> None:
    """An agent that was never connected reads nothing; the replies are for people."""
    ledger = ledger_of(item())
    assert ledger is not None
    assert ledger.line.text == "no agent has read here yet"
    assert ledger_of(item(message=replace(MESSAGE, mailbox=REPLIES))) is None


@pytest.mark.parametrize(
    ("sender", "trust", "source", "name", "shown_id"),
    [
        (Sender("owner", "you"), Trust.OWNER, "local", "You", ""),
        (Sender("ann@example.org", "Ann"), Trust.KNOWN, "teams", "Ann", ""),
        (Sender("ann@example.org", "Ann"), Trust.UNKNOWN, "teams", "Ann", "ann@example.org"),
        (Sender("eve@example.org", "You"), Trust.KNOWN, "teams", "You", "eve@example.org"),
        (Sender("eve@example.org", "\u0443\u043eu"), Trust.KNOWN, "teams", "\u0443\u043eu", "eve@example.org"),
        (Sender("owner", "you"), Trust.UNKNOWN, "teams", "you", "owner"),
        (Sender("agent:codex", "codex"), Trust.KNOWN, "local", "codex", ""),
        (Sender("task:login", "task:login"), Trust.KNOWN, "local", "login", ""),
        (Sender("eve@example.org", "task:login"), Trust.UNKNOWN, "teams", "task:login", "eve@example.org"),
    ],
)
def test_name_that_may_mislead_has_its_id_beside_it(
    sender: Sender, trust: Trust, source: str, name: str, shown_id: str
) -> None:
    """Names are chosen by senders: only the person is shown as you, and only tasks as tasks."""
    view = sender_of(replace(MESSAGE, sender=sender, trust=trust, source=source))
    assert (view.name, view.id, view.look) == (name, shown_id, trust.value)
    assert view.is_you == (trust is Trust.OWNER)


def test_places_say_their_signs_in_words() -> None:
    """A dot, a number and bold letters say nothing to those who do not see them."""
    task = Task(id=TaskId("login"), title="Fix the login page", dir="/w", created_at=AT)
    standing = TaskProgress(task=task, state=TaskState.RUNNING, presence="busy", pending=120)
    overview = MailOverview(
        mailboxes=[MailboxLine(name=INBOX, unread=0, waiting=2, head=9, last_at=AT)],
        tasks=[MailboxLine(name=task.mailbox, unread=1, waiting=120, head=9, last_at=AT, task=standing)],
        channels=[
            ChannelLine(source="local", channel="page", count=3, unread=3, last_at=AT),
            ChannelLine(source="teams", channel="a/b", count=3, unread=3, last_at=AT),
            ChannelLine(source="local", channel="ci", count=200, unread=100, last_at=AT),
        ],
    )
    inbox, tasks, channels, panels = sections_of(overview)
    assert [line.title for line in inbox.lines] == ["Inbox", "Needs you", "All messages, 2 waiting for an agent"]
    assert [(line.title, line.dot) for line in tasks.lines] == [
        ("Fix the login page, busy, 99+ waiting for its agent, 1 you have not seen", "busy")
    ]
    assert [(line.title, line.href) for line in channels.lines] == [
        ("a/b of teams, 3 you have not seen", "/c/teams/a%2Fb"),
        ("ci, 100+ you have not seen", "/c/local/ci"),
    ]
    assert [line.href for line in panels.lines] == ["/sessions", "/tasks", "/sources", "/pulse", "/rules", "/runs"]
    asked = sections_of(overview, needs=3)[0].lines
    assert [line.title for line in asked][1:2] == ["Needs you, 3 waiting for you"]
    assert [section.is_foot for section in (inbox, tasks, channels, panels)] == [False, False, False, True]


def test_channels_of_one_name_say_where_each_is() -> None:
    """Of two lines that read the same nobody knows which is meant."""
    lines = [
        ChannelLine(source=source, channel="ci", count=1, unread=0, last_at=AT) for source in ("local", "ci", "github")
    ]
    alone = ChannelLine(source="local", channel="dev", count=1, unread=0, last_at=AT)
    overview = MailOverview(mailboxes=[], tasks=[], channels=[*lines, alone])
    shown = sections_of(overview)[2].lines
    assert [(line.label, line.note) for line in shown] == [
        ("ci", "this machine"),
        ("ci", "ci"),
        ("ci", "github"),
        ("dev", ""),
    ]


def test_long_list_of_tasks_is_cut_to_those_that_matter_now() -> None:
    """With sixty tasks nobody finds the one that works; what is left out still says that something is new in it."""

    def line(number: int, state: TaskState, unread: int = 0) -> MailboxLine:
        task = Task(id=TaskId(f"t{number}"), title=f"t{number}", dir="/w", created_at=AT + timedelta(hours=number))
        standing = TaskProgress(task=task, state=state, presence="gone", pending=0)
        return MailboxLine(name=task.mailbox, unread=unread, waiting=unread, head=1, last_at=None, task=standing)

    running = [line(0, TaskState.RUNNING)]
    queued = [line(number, TaskState.QUEUED, unread=1) for number in range(1, 60)]
    overview = MailOverview(mailboxes=[], channels=[], tasks=[*running, *queued])
    tasks = sections_of(overview, "/m/task:t3")[1].lines
    assert [each.label for each in tasks] == ["t0", "t3", *(f"t{number}" for number in range(50, 60)), "All 60 tasks"]
    assert tasks[-1].href == "/tasks"
    assert tasks[-1].title == (
        "All 60 tasks, 48 waiting for the agents of those that are not listed, 48 you have not seen"
    )
    few = sections_of(replace(overview, tasks=overview.tasks[:12]))[1].lines
    assert [each.label for each in few] == [f"t{number}" for number in range(12)]


@given(st.text(min_size=1), st.text())
def test_addresses_hold_any_name(name: str, channel: str) -> None:
    """A name from outside must neither leave its place in an address nor end it."""
    for href in (mailbox_href(Mailbox(name)), channel_href(name, channel)):
        assert href.isascii()
        assert not set(href) & set(" \"'<>?#&\\")


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=20))
def test_key_is_the_same_for_the_same_text_only(key: str, text: str, other: str) -> None:
    """Sent again it is stored once; changed meanwhile it is another message."""
    assert (once_key(key, text) == once_key(key, other)) == (text == other or not key)
