"""Sessions of one machine, as another one sees and reaches them."""

from __future__ import annotations

import subprocess

from harken.sessions.turns import HookMoment
from tests.hooks.rig import CLAUDE, DaemonFixture
from tests.hooks.test_wakes import bell_of
from tests.loss.rig import Json, until
from tests.postgres.conftest import Machines
from tests.postgres.test_one_inbox import HARKEN


def say(fixture: DaemonFixture, text: str, **more: str) -> Json:
    """Send a message; return what is foretold of it."""
    return fixture.daemon.call("send", text=text, **more)["forecast"]


def shown(fixture: DaemonFixture, *command: str) -> str:
    """Return what a command prints."""
    whole = [*HARKEN, *command, "--home", str(fixture.daemon.home)]
    return subprocess.run(whole, capture_output=True, check=True, text=True).stdout


def places(fixture: DaemonFixture) -> set[tuple[str, str, str]]:
    """Return who is where, and doing what."""
    return {(each["consumer"], each["machine"], each["presence"]) for each in fixture.sessions()}


def test_a_session_is_reached_from_another_machine(machines: Machines) -> None:
    """Who writes need not know where the agent runs: forecast, bells, hooks and waits are the same from anywhere."""
    laptop, buildbox = (DaemonFixture(machines.start(name)) for name in ("laptop", "buildbox"))
    with buildbox.daemon.caller() as caller:
        caller.ask("wait", consumer="another", timeout=20)
        until(lambda: "another" in {each["consumer"] for each in laptop.daemon.call("status")["consumers"]}, "it waits")
        say(laptop, "for who waits")
        assert [each["content_text_sanitized"] for each in caller.answer()["messages"]] == ["for who waits"]

    guest = buildbox.session(CLAUDE)
    bell = bell_of(guest)
    until(lambda: ("claude-code", "buildbox", "idle") in places(laptop), "the session is known elsewhere")
    assert {each["machine"] for each in laptop.daemon.call("status")["daemon"]["daemons"]} == {"laptop", "buildbox"}

    before = bell.read_text()
    assert say(laptop, "please look")["sentence"] == "wakes claude-code on buildbox, which is idle"
    until(lambda: bell.read_text() != before, "the session's bell rings")
    assert "please look" in guest.run(HookMoment.BELL).err

    guest.prompt("go on", turn="t2")
    until(lambda: ("claude-code", "buildbox", "busy") in places(laptop), "it is known to be busy")
    assert "on buildbox, which is busy, between two tool calls" in say(laptop, "and this")["sentence"]
    buildbox.wait_bell(CLAUDE.name, is_on=True)
    assert "and this" in guest.tool()


def test_of_the_sessions_of_all_machines_one_is_woken(machines: Machines) -> None:
    """Two agents that answer the same message are worse than one: the forecast names it, and the other sleeps on."""
    laptop, buildbox = (DaemonFixture(machines.start(name)) for name in ("laptop", "buildbox"))
    first, last = laptop.session(CLAUDE), buildbox.session(CLAUDE)
    bells = [bell_of(first), bell_of(last)]
    everyone = {("claude-code", "laptop", "idle"), ("claude-code", "buildbox", "idle")}
    until(lambda: places(laptop) == places(buildbox) == everyone, "they know of each other")
    before = [bell.read_text() for bell in bells]
    sent = laptop.daemon.call("send", text="please look")
    assert sent["forecast"]["sentence"] == "wakes claude-code on buildbox, which is idle"
    until(lambda: bells[1].read_text() != before[1], "the session's bell rings")
    assert "please look" in last.run(HookMoment.BELL).err
    assert bells[0].read_text() == before[0]
    assert "wake: bell on buildbox" in shown(laptop, "read", sent["id"])
    table = shown(laptop, "status")
    assert ("  laptop  " in table, "  buildbox  " in table) == (True, True)
    # The name stays when the daemon is gone.
    buildbox.daemon.stop()
    until(lambda: places(laptop) == {("claude-code", "laptop", "idle")}, "it is gone")
    assert "wake: bell on buildbox" in shown(laptop, "read", sent["id"])
    assert "gone, last seen" in shown(laptop, "status", "--all")


def test_what_you_decide_on_one_machine_holds_on_the_other(machines: Machines) -> None:
    """Each daemon keeps tasks, senders and mutes in memory."""
    laptop, buildbox = (DaemonFixture(machines.start(name)) for name in ("laptop", "buildbox"))
    laptop.daemon.call("mute", kind="channel", name="ci")
    until(lambda: say(buildbox, "noise", channel="ci")["outlook"] == "muted", "the mute holds")


def test_a_message_for_after_a_turn_waits_while_the_daemon_of_its_session_restarts(machines: Machines) -> None:
    """An update of one machine ends no turn there: the other, which lets messages go meanwhile, must know that."""
    laptop, buildbox = (DaemonFixture(machines.start(name)) for name in ("laptop", "buildbox"))
    guest = buildbox.session(CLAUDE)
    guest.prompt("go on", turn="t1")
    until(lambda: ("claude-code", "buildbox", "busy") in places(laptop), "it is known to be busy")
    assert "has ended this turn" in say(laptop, "when you are through", when="turn")["sentence"]
    buildbox.daemon.stop()
    until(lambda: places(laptop) == set(), "it is gone")
    say(laptop, "at once")
    waiting = laptop.daemon.call("list")["scheduled"]
    assert [each["content_text_sanitized"] for each in waiting] == ["when you are through"]
    buildbox.daemon.start()
    until(lambda: ("claude-code", "buildbox", "connected") in places(laptop), "it is back, in its turn")
    assert laptop.daemon.call("list")["scheduled"] == waiting
    assert "at once" in guest.stop()
    guest.stop()
    until(lambda: laptop.daemon.call("list")["scheduled"] == [], "the turn is over")
