"""Which deliveries are one: a repeat is stored once, and nothing that happened is taken for something else."""

from __future__ import annotations

import json

import pytest

from harken.errors import UserError
from harken.sources.webhook.preset import MAX_ID, signed_id
from harken.sources.webhook.settings import read_settings
from harken.sources.webhook.source import keys_of
from tests.sources.webhook import samples
from tests.sources.webhook.rig import SIGNERS, github, gitlab, rig


async def test_name_that_is_not_signed_hides_no_other_event() -> None:
    """Whoever posts something under a name that is used later would have the later one taken for known."""
    hook = rig("github")
    first, second = (json.dumps({**samples.GITHUB_PUSH, "ref": f"refs/heads/{name}"}).encode() for name in "ab")
    answers = [await hook.post(github(body, delivery="d-1"), body) for body in (first, second, first)]
    assert [each.status for each in answers] == [202, 202, 200]


@pytest.mark.parametrize(
    ("preset", "payload", "named"),
    [
        ("github", samples.GITHUB_PUSH, {}),
        ("github", samples.GITHUB_COMMENT, {"event": "issue_comment"}),
        ("jira", samples.JIRA_COMMENT, {}),
        ("sentry", samples.SENTRY_ALERT, {"resource": "event_alert"}),
        ("sentry", samples.SENTRY_COMMENT, {"resource": "comment"}),
    ],
)
async def test_signed_body_is_known_under_every_name(
    preset: str, payload: samples.Payload, named: dict[str, str]
) -> None:
    """Nobody signs the name: whoever saw one post could have it told to agents again, as often as they like."""
    hook = rig(preset)
    body = json.dumps(payload).encode()
    posts = [SIGNERS[preset](body, delivery=name, **named) for name in ("a", "b", "a", "")]
    assert [(await hook.post(headers, body)).status for headers in posts] == [202, 200, 200, 200]
    assert (await hook.say({**payload, "another": 1}, delivery="a", **named)).status == 202


GREETING = {"zen": "Keep it logically awesome.", "hook_id": 7, "hook": {"events": ["push"]}, "ref": "x", "commits": []}


@pytest.mark.parametrize("event", ["push", "issues", "star"])
async def test_greeting_that_was_skipped_cannot_be_posted_again_as_an_event(event: str) -> None:
    """Nobody signs the event's name: whoever saw the greeting would have an event of their choice told to agents."""
    hook = rig("github")
    for said in ("ping", event):
        assert (await hook.say(GREETING, event=said, delivery=said)).status == 200
    assert (await rig("github").say(GREETING, event=event)).status == 200
    assert hook.kept.drafts == []


@pytest.mark.parametrize(("body", "event"), [(samples.GITHUB_COMMENT, "issues"), (samples.GITHUB_PUSH, "release")])
async def test_body_of_one_event_is_not_taken_for_another(body: samples.Payload, event: str) -> None:
    """It would be told as something that never happened."""
    hook = rig("github")
    with pytest.raises(UserError, match=event):
        await hook.say(body, event=event)
    assert hook.kept.drafts == []


async def test_event_that_was_left_out_is_left_out_under_every_name() -> None:
    """What the person does not want to hear of comes in under no other name, of the event or of the delivery."""
    hook = rig("github", channels=["star", "watch"])
    body: samples.Payload = {"action": "created", "label": {"name": "bug"}}
    posts = [await hook.say(body, event=event, delivery=event) for event in ("label", "star", "watch")]
    assert ([each.status for each in posts], hook.kept.drafts) == ([200, 200, 200], [])


@pytest.mark.parametrize(
    ("preset", "payload", "named"),
    [
        ("github", {"action": "added", "member": {"login": "bo"}}, {"event": "member"}),
        ("sentry", samples.SENTRY_ISSUE, {"resource": "issue"}),
        ("sentry", {"action": "critical", "data": {"metric_alert": {"id": "1"}}}, {"resource": "metric_alert"}),
        ("gitlab", samples.GITLAB_PIPELINE, {}),
    ],
)
async def test_what_can_happen_twice_alike_is_told_twice(
    preset: str, payload: samples.Payload, named: dict[str, str]
) -> None:
    """Somebody who is added again, or an issue that is resolved again, has the same bytes: only the name differs."""
    hook = rig(preset)
    assert [(await hook.say(payload, delivery=name, **named)).status for name in ("a", "b", "a")] == [202, 202, 200]


async def test_gitlab_is_not_told_apart_by_what_names_several() -> None:
    """Its event uuid is the same for everything that one request of theirs caused."""
    hook = rig("gitlab")
    bodies = [json.dumps({"object_kind": kind}).encode() for kind in ("issue", "note")]
    for body in bodies:
        headers = {**gitlab(body), "x-gitlab-event-uuid": "u-1"}
        headers.pop("idempotency-key")
        assert (await hook.post(headers, body)).status == 202


def test_ids_that_are_too_long_are_not_cut() -> None:
    """Two that begin alike would become one, and the second event would be lost."""
    long = "x" * MAX_ID
    assert signed_id(long) == long
    assert len({signed_id(long + "a"), signed_id(long + "b"), long}) == 3
    assert len(signed_id(long * 50)) <= MAX_ID


async def test_numbers_are_ids_in_full() -> None:
    """Times in seconds differ in the last digits."""
    hook = rig("generic", id="ts")
    for stamp in (1731749000.123, 1731749001.456, 1731749002.5):
        assert (await hook.say({"ts": stamp})).status == 202


async def test_what_is_skipped_is_counted() -> None:
    """Nothing is left out without a trace."""
    hook = rig("github")
    await hook.say(samples.GITHUB_PING, event="ping")
    assert sum(hook.source.health().dropped.values()) == 1


async def test_json_is_not_read_as_a_form_that_somebody_wrote_into_it() -> None:
    """What kind of body it is, is not signed."""
    inner = "x=1&payload=%7B%22ref%22%3A%22refs%2Fheads%2Fforged%22%7D&z=1"
    body = json.dumps({"title": inner}).encode()
    hook = rig("github")
    with pytest.raises(UserError):
        await hook.post(github(body), body, "application/x-www-form-urlencoded")
    assert hook.kept.drafts == []


@pytest.mark.parametrize("secret", ["whsec_QQ==", "short"])
def test_short_key_in_a_long_text_is_refused(secret: str) -> None:
    """It could be guessed with a few posts."""
    settings = read_settings("ci", {"kind": "webhook", "preset": "standard", "secret": "env:CI"})
    with pytest.raises(UserError, match="fewer than"):
        keys_of(settings, lambda _reference: secret)


async def test_number_that_counts_nothing_is_not_shown() -> None:
    """Somebody who may post can write a number of thousands of digits, which would be told to agents twice."""
    hook = rig("gitlab")
    body = json.dumps(samples.GITLAB_PUSH).replace('"total_commits_count": 4', '"total_commits_count": ' + "9" * 4_000)
    assert (await hook.post(gitlab(body.encode()), body.encode())).status == 202
    assert hook.last.text.startswith("Ann Lee pushed 1 commit to main of octo/shop")
    assert "99999" not in hook.last.text
