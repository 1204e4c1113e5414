"""`connect`, `disconnect` and `doctor` as a person meets them: shown first, asked, done, verified, and taken back.

Codex stands for any host; it is not installed here, so that its files are all there is.
"""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Rig
from tests.cli.test_as_agent import hosting
from tests.loss.rig import until

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
QUESTION = re.compile(rb"(\]|to do it): ")
CONFIG = b'# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y" # keep\n'
REFUSED, NOT_FOUND, USER_ERROR, NEEDS_FIXING = 7, 3, 2, 1


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Rig]:
    """Commands of a person with settings of their own, and no program of any host."""
    user = tmp_path / "user"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/config.toml").write_bytes(CONFIG)
    rig = Rig(tmp_path / "home", {"HOME": str(user), "PATH": os.defpath})
    yield rig
    assert rig.run("down").code == 0


def user_of(rig: Rig) -> Path:
    """Return the person's home."""
    return Path(rig.extra["HOME"])


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder, with modes."""
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), b"" if path.is_dir() else path.read_bytes())
        for path in root.rglob("*")
    }


def at_terminal(rig: Rig, answer: bytes, *words: str) -> tuple[int, str]:
    """Run a command at a terminal, type an answer when it asks, and return the exit code and what it printed."""
    main, side = pty.openpty()
    process = start_harken([*COMMAND, *words], stdin=side, stdout=side, stderr=side, env=rig.environment)
    os.close(side)
    said = b""
    try:
        while data := os.read(main, 65_536):
            is_asked = QUESTION.search(said)
            said += data
            if QUESTION.search(said) and not is_asked:
                os.write(main, answer)
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(main)
    return process.wait(timeout=SECONDS), said.decode().replace("\r\n", "\n")


def test_a_dry_run_shows_the_change_and_makes_none(person: Rig) -> None:
    """One wants to see what is done to one's settings."""
    before = tree(user_of(person))
    shown = person.ok("connect", "codex", "--dry-run")
    assert "  ~/.codex/config.toml  " in shown
    assert "\n    +[mcp_servers.harken]\n" in shown
    assert '\n     command = "y" # keep\n' in shown
    assert "was not found on the PATH" in shown
    assert tree(user_of(person)) == before
    assert not (person.home / "connected").exists()
    planned = person.json("connect", "codex", "--dry-run")["hosts"][0]
    assert (planned["host"], planned["state"], planned["found"]) == ("codex", "planned", None)
    assert [Path(change["path"]).name for change in planned["changes"]] == ["config.toml", "hooks.json", "AGENTS.md"]


def test_nothing_is_written_without_a_yes(person: Rig) -> None:
    """A script, or an agent without a daemon, does not connect by accident."""
    before = tree(user_of(person))
    done = person.run("connect", "codex")
    assert done.code == USER_ERROR
    assert "Say --yes" in done.err
    assert person.run("connect", "codex", "--json").code == USER_ERROR
    assert tree(user_of(person)) == before


def test_a_person_is_asked_and_may_decline(person: Rig) -> None:
    """The question comes after the diff, which is in colour; both answers count."""
    before = tree(user_of(person))
    code, shown = at_terminal(person, b"n\n", "connect", "codex")
    assert code == NEEDS_FIXING
    assert "\x1b[32m+[mcp_servers.harken]\x1b[0m" in shown
    assert ESCAPE.sub("", shown).index("+[mcp_servers") < shown.index("Connect? [Y/n]:")
    assert shown.endswith("Nothing was changed.\n")
    assert tree(user_of(person)) == before
    code, shown = at_terminal(person, b"y\n", "connect", "codex")
    assert code == 0
    assert "Codex is connected.\n" in shown
    assert "starts Harken in the background" in shown
    assert tree(user_of(person)) != before


