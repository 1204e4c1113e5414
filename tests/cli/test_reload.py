"""Sources and settings are taken over by the running daemon: added, removed, or written by hand and reloaded."""

from __future__ import annotations

import json
import socket
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.rig import SECONDS, Json, Rig, serving
from tests.cli.terminal_session import TerminalSession
from tests.cli.test_as_agent import hosting
from tests.cli.test_source import ANNOUNCER, REFUSED, WRONG, add, listed
from tests.loss.rig import until

UNSIGNED, NOT_THERE = 401, 404


@pytest.fixture
def running(served: Rig) -> Rig:
    """A home whose daemon runs, with nothing in it."""
    return served


def write(rig: Rig, text: str) -> None:
    """Write config.toml as a person does."""
    (rig.home / "config.toml").write_text(text)


def announcing(name: str, *announced: str) -> str:
    """Return the entry of a program that announces some things."""
    args = json.dumps([ANNOUNCER, *announced])
    return f'[sources.{name}]\nkind = "mcp"\ncommand = "{sys.executable}"\nargs = {args}\n'


def names(rig: Rig) -> list[str]:
    """Return the sources that are in force."""
    return [each["name"] for each in rig.json("source", "list")["sources"]]


def process(rig: Rig) -> int:
    """Return which process the daemon is."""
    pid: int = rig.json("status")["daemon"]["pid"]
    return pid


def test_a_source_is_added_and_removed_while_the_daemon_runs(running: Rig) -> None:
    """Nobody's session is interrupted because a server is listened to."""
    before = process(running)
    add(running, "ci", "deploys=one")
    assert listed(running, "ci")["state"] == "listening"
    words = ("source", "add", "--json", "ci", "--command", sys.executable, "--", ANNOUNCER, "deploys=one")
    added = json.loads(running.ok(*words))
    assert (added["state"], added["in_force"]) == ("unchanged", True)
    assert running.json("source", "remove", "ci")["in_force"] is True
    assert (names(running), process(running)) == ([], before)
    stored = running.json("list", "--channel", "deploys")["messages"]
    assert [each["content_text_sanitized"] for each in stored] == ["one"]


def test_at_a_terminal_what_was_added_is_tried(running: Rig) -> None:
    """Whoever adds it sees whether it works; a script does not wait for that."""
    words = ("source", "add", "ci", "--command", sys.executable, "--", ANNOUNCER, "deploys=one")
    with TerminalSession(running, *words, columns=200) as person:
        person.sees("Harken is listening to it.", "Testing it for 5 seconds.", "1 message came: deploys 1")
        assert person.leaves() == 0


def posted(rig: Rig, name: str) -> int:
    """Return the answer to something unsigned that is posted to a webhook."""
    base = urlsplit(rig.json("status")["daemon"]["hooks_url"])
    connection = HTTPConnection(base.hostname or "", base.port, timeout=SECONDS)
    try:
        connection.request("POST", f"/hooks/{name}", b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_webhook_is_posted_to_as_soon_as_it_is_added(running: Rig) -> None:
    """The listener is opened by the first one, and knows the second too; one that is gone is not there."""
    for name in ("one", "two"):
        running.ok("source", "add", "webhook", name, "--preset", "github")
    assert (posted(running, "one"), posted(running, "two")) == (UNSIGNED, UNSIGNED)
    assert running.json("source", "test", "two")["state"] == "listening"
    running.ok("source", "remove", "one")
    assert (posted(running, "one"), posted(running, "two")) == (NOT_THERE, UNSIGNED)


def test_the_port_for_posts_is_closed_with_the_last_webhook_and_opened_again(running: Rig) -> None:
    """What is not needed is not open; a service that knows the address finds it there again."""
    words = ("source", "add", "webhook", "one", "--preset", "github")
    running.ok(*words)
    before = running.json("status")["daemon"]["hooks_url"]
    running.ok("source", "remove", "one")
    assert running.json("status")["daemon"]["hooks_url"] == ""
    address = urlsplit(before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname or "", address.port or 0), SECONDS)
    running.ok(*words)
    assert (running.json("status")["daemon"]["hooks_url"], posted(running, "one")) == (before, UNSIGNED)


def test_what_was_written_by_hand_is_taken_over_and_told(running: Rig) -> None:
    """What changed is said, and what needs a restart is not passed over in silence."""
    write(running, announcing("a", "ci=from a") + announcing("b", "ci=from b"))
    assert "a is in config.toml but not loaded: harken reload" in running.run("source", "list").err
    found = running.json("reload")
    assert (found["added"], found["removed"], found["changed"]) == (["a", "b"], [], [])
    more = '[trust]\nknown = ["b:b"]\n[limits]\nmax_wait_seconds = 20\n'
    write(running, announcing("b", "ci=from b again") + announcing("c", "ci=from c") + more)
    assert running.json("reload") == {
        "added": ["c"],
        "removed": ["a"],
        "changed": ["b"],
        "settings": ["trust"],
        "retried": [],
        "restart": ["limits"],
    }

    def trusted() -> Json | None:
        found = running.json("list", "--limit", "100")["messages"]
        return next((each for each in found if each["content_text_sanitized"] == "from b again"), None)

    assert until(trusted, "what the changed source says is stored", SECONDS)["trust"] == "known"
    told = running.run("reload")
    assert told.err.strip() == "After a restart only (harken down && harken up): limits"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ('[sources.b]\nkind = "mcp"\n', "sources.b.url is missing"),
        ('[sources.b]\nkind = "no such"\n', "'no such'"),
        ("[limits]\nmax_wait_seconds = -1\n", "limits.max_wait_seconds"),
        ("[", "config.toml"),
    ],
)
def test_with_a_mistake_nothing_changes(running: Rig, wrong: str, named: str) -> None:
    """Half of a file would be neither what was nor what was meant."""
    add(running, "ci", "deploys=one")
    write(running, announcing("other", "ci=x") + wrong)
    refused = running.run("reload")
    assert refused.code == WRONG
    assert named in refused.err
    assert names(running) == ["ci"]


def test_a_secret_that_was_put_in_its_place_is_found_by_a_reload(running: Rig) -> None:
    """A source that waits for a person is tried again, though its entry is the same."""
    entry = announcing("ci", "deploys=one") + '[sources.ci.env]\nAPI_TOKEN = "env:HARKEN_TEST_TOKEN"\n'
    write(running, entry)
    running.ok("reload")
    assert running.json("source", "list")["sources"][0]["state"] == "needs person"
    (running.home / "env").write_text("HARKEN_TEST_TOKEN=kept-where-it-belongs\n")
    (running.home / "env").chmod(0o600)
    assert running.ok("reload") == "Tried again, because it waited for you: ci\n"
    assert listed(running, "ci")["state"] == "listening"


def test_a_source_that_has_delivered_says_so_after_a_restart(tmp_path: Path) -> None:
    """That nothing came since the daemon began is no reason to say that nothing ever came."""
    home = tmp_path / "home"
    with serving(home) as rig:
        write(rig, announcing("ci", "deploys=one"))
        rig.ok("reload")
        last = until(lambda: listed(rig, "ci")["last_message_at"], "it is heard", SECONDS)
        write(rig, '[sources.ci]\nkind = "mcp"\ncommand = "/nowhere/at-all"\n')
    with serving(home) as rig:
        assert rig.json("source", "list")["sources"][0]["last_message_at"][:16] == last[:16]


def test_an_agent_may_not_take_settings_over(running: Rig) -> None:
    """It could write a program into the file, and have it started."""
    with hosting(running):
        refused = running.run("reload")
    assert refused.code == REFUSED
