"""A person's sign-in: by code, in the browser, renewed silently, ended, and refused in every way that Entra knows."""

from __future__ import annotations

import json
import logging
import ssl
import threading
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from anyio import to_thread

from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.sources.microsoft.settings import DelegatedSettings
from harken.sources.microsoft.sign_in import (
    CodePrompt,
    DelegatedSignIn,
    SignedInPerson,
    SignInRecord,
    SignInStatus,
    TokenCache,
)
from harken.sources.microsoft.sign_in_service import SignInService
from harken.testing import FakeClock
from tests.sources.microsoft.signing import CLIENT, HUSH, SECONDS, TENANT, USER, Entra, Said, logged, refused, serving

AGAIN = "sign in again with: harken source login work"
MINUTE = 60.0


@dataclass
class Desk:
    """A source that is signed in, or not yet, and everything around it."""

    entra: Entra
    trust: ssl.SSLContext
    clock: FakeClock
    folder: Path

    def sign_in_place(self, *, tenant: str = TENANT, trust: ssl.SSLContext | bool | None = None) -> DelegatedSignIn:
        """The sign-in as a process of its own has it: nothing in memory, the cache on disk."""
        settings = DelegatedSettings(
            name="work", client_id=CLIENT, scopes=("Chat.Read", "User.Read"), tenant=tenant, authority=self.entra.origin
        )
        service = SignInService(self.clock, trust=self.trust if trust is None else trust)
        return DelegatedSignIn(settings, TokenCache(self.folder, "work"), service, self.clock)

    async def signed_in(self) -> DelegatedSignIn:
        """A sign-in that stands."""
        place = self.sign_in_place()
        await place.sign_in_by_code(lambda _: None)
        self.entra.forms.clear()
        return place

    def post(self, address: str, **given: str) -> int:
        """Do what a person's browser does: post what the service gave to the address that waits for it."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["code_challenge_method"] == "S256"
        self.entra.nonce = asked["nonce"]
        redirect = urlsplit(asked["redirect_uri"])
        assert redirect.hostname == "localhost"
        form = {"state": asked["state"], **given}
        return httpx2.post(f"http://127.0.0.1:{redirect.port}", data=form, timeout=SECONDS).status_code


@pytest.fixture
def desk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    """A sign-in service of our own. Whatever happens in a test, no secret of it may have been logged."""
    caplog.set_level(logging.DEBUG)
    (tmp_path / "tls").mkdir()
    with serving(tmp_path / "tls") as (entra, trust):
        yield Desk(entra, trust, FakeClock(), tmp_path / "home" / "tokens")
    assert HUSH not in logged(caplog)


def shown(exc: HarkenError) -> str:
    """Everything that anybody could be shown of an error."""
    return f"{exc!r} {exc} {json.dumps(exc.as_dict())}"


async def test_a_person_signs_in_with_a_code_and_is_known_by_name(desk: Desk) -> None:
    """The person must see which code to enter where, and afterwards as whom they are signed in."""
    place = desk.sign_in_place()
    prompts: list[CodePrompt] = []

    def show(prompt: CodePrompt) -> None:
        prompts.append(prompt)
        desk.entra.next.append(refused("authorization_pending", 70016))

    with anyio.fail_after(SECONDS):
        sign_in = await place.sign_in_by_code(show)

    now = desk.clock.now()
    assert [prompt.sentence for prompt in prompts] == [
        f"Open https://example.com/device on any device and enter the code ABCD1{HUSH}."
    ]
    assert prompts[0].expires_at == now + timedelta(seconds=desk.entra.device_life)
    assert sign_in == SignInRecord(
        person=SignedInPerson(name="Ann Lee", upn="ann@example.com", tenant_id=TENANT, user_id=USER),
        since=sign_in.since,
        renewed_at=now,
        expires_at=now + timedelta(hours=1),
        scopes=("Chat.Read", "User.Read"),
    )
    # By the service's clock, which is not ours: what is said there from then on is to be heard.
    assert abs(sign_in.since - datetime.now(UTC)) < timedelta(minutes=1) < abs(now - datetime.now(UTC))
    assert sign_in.person.title == "Ann Lee (ann@example.com)"
    assert await place.standing() == SignInStatus(sign_in=sign_in)
    assert (await place.token()).startswith("access-")
    assert HUSH not in f"{prompts!r} {place!r} {sign_in!r}"


@pytest.mark.parametrize(
    ("said", "action"),
    [
        (refused("authorization_declined", 70017), f"{AGAIN}, and accept what it asks for"),
        (refused("expired_token", 70019), "get a new code with: harken source login work"),
        (refused("invalid_client", 7000218), "have the owner of the app turn on 'Allow public client flows'"),
        (refused("invalid_grant", 90094, suberror="consent_required"), f"/{TENANT}/adminconsent?client_id={CLIENT}"),
        (refused("invalid_grant", 53003, suberror="message_only"), "in the browser of a device it manages"),
        (refused("something_new", 123456), AGAIN),
    ],
)
async def test_a_refused_code_says_what_the_person_must_do(desk: Desk, said: Said, action: str) -> None:
    """A sign-in fails for many reasons, and each has another remedy: a number alone helps nobody."""
    place = desk.sign_in_place()

    with anyio.fail_after(SECONDS), pytest.raises(NeedsPerson) as caught:
        await place.sign_in_by_code(lambda _: desk.entra.next.append(said))

    assert action in caught.value.action
    assert HUSH not in shown(caught.value)
    assert await place.standing() == SignInStatus(action="sign in with: harken source login work")


async def test_a_question_that_gets_lost_does_not_lose_the_code(desk: Desk) -> None:
    """The person is at the other device: a service that stumbles meanwhile must not make them begin again."""
    place = desk.sign_in_place()
    broken = Said({}, 503, {"Retry-After": "1"})

    with anyio.fail_after(SECONDS):
        sign_in = await place.sign_in_by_code(lambda _: desk.entra.next.append(broken))

    assert sign_in.person.user_id == USER


async def test_a_person_signs_in_in_the_browser(desk: Desk) -> None:
    """The address is shown too, because a browser that opens elsewhere, or not at all, must not be the end."""
    place = desk.sign_in_place()
    shown_addresses: list[str] = []

    with anyio.fail_after(SECONDS):
        sign_in = await place.sign_in_in_browser(
            shown_addresses.append, open_page=lambda address: desk.post(address, code=f"code-{HUSH}")
        )

    assert sign_in.person.upn == "ann@example.com"
    assert desk.entra.grants == ["authorization_code"]
    assert [urlsplit(address).path for address in shown_addresses] == [f"/{TENANT}/oauth2/v2.0/authorize"]
    assert (await place.token()).startswith("access-")


async def test_an_answer_without_our_state_is_turned_away(desk: Desk) -> None:
    """Any page in the browser can post to a port of this machine: it must not sign the person in as somebody else."""
    place = desk.sign_in_place()
    statuses: list[int] = []
    is_closed = threading.Event()

    def open_page(address: str) -> None:
        port = urlsplit(parse_qs(urlsplit(address).query)["redirect_uri"][0]).port
        here = f"http://127.0.0.1:{port}"
        statuses.append(httpx2.get(here, params={"code": "x", "state": "y"}, timeout=SECONDS).status_code)
        statuses.append(httpx2.post(here, content=b"\xff" * 70_000, timeout=SECONDS).status_code)
        statuses.append(desk.post(address, code="wrong", state="made up"))
        statuses.append(desk.post(address))
        statuses.append(desk.post(address, code="right"))
        is_closed.set()

    with anyio.fail_after(SECONDS):
        await place.sign_in_in_browser(lambda _: None, open_page=open_page)
        assert await to_thread.run_sync(is_closed.wait, SECONDS)

    assert statuses == [400, 400, 400, 400, 200]
    assert [form["code"] for form in desk.entra.forms] == ["right"]


async def test_a_browser_sign_in_that_is_declined_says_so(desk: Desk) -> None:
    """The browser's answer is the service's own refusal, and the same words apply."""
    place = desk.sign_in_place()

    with anyio.fail_after(SECONDS), pytest.raises(NeedsPerson, match="declined") as caught:
        await place.sign_in_in_browser(
            lambda _: None, open_page=lambda address: desk.post(address, error="access_denied")
        )

    assert caught.value.action == f"{AGAIN}, and accept what it asks for"


async def test_a_browser_that_stays_open_does_not_hold_up_the_sign_in(desk: Desk) -> None:
    """A browser in a terminal returns only when it is closed; one that fails to open leaves the shown address."""
    place, is_closed = desk.sign_in_place(), threading.Event()

    def stay(address: str) -> None:
        desk.post(address, code="right")
        is_closed.wait(SECONDS)

    def fail(address: str) -> None:
        desk.post(address, code="right")
        raise webbrowser.Error

    with anyio.fail_after(SECONDS / 2):
        await place.sign_in_in_browser(lambda _: None, open_page=stay)
        is_closed.set()
        assert (await place.sign_in_in_browser(lambda _: None, open_page=fail)).person.user_id == USER


async def test_a_browser_that_nobody_uses_is_given_up_in_time(desk: Desk) -> None:
    """A page that was closed must not keep the command waiting."""
    place = desk.sign_in_place()

    with anyio.fail_after(SECONDS), pytest.raises(NeedsPerson, match="nobody signed in within 0 seconds"):
        await place.sign_in_in_browser(lambda _: None, open_page=lambda _: False, seconds=0.1)


async def test_a_token_is_used_for_55_minutes_and_then_renewed(desk: Desk) -> None:
    """Renewing sooner bothers the service; later, requests fail."""
    place = await desk.signed_in()

    first = await place.token()
    desk.clock.advance(55 * MINUTE - 1)
    assert await place.token() == first
    assert desk.entra.grants == []
    desk.clock.advance(1)
    second = await place.token()

    assert second != first
    assert desk.entra.grants == ["refresh_token"]
    standing = await place.standing()
    assert standing.sign_in is not None
    assert standing.sign_in.renewed_at == desk.clock.now()


async def test_a_refresh_token_that_was_replaced_is_not_used_again(desk: Desk) -> None:
    """A service may end a refresh token once it was used: the next one must be kept before anything else happens."""
    place = await desk.signed_in()

    await place.token(is_fresh=True)
    await desk.sign_in_place().token(is_fresh=True)

    used = [form["refresh_token"] for form in desk.entra.forms]
    assert len(used) == len(set(used)) == 2


async def test_callers_who_want_a_fresh_token_at_once_share_one(desk: Desk) -> None:
    """When a token ends, every request finds out together; one renewal serves them all."""
    place = await desk.signed_in()
    old = await place.token()
    desk.entra.gate.clear()
    desk.entra.asked.clear()
    got: list[str] = []

    async def ask() -> None:
        got.append(await place.token(is_fresh=True))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
            assert await to_thread.run_sync(desk.entra.asked.wait, SECONDS)
            assert not got
            desk.entra.gate.set()

    assert len(set(got)) == 1
    assert len(got) == 5
    assert old not in got
    assert desk.entra.grants == ["refresh_token"]


async def test_a_token_is_used_to_its_end_while_it_cannot_be_renewed(desk: Desk) -> None:
    """Five minutes without the sign-in service need not stop anything, and each request need not wait for it."""
    place = await desk.signed_in()
    first = await place.token()
    broken = Said({}, 503, {"Retry-After": "120"})

    desk.clock.advance(56 * MINUTE)
    desk.entra.next = [broken]
    assert await place.token() == first
    assert await place.token() == first
    assert desk.entra.grants == ["refresh_token"]
    desk.clock.advance(5 * MINUTE)
    desk.entra.next = [broken]
    with pytest.raises(Unavailable) as caught:
        await place.token()

    assert caught.value.retry_after == 120
    assert (await place.token()) != first


async def test_a_revoked_sign_in_waits_for_the_person_and_a_new_one_is_found(desk: Desk) -> None:
    """The daemon need not be restarted when the person signs in again with a command of their own."""
    place = await desk.signed_in()
    desk.entra.next = [refused("invalid_grant", 50173, suberror="bad_token")]

    with pytest.raises(NeedsPerson, match=r"work: the sign-in has ended.*AADSTS50173") as caught:
        await place.token(is_fresh=True)
    assert caught.value.action == AGAIN
    assert HUSH not in shown(caught.value)
    assert (await place.standing()).action == AGAIN
    command = desk.sign_in_place()
    await command.sign_in_by_code(lambda _: None)

    assert await place.token() == await command.token()
    assert (await place.standing()).action == ""


async def test_another_sign_in_takes_the_place_of_a_token_that_still_lasts(desk: Desk) -> None:
    """Whoever signs in as somebody else must not be answered with the first one's messages for another hour."""
    place, command = await desk.signed_in(), desk.sign_in_place()
    old = await place.token()

    await command.sign_in_by_code(lambda _: None)

    assert await place.token() == await command.token() != old
    assert "refresh_token" not in desk.entra.grants


