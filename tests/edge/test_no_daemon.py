"""Without a daemon the edge starts one; when that fails, every request gets an error that says what to do."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.edge.rig import (
    DISCOVER,
    INITIALIZE,
    REPORT,
    SERVE,
    FakeDaemon,
    Host,
    Json,
    LineReader,
    program,
    request,
    result,
    shake_hands,
    started,
)
from tests.loss.rig import until

RESTART_SECONDS = 2.0  # between two starts
SOME_PATIENCE = ("--patience", "3")  # enough for a program to end, on a busy machine too


def unavailable(home: Path, identifier: object, reason: str = "") -> Json:
    """The error of a request that no daemon can serve."""
    hint = f"run `harken up`, then look at {home}/logs/daemon.log"
    message = f"Harken's daemon cannot be started{reason} ({hint})"
    error = {"code": -32000, "message": message, "data": {"code": "unavailable", "hint": hint}}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def asked(host: Host, message: Json) -> Json:
    """The answer to a request."""
    host.send(message)
    return host.read()


def test_a_missing_daemon_is_started_detached_and_with_a_clean_environment(home: Path, pipe: LineReader) -> None:
    """It outlives the session that started it, so it must hold nothing of it: no terminal, no folder, no secrets."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/h", "LANG": "C.UTF-8", "API_KEY": "secret", "CLAUDECODE": "1"}
    script = program(home, REPORT)
    with started(home, "--spawn", script, environment=environment, leaked=(pipe.descriptor,)) as host:
        host.send(INITIALIZE)
        report = pipe.message()
        for name in ("pid", "umask", "blocked"):
            report.pop(name)
        assert report == {
            "argv": ["-I", "-m", "harken", "serve", "--home", str(home), "--detached", "--unless-down"],
            "env": {"PATH": "/usr/bin:/bin", "HOME": "/h", "LANG": "C.UTF-8"},
            "cwd": "/",
            "leads": True,
            "quiet": ["/dev/null"] * 3,
            "open": [],
        }
        with FakeDaemon(home, "unix") as daemon:
            connection = daemon.accept()
            assert (connection.hello["resumed"], connection.hello["resent"]) == (False, [])
            assert connection.message() == INITIALIZE
            connection.send(result(0))
            assert host.read() == result(0)


@pytest.mark.parametrize("address", ["", "nonsense", "tcp:127.0.0.1:99999:x", "tcp:10.0.0.1:80:x", "unix:/nowhere/x"])
def test_an_address_that_leads_nowhere_means_no_daemon(home: Path, pipe: LineReader, address: str) -> None:
    """A crash leaves any address behind; none may keep a new daemon from being started, or lead off the machine."""
    (home / "run" / "address").write_text(address)
    with started(home, "--spawn", program(home, REPORT)):
        assert pipe.message()["leads"] is True


@pytest.mark.parametrize("first", [INITIALIZE, DISCOVER])
def test_a_starting_daemon_that_dies_is_started_again(home: Path, pipe: LineReader, first: Json) -> None:
    """A host asks once: with an error to its first request, Harken is missing for the whole session."""
    dies_twice = "count = len(os.listdir(PIPE + '-tries'))\nopen(f'{PIPE}-tries/{count}', 'w')\n"
    dies_twice += "if count < 2:\n    os.kill(os.getpid(), 9 if count else 15)\n"
    (home / "pipe-tries").mkdir()
    with started(home, "--spawn", program(home, REPORT + dies_twice + SERVE)) as host:
        host.send(first)
        began = time.monotonic()
        pids = [pipe.message()["pid"] for _ in range(3)]
        assert time.monotonic() - began > 2 * RESTART_SECONDS * 0.9, "a start is not repeated without a pause"
        assert host.read() == result(first["id"], pid=pids[2])
        assert isinstance(pids[2], int)
        os.kill(pids[2], signal.SIGKILL)


@pytest.mark.parametrize("first", [INITIALIZE, DISCOVER])
def test_a_daemon_that_fails_to_start_every_time_is_an_error_in_the_end(home: Path, first: Json) -> None:
    """Silence would make the host wait for its time-out, and nobody would know why."""
    with started(home, "--spawn", program(home, "raise SystemExit(3)"), *SOME_PATIENCE) as host:
        assert asked(host, first) == unavailable(home, first["id"], " (it ended with code 3)")
        assert asked(host, request("7")) == unavailable(home, "7", " (it ended with code 3)")


