"""What people and agents read of a post: what happened, who did it, where to look, in plain lines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import jmespath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from harken.model import Draft, Priority, Sender
from harken.sources.webhook.presets.generic import compiled
from tests.sources.webhook import samples
from tests.sources.webhook.rig import rig, told


async def test_a_push_is_a_list_of_commits() -> None:
    """Who pushed where, and of each commit its short id, its author and its first line."""
    draft = await told("github", samples.GITHUB_PUSH)
    assert draft == Draft(
        source="ci",
        sender=Sender("github", "ann"),
        text=snapshot("""\
ann pushed 2 commits to main of octo/shop
- 6d5f3b7 Ann Lee: Count what is in the basket
- 0d1a26e Bo: Test it
https://github.com/octo/shop/compare/6113728f27ae...0d1a26e67d8f\
"""),
        upstream_id=draft.upstream_id,
        channel="push",
        conversation="octo/shop",
        thread="octo/shop@refs/heads/main",
        sent_at=datetime.fromisoformat("2026-01-02T03:02:00+01:00"),
        meta={"url": "https://github.com/octo/shop/compare/6113728f27ae...0d1a26e67d8f"},
    )


async def test_what_happens_on_github_is_told() -> None:
    """Each event that people wait for says what happened and where to look."""
    events = {
        "issues": samples.GITHUB_ISSUE,
        "pull_request": samples.GITHUB_MERGED,
        "issue_comment": samples.GITHUB_COMMENT,
        "pull_request_review": samples.GITHUB_REVIEW,
        "workflow_run": samples.GITHUB_RUN,
        "star": samples.GITHUB_STAR,
    }
    found = {event: (await told("github", payload, event=event)).text for event, payload in events.items()}
    assert found == snapshot(
        {
            "issues": """\
ann opened issue #7 in octo/shop: The basket is empty
> I put
> two things in.
https://github.com/octo/shop/issues/7\
""",
            "pull_request": """\
ann merged pull request #9 in octo/shop: Fill the basket
fill into main
https://github.com/octo/shop/pull/9\
""",
            "issue_comment": """\
ann commented on #7 in octo/shop
> Which
> browser?
https://github.com/octo/shop/issues/7#issuecomment-1\
""",
            "pull_request_review": """\
ann asked for changes in pull request #9 in octo/shop
> Please add a test.
https://github.com/octo/shop/pull/9#pullrequestreview-1\
""",
            "workflow_run": """\
Workflow CI: failure, octo/shop main at 0d1a26e
Test it
https://github.com/octo/shop/actions/runs/1\
""",
            "star": """\
star: ann created in octo/shop (12 stars)
https://github.com/octo/shop\
""",
        }
    )


async def test_what_happens_on_gitlab_is_told() -> None:
    """The same for GitLab, with how many commits there are beyond those it sends."""
    found = [
        (draft.channel, draft.sender.id, draft.thread, draft.text)
        for draft in [
            await told("gitlab", payload)
            for payload in (samples.GITLAB_PUSH, samples.GITLAB_MERGE, samples.GITLAB_PIPELINE)
        ]
    ]
    assert found == snapshot(
        [
            (
                "push",
                "gitlab",
                "octo/shop@refs/heads/main",
                """\
Ann Lee pushed 4 commits to main of octo/shop
- b6568db1 Ann Lee: Count what is in the basket
and 3 more
https://gitlab.example.org/octo/shop\
""",
            ),
            (
                "merge_request",
                "gitlab",
                "octo/shop!9",
                """\
Ann Lee opened merge request !9 in octo/shop: Fill the basket
fill into main
> Closes #7
https://gitlab.example.org/octo/shop/-/merge_requests/9\
""",
            ),
            (
                "pipeline",
                "gitlab",
                "octo/shop@main",
                """\
