"""A line for a shell that posts something a webhook takes: how a shell signs with a secret, where it is kept.

Running such a line shows the secret to nobody: programs get it through a pipe, since what they are started with can be
seen by everybody on the machine. Each preset says with these functions how its service signs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.sources.webhook.signing import BASE64, HEX

SAMPLE: Final = '{"text":"hello from curl"}'

# In Python: openssl takes a key only as an argument.
_SIGN: Final = (
    'import base64,hmac,sys; k=sys.stdin.buffer.read().rstrip(b"\\r\\n"); '
    '{key}m=hmac.new(k,sys.argv[1].encode(),"{digest}"); print({shown})'
)
_SHOWN: Final[Mapping[str, str]] = {HEX: "m.hexdigest()", BASE64: "base64.b64encode(m.digest()).decode()"}


@dataclass(frozen=True, slots=True)
class ShellSignature:
    """What a shell does before it posts, and the headers it adds, each as a word of the shell."""

    before: str
    headers: tuple[str, ...]


def shell_hmac(
    secret: str, signed: str = "$body", *, digest: str = "sha256", encoding: str = HEX, key: str = ""
) -> str:
    """Return how a shell signs something with what a command prints."""
    code = _SIGN.format(key=key, digest=digest, shown=_SHOWN[encoding])
    return f"$({secret} | python3 -I -c '{code}' \"{signed}\")"


def shell_header(header: str, secret: str) -> ShellSignature:
    """Return how a shell gives a secret as it is: printf is a part of the shell, and curl reads the header."""
    return ShellSignature(f'printf "%s%s\\n" {shlex.quote(header)} "$({secret})" | ', ("@-",))


def shell_body_signature(header: str, *more: str) -> Callable[[str], ShellSignature]:
    """Return how a shell signs the body into a header, with more headers before it."""
    return lambda secret: ShellSignature("", (*more, f'"{header}{shell_hmac(secret)}"'))


def shell_line(signature: ShellSignature, sample: str, url: str) -> str:
    """Return a line that posts a sample, signed."""
    said = " ".join(f"-H {each}" for each in ("'Content-Type: application/json'", *signature.headers))
    return f"body='{sample}'; {signature.before}curl -sS {said} -d \"$body\" {shlex.quote(url)}"


def shell_secret(reference: str, locate: Callable[[str], Path]) -> str:
    """Return what prints a secret from where it is kept."""
    kind, _, rest = reference.partition(":")
    if kind == "env":
        return f'printf %s "${rest}"'
    if kind == "keyring":
        service, _, name = rest.rpartition("/")
        return f"keyring get {shlex.quote(service)} {shlex.quote(name)}"
    return f"cat {shlex.quote(str(locate(rest)))}"
