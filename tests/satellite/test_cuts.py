"""The link is cut in the middle of everything: what is not stored is not accepted, and what is stored is not lost."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from harken.testing import CallFailed, EdgeClient
from tests.loss.rig import CALL_HELLO, WAIT_SECONDS, Json, Wire, agent_of, texts, until
from tests.satellite.rig import MainDaemon, Pair, RawLink, hook_lines


@contextmanager
def asked(pair: Pair, moment: str, payload: bytes, *, pid: int = 0) -> Iterator[tuple[socket.socket, str]]:
    """A hook of Claude Code that got its answer and has not said that it printed it; empty when there is nothing."""
    hello = {"harken": 1, "kind": "hook", "host": "claude-code", "moment": moment, "payload": len(payload)}
    hello |= {"ppid": pid, "cwd": "/w", "env": {"CLAUDE_PID": str(pid)}}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(WAIT_SECONDS)
        sock.connect(pair.satellite.socket)
        sock.sendall(json.dumps(hello).encode() + b"\n" + payload)
        with sock.makefile("rb") as file:
            head = file.readline()
            length = int(head.split()[1]) if head.endswith(b"\n") else 0
            text = file.read(length)
            # Of an answer that is cut off, a hook prints nothing.
            yield sock, text.decode() if len(text) == length else ""


def hook(pair: Pair, moment: str, payload: bytes, *, pid: int = 0) -> str:
    """Run a hook to its end; return what it prints."""
    with asked(pair, moment, payload, pid=pid) as (sock, text):
        if text:
            sock.sendall(b"+")
        return text


def stubborn_on(pair: Pair, method: str, **params: object) -> Json:
    """Call on the satellite until there is an answer, through links that are cut."""

    def attempt() -> Json:
        try:
            return pair.satellite.call(method, **params)
        except CallFailed as exc:
            if exc.error["code"] != "unavailable":
                raise
            return None
        except ConnectionError:
            return None

    return until(attempt, f"{method} is answered", 2 * WAIT_SECONDS)


def test_call_is_told_at_once_that_the_main_daemon_is_away(pair: Pair) -> None:
    """Nothing is accepted that is not stored."""
    pair.main.served.stop()
    until(lambda: "the link was cut" in (pair.satellite.home / "logs" / "daemon.log").read_text())
    with pytest.raises(CallFailed) as caught:
        pair.satellite.call("send", text="to nobody")
    assert caught.value.error["code"] == "unavailable"
    assert "out of reach" in caught.value.error["message"]
    assert caught.value.error["hint"].startswith("Nothing was stored.")
    pair.main.start()
    until(pair.is_linked, "the satellite is linked again")
    assert pair.main.served.call("list")["messages"] == []


def test_hook_without_a_link_is_silent(pair: Pair) -> None:
    """A host is never held up because another machine is away; its bell does not ring either."""
    pair.main.served.kill()
    until(lambda: "the link was cut" in (pair.satellite.home / "logs" / "daemon.log").read_text())
    assert hook(pair, "prompt", b'{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hi"}') == ""
    bell = pair.satellite.home / "run" / "bells" / "claude-code"
    assert not bell.exists() or bell.stat().st_size == 0


def test_hook_does_not_wait_for_a_network_that_is_silent(pair: Pair) -> None:
    """It is noticed late that nothing comes any more: until then no host is held up by each of its hooks."""
    prompt = b'{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"hi"}'
    hook(pair, "prompt", prompt)
    sent = pair.main.served.call("send", text="when it is back")
    for to_server in (True, False):
        pair.way.hold_up(to_server=to_server)
    for _ in range(10):
        assert hook(pair, "prompt", prompt) == ""
    pair.way.let_go()
    assert "when it is back" in until(lambda: hook(pair, "prompt", prompt), "it is told when the network is back")
    ledger = pair.main.served.call("read", ref=sent["id"])["ledger"]
    assert [each["state"] for each in ledger if each["consumer"] == "claude-code"] == ["offered"]


def test_call_that_is_repeated_after_a_cut_happens_once(pair: Pair) -> None:
    """The answer was cut off, not the message: the key says that it is the same."""
    with Wire(pair.satellite.socket, CALL_HELLO) as wire:
        wire.say({"id": 1, "method": "send", "params": {"text": "once", "upstream_id": "k-1"}})
        until(lambda: pair.main.served.call("list")["messages"], "it is stored")
        pair.way.drop()
    stubborn_on(pair, "send", text="once", upstream_id="k-1")
    assert texts(pair.main.served.call("list")["messages"]) == ["once"]


def test_agent_goes_on_after_a_cut_and_loses_nothing(pair: Pair) -> None:
    """Its edge connects again, and what it was given without proof comes once more, with the mark."""
    pair.main.served.call("send", text="first")
    with agent_of(pair.satellite.home) as agent:
        assert texts(agent.tool("inbox_pull")["messages"]) == ["first"]
        pair.way.drop()
        pair.main.served.call("send", text="second")
        until(pair.is_linked, "the satellite is linked again")
        found = pulled(agent)
    assert texts(found) in (["first", "second"], ["second"])
    repeats = [each["repeat"] for each in found if each["content_text_sanitized"] == "first"]
    assert repeats in ([], [True])


def pulled(agent: EdgeClient) -> list[dict[str, object]]:
    """What an agent gets, as soon as its edge is back."""

    def pull() -> list[dict[str, object]]:
        answer = agent.request("tools/call", {"name": "inbox_pull", "arguments": {}})
        result = answer.get("result")
        if result is None or result.get("isError"):
            return []
        found: list[dict[str, object]] = json.loads(result["content"][0]["text"])["messages"]
        return found

    found: list[dict[str, object]] = until(pull, "the agent gets its messages")
    return found


def test_agent_is_back_soon_after_a_long_cut(pair: Pair) -> None:
    """Its calls fail while the main daemon is away, and its edge asks again often enough that it does not matter."""
    with agent_of(pair.satellite.home) as agent:
        assert agent.tool("inbox_pull")["messages"] == []
        pair.way.refuse()
        pair.way.drop()
        pair.main.served.call("send", text="meanwhile")

        def is_told() -> bool:
            error = agent.request("tools/call", {"name": "inbox_pull", "arguments": {}}).get("error")
            return error is not None and "out of reach" in error["message"]

        until(is_told, "the agent is told")
        pair.way.admit()
        until(pair.is_linked, "the satellite is linked again")
        assert texts(pulled(agent)) == ["meanwhile"]


def test_text_that_was_printed_as_the_link_broke_comes_again_with_the_mark(pair: Pair) -> None:
    """Whether the hook printed it, nobody knows: it is neither called seen nor given as if it were new."""
    pid = os.getpid()
    start = json.dumps({"session_id": "s-1", "hook_event_name": "SessionStart", "source": "startup"}).encode()
    hook(pair, "start", start, pid=pid)
    sent = pair.main.served.call("send", text="mind the gap")
    prompt = json.dumps({"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "prompt": "go on"}).encode()
    with asked(pair, "prompt", prompt, pid=pid) as (sock, text):
        assert "mind the gap" in text
        pair.way.drop()
        assert sock.recv(1) == b""
    until(pair.is_linked, "the satellite is linked again")
    ledger = pair.main.served.call("read", ref=sent["id"])["ledger"]
    assert [each["state"] for each in ledger if each["consumer"] == "claude-code"] in (["offered"], ["queued"])
    again = until(lambda: hook(pair, "prompt", prompt, pid=pid), "it is told again")
    assert "mind the gap" in again
    assert "offered before" in again


@pytest.mark.parametrize("side", ["satellite", "main"])
def test_daemon_that_is_killed_loses_nothing(pair: Pair, side: str) -> None:
    """Either daemon may go at any time."""
    pair.main.served.call("send", text="stays")
    with agent_of(pair.satellite.home) as agent:
        if side == "main":
            pair.main.served.kill()
            pair.main.start()
        else:
            pair.satellite.kill()
            pair.satellite.start()
        until(pair.is_linked, "the satellite is linked again")
        assert texts(pulled(agent)) == ["stays"]


@pytest.mark.parametrize("to_server", [True, False])
def test_link_that_is_half_closed_is_made_anew(pair: Pair, *, to_server: bool) -> None:
    """A network that forgets one direction must not leave a satellite that thinks that it is linked."""
    pair.way.half_close(to_server=to_server)
    stubborn_on(pair, "send", text="after it", upstream_id="k-2")
    assert texts(pair.main.served.call("list")["messages"]) == ["after it"]


def test_revoked_token_shuts_the_satellite_out_and_says_so(pair: Pair) -> None:
    """Whoever asks there is told the reason."""
    pair.main.served.call("token_revoke", name="buildbox")

    def told() -> str:
        try:
            pair.satellite.call("list")
        except CallFailed as exc:
            return str(exc.error["message"])
        except ConnectionError:
            return ""
        return ""

    until(lambda: "was revoked" in told(), "the satellite says why")
    assert pair.main.served.call("status")["sessions"] == []
    (machine,) = pair.main.served.call("machines")["machines"]
    assert machine["state"] == "revoked"


def test_many_connections_and_large_answers_share_one_link(pair: Pair) -> None:
    """No stream takes the place of others, and none is mixed up with another."""
    text = "x" * 60_000
    for number in range(20):
        pair.main.served.call("send", text=f"{number:02} {text}")
    wires = [Wire(pair.satellite.socket, CALL_HELLO) for _ in range(30)]
    try:
        for wire in wires:
            wire.say({"id": 1, "method": "list", "params": {"limit": 20}})
        with closing(Wire(pair.satellite.socket, CALL_HELLO).sock):
            assert pair.satellite.call("stats")
        answers = {wire.line() for wire in wires}
    finally:
        for wire in wires:
            wire.sock.close()
    (answer,) = answers
    assert len(json.loads(answer)["result"]["messages"]) == 20


def test_client_that_does_not_read_holds_up_nobody(pair: Pair) -> None:
    """Its own stream waits; the link goes on."""
    for _ in range(40):
        pair.main.served.call("send", text="y" * 60_000)
    with Wire(pair.satellite.socket, CALL_HELLO) as slow:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for number in range(10):
            slow.say({"id": number, "method": "list", "params": {"limit": 40}})
        assert pair.satellite.call("send", text="meanwhile")["state"] == "queued"
        slow.sock.settimeout(WAIT_SECONDS)
        assert len(json.loads(slow.line())["result"]["messages"]) > 30


def test_hook_with_a_large_payload_gets_its_answer(pair: Pair) -> None:
    """It fills the window of its stream while its answer is waited for."""
    pid = os.getpid()
    start = {"session_id": "s-1", "hook_event_name": "SessionStart", "source": "startup"}
    hook(pair, "start", json.dumps(start).encode(), pid=pid)
    pair.main.served.call("send", text="beside much else")
    prompt = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "prompt": "x" * 900_000}
    assert "beside much else" in hook(pair, "prompt", json.dumps(prompt).encode(), pid=pid)


def test_revoked_token_ends_a_link_that_is_not_read(main: MainDaemon) -> None:
    """A machine that takes nothing cannot keep its link by that, nor its sessions."""
    token = main.start().token("buildbox")
    for number in range(20):
        main.served.call("send", text=f"{number:02} {'x' * 60_000}")
    with main.knock(token) as socket:
        link = RawLink(socket)
        link.open(hook_lines("start", {"session_id": "s-1", "hook_event_name": "SessionStart"}, 4711), pids=[4711])
        until(lambda: main.served.call("status")["sessions"], "its session is known")
        for _ in range(60):
            link.open(CALL_HELLO + b'{"id": 1, "method": "list", "params": {"limit": 20}}\n')
        main.served.call("token_revoke", name="buildbox")
        until(lambda: main.served.call("machines")["machines"][0]["state"] == "revoked", "it is gone")
        until(lambda: not main.served.call("status")["sessions"], "its session is gone", pause_seconds=0.1)


def test_token_that_ends_takes_its_link_along(main: MainDaemon) -> None:
    """Not when its use is noted the next time: then."""
    token = main.start().served.call("token_new", name="buildbox", kind="machine", seconds=3)["secret"]
    with main.knock(token) as socket:
        assert RawLink(socket).end()[0] == 4001


def test_satellite_stops_while_the_network_takes_nothing(pair: Pair) -> None:
    """What it was sending is not waited for."""
    pair.way.hold_up(to_server=True)
    wires = [Wire(pair.satellite.socket, CALL_HELLO) for _ in range(12)]
    try:
        for wire in wires:
            wire.sock.settimeout(1)
            with suppress(TimeoutError):
                wire.say({"id": 1, "method": "send", "params": {"text": "x" * 1_000_000}})
        pair.satellite.stop()
    finally:
        for wire in wires:
            wire.sock.close()
        pair.way.let_go()
