"""Reading the settings: which place wins, and how mistakes are reported."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.config.home import Home
from harken.config.load import LoadedSettings, describe, load
from harken.config.settings import SCALARS, SETTINGS, TABLES, Project, Setting, Settings
from harken.errors import UserError
from harken.ingest.policy import ApprovalRule, ApprovalRuling, AttentionRule, Route
from harken.model import Attention, Mailbox, Trust
from tests.examples import examples

PLAIN = "hunter2"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without a file."""
    return Home(tmp_path)


def read(home: Home, text: str, flags: dict[str, object] | None = None, **environ: str) -> LoadedSettings:
    """Load with this file."""
    home.config_file.write_text(text, encoding="utf-8")
    return load(home, flags or {}, environ)


def problems(home: Home, text: str, flags: dict[str, object] | None = None, **environ: str) -> list[str]:
    """Load with this file, which has to fail, and return the lines of the error without the file's own name."""
    with pytest.raises(UserError) as caught:
        read(home, text, flags, **environ)
    assert caught.value.hint
    return caught.value.message.replace(str(home.config_file), "FILE").split("\n")


def test_nothing_configured_gives_the_defaults(home: Home) -> None:
    """Zero configuration has to start."""
    loaded = load(home, {}, {})
    assert loaded.settings == Settings()
    assert loaded.origins == {setting.name: "default" for setting in SETTINGS}
    assert loaded.warnings == ()


def test_defaults_are_those_of_the_documentation(home: Home) -> None:
    """A default that changes by accident changes how long mail is kept or who can reach the page."""
    values = {row["name"]: row["value"] for row in describe(load(home, {}, {}))}
    assert values == {
        "http.host": "127.0.0.1",
        "http.port": 0,
        "http.allow_remote": False,
        "http.public_listen": "",
        "http.public_url": "",
        "http.callbacks_to_loopback": False,
        "http.proxy": [],
        "http.issuer": "",
        "http.certificate": "",
        "http.private_key": "",
        "hooks.host": "127.0.0.1",
        "hooks.port": 0,
        "hooks.allow_remote": False,
        "hooks.public_url": "",
        "daemon.transport": "auto",
        "daemon.machine": "",
        "store.url": "sqlite",
        "store.password": "",
        "store.schema": "harken",
        "store.max_messages": 200_000,
        "store.max_age": "365d",
        "limits.max_message_chars": 64_000,
        "limits.max_wait_seconds": 55,
        "limits.lease": "15m",
        "limits.new_consumer_window": "24h",
        "limits.new_consumer_most": 10_000,
        "log.level": "info",
        "log.max_bytes": 5_000_000,
        "log.backups": 3,
        "log.format": "text",
        "trust.owner": [],
        "trust.known": [],
        "trust.default": "unknown",
        "runs.agent": "",
        "runs.workdir": "",
        "runs.ask_in_session": True,
        "toasts.enabled": True,
        "toasts.quiet_hours": "",
        "waiting.remind_after": "15m",
        "waiting.toast_after": "30m",
        "waiting.phone_after": "2h",
        "waiting.phone": "",
        "halts.tell": ["waits", "finished", "failed", "limited"],
        "halts.active_for": "1m",
        "ntfy.address": "",
        "ntfy.token": "",
        "ntfy.shows": "sender",
        "ntfy.buttons": "none",
        "push.shows": "sender",
        "attention": {},
        "routes": [],
        "attention_rules": [],
        "approvals": [],
        "projects": {},
        "sources": {},
    }


@pytest.mark.parametrize(
    ("flag", "variable", "text", "expected", "origin"),
    [
        (1, "2", "http.port = 3", 1, "flag"),
        ("1", "2", "http.port = 3", 1, "flag"),
        (None, "2", "http.port = 3", 2, "environment HARKEN_HTTP_PORT"),
        (None, "", "http.port = 3", 3, "FILE"),
        (None, None, "[http]\nport = 3", 3, "FILE"),
        (None, None, "", 0, "default"),
        (0, "2", "http.port = 3", 0, "flag"),
    ],
)
def test_flag_beats_environment_beats_file_beats_default(
    *, home: Home, flag: object, variable: str | None, text: str, expected: int, origin: str
) -> None:
    """What is nearer to the command wins, and a flag of 0 is a flag."""
    environ = {} if variable is None else {"HARKEN_HTTP_PORT": variable}
    loaded = read(home, text, {"http.port": flag}, **environ)
    assert loaded.settings.http.port == expected
    assert loaded.origins["http.port"] == origin.replace("FILE", str(home.config_file))


