"""Adding a mail account: what a person must know and bring, asked for a question at a time or given as options.

The password is never asked for nor written: only where it is kept. It says what the account lets agents do, and that
anybody can write any sender into a mail. Trying the account is the next step, and has its own module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import click

from harken.cli.output import note_to_person
from harken.cli.verbs import Invocation

KIND = "imap"
SECURITIES = click.Choice(["tls", "starttls", "none"])
AUTHS = click.Choice(["login", "none"])

_Command = TypeVar("_Command", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asked for. Empty: not asked for."""

    name: str
    host: str = ""
    port: int | None = None
    security: str | None = None
    user: str = ""
    password: str = ""
    token: str = ""
    folders: tuple[str, ...] = ()
    since: str = ""
    authserv_id: str = ""
    trusts_from: bool = False
    smtp_host: str = ""
    smtp_port: int | None = None
    smtp_security: str | None = None
    smtp_auth: str | None = None
    from_address: str = ""
    is_saved: bool = False
    poll: float | None = None
    trust: str | None = None
    attention: str | None = None


def mail_options(command: _Command) -> _Command:
    """Give a command the options of a mail account."""
    kept = "env:NAME, file:PATH or keyring:SERVICE/NAME"
    options = (
        click.option("--host", default="", metavar="HOST", help="Mail: the IMAP server."),
        click.option("--port", type=int, default=None, metavar="PORT", help="Mail: its port; else the usual one."),
        click.option("--security", type=SECURITIES, default=None, help="Mail: tls unless you say so."),
        click.option("--user", default="", metavar="NAME", help="Mail: who signs in, often the address."),
        click.option("--password", default="", metavar="REF", help=f"Mail: where the password is kept: {kept}."),
        click.option("--token", default="", metavar="REF", help="Mail: where an OAuth 2 access token is kept instead."),
        click.option("--folder", "folders", metavar="FOLDER", multiple=True, help="Mail: a folder; else INBOX."),
        click.option("--since", default="", metavar="TIME", help="Mail: take what came in this time too, such as 7d."),
        click.option("--authserv-id", default="", metavar="NAME", help="Mail: whose check of senders is believed."),
        click.option("--trust-from", "trusts_from", is_flag=True, help="Mail: believe every sender, without proof."),
        click.option("--smtp-host", default="", metavar="HOST", help="Mail: the server that sends answers."),
        click.option("--smtp-port", type=int, default=None, metavar="PORT", help="Mail: its port."),
        click.option("--smtp-security", type=SECURITIES, default=None, help="Mail: tls unless you say so."),
        click.option("--smtp-auth", type=AUTHS, default=None, help="Mail: login unless you say so."),
        click.option("--from", "from_address", default="", metavar="ADDRESS", help="Mail: what answers are from."),
        click.option("--save-sent", "is_saved", is_flag=True, help="Mail: keep answers in the folder of sent mail."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def add_mail(asked: Invocation, args: tuple[str, ...], options: Mapping[str, object], *, is_restarted: bool) -> None:
    """Add a mail account, and ask for what is missing where somebody can be asked."""
    import msgspec

    from harken.cli.authority import refuse_agent
    from harken.cli.source_config import add_entry, wants_restart

    if len(args) > 1:
        raise click.UsageError("One name is enough: harken source add imap NAME")
    known = {name: options[name] for name in Wanted.__dataclass_fields__ if name in options}
    wanted = msgspec.convert({**known, "name": args[0] if args else "mail"}, Wanted)
    # Before anything is looked at: an agent must not have a password tried anywhere.
    refuse_agent(asked, "add sources")
    if missing := _missing(wanted):
        if not sys.stdin.isatty() or asked.as_json:
            raise click.UsageError(f"Missing option '{missing}'.")
        wanted = asked_for(wanted)
        if (name := _voucher(asked, wanted)) and _is_believed(name):
            wanted = replace(wanted, authserv_id=name)
        is_restarted = is_restarted or wants_restart(asked.home)
    add_entry(asked, wanted.name, lambda: entry_of(wanted), is_restarted=is_restarted)
    if not asked.as_json:
        found = "" if missing else _voucher(asked, wanted)
        for line in what_to_know(wanted, found):
            note_to_person(line)


def asked_for(wanted: Wanted) -> Wanted:
    """Ask the person for what is missing, a question each."""
    from harken.sources.imap.settings import is_address, smtp_of

    note_to_person(
        "Most providers want an app password for programs like this one: make one in the settings of your account, "
        "and keep it outside of config.toml."
    )
    host = wanted.host or click.prompt("The IMAP server, such as imap.example.org").strip()
    user = wanted.user or click.prompt("Who signs in, often the address").strip()
    password = wanted.password
    if not (password or wanted.token):
        usual = f"env:{''.join(c if c.isalnum() else '_' for c in wanted.name.upper())}_PASSWORD"
        password = click.prompt("Where the password is kept: env:NAME, file:PATH", default=usual).strip()
    smtp_host = wanted.smtp_host
    if not smtp_host and smtp_of(host) is None:
        said = click.prompt("The server that sends answers (empty: only listen)", default="", show_default=False)
        smtp_host = said.strip()
    address = wanted.from_address
    if not address and not is_address(user) and (smtp_host or smtp_of(host)):
        address = click.prompt("The address that answers are from").strip()
    return replace(wanted, host=host, user=user, password=password, smtp_host=smtp_host, from_address=address)


def entry_of(wanted: Wanted) -> dict[str, object]:
    """Return what is written for what a person asked for."""
    from harken.cli.source_config import check_name

    check_name(wanted.name)
    entry: dict[str, object] = {
        "kind": KIND,
        "host": wanted.host,
        "port": wanted.port,
        "security": wanted.security,
        "user": wanted.user,
        "password": wanted.password,
        "token": wanted.token,
        "folders": list(wanted.folders),
        "since": wanted.since,
        "authserv_id": wanted.authserv_id,
        "trust_from": wanted.trusts_from,
        "smtp_host": wanted.smtp_host,
        "smtp_port": wanted.smtp_port,
        "smtp_security": wanted.smtp_security,
        "smtp_auth": wanted.smtp_auth,
        "from": wanted.from_address,
        "save_sent": wanted.is_saved,
        "poll": wanted.poll,
        "trust": wanted.trust,
        "attention": wanted.attention,
    }
    return {key: value for key, value in entry.items() if value}


def what_to_know(wanted: Wanted, found: str = "") -> list[str]:
    """Return what a person is told: who may answer as whom, and how far a sender can be believed.

    `found` is who vouches for senders in the newest mails, if nobody has decided yet whether that is believed.
    """
    from harken.sources.imap.settings import read_settings

    settings = read_settings(wanted.name, entry_of(wanted))
    taken = f"Of the mail that is there, what came in the last {wanted.since} is taken" if wanted.since else ""
    lines = [f"{taken or 'Mail that is there already is not taken'}, and nothing in the mailbox is changed."]
    if settings.smtp is not None:
        lines.append(
            f"Agents can answer through {settings.smtp.host}, as {settings.address}, with a line that says so."
        )
        if settings.smtp.is_readable_on_the_way:
            place = settings.smtp.host
            lines.append(f"Warning: answers reach {place} unencrypted: who is on the way can read them.")
    else:
        lines.append("It cannot be answered: add --smtp-host for that.")
    anybody = "Anybody can write any sender into a mail."
    if settings.trust_from:
        return [*lines, f"Warning: {anybody} With trust_from it is believed, so allow nobody and be no owner by mail."]
    if settings.authserv_id:
        return [*lines, f"{anybody} It is believed if {settings.authserv_id} vouches for it, else it is unverified."]
    lines.append(f"{anybody} Until you set authserv_id nobody is believed: every id begins with unverified:.")
    if found:
        lines.append(f"{found} vouches for senders: set authserv_id to it, if it is your provider's.")
    else:
        lines.append(f"harken source test {wanted.name} says who vouches for senders, once there is mail.")
    return lines


def _voucher(asked: Invocation, wanted: Wanted) -> str:
    """Return who vouches for senders in this account, if that is not known yet and somebody can look."""
    from harken.cli.mail_test import find_voucher
    from harken.sources.imap.settings import read_settings

    settings = read_settings(wanted.name, entry_of(wanted))
    return "" if settings.authserv_id or settings.trust_from else find_voucher(asked.home, settings)


def _is_believed(name: str) -> bool:
    note_to_person(
        f"Anybody can write any sender into a mail. In your newest mails {name} says whether a sender is who they say. "
        "Believe it only if that is a name of your provider."
    )
    return click.confirm("Believe it?", default=True)


def _missing(wanted: Wanted) -> str:
    if not wanted.host:
        return "--host"
    if not wanted.user:
        return "--user"
    return "" if wanted.password or wanted.token else "--password"
