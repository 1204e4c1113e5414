"""Another account on the machine is not served, whatever it has: the system tells whose the other end is."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from harken.daemon.callers import CONNECTION, client_check, is_told
from tests.loss.rig import Served, texts
from tests.second_account import SecondAccount
from tests.web.rig import NAVIGATION, Web

pytestmark = pytest.mark.skipif(not is_told(), reason="this system does not tell whose a connection is")

PAGES: Final = ("/", "/events", "/metrics", "/sign-in", "/m/inbox", "/part/items", "/part/sidebar", "/part/text/m-1")
DEEDS: Final = ("/api/send", "/api/allow", "/api/list", "/do/send", "/do/answer", "/do/run", "/sign-in", "/renew-key")


@pytest.fixture
def web(daemon: Served) -> Web:
    """A daemon's HTTP side."""
    daemon.start()
    return Web(daemon)


def test_other_account_gets_nothing_also_with_the_token(web: Web, second_account: SecondAccount) -> None:
    """A token that leaked, from a screen or a backup, is worth nothing to whoever shares the machine."""
    body = '{"text": "from a stranger"}'
    for headers in ({}, web.bearer):
        for path in DEEDS:
            assert second_account.ask(web.address, "POST", path, headers, body) == 403, path
        for path in PAGES:
            assert second_account.ask(web.address, "GET", path, {**headers, **NAVIGATION}) == 403, path
    assert texts(web.daemon.call("list")["messages"]) == []
    assert web.ask("POST", "/api/list", web.bearer, b"{}").status == 200


def test_probes_are_for_everyone(web: Web, second_account: SecondAccount) -> None:
    """A supervisor may run under another account; one word tells it nothing."""
    assert [second_account.ask(web.address, "GET", path) for path in ("/healthz", "/readyz")] == [200, 200]


def test_request_of_a_client_that_hung_up_is_not_taken_for_ours(web: Web, second_account: SecondAccount) -> None:
    """The system calls a closed socket root's: a stranger must not become us by not waiting for the answer."""
    body = '{"text": "from a stranger"}'
    for _ in range(20):
        second_account.do("hurry", address=web.address, method="POST", path="/api/send", headers=web.bearer, body=body)
    web.daemon.call("send", text="mine")
    assert texts(web.daemon.call("list")["messages"]) == ["mine"]


def test_server_in_front_may_be_another_account_when_other_machines_are_let_in(
    daemon: Served, home: Path, second_account: SecondAccount
) -> None:
    """Who opened the port to a network has decided that the token is what counts."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[http]\nallow_remote = true\n")
    (home / "config.toml").chmod(0o600)
    web = Web(daemon.start())
    assert second_account.ask(web.address, "POST", "/api/list", web.bearer, "{}") == 200


def test_nobody_is_served_of_whom_it_cannot_be_told_whether_they_are_of_a_run() -> None:
    """A run that has worn out the daemon's files would else be let through."""

    def worn_out(_inode: int) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    answers: dict[str, Callable[[int], bool | None]] = {"ours": lambda _: False, "run": lambda _: True, "?": worn_out}
    refused = dict[str, str]()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as end:
        for name, is_of_run in answers.items():
            scope = {"client": end.getsockname(), "server": listening.getsockname(), "extensions": {CONNECTION: {}}}
            error = client_check(is_of_run)(scope)
            refused[name] = "" if error is None else error.message
    assert refused == {"ours": "", "run": "A run does not use HTTP.", "?": "Harken cannot tell who is asking."}
