"""A mail as a draft. Pure: bytes in, a draft out; it trusts no word of it and raises nothing.

It says what markup cannot: the subject, an invitation, names of attachments, that a mail is signed, encrypted or sent
by a machine, that answers go elsewhere, that nobody vouches for its sender. Cleaning markup and text is the business of
ingest. Its upstream id is made of its own id and of what it says: so a mail is the same in every folder and after a
folder was numbered anew, and nobody hides another's mail by guessing its id. Above is `source.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from types import MappingProxyType
from typing import Final

from harken.model import Draft, Sender, TextFormat
from harken.sources.mail.addresses import ids_in, people_in
from harken.sources.mail.calendars import invitation_lines
from harken.sources.mail.charsets import words
from harken.sources.mail.folding import fold_html, fold_plain, is_answer
from harken.sources.mail.mime import Mail, Piece, heads, take_apart
from harken.sources.mail.verifying import UNVERIFIED, is_verified, names_only
from harken.sources.unattended import is_unattended

CHANNEL: Final = "email"
NOBODY: Final = "unknown"
BY_BYTES: Final = "hash:"  # how the upstream id of a mail begins that has none of its own
BY_MAIL: Final = "mail:"  # how all others begin: then a mark of what it says, and its own id
MARK_CHARS: Final = 32
UNPROVEN: Final = "[it is not proven that this mail is from {}]"
ENCRYPTED: Final = "[encrypted mail: it is not shown here, open it in your mail program]"
UNREADABLE: Final = "[this mail cannot be taken apart: open it in your mail program]"
TOO_LONG: Final = "[this mail is longer than is read here: open it in your mail program]"
BY_MACHINE: Final = "[sent by a machine]"
MOST_ATTACHMENTS: Final = 20
MOST_RECIPIENTS: Final = 5  # of an answer; a mail can name hundreds
MOST_LINE: Final = 200
MOST_REFERENCES: Final = 900  # characters; ingest keeps little more of one fact

_PGP: Final = re.compile(r"^-----BEGIN PGP MESSAGE-----\s*$", re.MULTILINE)
_REPORTED: Final = ("Final-Recipient", "Action", "Status", "Diagnostic-Code", "Disposition")
_MOST_REPORTED: Final = 10
_RESULTS: Final = "authentication-results"
# What a mail says, besides its body: two that differ in these are two mails.
_MARKED: Final = ("subject", "reply-to", "content-type", "content-transfer-encoding")
_BULK: Final = frozenset({"bulk", "junk", "list", "auto_reply"})
_PRIORITIES: Final[Mapping[str, str]] = MappingProxyType(
    {"1": "high", "2": "high", "high": "high", "urgent": "high", "4": "low", "5": "low", "low": "low"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A mail as the server hands it over: its bytes, or only its head if it is too long."""

    raw: bytes
    received_at: datetime | None = None
    is_head_only: bool = False


def draft_of(
    arrival: Arrival,
    *,
    source: str,
    folder: str,
    authserv_id: str = "",
    trusts_from: bool = False,
    addresses: Collection[str] = (),
) -> Draft:
    """Return a mail as a draft; a sender for whom the provider `authserv_id` does not vouch is marked.

    With `trusts_from` the sender that a mail names is believed without proof. `addresses` are the account's own, in
    small letters: whoever writes to one of them waits for an answer.
    """
    mail = heads(arrival.raw) if arrival.is_head_only else take_apart(arrival.raw)
    author, is_one = _author(mail)
    is_proven = trusts_from or (is_one and is_verified(mail.every(_RESULTS), authserv_id, author.id))
    # Not by its address: no rule about that may match somebody who only wrote it.
    sender = author if is_proven or author.id == NOBODY else Sender(f"{UNVERIFIED}{author.id}", author.name)
    identifier = upstream_id(mail, arrival.raw, sender)
    originals = ids_in(mail.raw("references")) or ids_in(mail.raw("in-reply-to"))
    conversation = originals[0] if originals else own_id(mail) or identifier
    text, text_format = _said(mail, sender, has_original=bool(originals), is_too_long=arrival.is_head_only)
    return Draft(
        source=source,
        sender=sender,
        text=text,
        upstream_id=identifier,
        channel=CHANNEL,
        conversation=conversation,
        thread=conversation,
        format=text_format,
        sent_at=arrival.received_at,
        meta=_meta(mail, author, folder),
        is_question=_expects_answer(mail, author, addresses),
        left_out=mail.left_out,
    )


