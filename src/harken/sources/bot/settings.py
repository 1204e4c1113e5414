"""What a person configures of a bot: `[sources.NAME]` with `kind = "bot"`, and how it is set up.

The secret is only named: the factory of the source looks it up. Nothing here uses the network. Above are the source and
the commands, below is `sources/settings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal
from urllib.parse import quote, urlsplit

from harken.errors import UserError
from harken.sources.settings import SettingsTable, SourceSettings, is_loopback, keys_of, options_of, setting
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

KIND: Final = "bot"
PATH: Final = "/bot/messages"
TEAMS: Final = "msteams"
PUBLIC: Final = "public"
GOVERNMENT: Final = "us-government"
EVERY_TENANT: Final = "*"
MANY_TENANTS: Final = "botframework.com"  # the tenant of bots that were registered for every organisation
MAX_SERVICE_CHARS: Final = 500

_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.)+[A-Za-z0-9-]{2,62}")
_CHANNEL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~%!$'()*+,;=:@/-]*)?")
_HOST: Final = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,250})")


class BotOptions(SourceSettings, frozen=True, kw_only=True):
    """The keys of a bot."""

    app_id: Annotated[str, setting("Its Microsoft App ID.", example="1b730954-…", flag="--app-id", metavar="ID")]
    tenant: Annotated[str, setting("The tenant's id or domain.", example="contoso.com", flag="--tenant", metavar="ID")]
    secret: Annotated[
        str,
        setting(
            "Where its secret is kept: env:NAME or file:PATH.",
            example="env:BOT_SECRET",
            flag="--secret",
            metavar="REF",
            is_secret=True,
        ),
    ]
    tenants: Annotated[tuple[str, ...], setting('Whose people are heard; ["*"]: all.', example='["*"]')] = ()
    channels: Annotated[tuple[str, ...], setting("The channels it is open for.", example='["msteams"]')] = ("msteams",)
    cloud: Annotated[Literal["public", "us-government"], setting("Which of Microsoft's clouds it is in.")] = "public"
    openid_url: Annotated[str, setting("Where the keys are that posts are signed with.")] = ""
    token_url: Annotated[str, setting("Where it gets its tokens.")] = ""
    service_hosts: Annotated[tuple[str, ...], setting("Further hosts that answers may go to.")] = ()
    ca: Annotated[str, setting("A file of certificates that are believed besides the system's.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotCloud:
    """Where Microsoft's bot service is. A host that begins with a dot stands for everything below it."""

    issuer: str
    openid_url: str
    authority: str
    scope: str
    hosts: tuple[str, ...]


