"""The use cases. Every surface is an adapter over `Inbox`: one name, one method, the same errors everywhere."""

from harken.inbox.caller import Caller, Role
from harken.inbox.inbox import Inbox
from harken.inbox.results import Details, LedgerEntry, PullResult, ReplyRow, SendResult, Status

__all__ = ["Caller", "Details", "Inbox", "LedgerEntry", "PullResult", "ReplyRow", "Role", "SendResult", "Status"]
