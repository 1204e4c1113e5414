"""HTTP to the sign-in service, for msal and for the Agent User: every failure as one of our errors, and nothing logged.

msal is given a `SignInService` as its HTTP client. It lets nothing through but JSON: msal would write an answer that is
cut in half into the log, with the tokens in it. It also notes how far our clock is from the service's. It blocks, and
is called in threads; each request is bounded in time and size. Below are httpx2, the clock and the errors.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final

import httpx2

from harken.clock import Clock
from harken.errors import Unavailable

STEP_SECONDS: Final = 10.0  # to connect, or for the next byte
REQUEST_SECONDS: Final = 20.0
MAX_BYTES: Final = 1_000_000
RETRY_SECONDS: Final = 30.0
MAX_RETRY_SECONDS: Final = 3_600.0
AGREED_SECONDS: Final = 1.5  # clocks that differ by no more than can be told

_OK: Final = 200
_BUSY: Final = 429
_BROKEN: Final = 500
_MOVED: Final = range(300, 400)


class NoSuchPlace(Exception):
    """There is no sign-in at that address; `answer` is what the service says about it."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        super().__init__("there is no sign-in at that address")
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, as msal reads them. Its text may hold tokens."""

    status_code: int
    text: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def raise_for_status(self) -> None:
        """Do nothing: what fails was raised before this was made."""

    @property
    def body(self) -> dict[str, object]:
        """What the answer says."""
        got = json.loads(self.text)
        return got if isinstance(got, dict) else {}


class SignInService:
    """Talks to a sign-in service. `trust` is whose certificates are believed; True: those the system believes."""

    def __init__(self, clock: Clock, *, trust: ssl.SSLContext | bool = True) -> None:
        self._clock = clock
        self._trust = trust
        self.skew_seconds: float | None = None  # how far our clock is ahead; None: nobody said yet

    def their_time(self, moment: datetime) -> datetime:
        """Return a moment of our clock by theirs, as far as it is known: they tell whole seconds."""
        skew = self.skew_seconds or 0.0
        return moment if 0 <= skew <= AGREED_SECONDS else moment - timedelta(seconds=skew)

    def post(self, url: str, **request: object) -> Reply:
        """Post a form and return the answer, a refusal included; raises `Unavailable`."""
        return self._ask("POST", url, request)

    def get(self, url: str, **request: object) -> Reply:
        """Return what is at an address; raises `NoSuchPlace` and `Unavailable`."""
        reply = self._ask("GET", url, request)
        if reply.status_code != _OK:
            raise NoSuchPlace(reply.body)
        return reply

    def close(self) -> None:
        """Do nothing: a connection lasts for one request, because there are few."""

    def _ask(self, method: str, url: str, request: Mapping[str, object]) -> Reply:
        if not url.lower().startswith("https://"):
            raise Unavailable("The sign-in service names an address that is not https.", "Check the authority.")
        try:
            reply = self._reply(method, url, request)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as exc:
            raise _unreachable(exc) from None  # its text may hold the address with its parameters
        status = reply.status_code
        if status == _BUSY or status >= _BROKEN:
            raise Unavailable(
                f"The sign-in service is busy or broken ({status}).",
                "Nothing needs to be done: it is tried again.",
                retry_after=self._retry_after(reply),
            )
        try:
            is_readable = status not in _MOVED and isinstance(json.loads(reply.text), dict)
        except ValueError:
            is_readable = False
        if not is_readable:
            raise Unavailable(
                f"The sign-in service answers with something unreadable ({status}).",
                "Check whether this network asks you to sign in to itself first.",
                retry_after=RETRY_SECONDS,
            )
        return reply

    def _reply(self, method: str, url: str, request: Mapping[str, object]) -> Reply:
        end = monotonic() + REQUEST_SECONDS
        with (
            httpx2.Client(verify=self._trust, timeout=STEP_SECONDS, follow_redirects=False) as client,
            client.stream(
                method,
                url,
                params=_pairs(request.get("params")) or None,
                data=_pairs(request.get("data")) or None,
                headers={"Accept": "application/json", **_pairs(request.get("headers"))},
            ) as response,
        ):
            self._note_time(response.headers.get("date", ""))
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or monotonic() > end:
                    raise httpx2.ReadTimeout("the answer has no end")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(status_code=response.status_code, text=body.decode("utf-8", "replace"), headers=headers)

    def _note_time(self, date: str) -> None:
        theirs = _moment(date)
        if theirs is not None:
            self.skew_seconds = (self._clock.now() - theirs).total_seconds()

    def _retry_after(self, reply: Reply) -> float:
        text = reply.headers.get("retry-after", "").strip()
        moment = _moment(text)
        if text.isascii() and text.isdigit():
            seconds = float(text[:9])
        elif moment is not None:
            seconds = (moment - self._clock.now()).total_seconds()
        else:
            seconds = RETRY_SECONDS
        return min(max(seconds, 1.0), MAX_RETRY_SECONDS)


def _pairs(values: object) -> dict[str, str]:
    """Return what msal gives as parameters, form or headers, without what it left open."""
    items = values.items() if isinstance(values, Mapping) else ()
    return {str(name): str(value) for name, value in items if value is not None}


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None


def _unreachable(exc: Exception) -> Unavailable:
    if isinstance(exc, httpx2.TimeoutException):
        return Unavailable("The sign-in service does not answer.", "Check the network.", retry_after=RETRY_SECONDS)
    if isinstance(exc.__cause__, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(exc):
        return Unavailable(
            "The certificate of the sign-in service is not trusted here.",
            "Check the clock, the authority, and whether something reads this network's traffic.",
            retry_after=RETRY_SECONDS,
        )
    return Unavailable("The sign-in service cannot be reached.", "Check the network.", retry_after=RETRY_SECONDS)
