"""One turn of a host, played so that a marker can go through every surface that a turn has.

The model asks for a shell command that stays open, then for a tool of Harken's, then ends the turn; before, between and
after these a message is sent. Everything is judged by what the model was asked. The host runs with a person's own
settings: what it does instead is waited for within bounds, and becomes part of the report.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from harken.errors import Unavailable
from harken.hosts.hook import HookAdapter
from harken.hosts.host import Host
from harken.hosts.trial_recipe import TrialRecipe
from harken.sessions.turns import HookMoment
from harken.trial.exchange import ModelAnswer, ModelRequest, resolve, side
from harken.trial.model import HeldRequests, MockModel, Predicate, RequestGate
from harken.trial.outcome import (
    TrialCircumstances,
    TrialDaemon,
    TrialLedgerLine,
    TrialResult,
    TrialSession,
    TrialVerdict,
    diagnose,
)
from harken.trial.screen import RunningProgram, last_lines

_NO_ANSWER: Final = "BFHLMRWZ"
STATS: Final = "inbound_queue_stats"
STATS_SIGN: Final = "oldest_ts"  # stands in the answer of that tool, and in nothing that describes it
PULL: Final = "inbox_pull"
LAST_WORD: Final = "The trial is over."
START_SECONDS: Final = 90.0  # hosts look for updates and start other servers first
STEP_SECONDS: Final = 30.0
PROOF_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.2


class HostFailed(Unavailable):
    """The host could not be started, or ended before it asked its model anything."""

    code = "host_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPauses:
    """How long something has to be left alone until what should not happen would have happened."""

    long_tool_seconds: float = 25.0  # longer than a busy session is left in peace, shorter than any host's limit
    still_seconds: float = 5.0  # in which a session that is taken for idle would begin a turn
    back_seconds: float = 15.0  # until a session has found a Harken that was restarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One host under trial, and everything it needs."""

    host: Host
    recipe: TrialRecipe
    hooks: HookAdapter
    program: Path
    environ: dict[str, str]  # the person's own, whole
    folder: Path
    mailbox: str  # where its markers go
    model: MockModel
    post: TrialDaemon
    tell: Callable[[str], None]  # says to the person what is being done
    is_connected: bool = True
    restart: Callable[[], None] | None = None  # ends Harken and starts it again; None: the person did not ask for that
    pauses: TrialPauses = field(default_factory=TrialPauses)
    sent: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    @property
    def title(self) -> str:
        """What people call the host."""
        return self.host.title

    @property
    def environment(self) -> dict[str, str]:
        """What the host runs with: the person's environment, with another model."""
        return self.recipe.overrides(self.model.url).applied(self.environ)

    def send(self, marker: str, *, is_quiet: bool = False) -> str:
        """Send a marker, and return the id of the message."""
        text = f"{marker} is a marker of `harken`, sent to see whether it arrives. There is nothing to do."
        message = self.post.send(text, self.mailbox, is_quiet=is_quiet)
        self.sent.append(message)
        return message

    def guest(self, others: frozenset[str] = frozenset()) -> TrialSession | None:
        """Return the session of this trial, as Harken knows it; `others` were there before."""
        here = [
            guest
            for guest in self.post.sessions()
            if guest.host == self.name and guest.key not in others and self.mailbox in guest.mailboxes
        ]
        # A connection may be known apart from the conversation that its hooks tell of.
        return max(here, key=lambda guest: (guest.can_wake, guest.is_hooked, len(guest.surfaces)), default=None)

    def proof(self, message: str, seconds: float = PROOF_SECONDS) -> TrialLedgerLine:
        """Return the ledger's line once it holds proof, else what it says when the time is up."""
        end = time.monotonic() + seconds
        while not (line := self.post.line(message, self.name)).is_proven and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        return line

    def wait(
        self, predicate: Predicate, seconds: float, running: RunningProgram, *, after: int = 0
    ) -> ModelRequest | None:
        """Return the first request that fits; None when the host ended, or the time is up, without one."""
        end = time.monotonic() + seconds
        while True:
            is_last = not running.is_running or time.monotonic() >= end
            with contextlib.suppress(TimeoutError):
                return self.model.wait_for(predicate, 0.0 if is_last else LOOK_SECONDS, after=after)
            if is_last:
                return None


def new_marker() -> str:
    """Return a word that occurs nowhere else, and that no host splits or escapes."""
    return f"HARKENMARK{secrets.token_hex(6).upper()}"


