"""What a preset is: how one service signs, and what its posts mean. Values and functions, no I/O.

A signature is compared on the bytes as they came, in the same time for any post, and as it is written: two spellings of
one signature would be two posts. Every key is tried, so that one can follow another. `ShellSignature` is the same for a
person's shell.
`presets/` has one module for each service; a preset sees a post only in this order: `check` on the bytes as they came,
then `read` on what they say. What tells one delivery from all others is here too: many services name a delivery in a
header that they do not sign, so such a name counts only together with the body. What was posted is read as a `Payload`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib
import pkgutil
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias
from urllib.parse import parse_qs

from harken.errors import Forbidden, UserError
from harken.model import Priority, Sender
from harken.sources.payload import decoded
from harken.sources.source import PostedRequest
from harken.sources.webhook import presets

MAX_ID: Final = 200
MARK_CHARS: Final = 32


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

SAMPLE: Final = '{"text":"hello from curl"}'

# In Python: openssl takes a key only as an argument.
_SIGN: Final = (
    'import base64,hmac,sys; k=sys.stdin.buffer.read().rstrip(b"\\r\\n"); '
    '{key}m=hmac.new(k,sys.argv[1].encode(),"{digest}"); print({shown})'
)
_SHOWN: Final[Mapping[str, str]] = {HEX: "m.hexdigest()", BASE64: "base64.b64encode(m.digest()).decode()"}

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PAYLOAD: Final = "payload"
MAX_FORM_FIELDS: Final = 8
HINT: Final = "Post JSON."


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
        raise UserError(f"A secret that begins with {STANDARD_PREFIX} is not base64 after that.", "Copy all of it.")
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


def signed_id(found: str) -> str:
    """Return an id that is signed like the rest. One that is too long is not cut: two might become one."""
    return found if len(found) <= MAX_ID else f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"


def body_id(posted: PostedRequest) -> str:
    """Return an id that only the signer of the body can change: the body itself."""
    return f"sha256:{hashlib.sha256(posted.body).hexdigest()}"


def unsigned_id(posted: PostedRequest, header: str) -> str:
    """Return an id that anyone may have written, with a mark of the body that it came with; empty without one."""
    found = posted.headers.get(header, "")
    if not found:
        return ""
    mark = hashlib.sha256(posted.body).hexdigest()[:MARK_CHARS]
    return f"{signed_id(found)}/{mark}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """What a post says. `id` names this delivery, so that the same one is stored once; empty: there is none."""

    channel: str
    text: str
    sender: Sender
    id: str = ""
    conversation: str = ""
    thread: str = ""
    sent_at: datetime | None = None
    priority: Priority = Priority.NORMAL
    meta: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SkippedPost:
    """A post that is genuine and holds no message, such as a greeting."""

    why: str


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    """A post that only wants to hear something back."""

    body: bytes


Reading: TypeAlias = WebhookEvent | SkippedPost | EchoAnswer


def sender_of(service: Sender, person: str, name: str, *, is_own: bool) -> Sender:
    """Return the sender of an event: a person only if all that it quotes is theirs, else the service.

    Trust goes by the id. A person who acts on what others wrote must not lend them their voice; the name still says
    who.
    """
    shown = name or person or service.name
    return Sender(f"{service.id}:{person}", shown) if is_own and person else Sender(service.id, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureCheck:
    """With what a post is judged: the keys, the time in seconds, and how far from it a signed time may be."""

    keys: Keys
    now: float
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How one service posts. `check` raises `Forbidden`, `read` raises `UserError`; both are quick and pure."""

    name: str
    title: str
    check: Callable[[PostedRequest, SignatureCheck], None]
    read: Callable[[PostedRequest, object], Reading]
    keys: Callable[[str], Keys] = plain_keys
    has_form: bool = False  # the JSON may also come as the field `payload` of a form
    is_secret_theirs: bool = False  # the service makes the secret, and the person brings it
    where: str = ""  # what to set at the service, in one sentence
    shell: Callable[[str], ShellSignature]  # how a shell signs, told what prints the secret
    sample: str = SAMPLE  # a body that is taken, for that shell
    new_secret: Callable[[bytes], str] = bytes.hex  # from random bytes to a secret as this service has them


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets: one module in `presets/` each."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(presets.__path__)))


def preset_module(name: str) -> ModuleType:
    """Return the module of a preset."""
    return importlib.import_module(f"{presets.__name__}.{name}")


def media_type(posted: PostedRequest) -> str:
    """Return what a post says of itself: `JSON`, `FORM`, or something else in lower case."""
    said = posted.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Slack and others say application/json; CloudEvents and problem reports say what kind of JSON it is.
    return JSON if said.startswith("application/") and said.endswith("+json") else said


def payload_of(posted: PostedRequest) -> object:
    """Return what a post says; raises `UserError` when it cannot be read."""
    body = _from_form(posted.body) if media_type(posted) == FORM else posted.body
    try:
        return decoded(body)
    except RecursionError as exc:
        raise UserError("The JSON is nested too deeply.", HINT) from exc
    except ValueError as exc:
        raise UserError("The body is not JSON.", HINT) from exc


def _from_form(body: bytes) -> bytes:
    # That it is a form is not signed: a signed JSON body could be read as one that somebody else wrote into it.
    if not body.startswith(b"payload="):
        raise UserError(f"The form does not start with {PAYLOAD}.", HINT)
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
        (value,) = fields[PAYLOAD]
        return value.encode("utf-8", "surrogatepass")
    except (ValueError, KeyError) as exc:
        raise UserError(f"The form has no single field {PAYLOAD}.", HINT) from exc
