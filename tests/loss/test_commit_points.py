"""The daemon dies at every commit of a whole story, just before it and just after it, and the story still ends well."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.loss.rig import (
    DaemonStarter,
    Json,
    Served,
    agent_of,
    check_journal,
    export,
    received,
    stubborn,
    texts,
    until,
)

MAX_COMMITS = 40


def story(daemon: Served) -> str:
    """A message is sent, the agent waits for it, answers it, and the answer leaves; return the message's id."""
    with agent_of(daemon.home) as agent:
        agent.tool("inbox_pull")
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=30)
        sent = stubborn(daemon, "send", text="is the build red?", sender="writer", upstream_id="writer/1")
        (given,) = agent.result(waiting)
        assert (given["message_id"], given["content"]) == (sent["id"], "is the build red?")
        answered = agent.tool("reply", message_id=sent["id"], body="it is green")
        assert answered["message_id"] == sent["id"]
        until(lambda: replies(daemon, sent["id"])[0]["state"] == "sent", "the reply has left")
        assert agent.tool("inbox_pull") == {"unread_remaining": 0, "messages": []}
    return str(sent["id"])


def replies(daemon: Served, message: str) -> list[Json]:
    """The outbox rows of a message."""
    rows: list[Json] = stubborn(daemon, "read", ref=message)["replies"]
    return rows


def dies_at(daemon: Served, side: str, commit: int) -> bool:
    """Play the story with a daemon that dies at a commit and a healthy one after it; return whether it died."""
    daemon.start(side=side, at=commit)
    died, over = threading.Event(), threading.Event()

    def revive() -> None:
        if daemon.is_gone(60) and not over.is_set():
            died.set()
            daemon.start()

    keeper = threading.Thread(target=revive)
    keeper.start()
    try:
        message = story(daemon)
    finally:
        over.set()
        if not died.is_set():
            daemon.kill()
        keeper.join(60)
    daemon.start()
    check(daemon, message)
    return died.is_set()


def check(daemon: Served, message: str) -> None:
    """Assert that everything happened exactly once."""
    assert texts(export(daemon, "inbox")) == ["is the build red?"]
    assert texts(export(daemon, "replies")) == ["it is green"]
    (reply,) = replies(daemon, message)
    assert (reply["body"], reply["state"]) == ("it is green", "sent")
    lines = check_journal(daemon)
    assert len(received(lines)) == 2
    assert [line["kind"] for line in lines if line["kind"] in ("answered", "replied")] == ["answered", "replied"]


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_story_ends_well_whichever_commit_is_the_last(starter: DaemonStarter, home: Path, side: str) -> None:
    """Accepted means committed: there is no commit around which a message or a reply could be lost or doubled."""
    deaths: list[bool] = []
    # The commits after the story (the search index) come by time, so two daemons must outlive it.
    while deaths[-2:] != [False, False]:
        commit = len(deaths) + 1
        assert commit < MAX_COMMITS
        with starter.daemon(home.with_name(f"home-{commit}")) as daemon:
            deaths.append(dies_at(daemon, side, commit))
    assert sum(deaths) > 6
