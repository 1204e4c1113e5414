"""Answers to mails: one for each, into the conversation of the mail that is answered, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import anyio
import pytest

from harken.errors import HarkenError, NotFound, Refused, Unavailable, UserError
from harken.model import INBOX, Attention, Message, MessageId, Outgoing, Sender, Trust
from harken.sources.graph.client import MOST_TRIES, GraphClient
from harken.sources.graph.outlook.sender import MAX_CHARS, OutlookSender
from harken.sources.graph.sent import reference
from tests.graph.faults import Fault
from tests.graph.service import Graph, serving
from tests.graph.world import Mail
from tests.sources.graph.outlook_rig import NAME, Listener, calling, feed_of, settings, somebody_is_inside

ANSWERS: Final = 25
TRIES: Final = 40
RATES: Final = {
    Fault.SERVER_ERROR: 0.1,
    Fault.GATEWAY_TIMEOUT: 0.1,
    Fault.UNAVAILABLE: 0.05,
    Fault.THROTTLED: 0.05,
    Fault.RESET: 0.1,
    Fault.LOST: 0.1,
    Fault.TRUNCATED: 0.05,
}


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A service whose clock stands."""
    with serving(seed=9) as service:
        service.limits.is_on = False
        service.clock.freeze()
        yield service


def stored(mail: Mail, **changes: str) -> Message:
    """Return a mail as it is stored."""
    return Message(
        id=MessageId("m1"),
        mailbox=INBOX,
        seq=1,
        received_at=datetime(2026, 1, 5, tzinfo=UTC),
        source=changes.get("source", NAME),
        sender=Sender(changes.get("sender", mail.sender.address), mail.sender.name),
        text="x",
        trust=Trust.KNOWN,
        attention=Attention.PROMPT,
        channel="email",
        conversation=changes.get("conversation", mail.conversation),
        upstream_id=changes.get("upstream_id", mail.internet_id),
    )


def answer_to(mail: Mail, body: str = "Yes.", key: str = "o1", **changes: str) -> Outgoing:
    """Return an answer to a mail."""
    return Outgoing(key=key, to=stored(mail, **changes), body=body, author="agent:x")


def sender_of(graph: Graph, client: GraphClient, mode: str = "delegated") -> OutlookSender:
    """Return who answers."""
    return OutlookSender(settings(graph, mode=mode), client)


async def test_an_answer_stays_in_its_conversation_and_says_who_wrote_it(graph: Graph) -> None:
    """In a person's name an agent speaks: the other side is told, once, and finds it under what they wrote."""
    ann = graph.person("Ann Example")
    mail = graph.mail(ann, "Lunch?", "<p>Noon?</p>")

    async with calling(graph) as client:
        sent_id = await sender_of(graph, client).send(answer_to(mail, "**Yes**, gladly <script>x</script>"))

    (sent,) = graph.sent_mails
    assert (sent.internet_id, sent.to, sent.subject, sent.conversation) == (
        sent_id,
        [ann],
        "RE: Lunch?",
        mail.conversation,
    )
    assert sent.headers == ({"name": "In-Reply-To", "value": mail.internet_id},)
    assert sent.html == (
        "<p><strong>Yes</strong>, gladly &lt;script&gt;x&lt;/script&gt;</p>\n"
        f"<p><em>Written by an AI agent on my behalf. {reference('o1')}</em></p>"
    )


async def test_an_agent_with_its_own_account_speaks_for_nobody(graph: Graph) -> None:
    """There is no person behind that account whom it could speak for."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")

    async with calling(graph) as client:
        await sender_of(graph, client, "agent").send(answer_to(mail))

    assert f"<em>Written by an AI agent. {reference('o1')}</em>" in graph.sent_mails[0].html


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED, Fault.GATEWAY_TIMEOUT])
async def test_an_answer_that_left_unsaid_is_found_and_not_sent_again(graph: Graph, fault: Fault) -> None:
    """The service did it and could not say so: two answers would embarrass the person."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    graph.fail_next(fault, "/reply")

    async with calling(graph) as client:
        sent_id = await sender_of(graph, client).send(answer_to(mail))

    assert [sent.internet_id for sent in graph.sent_mails] == [sent_id]


