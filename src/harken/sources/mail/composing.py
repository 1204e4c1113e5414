"""An answer as a mail: into the conversation of the mail that is answered, in plain text and as HTML. Pure.

Its id is made of the outbox's key, so that it is the same each time it is tried and can be told from all others. To
whom it goes is decided by the mail that is answered, never by the agent. Nothing that a stranger wrote gets into a
header unless it has one plain meaning there. It does not say `Auto-Submitted`: an agent writes for a person, and the
last line says so. Above are `sender.py` and `source.py`.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from harken.errors import Refused, UserError
from harken.model import Draft, Message, Outgoing
from harken.sources.mail.addresses import ids_in, is_address
from harken.sources.mail.folding import is_answer
from harken.sources.mail.reading import MOST_RECIPIENTS, own_id_in
from harken.sources.mail.settings import MailSettings
from harken.sources.mail.verifying import UNVERIFIED
from harken.sources.markup import closing_line, to_html

CLOSING: Final = "Written by an AI agent on my behalf."
MAX_CHARS: Final = 100_000
MOST_SUBJECT: Final = 300

_OWN: Final = re.compile(r"<harken\.[0-9a-f]{32}@[^<>@\s]{1,255}>")


def answer_id(settings: MailSettings, key: str) -> str:
    """Return the id of the answer with this key, the same each time it is tried."""
    digest = hashlib.sha256(f"{settings.name} {key}".encode()).hexdigest()[:32]
    return f"<harken.{digest}@{settings.address.rpartition('@')[2]}>"


def is_own(draft: Draft, settings: MailSettings) -> bool:
    """Whether a mail is an answer of ours that came back; somebody else who writes such an id only hides his own."""
    is_from_us = draft.sender.id.removeprefix(UNVERIFIED) == settings.address.lower()
    return is_from_us and _OWN.fullmatch(own_id_in(draft.upstream_id)) is not None


def compose(reply: Outgoing, settings: MailSettings, now: datetime) -> EmailMessage:
    """Return the answer; raises `UserError` for a text that cannot be sent, `Refused` if nobody can be answered."""
    text = reply.body.strip()
    if reply.to.source != settings.name:
        raise Refused("This is no mail of this account.", "answer a mail that came from it")
    if not text:
        raise UserError("An answer says something.", "write a text")
    if len(text) > MAX_CHARS:
        raise UserError(f"The answer is longer than {MAX_CHARS:,} characters.", "shorten it")
    mail = EmailMessage(policy=SMTP)
    try:
        mail["From"] = Address(addr_spec=settings.address)
        mail["To"] = [Address(addr_spec=address) for address in recipients(reply.to)]
        mail["Subject"] = _subject(reply.to)
    except (MessageError, ValueError, IndexError, LookupError) as exc:
        raise Refused("The sender of this mail has no address that can be answered.", "write to them yourself") from exc
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = answer_id(settings, reply.key)
    if earlier := _earlier(reply.to):
        mail["In-Reply-To"] = earlier[-1]
        mail["References"] = " ".join(earlier)
    closing, closing_html = ("", "") if reply.is_by_owner else (f"\n{CLOSING}\n", f"{closing_line(CLOSING)}\n")
    mail.set_content(f"{text}\n{closing}")
    mail.add_alternative(f"{to_html(text)}\n{closing_html}", subtype="html")
    return mail


def recipients(to: Message) -> list[str]:
    """Return to whom an answer goes: where the mail says that answers go, else its sender."""
    named = [each.strip() for each in to.meta.get("answers_go_to", "").split(",") if each.strip()]
    found = [each for each in named or [to.sender.id.removeprefix(UNVERIFIED)] if is_address(each)]
    if not found:
        raise Refused("The sender of this mail has no address that can be answered.", "write to them yourself")
    return found[:MOST_RECIPIENTS]


def _subject(to: Message) -> str:
    subject = " ".join(to.meta.get("subject", "").split())[:MOST_SUBJECT]
    # What still looks like an encoded word would be decoded once more, with the line ends in it.
    printable = "".join(char for char in subject if char.isprintable()).replace("=?", "= ?")
    return printable if is_answer(printable, has_original=False) else f"Re: {printable}".strip()


def _earlier(to: Message) -> list[str]:
    """Return the ids of the conversation, the mail that is answered last."""
    own = ids_in(own_id_in(to.upstream_id))[:1]
    if not own:
        return []
    before = [*ids_in(to.conversation)[:1], *ids_in(to.meta.get("references", ""))]
    return [*(each for each in dict.fromkeys(before) if each not in own), *own]
