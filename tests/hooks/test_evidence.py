"""What later events of a turn prove, and what happens to what they do not.

A message counts as seen only when the model must have read it. Whatever is interrupted, killed or ended before that is
offered again: at once when nobody got it, marked as a repeat when nobody knows.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient
from tests.hooks.rig import (
    CLAUDE,
    CODEX,
    COPILOT,
    GEMINI,
    KINDS,
    OPENCODE,
    QWEN,
    SCRIPT,
    DaemonFixture,
    Kind,
    RawHook,
    hook_process,
)
from tests.loss.rig import texts, until

every_host = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
REPEAT = "Repeat: offered before without proof that it arrived"
NOTICE = "1 message waits in Harken: call inbox_pull to read."


# -- proof ---------------------------------------------------------------------------------------------------------


@every_host
def test_a_tool_proves_what_came_with_the_prompt(rig: DaemonFixture, kind: Kind) -> None:
    """Whoever calls a tool has read the prompt; the ledger says by what it is known."""
    guest = rig.session(kind)
    message = rig.send("please look")
    guest.prompt()
    assert rig.state(message, kind.name) == "offered"
    guest.tool()
    line = rig.ledger(message, kind.name)
    assert (line["state"], line["surface"], line["evidence"]) == ("seen", "hook: prompt", "later step")
    assert line["offers"] == 1


@every_host
def test_the_end_of_a_turn_proves_all_of_it(rig: DaemonFixture, kind: Kind) -> None:
    """What a tool hook carried is proven by the end at the latest, on every host."""
    guest = rig.session(kind)
    guest.prompt()
    message = rig.send("please look")
    assert "please look" in guest.tool()
    assert rig.state(message, kind.name) == "offered"
    guest.stop()
    line = rig.ledger(message, kind.name)
    assert (line["state"], line["surface"], line["evidence"]) == ("seen", "hook: tool", "end of turn")


@every_host
def test_a_second_tool_proves_the_first_only_where_it_is_another_step(rig: DaemonFixture, kind: Kind) -> None:
    """Tools that run side by side end one after the other, before the model has read anything."""
    guest = rig.session(kind)
    guest.prompt()
    message = rig.send("please look")
    guest.tool()
    guest.tool()
    assert rig.state(message, kind.name) == ("seen" if kind.is_once_per_step else "offered")


@pytest.mark.parametrize("kind", [GEMINI, QWEN], ids=lambda kind: kind.name)
def test_what_held_up_the_end_is_proven_when_it_comes_back_as_a_prompt(rig: DaemonFixture, kind: Kind) -> None:
    """These hosts run their prompt hook for our own words: nothing is said twice, and the turn's end proves them."""
    guest = rig.session(kind)
    guest.prompt()
    message = rig.send("one more thing")
    text = guest.stop()
    assert "one more thing" in text
    rig.send("build failed", sender="ci-bot", channel="ci")
    assert guest.prompt(text) == ""
    assert rig.state(message, kind.name) == "offered"
    assert rig.presence(guest) == "busy"
    guest.stop()
    line = rig.ledger(message, kind.name)
    assert (line["state"], line["evidence"]) == ("seen", "end of turn")


