"""The daemon dies while an agent's call is under way: the call is finished by the next daemon, and done once."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from harken.testing import EdgeClient
from tests.loss.rig import Json, Served, agent_of, export, stubborn, texts, until

OFFER = "INSERT INTO deliveries"
REPLY = "INSERT INTO outbox"


def is_waiting(daemon: Served) -> bool:
    """Whether a session is inside a long poll."""
    return any(session["presence"] == "waiting" for session in stubborn(daemon, "status")["sessions"])


def rows(daemon: Served, message: str) -> list[Json]:
    """The outbox rows of a message."""
    found: list[Json] = stubborn(daemon, "read", ref=message)["replies"]
    return found


def send_into(daemon: Served, text: str) -> None:
    """Send to a daemon that dies when it offers the message to the one who waits."""
    with suppress(ConnectionError):
        daemon.call("send", text=text, upstream_id=text)
    assert daemon.is_gone(20)


def contents(agent: EdgeClient) -> list[str]:
    """Pull, and return what the messages say."""
    return texts(agent.tool("inbox_pull")["messages"])


def test_long_poll_outlives_the_daemon(daemon: Served) -> None:
    """An agent that waits must not have to know that the daemon was replaced under it."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: is_waiting(daemon), "the agent waits")
        daemon.kill()
        daemon.start()
        until(lambda: is_waiting(daemon), "the agent waits again")
        sent = daemon.call("send", text="after the restart")
        (given,) = agent.result(waiting)
        assert (given["message_id"], given.get("repeat", False)) == (sent["id"], False)


@pytest.mark.parametrize("side", ["before", "after"])
def test_reply_is_done_once_when_its_answer_was_cut_off(daemon: Served, side: str) -> None:
    """Whether the reply was stored or not when the daemon died, the edge sends it again and nobody reads it twice."""
    daemon.start()
    sent = daemon.call("send", text="question")
    with agent_of(daemon.home) as agent:
        assert contents(agent) == ["question"]
        daemon.start(side=side, holding=REPLY)
        request = agent.ask_tool("reply", message_id=sent["id"], body="answer")
        assert daemon.is_gone(20)
        daemon.start()
        answer = agent.result(request)
        (row,) = rows(daemon, sent["id"])
        assert (answer["reply_id"], row["body"]) == (row["reply_id"], "answer")
        until(lambda: rows(daemon, sent["id"])[0]["state"] == "sent", "the reply has left")
    assert texts(export(daemon, "replies")) == ["answer"]


def test_message_is_read_from_the_beginning_again_after_a_restart(daemon: Served) -> None:
    """The next daemon does not know which pieces the conversation was given: the last one alone proves nothing."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        message = daemon.call("send", text="".join(f"{number:07} " for number in range(2_000)))["id"]
        piece = agent.tool("inbox_read", message_id=message)
        assert piece["unread_from"] == piece["next_offset"]
        daemon.kill()
        daemon.start()
        while piece["next_offset"] is not None:
            piece = agent.tool("inbox_read", message_id=message, offset=piece["next_offset"])
            assert (piece["unread_from"], "delivery_id" in piece) == (0, False)
        assert agent.tool("inbox_read", message_id=message)["unread_from"] is None


def test_offer_whose_answer_was_cut_off_is_repeated_to_the_same_request(daemon: Served) -> None:
    """The message was offered and the daemon died before it was handed over: the request gets it, with the mark."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        assert contents(agent) == []
        daemon.start(side="after", holding=OFFER)
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: is_waiting(daemon), "the agent waits")
        send_into(daemon, "important")
        daemon.start()
        (given,) = agent.result(waiting)
        assert (given["content"], given.get("repeat")) == ("important", True)


def test_answered_message_is_not_repeated_after_a_kill(daemon: Served) -> None:
    """What the agent was handed before the daemon died is proven by its next call to the new one."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        daemon.call("send", text="once")
        assert contents(agent) == ["once"]
        daemon.kill()
        daemon.start()
        assert contents(agent) == []
        assert contents(agent) == []
    ledger = daemon.call("read", ref="#1")["ledger"]
    assert [entry["state"] for entry in ledger if entry["consumer"] == "loss-agent"] == ["seen"]


def test_message_of_a_cancelled_call_is_offered_again_by_the_next_daemon(daemon: Served) -> None:
    """The daemon died with the message on its way and the host gave the call up: it has reached nobody."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        assert contents(agent) == []
        daemon.start(side="after", holding=OFFER)
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: is_waiting(daemon), "the agent waits")
        send_into(daemon, "important")
        agent.notify("notifications/cancelled", {"requestId": waiting})
        daemon.start()
        assert contents(agent) == ["important"]


def test_message_of_a_call_that_was_given_up_is_offered_again(daemon: Served) -> None:
    """The daemon died with the message on its way and none came back in time: the excuse has carried nothing."""
    daemon.start()
    with agent_of(daemon.home, "--patience", "0.5") as agent:
        assert contents(agent) == []
        daemon.start(side="after", holding=OFFER)
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: is_waiting(daemon), "the agent waits")
        send_into(daemon, "important")
        assert agent.answer(waiting)["error"]["data"]["code"] == "unavailable"
        daemon.start()
        assert until(lambda: contents_if_any(agent), "the message is offered again") == ["important"]


def test_one_kill_never_gives_a_call_up(daemon: Served) -> None:
    """The edge counts how often a request ended a daemon: dialling a daemon that is already dying is no such time."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        for turn in range(15):
            waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
            until(lambda: is_waiting(daemon), "the agent waits")
            daemon.start()
            daemon.call("send", text=f"message {turn}")
            assert [given["content"] for given in agent.result(waiting)] == [f"message {turn}"]


def contents_if_any(agent: EdgeClient) -> list[str]:
    """Pull; an excuse counts as nothing."""
    answer = agent.answer(agent.ask_tool("inbox_pull"))
    return texts(json.loads(answer["result"]["content"][0]["text"])["messages"]) if "result" in answer else []
