"""Replies of a bot: into the conversation that wrote, once at most, and never a token to anybody else."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from harken.errors import Forbidden, HarkenError, NeedsPerson, NotFound, Unavailable, UserError
from harken.model import Draft, OutgoingReply
from harken.sources.bot.source import MAX_BYTES, MaybeSent
from tests.sources.bot.rig import Notes, Rig, answer_to
from tests.sources.bot.service import ANN, BOT, Fault

SECONDS = 20


async def heard(rig: Rig, chat: str = "a:1personal", **conversation: object) -> Draft:
    """Let somebody write to the bot."""
    activity = rig.service.activity(chat=chat)
    activity["conversation"] |= conversation
    await rig.post(activity)
    return rig.drafts[-1]


async def send(rig: Rig, reply: OutgoingReply) -> str:
    """Send a reply, within a bound."""
    with anyio.fail_after(SECONDS):
        return await rig.bot.sender.send(reply)


async def failing(rig: Rig, reply: OutgoingReply, kind: type[HarkenError]) -> HarkenError:
    """Send a reply that must fail."""
    with pytest.raises(kind) as error:
        await send(rig, reply)
    return error.value


async def test_a_reply_goes_into_the_conversation_of_its_message(rig: Rig) -> None:
    """The whole of what the connector is sent, as it is documented."""
    draft = await heard(rig)
    assert await send(rig, answer_to(draft, "**Done**")) == "a:1personal/1:1"
    (sent,) = rig.service.sent
    assert (sent.conversation, f"a:1personal/{sent.activity}") == ("a:1personal", draft.upstream_id)
    assert sent.body == {
        "type": "message",
        "from": {"id": BOT["id"]},
        "recipient": {"id": ANN["id"]},
        "conversation": {"id": "a:1personal"},
        "replyToId": sent.activity,
        "text": "**Done**",
        "textFormat": "markdown",
        "entities": [
            {
                "type": "https://schema.org/Message",
                "@type": "Message",
                "@context": "https://schema.org",
                "additionalType": ["AIGeneratedContent"],
            }
        ],
    }


async def test_conversations_are_never_mixed(rig: Rig) -> None:
    """What is said to one person is not for another."""
    drafts = [await heard(rig, chat) for chat in ("a:1", "a:2", "19:x@thread.tacv2;messageid=1", "a:1")]
    for number, draft in enumerate(drafts):
        await send(rig, answer_to(draft, f"reply {number}", key=f"r-{number}"))
    assert [(each.conversation, each.body["text"]) for each in rig.service.sent] == [
        ("a:1", "reply 0"),
        ("a:2", "reply 1"),
        ("19:x@thread.tacv2;messageid=1", "reply 2"),
        ("a:1", "reply 3"),
    ]
    assert rig.service.token_requests == 1


async def test_in_a_group_the_person_is_mentioned(rig: Rig) -> None:
    """Else nobody knows to whom it is said, and the person is not told."""
    draft = await heard(rig, "19:g@thread.v2", conversationType="groupChat", isGroup=True)
    named = replace(draft, sender=replace(draft.sender, name="Ann <at>Smith & Co"))
    await send(rig, answer_to(named, "Done", author="owner"))
    (sent,) = rig.service.sent
    assert sent.body["text"] == "<at>Ann at Smith Co</at> Done"
    assert sent.body["entities"] == [
        {
            "type": "mention",
            "mentioned": {"id": ANN["id"], "name": "Ann at Smith Co"},
            "text": "<at>Ann at Smith Co</at>",
        }
    ]


async def test_pictures_become_links_and_code_stays(rig: Rig) -> None:
    """Showing a picture loads it, and tells a stranger what an agent was talked into putting into its address."""
    draft = await heard(rig)
    await send(rig, answer_to(draft, "![x](https://evil.example/?q=1) `vec![1, 2]` ![a[b]](u) ![\\]\n](v) !\\[x](w)"))
    expected = "[x](https://evil.example/?q=1) `vec![1, 2]` [a[b]](u) [\\]\n](v) !\\[x](w)"
    assert rig.service.sent[0].body["text"] == expected


@pytest.mark.parametrize("body", ["", " \n", "x" * MAX_BYTES, "ü" * (MAX_BYTES // 2)])
async def test_what_cannot_be_sent_is_said_before_anything_is(rig: Rig, body: str) -> None:
    """A reply that is too long would be refused after all, with less of a reason."""
    draft = await heard(rig)
    await failing(rig, answer_to(draft, body), UserError)
    assert rig.service.token_requests == 0


@pytest.mark.parametrize(
    "service_url",
    [
        "",
        "https://evil.example/",
        "https://smba.trafficmanager.net.evil.example/",
        "https://evil.trafficmanager.net/",
        "https://evilsmba.trafficmanager.net/",
        "https://evilbotframework.com/",
        "https://smba.trafficmanager.net@evil.example/",
        "https://evil.example\\.botframework.com/",
        "https://evil.example/?.botframework.com",
        "https://evil.example#.botframework.com",
        "http://smba.trafficmanager.net/emea/",
        "http://localhost/",
        "ftp://smba.trafficmanager.net/",
        "https://smba.trafficmanager.net/" + "x" * 600,
        "https://[redacted: token].botframework.com/",
    ],
)
async def test_a_token_never_goes_to_an_unknown_address(rig: Rig, service_url: str) -> None:
    """Whoever gets the bot's token can write to everybody as the bot."""
    draft = await heard(rig)
    moved = replace(draft, meta={**draft.meta, "service_url": service_url})
    await failing(rig, answer_to(moved), Forbidden)
    assert (rig.service.token_requests, rig.service.sent) == (0, [])


