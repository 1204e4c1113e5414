"""One account at Microsoft, ready to be asked: how it signs in, where that is kept, and the client of Graph.

The daemon opens it for its sources, and the commands that sign in, sign out and try a source open the same one.
It knows nothing of chats or mail. Imported only when it is needed: what signs in takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harken.clock import Clock
from harken.config.home import Home
from harken.config.secrets import resolve
from harken.daemon.certificates import believed
from harken.daemon.signed_in import SignIn
from harken.sources.microsoft.agent_user import AgentUser
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.settings import GraphSettings
from harken.sources.microsoft.sign_in import DelegatedSignIn
from harken.sources.microsoft.sign_in_service import SignInService
from harken.sources.microsoft.token_cache import TokenCache

FOLDER: Final = "sign-ins"  # in the home


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account. `person` signs in by a command; an Agent User has none."""

    settings: GraphSettings
    sign_in: SignIn
    client: GraphClient
    person: DelegatedSignIn | None = None


def open_account(settings: GraphSettings, home: Home, clock: Clock, environ: Mapping[str, str]) -> Account:
    """Return the account of a source; nobody is asked yet. Raises `UserError` when its certificate is not there."""
    trust = believed(settings.ca, settings.name, home, environ)
    service = SignInService(clock, trust=trust or True)
    if settings.is_agent:
        certificate = resolve(settings.certificate, home, environ)
        agent = AgentUser(settings.agent_user(certificate), service, clock)
        sign_in, person = SignIn(tokens=agent, user_id=settings.user_id), None
    else:
        cache = TokenCache(home.path / FOLDER, settings.name, is_in_keyring=settings.cache == "keyring")
        person = DelegatedSignIn(settings.delegated(), cache, service, clock)
        sign_in = SignIn(tokens=person, stamp=cache.stamp)
    client = GraphClient(sign_in, clock, name=settings.name, base_url=settings.graph_url, verify=trust)
    return Account(settings=settings, sign_in=sign_in, client=client, person=person)
