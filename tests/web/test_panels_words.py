"""What the views say of sessions, tasks and the last hours, apart from any page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.inbox.results import Omission, SurfaceRecord, TaskProgress
from harken.inbox.views import PulseRow, PulseView
from harken.model import Consumer, Mailbox, SessionKey, Task, TaskId, TaskState
from harken.sessions.session import Session
from harken.surfaces.web.page.pulse import pulse_page, share_of
from harken.surfaces.web.page.sessions import OmissionNote, ProofRecord, absent, cards
from harken.surfaces.web.page.tasks import MAX_COLUMNS, counts_of, side_by_side, task_lines
from tests.builders import a_session

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def claude_session(**changes: object) -> Session:
    """A session of Claude Code, whose hooks for prompts and tools have run."""
    session = a_session(at=NOW, key=SessionKey("s"), cwd="/work", pid=7, surfaces=("tool", "log ping"))
    session.moments = {"prompt", "tool"}
    for name, value in changes.items():
        setattr(session, name, value)
    return session


def a_record(surface: str, seen: int, minutes: int = 5, consumer: str = "claude-code") -> SurfaceRecord:
    """What is known of a surface through which two messages were given."""
    at = NOW - timedelta(minutes=minutes)
    return SurfaceRecord(
        consumer=Consumer(consumer),
        surface=surface,
        offered=2,
        seen=seen,
        last_offered_at=at,
        last_seen_at=at if seen else None,
        evidence="later step" if seen else "",
    )


def a_standing(name: str, state: TaskState, peers: tuple[str, ...] = (), presence: str = "gone") -> TaskProgress:
    """A task and where it is."""
    task = Task(id=TaskId(name), title=name.upper(), dir="/w", created_at=NOW, peers=tuple(map(TaskId, peers)))
    return TaskProgress(task=task, state=state, presence=presence, pending=0)


def test_ways_are_told_apart_by_their_evidence() -> None:
    """A way that exists, one that was used and one that is proven are three different things."""
    records = [a_record("hook: prompt", 2), a_record("hook: tool", 0), a_record("inbox_pull", 1, consumer="other")]
    card = cards([claude_session()], records, [], {})[0]
    assert [(way.label, way.proof) for way in card.ways] == [
        ("with each prompt", ProofRecord.PROVEN),
        ("between tool calls", ProofRecord.OPEN),
        ("when it asks", ProofRecord.UNUSED),
        ("hint in the log", ProofRecord.HINT),
    ]
    assert card.proven == card.ways[0]


def test_what_an_agent_was_not_given_leads_to_it() -> None:
    """A number without a way to what it counts is only a worry."""
    left_out = {Mailbox("inbox"): Omission(older=212, surplus=48_932, up_to=49_144)}
    one, other = cards(
        [claude_session(), claude_session(key=SessionKey("t"))], [], [], {("", SessionKey("s")): left_out}
    )
    note = OmissionNote(mailbox="inbox", reasons="48932 too many, 212 older", href="/m/inbox?at=49144")
    assert (one.omissions, other.omissions) == ([note], [])


def test_asking_is_proven_by_any_tool_that_hands_out_messages() -> None:
    """A host has one way to ask, whichever of the tools its model likes; the last proof counts."""
    records = [a_record("inbox_pull", 1, minutes=9), a_record("wait_for_inbound_message", 1, minutes=3)]
    way = next(way for way in cards([claude_session()], records, [], {})[0].ways if way.surface == "tool")
    assert (way.proof, way.at, way.seen) == (ProofRecord.PROVEN, NOW - timedelta(minutes=3), 2)


def test_session_is_shown_with_the_task_it_reads() -> None:
    """The folder alone does not tell which piece of work it is."""
    standing = a_standing("api", TaskState.RUNNING)
    card = cards([claude_session(mailboxes=(Mailbox("task:api"),))], [], [standing], {})[0]
    assert card.task == standing


def test_sessions_of_trials_are_not_shown() -> None:
    """They are over in a minute and are nobody's."""
    assert list(cards([claude_session(mailboxes=(Mailbox("trial:x"),))], [], [], {})) == []


def test_absent_agents_are_those_without_claude_session() -> None:
    """The person is not an agent, and who is here is not absent."""
    records = [a_record("hook: tool", 1, consumer=name) for name in ("claude-code", "codex", "watch")]
    found = absent([claude_session()], [*records, a_record("inbox_pull", 0, minutes=90, consumer="codex")])
    assert [(each.title, each.offered, each.seen, each.last_at) for each in found] == [
        ("Codex", 4, 1, NOW - timedelta(minutes=5))
    ]


def test_task_stands_first_beside_its_peers_and_the_rest_is_named() -> None:
    """A task with very many peers still fits a screen, and no peer is forgotten."""
    names = tuple(f"p{n}" for n in range(9))
    own = a_standing("own", TaskState.QUEUED, names)
    peers = [a_standing(name, TaskState.RUNNING if name == "p8" else TaskState.ENDED) for name in names]
    shown, left = side_by_side(own, [*peers, a_standing("other", TaskState.RUNNING), own])
    assert [each.task.id for each in shown[:2]] == ["own", "p8"]
    assert len(shown) == MAX_COLUMNS
    assert {each.task.id for each in (*shown, *left)} == {"own", *names}


def test_running_task_shows_what_its_session_does() -> None:
    """Running says little: whether it is busy is what a person wants to know."""
    standings = [
        a_standing("a", TaskState.ENDED, ("b",)),
        a_standing("b", TaskState.RUNNING, presence="busy"),
        a_standing("c", TaskState.RUNNING),
    ]
    lines = task_lines(standings, standings)
    assert [(line.id, line.dot) for line in lines] == [("b", "busy"), ("c", "running"), ("a", "ended")]
    assert [peer.title for peer in lines[2].peers] == ["B"]
    assert counts_of(lines) == "2 running, 1 without a session"


ROWS = st.lists(st.lists(st.integers(0, 9_999), min_size=24, max_size=24), max_size=9)


@given(ROWS)
def test_table_and_chart_have_the_same_numbers(counts: list[list[int]]) -> None:
    """Two pictures of one thing must not differ."""
    begins = [NOW - timedelta(hours=hour) for hour in range(24)]
    rows = [PulseRow(channel=f"c{n}", counts=row) for n, row in enumerate(counts)]
    page = pulse_page(PulseView(begins=begins, rows=rows, seen=0, median=None, p95=None))
    assert page.total == sum(row.total for row in page.rows) == sum(hour.total for hour in page.table)
    assert [each.column.total for each in page.columns] == [hour.total for hour in page.table]


def test_column_names_the_busiest_channels() -> None:
    """What is pointed at is read in a moment."""
    rows = [PulseRow(channel=f"c{n}", counts=[0, n]) for n in range(7)]
    page = pulse_page(PulseView(begins=[NOW, NOW], rows=rows, seen=0, median=None, p95=None))
    assert [each.said for each in page.columns] == [
        "1 hour ago: nothing",
        "This hour: 21 messages (c6 6, c5 5, c4 4, c3 3, others 3)",
    ]


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 0, "0 %"),
        (0, 9, "0 %"),
        (1, 1_000, "< 1 %"),
        (999, 1_000, "> 99 %"),
        (9, 9, "100 %"),
        (1, 3, "33 %"),
    ],
)
def test_share_is_neither_nothing_nor_everything_by_rounding(part: int, whole: int, said: str) -> None:
    """One message is not nothing."""
    assert share_of(part, whole) == said
