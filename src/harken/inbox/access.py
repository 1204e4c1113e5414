"""Who may reach what: the person's decisions, made only by the person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from harken.clock import Clock
from harken.errors import UserError
from harken.inbox.caller import CHANNELS_ID, Caller
from harken.ingest.intake import PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import fold_id
from harken.model import LOCAL, Message, SenderRule, Trust
from harken.store.contract.people import Mute, PeopleStore

MUTE_KINDS = ("channel", "sender", "session")


class Access:
    """Allow, deny, pair and mute. Agents are refused."""

    def __init__(self, people: PeopleStore, policies: PolicyBook, pairings: Pairings, clock: Clock) -> None:
        self._people = people
        self._policies = policies
        self._pairings = pairings
        self._clock = clock

    async def allow(self, caller: Caller, sender: str, *, source: str = "*", as_owner: bool = False) -> SenderRule:
        """Let a sender reach sessions: as someone known, or as the owner."""
        return await self._decide(caller, "allow senders", sender, source, Trust.OWNER if as_owner else Trust.KNOWN)

    async def deny(self, caller: Caller, sender: str, *, source: str = "*") -> SenderRule:
        """Let a sender only be counted: stored and pullable, never pushing."""
        return await self._decide(caller, "deny senders", sender, source, Trust.UNKNOWN)

    def pair(self, caller: Caller) -> tuple[str, datetime]:
        """Make a code that admits the one sender who sends it."""
        caller.require_owner("pair senders")
        return self._pairings.begin()

    async def mute(self, caller: Caller, kind: str, name: str, *, seconds: float | None = None) -> Mute:
        """Keep a channel, sender or session from being pushed to, for a while or until unmuted."""
        mute = self._mute(caller, kind, name, seconds)
        await self._people.set_mute(mute, is_on=True)
        await self._policies.refresh()
        return mute

    async def unmute(self, caller: Caller, kind: str, name: str) -> Mute:
        """End a mute."""
        mute = self._mute(caller, kind, name, None)
        await self._people.set_mute(mute, is_on=False)
        await self._policies.refresh()
        return mute

    def is_allowed_since(self, message: Message) -> bool:
        """Whether the person has let in the unknown sender of a message since it came."""
        return message.trust is Trust.UNKNOWN and self._policies.current().trust_of(message) is not Trust.UNKNOWN

    async def decided(self) -> frozenset[tuple[str, str]]:
        """Return the senders about whom the person has decided, with the source that is about."""
        return frozenset((rule.source, rule.sender) for rule in await self._people.senders())

    async def put_away(self, caller: Caller, keys: Sequence[str], *, is_undone: bool = False) -> None:
        """Put away what needs the person, for this occasion; or show it again."""
        caller.require_owner("put away what needs you")
        await self._people.put_away(keys, is_on=not is_undone)

    async def put_away_keys(self) -> frozenset[str]:
        """Return what was put away."""
        return await self._people.put_away_keys()

    async def _decide(self, caller: Caller, what: str, sender: str, source: str, trust: Trust) -> SenderRule:
        caller.require_owner(what)
        if not sender.strip():
            raise UserError("Which sender?", "Name the sender's id, as `harken read ID` shows it.")
        if fold_id(sender) == CHANNELS_ID and source.strip() in ("", "*", LOCAL):
            raise UserError(
                f"{CHANNELS_ID!r} is who says what you inject: it is always data.",
                "Allow or deny the source it is from.",
            )
        rule = SenderRule(source.strip() or "*", fold_id(sender), trust)
        await self._people.set_sender(rule)
        await self._policies.refresh()
        return rule

    def _mute(self, caller: Caller, kind: str, name: str, seconds: float | None) -> Mute:
        caller.require_owner("mute or unmute")
        if kind not in MUTE_KINDS:
            raise UserError(f"{kind[:40]!r} cannot be muted.", f"Mute one of: {', '.join(MUTE_KINDS)}.")
        if not name.strip():
            raise UserError(f"Which {kind}?", f"Name it: harken mute {kind} NAME")
        until = None if seconds is None else self._clock.now() + timedelta(seconds=seconds)
        return Mute(kind, name.strip(), until)
