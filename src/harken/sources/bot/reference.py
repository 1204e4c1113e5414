"""Where an answer goes: the conversation reference, as it is kept with a stored message. Pure.

The conversation and the activity are the message's own; the rest is in its `meta`. Both were cleaned on their way into
the store, so everything is checked again here: what was changed there is not used. Above are `activity.py`, which
writes it, and `sender.py`, which reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from harken.errors import Refused
from harken.model import Message

# Printable, without spaces and brackets: what an inbox would have to change is no id here.
ID: Final = re.compile(r"[!-;=?-~]{1,400}")

_GROUP: Final = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an answer needs besides the conversation and the activity."""

    service_url: str
    channel_id: str = ""
    bot: str = ""
    user: str = ""
    is_group: bool = False

    def as_meta(self) -> dict[str, str]:
        """Return it as it is kept."""
        return {
            "service_url": self.service_url,
            "channel_id": self.channel_id,
            "bot": self.bot,
            "user": self.user,
            "group": _GROUP if self.is_group else "",
        }

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Self:
        """Read what is kept; what is not as it was is left out."""
        kept = {key: meta[key] for key in ("channel_id", "bot", "user") if ID.fullmatch(meta.get(key, ""))}
        return cls(service_url=meta.get("service_url", ""), is_group=meta.get("group") == _GROUP, **kept)


def upstream_id(conversation_id: str, activity_id: str) -> str:
    """Return how a message is known: ids of activities are unique in their conversation only."""
    return f"{conversation_id}/{activity_id}"


def activity_id_of(message: Message) -> str:
    """Return the activity that a stored message was; raises `Refused` if its conversation is not the one it says."""
    conversation, upstream = message.conversation, message.upstream_id
    activity_id = upstream.removeprefix(f"{conversation}/")
    if not ID.fullmatch(conversation) or activity_id == upstream or not ID.fullmatch(activity_id):
        raise Refused("This message does not say which conversation it came from.", "answer it where it came from")
    return activity_id
