"""The use cases. Every surface is an adapter over `Inbox`: one name, one method, the same errors everywhere."""

from harken.inbox.caller import Caller, Role
from harken.inbox.inbox import Inbox
from harken.inbox.results import Details, Entry, Pulled, ReplyRow, Sent, Status
from harken.inbox.sessions import Note, Presence, Pusher, Session, Sessions, Waker

__all__ = [
    "Caller", "Details", "Entry", "Inbox", "Note", "Presence", "Pulled", "Pusher",
    "ReplyRow", "Role", "Sent", "Session",
    "Sessions", "Status", "Waker",
]  # fmt: skip
