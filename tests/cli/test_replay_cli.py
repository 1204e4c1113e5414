"""Looking back with the real command: `replay`, `export` with filters, `retention`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Json, Rig, serving


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Rig]:
    """A home of the test's own, whose mailboxes keep a hundred messages."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    config = home / "config.toml"
    config.write_text("[store]\nmax_messages = 100\n", encoding="utf-8")
    config.chmod(0o600)
    with serving(home) as served:
        yield served


def lines(rig: Rig) -> list[Json]:
    """Return the lines of the journal's files."""
    return [json.loads(line) for path in files(rig) for line in path.read_text(encoding="utf-8").splitlines()]


def files(rig: Rig) -> list[Path]:
    """Return the journal's files."""
    return sorted((rig.home / "journal").glob("*.jsonl"))


def at_last(rig: Rig, kind: str) -> str:
    """Return when something of a kind happened last."""
    return str([each for each in lines(rig) if each["kind"] == kind][-1]["at"])


def test_replay_shows_a_mailbox_and_its_consumers_as_they_were(own: Rig) -> None:
    """What somebody knew at a time is not what they know now."""
    first = own.json("send", "one", "--from", "ann", "--channel", "ci")["id"]
    own.ok("pull", "--consumer", "helper")
    then = at_last(own, "seen")
    own.ok("ack", first)
    own.ok("send", "two", "--from", "ann")
    found = own.json("replay", "--at", then, "--mailbox", "inbox")
    assert found["at"] == then
    assert found["unknown"] == {"missing": 0, "nameless": 0, "strange": 0, "removed": 0}
    (box,) = found["mailboxes"]
    assert (box["mailbox"], box["head"], box["there"], box["pruned"]) == ("inbox", 1, 1, 0)
    assert [(each["message"]["id"], each["states"]) for each in box["messages"]] == [
        (first, {"helper": "seen", "watch": "queued"})
    ]
    assert {each["consumer"]: (each["cursor"], each["unread"]) for each in box["consumers"]} == {
        "helper": (1, 0),
        "watch": (0, 1),
    }
    shown = own.ok("replay", "--at", then, "--mailbox", "inbox").splitlines()
    assert shown[0] == "inbox: 1 message"
    assert shown[-2].startswith("  #1  ")
    assert shown[-2].endswith("  ann  seen helper; queued you  one")
    now = own.json("replay", "--at", "now", "--mailbox", "inbox", "--consumer", "watch")["mailboxes"][0]
    assert [each["states"] for each in now["messages"]] == [{"watch": "seen"}, {"watch": "queued"}]


def test_what_the_files_lack_is_taken_from_the_store(own: Rig) -> None:
    """People remove old files; what the store still has is not lost by that."""
    own.ok("send", "one", "--from", "ann")
    own.ok("pull", "--consumer", "helper")
    before = own.json("replay", "--at", "now")["mailboxes"]
    for path in files(own):
        kept = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("not a line\n" + "".join(kept[1:2]), encoding="utf-8")
    assert own.json("replay", "--at", "now")["mailboxes"] == before


def test_a_line_that_somebody_wrote_neither_acts_on_the_terminal_nor_breaks_it(own: Rig) -> None:
    """The files are the person's, and everything in them came from outside."""
    own.ok("send", "one", "--from", "ann")
    (path,) = files(own)
    evil = lines(own)[0]
    evil["n"] = len(lines(own)) + 1
    evil["message"] |= {"id": "m-evil", "seq": 2, "from": "\x1b[31mroot", "received_at": "noon"}
    evil["message"]["content_text_sanitized"] = "\x1b]0;owned\x07 hello\u202e"
    path.write_text(path.read_text(encoding="utf-8") + json.dumps(evil) + "\n", encoding="utf-8")
    shown = own.ok("replay", "--at", "now")
    assert "m-evil" not in shown
    assert "hello" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--at", "noon-ish"), 2),
        (("--at", "2999-01-01"), 2),
        (("--at", "now", "--mailbox", "nowhere"), 3),
        (("--at", "now", "--limit", "0"), 2),
        ((), 2),
    ],
)
def test_a_replay_of_nothing_says_what_to_write(rig: Rig, words: tuple[str, ...], code: int) -> None:
    """A slip of the finger is told as such."""
    done = rig.run("replay", *words)
    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 2


def test_export_takes_out_what_was_asked_for(rig: Rig) -> None:
    """One channel of the last hours, with what became of it, and the documented fields as ever."""
    sent = rig.json("send", "red", "--from", "ann", "--channel", "north")["id"]
    rig.ok("send", "green", "--from", "bob", "--channel", "north")
    rig.ok("send", "blue", "--from", "ann", "--channel", "south")
    chosen = ("export", "--channel", "north", "--sender", "ann", "--source", "local", "--since", "-1h")
    (plain,) = [json.loads(line) for line in rig.ok(*chosen).splitlines()]
    assert plain["id"] == sent
    (full,) = [json.loads(line) for line in rig.ok(*chosen, "--with-ledger").splitlines()]
    assert {name: full[name] for name in plain} == plain
    assert set(full) - set(plain) == {"ledger", "replies"}
    assert [each["consumer"] for each in full["ledger"]] == ["watch"]
    assert rig.ok("export", "--channel", "north", "--until", "-1h") == ""
    assert rig.run("export", "--since", "-1h", "--until", "-2h").code == 2


def test_an_export_whose_reader_leaves_ends_quietly(rig: Rig) -> None:
    """`harken export | head` is how people look."""
    for number in range(3):
        rig.ok("send", f"{number} " + "x" * 60_000, "--from", "ann", "--channel", "long")
    reading, writing = os.pipe()
    process = start_harken(
        [*COMMAND, "export", "--channel", "long"], stdout=writing, stderr=subprocess.PIPE, env=rig.environment
    )
    os.close(writing)
    assert os.read(reading, 1) == b"{"
    os.close(reading)
    _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said) == (128 + signal.SIGPIPE, b"")


def test_retention_says_what_is_over_the_limits_and_removes_it_when_told(own: Rig) -> None:
    """Nothing vanishes that was not announced, and what was unread is expired first."""
    for number in range(102):
        own.ask("send", text=str(number), sender="ann")
    found = own.json("retention")
    assert (found["max_messages"], found["expired_stays_seconds"]) == (100, 7 * 86_400)
    (box,) = [each for each in found["mailboxes"] if each["mailbox"] == "inbox"]
    assert box == {"mailbox": "inbox", "stored": 102, "over": 2, "to_expire": 2, "to_delete": 0}
    assert own.json("retention", "run", "--dry-run") == found
    shown = own.ok("retention").splitlines()
    assert shown[0] == "A mailbox keeps 100 messages, for 365 days. Expired messages stay visible for 7 days."
    assert shown[-1].split() == ["inbox", "102", "2", "2", "-"]
    assert own.json("retention", "run") == {"expired": 2, "deleted": 0}
    assert own.ok("retention", "run") == "0 expired, 0 removed.\n"
    assert own.json("read", "#1")["ledger"][0]["state"] == "expired"
