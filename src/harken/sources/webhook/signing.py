"""Who signed a post: comparisons that take the same time for any post, on the bytes as they came.

A signature is compared as it is written, not as it can be decoded: two spellings of one signature would be two posts.
Every key is tried, so that one can follow another. `ShellSignature` is the same for a person's shell.
Pure; the caller says what time it is.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from harken.errors import Forbidden, UserError
from harken.sources.source import PostedRequest

Keys: TypeAlias = tuple[bytes, ...]

SHA256: Final = "sha256"
SHA1: Final = "sha1"
HEX: Final = "hex"
BASE64: Final = "base64"
STANDARD_PREFIX: Final = "whsec_"
STANDARD_VERSION: Final = "v1,"
MAX_SIGNATURES: Final = 16
LARGE_BYTES: Final = 64 << 10  # from here on it takes long enough that others would notice
STEP_BYTES: Final = 2_000  # above 2047 hashing lets go of the interpreter
MAX_STAMP_DIGITS: Final = 12

MISSING: Final = "It is not signed."
WRONG: Final = "Its signature is wrong."
LATE: Final = "It was signed too long ago, or in the future."


def plain_keys(secret: str) -> Keys:
    """Return a secret as the key it is."""
    return (secret.encode(),)


def standard_keys(secret: str) -> Keys:
    """Return the keys that a secret of Standard Webhooks may stand for; raises `UserError` if it is not one."""
    encoded = secret.removeprefix(STANDARD_PREFIX)
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if decoded and secret.startswith(STANDARD_PREFIX):
        return (decoded,)
    if secret.startswith(STANDARD_PREFIX):
        raise UserError(f"A secret that begins with {STANDARD_PREFIX} does not go on in base64.", "Copy all of it.")
    # Some senders show the key in base64 without the word before it, others take any text as it is.
    return (secret.encode(), decoded) if decoded else (secret.encode(),)


def signature(key: bytes, signed: bytes, *, digest: str = SHA256, encoding: str = HEX) -> str:
    """Return the signature of some bytes."""
    made = hmac.new(key, digestmod=digest)
    view = memoryview(signed)
    # In small steps the interpreter is kept: whoever lets go of it has to wait for the thread that writes. What is
    # large is hashed in a thread of its own, at once, so that all others go on meanwhile.
    step = STEP_BYTES if len(view) < LARGE_BYTES else len(view)
    for start in range(0, len(view), step):
        made.update(view[start : start + step])
    return made.hexdigest() if encoding == HEX else base64.b64encode(made.digest()).decode()


def is_one_of(keys: Keys, given: str) -> bool:
    """Whether what was given is one of the secrets."""
    return _has_match(keys, [_raw(given)])


def check_body(
    posted: PostedRequest, keys: Keys, header: str, *, prefix: str = "", digest: str = SHA256, encoding: str = HEX
) -> None:
    """Refuse a post without the signature of its body in a header."""
    check_signed(posted.headers.get(header, ""), posted.body, keys, prefix=prefix, digest=digest, encoding=encoding)


def check_signed(
    given: str, signed: bytes, keys: Keys, *, prefix: str = "", digest: str = SHA256, encoding: str = HEX
) -> None:
    """Refuse a signature that is not that of these bytes."""
    if not given:
        raise Forbidden(MISSING)
    expected = [_raw(prefix + signature(key, signed, digest=digest, encoding=encoding)) for key in keys]
    if not _has_match(expected, [_raw(given)]):
        raise Forbidden(WRONG)


def check_standard(posted: PostedRequest, keys: Keys, now: float, window: float) -> None:
    """Refuse a post that is not signed as Standard Webhooks says: one of its signatures is that of one of the keys."""
    own_id, stamp = posted.headers.get("webhook-id", ""), posted.headers.get("webhook-timestamp", "")
    given = posted.headers.get("webhook-signature", "")
    if not own_id or not given:
        raise Forbidden(MISSING)
    check_stamp(stamp, now, window)
    signed = b"%b.%b.%b" % (_raw(own_id), _raw(stamp), posted.body)
    expected = [_raw(STANDARD_VERSION + signature(key, signed, encoding=BASE64)) for key in keys]
    said = [_raw(each) for each in given.split(" ")[:MAX_SIGNATURES]]
    if not _has_match(expected, said):
        raise Forbidden(WRONG)


def check_stamp(stamp: str, now: float, window: float) -> None:
    """Refuse a time in seconds that is too far from now."""
    if not stamp:
        raise Forbidden(MISSING)
    is_number = stamp.isascii() and stamp.isdecimal() and len(stamp) <= MAX_STAMP_DIGITS
    if not is_number or abs(now - int(stamp)) > window:
        raise Forbidden(LATE)


def check_bearer(posted: PostedRequest, keys: Keys, header: str = "authorization") -> None:
    """Refuse a post that does not bring one of the secrets: as a bearer's token, or as the password of any name."""
    scheme, _, rest = posted.headers.get(header, "").partition(" ")
    if not rest:
        raise Forbidden(MISSING)
    given = rest.strip()
    if scheme.lower() == "basic":
        given = _password(given)
    elif scheme.lower() != "bearer":
        raise Forbidden(MISSING)
    if not is_one_of(keys, given):
        raise Forbidden(WRONG)


def check_token(posted: PostedRequest, keys: Keys, header: str, *, prefix: str = "") -> None:
    """Refuse a post without one of the secrets in a header."""
    given = posted.headers.get(header, "")
    if not given:
        raise Forbidden(MISSING)
    if not given.startswith(prefix) or not is_one_of(keys, given.removeprefix(prefix)):
        raise Forbidden(WRONG)


def _has_match(expected: Sequence[bytes], given: Sequence[bytes]) -> bool:
    is_found = False
    for ours in expected:
        for theirs in given:
            # All of them are compared: how long it takes says nothing about which one was near.
            is_found |= hmac.compare_digest(ours, theirs)
    return is_found


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2].decode("latin-1")
    except (binascii.Error, ValueError):
        return ""


def _raw(text: str) -> bytes:
    # Headers were decoded as latin-1: this gives back the bytes that came.
    return text.encode("latin-1", "replace")


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
