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

import msgspec
from msgspec.structs import force_setattr

from harken.errors import UserError
from harken.sources.settings import (
    CERTIFICATES,
    SettingKey,
    SourceSettings,
    TextReader,
    is_loopback,
    options_of,
    private_url,
    shaped,
)
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of

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
_TENANT: Final = re.compile(f"{_GUID.pattern}|{_DOMAIN.pattern}")
_TENANTS: Final = f'a list of tenant ids, or ["{EVERY_TENANT}"] for all'
_AUTHORITY: Final = "https://login.microsoftonline.com"
_OPENID: Final = "https://login.botframework.com/v1/.well-known/openidconfiguration"
_heard_tenant: Final = shaped(re.compile(rf"{_GUID.pattern}|\{EVERY_TENANT}"), "is not a tenant id.")
_HOST: Final = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,250})")


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
            openid_url=_OPENID,
            authority=_AUTHORITY,
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


def _small(read: TextReader) -> TextReader:
    return lambda text: read(text).lower()


class BotSettings(SourceSettings, frozen=True, kw_only=True):
    """One bot. What depends on the cloud has no default of its own."""

    what = "a bot"

    app_id: Annotated[
        str, SettingKey("Its Microsoft App ID.", metavar="ID", read=_small(shaped(_GUID, "is not an app id.")))
    ]
    tenant: Annotated[
        str,
        SettingKey(
            f"The tenant's id or domain; {MANY_TENANTS} of a multi-tenant bot.",
            metavar="ID",
            read=_small(shaped(_TENANT, "is not a tenant.")),
        ),
    ]
    secret: Annotated[
        str, SettingKey("Where its secret is kept, such as env:BOT_SECRET or file:PATH.", metavar="REF", is_secret=True)
    ]
    named_tenants: Annotated[
        frozenset[str],
        SettingKey(
            'Whose people are heard; ["*"]: all.', wanted=_TENANTS, noun="tenant id", read=_small(_heard_tenant)
        ),
    ] = msgspec.field(name="tenants", default=frozenset())
    channels: Annotated[
        frozenset[str],
        SettingKey(
            'A list of channels, such as ["msteams"].', noun="channel", read=shaped(_CHANNEL, "is not a channel.")
        ),
    ] = frozenset({TEAMS})
    cloud: Annotated[Literal["public", "us-government"], SettingKey("Which of Microsoft's clouds it is in.")] = "public"
    openid_url: Annotated[
        str, SettingKey(f"Where the keys are that posts are signed with, such as {_OPENID}.", read=private_url)
    ] = ""
    token_url: Annotated[
        str, SettingKey(f"Where it gets its tokens, such as {_AUTHORITY}/ID/oauth2/v2.0/token.", read=private_url)
    ] = ""
    service_hosts: Annotated[
        tuple[str, ...],
        SettingKey(
            'A list of hosts that answers may go to besides, such as ["smba.example.org"].',
            noun="host",
            read=_small(shaped(_HOST, "is not a host.")),
        ),
    ] = ()
    ca: Annotated[str, CERTIFICATES] = ""

    def __post_init__(self) -> None:
        url = f"{self._cloud.authority}/{quote(self.tenant, safe='')}/oauth2/v2.0/token"
        force_setattr(self, "openid_url", self.openid_url or self._cloud.openid_url)
        force_setattr(self, "token_url", self.token_url or url)
        force_setattr(self, "channels", self.channels or frozenset({TEAMS}))

    def check(self) -> None:
        """Refuse what would let everybody in, or everybody's answers out."""
        if EVERY_TENANT in self.named_tenants and len(self.named_tenants) > 1:
            raise UserError(f"{self.dotted('tenants')} has tenants besides {EVERY_TENANT!r}.", f"Use {_TENANTS}.")
        for each in self.service_hosts:
            # A dot alone, or a whole top-level domain, would be everybody.
            if each.startswith(".") and "." not in each[1:]:
                raise UserError(f"{self.dotted('service_hosts')} holds {each!r}.", "Name one service, not a domain.")

    @property
    def _cloud(self) -> BotCloud:
        return CLOUDS[self.cloud]

    @property
    def issuer(self) -> str:
        """Who signs what is posted."""
        return self._cloud.issuer

    @property
    def scope(self) -> str:
        """What tokens are asked for."""
        return self._cloud.scope

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where answers may go."""
        return self._cloud.hosts + self.service_hosts

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that are heard: those that are named, or the bot's own if its id is known; empty: all."""
        if self.named_tenants:
            return self.named_tenants - {EVERY_TENANT}
        # Only Teams names a tenant: with this, whoever writes on a web page would never be heard.
        is_own = bool(_GUID.fullmatch(self.tenant)) and self.channels == {TEAMS}
        return frozenset({self.tenant}) if is_own else frozenset()

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


read_settings: Final = BotSettings.read


class BotSetup(SourceSetup):
    """How a bot is set up."""

    kind = default_name = KIND
    needed = ("app_id", "tenant", "secret")
    options = options_of(BotSettings)
    help_text = "Add a bot that people write to in Teams (default name: bot)."

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
    """Return the address that Microsoft posts to, empty while it is not configured."""
    return f"{public_url}{PATH}" if public_url.startswith("https://") else ""
