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
from msgspec.structs import force_setattr

from harken.errors import UserError
from harken.model import Sender
from harken.sources.settings import (
    CERTIFICATES,
    WHERE_KEPT,
    SettingKey,
    SourceSettings,
    WrongSetting,
    is_loopback,
    line,
    missing,
    options_of,
    shown,
    verbatim,
)
from harken.sources.setup import SetupContext, SetupOutcome, SetupValues, SourceSetup, text_of
from harken.times import parse_duration

MAX_ADDRESSES: Final = 50
MAX_ADDRESS: Final = 254  # characters; no mail can go to a longer one
MAX_ID: Final = 400  # characters of a mail's own id; a longer one is not kept
MAX_HEADER: Final = 8_000

_ADDRESS: Final = re.compile(r"[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,64}@[^\s<>@,;:\"()\[\]\\\x00-\x20\x7f]{1,255}")
# Not with an encoded word in it: in a header of an answer it would be decoded, and may hold line ends.
_ID: Final = re.compile(r"<(?![^<>]*=\?)[^\s<>\x00-\x20\x7f-\U0010ffff]{1,398}>")

IMAP: Final = "imap"
Security = Literal["tls", "starttls", "none"]
TLS: Final = "tls"
STARTTLS: Final = "starttls"
NONE: Final = "none"
LOGIN: Final = "login"
INBOX: Final = "INBOX"
POLL_SECONDS: Final = 60.0
MIN_POLL_SECONDS: Final = 5.0
MAX_POLL_SECONDS: Final = 86_400.0
MAX_SINCE: Final = timedelta(days=366)
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
_PORT: Final = "a port such as 993, 465 or 587"
_FOLDERS: Final = f'a list of folders, such as ["{INBOX}"]'
_HOST: Final = re.compile(r"[A-Za-z0-9:._-]{1,253}")

_ANYBODY = "Anybody can write any sender into a mail."


def is_address(text: str) -> bool:
    """Whether a text is one mail address and nothing else."""
    return len(text) <= MAX_ADDRESS and _ADDRESS.fullmatch(text) is not None and text.isprintable()


def people_in(header: str) -> list[Sender]:
    """Return the people that a header names: the address, in small letters, and the name as it was written."""
    try:
        pairs = getaddresses([header[:MAX_HEADER]])
    except (ValueError, IndexError, TypeError, RecursionError):
        return []
    # Upper and lower case are the same person, and rules about a sender are written in one of them.
    return [Sender(address.lower(), name) for name, address in pairs[:MAX_ADDRESSES] if is_address(address)]


def ids_in(header: str) -> list[str]:
    """Return the ids of mails that a header names, in order, each once."""
    return list(dict.fromkeys(_ID.findall(header[:MAX_HEADER])))


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where a server is, and how the way to it is kept private."""

    host: str
    port: int
    security: str = TLS
    has_auth: bool = True  # whether somebody signs in there; some relays know no such thing

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether answers could be read between this machine and the server."""
        return self.security == NONE and not is_loopback(self.host)


def smtp_of(host: str) -> MailServer | None:
    """Return the server that mail leaves by, of a provider with a well-known IMAP server."""
    known = _WELL_KNOWN.get(host.lower())
    return MailServer(host=known[0], port=SMTP_PORTS[known[1]], security=known[1]) if known else None


def _span(text: str) -> str:
    try:
        is_good = timedelta() < parse_duration(line(text)) <= MAX_SINCE
    except ValueError:
        is_good = False
    if not is_good:
        raise WrongSetting(f"is {shown(text)}.")
    return line(text)


def _server_name(text: str) -> str:
    if _HOST.fullmatch(line(text)) is None:
        raise WrongSetting("is not the name of a server.")
    return line(text)


def _folder(text: str) -> str:
    return INBOX if text.upper() == INBOX else verbatim(text)


def _own_address(text: str) -> str:
    if not is_address(text.strip()):
        raise WrongSetting("is not a mail address.")
    return text.strip()


