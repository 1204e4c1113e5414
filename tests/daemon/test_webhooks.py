"""Webhooks of a real daemon: what was answered with 202 is stored whatever happens, and nothing else is open."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.loss.rig import DaemonStarter, Json, Served, error_of, export, until
from tests.loss.test_disk import ShortFiles
from tests.sources.webhook import samples
from tests.sources.webhook.rig import SECRET, github

CONNECTIONS: Final = 32
ENOUGH: Final = 400
SECONDS: Final = 30.0
HOOK: Final = "/hooks/ci"
ACCEPTED: Final = b'{"status":"accepted"}'


@pytest.fixture
def hooked(home: Path) -> Path:
    """A home with a webhook of GitHub."""
    home.mkdir(mode=0o700)
    entry = {"kind": "webhook", "preset": "github", "secret": "file:ci.secret", "max_bytes": 100_000}
    (home / "config.toml").write_text("[sources.ci]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in entry.items()))
    (home / "ci.secret").touch(mode=0o600)
    (home / "ci.secret").write_text(SECRET)
    return home


def port_of(daemon: Served, listener: str = "hooks_url") -> int:
    """Where a listener is."""
    return urlsplit(daemon.call("status")["daemon"][listener]).port or 0


def ask(port: int, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> HTTPResponse:
    """Return the answer to one request; its body is read."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        answer.msg["x-body"] = answer.read().decode()
        return answer
    finally:
        connection.close()


def post(port: int, delivery: str, payload: samples.Payload = samples.GITHUB_PUSH, event: str = "push") -> HTTPResponse:
    """Post as GitHub does."""
    body = json.dumps(payload).encode()
    headers = {"content-type": "application/json", **github(body, event=event, delivery=delivery)}
    return ask(port, "POST", HOOK, headers, body)


def numbered(number: int) -> samples.Payload:
    """A push that says its number."""
    commit = {"id": f"{number:040x}", "message": f"change {number}", "author": {"name": "Ann"}}
    return {**samples.GITHUB_PUSH, "commits": [commit]}


def said(messages: list[Json]) -> list[int]:
    """The numbers of the pushes that are stored."""
    return [int(each["content_text_sanitized"].partition("change ")[2].split()[0]) for each in messages]


class Load:
    """Many connections that post as fast as they are answered, until the daemon is gone."""

    def __init__(self, port: int, daemon: Served) -> None:
        self._port = port
        self._daemon = daemon
        self._next = 0
        self.accepted: list[int] = []
        self.unanswered: list[int] = []

    async def run(self) -> None:
        """Post from all of them; the daemon is killed when it has accepted enough."""
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                for _ in range(CONNECTIONS):
                    group.start_soon(self._post_all)

    async def _post_all(self) -> None:
        async with await anyio.connect_tcp("127.0.0.1", self._port) as stream:
            answers = BufferedByteReceiveStream(stream)
            while True:
                self._next += 1
                number = self._next
                try:
                    await stream.send(_request(number))
                    head = await answers.receive_until(b"\r\n\r\n", 65_536)
                    await answers.receive_exactly(len(ACCEPTED))
                except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead, OSError):
                    self.unanswered.append(number)
                    return
                assert head.startswith(b"HTTP/1.1 202"), head
                self.accepted.append(number)
                if len(self.accepted) == ENOUGH:
                    self._daemon.kill()


def _request(number: int) -> bytes:
    body = json.dumps(numbered(number)).encode()
    headers = {"content-type": "application/json", **github(body, delivery=f"n{number}")}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {HOOK} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body


async def test_what_was_accepted_is_stored_when_the_daemon_is_killed_under_load(
    starter: DaemonStarter, hooked: Path
) -> None:
    """202 means that the service may forget it; what it did not hear of it posts again, and is stored once."""
    with starter.daemon(hooked) as daemon:
        load = Load(port_of(daemon.start()), daemon)
        await load.run()
        assert len(load.accepted) >= ENOUGH
        assert load.unanswered  # some were on their way
        daemon.start()
        stored = said(export(daemon, "inbox"))
        assert len(stored) == len(set(stored))
        assert set(load.accepted) <= set(stored)
        for number in (*load.accepted[-5:], *load.unanswered):
            expected = 200 if number in stored else 202
            assert post(port_of(daemon), f"n{number}", numbered(number)).status == expected
        again = said(export(daemon, "inbox"))
        assert sorted(again) == sorted({*stored, *load.unanswered})


