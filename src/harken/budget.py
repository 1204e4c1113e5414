"""How much of what waits goes into one result: what the host shows its model decides. Pure.

A host cuts a long result, or shows its model the beginning only; and what the model did not get must not count as
handed over. So the choice comes before the offer: whole messages up to a budget of bytes, then the first words of
others. Sizes are those of the JSON that is really written, so that no text is longer than it was taken for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harken import render
from harken.errors import UserError
from harken.memory import json_bytes
from harken.model import DeliveryId, Message, Offer, Selection
from harken.render import Piece

MAX_LINE: Final = 16 * 1024 * 1024  # bytes of one line over the daemon's socket
LISTING_PART: Final = 4  # of the budget, this part at most is for what is cut
FRAME_BYTES: Final = 640  # what stands around the messages: the JSON that holds them, and the text behind it
LINE_BYTES: Final = 12  # what a line end counts for: opencode shows 2,000 lines, and 30,000 bytes of ours have less
ESCAPE_BYTES: Final = 12  # what a letter takes that is not plainly visible
FIELD_BYTES: Final = 10  # what a field takes on a line of its own

Rendering = Callable[[Offer], object]


def encoded_bytes(entry: object) -> int:
    """Return how many bytes an entry of a list takes, with what separates it from the next."""
    return len(json_bytes(entry)) + 1


def printed_bytes(entry: object) -> int:
    """Return how many bytes an entry takes at most that a command prints, as JSON or as text.

    On a terminal lines are wrapped and indented, and what is not plainly visible is written as an escape. Some hosts
    count lines too: each counts for as much as a short one has.
    """
    encoded = json_bytes(entry)
    hidden = sum(not letter.isprintable() for letter in encoded.decode())
    fields = encoded.count(b',"') + 2
    return len(encoded) * 11 // 10 + LINE_BYTES * encoded.count(b"\\n") + ESCAPE_BYTES * hidden + FIELD_BYTES * fields


@dataclass(frozen=True, slots=True)
class ResultBudget:
    """How many bytes a result may have, and how a message looks in it, whole and cut."""

    max_bytes: int
    whole: Rendering
    cut: Rendering
    size: Callable[[object], int] = encoded_bytes

    def __call__(self, offers: Sequence[Offer], limit: int) -> Selection:
        """Return what goes into one result, in the given order.

        What is too long for any result is skipped, and listed; what only does not fit any more waits for the next one,
        and so does all behind it. Where there is room, the first words of that are listed too.
        """
        room, listing = self.max_bytes - FRAME_BYTES, self.max_bytes // LISTING_PART
        sizes = [self._size(offer, room) for offer in offers]
        # Beside a list of long ones less fits. Else what fits only alone would wait for as long as they do.
        longest = room - listing if max(sizes, default=0) > room else room
        too_long = [offer for offer, size in zip(offers, sizes, strict=True) if size > longest]
        cut = list(self._listed(too_long, listing))
        used = listed = sum(size for _, size in cut)
        whole: list[Offer] = []
        later: list[Offer] = []
        for offer, size in zip(offers, sizes, strict=True):
            if size > longest or len(whole) == limit:
                continue
            if later or used + size > room:
                later.append(offer)
            else:
                whole.append(offer)
                used += size
        cut += self._listed(later, min(listing - listed, room - used))
        if too_long and not whole and not cut:
            # Its header alone is more than a list may have. It must be heard of all the same.
            cut += self._listed(too_long[:1], room)
        return Selection(
            whole=whole,
            cut=_in_order([offer for offer, _ in cut], offers),
            too_long=frozenset(offer.message.id for offer in too_long),
            is_full=bool(later),
        )

    def _size(self, offer: Offer, room: int) -> int:
        """Return how many bytes a message takes whole; of one that is far too long at least so many."""
        # No character takes less than a byte: a text that is too long for that need not be encoded to know it.
        length = len(offer.message.text)
        return length if length > room else self.size(self.whole(offer))

    def _listed(self, offers: Sequence[Offer], room: int) -> Iterator[tuple[Offer, int]]:
        """Yield, with its size, each that fits into a list, those before it considered."""
        for offer in offers:
            unproven = replace(offer, delivery_id=DeliveryId(""))
            size = self.size(self.cut(unproven))
            if size <= room:
                room -= size
                yield unproven, size


def longest_piece(
    message: Message,
    start: int,
    max_bytes: int,
    around: Callable[[Piece], object],
    size: Callable[[object], int] = encoded_bytes,
) -> Piece:
    """Return the longest piece of a text, from a character on, that fits with what is `around` it; one at least."""
    # No character takes less than a byte.
    end = piece_of(message, start, start + max_bytes).end
    ends, room = range(start + 1, end + 1), max_bytes - FRAME_BYTES
    fitting = bisect_right(ends, room, key=lambda end: size(around(piece_of(message, start, end))))
    return piece_of(message, start, ends[max(0, fitting - 1)])


def piece_of(message: Message, start: int, end: int) -> Piece:
    """Return a piece of a text; raises `UserError` where the text has no such character."""
    length = len(message.text)
    if not 0 <= start < length:
        raise UserError(f"The text of {message.id} has {length} characters.", f"Give an offset below {length}.")
    return Piece(message=message, start=start, end=min(end, length))


def newest_that_fit(unread: int, newest: Sequence[Message], max_bytes: int) -> Mapping[str, object]:
    """Return the state of an inbox with the headers of the newest, as many as there is room for."""
    state = render.inbox_state(unread, newest)
    return state if encoded_bytes(state) <= max_bytes or not newest else newest_that_fit(unread, newest[1:], max_bytes)


def _in_order(cut: Sequence[Offer], offers: Sequence[Offer]) -> Sequence[Offer]:
    place = {offer.message.id: number for number, offer in enumerate(offers)}
    return sorted(cut, key=lambda offer: place[offer.message.id])
