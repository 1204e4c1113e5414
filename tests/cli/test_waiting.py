"""`harken waiting`: a person sees what was asked and not answered, and says what needs no answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from harken.model import Mailbox
from tests.cli.rig import Json, Rig, serving
from tests.cli.terminal_session import CTRL_C, DOWN, ENTER, UP, TerminalSession
from tests.cli.test_as_agent import REFUSED, hosting
from tests.seeded import Asked, seed

TASK = Mailbox("task:fix")
HOSTILE = "first \x1b]0;title\x07\x1b[2J line\nsecond \u202eline"


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Rig, list[str]]]:
    """A home in which three wait, the oldest for two hours."""
    ids = seed(
        tmp_path / "home",
        [
            Asked(text="when is the release?", ago=timedelta(hours=2)),
            Asked(text=HOSTILE, ago=timedelta(minutes=25), sender="eve\x1b[31m", channel="c\nd"),
            Asked(text="and the tests?", mailbox=TASK),
        ],
    )
    with serving(tmp_path / "home") as rig:
        yield rig, [str(each) for each in ids]


def test_what_waits_is_listed_with_the_oldest_first(asked: tuple[Rig, list[str]]) -> None:
    """Who asked, where, for how long, and the first words: enough to decide what to answer."""
    rig, (first, second, third) = asked
    lines = rig.ok("waiting").splitlines()
    assert [line.split()[0] for line in lines[:3]] == [first, second, third]
    words = ["ann", "chat", "2 h", "no agent has seen it", "when is the release?"]
    assert re.split(r" {2,}", lines[0].strip()) == [first, *words]
    assert lines[3:] == ["3 wait for an answer, oldest 2 h"]
    assert rig.ok("waiting", "--limit", "1").splitlines()[1:] == [
        "3 wait for an answer, oldest 2 h, 2 of them not shown"
    ]
    only = rig.ok("waiting", "--mailbox", TASK).splitlines()
    assert [line.split()[0] for line in only] == [third, "1"]


def test_hostile_text_stays_on_its_line_and_acts_on_nothing(asked: tuple[Rig, list[str]]) -> None:
    """Whoever asks chooses the text, the name and often the channel."""
    rig, (_, second, _) = asked
    shown = rig.ok("waiting")
    assert shown.isascii()
    assert "\x1b" not in shown
    [line] = [line for line in shown.splitlines() if second in line]
    assert "\\u202e" in line
    assert "eve\\x1b[31m" in line


def test_question_that_needs_no_answer_is_taken_off_the_list(asked: tuple[Rig, list[str]]) -> None:
    """Some things are settled by telephone; doing it twice changes nothing, and a wrong id settles none."""
    rig, (first, second, third) = asked
    wrong = rig.run("waiting", "done", second, "m-nobody")
    assert (wrong.code, wrong.out) == (3, "")
    assert rig.json("waiting")["count"] == 3
    assert rig.ok("waiting", "done", first, second).splitlines() == [
        f"{first}  needs no answer",
        f"{second}  needs no answer",
    ]
    assert rig.json("waiting", "done", first) == {"settled": [first]}
    left = rig.json("waiting")
    assert [each["message"]["id"] for each in left["questions"]] == [third]
    assert [event["by"] for event in _events(rig, "settled")] == ["you", "you"]
    rig.ok("waiting", "done", third)
    nothing = rig.run("waiting")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No unanswered questions.\n")


def test_an_answer_takes_it_off_the_list(asked: tuple[Rig, list[str]]) -> None:
    """Answering is the usual end; the list must not need a second word for it."""
    rig, (first, *_) = asked
    assert "Waits for an answer, for 2 h: no agent has seen it" in rig.ok("read", first).splitlines()
    rig.ok("reply", first, "on Friday")
    rig.until(lambda found: found["waiting"]["count"] == 2)
    assert "Waits for an answer" not in rig.ok("read", first)
    assert rig.json("read", first)["question"] is None
    assert [event["by"] for event in _events(rig, "settled")] == ["reply"]


def test_status_says_how_much_waits_in_one_line(asked: tuple[Rig, list[str]]) -> None:
    """It is the first thing people look at; with nothing it is silent."""
    rig, ids = asked
    assert "3 wait for an answer, oldest 2 h: harken waiting" in rig.ok("status").splitlines()
    found = rig.json("status")["waiting"]
    assert [(each["mailbox"], each["count"]) for each in found["mailboxes"]] == [("inbox", 2), (TASK, 1)]
    rig.ok("waiting", "done", *ids)
    assert "harken waiting" not in rig.ok("status")


def test_home_may_stand_before_and_after_the_verb(asked: tuple[Rig, list[str]]) -> None:
    """What is settled in another home than the one that was named is settled by mistake."""
    rig, (first, *_) = asked
    other = Rig(rig.home.parent / "other")
    for words in (
        ("waiting", "--home", str(rig.home), "done", first),
        ("waiting", "done", first, "--home", str(rig.home)),
    ):
        assert other.ok(*words) == f"{first}  needs no answer\n"
    assert not other.home.exists()


def test_shell_offers_what_waits(asked: tuple[Rig, list[str]]) -> None:
    """Nobody types an id."""
    rig, ids = asked
    words = {"COMP_WORDS": "harken waiting done m-", "COMP_CWORD": "3", "_HARKEN_COMPLETE": "bash_complete"}
    offered = Rig(rig.home, words).run().out.splitlines()
    assert sorted(each.partition(",")[2] for each in offered) == sorted(ids)


def test_an_agent_may_not_say_that_nothing_waits(asked: tuple[Rig, list[str]]) -> None:
    """An agent that is tired of being reminded would hide what its person must see."""
    rig, (first, *_) = asked
    with hosting(rig):
        assert rig.run("waiting", "done", first).code == REFUSED
        assert "when is the release?" in rig.ok("waiting")
    assert rig.json("waiting")["count"] == 3


def _events(rig: Rig, kind: str) -> list[Json]:
    return [event for event in rig.json("journal", "--limit", "200")["events"] if event["kind"] == kind]


def test_watch_shows_what_waits_and_keys_settle_it(asked: tuple[Rig, list[str]]) -> None:
    """The banner is what a person has before their eyes; one key takes off what needs no answer."""
    rig, (first, second, _) = asked
    with TerminalSession(rig, "watch") as person:
        shown = person.sees("3 wait for an answer, oldest 2 h", f"▸ {first}  waits 2 h  #1 ann: when is the release?")
        assert "\x1b" not in shown
        person.press(DOWN + ENTER)
        person.sees("second \\u202eline")
        person.press(b"d")
        person.sees(f"{second} needs no answer.", "2 wait for an answer, oldest 2 h")
        person.sees("-- no longer waits for an answer (you)")
        person.press(UP + b"r")
        person.sees(f"Your answer to {first}, Enter sends it:")
        person.press("nach dem Grünkohl\r".encode())
        person.sees("1 waits for an answer", "-- no longer waits for an answer (reply)")
        assert [each["body"] for each in rig.json("read", first)["replies"]] == ["nach dem Grünkohl"]
        person.press(b"q")
        assert person.leaves() == 0


def test_answer_that_was_begun_in_watch_can_be_left(asked: tuple[Rig, list[str]]) -> None:
    """Ctrl-C and an empty line send nothing, and the view goes on as before."""
    rig, (first, *_) = asked
    with TerminalSession(rig, "watch") as person:
        person.sees(f"▸ {first}", "q leave")
        person.press(DOWN + UP + b"r")
        person.sees("Enter sends it:")
        person.press(b"half an" + CTRL_C)
        person.sees("Nothing was sent.", "q leave")
        person.press(b"r")
        person.sees("Enter sends it:")
        person.press(ENTER)
        person.sees("Nothing was sent.", f"▸ {first}")
        assert rig.json("waiting")["count"] == 3
        person.press(b"q")
        assert person.leaves() == 0
        assert person.is_as_before


def test_watch_into_a_pipe_says_what_waits(asked: tuple[Rig, list[str]]) -> None:
    """Scripts and mail jobs look once."""
    rig, ids = asked
    lines = rig.ok("watch", "--once").splitlines()
    assert "3 wait for an answer, oldest 2 h: harken waiting" in lines[-1]
    assert f"  {ids[0]}  waits 2 h  #1 ann: when is the release?" in lines
    assert [each["message"]["id"] for each in rig.json("watch", "--once")["questions"]] == ids
