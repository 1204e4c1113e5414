"""A person's own sign-in, by msal: with a code on any device, or in the browser of this machine; renewed silently.

msal does the protocol; it blocks, so it runs in threads, is given our `SignInService` to talk with, and is kept from
logging. Each step reads the cache, asks, and writes the cache inside its lock, so that the daemon and a command never
renew at once and each sees the other's sign-in. A sign-in that fails leaves the one before it in place. Above are the
Graph client and the commands; below are `cache.py`, `service.py`, `refusals.py` and `who.py`.
"""

from __future__ import annotations

import functools
import re
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from harken.clock import Clock
from harken.errors import NeedsPerson, Unavailable, UserError
from harken.sources.graph.tokens import refusals
from harken.sources.graph.tokens.app import App, open_app, surprise
from harken.sources.graph.tokens.cache import Cache
from harken.sources.graph.tokens.receiver import Receiver, receiving
from harken.sources.graph.tokens.service import NoSuchPlace, SignInService
from harken.sources.graph.tokens.settings import DelegatedSettings
from harken.sources.graph.tokens.who import Kept, SignIn, Standing, load_kept, person_of
from harken.sources.https.held import MARGIN, Held, Holder, held_until, needs_person, seconds_of

BROWSER_SECONDS: Final = 120.0
CODE_SECONDS: Final = 900.0  # how long Entra's codes last; also the longest that one is waited for
MAX_INTERVAL_SECONDS: Final = 60.0

_USER_CODE: Final = re.compile(r"[A-Za-z0-9-]{4,32}")
_ADDRESS: Final = re.compile(r"https://[\x21-\x7e]{1,200}")
_PAGE: Final = re.compile(r"https://[\x21-\x7e]{1,4000}")
_PENDING: Final = frozenset({"authorization_pending", "slow_down"})

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePrompt:
    """What a person is shown: the code to enter, where, and until when."""

    code: str = field(repr=False)
    address: str
    expires_at: datetime

    @property
    def sentence(self) -> str:
        """The whole of it in one sentence."""
        return f"Open {self.address} on any device and enter the code {self.code}."


