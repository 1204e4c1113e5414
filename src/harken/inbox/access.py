"""Decisions about access, which only the person makes, and tokens for programs and other machines."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from types import MappingProxyType

from harken.clock import Clock
from harken.errors import Forbidden, UserError
from harken.inbox.caller import CHANNELS_ID, EVERY_MAILBOX, Caller, Grant, Role, is_within
from harken.ingest.intake import PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import ANYONE, fold_id
from harken.ingest.prepare import MAX_SENDER_ID, check_mailbox
from harken.model import (
    INBOX,
    LOCAL,
    NOT_AGENTS,
    OWNER_ID,
    PROGRAM,
    TASK,
    WATCH,
    Consumer,
    Mailbox,
    Message,
    Sender,
    SenderRule,
    TaskId,
    Trust,
    fresh_id,
)
from harken.store.contract.people import Mute, PeopleStore
from harken.store.contract.tokens import Token, TokenScope, TokenStore

MUTE_KINDS = ("channel", "sender", "session")
AGENT_TOKEN, SENDER, MACHINE, PHONE = "agent", "sender", "machine", "phone"
TOKEN_KINDS = (AGENT_TOKEN, SENDER, MACHINE, PHONE)
TOKEN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
CONSUMER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
LONGEST_TOKEN_SECONDS = 10 * 365 * 86_400.0
IN_FORCE = "in force"
REREAD_AFTER = timedelta(seconds=5)  # another daemon of the store may have revoked it, and could not say so
NOTE_EVERY = timedelta(minutes=1)
MAX_KNOWN = 10_000
_MOMENT_SECONDS = 0.05
_GRANTS = frozenset({Grant.READ, Grant.SEND, Grant.REPLY, Grant.APPROVE})
_USUAL_GRANTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        AGENT_TOKEN: frozenset({Grant.READ, Grant.SEND, Grant.REPLY}),
        SENDER: frozenset({Grant.SEND}),
        PHONE: frozenset({Grant.READ, Grant.REPLY}),
    }
)
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
        if as_owner and sender.strip() == ANYONE:
            raise UserError("Not everyone can speak for you.", "Name one sender's id, as `harken read ID` shows it.")
        if as_owner and source.strip() in self._policies.current().machines:
            raise UserError(
                f"Programs speak through {source.strip()}: their messages never count as yours.",
                "Allow the sender without --as-owner.",
            )
        return await self._decide(caller, "allow senders", sender, source, Trust.OWNER if as_owner else Trust.KNOWN)

    async def deny(self, caller: Caller, sender: str, *, source: str = "*") -> SenderRule:
        """Deny a sender: messages are stored and can be pulled, but interrupt no session."""
        return await self._decide(caller, "deny senders", sender, source, Trust.UNKNOWN)

    async def take_back(self, caller: Caller, sender: str, *, source: str = "*") -> tuple[str, str]:
        """Take a decision back, so that the configuration decides; return its source and sender. Idempotent."""
        caller.require_owner("take back what you decided")
        named = _named(sender, source)
        await self._people.forget_sender(*named)
        await self._policies.refresh()
        return named

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

    def is_muted(self, kind: str, name: str) -> bool:
        """Whether a channel, sender or session is muted now."""
        return (kind, name) in {(mute.kind, mute.name) for mute in self._policies.mutes(self._clock.now())}

    def is_allowed_since(self, message: Message) -> bool:
        """Whether the person has allowed the unknown sender of a message since it arrived."""
        return message.trust is Trust.UNKNOWN and self._policies.current().trust_of(message) is not Trust.UNKNOWN

    async def decision(self, message: Message) -> Trust | None:
        """Return what the person has decided about the sender of a message at its source, None for nothing."""
        named = (message.source, fold_id(message.sender.id))
        found = (rule.trust for rule in await self._people.senders() if (rule.source, rule.sender) == named)
        return next(found, None)

    async def undecided(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of unknown senders that the person has not decided about."""
        decided = {(rule.source, rule.sender) for rule in await self._people.senders()}
        return [
            each
            for each in messages
            if each.trust is Trust.UNKNOWN
            and decided.isdisjoint(product((each.source, ANYONE), (fold_id(each.sender.id), ANYONE)))
        ]

    async def put_away(self, caller: Caller, keys: Sequence[str], *, is_undone: bool = False) -> None:
        """Hide an entry of *Needs you* until it happens again, or show it again."""
        caller.require_owner("put away what needs you")
        await self._people.put_away(keys, is_on=not is_undone)

    async def put_away_keys(self) -> frozenset[str]:
        """Return the keys of the hidden entries."""
        return await self._people.put_away_keys()

    async def _decide(self, caller: Caller, what: str, sender: str, source: str, trust: Trust) -> SenderRule:
        caller.require_owner(what)
        named = _named(sender, source)
        if fold_id(sender) == CHANNELS_ID and source.strip() in ("", "*", LOCAL):
            raise UserError(
                f"{CHANNELS_ID!r} is the sender of what you inject, which is always data.",
                "Allow or deny the source it is from.",
            )
        before, colon, rest = sender.strip().partition(":")
        if colon and source.strip() in ("", ANYONE) and before in self._policies.current().default_trust:
            raise UserError(
                f"{before} is a source, and no sender's id begins with its name.",
                f"Name the two apart: {rest} --source {before}",
            )
        rule = SenderRule(*named, trust)
        await self._people.set_sender(rule)
        await self._policies.refresh()
        return rule

    def _mute(self, caller: Caller, kind: str, name: str, seconds: float | None) -> Mute:
        caller.require_owner("mute or unmute")
        if kind not in MUTE_KINDS:
            raise UserError(f"{kind[:40]!r} cannot be muted.", f"Mute one of: {', '.join(MUTE_KINDS)}.")
        if not name.strip():
            raise UserError(f"Which {kind}?", f"Name it: harken mute {kind} NAME")
        if len(name) > MAX_SENDER_ID:
            raise UserError(f"No {kind} has a name of {len(name):,} characters.", "Take it from `harken read ID`.")
        until = None if seconds is None else self._clock.now() + timedelta(seconds=seconds)
        return Mute(kind, name.strip(), until)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenState:
    """A token as people see it."""

    token: Token
    state: str  # `in force`, `expired` or `revoked`


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedMachine:
    """A satellite that is here now."""

    version: str
    address: str
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What a token is asked for. Empty fields are as usual for its kind."""

    name: str
    kind: str = AGENT_TOKEN
    may: Sequence[str] = ()
    mailboxes: Sequence[str] = ()
    task: TaskId | None = None
    consumer: str = ""
    trust: str = ""
    subject: str = ""  # whom the configured issuer calls its holder: nothing secret is made
    seconds: float | None = None


def scope_of(asked: TokenRequest, verbs: Collection[str]) -> TokenScope | None:
    """Return the scope that is asked for, or raise what is wrong with it. `verbs` are those that only you may do."""
    if asked.kind == MACHINE:
        if asked.may or asked.mailboxes or asked.task or asked.consumer or asked.trust:
            raise UserError("A machine's token has no scope.", "Its agents and commands say who they are, as here.")
        return None
    may = frozenset(asked.may) or _USUAL_GRANTS[asked.kind]
    if unknown := sorted(may - _GRANTS - frozenset(verbs)):
        raise UserError(
            f"There is nothing called {unknown[0][:40]!r} that a token may do.",
            f"Use {', '.join(sorted(_GRANTS))}, or the name of a verb that only you may do.",
        )
    if asked.kind == SENDER and may != _USUAL_GRANTS[SENDER]:
        raise UserError("A sender's token may only send.", "Leave out --may, or make it for an agent: --kind agent")
    return TokenScope(
        may=may,
        mailboxes=_scope_mailboxes(asked, may, verbs),
        consumer=_scope_consumer(asked),
        trust=_scope_trust(asked),
    )


def _scope_mailboxes(asked: TokenRequest, may: frozenset[str], verbs: Collection[str]) -> tuple[Mailbox, ...]:
    if asked.task is not None:
        if asked.mailboxes or asked.kind != AGENT_TOKEN:
            raise UserError("A task's agent reads the task's mailbox alone.", "Leave out --mailbox and --kind.")
        found: tuple[Mailbox, ...] = (Mailbox(f"{TASK}{asked.task}"),)
    else:
        named = dict.fromkeys(asked.mailboxes or [INBOX])
        found = tuple(EVERY_MAILBOX if each == EVERY_MAILBOX else check_mailbox(each) for each in named)
    own = sorted(may.intersection(verbs) - _GRANTS)
    if own and EVERY_MAILBOX not in found:
        raise UserError(f"{own[0]!r} is about every mailbox.", "Name it with --mailbox '*', or leave it out.")
    return found


def _scope_consumer(asked: TokenRequest) -> Consumer:
    if asked.task is not None:
        return Consumer(f"{TASK}{asked.task}")
    if asked.kind == PHONE:
        return WATCH
    name = asked.consumer or asked.name
    if not CONSUMER.fullmatch(name) or name in NOT_AGENTS:
        raise UserError(f"{name[:40]!r} cannot be a consumer.", "Use small letters, digits, dots and dashes.")
    return Consumer(name)


def _scope_trust(asked: TokenRequest) -> Trust | None:
    if asked.kind != SENDER:
        if asked.trust:
            raise UserError("Only a sender's token has a trust.", "Add --kind sender, or leave out --trust.")
        return None
    try:
        return Trust(asked.trust or Trust.KNOWN)
    except ValueError as exc:
        raise UserError(f"There is no trust {asked.trust[:40]!r}.", "Use known, unknown or owner.") from exc


def holder_of(token: Token) -> Caller:
    """Return the caller that comes with a token."""
    if token.scope is None:
        raise Forbidden("This token is for another machine's Harken.", "Make one: harken token new NAME")
    said_by = {SENDER: Sender(f"{PROGRAM}{token.name}", token.name), PHONE: Caller(role=Role.OWNER).sender}
    return Caller(
        role=Role.AGENT,
        consumer=token.scope.consumer,
        holder=token.name,
        scope=token.scope,
        said_by=said_by.get(token.kind),
    )


@dataclass(slots=True)
class _KnownToken:
    """A token that came lately: what it is, when that was read, and which use was noted last."""

    token: Token
    read_at: datetime
    noted: tuple[str, datetime] | None = None


class Tokens:
    """Creates, lists, revokes and checks tokens. Agents and other machines may only have one checked.

    `verbs` are those that only you may do: a token may name them. `issuer` vouches for the subjects of others.
    """

    def __init__(
        self,
        tokens: TokenStore,
        policies: PolicyBook,
        clock: Clock,
        *,
        verbs: Collection[str] = frozenset(),
        issuer: str = "",
    ) -> None:
        self._tokens = tokens
        self._policies = policies
        self._clock = clock
        self._verbs = verbs
        self._issuer = issuer
        self._known: dict[bytes, _KnownToken] = {}
        self._linked: set[str] = set()  # the tokens of machines that were here
        self._machines: dict[bytes, str] = {}  # the hashes of their secrets, and which tokens these are
        self._ends = 0  # how many have ended here
        self._observers: list[Callable[[Token], None]] = []

    def observe(self, revoked: Callable[[Token], None]) -> None:
        """Call `revoked` with each token that ends."""
        self._observers.append(revoked)

    def check(self, caller: Caller, asked: TokenRequest) -> TokenScope | None:
        """Return the scope of a token that is asked for; raises what is wrong with it."""
        caller.require_home("make tokens")
        if asked.kind not in TOKEN_KINDS:
            raise UserError(f"There is no kind of token {asked.kind[:40]!r}.", f"Kinds: {', '.join(TOKEN_KINDS)}.")
        if not TOKEN_NAME.fullmatch(asked.name):
            raise UserError(
                f"{asked.name[:40]!r} cannot be the name of a token.",
                "Use up to 31 small letters, digits and dashes: buildbox",
            )
        scope = scope_of(asked, self._verbs)
        if caller.scope is not None:
            speaks_for_you = asked.kind == PHONE and caller.sender.id != OWNER_ID
            if scope is None or not is_within(scope, caller.scope) or scope.trust or speaks_for_you:
                raise caller.refusal("make a token that may do more than itself")
        return scope

    async def make(self, caller: Caller, asked: TokenRequest, *, secret: str = "") -> tuple[TokenState, str]:
        """Create a token, and return it with its secret, which is not stored: `secret`, or a new one."""
        scope = self.check(caller, asked)
        now, seconds = self._clock.now(), asked.seconds
        expires = None if seconds is None else now + timedelta(seconds=min(seconds, LONGEST_TOKEN_SECONDS))
        if caller.scope is not None:
            expires = min((each for each in (expires, await self._end_of(caller)) if each is not None), default=None)
        if asked.subject and not self._issuer:
            raise UserError("No issuer vouches for subjects.", "Set http.issuer in config.toml.")
        if asked.subject and scope is None:
            raise UserError("A machine's token has no subject.", "Leave out --subject.")
        secret = "" if asked.subject else secret or f"{_PREFIX}{secrets.token_urlsafe(32)}"
        digest = _digest(self.secret_of(asked.subject) if asked.subject else secret)
        token = Token(id=fresh_id("t-"), name=asked.name, kind=asked.kind, made_at=now, expires_at=expires, scope=scope)
        stored = await self._tokens.add(token, digest)
        await self._policies.refresh()
        return self._seen(stored), secret

    def secret_of(self, subject: str) -> str:
        """Return what stands for a subject that the issuer vouches for. No header can carry it."""
        return f"{self._issuer}\n{subject}"

    async def list(self, caller: Caller) -> Sequence[TokenState]:
        """Return all tokens, the oldest first."""
        caller.require_owner("look at tokens")
        return [self._seen(each) for each in await self._tokens.list()]

    async def _end_of(self, caller: Caller) -> datetime | None:
        """Return when the token of a caller ends."""
        named = [each for each in await self._tokens.list() if each.name == caller.holder]
        return next((each.expires_at for each in named if self._seen(each).state == IN_FORCE), self._clock.now())

    async def revoke(self, caller: Caller, name: str) -> TokenState:
        """Revoke a token, and close the connections that use it."""
        caller.require_home("revoke tokens")
        token = await self._tokens.revoke(name)
        self._end(token)
        return self._seen(token)

    async def admit(self, secret: str, kind: str, machine: str, address: str) -> Token:
        """Return the token for a secret that a machine presents from an address; raises `Forbidden`."""
        digest = _digest(secret)
        token = await self._tokens.find(digest)
        if token is None or token.kind != kind:
            raise _unknown()
        used = await self._tokens.use(token.id, machine, address)
        if len(self._machines) >= MAX_KNOWN:
            self._machines.clear()
        self._machines[digest] = used.id
        return used

    async def note_use(self, token: Token, address: str) -> None:
        """Note that the machine of a token is still here; raises `Forbidden` when it is not in force any more."""
        self._linked.add(token.id)
        try:
            await self._tokens.use(token.id, token.bound_to, address)
        except Forbidden:
            self._linked.discard(token.id)
            raise

    async def hold(self, secret: str, address: str) -> Token:
        """Return the token in force for a secret that a program presents from an address; raises `Forbidden`.

        Its use is noted once a minute, or when it comes from elsewhere.
        """
        digest = _digest(secret)
        while True:
            ends, token = self._ends, await self._held(digest, address)
            if ends == self._ends:
                return token
            # What was read may be older than what has ended meanwhile.
            self._known.pop(digest, None)

    async def _held(self, digest: bytes, address: str) -> Token:
        now, known = self._clock.now(), self._known.get(digest)
        if known is None or known.read_at + REREAD_AFTER <= now:
            found = await self._tokens.find(digest)
            if found is None or found.scope is None:
                raise _unknown()
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[digest] = _KnownToken(found, now, known.noted if known else None)
        if self._seen(known.token).state != IN_FORCE or not _was_noted(known, address, now):
            # A token that has ended is refused there, and is known no more.
            self._known.pop(digest, None)
            known.token = await self._tokens.use(known.token.id, "", address)
            known.noted = (address, now)
            self._known[digest] = known
        return known.token

    async def known(self, secret: str) -> Token | None:
        """Return the token with a secret, whatever became of it."""
        return await self._tokens.find(_digest(secret))

    async def holder(self, secret: str) -> Caller | None:
        """Return who comes with a secret, as long as its token is in force. It is no use of the token."""
        token = await self.known(secret)
        return holder_of(token) if token is not None and self._seen(token).state == IN_FORCE else None

    def is_known(self, secret: str) -> bool:
        """Whether a secret was that of a token a moment ago, or of a machine. Costs next to nothing."""
        digest = _digest(secret)
        return digest in self._known or digest in self._machines

    def is_in_force(self, token: Token) -> bool:
        """Whether a token that was held is still good, as far as this daemon knows."""
        ended = token.expires_at is not None and token.expires_at <= self._clock.now()
        return not ended and any(each.token.id == token.id for each in self._known.values())

    def seconds_left(self, token: Token) -> float:
        """Return how long a token is good for, at least a moment; infinite for one without an end."""
        if token.expires_at is None:
            return math.inf
        return max(_MOMENT_SECONDS, (token.expires_at - self._clock.now()).total_seconds())

    async def look_again(self) -> None:
        """Find out which of the tokens that are held or linked here were revoked by another daemon."""
        held = self._linked.union(each.token.id for each in self._known.values())
        for token in await self._tokens.list() if held else ():
            if token.id in held and token.revoked_at is not None:
                self._end(token)

    def _end(self, token: Token) -> None:
        self._ends += 1
        self._linked.discard(token.id)
        self._known = {digest: each for digest, each in self._known.items() if each.token.id != token.id}
        self._machines = {digest: each for digest, each in self._machines.items() if each != token.id}
        for revoked in self._observers:
            revoked(token)

    def _seen(self, token: Token) -> TokenState:
        has_expired = token.expires_at is not None and token.expires_at <= self._clock.now()
        return TokenState(token=token, state="revoked" if token.revoked_at else "expired" if has_expired else IN_FORCE)


def _was_noted(known: _KnownToken, address: str, now: datetime) -> bool:
    return known.noted is not None and known.noted[0] == address and now < known.noted[1] + NOTE_EVERY


def _unknown() -> Forbidden:
    return Forbidden("This token is not known.", "Check that you copied all of it.")


def _named(sender: str, source: str) -> tuple[str, str]:
    """Return the source and the sender as a decision about them is stored."""
    if not sender.strip():
        raise UserError("Which sender?", "Name the sender's id, as `harken read ID` shows it.")
    return source.strip() or ANYONE, fold_id(sender)


def _digest(secret: str) -> bytes:
    # The secret has 256 random bits, so a fast hash is enough.
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
