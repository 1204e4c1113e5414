"""What a person configures of a sign-in at Microsoft, checked: which tenant, which app, which permissions.

Secrets are resolved by whoever calls this: a certificate's key is in no `repr`. Nothing here talks to anybody. Above
are `delegated.py` and `agent_user.py`, below are only the errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from harken.errors import UserError

AUTHORITY: Final = "https://login.microsoftonline.com"
GRAPH_SCOPE: Final = "https://graph.microsoft.com/.default"
ANY_TENANT: Final = frozenset({"common", "organizations", "consumers"})
RESERVED_SCOPES: Final = frozenset({"openid", "profile", "offline_access"})  # msal asks for these by itself

_GUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_TENANT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedSettings:
    """A person's own sign-in: the app that asks, the tenant it asks in and the permissions it asks for."""

    name: str  # of the source
    client_id: str
    scopes: tuple[str, ...]
    tenant: str = "organizations"
    authority: str = AUTHORITY

    def __post_init__(self) -> None:
        _check_place(self.name, self.tenant, self.authority)
        _check_id(self.name, "client_id", self.client_id)
        if not self.scopes or not all(_SCOPE.fullmatch(scope) for scope in self.scopes):
            raise UserError(
                f"The source {self.name} does not name the permissions it needs.",
                f'Set sources.{self.name}.scopes, for example ["Chat.Read", "User.Read"].',
            )
        if reserved := RESERVED_SCOPES.intersection(self.scopes):
            raise UserError(
                f"The source {self.name} names {min(reserved)}, which is asked for anyway.",
                f"Take it out of sources.{self.name}.scopes.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUserSettings:
    """An Entra Agent User: the blueprint with its certificate, the agent identity, and the user it speaks as."""

    name: str  # of the source
    tenant: str
    blueprint_id: str
    agent_id: str
    user_id: str  # the object id of the Agent User
    certificate: str = field(repr=False)  # PEM: the private key and the certificate
    authority: str = AUTHORITY

    def __post_init__(self) -> None:
        _check_place(self.name, self.tenant, self.authority)
        if self.tenant in ANY_TENANT:
            raise UserError(
                f"The source {self.name} does not say which tenant its Agent User lives in.",
                f"Set sources.{self.name}.tenant to the tenant's id or domain.",
            )
        for key in ("blueprint_id", "agent_id", "user_id"):
            _check_id(self.name, key, getattr(self, key))

    @property
    def token_url(self) -> str:
        """Where tokens are asked for."""
        return f"{self.authority}/{self.tenant}/oauth2/v2.0/token"


def is_id(text: str) -> bool:
    """Whether the text is an id as Entra writes them."""
    return _GUID.fullmatch(text) is not None


def _check_id(name: str, key: str, value: str) -> None:
    if not is_id(value):
        raise UserError(
            f"The {key} of the source {name} is not an id such as 1b730954-1685-4b74-9bfd-dac224a7b894.",
            f"Copy it from the app's page in the Entra admin centre to sources.{name}.{key}.",
        )


def _check_place(name: str, tenant: str, authority: str) -> None:
    if not _TENANT.fullmatch(tenant):
        raise UserError(
            f"The tenant of the source {name} is neither an id nor a domain.",
            f"Set sources.{name}.tenant, for example to contoso.onmicrosoft.com.",
        )
    try:
        parts = urlsplit(authority)
        is_usable = parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
        is_usable = is_usable and not (parts.path or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UserError(
            f"The authority of the source {name} is not an https address without a path.",
            f"Set sources.{name}.authority, for example to {AUTHORITY}, or leave it out.",
        )
