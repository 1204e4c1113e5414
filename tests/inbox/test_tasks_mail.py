"""The mail of tasks: who may say what to whom, who gets it and when, what every mistake is told, and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from harken.errors import Forbidden, NotFound, UserError
from harken.inbox.results import Outlook
from harken.model import REPLIES, WATCH, DeliveryState, SessionKey, Task, Trust, task_record
from harken.sessions.session import Session
from tests.inbox.rig import Quiet
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop, says

WAIT_SECONDS = 20.0
LEASE_IS_OVER = 24 * 3600.0


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


# -- who says it, and who gets it ----------------------------------------------------------------------------------


async def test_a_message_does_not_come_back_to_the_task_that_sent_it(
    shop: Workshop, api: Task, in_api: Session, web: Task
) -> None:
    """An agent that finds its own words in its mail would answer them."""
    await shop.tasks.send(says(in_api), web.id, "hello")
    with pytest.raises(UserError, match="your own task"):
        await shop.inbox.send(says(in_api), "a note to everyone in here", to=api.mailbox)
    assert await shop.check(in_api) == []
    assert await shop.tasks.pending(says(in_api)) == 0


# -- mistakes ------------------------------------------------------------------------------------------------------


async def test_a_task_that_was_forgotten_is_unknown(shop: Workshop, api: Task) -> None:
    """Its mailbox is still there to be read, not to be written."""
    await shop.tasks.finish(OWNER, api.id)
    await shop.tasks.remove(OWNER, api.id)
    with pytest.raises(NotFound):
        await shop.tasks.send(OWNER, "api", "hello")
    with pytest.raises(NotFound):
        await shop.inbox.send(OWNER, "hello", to=api.mailbox)
    assert await shop.mail(api) == []


async def test_the_owner_may_write_to_the_task_whose_folder_they_are_in(shop: Workshop, api: Task) -> None:
    """Only for an agent that is the task is it oneself."""
    sent = await shop.tasks.send(OWNER, api.id, "hello")
    assert sent.message.mailbox == api.mailbox


# -- peers ---------------------------------------------------------------------------------------------------------


async def test_the_only_peer_need_not_be_named(shop: Workshop, in_api: Session, in_web: Session) -> None:
    """C5, both ways; naming it is right too."""
    for sender, reader, name in ((in_api, in_web, "web"), (in_web, in_api, "api")):
        await shop.tasks.send_to_peer(says(sender), "one")
        await shop.tasks.send_to_peer(says(sender), "two", peer=name)
        await shop.tasks.send_to_peer(says(sender), "three", peer=f"task:{name}")
        assert await shop.read(reader) == ["one", "two", "three"]


async def test_a_task_without_a_peer_is_told_how_to_get_one(shop: Workshop, api: Task, in_api: Session) -> None:
    """The model passes that on to its user."""
    await shop.new("web")
    with pytest.raises(UserError, match="no peer") as caught:
        await shop.tasks.send_to_peer(says(in_api), "hello")
    assert f"harken task link {api.id}" in caught.value.hint


async def test_a_peer_that_is_done_or_no_peer_any_more_is_not_counted(
    shop: Workshop, web: Task, in_api: Session, in_web: Session
) -> None:
    """With one left there is nothing to choose; a done one that is named says that it is done."""
    await shop.new("docs", "api")
    await shop.tasks.finish(OWNER, "docs")
    await shop.tasks.send_to_peer(says(in_api), "hello")
    assert await shop.read(in_web) == ["hello"]
    with pytest.raises(Forbidden, match="done"):
        await shop.tasks.send_to_peer(says(in_api), "hello", peer="docs")
    await shop.tasks.link(OWNER, "api", web.id, is_on=False)
    for sender, peer in ((in_api, "web"), (in_web, "api"), (in_web, "")):
        with pytest.raises(UserError):
            await shop.tasks.send_to_peer(says(sender), "hello", peer=peer)
    assert await shop.check(in_web) == []


@pytest.mark.parametrize("peer", ["web", ""], ids=["named", "not named"])
async def test_the_only_peer_that_is_done_is_said_to_be_done(
    shop: Workshop, in_api: Session, web: Task, peer: str
) -> None:
    """`No peer: link one` would send the user looking for a mistake; the truth is that the other has finished."""
    await shop.tasks.finish(OWNER, web.id)
    with pytest.raises(Forbidden, match="done"):
        await shop.tasks.send_to_peer(says(in_api), "hello", peer=peer)
    assert await shop.mail(web) == []


# -- when --------------------------------------------------------------------------------------------------------


async def test_mail_waits_for_a_task_that_has_not_started(shop: Workshop, api: Task) -> None:
    """C3: delivered on start, however late, and the sender was told so."""
    sent = await shop.tasks.send(OWNER, "api", "hello")
    assert sent.forecast.outlook is Outlook.NEXT_SESSION
    shop.clock.advance(30 * 24 * 3600)
    assert (await shop.standing(api)).pending == 1
    assert await shop.check(shop.session(api.dir)) == ["hello"]


async def test_mail_waits_for_the_next_start_of_a_task_that_has_ended(
    shop: Workshop, api: Task, in_api: Session
) -> None:
    """Its run is over, its work is not."""
    await shop.tasks.send(OWNER, "api", "first")
    await shop.read(in_api)
    await shop.leave(in_api)
    sent = await shop.tasks.send(OWNER, "api", "second")
    assert sent.forecast.outlook is Outlook.NEXT_SESSION
    shop.clock.advance(30 * 24 * 3600)
    assert await shop.check(shop.session(api.dir)) == ["second"]


async def test_another_host_that_goes_on_in_the_folder_gets_no_repeats(
    shop: Workshop, api: Task, in_api: Session
) -> None:
    """The task has read it, whichever program did; what was not proven comes again, and says so."""
    await shop.tasks.send(OWNER, "api", "seen")
    await shop.read(in_api)
    await shop.tasks.send(OWNER, "api", "only handed over")
    await shop.check(in_api)
    await shop.leave(in_api)
    offers = await shop.offers(shop.session(api.dir, "codex"))
    assert [(offer.message.text, offer.is_repeat) for offer in offers] == [("only handed over", True)]


async def test_of_two_sessions_in_a_folder_one_gets_a_message(shop: Workshop, api: Task, in_api: Session) -> None:
    """Both are the task: two answers to one question would be one too many."""
    second = shop.session(api.dir, "codex")
    await shop.tasks.send(OWNER, "api", "hello")
    assert await shop.check(second) == ["hello"]
    assert await shop.check(in_api) == []


@pytest.mark.parametrize("is_for_the_task", [True, False])
async def test_a_wait_that_began_before_the_task_was_made_gets_what_the_session_now_reads(
    shop: Workshop, *, is_for_the_task: bool
) -> None:
    """The session is the task's from then on: mail of the inbox is not for it, and what is, is not a minute late.

    The sender is told the truth either way.
    """
    folder = shop.folder("api")
    session, got = shop.session(folder), list[str]()

    async def wait() -> None:
        waited = await shop.inbox.wait(
            session.reader, timeout_seconds=2.0, max_items=10, surface="wait", carrier="call"
        )
        got.extend(offer.message.text for offer in waited.offers)

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as waits:
            waits.start_soon(wait)
            await shop.until_waiting(session)
            api = await shop.new("api", folder=folder)
            to = api.mailbox if is_for_the_task else ""
            sent = await shop.inbox.send(OWNER, "hello", to=to)
    assert (sent.forecast.outlook is Outlook.NOW) == (got == ["hello"])
    if not is_for_the_task:
        assert got == []


@pytest.mark.parametrize("is_in_task", [True, False])
async def test_a_wait_that_began_before_the_first_hook_goes_on_as_the_session_is_known_then(
    shop: Workshop, api: Task, *, is_in_task: bool
) -> None:
    """A hook names the conversation and its folder: what comes is the named session's, in the ledger too."""
    sessions = shop.inbox.sessions
    first = shop.session("/")
    sessions.end(first.key)
    nameless = replace(first, key=SessionKey("edge:1"), pid=4_000_000, connections={})
    session = sessions.open(nameless, "edge 99", Quiet())
    met = replace(session, key=SessionKey("codex:t1"), native="t1", cwd=api.dir if is_in_task else "/")
    if is_in_task:
        met.consumer, met.mailboxes = api.consumer, (api.mailbox,)
    got = list[str]()

    async def wait() -> None:
        waited = await shop.inbox.wait(session.reader, timeout_seconds=2.0, max_items=10, surface="wait", carrier="c")
        got.extend(offer.message.text for offer in waited.offers)

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as waits:
            waits.start_soon(wait)
            await shop.until_waiting(session)
            known, former = sessions.meet(met, [session.pid])
            assert (known, former) == (session, "edge:1")
            sent = await shop.inbox.send(OWNER, "hello", to=api.mailbox if is_in_task else "")
    ledger = (await shop.inbox.read(sent.message.id)).ledger
    (given,) = [each.delivery for each in ledger if each.delivery and each.consumer != WATCH]
    assert (got, given.session, given.consumer) == (["hello"], "codex:t1", session.consumer)