def test_full_file_is_read(home: Home) -> None:
    """Every table in one file, as a user would write it."""
    loaded = read(
        home,
        """
        [http]
        host = "::1"
        port = 8780
        [store]
        url = "env:DATABASE"
        max_messages = 1000
        max_age = "90d"
        [limits]
        lease = "1h30m"
        [log]
        level = "debug"
        [trust]
        owner = ["teams:me@example.org"]
        known = ["mail:you@example.org"]
        default = "known"
        [attention]
        teams = "wake"
        ci = "count"
        [[routes]]
        mailbox = "project:shop"
        channel = "ci-pipeline"
        contains = "shop"
        [[routes]]
        mailbox = "inbox"
        [[attention_rules]]
        attention = "wake"
        channel = "alerts/critical"
        allow_unknown = true
        [[approvals]]
        answer = "refuse"
        host = "claude-code"
        tool = "Bash"
        argument = "*--force*"
        reason = "Ask me."
        [[approvals]]
        answer = "ask"
        [projects.shop]
        dirs = ["~/code/shop", "/srv/shop"]
        [sources.mail]
        kind = "imap"
        password = "keyring:harken/mail"
        folders = ["INBOX"]
        """,
        HOME="/home/u",
    )
    found = loaded.settings
    assert (found.http.host, found.http.port, found.store.url) == ("::1", 8780, "env:DATABASE")
    assert (found.store.max_messages, found.store.max_age) == (1000, timedelta(days=90))
    assert (found.limits.lease, found.limits.max_wait_seconds) == (timedelta(minutes=90), 55)
    assert found.log.level == "debug"
    assert found.trust.owner == ("teams:me@example.org",)
    assert found.trust.known == ("mail:you@example.org",)
    assert found.trust.default is Trust.KNOWN
    assert found.attention == {"teams": Attention.WAKE, "ci": Attention.COUNT}
    assert found.routes == (
        Route(mailbox=Mailbox("project:shop"), channel="ci-pipeline", contains="shop"),
        Route(mailbox=Mailbox("inbox")),
    )
    assert found.attention_rules == (
        AttentionRule(attention=Attention.WAKE, channel="alerts/critical", allow_unknown=True),
    )
    assert found.approvals == (
        ApprovalRule(ApprovalRuling.REFUSE, host="claude-code", tool="Bash", argument="*--force*", reason="Ask me."),
        ApprovalRule(ApprovalRuling.ASK),
    )
    assert found.projects == {"shop": Project(dirs=(Path("/home/u/code/shop"), Path("/srv/shop")))}
    assert found.sources == {"mail": {"kind": "imap", "password": "keyring:harken/mail", "folders": ["INBOX"]}}
    assert loaded.origins["routes"] == str(home.config_file)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('answer = "allow"\ntool = "Bash"', "approvals[1].answer"),
        ('answer = "once"\ntool = "Bash"', "approvals[1].answer"),
        ('tool = "Bash"', "approvals[1].answer is missing"),
        ('answer = "refuse"', "approvals[1] refuses everything"),
        ('answer = "refuse"\nhost = "claude"\ntool = "*"', "approvals[1].host"),
        ('answer = "ask"\nreason = "because"', "approvals[1].reason"),
        ('answer = "refuse"\ncommand = "rm"', "approvals[1].command"),
    ],
)
def test_rule_for_approvals_that_would_do_something_else_is_refused(home: Home, entry: str, said: str) -> None:
    """There is none that allows: a file that says so must not be read as something weaker."""
    assert any(said in each for each in problems(home, f"[[approvals]]\n{entry}"))


def test_every_group_of_the_file_reaches_the_settings(home: Home) -> None:
    """A setting that is read, shown and then ignored is worse than an error."""
    text = "".join(f"[{group}]\n{lines}" for group, lines in _examples().items())
    found = read(home, text).settings
    groups = {setting.group for setting in SCALARS}
    assert {name for name in groups if getattr(found, name) == getattr(Settings(), name)} == set()


