"""Slack's Events API: `v0=` on the version, the time and the body; a signed time is believed for a few minutes only.

The first post to a new address wants its challenge back. Slack repeats what is not answered quickly, with the same
`event_id`. What apps themselves post (`bot_message`) is left out: an answer must not be heard as a question. A person
is the sender only of what they said themselves, or changed to.
"""

from __future__ import annotations

import re
from typing import Final

from harken.memory import json_bytes
from harken.model import Sender
from harken.sources.payload import Payload, joined
from harken.sources.source import PostedRequest
from harken.sources.webhook.preset import (
    EchoAnswer,
    Preset,
    Reading,
    ShellSignature,
    SignatureCheck,
    SkippedPost,
    WebhookEvent,
    check_signed,
    check_stamp,
    sender_of,
    shell_hmac,
)

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
    said = Payload(payload)
    kind = said.word("type")
    if kind == "url_verification":
        return EchoAnswer(json_bytes({"challenge": said.word("challenge", most=1_000)}))
    event = said.part("event")
    name = event.word("type", most=60) or kind or "unknown"
    if why := _silent(event):
        return SkippedPost(why)
    user = event.first("user", "message.user", "user.id", "user_id", most=64)
    place = event.first("channel", "channel.id", "item.channel", "channel_id", most=64)
    return WebhookEvent(
        channel=name,
        text=_text(event, name, user, place),
        sender=sender_of(SERVICE, user, user, is_own=name in SAID and _is_own(event)),
        id=said.word("event_id"),
        conversation=place,
        thread=event.first("thread_ts", "message.thread_ts", "ts", most=64),
        sent_at=event.moment("ts") or said.moment("event_time"),
        meta={
            key: value
            for key, value in {
                "team": said.word("team_id"),
                "retry": posted.headers.get("x-slack-retry-num", "")[:8],
            }.items()
            if value
        },
    )


def _is_own(event: Payload) -> bool:
    """Whether the user that is shown wrote the text, and just now."""
    if event.word("subtype") == "message_changed":
        # It also changes when a link in it is unfolded, by nobody.
        is_new = not event.is_same("message.text", "previous_message.text")
        return is_new and event.is_same("message.user", "message.edited.user") and "user" not in event
    return event.word("subtype") in OWN and bool(event.word("user"))


def _silent(event: Payload) -> str:
    subtype = event.word("subtype")
    if subtype == "bot_message" or event.word("bot_id") or event.word("message", "bot_id"):
        return "an app wrote it"
    return "nothing was said" if subtype in QUIET else ""


def _text(event: Payload, name: str, user: str, place: str) -> str:
    if name in SAID:
        return _message(event, user)
    item = event.first("reaction", "name", "file_id", "item.ts", "message_ts")
    head = f"{name.replace('_', ' ')}{f': {item}' if item else ''}"
    body = "" if "type" in event else event.as_json()
    return joined([f"{head}{f' by {user}' if user else ''}{f' in {place}' if place else ''}", body])


def _message(event: Payload, user: str) -> str:
    subtype = event.word("subtype")
    if subtype == "message_deleted":
        return "A message was deleted."
    body = event.at("message", "text") if subtype == "message_changed" else event.at("text")
    said = plain(body) if isinstance(body, str) else ""
    if subtype == "message_changed":
        return joined([f"{user or 'Somebody'} changed a message to:", *Payload(said).quoted()])
    files = event.at("files")
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
    sample='{"type":"event_callback","event":{"type":"message","channel":"C1","user":"U1","text":"hello"}}',
)