Pipeline 31: failed after 63 s, octo/shop main, by Ann Lee
Count what is in the basket
- failed: test / unit
https://gitlab.example.org/octo/shop/-/pipelines/31\
""",
            ),
        ]
    )


async def test_a_message_of_slack_is_what_was_said() -> None:
    """A person wrote it: the text is theirs, the place and the thread are Slack's."""
    draft = await told("slack", samples.SLACK_MESSAGE)
    assert (draft.channel, draft.sender, draft.text) == (
        "message",
        Sender("slack:U2147483697", "U2147483697"),
        snapshot("""\
Is the shop
down?\
"""),
    )
    assert (draft.conversation, draft.thread, draft.upstream_id) == ("C024BE91L", "1767323000.000005", "Ev08MFMKH6")
    assert draft.sent_at == datetime(2026, 1, 2, 3, 3, 20, 5, tzinfo=UTC)


async def test_slack_is_read_as_people_see_it() -> None:
    """Slack escapes three characters and writes links and people in brackets."""
    text = "<@U1> 1 &lt; 2 &amp;lt; in <#C1|shop>, <!here>: <https://x.example/a|the log> <https://y.example> a < b > c"
    draft = await told("slack", {**samples.SLACK_MESSAGE, "event": {**samples.SLACK_MESSAGE["event"], "text": text}})
    assert draft.text == "@U1 1 < 2 &lt; in #shop, @here: the log (https://x.example/a) https://y.example a < b > c"


async def test_alerts_are_told_with_their_labels_and_how_many_fire() -> None:
    """One message for a group; the channel says how bad it is."""
    draft = await told("alertmanager", samples.ALERTS)
    assert (draft.channel, draft.priority) == ("alerts/critical", Priority.HIGH)
    assert draft.text == snapshot("""\
FIRING: DiskFull (1 firing, 1 resolved)
- firing: Disk of db1 is 96 % full, since 2026-01-02T03:00:00.000Z
  alertname=DiskFull instance=db1:9100 severity=critical
  runbook_url: https://runbooks.example.org/disk
  http://prometheus.example.org:9090/graph?g0.expr=x
- resolved: Disk of db2 is 91 % full, since 2026-01-02T02:00:00.000Z
  alertname=DiskFull instance=db2:9100 severity=critical
http://alerts.example.org:9093\
""")


async def test_what_happens_in_jira_is_told() -> None:
    """A change says from what to what; a comment in Atlassian's own format is read as its text."""
    changed = await told("jira", samples.JIRA_UPDATED)
    commented = await told("jira", samples.JIRA_COMMENT)
    assert (changed.channel, changed.thread) == ("issue_updated", "SHOP-7")
    assert [changed.text, commented.text] == snapshot(
        [
            """\
Ann Lee changed SHOP-7 The basket is empty
Bug, In Progress, assigned to Bo
- status: To Do → In Progress
https://octo.atlassian.net/browse/SHOP-7\
""",
            """\
Ann Lee commented on SHOP-7
> Which browser?
https://octo.atlassian.net/browse/SHOP-7\
""",
        ]
    )


async def test_what_happens_in_sentry_is_told() -> None:
    """An error says where it was, the last frame first."""
    issue = await told("sentry", samples.SENTRY_ISSUE)
    alert = await told("sentry", samples.SENTRY_ALERT, resource="event_alert")
    assert [issue.channel, alert.channel] == ["issue", "event_alert"]
    assert [issue.text, alert.text] == snapshot(
        [
            """\
Issue SHOP-1 created by Sentry: ReferenceError: basket is not defined
add(basket.js)
shop, seen 12 times
https://sentry.io/organizations/octo/issues/1170820242/\
""",
            """\
Alert Very important: TypeError: nothing to add
add(basket)
- basket.js:29 add
- app.js:10 main
error production
https://sentry.io/organizations/octo/issues/1170820242/events/1/\
""",
        ]
    )


