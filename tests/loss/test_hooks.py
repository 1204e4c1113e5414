"""The daemon dies around what hooks are given: between offer and print, between ring and commit, in mid-turn.

A hook has no memory and no second try: whatever it did not print must come with a later one, and what it may have
printed comes again with the mark of a repeat.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient
from tests.hooks.rig import (
    CLAUDE,
    COPILOT,
    GEMINI,
    KINDS,
    OPENCODE,
    QWEN,
    Conversation,
    DaemonFixture,
    Kind,
    RawHook,
    run_hook,
)
from tests.loss.rig import Chance, DaemonStarter, Json, Served, check_journal, export, stubborn, texts, until

MESSAGE = "INSERT INTO mailboxes"
OFFER = "INSERT INTO deliveries"
REPEAT = "Repeat: offered before without proof that it arrived"
NUMBER = 12
KILLS = 8
every_host = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture
def rig(daemon: Served) -> DaemonFixture:
    """A daemon that runs, with hosts beside it."""
    daemon.start()
    return DaemonFixture(daemon)


@contextmanager
def held_up(pid: int) -> Iterator[None]:
    """Let a process stand still, as one that the system gives no time."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pulled(guest: Conversation, agent: EdgeClient) -> list[Json]:
    """Pull as Codex does, whose calls name the conversation; the others need no name."""
    params = {"name": "inbox_pull", "arguments": {}, "_meta": {"threadId": guest.native}}
    return list(json.loads(agent.request("tools/call", params)["result"]["content"][0]["text"])["messages"])


def send_into(daemon: Served, text: str) -> None:
    """Send to a daemon that dies of it."""
    with suppress(ConnectionError):
        daemon.call("send", text=text, upstream_id=text)
    assert daemon.is_gone(20)


def test_what_was_offered_to_a_hook_that_did_not_print_is_given_after_the_restart(
    daemon: Served, rig: DaemonFixture
) -> None:
    """The daemon cannot know any more whether it was printed: the next prompt has it, marked."""
    guest = rig.session(COPILOT)
    message = rig.send("please look")
    with RawHook(guest, daemon.socket) as hook:
        assert b"please look" in hook.ask(HookMoment.PROMPT, prompt="go")
        daemon.kill()
    daemon.start()
    text = guest.prompt()
    assert "please look" in text
    assert REPEAT in text
    guest.stop()
    assert rig.state(message, COPILOT.name) == "seen"


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_daemon_that_dies_while_it_offers_prints_nothing_and_loses_nothing(
    daemon: Served, rig: DaemonFixture, side: str
) -> None:
    """The hook ends well; the message comes with the next one, as a repeat only if the offer was written."""
    guest = rig.session(COPILOT)
    guest.prompt()
    message = rig.send("please look")
    daemon.start(side=side, holding=OFFER)
    assert guest.run(HookMoment.PROMPT, prompt="go").is_silent
    assert daemon.is_gone(20)
    daemon.start()
    text = guest.prompt()
    assert "please look" in text
    assert (REPEAT in text) == (side == "after")
    guest.stop()
    assert rig.state(message, COPILOT.name) == "seen"


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_bell_rings_before_the_message_is_there(daemon: Served, side: str) -> None:
    """Rung after the commit, a bell would be silent in this moment, and a busy agent would not ask."""
    daemon.start(side=side, holding=MESSAGE)
    rig = DaemonFixture(daemon)
    guest = rig.session(COPILOT)
    guest.prompt()
    rig.wait_bell(COPILOT.name, is_on=False)
    send_into(daemon, "please look")
    assert rig.is_ringing(COPILOT.name)
    assert guest.run(HookMoment.TOOL).is_silent
    daemon.start()
    assert texts(export(daemon, "inbox")) == ([] if side == "before" else ["please look"])
    stubborn(daemon, "send", text="please look", upstream_id="please look")
    text = guest.prompt(turn="t2")
    assert text.count("please look") == 1
    assert REPEAT not in text
    assert texts(export(daemon, "inbox")) == ["please look"]
    guest.stop()
    rig.wait_bell(COPILOT.name, is_on=False)


def test_the_bell_of_a_daemon_that_is_gone_costs_a_question_and_no_more(daemon: Served, rig: DaemonFixture) -> None:
    """It rings on while nobody is there to silence it; the next daemon, which knows the session, sees to it again."""
    guest = rig.session(COPILOT)
    guest.prompt()
    rig.send("please look")
    rig.wait_bell(COPILOT.name, is_on=True)
    daemon.kill()
    assert rig.is_ringing(COPILOT.name)
    assert guest.run(HookMoment.TOOL).is_silent
    daemon.start()
    rig.wait_bell(COPILOT.name, is_on=True)
    assert "please look" in guest.tool()
    guest.stop()
    rig.wait_bell(COPILOT.name, is_on=False)


