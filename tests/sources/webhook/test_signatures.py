"""Who signed: what a service signed is taken, and nothing else, whatever it looks like."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import Forbidden, UserError
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import SignatureCheck, standard_keys
from harken.sources.webhook.settings import read_settings
from tests.sources.webhook.rig import (
    NOW,
    PRESETS,
    RAW_KEY,
    SECRET,
    SIGNED_IN,
    SIGNERS,
    STANDARD_SECRET,
    gitlab,
    mac,
    rig,
    slack,
    standard,
)

BODY = b'{"text": "hello", "type": "x", "ref": "refs/heads/main", "commits": []}'
STAMPED = ("slack", "standard")
OTHER_KEY = b"another secret of twenty"
OTHER_SECRET = "whsec_" + base64.b64encode(OTHER_KEY).decode()


@pytest.mark.parametrize("preset", PRESETS)
async def test_what_a_service_signed_is_taken(preset: str) -> None:
    """The signatures here are made by its documents: a scheme that is read differently would refuse everything."""
    assert (await rig(preset).post(SIGNERS[preset](BODY), BODY)).status == 202


@pytest.mark.parametrize("preset", PRESETS)
async def test_what_nobody_signed_is_refused(preset: str) -> None:
    """A door without a lock lets anybody write to agents."""
    hook = rig(preset)
    headers = {name: value for name, value in SIGNERS[preset](BODY).items() if name != SIGNED_IN[preset]}
    with pytest.raises(Forbidden):
        await hook.post(headers, BODY)
    with pytest.raises(Forbidden):
        await hook.post({**headers, SIGNED_IN[preset]: ""}, BODY)
    assert hook.kept.drafts == []
    assert "2 posts were not taken" in hook.source.health().reason


@pytest.mark.parametrize("preset", PRESETS)
async def test_what_another_signed_is_refused(preset: str) -> None:
    """Somebody else's secret is no secret here."""
    hook = rig(preset)
    with pytest.raises(Forbidden):
        await hook.post(SIGNERS[preset](BODY, OTHER_KEY), BODY)
    assert hook.kept.drafts == []


@pytest.mark.parametrize("preset", PRESETS)
async def test_either_of_two_secrets_is_taken_while_one_follows_the_other(preset: str) -> None:
    """A secret is replaced without a moment in which the service is refused."""
    usual, other = (STANDARD_SECRET, OTHER_SECRET) if preset == "standard" else (SECRET, OTHER_KEY.decode())
    hook = rig(preset, [other, usual])
    assert (await hook.post(SIGNERS[preset](BODY), BODY)).status == 202
    answer = await hook.post({**SIGNERS[preset](BODY, OTHER_KEY)}, BODY)
    assert answer.status in {200, 202}


@given(preset=st.sampled_from(PRESETS), data=st.data())
def test_any_flipped_bit_of_body_or_signature_is_refused(preset: str, data: st.DataObject) -> None:
    """Nothing that was signed can be changed, and no signature has a second spelling."""
    check = read_settings("ci", {"preset": preset, "secret": "env:IT"}).preset
    keys = check.keys(STANDARD_SECRET if preset == "standard" else SECRET)
    judging = SignatureCheck(keys=keys, now=NOW.timestamp(), window=300.0)
    body = data.draw(st.binary(min_size=1, max_size=200))
    headers = dict(SIGNERS[preset](body))
    check.check(PostedRequest(headers=headers, body=body), judging)
    is_body_signed = preset not in {"gitlab", "alertmanager"}
    if is_body_signed and data.draw(st.booleans()):
        body = flipped(body, data)
    else:
        raw = headers[SIGNED_IN[preset]].encode("latin-1")
        is_scheme_word = preset == "alertmanager"  # whose case does not matter to anybody
        headers[SIGNED_IN[preset]] = flipped(raw, data, first=len(b"Bearer ") if is_scheme_word else 0).decode(
            "latin-1"
        )
    with pytest.raises(Forbidden):
        check.check(PostedRequest(headers=headers, body=body), judging)


def flipped(raw: bytes, data: st.DataObject, first: int = 0) -> bytes:
    """Change one bit."""
    at = data.draw(st.integers(first, len(raw) - 1))
    return raw[:at] + bytes([raw[at] ^ (1 << data.draw(st.integers(0, 7)))]) + raw[at + 1 :]


@pytest.mark.parametrize("preset", STAMPED)
@pytest.mark.parametrize("minutes", [-6, 6])
async def test_what_was_signed_at_another_time_is_refused(preset: str, minutes: int) -> None:
    """Whoever overheard a post cannot use it later."""
    hook = rig(preset)
    headers = SIGNERS[preset](BODY, at=NOW + timedelta(minutes=minutes))
    with pytest.raises(Forbidden):
        await hook.post(headers, BODY)
    hook.clock.at = NOW + timedelta(minutes=minutes)
    assert (await hook.post(headers, BODY)).status == 202


@pytest.mark.parametrize("preset", STAMPED)
@pytest.mark.parametrize("stamp", ["", "soon", "-1", "1e9", "٣", "9" * 400, " 1767323045", "1767323045.0"])
async def test_a_time_that_is_no_number_is_refused(preset: str, stamp: str) -> None:
    """A time that is read generously could be any time."""
    header = "x-slack-request-timestamp" if preset == "slack" else "webhook-timestamp"
    signed = {"slack": f"v0:{stamp}:".encode(), "standard": f"d-1.{stamp}.".encode()}[preset] + BODY
    key = SECRET.encode() if preset == "slack" else RAW_KEY
    made = f"v0={mac(key, signed).hex()}" if preset == "slack" else "v1," + base64.b64encode(mac(key, signed)).decode()
    headers = {**SIGNERS[preset](BODY), header: stamp, SIGNED_IN[preset]: made}
    with pytest.raises(Forbidden):
        await rig(preset).post(headers, BODY)


