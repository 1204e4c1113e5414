"""Signing in: a link that works once becomes a cookie, so that no token is ever in an address bar.

`harken open` asks for the link. A code lasts two minutes, works once and is held in memory only. The cookie holds its
own end and a keyed hash, so it survives a restart of the daemon; whoever changes HOME/token ends all of them, and one
that was signed out is remembered until its end. It says who is at the browser; whether a request may do what it asks
is decided in `guard.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from harken.clock import Clock

LINK_SECONDS = 120
COOKIE_SECONDS = 30 * 86_400
MAX_LINKS = 8
MAX_CANDIDATES = 8  # other servers of the same host name can set cookies too

_PURPOSE = b"harken sign-in cookie 1"


def cookie_key(token: str) -> bytes:
    """Return the key of the cookies: made from the token, and telling nothing about it."""
    return hmac.digest(token.encode(), _PURPOSE, hashlib.sha256)


def cookie_name(host: str) -> str:
    """Return what the cookie is called at a host: with the port in it, because cookies do not know ports."""
    return f"harken-{host.rpartition(':')[2]}"


class SignIns:
    """The links that are open now, and the cookies they become."""

    def __init__(self, key: bytes, clock: Clock, signed_out: Path) -> None:
        self._key = key
        self._clock = clock
        self._file = signed_out
        self._signed_out = self._read()
        self._open: dict[bytes, float] = {}  # hash of the code: when it ends

    def link(self, base_url: str) -> str:
        """Return an address that signs one browser in, once; the oldest goes when there are too many."""
        code = secrets.token_urlsafe(32)
        until = self._now() + LINK_SECONDS
        self._open = dict([*self._open.items(), (_hashed(code), until)][-MAX_LINKS:])
        return f"{base_url}/sign-in?code={code}"

    def redeem(self, code: str) -> bool:
        """Use a code up, and return whether it was good."""
        given, now = _hashed(code), self._now()
        until = next((until for known, until in self._open.items() if hmac.compare_digest(known, given)), None)
        self._open = {known: end for known, end in self._open.items() if known != given and end > now}
        # A clock that was set back must not make a code last longer than it was made for.
        return until is not None and now < until <= now + LINK_SECONDS

    def cookie(self) -> str:
        """Return the value of a new cookie."""
        end = int(self._now()) + COOKIE_SECONDS
        body = f"{end}.{secrets.token_urlsafe(16)}"
        return f"{body}.{self._sign(body)}"

    def is_signed_in(self, cookies: str, host: str) -> bool:
        """Whether a Cookie header that was sent to a host holds a cookie of ours that is still good."""
        return bool(self._good(cookies, host))

    def sign_out(self, cookies: str, host: str) -> None:
        """Let the cookies of a Cookie header be good no longer, whoever else has a copy of them."""
        ended = {body for body in (*self._signed_out, *self._good(cookies, host)) if self._now() < _end(body)}
        if ended != self._signed_out:
            self._signed_out = ended
            draft = self._file.with_name(f"{self._file.name}.new")
            draft.touch(mode=0o600)
            draft.write_text("".join(f"{body}\n" for body in sorted(ended)))
            draft.replace(self._file)

    def _good(self, cookies: str, host: str) -> list[str]:
        """Return what our good cookies in a header say, without their signature."""
        name = cookie_name(host)
        pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
        values = [value for key, _, value in pairs if key == name][:MAX_CANDIDATES]
        return [value.rpartition(".")[0] for value in values if self._is_good(value)]

    def _is_good(self, value: str) -> bool:
        body, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(body).encode()):
            return False
        return self._now() < _end(body) and body not in self._signed_out

    def _read(self) -> set[str]:
        try:
            return set(self._file.read_text().split())
        except (OSError, UnicodeDecodeError):
            return set()

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _end(body: str) -> int:
    end = body.partition(".")[0]
    return int(end) if end.isdecimal() else 0


def _hashed(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
