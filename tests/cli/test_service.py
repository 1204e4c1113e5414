"""`harken service` as a person meets it, with a `systemctl` of the tests that starts the real daemon."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harken.config.home import is_locked
from harken.testing import EdgeClient, edge_command
from tests.cli import systemctl
from tests.cli.rig import Rig
from tests.cli.test_as_agent import hosting

USER_ERROR, NOT_FOUND, CONFLICT, UNAVAILABLE, REFUSED = 2, 3, 4, 5, 7
CHANGING = {"enable", "disable", "start", "stop", "restart", "daemon-reload"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A person with a systemd of their own."""

    rig: Rig
    place: Path

    @property
    def units(self) -> Path:
        """The folder of the person's units."""
        return Path(self.rig.extra["HOME"]) / ".config" / "systemd" / "user"

    @property
    def unit(self) -> Path:
        """The one file in it."""
        [file] = self.units.iterdir()
        return file

    @property
    def asked(self) -> list[list[str]]:
        """What systemctl was told to change."""
        file = self.place / "asked.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [words[1:] for words in lines if words[1] in CHANGING]

    def lose_bus(self) -> None:
        """Let there be no systemd for the person."""
        (self.place / "no-bus").touch()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A person's home, and a systemctl on the PATH; a daemon that was started ends with the test."""
    place, user = tmp_path / "bin", tmp_path / "user"
    place.mkdir()
    user.mkdir()
    program = place / "systemctl"
    program.write_text(f"#!{sys.executable}\n" + Path(systemctl.__file__).read_text())
    program.chmod(0o755)
    (place / "loginctl").write_text("#!/bin/sh\necho no\n")
    (place / "loginctl").chmod(0o755)
    path = f"{place}:{os.defpath}"
    rig = Rig(tmp_path / "home", {"HOME": str(user), "PATH": path, "XDG_CONFIG_HOME": ""})
    yield Machine(rig, place)
    assert rig.run("down").code == 0


def test_a_dry_run_shows_the_unit_and_changes_nothing(machine: Machine) -> None:
    """One wants to read what will run at every login."""
    shown = machine.rig.ok("service", "install", "--dry-run")
    assert 'ExecStart="' in shown
    assert "--user enable --now" in shown
    assert machine.asked == []
    assert not machine.units.exists()
    assert machine.rig.json("service", "install", "--dry-run")["state"] == "planned"


def test_nothing_is_installed_without_a_yes(machine: Machine) -> None:
    """A script does not change how the machine starts by accident."""
    done = machine.rig.run("service", "install")
    assert done.code == USER_ERROR
    assert "Say --yes" in done.err
    assert not machine.units.exists()


def test_installed_the_service_is_known_to_up_down_and_doctor(machine: Machine) -> None:
    """Afterwards mail arrives without a session; installing again finds nothing to do."""
    said = machine.rig.json("service", "install", "--yes")
    assert (said["state"], said["needs_login"]) == ("installed", True)
    assert stat.S_IMODE(machine.unit.stat().st_mode) == 0o600
    assert machine.asked == [["daemon-reload"], ["enable", "--now", said["name"]]]
    status = machine.rig.json("service", "status")
    assert (status["state"], status["enabled"], status["pid"]) == ("active", True, machine.rig.pid)
    assert status["file"] == str(machine.unit)
    again = machine.rig.ok("service", "install", "--yes")
    assert again.splitlines()[0] == f"{said['name']} is installed and runs."
    assert "loginctl enable-linger" in again
    assert len(machine.asked) == 2
    assert "ok  the service runs" in machine.rig.ok("doctor", "codex")

    # `down` ends it until the next login and says so; `up` starts it the way it is started then.
    done = machine.rig.run("down")
    assert (done.code, done.out.startswith("Harken stopped")) == (0, True)
    assert "harken service remove" in done.err
    assert machine.rig.json("service", "status")["state"] == "inactive"
    done = machine.rig.run("doctor", "codex")
    assert (done.code, "no  the service runs" in done.out, "harken service status" in done.out) == (1, True, True)
    machine.rig.ok("up")
    assert machine.rig.json("service", "status")["pid"] == machine.rig.pid
    assert "see harken service status" in machine.rig.ok("status", "--all")

    # A unit in a home that was copied into a container must not be in the way.
    machine.rig.run("down")
    machine.lose_bus()
    assert machine.rig.json("up")["state"] == "started"


