"""One account at Microsoft: how it signs in, the client of Graph, and the source that is followed while signed in.

What is followed knows nothing of signing in: it raises `NeedsPerson`, and is followed again from where it was as soon
as the person has acted. A sign-in by a command is seen within seconds, because it changes the cache's stamp. Imported
only when it is needed: what signs in takes long to import. Above are `teams` and `outlook`; below are the client, the
sign-ins and the notifications.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

import anyio

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, UserError
from harken.model import Draft, timestamp
from harken.sources.check import CheckContext, CheckReport, ask_once, sentence
from harken.sources.feed import worst_of
from harken.sources.microsoft.agent_user import AgentUser
from harken.sources.microsoft.client import GraphClient, MeetsClaims
from harken.sources.microsoft.notifications import ChangeTopic, Subscriptions, with_notices
from harken.sources.microsoft.sent import (
    SentMessages,
)
from harken.sources.microsoft.settings import GraphSettings
from harken.sources.microsoft.sign_in import (
    CodePrompt,
    DelegatedSignIn,
    SignedInPerson,
    SignInRecord,
    SignInStatus,
    TokenCache,
)
from harken.sources.microsoft.sign_in_service import SignInService
from harken.sources.source import (
    Batch,
    Door,
    Feed,
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


_AnySettings = TypeVar("_AnySettings", bound=GraphSettings)
_AnyFeed = TypeVar("_AnyFeed", bound=AccountFeed)


class AccountSource(Source, Generic[_AnySettings, _AnyFeed]):
    """What Teams and Outlook are alike in: a name, an address, and feeds that look again and again."""

    def __init__(self, settings: _AnySettings, feeds: Sequence[_AnyFeed]) -> None:
        self.settings = settings
        self._feeds = tuple(feeds)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return self.settings.kind

    @property
    def address(self) -> str:
        """Where Graph is, without anything secret."""
        return self.settings.address

    def feeds(self) -> tuple[_AnyFeed, ...]:
        """Return its streams."""
        return self._feeds

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return replace(worst_of([feed.health() for feed in self._feeds]), pace=self.settings.pace)


class SignedInSource(Source):
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
        self._inner = inner
        self._sign_in = sign_in
        self._client = client
        self._clock = clock
        self._sent = sent or SentMessages()
        self._sender = sender
        self._placeholders = placeholders
        self._notices = notices

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._inner.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return self._inner.kind

    @property
    def address(self) -> str:
        """Where the other side is."""
        return self._inner.address

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
        until = self._client.health().throttled_until
        if until is None or until <= self._clock.now():
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

    def subscriptions(self, clock: Clock, topics: Sequence[ChangeTopic]) -> Subscriptions | None:
        """Return what asks Microsoft to tell of changes; None where it is not asked."""
        if not self.settings.notice_url:
            return None
        return Subscriptions(self.settings, self.client, clock, topics, self.sign_in.me)


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


MAX_CHARS: Final = 200


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


def rows_of(page: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the rows of a page."""
    value = page.get("value")
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


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
