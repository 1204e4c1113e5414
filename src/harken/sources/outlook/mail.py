"""A mail of Outlook as a draft: who sent it and with which proof, what it says, and which answer of ours it is. Pure.

For any answer of Graph the result is a value or nothing. The proof of a sender is what the receiving server found out;
the marker is the last line of our answers, by which one that comes back is known. What an answer quotes of the mail
before it is folded: it was heard when it came.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from harken.model import MAX_RAW_CHARS, Draft, Sender, TextFormat
from harken.sources.answers import is_unattended
from harken.sources.microsoft.responses import MissingScope
from harken.sources.microsoft.sent import ends_with_reference, reference, words
from harken.sources.payload import Json, iso_moment, items, text_of, within

LANE: Final = "mailbox"
SENT: Final = "/me/mailFolders/sentitems/messages"
UNVERIFIED: Final = "unverified:"  # before an address that is not proven: no rule about the address matches it
MAX_RESULT_CHARS: Final = 8_000

_AUTH_AS: Final = "x-ms-exchange-organization-authas"
_RESULTS: Final = "authentication-results"
_COMMENT: Final = re.compile(r"\([^()]*\)")
_FINDING: Final = re.compile(r"(compauth|dmarc)\s*=\s*([a-z]+)\b")
_ABOUT: Final = re.compile(r"\bheader\.from\s*=\s*([^\s;]+)")

CLOSED: Final = "closed:"  # how the id of an answer begins that has left and was not seen since

CHANNEL: Final = "email"
BY_GRAPH: Final = "graph:"  # how the upstream id of a mail begins that has none of its own
BY_MAIL: Final = "mail:"  # how all others begin: then a mark of what it says, and its own id
MARK_CHARS: Final = 32
MAX_ID: Final = 900  # characters of a mail's own id in its upstream id; ingest keeps little more
SERVICE_ID: Final = "graph_id"  # in `meta`: what the service calls the mail
UNPROVEN: Final = "[it is not proven that this mail is from {}]"
ENCRYPTED: Final = "[encrypted mail: it is not shown here, open it in Outlook]"
UNREADABLE: Final = "[this mail cannot be read here, open it in Outlook; it begins:]"
NOBODY: Final = "unknown"
UNREAD: Final = "[a mail came that cannot be read here: open it in Outlook]"
MAX_TEXT: Final = MAX_RAW_CHARS
MAX_ATTACHMENTS: Final = 20
MAX_NAME: Final = 200
MAX_ANSWERED: Final = 5  # addresses that are told; a mail can name hundreds

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

FOLDED: Final = "[earlier messages folded]"
MAX_CHARS: Final = 400_000  # of markup; in more than that nothing is looked for
KEPT_LEVELS: Final = 1
MAX_DEPTH: Final = 500  # of elements in each other; no mail program writes as many
MAX_STEPS: Final = 10_000_000  # of the parser, which may go through all that is open at each tag

_ANSWER: Final = re.compile(r"\s*(?:re|aw|sv|antw|odp|vs|rif|res)(?:\s?\[\d{1,4}\])?\s?:", re.IGNORECASE)
_FORWARDED: Final = re.compile(r"\s*(?:fw|fwd|wg|tr|rv|vb|doorst|enc)\s?:", re.IGNORECASE)
# Unclosed formatting is opened again in every later paragraph, without end; ingest writes it so too.
_FORMATTING: Final = re.compile(
    r"<(/?)(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
_CITED: Final = re.compile(r"\b(?:gmail_quote|protonmail_quote|yahoo_quoted|cite)\b", re.IGNORECASE)
_SEPARATORS: Final = frozenset({"appendonsend", "divrplyfwdmsg"})
_EMPTY: Final = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "param", "wbr"})
_UNSEEN: Final = frozenset({"head", "script", "style", "template", "textarea", "title"})
_FROM: Final = re.compile(r"\s*\*?(?:from|von|de|da|van|från|fra|od)\s?:", re.IGNORECASE)
_SENT: Final = re.compile(
    r"\b(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt|wysłano)\s?:", re.IGNORECASE
)
_SUBJECT: Final = re.compile(r"\b(?:subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|temat)\s?:", re.IGNORECASE)
_PLAIN_SEPARATOR: Final = re.compile(
    r"-{2,20}\s?(?:original message|ursprüngliche nachricht|message d'origine)\s?-{2,20}\s*", re.IGNORECASE
)
_TAG: Final = re.compile(r"<(/?)([a-z][^\s/>]{0,20})", re.IGNORECASE)
_WORD: Final = re.compile(r"\w")
_MAX_HEADS: Final = 50  # lines that may begin the head of a mail
_HEAD_PIECES: Final = 40
_HEAD_CHARS: Final = 300
_HEAD_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class OutlookRow:
    """One entry in a list of changes: a mail that came, and when."""

    id: str
    received_at: datetime | None


def is_proven(headers: Sequence[tuple[str, str]], address: str) -> bool:
    """Whether the organisation that received a mail vouches for this address; `headers` are the topmost first."""
    marks = [value.strip().lower() for name, value in headers if name.strip().lower() == _AUTH_AS]
    if marks and set(marks) == {"internal"}:
        return True
    results = next((value for name, value in headers if name.strip().lower() == _RESULTS), "")
    return _is_pass(results, address.rpartition("@")[2])


def _is_pass(results: str, domain: str) -> bool:
    # Comments hold words of the sender.
    bare = _COMMENT.sub(" ", results[:MAX_RESULT_CHARS].lower())
    if not domain or len(results) > MAX_RESULT_CHARS or any(sign in bare for sign in '()"\\'):
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

    Only what stands above all quotes counts: one who answers or forwards our answer wrote something else there.
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


def row_of(item: object) -> OutlookRow | None:
    """Return an entry of a list of changes as a mail that came, or None: something was taken away, or is no mail."""
    entry = item if isinstance(item, dict) else {}
    identifier = text_of(entry, "id")
    if not identifier or "@removed" in entry:
        return None
    return OutlookRow(identifier, iso_moment(text_of(entry, "receivedDateTime")))


def unread(row: OutlookRow) -> Json:
    """Return what is known of a mail that cannot be read at all: that it came, and when."""
    return {
        "id": row.id,
        "bodyPreview": "",
        "receivedDateTime": row.received_at.isoformat() if row.received_at else "",
    }


def is_invitation(mail: Json) -> bool:
    """Whether a mail is about a meeting: the service says more about those when it is asked once more."""
    return "eventMessage" in text_of(mail, "@odata.type") or bool(text_of(mail, "meetingMessageType"))


def draft_of(
    mail: Json, *, source: str, folder: str, addresses: Collection[str] = (), trusts_from: bool = False
) -> Draft | None:
    """Return a mail as a draft, or None if it is unfinished; raises `MissingScope` if we may not read what it says.

    `addresses` are the account's own, in lower case: a sender who writes to one of them, alone or among others, waits
    for an answer. Copies do not. With `trusts_from` the sender that a mail names is believed without proof.
    """
    if mail.get("isDraft") is True:
        return None
    if "body" not in mail and "bodyPreview" not in mail:
        raise MissingScope(("Mail.Read",))
    author = _author(mail)
    sender = sender_of(mail, trusts_from=trusts_from)
    text, text_format = _said(mail, sender)
    conversation = text_of(mail, "conversationId")
    return Draft(
        source=source,
        sender=sender,
        text=text,
        upstream_id=upstream_id(mail, sender),
        channel=CHANNEL,
        conversation=conversation,
        thread=conversation,
        format=text_format,
        sent_at=iso_moment(text_of(mail, "receivedDateTime")),
        meta=_meta(mail, author, folder),
        is_question=_expects_answer(mail, author, addresses),
        left_out=0 if is_encrypted(mail) else max(0, len(body_of(mail)) - MAX_TEXT),
    )


def _expects_answer(mail: Json, author: Sender, addresses: Collection[str]) -> bool:
    """Whether another person, and no machine, writes to one of these addresses."""
    if author.id in addresses or author.id == NOBODY or is_unattended(author.id) or is_invitation(mail):
        return False
    return not _is_automatic(mail) and any(person.id in addresses for person in _people(mail.get("toRecipients")))


def _is_automatic(mail: Json) -> bool:
    """Whether a machine sent it: an answer to it would reach no person."""
    said = _header(mail, "auto-submitted").lower()
    return (
        (bool(said) and not said.startswith("no"))
        or _header(mail, "precedence").lower() in _BULK
        or any(_header(mail, name) for name in _MACHINES)
        or _header(mail, "return-path") == "<>"
    )


def sender_of(mail: Json, *, trusts_from: bool) -> Sender:
    """Return who wrote a mail as rules may know them: one without a voucher goes by another id."""
    author = _author(mail)
    if trusts_from or author.id == NOBODY:
        return author
    headers = [(text_of(each, "name"), text_of(each, "value")) for each in items(mail, "internetMessageHeaders")]
    return author if is_proven(headers, author.id) else Sender(f"{UNVERIFIED}{author.id}", author.name)


def upstream_id(mail: Json, sender: Sender) -> str:
    """Return what tells a mail from all others: its own id, which any sender can write, with a mark of what it says."""
    own = own_id(mail)
    if not own:
        return f"{BY_GRAPH}{text_of(mail, 'id')}"
    digest = hashlib.sha256()
    # Also whether its sender is proven: a forged copy that came first must not hide the real one.
    for piece in (own, sender.id, text_of(mail, "subject"), body_of(mail) or text_of(mail, "bodyPreview")):
        encoded = piece.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return f"{BY_MAIL}{digest.hexdigest()[:MARK_CHARS]}:{own[:MAX_ID]}"


def own_id(mail: Json) -> str:
    """Return the id that a mail came with; empty if it came without one."""
    return text_of(mail, "internetMessageId").strip()


def own_id_in(upstream: str) -> str:
    """Return a mail's own id, told its upstream id; earlier versions had nothing else in that. Empty: it has none."""
    if upstream.startswith(BY_GRAPH):
        return ""
    return upstream[len(BY_MAIL) + MARK_CHARS + 1 :] if upstream.startswith(BY_MAIL) else upstream


