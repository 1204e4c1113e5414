"""Several daemons on one PostgreSQL with hundreds of waiting sessions each: how fast all are woken, and at what cost.

A message to the inbox is for every session, one to a project for every other one. It is sent to one daemon; the others
hear of it through the store. The reference is the same with the sessions of the first daemon alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from bench.plan import Plan
from bench.processes import cpu_seconds, cpu_share, serving
from bench.rows import Budget, Row, Unit, least, once
from bench.samples import samples
from bench.shared import DURABLE
from bench.swarm import Swarm, carried
from bench.wake import TEXT
from harken.testing.daemon import DaemonProcess, SocketClient
from tests.store.postgres_server import USER, postgres_server

DAEMONS: Final = 4
WAIT_SECONDS: Final = 55
ARM_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.2
PROJECT: Final = "project:bench"
MAILBOXES: Final = {"inbox": 1, PROJECT: 2}  # every so many of the sessions read it
WAKE_BUDGET: Final = Budget(at_most=8)
CPU_BUDGET: Final = Budget(at_most=2)
IDLE_BUDGET: Final = Budget(at_most=8, is_of_ratio=False)
LIMITED_BY: Final = "one daemon writes at a time: offers to the sessions of all of them are made one after the other"


@dataclass(frozen=True, slots=True)
class Machine:
    """A daemon and a connection to it."""

    name: str
    daemon: DaemonProcess
    caller: SocketClient


@dataclass(frozen=True, slots=True)
class WokenSessions:
    """How long the sessions waited for one message after another, and what the daemons did for it."""

    p95_seconds: Sequence[float]
    cpu_seconds: Sequence[float]  # for each session


def measure(plan: Plan) -> Iterator[Row]:
    """Measure the sessions of one daemon, then those of all."""
    share = plan.size.shared_sessions // DAEMONS
    with ExitStack() as stack:
        url = stack.enter_context(postgres_server({**DURABLE, "max_connections": "100"}))
        machines = [stack.enter_context(_machine(plan, url, f"m{number}")) for number in range(DAEMONS)]
        swarm = stack.enter_context(Swarm(machines[0].daemon.socket, ()))
        project = plan.folder / "project"
        few: dict[str, WokenSessions] = {}
        for number, machine in enumerate(machines):
            for each in range(share):
                cwd = str(project) if each % MAILBOXES[PROJECT] else "/"
                swarm.add(machine.daemon.socket, f"c{number}-{each}", cwd)
            if not number:
                few = {mailbox: _woken(plan, machines[:1], swarm, mailbox) for mailbox in MAILBOXES}
        many = {mailbox: _woken(plan, machines, swarm, mailbox) for mailbox in MAILBOXES}
        _arm(machines, swarm)
        idle = [cpu_share(machine.daemon.pid, plan.size.idle_seconds) for machine in machines]
    yield from _rows(few, many, share)
    yield Row(
        name="machines-idle-cpu",
        what=f"{DAEMONS} daemons: idle CPU of all, {share * DAEMONS} sessions wait",
        unit=Unit.PERCENT,
        value=once(sum(idle)),
        reference_name="the busiest of them",
        reference=once(max(idle)),
        budget=IDLE_BUDGET,
        limited_by="the chores that run every second, and what each tells the others every five",
    )


def _rows(few: dict[str, WokenSessions], many: dict[str, WokenSessions], share: int) -> Iterator[Row]:
    for mailbox, part in MAILBOXES.items():
        count, kind = share * DAEMONS // part, mailbox.partition(":")[0]
        yield Row(
            name=f"machines-wake-{kind}",
            what=f"{DAEMONS} daemons: send to {mailbox} wakes {count} sessions, p95 of them",
            unit=Unit.MILLISECONDS,
            value=least(samples(many[mailbox].p95_seconds)),
            reference_name=f"{share // part} of one daemon",
            reference=least(samples(few[mailbox].p95_seconds)),
            budget=WAKE_BUDGET,
            limited_by=LIMITED_BY,
        )
        yield Row(
            name=f"machines-cpu-{kind}",
            what=f"{DAEMONS} daemons: CPU for each session that {mailbox} wakes",
            unit=Unit.MILLISECONDS,
            value=least(samples(many[mailbox].cpu_seconds)),
            reference_name=f"{share // part} of one daemon",
            reference=least(samples(few[mailbox].cpu_seconds)),
            budget=CPU_BUDGET,
            limited_by="an offer in the writer and the SDK's answer in the loop, for each session",
        )


@contextmanager
def _machine(plan: Plan, url: str, name: str) -> Iterator[Machine]:
    """Run a daemon on the shared store."""
    home, project = plan.home(name), plan.folder / "project"
    home.mkdir(mode=0o700)
    project.mkdir(exist_ok=True)
    server = f"postgresql://{USER}@/postgres?host={url.split(maxsplit=1)[0].removeprefix('host=')}"
    lines = [
        *("[store]", f"url = {json.dumps(server)}", 'schema = "machines"'),
        *("[daemon]", f"machine = {json.dumps(name)}"),
        *("[projects.bench]", f"dirs = [{json.dumps(str(project))}]"),
    ]
    (home / "config.toml").write_text("\n".join(lines))
    with serving(home) as daemon, daemon.caller() as caller:
        yield Machine(name, daemon, caller)


def _woken(plan: Plan, machines: Sequence[Machine], swarm: Swarm, mailbox: str) -> WokenSessions:
    """Wake the sessions that read a mailbox, several times."""
    count = len(swarm.sessions) // MAILBOXES[mailbox]
    waited, cpu = [], []
    for _ in plan.rounds(f"wake {count} sessions of {len(machines)} daemons", 5, 3):
        _arm(machines, swarm)
        before = sum(cpu_seconds(machine.daemon.pid) for machine in machines)
        began = time.perf_counter()
        machines[0].caller.ask("send", text=TEXT, to=mailbox)
        arrived = _arrivals(swarm, count)
        machines[0].caller.answer()
        waited.append(samples(moment - began for moment in arrived).p95)
        cpu.append((sum(cpu_seconds(machine.daemon.pid) for machine in machines) - before) / count)
    return WokenSessions(waited, cpu)


def _arrivals(swarm: Swarm, count: int) -> Sequence[float]:
    """Return when each of so many sessions got the one message; a poll that ends without it meanwhile begins again."""
    arrived: list[float] = []
    while len(arrived) < count:
        for session, line in swarm.gather(1):
            texts = [each["content"] for each in carried(line)]
            if not texts:
                session.wait(WAIT_SECONDS)
            elif texts != [TEXT]:
                raise RuntimeError(f"a session got {len(texts)} messages instead of one")
            else:
                arrived.append(session.answered_at)
    return arrived


def _arm(machines: Sequence[Machine], swarm: Swarm) -> None:
    """Let every session wait; one that has just come is given what came before it first."""
    end = time.monotonic() + ARM_SECONDS
    while True:
        swarm.drain()
        for session in swarm.sessions:
            if not session.is_waiting:
                session.wait(WAIT_SECONDS)
        found = sum(_waiting(machine) for machine in machines)
        if found >= len(swarm.sessions):
            break
        if time.monotonic() > end:
            raise TimeoutError(f"only {found} sessions wait")
        time.sleep(POLL_SECONDS)
    # A poll counts as waiting just before it looks for itself the first time.
    time.sleep(POLL_SECONDS)


def _waiting(machine: Machine) -> int:
    sessions = machine.caller.call("status")["sessions"]
    return sum(each["presence"] == "waiting" and each["machine"] in ("", machine.name) for each in sessions)
