"""The door of a bot believes Microsoft's Bot Connector and nobody else, and answers after what it read is stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence

import anyio
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from harken.errors import Forbidden, HarkenError, Unavailable, UserError
from harken.model import Draft
from harken.sources.source import PostedRequest
from tests.cost import costs_at_most
from tests.sources.bot.rig import Rig, bot_rig
from tests.sources.bot.service import ANN, TENANT, Service, signing_key

SECONDS = 20
FOREIGN = "9f952176-38a7-4d96-9b0f-fce446c9da16"


def unsigned(service: Service, alg: str, sign: Callable[[bytes], bytes]) -> str:
    """Return a token with the right claims and another way to sign."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = service.token().split(".")[1].encode()
    head = part({"alg": alg, "typ": "JWT", "kid": "key-1"}) + b"." + claims
    return (head + b"." + base64.urlsafe_b64encode(sign(head)).rstrip(b"=")).decode()


async def refused(rig: Rig, activity: object, token: str) -> str:
    """Post what must be refused; return why."""
    with anyio.fail_after(SECONDS), pytest.raises(Forbidden) as error:
        await rig.post(activity, token)
    assert rig.drafts == []
    assert error.value.message in rig.bot.health().reason
    return error.value.message


async def test_a_good_post_is_stored_and_answered(rig: Rig) -> None:
    """It is what a bot is for."""
    answer = await rig.post(rig.service.activity("Deploy, please"))
    assert (answer.status, answer.body) == (200, b"")
    (draft,) = rig.drafts
    assert (draft.text, draft.sender.id, draft.channel) == ("Deploy, please", ANN["aadObjectId"], "teams")
    health = rig.bot.health()
    assert (health.state, health.counts, health.reason) == ("listening", {"teams": 1}, "")
    assert health.last_message_at == rig.clock.now()


async def test_nothing_is_answered_before_it_is_stored(rig: Rig) -> None:
    """Whoever posts may forget what got a good answer."""

    async def away(_: Sequence[Draft]) -> Sequence[bool]:
        raise Unavailable("The disk is full.")

    (door,) = rig.bot.doors()
    headers = {"authorization": f"Bearer {rig.service.token()}"}
    with pytest.raises(Unavailable):
        await door.take(PostedRequest(headers=headers, body=json.dumps(rig.service.activity()).encode()), away)
    assert rig.bot.health().counts == {}


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer a.b", "Bearer a.b.c", "Bearer " + "a" * 20_000]
)
async def test_what_is_no_token_is_refused(rig: Rig, header: str) -> None:
    """A door on the internet is tried by everybody."""
    (door,) = rig.bot.doors()
    with pytest.raises(Forbidden):
        await door.take(PostedRequest(headers={"authorization": header}, body=b"{}"), rig.accept)
    with pytest.raises(Forbidden):
        await door.take(PostedRequest(body=b"{}"), rig.accept)
    assert rig.service.openid_requests == 0


async def test_a_token_with_another_claim_is_refused(rig: Rig) -> None:
    """Each of these is a token that somebody can get, and that is not for this bot now."""
    service, at = rig.service, int(rig.clock.now().timestamp())
    wrong = {
        "the wrong issuer": service.token(iss="https://sts.windows.net/d6d49420-f39b-4df7-a1dc-d59a935871db/"),
        "for another bot": service.token(aud="00000000-1685-4b74-9bfd-dac224a7b894"),
        "has expired": service.token(exp=at - 301),
        "not valid yet": service.token(nbf=at + 301),
        "when it is valid": service.token(without="exp"),
        "another service address": service.token(serviceurl="https://smba.trafficmanager.net/evil/"),
    }
    for why, token in wrong.items():
        assert why in await refused(rig, service.activity(), token)
    for name in ("nbf", "aud", "iss", "serviceurl"):
        await refused(rig, service.activity(), service.token(without=name))
    for exp in (True, "soon", None, [1], 1e300):
        await refused(rig, service.activity(), service.token(exp=exp))
    assert rig.bot.health().reason.startswith("15 posts were refused, the last one: ")


