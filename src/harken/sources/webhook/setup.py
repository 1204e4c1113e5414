"""Setting up and trying a webhook: its secret is made and kept in a private file, its address is told.

The secret is shown once, when it is made. Trying posts something unsigned, which must be refused, and prints a line
for the shell that would be taken: nothing is stored here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from harken.errors import UserError
from harken.sources.check import CheckContext, CheckReport
from harken.sources.settings import SourceOption, options_of
from harken.sources.setup import (
    SECRETS_FOLDER,
    SetupContext,
    SetupOutcome,
    SetupValues,
    SourceSetup,
    text_of,
    texts_of,
    written,
)
from harken.sources.source import SourceEntry, SourceState
from harken.sources.webhook.preset import preset_names
from harken.sources.webhook.presets.generic import PARTS
from harken.sources.webhook.settings import KIND, PATH, WebhookKeys, read_settings
from harken.sources.webhook.shell import shell_line, shell_secret

SECRET_BYTES: Final = 32
FROM_STDIN: Final = "-"
UNAUTHORIZED: Final = 401
ANSWER_SECONDS: Final = 5.0


class WebhookSetup(SourceSetup):
    """How a webhook is set up."""

    help_text = "Make an address to post to, and a secret; its name is that of the preset unless you say so."

    def __init__(self) -> None:
        self.options = (
            SourceOption(flag="--preset", key="preset", help="Whose posts they are.", choices=preset_names()),
            *options_of(WebhookKeys),
            SourceOption(flag="--secret", key="SECRETS", help="env:NAME, file:PATH or -.", metavar="REF", is_many=True),
            SourceOption(
                flag="--take",
                key="TAKE",
                help="generic: text, channel, sender or id.",
                metavar="PART=JMESPATH",
                is_many=True,
            ),
        )
        self._made = ""

    def usual_name(self, values: SetupValues) -> str:
        """Return the preset's name."""
        return text_of(values, "preset")

    def missing(self, values: SetupValues) -> str:
        """Return the preset if it was not given: there is no question that could find it."""
        if not values.get("preset"):
            raise UserError("Missing option '--preset'.", f"Choose one of: {', '.join(preset_names())}.")
        return ""

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written, and keep the secret unless the person keeps it elsewhere."""
        entry = self._written(name, values)
        if not context.is_known(name) and not _is_brought(values):
            secret = self._secret(name, values, entry, context)
            read_settings(name, entry)
            context.keep_secret(name, secret)
            # One that the person brought need not be shown to them.
            self._made = "" if values.get("SECRETS") else secret
        return entry

    def outcome(
        self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext
    ) -> SetupOutcome:
        """Say where to post and what to paste."""
        del values
        preset = read_settings(name, entry).preset
        url, file = context.post_address(f"{PATH}{name}"), context.folder / SECRETS_FOLDER / name
        lines, notes = [f"Address: {url}"], list[str]()
        if self._made:
            lines.append(f"Secret: {self._made}")
            notes.append(f"It is shown this once and kept in {file}.")
        notes.append(preset.where)
        if self._made and preset.is_secret_theirs:
            notes.append(f"{preset.title} makes its own secret: write that into {file} instead, then reload.")
        if url.startswith("http://127.") or "localhost" in url:
            notes.append("Only this machine reaches that address. For others see docs/howto/webhooks.md.")
        more = {"url": url, **({"secret": self._made} if self._made else {})}
        return SetupOutcome(lines=lines, notes=notes, more=more)

    def made_secret(self, name: str, entry: Mapping[str, object]) -> bool:
        """Whether the entry names the file in which a secret was made for it."""
        return entry.get("secret") == f"file:{SECRETS_FOLDER}/{name}"

    def _written(self, name: str, values: SetupValues) -> dict[str, object]:
        references = texts_of(values, "SECRETS") if _is_brought(values) else (f"file:{SECRETS_FOLDER}/{name}",)
        found = {
            "preset": values.get("preset"),
            "secret": references[0] if len(references) == 1 else "",
            "secrets": references if len(references) > 1 else (),
            **_parts(texts_of(values, "TAKE")),
            **{key: value for key, value in values.items() if key.islower() and key != "preset"},
        }
        return written(KIND, found)

    def _secret(self, name: str, values: SetupValues, entry: Mapping[str, object], context: SetupContext) -> str:
        """Return the secret that is kept: read, asked for where the service makes it, or a new one."""
        if values.get("SECRETS"):
            if given := context.console.read_line().strip():
                return given
            raise UserError(
                "There is no secret on the standard input.", "Such as: harken source add ... --secret - < FILE"
            )
        preset = read_settings(name, entry).preset
        if preset.is_secret_theirs and context.console.can_ask:
            asked = f"The secret that {preset.title} shows you (empty: make one)"
            if given := context.console.prompt(asked, "", is_hidden=True):
                return given
        return preset.new_secret(secrets.token_bytes(SECRET_BYTES))


def _is_brought(values: SetupValues) -> bool:
    return bool(values.get("SECRETS")) and texts_of(values, "SECRETS") != (FROM_STDIN,)


def _parts(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in words:
        part, equals, expression = each.partition("=")
        if part.strip() not in PARTS or not equals or not expression.strip():
            raise UserError(f"{each[:60]!r} is not PART=JMESPATH.", f"The parts are {', '.join(PARTS)}.")
        found[part.strip()] = expression.strip()
    return found


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Post something unsigned to the running daemon, which must refuse it."""
    settings = read_settings(entry.name, entry.table)
    running = context.running()
    state, reason, found = SourceState.RETRYING, "", ""
    if entry.name not in running.states or not running.hooks_url:
        reason = "The daemon does not know it yet: harken reload"
    elif running.states[entry.name][0] is not SourceState.LISTENING:
        state, reason = running.states[entry.name]
    else:
        status = _post(running.hooks_url, settings.path)
        if status == UNAUTHORIZED:
            state, found = SourceState.LISTENING, "An unsigned post is refused, as it must be."
        else:
            reason = f"An unsigned post was answered with {status or 'nothing'} instead of {UNAUTHORIZED}."
    signature = settings.preset.shell(shell_secret(settings.secrets[0], entry.locate))
    line = shell_line(signature, settings.preset.sample, f"{running.hooks_url}{settings.path}")
    return CheckReport(
        state=state,
        address=context.post_address(settings.path),
        reason=reason,
        server=settings.preset.title,
        found=found,
        shell_line=line if found else "",
    )


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