def _examples() -> dict[str, str]:
    groups: dict[str, str] = {}
    for setting in SCALARS:
        if setting.leaf != "allow_remote":
            groups[setting.group] = groups.get(setting.group, "") + setting.example + "\n"
    return groups


@pytest.mark.parametrize("setting", SCALARS, ids=lambda setting: setting.name)
def test_every_example_can_be_pasted(home: Home, setting: Setting) -> None:
    """The reference page shows these lines; one that does not load is worse than none."""
    assert read(home, f"[{setting.group}]\n{setting.example}\n").origins[setting.name] == str(home.config_file)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_example_of_a_table_can_be_pasted(home: Home, table: Setting) -> None:
    """The same for tables."""
    assert read(home, table.example, HOME="/home/u").origins[table.name] == str(home.config_file)


def test_variables_of_two_settings_never_collide() -> None:
    """Dots become underscores, so two names could end in one variable."""
    variables = [setting.variable for setting in SETTINGS]
    assert len(set(variables)) == len(variables)
    assert "HARKEN_LIMITS_MAX_WAIT_SECONDS" in variables
    assert not {"HARKEN_HOME", "HARKEN_CONSUMER", "HARKEN_TASK"} & set(variables)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_explains_itself(setting: Setting) -> None:
    """The reference page has nothing else to show."""
    assert setting.help.endswith(".")
    assert setting.example


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[http]\nport = 65536", "FILE: http.port is 65536; expected a whole number from 0 to 65535."),
        ("[http]\nport = -1", "FILE: http.port is -1; expected a whole number from 0 to 65535."),
        ("[http]\nport = '80'", 'FILE: http.port is "80"; expected a whole number from 0 to 65535.'),
        ("[http]\nport = true", "FILE: http.port is true; expected a whole number from 0 to 65535."),
        ("[http]\nport = []", "FILE: http.port is an empty list; expected a whole number from 0 to 65535."),
        ("[http]\nport = 1979-05-27", "FILE: http.port is a date or time; expected a whole number from 0 to 65535."),
        ("[http]\nprot = 1", "FILE: http.prot is not a setting. Did you mean http.port?"),
        ("port = 1", "FILE: port is not a setting. Did you mean http.port?"),
        ("[htpt]\nport = 1", "FILE: htpt is not a setting. Did you mean http?"),
        ("[zzz]", "FILE: zzz is not a setting."),
        ('[http]\n"a\\u001bb" = 1', "FILE: http.'a\\x1bb' is not a setting."),
        ("http = 1", "FILE: http is a value that is not shown here; expected a table that begins with [http]."),
        (
            "[http]\nallow_remote = 'yes'",
            'FILE: http.allow_remote is "yes"; expected true or false.',
        ),
        (
            "[log]\nlevel = 'INFO'",
            'FILE: log.level is "INFO"; expected "debug", "info", "warning" or "error". Did you mean info?',
        ),
        ("[trust]\ndefault = 'owner'", 'FILE: trust.default is "owner"; expected "known" or "unknown".'),
        (
            "[trust]\nowner = 'teams:a'",
            'FILE: trust.owner is "teams:a"; expected a list of senders, each written "source:sender".',
        ),
        (
            "[trust]\nowner = ['mail:*']",
            'FILE: trust.owner holds "mail:*", which is everyone; expected senders by id.',
        ),
        (
            "[limits]\nlease = 900",
            (
                'FILE: limits.lease is 900; expected a duration from 10s to 7d, written like "90s", "15m", "1h30m" '
                'or "365d". Write the number with its unit, in quotes.'
            ),
        ),
        (
            "[attention]\nteams = 'wakeup'",
            'FILE: attention.teams is "wakeup"; expected "wake", "boundary", "prompt" or "count". Did you mean wake?',
        ),
        (
            "[attention]\n\"a:b\" = 'wake'",
            "FILE: attention.'a:b' is not possible; expected a name of letters, digits, dots, hyphens and underscores.",
        ),
        ("[[routes]]\nchannel = 'x'", "FILE: routes[1].mailbox is missing."),
        (
            "[[routes]]\nmailbox = 'shop'",
            'FILE: routes[1].mailbox is "shop"; expected "inbox", "project:NAME" or "task:ID".',
        ),
        (
            "[[routes]]\nmailbox = 'inbox'\nchanel = 'x'",
            "FILE: routes[1].chanel is not a setting. Did you mean routes[1].channel?",
        ),
        ("[[routes]]\nmailbox = 1", "FILE: routes[1].mailbox is 1; expected a text."),
        ("[routes]\nmailbox = 'inbox'", "FILE: routes is a table; expected tables that begin with [[routes]]."),
        ("routes = [1]", "FILE: routes[1] is 1; expected a table that begins with [[routes]]."),
        (
            "[[attention_rules]]\nattention = 'wake'\nallow_unknown = 'yes'",
            'FILE: attention_rules[1].allow_unknown is "yes"; expected true or false.',
        ),
        (
            "[[attention_rules]]\nattention = 'loud'",
            'FILE: attention_rules[1].attention is "loud"; expected "wake", "boundary", "prompt" or "count".',
        ),
        ("[[attention_rules]]\nsource = 'x'", "FILE: attention_rules[1].attention is missing."),
        (
            "[projects.shop]",
            'FILE: projects.shop.dirs is missing; expected a list of absolute folders, such as ["~/code/shop"].',
        ),
        (
            "[projects.shop]\ndirs = ['code']",
            'FILE: projects.shop.dirs is "code"; expected a list of absolute folders, such as ["~/code/shop"].',
        ),
        (
            "[projects.shop]\ndirs = '/code'",
            'FILE: projects.shop.dirs is "/code"; expected a list of absolute folders, such as ["~/code/shop"].',
        ),
        ("[projects]\nshop = 1", 'FILE: projects.shop is 1; expected a table with dirs = ["..."].'),
        (
            "[projects.shop]\ndirs = ['/a']\ndir = 1",
            "FILE: projects.shop.dir is not a setting. Did you mean projects.shop.dirs?",
        ),
        ("[sources.mail]\nhost = 'x'", 'FILE: sources.mail.kind is missing; expected a text such as "imap".'),
        ("[sources.mail]\nkind = 1", 'FILE: sources.mail.kind is 1; expected a text such as "imap".'),
        (
            "[sources.mail]\nkindd = 'imap'",
            (
                'FILE: sources.mail.kind is missing; expected a text such as "imap". '
                "Did you mean kind where it says kindd?"
            ),
        ),
    ],
)
def test_mistake_is_named_with_what_would_be_accepted(home: Home, text: str, expected: str) -> None:
    """File, key, what was found, what would be accepted: enough to correct it without the manual."""
    assert problems(home, text, HOME="/home/u") == [expected]


