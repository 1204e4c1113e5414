"""Real hosts on a satellite: reached busy, idle and after the link was cut, and the ledger of the main daemon is true.

The host, its hooks, its edge and the satellite's daemon are in one home, the store is in another, and the link between
the two goes through a way that the test cuts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from harken.testing.daemon import DaemonProcess
from harken.trial.exchange import ModelAnswer
from tests.hosts.play import MACHINE, ObservedHost, installed, let_pass
from tests.hosts.situations import (
    Situation,
    at_the_prompt,
    busy_with_a_short_tool,
    closed_and_started_at_once,
    headless_with_a_message_before,
    host_killed_before_the_proof,
    idle,
    read_by_the_tool,
    three_sessions_at_once,
)
from tests.hosts.stage import Stage
from tests.loss.rig import until
from tests.postgres.proxy import BadWay
from tests.satellite.rig import free_port, let_machines_in

HOSTS: Final = ("claude-code", "codex")
CUT_SECONDS: Final = 60.0
LINK_SECONDS: Final = 60.0
SITUATIONS: Final[dict[str, Situation]] = {
    each.__name__: each
    for each in (
        busy_with_a_short_tool,
        at_the_prompt,
        idle,
        closed_and_started_at_once,
        headless_with_a_message_before,
        host_killed_before_the_proof,
        read_by_the_tool,
        three_sessions_at_once,
    )
}


@dataclass(slots=True)
class JoinedHost:
    """A host on a satellite, the main daemon, and the way between the two."""

    host: ObservedHost
    main: DaemonProcess
    way: BadWay
    is_cut: bool = False

    def is_linked(self) -> bool:
        """Whether the main daemon says that the satellite is here."""
        return any(each["state"] == "here" for each in self.main.call("machines")["machines"])

    def cut(self) -> None:
        """Cut the link, and keep it cut."""
        self.way.refuse()
        self.way.drop()
        until(lambda: not self.is_linked(), "the satellite is away", LINK_SECONDS)
        self.host.observer.note("the link was cut")

    def mend(self) -> None:
        """Let the satellite come back, and wait for it."""
        self.way.admit()
        until(self.is_linked, "the satellite is back", LINK_SECONDS)
        self.host.observer.note("the link is back")


@pytest.fixture(scope="module", params=HOSTS)
def joined(request: pytest.FixtureRequest) -> Iterator[JoinedHost]:
    """Each host on a satellite, all its situations before the next one's."""
    with ExitStack() as opened:
        parts: list[tuple[DaemonProcess, BadWay]] = []

        def join(stage: Stage) -> None:
            home, port = stage.folder / "main", free_port()
            authority = let_machines_in(home, port, stage.folder)
            main = DaemonProcess(home).start()
            opened.callback(main.stop)
            until(lambda: main.call("status")["daemon"]["public_url"], "other machines are let in")
            way = opened.enter_context(BadWay(("127.0.0.1", port)))
            token = main.call("token_new", name=MACHINE, kind="machine")["secret"]
            stage.harken("join", f"https://localhost:{way.port}", "--token", token, "--authority", str(authority))
            parts.append((main, way))

        host = opened.enter_context(installed(str(request.param), join))
        yield JoinedHost(host, *parts[0])


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_what_is_called_seen_on_a_satellite_was_on_the_wire(joined: JoinedHost, situation: Situation) -> None:
    """The same truth as on the main machine."""
    joined.host.begin()
    situation(joined.host)
    joined.host.conclude()


def test_idle_session_is_woken_after_the_link_was_cut_for_a_minute(joined: JoinedHost) -> None:
    """What was sent meanwhile on the main machine waits, and wakes it when the link is back."""
    host = joined.host
    observer = host.begin()
    with host.session() as session:
        host.request(session.prompt(ModelAnswer.shell("true")))
        host.until_idle()
        joined.cut()
        message = observer.send_at(joined.main, "while the link is cut")
        assert host.nothing_for(CUT_SECONDS, message)
        joined.mend()
        arrived = host.stage.model.wait_for(lambda asked: asked.count(message.mark) > 0, LINK_SECONDS)
        observer.expect_in(message, arrived, "the turn that it starts")
        host.until_idle()
    host.conclude()


def test_busy_session_goes_on_while_the_link_is_cut(joined: JoinedHost) -> None:
    """Its hooks are silent, its turn ends as always; what was sent comes with the next prompt, or wakes it."""
    host = joined.host
    observer = host.begin()
    with host.stage.gate() as gate, host.session() as session:
        prompt = session.prompt(ModelAnswer.shell(gate.command), ModelAnswer.shell("true"))
        gate.wait(LINK_SECONDS)
        joined.cut()
        message = observer.send_at(joined.main, "while it is busy and the link is cut")
        gate.open()
        until(lambda: len(host.requests(prompt)) >= 3, "the turn ends without a link", LINK_SECONDS)
        assert observer.seen_at(message) is None
        joined.mend()
        begin = time.monotonic()
        later = session.prompt(ModelAnswer.shell("true"))
        host.request(later)
        host.stage.model.wait_for(lambda asked: asked.count(message.mark) > 0, LINK_SECONDS)
        let_pass(host, 1.0 - (time.monotonic() - begin))
        host.until_idle()
    host.conclude()
