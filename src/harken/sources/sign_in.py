"""Signing in to a source, for `source login` and `source logout`: what a kind offers that people sign in to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInResult:
    """Who signed in, since when, and with which permissions; never a token."""

    title: str
    user_id: str
    since: datetime
    granted: tuple[str, ...] = ()
    not_granted: tuple[str, ...] = ()


class SourceSignIn(Protocol):
    """The sign-in of one source."""

    async def sign_in(self, show: Callable[[str], None], *, is_device: bool) -> SignInResult:
        """Sign a person in, in the browser or by a code; `show` tells the person what to open or enter."""
        ...

    async def sign_out(self) -> bool:
        """Remove the sign-in from this machine; return whether there was one."""
        ...
