"""`harken channel`: what machines announce, looked at, acknowledged and handed to an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.config.home import Home
from harken.control.client import DaemonClient
from harken.inbox.channels import MAX_LISTED
from tests.cli.rig import SECONDS, Rig, serving
from tests.cli.test_as_agent import hosting
from tests.loss.rig import until

ANNOUNCER = str(Path(__file__).with_name("announcer.py"))
WRONG, NOT_FOUND, REFUSED = 2, 3, 7
DEPLOYS = tuple(f"deploys=deploy {number}" for number in range(1, 24))


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A home whose daemon has listened to a server with two channels, one of them named like a verb."""
    home = tmp_path_factory.mktemp("channel") / "home"
    home.mkdir(mode=0o700)
    words = ", ".join(f'"{word}"' for word in (ANNOUNCER, *DEPLOYS, "list=a \x5cu001b[31mred list"))
    entry = f'[sources.ci]\nkind = "mcp"\ncommand = "{sys.executable}"\nargs = [{words}]\n'
    (home / "config.toml").write_text(entry)
    (home / "config.toml").chmod(0o600)
    with serving(home) as rig:
        until(lambda: len(rig.json("channel", "names")["channels"]) >= 2, "both are heard", SECONDS)
        yield rig


def test_the_list_shows_unread_and_the_newest_of_each(heard: Rig) -> None:
    """One look says where something new is."""
    found = heard.json("channel", "names")["channels"]
    assert [(each["source"], each["channel"], each["count"]) for each in found] == [
        ("ci", "list", 1),
        ("ci", "deploys", 23),
    ]
    lines = heard.ok("channel", "names").splitlines()
    assert "23 in all" in lines[1]
    assert lines[1].endswith("deploy 23")
    assert "\x1b" not in lines[0]


def test_a_channel_is_shown_by_its_name_with_sequence_numbers(heard: Rig) -> None:
    """The newest 20, the newest last; one that is named like a verb can be shown too."""
    shown = heard.json("channel", "deploys")["messages"]
    assert [each["content_text_sanitized"] for each in shown] == [f"deploy {number}" for number in range(4, 24)]
    lines = heard.ok("channel", "deploys").splitlines()
    assert lines[-1].startswith(f"{shown[-1]['id']} #{shown[-1]['seq']} [deploys ")
    assert len(heard.json("channel", "show", "list")["messages"]) == 1
    assert len(heard.json("channel", "deploys", "--limit", "2", "--source", "ci")["messages"]) == 2


def test_a_channel_that_does_not_exist_is_told(heard: Rig) -> None:
    """Nothing and a slip of the finger look different."""
    named = [(verb, "nothing") for verb in ("ack", "clear", "inject")]
    for words in (("nothing",), *named, ("deploys", "--source", "nobody")):
        done = heard.run("channel", *words)
        assert (done.code, "harken channel names" in done.err) == (NOT_FOUND, True)


def test_acknowledged_is_seen_by_the_person_only(heard: Rig) -> None:
    """What agents have seen does not change; a second time there is nothing to do."""
    assert heard.json("channel", "ack", "list") == {
        "acknowledged": 1,
        "channels": [{"source": "ci", "channel": "list"}],
    }
    message = heard.json("channel", "show", "list")["messages"][0]
    ledger = heard.json("read", message["id"])["ledger"]
    assert [(line["consumer"], line["state"], line["evidence"]) for line in ledger] == [
        ("watch", "seen", "channel ack")
    ]
    assert heard.ok("channel", "ack") == "23 seen by you: ci/deploys\n"
    assert heard.ok("channel", "ack") == ""
    assert [each["unread"] for each in heard.json("channel", "names")["channels"]] == [0, 0]


def test_channel_alone_and_its_list_show_the_newest_messages_with_their_numbers(rig: Rig) -> None:
    """What came last is what people look for; the names of all channels have a command of their own."""
    for number in range(25):
        rig.ask("send", text=f"announced {number}", sender="ci", channel=f"c{number % 3}")
    rig.ask("send", text="by hand", sender="amy")
    lines = rig.ok("channel").splitlines()
    assert lines == rig.ok("channel", "list").splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == [f"announced {number}" for number in range(5, 25)]
    assert all(" #" in line for line in lines)
    assert rig.json("channel") == rig.json("channel", "list")
    assert {"c0", "c1", "c2"} <= {each["channel"] for each in rig.json("channel", "names")["channels"]}


def test_a_channel_that_others_have_pushed_out_of_the_list_is_acknowledged_by_its_name(tmp_path: Path) -> None:
    """It is there: that two hundred others were active since is no reason to deny it."""
    with serving(tmp_path / "home") as rig:
        with DaemonClient(Home(rig.home), can_start=False) as daemon:
            daemon.ask("send", text="long ago", channel="forgotten", sender="ann")
            for number in range(MAX_LISTED):
                daemon.ask("send", text="noise", channel=f"busy-{number}", sender="ann")
        assert rig.run("channel", "ack", "never-there").code == NOT_FOUND
        assert rig.json("channel", "ack", "forgotten")["acknowledged"] == 1
        assert rig.json("channel", "ack")["acknowledged"] == MAX_LISTED


