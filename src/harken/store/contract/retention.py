"""The part of the store's contract that says what retention has to do. It changes nothing; `prune` does.

What holds for every method is in `store/contract`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harken.model import Mailbox

if TYPE_CHECKING:  # the contract as a whole is made of this part of it
    from harken.store.contract import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxExcess:
    """A mailbox and what is over its limits: `over` of the `stored` messages.

    `to_delete` of those are final for everyone and go next; `to_expire` counts deliveries that become expired first,
    one for each consumer that has not seen a message.
    """

    mailbox: Mailbox
    stored: int
    over: int
    to_expire: int
    to_delete: int


class KeepingRows(Protocol):
    """Reads about retention."""

    async def excess(self, limits: Limits) -> Sequence[MailboxExcess]:
        """Return every mailbox by name, and what a call of `prune` with these limits has to do in it now.

        One call of `prune` does a bounded part of that.
        """
        ...
