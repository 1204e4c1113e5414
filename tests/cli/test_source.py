"""`harken source`: servers in config.toml, tried from here, shown as the daemon sees them."""

from __future__ import annotations

import os
import pty
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import pytest

from harken.testing.daemon import start_harken
from tests.cli.rig import COMMAND, SECONDS, Json, Rig
from tests.cli.test_as_agent import hosting
from tests.loss.rig import until

ANNOUNCER = str(Path(__file__).with_name("announcer.py"))
WRONG, NOT_FOUND, CONFLICT, REFUSED = 2, 3, 4, 7
MINE = '# my settings\n[log]\nlevel = "debug" # to see everything\n\n# the end\n'


def add(rig: Rig, name: str, *announced: str, options: tuple[str, ...] = ()) -> str:
    """Add a program that announces some things."""
    return rig.ok("source", "add", name, *options, "--command", sys.executable, "--", ANNOUNCER, *announced)


@contextmanager
def answering(status: int) -> Iterator[str]:
    """Serve an address that takes the handshake and answers every GET with a status."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Greet."""
            self.rfile.read(int(self.headers["Content-Length"]))
            info = b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"mute","version":"1"}}'
            body = b'{"jsonrpc":"2.0","id":1,"result":' + info + b"}"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            """Refuse to push."""
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(SECONDS)


@pytest.fixture
def written(fresh: Rig) -> Rig:
    """A home with a config.toml that somebody wrote."""
    fresh.home.mkdir(mode=0o700)
    (fresh.home / "config.toml").write_text(MINE)
    return fresh


def config(rig: Rig) -> str:
    """Return what config.toml holds."""
    return (rig.home / "config.toml").read_text()


def test_a_source_is_added_beside_what_people_wrote_and_taken_out_again(written: Rig) -> None:
    """Comments and order are the person's own; what we wrote goes without a trace."""
    shown = written.ok(
        *("source", "add", "ci", "--url", "https://ci.example/mcp", "--transport", "sse", "--channel", "deploys"),
        *("--header", "Authorization=Bearer env:CI_TOKEN", "--header", "X-Team=shop", "--trust", "known"),
    )
    entry = (
        '[sources.ci]\nkind = "mcp"\ntransport = "sse"\nurl = "https://ci.example/mcp"\n'
        'headers = { Authorization = "Bearer env:CI_TOKEN", X-Team = "shop" }\nchannels = ["deploys"]\n'
        'trust = "known"\n'
    )
    assert entry in config(written)
    assert config(written).startswith(MINE.rstrip())
    assert [line.strip() for line in shown.splitlines()[1:]] == entry.splitlines()
    assert stat.S_IMODE((written.home / "config.toml").stat().st_mode) == 0o600
    taken = written.json("source", "remove", "ci")
    assert (taken["state"], taken["entry"]["url"]) == ("removed", "https://ci.example/mcp")
    assert config(written) == MINE
    assert written.run("source", "remove", "ci").code == NOT_FOUND


def test_sources_that_are_added_at_the_same_time_are_all_there(fresh: Rig) -> None:
    """Each command writes the whole file: what it says that it added must not be gone with the next one."""
    names = [f"s{number}" for number in range(5)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: fresh.ok("source", "add", "webhook", name, "--preset", "github"), names))
    assert sorted(each["name"] for each in fresh.json("source", "list")["sources"]) == names


