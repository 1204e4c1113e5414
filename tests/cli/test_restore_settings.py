"""Settings of a backup that somebody else made do nothing until the person has seen what they would do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cli.rig import SECONDS, Json, Rig
from tests.cli.terminal_session import ENTER, TerminalSession
from tests.cli.test_backup import USER_ERROR, contents, rewritten

RULES: Final = {
    "rules": [{"name": "sneak", "channel": "*", "mode": "auto", "prompt": "{{content}}", "tools": ["shell"]}]
}
CONFIG: Final = """
[http]
allow_remote = true
host = "0.0.0.0"

[trust]
owner = ["teams:mallory"]

[sources.helper]
kind = "mcp"
command = "{program}"
args = ["{proof}"]
"""


@pytest.fixture
def foreign(served: Rig, tmp_path: Path) -> Iterator[Path]:
    """A backup with a message, and with settings that run a program, open a port and trust a stranger."""
    served.ok("send", "the only message")
    served.ok("allow", "mallory@example.org", "--as-owner")
    (served.home / "triggers.json").write_text(json.dumps(RULES))
    served.ok("rules", "reload")
    (served.home / "config.toml").write_text("[log]\nbackups = 2\n")
    served.ok("backup", str(tmp_path / "plain.tgz"))
    assert served.run("down").code == 0
    program = tmp_path / "helper"
    program.write_text('#!/bin/sh\ntouch "$1"\n')
    program.chmod(0o755)
    config = CONFIG.format(program=program, proof=tmp_path / "ran").encode()
    yield rewritten(tmp_path / "plain.tgz", {"config.toml": config}, tmp_path / "foreign.tgz")
    assert not (tmp_path / "ran").exists()


def decided(home: Path) -> tuple[int, int]:
    """Return how many senders are admitted, and how many texts of rules are in force."""
    with closing(sqlite3.connect(home / "harken.db")) as database:
        ((senders,),) = database.execute("SELECT count(*) FROM senders WHERE trust <> 'unknown'")
        ((rules,),) = database.execute("SELECT count(*) FROM rule_state WHERE text IS NOT NULL")
    return senders, rules


def test_nobody_can_be_asked_so_nothing_is_changed(foreign: Path, tmp_path: Path) -> None:
    """The error names one thing that would happen, and what to say instead."""
    copy = Rig(tmp_path / "copy")
    done = copy.run("restore", str(foreign))
    assert done.code != 0
    assert "--with-settings" in done.err
    assert not (copy.home / "harken.db").exists()


def test_with_yes_the_messages_are_taken_and_the_settings_parked(foreign: Path, tmp_path: Path) -> None:
    """Every kind of power is named; none of it is in force, and all of it can be looked at."""
    copy = Rig(tmp_path / "copy")
    said: Json = copy.json("restore", str(foreign), "--yes")
    assert {each["would"] for each in said["settings"]} == {"run", "open", "trust"}
    assert sorted(said["parked_settings"]) == ["parked-config.toml", "parked-decisions.json", "parked-triggers.json"]
    assert not (copy.home / "config.toml").exists()
    assert decided(copy.home) == (0, 0)
    parked = json.loads((copy.home / "parked-decisions.json").read_text())
    assert [each["sender"] for each in parked["senders"]] == ["mallory@example.org"]
    assert parked["rules"] == RULES
    with copy.serving():
        assert [each["content_text_sanitized"] for each in copy.json("list")["messages"]] == ["the only message"]


def test_with_settings_all_is_taken(foreign: Path, tmp_path: Path) -> None:
    """It is the person's own backup: nothing has to be set again."""
    copy = Rig(tmp_path / "copy")
    said: Json = copy.json("restore", str(foreign), "--with-settings")
    assert said["parked_settings"] == []
    assert (copy.home / "config.toml").exists()
    assert decided(copy.home) == (1, 1)


@pytest.mark.parametrize("answer", ["n", "y"])
def test_person_is_shown_what_would_happen_and_asked(foreign: Path, tmp_path: Path, answer: str) -> None:
    """No is what Enter says."""
    copy = Rig(tmp_path / "copy")
    with TerminalSession(copy, "restore", str(foreign), columns=200) as person:
        shown = person.sees("Take them too?")
        for word in ("helper", "for other machines", "teams:mallory as owner", "mallory@example.org as owner", "sneak"):
            assert word in shown
        person.press(answer.encode() + ENTER)
        if answer == "n":
            assert "Copy what you want into config.toml" in person.sees("with --with-settings")
        assert person.process.wait(SECONDS) == 0
    assert decided(copy.home) == ((1, 1) if answer == "y" else (0, 0))