def new_prompt() -> str:
    """Return a prompt that can be told from every other, because hosts ask their models things on their own too.

    It is typed into terminals, where a question may appear at any moment: no letter in it is an answer to one.
    """
    return "Hm " + "".join(secrets.choice(_NO_ANSWER) for _ in range(14))


def follows(prompt: str) -> Predicate:
    """Return whether a request is one of the turn that a prompt began."""
    return lambda asked: not asked.is_side and asked.count(prompt) > 0


def script(prompt: str, command: str) -> Callable[[ModelRequest], ModelAnswer]:
    """Return what the model says: a shell command first, then a tool of Harken's, then it ends the turn.

    A step for which a host has no tool is left out.
    """
    return stepwise(prompt, ModelAnswer.shell(command), ModelAnswer.call(STATS, {}))


def stepwise(prompt: str, *steps: ModelAnswer) -> Callable[[ModelRequest], ModelAnswer]:
    """Return what the model says to a prompt: one step after the other, those left out that a host has no tool for."""
    is_ours = follows(prompt)

    def say(asked: ModelRequest) -> ModelAnswer:
        if asked.is_side:
            return side(asked)
        # The conversation is sent whole each time, so how far it got can be read from it.
        done = sum(turn.role == "tool" for turn in asked.turns)
        possible = [step for step in steps if resolve(step, asked).calls]
        return possible[done] if is_ours(asked) and done < len(possible) else ModelAnswer.text(LAST_WORD)

    return say


def is_last(prompt: str, command: str) -> Predicate:
    """Return whether what the model says to a request ends the turn: also when it has not the tool to go on."""
    say, is_ours = script(prompt, command), follows(prompt)
    return lambda asked: is_ours(asked) and not resolve(say(asked), asked).calls


@dataclass(slots=True, kw_only=True)
class PlayedTurn:
    """A turn while it is played: what was sent, what the model was asked, what Harken saw."""

    trial: Trial
    running: RunningProgram
    gate: RequestGate
    hold: HeldRequests
    prompt: str
    told: tuple[str, str]  # what was sent before: the marker, and its message
    began: float
    guest: TrialSession | None = None
    others: frozenset[str] = frozenset()

    def play(self) -> list[TrialResult]:
        """Go through the turn, and return what came of each surface in it."""
        trial = self.trial
        trial.tell("waiting for its first request …")
        first = trial.wait(follows(self.prompt), START_SECONDS, self.running)
        if first is None:
            raise last_words(trial, self.running)
        by_prompt = judged("hook: prompt", self.told, first, self.began)
        by_tool_hook = self._tool_hook(first)
        held = self._held()
        self._look()
        by_tool = self._tool(first, held)
        by_stop = self._stop(held)
        return [self._explained(outcome) for outcome in (by_prompt, by_tool_hook, by_stop, by_tool)]

    def _tool_hook(self, first: ModelRequest) -> TrialResult:
        trial = self.trial
        trial.tell("sending a message while a tool runs …")
        refusal = closed_tool(trial, self.running, self.gate, self.prompt, first)
        if refusal is not None:
            return replace(refusal, surface="hook: tool")
        marker = new_marker()
        message = trial.send(marker)
        self._look()
        began = time.monotonic()
        self.gate.open()
        return judged("hook: tool", (marker, message), self._next(first), began)

    def _held(self) -> ModelRequest | None:
        """Return the last request of the turn; it is kept waiting."""
        end = time.monotonic() + STEP_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return self.hold.wait(LOOK_SECONDS)
            if not self.running.is_running:
                return None
        return None

    def _tool(self, first: ModelRequest, held: ModelRequest | None) -> TrialResult:
        is_named = PULL in json.dumps(first.body)
        answers = [turn.text for turn in held.turns if turn.role == "tool"] if held else []
        if any(STATS_SIGN in answer for answer in answers):
            return TrialResult(surface="tool", verdict=TrialVerdict.ARRIVED)
        said = last_lines(answers[-1], 2) if answers else "no answer"
        reason = f"Harken's tools are there, and a call of one was not answered: {said}" if is_named else ""
        return TrialResult(surface="tool", verdict=TrialVerdict.MISSING, reason=reason)

    def _stop(self, held: ModelRequest | None) -> TrialResult:
        trial = self.trial
        if not trial.hooks.most_stops:
            self.hold.release()
            reason = (
                f"{trial.title} ends its turns whatever waits: the message comes as a wake, or with the next prompt."
            )
            return TrialResult(surface="hook: stop", verdict=TrialVerdict.NOT_OFFERED, reason=reason)
        if held is None:
            reason = "The turn did not come to its end."
            return TrialResult(surface="hook: stop", verdict=TrialVerdict.NOT_TRIED, reason=reason)
        trial.tell("sending a message at the end of the turn …")
        marker = new_marker()
        message = trial.send(marker)
        began = time.monotonic()
        self.hold.release()
        return judged("hook: stop", (marker, message), self._next(held), began)

    def _next(self, asked: ModelRequest) -> ModelRequest | None:
        return next_request(self.trial, self.running, self.prompt, asked)

    def _look(self) -> None:
        """Remember the session as it is now: it is gone when the host has ended."""
        self.guest = self.trial.guest(self.others) or self.guest

    def _explained(self, outcome: TrialResult) -> TrialResult:
        return explained(self.trial, outcome, self.guest)


