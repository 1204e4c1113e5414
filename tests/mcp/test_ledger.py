"""What is offered, what is proven by what, and who gets a message next: the ledger as an agent moves it."""

from __future__ import annotations

from harken.sessions.turns import MAX_CARRIERS
from harken.testing import DaemonProcess
from tests.mcp.rig import (
    SOON,
    Connect,
    entry,
    fresh_name,
    ids,
    send,
    sessions,
    standing,
    until,
    until_waiting,
)


def test_each_of_two_consumers_gets_a_message(daemon: DaemonProcess, connect: Connect) -> None:
    """Nobody reads for somebody else: cursors are per consumer."""
    first, second = connect(), connect()
    message = send(daemon)

    assert ids(first.tool("inbox_pull")["messages"]) == [message]
    assert ids(second.tool("inbox_pull")["messages"]) == [message]


def test_a_consumer_gets_a_message_once(daemon: DaemonProcess, connect: Connect) -> None:
    """Through whatever tool it came first: a second time would make the agent do it twice."""
    agent = connect()
    message = send(daemon)

    assert ids(agent.tool("inbox_pull")["messages"]) == [message]
    assert agent.tool("inbox_pull") == {"unread_remaining": 0, "messages": []}
    assert agent.tool("wait_for_inbound_message", timeout_s=0) == []


def test_a_result_is_only_an_offer_until_a_later_call_proves_it(daemon: DaemonProcess, connect: Connect) -> None:
    """The host may drop a result; only a model that read it goes on to call something."""
    agent = connect(name := fresh_name())
    message = send(daemon)

    (given,) = agent.tool("inbox_pull")["messages"]
    offered = entry(daemon, message, name)
    assert (offered["state"], offered["surface"], offered["evidence"]) == ("offered", "inbox_pull", "")
    assert offered["delivery_id"] == given["delivery_id"]

    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_a_call_beside_the_one_that_carried_it_proves_nothing(daemon: DaemonProcess, connect: Connect) -> None:
    """Parallel calls belong to one step of the model: none of them was made after reading the other's result."""
    agent = connect(name := fresh_name())
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)
    beside = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    agent.request("ping", {})  # lines are read in order: the second wait is known by now

    messages = [send(daemon, "one"), send(daemon, "two")]
    given = ids(agent.result(waiting, SOON)) + ids(agent.result(beside, SOON))
    assert sorted(given) == sorted(messages)
    assert [standing(daemon, message, name) for message in messages] == [("offered", "")] * 2

    agent.tool("inbound_queue_stats")
    assert [standing(daemon, message, name) for message in messages] == [("seen", "later call")] * 2


def test_only_tool_calls_are_evidence(daemon: DaemonProcess, connect: Connect) -> None:
    """Hosts ping and list on their own, without the model having read anything."""
    agent = connect(name := fresh_name())
    message = send(daemon)
    agent.tool("inbox_pull")

    agent.request("ping", {})
    agent.request("tools/list", {})
    agent.request("resources/read", {"uri": "harken://inbox"})

    assert standing(daemon, message, name) == ("offered", "")


def test_a_refused_call_is_evidence_too(daemon: DaemonProcess, connect: Connect) -> None:
    """A model that gets an argument wrong has still read what it was given before."""
    agent = connect(name := fresh_name())
    message = send(daemon)
    agent.tool("inbox_pull")

    agent.tool("inbox_pull", limit="many")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_a_malformed_call_does_not_use_up_the_evidence(daemon: DaemonProcess, connect: Connect) -> None:
    """It is refused before any tool runs; the next call proves what it would have proven."""
    agent = connect(name := fresh_name())
    message = send(daemon)
    agent.tool("inbox_pull")

    assert "error" in agent.request("tools/call", {"name": "inbox_pull", "arguments": [1]})
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_calls_that_fail_do_not_wear_out_the_evidence(daemon: DaemonProcess, connect: Connect) -> None:
    """An error answers its call; if it stayed open, a thousand of them would end all proof on the connection."""
    agent = connect(name := fresh_name())
    for _ in range(MAX_CARRIERS + 1):
        assert agent.request("tools/call", {"name": 7})["error"]["code"] == -32602
    message = send(daemon)

    agent.tool("inbox_pull")
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_cancelling_a_call_that_was_answered_changes_nothing(daemon: DaemonProcess, connect: Connect) -> None:
    """One host, opencode, does that after every call: taken seriously it would give each message twice."""
    agent = connect(name := fresh_name())
    message = send(daemon)
    call = agent.ask_tool("inbox_pull")
    assert ids(agent.result(call)["messages"]) == [message]

    agent.notify("notifications/cancelled", {"requestId": call, "reason": "done"})
    assert agent.tool("inbox_pull")["messages"] == []
    assert standing(daemon, message, name) == ("seen", "later call")


def test_answer_that_crosses_its_cancellation_is_not_taken_for_read(daemon: DaemonProcess, connect: Connect) -> None:
    """A host that cancels only what is open ignores the answer to a call that it has given up."""
    agent = connect("gemini-cli-mcp-client-stage")
    message = send(daemon)
    call = agent.ask_tool("inbox_pull")
    assert ids(agent.result(call)["messages"]) == [message]

    agent.notify("notifications/cancelled", {"requestId": call, "reason": "Esc"})
    (again,) = agent.tool("inbox_pull")["messages"]
    assert (again["id"], again["repeat"]) == (message, True)


