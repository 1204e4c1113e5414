"""What a person configures of a bot: `[sources.NAME]` with `kind = "bot"`, checked key by key.

The secret is only named: whoever makes the source looks it up. Nothing here talks to anybody or imports what does.
Above are the source and the commands, below are only the errors.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, urlsplit

from harken.errors import UserError

KIND: Final = "bot"
PATH: Final = "/bot/messages"
TEAMS: Final = "msteams"
PUBLIC: Final = "public"
GOVERNMENT: Final = "us-government"
EVERY_TENANT: Final = "*"
MANY_TENANTS: Final = "botframework.com"  # the tenant of bots that were registered for every organisation
MAX_SERVICE_CHARS: Final = 500

_REFERENCES: Final = ("env:", "file:", "keyring:")
# What everybody who makes a source may say; others read these, and they are no mistake here.
_SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
_OWN_KEYS: Final = frozenset(
    {"app_id", "secret", "tenant", "tenants", "channels", "cloud", "openid_url", "token_url", "service_hosts", "ca"}
)
_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.)+[A-Za-z0-9-]{2,62}")
_CHANNEL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~%!$'()*+,;=:@/-]*)?")
_HOST: Final = re.compile(r"\.?[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,250})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Where Microsoft's bot service is. A host that begins with a dot stands for everything below it."""

    issuer: str
    openid_url: str
    authority: str
    scope: str
    hosts: tuple[str, ...]