def test_adding_again_changes_nothing_and_another_of_the_name_is_refused(written: Rig) -> None:
    """A script may run twice; a slip must not replace what works."""
    words = ("source", "add", "ci", "--url", "https://ci.example/mcp")
    assert written.json(*words)["state"] == "added"
    before = config(written)
    assert written.json(*words)["state"] == "unchanged"
    done = written.run("source", "add", "ci", "--url", "https://other.example/mcp")
    assert done.code == CONFLICT
    assert "harken source remove ci" in done.err
    assert config(written) == before


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "https://x.example", "--header", "Authorization=Bearer abc"),
        ("--url", "https://x.example", "--header", "Cookie=a"),
        ("--url", "https://x.example", "--header", "X-Api-Key=k"),
        ("--url", "https://x.example", "--header", "X-Thing=ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("--url", "https://x.example", "--header", "X-Thing=9f8a7b6c5d4e3f2a1b0c"),
        ("--command", "server", "--env", "DB_PASSWORD=hunter2"),
        ("--url", "https://me:hunter2@x.example"),
    ],
)
def test_a_secret_is_never_written(written: Rig, words: tuple[str, ...]) -> None:
    """Settings are shown, copied and committed: only where a secret is kept may stand in them."""
    done = written.run("source", "add", "ci", *words)
    assert (done.code, config(written)) == (WRONG, MINE)
    assert "env:NAME" in done.err
    for secret in ("Bearer abc", "hunter2", "ghp_", "9f8a"):
        assert secret not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ci",), "an address or a program"),
        (("ci", "--url", "https://x", "--command", "y"), "an address or a program"),
        (("local", "--url", "https://x.example"), "cannot be the name"),
        (("a b", "--url", "https://x.example"), "cannot be the name"),
        (("ci", "--url", "ftp://x.example"), "sources.ci.url"),
        (("ci", "--url", "https://x.example", "--header", "nothing"), "NAME=VALUE"),
        (("ci", "--url", "https://x.example", "--env", "A=b"), "sources.ci.env"),
        ((), "NAME"),
    ],
)
def test_what_cannot_be_a_source_is_refused_before_anything_changes(
    written: Rig, words: tuple[str, ...], said: str
) -> None:
    """A daemon that does not start because of a slip would be worse than no source."""
    done = written.run("source", "add", *words)
    assert (done.code, config(written)) == (WRONG, MINE)
    assert said in done.err


def test_a_file_with_mistakes_is_not_added_to(written: Rig) -> None:
    """What is wrong there is told first."""
    (written.home / "config.toml").write_text("[lgo]\n")
    done = written.run("source", "add", "ci", "--url", "https://x.example")
    assert (done.code, config(written)) == (WRONG, "[lgo]\n")
    assert "lgo" in done.err


def test_a_server_is_tried_as_the_daemon_would_listen(fresh: Rig) -> None:
    """Connected, what it calls itself, what came, and what the list of channels leaves out."""
    fresh.home.mkdir(mode=0o700)
    add(fresh, "ci", "deploys=one", "deploys=two", "noise=x", options=("--channel", "deploys"))
    trial = fresh.json("source", "test", "ci", "--seconds", "5")
    assert (trial["state"], trial["messages"], trial["counts"], trial["dropped"]) == (
        "listening",
        2,
        {"deploys": 2},
        {"noise": 1},
    )
    assert trial["server"].startswith("announcer")
    assert not (fresh.home / "harken.db").exists()


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_that_cannot_push_is_told_at_once(fresh: Rig, status: int) -> None:
    """Silence has a reason, and nobody waits for it."""
    fresh.home.mkdir(mode=0o700)
    with answering(status) as address:
        fresh.ok("source", "add", "quiet", "--url", address)
        begun = monotonic()
        done = fresh.run("source", "test", "quiet", "--seconds", "25")
    assert done.code == 1
    assert "silent" in done.out
    assert str(status) in done.out
    assert monotonic() - begun < SECONDS / 2


def test_a_missing_secret_is_told_with_where_to_put_it(fresh: Rig) -> None:
    """A daemon in the background does not have the variables of this shell: what works here must work there."""
    fresh.home.mkdir(mode=0o700)
    there = Rig(fresh.home, {"CI_TOKEN": "in-this-shell-only"})
    done = there.run("source", "add", "ci", "--url", "http://127.0.0.1:9/mcp", "--header", "Authorization=env:CI_TOKEN")
    assert done.code == 0
    assert f"CI_TOKEN=... to {fresh.home / 'env'}" in done.err
    tried = there.run("source", "test", "ci", "--seconds", "0.5")
    assert tried.code == 1
    assert "env:CI_TOKEN is not set" in tried.out
    (fresh.home / "env").write_text("CI_TOKEN=kept-where-it-belongs\n")
    (fresh.home / "env").chmod(0o600)
    # On a busy machine two seconds are over before the first try has failed.
    tried = there.run("source", "test", "ci", "--seconds", "5")
    assert "cannot be reached" in tried.out
    assert "kept-where" not in tried.out + tried.err


def listed(rig: Rig, name: str) -> Json:
    """Return what the daemon says of a source once something of it is stored."""

    def look() -> Json | None:
        found: Json = next(each for each in rig.json("source", "list")["sources"] if each["name"] == name)
        return found if found["counts"] else None

    found: Json = until(look, "something of it is stored", SECONDS)
    return found


