"""A mail of Outlook as a draft: who sent it and with which proof, what it says, and which answer of ours it is. Pure.

Whatever Graph tells, the result is a value or nothing. The proof of a sender is what the receiving server found out;
the marker is the last line of our answers, by which one that comes back is known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from harken.model import MAX_RAW_CHARS, Draft, Sender, TextFormat
from harken.sources.microsoft.responses import Json, MissingScope
from harken.sources.microsoft.sent import ends_with_reference, reference, words
from harken.sources.outlook.checkpoint import OutlookRow
from harken.sources.outlook.quote_stripping import (
    FOLDED,
    above_quotes_html,
    above_quotes_plain,
    fold_html,
    fold_plain,
    is_answer,
)
from harken.sources.unattended import is_unattended

LANE: Final = "mailbox"
SENT: Final = "/me/mailFolders/sentitems/messages"
UNVERIFIED: Final = "unverified:"  # before an address that is not proven: no rule about the address matches it
MOST_CHARS: Final = 8_000

_AUTH_AS: Final = "x-ms-exchange-organization-authas"
_RESULTS: Final = "authentication-results"
_COMMENT: Final = re.compile(r"\([^()]*\)")
_FINDING: Final = re.compile(r"(compauth|dmarc)\s*=\s*([a-z]+)\b")
_ABOUT: Final = re.compile(r"\bheader\.from\s*=\s*([^\s;]+)")


def is_proven(headers: Sequence[tuple[str, str]], address: str) -> bool:
    """Whether the organisation that received a mail vouches for this address; `headers` are the topmost first."""
    marks = [value.strip().lower() for name, value in headers if name.strip().lower() == _AUTH_AS]
    if marks and set(marks) == {"internal"}:
        return True
    results = next((value for name, value in headers if name.strip().lower() == _RESULTS), "")
    return _is_pass(results, address.rpartition("@")[2])


def _is_pass(results: str, domain: str) -> bool:
    # Comments hold words of the sender.
    bare = _COMMENT.sub(" ", results[:MOST_CHARS].lower())
    if not domain or len(results) > MOST_CHARS or any(sign in bare for sign in '()"\\'):
        return False
    findings = [found for piece in bare.split(";") if (found := _FINDING.match(piece.strip()))]
    # Each is said once. If one is there twice, somebody got their own words into it, so all of them count.
    verdicts = {name: {found[2] for found in findings if found[1] == name} for name in ("compauth", "dmarc")}
    if any(not _is_of(said, domain) for said in _ABOUT.findall(bare)):
        return False
    composite = verdicts["compauth"] - {"none"}
    return (composite or verdicts["dmarc"]) == {"pass"}


def _is_of(said: str, domain: str) -> bool:
    about = said.rpartition("@")[2]
    # The verdict may be about the domain above the one in the address.
    return domain == about or domain.endswith(f".{about}")


CLOSED: Final = "closed:"  # how the id of an answer begins that has left and was not seen since


def closing_text(key: str, *, is_own_account: bool, is_by_owner: bool) -> str:
    """Return the line below an answer; an agent that has no account of its own speaks for a person."""
    if is_by_owner:
        return reference(key)
    for_whom = "" if is_own_account else " on my behalf"
    return f"Written by an AI agent{for_whom}. {reference(key)}"


def closing_id(key: str) -> str:
    """Return the id of an answer by what it ends with."""
    return f"{CLOSED}{words(reference(key))}"


def closing_id_of(mail: Json) -> str:
    """Return the id of an answer of ours that a mail ends like; empty if it does not.

    Only what stands above all quotes counts: whoever answers or forwards our answer wrote something else there.
    """
    body = body_of(mail)
    own = above_quotes_html(body) if is_html(mail) else above_quotes_plain(body)
    said = own.replace(FOLDED, "")
    if not is_answer(subject_of(mail), has_original=True) or not ends_with_reference(said):
        return ""
    return f"{CLOSED}{words(said)[-len(words(reference(''))) :]}"


def is_answer_of(key: str, markup: str) -> bool:
    """Whether a mail is, or quotes, the answer with this key."""
    return words(reference(key)) in words(markup)


CHANNEL: Final = "email"
BY_GRAPH: Final = "graph:"  # how the upstream id of a mail begins that has none of its own
BY_MAIL: Final = "mail:"  # how all others begin: then a mark of what it says, and its own id
MARK_CHARS: Final = 32
MOST_ID: Final = 900  # characters of a mail's own id in its upstream id; ingest keeps little more
SERVICE_ID: Final = "graph_id"  # in `meta`: what the service calls the mail
UNPROVEN: Final = "[it is not proven that this mail is from {}]"
ENCRYPTED: Final = "[encrypted mail: it is not shown here, open it in Outlook]"
UNREADABLE: Final = "[this mail cannot be read here, open it in Outlook; it begins:]"
NOBODY: Final = "unknown"
UNREAD: Final = "[a mail came that cannot be read here: open it in Outlook]"
MOST_TEXT: Final = MAX_RAW_CHARS
MOST_ATTACHMENTS: Final = 20
MOST_NAME: Final = 200
MOST_ANSWERED: Final = 5  # addresses that are told; a mail can name hundreds

OUTSIDE: Final = (
    *("id", "internetMessageId", "subject", "from", "sender", "replyTo", "toRecipients", "ccRecipients"),
    *("receivedDateTime", "conversationId", "isDraft", "hasAttachments", "importance", "bodyPreview"),
    "internetMessageHeaders",  # told only where a mail is asked for by itself, and by this name
)
WHOLE: Final = (*OUTSIDE, "body")

_ENCRYPTED_TYPES: Final = (
    "application/pkcs7-mime",
    "application/x-pkcs7-mime",
    "application/x-microsoft-rpmsg-message",
)
_ENCRYPTED_FILES: Final = ("smime.p7m", "message.rpmsg", "message_v2.rpmsg", "message_v3.rpmsg", "message_v4.rpmsg")
_BULK: Final = frozenset({"bulk", "junk", "list", "auto_reply"})
_MACHINES: Final = ("list-id", "list-unsubscribe", "x-autoreply")
_SIGNED: Final = "signed-data"  # such a mail is only signed, and can be read
_MEETING: Final[Mapping[str, str]] = {
    "meetingRequest": "Meeting invitation",
    "meetingCancelled": "Meeting cancelled",
    "meetingAccepted": "Meeting accepted",
    "meetingTenativelyAccepted": "Meeting tentatively accepted",  # spelt so in the service
    "meetingTentativelyAccepted": "Meeting tentatively accepted",
    "meetingDeclined": "Meeting declined",
}


def row_of(item: object) -> OutlookRow | None:
    """Return an entry of a list of changes as a mail that came, or None: something was taken away, or is no mail."""
    entry = _object(item)
    identifier = _text(entry, "id")
    if not identifier or "@removed" in entry:
        return None
    return OutlookRow(identifier, _moment(_text(entry, "receivedDateTime")))


def unread(row: OutlookRow) -> Json:
    """Return what is known of a mail that cannot be read at all: that it came, and when."""
    return {
        "id": row.id,
        "bodyPreview": "",
        "receivedDateTime": row.received_at.isoformat() if row.received_at else "",
    }


def is_invitation(mail: Json) -> bool:
    """Whether a mail is about a meeting: the service says more about those when it is asked once more."""
    return "eventMessage" in _text(mail, "@odata.type") or bool(_text(mail, "meetingMessageType"))


def draft_of(
    mail: Json, *, source: str, folder: str, addresses: Collection[str] = (), trusts_from: bool = False
) -> Draft | None:
    """Return a mail as a draft, or None if it is unfinished; raises `MissingScope` if we may not read what it says.

    `addresses` are the account's own, in lower case: whoever writes to one of them, alone or among others, waits for
    an answer. Copies do not.
    With `trusts_from` the sender that a mail names is believed without proof.
    """
    if mail.get("isDraft") is True:
        return None
    if "body" not in mail and "bodyPreview" not in mail:
        raise MissingScope(("Mail.Read",))
    author = _author(mail)
    sender = sender_of(mail, trusts_from=trusts_from)
    text, text_format = _said(mail, sender)
    conversation = _text(mail, "conversationId")
    return Draft(
        source=source,
        sender=sender,
        text=text,
        upstream_id=upstream_id(mail, sender),
        channel=CHANNEL,
        conversation=conversation,
        thread=conversation,
        format=text_format,
        sent_at=_moment(_text(mail, "receivedDateTime")),
        meta=_meta(mail, author, folder),
        is_question=_expects_answer(mail, author, addresses),
        left_out=0 if is_encrypted(mail) else max(0, len(body_of(mail)) - MOST_TEXT),
    )


def _expects_answer(mail: Json, author: Sender, addresses: Collection[str]) -> bool:
    """Whether somebody else, and no machine, writes to one of these addresses."""
    if author.id in addresses or author.id == NOBODY or is_unattended(author.id) or is_invitation(mail):
        return False
    return not _is_automatic(mail) and any(person.id in addresses for person in _people(mail.get("toRecipients")))


def _is_automatic(mail: Json) -> bool:
    """Whether a machine sent it: an answer to it would reach nobody, or another machine."""
    said = _header(mail, "auto-submitted").lower()
    return (
        (bool(said) and not said.startswith("no"))
        or _header(mail, "precedence").lower() in _BULK
        or any(_header(mail, name) for name in _MACHINES)
        or _header(mail, "return-path") == "<>"
    )


def sender_of(mail: Json, *, trusts_from: bool) -> Sender:
    """Return who wrote a mail as rules may know them: one whom nobody vouches for goes by another id."""
    author = _author(mail)
    if trusts_from or author.id == NOBODY:
        return author
    headers = [(_text(each, "name"), _text(each, "value")) for each in _headers(mail)]
    return author if is_proven(headers, author.id) else Sender(f"{UNVERIFIED}{author.id}", author.name)


def upstream_id(mail: Json, sender: Sender) -> str:
    """Return what tells a mail from all others: its own id, which anybody can write, with a mark of what it says."""
    own = own_id(mail)
    if not own:
        return f"{BY_GRAPH}{_text(mail, 'id')}"
    digest = hashlib.sha256()
    # Also whether its sender is proven: a forged copy that came first must not hide the real one.
    for piece in (own, sender.id, _text(mail, "subject"), body_of(mail) or _text(mail, "bodyPreview")):
        encoded = piece.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return f"{BY_MAIL}{digest.hexdigest()[:MARK_CHARS]}:{own[:MOST_ID]}"


def own_id(mail: Json) -> str:
    """Return the id that a mail came with; empty if it came without one."""
    return _text(mail, "internetMessageId").strip()


def own_id_in(upstream: str) -> str:
    """Return a mail's own id, told its upstream id; earlier versions had nothing else in that. Empty: it has none."""
    if upstream.startswith(BY_GRAPH):
        return ""
    return upstream[len(BY_MAIL) + MARK_CHARS + 1 :] if upstream.startswith(BY_MAIL) else upstream


