"""Commands in hints, so that they can be copied: they name the home that the person named. It prints nothing."""

from __future__ import annotations

import re
import shlex
from typing import Final

import click

HOME_OPTION: Final = "harken.cli.home_option"
"""Where a context keeps how the home was named: the option and its value, or nothing."""


def at_home(text: str) -> str:
    """Return a hint with commands about the home of the command that runs now."""
    context = click.get_current_context(silent=True)
    option = context.meta.get(HOME_OPTION, ()) if context else ()
    root = context.find_root() if context else None
    if not option or root is None or not isinstance(root.command, click.Group):
        return text
    verbs = "|".join(map(re.escape, root.command.list_commands(root)))
    prefix = shlex.join(["harken", *option])
    return re.sub(rf"\bharken (?=(?:{verbs})\b)", lambda _: f"{prefix} ", text)
