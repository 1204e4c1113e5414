"""The tracer: everything that can be sent to an idle session of a host, and whether it was shown or reached the model.

Each notification of the protocol, a wake, and the hooks of a turn, each with a marker of its own that is looked for in
all that the screen ever showed and in all that the model was ever asked. It reports and judges nothing: most hosts
ignore most notifications, and a new version that does not is worth knowing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from harken.errors import NeedsPerson
from harken.hosts.registry import push_channels
from harken.hosts.wake import PushChannel
from harken.trial.exchange import in_order
from harken.trial.live import entered, idle, nudged, question, shown
from harken.trial.outcome import TrialResult, TrialSession, TrialVerdict
from harken.trial.screen import TerminalProgram, last_lines
from harken.trial.turn import (
    LAST_WORD,
    START_SECONDS,
    HostFailed,
    PlayedTurn,
    Trial,
    follows,
    new_marker,
    new_prompt,
    staged,
)

NOTICE_SECONDS: Final = 2.0  # after this a host has ignored a notification
LOOK_SECONDS: Final = 0.1


class ProbeReach(StrEnum):
    """Whether and when something reached the model."""

    AT_ONCE = "yes"  # an idle session was asked at once, a busy one with its next step
    LATER = "later"  # with a request that something else caused
    NO = "no"
    UNKNOWN = "-"  # it was not sent


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedProbe:
    """One thing that was sent, and where it turned up."""

    kind: str  # notification, wake, hook, tool
    what: str
    on_screen: bool | None  # None: it was not sent
    at_model: ProbeReach
    marker: str = ""
    ledger: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class _SentProbe:
    what: str
    marker: str
    is_sent: bool
    until: int  # how many requests there were when it had had its time


def _meta(marker: str) -> Mapping[str, object]:
    return {"_meta": {"harken/marker": marker}}


_Maker = Callable[[str], Mapping[str, object]]
# A notification that may have no parameters carries its marker where any message may have something of its own.
_PLAIN: Final[Sequence[tuple[str, str, _Maker]]] = (
    (
        "notifications/message (info)",
        "notifications/message",
        lambda marker: {"level": "info", "logger": "harken", "data": marker},
    ),
    (
        "notifications/message (error)",
        "notifications/message",
        lambda marker: {"level": "error", "logger": "harken", "data": marker},
    ),
    (
        "notifications/resources/updated",
        "notifications/resources/updated",
        lambda marker: {"uri": f"harken://probe/{marker}"},
    ),
    *(
        (f"notifications/{kind}/list_changed", f"notifications/{kind}/list_changed", _meta)
        for kind in ("resources", "tools", "prompts")
    ),
)
_UNKNOWN: Final[tuple[str, str, _Maker]] = (
    "an unknown method",
    "notifications/harken/unknown",
    lambda marker: {"message": marker, "content": marker},
)


def _pushed(channel: PushChannel, marker: str) -> Mapping[str, object]:
    return channel.params(f"{marker} is a marker of `harken probe`.", ())


def _notifications() -> Iterator[tuple[str, str, _Maker]]:
    """Yield what every MCP client may be sent, the channels of all hosts, and an unknown method."""
    yield from _PLAIN
    for channel in push_channels().values():
        yield channel.method, channel.method, partial(_pushed, channel)
    yield _UNKNOWN


def trace(trial: Trial) -> list[TracedProbe]:
    """Send everything to an idle session of a host, and return where each turned up.

    Raises `NeedsPerson` when the host asks something first, `HostFailed` when it cannot be run.
    """
    others = frozenset(guest.key for guest in trial.post.sessions())
    trial.model.follow(in_order(then=LAST_WORD))
    trial.tell("starting it …")
    with shown(trial) as screen:
        _begin(trial, screen)
        guest = idle(trial, others)
        fired = list(_fire(trial, screen, guest))
        wake = _wake(trial, screen, guest)
        outcomes = _turn(trial, screen, others)
        # What a host keeps for the next prompt is on its wire only then.
        trial.model.follow(in_order(then=LAST_WORD))
        farewell = new_prompt()
        _enter(trial, screen, farewell)
        trial.wait(follows(farewell), START_SECONDS, screen)
        screen.wait_quiet(seconds=NOTICE_SECONDS)
        return [
            *(_notification(trial, screen, one) for one in fired),
            *(_outcome(screen, outcome) for outcome in (wake, *outcomes)),
        ]


def _begin(trial: Trial, screen: TerminalProgram) -> None:
    asked = question(trial, screen)
    if asked is not None and not screen.is_running:
        raise HostFailed(f"{trial.title} ended at once.", f"The last thing it said: {asked}", retry_after=1.0)
    if asked is not None:
        raise _asked(trial, asked)
    prompt = new_prompt()
    _enter(trial, screen, prompt)
    if trial.wait(follows(prompt), START_SECONDS, screen) is None:
        raise HostFailed(
            f"{trial.title} did not ask its model anything.",
            f"Its screen shows: {last_lines(screen.text())}",
            retry_after=1.0,
        )
    screen.wait_quiet(seconds=NOTICE_SECONDS)


def _enter(trial: Trial, screen: TerminalProgram, prompt: str) -> None:
    if not entered(screen, prompt):
        raise _asked(trial, last_lines(screen.text()))


def _asked(trial: Trial, what: str) -> NeedsPerson:
    hint = "Nothing was answered. Start it yourself in a folder that you trust, and answer; then: "
    return NeedsPerson(
        f"{trial.title} did not wait for a prompt: {what}",
        f"{hint}harken probe {trial.name} --dir THAT_FOLDER",
        action="answer",
    )


def _fire(trial: Trial, screen: TerminalProgram, guest: TrialSession | None) -> Iterator[_SentProbe]:
    for what, method, params in _notifications():
        trial.tell(f"sending {what} …")
        marker = new_marker()
        is_sent = guest is not None and trial.post.probe(guest.key, method, params(marker))
        if is_sent:
            _watch(trial, screen, marker)
        yield _SentProbe(what, marker, is_sent, len(trial.model.requests))


def _watch(trial: Trial, screen: TerminalProgram, marker: str) -> None:
    """Give a host time to do something with a notification; less when it has done everything it could."""
    end = time.monotonic() + NOTICE_SECONDS
    while time.monotonic() < end and screen.is_running:
        if screen.seen(marker) and any(asked.count(marker) for asked in trial.model.requests):
            screen.wait_quiet(seconds=NOTICE_SECONDS)
            return
        time.sleep(LOOK_SECONDS)


def _notification(trial: Trial, screen: TerminalProgram, fired: _SentProbe) -> TracedProbe:
    if not fired.is_sent:
        note = "There is no MCP connection of this session."
        return TracedProbe(kind="notification", what=fired.what, on_screen=None, at_model=ProbeReach.UNKNOWN, note=note)
    holding = [asked.number for asked in trial.model.requests if fired.marker in asked.text]
    reach = ProbeReach.NO if not holding else ProbeReach.AT_ONCE if holding[0] < fired.until else ProbeReach.LATER
    return TracedProbe(
        kind="notification",
        what=fired.what,
        on_screen=screen.seen(fired.marker),
        at_model=reach,
        marker=fired.marker,
    )


def _wake(trial: Trial, screen: TerminalProgram, guest: TrialSession | None) -> TrialResult:
    if guest is None or not guest.can_wake:
        reason = "Harken knows no way to wake this session: a message waits for the next prompt."
        return TrialResult(surface="wake", verdict=TrialVerdict.NOT_TRIED, reason=reason)
    trial.tell("sending a message while it is idle …")
    return nudged(trial, screen, guest)


def _turn(trial: Trial, screen: TerminalProgram, others: frozenset[str]) -> list[TrialResult]:
    idle(trial, others)
    screen.wait_quiet(seconds=NOTICE_SECONDS)
    marker, prompt = new_marker(), new_prompt()
    # One that wakes nobody: it has to be there for the prompt.
    message = trial.send(marker, is_quiet=True)
    with staged(trial, prompt) as (gate, hold):
        _enter(trial, screen, prompt)
        played = PlayedTurn(
            trial=trial,
            running=screen,
            gate=gate,
            hold=hold,
            prompt=prompt,
            told=(marker, message),
            began=time.monotonic(),
            others=others,
        )
        outcomes = played.play()
    screen.wait_quiet(seconds=NOTICE_SECONDS)
    return outcomes


def _outcome(screen: TerminalProgram, outcome: TrialResult) -> TracedProbe:
    kind, _, _ = outcome.surface.partition(":")
    reach = {TrialVerdict.ARRIVED: ProbeReach.AT_ONCE, TrialVerdict.MISSING: ProbeReach.NO}.get(
        outcome.verdict, ProbeReach.UNKNOWN
    )
    return TracedProbe(
        kind=kind,
        what=outcome.surface,
        on_screen=screen.seen(outcome.marker) if outcome.marker else None,
        at_model=reach,
        marker=outcome.marker,
        ledger=outcome.ledger,
        note=outcome.reason,
    )
