"""What the service holds: people, chats with their messages, a mailbox with its folders.

Only values and what changes them; no HTTP, no limits, no tokens. The routes above read it and shape it into JSON,
a test changes it through the same methods. One lock guards it, because tests and the service run in two threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tests.graph.clock import ServiceClock
from tests.graph.dice import Dice

Json: TypeAlias = dict[str, object]

FOLDERS: Final = ("inbox", "sentitems", "drafts", "archive", "deleteditems")
_TICK: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Person:
    """Someone with an account; a bot is no person, it has only an application id."""

    id: str
    name: str
    address: str
    is_bot: bool = False
    upn: str = ""  # the name to sign in with; empty: the address
    proxies: Sequence[str] = ()  # every address that leads to the mailbox, each with its kind before it


@dataclass(slots=True)
class ChatMessage:
    """One message of a chat, with every time stamp that the service keeps about it."""

    id: str
    sender: Person | None
    html: str
    content_type: str
    created: datetime
    modified: datetime
    edited: datetime | None = None
    deleted: datetime | None = None
    mentions: Sequence[Json] = ()
    attachments: Sequence[Json] = ()
    event: Json | None = None
    reactions: Sequence[Json] = ()


@dataclass(slots=True)
class Chat:
    """A conversation; `updated` is when it was renamed or its members changed, not when someone wrote."""

    id: str
    kind: str
    topic: str | None
    created: datetime
    updated: datetime
    members: list[Person]
    messages: dict[str, ChatMessage] = field(default_factory=dict)
    last: ChatMessage | None = None


@dataclass(slots=True)
class Mail:
    """One mail; `number` never changes, while the id that clients see does when the mail moves."""

    number: int
    folder: str
    sender: Person
    to: Sequence[Person]
    subject: str
    html: str
    received: datetime
    modified: datetime
    internet_id: str
    conversation: str
    copies: Sequence[Person] = ()
    reply_to: Sequence[Person] = ()
    headers: Sequence[Json] = ()
    content_type: str = "html"
    is_read: bool = False
    is_draft: bool = False
    has_attachments: bool = False
    moves: int = 0
    version: int = 1
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened in a folder: `kind` is created, updated or deleted."""

    folder: str
    number: int
    kind: str


class World:
    """All chats and the one mailbox."""

    def __init__(self, clock: ServiceClock, seed: int) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.dice = Dice(seed)
        self.tenant = self.new_id()
        self.me = self.person("Robin Owner")
        self.chats: dict[str, Chat] = {}
        self.delayed: list[tuple[datetime, Chat, ChatMessage]] = []
        self.mails: dict[int, Mail] = {}
        self.changes: list[Change] = []
        self.folder_ids = {name: f"AQMkAD{self.new_id().replace('-', '')}AAA=" for name in FOLDERS}

    def new_id(self) -> str:
        """A fresh id that depends on the seed and the order of calls only."""
        with self.lock:
            return self.dice.new_id()

    def person(self, name: str, *, is_bot: bool = False) -> Person:
        """Someone new."""
        return Person(self.new_id(), name, f"{name.lower().replace(' ', '.')}@example.test", is_bot)

    def chat(self, *others: Person, topic: str | None = None, kind: str | None = None) -> Chat:
        """A new chat of the signed-in person with others."""
        with self.lock:
            kind = kind or ("oneOnOne" if len(others) == 1 and topic is None else "group")
            ids = sorted((self.me.id, others[0].id)) if kind == "oneOnOne" else []
            chat_id = f"19:{'_'.join(ids)}@unq.gbl.spaces" if ids else f"19:{self.new_id().replace('-', '')}@thread.v2"
            now = self.clock.now()
            chat = Chat(chat_id, kind, topic, now, now, [self.me, *others])
            self.chats[chat_id] = chat
            return chat

    def say(self, chat: Chat, message: ChatMessage) -> ChatMessage:
        """Put a message into a chat under an id of its own: the milliseconds of its creation, made unique."""
        with self.lock:
            at = message.created
            while (message_id := str(int(at.timestamp() * 1000))) in chat.messages:
                at += _TICK
            message.id = message_id
            chat.messages[message_id] = message
            if chat.last is None or message.created >= chat.last.created:
                chat.last = message
            return message

    def settle(self) -> None:
        """Put those messages into their chats that were asked for a while ago."""
        with self.lock:
            now = self.clock.now()
            due = [entry for entry in self.delayed if entry[0] <= now]
            self.delayed = [entry for entry in self.delayed if entry[0] > now]
            for at, chat, message in due:
                message.created = message.modified = at
                self.say(chat, message)

    def react(self, message: ChatMessage, by: Person, reaction: str) -> None:
        """React to a message: its text stays as it is, and yet it counts as modified."""
        with self.lock:
            message.modified = self.clock.now()
            message.reactions = [*message.reactions, {"reactionType": reaction, "user": {"user": {"id": by.id}}}]

    def edit(self, message: ChatMessage, html: str, content_type: str = "html") -> None:
        """Change what a message says, as its author does in Teams."""
        with self.lock:
            message.html, message.content_type = html, content_type
            message.edited = message.modified = self.clock.now()

    def delete(self, message: ChatMessage) -> None:
        """Take a message back: its text goes, its place stays."""
        with self.lock:
            message.html = ""
            message.deleted = message.modified = self.clock.now()

    def receive(self, mail: Mail) -> Mail:
        """Put a mail into its folder."""
        with self.lock:
            mail.number = len(self.mails) + 1
            mail.internet_id = mail.internet_id or f"<{self.new_id()}@mail.example.test>"
            mail.conversation = mail.conversation or f"AAQk{self.new_id().replace('-', '')}="
            self.mails[mail.number] = mail
            self.changes.append(Change(mail.folder, mail.number, "created"))
            return mail

    def touch(self, mail: Mail) -> None:
        """Note that a mail was changed where it is."""
        with self.lock:
            mail.modified = self.clock.now()
            mail.version += 1
            self.changes.append(Change(mail.folder, mail.number, "updated"))

    def move(self, mail: Mail, folder: str) -> None:
        """Move a mail to another folder; for the folder it leaves it is deleted."""
        with self.lock:
            self.changes.append(Change(mail.folder, mail.number, "deleted"))
            mail.folder = folder
            mail.moves += 1
            mail.version += 1
            self.changes.append(Change(folder, mail.number, "created"))

    def discard(self, mail: Mail) -> None:
        """Delete a mail for good."""
        with self.lock:
            del self.mails[mail.number]
            self.changes.append(Change(mail.folder, mail.number, "deleted"))

    def folder(self, name: str) -> str | None:
        """The well-known name of a folder that a request names by name or by id."""
        return next((known for known, fid in self.folder_ids.items() if name.lower() == known or name == fid), None)
