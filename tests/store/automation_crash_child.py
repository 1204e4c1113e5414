"""A process that judges mail and lets a run begin and end until it is killed, and prints each step. Not a test.

`live` can be begun again after a crash and ends in the same state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from harken.automation import Action, Mode, RunEnd, RunId, RunState
from harken.errors import Conflict
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.testing import FakeClock
from tests.contracts.rules import WINDOW, run_of, verdict
from tests.contracts.store_suite import new_message
from tests.store.crash_child import tell

ASKS, ACTS, TELLS = "asks", "acts", "tells"
MODES: Final = {ASKS: Mode.CONFIRM, ACTS: Mode.AUTO, TELLS: Mode.NOTIFY}
RUN_ID: Final = RunId("r-000001")
STEPS: Final = ("mail", "judged", "answered", "started", "ended", "refused", "paused")


def steps(store: Store, clock: FakeClock) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """Return the story: each step is one commit."""

    async def of_rule(name: str) -> Action:
        return next(action for action in await store.actions.list() if action.rule == name)

    async def judge() -> None:
        standing = await store.rules.state()
        found = await store.rules.unjudged(standing.judged, 100)
        verdicts = [verdict(message, rule, mode) for _, message in found[:1] for rule, mode in MODES.items()]
        judged = found[-1][0] if found else standing.judged
        await store.rules.settle(
            Settlement(revision=standing.revision, judged=judged, verdicts=verdicts, keep_since=clock.now() - WINDOW)
        )

    async def answer() -> None:
        await store.actions.answer((await of_rule(ASKS)).id, is_yes=True, by="cli")

    async def start() -> None:
        await store.runs.start(run_of(await of_rule(ASKS), RUN_ID))

    async def refuse() -> None:
        await store.actions.refuse((await of_rule(ACTS)).id, "no host")

    return {
        "mail": lambda: store.messages.append([new_message(text, key=text.encode()) for text in ("one", "two")]),
        "judged": judge,
        "answered": answer,
        "started": start,
        "ended": lambda: store.runs.end(RUN_ID, RunEnd(state=RunState.DONE, answer="fixed")),
        "refused": refuse,
        "paused": lambda: store.rules.pause(is_on=True),
    }


async def live(store: Store, clock: FakeClock) -> None:
    """Live through the story; what was done before a crash is not done again."""
    for name, step in steps(store, clock).items():
        with suppress(Conflict):
            await step()
        tell(name)