def test_what_the_tool_gave_is_proven_by_the_end_of_the_turn(rig: DaemonFixture) -> None:
    """A session with hooks need not call again to prove what its last call brought."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt()
        message = rig.send("please look", sender="ann")
        assert texts(agent.tool("inbox_pull")["messages"]) == ["please look"]
        assert rig.state(message, CLAUDE.name) == "offered"
        guest.stop()
        assert rig.state(message, CLAUDE.name) == "seen"


# -- interruptions -------------------------------------------------------------------------------------------------


@every_host
@pytest.mark.parametrize("moment", [HookMoment.PROMPT, HookMoment.TOOL], ids=lambda moment: moment.value)
def test_after_an_interruption_it_is_offered_again_as_a_repeat(
    rig: DaemonFixture, kind: Kind, moment: HookMoment
) -> None:
    """Esc: no hook says so, the next thing that is heard is a new prompt. Nobody knows whether it was read."""
    guest = rig.session(kind)
    if moment is HookMoment.TOOL:
        guest.prompt()
    message = rig.send("please look")
    first = guest.prompt() if moment is HookMoment.PROMPT else guest.tool()
    again = guest.prompt("something else", turn="t2")
    assert "please look" in first
    assert REPEAT not in first
    assert "please look" in again
    assert REPEAT in again
    line = rig.ledger(message, kind.name)
    assert (line["state"], line["offers"], line["surface"]) == ("offered", 2, "hook: prompt")
    guest.stop()
    assert rig.state(message, kind.name) == "seen"


def test_the_end_of_the_next_turn_does_not_prove_an_interrupted_one(rig: DaemonFixture) -> None:
    """The prompt's hook of the second turn was lost; its end is another turn's."""
    guest = rig.session(CLAUDE)
    message = rig.send("please look")
    guest.prompt(turn="t1")
    guest.turn = "t2"
    guest.stop()
    assert rig.state(message, CLAUDE.name) == "offered"
    assert REPEAT in guest.prompt(turn="t3")


def test_channel_messages_of_an_interrupted_prompt_are_shown_again(rig: DaemonFixture) -> None:
    """The block is left out when nothing changed since the last one that arrived; that one may not have."""
    guest = rig.session(CLAUDE)
    message = rig.send("build 17 failed", sender="ci-bot", channel="ci")
    assert "build 17 failed" in guest.prompt(turn="t1")
    assert "build 17 failed" in guest.prompt(turn="t2")
    guest.stop()
    assert rig.state(message, CLAUDE.name) == "seen"


def test_codex_says_when_a_turn_was_interrupted(rig: DaemonFixture) -> None:
    """Idle at once, nothing proven, and the next prompt has it again."""
    guest = rig.session(CODEX)
    message = rig.send("please look")
    guest.prompt(turn="t1")
    assert guest.run(HookMoment.START).is_silent
    assert (rig.presence(guest), rig.state(message, CODEX.name)) == ("idle", "offered")
    assert REPEAT in guest.prompt(turn="t2")


@pytest.mark.parametrize("kind", [CODEX, OPENCODE], ids=lambda kind: kind.name)
def test_tool_of_an_interrupted_turn_that_comes_late_leaves_the_session_idle(rig: DaemonFixture, kind: Kind) -> None:
    """The tool was stopped and no model waits for its result: a session that seems busy for it would not be woken."""
    guest = rig.session(kind)
    guest.run(HookMoment.PROMPT, prompt="go")
    guest.interrupt()
    message = rig.send("please look", sender="ann", channel="ci")
    assert guest.run(HookMoment.TOOL).is_silent
    assert (rig.presence(guest), rig.state(message, kind.name)) == ("idle", "queued")


@pytest.mark.parametrize("kind", [CODEX, OPENCODE], ids=lambda kind: kind.name)
def test_late_tool_takes_nothing_from_the_turn_that_goes_on(rig: DaemonFixture, kind: Kind) -> None:
    """What its hook would print goes nowhere; the tool of the new turn has it, and proves what came with the prompt."""
    guest = rig.session(kind)
    guest.run(HookMoment.PROMPT, prompt="go")
    guest.interrupt()
    guest.turn = "t2"
    first = rig.send("look here")
    assert "look here" in guest.run(HookMoment.PROMPT, prompt="something else").out
    second = rig.send("and here")
    guest.turn = "t1"
    assert guest.run(HookMoment.TOOL).is_silent
    assert (rig.state(first, kind.name), rig.state(second, kind.name)) == ("offered", "queued")
    guest.turn = "t2"
    assert "and here" in guest.run(HookMoment.TOOL).out
    assert (rig.presence(guest), rig.state(first, kind.name)) == ("busy", "seen")


@pytest.mark.parametrize("kind", [CODEX, OPENCODE], ids=lambda kind: kind.name)
def test_interruption_that_comes_late_leaves_the_next_turn_at_work(rig: DaemonFixture, kind: Kind) -> None:
    """It is of the turn before: a session that works must not be woken, and its own end is still to come."""
    guest = rig.session(kind)
    guest.run(HookMoment.PROMPT, prompt="go")
    guest.turn = "t2"
    guest.run(HookMoment.PROMPT, prompt="something else")
    guest.turn = "t1"
    guest.interrupt()
    assert rig.presence(guest) == "busy"
    guest.turn = "t2"
    guest.interrupt()
    assert rig.presence(guest) == "idle"


@pytest.mark.parametrize(("kind", "has_prompt"), [(CODEX, True), (QWEN, False)], ids=["codex", "qwen-code"])
def test_turn_that_goes_on_after_all_is_heard(rig: DaemonFixture, kind: Kind, *, has_prompt: bool) -> None:
    """A prompt of the very turn shows that the host goes on with it; and Qwen only says that its screen is idle."""
    guest = rig.session(kind)
    guest.prompt()
    guest.interrupt()
    assert rig.presence(guest) == "idle"
    if has_prompt:
        guest.prompt("go on")
    rig.send("please look")
    assert "please look" in guest.tool()
    assert rig.presence(guest) == "busy"


@pytest.mark.parametrize("kind", [CLAUDE, COPILOT, GEMINI, QWEN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "restarted"])
def test_what_a_tool_gave_in_an_interrupted_turn_is_not_proven_by_the_next_one(
    rig: DaemonFixture, kind: Kind, *, is_restarted: bool
) -> None:
    """After Esc the host may drop the result: neither the end of another turn nor a call in it shows that it came."""
    guest = rig.session(kind)
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="ann", channel="ci")
        assert texts(agent.tool("inbox_pull")["messages"]) == ["please look"]
        if is_restarted:
            rig.daemon.kill()
            rig.daemon.start()
            agent.request("tools/list", {})
        again = guest.prompt("something else", turn="t2")
        assert "please look" in again
        assert rig.ledger(message, kind.name)["offers"] == 2
        guest.stop()
        assert rig.state(message, kind.name) == "seen"


def pulled_by_thread(thread: str, agent: EdgeClient) -> list[str]:
    """Pull as Codex does, naming the thread."""
    params = {"name": "inbox_pull", "arguments": {}, "_meta": {"threadId": thread}}
    return texts(json.loads(agent.request("tools/call", params)["result"]["content"][0]["text"])["messages"])


naming_turns = pytest.mark.parametrize("kind", [CLAUDE, CODEX, QWEN], ids=lambda kind: kind.name)


@naming_turns
@pytest.mark.parametrize("moment", [HookMoment.TOOL, HookMoment.STOP], ids=lambda moment: moment.value)
def test_turn_whose_prompt_was_lost_proves_nothing_of_the_one_before(
    rig: DaemonFixture, kind: Kind, moment: HookMoment
) -> None:
    """Its name says that the other one was interrupted, although no hook has told of the prompt between the two."""
    guest = rig.session(kind)
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="ann", channel="ci")
        assert pulled_by_thread(guest.native, agent) == ["please look"]
        guest.turn = "t2"
        guest.run(moment)
        guest.stop()
        line = rig.ledger(message, kind.name)
        # Told again by a hook, it may be proven by the end of the same turn.
        assert (line["state"], line["offers"]) == ("offered", 1) or line["offers"] == 2


@naming_turns
def test_end_of_a_turn_that_comes_late_proves_nothing_of_the_next_one(rig: DaemonFixture, kind: Kind) -> None:
    """The result is of the turn that goes on: its own end proves it."""
    guest = rig.session(kind)
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        guest.prompt("something else", turn="t2")
        message = rig.send("please look", sender="ann", channel="ci")
        assert pulled_by_thread(guest.native, agent) == ["please look"]
        guest.turn = "t1"
        guest.stop()
        assert rig.state(message, kind.name) == "offered"
        guest.turn = "t2"
        guest.stop()
        assert rig.state(message, kind.name) == "seen"


# -- hooks that die ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment", [HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP], ids=lambda moment: moment.value
)
def test_a_hook_that_is_killed_before_it_printed_leaves_the_message_queued(
    rig: DaemonFixture, moment: HookMoment
) -> None:
    """A host that ends a slow hook drops its output: as if nothing had been offered, not a repeat."""
    guest = rig.session(COPILOT)
    guest.prompt()
    message = rig.send("please look")
    with RawHook(guest, rig.daemon.socket) as hook:
        assert b"please look" in hook.ask(moment, prompt="go")
        assert rig.state(message, COPILOT.name) == "offered"
    until(lambda: rig.state(message, COPILOT.name) == "queued", "the offer is taken back", 10)
    rig.wait_bell(COPILOT.name, is_on=True)
    text = guest.tool()
    assert "please look" in text
    assert REPEAT not in text
    assert rig.ledger(message, COPILOT.name)["offers"] == 1


def test_a_hook_that_cannot_print_takes_nothing(rig: DaemonFixture) -> None:
    """Its host has closed the pipe: the script ends well and the message is still there."""
    guest = rig.session(COPILOT)
    message = rig.send("please look")
    reading, writing = os.pipe()
    os.close(reading)
    with hook_process(guest.home, COPILOT.name, "prompt", stdout=writing) as process:
        os.close(writing)
        process.communicate(guest.payload(HookMoment.PROMPT, prompt="go"), 30)
    assert process.returncode == 0
    until(lambda: rig.state(message, COPILOT.name) == "queued", "the offer is taken back", 10)
    assert "please look" in guest.prompt()


def test_channel_messages_that_were_not_printed_are_shown_with_the_next_prompt(rig: DaemonFixture) -> None:
    """Nothing changed since the last block, but nobody has seen that one."""
    guest = rig.session(CLAUDE)
    message = rig.send("build 17 failed", sender="ci-bot", channel="ci")
    with RawHook(guest, rig.daemon.socket) as hook:
        assert b"build 17 failed" in hook.ask(HookMoment.PROMPT, prompt="go")
    until(lambda: rig.state(message, CLAUDE.name) == "queued", "the offer is taken back", 10)
    assert "build 17 failed" in guest.prompt(turn="t2")


def test_a_cut_line_that_was_not_printed_is_shown_with_the_next_prompt(rig: DaemonFixture) -> None:
    """It is not offered, because it is not whole; that does not mean that it was shown."""
    guest = rig.session(CLAUDE)
    rig.send("a long log " + "x" * 2_000, sender="ci-bot", channel="ci")
    with RawHook(guest, rig.daemon.socket) as hook:
        assert b"a long log" in hook.ask(HookMoment.PROMPT, prompt="go")
    until(lambda: "a long log" in guest.prompt(turn="t2"), "the line is shown again", 5)


def test_a_notice_that_was_not_printed_is_said_again(rig: DaemonFixture) -> None:
    """It is said once a turn; this one was not said."""
    guest = rig.session(CODEX)
    guest.prompt()
    rig.send("please look", sender="ann")
    with RawHook(guest, rig.daemon.socket) as hook:
        assert NOTICE.encode() in hook.ask(HookMoment.TOOL)
        # Looked at while it seemed to have been said.
        rig.wait_bell(CODEX.name, is_on=False)
    rig.wait_bell(CODEX.name, is_on=True)
    assert guest.tool() == NOTICE


def test_a_question_that_is_cut_off_changes_nothing(rig: DaemonFixture) -> None:
    """Half a payload, then nothing: no session, no offer."""
    guest = rig.session(COPILOT)
    message = rig.send("please look")
    payload = guest.payload(HookMoment.PROMPT, prompt="go")
    hello = {"harken": 1, "kind": "hook", "host": COPILOT.name, "moment": "prompt", "payload": len(payload)}
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(rig.daemon.socket)
        half.sendall(json.dumps(hello).encode() + b"\n" + payload[:-1])
    assert rig.sessions() == []
    assert "please look" in guest.prompt()
    assert rig.ledger(message, COPILOT.name)["offers"] == 1


# -- idle, busy, over ----------------------------------------------------------------------------------------------


@every_host
def test_status_says_whether_a_session_is_idle_or_busy(rig: DaemonFixture, kind: Kind) -> None:
    """And `send` promises accordingly: between two tools, or later."""
    guest = rig.session(kind)
    guest.prompt()
    assert rig.presence(guest) == "busy"
    assert rig.daemon.call("send", text="while busy")["forecast"]["outlook"] == "boundary"
    guest.tool()
    assert rig.presence(guest) == "busy"
    guest.stop()
    assert rig.presence(guest) == "idle"
    assert rig.daemon.call("send", text="while idle")["forecast"]["outlook"] in ("wake", "prompt")
    assert "while idle" in guest.prompt(turn="t2")
    assert rig.presence(guest) == "busy"


@every_host
def test_an_end_removes_the_session_and_frees_what_it_had(rig: DaemonFixture, kind: Kind) -> None:
    """What it did not prove goes to the next session of that host, as a repeat; its own bell goes too."""
    guest = rig.session(kind)
    message = rig.send("please look")
    guest.prompt()
    assert [each["session"] for each in rig.sessions()] == [guest.key]
    assert guest.run(HookMoment.END).is_silent
    assert rig.sessions() == []
    rig.wait_bell(kind.name, is_on=False)
    until(lambda: not list(rig.bell("x").parent.glob("session-*")), "its own bell is gone", 10)
    again = rig.session(kind, "0b6f-2").prompt()
    assert "please look" in again
    assert REPEAT in again
    assert rig.ledger(message, kind.name)["offers"] == 2


@every_host
def test_an_end_that_is_told_three_times_is_an_end(rig: DaemonFixture, kind: Kind) -> None:
    """Some hosts say it several times; the second must not bring the session back."""
    guest = rig.session(kind)
    guest.prompt()
    for _ in range(3):
        assert guest.run(HookMoment.END).is_silent
        assert rig.sessions() == []


@pytest.mark.parametrize("kind", [CLAUDE, GEMINI, QWEN], ids=lambda kind: kind.name)
def test_a_cleared_conversation_goes_on_as_the_same_session(rig: DaemonFixture, kind: Kind) -> None:
    """/clear: the host's id changes, the person and the process do not; what was unproven is offered again."""
    guest = rig.session(kind, "old")
    with guest.agent() as agent:
        message = rig.send("please look")
        guest.prompt()
        (before,) = rig.sessions()
        guest.run(HookMoment.END, reason="clear")
        assert rig.presence(guest) == "idle"
        guest.native = "new"
        guest.run(HookMoment.START)
        text = guest.prompt(turn="t9")
        assert "please look" in text
        assert REPEAT in text
        (after,) = rig.sessions()
        assert after["session"] == before["session"]
        assert agent.tool("inbox_pull") == {"unread_remaining": 0, "messages": []}
        guest.stop()
        assert rig.state(message, kind.name) == "seen"