async def test_the_time_of_slack_is_signed_too() -> None:
    """A fresh time on an old signature is a forgery."""
    later = NOW + timedelta(minutes=10)
    headers = {**slack(BODY), "x-slack-request-timestamp": str(int(later.timestamp()))}
    hook = rig("slack")
    hook.clock.at = later
    with pytest.raises(Forbidden):
        await hook.post(headers, BODY)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_one_good_signature_among_others_is_enough_in_any_order(order: tuple[int, ...]) -> None:
    """While the service replaces its secret it signs with both; other versions of the scheme stand beside them."""
    good = standard(BODY)["webhook-signature"]
    others = [good, standard(BODY, OTHER_KEY)["webhook-signature"], "v1a,bm90aGluZw=="]
    headers = {**standard(BODY), "webhook-signature": " ".join(others[at] for at in order)}
    assert (await rig("standard").post(headers, BODY)).status == 202


@pytest.mark.parametrize(
    "given_signature",
    ["v2,{made}", "{made}", "v1,{made}=", "v1, {made}", "V1,{made}", "v1,v1,{made}", "v1a,{made}"],
)
async def test_a_standard_signature_is_taken_only_as_it_is_written(given_signature: str) -> None:
    """A version that is not known, or another spelling, is no signature."""
    made = standard(BODY)["webhook-signature"].removeprefix("v1,")
    headers = {**standard(BODY), "webhook-signature": given_signature.format(made=made)}
    with pytest.raises(Forbidden):
        await rig("standard").post(headers, BODY)


async def test_the_id_of_a_standard_delivery_is_signed_too() -> None:
    """Otherwise a post that was overheard could be stored again under another id."""
    with pytest.raises(Forbidden):
        await rig("standard").post({**standard(BODY), "webhook-id": "d-2"}, BODY)


def test_a_standard_secret_is_base64_after_its_prefix() -> None:
    """Half a secret would refuse everything, and nobody would know why."""
    assert standard_keys(STANDARD_SECRET) == (RAW_KEY,)
    assert RAW_KEY in standard_keys(STANDARD_SECRET.removeprefix("whsec_"))
    with pytest.raises(UserError):
        standard_keys("whsec_not base64!")


async def test_gitlab_may_sign_instead_of_saying_its_secret() -> None:
    """A signing token is better than a secret that goes over the wire; both are GitLab's."""
    hook = rig("gitlab", [STANDARD_SECRET])
    assert (await hook.post({**standard(BODY), "idempotency-key": "d-1"}, BODY)).status == 202
    with pytest.raises(Forbidden):
        await hook.post({**standard(BODY, OTHER_KEY), "x-gitlab-token": STANDARD_SECRET}, BODY)
    assert (await rig("gitlab").post(gitlab(BODY), BODY)).status == 202


@pytest.mark.parametrize("user", ["", "prometheus", "a:b"])
async def test_alertmanager_may_bring_the_secret_as_a_password(user: str) -> None:
    """It has two ways to say who it is, and signs in neither."""
    hook = rig("alertmanager")
    said = base64.b64encode(f"{user}:{SECRET}".encode()).decode()
    if ":" in user:
        with pytest.raises(Forbidden):
            await hook.post({"authorization": f"Basic {said}"}, BODY)
    else:
        assert (await hook.post({"authorization": f"Basic {said}"}, BODY)).status == 202


@pytest.mark.parametrize("value", ["Basic", "Basic !!!", "Basic ", "Bearer", "Digest x", "Bearer  ", SECRET, "\xff"])
async def test_credentials_that_are_none_are_refused(value: str) -> None:
    """Whatever stands there, nothing breaks and nobody gets in."""
    with pytest.raises(Forbidden):
        await rig("alertmanager").post({"authorization": value}, BODY)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
@pytest.mark.parametrize("scheme", ["hmac-sha256", "hmac-sha1"])
async def test_a_generic_webhook_is_signed_as_the_person_says(scheme: str, encoding: str) -> None:
    """Services differ in the header, the digest, the encoding, what stands before, and whether a time is signed."""
    hook = rig(
        "generic",
        scheme=scheme,
        encoding=encoding,
        header="X-Own",
        prefix="s=",
        timestamp_header="X-Time",
        window=10,
    )
    stamp = str(int(NOW.timestamp()))
    raw = mac(SECRET.encode(), f"{stamp}.".encode() + BODY, scheme.removeprefix("hmac-"))
    made = raw.hex() if encoding == "hex" else base64.b64encode(raw).decode()
    headers = {"x-own": f"s={made}", "x-time": stamp}
    assert (await hook.post(headers, BODY)).status == 202
    for wrong in ({"x-own": made}, {"x-time": ""}, {"x-time": str(int(stamp) + 1)}, {"x-own": f"s={made}0"}):
        with pytest.raises(Forbidden):
            await hook.post({**headers, **wrong}, BODY)
    hook.clock.at = NOW + timedelta(seconds=11)
    with pytest.raises(Forbidden):
        await hook.post(headers, BODY)


async def test_a_generic_webhook_may_bring_its_secret() -> None:
    """A script that cannot sign can still say a secret."""
    token = rig("generic", scheme="token", header="X-Token", prefix="key ")
    assert (await token.post({"x-token": f"key {SECRET}"}, BODY)).status == 202
    with pytest.raises(Forbidden):
        await token.post({"x-token": SECRET}, BODY)
    bearer = rig("generic", scheme="bearer")
    assert (await bearer.post({"authorization": f"Bearer {SECRET}"}, BODY)).status == 202
    with pytest.raises(Forbidden):
        await bearer.post({"authorization": f"Bearer {SECRET}x"}, BODY)
