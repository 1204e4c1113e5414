"""What an answer of Microsoft Graph means for the next step. Pure: values in, a verdict out; it waits for nothing.

The rule about repeating: reading may always be repeated. Writing may be repeated only if it certainly did not happen:
it was turned away for coming too often (429) or without a valid token (401). Any other error of writing leaves it
unknown, and the verdict says so. Of Graph's own words only a short, plain remainder is told: no addresses, no markup,
nothing as long as a token. Above is `client.py`.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from harken.errors import Conflict, HarkenError, NeedsPerson, NotFound, Unavailable, UserError
from harken.sources.feed import asked_seconds
from harken.sources.http import HttpAnswer
from harken.sources.payload import Json

MAX_TOLD_CHARS: Final = 200
MAX_MESSAGE_CHARS: Final = 4_000
MAX_CAUSES: Final = 5
TRIED_AGAIN: Final = "Harken tries again; if it goes on, check the network"
MAX_SCOPES: Final = 8

_OK: Final = range(200, 300)
_MOVED: Final = range(300, 400)
_LATER: Final = frozenset({429, 503})
_BROKEN: Final = range(500, 600)
_POSITION_LOST: Final = frozenset({"syncstatenotfound", "syncstateinvalid", "resyncrequired"})
_UNSAID: Final = re.compile(r"\S{32,}")  # tokens, addresses, ids
_PLAIN: Final = re.compile(r"[^\w .,:;'()=$@/-]+")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_NEEDED: Final = re.compile(r"(?:requires|needs) (?:one|any|all) of '([A-Za-z., ]{1,600})'", re.IGNORECASE)
_INSUFFICIENT: Final = 'error="insufficient_claims"'
_CLAIMS: Final = re.compile(r'claims="([A-Za-z0-9+/]{1,6000}={0,2})"')
_HALF: Final = re.compile("[\ud800-\udfff]")  # of a letter that is written in two
_SCOPE: Final = re.compile(r"[A-Za-z]+(?:\.[A-Za-z]+){0,4}")


class PositionGone(Conflict):
    """A position in a feed is too old: read it anew, from `location` if there is one."""

    def __init__(self, location: str = "") -> None:
        super().__init__("Microsoft does not know this position any more.", "the feed is read again from its beginning")
        self.location = location


class OutcomeUnknown(Conflict):
    """Something was asked for and may have happened: look before it is asked for again."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"It is not known whether Microsoft did it: {reason}.", "look whether it is there, then decide"
        )
        self.reason = reason


class MissingScope(NeedsPerson):
    """A permission was not granted; each of `scopes` would do, the narrowest first."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        super().__init__(
            f"Microsoft refuses this without the permission {scopes[0]}.",
            "an administrator may have to agree",
            action=f"grant {scopes[0]} and sign in again",
        )
        self.scopes = scopes


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """It worked; the body is empty where there was none."""

    body: Json


@dataclass(frozen=True, slots=True)
class ResponseRetry:
    """The same request may be made once more, after as many seconds as were asked for; `error` if that is given up."""

    after: float | None
    error: HarkenError
    is_throttled: bool = False


@dataclass(frozen=True, slots=True)
class ResponseRefresh:
    """The token is not accepted; `error` if a fresh one is not either. `claims` is what the fresh one must have."""

    error: HarkenError
    claims: str = ""


@dataclass(frozen=True, slots=True)
class ResponseFailure:
    """It did not work, and the same request will not work either."""

    error: HarkenError
    is_throttled: bool = False
    after: float | None = None


RuleVerdict: TypeAlias = ResponseDone | ResponseRetry | ResponseRefresh | ResponseFailure


@dataclass(frozen=True, slots=True)
class _Said:
    """Graph's own error: codes from outside to inside, and its message."""

    codes: tuple[str, ...] = ()
    message: str = ""

    @property
    def plainly(self) -> str:
        told = " ".join(_PLAIN.sub(" ", _UNSAID.sub(" … ", self.message)).split())[:MAX_TOLD_CHARS]
        return ": ".join(each for each in (self.codes[0] if self.codes else "", told) if each)


def verdict_of(method: str, answer: HttpAnswer, present: datetime, *, is_list: bool = False) -> RuleVerdict:
    """Return what an answer to a request means; `is_list` if a page of a list was asked for."""
    is_reading = method == "GET"
    if answer.status in _OK:
        return _success(answer, is_reading=is_reading, is_list=is_list)
    if answer.status in _LATER or answer.status in _BROKEN or answer.status == HTTPStatus.REQUEST_TIMEOUT:
        return _trouble(answer, present, is_reading=is_reading)
    said = _said(answer.body or b"")
    if is_reading and (answer.status == HTTPStatus.GONE or _POSITION_LOST & {code.lower() for code in said.codes}):
        return ResponseFailure(PositionGone(answer.headers.get("location", "")))
    if answer.status == HTTPStatus.UNAUTHORIZED:
        claims = _claims(answer.headers.get("www-authenticate", ""))
        return ResponseRefresh(_more_asked() if claims else _sign_in(), claims)
    return ResponseFailure(_refusal(answer.status, said))