@pytest.mark.parametrize("has_edge", [True, False], ids=["connected", "hooks only"])
def test_another_turn_after_a_restart_offers_again_as_a_repeat(
    daemon: Served, rig: DaemonFixture, *, has_edge: bool
) -> None:
    """What became of the turn that had it, nobody heard: unproven is unproven, and the mark says so."""
    guest = rig.session(CLAUDE)
    message = rig.send("please look")
    with ExitStack() as stack:
        agent = stack.enter_context(guest.agent()) if has_edge else None
        assert "please look" in guest.prompt(turn="t1")
        daemon.kill()
        daemon.start()
        if agent is not None:
            agent.tool("inbound_queue_stats")
        text = guest.prompt("and now?", turn="t2")
        assert "please look" in text
        assert REPEAT in text
        guest.stop()
        assert rig.state(message, CLAUDE.name) == "seen"


@every_host
def test_a_turn_that_goes_on_after_a_restart_proves_what_it_carried_where_it_has_a_name(
    daemon: Served, rig: DaemonFixture, kind: Kind
) -> None:
    """The same turn has not been interrupted. Of one without a name nobody can say whether it is the same."""
    guest = rig.session(kind)
    guest.prompt(turn="t1")
    message = rig.send("please look")
    assert "please look" in guest.tool()
    (record,) = (daemon.home / "run" / "sessions").glob("*.json")
    until(lambda: b'"is_printed":true' in record.read_bytes(), "the daemon knows that it was printed", 10)
    daemon.kill()
    daemon.start()
    guest.stop()
    assert rig.state(message, kind.name) == ("seen" if kind.names_turns else "offered")
    again = guest.prompt("and now?", turn="t2")
    assert (REPEAT in again) is not kind.names_turns


def test_what_a_hook_had_not_printed_when_the_daemon_was_killed_is_proven_by_nothing(
    daemon: Served, rig: DaemonFixture
) -> None:
    """The answer was on its way: the same turn goes on, and its model may never have had the text."""
    guest = rig.session(CLAUDE)
    guest.prompt(turn="t1")
    message = rig.send("please look")
    with RawHook(guest, daemon.socket) as hook:
        assert b"please look" in hook.ask(HookMoment.TOOL)
        daemon.kill()
    daemon.start()
    again = guest.tool()
    assert rig.state(message, CLAUDE.name) == "offered"
    assert REPEAT in again


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "not answered"])
@pytest.mark.parametrize("kind", [CLAUDE, COPILOT, GEMINI, QWEN], ids=lambda kind: kind.name)
def test_record_of_each_host_that_keeps_one_proves_after_a_restart(
    daemon: Served, rig: DaemonFixture, tmp_path: Path, kind: Kind, *, is_answered: bool
) -> None:
    """No event is left that could: what the model read before, only the host itself has written down."""
    guest, record = rig.session(kind), tmp_path / "record.jsonl"
    message = rig.send("please look")
    asked = guest.prompt(turn="t1")
    (known,) = (daemon.home / "run" / "sessions").glob("*.json")
    until(lambda: b'"is_printed":true' in known.read_bytes(), "the daemon knows that it was printed", 10)
    daemon.kill()
    daemon.start()

    def stop(turn: str) -> None:
        guest.turn = turn
        payload = json.loads(guest.payload(HookMoment.STOP))
        name = "transcriptPath" if kind is COPILOT else "transcript_path"
        run_hook(guest.home, kind.name, "stop", json.dumps({**payload, name: str(record)}).encode(), env=guest.env)

    user, model = {COPILOT: ("user.message", "assistant.message"), GEMINI: ("user", "gemini")}.get(
        kind, ("user", "assistant")
    )
    lines = [
        {"type": user, "id": "1", "uuid": "1", "parentUuid": None, "text": asked},
        {"type": model, "id": "2", "uuid": "2", "parentUuid": "1", "text": "I see"},
    ]
    record.write_text("".join(f"{json.dumps(line)}\n" for line in (lines if is_answered else lines[:1])))
    stop("t2")
    assert rig.state(message, kind.name) == ("seen" if is_answered else "offered")
    assert ("please look" in guest.prompt("and now?", turn="t3")) is not is_answered


