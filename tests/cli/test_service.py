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


def test_installing_starts_the_daemon_as_the_service_and_twice_is_once(machine: Machine) -> None:
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


def test_a_daemon_that_runs_is_handed_over_to_the_service(machine: Machine) -> None:
    """Whoever began with `harken up` loses nothing by installing the service."""
    machine.rig.ok("send", "before")
    old = machine.rig.pid
    machine.rig.ok("service", "install", "--yes")
    assert machine.rig.pid != old
    assert not (machine.rig.home / "run" / "down").exists()
    assert machine.rig.json("service", "status")["pid"] == machine.rig.pid
    assert [each["content_text_sanitized"] for each in machine.rig.json("list")["messages"]] == ["before"]


def test_an_open_agent_does_not_start_another_daemon_in_between(machine: Machine) -> None:
    """Its edge starts one when there is none, and would be faster than systemd: the service could not start then."""
    machine.rig.ok("up")
    # The host is a shell, so that the commands of this test are the person's.
    with EdgeClient(["sh", "-c", '"$@"; exit', "sh", *edge_command(machine.rig.home)], name="codex") as agent:
        agent.tool("inbound_queue_stats")
        machine.rig.ok("service", "install", "--yes")
        assert machine.rig.json("service", "status")["pid"] == machine.rig.pid
        agent.tool("inbound_queue_stats")


def test_removing_takes_away_what_was_written_and_nothing_else(machine: Machine) -> None:
    """The folder is as it was; a drop-in of the person's stays theirs."""
    machine.units.mkdir(parents=True)
    (machine.units / "other.service").write_text("[Service]\nExecStart=/bin/true\n")
    name = machine.rig.json("service", "install", "--yes")["name"]
    assert machine.rig.json("service", "remove", "--yes")["state"] == "removed"
    assert [path.name for path in machine.units.iterdir()] == ["other.service"]
    assert machine.asked[-2:] == [["disable", "--now", name], ["daemon-reload"]]
    assert not is_locked(machine.rig.home / "run" / "lock")
    assert machine.rig.json("service", "remove", "--yes")["state"] == "not_installed"


@pytest.mark.parametrize("verb", ["install", "remove"])
def test_a_unit_that_somebody_else_wrote_or_changed_is_left_alone(machine: Machine, verb: str) -> None:
    """It may be the person's own, or a packager's."""
    machine.rig.ok("service", "install", "--yes")
    text = machine.unit.read_text() + "# mine\n"
    machine.unit.write_text(text)
    count = len(machine.asked)
    done = machine.rig.run("service", verb, "--yes")
    assert done.code == CONFLICT
    assert str(machine.unit) in done.err
    assert machine.unit.read_text() == text
    assert len(machine.asked) == count
    assert machine.rig.json("service", "status")["changed"] is True


def test_without_a_bus_it_says_so_and_leaves_everything_as_it_was(machine: Machine) -> None:
    """In containers and under sudo there is a systemctl and no systemd to talk to."""
    machine.rig.ok("up")
    pid = machine.rig.pid
    machine.lose_bus()
    done = machine.rig.run("service", "install", "--yes")
    assert done.code == UNAVAILABLE
    assert "Failed to connect to bus: No medium found" in done.err
    assert "harken up" in done.err
    assert not machine.units.exists()
    assert machine.rig.pid == pid


def test_a_service_that_does_not_come_up_is_taken_back_and_the_daemon_runs_as_before(machine: Machine) -> None:
    """A failed change must not leave the person without the daemon that they had."""
    machine.rig.ok("up")
    (machine.place / "failing").touch()
    done = machine.rig.run("service", "install", "--yes")
    assert done.code == UNAVAILABLE
    assert "Job for " in done.err
    assert list(machine.units.iterdir()) == []
    assert machine.rig.ask("status")["daemon"]["pid"] == machine.rig.pid


def test_where_there_is_no_systemd_at_all_it_says_what_to_run(machine: Machine) -> None:
    """A container has a supervisor of its own, which needs the command."""
    bare = Rig(machine.rig.home, {**machine.rig.extra, "PATH": str(machine.place / "nothing")})
    done = bare.run("service", "install", "--yes")
    assert done.code == NOT_FOUND
    assert f"-m harken serve --home {machine.rig.home}" in done.err


def test_up_and_down_know_the_service(machine: Machine) -> None:
    """`down` ends it until the next login and says so; `up` starts it the way it is started then."""
    machine.rig.ok("service", "install", "--yes")
    done = machine.rig.run("down")
    assert (done.code, done.out.startswith("Harken stopped")) == (0, True)
    assert "harken service remove" in done.err
    assert machine.rig.json("service", "status")["state"] == "inactive"
    machine.rig.ok("up")
    assert machine.rig.json("service", "status")["pid"] == machine.rig.pid
    assert "see harken service status" in machine.rig.ok("status", "--all")


def test_up_works_where_the_service_cannot_be_started(machine: Machine) -> None:
    """A unit in a home that was copied into a container must not be in the way."""
    machine.rig.ok("service", "install", "--yes")
    machine.rig.run("down")
    machine.lose_bus()
    assert machine.rig.json("up")["state"] == "started"


def test_an_agent_may_not_install_a_service(machine: Machine) -> None:
    """What starts at every login is the person's decision."""
    machine.rig.ok("up")
    with hosting(machine.rig):
        done = machine.rig.run("service", "install", "--yes")
    assert (done.code, done.out) == (REFUSED, "")
    assert not machine.units.exists()


def test_doctor_says_how_the_service_is(machine: Machine) -> None:
    """A service that ended, or that another program has changed, starts nothing at the next login."""
    machine.rig.ok("service", "install", "--yes")
    assert "ok  the service runs" in machine.rig.ok("doctor", "codex")
    machine.rig.ok("down")
    done = machine.rig.run("doctor", "codex")
    assert (done.code, "no  the service runs" in done.out, "harken service status" in done.out) == (1, True, True)
    machine.unit.write_text(machine.unit.read_text() + "# mine\n")
    assert "no  the service is as Harken wrote it" in machine.rig.run("doctor", "codex").out