def broken_off(method: str, reason: str, *, is_unsent: bool) -> RuleVerdict:
    """Return what it means that no answer came; `is_unsent` if the request cannot have reached the service."""
    if method == "GET" or is_unsent:
        return ResponseRetry(None, Unavailable(f"Microsoft Graph: {reason}.", TRIED_AGAIN))
    return ResponseFailure(OutcomeUnknown(reason))


def _success(answer: HttpAnswer, *, is_reading: bool, is_list: bool) -> RuleVerdict:
    if answer.is_too_long:
        reason = "the answer is too long"
        return ResponseFailure(
            UserError(f"Microsoft Graph: {reason}.", "ask for less at a time") if is_reading else OutcomeUnknown(reason)
        )
    body = _object(answer.body) if answer.body else {} if answer.body is not None else None
    # A page without its list says nothing: taken for an empty one, it would hide what is there.
    if body is not None and (not is_list or isinstance(body.get("value"), list)):
        return ResponseDone(body)
    reason = "the answer is broken"
    if is_reading:
        return ResponseRetry(None, Unavailable(f"Microsoft Graph: {reason}.", TRIED_AGAIN))
    return ResponseFailure(OutcomeUnknown(reason))


def _trouble(answer: HttpAnswer, present: datetime, *, is_reading: bool) -> RuleVerdict:
    asked = asked_seconds(answer.headers, present)
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = Unavailable(
            "Microsoft asks us to wait.", "nothing is lost: Harken tries again", retry_after=asked or 1.0
        )
        return ResponseRetry(asked, wait, is_throttled=True)
    reason = f"the service answers {answer.status}"
    is_throttled = answer.status in _LATER and asked is not None
    if is_reading:
        error = Unavailable(f"Microsoft Graph: {reason}.", TRIED_AGAIN, retry_after=asked or 1.0)
        return ResponseRetry(asked if answer.status in _LATER else None, error, is_throttled=is_throttled)
    return ResponseFailure(OutcomeUnknown(reason), is_throttled=is_throttled, after=asked)


def _sign_in() -> NeedsPerson:
    return NeedsPerson(
        "Microsoft does not accept the sign-in any more.", "sign in again; nothing is lost until then", action="sign in"
    )


def _more_asked() -> NeedsPerson:
    return NeedsPerson(
        "Microsoft asks for more than this sign-in has, such as a second factor or another network.",
        "sign in again, in the browser; nothing is lost until then",
        action="sign in again, in the browser",
    )


def _claims(challenge: str) -> str:
    """Return what a challenge says that a token must have, as the sign-in service wants it; empty: nothing."""
    found = _CLAIMS.search(challenge)
    if not found or _INSUFFICIENT not in challenge:
        return ""
    try:
        said = base64.b64decode(found[1] + "=" * (-len(found[1]) % 4), validate=True)
        return said.decode() if _object(said) else ""
    except (ValueError, UnicodeError):
        return ""


def _refusal(status: int, said: _Said) -> HarkenError:
    told = f"{status} {said.plainly}".strip()
    match status:
        case HTTPStatus.FORBIDDEN:
            return _forbidden(told, _scopes(said.message))
        case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
            return NotFound(f"Microsoft does not know it ({told}).", "it may have been deleted or moved")
        case HTTPStatus.CONFLICT:
            return Conflict(f"It changed in between ({told}).", "look again")
        case HTTPStatus.LOCKED:
            return Unavailable(f"Microsoft has locked it for now ({told}).", "try again later", retry_after=30.0)
        case _:
            hint = "check its configured address" if status in _MOVED else "correct it, then try again"
            return UserError(f"Microsoft does not accept this ({told}).", hint)


def _forbidden(told: str, scopes: tuple[str, ...]) -> NeedsPerson:
    if scopes:
        return MissingScope(scopes)
    return NeedsPerson(
        f"Microsoft refuses this to the account ({told}).",
        "its permissions or the policy of its organisation forbid it",
        action="check what the account may do",
    )


def _scopes(message: str) -> tuple[str, ...]:
    found = _NEEDED.search(message)
    return tuple(_SCOPE.findall(found[1]))[:MAX_SCOPES] if found else ()


def _said(body: bytes) -> _Said:
    error = (_object(body) or {}).get("error")
    codes: list[str] = []
    message = ""
    for _ in range(MAX_CAUSES):
        if isinstance(error, str):  # as the token service writes it
            error = {"code": error}
        if not isinstance(error, dict):
            break
        code, text = error.get("code"), error.get("message")
        if isinstance(code, str) and _CODE.fullmatch(code):
            codes.append(code)
        if isinstance(text, str) and not message:
            message = text[:MAX_MESSAGE_CHARS]
        error = error.get("innerError") or error.get("innererror")
    return _Said(tuple(codes), message)


def _object(body: bytes | None) -> dict[str, object] | None:
    try:
        value = _decoded(body) if body else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _decoded(body: bytes) -> object:
    """Return what JSON says. A letter that is none, such as half of an emoji, must not make the rest unreadable."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        lenient = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(_HALF.sub("\ufffd", lenient))