@pytest.mark.parametrize(
    "url",
    [
        "https://smba.trafficmanager.net/emea/2c841065-2796-4c85-8afe-ebd335b8c905/",
        "https://webchat.botframework.com/",
        "https://smba.infra.gcc.teams.microsoft.com/teams",
        "https://SMBA.trafficmanager.net/amer/",
    ],
)
async def test_the_addresses_of_microsoft_are_known(rig: Rig, url: str) -> None:
    """A list that is too short would park good replies."""
    assert rig.bot.settings.is_service(url)


async def test_a_message_of_another_source_is_not_answered_here(rig: Rig) -> None:
    """Only those who wrote to the bot hear from it."""
    draft = await heard(rig)
    await failing(rig, answer_to(replace(draft, source="teams")), Forbidden)
    await failing(rig, answer_to(replace(draft, conversation="a:other")), Forbidden)
    await failing(rig, answer_to(replace(draft, conversation="", upstream_id="/1")), Forbidden)
    assert rig.service.sent == []


async def test_a_token_is_renewed_once_when_it_is_not_accepted(rig: Rig) -> None:
    """A token can be withdrawn before its time."""
    await send(rig, answer_to(await heard(rig)))
    rig.service.tokens.clear()
    await send(rig, answer_to(await heard(rig), key="r-2"))
    assert (len(rig.service.sent), rig.service.token_requests) == (2, 2)


async def test_a_bot_that_is_never_accepted_needs_a_person_and_can_be_sent_later(rig: Rig) -> None:
    """Asking for tokens without end helps nobody; once it is put right the reply leaves."""
    draft = await heard(rig)
    rig.service.faults = [Fault(401), Fault(401)]
    await failing(rig, answer_to(draft), NeedsPerson)
    assert rig.service.token_requests == 2
    await send(rig, answer_to(draft))
    assert len(rig.service.sent) == 1


async def test_a_token_is_held_until_five_minutes_before_its_end(rig: Rig) -> None:
    """One token an hour is enough."""
    draft = await heard(rig)
    for number, seconds in enumerate((0, 3299, 2)):
        rig.clock.advance(seconds)
        await send(rig, answer_to(draft, key=f"r-{number}"))
    assert (len(rig.service.sent), rig.service.token_requests) == (3, 2)


