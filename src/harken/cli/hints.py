"""Commands in hints, so that they can be copied: they name the home that the person named. It prints nothing."""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

HOME_OPTION: Final[ContextVar[tuple[str, ...]]] = ContextVar("home_option", default=())
"""How the command that runs now was told its home: the option and its value, or nothing."""


def at_home(text: str) -> str:
    """Return a hint with commands about the home of the command that runs now."""
    option = HOME_OPTION.get()
    if not option:
        return text
    import re
    import shlex

    from harken.cli.invocation import CommandTable

    verbs = "|".join(re.escape(row.path) for row in CommandTable().below(""))
    prefix = shlex.join(["harken", *option])
    return re.sub(rf"\bharken (?=(?:{verbs})\b)", lambda _: f"{prefix} ", text)
