"""Leadership: a loop that one of several daemons runs at a time, by a lease of the store.

`Leadership` tries for its leases every few seconds and renews them. It ends a loop a moment before the lease does,
whether or not the store can be reached, and what the loop writes carries the fence of the lease: a daemon that was
frozen, or is cut off, changes nothing that another one has taken over. It gives a lease back when the loops under it
have ended. Where no other daemon can have the store, a `SoleLeader` runs every loop as it is.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import anyio

from harken.clock import Clock, Signal
from harken.errors import Conflict, HarkenError
from harken.store.contract import Store
from harken.store.contract.leases import LEASES, Lease, OldFence, under

_log = logging.getLogger("harken.leadership")

TRY_SECONDS: Final = 5.0
LIFE: Final = timedelta(seconds=15)
MARGIN: Final = timedelta(seconds=1)  # so much before its end a lease is not relied on any more
SHORTEST_SECONDS: Final = 0.05
RESIGN_SECONDS: Final = 2.0
UNNAMED: Final = "this machine"


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """The machine that this is: its name, and whether daemons of others share the store."""

    name: str
    is_shared: bool = False


def machine_of(chosen: str, *, is_shared: bool) -> MachineInfo:
    """Return what is known of this machine, under the name that was chosen or that of the host."""
    return MachineInfo(chosen or platform.node() or UNNAMED, is_shared)


LedLoop = Callable[[], Awaitable[None]]


class Leader(Protocol):
    """Runs loops of which the daemons of a store run one at a time."""

    @property
    def is_shared(self) -> bool:
        """Whether there may be other daemons."""
        ...

    async def lead(self, name: str, loop: LedLoop) -> None:
        """Run a loop while this daemon has the lease of that name, and again each time it gets it.

        Returns when the loop came to its end by itself.
        """
        ...

    def elsewhere(self, name: str) -> str:
        """Return the machine of the daemon that has a lease, if it is another one."""
        ...


@dataclass(frozen=True, slots=True)
class SoleLeader:
    """The leader of a store that one daemon has."""

    is_shared: bool = False

    async def lead(self, _name: str, loop: LedLoop) -> None:
        """Run a loop."""
        await loop()

    def elsewhere(self, _name: str) -> str:
        """Return none."""
        return ""


ALONE: Final = SoleLeader()


@dataclass(slots=True)
class _Duty:
    """What is led under one name: the lease while this daemon has it, and the loops that run under it."""

    name: str
    lease: Lease | None = None
    until: datetime | None = None  # by then the loops have been told to end
    holder: str = ""  # the machine of the daemon that has it, as far as is known
    free_at: datetime | None = None  # then its lease ends
    loops: int = 0
    scopes: set[anyio.CancelScope] = field(default_factory=set)
    is_held: anyio.Event = field(default_factory=anyio.Event)

    @property
    def fence(self) -> int:
        """The fence of this daemon's tenure; 0: it has none."""
        return 0 if self.lease is None else self.lease.fence

    def hold(self, lease: Lease, until: datetime) -> None:
        """Let loops run under a lease; those of an earlier tenure end."""
        if self.fence != lease.fence:
            self.lose()
        self.lease, self.until, self.holder, self.free_at = lease, until, lease.machine, None
        self.is_held.set()

    def lose(self, to: Lease | None = None) -> None:
        """End the loops; another daemon has the lease, if that is known."""
        self.holder, self.free_at = ("", None) if to is None else (to.machine or to.holder, to.expires_at)
        if self.lease is not None:
            _log.info("%s is led by another daemon, or will be", self.name)
            self.lease = self.until = None
            self.is_held = anyio.Event()
            for scope in self.scopes:
                scope.cancel()


