"""The situations in which a message can meet a host, each a function over one observed host.

Each plays sessions, sends messages while it does, and says what their forecasts had to be and how they had to come.
What is true of every message, that nothing is called seen too early, twice or never, the observer judges afterwards.
The truth tests play each situation on each host; the soak plays them in any order on one home.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

import psutil

from harken.trial.exchange import ModelAnswer
from harken.trial.model import RequestGate
from tests.hosts.observer import LOOK_SECONDS, Json, SentMessage
from tests.hosts.play import (
    KNOWN_SENDER,
    PULL,
    QUIET_CHANNEL,
    STEP_SECONDS,
    HostSession,
    ObservedHost,
    frozen,
    let_pass,
)
from tests.hosts.wire import is_whole
from tests.loss.rig import until

Situation: TypeAlias = Callable[[ObservedHost], None]

LONG_TOOL_SECONDS: Final = 30.0  # longer than Harken waits for a busy session before it tries to wake it
LINGER_SECONDS: Final = 6.0  # in which a session that seems idle would be woken
CLOSED_SECONDS: Final = 90.0  # Codex unloads a conversation that nobody watches after about a minute
STOOD_SECONDS: Final = 25.0  # longer than a wake has until another is tried, shorter than its proof may take
STILL_SECONDS: Final = 10.0  # in which a conversation without a terminal would begin a turn
KNOWN_SECONDS: Final = 30.0  # until a host that was started has told Harken so
LONG_TEXTS: Final = 16
LONG_CHARS: Final = 5_000
SLOW_SECONDS: Final = 20.0
STILL_SHARE_SECONDS: Final = 0.45  # of each half second in which a slow host stands still
MOVING_SHARE_SECONDS: Final = 0.05
GONE_SECONDS: Final = 10.0  # until Harken knows that a session was left
_HOOKED: Final = frozenset({"idle", "busy"})
_NOBODY: Final = "waits for the next session: none is connected now"
_UNSHOWN: Final = "waits for the next session: {} is not woken, no terminal shows its conversation any more"
_EDGE: Final = "/harken/edge/"  # where the programs are that a host runs for Harken


def busy_with_a_short_tool(host: ObservedHost) -> None:
    """A message that is sent while a tool runs is in the request that follows it."""
    with host.stage.gate() as gate, host.session() as session:
        with _told_after(host, gate, session.prompt(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")), 1):
            pass
        host.until_idle()


def busy_with_a_long_tool(host: ObservedHost) -> None:
    """The same when the tool takes longer than the patience of whoever could wake the session instead."""
    with long_tool(host):
        let_pass(host, LONG_TOOL_SECONDS)


def headless_with_a_long_tool(host: ObservedHost) -> None:
    """The same in a run without a terminal, which ends with its turn: nothing can come after that."""
    with long_tool_without_terminal(host):
        let_pass(host, LONG_TOOL_SECONDS)


@contextmanager
def long_tool(host: ObservedHost) -> Iterator[None]:
    """A session in a tool that takes as long as the block; a message was sent when it had begun."""
    with host.stage.gate() as gate, host.session() as session:
        tool = host.habits.long_shell(gate.command)
        with _told_after(host, gate, session.prompt(*tool, ModelAnswer.shell("true")), len(tool)):
            yield
        host.until_idle()


@contextmanager
def long_tool_without_terminal(host: ObservedHost) -> Iterator[None]:
    """A run without a terminal in a tool that takes as long as the block; a message was sent when it had begun."""
    with host.stage.gate() as gate:
        tool = host.habits.long_shell(gate.command)
        with host.headless(*tool, ModelAnswer.shell("true")) as (prompt, running):
            with _told_after(host, gate, prompt, len(tool)):
                yield
            running.finish()


@contextmanager
def _told_after(host: ObservedHost, gate: RequestGate, prompt: str, steps: int) -> Iterator[None]:
    """Send a message while a tool runs, and require that it is told once, in the request after the block.

    The last of so many steps is the one during which it is sent.
    """
    observer = host.observer
    gate.wait(STEP_SECONDS)
    until(lambda: len(host.requests(prompt)) >= steps, "the tool runs", STEP_SECONDS, pause_seconds=LOOK_SECONDS)
    message = observer.send("while a tool runs")
    observer.expect_outlook(message, "boundary")
    _expect_busy(host)
    yield
    _expect_after_tool(host, gate.open, prompt, message)
    observer.settle()
    observer.expect_plain(message)


def at_the_prompt(host: ObservedHost) -> None:
    """A message that wakes nobody waits for the next prompt, and is in the first request of it."""
    observer = host.observer
    with host.session() as session:
        _first_turn(host, session)
        message = observer.send("at the prompt", "--priority", "low")
        observer.expect_outlook(message, "prompt")
        place = len(host.stage.model.requests)
        prompt = session.prompt(ModelAnswer.shell("true"))
        observer.expect_in(message, host.request(prompt, after=place), "the first request of the next prompt")
        host.until_idle()
        observer.settle()
        observer.expect_plain(message)


def idle(host: ObservedHost) -> None:
    """A message to an idle session starts a turn, or is in the first request of the next prompt."""
    with host.session() as session:
        _first_turn(host, session)
        message = host.observer.send("while the session is idle")
        _expect_when_idle(host, session, message)
        host.observer.expect_plain(message)


def closed_and_started_at_once(host: ObservedHost) -> None:
    """What comes between two sessions goes to the second; what comes then goes to it too, not to the one that ended."""
    observer = host.observer
    with host.session() as session:
        _first_turn(host, session)
        session.leave()
    _expect_gone(host)
    between = observer.send("right after the session was left")
    _expect_to_wait(host, between)
    with host.session() as session:
        _expect_in_next_session(host, session, between)
        later = observer.send("while the second session is idle")
        _expect_when_idle(host, session, later)
    observer.expect_plain(between, later)


def closed_for_long(host: ObservedHost) -> None:
    """A message long after the end of a session starts nothing, and waits for the next one."""
    closed_at = leave_a_session(host)
    let_pass(host, closed_at + CLOSED_SECONDS - time.monotonic())
    started_after_long(host)


def leave_a_session(host: ObservedHost) -> float:
    """Play a session and leave it; return when that was, on the monotonic clock."""
    with host.session() as session:
        _first_turn(host, session)
        session.leave()
    _expect_gone(host)
    return time.monotonic()


def started_after_long(host: ObservedHost) -> None:
    """Send a message to a host that was left long ago, and start it again."""
    observer = host.observer
    message = observer.send(f"{CLOSED_SECONDS:g} s after the session was left")
    observer.expect_outlook(message, "next_session")
    if not host.nothing_for(STILL_SECONDS, message):
        observer.blame("a conversation that was left began a turn without a terminal")
    with host.session() as session:
        _expect_in_next_session(host, session, message)


def headless_with_a_message_before(host: ObservedHost) -> None:
    """What waits is in the first request of a run without a terminal."""
    observer = host.observer
    _expect_gone(host)
    message = observer.send("before a run without a terminal")
    _expect_to_wait(host, message)
    prompt = host.run(ModelAnswer.shell("true"))
    observer.expect_in(message, host.request(prompt), "the first request of the run")
    observer.settle()
    observer.expect_plain(message)


def headless_with_a_message_during(host: ObservedHost) -> None:
    """What is sent while a run without a terminal works is in its next request."""
    with long_tool_without_terminal(host):
        pass


def headless_that_starts_slowly(host: ObservedHost) -> None:
    """A run that needs long until its first request is not woken: it has a prompt already, and is told once."""
    observer = host.observer
    _expect_gone(host)
    message = observer.send("before a run that starts slowly")
    with host.headless(ModelAnswer.shell("true")) as (prompt, running):
        # Its first hook has run: from then on Harken may take it for idle.
        until(lambda: any(each["presence"] in _HOOKED for each in host.sessions()), "a hook has run", KNOWN_SECONDS)
        observer.note("the host becomes slow")
        _slow_down(host, running.pid, prompt)
        observer.note("the host is fast again")
        running.finish()
    observer.expect_in(message, host.requests(prompt)[-1], "the last request of the run")
    observer.settle()
    observer.expect_once(message)
    observer.expect_unwoken(message)


def daemon_killed_while_busy(host: ObservedHost) -> None:
    """Whatever is sent around a crash of the daemon arrives, and the session that works is not taken for absent."""
    _restarted(host, host.kill_daemon, has_message_during=True)


def daemon_restarted_while_busy(host: ObservedHost) -> None:
    """The same when the person restarts Harken."""

    def restart() -> None:
        host.stage.harken("down")
        host.stage.harken("up")
        host.observer.note("harken down; harken up")

    _restarted(host, restart, has_message_during=False)


def _restarted(host: ObservedHost, restart: Callable[[], None], *, has_message_during: bool) -> None:
    observer = host.observer
    with host.stage.gate("first") as first, host.stage.gate("second") as second, host.session() as session:
        prompt = session.prompt(
            ModelAnswer.shell(first.command), ModelAnswer.shell(second.command), ModelAnswer.shell("true")
        )
        first.wait(STEP_SECONDS)
        shown = observer.send("before the tool during which the daemon is restarted")
        _expect_after_tool(host, first.open, prompt, shown)
        second.wait(STEP_SECONDS)
        waiting = observer.send("before the daemon is restarted")
        # Whoever could prove that it arrived is gone with the daemon.
        observer.leave_open(shown)
        restart()
        during = [observer.send("while no daemon runs")] if has_message_during else []
        until(host.sessions, "the session is known again", KNOWN_SECONDS, pause_seconds=LOOK_SECONDS)
        after = observer.send("after the daemon was restarted")
        for message in (*during, after):
            # Right after a restart nobody knows yet whether it still works, and the forecast says that.
            observer.expect_outlook(message, "boundary", "next_call", "uncertain")
        if any(each["presence"] == "idle" for each in host.sessions()):
            observer.blame("while a tool runs the status says after the restart that its session is idle")
        host.nothing_for(LINGER_SECONDS, after)
        place = len(host.stage.model.requests)
        second.open()
        asked = host.request(prompt, after=place)
        for message in (waiting, *during, after):
            observer.expect_in(message, asked, "the request after the tool")
        host.until_idle()
        observer.settle()


def host_killed_before_the_proof(host: ObservedHost) -> None:
    """What was on the wire when a host died may be told again, and says so."""
    observer = host.observer
    with host.session() as session:
        _first_turn(host, session)
        message = observer.send("before the prompt of a session that is killed", "--priority", "low")
        with host.stage.model.hold(lambda asked: is_whole(asked, message.text)) as hold:
            session.prompt()
            hold.wait(STEP_SECONDS)
            observer.leave_open(message)
            session.kill()
    with host.session() as session:
        place = len(host.stage.model.requests)
        prompt = session.prompt(ModelAnswer.shell("true"))
        host.request(prompt, after=place)
        host.until_idle()
        observer.settle()
    if observer.seen_at(message) is None:
        observer.blame("what was on the wire when the host was killed was not told to the next session")


def stood_still(host: ObservedHost) -> None:
    """A host that does nothing for a while, though not for as long as a wake is waited for, is told once."""
    observer = host.observer
    with host.session() as session:
        _first_turn(host, session)
        with frozen(_programs(session.screen.pid)):
            observer.note("the host stands still")
            message = observer.send("while the host stands still")
            observer.expect_outlook(message, "wake" if host.habits.can_be_woken else "prompt")
            # One that nothing can wake waits for its prompt in any case.
            let_pass(host, STOOD_SECONDS if host.habits.can_be_woken else 0.0)
        observer.note("the host goes on")
        host.request(session.prompt(ModelAnswer.shell("true")))
        observer.expect_arrival(message, "the host goes on")
        host.until_idle()
        observer.settle()
        observer.expect_once(message)


def three_sessions_at_once(host: ObservedHost) -> None:
    """A message goes to one of several sessions: one that works before one that is idle."""
    observer = host.observer
    with ExitStack() as stack:
        gate = stack.enter_context(host.stage.gate())
        first, second, third = (stack.enter_context(_started(host, count)) for count in (1, 2, 3))
        woken = observer.send("while three sessions are idle")
        _expect_when_idle(host, third, woken, 3)
        prompt = second.prompt(ModelAnswer.shell(gate.command), ModelAnswer.shell("true"))
        gate.wait(STEP_SECONDS)
        told = observer.send("while the second of three sessions works")
        observer.expect_outlook(told, "boundary")
        _expect_after_tool(host, gate.open, prompt, told)
        host.until_idle(3)
        for session in (first, third):
            host.request(session.prompt())
            host.until_idle(3)
        observer.settle()
        observer.expect_plain(woken, told)


def read_by_the_tool(host: ObservedHost) -> None:
    """What the model has read with a tool of Harken's is seen when its turn ends, though nothing follows it."""
    observer = host.observer
    with host.stage.gate() as gate, host.session() as session:
        prompt = session.prompt(ModelAnswer.shell(gate.command), PULL)
        gate.wait(STEP_SECONDS)
        message = observer.send("before the model reads its inbox", "--channel", QUIET_CHANNEL)
        place = len(host.stage.model.requests)
        gate.open()
        host.request(prompt, after=place)
        host.until_idle()
        observer.settle()
        observer.expect_plain(message)