def upstream_id(mail: Mail, raw: bytes, sender: Sender) -> str:
    """Return what tells a mail from all others: its own id, which anybody can write, with a mark of what it says."""
    own = own_id(mail)
    if not own:
        return f"{BY_BYTES}{hashlib.sha256(raw).hexdigest()[:40]}"
    digest = hashlib.sha256()
    said = [own, sender.id, *(mail.raw(name) for name in _MARKED)]
    # Also whether its sender is proven: a forged copy that came first must not hide the real one.
    for piece in (*(each.encode("utf-8", "surrogatepass") for each in said), _body(raw)):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return f"{BY_MAIL}{digest.hexdigest()[:MARK_CHARS]}:{own}"


def own_id(mail: Mail) -> str:
    """Return the id that a mail came with; empty if it came without one that can be used."""
    return next(iter(ids_in(mail.raw("message-id"))), "")


def own_id_in(upstream: str) -> str:
    """Return the id that a mail came with, told its upstream id; empty if it came without one."""
    return upstream[len(BY_MAIL) + MARK_CHARS + 1 :] if upstream.startswith(BY_MAIL) else ""


def own_id_of(raw: bytes) -> str:
    """Return the id that a mail came with, told only its head."""
    return own_id(heads(raw))


def checks_of(raw: bytes) -> list[str]:
    """Return what was found about the sender of a mail, told only its head, the topmost first."""
    return heads(raw).every(_RESULTS)


def _body(raw: bytes) -> bytes:
    ends = [place for blank in (b"\r\n\r\n", b"\n\n") if (place := raw.find(blank)) >= 0]
    return raw[min(ends) :].strip() if ends else b""


def _author(mail: Mail) -> tuple[Sender, bool]:
    """Return who a mail says that it is from, and whether it names only one."""
    froms = mail.every("from")
    people = [person for header in froms for person in people_in(header)]
    if not people:
        return Sender(NOBODY, _line(mail.header("from"))), False
    is_one = len(people) == 1 and len(froms) == 1 and names_only(froms[0], people[0].id)
    return Sender(people[0].id, _line(words(people[0].name))), is_one


def _said(mail: Mail, sender: Sender, *, has_original: bool, is_too_long: bool) -> tuple[str, TextFormat]:
    subject = _line(mail.header("subject"))
    # All of this stands before the body: behind it, an unclosed tag or the limit of a message could make it vanish.
    said = [f"Subject: {subject}"] if subject else []
    if sender.id.startswith(UNVERIFIED):
        said.append(UNPROVEN.format(_line(sender.id.removeprefix(UNVERIFIED))))
    if elsewhere := _answers_go_to(mail, sender):
        said.append(f"[answers go to: {', '.join(elsewhere)}]")
    if _is_automatic(mail):
        named = _line(mail.header("list-id"))
        said.append(f"[mailing list: {named}]" if named else BY_MACHINE)
    if mail.signed_with:
        said.append(f"[signed with {mail.signed_with}; the signature is not checked here]")
    if mail.is_encrypted or any(_PGP.search(piece.text) for piece in mail.pieces):
        return "\n".join([*said, ENCRYPTED]), TextFormat.PLAIN
    if not mail.is_whole:
        return "\n".join([*said, TOO_LONG if is_too_long else UNREADABLE]), TextFormat.PLAIN
    for calendar in mail.calendars[:1]:
        said += invitation_lines(calendar)
    said += [*_attached(mail.names), *_reported(mail)]
    return _joined(said, mail.pieces, can_fold=is_answer(subject, has_original=has_original))


def _joined(said: Sequence[str], pieces: Sequence[Piece], *, can_fold: bool) -> tuple[str, TextFormat]:
    folded = [_folded(piece, can_fold=can_fold) for piece in pieces]
    if not any(piece.is_html for piece in pieces):
        return "\n".join([*said, "", *folded]).strip("\n"), TextFormat.PLAIN
    lines = [f"<p>{escape(line)}</p>" for line in said]
    bodies = [
        text if piece.is_html else f"<p>{'<br>'.join(escape(text).splitlines())}</p>"
        for piece, text in zip(pieces, folded, strict=True)
    ]
    return "\n".join([*lines, *bodies]), TextFormat.HTML


