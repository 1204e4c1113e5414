"""MCP Events over an agent's connection: what can be subscribed to, by poll and by push, and what is refused."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import pytest

from harken.surfaces.mcp.events import EXTENSION, MAX_POLLERS, MAX_STREAMS, SUBSCRIPTION_ID
from harken.testing import DaemonProcess, EdgeClient
from tests.mcp.rig import SOON, Connect, Json, fresh_name, send, until
from tests.mcp.test_eras import meta

ACTIVE, EVENT = "notifications/events/active", "notifications/events/event"
JSONSCHEMA: Final[Any] = import_module("jsonschema")  # it comes without types
NAMES = ["message.received", "message.answered", "question.open", "run.finished", "session.waiting"]


def poll(agent: EdgeClient, name: str = "message.received", **params: object) -> Json:
    """Return the whole answer to a poll."""
    return agent.request("events/poll", {"name": name, **params})


def now(agent: EdgeClient, name: str = "message.received", **arguments: object) -> str:
    """Return the cursor of this moment."""
    result = poll(agent, name, arguments=arguments)["result"]
    assert (result["events"], result["truncated"], result["hasMore"]) == ([], False, False)
    return str(result["cursor"])


def told(answer: Json) -> list[str]:
    """Return the messages that a poll tells about."""
    return [each["data"]["message_id"] for each in answer["result"]["events"]]


def begin(agent: EdgeClient, **params: object) -> tuple[int, Json]:
    """Open a stream; return its request and what it began with."""
    request = agent.ask("events/stream", {"name": "message.received", **params})
    return request, agent.notification(ACTIVE, SOON)["params"]


def test_the_capability_stands_where_either_dialect_looks_for_it(daemon: DaemonProcess) -> None:
    """One deployed client looks only at the top, the proposal says only among the extensions."""
    old, new = (EdgeClient(daemon.edge_command(), name=fresh_name()) for _ in range(2))
    try:
        for said in (old.handshake(), new.request("server/discover", {"_meta": meta(fresh_name())})["result"]):
            assert said["capabilities"]["events"] == {"listChanged": False}
            assert said["capabilities"]["extensions"][EXTENSION] == {"listChanged": False}
    finally:
        assert (old.close(), new.close()) == (0, 0)


def test_the_list_says_what_each_event_is_and_how_to_filter_it(connect: Connect) -> None:
    """A client builds the filter and reads the data from these two schemas alone."""
    agent = connect()
    result = agent.request("events/list", {})["result"]
    assert result["resultType"] == "complete"
    assert [each["name"] for each in result["events"]] == NAMES
    for each in result["events"]:
        assert each["delivery"] == ["poll", "push"]
        for schema in (each["inputSchema"], each["payloadSchema"]):
            JSONSCHEMA.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
    received = result["events"][0]["inputSchema"]
    assert sorted(received["properties"]) == ["channel", "mailbox", "sender", "text", "trust"]
    assert received["additionalProperties"] is False
    assert agent.request("events/list", {"cursor": "x"})["error"]["code"] == -32602


def test_a_poll_begins_now_and_tells_then_what_follows_its_cursor(daemon: DaemonProcess, connect: Connect) -> None:
    """Nobody who comes new wants the past; nobody who comes again may miss anything, or be told twice."""
    agent = connect()
    send(daemon, "before")
    cursor = now(agent)
    first, second = send(daemon, "one"), send(daemon, "two", channel="alerts/critical")

    answer = poll(agent, cursor=cursor)
    assert told(answer) == [first, second]
    result = answer["result"]
    assert (result["resultType"], result["truncated"], result["hasMore"]) == ("complete", False, False)
    one = result["events"][0]
    assert (one["eventId"], one["name"], one["timestamp"][-1]) == (f"evt-received-{first}", "message.received", "Z")
    schema = agent.request("events/list", {})["result"]["events"][0]["payloadSchema"]
    JSONSCHEMA.validate(one["data"], schema)
    assert {**one["data"], "received_at": ""} == {
        "message_id": first, "mailbox": "inbox", "source": "local", "channel": "ci", "from": "ci-bot",
        "sender_id": "ci-bot", "trust": "known", "attention": one["data"]["attention"], "priority": "normal",
        "kind": "message", "characters": 3, "received_at": "", "question": False,
    }  # fmt: skip
    assert "one" not in str(one["data"].values())
    assert told(poll(agent, cursor=result["cursor"])) == []
    assert told(poll(agent, cursor=cursor)) == [first, second]


def test_a_poll_tells_no_more_at_once_than_it_is_asked_for(daemon: DaemonProcess, connect: Connect) -> None:
    """The rest follows from the cursor of each page, in order, without one left out."""
    agent = connect()
    cursor = now(agent)
    sent = [send(daemon, f"number {number}") for number in range(5)]
    seen: list[str] = []
    while len(seen) < len(sent):
        answer = poll(agent, cursor=cursor, maxEvents=2)
        assert len(told(answer)) <= 2
        assert answer["result"]["hasMore"] or len(seen) + len(told(answer)) == len(sent)
        seen += told(answer)
        cursor = answer["result"]["cursor"]
    assert seen == sent


def test_a_long_poll_returns_when_something_happens(daemon: DaemonProcess, connect: Connect) -> None:
    """A client that may wait need not come every few seconds."""
    agent = connect()
    request = agent.ask("events/poll", {"name": "message.received", "cursor": now(agent), "timeoutMs": 40_000})
    sent = send(daemon)
    assert told(agent.answer(request, SOON)) == [sent]
    begun = agent.ask("events/poll", {"name": "message.received", "timeoutMs": 40_000})
    assert told(agent.answer(begun, SOON)) == []
    over = agent.request("events/poll", {"name": "message.received", "cursor": now(agent), "timeoutMs": 50})
    assert told(over) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"channel": "ci"}, ["a"]),
        ({"channel": "alerts/*"}, ["b"]),
        ({"channel": "*"}, ["a", "b", "c"]),
        ({"sender": "ci-bot"}, ["a", "b"]),
        ({"sender": "nobody"}, []),
        ({"trust": "owner"}, ["c"]),
        ({"text": "RED"}, ["a", "b"]),
        ({"mailbox": "inbox", "text": "red", "channel": "alerts/*"}, ["b"]),
    ],
)
def test_a_filter_leaves_only_what_fits(
    daemon: DaemonProcess, connect: Connect, arguments: dict[str, str], expected: list[str]
) -> None:
    """A subscriber that is woken for what it did not ask for costs a turn each time."""
    agent = connect()
    cursor = now(agent, **arguments)
    sent = {
        send(daemon, "the build is red"): "a",
        send(daemon, "the light is Red", channel="alerts/critical"): "b",
        send(daemon, "lunch", sender=None, channel="talk"): "c",
    }
    assert [sent[each] for each in told(poll(agent, cursor=cursor, arguments=arguments))] == expected


@pytest.mark.parametrize(
    ("method", "params", "code", "data"),
    [
        ("events/poll", {"name": "message.lost"}, -32011, {"kind": "event"}),
        ("events/stream", {"name": "message.lost"}, -32011, {"kind": "event"}),
        ("events/poll", {}, -32602, None),
        ("events/poll", {"name": 7}, -32602, None),
        ("events/poll", {"name": "message.received", "cursor": 7}, -32602, None),
        ("events/poll", {"name": "message.received", "cursor": "c" * 600}, -32602, None),
        ("events/poll", {"name": "message.received", "maxEvents": 0}, -32602, None),
        ("events/poll", {"name": "message.received", "maxAgeMs": -1}, -32602, None),
        ("events/poll", {"name": "message.received", "arguments": []}, -32602, None),
        ("events/stream", {"name": "message.received", "arguments": {"colour": "red"}}, -32602, None),
        ("events/poll", {"name": "message.received", "arguments": {"trust": "mine"}}, -32602, None),
        ("events/poll", {"name": "message.received", "arguments": {"text": "x" * 201}}, -32602, None),
        ("events/subscribe", {"name": "message.received"}, -32014, {"feature": "delivery"}),
    ],
)
def test_what_cannot_be_had_is_refused_with_a_reason(
    connect: Connect, method: str, params: dict[str, object], code: int, data: object
) -> None:
    """A client must be able to tell its own mistake from what it may not have, and say it to a person."""
    error = connect().request(method, params)["error"]
    assert (error["code"], error.get("data")) == (code, data)
    assert error["message"].endswith(".")


def test_the_refused_filter_is_named(connect: Connect) -> None:
    """A model that made a filter up mends it only if it is told which one, and what there is."""
    error = poll(connect(), arguments={"colour": "red"})["error"]["message"]
    assert error == (
        "A filter of message.received is wrong: Object contains unknown field `colour`. "
        "Its filters: mailbox, channel, sender, trust, text."
    )


def test_no_mailbox_of_others_can_be_followed(daemon: DaemonProcess, connect: Connect) -> None:
    """Events must not tell what the tools would not show."""
    agent = connect()
    error = poll(agent, arguments={"mailbox": "replies"})["error"]
    assert (error["code"], error["data"]["reason"]) == (-32012, "You do not read 'replies'; you read inbox.")
    daemon.call("task_new", title="Elsewhere", dir=str(daemon.home), id=(task := fresh_name("t")))
    cursor = now(agent)
    daemon.call("send", text="for the task alone", to=f"task:{task}", sender="ci-bot")
    mine = send(daemon)
    assert told(poll(agent, cursor=cursor)) == [mine]


def test_a_client_of_the_proposal_gets_its_error_numbers(daemon: DaemonProcess) -> None:
    """The two dialects number the same errors differently; one that declares the extension speaks the newer one."""
    name = fresh_name()
    agent = EdgeClient(daemon.edge_command(), name=name)
    try:
        said = meta(name)
        agent.request("server/discover", {"_meta": said})
        said["io.modelcontextprotocol/clientCapabilities"] = {"extensions": {EXTENSION: {}}}
        assert poll(agent, "nothing", _meta=said)["error"]["code"] == -32023
        assert poll(agent, "nothing", _meta=meta(name))["error"]["code"] == -32011
        assert poll(agent, _meta=said)["result"]["resultType"] == "complete"
    finally:
        assert agent.close() == 0


@pytest.mark.parametrize("cursor", ["", "nonsense", "AAAA", "MSB4IDEgMQ", "💥"])
def test_a_cursor_that_was_never_given_out_begins_now_and_says_so(
    daemon: DaemonProcess, connect: Connect, cursor: str
) -> None:
    """It is no error: the client may hold that of a store that was replaced, and must know that it missed some."""
    agent = connect()
    send(daemon)
    result = poll(agent, cursor=cursor)["result"]
    assert (result["events"], result["truncated"]) == ([], True)
    sent = send(daemon)
    assert told(poll(agent, cursor=result["cursor"])) == [sent]


def test_what_is_older_than_asked_for_is_left_out_and_says_so(daemon: DaemonProcess, connect: Connect) -> None:
    """Somebody who was away for a week may want only the last hour, and must know that there was more."""
    agent = connect()
    cursor = now(agent)
    sent = send(daemon)
    assert told(poll(agent, cursor=cursor, maxAgeMs=600_000)) == [sent]
    result = poll(agent, cursor=cursor, maxAgeMs=0)["result"]
    assert (result["events"], result["truncated"]) == ([], True)


def test_a_stream_tells_as_it_happens_until_it_is_cancelled(daemon: DaemonProcess, connect: Connect) -> None:
    """Push is the way for which nobody has to ask again."""
    agent = connect()
    request, active = begin(agent, arguments={"channel": "ci"})
    assert active == {"cursor": active["cursor"], "truncated": False, "_meta": {SUBSCRIPTION_ID: request}}
    first = send(daemon)
    send(daemon, channel="talk")
    event = agent.notification(EVENT, SOON)["params"]
    assert (event["data"]["message_id"], event["_meta"]) == (first, {SUBSCRIPTION_ID: request})
    second = send(daemon)
    event = agent.notification(EVENT, SOON)["params"]
    assert event["data"]["message_id"] == second

    agent.notify("notifications/cancelled", {"requestId": request})
    agent.request("tools/list", {})
    send(daemon)
    agent.request("tools/list", {})
    assert [each for each in agent.notifications if each["method"] == EVENT] == []

    third = send(daemon)
    begin(agent, cursor=event["cursor"], arguments={"channel": "ci"})
    resumed = [agent.notification(EVENT, SOON)["params"]["data"]["message_id"] for _ in range(2)]
    assert resumed[1] == third


def test_two_streams_of_one_connection_are_told_apart(daemon: DaemonProcess, connect: Connect) -> None:
    """Each has its own filter and its own cursor; a client finds the stream by the id of its request, also 0."""
    agent = connect()
    agent.send({"jsonrpc": "2.0", "id": 0, "method": "events/stream", "params": {"name": "message.received"}})
    assert agent.notification(ACTIVE, SOON)["params"]["_meta"] == {SUBSCRIPTION_ID: 0}
    other, _ = begin(agent, arguments={"text": "red"})
    send(daemon, "all is green")
    send(daemon, "all is red")
    heard = [agent.notification(EVENT, SOON)["params"] for _ in range(3)]
    by_stream = {key: [each for each in heard if each["_meta"][SUBSCRIPTION_ID] == key] for key in (0, other)}
    assert (len(by_stream[0]), len(by_stream[other])) == (2, 1)
    assert by_stream[other][0]["eventId"] == by_stream[0][1]["eventId"]


def test_a_connection_has_so_many_streams_and_gets_room_when_one_ends(connect: Connect) -> None:
    """One client that opens streams without end must not cost the others."""
    agent = connect()
    requests = [begin(agent)[0] for _ in range(MAX_STREAMS)]
    error = agent.request("events/stream", {"name": "message.received"})["error"]
    assert (error["code"], error["data"]) == (-32013, {"limit": "subscriptions", "max": MAX_STREAMS})
    agent.notify("notifications/cancelled", {"requestId": requests[0]})
    agent.request("tools/list", {})
    begin(agent)


def test_nobody_is_told_of_what_they_said_themselves(daemon: DaemonProcess, connect: Connect) -> None:
    """An agent that is woken by its own message answers itself for ever."""
    agent, other = connect(), connect()
    cursors = now(agent), now(other), now(agent, "message.answered"), now(other, "message.answered")
    first = send(daemon)
    agent.tool("inbox_pull")
    agent.tool("reply", message_id=first, body="on it")
    assert told(poll(agent, "message.answered", cursor=cursors[2])) == []
    answer = poll(other, "message.answered", cursor=cursors[3])
    assert told(answer) == [first]
    assert told(poll(agent, cursor=cursors[0])) == told(poll(other, cursor=cursors[1])) == [first]


def test_names_of_outsiders_are_one_short_line(daemon: DaemonProcess, connect: Connect) -> None:
    """A name is the one part of a stranger's message that is told without being asked for."""
    agent = connect()
    cursor = now(agent)
    send(daemon, sender="x" * 120, channel="ci")
    data: dict[str, Any] = poll(agent, cursor=cursor)["result"]["events"][0]["data"]
    assert data["from"] == "x" * 100 + "…"