def test_what_a_closed_session_did_not_prove_is_offered_again_as_a_repeat(
    daemon: DaemonProcess, connect: Connect
) -> None:
    """The model may have read it or not: the next session gets it, and is told that it may be known."""
    name = fresh_name()
    first = connect(name)
    message = send(daemon)
    (before,) = first.tool("inbox_pull")["messages"]
    assert first.close() == 0
    until(lambda: not sessions(daemon, name))

    second = connect(name, is_drained=False)
    (again,) = second.tool("inbox_pull")["messages"]
    assert (again["id"], again["delivery_id"], again["repeat"]) == (message, before["delivery_id"], True)
    assert again["repeat_note"] == "offered before without proof that it arrived; you may have seen it"
    assert "repeat" not in before


def test_a_waiting_session_gets_what_another_left_unproven_when_that_one_closes(
    daemon: DaemonProcess, connect: Connect
) -> None:
    """Nothing arrives at that moment, so nothing would wake the wait unless the release does."""
    name = fresh_name()
    first, second = connect(name), connect(name)
    message = send(daemon)
    assert ids(first.tool("inbox_pull")["messages"]) == [message]

    waiting = second.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)
    first.close()

    (given,) = second.result(waiting, SOON)
    assert (given["message_id"], given["repeat"]) == (message, True)


def test_a_message_is_given_to_one_session_of_a_consumer(daemon: DaemonProcess, connect: Connect) -> None:
    """Two windows of one host are one reader: both doing the same work is worse than one of them waiting."""
    name = fresh_name()
    first, second = connect(name), connect(name)
    message = send(daemon)

    assert ids(first.tool("inbox_pull")["messages"]) == [message]
    assert second.tool("inbox_pull") == {"unread_remaining": 0, "messages": []}
    assert len(sessions(daemon, name)) == 2


def test_of_two_waiting_sessions_the_last_active_gets_the_message(daemon: DaemonProcess, connect: Connect) -> None:
    """The person sits in front of the one they used last, whichever connected or waited first."""
    name = fresh_name()
    first, second = connect(name), connect(name)
    late = second.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name, 1)
    early = first.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name, 2)
    second.tool("inbound_queue_stats")

    message = send(daemon)
    assert ids(second.result(late, SOON)) == [message]
    following = send(daemon, "the next one")
    assert ids(first.result(early, SOON)) == [following]


def test_looking_without_taking_changes_nothing(daemon: DaemonProcess, connect: Connect) -> None:
    """`mark_consumed=false` is for agents that only want to know: nothing is leased, nothing can be proven."""
    agent = connect(name := fresh_name())
    message = send(daemon)

    for _ in range(2):
        (given,) = agent.tool("inbox_pull", mark_consumed=False)["messages"]
        assert given["id"] == message
        assert not {"delivery_id", "repeat"} & given.keys()
    assert standing(daemon, message, name) == ("queued", "")


def test_an_acknowledgement_is_proof(daemon: DaemonProcess, connect: Connect) -> None:
    """By message id or delivery id, and also of what was only looked at."""
    agent = connect(name := fresh_name())
    by_message, by_delivery = send(daemon, "one"), send(daemon, "two")

    assert agent.tool("ack", ids=[by_message]) == {"acknowledged": [by_message]}
    (given,) = agent.tool("inbox_pull")["messages"]
    assert given["id"] == by_delivery
    # This call is also a later one; that proof comes first and says the same.
    assert agent.tool("ack", ids=[given["delivery_id"]]) == {"acknowledged": []}
    assert standing(daemon, by_message, name) == ("seen", "ack")
    assert standing(daemon, by_delivery, name) == ("seen", "later call")


def test_a_reply_is_proof_and_reaches_the_person(daemon: DaemonProcess, connect: Connect) -> None:
    """Whoever answers has read; and the answer is where people look for it."""
    agent = connect(name := fresh_name())
    message = send(daemon)

    reply = agent.tool("reply", message_id=message, body="on it")
    assert (reply["message_id"], reply["state"]) == (message, "queued")
    assert standing(daemon, message, name)[0] == "answered"

    def arrived() -> bool:
        return any(each["refers_to"] == message for each in daemon.call("list", mailbox="replies")["messages"])

    until(arrived)
    (answer,) = [each for each in daemon.call("list", mailbox="replies")["messages"] if each["refers_to"] == message]
    assert (answer["content_text_sanitized"], answer["sender_id"]) == ("on it", f"agent:{name}")
    # That it has left is noted after it has arrived.
    until(lambda: daemon.call("read", ref=message)["replies"][0]["state"] == "sent")


def test_a_message_that_was_seen_can_still_be_answered(daemon: DaemonProcess, connect: Connect) -> None:
    """Most answers come later than the proof."""
    agent = connect(name := fresh_name())
    message = send(daemon)
    agent.tool("inbox_pull")
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")
    agent.tool("reply", message_id=message, body="done")
    assert standing(daemon, message, name)[0] == "answered"


def test_the_other_consumer_is_told_who_answered(daemon: DaemonProcess, connect: Connect) -> None:
    """Two agents that both answer a person are worse than none."""
    name = fresh_name("quick")
    quick, slow = connect(name), connect()
    message = send(daemon)
    quick.tool("reply", message_id=message, body="on it")

    (given,) = slow.tool("inbox_pull")["messages"]
    assert (given["id"], given["answered_by"]) == (message, name)


def test_a_reply_to_an_unknown_message_is_a_clear_error(connect: Connect) -> None:
    """The agent has to know that nobody will read it."""
    agent = connect()
    result = agent.request("tools/call", {"name": "reply", "arguments": {"message_id": "m-none", "body": "on it"}})
    assert result["result"]["isError"] is True
    assert agent.tool("reply", message_id="m-none", body="on it") == {
        "code": "not_found",
        "message": "There is no message 'm-none'.",
        "hint": "Find its id with inbox_search; inbox_pull gives what waits.",
    }
