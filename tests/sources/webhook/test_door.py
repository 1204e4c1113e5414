"""The order at the door: who signed, what kind of body, what it says, whether it is wanted, the store, the answer."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

import anyio
import anyio.to_thread
import pytest

from harken.errors import Forbidden, Unavailable, UserError
from harken.model import Draft
from harken.sources.source import PostedRequest, SourceState
from harken.sources.webhook.preset import LARGE_BYTES, Preset, SignatureCheck
from harken.sources.webhook.settings import WebhookSettings, read_settings
from harken.sources.webhook.source import WebhookSource
from tests.sources.webhook import samples
from tests.sources.webhook.rig import NOW, Rig, StillClock, alertmanager, github, rig

BODY = json.dumps(samples.GITHUB_PUSH).encode()
MANY: Final = 60  # more than there are threads for everybody
SECONDS: Final = 10.0


async def test_a_delivery_is_accepted_once_and_then_known() -> None:
    """Services repeat what they do not hear an answer to; agents must not hear it twice."""
    hook = rig("github")
    other = BODY.replace(b"refs/heads/main", b"refs/heads/next")
    answers = [await hook.post(github(body), body) for body in (BODY, BODY, other, BODY)]
    assert [(each.status, each.body) for each in answers] == [
        (202, b'{"status":"accepted"}'),
        (200, b'{"status":"known"}'),
        (202, b'{"status":"accepted"}'),
        (200, b'{"status":"known"}'),
    ]
    health = hook.source.health()
    assert (health.state, health.reason, health.known) == (SourceState.LISTENING, "", 2)
    assert (health.counts, health.last_message_at) == ({"push": 2}, NOW)


async def test_a_greeting_of_github_is_taken_and_is_no_message() -> None:
    """GitHub shows a new webhook as broken when its ping is not taken."""
    hook = rig("github")
    answer = await hook.say(samples.GITHUB_PING, event="ping")
    assert (answer.status, hook.kept.drafts) == (200, [])


async def test_slack_hears_its_challenge_back_and_only_if_it_signed_it() -> None:
    """Otherwise anybody could have anything repeated by this address."""
    hook = rig("slack")
    answer = await hook.say(samples.SLACK_CHALLENGE)
    assert (answer.status, json.loads(answer.body)) == (200, {"challenge": "3eZbrw1aBm2rZgRNFdxV"})
    with pytest.raises(Forbidden):
        await hook.post({}, json.dumps(samples.SLACK_CHALLENGE).encode())
    assert hook.kept.drafts == []


async def test_slack_repeats_with_the_same_event_and_is_known() -> None:
    """A repeat is signed anew, at another time: only the id of the event says that it is one."""
    hook = rig("slack")
    assert (await hook.say(samples.SLACK_MESSAGE)).status == 202
    hook.clock.at = NOW + timedelta(minutes=1)
    assert (await hook.say(samples.SLACK_MESSAGE, at=hook.clock.at)).status == 200
    assert len(hook.kept.drafts) == 1


@pytest.mark.parametrize("more", [{"bot_id": "B1"}, {"subtype": "bot_message"}, {"subtype": "channel_join"}])
async def test_what_apps_say_in_slack_is_left_out(more: dict[str, str]) -> None:
    """An agent that hears its own answer answers itself."""
    hook = rig("slack")
    answer = await hook.say({**samples.SLACK_MESSAGE, "event": {**samples.SLACK_MESSAGE["event"], **more}})
    assert (answer.status, hook.kept.drafts) == (200, [])


async def test_alerts_that_are_repeated_unchanged_are_known() -> None:
    """Alertmanager tells of a group again every few hours while it lasts; what changes is told again."""
    hook = rig("alertmanager")
    alerts = samples.ALERTS["alerts"]
    moved = [{**alerts[0], "endsAt": "2026-01-02T09:00:00Z"}, alerts[1]]
    others = [
        {**samples.ALERTS, "alerts": moved},  # the guessed end of one that fires moves with every repeat
        {**samples.ALERTS, "alerts": alerts[::-1]},  # the order says nothing
        {**samples.ALERTS, "status": "resolved"},
        {**samples.ALERTS, "alerts": [{**alerts[0], "startsAt": "2026-01-03T03:00:00.000Z"}, alerts[1]]},
        {**samples.ALERTS, "alerts": alerts[:1]},
        {**samples.ALERTS, "groupKey": "another"},
    ]
    assert [(await hook.say(each)).status for each in (samples.ALERTS, *others)] == [202, 200, 200, 202, 202, 202, 202]


async def test_github_may_post_a_form() -> None:
    """It is what GitHub sends when nobody chose JSON; the signature is on the form as it came."""
    hook = rig("github")
    form = urlencode({"payload": BODY.decode()}).encode()
    answer = await hook.post(github(form), form, "application/x-www-form-urlencoded; charset=utf-8")
    assert (answer.status, hook.last.channel) == (202, "push")


@pytest.mark.parametrize("form", [b"", b"x=1", b"payload=", b"payload=1&payload=2", b"payload=%ff", b"\xff", b"&&"])
async def test_a_form_without_its_payload_cannot_be_read(form: bytes) -> None:
    """What is signed and no payload is said to be none."""
    with pytest.raises(UserError):
        await rig("github").post(github(form), form, "application/x-www-form-urlencoded")


@pytest.mark.parametrize("media", ["", "text/plain", "application/xml", "multipart/form-data", "json"])
async def test_what_is_not_json_is_not_taken(media: str) -> None:
    """And that it is genuine is looked at first: who cannot sign learns nothing about what is taken."""
    hook = rig("jira")
    hooked = rig("github")
    assert (await hooked.post(github(BODY), BODY, media)).status == 415
    assert (await rig("slack").say(samples.SLACK_MESSAGE)).status == 202
    with pytest.raises(Forbidden):
        await hook.post({}, BODY, media)
    assert hooked.kept.drafts == []


@pytest.mark.parametrize(
    "media", ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json"]
)
async def test_json_is_json_however_it_is_called(media: str) -> None:
    """Services add a character set or say which kind of JSON it is."""
    assert (await rig("github").post(github(BODY), BODY, media)).status == 202


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1", b'"\xff"', b"nothing", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5_000]
)
async def test_a_body_that_cannot_be_read_is_said_to_be_none(body: bytes) -> None:
    """However deep or broken it is, the daemon goes on."""
    hook = rig("github")
    with pytest.raises(UserError):
        await hook.post(github(body), body)
    assert "1 post was not taken" in hook.source.health().reason


@pytest.mark.parametrize(
    "body", [b'{"action": "\\ud83d"}', b'\xef\xbb\xbf{"action": "x"}', b'{"a": NaN, "n": 123456789012345678901}']
)
async def test_json_that_is_almost_right_is_read(body: bytes) -> None:
    """A service that cuts a text in the middle of a letter must not lose the message with it."""
    hook = rig("github")
    assert (await hook.post(github(body, event="star"), body)).status == 202
    hook.last.text.encode()


async def test_only_the_channels_that_are_wanted_are_stored() -> None:
    """What is left out is counted, and the service hears that all is well."""
    hook = rig("github", channels=["push", " issues "])
    assert (await hook.say(samples.GITHUB_PUSH)).status == 202
    assert (await hook.say(samples.GITHUB_ISSUE, event="issues", delivery="d-2")).status == 202
    assert (await hook.say(samples.GITHUB_STAR, event="star", delivery="d-3")).status == 200
    assert [draft.channel for draft in hook.kept.drafts] == ["push", "issues"]
    assert hook.source.health().dropped == {"star": 1}


async def test_nothing_is_said_to_be_accepted_that_was_not_stored() -> None:
    """The service keeps it then, and posts it again."""

    async def away(_drafts: Sequence[Draft]) -> Sequence[bool]:
        raise Unavailable("The disk is full.", retry_after=3)

    hook = rig("github")
    (door,) = hook.source.doors()
    posted = PostedRequest(headers={"content-type": "application/json", **github(BODY)}, body=BODY)
    with pytest.raises(Unavailable):
        await door.take(posted, away)
    assert hook.source.health().counts == {}
    assert (await hook.post(github(BODY), BODY)).status == 202


async def test_without_its_secret_a_webhook_asks_to_try_again() -> None:
    """What is posted before the secret is there is kept by the service, and not refused for ever."""
    settings = read_settings("ci", {"preset": "alertmanager", "secret": "env:IT"})
    unready = Rig(WebhookSource(settings, (), StillClock(), "The secret env:IT is not set."), StillClock())
    with pytest.raises(Unavailable):
        await unready.post(alertmanager(BODY), BODY)
    health = unready.source.health()
    assert (health.state, health.reason) == (SourceState.NEEDS_PERSON, "The secret env:IT is not set.")


async def test_a_large_body_is_read_too() -> None:
    """It is read beside the loop, with the same result."""
    hook = rig("github")
    payload = {**samples.GITHUB_PUSH, "rest": "x" * 400_000}
    assert (await hook.say(payload)).status == 202
    assert hook.last.channel == "push"


async def test_counts_do_not_grow_without_end() -> None:
    """A service may invent a channel for every post."""
    hook = rig("generic", channel="channel")
    for number in range(300):
        await hook.say({"channel": f"c{number}", "text": "x"})
    counts = hook.source.health().counts
    assert (len(counts), counts["(others)"]) == (201, 100)


async def test_large_posts_leave_threads_to_others() -> None:
    """Anybody may post what is large, many at once: whatever else the daemon does in threads goes on meanwhile."""
    is_over = threading.Event()
    settings = read_settings("ci", {"preset": "github", "secret": "env:IT"})

    def check(_posted: PostedRequest, _judging: SignatureCheck) -> None:
        is_over.wait(SECONDS)
        raise Forbidden("It is not signed.")

    class SlowSettings(WebhookSettings, frozen=True, kw_only=True):
        @cached_property
        def preset(self) -> Preset:
            return replace(settings.preset, check=check)

    slow = SlowSettings.read("ci", {"preset": "github", "secret": "env:IT"})
    hook = Rig(WebhookSource(slow, (b"key",), StillClock()), StillClock())

    async def post() -> None:
        with pytest.raises(Forbidden):
            await hook.post({}, b"x" * LARGE_BYTES)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            for _ in range(MANY):
                group.start_soon(post)
            await anyio.wait_all_tasks_blocked()
            try:
                with anyio.fail_after(SECONDS / 2):
                    assert await anyio.to_thread.run_sync(lambda: "free") == "free"
            finally:
                is_over.set()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What leads back to itself stays, for the time of a test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_a_large_post_that_is_refused_leaves_nothing_in_the_memory() -> None:
    """Anybody can post there: megabytes that wait for the collector of cycles would soon be all of the memory."""
    hook = rig("github")
    posted = PostedRequest(query={}, headers=github(b"another body"), body=b"{" + b" " * LARGE_BYTES)
    (door,) = hook.source.doors()
    before = sys.getrefcount(posted)
    with pytest.raises(Forbidden):
        await door.take(posted, hook.kept.accept)
    # The thread that judged it lets go of it when it takes up the next.
    await anyio.to_thread.run_sync(int)
    assert sys.getrefcount(posted) == before
