"""Two pieces of work side by side that talk to each other: the same ideas as in the tour, with tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harken.errors import Forbidden
from harken.inbox.caller import Caller, Role
from harken.inbox.tasks import NewTask
from harken.model import Consumer, DeliveryState, Offer, SessionKey
from tests.tour.conftest import OWNER, Tour


async def test_two_tasks_that_are_peers_ask_and_answer_until_one_is_done(tour: Tour) -> None:
    """A task is a folder, a mailbox and whoever runs there; its mail waits for it, and only its end refuses it."""
    tasks, inbox = tour.daemon.tasks, tour.daemon.inbox
    await tasks.new(OWNER, NewTask(title="The API", dir="/w/api", prompt="Make the login faster."))
    await tasks.new(OWNER, NewTask(title="The web page", dir="/w/web", links=["api"]))
    api, web = in_task("api"), in_task("web-page")

    sent = await tasks.send_to_peer(web, "Does the login answer with a token?")
    assert sent.forecast.sentence == "waits until a session of the task starts: none runs now"
    assert await tasks.pending(api) == 2

    prompt, question = await check(tour, api)
    assert (prompt.message.text, prompt.message.trust) == ("Make the login faster.", "owner")
    assert (question.message.sender.id, question.message.trust) == ("task:web-page", "known")
    assert await check(tour, api) == []
    await inbox.proofs.prove([prompt.delivery_id], "later call")
    await tasks.send(OWNER, "api", "Never mind the tests.", priority="low")

    _, refused = await tasks.finish(OWNER, "api")
    assert refused == 2
    with pytest.raises(Forbidden, match="done"):
        await tasks.send(web, "api", "Are you there?")
    ledgers = [(await inbox.read(message.id)).ledger for message in await inbox.list(mailbox="task:api")]
    states = [line.state for ledger in ledgers for line in ledger if line.consumer == "task:api"]
    assert states == [DeliveryState.SEEN, DeliveryState.REFUSED, DeliveryState.REFUSED]


def in_task(name: str) -> Caller:
    """An agent that runs in the folder of a task is the task."""
    return Caller(role=Role.AGENT, consumer=Consumer(f"task:{name}"), session=SessionKey(f"session of {name}"))


async def check(tour: Tour, caller: Caller) -> Sequence[Offer]:
    """Return what `check_inbox` gives."""
    _, pulled = await tour.daemon.tasks.check(caller, session=caller.session, carrier="call")
    return pulled.offers
