"""Answers to mails: one for each, into the conversation of the mail that is answered, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import anyio
import pytest

from harken.errors import Forbidden, HarkenError, NotFound, Unavailable, Uncertain, UserError
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import INBOX, OWNER_ID, Attention, Message, MessageId, OutgoingReply, Sender, Trust
from harken.sources.microsoft.client import MAX_TRIES, GraphClient
from harken.sources.microsoft.sent import SentMessages, reference
from harken.sources.outlook.mail import closing_id
from harken.sources.outlook.sender import LOOKED_FOR, MAX_CHARS, OutlookSender
from tests.graph.faults import Fault
from tests.graph.service import Graph
from tests.graph.shapes import mail_id
from tests.graph.world import Mail, Person
from tests.sources.microsoft.outlook_rig import NAME, Listener, calling, feed_of, settings, somebody_is_inside

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


pytestmark = pytest.mark.usefixtures("unlimited")


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


def answer_to(mail: Mail, body: str = "Yes.", key: str = "o1", **changes: str) -> OutgoingReply:
    """Return an answer to a mail."""
    return OutgoingReply(key=key, to=stored(mail, **changes), body=body, author="agent:x")


def sender_of(
    graph: Graph, client: GraphClient, mode: str = "delegated", sent: SentMessages | None = None
) -> OutlookSender:
    """Return who answers."""
    return OutlookSender(settings(graph, mode=mode), client, sent or SentMessages(), graph.clock)


async def try_until_sent(graph: Graph, client: GraphClient, reply: OutgoingReply) -> list[float]:
    """Try as the outbox does, with its notes; return the seconds that it waited between."""
    noted: list[datetime] = []

    async def hand_over() -> None:
        noted[:] = [graph.clock.now()]

    waited: list[float] = []
    for _ in range(TRIES):
        tried_at = noted[0] if noted else None
        try:
            await sender_of(graph, client).send(replace(reply, tried_at=tried_at, hand_over=hand_over))
        except Uncertain as error:
            waited.append(error.retry_after)
            graph.clock.advance(error.retry_after)
        except Unavailable:
            noted[:] = [tried_at] if tried_at else []
            graph.clock.advance(1)
        else:
            return waited
    pytest.fail("it was never sent")


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


async def test_answer_of_the_person_has_the_reference_only(graph: Graph) -> None:
    """What they answer themselves is not said to be an agent's; the reference finds it again."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")

    async with calling(graph) as client:
        await sender_of(graph, client).send(replace(answer_to(mail, "Yes."), author=OWNER_ID))

    (sent,) = graph.sent_mails
    assert sent.html == f"<p>Yes.</p>\n<p><em>{reference('o1')}</em></p>"


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


async def test_an_answer_that_did_not_leave_is_looked_for_and_sent_then(graph: Graph) -> None:
    """Nothing says whether it left, and it is not there: sent again at once, it could arrive twice."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    graph.fail_next(Fault.RESET, "/reply")

    async with calling(graph) as client:
        waited = await try_until_sent(graph, client, answer_to(mail))

    assert (len(graph.sent_mails), sum(waited)) == (1, LOOKED_FOR.total_seconds())


@pytest.mark.parametrize("late", [45.0, 200.0, 290.0])
async def test_an_answer_that_is_seen_only_later_is_not_sent_again(graph: Graph, late: float) -> None:
    """Accepted is not filed: among the sent mails it appears when the service gets round to it."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    graph.mailbox.filing_seconds = late
    graph.fail_next(Fault.LOST, "/reply")

    async with calling(graph) as client:
        waited = await try_until_sent(graph, client, answer_to(mail))

    assert (len(graph.sent_mails), len(graph.asked("/reply"))) == (1, 1)
    assert late <= sum(waited) < late + 31


async def test_before_an_answer_may_leave_that_is_noted(graph: Graph) -> None:
    """The daemon can die in the next moment: only the note tells that it may have left, and nobody notes it before."""
    mail = graph.mail(graph.person("Ann"), "Hi", "x")
    asked: list[int] = []

    async def hand_over() -> None:
        asked.append(len(graph.asked("/reply")))

    async with calling(graph) as client:
        await sender_of(graph, client).send(replace(answer_to(mail), hand_over=hand_over))
        with pytest.raises(NotFound):
            await sender_of(graph, client).send(
                replace(answer_to(mail, key="o2", conversation="another"), hand_over=hand_over)
            )

    assert (asked, len(graph.asked("/reply"))) == ([0], 1)


async def test_an_answer_that_cannot_be_seen_yet_is_known_when_it_comes_back(graph: Graph) -> None:
    """What is not among the sent ones yet has no id that we know; what it ends with is an id too."""
    listener, sent = Listener(), SentMessages()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client))
        graph.clock.advance(60)
        mail = graph.mail(graph.me, "Note to myself", "x")
        graph.mailbox.filing_seconds = 45.0
        sent_id = await sender_of(graph, client, sent=sent).send(answer_to(mail))
        assert sent_id == closing_id("o1")
        graph.clock.advance(60)
        await listener.look(feed_of(graph, client, SentMessages([sent_id])))
        (left,) = graph.sent_mails
        graph.mail(graph.me, left.subject, left.html, internet_id=left.internet_id)
        await listener.look(feed_of(graph, client, SentMessages([sent_id])))

    assert listener.subjects == ["Note to myself"]


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
                graph.fail_next(Fault.SERVER_ERROR, "sentitems", times=MAX_TRIES)
                release.set()

    assert (sent, len(graph.sent_mails)) == ([closing_id("o1")], 1)