def test_a_program_that_does_not_exist_is_an_error_in_the_end(home: Path) -> None:
    """An environment that was moved or removed looks like this; so does one that is being replaced right now."""
    with started(home, "--spawn", "/nowhere/python", *SOME_PATIENCE) as host:
        assert asked(host, INITIALIZE) == unavailable(home, 0, " (it ended with code 127)")


def test_what_only_a_person_can_mend_is_an_error_at_once_in_the_words_of_the_daemon(home: Path) -> None:
    """No second try helps against a mistake in the settings, and some hosts wait for ten seconds only."""
    error = {"code": "user_error", "message": "store.max is not a setting.", "hint": "Take it out."}
    last_words = f"""
import json, os
with open({str(home / "run" / "failed")!r}, "w") as file:
    json.dump({{"pid": os.getpid(), "error": {error!r}}}, file)
raise SystemExit(2)
"""
    with started(home, "--spawn", program(home, last_words), "--patience", "1000") as host:
        answer = {
            "code": -32000,
            "message": "Harken's daemon cannot be started: store.max is not a setting. (Take it out.)",
            "data": {"code": "user_error", "hint": "Take it out."},
        }
        assert asked(host, INITIALIZE) == {"jsonrpc": "2.0", "id": 0, "error": answer}


def test_a_mistake_in_the_settings_is_told_to_the_first_request(home: Path) -> None:
    """The same with the real daemon: the person reads it where the agent shows that Harken is missing."""
    (home / "config.toml").write_text("[store]\nmax_mesages = 5\n")
    with started(home, "--patience", "1000") as host:
        answer = asked(host, INITIALIZE)["error"]
        assert isinstance(answer, dict)
        assert "store.max_mesages is not a setting. Did you mean store.max_messages?" in answer["message"]


def test_what_may_pass_is_told_in_the_words_of_the_daemon_in_the_end(home: Path) -> None:
    """A full disk may have room again in a moment; when it has not, the reason is worth more than a number."""
    last_words = f"""
import json, os
error = {{"code": "unavailable", "message": "Cannot write.", "hint": "Free some space.", "retry_after": 60.0}}
with open({str(home / "run" / "failed")!r}, "w") as file:
    json.dump({{"pid": os.getpid(), "error": error}}, file)
raise SystemExit(5)
"""
    with started(home, "--spawn", program(home, last_words), *SOME_PATIENCE) as host:
        answer = asked(host, INITIALIZE)["error"]
        assert isinstance(answer, dict)
        assert answer["message"] == "Harken's daemon cannot be started: Cannot write. (Free some space.)"


def test_the_reason_of_another_process_is_not_taken_for_that_of_ours(home: Path) -> None:
    """The file with the reason may be an old one, or that of a daemon that a command has started meanwhile."""
    left = {"pid": 1, "error": {"code": "user_error", "message": "Somebody else's.", "hint": ""}}
    (home / "run" / "failed").write_text(json.dumps(left))
    with started(home, "--spawn", program(home, "raise SystemExit(2)"), *SOME_PATIENCE) as host:
        assert asked(host, INITIALIZE) == unavailable(home, 0, " (it ended with code 2)")


def test_patience_with_a_daemon_that_never_comes_up_ends(home: Path) -> None:
    """The program that ends well may have found another daemon, so its end says nothing."""
    with started(home, "--spawn", program(home, ""), "--patience", "0.4") as host:
        assert asked(host, INITIALIZE) == unavailable(home, 0)


def test_malformed_lines_are_answered_without_a_daemon(home: Path) -> None:
    """The edge answers them itself in any case."""
    with started(home, "--spawn", "/nowhere/python", *SOME_PATIENCE) as host:
        assert asked(host, INITIALIZE)["id"] == 0
        host.send(b"nonsense\n")
        error = {"code": -32700, "message": "not JSON in UTF-8"}
        assert host.read() == {"jsonrpc": "2.0", "id": None, "error": error}


def test_a_daemon_that_comes_later_is_found_without_a_request(home: Path) -> None:
    """An idle session can only be woken over a connection."""
    with started(home, "--spawn", "/nowhere/python", *SOME_PATIENCE) as host:
        assert asked(host, INITIALIZE)["id"] == 0
        with FakeDaemon(home, "unix") as daemon:
            connection = daemon.accept()
            assert connection.is_quiet()
            host.send(request(1))
            assert connection.message() == request(1)


