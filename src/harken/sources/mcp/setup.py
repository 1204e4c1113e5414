"""Setting up an MCP server: by its address or the program that it is, with every secret left where it is kept."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.sources.mcp.settings import KIND, McpKeys
from harken.sources.settings import REFERENCES, options_of
from harken.sources.setup import SetupContext, SetupValues, SourceSetup, text_of, texts_of, written

MIN_SECRET_CHARS: Final = 16
_FORMS: Final = "Keep it elsewhere and name it: env:NAME (in {file}), file:PATH or keyring:SERVICE/NAME."
_SECRET_NAME: Final = re.compile(r"(?i).*(auth|cookie|token|secret|passw|credential|api-?key|access-?key|session).*")
_SECRET_VALUE: Final = re.compile(r"(?i)(bearer|basic|token)\s+\S+")
_WORD: Final = re.compile(r"[A-Za-z0-9_+/=.~-]+")
_REFERENCE: Final = re.compile(rf"(?:[A-Za-z]+ )?(?:{'|'.join(REFERENCES)}).+", re.DOTALL)


class McpSetup(SourceSetup):
    """How an MCP server is set up."""

    options = options_of(McpKeys)
    takes_arguments = True
    help_text = (
        "Add an MCP server, by its address or the program that it is. Secrets stay outside: --header "
        "Authorization=env:CI_TOKEN, with CI_TOKEN=... in the file `env` in Harken's folder."
    )

    def missing(self, values: SetupValues) -> str:
        """Return what a server cannot do without; which of both is said where the entry is made."""
        del values
        return ""

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask the person for what is missing, a question each."""
        del name
        console = context.console
        place = text_of(values, "url") or text_of(values, "command")
        if not place:
            place = console.prompt("Its address (https://...), or the command that starts it")
        is_address = place.startswith(("http://", "https://"))
        found: dict[str, object] = {
            **values,
            "url": place if is_address else "",
            "command": "" if is_address else place,
        }
        if is_address and not values.get("headers"):
            secret = console.prompt("Its secret, as env:NAME or file:PATH (empty: none)", "")
            found["headers"] = (f"Authorization={secret}",) if secret else ()
        if not values.get("channels"):
            kept = console.prompt("Channels to keep, with commas (empty: all)", "")
            found["channels"] = tuple(filter(None, (each.strip() for each in kept.split(","))))
        return found

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written; raises `UserError` for what cannot be, or is a secret."""
        url, program, cwd = (text_of(values, key) for key in ("url", "command", "cwd"))
        if bool(url) == bool(program):
            raise UserError(
                "A source is an address or a program, one of them.",
                f"harken source add {name} --url https://..., or --command PROGRAM",
            )
        command, *args = _command(program, texts_of(values, "args")) if program else ("",)
        forms = _FORMS.format(file=context.env_file)
        for place in (url, *args):
            if context.is_secret(place):
                raise UserError("There is a secret in the address or in an argument of the program.", forms)
        found = {
            "transport": values.get("transport"),
            "url": url,
            "headers": _pairs(texts_of(values, "headers"), "--header", forms, context),
            "command": command,
            "args": args,
            "env": _pairs(texts_of(values, "env"), "--env", forms, context),
            "cwd": str(Path(cwd).expanduser().resolve()) if cwd else "",
            "channels": texts_of(values, "channels"),
            "trust": values.get("trust"),
            "attention": values.get("attention"),
        }
        return written(KIND, found)


def _command(program: str, args: tuple[str, ...]) -> list[str]:
    """Return the program and its arguments; a whole command line in one word is taken apart."""
    if args or " " not in program or Path(program).exists():
        return [program, *args]
    try:
        return shlex.split(program)
    except ValueError as exc:
        raise UserError("The command has a quote that does not end.", "Put its arguments after --.") from exc


def _pairs(words: tuple[str, ...], option: str, forms: str, context: SetupContext) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            # Not repeated: it may be a secret.
            raise UserError(f"What {option} was given is not NAME=VALUE.", f"Such as: {option} X-Team=shop")
        if not _REFERENCE.fullmatch(value.strip()) and _looks_secret(name, value.strip(), context):
            raise UserError(f"The value of {name.strip()[:60]} looks like a secret.", forms)
        pairs[name.strip()] = value.strip()
    return pairs


def _looks_secret(name: str, value: str, context: SetupContext) -> bool:
    """Whether a value must not stand in a file of settings: better a reference too many than a secret too few."""
    if _SECRET_NAME.fullmatch(name) or _SECRET_VALUE.match(value) or context.is_secret(f"{name}: {value}"):
        return True
    kinds = (str.isdigit, str.isupper, str.islower)
    is_mixed = sum(any(kind(char) for char in value) for kind in kinds) > 1
    return len(value) >= MIN_SECRET_CHARS and is_mixed and _WORD.fullmatch(value) is not None