async def test_every_answer_leaves_once_under_faults(graph: Graph) -> None:
    """Whatever goes wrong, each is sent and none twice, although it is seen late, if it is tried as the outbox does."""
    ann = graph.person("Ann")
    mails = [graph.mail(ann, f"Mail {number}", "x") for number in range(ANSWERS)]
    graph.faults(**{fault.value: rate for fault, rate in RATES.items()}, under="/v1.0/")
    graph.mailbox.filing_seconds = 100.0

    async with calling(graph) as client:
        for number, mail in enumerate(mails):
            await try_until_sent(graph, client, answer_to(mail, key=f"o{number}"))
    graph.clock.advance(graph.mailbox.filing_seconds)
    graph.mailbox.file_sent()

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
        ("x", {"source": "elsewhere"}, Forbidden),
        ("x", {"conversation": ""}, Forbidden),
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
    listener, sent = Listener(), SentMessages()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client))
        graph.clock.advance(60)
        mail = graph.mail(graph.me, "Note to myself", "x")
        await sender_of(graph, client, sent=sent).send(answer_to(mail))
        (left,) = graph.sent_mails
        graph.mail(graph.me, "Comes back", left.html, internet_id=left.internet_id)
        graph.mail(graph.person("Eve"), "Copied", left.html)
        await listener.look(feed_of(graph, client, sent))

    assert sorted(listener.subjects) == ["Copied", "Note to myself"]


async def test_an_answer_that_may_have_left_is_known_when_it_comes_back(graph: Graph) -> None:
    """It can arrive before anybody has said that it left."""
    listener, sent = Listener(), SentMessages()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client))
        graph.clock.advance(60)
        mail = graph.mail(graph.me, "Note to myself", "x")
        graph.mailbox.filing_seconds = 45.0
        graph.fail_next(Fault.LOST, "/reply")
        with pytest.raises(Uncertain):
            await sender_of(graph, client, sent=sent).send(answer_to(mail))
        graph.clock.advance(60)
        graph.mailbox.file_sent()
        (left,) = graph.sent_mails
        graph.mail(graph.me, left.subject, left.html, internet_id=left.internet_id)
        await listener.look(feed_of(graph, client, sent))

    assert listener.subjects == ["Note to myself"]


async def heard(graph: Graph, mail: Mail) -> Message:
    """Return a mail as it is stored after it was heard."""
    listener = Listener()
    async with calling(graph) as client:
        await listener.look(feed_of(graph, client, since=mail.received))
    (draft,) = [each for each in listener.heard if each.meta["graph_id"] == mail_id(mail, is_immutable=True)]
    new = prepare(draft, IngestPolicy())
    changes = {"upstream_id": new.upstream_id, "conversation": new.conversation, "sender": new.sender.id}
    return replace(stored(mail, **changes), meta=new.meta)


@pytest.mark.parametrize("is_called_otherwise", [False, True])
async def test_an_answer_goes_to_the_very_mail_that_was_heard(graph: Graph, *, is_called_otherwise: bool) -> None:
    """Everything that a mail says of itself can be forged, and a forged one may ask for answers elsewhere."""
    ann, eve = graph.person("Ann"), graph.person("Eve")
    mail = graph.mail(ann, "Hi", "x")
    unproven = [{"name": "Authentication-Results", "value": "none"}]
    for html, headers in (("y", ()), ("x", unproven)):
        forged = graph.mail(ann, "Hi", html, reply_to=[eve], headers=headers, internet_id=mail.internet_id)
        forged.conversation = mail.conversation
    to = await heard(graph, mail)
    if is_called_otherwise:
        to = replace(to, meta={"graph_id": "AAkALgone"})

    async with calling(graph) as client:
        await sender_of(graph, client).send(replace(answer_to(mail), to=to))

    assert [sent.to for sent in graph.sent_mails] == [[ann]]


async def test_a_mail_without_an_id_and_one_that_names_anothers_are_answered(graph: Graph) -> None:
    """A sender who writes the service's id of another mail gets an answer, and it stays in that sender's mail."""
    boss, mallory = graph.person("Boss"), graph.person("Mallory")
    other = graph.mail(boss, "Salaries", "secret")
    forged = graph.mail(mallory, "Hi", "x", internet_id=f"graph:{mail_id(other, is_immutable=True)}")
    bare = graph.mail(boss, "No id", "x", extra={"internetMessageId": ""})

    async with calling(graph) as client:
        for key, mail in (("o1", forged), ("o2", bare)):
            await sender_of(graph, client).send(replace(answer_to(mail, key=key), to=await heard(graph, mail)))
        stale = answer_to(forged, key="o3", upstream_id=f"graph:{mail_id(other, is_immutable=True)}")
        with pytest.raises(NotFound):
            await sender_of(graph, client).send(stale)

    assert [(sent.to, sent.subject) for sent in graph.sent_mails] == [([mallory], "RE: Hi"), ([boss], "RE: No id")]


async def test_an_unproven_sender_can_be_answered(graph: Graph) -> None:
    """Most small senders prove nothing: they are not trusted, and a person may answer them."""
    mail = graph.mail(Person("", "Ann", "ann@elsewhere.test"), "Hi", "x")
    to = await heard(graph, mail)

    async with calling(graph) as client:
        await sender_of(graph, client).send(replace(answer_to(mail), to=to))

    assert to.sender.id == "unverified:ann@elsewhere.test"
    assert [sent.to for sent in graph.sent_mails] == [[mail.sender]]