def more_than_a_result_holds(host: ObservedHost) -> None:
    """What waits may be more than the host shows of a tool's result: whatever is called seen was there whole."""
    observer = host.observer
    _expect_gone(host)
    for number in range(LONG_TEXTS):
        observer.send(f"long text {number + 1}", "--channel", QUIET_CHANNEL, about_chars=LONG_CHARS)
    host.run(reads_all=True)
    observer.settle()


def quiet_channel(host: ObservedHost) -> None:
    """What pushes no further than a prompt comes with the next one, as text or announced, and not before."""
    observer = host.observer
    with host.stage.gate() as gate, host.session() as session:
        prompt = session.prompt(ModelAnswer.shell(gate.command), ModelAnswer.shell("true"))
        gate.wait(STEP_SECONDS)
        own = observer.send("my word on a quiet channel", "--channel", QUIET_CHANNEL)
        known = observer.send("another's word on a quiet channel", "--channel", QUIET_CHANNEL, "--from", KNOWN_SENDER)
        for message in (own, known):
            observer.expect_outlook(message, "prompt")
        place = len(host.stage.model.requests)
        gate.open()
        host.request(prompt, after=place)
        host.until_idle()
        place = len(host.stage.model.requests)
        asked = host.request(session.prompt(ModelAnswer.shell("true")), after=place)
        for message in (own, known):
            if "is announced" not in message.sentence:
                observer.expect_in(message, asked, "the first request of the next prompt")
            elif not asked.count("1 message waits in Harken"):
                observer.blame("what was to be announced with the next prompt is not announced in its first request")
        host.until_idle()
        observer.settle()