def test_the_list_says_what_the_daemon_hears(fresh: Rig) -> None:
    """State, counts per channel and what was left out; a server's own words cannot act on the terminal."""
    fresh.home.mkdir(mode=0o700)
    assert "harken source add --help" in fresh.run("source", "list").err
    add(fresh, "ci", "huge*9000000=x", "noise=x", "deploys=one", options=("--channel", "deploys"))
    found = listed(fresh, "ci")
    assert (found["state"], found["counts"], found["dropped"]) == ("listening", {"deploys": 1}, {"noise": 1})
    assert (found["too_long"], found["known"], found["gaps"]) == (1, 0, 0)
    shown = fresh.ok("source", "list")
    assert shown.startswith("ci  listening  ")
    assert "deploys 1" in shown
    assert "left out: noise 1" in shown
    assert "given up because they are longer than 8 MB: 1" in shown
    assert "\x1b" not in shown
    assert "ci  listening" in fresh.ok("status")
    assert [each["state"] for each in fresh.json("status")["daemon"]["sources"]] == ["listening"]


def test_a_restart_is_told_as_a_gap_in_the_list_and_in_the_status(fresh: Rig) -> None:
    """Whoever looks must not think that all is there: what was announced in between, nobody knows."""
    fresh.home.mkdir(mode=0o700)
    fresh.ok("up")
    add(fresh, "ci", "deploys=one", options=("--restart",))
    assert listed(fresh, "ci")["gaps"] == 0
    assert "gap" not in fresh.ok("source", "list")
    fresh.ok("down")
    fresh.ok("up")
    assert listed(fresh, "ci")["gaps"] == 1
    for words in (("source", "list"), ("status",)):
        assert "1 gap: what was announced meanwhile is not known" in fresh.ok(*words)
    assert fresh.json("status")["daemon"]["sources"][0]["gaps"] == 1


def test_with_restart_the_daemon_listens_at_once(rig: Rig, fresh: Rig) -> None:
    """One command from an address to the first message."""
    del rig
    fresh.home.mkdir(mode=0o700)
    fresh.ok("up")
    before = fresh.pid
    add(fresh, "ci", "deploys=one", options=("--restart",))
    assert fresh.pid != before
    assert listed(fresh, "ci")["counts"] == {"deploys": 1}
    fresh.ok("source", "remove", "ci", "--restart")
    assert fresh.json("source", "list") == {"sources": []}


def test_an_agent_changes_no_sources(rig: Rig) -> None:
    """Who may reach an agent is not the agent's to decide."""
    with hosting(rig):
        for words in (("add", "ci", "--url", "https://x.example"), ("remove", "ci")):
            done = rig.run("source", *words)
            assert (done.code, "An agent may not" in done.err) == (REFUSED, True)


def test_names_of_sources_are_completed_without_a_daemon(written: Rig) -> None:
    """Also those of a daemon that cannot start."""
    written.ok("source", "add", "ci", "--url", "https://x.example")
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": "harken source test c", "COMP_CWORD": "3"}
    assert Rig(written.home, variables).run().out.split() == ["plain,ci"]


def test_a_script_that_names_nothing_is_told_where_it_is_said(written: Rig) -> None:
    """The hint must be a command that there is."""
    assert written.run("source", "add").err.endswith("  See: harken source add mcp --help\n")


def test_whoever_names_nothing_is_asked(written: Rig) -> None:
    """At a terminal, a question each; the last answers may be empty."""
    main, side = pty.openpty()
    words = [*COMMAND, "source", "add"]
    process = start_harken(words, stdin=side, stdout=side, stderr=side, env=written.environment)
    os.close(side)
    answers = iter([b"ci\n", b"https://ci.example/mcp\n", b"env:CI_TOKEN\n", b"deploys, builds\n"])
    said = b""
    try:
        while data := os.read(main, 65_536):
            said += data
            if said.endswith(b": "):
                os.write(main, next(answers))
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(main)
    assert process.wait(timeout=SECONDS) == 0, said
    assert b"An MCP server, by its address or the command that starts it. Other kinds: harken source add --help" in said
    assert config(written).endswith(
        '[sources.ci]\nkind = "mcp"\nurl = "https://ci.example/mcp"\n'
        'headers = { Authorization = "env:CI_TOKEN" }\nchannels = ["deploys", "builds"]\n'
    )
