"""Looking at Harken: status, stats, journal, export, config, version; and who may reach what."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from harken import __version__
from harken.testing import EdgeClient, edge_command
from tests.cli.rig import Json, Rig

UNAVAILABLE = 5


def test_status_names_daemon_consumers_and_what_waits(rig: Rig) -> None:
    """One look tells whether messages arrive."""
    rig.ok("send", "hello", "--from", "amy")
    found = rig.json("status")
    assert found["daemon"]["pid"] == rig.pid
    assert found["daemon"]["url"].startswith("http://127.0.0.1:")
    assert {"sessions", "consumers", "senders", "mutes", "parked", "waiting_replies", "not_stored", "store"} < set(
        found
    )
    shown = rig.ok("status")
    assert (
        shown.index(" unread for you: harken pull\n")
        < shown.index("Agents: none is connected")
        < shown.index("Sources: ")
    )
    assert shown.endswith(f"Harken {__version__} is running. More: harken status --all\n")
    assert found["daemon"]["url"] not in shown
    whole = rig.ok("status", "--all")
    assert f"Harken {__version__} has been running since" in whole
    assert found["daemon"]["url"] in whole
    assert "\n  you " in whole
    assert "watch" not in whole


def test_status_says_why_nothing_can_be_stored(fresh: Rig) -> None:
    """Who asks how things stand on a full disk, or with a file gone, must not be told that all is well."""
    fresh.ok("send", "before", "--from", "amy")
    shown = fresh.ok("status", "--all")
    assert "Nothing can be stored" not in shown
    assert "  store    sqlite: 1 message, 1 mailbox, 1 event, " in shown
    assert "not indexed" not in shown
    log, away = fresh.home / "harken.db-wal", fresh.home / "elsewhere"
    log.rename(away)
    assert fresh.run("send", "lost").code == UNAVAILABLE
    assert "Nothing can be stored: harken.db-wal was moved" in fresh.ok("status")
    away.rename(log)
    fresh.ok("send", "after")
    assert "Nothing can be stored" not in fresh.ok("status")


def test_status_names_the_sessions_that_read_nothing_and_says_why(rig: Rig) -> None:
    """The agent is told with every call; the person, who can correct it, looks here."""
    rig.ok("send", "hello", "--from", "amy")
    with EdgeClient([*edge_command(rig.home), "--task", "nowhere"], name="some-agent") as agent:
        agent.request("tools/list", {})
        shown = rig.ok("status")
        assert "Sessions that read nothing:" in shown
        assert "There is no task 'nowhere', for which this session was started." in shown
    rig.until(lambda found: not found["sessions"])
    assert "Sessions that read nothing" not in rig.ok("status")


def test_stats_counts_by_channel(rig: Rig) -> None:
    """How much waits, and where."""
    rig.run("pull", "--consumer", "counter", "--limit", "100")
    rig.ok("send", "a", "--channel", "north", "--from", "amy")
    rig.ok("send", "b", "--channel", "north", "--from", "amy")
    found = rig.json("stats", "--consumer", "counter")
    assert (found["depth"], found["unread_by_channel"]) == (2, {"north": 2})
    lines = rig.ok("stats", "--consumer", "counter").splitlines()
    assert lines[0].startswith("2 unread for counter, the oldest from ")
    assert lines[1:] == ["  north  2"]


def test_what_a_consumer_was_not_given_is_shown_with_the_way_to_it(fresh: Rig) -> None:
    """The count of the unread alone would say that there is nothing else; the rest is below the number shown."""
    fresh.home.mkdir()
    (fresh.home / "config.toml").write_text("[limits]\nnew_consumer_most = 1\n")
    for text in ("one", "two", "three"):
        fresh.ok("send", text, "--from", "amy")
    fresh.ok("pull", "--consumer", "late")
    left_out: Json = {"older": 0, "surplus": 2, "up_to": 2}
    assert fresh.json("stats", "--consumer", "late")["left_out"] == [{"mailbox": "inbox", **left_out}]
    places = fresh.json("status")["consumers"]
    inbox = {each["consumer"]: each["left_out"] for each in places if each["mailbox"] == "inbox"}
    assert inbox == {"late": left_out, "watch": {"older": 0, "surplus": 0, "up_to": 0}}
    for words, row in (
        (("status", "--all"), "  late  inbox  2 too many  before #3"),
        (("stats", "--consumer", "late"), "  inbox  2 too many  before #3"),
    ):
        lines = fresh.ok(*words).splitlines()
        assert lines[lines.index(row) - 1].startswith("Not given when the consumer began")
    below = fresh.json("list", "--mailbox", "inbox", "--before", "3")["messages"]
    assert [each["content_text_sanitized"] for each in below] == ["one", "two"]
    assert "3 messages, 1 delivery, 1 mailbox, " in fresh.ok("status", "--all")
    assert [fresh.json("read", ref)["not_given"] for ref in ("#2", "#3")] == [["late"], []]
    assert "  late  not given  older, or one of too many, when it began" in fresh.ok("read", "#2").splitlines()


def test_what_another_agent_had_seen_is_expired_in_the_ledger_with_its_name(fresh: Rig) -> None:
    """Who wonders why a new agent does not have it finds who does."""
    sent = fresh.json("send", "done by another", "--from", "amy")["id"]
    fresh.ok("pull", "--consumer", "early")
    fresh.run("pull", "--consumer", "late")
    (line,) = [line for line in fresh.ok("read", sent).splitlines() if line.startswith("  late ")]
    assert " expired " in line
    assert "seen by early before this reader began" in line


def test_stats_of_a_consumer_that_does_not_exist_creates_none(rig: Rig) -> None:
    """A slip of the finger is told as such, and is no new reader for whom mail is kept from now on."""
    done = rig.run("stats", "--consumer", "claude-coed")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("harken: There is no consumer 'claude-coed'.\n")
    for verb, name in (("stats", "q" * 65), ("stats", "A B"), ("pull", "../x"), ("wait", "-"), ("pull", "caf\u00e9")):
        assert (verb, name, rig.run(verb, "--consumer", name).code) == (verb, name, 2)
    names = {each["consumer"] for each in rig.json("status")["consumers"]}
    assert not names & {"claude-coed", "q" * 65, "A B", "../x", "-", "caf\u00e9"}


def test_journal_shows_the_newest_events(rig: Rig) -> None:
    """What happened last is what people look for."""
    sent = rig.json("send", "for the record", "--from", "amy")
    line = rig.ok("journal", "--limit", "1")
    assert f" received {sent['id']} amy: for the record" in line
    page = rig.json("journal", "--limit", "1")
    assert [event["message"]["id"] for event in page["events"]] == [sent["id"]]
    assert page["last"] == page["events"][-1]["n"]


def test_journal_follows_until_interrupted(rig: Rig) -> None:
    """Each event is printed when it happens, and Ctrl-C ends it without complaint."""
    rig.ok("send", "before", "--from", "amy")
    with rig.begin("journal", "--follow", "--json", "--limit", "1") as following:
        assert following.stdout is not None
        json.loads(following.stdout.readline())
        sent = rig.json("send", "live", "--from", "amy")
        events = (json.loads(line) for line in iter(following.stdout.readline, b""))
        assert next(event for event in events if event.get("message"))["message"]["id"] == sent["id"]
        following.send_signal(2)
        _, err = following.communicate(timeout=20)
    assert following.returncode == 130
    assert err.strip() == b""


def test_export_gives_every_message_of_every_mailbox(rig: Rig, tmp_path: Path) -> None:
    """An export is complete, one message per line, or one document."""
    rig.ok("send", "exported ü", "--to", "project:books", "--from", "amy")
    lines = [json.loads(line) for line in rig.ok("export").splitlines()]
    assert {"inbox", "project:books"} <= {line["mailbox"] for line in lines}
    assert rig.json("export") == {"messages": lines}
    assert json.loads(rig.ok("export", "--format", "json")) == {"messages": lines}
    target = tmp_path / "out.jsonl"
    assert rig.ok("export", "--mailbox", "project:books", "--output", str(target)) == ""
    assert [json.loads(line) for line in target.read_text().splitlines()] == [
        line for line in lines if line["mailbox"] == "project:books"
    ]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_export_into_a_folder_that_is_not_there_is_the_callers_mistake(rig: Rig, tmp_path: Path) -> None:
    """One sentence, no trace."""
    done = rig.run("export", "--output", str(tmp_path / "no" / "out.jsonl"))
    assert done.code == 2
    assert done.err.startswith("harken: Cannot write ")


def test_config_show_names_every_setting_and_its_origin(rig: Rig) -> None:
    """People must see what counts, and why."""
    chosen = Rig(rig.home, {"HARKEN_LOG_LEVEL": "debug"})
    done = chosen.run("config", "show", "--origin")
    assert done.code == 0
    row = next(line.split() for line in done.out.splitlines() if "log.level" in line)
    assert row[1] == '"debug"'
    assert "HARKEN_LOG_LEVEL" in row[-1]
    assert "background" in done.err
    found = rig.json("config", "show")
    assert set(found) == {"settings", "warnings"}
    assert {"name", "value", "origin", "help"} == set(found["settings"][0])
    assert "origin" not in rig.ok("config", "show")


def test_version_names_command_and_daemon(rig: Rig) -> None:
    """The first thing to ask when something is odd."""
    assert rig.ok("version") == rig.ok("--version") == f"harken {__version__}\n"
    assert rig.json("version")["daemon"] == __version__


@pytest.mark.parametrize(
    ("words", "result", "sentence"),
    [
        (("allow", "amy"), {"source": "*", "sender": "amy", "trust": "known"}, "amy is known and may reach sessions."),
        (
            ("allow", "amy", "--source", "teams", "--as-owner"),
            {"source": "teams", "sender": "amy", "trust": "owner"},
            "amy from teams speaks for you.",
        ),
        (("deny", "bob"), {"source": "*", "sender": "bob", "trust": "unknown"}, "bob is only counted from now on."),
        (
            ("deny", "bob", "--undo"),
            {"source": "*", "sender": "bob", "trust": None},
            "bob is no longer decided about.",
        ),
        (
            ("mute", "channel", "ci"),
            {"kind": "channel", "name": "ci", "until": None},
            "channel ci is muted; messages are still stored.",
        ),
        (("unmute", "channel", "ci"), {"kind": "channel", "name": "ci"}, "channel ci is not muted."),
    ],
)
def test_access_verbs_say_what_holds_now(rig: Rig, words: tuple[str, ...], result: Json, sentence: str) -> None:
    """A decision is confirmed in words and in JSON."""
    assert rig.json(*words) == result
    assert rig.ok(*words) == sentence + "\n"


def test_a_mute_for_a_time_is_shown_with_its_end(rig: Rig) -> None:
    """A mute that ends by itself must say when."""
    muted = rig.json("mute", "sender", "amy", "--for", "1h30m")
    assert muted["until"] is not None
    assert "sender amy is muted until " in rig.ok("mute", "sender", "amy", "--for", "2d")
    assert any(line.split()[:3] == ["sender", "amy", "until"] for line in rig.ok("status").splitlines())


def test_only_a_session_or_an_agent_that_there_is_can_be_muted(rig: Rig) -> None:
    """A slip of the finger would look muted and push all the same; channels and senders may still come."""
    done = rig.run("mute", "session", "nobody-here")
    assert (done.code, "See them: harken status --all" in done.err) == (3, True)
    rig.ask("ack", refs=[rig.ask("send", text="x")["id"]], consumer="some-agent")
    rig.ok("mute", "session", "some-agent")
    rig.ok("unmute", "session", "some-agent")


def test_pair_gives_a_code_with_an_end(rig: Rig) -> None:
    """A code that works for ever would be a password."""
    assert set(rig.json("pair")) == {"code", "until"}
    assert "allows the first sender who sends it, until " in rig.ok("pair")


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        (
            ("mute", "channel", "ci", "--for", "3y"),
            "Invalid value for '--for': '3y' is not a duration",
            "See: harken mute --help",
        ),
        (("mute", "planet", "mars"), "Invalid value for", "See: harken mute --help"),
        (
            ("mute",),
            "Missing argument '{channel|sender|session}'. Choose from: channel, sender, session",
            "See: harken mute --help",
        ),
        (("source", "tets"), "There is no command 'tets'.", "See: harken source --help"),
        (("sned", "x"), "There is no command 'sned'. Did you mean send?", "See: harken --help"),
        (("list", "--limit", "0"), "limit must be at least 1.", "Give 1 or more"),
        (("read", "x", "--limit"), "Option '--limit' requires an argument.", "See: harken read --help"),
        (("read", "x", "--limit", "y"), "Invalid value for '--limit': 'y' is not a whole number.", "See: harken read"),
        (("send", "x", "--from", ""), "A sender needs a name.", "Leave it out to speak as yourself"),
        (("send", "x", "--from", " "), "A sender needs a name.", "Leave it out to speak as yourself"),
        (("send", "x", "--channel", "bad channel / \\"), "'bad channel / \\\\' cannot be the name", "Use words"),
        (("send", "x", "--channel", "ci/*"), "'ci/*' cannot be the name of a channel.", "Use words"),
        (("send", "x", "--channel", "ci//main"), "'ci//main' cannot be the name of a channel.", "Use words"),
        (("list", "--colour"), "No such option", "See: harken list --help"),
        (("--home", "", "list"), "The home folder given by --home is empty.", "Name a folder"),
    ],
)
def test_a_mistake_is_one_sentence_one_hint_and_code_2(
    rig: Rig, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    """Every mistake looks the same, whoever noticed it: the shell's words, Harken or the daemon."""
    done = rig.run(*words)
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first.startswith(f"harken: {sentence}")
    assert second.startswith(f"  {hint}")
    as_json = rig.run(*words, "--json")
    assert (as_json.code, as_json.out) == (2, "")
    assert json.loads(as_json.err)["error"]["code"] == "user_error"


