"""Jira: `X-Hub-Signature` on the body; a delivery that is repeated has the same body, which holds its time.

What happened is in `webhookEvent`. Issues, their changes and comments have a text; the rest is told in a line. A person
is the sender only of a comment that they wrote with this event, and then nothing of others stands in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harken.model import Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    WebhookEvent,
    as_json,
    at,
    body_id,
    first,
    is_same,
    joined,
    listed,
    moment,
    quoted,
    rows,
    sender_of,
    table,
    url,
    word,
)
from harken.sources.webhook.signing import check_body, shell_body_signature

SIGNATURE: Final = "x-hub-signature"
SERVICE: Final = Sender("jira", "Jira")
WRITTEN: Final = "comment_created"
PEOPLE: Final = ("accountId", "name", "key")  # how Jira names somebody, in the cloud and elsewhere
BROWSE: Final = "/rest/api/"
MAX_NODES: Final = 100_000


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what Jira did not sign."""
    check_body(posted, judging.keys, SIGNATURE, prefix="sha256=")


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what Jira says."""
    said = table(payload)
    event = word(said, "webhookEvent", most=60).removeprefix("jira:") or "unknown"
    account = _author(said, event)
    name = first(said, "user.displayName", "comment.author.displayName", "comment.updateAuthor.displayName", most=100)
    key = word(said, "issue", "key", most=60)
    link = _link(said, key)
    return WebhookEvent(
        channel=event,
        text=_text(said, event, name or account or first(said, "user.name", "user.key") or "Somebody", link),
        sender=sender_of(SERVICE, account, name, is_own=bool(account)),
        id=body_id(posted),
        conversation=first(said, "issue.fields.project.key", "project.key", "sprint.name"),
        thread=key,
        sent_at=moment(said, "timestamp"),
        meta={"url": link} if link else {},
    )


def _author(said: Mapping[str, object], event: str) -> str:
    """Return who wrote a comment just now; empty for everything that a person did and need not have written."""
    if event != WRITTEN:
        return ""
    others = [each for each in ("user", "comment.updateAuthor") if table(said, *each.split("."))]
    for name in PEOPLE:
        if word(said, "comment", "author", name):
            is_one = all(is_same(said, f"comment.author.{name}", f"{each}.{name}") for each in others)
            return word(said, "comment", "author", name, most=120) if is_one else ""
    return ""


def _link(said: Mapping[str, object], key: str) -> str:
    """Return the page of an issue: Jira tells only where its API is."""
    api = url(said, "issue.self")
    site = api.partition(BROWSE)[0]
    return f"{site}/browse/{key}" if key and BROWSE in api and key.replace("-", "").isalnum() else ""


def _text(said: Mapping[str, object], event: str, who: str, link: str) -> str:
    issue = table(said, "issue")
    subject = f"{word(issue, 'key')} {word(issue, 'fields', 'summary')}".strip()
    if event.startswith("comment_"):
        verb = {"comment_created": "commented on", "comment_updated": "changed a comment on"}
        shown = word(issue, "key") if _author(said, event) else subject
        head = f"{who} {verb.get(event, 'removed a comment from')} {shown or 'an issue'}"
        return joined([head, *_written(said, "comment", "body"), link])
    if event.startswith("issue_") and issue:
        verb = {"issue_created": "created", "issue_updated": "changed", "issue_deleted": "deleted"}
        changes = rows(said, "changelog", "items")
        facts = [first(issue, path, most=80) for path in ("fields.issuetype.name", "fields.status.name")]
        assignee = word(issue, "fields", "assignee", "displayName", most=80)
        return joined(
            [
                f"{who} {verb.get(event, event.replace('_', ' '))} {subject}",
                ", ".join(filter(None, [*facts, f"assigned to {assignee}" if assignee else ""])),
                *listed(map(_change, changes), len(changes)),
                *(_written(issue, "fields", "description") if event == "issue_created" else []),
                *_written(said, "comment", "body"),
                link,
            ]
        )
    what = first(
        said, "sprint.name", "version.name", "project.name", "worklog.issueId", "board.name", "user.displayName"
    )
    # Without even a name there is nothing to tell it by but itself.
    body = "" if "webhookEvent" in said else as_json(said)
    return joined([f"{event.replace('_', ' ')}: {subject or what or 'something'}, by {who}", body, link])


def _written(value: object, *path: str) -> list[str]:
    """Return what a person wrote: a text, or the texts inside Atlassian's document format."""
    found = at(value, *path)
    if isinstance(found, dict):
        return quoted({"text": " ".join(_texts(found))}, "text")
    return quoted(value, *path)


def _texts(document: object) -> list[str]:
    found: list[str] = []
    waiting, looked = [document], 0
    while waiting and looked < MAX_NODES:
        looked += 1
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(text := node.get("text"), str):
                found.append(" ".join(text.split()))
            waiting.append(node.get("content"))
        elif isinstance(node, list):
            waiting.extend(reversed(node))
    return found


def _change(item: Mapping[str, object]) -> str:
    before, after = word(item, "fromString", most=80), word(item, "toString", most=80)
    return f"- {word(item, 'field', most=60)}: {before or '(nothing)'} → {after or '(nothing)'}"


PRESET: Final = Preset(
    name="jira",
    title="Jira",
    check=check,
    read=read,
    where="In Jira: System settings, WebHooks, Create; the secret goes into Secret.",
    shell=shell_body_signature("X-Hub-Signature: sha256="),
)
