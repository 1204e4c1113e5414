"""The verb `source`: the words and options of its verbs. What they do is imported when they are run.

Adding and removing change config.toml and ask no daemon; the list is what the running daemon says of itself; testing
and signing in connect from here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import click

from harken.cli.client import Daemon
from harken.cli.complete import configured_sources
from harken.cli.output import note_to_person
from harken.cli.source_mail import KIND as IMAP
from harken.cli.source_mail import add_mail, mail_options
from harken.cli.verbs import Invocation, verb

TEST_SECONDS = 5.0
NOT_LISTENING = 1  # the exit code when a source was tried and nothing would arrive from it
MICROSOFT = ("teams", "outlook")
BOT = "bot"
WEBHOOK = "webhook"
PRESETS = ("github", "gitlab", "slack", "alertmanager", "jira", "sentry", "standard", "generic")
SCHEMES = ("hmac-sha256", "hmac-sha1", "token", "bearer")


@click.group()
def source() -> None:
    """Listen to other MCP servers, webhooks, mail, Teams and Outlook: what is said there becomes messages."""


_name = click.argument("name", metavar="NAME", shell_complete=configured_sources)
_restart = click.option("--restart", "is_restarted", is_flag=True, help="Restart the daemon, so that it takes effect.")


@verb("list")
def list_sources(asked: Invocation) -> None:
    """Show each source: whether it is listened to and why not, the last message, counts per channel."""
    from harken.cli.source_config import configured
    from harken.cli.source_show import show_sources

    with Daemon(asked.home) as daemon:
        found = daemon.ask("source_list")
    if asked.as_json:
        asked.print_json(found)
        return
    show_sources(asked.screen, found["sources"])
    listed = {each["name"] for each in found["sources"]}
    for name in configured(asked.home):
        if name not in listed:
            note_to_person(f"{name} is in config.toml and takes effect when the daemon is restarted: harken down")
    if not listed and not configured(asked.home):
        note_to_person("There is no source. Add one: harken source add NAME --url URL")


@verb("add")
@click.argument("name", metavar="[NAME]", default="")
@click.argument("args", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", default="", help="The address of an MCP server.")
@click.option("--transport", type=click.Choice(["http", "sse", "stdio"]), default=None, help="http unless you say so.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; a secret as env:NAME.")
@click.option("--command", default="", metavar="PROGRAM", help="Start this program instead; ARGS are its arguments.")
@click.option("--env", "variables", metavar="NAME=VALUE", multiple=True, help="A variable of the program.")
@click.option("--cwd", default="", metavar="DIR", help="The folder the program runs in.")
@click.option("--channel", "channels", metavar="CHANNEL", multiple=True, help="Keep only this channel; else all.")
@click.option("--trust", type=click.Choice(["known", "unknown"]), default=None, help="Whose word it is.")
@click.option(
    "--attention",
    type=click.Choice(["wake", "boundary", "prompt", "count"]),
    default=None,
    help="How far its messages may push.",
)
@click.option("--client-id", default="", metavar="ID", help="Teams, Outlook: the id of the registered app.")
@click.option("--tenant", default="", metavar="ID", help="Teams, Outlook, bot: the tenant's id or domain.")
@click.option("--app-id", default="", metavar="ID", help="Bot: its Microsoft App ID.")
@click.option("--poll", type=float, default=None, metavar="SECONDS", help="Teams, Outlook: how often to look.")
@click.option("--keyring", "is_in_keyring", is_flag=True, help="Teams, Outlook: lock the sign-in with the keyring.")
@click.option(
    "--agent", "is_agent", is_flag=True, help="Teams, Outlook: as an Agent User, whom a certificate signs in."
)
@click.option("--blueprint-id", default="", metavar="ID", help="Agent User: the client id of its blueprint.")
@click.option("--agent-id", default="", metavar="ID", help="Agent User: the id of its agent identity.")
@click.option("--user-id", default="", metavar="ID", help="Agent User: its own object id.")
@click.option("--certificate", default="", metavar="REF", help="Agent User: file:PATH of its PEM, or env:NAME.")
@click.option("--preset", type=click.Choice(PRESETS), default=None, help="Webhook: whose posts they are.")
@click.option("--secret", "secrets", metavar="REF", multiple=True, help="Webhook, bot: env:NAME, file:PATH or -.")
@click.option("--take", "parts", metavar="PART=JMESPATH", multiple=True, help="Webhook: text, channel, sender or id.")
@click.option("--scheme", type=click.Choice(SCHEMES), default=None, help="Webhook, generic: how posts are signed.")
@mail_options
@_restart
def add(asked: Invocation, *, name: str, args: tuple[str, ...], is_restarted: bool, **options: object) -> None:
    """Add an MCP server to config.toml, by its address or the program that it is; or Teams or Outlook.

    Without NAME you are asked. Secrets stay outside: --header Authorization=env:CI_TOKEN, with CI_TOKEN=... in the file
    `env` in Harken's folder. `source add teams` and `source add outlook` add an account at Microsoft, under another
    name if one follows. `source add webhook NAME --preset github` makes an address to post to, and a secret.
    `source add bot NAME --app-id ID --tenant ID --secret env:NAME` adds a bot that people write to in Teams.
    `source add imap NAME --host HOST --user USER --password env:NAME` adds a mail account.
    """
    import msgspec

    from harken.cli.source_config import Wanted, add_source, asked_for, wants_restart

    if name in MICROSOFT and not (options["url"] or options["command"]):
        _add_account(asked, name, args, options, is_restarted=is_restarted)
        return
    if name == BOT and not (options["url"] or options["command"]):
        _add_bot(asked, args, options, is_restarted=is_restarted)
        return
    if name == WEBHOOK and not (options["url"] or options["command"]):
        _add_webhook(asked, args, options, is_restarted=is_restarted)
        return
    if name == IMAP and not (options["url"] or options["command"]):
        add_mail(asked, args, options, is_restarted=is_restarted)
        return
    wanted = msgspec.convert({"name": name, "args": args, **options}, Wanted)
    if not name:
        if not sys.stdin.isatty() or asked.as_json:
            raise click.UsageError("Missing argument 'NAME'.")
        wanted = asked_for(wanted)
        is_restarted = is_restarted or wants_restart(asked.home)
    add_source(asked, wanted, is_restarted=is_restarted)


def _add_account(
    asked: Invocation, kind: str, args: tuple[str, ...], options: Mapping[str, object], *, is_restarted: bool
) -> None:
    import msgspec

    from harken.cli.source_config import wants_restart
    from harken.cli.source_graph import Wanted, add_graph_source, asked_for, offer_sign_in

    if len(args) > 1:
        raise click.UsageError(f"One name is enough: harken source add {kind} NAME")
    wanted = msgspec.convert({**options, "kind": kind, "name": args[0] if args else kind}, Wanted)
    if lacking := wanted.lacking_for_agent:
        raise click.UsageError(f"Missing option '--{lacking[0]}': an Agent User has no sign-in but its certificate.")
    is_guided = not wanted.client_id and not wanted.is_of_agent
    if is_guided:
        if not sys.stdin.isatty() or asked.as_json:
            raise click.UsageError("Missing option '--client-id'.")
        wanted = asked_for(wanted)
        is_restarted = is_restarted or wants_restart(asked.home)
    add_graph_source(asked, wanted, is_restarted=is_restarted)
    if is_guided:
        offer_sign_in(asked, wanted.name)


def _add_bot(asked: Invocation, args: tuple[str, ...], options: Mapping[str, object], *, is_restarted: bool) -> None:
    import msgspec

    from harken.cli.source_bot import Wanted, add_bot, asked_for

    if len(args) > 1:
        raise click.UsageError("One name is enough: harken source add bot NAME")
    wanted = msgspec.convert({**options, "name": args[0] if args else BOT}, Wanted)
    if not (wanted.app_id and wanted.tenant and wanted.secrets) and sys.stdin.isatty() and not asked.as_json:
        wanted = asked_for(wanted)
    add_bot(asked, wanted, is_restarted=is_restarted)


def _add_webhook(
    asked: Invocation, args: tuple[str, ...], options: Mapping[str, object], *, is_restarted: bool
) -> None:
    import msgspec

    from harken.cli.source_webhook import Wanted, add_webhook

    if not options["preset"]:
        raise click.UsageError(f"Missing option '--preset'. Choose one of: {', '.join(PRESETS)}.")
    if len(args) > 1:
        raise click.UsageError("One name is enough: harken source add webhook NAME --preset PRESET")
    wanted = msgspec.convert({**options, "name": args[0] if args else options["preset"]}, Wanted)
    add_webhook(asked, wanted, is_restarted=is_restarted)


@verb("login")
@_name
@click.option("--device", "is_device", is_flag=True, help="With a code that you enter on any device.")
def login(asked: Invocation, *, name: str, is_device: bool) -> None:
    """Sign in to Teams or Outlook, in the browser or with a code.

    The daemon sees it by itself. What agents answer there is sent in your name and says so.
    """
    from harken.cli.source_login import sign_in

    sign_in(asked, name, is_device=is_device)


@verb("logout")
@_name
def logout(asked: Invocation, *, name: str) -> None:
    """Remove the sign-in of Teams or Outlook from this machine. Messages and the place stay."""
    from harken.cli.source_login import sign_out

    sign_out(asked, name)


@verb("test")
@_name
@click.option(
    "--seconds",
    default=TEST_SECONDS,
    show_default=True,
    type=click.FloatRange(min=0.5, max=300),
    help="How long to listen.",
)
def test(asked: Invocation, *, name: str, seconds: float) -> None:
    """Connect to a source for a few seconds, as the daemon does, and say what happened.

    Of Teams and Outlook it says who is signed in and what is there; a webhook of the running daemon must refuse what is
    not signed. Nothing of what arrives is stored. Exits with 1 when nothing would arrive.
    """
    from harken.cli.source_show import show_trial
    from harken.cli.source_test import try_source

    trial = try_source(asked.home, name, seconds)
    if asked.as_json:
        asked.print_json(trial)
    else:
        show_trial(asked.screen, trial)
        if trial.get("curl"):
            note_to_person(f"This would be taken:\n{trial['curl']}")
    if trial["state"] != "listening":
        click.get_current_context().exit(NOT_LISTENING)


@verb("remove")
@_name
@_restart
def remove(asked: Invocation, *, name: str, is_restarted: bool) -> None:
    """Take a source out of config.toml, and the secret that was made for it. Its messages stay."""
    from harken.cli.source_config import configured, remove_source

    kept = None
    entry = configured(asked.home).get(name)
    if isinstance(entry, dict) and entry.get("kind") == WEBHOOK:
        from harken.cli.source_webhook import kept_secret

        kept = kept_secret(asked.home, name)
    remove_source(asked, name, is_restarted=is_restarted)
    if kept is not None:
        kept.unlink(missing_ok=True)


for _verb in (list_sources, add, login, logout, test, remove):
    source.add_command(_verb)
