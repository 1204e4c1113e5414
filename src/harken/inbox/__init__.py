"""The use cases. Every surface is an adapter over `Inbox`: one name, one method, the same errors everywhere."""

from harken.inbox.caller import Caller, Role
from harken.inbox.inbox import Inbox
from harken.inbox.results import Details, Entry, Pulled, ReplyRow, Sent, Status

__all__ = ["Caller", "Details", "Entry", "Inbox", "Pulled", "ReplyRow", "Role", "Sent", "Status"]