@every_host
def test_a_session_that_works_is_known_as_such_before_anybody_speaks(
    daemon: Served, rig: DaemonFixture, kind: Kind
) -> None:
    """A forecast that says "none is connected" while the agent works is false; what is not known yet is said so."""
    guest = rig.session(kind)
    guest.prompt()
    for end in (daemon.kill, daemon.stop):
        end()
        daemon.start()
        said = daemon.call("send", text="please look")["forecast"]
        assert (said["outlook"], "not known yet" in said["sentence"]) == ("uncertain", True)
        assert [(each["session"], each["presence"]) for each in rig.sessions()] == [(guest.key, "connected")]
        assert "please look" in guest.tool()
        assert daemon.call("send", text="and this")["forecast"]["outlook"] == "boundary"
        guest.tool()


def test_a_session_whose_process_is_gone_is_not_known_again(daemon: Served, rig: DaemonFixture) -> None:
    """What it was given goes to the next session, and nothing is promised to it."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        guest = rig.session(CLAUDE, pid=process.pid)
        rig.send("please look")
        guest.prompt()
        daemon.kill()
        process.kill()
    (daemon.home / "run" / "sessions" / "killed-while-it-wrote.new").touch()
    daemon.start()
    assert rig.sessions() == []
    assert list((daemon.home / "run" / "sessions").iterdir()) == []
    assert REPEAT in rig.session(CLAUDE, "another").prompt()


def kill_settled(rig: DaemonFixture) -> None:
    """Kill the daemon when it has heard that the last hook has printed: by then what it notes of a session is whole."""
    rig.sessions()
    rig.daemon.kill()


def rewrite_record(daemon: Served, *without: str, **more: object) -> None:
    """Change what the one record of a session says, and take away what it does not say.

    The daemon may have been killed while it wrote the next one.
    """
    (path,) = (daemon.home / "run" / "sessions").glob("*.json")
    record = {name: value for name, value in json.loads(path.read_bytes()).items() if name not in without}
    path.write_bytes(json.dumps(record | more).encode())


def test_living_session_is_known_again_although_the_clock_was_set(daemon: Served, rig: DaemonFixture) -> None:
    """The time of its first hook is before the beginning of its process then: a clock says nothing about who lives."""
    guest = rig.session(CLAUDE)
    guest.prompt()
    kill_settled(rig)
    rewrite_record(daemon, opened_at="2001-01-01T00:00:00Z")
    daemon.start()
    assert [each["session"] for each in rig.sessions()] == [guest.key]
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        other = rig.session(CLAUDE, "other", pid=process.pid)
        other.prompt()
        process.kill()
    until(lambda: not rig.presence(other), "the sessions were looked at", 20)
    assert [each["session"] for each in rig.sessions()] == [guest.key]


def test_another_process_with_the_number_of_a_session_is_not_it(daemon: Served, rig: DaemonFixture) -> None:
    """Numbers are used again, and with a clock that was set back the new process seems to be the older one."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        guest = rig.session(CLAUDE, pid=process.pid)
        rig.send("please look")
        guest.prompt()
        daemon.kill()
        process.kill()
    rewrite_record(daemon, pid=os.getpid())
    daemon.start()
    assert rig.sessions() == []
    assert REPEAT in rig.session(CLAUDE, "another").prompt()


@pytest.mark.parametrize("has_edge", [False, True], ids=["hooks", "edge"])
def test_record_of_an_earlier_version_proves_no_process(daemon: Served, rig: DaemonFixture, *, has_edge: bool) -> None:
    """It does not say which process it means: a connection that may come back keeps the session, a number does not."""
    guest = rig.session(CLAUDE)
    with ExitStack() as stack:
        agent = stack.enter_context(guest.agent()) if has_edge else None
        message = rig.send("please look")
        guest.prompt()
        kill_settled(rig)
        rewrite_record(daemon, "process_identity")
        daemon.start()
        assert [each["session"] for each in rig.sessions()] == ([guest.key] if has_edge else [])
        if agent is not None:
            agent.tool("inbound_queue_stats")
        guest.tool()
        guest.stop()
        assert [each["session"] for each in rig.sessions()] == [guest.key]
        assert rig.state(message, CLAUDE.name) == "seen"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"key": 5}', b"\xff" * 100])
def test_a_damaged_record_of_a_session_costs_only_that(daemon: Served, rig: DaemonFixture, damage: bytes) -> None:
    """Whatever stands in the file: the daemon starts, and the session is known again by its next hook."""
    guest = rig.session(CLAUDE)
    guest.prompt()
    kill_settled(rig)
    (record,) = (daemon.home / "run" / "sessions").iterdir()
    record.write_bytes(damage)
    daemon.start()
    assert rig.sessions() == []
    message = rig.send("please look")
    assert "please look" in guest.tool()
    guest.stop()
    assert rig.state(message, CLAUDE.name) == "seen"


