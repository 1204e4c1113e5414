"""Starting, stopping and replacing the daemon; what happens when it cannot start, or goes away."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from harken.config.home import is_locked
from tests.cli.rig import COMMAND, SECONDS, Rig
from tests.edge.rig import tree
from tests.loss.rig import until


def test_up_starts_one_daemon_of_this_version_and_down_stops_it(fresh: Rig) -> None:
    """The first command of every user ends with a daemon that is ready and what to do next."""
    lines = fresh.ok("up").splitlines()
    assert lines[0].endswith(f"runs now (process {fresh.pid}).")
    assert lines[1].split()[0] == "address"
    assert lines[-5:] == [
        "Next:",
        "  harken connect  connect your agents",
        "  harken open     the page in the browser",
        "  harken status   what waits",
        '  harken send "the build is red" --from ci-bot --channel ci',
    ]
    again = fresh.json("up")
    assert set(again) == {"state", "pid", "version", "url", "home", "port_problem", "store_problem"}
    assert (again["state"], again["pid"], again["home"]) == ("running", fresh.pid, str(fresh.home))

    # Whoever starts a second one by hand is told; whoever merely wants one to be there has what they want.
    done = fresh.run("serve")
    assert done.code == 4
    assert done.err.startswith("harken: Another daemon serves this home.\n  ")
    assert fresh.run("serve", "--detached").code == 0

    # After an upgrade the old program must not go on serving.
    old = fresh.pid
    file = fresh.home / "run" / "daemon.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
    assert "replaced version 0.0.1" in fresh.ok("up")
    assert fresh.pid != old

    # `down` is about the outcome: afterwards no daemon runs.
    pid = fresh.pid
    assert fresh.ok("down") == f"Harken stopped (process {pid}).\n"
    assert not is_locked(fresh.home / "run" / "lock")
    assert fresh.ok("down") == f"No daemon is running for {fresh.home}.\n"
    assert fresh.json("down") == {"state": "not_running", "pid": None, "pids": []}


def test_a_verb_starts_the_daemon(fresh: Rig) -> None:
    """Nobody has to know that there is a daemon. It has no terminal, its own session and a small environment."""
    sent = Rig(fresh.home, {"SECRET_OF_THE_SHELL": "x", "HARKEN_LOG_LEVEL": "debug"}).json("send", "first words")
    assert sent["seq"] == 1
    assert os.getsid(fresh.pid) == fresh.pid
    environment = Path(f"/proc/{fresh.pid}/environ").read_text().split("\0")
    names = {entry.partition("=")[0] for entry in environment if entry}
    desktop = {"DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"}
    assert names <= {"PATH", "HOME", "USER", "LANG", "LC_ALL", "XDG_RUNTIME_DIR", "TMPDIR", "LC_CTYPE"} | desktop
    assert Path(f"/proc/{fresh.pid}/cwd").resolve() == Path("/")
    assert {str(Path(f"/proc/{fresh.pid}/fd/{number}").readlink()) for number in (0, 1, 2)} == {"/dev/null"}


def test_the_daemon_lives_on_when_the_process_tree_of_the_command_is_killed(fresh: Rig) -> None:
    """An agent's shell runs a command that waits, and the agent is ended with everything that descends from it."""
    host = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *COMMAND, "wait"]
    with subprocess.Popen(host, stdout=subprocess.DEVNULL, env=fresh.environment) as process:
        until((fresh.home / "run" / "daemon.json").exists, "a daemon serves", SECONDS)
        family = tree(process.pid)
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    assert fresh.pid not in family
    assert fresh.ask("status")["daemon"]["pid"] == fresh.pid


def test_status_does_not_start_the_daemon(fresh: Rig) -> None:
    """Looking must not change what is looked at."""
    done = fresh.run("status")
    assert (done.code, done.out) == (5, "")
    assert done.err == f"harken: No daemon is running for {fresh.home}.\n  Start it: harken up\n"
    done = fresh.run("status", "--json")
    assert (done.code, done.out, done.err) == (5, '{"daemon": null}\n', "")
    assert not fresh.home.exists()


def test_two_at_once_end_with_one_daemon(fresh: Rig) -> None:
    """Two terminals, or two agents, start at the same moment: both get the same daemon."""
    with fresh.begin("up", "--json") as one, fresh.begin("up", "--json") as two:
        said = [json.loads(process.communicate(timeout=SECONDS)[0]) for process in (one, two)]
    assert said[0]["pid"] == said[1]["pid"] == fresh.pid
    # The one that came too late may still be starting: it finds the lock held and ends, and does not wait to take over.
    until(lambda: _serving(fresh) == [fresh.pid], "the other daemon has ended", SECONDS)