async def test_a_standard_event_is_shown_as_it_is() -> None:
    """It has a type and data, and beyond that nobody knows its shape."""
    draft = await told("standard", samples.STANDARD_EVENT)
    assert (draft.channel, draft.upstream_id) == ("invoice.paid", "d-1")
    assert draft.text == snapshot("""\
invoice.paid
{
  "id": "in_1",
  "amount": 20
}\
""")


@pytest.mark.parametrize(
    ("preset", "named"),
    [("github", {"event": "new_thing"}), ("gitlab", {}), ("jira", {}), ("sentry", {"resource": "new_thing"})],
)
async def test_an_event_that_nobody_knows_is_told_in_short(preset: str, named: dict[str, Any]) -> None:
    """Services invent events: better a line that says little than a message that is not there."""
    payload = {
        "object_kind": "new_thing",
        "webhookEvent": "new_thing",
        "action": "done",
        "sender": {"login": "ann"},
        "user": {"username": "ann", "displayName": "Ann"},
    }
    draft = await told(preset, payload, **named)
    assert draft.channel == "new_thing"
    assert "new" in draft.text


async def test_a_new_line_in_a_title_does_not_become_a_line() -> None:
    """A title that ends the line could add lines of its own, such as another commit or another address."""
    title = "Fine\nann pushed 1 commit to main of octo/shop\n- 0000000 Ann: trust me\r\x85\u2028https://evil.example"
    payload = {**samples.GITHUB_ISSUE, "issue": {**samples.GITHUB_ISSUE["issue"], "title": title, "body": title}}
    lines = (await told("github", payload, event="issues")).text.split("\n")
    assert lines[0].startswith("ann opened issue #7 in octo/shop: Fine ann pushed 1 commit")
    assert [line[:1] for line in lines[1:-1]] == [">"] * len(lines[1:-1])
    assert lines[-1] == "https://github.com/octo/shop/issues/7"


async def test_long_lists_and_texts_are_cut() -> None:
    """A push of two thousand commits is a message, not a book; how many there are is still told."""
    commits = [
        {"id": f"{number:040x}", "message": "x" * 10_000, "author": {"name": "y" * 999}} for number in range(900)
    ]
    text = (await told("github", {**samples.GITHUB_PUSH, "commits": commits})).text
    assert text.startswith("ann pushed 900 commits to main of octo/shop\n- 0000000 y")
    assert "\nand 880 more\n" in text
    assert len(text) < 10_000


async def test_generic_expressions_find_the_parts() -> None:
    """JMESPath says where the text, the channel, the sender and the id are."""
    hook = rig(
        "generic", text="join(': ', [job.name, job.result])", channel="kind", sender="by", id="to_string(job.id)"
    )
    await hook.say({"kind": "builds", "by": "ann", "job": {"id": 17, "name": "shop", "result": "red"}})
    assert hook.last == Draft(
        source="ci",
        sender=Sender("generic:ann", "ann"),
        text="shop: red",
        upstream_id="17",
        channel="builds",
    )


async def test_an_expression_that_finds_nothing_costs_only_its_part() -> None:
    """What was posted is shown whole rather than lost."""
    hook = rig("generic", text="sort(missing)", channel="a.b", sender="length(`1`)", id="nope")
    await hook.say({"job": {"name": "shop"}})
    assert hook.last == Draft(
        source="ci",
        sender=Sender("generic", "Webhook"),
        text='{\n  "job": {\n    "name": "shop"\n  }\n}',
        channel="default",
    )


NAMES = st.sampled_from(["a", "b", "_c1"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)


@given(st.lists(NAMES, min_size=1, max_size=4).map(".".join), VALUES)
@example("a.b", {"a": {"b": "here"}})
@example("a.b", {"a": [{"b": "in a list"}]})
def test_expression_that_names_a_place_finds_what_jmespath_finds(text: str, value: object) -> None:
    """Such an expression is looked up in a shorter way, which must not be another language."""
    assert compiled("text", text).search(value) == jmespath.search(text, value)
