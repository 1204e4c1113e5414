"""A thousand wrong tokens: what they cost the daemon, and that you and others go on meanwhile."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import psutil
from starlette.types import Message, Receive, Scope, Send

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import compose
from harken.daemon.public.gate import MAX_LOOKS, GateSettings, TokenGate
from harken.daemon.public.listener import MAX_OF_ADDRESS
from harken.inbox.access import Tokens
from harken.store.contract.tokens import Token, TokenStore
from harken.testing import FakeClock
from tests.cost import costs_at_most
from tests.remote.rig import PublicDaemon

THOUSAND: Final = 1_000


class SlowTokens:
    """The tokens of a store that is slow: to find one takes until it is let go."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self.add, self.use, self.list, self.revoke = tokens.add, tokens.use, tokens.list, tokens.revoke
        self.looking = self.most = self.all = 0
        self.go = anyio.Event()

    async def find(self, digest: bytes) -> Token | None:
        """Return a token, later."""
        self.looking, self.all = self.looking + 1, self.all + 1
        self.most = max(self.most, self.looking)
        await self.go.wait()
        self.looking -= 1
        return await self._tokens.find(digest)


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("nobody is let through")


async def _no_body() -> Message:
    raise AssertionError("nothing of a body is read")


async def test_thousand_wrong_tokens_at_once_leave_the_store_to_others(tmp_path: Path) -> None:
    """Each from an address of its own, as of a thousand machines; the store is asked about a few at a time."""
    clock, statuses = FakeClock(), list[int]()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    home = Home(tmp_path / "home")
    ensure(home)
    async with compose(home, Settings(), clock) as daemon:
        slow = SlowTokens(daemon.store.tokens)
        gate = TokenGate(_nothing, Tokens(slow, daemon.policies, clock), clock, GateSettings(hosts=lambda: ()))
        with costs_at_most(300):
            async with anyio.create_task_group() as tasks:
                for number in range(THOUSAND):
                    header = (b"authorization", b"Bearer wrong-%d" % number)
                    address = f"10.{number >> 8}.{number & 255}.1"
                    scope = {"type": "http", "client": (address, 1), "headers": [header]}
                    tasks.start_soon(gate, scope, _no_body, send)
                await anyio.wait_all_tasks_blocked()
                assert (slow.looking, slow.all) == (MAX_LOOKS, MAX_LOOKS)
                slow.go.set()
        assert (slow.most, slow.all, statuses) == (MAX_LOOKS, THOUSAND, [401] * THOUSAND)


def test_flood_from_one_address_costs_little_and_keeps_you_from_nothing(public: PublicDaemon) -> None:
    """It has so many connections, each of which asks once a second; what comes on top is not even taken."""
    process = psutil.Process(public.main.served.pid)

    def spent() -> float:
        used = process.cpu_times()
        return used.user + used.system

    threads = [threading.Thread(target=_guess, args=(public, n)) for n in range(MAX_OF_ADDRESS)]
    with costs_at_most(600, spent):
        for thread in threads:
            thread.start()
        for _ in range(THOUSAND):
            with suppress(OSError):
                public.main.raw().close()
        assert public.call("send", text="still here", sender="Ann")["state"] == "queued"
        for thread in threads:
            thread.join()
    assert len(public.call("list")["messages"]) == 1


def _guess(public: PublicDaemon, number: int) -> None:
    with suppress(OSError):  # there may be no place for it
        assert public.api("list", f"wrong-{number}")[0] in (401, 429)