def test_a_daemon_that_runs_is_handed_over_to_the_service(machine: Machine) -> None:
    """Whoever began with `harken up` loses nothing, and the edge of an open agent starts no other one in between."""
    machine.rig.ok("send", "before")
    old = machine.rig.pid
    # The host is a shell, so that the commands of this test are the person's.
    with EdgeClient(["sh", "-c", '"$@"; exit', "sh", *edge_command(machine.rig.home)], name="codex") as agent:
        agent.tool("inbound_queue_stats")
        machine.rig.ok("service", "install", "--yes")
        assert machine.rig.pid != old
        assert not (machine.rig.home / "run" / "down").exists()
        assert machine.rig.json("service", "status")["pid"] == machine.rig.pid
        agent.tool("inbound_queue_stats")
    assert [each["content_text_sanitized"] for each in machine.rig.json("list")["messages"]] == ["before"]


def test_only_what_was_written_is_changed_or_removed(machine: Machine) -> None:
    """A unit that somebody changed may be a packager's; the folder is as it was in the end, with what else is in it."""
    machine.units.mkdir(parents=True)
    name = machine.rig.json("service", "install", "--yes")["name"]
    unit, count = machine.unit, len(machine.asked)
    written = unit.read_text()
    unit.write_text(f"{written}# mine\n")
    for verb in ("install", "remove"):
        done = machine.rig.run("service", verb, "--yes")
        assert done.code == CONFLICT
        assert str(unit) in done.err
        assert unit.read_text() == f"{written}# mine\n"
    assert len(machine.asked) == count
    assert machine.rig.json("service", "status")["changed"] is True
    assert "no  the service is as Harken wrote it" in machine.rig.run("doctor", "codex").out

    unit.write_text(written)
    (machine.units / "other.service").write_text("[Service]\nExecStart=/bin/true\n")
    assert machine.rig.json("service", "remove", "--yes")["state"] == "removed"
    assert [path.name for path in machine.units.iterdir()] == ["other.service"]
    assert machine.asked[-2:] == [["disable", "--now", name], ["daemon-reload"]]
    assert not is_locked(machine.rig.home / "run" / "lock")
    assert machine.rig.json("service", "remove", "--yes")["state"] == "not_installed"


def test_what_cannot_be_installed_leaves_the_daemon_that_ran(machine: Machine) -> None:
    """A failed change must not leave the person without the daemon that they had."""
    machine.rig.ok("up")
    with hosting(machine.rig):  # what starts at every login is the person's decision
        done = machine.rig.run("service", "install", "--yes")
    assert (done.code, done.out) == (REFUSED, "")
    assert not machine.units.exists()

    (machine.place / "failing").touch()
    done = machine.rig.run("service", "install", "--yes")
    assert done.code == UNAVAILABLE
    assert "Job for " in done.err
    assert list(machine.units.iterdir()) == []
    assert machine.rig.ask("status")["daemon"]["pid"] == machine.rig.pid

    # In containers and under sudo there is a systemctl and no systemd to talk to.
    pid = machine.rig.pid
    machine.lose_bus()
    done = machine.rig.run("service", "install", "--yes")
    assert done.code == UNAVAILABLE
    assert "Failed to connect to bus: No medium found" in done.err
    assert "harken up" in done.err
    assert list(machine.units.iterdir()) == []
    assert machine.rig.pid == pid


def test_where_there_is_no_systemd_at_all_it_says_what_to_run(machine: Machine) -> None:
    """A container has a supervisor of its own, which needs the command."""
    bare = Rig(machine.rig.home, {**machine.rig.extra, "PATH": str(machine.place / "nothing")})
    done = bare.run("service", "install", "--yes")
    assert done.code == NOT_FOUND
    assert f"-m harken serve --home {machine.rig.home}" in done.err
