"""For any rules and any stream of messages, the engine decides as the slow description does, however it is fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from harken.automation import Mode, Outcome, Rule, RuleFiring, RuleState, RuleVerdict
from harken.model import Mailbox, Message, MessageId, Trust
from harken.rules.engine import decide
from harken.rules.match import RuleMatcher
from tests.examples import examples
from tests.rules.made import message, rules_of
from tests.rules.slow import MILLISECONDS, Said, World

MIDNIGHT: Final = datetime(2026, 3, 2, tzinfo=UTC)
LONG: Final = "x" * 255
NAMES: Final = ("a", "b", "c", "d")
ANCESTORS: Final = ("a", "x", "y", "z", "")


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """Rules, and what happens: a message, an answer to an action, or that rules are paused or resumed."""

    rules: Sequence[dict[str, Any]]
    events: Sequence[Said | str]
    unable: frozenset[str]
    minutes_east: int
    waited_before: int


@st.composite
def rules(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Return a rule as the file has it; fields are left out as often as not."""
    optional = {
        "server": st.sampled_from(["", "*", "s", "t"]),
        "channel": st.sampled_from(["", "*", "x", "x/*", "x/y", "x/y/*"]),
        "contentRegex": st.sampled_from(["", "fail", "^fail", "(?i)FAIL$", "a|x"]),
        "mode": st.sampled_from(["notify", "confirm", "auto"]),
        "rateLimit": st.sampled_from(list(MILLISECONDS)),
        "dedupWindow": st.sampled_from(list(MILLISECONDS)),
        "trust": st.sampled_from(["owner", "known", "unknown"]),
        "quietHours": st.sampled_from(["12:00-13:00", "22:00-07:00", "11:59-12:01"]),
        "mailbox": st.sampled_from(["inbox", "*", "task:t", "replies"]),
    }
    # Few conditions and many windows: most rules fit most messages, and what comes after that is what goes wrong.
    windows = ["rateLimit", "dedupWindow"][: draw(st.integers(0, 2))]
    keys = {*windows, *draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True))}
    drawn = {key: draw(optional[key]) for key in sorted(keys)}
    return {"name": name, "prompt": "Look.", "tools": ["read_file"]} | drawn


@st.composite
def messages(draw: st.DrawFn) -> Said:
    """Return a message; `at` is how long after the one before it comes, and its number is given later."""
    return Said(
        number=0,
        at=draw(
            st.sampled_from(
                [0, 1, 1_000, 29_999, 30_000, 31_000, 60_000, 90_000, 7_199_000, -1, -45_000, -300_000, 40_000_000]
            )
        ),
        mailbox=draw(st.sampled_from(["inbox", "inbox", "inbox", "task:t", "replies"])),
        source=draw(st.sampled_from(["s", "s", "t", "local"])),
        channel=draw(st.sampled_from(["", "x", "x/y", "x/y/z", "xy/z"])),
        text=draw(st.sampled_from(["fail", "fail", "a fail", "FAIL", LONG + "ab", LONG + "ac", LONG + "\u00e4", ""])),
        trust=draw(st.sampled_from(["known", "known", "owner", "unknown"])),
        ancestry=tuple(draw(st.lists(st.sampled_from(ANCESTORS), max_size=4)) if draw(st.integers(0, 3)) == 0 else ()),
    )


@st.composite
def stories(draw: st.DrawFn) -> RuleHistory:
    """Return rules and what happens to them."""
    happens = st.one_of(messages(), messages(), messages(), messages(), st.sampled_from(["pause", "resume", "answer"]))
    events, now = list[Said | str](), 43_000_000
    for number, event in enumerate(draw(st.lists(happens, max_size=12))):
        if isinstance(event, Said):
            now = max(0, now + event.at)
            events.append(replace(event, number=number, at=now))
        else:
            events.append(event)
    return RuleHistory(
        rules=[draw(rules(name)) for name in NAMES[: draw(st.integers(1, 4))]],
        events=events,
        unable=draw(st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"b"})])),
        minutes_east=draw(st.sampled_from([0, 60, -300, 330])),
        waited_before=draw(st.sampled_from([0, 0, 62, 63, 64])),
    )