async def test_an_answer_that_did_not_leave_is_sent_by_the_next_try(graph: Graph) -> None:
    """Nothing says whether it left, and it is not there: it is looked for once more before it is sent."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    graph.fail_next(Fault.RESET, "/reply")

    async with calling(graph) as client:
        with pytest.raises(Unavailable) as raised:
            await sender_of(graph, client).send(answer_to(mail))
        assert (raised.value.retry_after, graph.sent_mails) == (30.0, [])
        await sender_of(graph, client).send(answer_to(mail))

    assert len(graph.sent_mails) == 1


async def test_after_a_crash_the_same_answer_is_not_sent_again(graph: Graph) -> None:
    """The daemon can die between sending and noting it; the key is the same then, for another answer it is not."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")

    async with calling(graph) as client:
        first = await sender_of(graph, client).send(answer_to(mail))
        again = await sender_of(graph, client).send(answer_to(mail))
        other = await sender_of(graph, client).send(answer_to(mail, key="o2"))

    assert first == again != other
    assert len(graph.sent_mails) == 2


async def test_what_goes_wrong_after_sending_is_no_failure(graph: Graph) -> None:
    """The answer has left; told that it has not, the outbox would try again, and people would worry."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    sent: list[str] = []

    async def send(client: GraphClient) -> None:
        sent.append(await sender_of(graph, client).send(answer_to(mail)))

    async with calling(graph) as client:
        with graph.holding("/reply") as release:
            async with anyio.create_task_group() as group:
                group.start_soon(send, client)
                await somebody_is_inside(graph)
                graph.fail_next(Fault.SERVER_ERROR, "sentitems", times=MOST_TRIES)
                release.set()

    assert (sent, len(graph.sent_mails)) == ([""], 1)


async def test_every_answer_leaves_once_under_faults(graph: Graph) -> None:
    """Whatever goes wrong, each is sent and none twice, if it is tried as often as the outbox does."""
    ann = graph.person("Ann")
    mails = [graph.mail(ann, f"Mail {number}", "x") for number in range(ANSWERS)]
    graph.faults(**{fault.value: rate for fault, rate in RATES.items()}, under="/v1.0/")

    async with calling(graph) as client:
        for number, mail in enumerate(mails):
            for _ in range(TRIES):
                try:
                    await sender_of(graph, client).send(answer_to(mail, key=f"o{number}"))
                except Unavailable:
                    continue
                break

    assert sorted(sent.conversation for sent in graph.sent_mails) == sorted(mail.conversation for mail in mails)


async def test_a_forged_id_leads_no_answer_astray(graph: Graph) -> None:
    """Anybody can send a mail with the id of another's: the answer goes to whom the person was shown."""
    ann, eve = graph.person("Ann"), graph.person("Eve")
    mail = graph.mail(ann, "Hi", "x")
    graph.clock.advance(60)
    graph.mail(eve, "Hi", "x", internet_id=mail.internet_id)
    graph.mail(eve, "Hi", "x", internet_id=mail.internet_id, conversation=mail.conversation)

    async with calling(graph) as client:
        await sender_of(graph, client).send(answer_to(mail))

    assert [sent.to for sent in graph.sent_mails] == [[ann]]


@pytest.mark.parametrize(
    ("body", "changes", "error"),
    [
        (" \n", {}, UserError),
        ("x" * (MAX_CHARS + 1), {}, UserError),
        ("x", {"source": "elsewhere"}, Refused),
        ("x", {"conversation": ""}, Refused),
        ("x", {"conversation": "another"}, NotFound),
        ("x", {"upstream_id": "<it's gone@example.test>"}, HarkenError),
    ],
)
async def test_what_cannot_be_sent_is_told_and_not_sent(
    graph: Graph, body: str, changes: dict[str, str], error: type[HarkenError]
) -> None:
    """The outbox parks such an answer where people see it; trying again would not help."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")

    async with calling(graph) as client:
        with pytest.raises(error):
            await sender_of(graph, client).send(answer_to(mail, body, **changes))

    assert graph.sent_mails == []
    assert graph.asked("/reply") == []


async def test_our_own_answer_is_not_heard_and_a_copied_reference_is(graph: Graph) -> None:
    """An agent that hears itself answers itself; but nobody else can make a mail unheard by writing the reference."""
    listener = Listener()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client))
        graph.clock.advance(60)
        mail = graph.mail(graph.me, "Note to myself", "x")
        await sender_of(graph, client).send(answer_to(mail))
        (sent,) = graph.sent_mails
        graph.mail(graph.me, "Comes back", sent.html, internet_id=sent.internet_id)
        graph.mail(graph.person("Eve"), "Copied", sent.html)
        await listener.look(feed_of(graph, client))

    assert sorted(listener.subjects) == ["Copied", "Note to myself"]