def test_a_full_disk_asks_the_service_to_try_again(starter: DaemonStarter, hooked: Path) -> None:
    """Nothing is said to be accepted that is not stored, and space is all that is needed to go on."""
    disk = ShortFiles(hooked.parent)
    with starter.daemon(hooked) as daemon:
        port = port_of(daemon.start())
        assert post(port, "n1", numbered(1)).status == 202
        disk.fill(daemon)
        answers = [post(port, f"n{number}", numbered(number)) for number in range(2, 60)]
        accepted = [number for number, answer in enumerate(answers, start=2) if answer.status == 202]
        refused = [answer for answer in answers if answer.status != 202]
        assert refused
        assert {(answer.status, int(answer.headers["retry-after"]) > 0) for answer in refused} == {(503, True)}
        assert said(export(daemon, "inbox")) == [1, *accepted]
        disk.free(daemon)
        number = next(number for number in range(2, 60) if number not in accepted)
        assert post(port, f"n{number}", numbered(number)).status == 202
        assert said(export(daemon, "inbox")) == [1, *accepted, number]


def test_a_known_delivery_is_known_after_a_restart(starter: DaemonStarter, hooked: Path) -> None:
    """GitHub may redeliver days later; and a greeting is no message."""
    with starter.daemon(hooked) as daemon:
        port = port_of(daemon.start())
        assert [post(port, "d-1").status, post(port, "d-1").status] == [202, 200]
        assert post(port, "d-2", samples.GITHUB_PING, "ping").status == 200
        daemon.stop()
        daemon.start()
        assert port_of(daemon) == port  # the address that GitHub was given
        assert post(port, "d-1").status == 200
        (message,) = export(daemon, "inbox")
        (source,) = daemon.call("source_list")["sources"]
    assert (message["source"], message["channel"], message["sender_id"]) == ("ci", "push", "github")
    assert (message["attention"], message["trust"]) == ("prompt", "unknown")
    assert (source["kind"], source["state"], source["known"]) == ("webhook", "listening", 1)


def test_the_listener_for_posts_serves_nothing_else(starter: DaemonStarter, hooked: Path) -> None:
    """It may be shown to the world: neither the page nor the API is there, and the private one has no hooks."""
    with starter.daemon(hooked) as daemon:
        daemon.start()
        public, private = port_of(daemon), port_of(daemon, "url")
        token = {"authorization": f"Bearer {(hooked / 'token').read_text().strip()}"}
        paths = ("/", "/api/send", "/api/status", "/healthz", "/static/page.js", "/hooks", "/hooks/", "/hooks/other")
        answers = [ask(public, method, path, token) for path in paths for method in ("GET", "POST")]
        assert {answer.status for answer in answers} == {404}
        assert ask(public, "GET", HOOK).status == 405
        assert ask(private, "GET", "/healthz").status == 200
        body = json.dumps(samples.GITHUB_PUSH).encode()
        headers = {"content-type": "application/json", **github(body), **token}
        assert ask(private, "POST", HOOK, headers, body).status == 404
        assert export(daemon, "inbox") == []