class Engine:
    """What `harken` decides. Between batches nothing is carried along but the verdicts, as after a restart."""

    def __init__(self, story: RuleHistory) -> None:
        self._rules: Sequence[Rule] = rules_of(*story.rules)
        self._story = story
        self._heard = dict[MessageId, datetime]()
        self._answered = 0
        self._is_paused = False
        self.verdicts = list[RuleVerdict]()

    def tell(self, event: str) -> None:
        """Let the person do something."""
        self._answered += event == "answer"
        self._is_paused = event == "pause" or (self._is_paused and event != "resume")

    def hear(self, batch: Sequence[Said]) -> None:
        """Judge some messages together."""
        matcher, arrived = RuleMatcher(self._rules), [made(said) for said in batch]
        self._heard |= {item.id: item.received_at for item in arrived}
        self.verdicts += decide(
            [(item, matcher.candidates(item)) for item in arrived],
            self._standing(),
            {made(said).id: said.ancestry for said in batch if said.ancestry},
            dict.fromkeys(self._story.unable, "no host can fence it"),
            local=timezone(timedelta(minutes=self._story.minutes_east)),
            nonce=lambda: "n-1",
        )

    def _standing(self) -> RuleState:
        fired = [verdict for verdict in self.verdicts if verdict.outcome is Outcome.FIRED]
        asking = [verdict for verdict in fired if verdict.mode is not Mode.NOTIFY]
        last = {verdict.rule: self._fired(verdict) for verdict in fired}
        alike = {(verdict.rule, verdict.digest): self._fired(verdict) for verdict in fired}
        waiting = max(0, self._story.waited_before + len(asking) - self._answered)
        return RuleState(is_paused=self._is_paused, waiting=waiting, fired=last, duplicates=alike)

    def _fired(self, verdict: RuleVerdict) -> RuleFiring:
        return RuleFiring(verdict.message, self._heard[verdict.message])


def made(said: Said) -> Message:
    """Return a message as `harken` has it."""
    return replace(
        message(said.number),
        received_at=MIDNIGHT + timedelta(milliseconds=said.at),
        mailbox=Mailbox(said.mailbox),
        source=said.source,
        channel=said.channel,
        text=said.text,
        trust=Trust(said.trust),
    )


def judged(story: RuleHistory, most: Sequence[int]) -> Sequence[RuleVerdict]:
    """Return what is decided when messages are judged in batches of at most these sizes, one after the other."""
    engine, batch, sizes = Engine(story), list[Said](), list(most)
    for event in story.events:
        if isinstance(event, Said):
            batch.append(event)
        if batch and (isinstance(event, str) or len(batch) >= (sizes[0] if sizes else 1)):
            engine.hear(batch)
            batch, sizes = [], sizes[1:]
        if isinstance(event, str):
            engine.tell(event)
    engine.hear(batch)
    return engine.verdicts


@settings(max_examples=examples(400))
@given(stories())
def test_the_engine_decides_as_its_description(story: RuleHistory) -> None:
    """The description is short enough to be read and believed; the engine is fast."""
    world = World(story.rules, story.unable, story.minutes_east, story.waited_before)
    for event in story.events:
        if isinstance(event, Said):
            world.hear(event)
        elif event == "answer":
            world.answered += 1
        else:
            world.is_paused = event == "pause"
    wanted = [(f"m-{item.said.number}", item.rule, item.outcome, item.earlier) for item in world.past]
    found = [
        (item.message, item.rule, item.outcome.value, int(item.earlier[2:]) if item.earlier else None)
        for item in judged(story, [])
    ]
    assert found == wanted


@settings(max_examples=examples(200))
@given(stories(), st.lists(st.integers(1, 5), max_size=12))
def test_neither_batches_nor_a_restart_change_a_decision(story: RuleHistory, sizes: Sequence[int]) -> None:
    """A daemon that was away judges many at once, and one that was killed begins with what the store kept."""
    one_by_one = judged(story, [])
    assert judged(story, sizes) == one_by_one
    assert judged(story, [len(story.events) + 1] * len(story.events)) == one_by_one