def _first_turn(host: ObservedHost, session: HostSession, count: int = 1) -> None:
    host.request(session.prompt())
    host.until_idle(count)


@contextmanager
def _started(host: ObservedHost, count: int) -> Iterator[HostSession]:
    """One more session, which has had its first turn: there are so many now."""
    with host.session() as session:
        _first_turn(host, session, count)
        yield session


def _expect_after_tool(host: ObservedHost, go_on: Callable[[], None], prompt: str, message: SentMessage) -> None:
    """Let a tool end, and require that the next request of its turn holds a message."""
    place = len(host.stage.model.requests)
    host.observer.note("the tool ends")
    go_on()
    host.observer.expect_in(message, host.request(prompt, after=place), "the request after the tool")


def _expect_when_idle(host: ObservedHost, session: HostSession, message: SentMessage, count: int = 1) -> None:
    """Require that a message wakes an idle session, or is in the first request of its next prompt."""
    observer = host.observer
    if host.habits.can_be_woken:
        observer.expect_outlook(message, "wake")
        observer.expect_arrival(message, "the session can be woken")
    else:
        observer.expect_outlook(message, "prompt")
        place = len(host.stage.model.requests)
        asked = host.request(session.prompt(), after=place)
        observer.expect_in(message, asked, "the first request of the next prompt")
    host.until_idle(count)
    observer.settle()