@pytest.mark.parametrize("kind", [CLAUDE, GEMINI], ids=lambda kind: kind.name)
def test_another_conversation_of_the_process_proves_nothing_of_the_one_before_the_restart(
    daemon: Served, rig: DaemonFixture, kind: Kind
) -> None:
    """It was cleared while no daemon was there to hear of it: its calls follow from nothing that the first one had."""
    guest = rig.session(kind, "first")
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="ann")
        assert texts(agent.tool("inbox_pull")["messages"]) == ["please look"]
        daemon.kill()
        daemon.start()
        agent.request("tools/list", {})
        guest.native, guest.turn = "second", "t2"
        guest.tool()
        assert agent.tool("inbound_queue_stats")
        assert rig.ledger(message, kind.name)["state"] == "offered"


@every_host
def test_prompt_before_the_edge_is_back_lets_go_of_what_a_tool_gave_in_the_turn_before(
    daemon: Served, rig: DaemonFixture, kind: Kind
) -> None:
    """That turn was interrupted: the end of the next one, heard with the edge, is no sign that its result was read."""
    guest = rig.session(kind)
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="bob", channel="x")
        assert texts(pulled(guest, agent)) == ["please look"]
        with held_up(agent.pid):
            daemon.kill()
            daemon.start()
            again = guest.prompt("something else", turn="t2")
            assert rig.ledger(message, kind.name)["offers"] == (2 if "please look" in again else 1)
        agent.request("tools/list", {})
        if "please look" not in again:
            (repeat,) = pulled(guest, agent)
            assert repeat["repeat"]


def test_stop_proves_nothing_of_an_edge_that_came_back_after_another_one(daemon: Served, rig: DaemonFixture) -> None:
    """That the session works is known by a call of the first edge; in which turn the second had its result, is not."""
    guest = rig.session(CLAUDE)
    with guest.agent() as one, guest.agent() as two:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="bob", channel="x")
        assert texts(two.tool("inbox_pull")["messages"]) == ["please look"]
        with held_up(two.pid):
            daemon.kill()
            daemon.start()
            one.tool("inbound_queue_stats")
        two.request("tools/list", {})
        guest.turn = "t2"
        guest.stop()
        assert rig.state(message, CLAUDE.name) == "offered"


def test_turn_that_goes_on_before_the_edge_is_back_proves_what_a_tool_gave_in_it(
    daemon: Served, rig: DaemonFixture
) -> None:
    """It was not interrupted: that a hook of it was quicker than the edge takes no proof away."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt(turn="t1")
        message = rig.send("please look", sender="bob", channel="x")
        assert texts(agent.tool("inbox_pull")["messages"]) == ["please look"]
        with held_up(agent.pid):
            daemon.kill()
            daemon.start()
            guest.tool()
        agent.request("tools/list", {})
        guest.stop()
        assert rig.state(message, CLAUDE.name) == "seen"


@pytest.mark.parametrize("is_hooked", [False, True], ids=["", "hooked"])
@pytest.mark.parametrize("is_back", [False, True], ids=["away", "back"])
def test_call_that_is_cancelled_around_a_restart_is_proven_by_nothing(
    daemon: Served, rig: DaemonFixture, *, is_hooked: bool, is_back: bool
) -> None:
    """Its answer was on the way when the host gave it up: whoever gives a call up ignores its answer."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        if is_hooked:
            guest.prompt(turn="t1")
        rig.send("please look", sender="bob", channel="x")
        request = agent.ask_tool("inbox_pull")
        assert texts(agent.result(request)["messages"]) == ["please look"]
        daemon.kill()
        if is_back:
            daemon.start()
            agent.request("tools/list", {})
        agent.notify("notifications/cancelled", {"requestId": request, "reason": "Esc"})
        if not is_back:
            daemon.start()
        agent.request("tools/list", {})
        (again,) = agent.tool("inbox_pull")["messages"]
        assert again["delivery_id"]