def test_all_mistakes_are_reported_at_once(home: Home) -> None:
    """One run, one correction, instead of a dozen rounds; flags and variables included."""
    text = "colour = 1\n[http]\nport = 'x'\n[[routes]]\n[sources.a]\n[log]\nlevel = 'loud'"
    found = problems(home, text, {"http.hots": "x"}, HARKEN_STORE_MAX_AGE="5min")
    assert sorted(line.split(" is ")[0] for line in found) == [
        "FILE: colour",
        "FILE: http.port",
        "FILE: log.level",
        "FILE: routes[1].mailbox",
        "FILE: sources.a.kind",
        "environment: HARKEN_STORE_MAX_AGE",
        "flag: http.hots",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[http]\nport = ", "line 2, column 8"),
        ("[http\n", "line 1, column 6"),
        ("a = 1\nb = 2\nc == 3\n", "line 3, column 4"),
        ("a = '''x\n\n", "line 1, column 9"),
        ("a = [1,\n2", "line 2, column 2"),
    ],
)
def test_syntax_error_has_line_and_column(home: Home, text: str, place: str) -> None:
    """Also where the parser only says that the document ended."""
    (line,) = problems(home, text)
    assert line.startswith(f"FILE, {place}: ")
    assert "(at " not in line


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 10_000])
def test_absurd_file_is_a_user_error(home: Home, text: str) -> None:
    """Parsers have limits; meeting one is a sentence, not a traceback."""
    (line,) = problems(home, text)
    assert line.startswith("FILE")
    assert len(line) < 300


def test_file_that_is_not_utf8_names_the_line(home: Home) -> None:
    """Old editors still write other encodings."""
    home.config_file.write_bytes(b"a = 1\nb = '\xe4'\n")
    with pytest.raises(UserError, match=r"config\.toml:2: .*UTF-8"):
        load(home, {}, {})