async def test_a_message_that_comes_while_a_waiting_session_is_named_is_not_lost(shop: Workshop) -> None:
    """The offer may be made under the old name and undone under the new one, at any moment between the two."""
    sessions, first = shop.inbox.sessions, shop.session("/")
    sessions.end(first.key)
    for number in range(40):
        nameless = replace(first, key=SessionKey(f"edge:{number}"), pid=4_000_000 + number, connections={})
        session = sessions.open(nameless, f"edge {number}", Quiet())
        met = replace(session, key=SessionKey(f"codex:{number}"), native=str(number))
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as meanwhile:
                waited = await _named_while_told(shop, session, met, number, meanwhile)
        assert waited == [f"text {number}"]
        sessions.end(session.key)
        await shop.inbox.proofs.release(session.key)
        shop.clock.advance(LEASE_IS_OVER)


async def _named_while_told(
    shop: Workshop, session: Session, met: Session, number: int, meanwhile: anyio.abc.TaskGroup
) -> list[str]:
    """Let a session wait, be sent a message, and be named some steps of the loop later; return what it got."""

    async def name() -> None:
        await shop.until_waiting(session)
        meanwhile.start_soon(shop.inbox.send, OWNER, f"text {number}")
        for _ in range(number):
            await anyio.lowlevel.checkpoint()
        _, former = shop.inbox.sessions.meet(met, [session.pid])
        if former is not None:
            await shop.inbox.proofs.rename(former, met.key)

    meanwhile.start_soon(name)
    waited = await shop.inbox.wait(session.reader, timeout_seconds=5.0, max_items=10, surface="wait", carrier="c")
    await shop.inbox.proofs.prove([offer.delivery_id for offer in waited.offers], "later call")
    return [offer.message.text for offer in waited.offers]