def next_request(trial: Trial, running: RunningProgram, prompt: str, asked: ModelRequest) -> ModelRequest | None:
    """Return the request of a turn that follows another one; None when none comes."""
    return trial.wait(follows(prompt), STEP_SECONDS, running, after=asked.number + 1)


def closed_tool(
    trial: Trial, running: RunningProgram, gate: RequestGate, prompt: str, asked: ModelRequest
) -> TrialResult | None:
    """Wait until the shell command that a request asked for runs, and return None; else why nothing could be tried."""
    if not resolve(ModelAnswer.shell(gate.command), asked).calls:
        reason = "The model is offered no shell here, so no tool could be kept running."
        return TrialResult(surface="", verdict=TrialVerdict.NOT_TRIED, reason=reason)
    end = time.monotonic() + STEP_SECONDS
    while time.monotonic() < end and running.is_running:
        with contextlib.suppress(TimeoutError):
            gate.wait(LOOK_SECONDS)
            return None
        if any(later.number > asked.number for later in trial.model.requests if follows(prompt)(later)):
            break
    answer = next_request(trial, running, prompt, asked)
    said = last_lines(answer.turns[-1].text if answer else running.text(), 2)
    reason = f"The shell command of the trial did not run: {said or 'no answer'}"
    hint = "Its sandbox or a policy may refuse it."
    return TrialResult(surface="", verdict=TrialVerdict.NOT_TRIED, reason=reason, hint=hint)


def judged(surface: str, marked: tuple[str, str], asked: ModelRequest | None, began: float) -> TrialResult:
    """Return whether a request holds a marker, which is that of a message; `began` is when it could be given."""
    marker, message = marked
    has_arrived = asked is not None and asked.count(marker) > 0
    return TrialResult(
        surface=surface,
        verdict=TrialVerdict.ARRIVED if has_arrived else TrialVerdict.MISSING,
        seconds=round(time.monotonic() - began, 2) if has_arrived else None,
        marker=marker,
        message=message,
    )


def last_words(trial: Trial, running: RunningProgram) -> HostFailed:
    """Return the error of a host that asked its model nothing."""
    said = last_lines(running.text()) or "nothing"
    return HostFailed(
        f"{trial.title} did not ask its model anything.", f"The last thing it said: {said}", retry_after=1.0
    )


@contextmanager
def staged(trial: Trial, prompt: str) -> Iterator[tuple[RequestGate, HeldRequests]]:
    """The model follows the script of the turn that a prompt begins, and keeps its last answer back."""
    # In the folder of the host, because some refuse paths outside it.
    path = trial.folder / f".harken-gate-{secrets.token_hex(4)}"
    with RequestGate(path) as gate, trial.model.hold(is_last(prompt, gate.command)) as hold:
        trial.model.follow(script(prompt, gate.command))
        yield gate, hold


def explained(trial: Trial, outcome: TrialResult, guest: TrialSession | None) -> TrialResult:
    """Return an outcome with what the ledger says, and with why and what to do where something did not arrive."""
    is_arrived = outcome.verdict is TrialVerdict.ARRIVED
    line = trial.proof(outcome.message, PROOF_SECONDS if is_arrived else 0.0) if outcome.message else TrialLedgerLine()
    if outcome.message:
        outcome = replace(outcome, ledger=line.sentence)
    if outcome.verdict is not TrialVerdict.MISSING:
        return outcome
    known = TrialCircumstances(
        host=trial.name,
        title=trial.title,
        hook_hint=trial.host.hook_hint,
        is_connected=trial.is_connected,
        guest=guest,
    )
    reason, hint = diagnose(outcome.surface, line, known)
    return replace(outcome, reason=outcome.reason or reason, hint=outcome.hint or hint)


def has_wake(hooks: HookAdapter) -> bool:
    """Whether a host can be woken at all."""
    return HookMoment.BELL in hooks.most_chars