class ImapSettings(SourceSettings, frozen=True, kw_only=True):
    """One mail account."""

    what = IMAP

    host: Annotated[str, SettingKey("The IMAP server, such as imap.example.org.", metavar="HOST", read=_server_name)]
    port: Annotated[
        int | None,
        SettingKey("Its port, such as 993; else the usual one.", wanted=_PORT, metavar="PORT", least=1, most=LAST_PORT),
    ] = None
    security: Annotated[Security, SettingKey("Default: tls.", flag="--security")] = TLS
    user: Annotated[str, SettingKey("The name you sign in with, often the address.", metavar="NAME")]
    password: Annotated[str, SettingKey(f"The password: {WHERE_KEPT}.", metavar="REF", is_secret=True)] = ""
    token: Annotated[
        str,
        SettingKey("Where an OAuth 2 access token is kept instead, such as env:NAME.", metavar="REF", is_secret=True),
    ] = ""
    folders: Annotated[
        tuple[str, ...],
        SettingKey(
            "A folder; else INBOX.", wanted=_FOLDERS, flag="--folder", metavar="FOLDER", noun="folder", read=_folder
        ),
    ] = (INBOX,)
    span: Annotated[
        str,
        SettingKey(
            "Take what came in this time too, such as 7d, 12h or 30m, up to 366d.",
            flag="--since",
            metavar="TIME",
            read=_span,
        ),
    ] = msgspec.field(name="since", default="")
    authserv_id: Annotated[
        str, SettingKey("Whose check of senders is believed: the first name in Authentication-Results.", metavar="NAME")
    ] = ""
    trust_from: Annotated[bool, SettingKey("Believe every sender, without proof.", flag="--trust-from")] = False
    smtp_host: Annotated[
        str, SettingKey("The server that sends answers, such as smtp.example.org.", metavar="HOST", read=_server_name)
    ] = ""
    smtp_port: Annotated[
        int | None, SettingKey("Its port, such as 465.", wanted=_PORT, metavar="PORT", least=1, most=LAST_PORT)
    ] = None
    smtp_security: Annotated[Security | None, SettingKey("Default: tls.", flag="--smtp-security")] = None
    smtp_auth: Annotated[Literal["login", "none"] | None, SettingKey("Default: login.", flag="--smtp-auth")] = None
    address: Annotated[
        str,
        SettingKey(
            "The address that answers are from, such as me@example.org.",
            flag="--from",
            metavar="ADDRESS",
            read=_own_address,
        ),
    ] = msgspec.field(name="from", default="")
    save_sent: Annotated[bool, SettingKey("Keep answers in the folder of sent mail.", flag="--save-sent")] = False
    poll: Annotated[
        float,
        SettingKey(
            "How often to look, where the server does not push.",
            metavar="SECONDS",
            least=MIN_POLL_SECONDS,
            most=MAX_POLL_SECONDS,
        ),
    ] = POLL_SECONDS
    ca: Annotated[str, CERTIFICATES] = ""

    def __post_init__(self) -> None:
        known = "" if self.trust_from else _VOUCHERS.get(self.host.lower(), "")
        force_setattr(self, "authserv_id", self.authserv_id.lower() or known)
        force_setattr(self, "address", self.address or (self.user if is_address(self.user) else ""))
        force_setattr(self, "folders", tuple(dict.fromkeys(self.folders)))

    def check(self) -> None:
        """Refuse what cannot be meant together, and a password that others could read on its way."""
        if bool(self.password) == bool(self.token):
            what = "both" if self.token else "neither"
            raise UserError(f"sources.{self.name} has {what} of password and token.", f"Set one, to {WHERE_KEPT}.")
        if self.trust_from and self.authserv_id:
            raise UserError(
                f"sources.{self.name} has both authserv_id and trust_from.",
                "Leave out trust_from: it trusts every sender without proof.",
            )
        if not self.folders:
            raise UserError(f"{self.dotted('folders')} is not a list of folders.", f"Use {_FOLDERS}.")
        for key in ("smtp_port", "smtp_security", "smtp_auth"):
            if getattr(self, key) is not None and not self.smtp_host:
                raise UserError(f"{self.dotted(key)} needs smtp_host.", "Set smtp_host too.")
        self._refuse_clear("security", self.imap)
        if self.smtp is not None:
            self._refuse_clear("smtp_security", self.smtp, f'; if it wants no password, set smtp_auth = "{NONE}"')
            if not self.address:
                raise missing(self.name, "from", "the address that answers are from")

    def _refuse_clear(self, key: str, server: MailServer, hint: str = "") -> None:
        if server.has_auth and server.is_readable_on_the_way:
            raise UserError(
                f'{self.dotted(key)} is "none", and {server.host} is not this machine.',
                f'Use "{TLS}" or "{STARTTLS}": a password must not be sent in the clear{hint}.',
            )

    @property
    def imap(self) -> MailServer:
        """Where mail is read."""
        return MailServer(host=self.host, port=self.port or IMAP_PORTS[self.security], security=self.security)

    @property
    def smtp(self) -> MailServer | None:
        """Where answers leave; None: nothing can be answered."""
        if not self.smtp_host:
            return smtp_of(self.host)
        security = self.smtp_security or TLS
        port = self.smtp_port or SMTP_PORTS[security]
        return MailServer(host=self.smtp_host, port=port, security=security, has_auth=self.smtp_auth != NONE)

    @property
    def secret(self) -> str:
        """Where the password or the token is kept."""
        return self.password or self.token

    @property
    def is_token(self) -> bool:
        """Whether the secret is an OAuth 2 access token."""
        return bool(self.token)

    @property
    def since(self) -> timedelta | None:
        """What came in that time before the first look is taken too."""
        return parse_duration(self.span) if self.span else None

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


read_settings: Final = ImapSettings.read


def can_answer(name: str, entry: Mapping[str, object]) -> bool:
    """Whether it is said how mail leaves."""
    return read_settings(name, entry).can_answer


class ImapSetup(SourceSetup):
    """How a mail account is set up."""

    kind = IMAP
    default_name = "mail"
    needed = ("host", "user")
    options = options_of(ImapSettings)
    help_text = "Add a mail account (default name: mail)."

    def missing(self, values: SetupValues) -> str:
        """Return what an account cannot do without."""
        is_secret_given = values.get("password") or values.get("token")
        return super().missing(values) or ("" if is_secret_given else "--password")

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

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say under which address agents answer, and how far a sender can be believed."""
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
        """Return the server that vouches for senders in this account, if it is not configured and can be asked for."""
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