@pytest.mark.parametrize(("nbf", "exp"), [(-3600, -299), (299, 3600)])
async def test_clocks_may_differ_by_five_minutes(rig: Rig, nbf: int, exp: int) -> None:
    """Microsoft documents this tolerance, and machines do drift."""
    at = int(rig.clock.now().timestamp())
    assert (await rig.post(rig.service.activity(), rig.service.token(nbf=at + nbf, exp=at + exp))).status == 200


async def test_other_ways_to_sign_are_refused(rig: Rig) -> None:
    """The public key is public: as the secret of HS256 it would let everybody sign."""
    public = signing_key(1).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def by_public_key(head: bytes) -> bytes:
        return hmac.new(pem, head, hashlib.sha256).digest()

    for alg, sign in (
        ("none", lambda _: b""),
        ("HS256", by_public_key),
        ("RS256", by_public_key),
        ("RS384", by_public_key),
    ):
        await refused(rig, rig.service.activity(), unsigned(rig.service, alg, sign))
    await refused(rig, rig.service.activity(), rig.service.token(headers={"crit": ["exp"], "exp": 1}))


async def test_a_changed_token_is_refused(rig: Rig) -> None:
    """A signature covers every claim."""
    head, _, signature = rig.service.token().split(".")
    claims = rig.service.token(serviceurl="https://elsewhere.example/").split(".")[1]
    why = await refused(rig, rig.service.activity(), f"{head}.{claims}.{signature}")
    assert why == "The signature of the token is wrong."


async def test_a_key_counts_only_for_the_channels_that_it_endorses(rig: Rig) -> None:
    """Else whoever may sign for one channel could speak for all."""
    rig.service.endorsements = ("webchat",)
    assert "not valid for this channel" in await refused(rig, rig.service.activity(), rig.service.token())


async def test_a_new_key_is_accepted_after_one_refresh(rig: Rig) -> None:
    """Microsoft changes its keys when it wants to, and messages go on."""
    await rig.post(rig.service.activity())
    rig.service.rotate("key-2")
    for _ in range(3):
        await rig.post(rig.service.activity(), rig.service.token(kid="key-2"))
    assert (len(rig.drafts), rig.service.key_requests) == (4, 2)


async def test_invented_keys_cause_no_flood_of_requests(rig: Rig) -> None:
    """Anybody can send tokens with invented keys: Microsoft must not hear of each."""
    await rig.post(rig.service.activity())
    rig.drafts.clear()
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(refused, rig, rig.service.activity(), rig.service.token(kid=f"invented-{number}"))
    assert rig.service.key_requests == 2
    rig.clock.advance(301)
    await refused(rig, rig.service.activity(), rig.service.token(kid="invented"))
    assert rig.service.key_requests == 3


async def test_a_new_key_is_put_off_while_keys_cannot_be_had(rig: Rig) -> None:
    """It may be a good one: whoever posts shall try again, and a flood of them still makes few requests."""
    await rig.post(rig.service.activity())
    rig.service.rotate("key-2")
    rig.service.is_openid_down = True
    for _ in range(10):
        with pytest.raises(Unavailable):
            await rig.post(rig.service.activity(), rig.service.token(kid="key-2"))
    assert rig.service.openid_requests == 2
    await rig.post(rig.service.activity())
    rig.service.is_openid_down = False
    rig.clock.advance(11)
    await rig.post(rig.service.activity(), rig.service.token(kid="key-2"))
    assert len(rig.drafts) == 3


async def test_keys_are_kept_for_half_a_day_and_never_longer_than_one(rig: Rig) -> None:
    """A key that was withdrawn must stop to count, and a short outage must not stop messages."""
    await rig.post(rig.service.activity())
    rig.clock.advance(12 * 3600 - 1)
    await rig.post(rig.service.activity())
    assert rig.service.key_requests == 1
    rig.clock.advance(2)
    rig.service.is_openid_down = True
    await rig.post(rig.service.activity())
    assert (len(rig.drafts), rig.service.openid_requests) == (3, 2)
    rig.clock.advance(12 * 3600)
    with pytest.raises(Unavailable):
        await rig.post(rig.service.activity())