class Delegated:
    """The sign-in of one source."""

    def __init__(self, settings: DelegatedSettings, cache: Cache, service: SignInService, clock: Clock) -> None:
        self._settings = settings
        self._cache = cache
        self._service = service
        self._clock = clock
        self._holder = Holder(clock, self._renew, cache.stamp)
        self._action = ""
        self._claims = ""  # what the token that is being had must have

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        try:
            token = await self._holder.token(is_fresh=is_fresh)
        except (NeedsPerson, UserError) as exc:
            self._holder.forget()
            needed = needs_person(exc)
            self._action = needed.action
            raise needed from None
        self._action = ""
        return token

    async def meet(self, claims: str) -> str:
        """Return a new token with claims that Graph asks for; raises `NeedsPerson` if only a person can have one."""
        self._claims = claims
        try:
            return await self.token(is_fresh=True)
        finally:
            self._claims = ""

    async def standing(self) -> Standing:
        """Return who is signed in and what a person must do, without asking the service."""
        kept = await self._in_thread(self._load)
        if kept is None:
            return Standing(action=refusals.not_signed_in(self._asker()).action)
        return Standing(sign_in=kept.sign_in, action=self._action)

    async def sign_in_by_code(self, show: Callable[[CodePrompt], None]) -> SignIn:
        """Sign in with a code that the person enters elsewhere; `show` is told what to show them, once."""
        app = await self._in_thread(self._open)
        flow = await self._in_thread(app.begin_code)
        if "error" in flow:
            raise refusals.refusal(flow, self._asker())
        code, address = str(flow.get("user_code", "")), str(flow.get("verification_uri", ""))
        if not _USER_CODE.fullmatch(code) or not _ADDRESS.fullmatch(address) or "device_code" not in flow:
            raise surprise()
        seconds = min(seconds_of(flow.get("expires_in"), CODE_SECONDS), CODE_SECONDS)
        show(CodePrompt(code=code, address=address, expires_at=self._clock.now() + timedelta(seconds=seconds)))
        answer: Mapping[str, object] = {"error": "expired_token"}
        with anyio.move_on_after(seconds):
            answer = await self._wait_for_code(app, flow)
        return await self._accept(app, answer)

    async def sign_in_in_browser(
        self,
        show: Callable[[str], None],
        *,
        open_page: Callable[[str], object] = webbrowser.open,
        port: int = 0,
        seconds: float = BROWSER_SECONDS,
    ) -> SignIn:
        """Sign in in the browser of this machine; `show` is told the address, for the case that no browser opens.

        It raises `NeedsPerson` when nobody signs in for so many seconds.
        """
        app = await self._in_thread(self._open)
        given: Mapping[str, str] | None = None
        async with receiving(port) as receiver:
            flow = await self._in_thread(functools.partial(app.begin_browser, receiver.address, receiver.state))
            address = str(flow.get("auth_uri", ""))
            if not _PAGE.fullmatch(address):
                raise surprise()
            show(address)
            with anyio.move_on_after(seconds):
                given = await self._browse(receiver, functools.partial(open_page, address))
        if given is None:
            raise NeedsPerson(
                f"{self._settings.name}: nobody signed in within {round(seconds)} seconds.",
                "Sign in again, or with a code if no browser of yours can reach this machine.",
                action=f"sign in again with: harken source login {self._settings.name}",
            )
        answer = await self._in_thread(functools.partial(app.end_browser, flow, given))
        return await self._accept(app, answer)

    async def sign_out(self) -> bool:
        """Remove the sign-in from this machine; returns whether there was one."""
        self._holder.forget()
        self._action = ""
        return await self._in_thread(self._clear)

    async def _browse(self, receiver: Receiver, open_page: Callable[[], object]) -> Mapping[str, str]:
        """Wait for the answer while the browser is opened: one in a terminal only returns when it is closed."""

        async def browse() -> None:
            with suppress(webbrowser.Error, OSError):  # the person has the address too
                await self._in_thread(open_page)

        async with anyio.create_task_group() as group:
            group.start_soon(browse)
            given = await receiver.given()
            group.cancel_scope.cancel()
        return given

    async def _wait_for_code(self, app: App, flow: dict[str, object]) -> Mapping[str, object]:
        """Ask again and again whether the code was entered, as slowly as the service wants."""
        while True:
            interval = min(seconds_of(flow.get("interval"), MAX_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS)
            try:
                answer = await self._in_thread(functools.partial(app.ask_code, flow))
            except Unavailable as exc:
                interval = max(interval, exc.retry_after)  # the code is still good: only this question got lost
            else:
                if answer.get("error") not in _PENDING:
                    return answer
            await anyio.sleep(interval)

    async def _accept(self, app: App, answer: Mapping[str, object]) -> SignIn:
        """Keep a sign-in that has just succeeded, in place of the one before."""
        held = self._held(answer)
        now = self._clock.now()
        sign_in = SignIn(
            person=person_of(answer.get("id_token_claims")),
            since=self._service.their_time(now),
            renewed_at=now,
            expires_at=held.expires_at,
            scopes=tuple(str(answer.get("scope", "")).split()),
        )
        kept = Kept(sign_in=sign_in, client_id=self._settings.client_id, access=held.token, tokens=app.tokens())
        await self._in_thread(functools.partial(self._save, kept))
        self._holder.forget()
        self._action = ""
        return sign_in

    async def _renew(self, *, is_forced: bool) -> Held:
        return await self._in_thread(functools.partial(self._renew_in_thread, is_forced=is_forced))

    def _renew_in_thread(self, *, is_forced: bool) -> Held:
        # Inside the lock from reading to writing: a refresh token may be good for one use only.
        with self._cache.locked():
            kept = self._load()
            if kept is None:
                raise refusals.not_signed_in(self._asker())
            # Not left to msal: it finds no token whose permissions the service spells otherwise than we do.
            renew_at = kept.sign_in.expires_at - MARGIN
            if not is_forced and self._clock.now() < renew_at:
                expires_at, stamp = kept.sign_in.expires_at, self._cache.stamp()
                return Held(token=kept.access, renew_at=renew_at, expires_at=expires_at, stamp=stamp)
            app = open_app(self._settings, self._service, kept.tokens)
            answer = app.renew(self._claims)
            if answer is None:
                raise refusals.not_signed_in(self._asker())
            held = self._held(answer)
            sign_in = replace(kept.sign_in, renewed_at=self._clock.now(), expires_at=held.expires_at)
            self._cache.save(replace(kept, sign_in=sign_in, access=held.token, tokens=app.tokens()).dump())
            return replace(held, stamp=self._cache.stamp())

    def _held(self, answer: Mapping[str, object]) -> Held:
        if "error" in answer:
            raise refusals.refusal(answer, self._asker())
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise surprise()
        return held_until(token, self._clock.now(), seconds_of(answer.get("expires_in")))

    def _open(self) -> App:
        return open_app(self._settings, self._service)

    def _load(self) -> Kept | None:
        kept = load_kept(self._cache.load())
        # Another app's sign-in is of no use: its tokens are refused.
        return kept if kept is not None and kept.client_id == self._settings.client_id else None

    def _save(self, kept: Kept) -> None:
        with self._cache.locked():
            self._cache.save(kept.dump())

    def _clear(self) -> bool:
        with self._cache.locked():
            return self._cache.clear()

    def _asker(self) -> refusals.Asker:
        settings = self._settings
        return refusals.Asker(
            name=settings.name,
            tenant=settings.tenant,
            client_id=settings.client_id,
            authority=settings.authority,
            skew_seconds=self._service.skew_seconds,
        )

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Run what blocks. When cancelled, it ends there by itself and has changed nothing but the cache."""
        try:
            return await to_thread.run_sync(work, abandon_on_cancel=True)
        except NoSuchPlace as exc:
            answer = exc.answer if "error" in exc.answer else {"error": "invalid_tenant"}
            raise refusals.refusal(answer, self._asker()) from None
