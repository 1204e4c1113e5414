"""From the bytes of a post to what they say: JSON, as it is or inside a form.

Only what was shown to be genuine gets here, and still nothing of it is believed: whatever it is nested in, whichever
half letters it holds, the result is a value or a `UserError`.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import parse_qs

import msgspec

from harken.errors import UserError
from harken.sources.door import Posted

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PAYLOAD: Final = "payload"
MAX_FORM_FIELDS: Final = 8
HINT: Final = "Post JSON."


def media_type(posted: Posted) -> str:
    """Return what a post says of itself: `JSON`, `FORM`, or something else in lower case."""
    said = posted.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Slack and others say application/json; CloudEvents and problem reports say what kind of JSON it is.
    return JSON if said.startswith("application/") and said.endswith("+json") else said


def payload_of(posted: Posted) -> object:
    """Return what a post says; raises `UserError` when it cannot be read."""
    return decoded(_from_form(posted.body) if media_type(posted) == FORM else posted.body)


def decoded(body: bytes) -> object:
    """Return JSON as a value."""
    try:
        return msgspec.json.decode(body)
    except RecursionError as exc:
        raise UserError("The JSON is nested too deeply.", HINT) from exc
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _tolerant(body)


def _tolerant(body: bytes) -> object:
    """Return what a stricter reader refuses: half of a surrogate pair, a number without bounds, a mark at the start."""
    try:
        return _whole(json.loads(body.decode("utf-8-sig")))
    except (ValueError, RecursionError) as exc:
        raise UserError("The body is not JSON.", HINT) from exc


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {str(_whole(key)): _whole(each) for key, each in value.items()}
    return value


def _from_form(body: bytes) -> bytes:
    # That it is a form is not signed: a signed JSON body could be read as one that somebody else wrote into it.
    if not body.startswith(b"payload="):
        raise UserError(f"The form does not begin with {PAYLOAD}.", HINT)
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
        (value,) = fields[PAYLOAD]
        return value.encode("utf-8", "surrogatepass")
    except (ValueError, KeyError) as exc:
        raise UserError(f"The form has no single field {PAYLOAD}.", HINT) from exc
