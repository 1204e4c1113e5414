"""A real daemon behind a reverse proxy: told over https, killed, started again, and told again.

It would look only once an hour, so whatever arrives here within seconds was told.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from harken.testing import DaemonProcess
from tests.cli.rig import Rig
from tests.daemon.graph_rig import Arrivals, sign_in
from tests.graph.service import Graph
from tests.loss.rig import until

SECONDS: Final = 10
TOLD: Final = "told by Microsoft at once"


class Proxy(ThreadingHTTPServer):
    """What a tunnel or a reverse proxy does: https outside, http to this machine inside, and only one folder."""

    daemon_threads = True

    def __init__(self, graph: Graph, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(graph.certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.inside = port
        self.url = f"https://127.0.0.1:{self.server_port}"


class _Visit(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        """Pass a post on, and the answer back."""
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        inside = http.client.HTTPConnection("127.0.0.1", self.server.inside, timeout=SECONDS)
        try:
            inside.request("POST", self.path, body, {"Content-Type": self.headers.get("content-type", "")})
            answer = inside.getresponse()
            status, said, kind = answer.status, answer.read(), answer.getheader("content-type", "")
        except OSError:
            status, said, kind = 502, b"", ""
        finally:
            inside.close()
        self.send_response(status if self.path.startswith("/graph/") else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


pytestmark = pytest.mark.usefixtures("running")


@contextmanager
def proxied(graph: Graph) -> Iterator[Proxy]:
    """Show a port that is free to the service."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Proxy(graph, port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join(SECONDS)


def _write_settings(home: Path, graph: Graph, hooks: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(
        f'{hooks}\n[sources.work]\nkind = "teams"\ntenant = "{graph.tenant}"\nclient_id = "{graph.client_id}"\n'
        f'graph_url = "{graph.url}"\nauthority = "{graph.tokens.origin}"\nca = "{graph.ca}"\n'
        'poll = 3600\nnotifications = true\ntrust = "known"\n'
    )


@contextmanager
def _told(home: Path) -> Iterator[DaemonProcess]:
    """Run a daemon that is told of changes."""
    daemon = DaemonProcess(home).start()
    try:
        until(lambda: [each["pace"] for each in daemon.call("source_list")["sources"]] == [TOLD], "it is told")
        yield daemon
    finally:
        daemon.stop()


def test_a_daemon_is_told_through_a_proxy_and_after_a_kill(graph: Graph) -> None:
    """What is said while it is dead is found at its start, and then it is told again, by one subscription."""
    chat = graph.chat(ann := graph.person("Ann Example"))
    with tempfile.TemporaryDirectory(prefix="harken-") as folder, proxied(graph) as proxy:
        home = Path(folder) / "home"
        _write_settings(home, graph, f'[hooks]\nport = {proxy.inside}\npublic_url = "{proxy.url}"')
        sign_in(home, graph, "work")
        arrivals = Arrivals(home)

        with _told(home) as daemon:
            graph.say(chat, ann, "before")
            until(lambda: arrivals.find("before"), "the first message")
            assert TOLD in Rig(home).ok("source", "list")
            (state,) = [held.state for held in graph.subscriptions.held.values()]
            daemon.kill()

        graph.say(chat, ann, "while it is dead")
        with _told(home):
            graph.say(chat, ann, "after")
            until(lambda: arrivals.find("after"), "the last message")
            assert arrivals.texts() == ["before", "while it is dead", "after"]
            assert [held.state == state for held in graph.subscriptions.held.values()] == [False]

        assert not graph.subscriptions.held
        _assert_unwritten(home, state)


def test_without_a_public_address_it_says_what_is_missing(graph: Graph) -> None:
    """At the start and in a trial, before anybody waits for messages that nobody will tell of."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        home = Path(folder) / "home"
        _write_settings(home, graph, "")

        for words in (("source", "test", "work"), ("serve",)):
            done = Rig(home).run(*words)
            assert done.code != 0
            assert "hooks.public_url" in done.err


def _assert_unwritten(home: Path, state: str) -> None:
    """The secret of a subscription is nowhere on the disk."""
    files = [file for file in home.rglob("*") if file.is_file()]
    assert files
    assert [file.name for file in files if state.encode() in file.read_bytes()] == []