async def test_signing_out_removes_every_secret_and_is_seen_by_others(desk: Desk) -> None:
    """Signed out means signed out: nothing left on disk, and no process goes on with what it remembers."""
    place, other = await desk.signed_in(), desk.sign_in_place()
    assert await other.token() == await place.token()

    assert await other.sign_out()
    assert not await other.sign_out()

    with pytest.raises(NeedsPerson, match="nobody is signed in") as caught:
        await place.token()
    assert caught.value.action == "sign in with: harken source login work"
    assert all(HUSH not in path.read_text() for path in desk.folder.iterdir())


async def test_a_damaged_file_counts_as_signed_out(desk: Desk) -> None:
    """What cannot be read cannot be used; the person is asked to sign in, and that repairs it."""
    await desk.signed_in()
    file = desk.folder / "work.json"
    file.write_text(file.read_text()[:-40])

    with pytest.raises(NeedsPerson, match="nobody is signed in"):
        await desk.sign_in_place().token()

    assert await (await desk.signed_in()).token()


async def test_a_tenant_that_does_not_exist_is_named(desk: Desk) -> None:
    """A slip in the settings is found out when signing in: it must name the setting."""
    place = desk.sign_in_place(tenant="contoso.example")

    with pytest.raises(NeedsPerson, match=r"the tenant contoso\.example does not exist") as caught:
        await place.sign_in_by_code(lambda _: None)

    assert caught.value.action.startswith("check sources.work.tenant")
    assert HUSH not in shown(caught.value)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (Said(f'{{"access_token": "access-{HUSH}'), "unreadable"),
        (Said("<html>sign in to this network</html>"), "unreadable"),
        (Said("[1]"), "unreadable"),
        (Said({"token_type": "Bearer"}), "unexpected answer"),
        (Said({}, 302, {"Location": "https://127.0.0.1:9/"}), "unreadable"),
        (Said({}, 500), "busy or broken"),
        (Said({}, 429, {"Retry-After": "7"}), "busy or broken"),
        (refused("temporarily_unavailable", 90033), "cannot answer now"),
    ],
)
async def test_a_service_that_stumbles_is_asked_again_later(desk: Desk, said: Said, sentence: str) -> None:
    """None of this is the person's business; and what was half said may hold a token, so nobody may be shown it."""
    place = await desk.signed_in()
    desk.entra.next = [said]

    with pytest.raises(Unavailable, match=sentence) as caught:
        await place.token(is_fresh=True)

    assert HUSH not in shown(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.retry_after == (7 if said.status == 429 else 30)
    assert (await place.token(is_fresh=True)).startswith("access-")


async def test_a_service_nobody_vouches_for_is_not_told_anything(desk: Desk) -> None:
    """Whoever reads the network's traffic must not be given a refresh token."""
    await desk.signed_in()
    place = desk.sign_in_place(trust=True)

    with pytest.raises(Unavailable, match="certificate of the sign-in service is not trusted"):
        await place.token(is_fresh=True)

    assert desk.entra.forms == []


async def test_a_service_that_is_gone_is_unavailable(desk: Desk) -> None:
    """Without a network nothing is wrong with the sign-in."""
    await desk.signed_in()
    desk.entra.origin = "https://127.0.0.1:9"

    with pytest.raises(Unavailable, match="cannot be reached"):
        await desk.sign_in_place().token(is_fresh=True)


async def test_a_renewal_that_is_cancelled_leaves_a_sign_in_that_works(desk: Desk) -> None:
    """The daemon stops when it is told to, also while the service keeps it waiting."""
    place = await desk.signed_in()
    desk.entra.gate.clear()
    desk.entra.asked.clear()

    async def renew() -> None:
        await place.token(is_fresh=True)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(renew)
            assert await to_thread.run_sync(desk.entra.asked.wait, SECONDS)
            group.cancel_scope.cancel()
        desk.entra.gate.set()
        assert (await place.token(is_fresh=True)).startswith("access-")
