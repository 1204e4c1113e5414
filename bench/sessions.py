"""Hundreds of waiting sessions: what they cost while nothing happens, and how fast all of them are woken."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bench.disk import open_disk
from bench.plan import Plan
from bench.processes import cpu_share, rss_bytes, serving
from bench.rows import Budget, Row, Unit, least, once
from bench.samples import samples
from bench.swarm import CHUNK, Swarm, carried
from bench.wake import LINE, TEXT, relay, round_trip, until_waiting
from harken.testing.daemon import DaemonProcess, SocketClient

WAIT_SECONDS: Final = 50
CPU_BUDGET: Final = Budget(at_most=1, is_of_ratio=False)
MEMORY_BUDGET: Final = Budget(at_most=100, is_of_ratio=False)
WAKE_BUDGET: Final = Budget(at_most=50, is_of_ratio=False)
CROWD_BUDGETS: Final[Mapping[int, Budget]] = MappingProxyType({1_000: Budget(at_most=150, is_of_ratio=False)})
WAKE_LIMIT: Final = "one core of Python: an offer in the writer and the SDK's answer in the loop, for each session"


def measure(plan: Plan) -> Iterator[Row]:
    """Measure sessions of many consumers, as many sessions of one, and crowds."""
    count = plan.size.sessions
    with serving(plan.home("sessions")) as daemon, daemon.caller() as caller:
        bare_cpu, bare_rss = cpu_share(daemon.pid, plan.size.idle_seconds), rss_bytes(daemon.pid)
        with Swarm(daemon.socket, [f"consumer-{number}" for number in range(count)]) as swarm:
            yield from _idle(plan, daemon, caller, swarm, (bare_cpu, bare_rss))
            yield _woken(plan, caller, swarm, "sessions-wake", WAKE_BUDGET)
            yield _memory(
                daemon, bare_rss, name="sessions-rss-after", what=f"daemon: memory with {count} sessions, woken often"
            )
    with (
        serving(plan.home("one")) as daemon,
        daemon.caller() as caller,
        Swarm(daemon.socket, ["one"] * count) as swarm,
    ):
        yield _one_of(plan, caller, swarm)
    for crowd in plan.size.crowds:
        with (
            serving(plan.home(f"crowd-{crowd}")) as daemon,
            daemon.caller() as caller,
            Swarm(daemon.socket, [f"consumer-{number}" for number in range(crowd)]) as swarm,
        ):
            _arm(swarm, caller)
            yield _woken(plan, caller, swarm, f"sessions-wake-{crowd}", CROWD_BUDGETS.get(crowd))


def _idle(
    plan: Plan, daemon: DaemonProcess, caller: SocketClient, swarm: Swarm, bare: tuple[float, int]
) -> Iterator[Row]:
    _arm(swarm, caller)
    count = len(swarm.sessions)
    yield Row(
        name="sessions-cpu",
        what=f"daemon: idle CPU with {count} waiting sessions",
        unit=Unit.PERCENT,
        value=once(cpu_share(daemon.pid, plan.size.idle_seconds)),
        reference_name="without sessions",
        reference=once(bare[0]),
        budget=CPU_BUDGET,
        limited_by="the chores that run every second: index and journal",
    )
    yield _memory(daemon, bare[1], name="sessions-rss", what=f"daemon: memory with {count} waiting sessions")


def _memory(daemon: DaemonProcess, bare: int, *, name: str, what: str) -> Row:
    return Row(
        name=name,
        what=what,
        unit=Unit.MEGABYTES,
        value=once(rss_bytes(daemon.pid)),
        reference_name="without sessions",
        reference=once(bare),
        budget=MEMORY_BUDGET,
        limited_by="the SDK's import, and its server, streams and tasks for each connection",
    )


def _arm(swarm: Swarm, caller: SocketClient) -> None:
    for session in swarm.sessions:
        session.wait(WAIT_SECONDS)
    until_waiting(caller, len(swarm.sessions))


def _woken(plan: Plan, caller: SocketClient, swarm: Swarm, name: str, budget: Budget | None) -> Row:
    count = len(swarm.sessions)
    floor, woken = [], []
    with open_disk(plan.folder) as disk, relay(plan.folder / f"{name}.sock", count + 1) as streams:
        for number in plan.rounds("wake all", 10, 5):
            if number:
                _arm(swarm, caller)
            began = time.perf_counter()
            disk.write(LINE)
            _fan_out(streams)
            floor.append(time.perf_counter() - began)
            woken.append(_wake_all(caller, swarm))
    return Row(
        name=name,
        what=f"send to the last of {count} waiting sessions",
        unit=Unit.MILLISECONDS,
        value=least(samples(woken)),
        reference_name=f"write+fdatasync+{count} sockets",
        reference=least(samples(floor)),
        budget=budget,
        limited_by=WAKE_LIMIT,
    )


def _wake_all(caller: SocketClient, swarm: Swarm) -> float:
    began = time.perf_counter()
    caller.ask("send", text=TEXT)
    answers = swarm.gather(len(swarm.sessions))
    took = time.perf_counter() - began
    caller.answer()
    if any([m["content"] for m in carried(line)] != [TEXT] for _, line in answers):
        raise RuntimeError("a session did not get exactly the one message")
    return took


def _fan_out(streams: Sequence[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for number, stream in enumerate(streams):
            selector.register(stream, selectors.EVENT_READ, number)
        streams[0].sendall(LINE)
        left = len(LINE) * len(streams)
        while left:
            for key, _ in selector.select():
                left -= len(streams[key.data].recv(CHUNK))


def _one_of(plan: Plan, caller: SocketClient, swarm: Swarm) -> Row:
    _arm(swarm, caller)
    floor, taken = [], []
    with open_disk(plan.folder) as disk, relay(plan.folder / "one.sock", 1) as streams:
        for _ in plan.rounds("wake one of many", 20, 5):
            began = time.perf_counter()
            disk.write(LINE)
            round_trip(streams[0], LINE)
            floor.append(time.perf_counter() - began)
            taken.append(_wake_one(caller, swarm))
    return Row(
        name="sessions-one",
        what=f"send to the one of {len(swarm.sessions)} sessions of a consumer that gets it",
        unit=Unit.MILLISECONDS,
        value=least(samples(taken)),
        reference_name="write+fdatasync+round trip",
        reference=least(samples(floor)),
        budget=WAKE_BUDGET,
        limited_by="every session that stands back asks who is ahead of it",
    )


def _wake_one(caller: SocketClient, swarm: Swarm) -> float:
    began = time.perf_counter()
    caller.ask("send", text=TEXT)
    answers = swarm.gather(1)
    took = time.perf_counter() - began
    caller.answer()
    if len(answers) != 1:
        raise RuntimeError(f"{len(answers)} sessions of one consumer got the same message")
    answers[0][0].wait(WAIT_SECONDS)
    until_waiting(caller, len(swarm.sessions))
    return took