def test_byte_order_mark_is_accepted(home: Home) -> None:
    """Some editors put one in front, and nobody can see it."""
    home.config_file.write_bytes(b"\xef\xbb\xbf[http]\r\nport = 5\r\n")
    assert load(home, {}, {}).settings.http.port == 5


def test_file_that_cannot_be_read_is_a_user_error(home: Home) -> None:
    """A folder in its place is the case that also root meets."""
    home.config_file.mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        load(home, {}, {})


@pytest.mark.parametrize("host", [str(IPv4Address(0)), "::", "192.0.2.7", "box.example.org"])
def test_listening_for_other_machines_needs_an_explicit_yes(home: Home, host: str) -> None:
    """One wrong line must not open the inbox to the network."""
    (line,) = problems(home, f"[http]\nhost = '{host}'")
    assert "http.allow_remote = true" in line
    assert read(home, f"[http]\nhost = '{host}'\nallow_remote = true").settings.http.host == host
    (line,) = problems(home, "", {"http.host": host})
    assert line.startswith("flag: http.host")


def test_sender_cannot_be_owner_and_known(home: Home) -> None:
    """Two answers to who somebody is: the weaker one may have been meant."""
    (line,) = problems(home, "[trust]\nowner = ['a:b']\nknown = ['a:b', 'a:c']")
    assert '"a:b"' in line
    assert "trust.owner" in line


@pytest.mark.parametrize(
    "text",
    [
        f"[store]\nurl = 'postgresql://u:{PLAIN}@h/d'",
        f"[store]\nurl = '{PLAIN}'",
        f"[store]\nurl = ['{PLAIN}']",
        f"store = '{PLAIN}'",
        f"sources = '{PLAIN}'",
        f"[sources]\nmail = '{PLAIN}'",
        f"[sources.mail]\nkind = 'imap'\npassword = '{PLAIN}'",
        f"[sources.mail]\nkind = 'imap'\nIMAP-Password = '{PLAIN}'",
        f"[sources.mail]\nkind = 'imap'\naccessToken = '{PLAIN}'",
        f"[sources.mail]\nkind = 'imap'\nclient_secret = ['{PLAIN}']",
        f"[sources.mail]\nkind = 'mcp'\nheaders.Authorization = 'Bearer {PLAIN}'",
        f"[sources.mail]\nkind = 'mcp'\nurl = 'https://u:{PLAIN}@h/'",
        f"[[sources.mail.servers]]\nx.api_key = '{PLAIN}'",
    ],
)
def test_plain_secret_is_refused_and_not_repeated(home: Home, text: str) -> None:
    """Settings are shown, copied and kept in dotfiles: secrets come by reference only."""
    with pytest.raises(UserError) as caught:
        read(home, text)
    assert PLAIN not in caught.value.message + caught.value.hint
    assert caught.value.__cause__ is None


def test_syntax_error_does_not_carry_the_file_along(home: Home) -> None:
    """Newer parsers keep the whole document in the exception, and a chained one is printed and logged."""
    with pytest.raises(UserError) as caught:
        read(home, f"[sources.mail]\npassword = '{PLAIN}'\noops")
    assert caught.value.__cause__ is None
    assert PLAIN not in str(caught.value)


def test_secret_keys_that_hold_references_or_numbers_are_fine(home: Home) -> None:
    """The check must not get in the way of keys that only sound like secrets."""
    text = "[sources.a]\nkind = 'x'\npassword = 'env:P'\nmax_tokens = 5\ntoken_cache = 'keyring:a/b'\ncompass = 'n'"
    assert read(home, text).settings.sources["a"]["max_tokens"] == 5


