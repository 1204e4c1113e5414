"""Setting up an account at Microsoft: what a person must know and bring, asked for or given as options.

It says which permissions are asked for and why, and who must consent. Signing in is the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from harken.errors import UserError
from harken.sources.microsoft.settings import AGENT, ANY_TENANT, AUTHORITY, AccountKind
from harken.sources.settings import SourceOption, options_of
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

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