def test_a_session_that_only_hooks_told_of_goes_with_its_process(rig: DaemonFixture) -> None:
    """A host that was killed says nothing: without a connection, its process is all that tells."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        guest = rig.session(CLAUDE, pid=process.pid)
        message = rig.send("please look")
        guest.prompt()
        assert rig.presence(guest) == "busy"
        process.kill()
        process.wait(10)
    until(lambda: not rig.sessions(), "the session is gone", 20)
    rig.wait_bell(CLAUDE.name, is_on=False)
    assert REPEAT in rig.session(CLAUDE, "another").prompt()
    assert rig.ledger(message, CLAUDE.name)["offers"] == 2


def test_an_agent_in_the_shell_of_another_is_its_own_session(rig: DaemonFixture, tmp_path: Path) -> None:
    """The inner one's hooks descend from the outer one; its end is not the outer's, nor is its mail."""
    outer = rig.session(GEMINI, "outer")
    outer.prompt()
    inner = rig.session(GEMINI, "inner")
    rig.send("for the outer one, which was here first")
    (tmp_path / "end.json").write_bytes(inner.payload(HookMoment.END))
    (tmp_path / "tool.json").write_bytes(inner.payload(HookMoment.TOOL))
    command = shlex.join([sys.executable, "-I", "-S", str(SCRIPT), "--home", str(inner.home), GEMINI.name])
    # A shell between the two is the inner host: another process than the one that runs the outer's hooks.
    program = f"{command} tool < {tmp_path}/tool.json > {tmp_path}/out; {command} end < {tmp_path}/end.json; exit 0"
    subprocess.run(["/bin/sh", "-c", program], check=True, timeout=30)
    assert [each["session"] for each in rig.sessions()] == [outer.key]


# -- bells ---------------------------------------------------------------------------------------------------------


@every_host
def test_the_bell_rings_while_something_waits_and_is_empty_afterwards(rig: DaemonFixture, kind: Kind) -> None:
    """Every tool call of the agent tests this file: a bell that stays on costs it a process each time."""
    guest = rig.session(kind)
    guest.prompt()
    rig.wait_bell(kind.name, is_on=False)
    rig.send("please look")
    assert rig.is_ringing(kind.name)
    guest.tool()
    guest.stop()
    rig.wait_bell(kind.name, is_on=False)
    rig.send("build failed", sender="ci-bot", channel="ci")
    rig.wait_bell(kind.name, is_on=False)


def test_the_bell_rings_while_something_is_unproven(rig: DaemonFixture) -> None:
    """The next tool call is the proof: it must be asked about though nothing waits."""
    guest = rig.session(COPILOT)
    rig.send("please look")
    guest.prompt()
    rig.wait_bell(COPILOT.name, is_on=True)
    guest.tool()
    rig.wait_bell(COPILOT.name, is_on=False)


def test_mail_for_a_session_that_has_ended_rings_for_nobody(rig: DaemonFixture) -> None:
    """The after-tool hook of an agent is free of charge whatever lies in the inbox."""
    guest = rig.session(COPILOT)
    guest.prompt()
    guest.run(HookMoment.END)
    rig.send("please look")
    rig.wait_bell(COPILOT.name, is_on=False)


def test_two_threads_of_one_codex_are_told_apart_by_their_calls(rig: DaemonFixture) -> None:
    """One process, a connection per thread, none of which says whose it is until it calls."""
    first, second = rig.session(CODEX, "thread-1"), rig.session(CODEX, "thread-2")
    with first.agent() as one, second.agent() as two:
        first.prompt()
        second.prompt()
        rig.send("please look", sender="ann")
        assert pulled_by_thread(second.native, two) == ["please look"]
        assert pulled_by_thread(first.native, one) == []
        sessions = {each["session"]: each["surfaces"] for each in rig.sessions()}
        assert set(sessions) == {"codex:thread-1", "codex:thread-2"}


@pytest.mark.parametrize("ends", ["end", "interruption"])
def test_call_of_one_thread_proves_nothing_of_another_on_the_same_connection(rig: DaemonFixture, ends: str) -> None:
    """Each thread has read its own results: the end of its turn proves them, and an interruption lets go of them."""
    first, second = rig.session(CODEX, "thread-1", turn="t1"), rig.session(CODEX, "thread-2", turn="t2")
    with first.agent() as agent:
        first.prompt()
        second.prompt()
        message = rig.send("please look", sender="ann")
        assert pulled_by_thread(first.native, agent) == ["please look"]
        assert pulled_by_thread(second.native, agent) == []
        second.stop()
        assert rig.state(message, CODEX.name) == "offered"
        if ends == "end":
            first.stop()
            assert rig.state(message, CODEX.name) == "seen"
        else:
            first.interrupt()
            first.prompt("something else", turn="t3")
            assert pulled_by_thread(first.native, agent) == ["please look"]
            assert rig.ledger(message, CODEX.name)["offers"] == 2
