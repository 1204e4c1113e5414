"""What a person configures of Teams or Outlook: `[sources.NAME]` with that kind, and how it is set up.

The first part is how the account signs in, the second all the rest. The certificate of an Agent User is only named: the
factory of the source looks it up. Nothing here uses the network. Above are the sources and the commands, below is the
reader of settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final, Literal
from urllib.parse import urlencode, urlsplit

from harken.errors import UserError
from harken.sources.settings import SettingsTable, SourceOption, SourceSettings, keys_of, options_of, setting
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

AUTHORITY: Final = "https://login.microsoftonline.com"
GRAPH_SCOPE: Final = "https://graph.microsoft.com/.default"
SHARED_TENANTS: Final = frozenset({"common", "organizations", "consumers"})
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


DELEGATED: Final = "delegated"
AGENT: Final = "agent"
GRAPH_URL: Final = "https://graph.microsoft.com/v1.0"
ANY_TENANT: Final = "organizations"
MIN_POLL_SECONDS: Final = 5.0
MAX_POLL_SECONDS: Final = 86_400.0
# Said by an Agent User while an agent works. In a person's name nothing is said that nobody asked for.
PLACEHOLDER: Final[Mapping[str, str]] = MappingProxyType({DELEGATED: "", AGENT: "An agent is working on this."})
MAX_PLACEHOLDER_CHARS: Final = 500
MAX_ADDRESS_CHARS: Final = 320
MOST_ADDRESSES: Final = 500  # of one account; Microsoft allows fewer
_SIGN_IN_KEYS: Final = MappingProxyType(
    {
        DELEGATED: frozenset({"client_id", "scopes", "cache"}),
        AGENT: frozenset({"blueprint_id", "agent_id", "user_id", "certificate"}),
    }
)


class AccountKeys(SourceSettings, frozen=True, kw_only=True):
    """The keys that every source over an account at Microsoft has."""

    tenant: Annotated[
        str, setting("The tenant's id or domain.", example="contoso.com", flag="--tenant", metavar="ID")
    ] = ANY_TENANT
    client_id: Annotated[
        str, setting("The id of the registered app.", example="1b730954-…", flag="--client-id", metavar="ID")
    ] = ""
    poll: Annotated[float | None, setting("How often to look.", example="60", flag="--poll", metavar="SECONDS")] = None
    sign_in: Annotated[
        Literal["delegated", "agent"], setting("A person signs in, or a certificate signs an Agent User in.")
    ] = "delegated"
    scopes: Annotated[tuple[str, ...], setting("The permissions to ask for.", example='["User.Read"]')] = ()
    cache: Annotated[
        Literal["file", "keyring"], setting("Where the sign-in is kept; keyring locks it with the keyring.")
    ] = "file"
    blueprint_id: Annotated[
        str, setting("Agent User: the client id of its blueprint.", flag="--blueprint-id", metavar="ID")
    ] = ""
    agent_id: Annotated[str, setting("Agent User: the id of its agent identity.", flag="--agent-id", metavar="ID")] = ""
    user_id: Annotated[str, setting("Agent User: its own object id.", flag="--user-id", metavar="ID")] = ""
    certificate: Annotated[
        str,
        setting(
            "Agent User: file:PATH of its PEM, or env:NAME.",
            example="file:agent.pem",
            flag="--certificate",
            metavar="REF",
            is_secret=True,
        ),
    ] = ""
    notifications: Annotated[
        bool, setting("Whether Microsoft is asked to tell of changes; needs hooks.public_url.")
    ] = False
    graph_url: Annotated[str, setting("Where Microsoft Graph is.", example="https://graph.microsoft.com/v1.0")] = (
        GRAPH_URL
    )
    authority: Annotated[str, setting("Where people sign in.", example="https://login.microsoftonline.com")] = AUTHORITY
    ca: Annotated[str, setting("A file of certificates that are believed besides the system's.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountKind:
    """What tells one kind of source over an account from another: its keys, its pace, and its permissions with why."""

    name: str
    title: str
    keys: type[AccountKeys]
    poll_seconds: float
    permissions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Teams or Outlook of one account."""

    name: str
    kind: str
    tenant: str = ANY_TENANT
    client_id: str = ""
    mode: str = DELEGATED
    scopes: tuple[str, ...] = ()
    graph_url: str = GRAPH_URL
    authority: str = AUTHORITY
    ca: str = ""  # a file of certificates that are believed besides those of the system
    poll: float = 60.0  # seconds from one look to the next
    notifications: bool = False  # whether Microsoft is asked to tell of changes
    notice_url: str = ""  # where it posts then; follows from `hooks.public_url`
    watched: tuple[str, ...] = ()  # ids or topics of chats; empty: all
    muted: tuple[str, ...] = ()
    placeholder: str = ""  # what a chat is told while an agent works, until its answer takes the place; empty: nothing
    folders: tuple[str, ...] = ("inbox",)
    addresses: tuple[str, ...] = ()  # of the account, besides those that the service tells
    trust_from: bool = False  # whether the sender that a mail names is believed without proof
    blueprint_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    certificate: str = ""  # where it is kept
    cache: str = "file"

    @property
    def is_agent(self) -> bool:
        """Whether an Agent User is signed in by its certificate, and no person is."""
        return self.mode == AGENT

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


