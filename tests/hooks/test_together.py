"""Hooks beside everything else: other hooks at the same time, a long poll, projects, the person's commands, a port."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient, edge_command
from tests.cli.rig import Rig
from tests.hooks.rig import CLAUDE, CODEX, CONFIG, COPILOT, Conversation, DaemonFixture, hook_process, run_hook
from tests.loss.rig import DaemonStarter, until

SAY = """
import sys
from harken.testing.daemon import SocketClient
with SocketClient(sys.argv[1]) as caller:
    print(caller.call("send", text="from inside")["id"])
"""
AT_ONCE = 6


def test_hooks_that_run_at_the_same_time_give_a_message_once(rig: DaemonFixture) -> None:
    """Tools run side by side, and so do their hooks: one of them has it."""
    guest = rig.session(CODEX)
    guest.prompt()
    rig.send("please look")
    running = [hook_process(guest.home, CODEX.name, "tool") for _ in range(AT_ONCE)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(guest.payload(HookMoment.TOOL))
    printed = []
    for process in running:
        with process:
            out, _err = process.communicate(timeout=30)
        printed.append(out)
    assert sum(b"please look" in out for out in printed) == 1
    assert sum(bool(out) for out in printed) == 1


def test_a_long_poll_gets_it_and_the_hooks_do_not(rig: DaemonFixture) -> None:
    """A session that waits is served by the commit; its own next hook must not bring the same again."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt()
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: rig.presence(guest) == "waiting", "the agent waits", 10)
        rig.send("please look")
        (given,) = agent.result(waiting)
        assert given["content"] == "please look"
        assert [guest.tool(), guest.stop()] == ["", ""]
        assert rig.state(given["message_id"], CLAUDE.name) == "seen"


def test_send_says_that_a_waiting_session_gets_it_now(rig: DaemonFixture) -> None:
    """It has it by the time of the answer, and waits no more: what is said is what was so when the message came."""
    guest = rig.session(CLAUDE)
    with guest.agent() as agent:
        guest.prompt()
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until(lambda: rig.presence(guest) == "waiting", "the agent waits", 10)
        assert rig.daemon.call("send", text="please look")["forecast"]["outlook"] == "now"
        assert len(agent.result(waiting)) == 1


def test_a_session_reads_the_mailbox_of_the_project_in_which_it_works(rig: DaemonFixture) -> None:
    """Its hooks say where that is; where its MCP server runs is nobody's project."""
    guest, other = rig.session(COPILOT, cwd="/code/shop/web"), rig.session(CLAUDE, "elsewhere", pid=1_000_001)
    with guest.agent() as agent:
        agent.request("tools/list", {})
        guest.prompt()
        rig.send("for the shop", to="project:shop")
        assert other.prompt() == ""
        assert "for the shop" in guest.tool()
        (mailboxes,) = [each["mailboxes"] for each in rig.sessions() if each["session"] == guest.key]
        assert mailboxes == ["inbox", "project:shop"]


def test_a_program_that_a_hooked_agent_started_does_not_speak_as_the_owner(rig: DaemonFixture) -> None:
    """Without an MCP connection it is the hooks that make a process known as an agent's; then its words are its own."""
    command = [sys.executable, "-c", SAY, rig.daemon.socket]
    before = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    assert rig.daemon.call("read", ref=before)["message"]["trust"] == "owner"
    rig.session(COPILOT).prompt()
    after = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    message = rig.daemon.call("read", ref=after)["message"]
    assert (message["trust"], message["sender_id"]) == ("known", "agent:copilot-cli")


def test_the_next_session_is_told_who_has_answered(rig: DaemonFixture) -> None:
    """Another host finds the message with its prompt, and with it that there is nothing left to do."""
    first, second = rig.session(CLAUDE), rig.session(COPILOT)
    second.prompt()
    second.stop()
    message = rig.send("who can do this?")
    with first.agent() as agent:
        assert "who can do this?" in first.prompt()
        agent.tool("reply", message_id=message, body="done")
    text = second.prompt()
    assert "who can do this?" in text
    assert "Answered already by claude-code." in text


def test_an_agent_is_told_that_its_user_has_answered(rig: DaemonFixture) -> None:
    """`watch` is what the store calls the person; no agent knows who that is."""
    session = rig.session(CLAUDE)
    session.prompt()
    session.stop()
    message = rig.send("who can do that?")
    rig.daemon.call("reply", ref=message, body="I did")
    assert "Answered already by your user." in session.prompt()


def test_a_muted_session_is_told_nothing(rig: DaemonFixture) -> None:
    """The person asked for quiet in this one; another session of the same host hears it."""
    quiet, other = rig.session(CLAUDE, "a", pid=1_000_001), rig.session(CLAUDE, "b", pid=1_000_002)
    quiet.prompt()
    rig.daemon.call("mute", kind="session", name=quiet.key)
    rig.send("please look")
    assert quiet.tool() == ""
    assert "please look" in other.prompt()


def test_hooks_work_over_a_port(starter: DaemonStarter, home: Path) -> None:
    """Where there are no unix sockets: the same protocol, with the token from the address file; without it, silence."""
    (home / "config.toml").write_text(CONFIG + '\n[daemon]\ntransport = "tcp"\n')
    with starter.daemon(home) as daemon:
        daemon.start()
        guest = Conversation(kind=COPILOT, home=home)
        address = home / "run" / "address"
        sound = address.read_text()
        assert sound.startswith("tcp:127.0.0.1:")
        with EdgeClient([*edge_command(home), "--spawn", "/bin/true"], name="test-agent") as agent:
            agent.tool("reply", message_id="none", body="x")
        address.write_text(sound.strip()[:-4] + "AAAA\n")
        assert run_hook(home, COPILOT.name, "prompt", guest.payload(HookMoment.PROMPT, prompt="go")).is_silent
        address.write_text(sound)
        Rig(home).ok("send", "over a port")
        assert "over a port" in guest.prompt()
