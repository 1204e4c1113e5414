"""Decisions about access, which only the person makes, and tokens for other machines."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from harken.clock import Clock
from harken.errors import Forbidden, UserError
from harken.inbox.caller import CHANNELS_ID, Caller
from harken.ingest.intake import PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import fold_id
from harken.model import LOCAL, Message, SenderRule, Trust, fresh_id
from harken.store.contract.people import Mute, PeopleStore
from harken.store.contract.tokens import Token, TokenStore

MUTE_KINDS = ("channel", "sender", "session")
MACHINE = "machine"
TOKEN_KINDS = (MACHINE,)
TOKEN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
LONGEST_TOKEN_SECONDS = 10 * 365 * 86_400.0
_PREFIX = "harken_"  # a fixed prefix, so that secret scanners find it


class Access:
    """Allow, deny, pair and mute. Agents are refused."""

    def __init__(self, people: PeopleStore, policies: PolicyBook, pairings: Pairings, clock: Clock) -> None:
        self._people = people
        self._policies = policies
        self._pairings = pairings
        self._clock = clock

    async def allow(self, caller: Caller, sender: str, *, source: str = "*", as_owner: bool = False) -> SenderRule:
        """Allow a sender to reach sessions, as known or as the owner."""
        if as_owner and source.strip() in self._policies.current().machines:
            raise UserError(
                f"Programs speak through {source.strip()}: their messages never count as yours.",
                "Allow the sender without --as-owner.",
            )
        return await self._decide(caller, "allow senders", sender, source, Trust.OWNER if as_owner else Trust.KNOWN)

    async def deny(self, caller: Caller, sender: str, *, source: str = "*") -> SenderRule:
        """Deny a sender: messages are stored and can be pulled, but interrupt no session."""
        return await self._decide(caller, "deny senders", sender, source, Trust.UNKNOWN)

    def pair(self, caller: Caller) -> tuple[str, datetime]:
        """Create a code that allows the sender who sends it."""
        caller.require_owner("pair senders")
        return self._pairings.begin()

    async def mute(self, caller: Caller, kind: str, name: str, *, seconds: float | None = None) -> Mute:
        """Mute a channel, sender or session, for a while or until unmuted."""
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
        """Whether the person has allowed the unknown sender of a message since it arrived."""
        return message.trust is Trust.UNKNOWN and self._policies.current().trust_of(message) is not Trust.UNKNOWN

    async def decided(self) -> frozenset[tuple[str, str]]:
        """Return the senders about whom the person has decided, each with its source."""
        return frozenset((rule.source, rule.sender) for rule in await self._people.senders())

    async def put_away(self, caller: Caller, keys: Sequence[str], *, is_undone: bool = False) -> None:
        """Hide an entry of *Needs you* until it happens again, or show it again."""
        caller.require_owner("put away what needs you")
        await self._people.put_away(keys, is_on=not is_undone)

    async def put_away_keys(self) -> frozenset[str]:
        """Return the keys of the hidden entries."""
        return await self._people.put_away_keys()

    async def _decide(self, caller: Caller, what: str, sender: str, source: str, trust: Trust) -> SenderRule:
        caller.require_owner(what)
        if not sender.strip():
            raise UserError("Which sender?", "Name the sender's id, as `harken read ID` shows it.")
        if fold_id(sender) == CHANNELS_ID and source.strip() in ("", "*", LOCAL):
            raise UserError(
                f"{CHANNELS_ID!r} is the sender of what you inject, which is always data.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenState:
    """A token as people see it."""

    token: Token
    state: str  # `in force`, `expired` or `revoked`


class Tokens:
    """Creates, lists, revokes and checks tokens. Agents and other machines may only have one checked."""

    def __init__(self, tokens: TokenStore, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._observers: list[Callable[[Token], None]] = []

    def observe(self, revoked: Callable[[Token], None]) -> None:
        """Call `revoked` with each token that ends."""
        self._observers.append(revoked)

    async def make(
        self, caller: Caller, name: str, *, kind: str = MACHINE, seconds: float | None = None
    ) -> tuple[TokenState, str]:
        """Create a token, and return it with its secret, which is not stored."""
        caller.require_owner("make tokens")
        if kind not in TOKEN_KINDS:
            raise UserError(f"There is no kind of token {kind[:40]!r}.", f"Kinds: {', '.join(TOKEN_KINDS)}.")
        if not TOKEN_NAME.fullmatch(name):
            raise UserError(
                f"{name[:40]!r} cannot be the name of a machine.",
                "Use up to 31 small letters, digits and dashes: buildbox",
            )
        now = self._clock.now()
        expires = None if seconds is None else now + timedelta(seconds=min(seconds, LONGEST_TOKEN_SECONDS))
        secret = f"{_PREFIX}{secrets.token_urlsafe(32)}"
        token = Token(id=fresh_id("t-"), name=name, kind=kind, made_at=now, expires_at=expires)
        return self._seen(await self._tokens.add(token, _digest(secret))), secret

    async def list(self, caller: Caller) -> Sequence[TokenState]:
        """Return all tokens, the oldest first."""
        caller.require_owner("look at tokens")
        return [self._seen(each) for each in await self._tokens.list()]

    async def revoke(self, caller: Caller, name: str) -> TokenState:
        """Revoke a token, and close the connections that use it."""
        caller.require_owner("revoke tokens")
        token = await self._tokens.revoke(name)
        for revoked in self._observers:
            revoked(token)
        return self._seen(token)

    async def admit(self, secret: str, kind: str, machine: str, address: str) -> Token:
        """Return the token for a secret that a machine presents from an address; raises `Forbidden`."""
        token = await self._tokens.find(_digest(secret))
        if token is None or token.kind != kind:
            raise Forbidden("This token is not known.", "Check that you copied all of it.")
        return await self._tokens.use(token.id, machine, address)

    def _seen(self, token: Token) -> TokenState:
        has_expired = token.expires_at is not None and token.expires_at <= self._clock.now()
        return TokenState(
            token=token, state="revoked" if token.revoked_at else "expired" if has_expired else "in force"
        )


def _digest(secret: str) -> bytes:
    # The secret has 256 random bits, so a fast hash is enough.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
