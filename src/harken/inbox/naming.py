"""A short id for a task, made of the words of its title. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from itertools import count

from harken.errors import UserError
from harken.model import TaskId, fresh_id

MOST_WORDS = 3
MOST_CHARS = 28
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
# What says little about a piece of work; without these the id is the part one remembers.
_FILLERS = frozenset(
    {"a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or", "our"}
    | {"the", "this", "to", "up", "with"}
)


def task_id(title: str, taken: Collection[str]) -> TaskId:
    """Return an id that nobody has: `Fix the login page` is `fix-login-page`."""
    plain = unicodedata.normalize("NFKD", title.lower()).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain)
    telling = [word for word in words if word not in _FILLERS] or words
    base = "-".join(telling[:MOST_WORDS])[:MOST_CHARS].strip("-") or fresh_id("task-", 4)
    if base not in taken:
        return TaskId(base)
    return TaskId(next(f"{base}-{number}" for number in count(2) if f"{base}-{number}" not in taken))


def given_id(name: str) -> TaskId:
    """Return an id that a person chose, or raise what is wrong with it."""
    if not _ID.fullmatch(name):
        raise UserError(
            f"{name[:60]!r} cannot be the id of a task.", "Use up to 40 lower-case letters, digits, dots and hyphens."
        )
    return TaskId(name)
