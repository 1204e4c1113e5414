"""The targets behind every source: text and markup that become messages, and secrets in them.

Whatever was sent, what is stored is short, visible, in one normal form, harmless to a host, and stays the same when it
is cleaned once more.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import Final

from harken.errors import UserError
from harken.ingest.markup import to_text
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import (
    MAX_ID,
    MAX_META_ENTRIES,
    MAX_META_KEY,
    MAX_META_VALUE,
    MAX_NAME,
    MAX_SENDER_ID,
    prepare,
)
from harken.ingest.redact import redact
from harken.ingest.sanitise import clean, neutralise, one_line
from harken.model import MAX_TEXT_BYTES, Draft, Mailbox, MessageKind, NewMessage, Priority, Sender, TextFormat, Trust
from tests.fuzz.target import Target, acting, letter, must, plain, words

SIZES: Final = (60, 200, 64_000)
KINDS: Final = tuple(MessageKind)
LINE_SIZES: Final = (1, 2, 12, 60, 200)
_WRAPPER: Final = re.compile(
    r"<[\s/]*(?:channel|harken|system[-_\s]*(?:reminder|notification)|external[-_]|task[-_]notification|hook[-_]context)",
    re.IGNORECASE,
)
TOKENS: Final = (
    *(
        b"<system-reminder>",
        b"</channel>",
        b"<harken",
        b"[SYSTEM NOTIFICATION",
        b"<task-notification",
        b"<hook_context",
    ),
    *(b"<external_", b"<system>", b"<assistant|", b"<|im_start|>", b"&lt;system", b"&#x1b;[31m", b"<pre>", b"<table>"),
    *(b"<td>", b"<li>", b"<ol start=9>", b'<a href="x">', b"<br>", b"<style>", b"<p hidden>", b"<img alt=x>", b"</p>"),
    *("\uff1c".encode(), "\u3008".encode(), "\u2800".encode(), "\u0338".encode(), "\u0344".encode(), "❤".encode()),
    *("\U0001f469\u200d\U0001f4bb".encode(), "\u20e3".encode(), "\u1100\u1161".encode(), "\u00ad".encode()),
    *(b"\xc2\x9b", b"\xc2\x85", b"\xe2\x80\xa8", b"channel", b"system", b"reminder", b" ", b"\n\n\n\n\n\n"),
)
SECRETS: Final = (
    *(b"ghp_", b"github_pat_", b"glpat-", b"xoxb-", b"AKIA", b"AIza", b"sk-", b"sk_live_", b"npm_", b"pypi-", b"eyJ"),
    *(b"password=", b"token: ", b"Authorization: Bearer ", b"://a:", b"@", b"?sig=", b"AccountKey=", b"whsec_"),
    *(b"-----BEGIN PRIVATE KEY-----", b"-----END PRIVATE KEY-----", b"secret_key='", b"Zx9Qw3Er5Ty7Ui1Op2As4Df6"),
)


def is_harmless(text: str) -> None:
    """Look whether a text is what everything behind ingest relies on."""
    must(not acting(text), "characters that act or hide", acting(text), text)
    must(unicodedata.is_normalized("NFC", text), "not in the normal form", text)
    must(neutralise(text) == text, "neutralising again changes it", text)
    must(not _WRAPPER.search(text), "a look-alike of a host's wrapper", text)
    text.encode()


def is_storable(message: NewMessage, most_chars: int = MAX_TEXT_BYTES) -> None:
    """Look whether a message is bounded and clean in every field that somebody else wrote."""
    is_harmless(message.text)
    must(0 < len(message.text) <= most_chars + 200, "the text is not bounded", len(message.text))
    must(redact(message.text).count == 0, "a secret is left", message.text)
    lines = (
        (message.sender.id, MAX_SENDER_ID),
        (message.sender.name, MAX_NAME),
        (message.channel, MAX_NAME),
        (message.conversation, MAX_ID),
        (message.thread, MAX_ID),
        *((key, MAX_META_KEY) for key in message.meta),
        *((value, MAX_META_VALUE) for value in message.meta.values()),
    )
    for line, most in lines:
        is_harmless(line)
        must(len(line) <= most and "\n" not in line, "a line is not bounded", line)
    must(len(message.meta) <= MAX_META_ENTRIES, "too many facts", len(message.meta))
    must(not acting(message.upstream_id), "an id that acts", message.upstream_id)
    message.upstream_id.encode()
    must(message.sent_at is None or message.sent_at.tzinfo is UTC, "a time without its zone", message.sent_at)


def _text(data: bytes) -> str:
    form = TextFormat.HTML if data[:1] == b"h" else TextFormat.PLAIN
    most = SIZES[data[1] % len(SIZES)] if len(data) > 1 else SIZES[0]
    text = words(data[2:])
    cleaned = clean(text, form, most)
    is_harmless(cleaned.text)
    must(len(cleaned.text.encode()) <= most, "longer than allowed", len(cleaned.text), most)
    again = clean(cleaned.text, TextFormat.PLAIN, most)
    must(again.text == cleaned.text and not again.cut, "cleaning again changes it", cleaned.text, again.text)
    for size in LINE_SIZES:
        line = one_line(text, size)
        is_harmless(line)
        must(len(line) <= size and line == " ".join(line.split()), "not one short line", line, size)
        must(one_line(line, size) == line, "a line changes when it is cut again", line, one_line(line, size))
    return f"{form} {'cut' if cleaned.cut else 'whole' if cleaned.text else 'nothing'}"


def _markup(data: bytes) -> str:
    most = SIZES[data[0] % len(SIZES)] if data else SIZES[0]
    html = data[1:].decode("utf-8", "replace").replace("\x00", "")
    rendered = to_text(html, most)
    must(rendered.cut >= 0, "less than nothing was left out", rendered.cut)
    # One text is written whole before the end is noticed, and an address may follow it.
    must(len(rendered.text) <= most + 3 * len(html) + 4_000, "markup grows", len(rendered.text), len(html))
    must(to_text(html, most) == rendered, "the same markup reads differently", html)
    return "cut" if rendered.cut else "whole" if rendered.text else "nothing"


def _secret(data: bytes) -> str:
    text = clean(words(data), TextFormat.PLAIN).text
    once = redact(text)
    again = redact(once.text)
    must(again.count == 0 and again.text == once.text, "redacting again changes it", once.text, again.text)
    must(once.count > 0 or once.text == text, "changed without a secret", text, once.text)
    return "redacted" if once.count else "kept"


def _draft(data: bytes) -> str:
    said = letter(data)
    fields = {name: words(value.encode("latin-1")) for name, value in said.headers.items()}
    draft = Draft(
        source=fields.get("source") or "teams",
        sender=Sender(fields.get("sender", ""), fields.get("name", "")),
        text=words(said.body),
        upstream_id=fields.get("id", ""),
        channel=fields.get("channel", ""),
        conversation=fields.get("conversation", ""),
        thread=fields.get("thread", ""),
        kind=KINDS[len(fields.get("kind", "")) % len(KINDS)],
        refers_to=fields.get("refers", ""),
        format=TextFormat.HTML if said.word == "html" else TextFormat.PLAIN,
        sent_at=_moment(fields.get("sent", "")),
        priority=Priority.HIGH if fields.get("priority") else Priority.NORMAL,
        mailbox=Mailbox(fields["mailbox"]) if "mailbox" in fields else None,
        is_question=bool(fields.get("question")),
        meta=fields,
    )
    try:
        message = prepare(draft, IngestPolicy(default_trust={"teams": Trust.KNOWN}))
    except UserError as exc:
        is_harmless(exc.message)
        return "refused"
    is_storable(message)
    return "stored"


def _moment(stamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None


TARGETS: Final = (
    Target(
        name="sanitise",
        opened=plain(_text),
        reaches=frozenset({"plain whole", "plain cut", "html whole", "html cut"}),
        tokens=TOKENS,
    ),
    Target(name="markup", opened=plain(_markup), reaches=frozenset({"whole", "cut"}), tokens=TOKENS, most_bytes=8_192),
    Target(name="redact", opened=plain(_secret), reaches=frozenset({"redacted", "kept"}), tokens=SECRETS),
    Target(name="prepare", opened=plain(_draft), reaches=frozenset({"stored", "refused"}), tokens=(*TOKENS, *SECRETS)),
)
