"""Setting up and trying a bot: what a person brings, what must be entered in Azure, and what works.

Nothing is posted to the bot from here: trying it asks Microsoft for a token and for the keys that posts are checked
with, as the daemon does, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from harken.sources.bot.settings import KIND, MANY_TENANTS, PATH, BotOptions, read_settings
from harken.sources.check import CheckContext, CheckReport, ask_once
from harken.sources.settings import options_of
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written
from harken.sources.source import SourceEntry, SourceState


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
    """Return the address that Microsoft posts to, empty while nobody has said it."""
    return f"{public_url}{PATH}" if public_url.startswith("https://") else ""


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Ask for a token and for the keys, once, within some seconds."""
    # On use: what checks signatures takes long to import.
    from harken.sources.bot.source import make_bot

    settings = read_settings(entry.name, entry.table)

    async def ask() -> CheckReport:
        bot = make_bot(settings, entry)
        try:
            keys = await bot.keys.count()
            await bot.tokens.token()
        finally:
            await bot.aclose()
        count = "1 key" if keys == 1 else f"{keys} keys"
        endpoint = messaging_endpoint(entry.public_url)
        posted = (
            f"The messaging endpoint is {endpoint}."
            if endpoint
            else "Set hooks.public_url, so that it can be posted to."
        )
        found = f"Microsoft gives the bot a token, and {count} to check posts with. {posted}"
        return CheckReport(state=SourceState.LISTENING, address=settings.address, found=found)

    return ask_once(settings.address, ask, context.seconds, late="Microsoft does not answer in time.")
