"""What is written into a chat: answers, what stands in their place meanwhile, and whom an answer names. Pure.

Every text ends with a line that holds a reference, and says that an agent wrote it where it does so in a person's name.
The body of an answer becomes HTML in `sources/markup.py`; a name is somebody else's text, and is escaped. Above is
`sender.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from harken.errors import UserError
from harken.model import Message, MessageId, Sender
from harken.sources.graph.sent import reference
from harken.sources.graph.verdict import Json
from harken.sources.markup import closing_line, to_html

MAX_BYTES: Final = 28_000
MAX_NAME_CHARS: Final = 100
NOT_ANSWERED: Final = "Not answered yet."
ANSWERED_ELSEWHERE: Final = "Answered in another message."

_FOR_A_PERSON: Final = "Written by an AI agent on my behalf."
_WITH_MANY: Final = frozenset({"group", "meeting"})
_PARAGRAPH: Final = "<p>"


@dataclass(frozen=True, slots=True)
class Content:
    """A text to be written, and whom it names. `plain` is the same without the name, for where that is refused."""

    html: str
    plain: str
    mentions: tuple[Mapping[str, object], ...] = ()

    @property
    def json(self) -> Json:
        """The body of a request."""
        body: dict[str, object] = {"body": {"contentType": "html", "content": self.html}}
        return {**body, "mentions": list(self.mentions)} if self.mentions else body

    @property
    def plain_json(self) -> Json:
        """The body of a request that names nobody."""
        return {"body": {"contentType": "html", "content": self.plain}}


def answer(body: str, mark: str, *, is_for_person: bool, named: Sender | None = None) -> Content:
    """Return an answer that ends with its reference, and with the word that an agent wrote it for a person.

    Raises `UserError` if it is empty or too long.
    """
    if not body.strip():
        raise UserError("The reply is empty.", "write something")
    plain = to_html(body) + _closing(mark, is_for_person=is_for_person)
    size = len(plain.encode())
    if size > MAX_BYTES:
        raise UserError(
            f"The reply is too long for Teams: {size} bytes, {MAX_BYTES} fit.", "shorten it, or send it in parts"
        )
    if named is None:
        return Content(plain, plain)
    tag = f'<at id="0">{escape(named.name)}</at>'
    rest = plain.removeprefix(_PARAGRAPH)
    html = f"{_PARAGRAPH}{tag} {rest}" if rest != plain else f"{_PARAGRAPH}{tag}</p>{plain}"
    if len(html.encode()) > MAX_BYTES:
        return Content(plain, plain)
    user = {"displayName": named.name, "id": named.id, "userIdentityType": "aadUser"}
    return Content(html, plain, ({"id": 0, "mentionText": named.name, "mentioned": {"user": user}},))


def standing_in(text: str, mark: str, *, is_for_person: bool) -> Content:
    """Return a short plain text that stands where an answer will be."""
    html = f"<p>{escape(text, quote=False)}</p>{_closing(mark, is_for_person=is_for_person)}"
    return Content(html, html)


def place_mark(message: MessageId) -> str:
    """Return the reference of what stands in the place of an answer to a message."""
    return reference(f"placeholder:{message}")


def whom_to_name(message: Message, me: str) -> Sender | None:
    """Return whom an answer to a message names: its sender, where others read along who could feel meant."""
    sender = message.sender
    name = " ".join("".join(char if char.isprintable() else " " for char in sender.name).split())[:MAX_NAME_CHARS]
    is_person = "bot" not in message.meta and bool(sender.id) and sender.id != me
    if message.meta.get("chat_type") not in _WITH_MANY or not is_person or not name:
        return None
    return Sender(id=sender.id, name=name)


def _closing(mark: str, *, is_for_person: bool) -> str:
    return closing_line(f"{_FOR_A_PERSON} {mark}" if is_for_person else mark)
