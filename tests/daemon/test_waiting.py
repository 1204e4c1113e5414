"""From outside to the list of what waits, through a real daemon: a source names a question, and trust decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.testing.agent import EdgeClient
from harken.testing.daemon import edge_command
from tests.daemon.test_webhooks import ask, port_of
from tests.loss.rig import DaemonStarter
from tests.sources.webhook.rig import SECRET, slack

ENTRY = '[sources.chat]\nkind = "webhook"\npreset = "slack"\nsecret = "file:chat.secret"\ntrust = "{trust}"\n'
CALL = {"type": "app_mention", "user": "U1", "channel": "C1", "text": "when is the release?"}
TALK = {"type": "message", "channel_type": "channel", "user": "U1", "channel": "C1", "text": "lunch"}


def _post(port: int, name: str, event: Mapping[str, str]) -> int:
    said = {"type": "event_callback", "event_id": name, "event": {"ts": "1767600000.1", **event}}
    body = json.dumps(said).encode()
    headers = {"content-type": "application/json", **slack(body, at=datetime.now(UTC))}
    return ask(port, "POST", "/hooks/chat", headers, body).status


@pytest.mark.parametrize("trust", ["known", "unknown"])
def test_what_cannot_be_answered_is_no_question(starter: DaemonStarter, home: Path, trust: str) -> None:
    """A webhook only tells: agents would be reminded to answer it, and then a phone, and nothing could end that."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(ENTRY.format(trust=trust))
    (home / "chat.secret").touch(mode=0o600)
    (home / "chat.secret").write_text(SECRET)
    with starter.daemon(home) as daemon:
        daemon.start()
        port = port_of(daemon)
        assert [_post(port, "Ev1", TALK), _post(port, "Ev2", CALL), _post(port, "Ev2", CALL)] == [202, 202, 200]
        found = daemon.call("questions")
    assert (found["questions"], found["count"]) == ([], 0)


def test_agent_sees_how_the_sources_are_doing(starter: DaemonStarter, home: Path) -> None:
    """An agent that is asked why nothing arrives must be able to say what a person has to do."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(ENTRY.format(trust="known"))
    with starter.daemon(home) as daemon:
        daemon.start()
        with EdgeClient(edge_command(home)) as agent:
            [source] = agent.tool("inbound_queue_stats")["sources"]
    assert (source["name"], source["kind"], source["state"]) == ("chat", "webhook", "needs person")
    assert "chat.secret" in source["reason"]
