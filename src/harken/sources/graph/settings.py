"""What a person configures of Teams or Outlook: `[sources.NAME]` with that kind, checked key by key.

How somebody signs in is checked by `tokens/settings.py`, which is given what stands here. The certificate of an Agent
User is only named: whoever makes the source looks it up. Nothing here talks to anybody or imports what does. Above are
the sources and the commands, below are only the errors.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from harken.errors import UserError
from harken.sources.graph.tokens.settings import AUTHORITY, AgentUserSettings, DelegatedSettings

TEAMS: Final = "teams"
OUTLOOK: Final = "outlook"
KINDS: Final = (TEAMS, OUTLOOK)
DELEGATED: Final = "delegated"
AGENT: Final = "agent"
GRAPH_URL: Final = "https://graph.microsoft.com/v1.0"
ANY_TENANT: Final = "organizations"
MIN_POLL_SECONDS: Final = 5.0
MAX_POLL_SECONDS: Final = 86_400.0
POLL_SECONDS: Final[Mapping[str, float]] = MappingProxyType({TEAMS: 8.0, OUTLOOK: 60.0})
# Said by an Agent User while an agent works. In a person's name nothing is said that nobody asked for.
PLACEHOLDER: Final[Mapping[str, str]] = MappingProxyType({DELEGATED: "", AGENT: "An agent is working on this."})
MAX_PLACEHOLDER_CHARS: Final = 500
# What each permission is for, in the order in which people are told.
PERMISSIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        TEAMS: MappingProxyType(
            {
                "User.Read": "to know who signed in",
                "Chat.ReadWrite": "to read your chats, and to change what Harken itself wrote there",
                "ChatMessage.Send": "to answer in a chat",
            }
        ),
        OUTLOOK: MappingProxyType(
            {
                "User.Read": "to know who signed in",
                "Mail.Read": "to read your mail",
                "Mail.Send": "to answer a mail",
            }
        ),
    }
)

_REFERENCES: Final = ("env:", "file:", "keyring:")
# What everybody who makes a source may say; others read these, and they are no mistake here.
_SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
_PLACE_KEYS: Final = frozenset({"sign_in", "tenant", "poll", "notifications", "graph_url", "authority", "ca"})
_SIGN_IN_KEYS: Final = MappingProxyType(
    {
        DELEGATED: frozenset({"client_id", "scopes", "cache"}),
        AGENT: frozenset({"blueprint_id", "agent_id", "user_id", "certificate"}),
    }
)
_KIND_KEYS: Final = MappingProxyType(
    {TEAMS: frozenset({"watched", "muted", "placeholder"}), OUTLOOK: frozenset({"folders", "trust_from"})}
)


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
        """How soon something is known that nobody tells of, for people."""
        return f"looks every {self.poll:g} s"

    def delegated(self) -> DelegatedSettings:
        """Return how a person signs in; raises `UserError` that names the key."""
        return DelegatedSettings(
            name=self.name,
            client_id=self.client_id,
            scopes=self.scopes or tuple(PERMISSIONS[self.kind]),
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


def read_settings(name: str, entry: Mapping[str, object]) -> GraphSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    reading = _Reading(name, entry)
    kind = reading.choice("kind", KINDS, "")
    mode = reading.choice("sign_in", tuple(_SIGN_IN_KEYS), DELEGATED)
    reading.refuse_unknown(kind, mode)
    settings = GraphSettings(
        name=name,
        kind=kind,
        mode=mode,
        tenant=reading.text("tenant", "the tenant's id or domain") or ANY_TENANT,
        graph_url=reading.url("graph_url", GRAPH_URL, can_be_http=True),
        authority=reading.url("authority", AUTHORITY, can_be_http=False),
        ca=reading.text("ca", "a file of certificates"),
        poll=reading.seconds("poll", POLL_SECONDS[kind]),
        notifications=reading.flag("notifications"),
        watched=reading.texts("watched", 'a list of chat ids or topics, such as ["Release"]'),
        muted=reading.texts("muted", 'a list of chat ids or topics, such as ["Lunch"]'),
        placeholder=reading.sentence("placeholder", PLACEHOLDER[mode]),
        folders=reading.texts("folders", 'a list of folders, such as ["inbox"]') or ("inbox",),
        trust_from=reading.flag("trust_from"),
    )
    if mode == DELEGATED:
        settings = replace(
            settings,
            client_id=reading.text("client_id", "the id of the app registration", is_required=True),
            scopes=reading.texts("scopes", 'a list of permissions, such as ["Chat.Read", "User.Read"]'),
            cache=reading.choice("cache", ("file", "keyring"), "file"),
        )
        settings.delegated()
        return settings
    settings = replace(
        settings,
        blueprint_id=reading.text("blueprint_id", "the blueprint's client id", is_required=True),
        agent_id=reading.text("agent_id", "the agent identity's id", is_required=True),
        user_id=reading.text("user_id", "the object id of the Agent User", is_required=True),
        certificate=reading.reference("certificate", "where the PEM is kept, such as file:agent.pem"),
    )
    settings.agent_user("")
    return settings


class _Reading:
    """Reads one entry; every mistake is a `UserError` that says which key and what would do."""

    def __init__(self, name: str, entry: Mapping[str, object]) -> None:
        self._name = name
        self._entry = entry

    def choice(self, key: str, known: tuple[str, ...], default: str) -> str:
        found = self._entry.get(key, default)
        if not isinstance(found, str) or found not in known:
            raise UserError(f"{self._dotted(key)} is {repr(found)[:60]}.", f"Use one of {', '.join(known)}.")
        return found

    def refuse_unknown(self, kind: str, mode: str) -> None:
        known = _SHARED_KEYS | _PLACE_KEYS | _KIND_KEYS[kind] | _SIGN_IN_KEYS[mode]
        for key in self._entry:
            if key in known:
                continue
            for other, keys in _SIGN_IN_KEYS.items():
                if key in keys:
                    raise UserError(
                        f'{self._dotted(key)} has no meaning with sign_in = "{mode}".',
                        f'Remove it, or set sign_in = "{other}".',
                    )
            near = difflib.get_close_matches(key[:100].casefold().replace("-", "_"), sorted(known), n=1, cutoff=0.65)
            guess = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
            raise UserError(f"{self._dotted(key)} is not a setting of {kind}.", guess)

    def text(self, key: str, wanted: str, *, is_required: bool = False) -> str:
        found = self._entry.get(key)
        if found is None:
            if is_required:
                raise UserError(f"{self._dotted(key)} is missing.", f"Set it to {wanted}.")
            return ""
        if not isinstance(found, str) or not found.strip() or not found.isprintable():
            raise UserError(f"{self._dotted(key)} is not a text of one line.", f"Use {wanted}.")
        return found.strip()

    def sentence(self, key: str, default: str) -> str:
        """Return a text that may be empty: then nothing is said."""
        found = self._entry.get(key, default)
        if not isinstance(found, str) or len(found) > MAX_PLACEHOLDER_CHARS or not found.isprintable():
            raise UserError(
                f"{self._dotted(key)} is not a text of one line.",
                f'Use at most {MAX_PLACEHOLDER_CHARS} characters, or "" for none.',
            )
        return found.strip()

    def reference(self, key: str, wanted: str) -> str:
        found = self.text(key, wanted, is_required=True)
        if not found.startswith(_REFERENCES):
            # Not repeated: people paste the key itself.
            raise UserError(f"{self._dotted(key)} does not say where it is kept.", f"Set it to {wanted}.")
        return found

    def texts(self, key: str, wanted: str) -> tuple[str, ...]:
        found = self._entry.get(key, ())
        if not isinstance(found, list | tuple):
            raise UserError(f"{self._dotted(key)} is not a list.", f"Use {wanted}.")
        for each in found:
            if not isinstance(each, str) or not each.strip() or not each.isprintable():
                raise UserError(f"{self._dotted(key)} holds something that is not a text.", f"Use {wanted}.")
        return tuple(each.strip() for each in found)

    def flag(self, key: str) -> bool:
        found = self._entry.get(key, False)
        if not isinstance(found, bool):
            raise UserError(f"{self._dotted(key)} is {repr(found)[:60]}.", "Use true or false.")
        return found

    def seconds(self, key: str, default: float) -> float:
        found = self._entry.get(key, default)
        is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        if not is_number or not MIN_POLL_SECONDS <= float(str(found)) <= MAX_POLL_SECONDS:
            raise UserError(
                f"{self._dotted(key)} is {repr(found)[:60]}.",
                f"Use a number of seconds from {MIN_POLL_SECONDS:g} to {MAX_POLL_SECONDS:g}.",
            )
        return float(str(found))

    def url(self, key: str, default: str, *, can_be_http: bool) -> str:
        """Return an address that a token may go to: over https, or where it stays on this machine."""
        found = self.text(key, f"an address such as {default}") or default
        try:
            parts = urlsplit(found)
            is_bare = not (parts.query or parts.fragment) and "@" not in parts.netloc and parts.port != 0
            is_private = parts.scheme == "https" or (
                can_be_http and parts.scheme == "http" and _is_loopback(parts.hostname or "")
            )
            is_good = is_bare and is_private and bool(parts.hostname) and " " not in found
        except ValueError:
            is_good = False
        if not is_good:
            # The address may hold a password, so it is not repeated.
            raise UserError(
                f"{self._dotted(key)} is not an https address that a token may go to.", f"Use one such as {default}."
            )
        return found.rstrip("/")

    def _dotted(self, key: str) -> str:
        return f"sources.{self._name}.{key}"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
