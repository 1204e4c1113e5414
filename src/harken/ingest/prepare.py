"""From a draft to a new message: the one door through which text enters the store.

Composes sanitise, redact, trust and route under an `IngestPolicy`, and computes the keys by which a draft is known as
one that was stored before: short hashes that outlive the messages, of what the source says and never of the sender's
words. Everything a sender could have written is cleaned here, names and ids included. It stores nothing; the daemon
hands the result to the store, which decides what to do with a key it knows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from harken.errors import UserError
from harken.ingest.policy import ANYONE, IngestPolicy, answer_of, attention, route, utf8_bytes
from harken.ingest.redact import redact
from harken.ingest.sanitise import CleanText, bare, clean, is_plain_line, one_line, visible
from harken.model import (
    CUT_FROM,
    INBOX,
    REPLIES,
    WATCH,
    Attention,
    Draft,
    Mailbox,
    MessageKind,
    NewMessage,
    Sender,
    TextFormat,
    Trust,
)

MAX_NAME = 128
MAX_SENDER_ID = 320
MAX_ID = 512
MAX_META_ENTRIES = 32
MAX_META_KEY = 64
MAX_META_VALUE = 1_000
FIRST_YEAR, LAST_YEAR = 1970, 9000

# What no draft may say: a model that finds it beside the message's own could believe it.
_OWN_FACTS = frozenset(
    map(bare, (CUT_FROM, "trust", "treat_as", "delivery_id", "repeat", "repeat_note", "answered_by"))
)
_MAILBOX = re.compile(r"inbox|replies|(?:task|project|trial):\w[\w.\-]{0,99}")


def prepare(draft: Draft, policy: IngestPolicy) -> NewMessage:
    """Return the draft as a message that is safe to store. Raises `UserError` for a mailbox that cannot be."""
    identity = identify(draft)
    known = _with_clean_names(draft)
    cleaned = clean(draft.text, draft.format, policy.max_bytes, left_out=draft.left_out)
    text = redact(cleaned.text).text
    if utf8_bytes(text) > policy.max_bytes:
        # The words that stand for a secret may be longer than it was.
        cleaned = clean(text, TextFormat.PLAIN, policy.max_bytes, left_out=cleaned.cut)
        text = cleaned.text
    text = text or _nothing(draft.kind)
    trust = policy.trust_of(known)
    default = policy.default_attention.get(draft.source, Attention.PROMPT)
    mailbox = check_mailbox(draft.mailbox if draft.mailbox is not None else route(known, text, policy.routes))
    if trust is Trust.OWNER and mailbox == INBOX and answer_of(text) is not None:
        # It is said to Harken: an agent that read it would take it for an instruction.
        mailbox = REPLIES
    push = attention(known, trust, policy.attention_rules, default, mailbox=mailbox)
    # A stranger's question is none: anybody could make an agent, a desktop and a phone ask for an answer to it.
    is_question = draft.is_question and draft.kind is MessageKind.MESSAGE and trust is not Trust.UNKNOWN
    return NewMessage(
        mailbox=mailbox,
        source=draft.source,
        sender=known.sender,
        text=text,
        trust=trust,
        attention=push,
        channel=known.channel,
        conversation=safe_id(draft.conversation, MAX_ID),
        thread=safe_id(identity.thread, MAX_ID),
        kind=draft.kind,
        priority=draft.priority,
        upstream_id=" ".join(visible(draft.upstream_id[: 2 * MAX_ID]).split()),
        sent_at=_utc(draft.sent_at),
        meta=_clean_meta(draft.meta.items()) | _cut_fact(cleaned),
        # What you say through a source is yours: who answers in the chat itself need not be told of it here.
        author=draft.author or (WATCH if draft.is_answer or trust is Trust.OWNER else None),
        is_question=is_question and push is not Attention.COUNT and mailbox != REPLIES,
        is_answer=draft.is_answer,
        dedup_key=identity.dedup_key,
        refers_key=identity.refers_key,
    )


def _with_clean_names(draft: Draft) -> Draft:
    sender = draft.sender
    # Mostly they are clean, and to clean them or to copy a draft costs more than to look.
    if is_plain_line(sender.id, MAX_SENDER_ID) and sender.id != ANYONE and is_plain_line(sender.name, MAX_NAME):
        is_clean = is_plain_line(draft.channel, MAX_NAME) and "*" not in draft.channel
        return draft if is_clean else replace(draft, channel=_clean_channel(draft))
    cleaned = Sender(safe_id(sender.id, MAX_SENDER_ID), one_line(sender.name, MAX_NAME))
    return replace(draft, sender=cleaned, channel=_clean_channel(draft))


def _clean_channel(draft: Draft) -> str:
    # A star is a pattern in rules, routes and settings: what is made from this name must fit this name alone.
    return one_line(draft.channel, MAX_NAME).replace("*", "_")


def check_mailbox(name: str) -> Mailbox:
    """Return the name as a mailbox, or raise `UserError`."""
    if not _MAILBOX.fullmatch(name):
        raise UserError(
            f"'{one_line(name, 60)}' is not a mailbox name.",
            "Use inbox, task:<id> or project:<name>, with letters, digits, dots, hyphens and underscores.",
        )
    return Mailbox(name)


def safe_id(raw: str, max_chars: int) -> str:
    """Return an id on one line. One that had to be changed gets a mark of its own, so that it passes for no other.

    So does a star: to allow its sender would be to allow everyone.
    """
    line = one_line(raw, max_chars)
    if line == raw.strip() and line != ANYONE:
        return line
    mark = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{one_line(raw, max_chars - len(mark) - 1)}~{mark}"


def _nothing(kind: MessageKind) -> str:
    return "[message deleted]" if kind is MessageKind.DELETION else "[empty message]"


def _cut_fact(cleaned: CleanText) -> dict[str, str]:
    """Return the fact that says how long a text was, if it was cut: no sender can say it."""
    return {CUT_FROM: str(cleaned.length)} if cleaned.cut else {}


def _clean_meta(entries: Iterable[tuple[object, object]]) -> dict[str, str]:
    cleaned: dict[str, str] = {}
    for key, value in entries:
        if len(cleaned) == MAX_META_ENTRIES:
            break
        # Drafts say strings, but a source may have read something else.
        if not isinstance(key, str) or not isinstance(value, str):
            continue
        if (name := one_line(key, MAX_META_KEY)) and bare(name) not in _OWN_FACTS:
            cleaned.setdefault(name, one_line(redact(value[: 8 * MAX_META_VALUE]).text, MAX_META_VALUE))
    return cleaned


def _utc(at: datetime | None) -> datetime | None:
    if at is None:
        return None
    try:
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        return None
    # Far from any real mail; shown in another time zone it would be out of the calendar.
    return moment if FIRST_YEAR <= moment.year <= LAST_YEAR else None


_DOMAIN = "harken dedup 1"
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class DraftIdentity:
    """A draft's own key (None: always new), the key of what it refers to, and its thread."""

    dedup_key: bytes | None
    refers_key: bytes | None
    thread: str