def test_home_and_json_stand_before_or_after_the_verb(rig: Rig, tmp_path: Path) -> None:
    """Nobody remembers which side an option belongs on."""
    elsewhere = Rig(tmp_path / "unused")
    before = elsewhere.run("--home", str(rig.home), "--json", "stats")
    after = elsewhere.run("stats", "--json", "--home", str(rig.home))
    assert before == after
    assert json.loads(before.out)["consumer"] == "watch"
    assert not elsewhere.home.exists()


def test_help_names_every_verb_without_a_daemon(tmp_path: Path) -> None:
    """Looking at the help changes nothing."""
    bare = Rig(tmp_path / "home")
    assert "harken --help" in bare.ok()
    shown = bare.ok("--help")
    for verb in ("send", "status", "export", "allow", "completion"):
        assert f"\n  {verb} " in shown
    assert not bare.home.exists()


@pytest.mark.parametrize("words", [("help",), ("-h",), ("help", "send"), ("send", "-h")])
def test_help_is_found_however_people_ask_for_it(rig: Rig, words: tuple[str, ...]) -> None:
    """The first word that a newcomer types is often one of these."""
    verb = [word for word in words if word == "send"]
    assert rig.ok(*words) == rig.ok(*verb, "--help")


def test_harken_alone_says_how_to_begin_and_help_begins_with_every_day(rig: Rig) -> None:
    """A newcomer reads a few lines; whoever looks for a command finds the usual ones first."""
    lines = rig.ok().splitlines()
    assert len(lines) <= 12
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[1] for line in lines[1:-1]][:3] == ["connect", "doctor", "send"]
    assert lines[-1] == "Every command: harken --help"
    shown = rig.ok("--help")
    assert shown.index("Every day:") < shown.index("  send ") < shown.index("Messages:")
    assert shown.count("\n  send ") == 1


