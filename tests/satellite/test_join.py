"""Joining and leaving, as people do it: with the commands, and with everything that can be wrong about it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harken.config.home import Home
from harken.config.satellite import FILE, joined_to, machine_id, main_url
from harken.errors import UserError
from tests.graph.certificate import write_loopback_pair
from tests.loss.rig import WAIT_SECONDS, texts, until
from tests.satellite.rig import MainDaemon

SECONDS = 3 * WAIT_SECONDS


def harken(home: Path, *words: str) -> tuple[int, Any]:
    """Run a command; return its exit code, and its JSON or its error."""
    environ = {"PATH": os.defpath, "HOME": str(home.parent), "LANG": "C.UTF-8", "HARKEN_TOASTS_ENABLED": "false"}
    command = [sys.executable, "-I", "-m", "harken", "--home", str(home), "--json", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, json.loads(done.stdout or done.stderr)


@pytest.fixture
def there(home: Path) -> Path:
    """The home of another machine."""
    return home.with_name("there")


def test_machine_joins_works_and_leaves(main: MainDaemon, there: Path, tmp_path: Path) -> None:
    """From a token to a message, and back to an inbox of its own."""
    token = tmp_path / "token"
    token.write_text(main.start().token("buildbox") + "\n")
    joining = ("join", main.url, "--token-file", str(token), "--authority", str(main.authority))
    assert harken(there, *joining) == (0, {"url": main.url, "machine": "buildbox"})
    assert (there / FILE).stat().st_mode & 0o777 == 0o600
    try:
        assert harken(there, "send", "from there")[0] == 0
        assert texts(main.served.call("list")["messages"]) == ["from there"]
        code, up = harken(there, "up")
        assert (code, up["state"], up["url"]) == (0, "running", main.url)
        assert [each["name"] for each in harken(there, "machines")[1]["machines"]] == ["buildbox"]
        assert "this machine is the satellite buildbox of" in json.dumps(harken(there, "doctor")[1])
        code, refused = harken(there, "backup", str(tmp_path / "backup"))
        assert (code, refused["error"]["code"]) == (7, "refused")
        assert harken(there, "task", "new", "a task")[1]["error"]["code"] == "refused"
        assert harken(there, "leave") == (0, {"url": main.url, "machine": "buildbox"})
        assert harken(there, "list")[1]["messages"] == []
        assert (there / "harken.db").exists()
    finally:
        harken(there, "down")
    until(lambda: main.served.call("machines")["machines"][0]["state"] == "away", "it is away")


def test_nothing_changes_when_joining_fails(main: MainDaemon, there: Path, tmp_path: Path) -> None:
    """A wrong token, a wrong authority and a wrong address leave the machine as it was, and say what to do."""
    token = main.start().token("buildbox")
    (tmp_path / "other").mkdir()
    other, _ = write_loopback_pair(tmp_path / "other")
    ours = ("--authority", str(main.authority))
    code, said = harken(there, "join", main.url, "--token", token[:-1], *ours)
    assert (code, said["error"]["message"].endswith("This token is not known.")) == (7, True)
    code, said = harken(there, "join", main.url, "--token", token, "--authority", str(other))
    assert (code, said["error"]["code"]) == (6, "needs_person")
    assert "--authority" in said["error"]["hint"]
    assert harken(there, "join", main.url, "--token", token)[0] == 6
    assert harken(there, "join", main.url.replace("https", "http"), "--token", token)[0] == 2
    assert not (there / FILE).exists()
    (listed,) = main.served.call("token_list")["tokens"]
    assert listed["used_at"] is None


def test_home_of_the_main_daemon_does_not_join_itself(main: MainDaemon) -> None:
    """It would have no inbox any more, and neither would anybody else's machine."""
    token = main.start().token("buildbox")
    code, said = harken(main.served.home, "join", main.url, "--token", token, "--authority", str(main.authority))
    assert (code, said["error"]["message"]) == (2, "This is the home of that main daemon.")
    assert not (main.served.home / FILE).exists()
    assert main.served.call("token_list")["tokens"][0]["used_at"] is None


def test_machine_joins_again_while_it_is_one(main: MainDaemon, there: Path) -> None:
    """Whoever has a new token, or is not sure, says it once more; one that fails leaves the old link alone."""
    token = main.start().token("buildbox")
    ours = ("--authority", str(main.authority))
    try:
        for _ in range(2):
            assert harken(there, "join", main.url, "--token", token, *ours)[0] == 0
        code, said = harken(there, "join", "https://localhost:1", "--token", token, *ours)
        assert (code, said["error"]["hint"].startswith("Nothing was changed here.")) == (5, True)
        assert harken(there, "send", "still from there")[0] == 0
    finally:
        harken(there, "down")


def test_copied_home_is_another_machine(main: MainDaemon, there: Path) -> None:
    """A token that was taken along with all of its home is bound to the home it was joined in."""
    token = main.start().token("buildbox")
    assert harken(there, "join", main.url, "--token", token, "--authority", str(main.authority))[0] == 0
    harken(there, "down")
    copy = there.with_name("copy")
    copy.mkdir(mode=0o700)
    shutil.copy(there / FILE, copy / FILE)
    assert machine_id(Home(copy)) != machine_id(Home(there))
    record = joined_to(Home(copy))
    assert record is not None
    joining = ("join", record.url, "--token", record.token, "--authority", record.authority)
    code, said = harken(copy, *joining)
    assert (code, said["error"]["message"].endswith("This token belongs to another machine.")) == (7, True)


def test_agent_does_not_join_or_leave(main: MainDaemon, there: Path) -> None:
    """Where the inbox is, is not an agent's decision."""
    token = main.start().token("buildbox")
    environ = {"PATH": os.defpath, "HOME": str(there.parent), "CLAUDECODE": "1"}
    command = [sys.executable, "-I", "-m", "harken", "--home", str(there), "--json", "join", main.url]
    done = subprocess.run(
        [*command, "--token", token], env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 7
    assert not (there / FILE).exists()


@pytest.mark.parametrize(
    "text", ["", "http://a.example", "https://", "https://a.example/x", "https://u@a.example", "https://a.example:x"]
)
def test_address_without_tls_or_with_more_than_a_place_is_refused(text: str) -> None:
    """A token must not be sent to a place that was not meant."""
    with pytest.raises(UserError):
        main_url(text)