def test_settings_that_only_suit_the_person_are_taken_without_a_word(served: Rig, tmp_path: Path) -> None:
    """Sizes, times and folders let nobody do anything."""
    served.ok("send", "one")
    (served.home / "config.toml").write_text("[log]\nbackups = 2\n")
    served.ok("backup", str(tmp_path / "b.tgz"))
    copy = Rig(tmp_path / "copy")
    assert copy.json("restore", str(tmp_path / "b.tgz"))["settings"] == []
    assert (copy.home / "config.toml").read_text() == "[log]\nbackups = 2\n"


def test_settings_that_cannot_be_read_are_not_taken_for_harmless(foreign: Path, tmp_path: Path) -> None:
    """What a broken file would do nobody knows."""
    broken = rewritten(foreign, {"config.toml": b"[sources"}, tmp_path / "broken.tgz")
    said: Json = Rig(tmp_path / "copy").json("restore", str(broken), "--yes")
    assert ("?", "config.toml cannot be read, so what it would do is not known") in [
        (each["would"], each["with"]) for each in said["settings"]
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER sneak AFTER INSERT ON events BEGIN INSERT INTO senders VALUES ('*', 'm', 'owner'); END",
        "CREATE TRIGGER verdicts_go AFTER INSERT ON messages BEGIN UPDATE rule_state SET text = '{}'; END",
        "DROP TABLE mutes; CREATE VIEW mutes AS SELECT 1 AS kind, 2 AS name, 3 AS until",
        "CREATE VIRTUAL TABLE more USING fts5 (text)",
        "CREATE INDEX more ON messages (abs(n))",
        "ALTER TABLE senders ADD COLUMN more TEXT GENERATED ALWAYS AS ('owner')",
    ],
    ids=["trigger", "changed trigger", "view", "virtual table", "index", "generated column"],
)
def test_database_that_brings_statements_of_its_own_is_refused(foreign: Path, tmp_path: Path, statement: str) -> None:
    """A trigger acts when the first message arrives: it would admit whom it likes, long after the question."""
    database = tmp_path / "theirs.db"
    database.write_bytes(contents(foreign)["harken.db"])
    with closing(sqlite3.connect(database)) as connection:
        if "verdicts_go" in statement:
            connection.execute("DROP TRIGGER verdicts_go")
        connection.executescript(statement)
    file = rewritten(foreign, {"harken.db": database.read_bytes()}, tmp_path / "sneaky.tgz")
    copy = Rig(tmp_path / "copy")
    done = copy.run("restore", "--yes", str(file))
    assert done.code == USER_ERROR
    assert "database is not Harken's" in done.err
    assert not (copy.home / "harken.db").exists()


def forged(file: Path, target: Path, **beside: object) -> Path:
    """Return a backup whose journal says one thing more of a sender than its database."""
    (day,) = [name for name in contents(file) if name.startswith("journal/")]
    first, *rest = contents(file)[day].splitlines(keepends=True)
    said = {"kind": "access", "source": "*", "sender": "eve@example.org", "trust": "owner"}
    line = json.dumps({**json.loads(first), **said, **beside}, separators=(",", ":")).encode() + b"\n"
    lines = [*rest, line] if "n" in beside else [line, *rest]
    return rewritten(file, {day: b"".join(lines)}, target)


def test_who_was_not_admitted_stays_so_when_the_database_is_recovered(foreign: Path, tmp_path: Path) -> None:
    """The journal of a backup tells whom somebody else admitted, and may tell more than its database."""
    copy = Rig(tmp_path / "copy")
    copy.ok("restore", str(forged(foreign, tmp_path / "more.tgz")), "--yes")
    with copy.serving():
        pass
    for file in copy.home.glob("harken.db*"):
        file.unlink()
    copy.ok("recover", "--yes")
    assert decided(copy.home)[0] == 0


def test_journal_that_goes_on_after_the_database_is_no_whole_backup(foreign: Path, tmp_path: Path) -> None:
    """A recovery would take its lines for what happened here."""
    done = Rig(tmp_path / "copy").run("restore", str(forged(foreign, tmp_path / "more.tgz", n=999)), "--yes")
    assert done.code == USER_ERROR
    assert "not a complete backup" in done.err