# Everybody at Azure can have a name below trafficmanager.net: of those only the one that is Teams.
CLOUDS: Final[Mapping[str, Cloud]] = MappingProxyType(
    {
        PUBLIC: Cloud(
            issuer="https://api.botframework.com",
            openid_url="https://login.botframework.com/v1/.well-known/openidconfiguration",
            authority="https://login.microsoftonline.com",
            scope="https://api.botframework.com/.default",
            hosts=("smba.trafficmanager.net", ".botframework.com", ".teams.microsoft.com"),
        ),
        GOVERNMENT: Cloud(
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
        return is_named and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))


def read_settings(name: str, entry: Mapping[str, object]) -> BotSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    reading = _Reading(name, entry)
    reading.refuse_unknown()
    cloud = CLOUDS[reading.choice("cloud", tuple(CLOUDS), PUBLIC)]
    tenant = reading.tenant()
    channels = frozenset(reading.texts("channels", _CHANNEL, 'a list, such as ["msteams"]')) or frozenset({TEAMS})
    return BotSettings(
        name=name,
        app_id=reading.app_id(),
        secret=reading.reference("secret", "where it is kept, such as env:BOT_SECRET"),
        tenant=tenant,
        issuer=cloud.issuer,
        openid_url=reading.url("openid_url", cloud.openid_url),
        token_url=reading.url("token_url", f"{cloud.authority}/{quote(tenant, safe='')}/oauth2/v2.0/token"),
        scope=cloud.scope,
        hosts=cloud.hosts + reading.hosts(),
        tenants=reading.tenants(tenant, channels),
        channels=channels,
        ca=reading.text("ca", "a file of certificates"),
    )


class _Reading:
    """Reads one entry; every mistake is a `UserError` that says which key and what would do."""

    def __init__(self, name: str, entry: Mapping[str, object]) -> None:
        self._name = name
        self._entry = entry

    def refuse_unknown(self) -> None:
        known = _SHARED_KEYS | _OWN_KEYS
        for key in self._entry:
            if key not in known:
                wanted = key[:100].casefold().replace("-", "_")
                near = difflib.get_close_matches(wanted, sorted(known), n=1, cutoff=0.65)
                guess = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
                raise UserError(f"{self._dotted(key)} is not a setting of a bot.", guess)

    def choice(self, key: str, known: tuple[str, ...], default: str) -> str:
        found = self._entry.get(key, default)
        if not isinstance(found, str) or found not in known:
            raise UserError(f"{self._dotted(key)} is {repr(found)[:60]}.", f"Use one of {', '.join(known)}.")
        return found

    def text(self, key: str, wanted: str, *, is_required: bool = False) -> str:
        found = self._entry.get(key)
        if found is None:
            if is_required:
                raise UserError(f"{self._dotted(key)} is missing.", f"Set it to {wanted}.")
            return ""
        if not isinstance(found, str) or not found.strip() or not found.isprintable():
            raise UserError(f"{self._dotted(key)} is not a text of one line.", f"Use {wanted}.")
        return found.strip()

    def app_id(self) -> str:
        wanted = "the Microsoft App ID of the bot, such as 1b730954-1685-4b74-9bfd-dac224a7b894"
        found = self.text("app_id", wanted, is_required=True)
        if not _GUID.fullmatch(found):
            # Not repeated: people paste the secret here.
            raise UserError(f"{self._dotted('app_id')} is not an app id.", f"Set it to {wanted}.")
        return found.lower()

    def tenant(self) -> str:
        wanted = f"the id or domain of your tenant; {MANY_TENANTS} for a bot that was registered as multi-tenant"
        found = self.text("tenant", wanted, is_required=True)
        if not (_GUID.fullmatch(found) or _DOMAIN.fullmatch(found)):
            raise UserError(f"{self._dotted('tenant')} is not a tenant.", f"Set it to {wanted}.")
        return found.lower()

    def tenants(self, own: str, channels: frozenset[str]) -> frozenset[str]:
        """Return whose people are heard: those that are named, or those of the bot's own tenant if its id is known."""
        if self._entry.get("tenants") in ([EVERY_TENANT], (EVERY_TENANT,)):
            return frozenset()
        found = frozenset(self.texts("tenants", _GUID, f'a list of tenant ids, or ["{EVERY_TENANT}"] for all'))
        # Only Teams names a tenant: with this, whoever writes on a web page would never be heard.
        is_own = not found and bool(_GUID.fullmatch(own)) and channels == {TEAMS}
        return frozenset({own}) if is_own else found

    def reference(self, key: str, wanted: str) -> str:
        found = self.text(key, wanted, is_required=True)
        if not found.startswith(_REFERENCES):
            # Not repeated: people paste the secret itself.
            raise UserError(f"{self._dotted(key)} does not say where it is kept.", f"Set it to {wanted}.")
        return found

    def texts(self, key: str, shape: re.Pattern[str], wanted: str) -> tuple[str, ...]:
        found = self._entry.get(key, ())
        if not isinstance(found, list | tuple):
            raise UserError(f"{self._dotted(key)} is not a list.", f"Use {wanted}.")
        for each in found:
            if not isinstance(each, str) or not shape.fullmatch(each.strip().lower()):
                raise UserError(f"{self._dotted(key)} holds {repr(each)[:60]}.", f"Use {wanted}.")
        return tuple(each.strip().lower() for each in found)

    def hosts(self) -> tuple[str, ...]:
        """Return further hosts for answers. A dot alone, or a whole top-level domain, would be everybody."""
        found = self.texts("service_hosts", _HOST, 'a list of hosts, such as ["smba.example.org"]')
        for each in found:
            if each.startswith(".") and "." not in each[1:]:
                raise UserError(f"{self._dotted('service_hosts')} holds {each!r}.", "Name one service, not a domain.")
        return found

    def url(self, key: str, default: str) -> str:
        """Return an address that is believed or gets the secret: over https, or on this machine."""
        found = self.text(key, f"an address such as {default}") or default
        try:
            parts = urlsplit(found)
            is_bare = not (parts.query or parts.fragment) and "@" not in parts.netloc and parts.port != 0
            is_private = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))
            is_good = is_bare and is_private and bool(parts.hostname) and " " not in found
        except ValueError:
            is_good = False
        if not is_good:
            # The address may hold a password, so it is not repeated.
            raise UserError(f"{self._dotted(key)} is not an https address.", f"Use one such as {default}.")
        return found

    def _dotted(self, key: str) -> str:
        return f"sources.{self._name}.{key}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