class Leadership:
    """The leases of one daemon, and the loops that run under them."""

    is_shared = True

    def __init__(self, store: Store, clock: Clock, daemon: str) -> None:
        self._leases = store.leases
        self._changes = store.changes
        self._clock = clock
        self._daemon = daemon
        self._duties: dict[str, _Duty] = {}
        self._wanted = Signal()

    def elsewhere(self, name: str) -> str:
        """Return the machine of the daemon that has a lease which this one wants, as far as is known."""
        duty = self._duties.get(name)
        return "" if duty is None or duty.lease is not None else duty.holder

    def leads(self, name: str) -> bool:
        """Whether this daemon has a lease, as far as it knows."""
        duty = self._duties.get(name)
        return duty is not None and duty.lease is not None

    async def lead(self, name: str, loop: LedLoop) -> None:
        """Run a loop while this daemon has the lease, until the loop returns."""
        duty = self._duties.setdefault(name, _Duty(name))
        # An error leaves it as it is: the supervisor runs the loop again, and meanwhile the lease is kept.
        is_over = False
        duty.loops += 1
        try:
            self._wanted.ring()
            while not is_over:
                is_over = await self._run_once(duty, loop)
        except anyio.get_cancelled_exc_class():
            is_over = True
            raise
        finally:
            duty.loops -= 1
            if is_over:
                await self._leave(duty)

    async def run(self) -> None:
        """Try for leases and renew them, for ever."""
        with self._changes.listen(self._wanted.ring, only=[LEASES]):
            try:
                while True:
                    # A server that does not answer must not keep a loop beyond its lease.
                    with anyio.move_on_after(self._seconds_left()):
                        await self._try()
                    self.drop_overdue()
                    await self._wanted.wait(self._pause())
                    self.drop_overdue()
            finally:
                for duty in list(self._duties.values()):
                    await self._leave(duty)

    async def look(self) -> None:
        """Try for the leases that are wanted, and renew those that are held."""
        names = list(self._duties)
        if not names:
            return
        began = self._clock.now()
        held = [duty.lease for duty in self._duties.values() if duty.lease is not None]
        for lease in await self._leases.take(names, LIFE, held):
            duty = self._duties.get(lease.name)
            if lease.holder != self._daemon:
                if duty is not None:
                    duty.lose(lease)
            elif duty is None:
                # Nothing is left to be led: it ended while this was on its way.
                await self._leases.resign([lease])
            else:
                duty.hold(lease, min(lease.expires_at, began + LIFE) - MARGIN)

    def drop_overdue(self) -> None:
        """End the loops under leases that are about to end."""
        now = self._clock.now()
        for duty in self._duties.values():
            if duty.until is not None and duty.until <= now:
                duty.lose()

    async def _try(self) -> None:
        try:
            await self.look()
        except HarkenError as exc:
            _log.info("leases cannot be renewed: %s", exc.message)

    def _seconds_left(self) -> float:
        """Return for how long all leases can be relied on; without any, as long as a lease is good for."""
        ends = [duty.until for duty in self._duties.values() if duty.until is not None]
        left = min(ends) - self._clock.now() if ends else LIFE
        return max(left.total_seconds(), 0.0)

    def _pause(self) -> float:
        """Return when to try again: now and then, and as soon as a lease ends."""
        now = self._clock.now()
        waits = [(duty.free_at - now).total_seconds() for duty in self._duties.values() if duty.free_at is not None]
        return max(min(TRY_SECONDS, self._seconds_left(), *waits), SHORTEST_SECONDS)

    async def _run_once(self, duty: _Duty, loop: LedLoop) -> bool:
        """Run a loop for one tenure; return whether it came to its end by itself."""
        while (lease := duty.lease) is None:
            await duty.is_held.wait()
        with anyio.CancelScope() as scope:
            duty.scopes.add(scope)
            try:
                with under(lease):
                    await loop()
            except Conflict as exc:
                if not isinstance(exc, OldFence):
                    # It may say the same in other words: another daemon was faster.
                    await self._try()
                    if duty.fence == lease.fence:
                        raise
                _log.info("a late write for %s was refused: %s", duty.name, exc.message)
                if duty.fence == lease.fence:
                    duty.lose()
            else:
                return True
            finally:
                duty.scopes.discard(scope)
        return False

    async def _leave(self, duty: _Duty) -> None:
        """Give a lease back when nothing is left to be done under it here."""
        if duty.loops:
            return
        self._duties.pop(duty.name, None)
        if duty.lease is not None:
            lease, duty.lease = duty.lease, None
            with anyio.move_on_after(RESIGN_SECONDS, shield=True):
                try:
                    await self._leases.resign([lease])
                except HarkenError as exc:
                    _log.info("%s could not be given back: %s", duty.name, exc.message)