def test_injected_messages_are_one_message_of_data_with_a_forecast(heard: Rig) -> None:
    """Ten of them, oldest first, as text of machines: it has a ledger like any other."""
    sent = heard.json("channel", "inject", "deploys")
    assert len(sent["injected"]) == 10
    assert sent["forecast"]["outlook"] == "next_session"
    message = heard.json("read", sent["id"])["message"]
    assert (message["sender_id"], message["trust"], message["attention"]) == ("channels", "unknown", "boundary")
    lines = message["content_text_sanitized"].splitlines()
    assert [line.partition("] ")[2] for line in lines] == [f"deploy {number}" for number in range(14, 24)]
    assert all(line.startswith("[ci/deploys ") for line in lines)
    assert "10 channel messages: waits for the next session" in heard.ok("channel", "inject")
    assert "channels" not in {each["channel"] for each in heard.json("channel", "names")["channels"]}


def test_what_was_cleared_is_out_of_sight_and_still_stored(tmp_path: Path) -> None:
    """It is said what was cleared and where it is; a restart does not bring it back, and what comes next is shown."""
    with serving(tmp_path / "home") as rig:
        for number in range(3):
            rig.ask("send", text=f"build {number} failed", sender="ci", channel="my builds")
        unread = rig.json("status")["consumers"]
        assert rig.ok("channel", "clear", "my builds").splitlines() == [
            "3 messages cleared: local/my builds (3)",
            "Still stored, and unread if it was: harken list --channel 'my builds'",
        ]
        again = rig.run("channel", "clear", "my builds")
        assert (again.code, again.out, again.err) == (0, "", "There was nothing to clear.\n")
        assert rig.json("status")["consumers"] == unread
    with serving(tmp_path / "home") as rig:
        empty = rig.run("channel", "my builds")
        assert (empty.code, empty.out, "harken list --channel 'my builds'" in empty.err) == (0, "", True)
        assert "0 in all, 3 cleared" in rig.ok("channel", "names")
        assert len(rig.json("list", "--channel", "my builds")["messages"]) == 3
        rig.ask("send", text="build 4 failed", sender="ci", channel="my builds")
        shown = rig.json("channel", "my builds")
        assert ([each["seq"] for each in shown["messages"]], shown["cleared"]) == ([4], 3)
        assert rig.json("channel", "clear", "--all")["cleared"] == 1


@pytest.mark.parametrize("words", [(), ("deploys", "--all")])
def test_clearing_names_one_channel_or_all(heard: Rig, words: tuple[str, ...]) -> None:
    """Neither by a slip nor by a word that is left out is everything cleared."""
    done = heard.run("channel", "clear", *words)
    assert (done.code, "harken channel clear --all" in done.err) == (WRONG, True)


def test_an_agent_neither_acknowledges_nor_injects(heard: Rig) -> None:
    """What the person has seen, and what is handed to agents, is the person's to say; looking is free."""
    with hosting(heard):
        for words in (("ack",), ("clear", "--all"), ("inject",), ("inject", "deploys")):
            done = heard.run("channel", *words)
            assert (done.code, "An agent may not" in done.err) == (REFUSED, True)
        assert heard.json("channel", "deploys")["messages"]


@pytest.mark.parametrize("name", ["channels", " Channels ", "chan\u200bnels"])
def test_nobody_else_speaks_as_channels(heard: Rig, name: str) -> None:
    """The name says that a text is what machines announced: it is no name to choose."""
    done = heard.run("send", "obey", "--from", name)
    assert (done.code, "Nobody may speak as 'channels'" in done.err) == (REFUSED, True)
    assert heard.run("allow", "channels").code == WRONG


def test_nothing_to_inject_is_told(rig: Rig) -> None:
    """An empty message would help nobody."""
    rig.ok("send", "not from a channel", "--channel", "talk")
    done = rig.run("channel", "inject")
    assert (done.code, "There are no channel messages to inject" in done.err) == (WRONG, True)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("harken channel de", {"deploys"}),
        ("harken channel ", {"ack", "deploys", "inject", "list", "show"}),
        ("harken channel ack l", {"list"}),
        ("harken channel inject --source c", {"ci"}),
        ("harken read 2", {"2", "20", "21", "22", "23", "24"}),
    ],
)
def test_names_and_numbers_are_completed(heard: Rig, words: str, offered: set[str]) -> None:
    """Channels where a channel is meant, sequence numbers once a digit is typed."""
    variables = {
        "_HARKEN_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    found = {line.partition(",")[2] for line in Rig(heard.home, variables).run().out.splitlines()}
    assert offered <= found
    assert all(name.startswith(words.rpartition(" ")[2]) for name in found)
