"""Four more ideas, about what stands around the inbox: a source, a hook, a rule with its run, a connected host."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from harken.automation import Run, RunState
from harken.daemon.source_set import FeedRunner
from harken.daemon.supervisor import Supervisor
from harken.hosts.connect.apply import apply, undo
from harken.hosts.connect.plan import ConnectOptions, FileEdit, InstallTarget
from harken.hosts.hook import Hello
from harken.hosts.registry import connector
from harken.inbox.questions import Questions
from harken.model import Delivery, DeliveryState, Draft, Sender
from harken.processes import LocalOrigin
from harken.sessions.session import Session
from harken.sessions.turns import HookMoment
from harken.sources.source import Batch, Source, SourceHealth, SourceState
from harken.surfaces.composer import HookComposer
from harken.surfaces.hooks import HookHandler
from tests.fake_host import fake_host
from tests.tour.conftest import OWNER, Tour, open_tour

SECONDS = 10.0


class Postcards(Source):
    """A source with one feed: three postcards, of which the checkpoint counts those that were stored."""

    name, kind, address = "postcards", "cards", "the letter box"

    def __init__(self) -> None:
        self.began_after: list[str] = []

    def feeds(self) -> Sequence[Postcards]:
        """Return its only feed: itself."""
        return [self]

    def health(self) -> SourceHealth:
        """Say that it listens."""
        return SourceHealth(state=SourceState.LISTENING)

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield each postcard behind the checkpoint."""
        self.began_after.append(checkpoint)
        for number in range(int(checkpoint or 0) + 1, 4):
            draft = Draft(source=self.name, sender=Sender("ann"), text=f"card {number}", upstream_id=str(number))
            yield Batch(drafts=[draft], checkpoint=str(number))

    def rest(self) -> Batch:
        """Return nothing: what was not stored is yielded again."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take no note."""


async def test_11_a_source_goes_on_behind_what_was_stored(tour: Tour) -> None:
    """Each batch is one transaction with its checkpoint: whenever a source is stopped, nothing is lost or twice."""
    source, runner = Postcards(), FeedRunner(tour.daemon.intake, tour.daemon.store.checkpoints)
    for _ in range(2):
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                runner.start(source, Supervisor(tasks))
    assert source.began_after == ["", "3"]
    stored = await tour.daemon.inbox.list(mailbox="inbox")
    assert [(message.source, message.text) for message in stored] == [
        ("postcards", "card 1"), ("postcards", "card 2"), ("postcards", "card 3"),
    ]  # fmt: skip


async def test_12_a_hook_carries_a_message_and_the_end_of_its_turn_proves_it(tour: Tour) -> None:
    """A host runs a hook with each prompt: what that prints, the model reads, if the turn comes to its end."""
    inbox, clock = tour.daemon.inbox, tour.clock

    async def no_bell(_session: Session) -> str:
        return ""

    composer = HookComposer(inbox, Questions(tour.daemon.store, clock))
    handler = HookHandler(
        inbox,
        clock,
        composer,
        wakers=lambda *_: (),
        reading_of=tour.daemon.reading_of,
        reach=replace(tour.daemon.wiring.reach, bell_of=no_bell),
        approvals=tour.daemon.wiring.approvals,
    )
    events = {HookMoment.PROMPT: "UserPromptSubmit", HookMoment.STOP: "Stop"}

    async def hear(moment: HookMoment) -> str:
        payload = {"session_id": "s-1", "hook_event_name": events[moment], "prompt_id": "turn 1", "prompt": "go on"}
        hello = Hello(host="claude-code", moment=moment.value, cwd="/w")
        result = await handler.hear(hello, json.dumps(payload).encode(), LocalOrigin())
        handler.confirm(result)  # the hook has printed it
        return result.answer.stdout

    sent = await inbox.send(OWNER, "mind the gap")
    assert "mind the gap" in await hear(HookMoment.PROMPT)
    delivery = await delivery_of(tour, sent.message.id)
    assert (delivery.state, delivery.surface) == (DeliveryState.OFFERED, "hook: prompt")
    assert await hear(HookMoment.STOP) == ""
    delivery = await delivery_of(tour, sent.message.id)
    assert (delivery.state, delivery.evidence) == (DeliveryState.SEEN, "end of turn")


async def delivery_of(tour: Tour, message: str) -> Delivery:
    """Return the delivery of a message to Claude Code."""
    ledger = (await tour.daemon.inbox.read(message)).ledger
    return next(line.delivery for line in ledger if line.consumer == "claude-code" and line.delivery)


# Says what Gemini CLI prints.
PROGRAM = f"""#!{sys.executable}
import json, sys
prompt = sys.stdin.read()
print(json.dumps({{"type": "message", "role": "assistant", "content": "I was asked: " + prompt.split(chr(10))[0]}}))
print(json.dumps({{"type": "result", "status": "success"}}))
"""


async def test_13_a_rule_runs_an_agent_with_the_tools_that_it_lists(tmp_path: Path) -> None:
    """A message that fits becomes an action, the action a run: a host without a person, and without further tools."""
    rule = {"name": "look", "channel": "ci", "mode": "auto", "prompt": "Why is it red?", "agent": "gemini-cli"}
    work = tmp_path / "work"
    work.mkdir()
    with fake_host(tmp_path, PROGRAM):
        async with open_tour(tmp_path) as tour, anyio.create_task_group() as tasks:
            rules = {"rules": [{**rule, "tools": ["read_file"], "workdir": str(work)}]}
            tour.home.triggers_file.write_text(json.dumps(rules))
            await tour.daemon.rule_wiring.automation.reload(OWNER)
            tour.daemon.rule_wiring.start(Supervisor(tasks))
            rung, received = anyio.create_memory_object_stream[None](100)
            with rung, received, tour.daemon.store.changes.listen(lambda _: rung.send_nowait(None)):
                await tour.daemon.inbox.send(OWNER, "the build is red", channel="ci")
                run = await finished_run(tour, received)
            tasks.cancel_scope.cancel()
    assert (run.rule, run.tools, run.answer) == ("look", ("read_file",), "I was asked: Why is it red?")


async def finished_run(tour: Tour, commits: AsyncIterable[None]) -> Run:
    """Return the first run that is over, looking after each commit."""
    with anyio.fail_after(SECONDS):
        async for _ in commits:
            for card in await tour.daemon.rule_wiring.automation.runs():
                if card.run.state is RunState.DONE:
                    return card.run
    raise AssertionError("the store was closed")


def test_14_connecting_is_a_plan_that_is_shown_done_and_undone(tmp_path: Path) -> None:
    """A host says what would change, and changes nothing; what was done is recorded, and taken back to the byte."""
    settings = tmp_path / "user" / ".gemini" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_bytes(mine := b'{ "theme":  "dark" }')
    place = InstallTarget(
        user=tmp_path / "user", environ={}, project=None, harken=tmp_path / "home", python=sys.executable,
        edge=tmp_path / "edge",
    )  # fmt: skip
    gemini, options = connector("gemini-cli"), ConnectOptions()
    plan = gemini.plan(place, options)
    assert settings in [step.path for step in plan.steps if isinstance(step, FileEdit)]
    assert settings.read_bytes() == mine
    apply(plan, place, options)
    assert b"harken" in settings.read_bytes()
    assert not gemini.plan(place, options).steps
    undo(gemini, place)
    assert [path for path in place.user.rglob("*") if path.is_file()] == [settings]
    assert settings.read_bytes() == mine
