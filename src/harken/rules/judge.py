"""The rules in force (`RuleBook`), and judging every message by them once, in the order of receipt (`RuleJudge`).

A rules file that is changed, broken or gone changes nothing before the person says so, also over a restart: many
programs can write a file. So the rules in force are kept in the store. A file that other users could write is refused.
Matching is done in a thread: a hostile text may take a while, and no call waits for it. What is decided is settled only
if nothing changed since (`Conflict`: decided again). Where nothing matched, the place is kept in memory and stored now
and then: judging such a message again says the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from harken.automation import ACTIONS, Rule, RuleState, RuleVerdict
from harken.clock import Clock, Signal
from harken.display import visible
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.ingest.policy import ChatAnswer, answer_in
from harken.model import (
    AGENT,
    APPROVALS,
    OUTBOX,
    RULES,
    ApprovalAnswer,
    ApprovalChoice,
    ApprovalState,
    Mailbox,
    Message,
    fresh_id,
)
from harken.rules.engine import decide
from harken.rules.fault import RuleFault
from harken.rules.load import MAX_BYTES, RuleFile, load
from harken.rules.match import RuleMatch, RuleMatcher
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.store.contract.leases import OldFence
from harken.store.contract.outbox import CallKey

_log = logging.getLogger("harken.rules")

AT_ONCE: Final = 100
LOOK_EVERY_SECONDS: Final = 5.0
MAX_TRIES: Final = 20
KEEP_PLACE_EVERY_SECONDS: Final = 5.0
STOP_SECONDS: Final = 2.0
KEEP_WINDOWS: Final = timedelta(days=60)

_NOT_MAIL: Final = frozenset({ACTIONS, OUTBOX})

Matched = Sequence[tuple[Message, Sequence[RuleMatch]]]


class RuleJudge:
    """Judges for one daemon."""

    def __init__(self, store: Store, book: RuleBook, clock: Clock) -> None:
        self._store = store
        self._book = book
        self._clock = clock
        self._judged = 0
        self._kept_at = 0.0
        self._is_idle = False  # there is nothing to judge by, and nothing to answer
        self._lock = anyio.Lock()

    async def begin(self) -> None:
        """Put in force what was so last; the very first time, the file. What came without rules is not judged."""
        text = await self._store.rules.text()
        try:
            if text is None and self._book.is_changed:
                await self._skip()
                await self.reload()
            else:
                self._book.take(await anyio.to_thread.run_sync(self._book.made, text or ""))
        except HarkenError as exc:
            # A later version may read them otherwise. The person is told, and everything else works.
            self._book.blame(exc.message)
            _log.warning("no rules are in force: %s", exc.message)
        if self._book.current.rules:
            self._judged = max(self._judged, (await self._store.rules.state()).judged)
        else:
            await self._skip()

    async def follow(self) -> None:
        """Take over what is put in force at other daemons, for ever."""
        changed = Signal()
        with self._store.changes.listen(changed.ring, only=[ACTIONS]):
            while True:
                async with self._lock:
                    await self._take_stored()
                await changed.wait(LOOK_EVERY_SECONDS)

    async def _take_stored(self) -> None:
        """Put in force what the store has, and go on where the last judge was."""
        text = await self._store.rules.text()
        if text is not None and text != self._book.current.text:
            try:
                rules = await anyio.to_thread.run_sync(self._book.made, text)
                await anyio.to_thread.run_sync(self._book.take, rules)
            except HarkenError as exc:
                self._book.blame(exc.message)
                _log.warning("rules of another daemon are not in force here: %s", exc.message)
        self._is_idle = False
        self._judged = max(self._judged, (await self._store.rules.state()).judged)

    async def run(self) -> None:
        """Judge what comes, for ever."""
        ring = anyio.Event()

        def wake(grown: Collection[Mailbox]) -> None:
            # Without rules or questions nobody pays for them.
            if ACTIONS in grown or APPROVALS in grown or not (self._is_idle or _NOT_MAIL.issuperset(grown)):
                ring.set()

        with self._store.changes.listen(wake):
            try:
                while True:
                    ring = anyio.Event()
                    await self.catch_up()
                    with anyio.move_on_after(LOOK_EVERY_SECONDS):
                        await ring.wait()
            finally:
                # Not needed: without it the same is decided again. But rules may have changed until then.
                with anyio.move_on_after(STOP_SECONDS, shield=True), suppress(HarkenError):
                    await self._keep_place()

    async def catch_up(self) -> None:
        """Judge everything that is stored by now; what comes meanwhile is not waited for."""
        async with self._lock:
            await self._catch_up()

    async def reload(self) -> None:
        """Put the file in force; raises what is wrong with it, and then changes nothing.

        That is between two messages: what came before is judged by the rules that were in force.
        """
        rules = await anyio.to_thread.run_sync(self._book.read)
        async with self._lock:
            await self._catch_up()
            await self._store.rules.keep(rules.text, len(rules.rules))
            await anyio.to_thread.run_sync(self._book.take, rules)
            self._is_idle = False
            await self._keep_place()

    async def write(self, rules: InForce) -> None:
        """Write changed rules into the file, and put it in force."""
        await anyio.to_thread.run_sync(self._book.write, rules)
        await self.reload()

    async def _catch_up(self) -> None:
        head = (await self._store.rules.state()).head
        while await self._judge_some() and self._judged < head:
            pass

    async def _skip(self) -> None:
        """Leave what is stored by now unjudged."""
        head = (await self._store.rules.state()).head
        self._judged = max(self._judged, head)
        await self._keep_place()

    async def _keep_place(self) -> None:
        """Store how far judging has come. Another judge that was faster has stored more."""
        standing = await self._store.rules.state()
        if standing.judged < self._judged:
            with suppress(Conflict):
                await self._store.rules.settle(self._settlement(standing, (), self._judged))
        self._kept_at = anyio.current_time()

    async def _judge_some(self) -> bool:
        """Judge the next messages; return whether there may be more."""
        rules = self._book.current
        if not rules.rules:
            standing = await self._store.rules.state()
            if not (standing.waiting or await self._store.approvals.list([ApprovalState.OPEN], limit=1)):
                self._judged = max(self._judged, standing.head)
                self._is_idle = True
                return False
            if self._is_idle:
                # Nothing could be answered meanwhile: an answer to what waits now is among the newest.
                self._judged = max(self._judged, standing.head - AT_ONCE)
        self._is_idle = False
        batch = await self._store.rules.unjudged(self._judged, AT_ONCE)
        if anyio.current_time() - self._kept_at > KEEP_PLACE_EVERY_SECONDS:
            await self._keep_place()
        if not batch:
            return False
        messages = [message for _, message in batch]
        await self._take_answers(messages)
        matched = await anyio.to_thread.run_sync(
            lambda: [(message, found) for message in messages if (found := rules.matcher.candidates(message))]
        )
        place = batch[-1][0]
        if matched:
            await self._decide(matched, place)
        self._judged = place
        return True

    async def _decide(self, matched: Matched, place: int) -> None:
        """Decide about messages that some rules match, and settle it."""
        names = {candidate.rule.name for _, found in matched for candidate in found}
        digests = {(candidate.rule.name, candidate.digest) for _, found in matched for candidate in found}
        await anyio.to_thread.run_sync(self._book.refit_in_time)
        ancestry = await self._store.runs.ancestry([message.id for message, _ in matched])
        for _ in range(MAX_TRIES):
            standing = await self._store.rules.state(names, digests)
            verdicts = decide(
                matched,
                standing,
                ancestry,
                self._book.unable,
                local=self._clock.now().astimezone().tzinfo or UTC,
                nonce=_nonce,
            )
            try:
                await self._store.rules.settle(self._settlement(standing, verdicts, place))
            except OldFence:
                raise
            except Conflict:
                continue
            return
        raise Conflict("The data that rules depend on keeps changing.", "Harken tries again.")

    def _settlement(self, standing: RuleState, verdicts: Sequence[RuleVerdict], place: int) -> Settlement:
        return Settlement(
            revision=standing.revision,
            judged=max(place, standing.judged),
            verdicts=verdicts,
            # Also of rules that are not in force now: they may be again.
            keep_since=self._clock.now() - KEEP_WINDOWS,
        )

    async def _take_answers(self, messages: Sequence[Message]) -> None:
        """Let the owner's own messages answer what rules and hosts ask, and tell what became of it."""
        for message in messages:
            answer = answer_in(message)
            if answer is None or await self._store.outbox.to_message(message.id):
                # After a crash, or by the next leader, what was answered is judged once more.
                continue
            try:
                said = await (self._approve if answer.is_of_approval else self._confirm)(message, answer)
            except (Conflict, NotFound, UserError) as exc:
                said = f"This answers nothing: {exc.message}"
            call = CallKey(edge="answers", request=message.id)
            await self._store.outbox.add(message.id, said, author=f"{AGENT}{RULES}", consumer=RULES, call=call)

    async def _confirm(self, message: Message, answer: ChatAnswer) -> str:
        action = await self._store.actions.get(answer.action)
        answered = await self._store.actions.answer(action.id, is_yes=answer.is_yes, by=f"you, by {message.source}")
        return f"{answered.id} ({answered.rule}) is {answered.state.value} now."

    async def _approve(self, message: Message, answer: ChatAnswer) -> str:
        """Answer what a host asks: the id stands for all of it, and is no other question's while this one is open."""
        asked = await self._store.approvals.get(answer.action)
        said_at = min(message.sent_at or message.received_at, message.received_at)
        if asked.id != answer.action or said_at < asked.asked_at - SKEW:
            raise Conflict(f"Your message is older than {asked.id}.", "Look at what is asked now: harken approve")
        is_told = asked.request.carries_reason
        choice, words = ApprovalChoice.ONCE if answer.is_yes else ApprovalChoice.NO, ""
        if answer.words:
            choice, words = ApprovalChoice.ANSWER, visible(answer.words)
        answered = await self._store.approvals.answer(
            ApprovalAnswer(
                approval=asked.id,
                session=asked.request.session,
                digest=asked.request.digest,
                choice=choice,
                by="you",
                through=message.source,
                reason=words or (visible(answer.reason) if is_told else ""),
            )
        )
        said = f"{answered.id} ({answered.request.tool}) is {_SAID[choice]} now."
        return said if is_told or not answer.reason else f"{said} Its agent is not told why."


