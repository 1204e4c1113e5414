"""What can go wrong with Microsoft Graph that no kind of `harken.errors` says by itself.

Each is one of those kinds, so that every surface can show it; callers in this package tell them apart because they do
something of their own next: begin a feed again, look before a message is sent twice, name the permission to grant.
"""

from __future__ import annotations

from harken.errors import Conflict, NeedsPerson


class Gone(Conflict):
    """A position in a feed is too old: read it anew, from `location` if there is one."""

    def __init__(self, location: str = "") -> None:
        super().__init__("Microsoft does not know this position any more.", "the feed is read again from its beginning")
        self.location = location


class Unsure(Conflict):
    """Something was asked for and may have happened: look before it is asked for again."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"It is not known whether Microsoft did it: {reason}.", "look whether it is there, then decide"
        )
        self.reason = reason


class MissingScope(NeedsPerson):
    """A permission was not granted; each of `scopes` would do, the narrowest first."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        super().__init__(
            f"Microsoft refuses this without the permission {scopes[0]}.",
            "an administrator may have to agree",
            action=f"grant {scopes[0]} and sign in again",
        )
        self.scopes = scopes
