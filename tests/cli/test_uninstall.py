"""`harken uninstall`: agents are as before, nothing starts any more, and nothing is deleted that was not said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.config.home import is_locked
from harken.setup.uninstall import program_removal
from tests.cli.rig import Rig
from tests.cli.test_as_agent import hosting
from tests.cli.test_connect import CONFIG, at_terminal, tree, user_of

USER_ERROR, REFUSED, NOT_DONE = 2, 7, 1
HOSTS = ("codex", "qwen-code")


@pytest.fixture
def newcomer(tmp_path: Path) -> Rig:
    """A person with settings of their own, and a project."""
    user, project = tmp_path / "user", tmp_path / "user" / "shop"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/config.toml").write_bytes(CONFIG)
    (user / ".qwen").mkdir()
    (user / ".qwen/settings.json").write_text('{"theme": "dark"}\n')
    project.mkdir()
    return Rig(tmp_path / "home", {"HOME": str(user), "PATH": os.defpath, "XDG_CONFIG_HOME": ""})


@pytest.fixture
def person(newcomer: Rig) -> Iterator[Rig]:
    """The same person, whose daemon runs."""
    with newcomer.serving():
        yield newcomer
    assert newcomer.run("down").code == 0


def connected(rig: Rig) -> dict[str, tuple[int, bytes]]:
    """Connect the hosts, one of them in the project; return what the person's home was before."""
    before = tree(user_of(rig))
    rig.ok("connect", *HOSTS, "--yes")
    rig.ok("connect", "gemini-cli", "--project", str(user_of(rig) / "shop"), "--yes")
    rig.ok("send", "hello")
    assert tree(user_of(rig)) != before
    return before


def test_every_agent_is_as_before_and_what_was_received_is_still_there(person: Rig) -> None:
    """Leaving must be as easy as coming, and cost no message."""
    before = connected(person)
    said = person.json("uninstall", "--yes")
    assert (said["state"], said["was_running"], said["problems"]) == ("uninstalled", True, [])
    assert sorted((each["host"], each["project"] is not None) for each in said["hosts"]) == [
        ("codex", False),
        ("gemini-cli", True),
        ("qwen-code", False),
    ]
    assert tree(user_of(person)) == before
    assert not is_locked(person.home / "run" / "lock")
    assert (person.home / "run" / "down").exists()  # an agent that is still open does not start it again
    assert said["left"]["harken.db"] == (person.home / "harken.db").stat().st_size
    shown = person.ok("uninstall", "--yes")
    assert f"What is left in {person.home}:" in shown
    assert "harken uninstall --delete-data" in shown


def test_a_dry_run_says_everything_and_does_nothing(person: Rig) -> None:
    """One wants to see it first."""
    connected(person)
    after = tree(user_of(person))
    shown = person.ok("uninstall", "--delete-data", "--dry-run")
    assert [line.split()[0] for line in shown.splitlines()] == [*["disconnect"] * 3, "stop", "delete"]
    assert person.json("uninstall", "--dry-run")["state"] == "planned"
    assert tree(user_of(person)) == after
    assert is_locked(person.home / "run" / "lock")


def test_nothing_happens_without_a_yes(person: Rig) -> None:
    """Neither from a script nor at a terminal where the person says no."""
    connected(person)
    after = tree(user_of(person))
    assert person.run("uninstall").code == USER_ERROR
    code, said = at_terminal(person, b"n\n", "uninstall")
    assert (code, said.splitlines()[-1]) == (NOT_DONE, "Nothing was changed.")
    assert tree(user_of(person)) == after
    assert is_locked(person.home / "run" / "lock")


def test_data_is_deleted_only_with_the_flag_and_never_what_is_not_ours(person: Rig) -> None:
    """A home may hold a file that Harken did not write; deleting is for what it did."""
    connected(person)
    (person.home / "letters.txt").write_text("mine")
    said = person.json("uninstall", "--delete-data", "--yes")
    assert said["left"] == {"letters.txt": 4}
    (person.home / "letters.txt").unlink()
    (person.home / "sign-ins").mkdir()
    assert "the key of a sign-in" in person.ok("uninstall", "--delete-data", "--yes")
    assert not person.home.exists()


def test_deleting_asks_for_the_homes_name(person: Rig) -> None:
    """A yes is typed by habit; a name is not."""
    person.ok("send", "hello")
    assert person.run("down").code == 0
    assert person.run("uninstall", "--delete-data").code == USER_ERROR
    code, said = at_terminal(person, b"yes\n", "uninstall", "--delete-data")
    assert (code, said.splitlines()[-1]) == (NOT_DONE, "Nothing was changed.")
    assert (person.home / "harken.db").exists()
    assert at_terminal(person, person.home.name.encode() + b"\n", "uninstall", "--delete-data")[0] == 0
    assert not person.home.exists()


def test_a_host_that_cannot_be_disconnected_keeps_the_data_and_says_so(person: Rig) -> None:
    """What is needed to take it back later is in the home."""
    connected(person)
    file = user_of(person) / ".codex/config.toml"
    file.write_text(file.read_text() + "\n[broken\n")
    done = person.run("uninstall", "--delete-data", "--yes")
    assert done.code == NOT_DONE
    assert "Codex" in done.err
    assert "Nothing was deleted" in done.err
    assert (person.home / "harken.db").exists()
    assert not is_locked(person.home / "run" / "lock")


def test_a_host_that_this_version_does_not_know_keeps_no_other_connected(person: Rig) -> None:
    """A newer Harken may have connected it; that one is named, and the daemon stops all the same."""
    connected(person)
    record = json.loads((person.home / "connected" / "codex.json").read_text())
    (person.home / "connected" / "nohost.json").write_text(json.dumps(record | {"host": "nohost", "deeds": []}))
    done = person.run("uninstall", "--delete-data", "--yes")
    assert done.code == NOT_DONE
    assert f"What {person.home / 'connected' / 'nohost.json'} is about stays connected" in done.err
    assert b"arken" not in (user_of(person) / ".codex/config.toml").read_bytes()
    assert not is_locked(person.home / "run" / "lock")
    assert (person.home / "connected" / "nohost.json").exists()


def test_an_agent_may_not_uninstall(person: Rig) -> None:
    """It would cut off its own instructions, and the person's mail."""
    with hosting(person):
        assert person.run("uninstall", "--yes").code == REFUSED
    assert is_locked(person.home / "run" / "lock")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("env/uv-receipt.toml", "uv tool uninstall harken"),
        ("env/pipx_metadata.json", "pipx uninstall harken"),
        ("src/harken/__init__.py", "delete the clone in {}"),
        ("", "{}/env/bin/python -m pip uninstall harken"),
    ],
)
def test_the_program_is_removed_by_what_installed_it(tmp_path: Path, found: str, said: str) -> None:
    """What uv installs has no pip, and whoever leaves should not have to find out how."""
    if found:
        (tmp_path / found).parent.mkdir(parents=True)
        (tmp_path / found).touch()
    assert program_removal(tmp_path / "env", tmp_path / "env/bin/python") == said.format(tmp_path)


def test_where_there_is_nothing_it_says_so(newcomer: Rig) -> None:
    """Uninstalling twice is not an error."""
    shown = newcomer.ok("uninstall", "--yes")
    assert shown.splitlines()[0] == "No agent is connected, no service is installed and no daemon runs."
    assert "sign-in" not in shown
    assert not newcomer.home.exists()
