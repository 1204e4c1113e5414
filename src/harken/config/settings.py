"""Every setting, declared once: its name, type, default, help and an example.

The groups below are the declaration; `SETTINGS` is the same as a list, for the loader, `harken config show` and the
reference page. Values only: where a value comes from is decided in `load.py`. The tables that users name entries in
(attention, routes, attention_rules, projects, sources) are declared here too and read by `tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path

from harken.automation import QuietHours
from harken.config.values import (
    ValueType,
    addresses,
    choice,
    duration,
    file_path,
    flag,
    folder,
    host_name,
    hours,
    listen_host,
    listen_place,
    machine_name,
    public_url,
    reference,
    schema_name,
    sender_ids,
    some_of,
    store_url,
    whole,
)
from harken.hosts.registry import host_names
from harken.ingest.policy import MAX_SAID_CHARS, ApprovalRule, AttentionRule, Route
from harken.model import Attention, Trust
from harken.sessions.turns import Halt

_KEY = "harken"


Sample = str | Callable[[], str]
"""Lines for the file; made when they are asked for where they name something that is found on this machine."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as people see it. `type` is None for a table, which only the file can hold."""

    name: str
    type: ValueType | None
    default: object
    help: str
    sample: Sample

    @property
    def example(self) -> str:
        """Lines for the file that set it."""
        return self.sample if isinstance(self.sample, str) else self.sample()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "HARKEN_" + self.name.upper().replace(".", "_").replace("-", "_")

    @property
    def group(self) -> str:
        """The table of the file it stands in."""
        return self.name.partition(".")[0]

    @property
    def leaf(self) -> str:
        """Its key in that table."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _SettingText:
    type: ValueType | None
    help: str
    sample: Sample


def _about(value_type: ValueType | None, text: str, sample: Sample) -> dict[str, _SettingText]:
    return {_KEY: _SettingText(value_type, text, sample)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The page and the API."""

    host: str = field(
        default="127.0.0.1",
        metadata=_about(listen_host(), "Address that the HTTP API listens on.", 'host = "127.0.0.1"'),
    )
    port: int = field(
        default=0,
        metadata=_about(whole(0, 65_535), "Port to listen on; 0 picks a free one once and keeps it.", "port = 8780"),
    )
    allow_remote: bool = field(
        default=False,
        metadata=_about(flag(), "Whether host may be an address that other machines can reach.", "allow_remote = true"),
    )
    public_listen: str = field(
        default="",
        metadata=_about(
            listen_place(),
            "Where other machines are let in, by TLS and with tokens: an address and a port; when empty, nowhere.",
            'public_listen = "0.0.0.0:8443"',
        ),
    )
    issuer: str = field(
        default="",
        metadata=_about(
            public_url(),
            "An OAuth 2.1 authorization server for public_url: the holders of its JWTs are let in with the tokens that "
            "you make for them.",
            'issuer = "https://login.example.org"',
        ),
    )
    public_url: str = field(
        default="",
        metadata=_about(
            public_url(),
            "The address under which other machines reach public_listen.",
            'public_url = "https://harken.example.org:8443"',
        ),
    )
    callbacks_to_loopback: bool = field(
        default=False,
        metadata=_about(
            flag(),
            "Whether events may be posted, and notifications pushed, to services on the daemon's machine, also "
            "without TLS: to try it out.",
            "callbacks_to_loopback = true",
        ),
    )
    proxy: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            addresses(),
            "Addresses of reverse proxies before public_listen, which say where a request came from. Without a "
            "certificate only they are let in.",
            'proxy = ["10.0.0.1"]',
        ),
    )
    certificate: str = field(
        default="",
        metadata=_about(
            file_path(),
            "The certificate for public_listen, with those that vouch for it, in PEM.",
            'certificate = "~/certificates/harken.pem"',
        ),
    )
    private_key: str = field(
        default="",
        metadata=_about(
            file_path(),
            "The file with the key of the certificate, in PEM and without a password.",
            'private_key = "~/certificates/harken.key"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksSettings:
    """Where other programs post messages: webhooks, a bot, change notifications. Open only while a source needs it."""

    host: str = field(
        default="127.0.0.1",
        metadata=_about(listen_host(), "Address that takes what others post.", 'host = "127.0.0.1"'),
    )
    port: int = field(
        default=0,
        metadata=_about(whole(0, 65_535), "Port for it; 0 picks a free one once and keeps it.", "port = 8781"),
    )
    allow_remote: bool = field(
        default=False,
        metadata=_about(flag(), "Whether host may be an address that other machines can reach.", "allow_remote = true"),
    )
    public_url: str = field(
        default="",
        metadata=_about(
            public_url(),
            "The address under which others reach it, through a tunnel or a reverse proxy.",
            'public_url = "https://harken.example.org"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How agents and the command line reach the daemon."""

    transport: str = field(
        default="auto",
        metadata=_about(
            choice("auto", "unix", "tcp"),
            "A unix socket, or a loopback port with a token; auto takes the socket where there are any.",
            'transport = "tcp"',
        ),
    )
    machine: str = field(
        default="",
        metadata=_about(
            machine_name(),
            "What this machine is called where several share an inbox; when empty, the name that the system gives it.",
            'machine = "buildbox"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where messages are kept, and how many."""

    url: str = field(
        default="sqlite",
        metadata=_about(
            store_url(),
            "The store: sqlite, or a PostgreSQL URL that several daemons share.",
            'url = "postgresql://harken@db.example.org/harken"',
        ),
    )
    password: str = field(
        default="",
        metadata=_about(
            reference(),
            "Where the password for PostgreSQL is kept, if the URL needs one and has none.",
            'password = "env:HARKEN_DATABASE_PASSWORD"',
        ),
    )
    schema: str = field(
        default="harken",
        metadata=_about(
            schema_name(),
            "The schema in the PostgreSQL database; daemons that name the same one share a store.",
            'schema = "harken"',
        ),
    )
    max_messages: int = field(
        default=200_000,
        metadata=_about(
            whole(100, 1_000_000_000),
            "Messages kept per mailbox; of those over it, unread ones first expire, visibly.",
            "max_messages = 50000",
        ),
    )
    max_age: timedelta = field(
        default=timedelta(days=365),
        metadata=_about(
            duration(timedelta(hours=1)), "Age at which a message that was dealt with is removed.", 'max_age = "90d"'
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Bounds on sizes and times."""

    max_message_chars: int = field(
        default=MAX_SAID_CHARS,
        metadata=_about(
            whole(1_000, 1_000_000),
            "Characters that you or an agent say in one message, reply or prompt; a longer text is refused.",
            "max_message_chars = 20000",
        ),
    )
    max_wait_seconds: int = field(
        default=55,
        metadata=_about(
            whole(1, 55), "Longest that a call may wait for a message, in seconds.", "max_wait_seconds = 30"
        ),
    )
    lease: timedelta = field(
        default=timedelta(minutes=15),
        metadata=_about(
            duration(timedelta(seconds=10), timedelta(days=7)),
            "How long an offer without proof stays with one session before another gets it.",
            'lease = "15m"',
        ),
    )
    new_consumer_window: timedelta = field(
        default=timedelta(hours=24),
        metadata=_about(
            duration(timedelta(0)), "How far back a new consumer begins to read.", 'new_consumer_window = "24h"'
        ),
    )
    new_consumer_most: int = field(
        default=10_000,
        metadata=_about(
            whole(0, 100_000),
            "With how many messages a new consumer begins at most, the newest; the first reader of a project gets all.",
            "new_consumer_most = 500",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The daemon's log file."""

    level: str = field(
        default="info",
        metadata=_about(
            choice("debug", "info", "warning", "error"), "The least important kind of line to log.", 'level = "debug"'
        ),
    )
    max_bytes: int = field(
        default=5_000_000,
        metadata=_about(whole(10_000, 1_000_000_000), "Size at which a new log file is begun.", "max_bytes = 1000000"),
    )
    backups: int = field(default=3, metadata=_about(whole(0, 100), "Older log files kept.", "backups = 3"))
    format: str = field(
        default="text",
        metadata=_about(
            choice("text", "json"), "One line of text for each record, or one JSON object.", 'format = "json"'
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustSettings:
    """Senders that are one person."""

    owner: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            sender_ids(),
            "Senders that are you: their text is an instruction to your agents.",
            'owner = ["teams:ef1c916a-3135-4417-ba27-8eb7bd084193"]',
        ),
    )
    known: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            sender_ids(), "Senders whose messages may wake an agent.", 'known = ["outlook:colleague@example.org"]'
        ),
    )
    default: Trust = field(
        default=Trust.UNKNOWN,
        metadata=_about(
            choice(Trust.KNOWN, Trust.UNKNOWN),
            "What everyone else is, who writes through an outside source.",
            'default = "unknown"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How rules run agents."""

    agent: str = field(
        default="",
        metadata=_about(
            host_name(),
            "The agent for rules that name none; when empty, the first that is installed and can be fenced.",
            lambda: f'agent = "{host_names()[0]}"',
        ),
    )
    workdir: str = field(
        default="",
        metadata=_about(
            folder(),
            "The folder for rules that name none; when empty, an empty one of each rule's own.",
            'workdir = "~/code/shop"',
        ),
    )
    ask_in_session: bool = field(
        default=True,
        metadata=_about(
            flag(),
            "Whether a rule's question is also shown in a session that you used lately, of a host that can show it.",
            "ask_in_session = false",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToastSettings:
    """Toasts on the person's desktop."""

    enabled: bool = field(
        default=True,
        metadata=_about(
            flag(),
            "Whether a toast on your desktop tells what a rule notifies of or asks, and what waits for an answer.",
            "enabled = false",
        ),
    )
    quiet_hours: QuietHours | None = field(
        default=None,
        metadata=_about(
            hours(),
            "Hours of the day without toasts, and without calls to your phone; empty: none.",
            'quiet_hours = "22:00-07:00"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSettings:
    """What is done about a question that nobody answers. Each time counts from the question; 0s is never."""

    remind_after: timedelta = field(
        default=timedelta(minutes=15),
        metadata=_about(duration(timedelta(0)), "When an agent that has seen it is reminded.", 'remind_after = "10m"'),
    )
    toast_after: timedelta = field(
        default=timedelta(minutes=30),
        metadata=_about(duration(timedelta(0)), "When a toast on your desktop tells you.", 'toast_after = "1h"'),
    )
    phone_after: timedelta = field(
        default=timedelta(hours=2),
        metadata=_about(
            duration(timedelta(0)), "When your phone is told, if waiting.phone is set.", 'phone_after = "4h"'
        ),
    )
    phone: str = field(
        default="",
        metadata=_about(
            reference(),
            "Where your phone is reached: a reference to an address for Apprise, a package that is installed apart.",
            'phone = "env:HARKEN_PHONE"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltSettings:
    """You are told at once when a session waits for you, has finished, failed, or hit its usage limit."""

    tell: tuple[str, ...] = field(
        default=tuple(each.value for each in Halt),
        metadata=_about(
            some_of(*Halt),
            "Of what you are told, on your desktop and your phone; empty: of nothing.",
            'tell = ["waits", "failed", "limited"]',
        ),
    )
    active_for: timedelta = field(
        default=timedelta(minutes=1),
        metadata=_about(
            duration(timedelta(0), timedelta(hours=1)),
            "How long after your last key in its terminal, or at the page, you are not told; 0s: you always are.",
            'active_for = "3m"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NtfySettings:
    """An ntfy server that tells your phone what waits for you, at once, and lets you answer there."""

    address: str = field(
        default="",
        metadata=_about(
            reference(),
            "Where to publish: a reference to the address of a topic, such as https://ntfy.example.org/my-topic.",
            'address = "env:HARKEN_NTFY"',
        ),
    )
    token: str = field(
        default="",
        metadata=_about(reference(), "A reference to the access token for that topic.", 'token = "env:NTFY_TOKEN"'),
    )
    shows: str = field(
        default="sender",
        metadata=_about(
            choice("nothing", "sender", "text"),
            "What stands on the lock screen: only that something waits, who asks, or also what.",
            'shows = "text"',
        ),
    )
    buttons: str = field(
        default="none",
        metadata=_about(
            choice("none", "answer", "approve", "both"),
            "What its buttons do, where all of the text is shown: answer questions, allow what agents ask, or both. "
            "Who reads the topic can press them.",
            'buttons = "both"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Notifications of the page on your phone, by the push service of its browser."""

    shows: str = field(
        default="sender",
        metadata=_about(
            choice("nothing", "sender", "text"),
            "What stands on the lock screen: only that something waits, who asks, or also what.",
            'shows = "text"',
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project: sessions that run in one of these folders also read the mailbox `project:<name>`."""

    dirs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings: what is not set has its default."""

    http: HttpSettings = field(default_factory=HttpSettings)
    hooks: HooksSettings = field(default_factory=HooksSettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    log: LogSettings = field(default_factory=LogSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
    runs: RunSettings = field(default_factory=RunSettings)
    toasts: ToastSettings = field(default_factory=ToastSettings)
    waiting: WaitingSettings = field(default_factory=WaitingSettings)
    halts: HaltSettings = field(default_factory=HaltSettings)
    ntfy: NtfySettings = field(default_factory=NtfySettings)
    push: PushSettings = field(default_factory=PushSettings)
    attention: Mapping[str, Attention] = field(
        default_factory=dict[str, Attention],
        metadata=_about(None, "How far the messages of a source may push.", '[attention]\nteams = "wake"'),
    )
    routes: tuple[Route, ...] = field(
        default=(),
        metadata=_about(
            None,
            "Which messages go to another mailbox than inbox; the first route that fits decides.",
            '[[routes]]\nmailbox = "project:shop"\nchannel = "ci-pipeline"',
        ),
    )
    attention_rules: tuple[AttentionRule, ...] = field(
        default=(),
        metadata=_about(
            None,
            "Attention for certain channels or senders; the first rule that fits decides.",
            '[[attention_rules]]\nattention = "wake"\nchannel = "alerts/critical"\nallow_unknown = true',
        ),
    )
    approvals: tuple[ApprovalRule, ...] = field(
        default=(),
        metadata=_about(
            None,
            "What agents ask that is refused without you, or asked each time; the first rule that fits decides. No "
            "rule allows anything.",
            '[[approvals]]\nanswer = "refuse"\ntool = "Bash"\nargument = "*git push*--force*"\n'
            'reason = "Ask me to push."',
        ),
    )
    projects: Mapping[str, Project] = field(
        default_factory=dict[str, Project],
        metadata=_about(
            None, "Folders whose sessions read a project's mailbox.", '[projects.shop]\ndirs = ["~/code/shop"]'
        ),
    )
    sources: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]],
        metadata=_about(
            None, "Inbound connections, by name.", '[sources.mail]\nkind = "imap"\npassword = "keyring:harken/mail"'
        ),
    )


def _declared(group: object, prefix: str = "") -> Iterator[Setting]:
    if not is_dataclass(group) or isinstance(group, type):
        return
    for item in fields(group):
        value = getattr(group, item.name)
        about = item.metadata.get(_KEY)
        if about is not None:
            yield Setting(prefix + item.name, about.type, value, about.help, about.sample)
        else:
            yield from _declared(value, f"{item.name}.")


SETTINGS: tuple[Setting, ...] = tuple(_declared(Settings()))
SCALARS: tuple[Setting, ...] = tuple(setting for setting in SETTINGS if setting.type is not None)
TABLES: tuple[Setting, ...] = tuple(setting for setting in SETTINGS if setting.type is None)
