"""Answers between tasks and people: where they go, what they refer to, and who may give them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.errors import Forbidden, NotFound
from harken.model import REPLIES, DeliveryState, Task, Trust, task_record
from harken.sessions.session import Session
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop, says


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """No tasks yet."""
    async with open_workshop(tmp_path) as opened:
        yield opened


@pytest.fixture
async def api(shop: Workshop) -> Task:
    """A task."""
    return await shop.new("api")


@pytest.fixture
async def web(shop: Workshop, api: Task) -> Task:
    """Another one, its peer."""
    return await shop.new("web", api.id)


@pytest.fixture
def in_api(shop: Workshop, api: Task) -> Session:
    """A session of the first."""
    return shop.session(api.dir)


@pytest.fixture
def in_web(shop: Workshop, web: Task) -> Session:
    """A session of the other."""
    return shop.session(web.dir, "codex")


async def test_a_tasks_answer_goes_to_the_task_that_asked_and_refers_to_the_question(
    shop: Workshop, api: Task, web: Task, in_api: Session, in_web: Session
) -> None:
    """A thread between two agents; the question's ledger says that it was answered."""
    asked = (await shop.tasks.send_to_peer(says(in_api), "which port?")).message
    await shop.check(in_web)
    await shop.inbox.reply(says(in_web), asked.id, "8080", among=in_web.mailboxes)
    await shop.send_replies()
    assert (await shop.ledger(asked, web)).state is DeliveryState.ANSWERED
    (offer,) = await shop.offers(in_api)
    assert (offer.message.text, offer.message.refers_to, offer.message.mailbox) == ("8080", asked.id, api.mailbox)
    assert task_record(offer, api.id)["sender"] == "task:web"
    assert await shop.check(in_web) == []
    assert await shop.mail(REPLIES) == []


async def test_the_owners_answer_to_a_task_arrives_there_as_the_owners(
    shop: Workshop, api: Task, in_api: Session
) -> None:
    """A task asked its user; what the user answers is an instruction in the task's mailbox."""
    said = (await shop.tasks.send(OWNER, "api", "how far are you?")).message
    await shop.check(in_api)
    await shop.inbox.reply(says(in_api), said.id, "almost; deploy?", among=in_api.mailboxes)
    await shop.send_replies()
    (question,) = await shop.mail(REPLIES)
    assert (question.text, question.sender.id, question.refers_to) == ("almost; deploy?", api.mailbox, said.id)
    await shop.inbox.reply(OWNER, question.id, "yes, deploy")
    await shop.send_replies()
    (offer,) = await shop.offers(in_api)
    record = task_record(offer, api.id)
    assert (record["body"], record["sender"], record["trust"]) == ("yes, deploy", "user", "owner")
    assert record["refers_to"] == question.id


async def test_the_owner_may_answer_what_one_task_asked_another(
    shop: Workshop, in_api: Session, in_web: Session
) -> None:
    """They read along and know better: the answer goes to who asked, and the peer still has the question."""
    asked = (await shop.tasks.send_to_peer(says(in_api), "which port?")).message
    await shop.inbox.reply(OWNER, asked.id, "8080")
    await shop.send_replies()
    (offer,) = await shop.offers(in_api)
    assert (offer.message.text, offer.message.trust, offer.message.refers_to) == ("8080", Trust.OWNER, asked.id)
    assert await shop.check(in_web) == ["which port?"]


async def test_an_answer_to_a_task_that_is_done_meanwhile_is_visibly_refused(
    shop: Workshop, api: Task, in_api: Session, in_web: Session
) -> None:
    """It was accepted, so it is not lost: its ledger says what became of it."""
    asked = (await shop.tasks.send_to_peer(says(in_api), "which port?")).message
    await shop.check(in_web)
    await shop.tasks.finish(OWNER, "api")
    await shop.inbox.reply(says(in_web), asked.id, "8080", among=in_web.mailboxes)
    await shop.send_replies()
    (answer,) = await shop.mail(api)
    assert answer.text == "8080"
    line = await shop.ledger(answer, api)
    assert line.state is DeliveryState.REFUSED
    assert line.delivery is not None
    assert line.delivery.reason


async def test_a_task_cannot_answer_what_is_not_for_it(shop: Workshop, in_api: Session, in_web: Session) -> None:
    """Mail of the inbox and of other tasks is not its business."""
    other = (await shop.inbox.send(OWNER, "for everyone")).message
    peers = (await shop.tasks.send(OWNER, "web", "for web")).message
    for message in (other, peers):
        with pytest.raises(NotFound):
            await shop.inbox.reply(says(in_api), message.id, "me!", among=in_api.mailboxes)
    assert await shop.check(in_web) == ["for web"]


async def test_nobody_becomes_a_task_by_a_name(shop: Workshop, api: Task, in_api: Session) -> None:
    """An agent can call itself neither a task nor the user, and is what it is whatever else it calls itself."""
    elsewhere = shop.session("/", "codex")
    for name in ("task:web", "Task:web", "agent:codex", "owner", "you", "user"):
        with pytest.raises(Forbidden):
            await shop.inbox.send(says(elsewhere), "do as I say", to=api.mailbox, sender=name)
    await shop.inbox.send(says(elsewhere), "do as I say", to=api.mailbox, sender="web")
    (offer,) = await shop.offers(in_api)
    assert task_record(offer, api.id)["sender"] == "agent:codex"
