"""What a person configures of Teams or Outlook: `[sources.NAME]` with that kind, and how it is set up.

The first part is how the account signs in, the second all the rest. The certificate of an Agent User is only named: the
factory of the source looks it up. Nothing here uses the network. Above are the sources and the commands, below is the
reader of settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlencode, urlsplit

from msgspec.structs import force_setattr

from harken.errors import UserError
from harken.sources.settings import (
    CERTIFICATES,
    SettingKey,
    SourceOption,
    SourceSettings,
    https_url,
    options_of,
    private_url,
)
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

AUTHORITY: Final = "https://login.microsoftonline.com"
GRAPH_SCOPE: Final = "https://graph.microsoft.com/.default"
SHARED_TENANTS: Final = frozenset({"common", "organizations", "consumers"})
RESERVED_SCOPES: Final = frozenset({"openid", "profile", "offline_access"})  # msal asks for these by itself

_GUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_TENANT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")

DELEGATED: Final = "delegated"
AGENT: Final = "agent"
GRAPH_URL: Final = "https://graph.microsoft.com/v1.0"
ANY_TENANT: Final = "organizations"
MIN_POLL_SECONDS: Final = 5.0
MAX_POLL_SECONDS: Final = 86_400.0
MAX_ADDRESS_CHARS: Final = 320
MAX_ADDRESSES: Final = 500  # of one account; Microsoft allows fewer
_BY_PERSON: Final = ("sign_in", (DELEGATED,))
_BY_CERTIFICATE: Final = ("sign_in", (AGENT,))
POLL: Final = SettingKey("How often to look.", metavar="SECONDS", least=MIN_POLL_SECONDS, most=MAX_POLL_SECONDS)

_AGENT_KEYS = ("tenant", "blueprint_id", "agent_id", "user_id", "certificate")


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
        if self.tenant in SHARED_TENANTS:
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


def _id_setting(help_text: str, only: tuple[str, tuple[str, ...]]) -> SettingKey:
    return SettingKey(help_text, metavar="ID", is_needed=True, only=only)


def _base_url(text: str) -> str:
    return private_url(text).rstrip("/")


def _authority(text: str) -> str:
    return https_url(text).rstrip("/")


class GraphSettings(SourceSettings, frozen=True, kw_only=True):
    """Teams or Outlook of one account: what both have."""

    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    permissions: ClassVar[Mapping[str, str]] = MappingProxyType({})  # that are asked for, each with why

    tenant: Annotated[str, SettingKey("The tenant's id or domain.", metavar="ID")] = ANY_TENANT
    client_id: Annotated[str, _id_setting("The id of the registered app.", _BY_PERSON)] = ""
    poll: Annotated[float, POLL] = 60.0
    sign_in: Annotated[
        Literal["delegated", "agent"], SettingKey("A person signs in, or a certificate signs an Agent User in.")
    ] = "delegated"
    scopes: Annotated[
        tuple[str, ...], SettingKey('A list of permissions, such as ["Chat.Read", "User.Read"].', only=_BY_PERSON)
    ] = ()
    cache: Annotated[
        Literal["file", "keyring"],
        SettingKey("Where the sign-in is kept; keyring locks it with the keyring.", only=_BY_PERSON),
    ] = "file"
    blueprint_id: Annotated[str, _id_setting("The client id of an Agent User's blueprint.", _BY_CERTIFICATE)] = ""
    agent_id: Annotated[str, _id_setting("The id of an Agent User's agent identity.", _BY_CERTIFICATE)] = ""
    user_id: Annotated[str, _id_setting("The object id of an Agent User.", _BY_CERTIFICATE)] = ""
    certificate: Annotated[
        str,
        SettingKey(
            "Where an Agent User's PEM is kept, such as file:agent.pem.",
            metavar="REF",
            is_secret=True,
            is_needed=True,
            only=_BY_CERTIFICATE,
        ),
    ] = ""
    notifications: Annotated[
        bool, SettingKey("Whether Microsoft is asked to tell of changes; needs hooks.public_url.")
    ] = False
    graph_url: Annotated[str, SettingKey(f"Where Microsoft Graph is, such as {GRAPH_URL}.", read=_base_url)] = GRAPH_URL
    authority: Annotated[str, SettingKey(f"Where people sign in, such as {AUTHORITY}.", read=_authority)] = AUTHORITY
    ca: Annotated[str, CERTIFICATES] = ""
    notice_url: str = ""  # where Microsoft posts; follows from `hooks.public_url`

    def __post_init__(self) -> None:
        if not self.is_agent:
            force_setattr(self, "scopes", self.scopes or tuple(self.permissions))

    def check(self) -> None:
        """Refuse a sign-in that cannot be."""
        if self.is_agent:
            self.agent_user("")
        else:
            self.delegated()

    @property
    def is_agent(self) -> bool:
        """Whether an Agent User is signed in by its certificate, and no person is."""
        return self.sign_in == AGENT

    @property
    def address(self) -> str:
        """Where Graph is, for people."""
        return urlsplit(self.graph_url).netloc

    @property
    def pace(self) -> str:
        """How soon something is known without a notification, for people."""
        return f"looks every {self.poll:g} s"

    def delegated(self) -> DelegatedSettings:
        """Return how a person signs in; raises `UserError` that names the key."""
        return DelegatedSettings(
            name=self.name,
            client_id=self.client_id,
            scopes=self.scopes,
            tenant=self.tenant,
            authority=self.authority,
        )

    def agent_user(self, certificate: str) -> AgentUserSettings:
        """Return how an Agent User signs in with that certificate; raises `UserError` that names the key."""
        return AgentUserSettings(
            name=self.name,
            tenant=self.tenant,
            blueprint_id=self.blueprint_id,
            agent_id=self.agent_id,
            user_id=self.user_id,
            certificate=certificate,
            authority=self.authority,
        )


def mail_address(text: str) -> str:
    """Return a mail address as it is compared, or nothing if it is none."""
    address = text.strip().lower()
    name, at, place = address.partition("@")
    is_one = name and at and place and "@" not in place and address.isprintable() and " " not in address
    return address if is_one and len(address) <= MAX_ADDRESS_CHARS else ""


class AccountSetup(SourceSetup):
    """How an account at Microsoft is set up, of whichever kind."""

    def __init__(self, account: type[GraphSettings]) -> None:
        self._account = account
        self.kind = self.default_name = account.kind
        self.options = (
            *options_of(account),
            SourceOption(flag="--keyring", key="KEYRING", help="Lock the sign-in with the keyring.", value=bool),
            SourceOption(
                flag="--agent", key="AGENT", help="As an Agent User, whom a certificate signs in.", value=bool
            ),
        )
        self.help_text = f"Add {account.title} of a Microsoft account (default name: {account.kind})."

    def missing(self, values: SetupValues) -> str:
        """Return what an Agent User cannot do without, or else the id of the app."""
        if not _is_of_agent(values):
            return "" if values.get("client_id") else "--client-id"
        lacking = [key for key in _AGENT_KEYS if not values.get(key)]
        if lacking:
            option = lacking[0].replace("_", "-")
            raise UserError(
                f"Missing option '--{option}': an Agent User has no sign-in but its certificate.", "Give it too."
            )
        return ""

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Tell the person what is needed, and ask for what is missing."""
        del name
        console = context.console
        console.tell(
            f"{self._account.title} is read through an app that is registered in Microsoft Entra: App registrations, "
            'New registration, platform "Mobile and desktop applications" with the address http://localhost, and '
            '"Allow public client flows" on. Your organisation may have one already.'
        )
        client_id = text_of(values, "client_id") or console.prompt("The app's client id")
        tenant = text_of(values, "tenant") or console.prompt("The tenant's id or domain", ANY_TENANT)
        return {**values, "client_id": client_id, "tenant": tenant}

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written."""
        del name, context
        known = {key: value for key, value in values.items() if key.islower()}
        found = {
            "sign_in": AGENT if _is_of_agent(values) else "",
            **known,
            "tenant": "" if values.get("tenant") == ANY_TENANT else values.get("tenant"),
            "cache": "keyring" if values.get("KEYRING") else "",
        }
        return written(self.kind, found)

    def next_step(self, values: SetupValues) -> str:
        """Return what comes next: a person signs in, a certificate is tried."""
        return "test" if _is_of_agent(values) else "login"

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say which permissions are asked for and why, and who consents."""
        del name, context
        permissions = [f"  {scope}: {why}" for scope, why in self._account.permissions.items()]
        if _is_of_agent(values):
            notes = ["An administrator grants these permissions to the agent identity, for its user:", *permissions]
            notes.append("Nobody signs in. What an agent answers there is sent in the name of the Agent User.")
        else:
            tenant = text_of(entry, "tenant") or ANY_TENANT
            client = urlencode({"client_id": text_of(entry, "client_id")})
            notes = ["It will ask for these permissions:", *permissions]
            notes.append(
                "Most organisations let only an administrator allow an app to read chats or mail. If yours does, have "
                f"one open this, once: {AUTHORITY}/{tenant}/adminconsent?{client}"
            )
        return SetupOutcome(notes=[*notes, *self.warnings(entry)])

    def warnings(self, entry: Mapping[str, object]) -> list[str]:
        """Return what is to be known of this kind besides."""
        del entry
        return []


def _is_of_agent(values: SetupValues) -> bool:
    """Whether an Agent User is meant, said so or by what only one has."""
    return any(values.get(key) for key in ("AGENT", "blueprint_id", "agent_id", "user_id", "certificate"))