async def test_without_keys_a_post_is_put_off_and_not_refused(rig: Rig) -> None:
    """That the key service is down says nothing about the message: whoever posts shall try again."""
    rig.service.is_openid_down = True
    for _ in range(20):
        with pytest.raises(Unavailable):
            await rig.post(rig.service.activity())
    assert rig.service.openid_requests == 1
    assert "keys of Microsoft" in rig.bot.health().reason
    rig.service.is_openid_down = False
    rig.clock.advance(11)
    assert (await rig.post(rig.service.activity())).status == 200
    assert rig.bot.health().reason == ""


async def test_keys_of_another_place_are_not_fetched(rig: Rig) -> None:
    """An OpenID document that was tampered with must not send us to somebody else's keys."""
    async with bot_rig() as other:
        rig.service.jwks_uri = f"{other.service.url}/v1/.well-known/keys"
        with pytest.raises(Unavailable):
            await rig.post(rig.service.activity())
        assert other.service.key_requests == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"type": 1}',
        b"[" * 100_000,
        b'{"type":"message","value":' + b"[" * 100_000,
        b"\xff\xfe{}",
    ],
    ids=["empty", "text", "list", "object", "type", "deep", "deep value", "bytes"],
)
async def test_a_body_that_is_no_activity_is_a_mistake_of_the_poster(rig: Rig, body: bytes) -> None:
    """Also with a good token, what was posted can be anything; nothing of it may stop the daemon."""
    with costs_at_most(500), pytest.raises(HarkenError) as error:
        await rig.post(body)
    assert isinstance(error.value, UserError | Forbidden)
    assert rig.drafts == []


async def test_a_body_is_not_read_before_its_token_is_good(rig: Rig) -> None:
    """Parsing is work, and who is nobody gets none."""
    with pytest.raises(Forbidden, match="has expired"):
        await rig.post(b"not json", rig.service.token(exp=1))


async def test_replays_are_answered_and_counted_as_known(rig: Rig) -> None:
    """The connector posts again when an answer was lost on its way: it must be able to stop."""
    activity = rig.service.activity()
    for _ in range(3):
        assert (await rig.post(activity)).status == 200
    assert (rig.bot.health().counts, rig.bot.health().known) == ({"teams": 1}, 2)


@pytest.mark.parametrize(
    "kind", ["typing", "conversationUpdate", "invoke", "installationUpdate", "messageReaction", "x"]
)
async def test_what_is_no_message_is_answered_and_not_stored(rig: Rig, kind: str) -> None:
    """A bot is told of much that nobody said."""
    assert (await rig.post(rig.service.activity(type=kind))).status == 200
    assert (rig.drafts, rig.bot.health().dropped) == ([], {kind: 1})


@pytest.mark.parametrize("more", [{"tenants": [TENANT.upper()]}, {}], ids=["named", "its own"])
async def test_only_the_tenants_that_are_meant_are_heard(more: dict[str, object]) -> None:
    """Everybody in every organisation can write to a bot whose app id they know."""
    async with bot_rig(**more) as rig:
        service = rig.service
        assert (await rig.post(service.activity())).status == 200
        rig.drafts.clear()
        foreign = {"channelData": {"tenant": {"id": FOREIGN}}, "conversation": {"id": "a:1", "tenantId": FOREIGN}}
        mixed = {"conversation": {"id": "a:1", "tenantId": FOREIGN}}
        silent = {"channelData": {}, "conversation": {"id": "a:1"}}
        for said in (foreign, mixed, silent):
            await refused(rig, service.activity(**said), service.token())


async def test_only_named_channels_are_heard() -> None:
    """On a web page visitors call themselves what they like: such a channel is open only if the owner says so."""
    async with bot_rig() as rig:
        await refused(rig, rig.service.activity(channelId="webchat"), rig.service.token())
    async with bot_rig(channels=["webchat"]) as rig:
        await rig.post(rig.service.activity(channelId="webchat"))
        (draft,) = rig.drafts
        # Nobody vouches for an id of the directory there.
        assert (draft.channel, draft.sender.id) == ("webchat", f"webchat:{ANN['id']}")
        await refused(Rig(rig.service, rig.clock, rig.bot), rig.service.activity(), rig.service.token())
