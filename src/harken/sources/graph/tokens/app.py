"""msal behind one door: what we ask it for, what it answers, and every surprise of it as one of our errors.

msal has no types, logs what it cannot read, and raises whatever its parser raised. None of that passes this module:
its answers are mappings, a refusal among them. It blocks; call it in a thread. Above is `delegated.py`, which decides
what to do with an answer; below are msal, imported on use, and `service.py`, which it talks through.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from harken.errors import Unavailable
from harken.sources.graph.tokens.refusals import LATER_SECONDS
from harken.sources.graph.tokens.service import NoSuchPlace, SignInService
from harken.sources.graph.tokens.settings import DelegatedSettings
from harken.sources.https.held import seconds_of

INTERVAL_SECONDS: Final = 5.0  # between two questions, where the service does not say

# What msal raises on answers it did not expect. Their text may hold the answer: it goes no further.
_SURPRISES: Final = (ValueError, KeyError, TypeError, AttributeError, AssertionError, RuntimeError)


class _Tokens(Protocol):
    def serialize(self) -> str: ...

    def deserialize(self, state: str) -> None: ...


class _Client(Protocol):
    def initiate_device_flow(self, scopes: list[str]) -> dict[str, object]: ...

    def acquire_token_by_device_flow(
        self, flow: dict[str, object], *, exit_condition: Callable[[object], bool]
    ) -> dict[str, object]: ...

    def initiate_auth_code_flow(
        self, scopes: list[str], redirect_uri: str, state: str, *, prompt: str, response_mode: str
    ) -> dict[str, object]: ...

    def acquire_token_by_auth_code_flow(
        self, auth_code_flow: dict[str, object], auth_response: dict[str, str]
    ) -> dict[str, object]: ...

    def get_accounts(self) -> Sequence[object]: ...

    def acquire_token_silent_with_error(
        self, scopes: list[str], account: object, *, force_refresh: bool, claims_challenge: str | None
    ) -> dict[str, object] | None: ...


class App:
    """One conversation with the sign-in service, and the tokens that came of it. Made by `open_app`."""

    def __init__(self, client: _Client, tokens: _Tokens, scopes: Sequence[str]) -> None:
        self._client = client
        self._tokens = tokens
        self._scopes = list(scopes)

    def tokens(self) -> str:
        """Return the tokens as text, for the cache only."""
        return self._tokens.serialize()

    def begin_code(self) -> dict[str, object]:
        """Ask for a code to show; the answer is also what `ask_code` wants."""
        with _no_surprises():
            flow = self._client.initiate_device_flow(self._scopes)
        # Of an interval of 0 msal makes a loop that never rests.
        return {**flow, "interval": max(int(seconds_of(flow.get("interval"), INTERVAL_SECONDS)), 1)}

    def ask_code(self, flow: dict[str, object]) -> Mapping[str, object]:
        """Ask once whether the code was entered."""
        with _no_surprises():
            return self._client.acquire_token_by_device_flow(flow, exit_condition=lambda _: True)

    def begin_browser(self, address: str, state: str) -> dict[str, object]:
        """Make the page that the person is to open, which answers to `address`; it is also what `end_browser` wants."""
        with _no_surprises():
            return self._client.initiate_auth_code_flow(
                self._scopes, address, state, prompt="select_account", response_mode="form_post"
            )

    def end_browser(self, flow: dict[str, object], given: Mapping[str, str]) -> Mapping[str, object]:
        """Get the tokens for what the browser brought back."""
        with _no_surprises():
            return self._client.acquire_token_by_auth_code_flow(flow, dict(given))

    def renew(self, claims: str = "") -> Mapping[str, object] | None:
        """Get a new token without the person, with some claims if asked; returns nothing if nobody is signed in."""
        with _no_surprises():
            accounts = self._client.get_accounts()
            account = accounts[0] if accounts else None
            return self._client.acquire_token_silent_with_error(
                self._scopes, account, force_refresh=True, claims_challenge=claims or None
            )


def open_app(settings: DelegatedSettings, service: SignInService, tokens: str = "") -> App:
    """Begin a conversation, with tokens of an earlier one; raises `NoSuchPlace` and `Unavailable`."""
    msal = importlib.import_module("msal")
    # It logs addresses with their parameters, and whole answers that it cannot read.
    logging.getLogger("msal").setLevel(logging.CRITICAL)
    kept: _Tokens = msal.SerializableTokenCache()
    with _no_surprises():
        kept.deserialize(tokens)
        client: _Client = msal.PublicClientApplication(
            settings.client_id,
            authority=f"{settings.authority}/{settings.tenant}",
            token_cache=kept,
            http_client=service,
            instance_discovery=False,  # whom to ask is the person's choice; it saves asking yet another place
        )
    return App(client, kept, settings.scopes)


def surprise() -> Unavailable:
    """Return what to raise for an answer that is not understood."""
    return Unavailable(
        "The sign-in service answers in a way that is not understood.",
        "Try again; if it stays, check the tenant and the authority.",
        retry_after=LATER_SECONDS,
    )


@contextmanager
def _no_surprises() -> Iterator[None]:
    try:
        yield
    except NoSuchPlace:
        raise
    except _SURPRISES:
        raise surprise() from None