def test_the_methods_answer_in_the_newer_era_too(daemon: DaemonProcess) -> None:
    """The proposal is written for it."""
    name = fresh_name()
    agent = EdgeClient(daemon.edge_command(), name=name)
    try:
        agent.request("server/discover", {"_meta": meta(name)})
        request, active = begin(agent, _meta=meta(name))
        assert (active["truncated"], active["_meta"]) == (False, {SUBSCRIPTION_ID: request})
        sent = send(daemon)
        assert agent.notification(EVENT, SOON)["params"]["data"]["message_id"] == sent
    finally:
        assert agent.close() == 0


def subscriptions(daemon: DaemonProcess, name: str) -> list[tuple[str, int]]:
    """Return what people are shown of a client's subscriptions."""
    listed = daemon.call("status")["daemon"]["subscriptions"]
    return [(each["sentence"], each["told"]) for each in listed if each["consumer"] == name]


def test_people_see_who_is_subscribed_to_what(daemon: DaemonProcess, connect: Connect) -> None:
    """Somebody who wonders why an agent knows something finds it here, and nothing of those who are gone."""
    name = fresh_name()
    agent = connect(name)
    assert subscriptions(daemon, name) == []
    cursor = now(agent, trust="known")
    request, _ = begin(agent, arguments={"channel": "ci"})
    send(daemon)
    agent.notification(EVENT, SOON)
    assert told(poll(agent, cursor=cursor, arguments={"trust": "known"})) != []
    until(lambda: len(subscriptions(daemon, name)) == 2)
    assert subscriptions(daemon, name) == [
        ("message.received by poll (trust known)", 1),
        ("message.received by push (channel ci)", 1),
    ]
    agent.notify("notifications/cancelled", {"requestId": request})
    until(lambda: len(subscriptions(daemon, name)) == 1)
    for number in range(MAX_POLLERS + 5):
        now(agent, text=f"{number}")
    assert len(subscriptions(daemon, name)) == MAX_POLLERS
    agent.close()
    until(lambda: subscriptions(daemon, name) == [])