def _expect_in_next_session(host: ObservedHost, session: HostSession, message: SentMessage) -> None:
    """Require that a message has come with the first prompt of a session, if it was not woken before."""
    asked = host.request(session.prompt(ModelAnswer.shell("true")))
    host.observer.expect_in(message, asked, "the first request of the next session's prompt")
    host.until_idle()
    host.observer.settle()


def _expect_busy(host: ObservedHost) -> None:
    found = [session["presence"] for session in host.sessions()]
    if "busy" not in found:
        host.observer.blame(f"while a tool runs the status says {found or 'that no session is there'}")


def _expect_gone(host: ObservedHost) -> None:
    """Require that Harken knows soon that no session is there any more, or that no terminal shows it."""

    def is_gone(session: Json) -> bool:
        return host.habits.is_kept and not session["can_wake"] and session["hindrance"].startswith("no terminal")

    try:
        until(lambda: all(map(is_gone, host.sessions())), "it is gone", GONE_SECONDS, pause_seconds=LOOK_SECONDS)
    except AssertionError:
        host.observer.blame(f"a session that was left is still there after {GONE_SECONDS:g} s: {host.sessions()}")


def _expect_to_wait(host: ObservedHost, message: SentMessage) -> None:
    """Require that the forecast says that a message waits for the next session, and for no other reason than is so."""
    if not host.habits.is_kept:
        host.observer.expect_outlook(message, "next_session")
    elif message.sentence not in (_NOBODY, _UNSHOWN.format(host.label)):
        host.observer.blame(f"{message.mark} is to wait for the next session, and its forecast: {message.sentence}")


