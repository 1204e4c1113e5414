"""A process that works with tasks until it is killed, and prints each result once it has it. Not a test.

`live` can be begun again after a crash and ends in the same state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

from harken.errors import Conflict, NotFound
from harken.store.contract import Store
from harken.testing import FakeClock
from tests.contracts.store_suite import new_message
from tests.contracts.tasks import reader_of, task
from tests.store.crash_child import tell

API: Final = task("api")
WEB: Final = task("web")
STEPS: Final = ("web", "api", "mail", "started", "offered", "done", "late", "removed")


def steps(store: Store, clock: FakeClock) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """Return the story: each step is one commit."""

    async def see_first() -> None:
        until = clock.now() + timedelta(minutes=15)
        given = await store.deliveries.offer(reader_of(API), 1, surface="pull", carrier="call-1", lease_until=until)
        tell("given", [each.message.text for each in given.whole])

    def say(*texts: str) -> Callable[[], Awaitable[object]]:
        batch = [new_message(text, mailbox=API.mailbox, key=text.encode()) for text in texts]
        return lambda: store.messages.append(batch)

    return {
        "web": lambda: store.tasks.add(WEB),
        "api": lambda: store.tasks.add(API, [WEB.id]),
        "mail": say("one", "two"),
        "started": lambda: store.tasks.start(API.id),
        "offered": see_first,
        "done": lambda: store.tasks.finish(API.id),
        "late": say("three"),
        "removed": lambda: store.tasks.remove(API.id),
    }


async def live(store: Store, clock: FakeClock) -> None:
    """Live through the story; what was done before a crash is not done again."""
    for name, step in steps(store, clock).items():
        with suppress(Conflict, NotFound):
            await step()
        tell(name)