def test_only_so_many_polls_of_a_connection_wait(daemon: DaemonProcess, connect: Connect) -> None:
    """Each of them looks at every message: a thousand would cost seconds for each."""
    agent = connect()
    cursor = now(agent)
    wanted = {"name": "message.received", "cursor": cursor, "timeoutMs": 40_000}
    waiting = [agent.ask("events/poll", wanted) for _ in range(MAX_STREAMS)]
    assert told(agent.answer(agent.ask("events/poll", wanted), SOON)) == []
    sent = send(daemon)
    assert [told(agent.answer(each, SOON)) for each in waiting] == [[sent]] * MAX_STREAMS


def test_stream_ends_when_its_mailbox_may_not_be_read_any_more(daemon: DaemonProcess) -> None:
    """The agent is told why, rather than left to wait for what will never come."""
    (folder := daemon.home / fresh_name("folder")).mkdir()
    daemon.call("task_new", title="Short", dir=str(folder), id=(task := fresh_name("t")))
    with EdgeClient([*daemon.edge_command(), "--task", task], name=fresh_name()) as agent:
        request, _ = begin(agent, arguments={"mailbox": f"task:{task}"})
        sent = daemon.call("send", text="for the task", to=f"task:{task}", sender="ci-bot")["id"]
        assert agent.notification(EVENT, SOON)["params"]["data"]["message_id"] == sent
        daemon.call("task_done", task=task)
        daemon.call("task_rm", task=task)
        daemon.call("send", text="for all", sender="ci-bot")
        error = agent.notification("notifications/events/terminated", SOON)["params"]["error"]
        assert error["code"] == -32012
        assert agent.answer(request, SOON)["result"]["resultType"] == "complete"