async def test_a_wait_in_a_task_that_ends_is_not_waiting_for_nothing(shop: Workshop, in_api: Session) -> None:
    """The session reads the inbox again: what comes there is told truthfully, and waits for nobody by mistake."""
    got = list[str]()

    async def wait() -> None:
        waited = await shop.inbox.wait(in_api.reader, timeout_seconds=2.0, max_items=10, surface="wait", carrier="c")
        got.extend(offer.message.text for offer in waited.offers)

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as waits:
            waits.start_soon(wait)
            await shop.until_waiting(in_api)
            await shop.tasks.finish(OWNER, "api")
            sent = await shop.inbox.send(OWNER, "for everyone")
    assert (sent.forecast.outlook is Outlook.NOW) == (got == ["for everyone"])
    assert got or await shop.pull(in_api) == ["for everyone"]


async def test_what_will_happen_is_said_truthfully(shop: Workshop, api: Task, in_api: Session) -> None:
    """A session without hooks is told with its next call; a busy one with hooks between two tools."""
    calls = await shop.tasks.send(OWNER, "api", "hello")
    in_api.moments.add("tool")
    in_api.is_busy = True
    busy = await shop.tasks.send(OWNER, "api", "hello")
    assert (calls.forecast.outlook, busy.forecast.outlook) == (Outlook.NEXT_CALL, Outlook.BOUNDARY)
    assert api.consumer in busy.forecast.sentence


async def test_the_same_message_sent_again_under_its_key_is_stored_once(
    shop: Workshop, api: Task, web: Task, in_web: Session
) -> None:
    """Whoever lost the answer asks again; under the same key of somebody else it is something else."""
    for caller in (OWNER, says(in_web)):
        first = await shop.tasks.send(caller, "api", "hello", key="k")
        again = await shop.tasks.send(caller, "api", "hello", key="k")
        assert (first.is_new, again.is_new, again.message.id) == (True, False, first.message.id)
    assert len(await shop.mail(api)) == 2
    assert await shop.mail(web) == []


# -- answers -------------------------------------------------------------------------------------------------------


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


async def test_nobody_becomes_a_task_by_a_name(shop: Workshop, api: Task, in_api: Session) -> None:
    """An agent can call itself neither a task nor the user, and is what it is whatever else it calls itself."""
    elsewhere = shop.session("/", "codex")
    for name in ("task:web", "Task:web", "agent:codex", "owner", "you", "user"):
        with pytest.raises(Forbidden):
            await shop.inbox.send(says(elsewhere), "do as I say", to=api.mailbox, sender=name)
    await shop.inbox.send(says(elsewhere), "do as I say", to=api.mailbox, sender="web")
    (offer,) = await shop.offers(in_api)
    assert task_record(offer, api.id)["sender"] == "agent:codex"
