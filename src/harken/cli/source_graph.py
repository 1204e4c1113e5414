"""Adding Teams or Outlook: what a person must know and bring, asked for a question at a time or given as options.

It says which permissions are asked for and why, who must consent, and what Microsoft thinks of polling. Signing in is
the next step, which is offered here and has its own module.
"""

from __future__ import annotations

from urllib.parse import urlencode

import click
import msgspec

from harken.cli.output import note_to_person
from harken.cli.source_config import add_entry, check_name
from harken.cli.verbs import Invocation
from harken.sources.microsoft.settings import AGENT, ANY_TENANT, AUTHORITY, PERMISSIONS, POLL_SECONDS, TEAMS


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for. Empty: not asked for."""

    kind: str
    name: str
    tenant: str = ""
    client_id: str = ""
    poll: float | None = None
    is_in_keyring: bool = False
    is_agent: bool = False
    blueprint_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    certificate: str = ""
    trust: str | None = None
    attention: str | None = None

    @property
    def is_of_agent(self) -> bool:
        """Whether an Agent User is meant, said so or by what only one has."""
        return self.is_agent or any((self.blueprint_id, self.agent_id, self.user_id, self.certificate))

    @property
    def lacking_for_agent(self) -> list[str]:
        """The options that an Agent User cannot do without, and that are not given."""
        needed = {
            "tenant": self.tenant,
            "blueprint-id": self.blueprint_id,
            "agent-id": self.agent_id,
            "user-id": self.user_id,
            "certificate": self.certificate,
        }
        return [option for option, value in needed.items() if not value] if self.is_of_agent else []


def asked_for(wanted: Wanted) -> Wanted:
    """Tell the person what is needed, and ask for what is missing."""
    note_to_person(
        f"{wanted.kind.title()} is read through an app that is registered in Microsoft Entra: App registrations, "
        'New registration, platform "Mobile and desktop applications" with the address http://localhost, and '
        '"Allow public client flows" on. Your organisation may have one already.'
    )
    client_id = wanted.client_id or click.prompt("The app's client id").strip()
    tenant = wanted.tenant or click.prompt("The tenant's id or domain", default=ANY_TENANT).strip()
    return msgspec.structs.replace(wanted, client_id=client_id, tenant=tenant)


def add_graph_source(asked: Invocation, wanted: Wanted, *, is_restarted: bool) -> None:
    """Write the entry, and say what comes with it."""
    after = "test" if wanted.is_of_agent else "login"
    add_entry(asked, wanted.name, lambda: entry_of(wanted), is_restarted=is_restarted, after=after)
    if not asked.as_json:
        for line in what_to_know(wanted):
            note_to_person(line)


def offer_sign_in(asked: Invocation, name: str) -> None:
    """Ask the person whether to sign in now, and how."""
    ways = click.Choice(["browser", "code", "later"])
    how = click.prompt("Sign in now (browser, code, later)", type=ways, default="browser", show_choices=False)
    if how != "later":
        from harken.cli.source_login import sign_in

        sign_in(asked, name, is_device=how == "code")


def entry_of(wanted: Wanted) -> dict[str, object]:
    """Return what is written for what a person asked for."""
    check_name(wanted.name)
    entry: dict[str, object] = {
        "kind": wanted.kind,
        "sign_in": AGENT if wanted.is_of_agent else "",
        "tenant": "" if wanted.tenant == ANY_TENANT else wanted.tenant,
        "client_id": wanted.client_id,
        "blueprint_id": wanted.blueprint_id,
        "agent_id": wanted.agent_id,
        "user_id": wanted.user_id,
        "certificate": wanted.certificate,
        "poll": wanted.poll,
        "cache": "keyring" if wanted.is_in_keyring else "",
        "trust": wanted.trust,
        "attention": wanted.attention,
    }
    return {key: value for key, value in entry.items() if value}


def what_to_know(wanted: Wanted) -> list[str]:
    """Return what a person is told: the permissions and why, who consents, and what polling means."""
    permissions = [f"  {scope}: {why}" for scope, why in PERMISSIONS[wanted.kind].items()]
    if wanted.is_of_agent:
        lines = ["An administrator grants these permissions to the agent identity, for its user:", *permissions]
        lines.append("Nobody signs in. What an agent answers there is sent in the name of the Agent User.")
    else:
        tenant, client = wanted.tenant or ANY_TENANT, urlencode({"client_id": wanted.client_id})
        lines = ["It will ask for these permissions:", *permissions]
        lines.append(
            "Most organisations let only an administrator allow an app to read chats or mail. If yours does, have one "
            f"open this, once: {AUTHORITY}/{tenant}/adminconsent?{client}"
        )
    if wanted.kind == TEAMS:
        seconds = wanted.poll or POLL_SECONDS[TEAMS]
        lines.append(
            "Microsoft's terms let an app poll Teams for messages once a day, and it may slow down or stop one that "
            f"polls more often. Harken looks every {seconds:g} seconds at what is new only: use --poll to be slower."
        )
    return lines
