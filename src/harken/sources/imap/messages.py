"""A mail as a draft: who sent it and who vouches for that, what is new in it, and where an answer belongs. Pure.

The first part reads what the receiving server found out about the sender, the second takes away what a mail quotes of
the one before, the third makes the draft.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from types import MappingProxyType
from typing import Final

from harken.model import Draft, Sender, TextFormat
from harken.sources.answers import is_unattended
from harken.sources.imap.mime import MimePart, ParsedMail, heads, invitation_lines, take_apart, words
from harken.sources.imap.settings import ids_in, people_in

UNVERIFIED: Final = "unverified:"  # before an address that is not proven: no rule about the address matches it
MIN_MAILS: Final = 3  # with the same name, before it is proposed to believe it

_DMARC: Final = re.compile(r"dmarc\s*(?:/\s*\d+\s*)?=\s*([^\s;]*)")
_FROM: Final = re.compile(r"header\.from\s*=\s*([^\s;]+)")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")

FOLDED: Final = "[earlier messages folded]"
MAX_CHARS: Final = 400_000  # in more than that nothing is looked for

_ANSWER: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|vs|rif|res)(?:\s?\[\d{1,4}\])?\s?:", re.IGNORECASE)
_FORWARDED: Final = re.compile(r"\s*(?:fw|fwd|wg|tr|rv|vb|doorst|enc)\s?:", re.IGNORECASE)
# "On Monday, Ann wrote:", as mail programs of several languages write it; often broken over two or three lines.
_WROTE: Final = re.compile(
    r"(?:on|am|le|el|il|op|den|em|dnia)\b[^\n]{2,300}\b"
    r"(?:wrote|schrieb|a écrit|escribió|ha scritto|schreef|skrev|escreveu|napisał)\b[^\n]{0,120}:\s*",
    re.IGNORECASE,
)
_WROTE_BEGINS: Final = re.compile(r"(?:on|am|le|el|il|op|den|em|dnia)\b", re.IGNORECASE)
_WROTE_LINES: Final = 3
_SEPARATOR: Final = re.compile(
    r"-{2,20}\s?(?:original message|ursprüngliche nachricht|message d'origine|mensaje original)\s?-{2,20}\s*",
    re.IGNORECASE,
)
_HEAD: Final = re.compile(r"\*?(?:from|von|de|da|van|från|fra|od)\s?:", re.IGNORECASE)
_HEAD_SENT: Final = re.compile(
    r"^\*?(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt|wysłano)\s?:",
    re.IGNORECASE | re.MULTILINE,
)
_HEAD_SUBJECT: Final = re.compile(
    r"^\*?(?:subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat)\s?:", re.IGNORECASE | re.MULTILINE
)
_HEAD_LINES: Final = 8
_QUOTES: Final = re.compile(r"<(?P<end>/?)(?P<name>blockquote|div)\b(?P<attributes>[^<>]{0,2000})>", re.IGNORECASE)
_HOLDS_EARLIER: Final = re.compile(r"\b(?:gmail_quote|yahoo_quoted|protonmail_quote|moz-cite-prefix)\b", re.IGNORECASE)
_ANY_TAG: Final = re.compile(r"<[^<>]*>")
_WORD: Final = re.compile(r"\w")

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
MAX_ATTACHMENTS: Final = 20
MAX_RECIPIENTS: Final = 5  # of an answer; a mail can name hundreds
MAX_LINE: Final = 200
MAX_REFERENCES: Final = 900  # characters; ingest keeps little more of one fact

_PGP: Final = re.compile(r"^-----BEGIN PGP MESSAGE-----\s*$", re.MULTILINE)
_REPORTED: Final = ("Final-Recipient", "Action", "Status", "Diagnostic-Code", "Disposition")
_MAX_REPORTED: Final = 10
_RESULTS: Final = "authentication-results"
# What a mail says, besides its body: two that differ in these are two mails.
_MARKED: Final = ("subject", "reply-to", "content-type", "content-transfer-encoding")
_BULK: Final = frozenset({"bulk", "junk", "list", "auto_reply"})
_PRIORITIES: Final[Mapping[str, str]] = MappingProxyType(
    {"1": "high", "2": "high", "high": "high", "urgent": "high", "4": "low", "5": "low", "low": "low"}
)


def is_verified(results: Sequence[str], authserv_id: str, address: str) -> bool:
    """Whether the provider with that name says that a mail from this address passed its check."""
    if not authserv_id:
        return False  # a sender can write a header without a name
    for header in results:
        text = _plain(header)
        if not text:
            return False  # it cannot be read, and one below it may be the sender's own
        name, *findings = text.split(";")
        if name.split(" ")[0] == authserv_id.lower():
            return _is_pass([finding.strip() for finding in findings], address.rpartition("@")[2])
    return False


def names_only(header: str, address: str) -> bool:
    """Whether a header names this address, and no other however it is read: the provider may have read it otherwise."""
    text = _plain(header)
    return text.count("@") == 1 and address in text


def has_word_of(results: Sequence[str], authserv_id: str) -> bool:
    """Whether a server of that name has checked a mail, with any result."""
    return any(_plain(header).split(";")[0].split(" ")[0] == authserv_id.lower() for header in results)


def proposed(mails: Sequence[Sequence[str]]) -> str:
    """Return the name that checks senders in most of these mails, told the results in each; empty if none does."""
    names = Counter(name for results in mails if (name := _checker(results[0] if results else "")))
    # A few mails may carry what their senders wrote.
    found = [name for name, count in names.items() if count >= MIN_MAILS and 2 * count > len(mails)]
    return found[0] if found else ""


def _checker(header: str) -> str:
    """Return the name of who says something about the visible sender; empty if it has none that is plain."""
    name, *findings = _plain(header).split(";")
    name = name.split(" ")[0]
    is_checked = any(_DMARC.match(finding.strip()) for finding in findings)
    return name if is_checked and _NAME.fullmatch(name) else ""


def _is_pass(findings: Sequence[str], domain: str) -> bool:
    said = [(found[1], finding) for finding in findings if (found := _DMARC.match(finding))]
    # It is said once. If it is there twice, somebody got their own words into it, so all of them count.
    return bool(said) and all(verdict == "pass" and _is_about(finding, domain) for verdict, finding in said)


def _is_about(finding: str, domain: str) -> bool:
    # DMARC may be decided for the domain above the one in the address.
    domains = [each.rpartition("@")[2] for each in _FROM.findall(finding)]
    return bool(domains) and all(domain == each or domain.endswith(f".{each}") for each in domains)


def _plain(header: str) -> str:
    return " ".join(_bare(header).lower().split())


def _bare(header: str) -> str:
    """Return a header without comments and quoted texts, which may hold words of the sender; broken ones are empty."""
    kept: list[str] = []
    depth, is_quoted, is_escaped = 0, False, False
    for char in header:
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char == '"' and depth == 0:
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif char == "(":
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept) if depth == 0 and not is_quoted else ""


def is_answer(subject: str, *, has_original: bool) -> bool:
    """Whether a mail answers another, so that what it quotes was said before; a forwarded mail does not."""
    if _FORWARDED.match(subject):
        return False
    return has_original or _ANSWER.match(subject) is not None


def fold_plain(text: str) -> str:
    """Return an answer in plain text without the earlier mails in it, and a note where they were."""
    if len(text) > MAX_CHARS:
        return text
    lines = text.splitlines()
    kept: list[str] = []
    place = 0
    while place < len(lines):
        if _begins_rest(lines, place):
            kept.append(FOLDED)
            break
        quoted = _quotation(lines, place)
        if quoted:
            kept += [] if kept and kept[-1] == FOLDED else [FOLDED]
        else:
            kept.append(lines[place])
        place += quoted or 1
    if FOLDED not in kept or not any(_WORD.search(line) for line in kept if line != FOLDED):
        return text
    return "\n".join(kept)


def fold_html(html: str) -> str:
    """Return an answer in HTML without the outermost elements that hold earlier mails, and a note where they were."""
    if len(html) > MAX_CHARS:
        return html
    kept: list[str] = []
    begin, depth, inside = 0, 0, ""
    for tag in _QUOTES.finditer(html):
        name, is_end = tag["name"].lower(), bool(tag["end"])
        if inside:
            depth += (-1 if is_end else 1) if name == inside else 0
            if depth == 0:
                begin, inside = tag.end(), ""
        elif not is_end and (name == "blockquote" or _HOLDS_EARLIER.search(tag["attributes"])):
            kept += [html[begin : tag.start()], f"<p>{FOLDED}</p>"]
            depth, inside = 1, name
    # One that never ends is no element: what follows may be what the sender says.
    if inside or not kept:
        return html
    folded = "".join([*kept, html[begin:]])
    return folded if _WORD.search(_ANY_TAG.sub(" ", folded.replace(FOLDED, ""))) else html


def _quotation(lines: Sequence[str], place: int) -> int:
    """Return how many lines from here on quote an earlier mail, with the line that names its writer."""
    lead = _introduction(lines, place)
    end = place + lead
    while lead and end < len(lines) and not lines[end].strip():
        end += 1
    begin = end
    while end < len(lines) and lines[end].startswith(">"):
        end += 1
    return end - place if end > begin else 0


def _introduction(lines: Sequence[str], place: int) -> int:
    """Return how many lines the attribution of a quote takes."""
    if _WROTE_BEGINS.match(lines[place]) is None:
        return 0
    for count in range(1, _WROTE_LINES + 1):
        if _WROTE.fullmatch(" ".join(line.strip()[:300] for line in lines[place : place + count])[:500]):
            return count
    return 0


def _begins_rest(lines: Sequence[str], place: int) -> bool:
    """Whether everything from here on is an earlier mail, as Outlook puts it: a head of From, Sent, Subject."""
    line = lines[place][:300]
    if _HEAD.match(line):
        head = "\n".join(each[:300] for each in lines[place : place + _HEAD_LINES])
        return _HEAD_SENT.search(head) is not None and _HEAD_SUBJECT.search(head) is not None
    return _SEPARATOR.fullmatch(line) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedMail:
    """A mail as the server hands it over: its bytes, or only its head if it is too long."""

    raw: bytes
    received_at: datetime | None = None
    is_head_only: bool = False


def draft_of(
    arrival: ArrivedMail,
    *,
    source: str,
    folder: str,
    authserv_id: str = "",
    trusts_from: bool = False,
    addresses: Collection[str] = (),
) -> Draft:
    """Return a mail as a draft; a sender that the provider `authserv_id` does not vouch for is marked.

    With `trusts_from` the sender that a mail names is believed without proof. `addresses` are the account's own, in
    small letters: a sender who writes to one of them waits for an answer.
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