def body_of(mail: Json) -> str:
    """Return what a mail says, as it came."""
    return _text(_object(mail.get("body")), "content")


def subject_of(mail: Json) -> str:
    """Return what a mail is about, on one line."""
    return _line(_text(mail, "subject"))


def is_html(mail: Json) -> bool:
    """Whether a mail is written in markup."""
    return _text(_object(mail.get("body")), "contentType").lower() == "html"


def address_of(mail: Json) -> str:
    """Return the address that a mail is from, as it says; `unknown` if it says none."""
    return _author(mail).id


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


def _author(mail: Json) -> Sender:
    return _person(mail.get("from")) or _person(mail.get("sender")) or Sender(NOBODY)


def _said(mail: Json, sender: Sender) -> tuple[str, TextFormat]:
    subject = subject_of(mail)
    said = [f"Subject: {subject}"] if subject else []
    if sender.id.startswith(UNVERIFIED):
        said.append(UNPROVEN.format(_line(sender.id.removeprefix(UNVERIFIED))))
    # An answer goes where the mail says: whoever lets it go must see that this is somebody else.
    if elsewhere := _answered_at(mail):
        said.append(f"[answers go to: {', '.join(elsewhere)}]")
    if is_encrypted(mail):
        return "\n".join([*said, ENCRYPTED]), TextFormat.PLAIN
    # All of this stands before the body: behind it, an unclosed tag or the limit of a message could make it vanish.
    said += [*_meeting(mail), *_attached(mail)]
    if "body" not in mail:
        begins = _text(mail, "bodyPreview")
        return "\n".join([*said, *([UNREADABLE, begins] if begins else [UNREAD])]), TextFormat.PLAIN
    body = written = body_of(mail)[:MOST_TEXT]
    if is_answer(subject, has_original=bool(_header(mail, "in-reply-to"))):
        body = fold_html(written) if is_html(mail) else fold_plain(written)
    # Said here too: the note in its place may stand where nobody sees it.
    said += [FOLDED] if body != written else []
    if not is_html(mail):
        return "\n".join([*said, "", body]), TextFormat.PLAIN
    lines = [f"<p>{escape(line)}</p>" for line in said]
    return "\n".join([*lines, body]), TextFormat.HTML


