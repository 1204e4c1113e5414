"""One Harken that has the events of another posted to it: both ends of a webhook are ours."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.loss.rig import DaemonStarter, until
from tests.remote.receiver import Receiver
from tests.remote.rig import PublicDaemon
from tests.remote.test_posted_events import ProposalServer, Refusal, serving
from tests.remote.test_webhooks import EVENT, Subscriber
from tests.satellite.rig import MainDaemon, free_port, let_machines_in

Json: TypeAlias = Any


@dataclass
class PostingOnly(ProposalServer):
    """Passes requests on to a daemon, but for those of push and poll; it is how a server without these looks."""

    agent: Subscriber | None = None
    refused: list[str] = field(default_factory=list)

    def answer(self, method: str, params: Json) -> Json:
        """Return what the daemon answers."""
        if method in ("events/stream", "events/poll"):
            self.refused.append(method)
            raise Refusal(-32014)
        if self.agent is None or method == "initialize":
            raise Refusal(-32601)
        given = {name: value for name, value in params.items() if name != "_meta"}
        answer = self.agent.ask(method, **given)
        if "error" in answer:
            raise Refusal(answer["error"]["code"])
        result = answer["result"]
        if method == "events/list":
            result["events"] = [each for each in result["events"] if each["name"] == EVENT]
        return result


@dataclass
class Chain:
    """The daemon that posts, and the one that is posted to."""

    first: PublicDaemon
    second: PublicDaemon
    between: PostingOnly

    def arrived(self) -> list[str]:
        """Return the messages of the first that the second was told about."""
        found = self.second.call("list", channel=EVENT)["messages"]
        return [message for each in found for message in self.sent if message in each["content_text_sanitized"]]

    sent: list[str] = field(default_factory=list)

    def send(self, text: str) -> None:
        """Send a message to the first."""
        self.sent.append(self.first.call("send", text=text, sender="ci-bot", channel="ci")["id"])


@pytest.fixture
def chain(starter: DaemonStarter, home: Path, tmp_path: Path) -> Iterator[Chain]:
    """Two daemons, each with a public listener of its own."""
    folders = [tmp_path / "first", tmp_path / "second"]
    homes, ports = [home / "a", home / "b"], [free_port(), free_port()]
    for folder in (*folders, home):
        folder.mkdir(exist_ok=True, mode=0o700)
    authorities = [
        let_machines_in(each, port, folder) for each, port, folder in zip(homes, ports, folders, strict=True)
    ]
    with serving(PostingOnly(ssl.create_default_context())) as between:
        with (homes[0] / "config.toml").open("a") as config:
            config.write("callbacks_to_loopback = true\n")
        with (homes[1] / "config.toml").open("a") as config:
            config.write(f'[sources.first]\nkind = "mcp"\nurl = "http://127.0.0.1:{between.port}/mcp"\n')
        trusting = {"SSL_CERT_FILE": str(authorities[1])}
        with starter.daemon(homes[0], trusting) as one, starter.daemon(homes[1]) as two:
            first = PublicDaemon(MainDaemon(one, authorities[0], ports[0]).start())
            between.agent = Subscriber(first, Receiver())
            yield Chain(first, PublicDaemon(MainDaemon(two, authorities[1], ports[1]).start()), between)


def test_events_of_one_daemon_are_posted_to_another_whichever_was_killed(chain: Chain) -> None:
    """Neither push nor poll: it is verified, told, and told what it missed; each event once."""
    until(lambda: chain.first.call("status")["callbacks"], "the second has subscribed")
    assert chain.between.refused == ["events/stream", "events/poll"]
    (shown,) = chain.first.call("status")["callbacks"]
    assert shown["to"] == chain.second.url
    chain.send("one")
    until(lambda: chain.arrived() == chain.sent, "the first event arrived")
    chain.second.main.served.kill()
    chain.send("two")
    chain.first.main.served.kill()
    chain.first.main.start()
    chain.send("three")
    chain.second.main.start()
    until(lambda: set(chain.arrived()) == {*chain.sent}, "all events arrived")
    assert len(chain.arrived()) == len(chain.sent)
    assert len(chain.first.call("status")["callbacks"]) == 1
