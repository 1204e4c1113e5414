"""Adding and trying a bot of the Bot Framework: what a person brings, what must be entered in Azure, and what works.

Nothing is posted to the bot from here: trying it asks Microsoft for a token and for the keys that posts are checked
with, as the daemon does, and stores nothing.
"""

from __future__ import annotations

import os
from typing import Final

import anyio
import click
import msgspec

from harken.cli.client import Result
from harken.cli.output import note_to_person
from harken.cli.source_config import add_entry, check_name, entry_named
from harken.cli.start import VARIABLES
from harken.cli.verbs import Invocation
from harken.clock import SystemClock
from harken.config.home import Home
from harken.config.load import load
from harken.errors import HarkenError, Unavailable, UserError
from harken.sources.base import SourceState
from harken.sources.bot.settings import KIND, MANY_TENANTS, PATH, BotSettings, read_settings

LEAST_SECONDS: Final = 30.0  # one answer may take as long


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for. Empty: not asked for."""

    name: str
    app_id: str = ""
    tenant: str = ""
    secrets: tuple[str, ...] = ()
    trust: str | None = None
    attention: str | None = None


def asked_for(wanted: Wanted) -> Wanted:
    """Tell the person what is needed, and ask for what is missing."""
    note_to_person(
        "A bot is a resource in Azure: Azure Bot, type Single Tenant, with the channel Microsoft Teams. Its page "
        "Configuration shows the Microsoft App ID and the tenant; under Manage Password you make a secret."
    )
    app_id = wanted.app_id or click.prompt("The Microsoft App ID").strip()
    tenant = wanted.tenant or click.prompt(f"The app tenant id ({MANY_TENANTS}: a multi-tenant bot)").strip()
    secret = wanted.secrets or (click.prompt("Where its secret is kept, as env:NAME or file:PATH").strip(),)
    return msgspec.structs.replace(wanted, app_id=app_id, tenant=tenant, secrets=secret)


def add_bot(asked: Invocation, wanted: Wanted, *, is_restarted: bool) -> None:
    """Write the entry, and say what must be entered in Azure."""
    endpoint = messaging_endpoint(asked.home)
    add_entry(
        asked, wanted.name, lambda: entry_of(wanted), is_restarted=is_restarted, more={"messaging_endpoint": endpoint}
    )
    if not asked.as_json:
        for line in what_to_do(endpoint):
            note_to_person(line)


def entry_of(wanted: Wanted) -> dict[str, object]:
    """Return what is written for what a person asked for; raises `UserError` for what cannot be."""
    check_name(wanted.name)
    if len(wanted.secrets) > 1:
        raise UserError("A bot has one secret.", "Name it once: --secret env:NAME")
    entry: dict[str, object] = {
        "kind": KIND,
        "app_id": wanted.app_id,
        "tenant": wanted.tenant,
        "secret": wanted.secrets[0] if wanted.secrets else "",
        "trust": wanted.trust,
        "attention": wanted.attention,
    }
    entry = {key: value for key, value in entry.items() if value}
    read_settings(wanted.name, entry)
    return entry


def messaging_endpoint(home: Home) -> str:
    """Return the address that Microsoft posts to, empty while nobody has said it."""
    public_url = load(home, {}, os.environ).settings.hooks.public_url
    return f"{public_url}{PATH}" if public_url.startswith("https://") else ""


def what_to_do(endpoint: str) -> list[str]:
    """Return what is left to do in Azure."""
    if endpoint:
        first = f"In Azure, on the bot's page Configuration, enter as messaging endpoint: {endpoint}"
    else:
        first = (
            "Microsoft posts to the bot over https and from outside. Set hooks.public_url in config.toml to the https "
            "address of your tunnel or reverse proxy; the messaging endpoint to enter in Azure, on the bot's page "
            f"Configuration, is that address and {PATH}."
        )
    teams = (
        "Under Channels, add Microsoft Teams; then upload an app package with this bot to Teams, or have an "
        "administrator do it. People write to the bot, or mention it in a group."
    )
    return [
        first,
        teams,
        "Whoever finds the bot can write to it. Heard are the organisation of the tenant's id, or those in tenants.",
    ]


def try_bot(home: Home, name: str, seconds: float) -> Result:
    """Ask for a token and for the keys, once, within some seconds; return how it went."""
    return anyio.run(_try, home, read_settings(name, entry_named(home, name)), max(seconds, LEAST_SECONDS))


async def _try(home: Home, settings: BotSettings, seconds: float) -> Result:
    from harken.daemon.bot import make_bot_source

    environ = {variable: os.environ[variable] for variable in VARIABLES if variable in os.environ}
    state, reason, found = SourceState.LISTENING, "", ""
    try:
        bot = make_bot_source(settings, home, SystemClock(), environ)
        try:
            with anyio.fail_after(seconds):
                keys = await bot.keys.count()
                await bot.tokens.token()
            count = "1 key" if keys == 1 else f"{keys} keys"
            found = f"Microsoft gives the bot a token, and {count} to check posts with. {_posted_to(home)}"
        finally:
            await bot.aclose()
    except TimeoutError:
        state, reason = SourceState.RETRYING, "Microsoft does not answer in time."
    except HarkenError as exc:
        state = SourceState.RETRYING if isinstance(exc, Unavailable) else SourceState.NEEDS_PERSON
        reason = " ".join(filter(None, (exc.message, f"{exc.hint[:1].upper()}{exc.hint[1:]}")))
    return {
        "name": settings.name,
        "kind": KIND,
        "address": settings.address,
        "state": state.value,
        "reason": reason,
        "server": "",
        "found": found,
        "messages": 0,
        "counts": {},
        "dropped": {},
        "too_long": 0,
        "last_message_at": None,
    }


def _posted_to(home: Home) -> str:
    endpoint = messaging_endpoint(home)
    return (
        f"The messaging endpoint is {endpoint}." if endpoint else "Set hooks.public_url, so that it can be posted to."
    )