def _answered_at(mail: Json) -> list[str]:
    """Return where answers go, if that is not only to who wrote."""
    named = list(dict.fromkeys(_line(person.id) for person in _people(mail.get("replyTo"))))
    if not named or named == [_line(_author(mail).id)]:
        return []
    more = [f"and {len(named) - MOST_ANSWERED} more"] if len(named) > MOST_ANSWERED else []
    return [*named[:MOST_ANSWERED], *more]


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


def _meta(mail: Json, author: Sender, folder: str) -> dict[str, str]:
    names = ", ".join(_line(_text(each, "name")) for each in _attachments(mail)[:MOST_ATTACHMENTS])
    by = _person(mail.get("sender"))
    said = {
        "subject": _line(_text(mail, "subject")),
        "folder": folder,
        "attachments": names,
        "to": ", ".join(person.id for person in _people(mail.get("toRecipients"))[:MOST_ATTACHMENTS]),
        "copies": ", ".join(person.id for person in _people(mail.get("ccRecipients"))[:MOST_ATTACHMENTS]),
        "answers_go_to": ", ".join(_answered_at(mail)),
        "sent_by": by.id if by and by.id != author.id else "",
        SERVICE_ID: _text(mail, "id"),
        "automatic": "yes" if _is_automatic(mail) else "",
        "importance": _text(mail, "importance") if _text(mail, "importance") != "normal" else "",
    }
    return {name: value for name, value in said.items() if value}


def _person(value: object) -> Sender | None:
    person = _object(_object(value).get("emailAddress"))
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    address = _text(person, "address").strip().lower()
    name = _text(person, "name").strip()
    # Never by a name instead: everybody chooses their own, and it may look like the address of somebody who is trusted.
    return Sender(address or NOBODY, name) if address or name else None


def _people(value: object) -> list[Sender]:
    return [person for each in _list(value) if (person := _person(each))]


def _attachments(mail: Json) -> list[Json]:
    return [_object(each) for each in _list(mail.get("attachments"))]


def _headers(mail: Json) -> list[Json]:
    return [_object(each) for each in _list(mail.get("internetMessageHeaders"))]


def _header(mail: Json, name: str) -> str:
    for header in _headers(mail):
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


def quoted(text: str) -> str:
    """Return a text as Graph's filters write one."""
    return "'" + text.replace("'", "''") + "'"