def dedup_key(source: str, upstream_id: str) -> bytes:
    """Return the key of the original message with this upstream id."""
    return _key("message", source, upstream_id)


def identify(draft: Draft) -> DraftIdentity:
    """Return what a draft is and what it refers to."""
    return DraftIdentity(
        dedup_key=_own_key(draft) if draft.upstream_id else None,
        refers_key=_refers_key(draft),
        thread=draft.thread or draft.conversation or draft.upstream_id,
    )


def _own_key(draft: Draft) -> bytes:
    if draft.kind is MessageKind.EDIT:
        # With its time, where there is one: going back to an earlier wording is an edit too.
        at = draft.sent_at.isoformat() if draft.sent_at else ""
        return _key("edit", draft.source, draft.upstream_id, draft.text, at)
    if draft.kind is MessageKind.DELETION:
        return _key("deleted", draft.source, draft.upstream_id)
    return dedup_key(draft.source, draft.upstream_id)


def _refers_key(draft: Draft) -> bytes | None:
    original = draft.refers_to
    if not original and draft.kind is not MessageKind.MESSAGE:
        original = draft.upstream_id
    return dedup_key(draft.source, original) if original else None


def _key(*parts: str) -> bytes:
    encoded = [part.encode("utf-8", "surrogatepass") for part in (_DOMAIN, *parts)]
    # With its length before it, no part can run into the next.
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in encoded])
    return hashlib.sha256(framed).digest()[:_KEY_BYTES]