_SAID: Final[Mapping[ApprovalChoice, str]] = MappingProxyType(
    {ApprovalChoice.ONCE: "allowed once", ApprovalChoice.NO: "refused", ApprovalChoice.ANSWER: "answered"}
)


def _nonce() -> str:
    return fresh_id("", 12)


SKEW: Final = timedelta(minutes=1)  # between the clock of a source and ours
REFIT_AFTER: Final = timedelta(seconds=20)
UNREADABLE: Final = "unreadable"  # in the place of the digest of a file
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
        self._problem = ""
        self._faulty = ""  # the digest of the file that the problem is about, empty when it is about no file
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
        return self._file_digest() != self._current.digest

    @property
    def problem(self) -> str:
        """What is wrong with the rules, empty when nothing is; faults of a file that has changed since say nothing."""
        return self._problem if self._faulty in {"", self._file_digest()} else ""

    def blame(self, problem: str, digest: str = "") -> None:
        """Note what is wrong with the rules, and in which file; without a problem, that nothing is."""
        self._problem, self._faulty = problem, digest

    def _file_digest(self) -> str:
        try:
            return _digest(read_file(self.path))
        except HarkenError:
            return UNREADABLE

    def read(self) -> InForce:
        """Return the rules of the file. Raises what is wrong with it."""
        digest = UNREADABLE
        try:
            data = read_file(self.path)
            digest = _digest(data)
            rules = self.made(data.decode("utf-8", "surrogateescape"))
        except HarkenError as exc:
            self.blame(exc.message, digest)
            raise
        self.blame("")
        return rules

    def made(self, text: str) -> InForce:
        """Return rules that were written as a text, ready to be matched. Raises what is wrong with them."""
        data = text.encode("utf-8", "surrogateescape")
        file = load(data) if data.strip() else RuleFile(rules=(), warnings=())
        return InForce(file.rules, RuleMatcher(file.rules), file.warnings, self._clock.now(), text)

    def with_rule(self, rule: Mapping[str, object]) -> InForce:
        """Return the rules in force and one more, as the file would be written. Raises what is wrong with them."""
        return self._changed(lambda rules: [*rules, dict(rule)])

    def without_rule(self, name: str) -> InForce:
        """Return the rules in force without one of them."""
        return self._changed(lambda rules: [rule for rule in rules if rule.get("name") != name])

    def _changed(self, change: Callable[[list[dict[str, object]]], list[dict[str, object]]]) -> InForce:
        if self.is_changed:
            raise Conflict(f"{self.path} was changed and is not loaded.", "Load it first: harken rules reload")
        document = msgspec.json.decode(self._current.text or "{}", type=dict[str, object])
        rules = msgspec.convert(document.get("rules") or [], list[dict[str, object]])
        text = json.dumps({**document, "rules": change(rules)}, indent=2, ensure_ascii=False)
        return self.made(f"{text}\n")

    def write(self, rules: InForce) -> None:
        """Write rules into the file, whole or not at all."""
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.touch(mode=0o600)
        draft.write_bytes(rules.text.encode("utf-8", "surrogateescape"))
        draft.replace(self.path)

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
    """Whether only you can write a file: by its own mode, or by that of its folder."""
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
            raise UserError(f"{path} can be written by others.", f"Close it to others: chmod 600 {path}")
        return file.read(MAX_BYTES + 1)