def test_later_requests_start_the_daemon_again(home: Path, pipe: LineReader) -> None:
    """The person has repaired it meanwhile; the session should not have to be restarted."""
    with started(home, "--spawn", program(home, REPORT + "raise SystemExit(1)"), "--patience", "0.4") as host:
        assert asked(host, INITIALIZE)["id"] == 0
        first = pipe.message()["pid"]
        count = 0
        while pipe.is_quiet(0.1):
            count += 1
            assert asked(host, request(count))["id"] == count
        assert pipe.message()["pid"] != first
        assert count > 5, "not more often than every two seconds"


def test_the_started_daemon_is_started_again_after_it_was_killed(home: Path, pipe: LineReader) -> None:
    """That it once was our child and ended badly does not mean that it cannot be started."""
    with started(home, "--spawn", program(home, REPORT + SERVE)) as host:
        first = pipe.message()["pid"]
        assert isinstance(first, int)
        assert asked(host, INITIALIZE) == result(0, pid=first)
        os.kill(first, signal.SIGKILL)
        second = pipe.message()["pid"]
        assert isinstance(second, int)
        assert asked(host, request(1)) == result(1, pid=second)
        until(lambda: not Path(f"/proc/{first}").exists(), "the dead daemon is no zombie")
        os.kill(second, signal.SIGKILL)


def test_the_edge_ends_while_it_waits_for_a_daemon(home: Path, pipe: LineReader) -> None:
    """The host may be closed at any time."""
    with started(home, "--spawn", program(home, REPORT)) as host:
        host.send(INITIALIZE)
        assert pipe.message()["leads"] is True
        host.stdin.close()
        assert host.exit_code() == 0


def test_a_refusal_is_told_to_every_request_and_tried_again(home: Path) -> None:
    """The hint is for the person, and after they followed it the session goes on."""
    hint = "restart the session"
    data = {"code": "too_old", "hint": hint}
    with FakeDaemon(home, "unix") as daemon, started(home) as host:
        host.send(INITIALIZE)
        refused = daemon.refuse(code="too_old", message="This edge is too old", hint=hint)
        error = {"code": -32000, "message": "This edge is too old (restart the session)", "data": data}
        assert host.read() == {"jsonrpc": "2.0", "id": 0, "error": error}
        assert asked(host, request(1)) == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert refused.line() in {b"", json.dumps(INITIALIZE).encode() + b"\n"}

        connection = daemon.accept()
        assert connection.hello["resumed"] is False
        shake_hands(host, connection)


def test_when_the_refusing_daemon_is_gone_a_new_one_is_started(home: Path, pipe: LineReader) -> None:
    """An old daemon that was stopped for an upgrade must not leave its refusal behind."""
    daemon = FakeDaemon(home, "unix")
    with started(home, "--spawn", program(home, REPORT + SERVE)) as host:
        host.send(INITIALIZE)
        daemon.refuse(code="too_old", message="no", hint="")
        assert host.read()["id"] == 0
        daemon.close()
        pid = pipe.message()["pid"]
        assert isinstance(pid, int)
        assert asked(host, request(1)) == result(1, pid=pid)
        os.kill(pid, signal.SIGKILL)


def test_a_daemon_that_hangs_up_at_once_is_not_asked_for_ever(home: Path) -> None:
    """Reconnecting without end would burn a processor for every open session."""
    with (
        FakeDaemon(home, "unix") as daemon,
        started(home, "--patience", "0.3", "--spawn", "/nowhere/python", *SOME_PATIENCE) as host,
    ):
        host.send(INITIALIZE)
        for _ in range(3):
            daemon.accept().close()
        answer = host.read()
        assert answer["id"] == 0
        assert "error" in answer


def test_a_daemon_that_hangs_up_is_called_less_and_less_often(home: Path) -> None:
    """Also when no request waits: each open session would call it without a pause."""
    with FakeDaemon(home, "unix") as daemon, started(home):
        daemon.accept().close()
        end = time.monotonic() + 1
        count = 0
        while time.monotonic() < end:
            daemon.accept().close()
            count += 1
        assert 1 < count < 30