def upstream_id(mail: ParsedMail, raw: bytes, sender: Sender) -> str:
    """Return what tells a mail from all others: its own id, which any sender can write, with a mark of what it says."""
    own = own_id(mail)
    if not own:
        return f"{BY_BYTES}{hashlib.sha256(raw).hexdigest()[:40]}"
    digest = hashlib.sha256()
    said = [own, sender.id, *(mail.raw(name) for name in _MARKED)]
    # Also whether its sender is proven: a forged copy that came first must not hide the real one.
    for piece in (*(each.encode("utf-8", "surrogatepass") for each in said), _body(raw)):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return f"{BY_MAIL}{digest.hexdigest()[:MARK_CHARS]}:{own}"


def own_id(mail: ParsedMail) -> str:
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


def _author(mail: ParsedMail) -> tuple[Sender, bool]:
    """Return who a mail says that it is from, and whether it names only one."""
    froms = mail.every("from")
    people = [person for header in froms for person in people_in(header)]
    if not people:
        return Sender(NOBODY, _line(mail.header("from"))), False
    is_one = len(people) == 1 and len(froms) == 1 and names_only(froms[0], people[0].id)
    return Sender(people[0].id, _line(words(people[0].name))), is_one


def _said(mail: ParsedMail, sender: Sender, *, has_original: bool, is_too_long: bool) -> tuple[str, TextFormat]:
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


