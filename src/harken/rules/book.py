"""The rules in force: read from the person's file, all or nothing, and kept over a restart.

What was in force last is kept beside (`accepted`): a file that was broken meanwhile changes nothing, also over a
restart. A file that others could write is refused: whoever writes it decides what agents do. It reads files and knows
no store; how a file is read as rules is in `load`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from harken.clock import Clock
from harken.errors import HarkenError, UserError
from harken.rules.fault import Fault
from harken.rules.load import MOST_BYTES, RuleFile, load
from harken.rules.match import Matcher
from harken.rules.rule import Rule

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

Keep = Callable[[Path, str], None]
"""Replaces a private file by a text, durably."""

Unable = Callable[[Rule], str]
"""Returns why a rule cannot be run by any agent here, empty when it can."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A set of rules, ready to be matched."""

    rules: tuple[Rule, ...]
    matcher: Matcher
    warnings: tuple[Fault, ...]
    loaded_at: datetime
    digest: str

    @property
    def by_name(self) -> Mapping[str, Rule]:
        """The rules by their names."""
        return {rule.name: rule for rule in self.rules}

    def only(self, rule: Rule) -> InForce:
        """Return this with one of its rules."""
        return replace(self, rules=(rule,), matcher=Matcher((rule,)))


class RuleBook:
    """The rules of one home."""

    def __init__(self, path: Path, accepted: Path, clock: Clock, *, keep: Keep, unable: Unable) -> None:
        self.path = path
        self._accepted = accepted
        self._clock = clock
        self._keep = keep
        self._unable = unable
        self._problem = ""
        self._unfit: Mapping[str, str] = {}
        self._current = self._made(RuleFile(rules=(), warnings=()), b"")

    @property
    def current(self) -> InForce:
        """The rules in force."""
        return self._current

    @property
    def problem(self) -> str:
        """Why the file as it was read last is not in force, empty when it is."""
        return self._problem

    @property
    def unable(self) -> Mapping[str, str]:
        """The rules that cannot be run, and why, as of when that was looked at last."""
        return self._unfit

    @property
    def is_changed(self) -> bool:
        """Whether the file is another than the one in force."""
        try:
            return _digest(read_file(self.path)) != self._current.digest
        except HarkenError:
            return True

    def restore(self) -> None:
        """Put in force what was so last, when the daemon starts."""
        self._take(self._last_accepted())

    def reload(self) -> None:
        """Put the file in force. Raises what is wrong with it, and then changes nothing."""
        try:
            data = read_file(self.path)
            self._take(data)
        except HarkenError as exc:
            self._problem = exc.message
            raise
        self._problem = ""
        self._keep(self._accepted, data.decode("utf-8", "replace"))

    def refit(self) -> None:
        """Look again at which rules can be run: programs come and go."""
        self._unfit = {rule.name: why for rule in self._current.rules if rule.is_run and (why := self._unable(rule))}

    def _take(self, data: bytes) -> None:
        self._current = self._made(load(data) if data.strip() else RuleFile(rules=(), warnings=()), data)
        self.refit()

    def _made(self, file: RuleFile, data: bytes) -> InForce:
        return InForce(file.rules, Matcher(file.rules), file.warnings, self._clock.now(), _digest(data))

    def _last_accepted(self) -> bytes:
        """Return what was in force last, nothing when that cannot be read: it is ours, and only a copy."""
        try:
            data = read_file(self._accepted)
            load(data or b'{"rules": []}')
        except HarkenError:
            return b""
        return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_ours(status: os.stat_result, path: Path) -> bool:
    """Whether nobody else can write a file: because of itself, or because nobody else gets into its folder."""
    if status.st_uid not in (os.geteuid(), 0):
        return False
    folder = Path(os.path.realpath(path)).parent.stat()
    is_closed = folder.st_uid == os.geteuid() and not folder.st_mode & _OTHERS
    return is_closed or not status.st_mode & _OTHERS_WRITE


def read_file(path: Path) -> bytes:
    """Return what is in a file, nothing when there is none. Raises `UserError` for one that others could write."""
    try:
        # Not blocking: somebody may have put a pipe there.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise UserError(f"{path} cannot be read: {exc.strerror}.", "Check who owns it and its permissions.") from exc
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a file.", "Put the rules there, as JSON.")
        if hasattr(os, "geteuid") and not _is_ours(status, path):
            raise UserError(f"{path} can be written by others.", f"Make it yours alone: chmod 600 {path}")
        return file.read(MOST_BYTES + 1)
