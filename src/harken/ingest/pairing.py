"""Pairing: a code made on the person's own machine admits the one sender who sends it.

Codes are held in memory only, last ten minutes, work once, and a few wrong tries end them: an unknown sender can not
guess its way in. A message can never change access by anything else it says. In a chat the code is the whole message.
In a mail it stands in the subject or in the first lines, above everything that is quoted: mail programs add greetings
and signatures. A sender that no source vouches for, and a machine that answers by itself, are refused, and the person
is told.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.model import NewMessage, SenderRule, Trust, fresh_id

LIFETIME = timedelta(minutes=10)
MAX_TRIES = 5
MAX_CODES = 3
MAX_REFUSALS = 5
FIRST_LINES: Final = 10  # of a mail, with its subject, without empty ones
LINE_CHARS: Final = 300

_PREFIX: Final = "pair-"
_LETTERS: Final = 8
_MAIL: Final = "email"  # the channel of every source of mail
_CODE: Final = re.compile(rf"(?<![\w-]){_PREFIX}[0-9a-z]{{{_LETTERS}}}(?![\w-])")
# Where the mail that is answered or forwarded begins: quoted, or under a line or a head of its own.
_EARLIER: Final = re.compile(
    r">|[-_=*]{5}|\W{0,3}(?:from|von|de|da|van|från|fra|od)\W{0,3}:|begin forwarded message",
    re.IGNORECASE,
)
# How the ids begin, or are, that sources give to whom nobody vouches for: anybody can have them.
_UNVERIFIED: Final = "unverified:"
_NOBODY: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPairing:
    """A sender of a code that is open, who was not admitted."""

    source: str
    sender: str
    reason: str
    at: datetime


@dataclass(slots=True)
class _PairingCode:
    text: str
    until: datetime
    tries_left: int = MAX_TRIES


class Pairings:
    """The codes that are open now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: list[_PairingCode] = []
        self._refused: tuple[RefusedPairing, ...] = ()
        self._used: dict[SenderRule, _PairingCode] = {}  # for rules that are not stored yet

    @property
    def refused(self) -> Sequence[RefusedPairing]:
        """Who sent a code that was open and was not admitted, the newest last."""
        return self._refused

    def begin(self) -> tuple[str, datetime]:
        """Make a code; the oldest goes when there are too many."""
        code = _PairingCode(fresh_id(_PREFIX, _LETTERS), self._clock.now() + LIFETIME)
        self._open = [*self._open, code][-MAX_CODES:]
        return code.text, code.until

    def redeem(self, message: NewMessage) -> SenderRule | None:
        """Return the rule that admits the sender of a message that says an open code. What becomes of it: `settle`."""
        now = self._clock.now()
        self._open = [code for code in self._open if code.until > now and code.tries_left > 0]
        if not self._open:
            return None
        reason = _why_not(message)
        for said in codes_in(message):
            if reason:
                # No try is counted: none of theirs can succeed, and anybody could use up those of others.
                if any(hmac.compare_digest(code.text.encode(), said.encode()) for code in self._open):
                    self._refuse(message, reason, now)
                continue
            if (code := self._take(said)) is not None:
                rule = SenderRule(message.source, message.sender.id, Trust.KNOWN)
                self._used[rule] = code
                return rule
        return None

    def settle(self, rule: SenderRule, *, is_stored: bool) -> None:
        """Let the code of a rule be used up, or be open again when no sender could be admitted by it."""
        code = self._used.pop(rule, None)
        if code is not None and not is_stored:
            self._open = [*self._open, code][-MAX_CODES:]

    def _take(self, said: str) -> _PairingCode | None:
        """Use up the code that is said, and return it; to all others it was a try."""
        for code in [code for code in self._open if code.tries_left > 0]:
            if hmac.compare_digest(code.text.encode(), said.encode()):
                self._open.remove(code)
                return code
            code.tries_left -= 1
        return None

    def _refuse(self, message: NewMessage, reason: str, now: datetime) -> None:
        refusal = RefusedPairing(source=message.source, sender=message.sender.id, reason=reason, at=now)
        others = [each for each in self._refused if (each.source, each.sender) != (refusal.source, refusal.sender)]
        self._refused = (*others, refusal)[-MAX_REFUSALS:]


def codes_in(message: NewMessage) -> Sequence[str]:
    """Return what may be a code in a message, as codes are written; no more than a sender may try."""
    if message.channel == _MAIL:
        found = (code for line in _opening(message.text) for code in _CODE.findall(line.lower()))
        return list(dict.fromkeys(found))[:MAX_TRIES]
    said = message.text.strip().lower()
    return [said] if said.startswith(_PREFIX) else []


def _opening(text: str) -> Iterator[str]:
    """Yield the first lines of a mail that its sender wrote, the subject first."""
    count = 0
    for line in map(str.strip, text.splitlines()):
        if _EARLIER.match(line) or count == FIRST_LINES:
            return
        # What is in brackets, Harken says of the mail, with names of files and addresses in it.
        if line and not line.startswith("["):
            count += 1
            yield line[:LINE_CHARS]


def _why_not(message: NewMessage) -> str:
    """Return why the sender of a message cannot be admitted by a code; empty if they can."""
    if message.sender.id.startswith(_UNVERIFIED) or message.sender.id == _NOBODY:
        return "nobody vouches for the sender"
    if message.channel == _MAIL and message.meta.get("automatic"):
        return "a machine sent it"
    return ""