def body_of(mail: Json) -> str:
    """Return what a mail says, as it came."""
    return text_of(within(mail, "body"), "content")


def subject_of(mail: Json) -> str:
    """Return what a mail is about, on one line."""
    return _line(text_of(mail, "subject"))


def is_html(mail: Json) -> bool:
    """Whether a mail is written in markup."""
    return text_of(within(mail, "body"), "contentType").lower() == "html"


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
    for attached in items(mail, "attachments"):
        kind = text_of(attached, "contentType").lower()
        is_named_so = text_of(attached, "name").strip().lower() in _ENCRYPTED_FILES
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
        begins = text_of(mail, "bodyPreview")
        return "\n".join([*said, *([UNREADABLE, begins] if begins else [UNREAD])]), TextFormat.PLAIN
    body = written = body_of(mail)[:MAX_TEXT]
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
    more = [f"and {len(named) - MAX_ANSWERED} more"] if len(named) > MAX_ANSWERED else []
    return [*named[:MAX_ANSWERED], *more]


def _meeting(mail: Json) -> list[str]:
    if not is_invitation(mail):
        return []
    event = within(mail, "event")
    said = {**event, **{name: mail[name] for name in ("startDateTime", "endDateTime", "location") if mail.get(name)}}
    begin, end = _when(said, "start"), _when(said, "end")
    where = _line(text_of(within(said, "location"), "displayName"))
    organiser = _person(event.get("organizer"))
    lines = [f"[{_MEETING.get(text_of(mail, 'meetingMessageType'), 'About a meeting')}]"]
    if begin:
        lines.append(f"When: {begin}{f' to {end}' if end else ''}")
    if where:
        lines.append(f"Where: {where}")
    if organiser:
        lines.append(f"Organiser: {_line(organiser.name)} <{_line(organiser.id)}>")
    return lines