def _joined(said: Sequence[str], pieces: Sequence[MimePart], *, can_fold: bool) -> tuple[str, TextFormat]:
    folded = [_folded(piece, can_fold=can_fold) for piece in pieces]
    if not any(piece.is_html for piece in pieces):
        return "\n".join([*said, "", *folded]).strip("\n"), TextFormat.PLAIN
    lines = [f"<p>{escape(line)}</p>" for line in said]
    bodies = [
        text if piece.is_html else f"<p>{'<br>'.join(escape(text).splitlines())}</p>"
        for piece, text in zip(pieces, folded, strict=True)
    ]
    return "\n".join([*lines, *bodies]), TextFormat.HTML


def _folded(piece: MimePart, *, can_fold: bool) -> str:
    if not can_fold or piece.is_inner:
        return piece.text
    return fold_html(piece.text) if piece.is_html else fold_plain(piece.text)


def _attached(names: Sequence[str]) -> list[str]:
    lines = [f"[attachment: {_line(name)}]" for name in names[:MAX_ATTACHMENTS]]
    if len(names) > len(lines):
        lines.append(f"[and {len(names) - len(lines)} more attachments]")
    return lines


def _reported(mail: ParsedMail) -> list[str]:
    lines: list[str] = []
    for report in mail.reports[:_MAX_REPORTED]:
        said = [(name, _line(words(str(report.get(name, ""))))) for name in _REPORTED]
        lines += [f"{name}: {value}" for name, value in said if value]
    return ["[report about an earlier mail]", *lines] if lines else []


