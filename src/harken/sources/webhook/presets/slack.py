"""Slack's Events API: `v0=` on the version, the time and the body; a signed time is believed for a few minutes only.

The first post to a new address wants its challenge back. Slack repeats what is not answered quickly, with the same
`event_id`. What apps themselves post (`bot_message`) is left out: an answer must not be heard as a question. A person
is the sender only of what they said themselves, or changed to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harken.memory import json_bytes
from harken.model import Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    EchoAnswer,
    Preset,
    Reading,
    SignatureCheck,
    SkippedPost,
    WebhookEvent,
    as_json,
    at,
    first,
    is_same,
    joined,
    moment,
    quoted,
    sender_of,
    table,
    word,
)
from harken.sources.webhook.signing import ShellSignature, check_signed, check_stamp, shell_hmac

SIGNATURE: Final = "x-slack-signature"
STAMP: Final = "x-slack-request-timestamp"
VERSION: Final = "v0"
SERVICE: Final = Sender("slack", "Slack")
# What is said about a message and is none itself: edits are told, what only changes its look is not.
QUIET: Final = frozenset({"message_replied", "channel_join", "channel_leave", "bot_add", "bot_remove"})
SAID: Final = frozenset({"message", "app_mention"})
# With other subtypes the text is Slack's, about what others made.
OWN: Final = frozenset({"", "me_message", "file_share", "thread_broadcast"})
# `<https://x.example|words>`, `<@U1>`, `<#C1|name>`, `<!here>`: each attempt ends at the next bracket.
_LINK: Final = re.compile(r"<((?:[@#!]|[a-z]{2,10}:)[^<>|\n]{1,2000})(?:\|([^<>\n]{0,2000}))?>")


def check(posted: PostedRequest, judging: SignatureCheck) -> None:
    """Refuse what Slack did not sign in the last minutes."""
    stamp = posted.headers.get(STAMP, "")
    check_stamp(stamp, judging.now, judging.window)
    signed = b"%b:%b:%b" % (VERSION.encode(), stamp.encode(), posted.body)
    check_signed(posted.headers.get(SIGNATURE, ""), signed, judging.keys, prefix=f"{VERSION}=")


def read(posted: PostedRequest, payload: object) -> Reading:
    """Return what Slack says."""
    said = table(payload)
    kind = word(said, "type")
    if kind == "url_verification":
        return EchoAnswer(json_bytes({"challenge": word(said, "challenge", most=1_000)}))
    event = table(said, "event")
    name = word(event, "type", most=60) or kind or "unknown"
    if why := _silent(event):
        return SkippedPost(why)
    user = first(event, "user", "message.user", "user.id", "user_id", most=64)
    place = first(event, "channel", "channel.id", "item.channel", "channel_id", most=64)
    return WebhookEvent(
        channel=name,
        text=_text(event, name, user, place),
        sender=sender_of(SERVICE, user, user, is_own=name in SAID and _is_own(event)),
        id=word(said, "event_id"),
        conversation=place,
        thread=first(event, "thread_ts", "message.thread_ts", "ts", most=64),
        sent_at=moment(event, "ts") or moment(said, "event_time"),
        meta={
            key: value
            for key, value in {
                "team": word(said, "team_id"),
                "retry": posted.headers.get("x-slack-retry-num", "")[:8],
            }.items()
            if value
        },
    )


def _is_own(event: Mapping[str, object]) -> bool:
    """Whether the user that is shown wrote the text, and just now."""
    if word(event, "subtype") == "message_changed":
        # It also changes when a link in it is unfolded, by nobody.
        is_new = not is_same(event, "message.text", "previous_message.text")
        return is_new and is_same(event, "message.user", "message.edited.user") and "user" not in event
    return word(event, "subtype") in OWN and bool(word(event, "user"))


def _silent(event: Mapping[str, object]) -> str:
    subtype = word(event, "subtype")
    if subtype == "bot_message" or word(event, "bot_id") or word(event, "message", "bot_id"):
        return "an app wrote it"
    return "nothing was said" if subtype in QUIET else ""


def _text(event: Mapping[str, object], name: str, user: str, place: str) -> str:
    if name in SAID:
        return _message(event, user)
    item = first(event, "reaction", "name", "file_id", "item.ts", "message_ts")
    head = f"{name.replace('_', ' ')}{f': {item}' if item else ''}"
    body = "" if "type" in event else as_json(event)
    return joined([f"{head}{f' by {user}' if user else ''}{f' in {place}' if place else ''}", body])


def _message(event: Mapping[str, object], user: str) -> str:
    subtype = word(event, "subtype")
    if subtype == "message_deleted":
        return "A message was deleted."
    body = at(event, "message", "text") if subtype == "message_changed" else at(event, "text")
    said = plain(body) if isinstance(body, str) else ""
    if subtype == "message_changed":
        return joined([f"{user or 'Somebody'} changed a message to:", *quoted({"text": said}, "text")])
    files = at(event, "files")
    shared = f"({len(files)} files)" if isinstance(files, list) and files else ""
    return joined([said, shared]) or "(a message without text)"


def plain(text: str) -> str:
    """Return a text as people see it in Slack: links with their words, people and channels by their marks."""
    shown = _LINK.sub(lambda link: _shown(link[1], link[2] or ""), text)
    # The last one last: what it gives back was never one of the others.
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _shown(target: str, label: str) -> str:
    mark, name = target[:1], target[1:]
    if mark in {"@", "#"}:
        return f"{mark}{label or name}"
    if mark == "!":
        return f"@{label or name}"
    return f"{label} ({target})" if label and label != target else target


def shell(secret: str) -> ShellSignature:
    """Return how a shell signs as Slack does."""
    made = shell_hmac(secret, "v0:$t:$body")
    return ShellSignature("t=$(date +%s); ", ('"X-Slack-Request-Timestamp: $t"', f'"X-Slack-Signature: v0={made}"'))


PRESET: Final = Preset(
    name="slack",
    title="Slack",
    check=check,
    read=read,
    is_secret_theirs=True,
    where="At api.slack.com/apps: Event Subscriptions, Request URL; the secret is Basic Information, Signing Secret.",
    shell=shell,
    sample='{"type":"url_verification","challenge":"hello"}',
)
