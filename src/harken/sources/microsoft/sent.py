"""What we sent ourselves, so that it is not heard as if the person had said it.

With a person's own sign-in the agent writes from the same account as the person, who must be heard. So it is not the
account that tells our messages apart, but what we remember: the ids that the service gave them, the texts that are
being sent right now, and the reference in their last line, which also holds after a restart. It looks at nothing
else, and only what came from the account itself is ever asked about. Above are the sources and senders.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

MAX_IDS: Final = 50_000  # more than anybody's agent answers within what the store keeps


REFERENCE_CHARS: Final = 8


_WORDS: Final = "harken"


_TAG: Final = re.compile(r"<[^<>]{0,500}>")


_REFERENCE: Final = re.compile(rf"\[{_WORDS} [0-9a-f]{{{REFERENCE_CHARS}}}\]$")


def reference(key: str) -> str:
    """Return the short text that tells a reply by its key, the same each time it is tried."""
    return f"[{_WORDS} {hashlib.sha256(key.encode()).hexdigest()[:REFERENCE_CHARS]}]"


def words(markup: str) -> str:
    """Return a text without tags and white space: what is left of it however the service writes it."""
    return "".join(html.unescape(_TAG.sub("", markup)).replace("\xa0", " ").split())


class SentMessages:
    """Remembers what was sent. `ids` are those that were sent before the daemon started, the oldest first."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._order: deque[str] = deque()
        self._ids: set[str] = set()
        self._pending: Counter[str] = Counter()
        for upstream_id in ids:
            self.note(upstream_id)

    def note(self, upstream_id: str) -> None:
        """Remember the id of something that we sent."""
        if upstream_id in self._ids:
            return
        self._ids.add(upstream_id)
        self._order.append(upstream_id)
        if len(self._order) > MAX_IDS:
            self._ids.discard(self._order.popleft())

    def has(self, upstream_id: str) -> bool:
        """Whether something with this id is remembered."""
        return upstream_id in self._ids

    @contextmanager
    def pending(self, body: str) -> Iterator[None]:
        """Expect this text until the block ends: it can be read before the service has told us its id."""
        text = words(body)
        self._pending[text] += 1
        try:
            yield
        finally:
            self._pending[text] -= 1
            if not self._pending[text]:
                del self._pending[text]

    def is_ours(self, message: Mapping[str, object]) -> bool:
        """Whether a message that came from the account itself was sent by us."""
        upstream_id = f"{message.get('chatId') or ''}/{message.get('id') or ''}"
        if upstream_id in self._ids:
            return True
        body = message.get("body")
        content = body.get("content") if isinstance(body, Mapping) else None
        if not isinstance(content, str) or not content:
            return False
        if words(content) in self._pending or ends_with_reference(content):
            self.note(upstream_id)
            return True
        return False


def ends_with_reference(markup: str) -> bool:
    """Whether the last words of a text are the reference of a reply."""
    text = " ".join(html.unescape(_TAG.sub(" ", markup)).replace("\xa0", " ").split())
    return bool(_REFERENCE.search(text))