def _slow_down(host: ObservedHost, pid: int, prompt: str) -> None:
    """Let a host stand still for most of the time, as on a machine that is too slow, until it asks its model."""
    end = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError), frozen(_programs(pid)):
            host.request(prompt, seconds=STILL_SHARE_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            host.request(prompt, seconds=MOVING_SHARE_SECONDS)
            return


def _programs(pid: int) -> Sequence[int]:
    """Return the processes of a host, without Harken's hooks and connections and without servers that outlive it.

    The first Codex of a home is the parent of the server that later ones share.
    """
    root = psutil.Process(pid)
    found = []
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if _EDGE not in " ".join(process.cmdline()) and os.getsid(process.pid) == os.getsid(pid):
                found.append(process.pid)
    return found


SITUATIONS: Final[Mapping[str, Situation]] = {
    each.__name__: each
    for each in (
        busy_with_a_short_tool,
        busy_with_a_long_tool,
        headless_with_a_long_tool,
        at_the_prompt,
        idle,
        closed_and_started_at_once,
        closed_for_long,
        headless_with_a_message_before,
        headless_with_a_message_during,
        headless_that_starts_slowly,
        daemon_killed_while_busy,
        daemon_restarted_while_busy,
        host_killed_before_the_proof,
        stood_still,
        three_sessions_at_once,
        read_by_the_tool,
        quiet_channel,
        more_than_a_result_holds,
    )
}
