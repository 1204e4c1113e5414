"""Jira: `X-Hub-Signature` on the body; a delivery that is repeated has the same body, which holds its time.

What happened is in `webhookEvent`. Issues, their changes and comments have a text; the rest is told in a line. A person
is the sender only of a comment that they wrote with this event, and then nothing of others stands in the text.
"""

from __future__ import annotations

from typing import Final

from harken.model import Sender
from harken.sources.payload import Payload, joined, listed
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    WebhookEvent,
    body_id,
    check_body,
    sender_of,
    shell_body_signature,
)

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
    said = Payload(payload)
    event = said.word("webhookEvent", most=60).removeprefix("jira:") or "unknown"
    account = _author(said, event)
    name = said.first("user.displayName", "comment.author.displayName", "comment.updateAuthor.displayName", most=100)
    key = said.word("issue", "key", most=60)
    link = _link(said, key)
    return WebhookEvent(
        channel=event,
        text=_text(said, event, name or account or said.first("user.name", "user.key") or "Somebody", link),
        sender=sender_of(SERVICE, account, name, is_own=bool(account)),
        id=body_id(posted),
        conversation=said.first("issue.fields.project.key", "project.key", "sprint.name"),
        thread=key,
        sent_at=said.moment("timestamp"),
        meta={"url": link} if link else {},
    )


def _author(said: Payload, event: str) -> str:
    """Return who wrote a comment just now; empty for everything that a person did and need not have written."""
    if event != WRITTEN:
        return ""
    others = [each for each in ("user", "comment.updateAuthor") if said.part(*each.split("."))]
    for name in PEOPLE:
        if said.word("comment", "author", name):
            is_one = all(said.is_same(f"comment.author.{name}", f"{each}.{name}") for each in others)
            return said.word("comment", "author", name, most=120) if is_one else ""
    return ""


def _link(said: Payload, key: str) -> str:
    """Return the page of an issue: Jira tells only where its API is."""
    api = said.url("issue.self")
    site = api.partition(BROWSE)[0]
    return f"{site}/browse/{key}" if key and BROWSE in api and key.replace("-", "").isalnum() else ""


def _text(said: Payload, event: str, who: str, link: str) -> str:
    issue = said.part("issue")
    subject = f"{issue.word('key')} {issue.word('fields', 'summary')}".strip()
    if event.startswith("comment_"):
        verb = {"comment_created": "commented on", "comment_updated": "changed a comment on"}
        shown = issue.word("key") if _author(said, event) else subject
        head = f"{who} {verb.get(event, 'removed a comment from')} {shown or 'an issue'}"
        return joined([head, *_written(said, "comment", "body"), link])
    if event.startswith("issue_") and issue:
        verb = {"issue_created": "created", "issue_updated": "changed", "issue_deleted": "deleted"}
        changes = said.rows("changelog", "items")
        facts = [issue.first(path, most=80) for path in ("fields.issuetype.name", "fields.status.name")]
        assignee = issue.word("fields", "assignee", "displayName", most=80)
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
    what = said.first(
        "sprint.name", "version.name", "project.name", "worklog.issueId", "board.name", "user.displayName"
    )
    # Without even a name there is nothing to tell it by but itself.
    body = "" if "webhookEvent" in said else said.as_json()
    return joined([f"{event.replace('_', ' ')}: {subject or what or 'something'}, by {who}", body, link])


def _written(value: Payload, *path: str) -> list[str]:
    """Return what a person wrote: a text, or the texts inside Atlassian's document format."""
    found = value.at(*path)
    if isinstance(found, dict):
        return Payload(" ".join(_texts(found))).quoted()
    return value.quoted(*path)


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


def _change(item: Payload) -> str:
    before, after = item.word("fromString", most=80), item.word("toString", most=80)
    return f"- {item.word('field', most=60)}: {before or '(nothing)'} → {after or '(nothing)'}"


PRESET: Final = Preset(
    name="jira",
    title="Jira",
    check=check,
    read=read,
    where="In Jira: System settings, WebHooks, Create; the secret goes into Secret.",
    shell=shell_body_signature("X-Hub-Signature: sha256="),
    sample='{"webhookEvent":"jira:issue_created","issue":{"key":"DEMO-1","fields":{"summary":"hello"}}}',
)
