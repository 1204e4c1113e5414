"""The rules in force: those of the person's file as they were when the person put them in force, all or nothing.

A file that is changed, broken or gone changes nothing before the person says so, also over a restart: many programs
can write a file. So those in force are kept in the store, by `judge`. A file that other users could write is refused.
It reads files and knows no store; how a file is read as rules is in `load`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from harken.clock import Clock
from harken.errors import HarkenError, UserError
from harken.rules.fault import RuleFault
from harken.rules.load import MOST_BYTES, RuleFile, load
from harken.rules.match import RuleMatcher
from harken.rules.rule import Rule

REFIT_AFTER: Final = timedelta(seconds=20)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

Unable = Callable[[Rule], str]
"""Returns why a rule cannot be run by any agent here, empty when it can."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A set of rules, ready to be matched."""

    rules: tuple[Rule, ...]
    matcher: RuleMatcher
    warnings: tuple[RuleFault, ...]
    loaded_at: datetime
    text: str  # as they were written

    @property
    def digest(self) -> str:
        """What tells them from others."""
        return _digest(self.text.encode("utf-8", "surrogateescape"))

    @property
    def by_name(self) -> Mapping[str, Rule]:
        """The rules by their names."""
        return {rule.name: rule for rule in self.rules}

    def only(self, rule: Rule) -> InForce:
        """Return this with one of its rules."""
        return replace(self, rules=(rule,), matcher=RuleMatcher((rule,)))


class RuleBook:
    """The rules of one home."""

    def __init__(self, path: Path, clock: Clock, unable: Unable) -> None:
        self.path = path
        self._clock = clock
        self._unable = unable
        self.problem = ""  # what was wrong with the rules when they were read last, empty when nothing was
        self._unfit: Mapping[str, str] = {}
        self._fitted_at = clock.now()
        self._current = self.made("")

    @property
    def current(self) -> InForce:
        """The rules in force."""
        return self._current

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

    def read(self) -> InForce:
        """Return the rules of the file. Raises what is wrong with it."""
        try:
            data = read_file(self.path)
            self.problem = ""
            return self.made(data.decode("utf-8", "surrogateescape"))
        except HarkenError as exc:
            self.problem = exc.message
            raise

    def made(self, text: str) -> InForce:
        """Return rules that were written as a text, ready to be matched. Raises what is wrong with them."""
        data = text.encode("utf-8", "surrogateescape")
        file = load(data) if data.strip() else RuleFile(rules=(), warnings=())
        return InForce(file.rules, RuleMatcher(file.rules), file.warnings, self._clock.now(), text)

    def take(self, rules: InForce) -> None:
        """Put rules in force."""
        self._current = rules
        self.refit()

    def refit(self) -> None:
        """Look again at which rules can be run: programs come and go."""
        self._unfit = {rule.name: why for rule in self._current.rules if rule.is_run and (why := self._unable(rule))}
        self._fitted_at = self._clock.now()

    def refit_in_time(self) -> None:
        """Look again if some cannot be run, and that was found out a while ago."""
        if self._unfit and abs(self._clock.now() - self._fitted_at) > REFIT_AFTER:
            self.refit()


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
