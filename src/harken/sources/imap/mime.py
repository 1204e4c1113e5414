"""From the bytes of a mail to its parts: headers, texts in any charset, attachments and invitations. Pure.

A mail has the shape that its sender gave it: nothing here raises, and what cannot be read is said to be so.
"""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.errors import HeaderParseError, MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from itertools import islice
from types import MappingProxyType
from typing import Final

from harken.model import MAX_RAW_CHARS
from harken.sources.imap.settings import MAX_HEADER

FALLBACK: Final = "cp1252"  # what unlabelled bytes of a mail most often are, if they are not UTF-8

_UTF_8: Final = "utf-8"
_GOOD_PER_BAD: Final = 50

# Codecs that are no charset of a mail; some of them take time that grows with the square of the text.
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem", "utf-7-imap"}
)
# What is labelled so is often written in the larger charset that contains it.
_LARGER: Final[Mapping[str, str]] = MappingProxyType(
    {"iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "ascii": _UTF_8}
)

MAX_CALENDAR_LINES: Final = 5_000
MAX_VALUE: Final = 300

_METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "REQUEST": "Meeting invitation",
        "CANCEL": "Meeting cancelled",
        "REPLY": "Answer to a meeting invitation",
        "COUNTER": "Another time is proposed for a meeting",
        "PUBLISH": "Meeting announced",
    }
)
_FOLD: Final = re.compile(r"\r?\n[ \t]")
_TIME: Final = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")
_ESCAPED: Final = re.compile(r"\\([nN,;\\])")
_ZONE: Final = re.compile(r";TZID=(?:\"([^\"]{1,80})\"|([^;:]{1,80}))", re.IGNORECASE)
_MAILTO: Final = re.compile(r"(?i)mailto:")
_WANTED: Final = frozenset({"SUMMARY", "DTSTART", "DTEND", "LOCATION", "ORGANIZER", "RRULE"})

MAX_HOLDERS: Final = 100  # parts that hold other parts
MAX_LINES: Final = 400_000  # 25 MB of an attachment are fewer
MAX_LOOKS: Final = 10_000_000  # each line may be looked at for each part that is open
MAX_BOUNDARIES: Final = 20_000
MAX_LEAVES: Final = 500
MAX_NESTED: Final = 4  # mails within mails that are read
MAX_TEXT: Final = MAX_RAW_CHARS
MAX_NAMED: Final = 100
MAX_PARAMETERS: Final = 2_000  # characters of a header with parameters

_CHARSET_IN_PARTS: Final = re.compile(r"\bcharset\*", re.IGNORECASE)
_HOLDERS: Final = re.compile(rb"content-type:\s{0,5}(?:multipart|message)/", re.IGNORECASE)
_ENCRYPTED: Final = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_SIGNATURES: Final = frozenset(
    {"application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-signature"}
)
_REPORTS: Final = frozenset({"message/delivery-status", "message/disposition-notification"})
_TEXTS: Final = frozenset({"text/plain", "text/html"})
_UNREADABLE: Final = (MessageError, binascii.Error, ValueError, LookupError, IndexError, AttributeError, TypeError)


def decode(data: bytes, charset: str) -> str:
    """Return bytes as text, in the charset they claim if that can be."""
    try:
        name = codecs.lookup(charset.strip().strip("\"'")[:40]).name if charset else _UTF_8
    except (LookupError, ValueError, TypeError):
        name = _UTF_8
    name = _LARGER.get(name, name)
    if name.replace("_", "-") in _NO_CHARSETS:
        name = _UTF_8
    for each in (name, _UTF_8):
        try:
            return data.decode(each)
        except (UnicodeError, LookupError, ValueError):
            continue
    if name != _UTF_8:
        return _replaced(data, name)
    text = data.decode(_UTF_8, "replace")
    # Cut in the middle of a letter, or with a few broken bytes, it is UTF-8 still.
    is_mostly_good = text.count("\ufffd") * _GOOD_PER_BAD <= len(text)
    return text if is_mostly_good else _replaced(data, FALLBACK)