def _when(said: Mapping[str, object], which: str) -> str:
    at = within(said, f"{which}DateTime") or within(said, which)
    moment = text_of(at, "dateTime").partition(".")[0].replace("T", " ")
    return _line(f"{moment} {text_of(at, 'timeZone')}") if moment else ""


def _attached(mail: Json) -> list[str]:
    seen = [each for each in items(mail, "attachments") if each.get("isInline") is not True]
    names = [_line(text_of(each, "name")) or "without a name" for each in seen[:MAX_ATTACHMENTS]]
    lines = [f"[attachment: {name}]" for name in names]
    if len(seen) > len(names):
        lines.append(f"[and {len(seen) - len(names)} more attachments]")
    if not seen and mail.get("hasAttachments") is True:
        lines.append("[it has attachments]")
    return lines


def _meta(mail: Json, author: Sender, folder: str) -> dict[str, str]:
    names = ", ".join(_line(text_of(each, "name")) for each in items(mail, "attachments")[:MAX_ATTACHMENTS])
    by = _person(mail.get("sender"))
    said = {
        "subject": _line(text_of(mail, "subject")),
        "folder": folder,
        "attachments": names,
        "to": ", ".join(person.id for person in _people(mail.get("toRecipients"))[:MAX_ATTACHMENTS]),
        "copies": ", ".join(person.id for person in _people(mail.get("ccRecipients"))[:MAX_ATTACHMENTS]),
        "answers_go_to": ", ".join(_answered_at(mail)),
        "sent_by": by.id if by and by.id != author.id else "",
        SERVICE_ID: text_of(mail, "id"),
        "automatic": "yes" if _is_automatic(mail) else "",
        "importance": text_of(mail, "importance") if text_of(mail, "importance") != "normal" else "",
    }
    return {name: value for name, value in said.items() if value}