def _serving(rig: Rig) -> list[int]:
    """The processes that serve a home, or are about to."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has just ended
        if "serve" in words and str(rig.home) in words:
            found.append(int(folder.name))
    return found


def test_a_killed_daemon_is_started_again_and_nothing_is_lost(fresh: Rig) -> None:
    """What it leaves behind, an address and a socket file, must not confuse anybody."""
    fresh.ok("send", "before", "--from", "amy")
    os.kill(fresh.pid, signal.SIGKILL)
    assert fresh.json("send", "after", "--from", "amy")["seq"] == 2
    assert [item["content_text_sanitized"] for item in fresh.json("pull")["messages"]] == ["before", "after"]


def test_a_mistake_in_the_settings_reaches_whoever_needed_the_daemon(fresh: Rig) -> None:
    """The daemon is in the background; its reason for not starting must not stay there."""
    fresh.home.mkdir(mode=0o700)
    (fresh.home / "config.toml").write_text("[store]\nmax_mesages = 5\n")
    for words in (("send", "x"), ("up",), ("serve",)):
        done = fresh.run(*words)
        assert (done.code, done.out) == (2, "")
        assert "store.max_mesages is not a setting. Did you mean store.max_messages?" in done.err
        assert "Traceback" not in done.err
    assert "max_mesages" in (fresh.home / "logs" / "daemon.log").read_text()


def test_a_home_that_cannot_be_had_is_said_so(tmp_path: Path) -> None:
    """A file in the place of the folder."""
    place = tmp_path / "home"
    place.write_text("not a folder")
    done = Rig(place).run("send", "x")
    assert done.code == 2
    assert done.err.startswith("harken: ")
    assert "Traceback" not in done.err


def test_the_printed_command_of_the_edge_serves_mcp(fresh: Rig) -> None:
    """Hosts are given this line; it must work as it stands, in a shell and from JSON."""
    line = fresh.ok("mcp", "--print-command", "--consumer", "my agent", "--task", "api")
    given = fresh.json("mcp", "--print-command", "--consumer", "my agent", "--task", "api")
    assert shlex.split(line) == [given["command"], *given["args"]]
    assert given["command"] == sys.executable
    assert given["args"][:2] == ["-I", "-S"]
    assert given["args"][3:] == ["--home", str(fresh.home), "--consumer", "my agent", "--task", "api"]
    named = Rig(fresh.home, {"HARKEN_TASK": "api"}).json("mcp", "--print-command")
    assert named["args"][3:] == ["--home", str(fresh.home), "--task", "api"]
    for command in (shlex.split(line), [*COMMAND, "mcp", "--consumer", "my agent"]):
        assert _serves_mcp(command, fresh)


def _serves_mcp(command: list[str], rig: Rig) -> bool:
    client = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode() + b"\n"
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=rig.environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        process.wait(timeout=SECONDS)
    return bool(answer["result"]["serverInfo"]["name"] == "harken")


def test_send_is_sent_again_with_the_same_id_when_the_connection_breaks(tmp_path: Path) -> None:
    """The daemon may have stored it before it went away; only the id can tell."""
    heard: list[dict[str, object]] = []

    def serve(listener: socket.socket) -> None:
        for is_last in (False, True):
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.readline()
                request = json.loads(stream.readline())
                heard.append(request)
                if is_last:
                    sent = {"id": "m-1", "mailbox": "inbox", "seq": 1, "state": "known"}
                    result = sent | {"forecast": {"outlook": "known", "sentence": "was received before"}}
                    stream.write(json.dumps({"id": request["id"], "result": result}).encode() + b"\n")
                    stream.flush()

    done = _against(serve, tmp_path, "send", "hello")
    assert done == (0, "m-1  inbox #1  is stored; the daemon was restarted meanwhile\n", "")
    assert heard[0]["params"] == heard[1]["params"]


def test_a_daemon_that_refuses_is_quoted(tmp_path: Path) -> None:
    """Between versions the protocol may differ; the daemon says what to do."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            error = {"code": "refused", "message": "Not you.\x1b[31m", "hint": "Go."}
            connection.sendall(json.dumps({"harken": 1, "error": error}).encode() + b"\n")

    assert _against(serve, tmp_path, "list") == (7, "", "harken: Not you.\\x1b[31m\n  Go.\n")


def _against(serve: object, folder: Path, *words: str) -> tuple[int, str, str]:
    """Run a command against a daemon that a test plays."""
    assert callable(serve)
    run = folder / "home" / "run"
    run.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        listener.settimeout(SECONDS)
        (run / "address").write_text(f"unix:{folder / 's'}\n")
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        done = Rig(folder / "home").run(*words)
        thread.join(SECONDS)
    return done.code, done.out, done.err