def words(raw: str) -> str:
    """Return a header on one line, with its encoded words decoded."""
    text = _repaired(raw)
    try:
        parts = decode_header(text) if "=?" in text else [(text, None)]
    except (HeaderParseError, binascii.Error, ValueError, LookupError, IndexError):
        parts = [(text, None)]
    said = "".join(part if isinstance(part, str) else decode(part, charset or "") for part, charset in parts)
    return " ".join(said.split())


def _repaired(raw: str) -> str:
    """Return a header with bytes that are no ASCII as what they most likely say."""
    try:
        raw.encode("ascii")
    except UnicodeEncodeError:
        return decode(raw.encode("utf-8", "surrogateescape"), "utf-8")
    return raw


def _replaced(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset, "replace")
    except (UnicodeError, LookupError, ValueError):
        return data.decode("latin-1")


# Not icalendar: its import adds 150 ms and 10 MB to the first invitation, for these few lines.
def invitation_lines(calendar: str) -> list[str]:
    """Return what an invitation says; nothing if it holds no event."""
    method, fields = _fields(calendar)
    if not fields:
        return []
    lines = [f"[{_METHODS.get(method, 'About a meeting')}]"]
    begin, end = _when(fields.get("DTSTART", "")), _when(fields.get("DTEND", ""))
    if what := _value(fields.get("SUMMARY", "")):
        lines.append(f"What: {what}")
    if begin:
        lines.append(f"When: {begin}{f' to {end}' if end else ''}{', repeated' if 'RRULE' in fields else ''}")
    if where := _value(fields.get("LOCATION", "")):
        lines.append(f"Where: {where}")
    if organiser := _MAILTO.sub("", _value(fields.get("ORGANIZER", ""))):
        lines.append(f"Organiser: {organiser}")
    return lines


def _fields(calendar: str) -> tuple[str, dict[str, str]]:
    """Return the method, and the wanted fields of the first event with what stands behind their names."""
    method, fields, is_inside = "", dict[str, str](), False
    depth = 0
    for line in _FOLD.sub("", calendar).splitlines()[:MAX_CALENDAR_LINES]:
        name = re.split(r"[;:]", line, maxsplit=1)[0].strip().upper()
        if name == "METHOD":
            method = line.partition(":")[2].strip().upper()
        elif line.strip().upper() == "BEGIN:VEVENT":
            is_inside = True
        elif is_inside and name == "BEGIN":
            depth += 1  # an alarm, with a description of its own
        elif is_inside and name == "END":
            if depth == 0:
                return method, fields or {"": ""}
            depth -= 1
        elif is_inside and depth == 0 and name in _WANTED:
            fields.setdefault(name, line[len(name) :])
    return method, fields


def _value(rest: str) -> str:
    # A colon inside quotes belongs to a parameter.
    is_quoted = False
    for place, char in enumerate(rest[: 4 * MAX_VALUE]):
        if char == '"':
            is_quoted = not is_quoted
        elif char == ":" and not is_quoted:
            said = _ESCAPED.sub(lambda found: " " if found[1] in "nN" else found[1], rest[place + 1 :][:MAX_VALUE])
            return " ".join(said.split())
    return ""


def _when(rest: str) -> str:
    time = _TIME.match(_value(rest))
    if time is None:
        return ""
    year, month, day, hour, minute, _, zulu = time.groups()
    if hour is None:
        return f"{year}-{month}-{day}"
    zone = _ZONE.search(rest)
    named = "UTC" if zulu else " ".join((zone[1] or zone[2]).split()) if zone else ""
    return f"{year}-{month}-{day} {hour}:{minute}{f' {named}' if named else ''}"


@dataclass(frozen=True, slots=True)
class MimePart:
    """Something that a mail says; the text of a mail within it has its head."""

    text: str
    is_html: bool = False
    is_inner: bool = False  # said by a mail within the mail