def _person(value: object) -> Sender | None:
    person = within(value if isinstance(value, dict) else {}, "emailAddress")
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    address = text_of(person, "address").strip().lower()
    name = text_of(person, "name").strip()
    # Never by a name instead: everybody chooses their own, and it may look like the address of somebody who is trusted.
    return Sender(address or NOBODY, name) if address or name else None


def _people(value: object) -> list[Sender]:
    return [person for each in _list(value) if (person := _person(each))]


def _header(mail: Json, name: str) -> str:
    for header in items(mail, "internetMessageHeaders"):
        if text_of(header, "name").lower() == name:
            return text_of(header, "value").strip()
    return ""


def _line(text: str) -> str:
    return " ".join(text[: 4 * MAX_NAME].split())[:MAX_NAME]


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def quoted(text: str) -> str:
    """Return a text as Graph's filters write one."""
    return "'" + text.replace("'", "''") + "'"


def is_answer(subject: str, *, has_original: bool) -> bool:
    """Whether a mail answers another, so that what it quotes was said before; a forwarded mail does not."""
    if _FORWARDED.match(subject):
        return False
    return has_original or _ANSWER.match(subject) is not None


def fold_html(html: str) -> str:
    """Return an answer without what the mail that it answers had quoted, and a note where that was."""
    return _folded(html, KEPT_LEVELS) or html


def above_quotes_html(html: str) -> str:
    """Return only what stands in no quote at all."""
    return _folded(html, 0) or html


def fold_plain(text: str) -> str:
    """Return an answer in plain text without what the mail that it answers had quoted, and a note where that was."""
    return _folded_plain(text, KEPT_LEVELS)


def above_quotes_plain(text: str) -> str:
    """Return only the lines that stand in no quote at all."""
    return _folded_plain(text, 0)


def _folded_plain(text: str, kept_levels: int) -> str:
    if len(text) > MAX_CHARS:
        return text
    lines = text.splitlines()
    kept: list[str] = []
    heads, is_fresh = 0, False
    for place, line in enumerate(lines):
        if _is_plain_head(lines, place):
            heads += not is_fresh
            is_fresh = True
        elif _WORD.search(line):
            is_fresh = False
        if heads > kept_levels:
            kept.append(FOLDED)
            break
        if _depth(line) <= kept_levels:
            kept.append(line)
        elif not kept or kept[-1] != FOLDED:
            kept.append(FOLDED)
    if kept == lines:
        return text
    return "\n".join(kept) if any(line.strip() and line != FOLDED for line in kept) else text


def _depth(line: str) -> int:
    begin = line[: len(line) - len(line.lstrip("> "))]
    return begin.count(">") if line.startswith(">") else 0


def _is_plain_head(lines: Sequence[str], place: int) -> bool:
    line = lines[place][:_HEAD_CHARS]
    if _FROM.match(line):
        return _names_all("\n".join(each[:_HEAD_CHARS] for each in lines[place : place + _HEAD_LINES]))
    return _PLAIN_SEPARATOR.fullmatch(line) is not None


def _folded(html: str, kept_levels: int) -> str:
    """Return the markup without deeper quotes; empty if there are none, or if nothing else is said."""
    if len(html) > MAX_CHARS:
        return ""
    source = _FORMATTING.sub(r"<\1span", html)
    if not _is_affordable(source):
        return ""
    body = LexborHTMLParser(source).body
    if body is None:
        return ""
    found = _QuoteSearch(kept_levels)
    found.walk(body)
    for quote in found.quotes:
        quote.replace_with(f" {FOLDED} ")
    for node, scope in found.cuts:
        _cut(node, scope.root)
    if not found.quotes and not found.cuts:
        return ""
    return (body.html or "") if _WORD.search(body.text().replace(FOLDED, "")) else ""


def _is_affordable(source: str) -> bool:
    """Whether it can be parsed in good time, judged by its tags: an end tag closes only its own kind."""
    still_open: dict[str, int] = {}
    depth = deepest = tags = 0
    for tag in _TAG.finditer(source):
        tags += 1
        if (name := tag[2].lower()) in _EMPTY:
            continue
        count = still_open.get(name, 0)
        step = 1 if not tag[1] else -1 if count else 0
        still_open[name] = count + step
        depth += step
        deepest = max(deepest, depth)
    return deepest <= MAX_DEPTH and tags * deepest <= MAX_STEPS


