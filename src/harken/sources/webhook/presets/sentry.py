"""Sentry: `Sentry-Hook-Signature` on the body, with the client secret of an internal integration.

What it is about is in `Sentry-Hook-Resource`, what happened in `action`. That header is not signed, nor is the
`Request-ID` that names a delivery. A person is the sender only of a comment that they wrote with this event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harken.model import Priority, Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    Preset,
    Reading,
    SignatureCheck,
    WebhookEvent,
    as_json,
    body_id,
    first,
    joined,
    moment,
    one_line,
    quoted,
    rows,
    sender_of,
    table,
    unsigned_id,
    url,
    word,
)
from harken.sources.webhook.signing import check_body, shell_body_signature

SIGNATURE: Final = "sentry-hook-signature"
RESOURCE: Final = "sentry-hook-resource"
DELIVERY: Final = "request-id"
SERVICE: Final = Sender("sentry", "Sentry")
MAX_FRAMES: Final = 3


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what Sentry did not sign."""
    check_body(posted, judging.keys, SIGNATURE)


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what Sentry says."""
    said = table(payload)
    data = table(said, "data")
    resource = one_line(posted.headers.get(RESOURCE, ""), 60) or "unknown"
    action = word(said, "action", most=60)
    actor = first(said, "actor.id", most=60) if word(said, "actor", "type") == "user" else ""
    name = word(said, "actor", "name", most=100)
    is_own = (resource, action) == ("comment", "created") and bool(word(data, "comment"))
    thing = table(data, _KEYS.get(resource, resource)) or data
    link = url(thing, "web_url", "permalink", "url") or url(data, "web_url", "comment_url")
    return WebhookEvent(
        channel=resource,
        text=_text(data, thing, resource, action, name) + (f"\n{link}" if link else ""),
        sender=sender_of(SERVICE, actor, name, is_own=is_own),
        id=_id(posted, data, action),
        conversation=first(thing, "project.slug", "project_slug", "project", "project_name"),
        thread=first(thing, "issue_id", "shortId", "id", "identifier") or word(data, "issue_id"),
        sent_at=moment(thing, "datetime") or moment(thing, "lastSeen") or moment(thing, "date_created"),
        priority=Priority.HIGH if action == "critical" else Priority.NORMAL,
        meta={key: value for key, value in {"action": action, "url": link}.items() if value},
    )


def _id(posted: PostedRequest, data: Mapping[str, object], action: str) -> str:
    # An error and a new comment happen once. An issue that is resolved, opened again and resolved, or an alert that
    # gets worse, better and worse, has the same bytes twice: nothing in them says when.
    is_once = "event" in data or "error" in data or ("comment" in data and action == "created")
    return body_id(posted) if is_once else unsigned_id(posted, DELIVERY)


_KEYS: Final[Mapping[str, str]] = {"event_alert": "event", "metric_alert": "metric_alert", "error": "error"}


def _text(data: Mapping[str, object], thing: Mapping[str, object], resource: str, action: str, who: str) -> str:
    title = first(thing, "title", "metadata.title", "message", "metadata.value") or "(no title)"
    if resource == "metric_alert":
        head = word(data, "description_title") or f"{action}: {word(thing, 'title')}"
        return joined([head, *quoted(data, "description_text")])
    if resource == "event_alert":
        rule = word(data, "triggered_rule")
        return joined([f"Alert{f' {rule}' if rule else ''}: {title}", *_facts(thing)])
    if resource == "issue":
        project = first(thing, "project.slug", "project.name")
        head = f"Issue {word(thing, 'shortId')} {action}{f' by {who}' if who else ''}: {title}"
        times = word(thing, "count")
        seen = f"{project}, seen {times} times" if times else project
        return joined([head, word(thing, "culprit"), seen])
    if resource == "error":
        return joined([f"Error: {title}", *_facts(thing)])
    if resource == "comment":
        head = f"{who or 'Somebody'} {action or 'made'} a comment in {word(data, 'project_slug') or 'a project'}"
        return joined([head, *quoted(data, "comment")])
    return joined([f"{resource} {action}{f' by {who}' if who else ''}".strip(), as_json(thing)])


def _facts(event: Mapping[str, object]) -> list[str]:
    """Return where an error was: the culprit, and the last frames of the first exception."""
    exceptions = rows(event, "exception", "values")
    frames = rows(exceptions[0], "stacktrace", "frames")[-MAX_FRAMES:] if exceptions else []
    return [
        word(event, "culprit"),
        *(
            f"- {first(frame, 'filename', 'module')}:{word(frame, 'lineno')} {word(frame, 'function')}".rstrip()
            for frame in reversed(frames)
        ),
        " ".join(filter(None, (word(event, "level"), word(event, "environment"), word(event, "release")))),
    ]


PRESET: Final = Preset(
    name="sentry",
    title="Sentry",
    check=check,
    read=read,
    is_secret_theirs=True,
    where="In Sentry: Settings, Developer Settings, a new internal integration; its Client Secret is the secret.",
    shell=shell_body_signature("Sentry-Hook-Signature: "),
)
