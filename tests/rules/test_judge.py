"""Judging over a real store: once per message and rule, whatever comes in between, and never in anybody's way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from harken.automation import MAX_WAITING, ActionState, Mode, Outcome
from harken.clock import Clock
from harken.errors import UserError
from harken.model import (
    LOCAL,
    REPLIES,
    ApprovalChoice,
    ApprovalState,
    Attention,
    Message,
    NewMessage,
    Sender,
    Trust,
    approval_digest,
)
from harken.rules.judge import RuleBook, RuleJudge
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_new_message
from tests.contracts.approvals import request_of

AUTO: Mapping[str, object] = {"name": "run", "mode": "auto", "prompt": "See {{content}}", "tools": ["read_file"]}
TELL: Mapping[str, object] = {"name": "tell", "contentRegex": "red"}
ASK: Mapping[str, object] = {"name": "ask", "channel": "incidents", "mode": "confirm", "prompt": "Look: {{content}}"}


class JudgeFixture:
    """A judge with its book over one store."""

    def __init__(self, store: Store, folder: Path, clock: Clock) -> None:
        self.store = store
        self.book = RuleBook(folder / "triggers.json", clock, unable=lambda _rule: "")
        self.judge = RuleJudge(store, self.book, clock)

    async def say(self, *texts: str, channel: str = "ci", trust: Trust = Trust.KNOWN, sender: str = "bot") -> None:
        """Store messages."""
        await self.store.messages.append([_new(text, channel, trust, sender) for text in texts])

    async def outcomes(self) -> list[tuple[str, str, str]]:
        """Return what was decided: the text, the rule, the outcome."""
        found = []
        for message in await self._messages():
            found += [(message.text, it.rule, it.outcome.value) for it in await self.store.rules.verdicts(message.id)]
        return found

    async def _messages(self) -> Sequence[Message]:
        return [message for _, message in await self.store.rules.unjudged(0, 1_000)]


def _keep(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def _new(text: str, channel: str, trust: Trust, sender: str) -> NewMessage:
    is_local = sender.startswith("run:")
    return a_new_message(
        text,
        source=LOCAL if is_local else "ci",
        sender=Sender(sender),
        trust=trust,
        attention=Attention.PROMPT,
        channel=channel,
    )


def close_to_others(folder: Path, *, is_on: bool) -> None:
    """Let nobody else into a folder, or let them."""
    folder.chmod(0o700 if is_on else 0o755)


def write(folder: Path, *rules: Mapping[str, object]) -> None:
    """Write a file of rules."""
    _keep(folder / "triggers.json", json.dumps({"rules": rules}))


@asynccontextmanager
async def open_judge(folder: Path, clock: FakeClock) -> AsyncIterator[JudgeFixture]:
    """Open a store and let a judge begin, as a daemon that starts does."""
    async with open_store(folder / "harken.db", clock) as store:
        rig = JudgeFixture(store, folder, clock)
        await rig.judge.begin()
        yield rig


async def test_restart_at_any_point_changes_no_decision(tmp_path: Path) -> None:
    """Rules that forget would run twice, or not at all."""
    clock = FakeClock()
    write(tmp_path, {**AUTO, "rateLimit": "10s", "dedupWindow": "1m"}, TELL)
    texts = ["red a", "red b", "green", "red a", "red c", "red b", "red a"]
    decided: list[list[tuple[str, str, str]]] = []
    for restarts in (False, True):
        folder = tmp_path / str(restarts)
        folder.mkdir()
        write(folder, {**AUTO, "rateLimit": "10s", "dedupWindow": "1m"}, TELL)
        for number, text in enumerate(texts):
            async with open_judge(folder, clock) as rig:
                if restarts and number:
                    await rig.judge.catch_up()
                await rig.say(text)
                clock.advance(4)
                if not restarts or number % 2:
                    await rig.judge.catch_up()
        async with open_judge(folder, clock) as rig:
            await rig.judge.catch_up()
            decided.append(await rig.outcomes())
    assert decided[0] == decided[1]
    assert Counter(outcome for _, rule, outcome in decided[0] if rule == "run") == {
        "fired": 2,
        "rate limit": 3,
        "duplicate": 2,
    }


async def test_mail_from_before_there_were_rules_is_not_judged(tmp_path: Path) -> None:
    """A person who writes a first rule does not want a run for every old message."""
    clock = FakeClock()
    async with open_judge(tmp_path, clock) as rig:
        await rig.say("red 1")
        await rig.judge.catch_up()
        await rig.say("red 2")
    write(tmp_path, TELL)
    async with open_judge(tmp_path, clock) as rig:
        await rig.say("red 3")
        await rig.judge.catch_up()
        assert await rig.outcomes() == [("red 3", "tell", "fired")]


async def test_reload_lets_earlier_messages_be_judged_by_the_earlier_rules(tmp_path: Path) -> None:
    """The moment of a reload is between two messages, not somewhere in the backlog."""
    write(tmp_path, TELL)
    async with open_judge(tmp_path, FakeClock()) as rig:
        await rig.say("red 1")
        write(tmp_path, {**TELL, "name": "anew"})
        await rig.judge.reload()
        await rig.say("red 2")
        await rig.judge.catch_up()
        assert await rig.outcomes() == [("red 1", "tell", "fired"), ("red 2", "anew", "fired")]


async def test_file_that_changed_is_not_in_force_before_the_person_says_so(tmp_path: Path) -> None:
    """Only the person puts rules in force: a file can be written by much, an agent with a shell among it."""
    clock = FakeClock()
    write(tmp_path, TELL)
    async with open_judge(tmp_path, clock) as rig:
        await rig.say("red 1")
        await rig.judge.catch_up()
        await rig.say("red 2")
    write(tmp_path, {**TELL, "name": "anew"})
    async with open_judge(tmp_path, clock) as rig:
        await rig.say("red 3")
        await rig.judge.reload()
        await rig.say("red 4")
        await rig.judge.catch_up()
        decided = [(text, rule) for text, rule, _ in await rig.outcomes()]
    assert decided == [("red 1", "tell"), ("red 2", "tell"), ("red 3", "tell"), ("red 4", "anew")]


async def test_broken_file_leaves_the_rules_in_force_also_over_a_restart(tmp_path: Path) -> None:
    """All or nothing: half a file must not become half the rules."""
    clock = FakeClock()
    write(tmp_path, TELL)
    async with open_judge(tmp_path, clock):
        pass
    _keep(tmp_path / "triggers.json", '{"rules": [{"name": "tell", "mode": "Notify"}]}')
    async with open_judge(tmp_path, clock) as rig:
        assert rig.book.is_changed
        with pytest.raises(UserError, match="notify"):
            await rig.judge.reload()
        assert "notify" in rig.book.problem
        assert [rule.name for rule in rig.book.current.rules] == ["tell"]
        await rig.say("red")
        await rig.judge.catch_up()
        assert await rig.outcomes() == [("red", "tell", "fired")]
        write(tmp_path, TELL)
        assert (rig.book.problem, rig.book.is_changed) == ("", False)


async def test_rules_that_this_version_cannot_read_do_not_keep_the_daemon_from_starting(tmp_path: Path) -> None:
    """Mail must arrive whatever is wrong with rules; and correcting the file must help."""
    clock = FakeClock()
    async with open_judge(tmp_path, clock) as rig:
        await rig.store.rules.keep('{"rules": [{"name": "x", "mode": "later"}]}', 1)
    write(tmp_path, TELL)
    async with open_judge(tmp_path, clock) as rig:
        assert (rig.book.current.rules, "later" in rig.book.problem) == ((), True)
        await rig.judge.reload()
        assert [rule.name for rule in rig.book.current.rules] == ["tell"]


async def test_rules_that_the_person_took_out_stay_out(tmp_path: Path) -> None:
    """A file that turns up later is not what they said."""
    clock = FakeClock()
    write(tmp_path, TELL)
    async with open_judge(tmp_path, clock) as rig:
        write(tmp_path)
        await rig.judge.reload()
    write(tmp_path, AUTO)
    async with open_judge(tmp_path, clock) as rig:
        assert (rig.book.current.rules, rig.book.is_changed) == ((), True)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
async def test_file_that_others_can_write_is_not_in_force(tmp_path: Path, mode: int) -> None:
    """Whoever writes it decides what agents do."""
    write(tmp_path, TELL)
    (tmp_path / "triggers.json").chmod(mode)
    close_to_others(tmp_path, is_on=False)
    async with open_judge(tmp_path, FakeClock()) as rig:
        assert rig.book.current.rules == ()
        assert "can be written by others" in rig.book.problem
    # Where nobody else gets to, it does not matter what the file itself would let them do.
    close_to_others(tmp_path, is_on=True)
    async with open_judge(tmp_path, FakeClock()) as rig:
        assert [rule.name for rule in rig.book.current.rules] == ["tell"]


async def test_owner_answers_by_a_message_and_nobody_else_does(tmp_path: Path) -> None:
    """The owner may be anywhere; a stranger who knows the id may not decide."""
    write(tmp_path, ASK)
    async with open_judge(tmp_path, FakeClock()) as rig:
        await rig.say("db is down", channel="incidents")
        await rig.judge.catch_up()
        (action,) = await rig.store.actions.list()
        await rig.say(f"yes {action.id}", trust=Trust.KNOWN)
        await rig.say(f"please say yes {action.id}", trust=Trust.OWNER)
        await rig.judge.catch_up()
        assert (await rig.store.actions.get(action.id)).state is ActionState.WAITING
        await rig.say(f"YES {action.id}.", f"no {action.id}", trust=Trust.OWNER)
        await rig.judge.catch_up()
        answered = await rig.store.actions.get(action.id)
        assert (answered.state, answered.decided_by) == (ActionState.QUEUED, "you, by ci")
        told = [reply.body for reply in await rig.store.outbox.list()]
        assert told == [
            f"This answers nothing: Action {action.id} is queued already (by you, by ci).",
            f"{action.id} (ask) is queued now.",
        ]


async def test_old_words_do_not_answer_a_younger_question(tmp_path: Path) -> None:
    """Ids are short, and may come again: a message that was held up for days meant another question."""
    clock = FakeClock()
    async with open_judge(tmp_path, clock) as rig:
        asked = await rig.store.approvals.ask(request_of(), timedelta(hours=1))
        held_up = NewMessage(
            mailbox=REPLIES,
            source="ci",
            sender=Sender("ann"),
            text=f"yes {asked.id}",
            trust=Trust.OWNER,
            attention=Attention.PROMPT,
            sent_at=clock.now() - timedelta(days=2),
        )
        await rig.store.messages.append([held_up])
        await rig.judge.catch_up()
        assert (await rig.store.approvals.get(asked.id)).state is ApprovalState.OPEN
        assert "is older than" in (await rig.store.outbox.list())[0].body
        await rig.say(f"no {asked.id} use make", trust=Trust.OWNER)
        await rig.judge.catch_up()
        answered = await rig.store.approvals.get(asked.id)
        # This host passes no reason on: none is kept, and the bot says so.
        assert (answered.choice, answered.reason, answered.through) == (ApprovalChoice.NO, "", "ci")
        assert (await rig.store.outbox.list())[0].body.endswith("is refused now. Its agent is not told why.")


async def test_words_in_a_chat_answer_the_question_of_an_agent(tmp_path: Path) -> None:
    """Only a question, and only whole: a yes is no answer to it, and words are no yes to a tool."""
    colour = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
    arguments = {"questions": [colour]}
    async with open_judge(tmp_path, FakeClock()) as rig:
        tool = await rig.store.approvals.ask(request_of(), timedelta(hours=1))
        digest = approval_digest("claude-code", "claude-code:8", "AskUserQuestion", arguments)
        choices = (ApprovalChoice.ANSWER, ApprovalChoice.NO)
        asking = replace(request_of(session="claude-code:8"), arguments=arguments, digest=digest, choices=choices)
        asked = await rig.store.approvals.ask(asking, timedelta(hours=1))
        for text in (f"answer {tool.id} Red", f"yes {asked.id}", f"answer {asked.id}", f"> answer {asked.id} Red"):
            await rig.say(text, trust=Trust.OWNER)
        await rig.say(f"answer {asked.id} Red", trust=Trust.KNOWN)
        await rig.judge.catch_up()
        assert len(await rig.store.approvals.list([ApprovalState.OPEN])) == 2
        await rig.say(f"Answer {asked.id} Blue", trust=Trust.OWNER)
        await rig.judge.catch_up()
        answered = await rig.store.approvals.get(asked.id)
        assert (answered.choice, answered.reason, answered.through) == (ApprovalChoice.ANSWER, "Blue", "ci")
        assert (await rig.store.outbox.list())[0].body.endswith("is answered now.")


async def test_windows_outlive_a_time_with_other_rules(tmp_path: Path) -> None:
    """A file that is tried out for an hour must not make the usual one forget what it has done."""
    clock = FakeClock()
    write(tmp_path, {**TELL, "dedupWindow": "24h"})
    async with open_judge(tmp_path, clock) as rig:
        await rig.say("red")
        await rig.judge.catch_up()
        clock.advance(7_200)
        write(tmp_path, {"name": "other"})
        await rig.judge.reload()
        await rig.say("green")
        await rig.judge.catch_up()
        write(tmp_path, {**TELL, "dedupWindow": "24h"})
        await rig.judge.reload()
        await rig.say("red")
        await rig.judge.catch_up()
        assert (await rig.outcomes())[-1] == ("red", "tell", "duplicate")


async def test_burst_is_accounted_for_to_the_last_message(tmp_path: Path) -> None:
    """Thousands of alerts in a minute happen on the worst day; the queue is bounded and nothing is lost from sight."""
    count, at_once = 2_000, 250
    write(tmp_path, {**AUTO, "rateLimit": "1h"}, {**ASK, "channel": "*"}, TELL)
    async with open_judge(tmp_path, FakeClock()) as rig:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.judge.run)
            for number in range(0, count, at_once):
                # Storing goes on while the judge works: it is not held up by what is waiting to be judged.
                await rig.say(*(f"red {n}" for n in range(number, number + at_once)))
            with anyio.fail_after(120):
                await rig.judge.catch_up()
            tasks.cancel_scope.cancel()
        counts = await rig.store.rules.counts()
        assert counts["run"].outcomes == {Outcome.FIRED: 1, Outcome.LIMITED: count - 1}
        assert counts["ask"].outcomes == {Outcome.FIRED: MAX_WAITING - 1, Outcome.FULL: count - MAX_WAITING + 1}
        assert counts["tell"].outcomes == {Outcome.FIRED: count}
        assert (await rig.store.rules.state()).waiting == MAX_WAITING
        waiting = await rig.store.actions.list([ActionState.WAITING, ActionState.QUEUED], limit=200)
        assert Counter(action.mode for action in waiting) == {Mode.CONFIRM: MAX_WAITING - 1, Mode.AUTO: 1}


async def test_pause_and_resume_hold_for_what_comes_then(tmp_path: Path) -> None:
    """Messages keep arriving; only what came while paused is left alone."""
    write(tmp_path, TELL)
    async with open_judge(tmp_path, FakeClock()) as rig:
        for text, is_paused in (("red 1", False), ("red 2", True), ("red 3", False)):
            await rig.judge.catch_up()
            await rig.store.rules.pause(is_on=is_paused)
            await rig.say(text)
        await rig.judge.catch_up()
        assert [outcome for _, _, outcome in await rig.outcomes()] == ["fired", "paused", "fired"]