def test_answers_say_nothing_about_the_daemon(starter: DaemonStarter, hooked: Path) -> None:
    """Whoever may not post learns neither why, nor what is behind it, nor anything they sent."""
    body = json.dumps(samples.GITHUB_PUSH).encode()
    signed = {"content-type": "application/json", **github(body)}
    with starter.daemon(hooked) as daemon:
        port = port_of(daemon.start())
        answers = {
            "unsigned": ask(port, "POST", HOOK, {"content-type": "application/json"}, body),
            "forged": ask(port, "POST", HOOK, {**signed, "x-hub-signature-256": "sha256=" + "0" * 64}, body),
            "not json": ask(port, "POST", HOOK, {**signed, "content-type": "text/plain"}, body),
            "broken": ask(port, "POST", HOOK, {"content-type": "application/json", **github(b"{")}, b"{"),
            "too large": ask(port, "POST", HOOK, signed, b" " * 100_001),
        }
        assert export(daemon, "inbox") == []
    assert {name: answer.status for name, answer in answers.items()} == {
        "unsigned": 401,
        "forged": 401,
        "not json": 415,
        "broken": 422,
        "too large": 413,
    }
    for answer in answers.values():
        assert list(json.loads(answer.msg["x-body"])) == ["error"]
        assert "server" not in answer.headers
        assert not any(word in answer.msg["x-body"] for word in ("octo", SECRET, "signature", str(hooked)))


def test_a_post_that_is_far_too_large_is_answered_and_not_reset(starter: DaemonStarter, hooked: Path) -> None:
    """A service that is still sending when the connection is closed sees a broken line, and sends it all again."""
    with starter.daemon(hooked) as daemon:
        port = port_of(daemon.start())
        for _ in range(5):
            answer = ask(port, "POST", HOOK, {"content-type": "application/json"}, b" " * 4_000_000)
            assert answer.status == 413


def test_a_webhook_without_its_secret_waits_for_a_person(starter: DaemonStarter, hooked: Path) -> None:
    """The daemon starts, says what is missing, and lets the service try again."""
    (hooked / "ci.secret").unlink()
    with starter.daemon(hooked) as daemon:
        answer = post(port_of(daemon.start()), "d-1")
        (source,) = daemon.call("source_list")["sources"]
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")
    assert source["state"] == "needs person"
    assert "ci.secret cannot be read" in source["reason"]


def test_without_a_webhook_nothing_listens_for_posts(starter: DaemonStarter, home: Path) -> None:
    """What nobody needs is not open."""
    with starter.daemon(home) as daemon:
        daemon.start()
        assert daemon.call("status")["daemon"]["hooks_url"] == ""
        assert not (home / "run" / "hooks-port").exists()


def test_posts_cannot_be_answered(starter: DaemonStarter, hooked: Path) -> None:
    """An agent that tries is told so, instead of believing that somebody heard it."""
    with starter.daemon(hooked) as daemon:
        post(port_of(daemon.start()), "d-1")
        (message,) = export(daemon, "inbox")
        error = error_of(daemon, "reply", ref=message["id"], body="thanks")
    assert (error["code"], "cannot be answered" in error["message"]) == ("refused", True)


def test_a_body_that_never_ends_holds_nobody_up(starter: DaemonStarter, hooked: Path) -> None:
    """Others are answered while one is slow; what was cut off is stored nowhere."""
    with starter.daemon(hooked) as daemon:
        port = port_of(daemon.start())
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as slow:
            slow.sendall(b"POST /hooks/ci HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{")
            assert post(port, "d-1").status == 202
        assert len(export(daemon, "inbox")) == 1


def test_what_a_webhook_says_is_never_your_own_word(hooked: Path, starter: DaemonStarter) -> None:
    """A program speaks there, and it may repeat what anybody wrote: no setting makes that an instruction of yours."""
    with (hooked / "config.toml").open("a") as settings:
        settings.write('[trust]\nowner = ["ci:Codertocat"]\n')
    with starter.daemon(hooked).start() as daemon:
        assert "never count as yours" in error_of(daemon, "allow", sender="x", source="ci", as_owner=True)["message"]
        assert post(port_of(daemon), "d-1").status == 202
        [message] = until(lambda: daemon.call("list")["messages"], "it is stored")
        daemon.call("allow", sender=message["sender_id"], as_owner=True)
        assert post(port_of(daemon), "d-2", numbered(2)).status == 202
        found = until(lambda: daemon.call("list")["messages"][1:], "the second is stored")
        assert "known" in [each["trust"] for each in daemon.call("list")["messages"]], found
        assert "owner" not in [each["trust"] for each in daemon.call("list")["messages"]]
