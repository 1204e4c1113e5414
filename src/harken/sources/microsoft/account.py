"""One account at Microsoft: how it signs in, the client of Graph, and the source that is followed while signed in.

What is followed knows nothing of signing in: it raises `NeedsPerson`, and is followed again from where it was as soon
as the person has acted. A sign-in by a command is seen within seconds, because it changes the cache's stamp. Imported
only when it is needed: what signs in takes long to import. Above are `teams` and `outlook`; below are the client, the
sign-in of a person and the notifications.

`AgentUser` gets tokens with no person in between: the blueprint's certificate signs an assertion, which gets a token
for the agent identity (1); with it the agent identity gets one of its own (2); with both it gets the user's token for
Graph (3). The claims are exactly those that Microsoft documents. Nothing is kept on disk: the certificate is enough to
begin again.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

import anyio
import jwt
from anyio import to_thread
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, UserError
from harken.model import Draft, timestamp
from harken.sources.check import CheckContext, CheckReport, ask_once, sentence
from harken.sources.feed import worst_of
from harken.sources.http import CachedToken, TokenHolder, held_until, seconds_of
from harken.sources.microsoft import sign_in_service as refusals
from harken.sources.microsoft.client import GraphClient, MeetsClaims
from harken.sources.microsoft.notifications import ChangeTopic, Subscriptions, with_notices
from harken.sources.microsoft.sent import SentMessages
from harken.sources.microsoft.settings import GRAPH_SCOPE, AgentUserSettings, GraphSettings
from harken.sources.microsoft.sign_in import (
    CodePrompt,
    DelegatedSignIn,
    SignedInPerson,
    SignInRecord,
    SignInStatus,
    TokenCache,
    claims_of,
    person_of,
)
from harken.sources.microsoft.sign_in_service import SignInService, surprise
from harken.sources.source import (
    Batch,
    Door,
    Feed,
    NamedSource,
    PlaceholderWriter,
    ReplySender,
    SignInResult,
    Source,
    SourceEntry,
    SourceHealth,
    SourceState,
)

FOLDER: Final = "sign-ins"  # in Harken's folder
LOOK_SECONDS: Final = 1.0
TOLD: Final = "told by Microsoft at once"
LOOKS_AT_STAMP: Final = 3  # somebody may sign in while it is looked who has
LOOKS: Final = 300  # then it is tried anyway: consent is given elsewhere, and nobody tells us

_AnySettings = TypeVar("_AnySettings", bound=GraphSettings)

MAX_CHARS: Final = 200

ASSERTION_LIFE: Final = timedelta(seconds=600)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
EXCHANGE_SCOPE: Final = "api://AzureADTokenExchange/.default"
WARNING: Final = timedelta(days=14)  # before the certificate ends

_log = logging.getLogger("harken.sources.microsoft")


class AccountFeed(Feed, Protocol):
    """A stream of an account, which says how it is doing."""

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        ...


class TokenProvider(Protocol):
    """Who gets tokens: a person's sign-in or an Agent User's."""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token; raises `NeedsPerson` and `Unavailable`."""
        ...

    async def standing(self) -> SignInStatus:
        """Return who is signed in, and what a person must do."""
        ...


