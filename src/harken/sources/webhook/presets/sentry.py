"""Sentry: `Sentry-Hook-Signature` on the body, with the client secret of an internal integration.

What it is about is in `Sentry-Hook-Resource`, what happened in `action`. That header is not signed, nor is the
`Request-ID` that names a delivery. A person is the sender only of a comment that they wrote with this event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harken.model import Priority, Sender
from harken.sources.payload import Payload, joined, one_line
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
    unsigned_id,
)

SIGNATURE: Final = "sentry-hook-signature"
RESOURCE: Final = "sentry-hook-resource"
DELIVERY: Final = "request-id"
SERVICE: Final = Sender("sentry", "Sentry")
MAX_FRAMES: Final = 3

_KEYS: Final[Mapping[str, str]] = {"event_alert": "event", "metric_alert": "metric_alert", "error": "error"}


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what Sentry did not sign."""
    check_body(posted, judging.keys, SIGNATURE)


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what Sentry says."""
    said = Payload(payload)
    data = said.part("data")
    resource = one_line(posted.headers.get(RESOURCE, ""), 60) or "unknown"
    action = said.word("action", most=60)
    actor = said.first("actor.id", most=60) if said.word("actor", "type") == "user" else ""
    name = said.word("actor", "name", most=100)
    is_own = (resource, action) == ("comment", "created") and bool(data.word("comment"))
    thing = data.part(_KEYS.get(resource, resource)) or data
    link = thing.url("web_url", "permalink", "url") or data.url("web_url", "comment_url")
    return WebhookEvent(
        channel=resource,
        text=_text(data, thing, resource, action, name) + (f"\n{link}" if link else ""),
        sender=sender_of(SERVICE, actor, name, is_own=is_own),
        id=_id(posted, data, action),
        conversation=thing.first("project.slug", "project_slug", "project", "project_name"),
        thread=thing.first("issue_id", "shortId", "id", "identifier") or data.word("issue_id"),
        sent_at=thing.moment("datetime") or thing.moment("lastSeen") or thing.moment("date_created"),
        priority=Priority.HIGH if action == "critical" else Priority.NORMAL,
        meta={key: value for key, value in {"action": action, "url": link}.items() if value},
    )


def _id(posted: PostedRequest, data: Payload, action: str) -> str:
    # An error and a new comment happen once. An issue that is resolved, opened again and resolved, or an alert that
    # gets worse, better and worse, has the same bytes twice: nothing in them says when.
    is_once = "event" in data or "error" in data or ("comment" in data and action == "created")
    return body_id(posted) if is_once else unsigned_id(posted, DELIVERY)


def _text(data: Payload, thing: Payload, resource: str, action: str, who: str) -> str:
    title = thing.first("title", "metadata.title", "message", "metadata.value") or "(no title)"
    if resource == "metric_alert":
        head = data.word("description_title") or f"{action}: {thing.word('title')}"
        return joined([head, *data.quoted("description_text")])
    if resource == "event_alert":
        rule = data.word("triggered_rule")
        return joined([f"Alert{f' {rule}' if rule else ''}: {title}", *_facts(thing)])
    if resource == "issue":
        project = thing.first("project.slug", "project.name")
        head = f"Issue {thing.word('shortId')} {action}{f' by {who}' if who else ''}: {title}"
        times = thing.word("count")
        seen = f"{project}, seen {times} times" if times else project
        return joined([head, thing.word("culprit"), seen])
    if resource == "error":
        return joined([f"Error: {title}", *_facts(thing)])
    if resource == "comment":
        head = f"{who or 'Somebody'} {action or 'made'} a comment in {data.word('project_slug') or 'a project'}"
        return joined([head, *data.quoted("comment")])
    return joined([f"{resource} {action}{f' by {who}' if who else ''}".strip(), thing.as_json()])


def _facts(event: Payload) -> list[str]:
    """Return where an error was: the culprit, and the last frames of the first exception."""
    exceptions = event.rows("exception", "values")
    frames = exceptions[0].rows("stacktrace", "frames")[-MAX_FRAMES:] if exceptions else []
    return [
        event.word("culprit"),
        *(
            f"- {frame.first('filename', 'module')}:{frame.word('lineno')} {frame.word('function')}".rstrip()
            for frame in reversed(frames)
        ),
        " ".join(filter(None, (event.word("level"), event.word("environment"), event.word("release")))),
    ]


PRESET: Final = Preset(
    name="sentry",
    title="Sentry",
    check=check,
    read=read,
    is_secret_theirs=True,
    where="In Sentry: Settings, Developer Settings, a new internal integration; its Client Secret is the secret.",
    shell=shell_body_signature("Sentry-Hook-Signature: ", "'Sentry-Hook-Resource: issue'"),
    sample='{"action":"created","data":{"issue":{"id":"1","title":"hello"}}}',
)
