"""Many chats, everything going wrong, and the daemon killed again and again: each message once, each chat in order."""

from __future__ import annotations

import logging
import random
from contextlib import aclosing, suppress
from typing import Final

import anyio

from tests.graph.faults import BAD_DAY
from tests.graph.service import Graph
from tests.graph.world import Chat
from tests.sources.microsoft.teams_rig import Enough, Rig, rigged

CHATS: Final = 60
MESSAGES: Final = 600
WAVES: Final = 6
RUNS_PER_WAVE: Final = 4
MAX_RUNS: Final = 100
ROUNDS: Final = 75
KILLED: Final = 0.5
MAX_TRIES: Final = 40
TOO_MANY: Final = 429
NAIVE_SECONDS: Final = 5.0


_log = logging.getLogger(__name__)


class Chance(random.Random):
    """Chance that is the same on every machine."""


async def run_and_be_killed(rig: Rig, chance: Chance, *, rounds: int) -> bool:
    """Follow until something kills it, if anything: in the middle of asking, before a batch is stored, or after."""
    rig.restart()
    rig.time.rounds_left = rounds
    ends = chance.choice(["asking", "asking", "before", "after", "never"])
    # Between two requests: what is cut off in the midst of one, and came to nothing, is what the faults do.
    rig.keys.end_after(chance.randrange(1, MAX_TRIES) if ends == "asking" else -1)
    was_killed = False

    async def follow() -> None:
        nonlocal was_killed
        (feed,) = rig.source.feeds()
        with suppress(Enough):
            async with aclosing(feed.follow(rig.kept.checkpoint)) as batches:
                async for batch in batches:
                    is_last = chance.random() < KILLED
                    was_killed = is_last and ends in {"before", "after"}
                    if ends != "before" or not is_last:
                        rig.kept.take(batch)
                    if was_killed:
                        break
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await rig.until_stuck()
        was_killed = True
        group.cancel_scope.cancel()
    rig.keys.end_after(-1)
    return was_killed


async def test_everything_arrives_once_and_in_order_under_faults_and_kills(graph: Graph) -> None:
    """An accepted message is never lost: not by an error, a reset, a page twice, nor by SIGKILL at any moment."""
    chance = Chance(5)
    people = [graph.person(f"P{number}") for number in range(5)]
    chats = [graph.chat(chance.choice(people), topic=f"t{number}") for number in range(CHATS)]
    said: dict[str, list[str]] = {chat.id: [] for chat in chats}
    kills = 0
    async with rigged(graph) as rig:
        await rig.go_round(1)
        rig.time.pass_by(1)
        begun, asked = rig.time.monotonic(), len(graph.requests)
        graph.faults(**BAD_DAY, under="/v1.0/")
        for _ in range(WAVES):
            speak(graph, chance, chats, said)
            for _ in range(RUNS_PER_WAVE):
                kills += await run_and_be_killed(rig, chance, rounds=2)
        for _ in range(MAX_RUNS):
            kills += await run_and_be_killed(rig, chance, rounds=2)
            if len(rig.kept.drafts) >= MESSAGES:
                break
        graph.faults()
        await rig.go_round(3)
        minutes = (rig.time.monotonic() - begun) / 60
        requests = (len(graph.requests) - asked) / minutes
        got = {chat.id: rig.kept.texts(chat.id) for chat in chats}
    naive = CHATS * 60 / NAIVE_SECONDS
    _log.info("%.0f requests a minute, naively %.0f; %d kills in %.1f minutes", requests, naive, kills, minutes)
    assert got == said
    assert len(rig.kept.drafts) == sum(len(texts) for texts in said.values())
    assert kills >= WAVES
    assert len({entry.fault for entry in graph.requests if entry.fault}) > len(BAD_DAY) // 2
    assert [entry.path for entry in graph.requests if entry.status == TOO_MANY and not entry.fault] == []


async def test_many_busy_chats_cost_a_fraction_of_asking_each_of_them(graph: Graph) -> None:
    """Requests are limited: what is asked must follow what is said, not how many chats there are."""
    chance = Chance(6)
    ann = graph.person("Ann")
    chats = [graph.chat(ann, topic=f"t{number}") for number in range(CHATS)]
    said: dict[str, list[str]] = {chat.id: [] for chat in chats}
    async with rigged(graph) as rig:
        await rig.go_round(1)
        rig.time.pass_by(1)
        begun, asked = rig.time.monotonic(), len(graph.requests)

        def one_speaks() -> None:
            say(graph, chance.choice(chats), said)

        rig.time.at_leaps.append(one_speaks)
        await rig.go_round(ROUNDS)
        minutes = (rig.time.monotonic() - begun) / 60
        requests = (len(graph.requests) - asked) / minutes
        rig.time.at_leaps.clear()
        await rig.go_round(2)
        assert {chat.id: rig.kept.texts(chat.id) for chat in chats} == said
    naive = CHATS * 60 / NAIVE_SECONDS
    _log.info("%.0f requests a minute, naively %.0f", requests, naive)
    assert requests < naive / 10


def say(graph: Graph, chat: Chat, said: dict[str, list[str]]) -> None:
    """Let somebody say something."""
    graph.clock.advance(0.003)
    text = f"{len(said[chat.id])} in {chat.topic}"
    graph.say(chat, chat.members[1], text)
    said[chat.id].append(text)


def speak(graph: Graph, chance: Chance, chats: list[Chat], said: dict[str, list[str]]) -> None:
    """Let people speak in some chats; in one of them more than a page at a time."""
    count = MESSAGES // WAVES
    wave = [chance.choice(chats) for _ in range(count // 3)]
    wave += [chance.choice(chats)] * (count - len(wave))
    for chat in wave:
        say(graph, chat, said)