def test_unknown_variables_are_warnings_with_a_suggestion(home: Home) -> None:
    """Other programs may own them; a typo is still worth a word. Values are not shown."""
    loaded = read(
        home,
        "[store]\nurl = 'env:HARKEN_DATABASE'",
        HARKEN_HTTP_PROT="hunter2",
        HARKEN_QQQQQQQQ="hunter2",
        HARKEN_HOME="/x",
        HARKEN_CONSUMER="me",
        HARKEN_TASK="api",
        HARKEN_DATABASE="hunter2",
        HARKENING="1",
        PATH="/bin",
    )
    assert loaded.warnings == (
        "The environment variable HARKEN_HTTP_PROT is not a setting and is ignored. Did you mean HARKEN_HTTP_PORT?",
        "The environment variable HARKEN_QQQQQQQQ is not a setting and is ignored.",
    )


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HARKEN_HTTP_PORT", "eighty", 'HARKEN_HTTP_PORT is "eighty"; expected a whole number from 0 to 65535.'),
        ("HARKEN_HTTP_ALLOW_REMOTE", "si", 'HARKEN_HTTP_ALLOW_REMOTE is "si"; expected true or false.'),
        ("HARKEN_HTTP_PORT", "\x1b[2J", "HARKEN_HTTP_PORT is '\\x1b[2J'; expected a whole number from 0 to 65535."),
    ],
)
def test_wrong_variable_is_an_error_that_names_it(home: Home, variable: str, text: str, expected: str) -> None:
    """The variable is what the user has to change, so it is what is named."""
    assert problems(home, "", None, **{variable: text}) == [f"environment: {expected}"]


def test_lists_and_durations_come_from_variables_too(home: Home) -> None:
    """Containers are configured by environment only."""
    environ = {"HARKEN_TRUST_OWNER": "teams:a, mail:b", "HARKEN_LIMITS_LEASE": "20m", "HARKEN_HTTP_ALLOW_REMOTE": "1"}
    found = load(home, {}, environ).settings
    assert found.trust.owner == ("teams:a", "mail:b")
    assert found.limits.lease == timedelta(minutes=20)
    assert found.http.allow_remote is True


def test_tables_are_not_flags(home: Home) -> None:
    """A table has no text form; the flag is refused instead of ignored."""
    assert problems(home, "", {"routes": "x"}) == ["flag: routes is not a setting."]


def test_description_is_json_and_shows_references_only(home: Home) -> None:
    """`harken config show --origin` prints this; a resolved secret must not be in it."""
    loaded = read(
        home,
        "[store]\nurl = 'env:HARKEN_DB'\n[sources.a]\nkind = 'x'\ntoken = 'env:TOKEN'\nsince = 2024-01-01\n"
        "[projects.p]\ndirs = ['/p']\n[[routes]]\nmailbox = 'inbox'\n",
        HARKEN_DB=f"postgresql://u:{PLAIN}@h/d",
        TOKEN=PLAIN,
    )
    rows = {str(row["name"]): row for row in describe(loaded)}
    assert json.loads(json.dumps(rows)) == rows
    assert PLAIN not in json.dumps(rows)
    assert rows["store.url"] == {
        "name": "store.url",
        "value": "env:HARKEN_DB",
        "origin": str(home.config_file),
        "help": "The store: sqlite, or a PostgreSQL URL that several daemons share.",
    }
    assert rows["sources"]["value"] == {"a": {"kind": "x", "token": "env:TOKEN", "since": "2024-01-01"}}
    assert rows["projects"]["value"] == {"p": {"dirs": ["/p"]}}


toml_values = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*{setting.group for setting in SETTINGS}, "other"])
leaves = st.sampled_from([*{setting.leaf for setting in SETTINGS}, "mailbox", "attention", "kind", "dirs", "x"])


def as_toml(value: object) -> str:
    """Write a value as TOML, inline; JSON's strings and numbers are TOML's too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    return json.dumps(value).replace("\x7f", "\\u007f")


def outcome(home: Home) -> str:
    """Load, and return the settings as JSON or the sentence why not."""
    try:
        return json.dumps(describe(load(home, {}, {"HOME": "/home/u"})))
    except UserError as exc:
        return exc.message


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    tree=st.dictionaries(
        names, toml_values | st.dictionaries(leaves, toml_values) | st.lists(st.dictionaries(leaves, toml_values))
    )
)
def test_any_file_loads_or_is_a_user_error(home: Home, tree: dict[str, object]) -> None:
    """No content of the file may end in a traceback or in an error that acts on the terminal."""
    text = "\n".join(f"{name} = {as_toml(value)}" for name, value in tree.items())
    home.config_file.write_bytes(text.encode("utf-8", "replace"))
    assert all(line.isprintable() for line in outcome(home).split("\n"))
