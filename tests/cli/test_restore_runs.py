"""What a rule let run after a backup was taken does not run again because the backup is restored.

The agent is a program that prints what Gemini CLI prints, and counts how often it was let run; a message with `hold`
keeps it running until it is let go.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from harken.store.sqlite.connection import migrations
from harken.testing import CallFailed
from tests.cli.rig import Json, Rig
from tests.cli.test_backup import contents, rewritten
from tests.fake_host import Machine, machine_with_host
from tests.loss.rig import DaemonStarter, Served, until

PROGRAM: Final = """#!{python}
import json, os, sys
prompt = sys.stdin.read()
with open({ran!r}, "a") as file:
    print(next(word for word in ("hold", "second", "third") if word in prompt), file=file)
if "hold" in prompt:
    with open({gate!r}) as gate:
        gate.read()
print(json.dumps({{"type": "message", "role": "assistant", "content": "looked"}}), flush=True)
print(json.dumps({{"type": "result", "status": "success"}}), flush=True)
"""
AUTO: Final = {
    "name": "by itself",
    "channel": "ci",
    "mode": "auto",
    "agent": "gemini-cli",
    "tools": ["read_file"],
    "prompt": "{{content}}",
}
ASK: Final = {**AUTO, "name": "ask", "channel": "ops", "mode": "confirm"}
QUIET: Final = "[toasts]\nenabled = false\n"


class HeldMachine(Machine):
    """One whose agent notes what it was let run for, and may hold until it is let go."""

    @property
    def ran(self) -> list[str]:
        """What the agent was let run for, in order."""
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def let_go(self) -> None:
        """Let the agent that holds go on."""
        os.close(until(self._gate, "the agent holds"))

    def _gate(self) -> int | None:
        try:
            return os.open(self.folder / "gate", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None


@pytest.fixture
def machine(starter: DaemonStarter, tmp_path: Path) -> HeldMachine:
    """Daemons that find the agent."""
    folder = tmp_path / "bin"
    folder.mkdir()
    os.mkfifo(folder / "gate")
    program = PROGRAM.format(python=sys.executable, ran=str(folder / "ran"), gate=str(folder / "gate"))
    machine_with_host(starter, folder, program)
    return HeldMachine(starter, folder)


def with_rules(home: Path) -> Path:
    """Write a home in which one rule runs by itself, and one asks."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(QUIET, encoding="utf-8")
    (home / "triggers.json").write_text(json.dumps({"rules": [AUTO, ASK]}))
    (home / "triggers.json").chmod(0o600)
    return home


def said(daemon: Served, text: str, channel: str, state: str) -> Json:
    """Send a message that a rule acts on; return the action, once it is in a state."""
    message = daemon.call("send", text=text, sender="amy", channel=channel)["id"]

    def look() -> list[Json]:
        found: list[Json] = daemon.call("actions", message=message)["actions"]
        return [each for each in found if each["state"] == state]

    found: list[Json] = until(look, f"an action that is {state}")
    return found[0]


def ends(daemon: Served, count: int) -> list[Json]:
    """Return the runs, newest first, once so many are over."""

    def look() -> list[Json] | None:
        found: list[Json] = daemon.call("runs")["runs"]
        return found if len([each for each in found if each["state"] != "running"]) == count else None

    found: list[Json] = until(look, f"{count} runs that are over")
    return found


def backed_up(daemon: Served, file: Path) -> tuple[Json, Json, Json]:
    """Back up while one run goes on, one is queued and one is asked about; return their actions."""
    running = said(daemon, "hold", "ci", "started")
    queued = said(daemon, "second", "ci", "queued")
    asked = said(daemon, "third", "ops", "waiting")
    Rig(daemon.home).ok("backup", str(file))
    return running, queued, asked


def events(home: Path, after: int) -> list[tuple[str, str, str]]:
    """The kind, the id and the state of what was journaled after a number."""
    lines = [line for file in sorted((home / "journal").iterdir()) for line in file.read_text().splitlines()]
    found = [each for each in map(json.loads, lines) if each["n"] > after and each["kind"] in ("action", "run")]
    return [(each["kind"], each[each["kind"]], each["state"]) for each in found]


def test_what_ran_after_the_backup_does_not_run_again_and_is_shown(machine: HeldMachine, tmp_path: Path) -> None:
    """A deployment must not happen a second time because a disk was replaced; a person can still let it."""
    file, copy = tmp_path / "b.tgz", Rig(tmp_path / "copy")
    with machine.daemon(with_rules(tmp_path / "home")) as daemon:
        daemon.start()
        running, queued, asked = backed_up(daemon, file)
        machine.let_go()
        ends(daemon, 2)
        daemon.call("confirm", action=asked["id"], yes=True)
        ends(daemon, 3)
    assert machine.ran == ["hold", "second", "third"]
    restored = copy.json("restore", str(file), "--with-settings")
    assert restored["held_actions"] == [
        {"id": queued["id"], "state": "refused", "rule": "by itself", "message_id": queued["message_id"]},
        {"id": asked["id"], "state": "expired", "rule": "ask", "message_id": asked["message_id"]},
    ]
    (run,) = restored["interrupted_runs"]
    assert (run["rule"], run["message_id"], run["agent"]) == ("by itself", running["message_id"], "gemini-cli")
    with machine.daemon(copy.home) as daemon:
        daemon.start()
        # The oldest is started first, one per agent at a time: what was queued before would have run by then.
        daemon.call("run_now", message=queued["message_id"], rule="by itself")
        newest, oldest = ends(daemon, 2)
        assert machine.ran == ["hold", "second", "third", "second"]
        assert (newest["state"], oldest["state"]) == ("done", "interrupted")
        assert oldest["reason"] == "it ran when the backup was taken; how it ended is not known here"
        became = {each["id"]: (each["state"], each["reason"]) for each in daemon.call("actions")["actions"]}
        reason = "it was queued when the backup was taken, and may have run since"
        assert became[queued["id"]] == ("refused", reason)
        assert became[asked["id"]][0] == "expired"
        with pytest.raises(CallFailed) as failed:
            daemon.call("confirm", action=asked["id"], yes=True)
        assert failed.value.error["code"] == "conflict"
        assert events(copy.home, restored["last_event"])[:3] == [
            ("action", queued["id"], "refused"),
            ("action", asked["id"], "expired"),
            ("run", oldest["id"], "interrupted"),
        ]