def test_result_that_opencode_had_not_reported_is_proven_by_no_conversation_after_a_restart(
    daemon: Served, rig: DaemonFixture
) -> None:
    """It was taken for the last active one's, and whose it was is not told any more: the other one may have had it."""
    first, second = rig.session(OPENCODE, "ses_1", turn="t1"), rig.session(OPENCODE, "ses_2", turn="t2")
    with second.agent() as agent:
        second.run(HookMoment.PROMPT, prompt="go")
        first.run(HookMoment.PROMPT, prompt="go")
        second.run(HookMoment.TOOL)
        message = rig.send("please look", sender="bob", channel="x")
        assert texts(agent.tool("inbox_pull")["messages"]) == ["please look"]
        daemon.kill()
        daemon.start()
        agent.request("tools/list", {})
        given = second.run(HookMoment.TOOL).out
        line = rig.ledger(message, OPENCODE.name)
        assert (line["state"], REPEAT in given) == ("offered", True)


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_whatever_has_the_name_of_a_record_does_not_hold_up_the_start(daemon: Served, kind: str) -> None:
    """It is no file: opened, it might never end."""
    daemon.start()
    daemon.kill()
    odd = daemon.home / "run" / "sessions" / "odd.json"
    odd.mkdir() if kind == "folder" else os.mkfifo(odd)
    daemon.start()
    assert DaemonFixture(daemon).sessions() == []


def test_a_restarted_daemon_does_not_take_a_working_qwen_for_idle(
    daemon: Served, rig: DaemonFixture, tmp_path: Path
) -> None:
    """Its own inbox is read after the turn: the next tool call must get the message, and only its own turn prove it."""
    guest = rig.session(QWEN)
    address = tmp_path / "peer"
    env = {"QWEN_CODE_MESSAGING_SOCKET": str(address), "QWEN_CODE_MESSAGING_TOKEN": "t"}
    with socket.socket(socket.AF_UNIX) as peer:
        peer.bind(str(address))
        peer.listen()
        run_hook(daemon.home, QWEN.name, "prompt", guest.payload(HookMoment.PROMPT, prompt="work"), env=env)
        daemon.kill()
        daemon.start()
        message = rig.send("please look")
        assert "please look" in guest.tool()
        assert rig.ledger(message, QWEN.name)["surface"] == "hook: tool"
        assert rig.state(message, QWEN.name) == "offered"
        peer.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            peer.accept()
    guest.stop()
    assert rig.state(message, QWEN.name) == "seen"


def test_a_session_is_known_again_after_a_restart(daemon: Served, rig: DaemonFixture) -> None:
    """From its record, the edge that comes back and the next hook: the same key, its ways and its presence."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt()
        before = [(each["session"], each["presence"], each["surfaces"]) for each in rig.sessions()]
        daemon.kill()
        daemon.start()
        agent.tool("inbound_queue_stats")
        assert [(each["session"], each["presence"], each["surfaces"]) for each in rig.sessions()] == before
        guest.prompt(turn="t2")
        assert [(each["session"], each["presence"], each["surfaces"]) for each in rig.sessions()] == before


def given_by(guest: Conversation, chance: Chance) -> str:
    """Let something happen in the host; return what its model is told."""
    match chance.randrange(3):
        case 0:
            return guest.prompt(turn=f"t{chance.randrange(1_000_000)}")
        case 1:
            return guest.tool()
        case _:
            return guest.stop()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_daemon_that_dies_again_and_again_gives_everything_and_marks_what_it_gives_twice(
    starter: DaemonStarter, home: Path, seed: int
) -> None:
    """Sends, hooks and kills in any order: each message is told in the end, and a second telling says so."""
    chance = Chance(seed)
    told: dict[str, int] = {}
    with starter.daemon(home) as daemon:
        daemon.start()
        rig = DaemonFixture(daemon)
        guest = rig.session(CLAUDE)
        names = [f"<message {number}>" for number in range(NUMBER)]
        steps = ["send"] * NUMBER + ["hook"] * NUMBER + ["kill"] * KILLS
        chance.shuffle(steps)
        unsent = iter(names)
        for step in [*steps, "last prompt", "last end"]:
            if step == "kill":
                daemon.kill()
                daemon.start()
            elif step == "send":
                name = next(unsent)
                stubborn(daemon, "send", text=name, upstream_id=name)
            else:
                text = given_by(guest, chance) if step == "hook" else guest.prompt(turn=step)
                frames = text.split("From ")[1:]
                for frame in frames:
                    (name,) = [each for each in names if each in frame]
                    assert (REPEAT in frame) == (name in told), frame
                    told[name] = told.get(name, 0) + 1
        guest.stop()
        assert sorted(told) == sorted(names)
        states = {rig.state(each["id"], CLAUDE.name) for each in export(daemon, "inbox")}
        assert states == {"seen"}
        check_journal(daemon)
