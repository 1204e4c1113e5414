"""`@ai-sdk/mcp` as a subscriber that has events posted to it, over http on this machine and by TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.test_subscribers import HERE, NODE, Heard, running
from tests.loss.conftest import home, no_runtime_folder
from tests.loss.rig import Json
from tests.remote.rig import PublicDaemon
from tests.remote.test_webhooks import public

__all__ = ["home", "no_runtime_folder", "public"]

EVENTS = ["message.received", "message.answered", "question.open", "run.finished"]


def told(heard: Heard, name: str) -> Json:
    """Return the next thing of a kind that is said; a receiver that is not ready yet is asked again."""
    while name not in (said := heard.value()):
        assert said.get("answered") in (200, 204, 503), said
    return said


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_ai_sdk_has_events_posted_to_it(public: PublicDaemon, tmp_path: Path, *, has_tls: bool) -> None:
    """It is verified, its own check takes each signature, it refreshes, and leaves nothing behind."""
    secret = public.token()
    certificate = [str(tmp_path / "server.pem")] if has_tls else []
    command = [NODE, str(HERE / "webhooks.mjs"), f"{public.url}/mcp", *certificate]
    with running(command, HARKEN_TOKEN=secret, NODE_EXTRA_CA_CERTS=str(public.main.authority)) as (_, heard):
        assert told(heard, "listed")["listed"] == EVENTS
        subscribed = told(heard, "subscribed")
        assert subscribed["truncated"] is False
        for step in ("refreshed", "left"):
            sent = public.call("send", text="the build is red", sender="ci-bot", channel="ci")["id"]
            event = told(heard, "event")
            assert event == {"event": sent, "id": f"evt-received-{sent}"}
            said = told(heard, step)
            if step == "refreshed":
                assert said["refreshed"] == subscribed["subscribed"]
    assert public.call("status")["callbacks"] == []