def test_a_restore_says_what_it_held_back_and_how_to_run_it(machine: HeldMachine, tmp_path: Path) -> None:
    """Nobody looks for what they do not know of."""
    file = tmp_path / "b.tgz"
    with machine.daemon(with_rules(tmp_path / "home")) as daemon:
        daemon.start()
        _, queued, asked = backed_up(daemon, file)
        (run,) = daemon.call("runs")["runs"]
        machine.let_go()
    shown = Rig(tmp_path / "copy").ok("restore", str(file), "--with-settings")
    assert "Actions that had not run then, and may have run since: 2." in shown
    assert [line.split() for line in shown.splitlines() if line.startswith("  ")] == [
        [queued["id"], "refused", "by", "itself", queued["message_id"]],
        [asked["id"], "expired", "ask", asked["message_id"]],
        [run["id"], "interrupted", "by", "itself", run["message_id"]],
    ]
    assert "harken channel run MESSAGE --rule RULE" in shown
    assert "--agent" not in shown
    assert "harken run show RUN" in shown


def test_what_a_person_had_asked_for_by_hand_is_not_said_to_have_a_rule(machine: HeldMachine, tmp_path: Path) -> None:
    """A hint that names a rule cannot be followed where there is none."""
    file = tmp_path / "b.tgz"
    with machine.daemon(with_rules(tmp_path / "home")) as daemon:
        daemon.start()
        said(daemon, "hold", "ci", "started")
        message = daemon.call("send", text="second", sender="amy", channel="talk")["id"]
        by_hand = daemon.call("run_now", message=message, agent="gemini-cli")
        Rig(daemon.home).ok("backup", str(file))
        machine.let_go()
    shown = Rig(tmp_path / "copy").ok("restore", str(file), "--with-settings")
    assert [by_hand["id"], "refused", "by", "hand", message] in [line.split() for line in shown.splitlines()]
    hints = [line for line in shown.splitlines() if line.startswith("To run ")]
    assert hints == ["To run what you asked for by hand now: harken channel run MESSAGE --agent HOST …"]


def test_mail_that_rules_had_not_looked_at_when_the_backup_was_taken_starts_nothing(
    machine: HeldMachine, tmp_path: Path
) -> None:
    """The daemon looked at it a moment later, and may have run something for it."""
    file = tmp_path / "b.tgz"
    with machine.daemon(with_rules(tmp_path / "home")) as daemon:
        daemon.start()
        Rig(daemon.home).ok("send", "second", "--channel", "talk", "--from", "amy")
        Rig(daemon.home).ok("backup", str(file))
    database = tmp_path / "early.db"
    database.write_bytes(contents(file)["harken.db"])
    with closing(sqlite3.connect(database)) as connection, connection:
        # As if the backup had been taken between the receipt and the verdict.
        connection.execute("UPDATE messages SET channel = 'ci'")
        connection.execute("UPDATE rule_state SET judged = 0")
    copy = Rig(tmp_path / "copy")
    early = rewritten(file, {"harken.db": database.read_bytes()}, tmp_path / "early.tgz")
    shown = Rig(tmp_path / "shown").ok("restore", str(early), "--with-settings")
    assert "Messages that rules had perhaps not looked at yet, and now will not: 1." in shown
    assert copy.json("restore", str(early), "--with-settings")["unjudged"] == 1
    with machine.daemon(copy.home) as daemon:
        daemon.start()
        said(daemon, "third", "ci", "started")
        ends(daemon, 1)
    assert machine.ran == ["third"]


def test_a_backup_of_a_harken_without_rules_is_restored(served: Rig, tmp_path: Path) -> None:
    """Its database has nothing that could be held back, and is brought up to date."""
    served.ok("send", "one")
    served.ok("backup", str(tmp_path / "b.tgz"))
    database = tmp_path / "old.db"
    with closing(sqlite3.connect(database)) as connection:
        for number, script in migrations()[:4]:
            connection.executescript(f"{script}\nPRAGMA user_version = {number};")
    files = contents(tmp_path / "b.tgz")
    about = json.loads(files["harken-backup.json"])
    old = {
        **{name: b"" for name in files if name.startswith("journal/")},  # it would be ahead of that database
        "harken.db": database.read_bytes(),
        "harken-backup.json": json.dumps(about | {"schema": 4, "last_event": 0}).encode(),
    }
    said = Rig(tmp_path / "copy").json("restore", str(rewritten(tmp_path / "b.tgz", old, tmp_path / "old.tgz")))
    assert (said["parked_replies"], said["held_actions"], said["interrupted_runs"]) == (0, [], [])
    assert said["unjudged"] == 0
    with closing(sqlite3.connect(tmp_path / "copy" / "harken.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == migrations()[-1][0]