async def test_a_wrong_secret_needs_a_person_and_is_not_repeated(rig: Rig) -> None:
    """The reply waits, and nothing that is shown holds what was sent."""
    draft = await heard(rig)
    rig.service.secret = rig.service.secret[::-1]
    error = await failing(rig, answer_to(draft), NeedsPerson)
    assert "AADSTS7000215" in error.message
    assert "sources.desk.secret" in error.hint
    assert rig.bot.health().reason == f"Replies wait: {error.message} {error.hint}"


async def test_the_token_service_being_busy_is_waited_out(rig: Rig) -> None:
    """Nothing was begun, so it may be tried again."""
    draft = await heard(rig)
    rig.service.token_faults = [Fault(429, headers={"Retry-After": "17"})]
    error = await failing(rig, answer_to(draft), Unavailable)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 17
    await send(rig, answer_to(draft))


@pytest.mark.parametrize("status", [429, 412])
async def test_a_reply_that_was_turned_away_is_sent_later(rig: Rig, status: int) -> None:
    """It certainly did not happen."""
    draft = await heard(rig)
    rig.service.faults = [Fault(status, headers={"Retry-After": "7"})]
    error = await failing(rig, answer_to(draft), Unavailable)
    assert isinstance(error, Unavailable)
    assert error.retry_after == 7
    await send(rig, answer_to(draft))
    assert len(rig.service.sent) == 1


async def test_a_service_that_cannot_be_reached_is_tried_again(rig: Rig) -> None:
    """Nothing can have arrived."""
    draft = await heard(rig)
    await rig.bot.tokens.token()
    gone = replace(draft, meta={**draft.meta, "service_url": "http://127.0.0.1:1/emea/"})
    await failing(rig, answer_to(gone), Unavailable)
    await send(rig, answer_to(draft))


@pytest.mark.parametrize("fault", [Fault(502, is_kept=True), Fault(503), Fault(408), Fault(0, is_kept=True), Fault(0)])
async def test_a_reply_that_may_have_been_sent_is_never_sent_again(rig: Rig, fault: Fault) -> None:
    """The connector cannot be asked whether it was: a person looks, and two answers would be worse."""
    draft = await heard(rig)
    rig.service.faults = [fault]
    error = await failing(rig, answer_to(draft), MaybeSent)
    assert error.message.startswith("It may have been sent: ")
    await failing(rig, answer_to(draft, tried_at=rig.clock.now()), MaybeSent)
    assert len(rig.service.sent) == fault.is_kept


async def test_it_is_noted_before_it_leaves_and_not_sooner(rig: Rig) -> None:
    """What could not be begun may be tried again; what was begun may not."""
    draft, notes = await heard(rig), Notes()
    rig.service.faults = [Fault(502)]
    await failing(rig, answer_to(draft, notes=notes), MaybeSent)
    assert notes == ["r-1"]
    gone = replace(draft, meta={**draft.meta, "service_url": "https://elsewhere.example/"})
    await failing(rig, answer_to(gone, notes=notes), Forbidden)
    await failing(rig, answer_to(draft, tried_at=rig.clock.now(), notes=notes), MaybeSent)
    assert notes == ["r-1"]


async def test_nothing_is_sent_that_cannot_be_noted(rig: Rig) -> None:
    """Else it might be sent again by the next daemon."""
    draft = await heard(rig)
    await failing(rig, replace(answer_to(draft), hand_over=Notes().nowhere), Unavailable)
    assert rig.service.sent == []


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Forbidden), (404, NotFound), (413, UserError), (400, UserError), (302, UserError)]
)
async def test_a_refusal_says_what_it_means_and_nothing_that_the_service_wrote(
    rig: Rig, status: int, kind: type[HarkenError]
) -> None:
    """A code is enough; what else stands there was written by somebody else."""
    draft = await heard(rig)
    rig.service.faults = [
        Fault(status, code="BotNotInConversationRoster", headers={"Location": "https://evil.example"})
    ]
    error = await failing(rig, answer_to(draft), kind)
    assert f"({status} BotNotInConversationRoster)" in error.message
    rig.service.faults = [Fault(status, code="<b>pay & win</b>")]
    error = await failing(rig, answer_to(draft), kind)
    assert f"({status})" in error.message