def _folded(piece: Piece, *, can_fold: bool) -> str:
    if not can_fold or piece.is_inner:
        return piece.text
    return fold_html(piece.text) if piece.is_html else fold_plain(piece.text)


def _attached(names: Sequence[str]) -> list[str]:
    lines = [f"[attachment: {_line(name)}]" for name in names[:MOST_ATTACHMENTS]]
    if len(names) > len(lines):
        lines.append(f"[and {len(names) - len(lines)} more attachments]")
    return lines


def _reported(mail: Mail) -> list[str]:
    lines: list[str] = []
    for report in mail.reports[:_MOST_REPORTED]:
        said = [(name, _line(words(str(report.get(name, ""))))) for name in _REPORTED]
        lines += [f"{name}: {value}" for name, value in said if value]
    return ["[report about an earlier mail]", *lines] if lines else []


def _answers_go_to(mail: Mail, sender: Sender) -> list[str]:
    """Return to whom answers go, if that is not only who wrote: whoever lets one go must see it."""
    named = list(dict.fromkeys(person.id for person in people_in(mail.raw("reply-to"))))
    return [] if named == [sender.id.removeprefix(UNVERIFIED)] else named[:MOST_RECIPIENTS]


def _is_automatic(mail: Mail) -> bool:
    """Whether a machine sent it: an answer to it would reach nobody, or another machine."""
    said = mail.raw("auto-submitted").strip().lower()
    return (
        (bool(said) and not said.startswith("no"))
        or mail.kind == "multipart/report"
        or mail.raw("return-path").strip() == "<>"
        or mail.raw("precedence").strip().lower() in _BULK
        or bool(mail.raw("x-auto-response-suppress") and mail.raw("x-autoreply"))
        or bool(mail.raw("list-id"))
    )


def _expects_answer(mail: Mail, author: Sender, addresses: Collection[str]) -> bool:
    """Whether somebody, and no machine, writes to this account; a copy and an invitation ask nothing."""
    if author.id == NOBODY or author.id in addresses or is_unattended(author.id):
        return False
    if _is_automatic(mail) or mail.raw("list-unsubscribe") or mail.calendars:
        return False
    return any(person.id in addresses for person in people_in(mail.raw("to")))


def _meta(mail: Mail, author: Sender, folder: str) -> dict[str, str]:
    by = next(iter(people_in(mail.raw("sender"))), author)
    said = {
        "subject": _line(mail.header("subject")),
        "folder": folder,
        "attachments": ", ".join(_line(name) for name in mail.names[:MOST_ATTACHMENTS]),
        "to": _addresses(mail, "to"),
        "copies": _addresses(mail, "cc"),
        "answers_go_to": ", ".join(_answers_go_to(mail, author)),
        "sent_by": by.id if by.id != author.id else "",
        "references": _references(mail),
        "list": _line(mail.header("list-id")),
        "report": _line(mail.param("report-type")) if mail.kind == "multipart/report" else "",
        "automatic": "yes" if _is_automatic(mail) else "",
        "importance": _PRIORITIES.get((mail.raw("importance") or mail.raw("x-priority")).strip().lower()[:6], ""),
    }
    return {name: value for name, value in said.items() if value}


def _references(mail: Mail) -> str:
    """Return the ids of the conversation before this mail, the newest that there is room for, oldest first."""
    kept: list[str] = []
    for each in reversed(ids_in(mail.raw("references")) or ids_in(mail.raw("in-reply-to"))):
        if sum(len(one) + 1 for one in kept) + len(each) > MOST_REFERENCES:
            break
        kept.append(each)
    return " ".join(reversed(kept))


def _addresses(mail: Mail, name: str) -> str:
    return ", ".join(person.id for person in people_in(mail.raw(name))[:MOST_ATTACHMENTS])


def _line(text: str) -> str:
    return " ".join(text[: 4 * MOST_LINE].split())[:MOST_LINE]
