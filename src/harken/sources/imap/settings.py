"""What a person configures of a mail account: `[sources.NAME]` with kind "imap", and how it is set up.

The password is only named: it is looked up at each sign-in. Nothing here uses the network. Above are the source, the
sender and the commands; below is the reader of settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from email.utils import getaddresses
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec

from harken.errors import UserError
from harken.model import Sender
from harken.sources.settings import SettingsTable, SourceSettings, is_loopback, keys_of, options_of, setting
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of, written

MOST_ADDRESSES: Final = 50
MOST_ADDRESS: Final = 254  # characters; no mail can go to a longer one
MOST_ID: Final = 400  # characters of a mail's own id; a longer one is not kept
MOST_HEADER: Final = 8_000

_ADDRESS: Final = re.compile(r"[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,64}@[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,255}")
# Not with an encoded word in it: in a header of an answer it would be decoded, and may hold line ends.
_ID: Final = re.compile(r"<(?![^<>]*=\?)[^\s<>\x00-\x20\x7f-\U0010ffff]{1,398}>")


def is_address(text: str) -> bool:
    """Whether a text is one mail address and nothing else."""
    return len(text) <= MOST_ADDRESS and _ADDRESS.fullmatch(text) is not None and text.isprintable()


def people_in(header: str) -> list[Sender]:
    """Return the people that a header names: the address, in small letters, and the name as it was written."""
    try:
        pairs = getaddresses([header[:MOST_HEADER]])
    except (ValueError, IndexError, TypeError, RecursionError):
        return []
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    return [Sender(address.lower(), name) for name, address in pairs[:MOST_ADDRESSES] if is_address(address)]


def ids_in(header: str) -> list[str]:
    """Return the ids of mails that a header names, in order, each once."""
    return list(dict.fromkeys(_ID.findall(header[:MOST_HEADER])))


IMAP: Final = "imap"
TLS: Final = "tls"
STARTTLS: Final = "starttls"
NONE: Final = "none"
SECURITIES: Final = (TLS, STARTTLS, NONE)
LOGIN: Final = "login"
AUTHS: Final = (LOGIN, NONE)
INBOX: Final = "INBOX"
POLL_SECONDS: Final = 60.0
MIN_POLL_SECONDS: Final = 5.0
MAX_POLL_SECONDS: Final = 86_400.0
MOST_SINCE: Final = timedelta(days=366)
LAST_PORT: Final = 65_535
IMAP_PORTS: Final[Mapping[str, int]] = MappingProxyType({TLS: 993, STARTTLS: 143, NONE: 143})
SMTP_PORTS: Final[Mapping[str, int]] = MappingProxyType({TLS: 465, STARTTLS: 587, NONE: 25})

# Where mail leaves, of providers whose name for it is known.
_WELL_KNOWN: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "imap.fastmail.com": ("smtp.fastmail.com", TLS),
        "imap.gmail.com": ("smtp.gmail.com", TLS),
        "imap.gmx.net": ("mail.gmx.net", STARTTLS),
        "imap.mail.me.com": ("smtp.mail.me.com", STARTTLS),
        "imap.mail.yahoo.com": ("smtp.mail.yahoo.com", TLS),
        "imap.web.de": ("smtp.web.de", STARTTLS),
        "imap.zoho.com": ("smtp.zoho.com", TLS),
        "outlook.office365.com": ("smtp.office365.com", STARTTLS),
    }
)
# Who checks senders and says so in the mails, of providers that document its name.
_VOUCHERS: Final[Mapping[str, str]] = MappingProxyType({"imap.gmail.com": "mx.google.com"})
_KEPT: Final = "where it is kept: env:NAME, file:PATH or keyring:SERVICE/NAME"
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS: Final[Mapping[str, timedelta]] = MappingProxyType(
    {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
)
_HOST: Final = re.compile(r"[A-Za-z0-9:._-]{1,253}")


class ImapKeys(SourceSettings, frozen=True, kw_only=True):
    """The keys of a mail account."""

    host: Annotated[str, setting("The IMAP server.", example="imap.example.org", flag="--host", metavar="HOST")]
    port: Annotated[int | None, setting("Its port; else the usual one.", flag="--port", metavar="PORT")] = None
    security: Annotated[Literal["tls", "starttls", "none"], setting("tls unless you say so.", flag="--security")] = (
        "tls"
    )
    user: Annotated[str, setting("Who signs in, often the address.", flag="--user", metavar="NAME")]
    password: Annotated[
        str,
        setting(
            "Where the password is kept: env:NAME, file:PATH or keyring:SERVICE/NAME.",
            example="keyring:harken/mail",
            flag="--password",
            metavar="REF",
            is_secret=True,
        ),
    ] = ""
    token: Annotated[
        str,
        setting("Where an OAuth 2 access token is kept instead.", flag="--token", metavar="REF", is_secret=True),
    ] = ""
    folders: Annotated[tuple[str, ...], setting("A folder; else INBOX.", flag="--folder", metavar="FOLDER")] = (
        "INBOX",
    )
    since: Annotated[
        str, setting("Take what came in this time too, such as 7d.", example="7d", flag="--since", metavar="TIME")
    ] = ""
    authserv_id: Annotated[
        str, setting("Whose check of senders is believed.", flag="--authserv-id", metavar="NAME")
    ] = ""
    trust_from: Annotated[bool, setting("Believe every sender, without proof.", flag="--trust-from")] = False
    smtp_host: Annotated[str, setting("The server that sends answers.", flag="--smtp-host", metavar="HOST")] = ""
    smtp_port: Annotated[int | None, setting("Its port.", flag="--smtp-port", metavar="PORT")] = None
    smtp_security: Annotated[
        Literal["tls", "starttls", "none"], setting("tls unless you say so.", flag="--smtp-security")
    ] = "tls"
    smtp_auth: Annotated[Literal["login", "none"], setting("login unless you say so.", flag="--smtp-auth")] = "login"
    from_address: Annotated[str, setting("What answers are from.", flag="--from", metavar="ADDRESS")] = msgspec.field(
        name="from", default=""
    )
    save_sent: Annotated[bool, setting("Keep answers in the folder of sent mail.", flag="--save-sent")] = False
    poll: Annotated[
        float | None, setting("How often to look, where the server does not push.", flag="--poll", metavar="SECONDS")
    ] = None
    ca: Annotated[str, setting("A file of certificates that are believed besides the system's.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where a server is, and how the way to it is kept private."""

    host: str
    port: int
    security: str = TLS
    has_auth: bool = True  # whether somebody signs in there; some relays know no such thing

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether the connection to the server is not encrypted."""
        return self.security == NONE and not is_loopback(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImapSettings:
    """One mail account."""

    name: str
    imap: MailServer
    user: str
    secret: str  # where the password or the token is kept
    is_token: bool = False  # the secret is an OAuth 2 access token
    folders: tuple[str, ...] = (INBOX,)
    poll: float = POLL_SECONDS  # seconds from one look to the next, where the server does not push
    since: timedelta | None = None  # what came in that time before the first look is taken too
    ca: str = ""  # a file of certificates that are believed besides those of the system
    authserv_id: str = ""  # whose word about the sender is believed; without it nobody is who they say
    trust_from: bool = False  # whether the sender that a mail names is believed without proof
    smtp: MailServer | None = None  # None: nothing can be answered
    address: str = ""  # what answers are from
    save_sent: bool = False

    @property
    def can_answer(self) -> bool:
        """Whether answers can leave."""
        return self.smtp is not None and bool(self.address)

    @property
    def addresses(self) -> frozenset[str]:
        """What the account is called by those who write to it, in small letters, as far as is known."""
        return frozenset(each.lower() for each in (self.address, self.user) if "@" in each)

    @property
    def place(self) -> str:
        """Where the mail is, for people."""
        return f"{self.user} at {self.imap.host}"


def read_settings(name: str, entry: Mapping[str, object]) -> ImapSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    table = SettingsTable(name, entry)
    table.refuse_unknown(keys_of(ImapKeys), IMAP)
    imap = _server(table, "", IMAP_PORTS, "imap.example.org")
    if imap is None:
        raise table.missing("host", "the IMAP server, such as imap.example.org")
    user = table.text("user", "the name you sign in with, often the address", is_required=True)
    secret, is_token = _secret(table)
    address = table.text("from", "the address that answers are from") or (user if is_address(user) else "")
    if address and not is_address(address):
        raise UserError(f"{table.dotted('from')} is not a mail address.", "Use one such as me@example.org.")
    smtp = _server(table, "smtp_", SMTP_PORTS, "smtp.example.org")
    smtp = smtp or smtp_of(imap.host)
    if smtp is not None and not address:
        raise table.missing("from", "the address that answers are from")
    return ImapSettings(
        name=name,
        imap=imap,
        user=user,
        secret=secret,
        is_token=is_token,
        folders=_folders(table),
        poll=table.seconds("poll", POLL_SECONDS, MIN_POLL_SECONDS, MAX_POLL_SECONDS),
        since=_span(table, "since"),
        ca=table.text("ca", "a file of certificates"),
        authserv_id=_voucher(table, imap.host),
        trust_from=table.flag("trust_from"),
        smtp=smtp,
        address=address,
        save_sent=table.flag("save_sent"),
    )


def can_answer(name: str, entry: Mapping[str, object]) -> bool:
    """Whether it is said how mail leaves."""
    return read_settings(name, entry).can_answer


def smtp_of(host: str) -> MailServer | None:
    """Return the server that mail leaves by, of a provider with a well-known IMAP server."""
    known = _WELL_KNOWN.get(host.lower())
    return MailServer(host=known[0], port=SMTP_PORTS[known[1]], security=known[1]) if known else None


def _secret(table: SettingsTable) -> tuple[str, bool]:
    """Return where the secret is kept, and whether it is a token."""
    given = [key for key in ("password", "token") if key in table.entry]
    if len(given) != 1:
        what = "both" if given else "neither"
        raise UserError(f"sources.{table.name} has {what} of password and token.", f"Set one, to {_KEPT}.")
    return table.reference(given[0], _KEPT), given[0] == "token"


def _server(table: SettingsTable, prefix: str, ports: Mapping[str, int], example: str) -> MailServer | None:
    host, port, security, auth = (f"{prefix}{key}" for key in ("host", "port", "security", "auth"))
    place = table.text(host, f"a server such as {example}")
    if not place:
        for key in (port, security, auth):
            if key in table.entry:
                raise UserError(f"{table.dotted(key)} needs {host}.", f"Set {host} too.")
        return None
    if _HOST.fullmatch(place) is None:
        raise UserError(f"{table.dotted(host)} is not the name of a server.", f"Use one such as {example}.")
    way = table.choice(security, SECURITIES, TLS)
    has_auth = table.choice(auth, AUTHS, LOGIN) == LOGIN
    if way == NONE and has_auth and not is_loopback(place):
        without = f'; if it wants no password, set {auth} = "{NONE}"' if auth in keys_of(ImapKeys) else ""
        raise UserError(
            f'{table.dotted(security)} is "none", and {place} is not this machine.',
            f'Use "{TLS}" or "{STARTTLS}": a password must not be sent in the clear{without}.',
        )
    number = table.entry.get(port, ports[way])
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= LAST_PORT:
        raise table.wrong(port, number, f"Use a port such as {ports[way]}.")
    return MailServer(host=place, port=number, security=way, has_auth=has_auth)


def _voucher(table: SettingsTable, host: str) -> str:
    """Return the server that is believed about senders."""
    named = table.text("authserv_id", "the name your provider puts first in Authentication-Results").lower()
    if not table.flag("trust_from"):
        return named or _VOUCHERS.get(host.lower(), "")
    if named:
        raise UserError(
            f"sources.{table.name} has both of authserv_id and trust_from.",
            "Leave trust_from out: it believes every sender without proof.",
        )
    return ""


def _folders(table: SettingsTable) -> tuple[str, ...]:
    if "folders" not in table.entry:
        return (INBOX,)
    wanted = f'a list of folders, such as ["{INBOX}"]'
    found = table.lines("folders", wanted, "folder")
    if not found:
        raise UserError(f"{table.dotted('folders')} is not a list of folders.", f"Use {wanted}.")
    return tuple(dict.fromkeys(INBOX if each.upper() == INBOX else each for each in found))


def _span(table: SettingsTable, key: str) -> timedelta | None:
    found = table.text(key, "a time such as 7d, 12h or 30m")
    if not found:
        return None
    read = _SPAN.fullmatch(found)
    span = int(read[1]) * _UNITS[read[2]] if read else None
    if span is None or span > MOST_SINCE:
        raise table.wrong(key, found, "Use a time such as 7d, 12h or 30m, up to 366d.")
    return span


_ANYBODY = "Anybody can write any sender into a mail."


class ImapSetup(SourceSetup):
    """How a mail account is set up."""

    options = options_of(ImapKeys)
    help_text = "Add a mail account; its name is mail unless you say so."

    def usual_name(self, values: SetupValues) -> str:
        """Return what most people call it."""
        del values
        return "mail"

    def missing(self, values: SetupValues) -> str:
        """Return what an account cannot do without."""
        for key in ("host", "user"):
            if not values.get(key):
                return f"--{key}"
        return "" if values.get("password") or values.get("token") else "--password"

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask the person for what is missing, a question each."""
        console = context.console
        console.tell(
            "Most providers want an app password for programs like this one: make one in the settings of your account, "
            "and keep it outside of config.toml."
        )
        found: dict[str, object] = dict(values)
        host = text_of(values, "host") or console.prompt("The IMAP server, such as imap.example.org")
        user = text_of(values, "user") or console.prompt("Who signs in, often the address")
        found |= {"host": host, "user": user}
        if not (values.get("password") or values.get("token")):
            usual = f"env:{''.join(c if c.isalnum() else '_' for c in name.upper())}_PASSWORD"
            found["password"] = console.prompt("Where the password is kept: env:NAME, file:PATH", usual)
        if not values.get("smtp_host") and smtp_of(host) is None:
            found["smtp_host"] = console.prompt("The server that sends answers (empty: only listen)", "")
        if not values.get("from") and not is_address(user) and (found.get("smtp_host") or smtp_of(host)):
            found["from"] = console.prompt("The address that answers are from")
        voucher = self._voucher(name, found, context)
        if voucher and _is_believed(voucher, context):
            found["authserv_id"] = voucher
        return {**found, "ASKED": True}

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written."""
        del name, context
        return written(IMAP, {key: value for key, value in values.items() if key.islower()})

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say who may answer, as which sender, and how far a sender can be believed."""
        settings = read_settings(name, entry)
        since = text_of(entry, "since")
        taken = f"Of the mail that is there, what came in the last {since} is taken" if since else ""
        notes = [f"{taken or 'Mail that is there already is not taken'}, and nothing in the mailbox is changed."]
        if settings.smtp is not None:
            notes.append(
                f"Agents can answer through {settings.smtp.host}, as {settings.address}, with a line that says so."
            )
            if settings.smtp.is_readable_on_the_way:
                place = settings.smtp.host
                notes.append(f"Warning: answers reach {place} unencrypted: who is on the way can read them.")
        else:
            notes.append("It cannot be answered: add --smtp-host for that.")
        if settings.trust_from:
            warning = f"Warning: {_ANYBODY} With trust_from it is believed, so allow nobody and be no owner by mail."
            return SetupOutcome(notes=[*notes, warning])
        if settings.authserv_id:
            believed = f"{_ANYBODY} It is believed if {settings.authserv_id} vouches for it, else it is unverified."
            return SetupOutcome(notes=[*notes, believed])
        notes.append(f"{_ANYBODY} Until you set authserv_id nobody is believed: every id begins with unverified:.")
        if voucher := "" if values.get("ASKED") else self._voucher(name, values, context):
            notes.append(f"{voucher} vouches for senders: set authserv_id to it, if it is your provider's.")
        else:
            notes.append(f"harken source test {name} says who vouches for senders, once there is mail.")
        return SetupOutcome(notes=notes)

    def _voucher(self, name: str, values: SetupValues, context: SetupContext) -> str:
        """Return the server that vouches for senders in this account, if that is not known yet and can be found out."""
        # On use: what speaks IMAP takes long to import.
        from harken.sources.imap.source import find_voucher

        table = self.entry(name, values, context)
        settings = read_settings(name, table)
        is_decided = bool(settings.authserv_id) or settings.trust_from
        return "" if is_decided else find_voucher(settings, context.entry(name, table))


def _is_believed(name: str, context: SetupContext) -> bool:
    context.console.tell(
        f"{_ANYBODY} In your newest mails {name} says whether a sender is who they say. "
        "Believe it only if that is a name of your provider."
    )
    return context.console.confirm("Believe it?")