@pytest.mark.parametrize("words", [(), ("channel",), ("rules",), ("run",), ("source",), ("task",), ("service",)])
def test_help_cuts_no_sentence(rig: Rig, words: tuple[str, ...]) -> None:
    """What a command is for is often said at the end."""
    usage, *rows = rig.ok(*words, "--help").splitlines()
    assert usage.startswith("Usage: ")
    assert [row for row in rows if row.endswith("...")] == []


@pytest.mark.parametrize(
    ("group", "verb"),
    [("rules", "list"), ("task", "list"), ("run", "list"), ("source", "list"), ("channel", "list"), ("config", "show")],
)
def test_a_group_without_a_verb_shows_what_there_is(rig: Rig, group: str, verb: str) -> None:
    """Nobody types a noun to be told how to use it."""
    alone, named = rig.run(group), rig.run(group, verb)
    assert (alone.code, alone.out, alone.err) == (named.code, named.out, named.err)
    assert alone.code == 0
    assert rig.json(group) == rig.json(group, verb)


@pytest.mark.parametrize(("typed", "meant"), [("statsu", "status"), ("sned", "send"), ("lsit", "list")])
def test_letters_in_another_order_are_understood(rig: Rig, typed: str, meant: str) -> None:
    """The most common slip: `stats` is nearer by the letters, and not what was meant."""
    assert f"Did you mean {meant}?" in rig.run(typed).err


@pytest.mark.parametrize(
    ("typed", "meant"), [("sessions", "status"), ("stop", "down"), ("runs", "run"), ("ls", "list")]
)
def test_words_of_other_programs_lead_to_the_command(rig: Rig, typed: str, meant: str) -> None:
    """What is alike by its letters is seldom meant: `sessions` is no `version`."""
    assert f"Did you mean {meant}?" in rig.run(typed).err
    assert "Did you mean" not in rig.run("route").err