def read_account(account: AccountKind, name: str, entry: Mapping[str, object]) -> GraphSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    table = SettingsTable(name, entry)
    mode = table.choice("sign_in", tuple(_SIGN_IN_KEYS), DELEGATED)
    _refuse_unknown(table, account, mode)
    settings = GraphSettings(
        name=name,
        kind=account.name,
        mode=mode,
        tenant=table.text("tenant", "the tenant's id or domain") or ANY_TENANT,
        graph_url=table.url("graph_url", GRAPH_URL).rstrip("/"),
        authority=table.url("authority", AUTHORITY, can_be_local=False).rstrip("/"),
        ca=table.text("ca", "a file of certificates"),
        poll=table.seconds("poll", account.poll_seconds, MIN_POLL_SECONDS, MAX_POLL_SECONDS),
        notifications=table.flag("notifications"),
        watched=_names(table, "watched", 'a list of chat ids or topics, such as ["Release"]'),
        muted=_names(table, "muted", 'a list of chat ids or topics, such as ["Lunch"]'),
        placeholder=_sentence(table, "placeholder", PLACEHOLDER[mode]),
        folders=_names(table, "folders", 'a list of folders, such as ["inbox"]') or ("inbox",),
        addresses=_addresses(table),
        trust_from=table.flag("trust_from"),
    )
    if mode == DELEGATED:
        settings = replace(
            settings,
            client_id=table.text("client_id", "the id of the app registration", is_required=True),
            scopes=_names(table, "scopes", 'a list of permissions, such as ["Chat.Read", "User.Read"]')
            or tuple(account.permissions),
            cache=table.choice("cache", ("file", "keyring"), "file"),
        )
        settings.delegated()
        return settings
    settings = replace(
        settings,
        blueprint_id=table.text("blueprint_id", "the blueprint's client id", is_required=True),
        agent_id=table.text("agent_id", "the agent identity's id", is_required=True),
        user_id=table.text("user_id", "the object id of the Agent User", is_required=True),
        certificate=table.reference("certificate", "where the PEM is kept, such as file:agent.pem"),
    )
    settings.agent_user("")
    return settings


def _refuse_unknown(table: SettingsTable, account: AccountKind, mode: str) -> None:
    elsewhere = frozenset[str]().union(*_SIGN_IN_KEYS.values()) - _SIGN_IN_KEYS[mode]
    known = keys_of(account.keys) - elsewhere
    for other, keys in _SIGN_IN_KEYS.items():
        table.refuse_meaningless(keys - known, f'sign_in = "{mode}"', f'Remove it, or set sign_in = "{other}".')
    table.refuse_unknown(known, account.name)


def _names(table: SettingsTable, key: str, wanted: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in table.lines(key, wanted))


def mail_address(text: str) -> str:
    """Return a mail address as it is compared, or nothing if it is none."""
    address = text.strip().lower()
    name, at, place = address.partition("@")
    is_one = name and at and place and "@" not in place and address.isprintable() and " " not in address
    return address if is_one and len(address) <= MAX_ADDRESS_CHARS else ""


def _addresses(table: SettingsTable) -> tuple[str, ...]:
    wanted = 'a list of mail addresses, such as ["team@example.org"]'
    given = table.lines("addresses", wanted, "mail address")
    found = tuple(dict.fromkeys(mail_address(each) for each in given))
    if "" in found:
        raise UserError(f"{table.dotted('addresses')} holds something that is not a mail address.", f"Use {wanted}.")
    if len(found) > MOST_ADDRESSES:
        raise UserError(f"{table.dotted('addresses')} is too long.", f"Name at most {MOST_ADDRESSES} addresses.")
    return found


def _sentence(table: SettingsTable, key: str, default: str) -> str:
    """Return a text that may be empty: then nothing is said."""
    found = table.entry.get(key, default)
    if not isinstance(found, str) or len(found) > MAX_PLACEHOLDER_CHARS or not found.isprintable():
        raise UserError(
            f"{table.dotted(key)} is not a text of one line.",
            f'Use at most {MAX_PLACEHOLDER_CHARS} characters, or "" for none.',
        )
    return found.strip()


_AGENT_KEYS = ("tenant", "blueprint_id", "agent_id", "user_id", "certificate")


class AccountSetup(SourceSetup):
    """How an account at Microsoft is set up, of whichever kind."""

    def __init__(self, account: AccountKind) -> None:
        self._account = account
        self.options = (
            *options_of(account.keys),
            SourceOption(flag="--keyring", key="KEYRING", help="Lock the sign-in with the keyring.", value=bool),
            SourceOption(
                flag="--agent", key="AGENT", help="As an Agent User, whom a certificate signs in.", value=bool
            ),
        )
        self.help_text = (
            f"Add {account.title} of an account at Microsoft; its name is {account.name} unless you say so."
        )

    def usual_name(self, values: SetupValues) -> str:
        """Return the kind's own name."""
        del values
        return self._account.name

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
        return written(self._account.name, found)

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
