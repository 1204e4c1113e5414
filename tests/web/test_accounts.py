"""Another account on the machine is not served, whatever it has: the system tells whose the other end is."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from harken.daemon.client_account import account_check
from tests.loss.rig import WAIT_SECONDS, Served, texts
from tests.web.rig import NAVIGATION, Web

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(account_check() is None, reason="this system does not tell whose a connection is"),
]

# Run as another user: asks, and says the status. `hasty` closes its end before it could be looked at.
STRANGER = """
import encodings.idna, http.client, json, os, socket, sys  # all now: later they cannot be read
asked = json.load(sys.stdin)
os.setgroups([]); os.setgid(asked["uid"]); os.setuid(asked["uid"])
if asked["hasty"]:
    host, _, port = asked["address"].partition(":")
    sock = socket.create_connection((host, int(port)), 10)
    lines = [f"{asked['method']} {asked['path']} HTTP/1.1", f"Host: {asked['address']}"]
    lines += [f"{name}: {value}" for name, value in asked["headers"].items()]
    sock.sendall("\\r\\n".join([*lines, f"Content-Length: {len(asked['body'])}", "", asked["body"]]).encode())
    sock.close()
    print(0)
else:
    there = http.client.HTTPConnection(asked["address"], timeout=10)
    there.request(asked["method"], asked["path"], asked["body"] or None, asked["headers"])
    print(there.getresponse().status)
"""


def as_stranger(
    web: Web, method: str, path: str, headers: Mapping[str, str], body: str = "", *, is_hasty: bool = False
) -> int:
    """Ask as the user nobody; return the status."""
    asked = {
        "uid": pwd.getpwnam("nobody").pw_uid,
        "address": web.address,
        "method": method,
        "path": path,
        "headers": dict(headers),
        "body": body,
        "hasty": is_hasty,
    }
    command = [sys.executable, "-I", "-S", "-c", STRANGER]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, check=True, timeout=WAIT_SECONDS, text=True
    )
    return int(done.stdout)


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


def test_other_account_gets_nothing_also_with_the_token(web: Web) -> None:
    """A token that leaked, from a screen or a backup, is worth nothing to whoever shares the machine."""
    for headers in ({}, web.bearer):
        assert as_stranger(web, "POST", "/api/send", headers, '{"text": "from a stranger"}') == 403
        for path in ("/", "/events", "/metrics", "/sign-in", "/m/inbox"):
            assert as_stranger(web, "GET", path, {**headers, **NAVIGATION}) == 403, path
    assert texts(web.daemon.call("list")["messages"]) == []
    assert web.ask("POST", "/api/list", web.bearer, b"{}").status == 200


def test_probes_are_for_everyone(web: Web) -> None:
    """A supervisor may run under another account; one word tells it nothing."""
    assert [as_stranger(web, "GET", path, {}) for path in ("/healthz", "/readyz")] == [200, 200]


def test_request_of_a_client_that_hung_up_is_not_taken_for_ours(web: Web) -> None:
    """The system calls a closed socket root's: a stranger must not become us by not waiting for the answer."""
    for _ in range(20):
        as_stranger(web, "POST", "/api/send", web.bearer, '{"text": "from a stranger"}', is_hasty=True)
    web.daemon.call("send", text="mine")
    assert texts(web.daemon.call("list")["messages"]) == ["mine"]


def test_server_in_front_may_be_another_account_when_other_machines_are_let_in(daemon: Served, home: Path) -> None:
    """Who opened the port to a network has decided that the token is what counts."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[http]\nallow_remote = true\n")
    (home / "config.toml").chmod(0o600)
    web = Web(daemon.start())
    assert as_stranger(web, "POST", "/api/list", web.bearer, "{}") == 200