def test_connect_and_disconnect_leave_a_home_as_it_was(person: Rig) -> None:
    """Comments and formatting are kept on the way in, and every byte on the way out; no daemon is started for it."""
    before = tree(user_of(person))
    person.ok("connect", "codex", "--yes")
    written = (user_of(person) / ".codex/config.toml").read_bytes()
    assert written.startswith(CONFIG)
    assert str(person.home).encode() in written
    connected = tree(user_of(person))
    assert "Nothing to change." in person.ok("connect", "codex")
    assert person.json("connect", "codex")["hosts"][0]["state"] == "current"
    assert tree(user_of(person)) == connected
    assert not (person.home / "run").exists()
    done = person.json("disconnect", "codex", "--yes")["hosts"][0]
    assert (done["state"], done["cleaned"], done["notes"]) == ("disconnected", [], [])
    assert tree(user_of(person)) == before
    assert "Codex is not connected." in person.ok("disconnect", "codex")
    assert "No host is connected." in person.ok("disconnect", "--all")


def test_status_tells_a_connected_agent_from_an_open_session(person: Rig) -> None:
    """Who has just connected one must not be told to connect."""
    with person.serving():
        assert "Agents: none is connected. Connect those that you have: harken connect\n" in person.ok("status")
        person.ok("connect", "codex", "--yes")
        assert "Agents: no session is open\n" in person.ok("status")


def test_what_was_written_since_is_kept(person: Rig) -> None:
    """People do not lose a setting by disconnecting, and are told which file was treated how."""
    person.ok("connect", "codex", "--yes")
    config = user_of(person) / ".codex/config.toml"
    config.write_bytes(config.read_bytes().replace(b'model = "x"', b'model = "z"'))
    code, shown = at_terminal(person, b"\n", "disconnect", "codex")
    assert code == 0
    assert "\n  without Harken's entries:\n    ~/.codex/config.toml\n" in shown
    assert re.search(r"\n  removed:\n(    .*\n)*    ~/\.codex/hooks\.json\n", shown)
    assert config.read_bytes() == CONFIG.replace(b'"x"', b'"z"')


def test_a_project_is_connected_by_itself(person: Rig, tmp_path: Path) -> None:
    """A team's folder is not the person's home."""
    project = tmp_path / "project"
    project.mkdir()
    person.ok("connect", "codex", "--project", str(project), "--yes")
    assert (project / ".codex/config.toml").exists()
    assert "is not connected" in person.ok("disconnect", "codex", "--yes")
    assert [row["project"] for row in person.json("disconnect", "--all", "--yes")["hosts"]] == [str(project)]
    assert tree(project) == {}
    assert (user_of(person) / ".codex/config.toml").read_bytes() == CONFIG


def test_a_broken_file_is_named_and_left_alone(person: Rig) -> None:
    """The error is before the first change."""
    broken = user_of(person) / ".codex/config.toml"
    broken.write_bytes(b"a = 1\nb = = 2\n")
    done = person.run("connect", "codex", "--yes")
    assert done.code == USER_ERROR
    assert f"{broken}, line 2, column 5: " in done.err
    assert broken.read_bytes() == b"a = 1\nb = = 2\n"
    assert not (person.home / "connected").exists()


def test_one_host_that_cannot_be_connected_does_not_stop_the_others(person: Rig) -> None:
    """Each is for itself; what failed is named, and the exit code says that something is left to do."""
    broken = user_of(person) / ".gemini/settings.json"
    broken.parent.mkdir()
    broken.write_bytes(b'{"a": }')
    done = person.run("connect", "codex", "gemini", "--yes", "--json")
    assert done.code == NEEDS_FIXING
    codex, gemini = json.loads(done.out)["hosts"]
    assert (codex["state"], gemini["state"]) == ("connected", "failed")
    assert f"{broken}, line 1, column 7: " in gemini["error"]["message"]
    assert broken.read_bytes() == b'{"a": }'


def test_hosts_are_named_as_people_name_them(person: Rig) -> None:
    """A wrong name is guessed at, none is asked for, and Tab knows them."""
    done = person.run("connect", "codx")
    assert (done.code, "Did you mean codex?" in done.err) == (NOT_FOUND, True)
    assert person.run("connect").code == USER_ERROR
    assert person.run("connect", "--all", "codex").code == USER_ERROR
    done = person.run("connect", "codex", "--wake", "magic")
    assert (done.code, "no wake 'magic'" in done.err) == (USER_ERROR, True)
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": "harken connect co", "COMP_CWORD": "2"}
    assert Rig(person.home, {**person.extra, **variables}).run().out.split() == [
        "plain,copilot-cli",
        "plain,codex",
        "plain,copilot",
    ]


