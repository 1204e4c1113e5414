"""What the truth tests of the hosts read from a wire: which conversation, whole or cut, again or only history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from harken.trial.exchange import ConversationTurn, ModelRequest
from tests.hosts.observer import faults
from tests.hosts.wire import FRAME_MARK, Appearance, WireLog, new_prompt, new_text

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def requests(*conversation: Sequence[ConversationTurn]) -> list[ModelRequest]:
    """Requests in order of arrival, one a second, each with the pieces it holds."""
    return [
        ModelRequest(
            protocol="p",
            model="m",
            turns=tuple(turns),
            tools=(),
            is_side=False,
            is_stream=False,
            number=number,
            arrived_at=NOW + timedelta(seconds=number),
        )
        for number, turns in enumerate(conversation)
    ]


def came(text: str, *conversation: Sequence[ConversationTurn]) -> Sequence[Appearance]:
    """Return where a text came in."""
    log = WireLog()
    log.take(requests(*conversation))
    return log.appearances(text)


def user(text: str) -> ConversationTurn:
    """What a host says for its user, or for a hook."""
    return ConversationTurn("user", text)


def test_history_is_no_second_appearance() -> None:
    """The whole conversation is sent with every request."""
    (_, text), prompt = new_text(), new_prompt()
    first, second = [user(prompt), user(text)], [user(prompt), user(text), ConversationTurn("tool", "ok")]
    assert [(each.request.number, each.is_marked) for each in came(text, first, second)] == [(0, False)]


def test_request_with_a_shorter_history_makes_nothing_new_of_the_next() -> None:
    """Hosts ask things beside a turn, with the conversation as it was before."""
    (_, text), prompt = new_text(), new_prompt()
    whole = [user(prompt), user("go on"), user(text)]
    assert len(came(text, whole, whole[:2], whole)) == 1


def test_text_that_is_there_twice_has_come_again() -> None:
    """Whether it is marked decides whether that is a fault."""
    (_, text), prompt = new_text(), new_prompt()
    frame = f"From you\n{FRAME_MARK} without proof\n--- d-1 begins\n{text}\n--- d-1 ends"
    plain, marked = [user(prompt), user(text), user(text)], [user(prompt), user(text), user(frame)]
    assert [each.is_marked for each in came(text, plain)] == [False, False]
    assert [each.is_marked for each in came(text, marked)] == [False, True]


def test_text_in_another_conversation_has_come_again() -> None:
    """A second session of the same host reads with the same cursor."""
    (_, text), one, two = new_text(), new_prompt(), new_prompt()
    found = came(text, [user(text), user(one)], [user(text), user(two)], [user(text), user(one), user("more")])
    assert [(each.request.number, each.conversation) for each in found] == [(0, 0), (1, 1)]


def test_session_that_was_woken_first_is_one_conversation_with_its_later_prompt() -> None:
    """It begins with a message, and goes on with what the person types."""
    (_, text), prompt = new_text(), new_prompt()
    assert len(came(text, [user(text)], [user(text), user(prompt)])) == 1


def test_mark_of_one_message_is_not_taken_for_that_of_another() -> None:
    """The result of a tool holds several, and each has its mark after its text."""
    (_, first), (_, second), prompt = new_text(), new_text(), new_prompt()
    records = [{"text": first, "repeat": True}, {"text": second, "treat_as": "data"}]
    for result in (json.dumps(records), json.dumps(json.dumps(records))):
        turns = [user(prompt), ConversationTurn("tool", result)]
        assert [each.is_marked for each in came(first, turns)] == [True]
        assert [each.is_marked for each in came(second, turns)] == [False]


def test_cut_text_has_not_come() -> None:
    """What a host leaves out at the end or in the middle, the model cannot read."""
    _, text = new_text(about_chars=200)
    middle = text[:60] + "… cut …" + text[-40:]
    assert came(text, [user(text[:-1])], [user(middle)]) == []


def appeared(second: int, *, is_marked: bool = False) -> Appearance:
    """A text that came so many seconds after the beginning."""
    asked = requests(*[[user("x")]] * (second + 1))[-1]
    return Appearance(request=asked, conversation=0, role="user", is_marked=is_marked)


@pytest.mark.parametrize(
    ("appearances", "seen", "wrong"),
    [
        ([], None, "lost"),
        ([], NOW, "no request holds it"),
        ([appeared(1)], NOW, "1.000 s before"),
        ([appeared(0)], None, "not called seen"),
        ([appeared(0), appeared(2)], NOW, "request 2 without a mark"),
        ([appeared(0)], NOW, ""),
        ([appeared(0), appeared(2, is_marked=True)], NOW + timedelta(seconds=3), ""),
    ],
)
def test_everything_that_can_be_wrong_is_found(
    appearances: list[Appearance], seen: datetime | None, wrong: str
) -> None:
    """A judge that misses one of these would call a false ledger true."""
    found = list(faults(appearances, seen))
    assert len(found) == bool(wrong)
    assert all(wrong in each for each in found)