def _answers_go_to(mail: ParsedMail, sender: Sender) -> list[str]:
    """Return the addresses that answers go to, if not only to the sender: you must see that before one is sent."""
    named = list(dict.fromkeys(person.id for person in people_in(mail.raw("reply-to"))))
    return [] if named == [sender.id.removeprefix(UNVERIFIED)] else named[:MAX_RECIPIENTS]


def _is_automatic(mail: ParsedMail) -> bool:
    """Whether a machine sent it: an answer to it would reach no person."""
    said = mail.raw("auto-submitted").strip().lower()
    return (
        (bool(said) and not said.startswith("no"))
        or mail.kind == "multipart/report"
        or mail.raw("return-path").strip() == "<>"
        or mail.raw("precedence").strip().lower() in _BULK
        or bool(mail.raw("x-auto-response-suppress") and mail.raw("x-autoreply"))
        or bool(mail.raw("list-id"))
    )


def _expects_answer(mail: ParsedMail, author: Sender, addresses: Collection[str]) -> bool:
    """Whether a person, and no machine, writes to this account; a copy and an invitation ask nothing."""
    if author.id == NOBODY or author.id in addresses or is_unattended(author.id):
        return False
    if _is_automatic(mail) or mail.raw("list-unsubscribe") or mail.calendars:
        return False
    return any(person.id in addresses for person in people_in(mail.raw("to")))


def _meta(mail: ParsedMail, author: Sender, folder: str) -> dict[str, str]:
    by = next(iter(people_in(mail.raw("sender"))), author)
    said = {
        "subject": _line(mail.header("subject")),
        "folder": folder,
        "attachments": ", ".join(_line(name) for name in mail.names[:MAX_ATTACHMENTS]),
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


def _references(mail: ParsedMail) -> str:
    """Return the ids of the conversation before this mail, the newest that there is room for, oldest first."""
    kept: list[str] = []
    for each in reversed(ids_in(mail.raw("references")) or ids_in(mail.raw("in-reply-to"))):
        if sum(len(one) + 1 for one in kept) + len(each) > MAX_REFERENCES:
            break
        kept.append(each)
    return " ".join(reversed(kept))


def _addresses(mail: ParsedMail, name: str) -> str:
    return ", ".join(person.id for person in people_in(mail.raw(name))[:MAX_ATTACHMENTS])


def _line(text: str) -> str:
    return " ".join(text[: 4 * MAX_LINE].split())[:MAX_LINE]