def test_an_agent_may_neither_connect_nor_disconnect(rig: Rig, tmp_path: Path) -> None:
    """It would change what every later session of its user is told."""
    agent = Rig(rig.home, {"HOME": str(tmp_path), "PATH": os.defpath})
    with hosting(rig):
        for words in (("connect", "codex", "--yes"), ("disconnect", "codex", "--yes")):
            done = agent.run(*words)
            assert (done.code, done.out) == (REFUSED, "")
            assert done.err.startswith("harken: An agent may not ")
    assert tree(tmp_path) == {}
    assert not (rig.home / "connected").exists()


def test_doctor_says_what_is_not_connected_and_starts_nothing(person: Rig) -> None:
    """A machine without any of it is healthy."""
    shown = person.ok("doctor")
    assert "does not run" in shown
    assert "Codex (not installed)" in shown
    assert shown.endswith("Install one and run: harken connect\nAny other MCP client can start: harken mcp\n")
    facts = person.json("doctor", "codex")
    assert facts["harken"]["daemon"] is None
    assert facts["harken"]["python"] == sys.executable
    assert [(host["host"], host["is_connected"], host["findings"]) for host in facts["hosts"]] == [("codex", False, [])]
    assert not person.home.exists()


def test_doctor_finds_settings_with_which_nothing_starts(person: Rig) -> None:
    """That no daemon runs only follows from it; and what is advised is about the home that was named."""
    person.home.mkdir()
    (person.home / "config.toml").write_text("[limits\n")
    (person.home / "run").mkdir()
    (person.home / "run/down").touch()
    done = person.run("doctor", "codex", "--home", str(person.home))
    assert done.code == NEEDS_FIXING
    assert "no  the settings in config.toml are valid" in done.out
    assert f"Run: harken --home {person.home} up" in " ".join(done.out.split())


def test_doctor_looks_at_settings_sources_store_and_versions(person: Rig) -> None:
    """One command says what is in order and what is not, each with its next step."""
    person.home.mkdir(mode=0o700)
    silent = '[sources.gone]\nkind = "mcp"\ncommand = "/nowhere/at-all"\n'
    unset = '[sources.ci]\nkind = "webhook"\npreset = "github"\nsecret = "env:NOT_SET"\n'
    (person.home / "config.toml").write_text(silent + unset)
    (person.home / "config.toml").chmod(0o600)
    person.ok("up")
    until(lambda: person.json("source", "list")["sources"][0]["reason"], "it was tried", SECONDS)
    done = person.run("doctor", "codex")
    assert done.code == NEEDS_FIXING
    for line in ("the settings in config.toml are valid", "the database is whole", "the daemon is of this version"):
        assert f"ok  {line}" in done.out
    said = " ".join(done.out.split())
    assert "no the source gone is retrying" in said
    assert "Run: harken source test gone" in said
    assert "no the source ci needs you The secret env:NOT_SET is not set." in said, "it has no sign-in"
    assert "Then look: harken source list" in said
    person.ok("down")
    with closing(sqlite3.connect(person.home / "harken.db")) as connection:
        connection.execute("PRAGMA user_version = 999")
    done = person.run("doctor", "codex")
    assert (done.code, "no  the database is of this version" in done.out) == (NEEDS_FIXING, True)
    assert "Install the newer Harken again" in done.out


