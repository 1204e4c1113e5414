"""Adding a webhook, and trying it: its secret is made and kept in a private file, its address is told.

The secret is shown once, when it is made. Trying posts something unsigned, which must be refused, and prints a line
for the shell that would be taken: nothing is stored here. Running that line shows the secret to nobody: programs get it
through a pipe, since what they are started with can be seen by everybody on the machine.
"""

from __future__ import annotations

import secrets
import shlex
import socket
import sys
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from harken.cli.authority import refuse_agent
from harken.cli.client import Daemon, Result
from harken.cli.names import short
from harken.cli.output import note_to_person
from harken.cli.source_config import add_entry, check_name, configured, entry_named
from harken.cli.verbs import Invocation
from harken.config.home import Home, disk_error, ensure, write_private
from harken.config.load import load
from harken.errors import HarkenError, UserError
from harken.sources.base import SourceState
from harken.sources.webhook.presets.generic import NAME as GENERIC
from harken.sources.webhook.presets.generic import PARTS, GenericSettings
from harken.sources.webhook.settings import KIND, PATH, WebhookSettings, read_settings
from harken.sources.webhook.signing import BASE64, HEX, STANDARD_PREFIX

FOLDER: Final = "secrets"  # in the home
SECRET_BYTES: Final = 32
FROM_STDIN: Final = "-"
UNAUTHORIZED: Final = 401
ANSWER_SECONDS: Final = 5.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for. Empty: not asked for."""

    name: str
    preset: str
    secrets: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    scheme: str | None = None
    channels: tuple[str, ...] = ()
    trust: str | None = None
    attention: str | None = None


def add_webhook(asked: Invocation, wanted: Wanted, *, is_restarted: bool) -> None:
    """Write the entry and, unless one was brought, a secret; say where to post and what to paste."""
    refuse_agent(asked, "add sources")
    check_name(wanted.name)
    ensure(asked.home)
    is_there = wanted.name in configured(asked.home)
    made = "" if is_there or _is_brought(wanted) else _made_secret(asked, wanted)
    entry = entry_of(wanted)
    read_settings(wanted.name, entry)
    file = asked.home.path / FOLDER / wanted.name
    if made:
        _keep(file, made)
    # One that the person brought need not be shown to them.
    shown = made if not wanted.secrets else ""
    more = {"url": address_of(asked.home, wanted.name), **({"secret": shown} if shown else {})}
    try:
        add_entry(asked, wanted.name, lambda: entry, is_restarted=is_restarted, more=more)
    except HarkenError:
        if made:
            file.unlink(missing_ok=True)
        raise
    if not asked.as_json:
        _tell(asked, read_settings(wanted.name, entry), more["url"], shown)


def _is_brought(wanted: Wanted) -> bool:
    return bool(wanted.secrets) and wanted.secrets != (FROM_STDIN,)


def entry_of(wanted: Wanted) -> dict[str, object]:
    """Return what is written for what a person asked for."""
    kept = (f"file:{FOLDER}/{wanted.name}",)
    references = wanted.secrets if _is_brought(wanted) else kept
    entry: dict[str, object] = {
        "kind": KIND,
        "preset": wanted.preset,
        "secret": references[0] if len(references) == 1 else "",
        "secrets": list(references) if len(references) > 1 else [],
        **_parts(wanted.parts),
        "scheme": wanted.scheme,
        "channels": list(wanted.channels),
        "trust": wanted.trust,
        "attention": wanted.attention,
    }
    return {key: value for key, value in entry.items() if value}


def _parts(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in words:
        part, equals, expression = each.partition("=")
        if part.strip() not in PARTS or not equals or not expression.strip():
            raise UserError(f"{each[:60]!r} is not PART=JMESPATH.", f"The parts are {', '.join(PARTS)}.")
        found[part.strip()] = expression.strip()
    return found


def _made_secret(asked: Invocation, wanted: Wanted) -> str:
    """Return the secret that is kept: read, asked for where the service makes it, or a new one."""
    if wanted.secrets:
        given = sys.stdin.readline().strip()
        if not given:
            raise UserError(
                "There is no secret on the standard input.", "Such as: harken source add ... --secret - < FILE"
            )
        return given
    theirs = _theirs(wanted)
    if theirs and sys.stdin.isatty() and not asked.as_json:
        given = str(click.prompt(f"The secret that {theirs} shows you (empty: make one)", default="", hide_input=True))
        if given.strip():
            return given.strip()
    made = secrets.token_bytes(SECRET_BYTES)
    return STANDARD_PREFIX + b64encode(made).decode() if wanted.preset == "standard" else made.hex()


def _theirs(wanted: Wanted) -> str:
    """Return the name of the service, if it makes the secret itself."""
    preset = read_settings(wanted.name, entry_of(wanted)).preset
    return preset.title if preset.is_secret_theirs else ""


def _keep(file: Path, secret: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise disk_error("create", file.parent, exc) from exc
    write_private(file, f"{secret}\n")


def kept_secret(home: Home, name: str) -> Path | None:
    """Return the file that a secret was made in, if the entry of a webhook says that it is there."""
    entry = configured(home).get(name)
    is_ours = isinstance(entry, dict) and (entry.get("kind"), entry.get("secret")) == (KIND, f"file:{FOLDER}/{name}")
    return home.path / FOLDER / name if is_ours else None


def address_of(home: Home, name: str) -> str:
    """Return where to post: the address for others if there is one, else the one on this machine."""
    settings = load(home, {}, {}).settings.hooks
    if settings.public_url:
        return f"{settings.public_url}{PATH}{name}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port or _port(home, settings.host)}{PATH}{name}"


def _port(home: Home, host: str) -> int:
    """Return the port that the daemon will take: the one it had, or a free one that is kept for it."""
    try:
        return int(home.doors_port_file.read_text())
    except (OSError, ValueError):
        pass
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.bind((host, 0))
            port = int(sock.getsockname()[1])
    except OSError as exc:
        raise UserError(f"Cannot listen on {host} ({exc.strerror}).", "Set hooks.host in config.toml.") from exc
    write_private(home.doors_port_file, f"{port}\n")
    return port


def _tell(asked: Invocation, settings: WebhookSettings, url: object, made: str) -> None:
    asked.screen.line(f"Address: {url}")
    file = asked.home.path / FOLDER / settings.name
    if made:
        asked.screen.line(f"Secret: {made}")
        note_to_person(f"It is shown this once and kept in {short(file)}.")
    preset = settings.preset
    note_to_person(preset.where)
    if made and preset.is_secret_theirs:
        note_to_person(f"{preset.title} makes its own secret: write that into {short(file)} instead, then restart.")
    if str(url).startswith("http://127.") or "localhost" in str(url):
        note_to_person("Only this machine reaches that address. For others see docs/howto/webhooks.md.")


def try_webhook(home: Home, name: str) -> Result:
    """Post something unsigned to the running daemon, which must refuse it; return how that went."""
    settings = read_settings(name, entry_named(home, name))
    state, reason, found = SourceState.RETRYING, "", ""
    with Daemon(home) as daemon:
        base = str(daemon.ask("status")["daemon"].get("hooks_url", ""))
        sources = {each["name"]: each for each in daemon.ask("source_list")["sources"]}
    if name not in sources or not base:
        reason = "The daemon does not know it yet. Restart it: harken down && harken up"
    elif sources[name]["state"] != SourceState.LISTENING.value:
        state, reason = SourceState(sources[name]["state"]), sources[name]["reason"]
    else:
        status = _post(base, settings.path)
        if status == UNAUTHORIZED:
            state, found = SourceState.LISTENING, "An unsigned post is refused, as it must be."
        else:
            reason = f"An unsigned post was answered with {status or 'nothing'} instead of {UNAUTHORIZED}."
    return {
        "name": name,
        "kind": KIND,
        "address": address_of(home, name),
        "state": state.value,
        "reason": reason,
        "server": settings.preset.title,
        "found": found,
        "curl": curl_line(settings, f"{base}{settings.path}", home) if found else "",
        "messages": 0,
        "counts": {},
        "dropped": {},
        "too_long": 0,
        "last_message_at": None,
    }


def _post(base: str, path: str) -> int:
    """Return the status of an unsigned post, 0 when there was no answer."""
    parts = urlsplit(base)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


def curl_line(settings: WebhookSettings, url: str, home: Home) -> str:
    """Return a line for a shell that posts a greeting, signed with the secret where it is kept."""
    setup, headers = _signed(settings, _in_shell(settings.secrets[0], home))
    said = " ".join(f"-H {each}" for each in ("'Content-Type: application/json'", *headers))
    body = _SAMPLES.get(settings.preset.name, _SAMPLE)
    return f"body='{body}'; {setup}curl -sS {said} -d \"$body\" {shlex.quote(url)}"


_SAMPLE: Final = '{"text":"hello from curl"}'
_SAMPLES: Final[Mapping[str, str]] = {
    "alertmanager": '{"status":"firing","alerts":[{"status":"firing","labels":{"alertname":"Hello"}}]}',
    "slack": '{"type":"url_verification","challenge":"hello"}',
}


# In Python: openssl takes a key only as an argument.
_SIGN: Final = (
    'import base64,hmac,sys; k=sys.stdin.buffer.read().rstrip(b"\\r\\n"); '
    '{key}m=hmac.new(k,sys.argv[1].encode(),"{digest}"); print({shown})'
)
_STANDARD_KEY: Final = f'k=base64.b64decode(k[{len(STANDARD_PREFIX)}:]) if k.startswith(b"{STANDARD_PREFIX}") else k; '
_SHOWN: Final[Mapping[str, str]] = {HEX: "m.hexdigest()", BASE64: "base64.b64encode(m.digest()).decode()"}


def _hmac(secret: str, signed: str = "$body", *, digest: str = "sha256", encoding: str = HEX, key: str = "") -> str:
    """Return how a shell signs something with what a command prints."""
    code = _SIGN.format(key=key, digest=digest, shown=_SHOWN[encoding])
    return f"$({secret} | python3 -I -c '{code}' \"{signed}\")"


def _signed(settings: WebhookSettings, secret: str) -> tuple[str, list[str]]:
    """Return what a shell does before, and the headers it adds, each as a word of the shell."""
    name = settings.preset.name
    if name == GENERIC:
        return _signed_generic(settings.generic, secret)
    if name == "slack":
        made = _hmac(secret, "v0:$t:$body")
        return "t=$(date +%s); ", ['"X-Slack-Request-Timestamp: $t"', f'"X-Slack-Signature: v0={made}"']
    if name == "standard":
        made = _hmac(secret, "$i.$t.$body", encoding=BASE64, key=_STANDARD_KEY)
        stamp = ['"webhook-id: $i"', '"webhook-timestamp: $t"']
        return "t=$(date +%s) i=curl-$t; ", [*stamp, f'"webhook-signature: v1,{made}"']
    brought = {"gitlab": "X-Gitlab-Token: ", "alertmanager": "Authorization: Bearer "}
    if name in brought:
        return _brought(brought[name], secret)
    made = _hmac(secret)
    signed = {
        "github": ["'X-GitHub-Event: ping'", f'"X-Hub-Signature-256: sha256={made}"'],
        "jira": [f'"X-Hub-Signature: sha256={made}"'],
        "sentry": [f'"Sentry-Hook-Signature: {made}"'],
    }
    return "", signed[name]


def _signed_generic(generic: GenericSettings, secret: str) -> tuple[str, list[str]]:
    if generic.scheme == "bearer":
        return _brought("Authorization: Bearer ", secret)
    if generic.scheme == "token":
        return _brought(f"{generic.header}: {generic.prefix}", secret)
    digest = generic.scheme.removeprefix("hmac-")
    signed = "$t.$body" if generic.timestamp_header else "$body"
    made = _hmac(secret, signed, digest=digest, encoding=generic.encoding)
    headers = [f'"{generic.header}: {generic.prefix}{made}"']
    if generic.timestamp_header:
        return "t=$(date +%s); ", [f'"{generic.timestamp_header}: $t"', *headers]
    return "", headers


def _brought(header: str, secret: str) -> tuple[str, list[str]]:
    """Return how a shell gives a secret as it is: printf is a part of the shell, and curl reads the header."""
    return f'printf "%s%s\\n" {shlex.quote(header)} "$({secret})" | ', ["@-"]


def _in_shell(reference: str, home: Home) -> str:
    """Return what prints a secret from where it is kept."""
    kind, _, rest = reference.partition(":")
    if kind == "env":
        return f'printf %s "${rest}"'
    if kind == "keyring":
        service, _, name = rest.rpartition("/")
        return f"keyring get {shlex.quote(service)} {shlex.quote(name)}"
    return f"cat {shlex.quote(str(home.path / Path(rest).expanduser()))}"