# Everybody at Azure can have a name below trafficmanager.net: of those only the one that is Teams.
CLOUDS: Final[Mapping[str, BotCloud]] = MappingProxyType(
    {
        PUBLIC: BotCloud(
            issuer="https://api.botframework.com",
            openid_url="https://login.botframework.com/v1/.well-known/openidconfiguration",
            authority="https://login.microsoftonline.com",
            scope="https://api.botframework.com/.default",
            hosts=("smba.trafficmanager.net", ".botframework.com", ".teams.microsoft.com"),
        ),
        GOVERNMENT: BotCloud(
            issuer="https://api.botframework.us",
            openid_url="https://login.botframework.azure.us/v1/.well-known/openidconfiguration",
            authority="https://login.microsoftonline.us",
            scope="https://api.botframework.us/.default",
            hosts=(".botframework.azure.us", ".botframework.us", ".teams.microsoft.us"),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotSettings:
    """One bot."""

    name: str
    app_id: str
    secret: str  # where it is kept
    tenant: str
    issuer: str = CLOUDS[PUBLIC].issuer
    openid_url: str = CLOUDS[PUBLIC].openid_url
    token_url: str = ""
    scope: str = CLOUDS[PUBLIC].scope
    hosts: tuple[str, ...] = CLOUDS[PUBLIC].hosts  # where answers may go
    tenants: frozenset[str] = frozenset()  # whose people are heard; empty: all, also who names none
    channels: frozenset[str] = frozenset({TEAMS})
    ca: str = ""  # a file of certificates that are believed besides those of the system

    @property
    def address(self) -> str:
        """Where its posts arrive, for people."""
        return PATH

    def is_service(self, url: str) -> bool:
        """Whether an answer, and with it our token, may go to an address."""
        # A longer one, or one with other characters, may have been changed on its way into the store.
        if len(url) > MAX_SERVICE_CHARS or not _ADDRESS.fullmatch(url):
            return False
        try:
            parts = urlsplit(url)
            host, is_odd = (parts.hostname or "").lower(), "@" in parts.netloc or parts.port == 0
        except ValueError:
            return False
        if is_odd or not host or parts.query or parts.fragment:
            return False
        is_named = any(host == each or (each.startswith(".") and host.endswith(each)) for each in self.hosts)
        return is_named and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def read_settings(name: str, entry: Mapping[str, object]) -> BotSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    table = SettingsTable(name, entry)
    table.refuse_unknown(keys_of(BotOptions), "a bot")
    cloud = CLOUDS[table.choice("cloud", tuple(CLOUDS), PUBLIC)]
    tenant = _tenant(table)
    channels = frozenset(_names(table, "channels", _CHANNEL, 'a list, such as ["msteams"]')) or frozenset({TEAMS})
    return BotSettings(
        name=name,
        app_id=_app_id(table),
        secret=table.reference("secret", "where it is kept, such as env:BOT_SECRET"),
        tenant=tenant,
        issuer=cloud.issuer,
        openid_url=table.url("openid_url", cloud.openid_url),
        token_url=table.url("token_url", f"{cloud.authority}/{quote(tenant, safe='')}/oauth2/v2.0/token"),
        scope=cloud.scope,
        hosts=cloud.hosts + _hosts(table),
        tenants=_tenants(table, tenant, channels),
        channels=channels,
        ca=table.text("ca", "a file of certificates"),
    )


def _app_id(table: SettingsTable) -> str:
    wanted = "the Microsoft App ID of the bot, such as 1b730954-1685-4b74-9bfd-dac224a7b894"
    found = table.text("app_id", wanted, is_required=True)
    if not _GUID.fullmatch(found):
        # Not repeated: people paste the secret here.
        raise UserError(f"{table.dotted('app_id')} is not an app id.", f"Set it to {wanted}.")
    return found.lower()


def _tenant(table: SettingsTable) -> str:
    wanted = f"the id or domain of your tenant; {MANY_TENANTS} for a bot that was registered as multi-tenant"
    found = table.text("tenant", wanted, is_required=True)
    if not (_GUID.fullmatch(found) or _DOMAIN.fullmatch(found)):
        raise UserError(f"{table.dotted('tenant')} is not a tenant.", f"Set it to {wanted}.")
    return found.lower()


def _tenants(table: SettingsTable, own: str, channels: frozenset[str]) -> frozenset[str]:
    """Return the tenants that are heard: those that are named, or the bot's own if its id is known."""
    if table.entry.get("tenants") in ([EVERY_TENANT], (EVERY_TENANT,)):
        return frozenset()
    found = frozenset(_names(table, "tenants", _GUID, f'a list of tenant ids, or ["{EVERY_TENANT}"] for all'))
    # Only Teams names a tenant: with this, whoever writes on a web page would never be heard.
    is_own = not found and bool(_GUID.fullmatch(own)) and channels == {TEAMS}
    return frozenset({own}) if is_own else found


def _hosts(table: SettingsTable) -> tuple[str, ...]:
    """Return further hosts for answers. A dot alone, or a whole top-level domain, would be everybody."""
    found = _names(table, "service_hosts", _HOST, 'a list of hosts, such as ["smba.example.org"]')
    for each in found:
        if each.startswith(".") and "." not in each[1:]:
            raise UserError(f"{table.dotted('service_hosts')} holds {each!r}.", "Name one service, not a domain.")
    return found


def _names(table: SettingsTable, key: str, shape: re.Pattern[str], wanted: str) -> tuple[str, ...]:
    """Return a list of names of one shape, in small letters."""
    found = tuple(each.strip().lower() for each in table.texts(key, wanted))
    for each in found:
        if not shape.fullmatch(each):
            raise UserError(f"{table.dotted(key)} holds {repr(each)[:60]}.", f"Use {wanted}.")
    return found


class BotSetup(SourceSetup):
    """How a bot is set up."""

    options = options_of(BotOptions)
    help_text = "Add a bot that people write to in Teams; its name is bot unless you say so."

    def usual_name(self, values: SetupValues) -> str:
        """Return the kind's own name."""
        del values
        return KIND

    def missing(self, values: SetupValues) -> str:
        """Return what a bot cannot do without."""
        return next((f"--{key.replace('_', '-')}" for key in ("app_id", "tenant", "secret") if not values.get(key)), "")

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Tell the person what is needed, and ask for what is missing."""
        del name
        console = context.console
        console.tell(
            "A bot is a resource in Azure: Azure Bot, type Single Tenant, with the channel Microsoft Teams. Its page "
            "Configuration shows the Microsoft App ID and the tenant; under Manage Password you make a secret."
        )
        asked = {
            "app_id": "The Microsoft App ID",
            "tenant": f"The app tenant id ({MANY_TENANTS}: a multi-tenant bot)",
            "secret": "Where its secret is kept, as env:NAME or file:PATH",
        }
        return {**values, **{key: text_of(values, key) or console.prompt(text) for key, text in asked.items()}}

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written."""
        del name, context
        return written(KIND, values)

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say what is left to do in Azure."""
        del name, values, entry
        endpoint = messaging_endpoint(context.public_url)
        if endpoint:
            first = f"In Azure, on the bot's page Configuration, enter as messaging endpoint: {endpoint}"
        else:
            first = (
                "Microsoft posts to the bot over https and from outside. Set hooks.public_url in config.toml to the "
                "https address of your tunnel or reverse proxy; the messaging endpoint to enter in Azure, on the bot's "
                f"page Configuration, is that address and {PATH}."
            )
        teams = (
            "Under Channels, add Microsoft Teams; then upload an app package with this bot to Teams, or have an "
            "administrator do it. People write to the bot, or mention it in a group."
        )
        who = (
            "Whoever finds the bot can write to it. Heard are the organisation of the tenant's id, or those in tenants."
        )
        return SetupOutcome(notes=[first, teams, who], more={"messaging_endpoint": endpoint})


def messaging_endpoint(public_url: str) -> str:
    """Return the address that Microsoft posts to, empty while it is not set."""
    return f"{public_url}{PATH}" if public_url.startswith("https://") else ""