@dataclass(slots=True)
class ParsedMail:
    """A mail taken apart. `names` are those of attachments, as their senders chose them."""

    headers: Message
    pieces: list[MimePart] = field(default_factory=list[MimePart])
    names: list[str] = field(default_factory=list[str])
    calendars: list[str] = field(default_factory=list[str])
    reports: list[Message] = field(default_factory=list[Message])
    is_whole: bool = True  # False: what it says could not be taken apart
    is_encrypted: bool = False
    signed_with: str = ""
    left_out: int = 0  # characters of what it says that are in no piece

    def header(self, name: str) -> str:
        """Return the first header of that name on one line, decoded; empty if there is none."""
        return words(self.raw(name))

    def raw(self, name: str) -> str:
        """Return the first header of that name as it came."""
        return next(iter(self.every(name)), "")

    @property
    def kind(self) -> str:
        """What it is as a whole, such as text/plain."""
        return self.headers.get_content_type()

    def param(self, name: str) -> str:
        """Return a parameter of what it is as a whole."""
        return _param(self.headers, name)

    def every(self, name: str) -> list[str]:
        """Return every header of that name as it came, the topmost first."""
        return [str(value) for value in self.headers.get_all(name, [])]


class _AsItCame(Compat32):
    """Headers as they came, each cut to a length."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, _, first = sourcelines[0].partition(":")
        rest = "".join([first.lstrip(" \t"), *sourcelines[1:]])
        is_about_content = name.lower().startswith("content-")
        value = rest[: MAX_PARAMETERS if is_about_content else MAX_HEADER].rstrip("\r\n")
        # In three parts a charset comes as a tuple, on which the library's own decoding fails.
        return name[:200], _CHARSET_IN_PARTS.sub("x-charset*", value) if is_about_content else value

    def header_fetch_parse(self, name: str, value: str) -> str:
        del name
        return value


def take_apart(raw: bytes) -> ParsedMail:
    """Return a mail taken apart, as far as it can be."""
    parser = BytesParser(policy=_AsItCame())
    try:
        if not _is_costly(raw):
            mail = ParsedMail(parser.parsebytes(raw))
            _read(mail, mail.headers)
            return mail
    except (*_UNREADABLE, RecursionError):
        pass
    return heads(raw)


def _is_costly(raw: bytes) -> bool:
    """Whether taking a mail apart would take minutes: no person sends so many lines or parts."""
    holders = sum(1 for _ in _HOLDERS.finditer(raw))
    lines = raw.count(b"\n")
    return (
        holders > MAX_HOLDERS or lines > MAX_LINES or lines * holders > MAX_LOOKS or raw.count(b"\n--") > MAX_BOUNDARIES
    )


def heads(raw: bytes) -> ParsedMail:
    """Return only the headers of a mail."""
    begin = raw[: 64 * MAX_HEADER]
    try:
        return ParsedMail(BytesParser(policy=_AsItCame()).parsebytes(begin, headersonly=True), is_whole=False)
    except (*_UNREADABLE, RecursionError):
        return ParsedMail(Message(), is_whole=False)


def _read(mail: ParsedMail, whole: Message) -> None:
    mail.is_encrypted = _is_encrypted(whole)
    mail.signed_with = _signature(whole)
    if mail.is_encrypted:
        return
    room = MAX_TEXT
    for part, depth in islice(_leaves(whole, 0), MAX_LEAVES):
        kind = part.get_content_type()
        if kind == "text/calendar":
            mail.calendars.append(_text(part)[:MAX_TEXT])
        elif kind in _REPORTS:
            mail.reports += _inner(part)
        elif (kind in _TEXTS and not _is_attached(part)) or kind.startswith("multipart/"):
            # What says that it has parts and has none is a text that was broken on the way.
            text = _text(part)
            mail.pieces.append(MimePart(text[:room], is_html=kind == "text/html", is_inner=depth > 0))
            mail.left_out += max(0, len(text) - room)
            room -= len(mail.pieces[-1].text)
        elif kind == "message/rfc822" and (head := _head(part)):
            hidden = "" if depth < MAX_NESTED else "\n[what it says is not shown: it is too deep in this mail]"
            mail.pieces.append(MimePart(f"{head}{hidden}", is_inner=True))
        elif _is_encrypted(part):
            mail.is_encrypted = True
        elif len(mail.names) < MAX_NAMED and kind not in _SIGNATURES and not _is_inline(part):
            mail.names.append(_name(part) or kind)


def _leaves(part: Message, depth: int) -> Iterator[tuple[Message, int]]:
    """Yield what is to be read, in order: of alternatives the best, and a mail within the mail before its parts."""
    kind, inner = part.get_content_type(), _inner(part)
    if kind in _REPORTS or not inner:
        yield part, depth
        return
    if kind == "message/rfc822":
        yield part, depth
        depth += 1
        if depth > MAX_NESTED:
            return
    chosen = inner
    if kind == "multipart/alternative":
        chosen = _best(inner)
    elif kind == "multipart/related":
        chosen = inner[:1]
    for each in chosen:
        yield from _leaves(each, depth)
    # What nobody reads may still hold what people miss: some programs attach files to one alternative only.
    for each in inner:
        if not any(each is one for one in chosen):
            yield from _attachments(each, depth)


def _attachments(part: Message, depth: int) -> Iterator[tuple[Message, int]]:
    for each in part.walk():
        if not each.is_multipart() and (_is_attached(each) or each.get_content_type() == "text/calendar"):
            yield each, depth


def _best(alternatives: Sequence[Message]) -> list[Message]:
    """Return the alternative that is read: plain text if it says anything, else the last, which is the richest."""
    for each in alternatives:
        if each.get_content_type() == "text/plain" and _text(each).strip():
            return [each]
    return [each for each in alternatives if each.get_content_type() != "text/calendar"][-1:]


def _inner(part: Message) -> list[Message]:
    # Of a part that holds no others the library would decode the text, in whatever charset it claims.
    payload = part.get_payload() if part.is_multipart() else []
    return [each for each in payload if isinstance(each, Message)] if isinstance(payload, list) else []


def _text(part: Message) -> str:
    try:
        data = part.get_payload(decode=True)
    except _UNREADABLE:
        data = None
    if not isinstance(data, bytes):
        return ""
    return decode(data, _param(part, "charset")).replace("\r\n", "\n")


def _param(part: Message, name: str) -> str:
    try:
        found = part.get_param(name, "")
    except _UNREADABLE:
        return ""
    # With a charset and a language of its own it comes as three.
    return found[2] if isinstance(found, tuple) else found or ""


def _name(part: Message) -> str:
    try:
        found = part.get_filename("")
    except _UNREADABLE:
        found = ""
    return words(found or "")


def _is_attached(part: Message) -> bool:
    disposition = str(part.get("content-disposition", "")).strip().lower()
    return disposition.startswith("attachment") or bool(_name(part))


def _is_inline(part: Message) -> bool:
    """Whether a part is a picture or the like in the text, which is left out."""
    disposition = str(part.get("content-disposition", "")).strip().lower()
    return disposition.startswith("inline") and bool(part.get("content-id")) and not part.is_multipart()


def _head(part: Message) -> str:
    inner = next(iter(_inner(part)), None)
    if inner is None:
        return ""
    said = [(name, words(str(inner.get(name, "")))) for name in ("From", "Date", "Subject")]
    return "\n".join(["[mail within this mail]", *(f"{name}: {value[:300]}" for name, value in said if value)])


def _is_encrypted(whole: Message) -> bool:
    kind = whole.get_content_type()
    if kind in _ENCRYPTED:
        return "signed-data" not in str(whole.get("content-type", "")).lower()
    return kind == "multipart/encrypted"


def _signature(whole: Message) -> str:
    said = str(whole.get("content-type", "")).lower()
    if whole.get_content_type() != "multipart/signed" and "signed-data" not in said:
        return ""
    return "PGP" if "pgp" in said else "S/MIME"
