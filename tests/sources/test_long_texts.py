"""Every source hands on long texts: up to the limit they are stored in full, and above it the cut is a fact.

Each source is asked for a text of exactly the limit, with what it says around it, and for one byte more. What comes
over a wire is bounded before: see the tests of each source.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest

from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import CUT_FROM, MAX_RAW_CHARS, MAX_TEXT_BYTES, Draft, MessageKind, Sender
from harken.sources.bot.activity import draft_of as bot_draft
from harken.sources.bot.activity import read_activity
from harken.sources.imap.messages import ArrivedMail, draft_of
from harken.sources.mcp.protocol import read_frame
from harken.sources.outlook.mail import draft_of as outlook_draft
from harken.sources.teams.messages import TeamsChat, chat_draft, read_message
from tests.sources.imap.rig import mail
from tests.sources.webhook import samples
from tests.sources.webhook.rig import rig

NOTHING: Final = IngestPolicy()
LAST: Final = "日"  # of several bytes, at the very boundary

Wrote = Callable[[str], Awaitable[Draft]]


async def _mail(text: str) -> Draft:
    return draft_of(ArrivedMail(raw=mail(text)), source="post", folder="INBOX")


async def _html_mail(text: str) -> Draft:
    raw = mail(f"<p>{text}</p>", "Content-Type: text/html; charset=utf-8")
    return draft_of(ArrivedMail(raw=raw), source="post", folder="INBOX")


async def _outlook(text: str) -> Draft:
    written = {
        "id": "AAk1",
        "internetMessageId": "<1@example.test>",
        "subject": "Hi",
        "from": {"emailAddress": {"name": "Ann", "address": "ann@example.test"}},
        "receivedDateTime": "2026-01-05T09:00:00Z",
        "body": {"contentType": "html", "content": f"<p>{text}</p>"},
    }
    draft = outlook_draft(written, source="work", folder="inbox")
    assert draft is not None
    return draft


async def _teams(text: str) -> Draft:
    written = read_message(
        {
            "id": "1",
            "createdDateTime": "2026-01-02T03:04:05.6Z",
            "from": {"user": {"id": "a", "displayName": "Ann"}},
            "messageType": "message",
            "body": {"contentType": "html", "content": f"<p>{text}</p>"},
        }
    )
    assert written is not None
    return chat_draft(
        written, source="work", chat=TeamsChat("c"), sender=Sender("a"), kind=MessageKind.MESSAGE, me="me"
    )


async def _bot(text: str) -> Draft:
    activity = {
        "type": "message",
        "id": "1",
        "serviceUrl": "https://smba.trafficmanager.net/emea/",
        "channelId": "msteams",
        "from": {"id": "29:a", "name": "Ann", "aadObjectId": "00000000-0000-0000-0000-000000000001"},
        "conversation": {"id": "a:1", "conversationType": "personal"},
        "recipient": {"id": "28:b"},
        "text": text,
    }
    draft = bot_draft(read_activity(json.dumps(activity).encode()), "desk")
    assert draft is not None
    return draft


async def _announced(text: str) -> Draft:
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/ci", "params": {"content": text}})
    (announcement,) = read_frame(line).announcements
    return Draft(source="ci", sender=Sender("ci"), text=announcement.content)


def _posted(preset: str, payload: Callable[[str], samples.Payload], **named: str) -> Wrote:
    async def wrote(text: str) -> Draft:
        hook = rig(preset)
        assert (await hook.say(payload(text), **named)).status == 202
        return hook.last

    return wrote


def _with(payload: samples.Payload, *path: str) -> Callable[[str], samples.Payload]:
    """Return a payload with a text at a path."""

    def filled(text: str) -> samples.Payload:
        copied: dict[str, Any] = json.loads(json.dumps(payload))
        place = copied
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = text
        return copied

    return filled


SOURCES: Final[Mapping[str, Wrote]] = MappingProxyType(
    {
        "mail": _mail,
        "html mail": _html_mail,
        "outlook": _outlook,
        "teams": _teams,
        "bot": _bot,
        "mcp": _announced,
        "github": _posted("github", _with(samples.GITHUB_COMMENT, "comment", "body"), event="issue_comment"),
        "gitlab": _posted("gitlab", _with({**samples.GITLAB_MERGE}, "object_attributes", "description")),
        "jira": _posted("jira", _with(samples.JIRA_COMMENT, "comment", "body")),
        "sentry": _posted("sentry", _with(samples.SENTRY_COMMENT, "data", "comment"), resource="comment"),
        "slack": _posted("slack", _with(samples.SLACK_MESSAGE, "event", "text")),
        "standard": _posted("standard", _with({"type": "build", "data": {"log": ""}}, "data", "log")),
        "generic": _posted("generic", _with({"text": ""}, "text")),
    }
)


@pytest.mark.parametrize("name", SOURCES)
async def test_text_of_a_source_is_whole_at_the_limit_and_one_byte_above_it_the_cut_is_told(name: str) -> None:
    """Whoever wrote it cannot be told that it was too long, so nothing of it may be missing in silence."""
    wrote = SOURCES[name]
    around = len(prepare(await wrote(LAST), NOTHING).text.encode()) - len(LAST.encode())
    text = "x" * (MAX_TEXT_BYTES - around - len(LAST.encode())) + LAST
    stored = prepare(await wrote(text), NOTHING)
    assert len(stored.text.encode()) == MAX_TEXT_BYTES
    assert text in stored.text
    assert CUT_FROM not in stored.meta
    above = prepare(await wrote("x" + text), NOTHING)
    assert len(above.text.encode()) <= MAX_TEXT_BYTES
    assert above.meta[CUT_FROM] == str(len(stored.text) + 1)
    assert above.text.splitlines()[-1].endswith("characters cut]")


@pytest.mark.parametrize("wrote", [_mail, _html_mail, _outlook], ids=["mail", "html mail", "outlook"])
async def test_mail_of_many_megabytes_says_how_long_it_was(wrote: Wrote) -> None:
    """Only its beginning is handed on; what the source itself left out counts all the same."""
    length = MAX_RAW_CHARS + 2_000_000
    stored = prepare(await wrote("x" * length), NOTHING)
    assert len(stored.text.encode()) <= MAX_TEXT_BYTES
    assert length <= int(stored.meta[CUT_FROM]) < length + 200
