"""How a person is asked before something is done: a yes, or a word that is not typed by accident.

Where no person can be asked, it is refused rather than done. What is asked about is the caller's business.
"""

from __future__ import annotations

import sys

import click

from harken.cli.verbs import Invocation
from harken.errors import UserError

NOT_DONE = 1  # the exit code when the person said no


def agree(asked: Invocation, question: str, *, is_agreed: bool) -> None:
    """Return when the person agrees, now or beforehand; end the command when they do not."""
    if is_agreed:
        return
    _refuse_unasked(asked, "Say --yes; --dry-run shows what would be done.")
    if not click.confirm(question, default=True):
        _leave(asked)


def agree_by_word(asked: Invocation, question: str, word: str, *, is_agreed: bool) -> None:
    """Like `agree`, for what cannot be undone: the person has to type a word."""
    if is_agreed:
        return
    _refuse_unasked(asked, "Say --yes if you are sure.")
    if click.prompt(question, default="", show_default=False).strip() != word:
        _leave(asked)


def _refuse_unasked(asked: Invocation, hint: str) -> None:
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("This needs your yes, and nobody can be asked here.", hint)


def _leave(asked: Invocation) -> None:
    asked.screen.line("Nothing was changed.")
    click.get_current_context().exit(NOT_DONE)
