"""A mail of Microsoft Graph as a draft. Pure: JSON in, a draft out; it trusts no word of it.

It says what markup cannot: the subject, an invitation, names of attachments, that a mail is encrypted. Cleaning the
markup is the business of ingest. Its upstream id is the mail's own (`internetMessageId`): it is the same in every
folder, so that a mail that is moved, or told twice, is heard once. Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Final

from harken.model import Draft, Sender, TextFormat
from harken.sources.graph.failures import MissingScope
from harken.sources.graph.outlook.folding import fold_html, fold_plain, is_answer
from harken.sources.graph.outlook.place import Row
from harken.sources.graph.verdict import Json

CHANNEL: Final = "email"
BY_GRAPH: Final = "graph:"  # how the upstream id of a mail begins that has none of its own
ENCRYPTED: Final = "[encrypted mail: it is not shown here, open it in Outlook]"
UNREADABLE: Final = "[this mail cannot be read here, open it in Outlook; it begins:]"
MOST_TEXT: Final = 300_000  # ingest reads less than that
MOST_ATTACHMENTS: Final = 20
MOST_NAME: Final = 200

OUTSIDE: Final = (
    *("id", "internetMessageId", "subject", "from", "sender", "replyTo", "toRecipients", "ccRecipients"),
    *("receivedDateTime", "conversationId", "isDraft", "hasAttachments", "importance", "bodyPreview"),
)
WHOLE: Final = (*OUTSIDE, "body", "internetMessageHeaders")

_ENCRYPTED_TYPES: Final = (
    "application/pkcs7-mime",
    "application/x-pkcs7-mime",
    "application/x-microsoft-rpmsg-message",
)
_ENCRYPTED_FILES: Final = ("smime.p7m", "message.rpmsg", "message_v2.rpmsg", "message_v3.rpmsg", "message_v4.rpmsg")
_SIGNED: Final = "signed-data"  # such a mail is only signed, and can be read
_MEETING: Final[Mapping[str, str]] = {
    "meetingRequest": "Meeting invitation",
    "meetingCancelled": "Meeting cancelled",
    "meetingAccepted": "Meeting accepted",
    "meetingTenativelyAccepted": "Meeting tentatively accepted",  # spelt so in the service
    "meetingTentativelyAccepted": "Meeting tentatively accepted",
    "meetingDeclined": "Meeting declined",
}


def row_of(item: object) -> Row | None:
    """Return an entry of a list of changes as a mail that came, or None: something was taken away, or is no mail."""
    entry = _object(item)
    identifier = _text(entry, "id")
    if not identifier or "@removed" in entry:
        return None
    return Row(identifier, _moment(_text(entry, "receivedDateTime")))


def is_invitation(mail: Json) -> bool:
    """Whether a mail is about a meeting: the service says more about those when it is asked once more."""
    return "eventMessage" in _text(mail, "@odata.type") or bool(_text(mail, "meetingMessageType"))


def draft_of(mail: Json, *, source: str, folder: str) -> Draft | None:
    """Return a mail as a draft, or None if it is unfinished; raises `MissingScope` if we may not read what it says."""
    if mail.get("isDraft") is True:
        return None
    if "body" not in mail and "bodyPreview" not in mail:
        raise MissingScope(("Mail.Read",))
    sender = _person(mail.get("from")) or _person(mail.get("sender")) or Sender("unknown")
    original = _header(mail, "in-reply-to")
    text, text_format = _said(mail, has_original=bool(original))
    conversation = _text(mail, "conversationId")
    return Draft(
        source=source,
        sender=sender,
        text=text,
        upstream_id=upstream_id(mail),
        channel=CHANNEL,
        conversation=conversation,
        thread=conversation,
        refers_to=original,
        format=text_format,
        sent_at=_moment(_text(mail, "receivedDateTime")),
        meta=_meta(mail, sender, folder),
    )


def upstream_id(mail: Json) -> str:
    """Return the mail's own id, or the service's if it came without one."""
    return _text(mail, "internetMessageId").strip() or f"{BY_GRAPH}{_text(mail, 'id')}"


def body_of(mail: Json) -> str:
    """Return what a mail says, as it came."""
    return _text(_object(mail.get("body")), "content")


def address_of(mail: Json) -> str:
    """Return the address that a mail is from."""
    sender = _person(mail.get("from"))
    return sender.id if sender else ""


def is_encrypted(mail: Json) -> bool:
    """Whether only the right key, or the right account in Outlook, can read a mail."""
    said = _header(mail, "content-type").lower()
    if said.startswith(_ENCRYPTED_TYPES) and _SIGNED not in said:
        return True
    if _header(mail, "content-class").lower() == "rpmsg.message":
        return True
    for attached in _attachments(mail):
        kind = _text(attached, "contentType").lower()
        is_named_so = _text(attached, "name").strip().lower() in _ENCRYPTED_FILES
        if (is_named_so or kind.startswith(_ENCRYPTED_TYPES)) and _SIGNED not in f"{kind} {said}":
            return True
    return False


def _said(mail: Json, *, has_original: bool) -> tuple[str, TextFormat]:
    subject = _line(_text(mail, "subject"))
    said = [f"Subject: {subject}"] if subject else []
    if is_encrypted(mail):
        return "\n".join([*said, ENCRYPTED]), TextFormat.PLAIN
    # All of this stands before the body: behind it, an unclosed tag or the limit of a message could make it vanish.
    said += [*_meeting(mail), *_attached(mail)]
    if "body" not in mail:
        return "\n".join([*said, UNREADABLE, _text(mail, "bodyPreview")]), TextFormat.PLAIN
    body, can_fold = body_of(mail)[:MOST_TEXT], is_answer(subject, has_original=has_original)
    if _text(_object(mail.get("body")), "contentType").lower() != "html":
        return "\n".join([*said, "", fold_plain(body) if can_fold else body]), TextFormat.PLAIN
    lines = [f"<p>{escape(line)}</p>" for line in said]
    return "\n".join([*lines, fold_html(body) if can_fold else body]), TextFormat.HTML


def _meeting(mail: Json) -> list[str]:
    if not is_invitation(mail):
        return []
    event = _object(mail.get("event"))
    said = {**event, **{name: mail[name] for name in ("startDateTime", "endDateTime", "location") if mail.get(name)}}
    begin, end = _when(said, "start"), _when(said, "end")
    where = _line(_text(_object(said.get("location")), "displayName"))
    organiser = _person(event.get("organizer"))
    lines = [f"[{_MEETING.get(_text(mail, 'meetingMessageType'), 'About a meeting')}]"]
    if begin:
        lines.append(f"When: {begin}{f' to {end}' if end else ''}")
    if where:
        lines.append(f"Where: {where}")
    if organiser:
        lines.append(f"Organiser: {_line(organiser.name)} <{_line(organiser.id)}>")
    return lines


def _when(said: Mapping[str, object], which: str) -> str:
    at = _object(said.get(f"{which}DateTime") or said.get(which))
    moment = _text(at, "dateTime").partition(".")[0].replace("T", " ")
    return _line(f"{moment} {_text(at, 'timeZone')}") if moment else ""


def _attached(mail: Json) -> list[str]:
    seen = [each for each in _attachments(mail) if each.get("isInline") is not True]
    names = [_line(_text(each, "name")) or "without a name" for each in seen[:MOST_ATTACHMENTS]]
    lines = [f"[attachment: {name}]" for name in names]
    if len(seen) > len(names):
        lines.append(f"[and {len(seen) - len(names)} more attachments]")
    if not seen and mail.get("hasAttachments") is True:
        lines.append("[it has attachments]")
    return lines


def _meta(mail: Json, sender: Sender, folder: str) -> dict[str, str]:
    names = ", ".join(_line(_text(each, "name")) for each in _attachments(mail)[:MOST_ATTACHMENTS])
    answers = [person.id for person in _people(mail.get("replyTo")) if person.id != sender.id]
    by = _person(mail.get("sender"))
    said = {
        "subject": _line(_text(mail, "subject")),
        "folder": folder,
        "attachments": names,
        "to": ", ".join(person.id for person in _people(mail.get("toRecipients"))[:MOST_ATTACHMENTS]),
        "copies": ", ".join(person.id for person in _people(mail.get("ccRecipients"))[:MOST_ATTACHMENTS]),
        "answers_go_to": ", ".join(answers[:MOST_ATTACHMENTS]),
        "sent_by": by.id if by and by.id != sender.id else "",
        "importance": _text(mail, "importance") if _text(mail, "importance") != "normal" else "",
    }
    return {name: value for name, value in said.items() if value}


def _person(value: object) -> Sender | None:
    person = _object(_object(value).get("emailAddress"))
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    address = _text(person, "address").strip().lower()
    name = _text(person, "name").strip()
    return Sender(address or name, name) if address or name else None


def _people(value: object) -> list[Sender]:
    return [person for each in _list(value) if (person := _person(each))]


def _attachments(mail: Json) -> list[Json]:
    return [_object(each) for each in _list(mail.get("attachments"))]


def _header(mail: Json, name: str) -> str:
    for each in _list(mail.get("internetMessageHeaders")):
        header = _object(each)
        if _text(header, "name").lower() == name:
            return _text(header, "value").strip()
    return ""


def _line(text: str) -> str:
    return " ".join(text[: 4 * MOST_NAME].split())[:MOST_NAME]


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _text(item: Mapping[str, object], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()