@dataclass(slots=True, kw_only=True)
class AccountSignIn:
    """Whether an account is signed in, as last seen. `stamp` changes whenever what is stored of it does."""

    tokens: TokenProvider
    stamp: Callable[[], int] = lambda: 0
    user_id: str = ""  # known without asking, of an Agent User
    person: SignedInPerson = field(default_factory=SignedInPerson)
    action: str = ""
    looked_at: int | None = None  # the stamp at the last look
    begun_at: datetime | None = None
    learned: tuple[datetime | None, str] = (None, "")  # whose sign-in it is that began then, where its token is silent

    @property
    def title(self) -> str:
        """The account that is signed in, for people; empty: none, as far as is known."""
        return self.person.title if self.person != SignedInPerson() else ""

    def me(self) -> str:
        """Return the id of who is signed in, empty if that is not known."""
        learned = self.learned[1] if self.learned[0] == self.begun_at else ""
        return self.person.user_id or self.user_id or learned

    def since(self) -> datetime | None:
        """Return when they signed in, by Microsoft's clock; None if that is not known yet."""
        return self.begun_at

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token, and learn the account: another one may have signed in meanwhile."""
        token = await self.tokens.token(is_fresh=is_fresh)
        for _ in range(LOOKS_AT_STAMP):
            is_known = self.looked_at is None or (self.looked_at == self.stamp() and self.begun_at is not None)
            if is_known:
                break
            before = self.stamp()
            await self.look()
            # A token from before the look could be another person's.
            token = await self.tokens.token()
            if before == self.stamp():
                break
        return token

    async def learn(self, client: GraphClient) -> None:
        """Ask Microsoft who is signed in, where the sign-in did not say; raises what asking raises."""
        if not self.me():
            begun_at = self.begun_at
            user_id = (await client.get("/me", {"$select": "id"})).get("id")
            self.learned = (begun_at, user_id if isinstance(user_id, str) else "")

    async def meet(self, claims: str) -> str:
        """Return a new token that has what Graph asks for, as far as who signs in knows how."""
        return await (self.tokens.meet(claims) if isinstance(self.tokens, MeetsClaims) else self.token(is_fresh=True))

    async def look(self) -> bool:
        """Return whether an account is signed in."""
        self.looked_at = self.stamp()
        try:
            standing = await self.tokens.standing()
        except HarkenError as exc:
            # Such as a keyring that is locked.
            self.action = exc.action if isinstance(exc, NeedsPerson) else f"{exc.message} {exc.hint}"
            return False
        self.person = standing.sign_in.person if standing.sign_in else SignedInPerson()
        self.begun_at = standing.sign_in.since if standing.sign_in else None
        is_in = bool(self.user_id) or standing.sign_in is not None
        self.action = "" if is_in else standing.action
        return is_in

    async def acted(self, before: int) -> None:
        """Wait until what is kept has another stamp, or for as long as it takes to ask again anyway."""
        for _ in range(LOOKS):
            if self.stamp() != before:
                return
            await anyio.sleep(LOOK_SECONDS)


_AnyFeed = TypeVar("_AnyFeed", bound=AccountFeed)


class AccountSource(NamedSource, Generic[_AnySettings, _AnyFeed]):
    """What Teams and Outlook are alike in: feeds that look again and again."""

    def __init__(self, settings: _AnySettings, feeds: Sequence[_AnyFeed]) -> None:
        super().__init__(settings.name, settings.kind, settings.address)
        self.settings = settings
        self._feeds = tuple(feeds)

    def feeds(self) -> tuple[_AnyFeed, ...]:
        """Return its streams."""
        return self._feeds

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return replace(worst_of([feed.health() for feed in self._feeds]), pace=self.settings.pace)


class SignedInSource(NamedSource):
    """A source, its sign-in, and how what it yields is answered."""

    def __init__(
        self,
        inner: Source,
        sign_in: AccountSignIn,
        client: GraphClient,
        clock: Clock,
        *,
        sender: ReplySender | None,
        sent: SentMessages | None = None,
        placeholders: PlaceholderWriter | None = None,
        notices: Subscriptions | None = None,
    ) -> None:
        super().__init__(inner.name, inner.kind, inner.address)
        self._inner = inner
        self._sign_in = sign_in
        self._client = client
        self._clock = clock
        self._sent = sent or SentMessages()
        self._sender = sender
        self._placeholders = placeholders
        self._notices = notices

    @property
    def sender(self) -> ReplySender | None:
        """How its messages are answered."""
        return self._sender

    @property
    def placeholders(self) -> PlaceholderWriter | None:
        """Who holds the places of answers, where that is wanted."""
        return self._placeholders

    def feeds(self) -> Sequence[Feed]:
        """Return its streams, each held back until an account is signed in."""
        feeds: list[Feed] = list(self._inner.feeds())
        if self._notices is not None:
            feeds.append(self._notices)
        return [SignedInFeed(feed, self._sign_in, self._client) for feed in feeds]

    def doors(self) -> Sequence[Door]:
        """Return where Microsoft posts, if it was asked to."""
        return () if self._notices is None else (self._notices.door,)

    def health(self) -> SourceHealth:
        """Return its health, the account, and what a person must do."""
        health = self._inner.health()
        health = replace(health, server=health.server or self._sign_in.title)
        if action := self._sign_in.action:
            said = f"{action[:1].upper()}{action[1:]}"
            return replace(health, state=SourceState.NEEDS_PERSON, reason=said, next_try=None, next_poll=None)
        if self._notices is not None:
            pace = TOLD if self._notices.works else health.pace
            health = replace(health, pace=pace, reason=health.reason or self._notices.reason)
        until = self._client.throttled_until
        if until is None:
            return health
        said = health.reason or f"Microsoft asks to wait until {timestamp(until)}."
        return replace(health, reason=said, throttled_until=until, next_try=health.next_try or until)

    def remember(self, upstream_ids: Sequence[str]) -> None:
        """Take note of what was sent before, the oldest first."""
        for upstream_id in upstream_ids:
            self._sent.note(upstream_id)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


class SignedInFeed:
    """One stream of such a source."""

    def __init__(self, inner: Feed, sign_in: AccountSignIn, client: GraphClient) -> None:
        self._inner = inner
        self._sign_in = sign_in
        self._client = client

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is new after a checkpoint, while an account is signed in."""
        position = checkpoint
        while True:
            before = self._sign_in.stamp()
            if not await self._sign_in.look():
                await self._sign_in.acted(before)
                continue
            try:
                await self._sign_in.learn(self._client)
                async with aclosing(self._inner.follow(position)) as batches:
                    async for batch in batches:
                        yield batch
                        position = position if batch.checkpoint is None else batch.checkpoint
            except NeedsPerson as exc:
                self._sign_in.action = exc.action or exc.hint
                await self._sign_in.acted(self._sign_in.stamp())
            else:
                return

    def rest(self) -> Batch:
        """Return what was read and not yielded."""
        return self._inner.rest()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored."""
        self._inner.stored(drafts, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicrosoftAccount:
    """An account. `person` signs in by a command; an Agent User has none."""

    settings: GraphSettings
    sign_in: AccountSignIn
    client: GraphClient
    person: DelegatedSignIn | None = None


@dataclass(frozen=True, slots=True)
class AccountParts:
    """What a kind makes of an account: what is followed, what Microsoft can tell it of, and how it is answered."""

    source: Source
    topics: Sequence[ChangeTopic]
    sender: ReplySender
    placeholders: PlaceholderWriter | None = None


def open_account(settings: GraphSettings, entry: SourceEntry) -> MicrosoftAccount:
    """Return the account of a source, without any request. Raises `UserError` when its certificate is not there."""
    clock = entry.clock
    trust = entry.certificates(settings.ca)
    service = SignInService(clock, trust=trust or True)
    if settings.is_agent:
        certificate = entry.secret(settings.certificate)
        agent = AgentUser(settings.agent_user(certificate), service, clock)
        sign_in, person = AccountSignIn(tokens=agent, user_id=settings.user_id), None
    else:
        cache = TokenCache(entry.folder / FOLDER, settings.name, is_in_keyring=settings.cache == "keyring")
        person = DelegatedSignIn(settings.delegated(), cache, service, clock)
        sign_in = AccountSignIn(tokens=person, stamp=cache.stamp)
    client = GraphClient(sign_in, clock, name=settings.name, base_url=settings.graph_url, verify=trust)
    return MicrosoftAccount(settings=settings, sign_in=sign_in, client=client, person=person)


def make_signed_in(
    settings: GraphSettings,
    entry: SourceEntry,
    parts: Callable[[MicrosoftAccount, SentMessages], AccountParts],
) -> Source:
    """Return the source of an account; raises `UserError` for what is written wrongly."""
    settings = with_notices(settings, entry.public_url)
    try:
        account = open_account(settings, entry)
    except (UserError, NeedsPerson) as exc:
        # What is kept elsewhere is missing: the certificate of an Agent User.
        return entry.unready(exc, settings.address)
    client, sign_in, clock, sent = account.client, account.sign_in, entry.clock, SentMessages()
    made = parts(account, sent)
    return SignedInSource(
        made.source,
        sign_in,
        client,
        clock,
        sender=made.sender,
        sent=sent,
        placeholders=made.placeholders,
        notices=Subscriptions(settings, client, clock, made.topics, sign_in.me) if settings.notice_url else None,
    )


class PersonSignIn:
    """Signs a person in to an account, and out again, by a command."""

    def __init__(self, account: MicrosoftAccount) -> None:
        if account.person is None:
            raise UserError(
                f"{account.settings.name} is signed in by its certificate, and by nobody.",
                f"See whether that works: harken source test {account.settings.name}",
            )
        self._person = account.person
        self._scopes = account.settings.delegated().scopes

    async def sign_in(self, show: Callable[[str], None], *, is_device: bool) -> SignInResult:
        """Sign a person in, in the browser or by a code."""
        done = await (self._by_code(show) if is_device else self._in_browser(show))
        return SignInResult(
            title=done.person.title,
            user_id=done.person.user_id,
            since=done.since,
            granted=tuple(done.scopes),
            not_granted=tuple(_missing(self._scopes, done.scopes)),
        )

    async def sign_out(self) -> bool:
        """Remove the sign-in from this machine; return whether there was one."""
        return await self._person.sign_out()

    async def _by_code(self, show: Callable[[str], None]) -> SignInRecord:
        def tell(prompt: CodePrompt) -> None:
            show(prompt.sentence)

        return await self._person.sign_in_by_code(tell)

    async def _in_browser(self, show: Callable[[str], None]) -> SignInRecord:
        def tell(address: str) -> None:
            show(f"Sign in in your browser. If none opens, open this in one on this machine:\n{address}")
            show("With a browser elsewhere only, stop this and use --device.")

        return await self._person.sign_in_in_browser(tell)


def _missing(wanted: Iterable[str], granted: Iterable[str]) -> list[str]:
    """Return what was asked for and not granted; Entra may write a permission with the address before it."""
    had = {_bare(scope) for scope in granted}
    return [scope for scope in wanted if _bare(scope) not in had]


def _bare(scope: str) -> str:
    return scope.rpartition("/")[2].casefold()


def check_account(
    settings: GraphSettings,
    entry: SourceEntry,
    context: CheckContext,
    look: Callable[[MicrosoftAccount], Awaitable[str]],
) -> CheckReport:
    """Ask once, within some seconds."""
    with_notices(settings, entry.public_url)
    account = open_account(settings, entry)

    async def ask() -> CheckReport:
        report = CheckReport(state=SourceState.LISTENING, address=settings.address, found="")
        if not await account.sign_in.look():
            return replace(report, state=SourceState.NEEDS_PERSON, reason=sentence(account.sign_in.action))
        found = await look(account)
        await account.sign_in.look()  # an Agent User is known after its first token
        return replace(report, found=found)

    async def asked() -> CheckReport:
        async with account.client:
            return await ask()

    report = ask_once(settings.address, asked, context.seconds, late="Microsoft does not answer in time.")
    return replace(report, server=account.sign_in.title)


def moment_of(item: object, now: datetime) -> str:
    """Say when something was written, today by the hour only, as far as the service says it in a way to be read."""
    stamp = item.get("createdDateTime") if isinstance(item, Mapping) else None
    try:
        moment = datetime.fromisoformat(str(stamp)[:MAX_CHARS]).astimezone()
    except ValueError:
        return "-"
    today = now.astimezone()
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%m-%d %H:%M}" if moment.year == today.year else f"{moment:%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCertificate:
    """A certificate with its key, ready to sign."""

    key: RSAPrivateKey = field(repr=False)
    thumbprint: str  # SHA-256 of the certificate, base64url
    begins_at: datetime
    ends_at: datetime


class AgentUser:
    """The sign-in of one source as an Agent User."""

    def __init__(self, settings: AgentUserSettings, service: SignInService, clock: Clock) -> None:
        self._settings = settings
        self._service = service
        self._clock = clock
        self._holder = TokenHolder(clock, self._renew)
        self._sign_in: SignInRecord | None = None

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        return await self._holder.token(is_fresh=is_fresh)

    async def standing(self) -> SignInStatus:
        """Return the account, if it is signed in yet, and what a person must do."""
        return SignInStatus(sign_in=self._sign_in, action=self._holder.action)

    async def _renew(self, *, is_forced: bool) -> CachedToken:
        del is_forced  # there is nothing to take an old one from
        answer = await to_thread.run_sync(self._ask_thrice, abandon_on_cancel=True)
        now = self._clock.now()
        held = held_until(_token(answer), now, seconds_of(answer.get("expires_in")))
        person = person_of(claims_of(answer.get("id_token")))
        known = (
            person
            if person.user_id
            else SignedInPerson(user_id=self._settings.user_id, tenant_id=self._settings.tenant)
        )
        self._sign_in = SignInRecord(
            person=known,
            since=self._sign_in.since if self._sign_in else self._service.their_time(now),
            renewed_at=now,
            expires_at=held.expires_at,
            scopes=tuple(str(answer.get("scope", "")).split()),
        )
        return held

    def _ask_thrice(self) -> Mapping[str, object]:
        settings = self._settings
        blueprint = self._ask(
            {
                "client_id": settings.blueprint_id,
                "scope": EXCHANGE_SCOPE,
                "fmi_path": settings.agent_id,
                "grant_type": "client_credentials",
                "client_assertion": self._assertion(),
            }
        )
        agent = self._ask(
            {
                "client_id": settings.agent_id,
                "scope": EXCHANGE_SCOPE,
                "grant_type": "client_credentials",
                "client_assertion": _token(blueprint),
            }
        )
        return self._ask(
            {
                "client_id": settings.agent_id,
                "scope": GRAPH_SCOPE,
                "grant_type": "user_fic",
                "client_assertion": _token(blueprint),
                "user_federated_identity_credential": _token(agent),
                "user_id": settings.user_id,
                "requested_token_use": "on_behalf_of",
            }
        )

    def _ask(self, form: Mapping[str, str]) -> Mapping[str, object]:
        data = {"client_assertion_type": ASSERTION_TYPE, **form}
        answer = self._service.post(self._settings.token_url, data=data).body
        if "error" in answer:
            raise refusals.refusal(answer, self._asker(form["client_id"]))
        return answer

    def _assertion(self) -> str:
        certificate = read_certificate(self._settings.certificate, self._settings.name)
        now = self._clock.now()
        self._check_dates(certificate, now)
        at = int(now.timestamp())
        claims = {
            "aud": self._settings.token_url,
            "iss": self._settings.blueprint_id,
            "sub": self._settings.blueprint_id,
            "jti": str(uuid.uuid4()),
            "nbf": at,
            "iat": at,
            "exp": at + int(ASSERTION_LIFE.total_seconds()),
        }
        return jwt.encode(claims, certificate.key, algorithm="RS256", headers={"x5t#S256": certificate.thumbprint})

    def _check_dates(self, certificate: AgentCertificate, now: datetime) -> None:
        name = self._settings.name
        if certificate.begins_at <= now < certificate.ends_at:
            if now > certificate.ends_at - WARNING:
                _log.warning("%s: the certificate ends on %s", name, certificate.ends_at.date())
            return
        is_over = now >= certificate.ends_at
        when = f"ended on {certificate.ends_at.date()}" if is_over else f"begins on {certificate.begins_at.date()}"
        action = f"put a new certificate on the blueprint's page in Entra and into sources.{name}.certificate"
        raise NeedsPerson(
            f"{name}: the certificate {when}.",
            f"{action[:1].upper()}{action[1:]}; if the date is wrong, set the clock.",
            action=action,
        )

    def _asker(self, client_id: str) -> refusals.RefusalContext:
        return refusals.RefusalContext(
            name=self._settings.name,
            tenant=self._settings.tenant,
            client_id=client_id,
            authority=self._settings.authority,
            skew_seconds=self._service.skew_seconds,
            is_agent=True,
        )


def _pem_hint(name: str) -> str:
    return f"Set sources.{name}.certificate to a PEM file with an RSA private key and its certificate."


def read_certificate(pem: str, name: str) -> AgentCertificate:
    """Return the certificate and its key; raises `UserError`, which says nothing of what the text holds."""
    data = pem.encode("utf-8", "replace")
    try:
        key = load_pem_private_key(data, password=None)
        certificate = x509.load_pem_x509_certificate(data)
    except (ValueError, TypeError):
        raise UserError(f"The certificate of the source {name} cannot be read.", _pem_hint(name)) from None
    if not isinstance(key, RSAPrivateKey) or key.public_key() != certificate.public_key():
        raise UserError(f"The certificate of the source {name} does not belong to its RSA key.", _pem_hint(name))
    digest = certificate.fingerprint(hashes.SHA256())
    return AgentCertificate(
        key=key,
        thumbprint=base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        begins_at=certificate.not_valid_before_utc,
        ends_at=certificate.not_valid_after_utc,
    )


def _token(answer: Mapping[str, object]) -> str:
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise surprise()
    return token
