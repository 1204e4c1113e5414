"""What is wrong in the settings of each kind: named with its key, and with what would do.

How a value of each type is read, for all kinds alike, is in `test_settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from harken.errors import UserError
from harken.sources.registry import kinds

ID: Final = "66666666-7777-8888-9999-aaaaaaaaaaaa"
APP_ID, TENANT = ID, ID
IMAP: Final = {"host": "imap.example.org", "user": "ann", "password": "env:MAIL"}
RELAY: Final = {"smtp_host": "relay.example.org", "from": "ann@example.org"}
BOT: Final = {"app_id": ID, "tenant": ID, "secret": "env:BOT_SECRET"}
TEAMS: Final = {"client_id": ID}
AGENT: Final = {
    "sign_in": "agent",
    "tenant": "contoso.example",
    "blueprint_id": ID,
    "agent_id": ID,
    "user_id": ID,
    "certificate": "file:agent.pem",
}
GITHUB: Final = {"preset": "github", "secret": "env:CI"}
GENERIC: Final = {"preset": "generic", "secret": "env:CI"}
SECRETS: Final = ("hunter2", "s3cret", "pasted", "word@", "u:p", "BEGIN")


@pytest.mark.parametrize(
    ("kind", "entry", "said", "hint"),
    [
        ("imap", {**IMAP, "host": ""}, "sources.it.host is not a text of one line.", "imap.example.org"),
        ("imap", {**IMAP, "host": "a/b"}, "sources.it.host is not the name of a server.", "imap.example.org"),
        ("imap", {**IMAP, "port": 0}, "sources.it.port is 0.", "993"),
        ("imap", {**IMAP, "security": "ssl"}, "sources.it.security is 'ssl'.", "tls, starttls, none"),
        (
            "imap",
            {**IMAP, "security": "none"},
            'sources.it.security is "none", and imap.example.org is not this machine.',
            "clear",
        ),
        ("imap", {**IMAP, "smtp_port": 25}, "sources.it.smtp_port needs smtp_host.", "Set smtp_host too."),
        ("imap", {**IMAP, "smtp_auth": "none"}, "sources.it.smtp_auth needs smtp_host.", "Set smtp_host too."),
        ("imap", {**IMAP, **RELAY, "smtp_auth": "no"}, "sources.it.smtp_auth is 'no'.", "login, none"),
        (
            "imap",
            {**IMAP, **RELAY, "smtp_security": "none"},
            'sources.it.smtp_security is "none", and relay.example.org is not this machine.',
            'if it wants no password, set smtp_auth = "none"',
        ),
        (
            "imap",
            {**IMAP, "smtp_host": "smtp.example.org"},
            "sources.it.from is missing.",
            "address that answers are from",
        ),
        ("imap", {**IMAP, "from": "a b"}, "sources.it.from is not a mail address.", "me@example.org"),
        ("imap", {**IMAP, "from": "a@b, c@d"}, "sources.it.from is not a mail address.", "me@example.org"),
        ("imap", {**IMAP, "token": "env:X"}, "sources.it has both of password and token.", "Set one"),
        ("imap", {**IMAP, "folders": []}, "sources.it.folders is not a list of folders.", "INBOX"),
        ("imap", {**IMAP, "folders": ["a\nb"]}, "sources.it.folders holds something that is not a folder.", "INBOX"),
        ("imap", {**IMAP, "poll": 1}, "sources.it.poll is 1.", "from 5 to 86400"),
        ("imap", {**IMAP, "since": "a week"}, "sources.it.since is 'a week'.", "7d"),
        ("imap", {**IMAP, "since": "9999d"}, "sources.it.since is '9999d'.", "366d"),
        (
            "imap",
            {**IMAP, "trust_from": True, "authserv_id": "mx.example.org"},
            "sources.it has both authserv_id and trust_from.",
            "Leave out trust_from",
        ),
        ("mcp", {}, "sources.it.url is missing.", "Set it to an address"),
        ("mcp", {"transport": "stdio"}, "sources.it.command is missing.", "Set it to a program"),
        ("mcp", {"transport": "htp", "url": "http://x"}, "sources.it.transport is 'htp'.", "Did you mean http?"),
        ("mcp", {"url": "ftp://x"}, "sources.it.url is not an address that begins with", "Check its spelling."),
        ("mcp", {"url": "http://"}, "sources.it.url is not an address", "Check"),
        ("mcp", {"url": "http://h:99999/"}, "sources.it.url is not an address", "Check"),
        ("mcp", {"url": "http://h/a b"}, "sources.it.url is not an address", "Check"),
        ("mcp", {"url": "http://h", "zzz": 1}, "sources.it.zzz is not a setting", "Known keys: attention, channels"),
        (
            "mcp",
            {"url": "http://h", "command": "x"},
            'sources.it.command has no meaning with transport = "http"',
            "stdio",
        ),
        (
            "mcp",
            {"command": "x", "transport": "stdio", "headers": {}},
            "sources.it.headers has no meaning",
            "http or sse",
        ),
        (
            "mcp",
            {"url": "http://h", "channels": "ci"},
            "sources.it.channels is not a list of texts.",
            'a list, such as ["deploys"]',
        ),
        ("mcp", {"url": "http://h", "headers": {"a b": "x"}}, "sources.it.headers has a name", "Use letters"),
        (
            "mcp",
            {"url": "http://h", "headers": {"Host": "x"}},
            "sources.it.headers.Host is said by Harken",
            "Remove it.",
        ),
        (
            "mcp",
            {"url": "http://h", "headers": {"X": "s3cret\nY: z"}},
            "sources.it.headers.X has characters",
            "one line",
        ),
        ("mcp", {"url": "http://h", "timeout": 0}, "sources.it.timeout is 0.", "from 1 to 600"),
        ("mcp", {"command": ""}, "sources.it.command is empty.", "a program"),
        ("bot", {**BOT, "appid": APP_ID}, "sources.it.appid", "Did you mean app_id?"),
        ("bot", {**BOT, "port": 80}, "sources.it.port", "Known keys:"),
        ("bot", {**BOT, "app_id": "my bot"}, "sources.it.app_id", "Microsoft App ID"),
        (
            "bot",
            {name: kept for name, kept in BOT.items() if name != "app_id"},
            "sources.it.app_id",
            "Microsoft App ID",
        ),
        ("bot", {**BOT, "tenant": "../evil"}, "sources.it.tenant", "multi-tenant"),
        ("bot", {name: kept for name, kept in BOT.items() if name != "tenant"}, "sources.it.tenant", "multi-tenant"),
        ("bot", {**BOT, "secret": "pasted~secret"}, "sources.it.secret", "env:BOT_SECRET"),
        ("bot", {name: kept for name, kept in BOT.items() if name != "secret"}, "sources.it.secret", "env:BOT_SECRET"),
        ("bot", {**BOT, "tenants": "all"}, "sources.it.tenants", "list of tenant ids"),
        ("bot", {**BOT, "tenants": ["contoso"]}, "sources.it.tenants", "list of tenant ids"),
        ("bot", {**BOT, "tenants": ["*", TENANT]}, "sources.it.tenants", "list of tenant ids"),
        ("bot", {**BOT, "channels": ["MS Teams"]}, "sources.it.channels", "msteams"),
        ("bot", {**BOT, "cloud": "china"}, "sources.it.cloud", "public, us-government"),
        ("bot", {**BOT, "openid_url": "http://login.botframework.com/"}, "sources.it.openid_url", "https"),
        ("bot", {**BOT, "openid_url": "https://user:word@login.botframework.com/"}, "sources.it.openid_url", "https"),
        ("bot", {**BOT, "token_url": "file:///etc/passwd"}, "sources.it.token_url", "https"),
        ("bot", {**BOT, "service_hosts": [".com"]}, "sources.it.service_hosts", "one service"),
        ("bot", {**BOT, "service_hosts": [""]}, "sources.it.service_hosts", "a list of hosts"),
        ("teams", {}, "client_id is missing", ""),
        ("teams", {**TEAMS, "client_id": "abc"}, "client_id", ""),
        ("teams", {**TEAMS, "sign_in": "magic"}, "sign_in is 'magic'", ""),
        ("teams", {**TEAMS, "tenant": "a/b"}, "tenant", ""),
        ("teams", {**TEAMS, "poll": 1}, "poll is 1", ""),
        ("teams", {**TEAMS, "watched": "Release"}, "watched", ""),
        ("teams", {**TEAMS, "folders": ["inbox"]}, "folders is not a setting of teams", ""),
        ("teams", {**TEAMS, "cache": "attic"}, "cache is 'attic'", ""),
        ("teams", {**TEAMS, "scopes": ["openid"]}, "scopes", ""),
        ("teams", {**TEAMS, "certificate": "file:x"}, "certificate has no meaning", ""),
        ("teams", {**TEAMS, "graph_url": "http://graph.example"}, "graph_url", ""),
        ("teams", {**TEAMS, "graph_url": "https://u:p@graph.example"}, "graph_url", ""),
        ("teams", {**TEAMS, "graph_url": "https://[x"}, "graph_url", ""),
        ("teams", {**TEAMS, "authority": "http://127.0.0.1:1"}, "authority", ""),
        ("teams", {**TEAMS, "authority": "https://login.example/x"}, "authority", ""),
        ("teams", {**AGENT, "certificate": "-----BEGIN PRIVATE KEY-----"}, "certificate does not say where", ""),
        ("teams", {**AGENT, "tenant": "organizations"}, "tenant", ""),
        ("teams", {**AGENT, "user_id": "me"}, "user_id", ""),
        ("teams", {**AGENT, "client_id": ID}, "client_id has no meaning", ""),
        ("webhook", {"secret": "env:CI"}, "sources.it.preset is missing.", ""),
        ("webhook", {**GITHUB, "preset": "gitea"}, "sources.it.preset is 'gitea'.", ""),
        ("webhook", {"preset": "github"}, "sources.it.secret is missing.", ""),
        ("webhook", {**GITHUB, "secret": 5}, "sources.it.secret does not say where it is kept.", ""),
        ("webhook", {**GITHUB, "secrets": ["env:B"]}, "sources.it.secret and sources.it.secrets are both there.", ""),
        ("webhook", {"preset": "github", "secrets": []}, "sources.it.secrets is empty or too long.", ""),
        ("webhook", {"preset": "github", "secrets": ["env:A"] * 9}, "sources.it.secrets is empty or too long.", ""),
        ("webhook", {**GITHUB, "text": "a.b"}, 'sources.it.text has no meaning with preset = "github".', ""),
        ("webhook", {**GITHUB, "max_bytes": 10}, "sources.it.max_bytes is 10.", ""),
        ("webhook", {**GENERIC, "text": "a["}, "sources.it.text is not a JMESPath expression: a[", ""),
        ("webhook", {**GENERIC, "text": "a" * 1_001}, "sources.it.text is longer than 1000 characters.", ""),
        (
            "webhook",
            {**GENERIC, "text": "(" * 900},
            f"is not a JMESPath expression: {'(' * 39}\N{HORIZONTAL ELLIPSIS}",
            "",
        ),
        ("webhook", {**GENERIC, "scheme": "none"}, "sources.it.scheme is 'none'.", ""),
        ("webhook", {**GENERIC, "header": "X Y"}, "sources.it.header cannot be the name of a header.", ""),
        ("webhook", {**GENERIC, "encoding": "base32"}, "sources.it.encoding is 'base32'.", ""),
    ],
)
def test_a_mistake_is_named_with_what_would_do(kind: str, entry: Mapping[str, object], said: str, hint: str) -> None:
    """Somebody corrects it in a file, without a manual; and what may be a secret is not repeated."""
    (found,) = [each for each in kinds() if each.name == kind]
    with pytest.raises(UserError) as caught:
        found.read_settings()("it", {"kind": kind, **entry})
    told = f"{caught.value.message} {caught.value.hint}"
    assert "sources.it" in told
    assert said in told
    assert caught.value.hint
    assert hint in caught.value.hint
    assert [secret for secret in SECRETS if secret in told] == []