def test_doctor_finds_damage_that_nothing_has_met_yet(person: Rig) -> None:
    """A page of an old message may not be read for a year, and by then the journal may not have it any more."""
    person.ok("up")
    for number in range(30):
        person.ask("send", text=f"{number} {'x' * 2_000}")
    assert person.run("doctor", "codex").code == 0
    person.ok("down")
    database = person.home / "harken.db"
    with closing(sqlite3.connect(database)) as connection:
        [[page]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'verdicts'").fetchall()
    with database.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    person.ok("up")
    done = person.run("doctor", "codex")
    assert (done.code, "harken recover" in done.out) == (1, True), done
    person.ok("down")
    assert "harken recover" in person.run("doctor", "codex").out
    assert person.json("recover", "--yes")["found"] == "damaged"
    assert "harken recover" not in person.run("doctor", "codex").out


def test_doctor_finds_a_database_that_is_gone(person: Rig) -> None:
    """A daemon that lost its database still runs: to say that it does not sends people the wrong way."""
    person.ok("up")
    person.ask("send", text="before")
    file, away = person.home / "harken.db", person.home / "elsewhere"
    file.rename(away)
    done = person.run("doctor", "codex")
    assert (done.code, "does not run" in done.out) == (NEEDS_FIXING, False), done
    assert "no  the database is there" in done.out
    away.rename(file)
    assert person.run("doctor", "codex").code == 0
    person.ok("down")
    file.rename(away)
    done = person.run("doctor", "codex")
    assert (done.code, "harken recover" in done.out) == (NEEDS_FIXING, True), done


def test_doctor_finds_what_is_stale_or_gone(person: Rig) -> None:
    """What no longer fits is named, with the command that repairs it, and the exit code says so to scripts."""
    person.ok("connect", "codex", "--yes")
    done = person.run("doctor", "codex", "--json")
    assert done.code == NEEDS_FIXING
    rows = {row["what"]: row["is_good"] for row in json.loads(done.out)["hosts"][0]["findings"]}
    assert (rows["it is installed"], rows["connected and current"]) == (False, True)
    config = user_of(person) / ".codex/config.toml"
    config.write_bytes(config.read_bytes().replace(sys.executable.encode(), b"/gone/python"))
    record = person.home / "connected/codex.json"
    record.write_text(record.read_text().replace(sys.executable, "/gone/python"))
    shown = person.run("doctor", "codex").out
    assert "no  connected and current" in shown
    assert "Not as this Harken would write it: ~/.codex/config.toml" in shown
    assert "Run: harken connect codex" in shown
    assert "no  the interpreter /gone/python" in shown


def test_doctor_misses_what_agents_should_be_told(person: Rig) -> None:
    """An agent that is not told whose word a message is looks as if it were connected."""
    person.ok("connect", "codex", "--yes")
    told = user_of(person) / ".codex" / "AGENTS.md"
    told.write_text("# Mine\n")
    shown = " ".join(person.run("doctor", "codex").out.split())
    assert "~/.codex/AGENTS.md (what the agent is told" in shown
    assert "Run: harken connect codex" in shown
    assert "+<!-- harken:begin -->" in person.ok("connect", "codex", "--yes")
    assert told.read_text().startswith("# Mine\n\n<!-- harken:begin -->\n")
    person.ok("disconnect", "codex", "--yes")
    assert told.read_text() == "# Mine\n"


def test_doctor_shows_what_surfaces_have_proven(rig: Rig, tmp_path: Path) -> None:
    """Files in place prove nothing: what counts is what a model got."""
    one = Rig(rig.home, {"HOME": str(tmp_path), "PATH": os.defpath})
    rig.ok("send", "hello")
    with hosting(rig, "codex-mcp-client") as agent:
        delivery = agent.tool("inbox_pull")["messages"][0]["delivery_id"]
        agent.tool("ack", ids=[delivery])
    row = next(row for row in one.json("doctor", "codex")["hosts"][0]["surfaces"] if row["surface"] == "inbox_pull")
    assert (row["consumer"], row["offered"], row["seen"]) == ("codex", 1, 1)


def test_approvals_are_relayed_only_where_you_chose_it_and_until_you_take_it_back(person: Rig) -> None:
    """What is connected again, by hand or by an update, keeps the choice; agents that cannot are named."""
    plugin = user_of(person) / ".config" / "opencode" / "plugins" / "harken.js"

    def relays(*words: str) -> bool:
        person.ok("connect", "opencode", "--yes", *words)
        return "const APPROVALS = true" in plugin.read_text()

    assert not relays()
    assert "opencode asks before it uses a tool" in person.ok("connect", "opencode", "--approvals", "--dry-run")
    assert relays("--approvals")
    assert relays()
    assert not relays("--no-approvals")
    refused = person.run("connect", "qwen", "--approvals", "--yes")
    assert (refused.code, "claude-code, copilot-cli, codex, opencode" in refused.err) == (USER_ERROR, True)