def _cut(node: LexborNode, root: LexborNode) -> None:
    """Take out a node and all that follows it in its quote, or in the mail; a note takes their place."""
    node.insert_before(f" {FOLDED} ")
    inner: LexborNode | None = node
    is_first = True
    while inner is not None and inner.mem_id != root.mem_id:
        while (after := inner.next) is not None:
            after.decompose()
        outer = inner.parent
        if is_first:
            inner.decompose()
        inner, is_first = outer, False


@dataclass(slots=True)
class _QuoteScope:
    """A quote, or the mail itself: how deep it is, and how many earlier mails have begun in it one after another."""

    root: LexborNode
    depth: int = 0
    heads: int = 0
    is_fresh: bool = False  # nothing was said since the last one began
    is_cut: bool = False


@dataclass(slots=True)
class _QuoteSearch:
    """Looks for quotes that are deeper than wanted, and for the places from which on all is earlier."""

    kept_levels: int
    quotes: list[LexborNode] = field(default_factory=list[LexborNode])
    cuts: list[tuple[LexborNode, _QuoteScope]] = field(default_factory=list[tuple[LexborNode, _QuoteScope]])
    lines: int = 0

    def walk(self, body: LexborNode) -> None:
        """Look at the whole tree: iterative, because nesting is the sender's choice."""
        todo: list[tuple[LexborNode, _QuoteScope]] = [(body, _QuoteScope(body))]
        while todo:
            node, scope = todo.pop()
            if scope.is_cut:
                continue
            if node is not body and (following := node.next) is not None:
                todo.append((following, scope))
            inner = self._look(node, scope)
            if inner is not None and (child := node.first_child) is not None:
                todo.append((child, inner))

    def _look(self, node: LexborNode, scope: _QuoteScope) -> _QuoteScope | None:
        """Take note of what a node is; return the scope of what is in it, None if that is not looked at."""
        tag = node.tag or ""
        if self._begins_earlier(node, tag):
            scope.heads += not scope.is_fresh
            scope.is_fresh = True
            if scope.heads > self.kept_levels:
                scope.is_cut = True
                self.cuts.append((node, scope))
                return None
        elif tag == "-text" and _WORD.search(node.text_content or ""):
            scope.is_fresh = False
        if tag in _UNSEEN or tag.startswith("-"):
            return None
        if not self._is_quote(node, tag):
            return scope
        if scope.depth >= self.kept_levels:
            self.quotes.append(node)
            return None
        return _QuoteScope(node, scope.depth + 1, scope.heads)

    def _is_quote(self, node: LexborNode, tag: str) -> bool:
        if tag not in ("blockquote", "div"):
            return False
        attributes = node.attributes
        said = f"{attributes.get('class') or ''} {attributes.get('type') or ''}"
        if tag == "div":
            return "yahoo_quoted" in said or "mail-editor-reference-message-container" in said
        # People indent with it too; but above all quotes, nothing that might be one counts.
        return self.kept_levels == 0 or "cite" in attributes or _CITED.search(said) is not None

    def _begins_earlier(self, node: LexborNode, tag: str) -> bool:
        """Whether an earlier mail begins here: Outlook puts those last, in no element of their own."""
        if tag == "div":
            return (node.attributes.get("id") or "").lower() in _SEPARATORS
        if tag != "-text" or self.lines >= _MAX_HEADS or not _FROM.match((node.text_content or "")[:_HEAD_CHARS]):
            return False
        self.lines += 1
        return _names_all(_text_from(node))


def _text_from(node: LexborNode) -> str:
    """Return the text that begins at a node, as much as the head of a mail has."""
    pieces: list[str] = []
    todo: list[LexborNode] = [node]
    for _ in range(4 * _HEAD_PIECES):
        if not todo or len(pieces) == _HEAD_PIECES:
            break
        each = todo.pop()
        if each.tag == "-text":
            pieces.append((each.text_content or "")[:_HEAD_CHARS])
        if (child := each.first_child) is not None:
            todo.append(child)
        elif (following := _after(each)) is not None:
            todo.append(following)
    return "\n".join(pieces)


def _after(node: LexborNode) -> LexborNode | None:
    """Return what follows a node and all that is in it."""
    outer: LexborNode | None = node
    for _ in range(_HEAD_PIECES):
        if outer is None or outer.tag == "body":
            return None
        if (following := outer.next) is not None:
            return following
        outer = outer.parent
    return None


def _names_all(text: str) -> bool:
    return _SENT.search(text) is not None and _SUBJECT.search(text) is not None
