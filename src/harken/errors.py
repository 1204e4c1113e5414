"""Errors, cut by what the caller does next.

    HarkenError
    ├── UserError      fix the input, then try again
    │   └── TooLong    say less, in parts, or put it in a file
    ├── NotFound       there is no such thing: look at what exists
    ├── Conflict       someone was faster: look again
    ├── Unavailable    try again after `retry_after` seconds
    │   └── Uncertain  it may have been done: look before doing it again
    ├── NeedsPerson    a person must act first (sign in, consent)
    ├── Forbidden      never: the caller may not do this
    └── InternalError  look whether it was done: Harken itself has failed

Each carries one sentence and one hint. `code` is stable and part of every surface's contract; `exit_code` is
what the command line exits with. Foreign exceptions become one of these at the seam that meets them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs every command a fifth of the interpreter's start
if TYPE_CHECKING:
    from typing import ClassVar


class HarkenError(Exception):
    """Something a caller can act on: a sentence, and a hint what to do next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The error as every JSON surface shows it."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UserError(HarkenError):
    """The input is wrong; correcting it helps."""

    code = "user_error"
    exit_code = 2
    http_status = 422


class TooLong(UserError):
    """The text is longer than it may be; nothing of it was taken. `can_be_file`: sent as a file it is taken."""

    code = "too_long"
    http_status = 413

    def __init__(
        self, message: str, hint: str = "", *, length: int = 0, limit: int = 0, can_be_file: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.length = length
        self.limit = limit
        self.can_be_file = can_be_file

    def as_dict(self) -> dict[str, object]:
        """The error with how long the text is, and how long it may be."""
        said = {"length": self.length, "limit": self.limit, "can_be_file": self.can_be_file}
        return {**super().as_dict(), **said}


class NotFound(HarkenError):
    """What was named does not exist."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class Conflict(HarkenError):
    """The state changed in between; looking again helps."""

    code = "conflict"
    exit_code = 4
    http_status = 409


class Unavailable(HarkenError):
    """Not now: nothing was changed, trying again later helps."""

    code = "unavailable"
    exit_code = 5
    http_status = 503

    def __init__(self, message: str, hint: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after

    def as_dict(self) -> dict[str, object]:
        """The error with the seconds to wait."""
        return {**super().as_dict(), "retry_after": self.retry_after}


class Uncertain(Unavailable):
    """It may have been done or not: looking is what helps, and doing it again only after that."""


class NeedsPerson(HarkenError):
    """A person has to do something first; `action` says what."""

    code = "needs_person"
    exit_code = 6
    http_status = 403

    def __init__(self, message: str, hint: str = "", *, action: str = "") -> None:
        super().__init__(message, hint)
        self.action = action

    def as_dict(self) -> dict[str, object]:
        """The error with what the person has to do."""
        return {**super().as_dict(), "action": self.action}


class Forbidden(HarkenError):
    """The caller may not do this, and trying again does not help."""

    code = "refused"
    exit_code = 7
    http_status = 403


class InternalError(HarkenError):
    """Harken itself has failed, and logged why; what was asked may have been done or not."""

    code = "internal_error"
