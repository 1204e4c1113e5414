"""HTTP is for the person's own programs: host, origin, token and size are checked before anything is done."""

from __future__ import annotations

import http.client
import json
import resource
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from harken.surfaces.web.page_sessions import TICKET_HEADER
from tests.loss.rig import WAIT_SECONDS, Json, Served, texts, until


class WholeConnection(http.client.HTTPConnection):
    """Sends a request in one piece, as programs with little to say do; the usual one sends head and body apart."""

    between: Callable[[], object] | None = None  # done after the head was sent: then the daemon has read that alone

    def __init__(self, address: str) -> None:
        super().__init__(address, timeout=WAIT_SECONDS)
        self._pieces: list[bytes] = []

    def send(self, data: object) -> None:
        """Keep a part of the request."""
        assert isinstance(data, bytes)
        self._pieces.append(data)

    def getresponse(self) -> http.client.HTTPResponse:
        """Send the request, and wait for the answer."""
        (head, *rest), self._pieces = self._pieces, []
        if self.between is None:
            super().send(b"".join([head, *rest]))
        else:
            super().send(head)
            self.between()
            # A request that is refused by its head may be over by now.
            with suppress(ConnectionError):
                super().send(b"".join(rest))
        return super().getresponse()


class Http:
    """A client that sends exactly the headers a test wants."""

    def __init__(self, daemon: Served) -> None:
        self.daemon = daemon
        self.address = daemon.facts["url"].removeprefix("http://")
        self.token = (daemon.home / "token").read_text().strip()

    def connection(self) -> http.client.HTTPConnection:
        """A new connection."""
        return http.client.HTTPConnection(self.address, timeout=WAIT_SECONDS)

    def whole(self) -> WholeConnection:
        """A new connection on which a request comes as a whole."""
        return WholeConnection(self.address)

    def ask(
        self, path: str, body: bytes | None = b"{}", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json, Mapping[str, str]]:
        """Return status, JSON and headers of an answer; with the token unless headers are given."""
        with closing(self.whole()) as connection:
            given = headers if headers is not None else {"Authorization": f"Bearer {self.token}"}
            connection.request("GET" if body is None else "POST", path, body, dict(given))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), {k.lower(): v for k, v in answer.getheaders()}


@pytest.fixture
def web(daemon: Served) -> Http:
    """A daemon's HTTP side."""
    daemon.start()
    return Http(daemon)


def refused_with(answer: tuple[int, Json, Mapping[str, str]]) -> int:
    """The status of an answer that says why it was refused and nothing else."""
    status, body, _ = answer
    assert body["error"]["code"] == "refused"
    assert body["error"]["hint"]
    return status


def test_message_can_be_sent_with_the_token(web: Http) -> None:
    """The API has the verbs of the command line."""
    status, body, _ = web.ask("/api/send", b'{"text": "over http"}')
    assert (status, body["state"], body["mailbox"]) == (200, "queued", "inbox")
    assert texts(web.daemon.call("list")["messages"]) == ["over http"]


def test_what_a_program_was_offered_is_its_own_again_after_a_killed_daemon(daemon: Served) -> None:
    """An offer over HTTP is of one request: it must not be kept for somebody who cannot come back."""
    daemon.start()
    web = Http(daemon)
    web.ask("/api/send", b'{"text": "over http"}')
    asked = b'{"consumer": "my-program"}'
    for count in range(2):
        _, body, _ = web.ask("/api/pull", asked)
        assert [(each["content_text_sanitized"], each["repeat"]) for each in body["messages"]] == [
            ("over http", count > 0)
        ]
        daemon.kill()
        daemon.start()
        web = Http(daemon)
    _, body, _ = web.ask("/api/pull", asked)
    web.ask("/api/prove", json.dumps({"deliveries": [body["messages"][0]["delivery_id"]]}).encode())
    daemon.kill()
    daemon.start()
    assert Http(daemon).ask("/api/pull", asked)[1]["messages"] == []


def test_long_text_can_be_read_in_parts(web: Http) -> None:
    """A program need not take all of it at once; without an offset the answer is what it always was."""
    _, sent, _ = web.ask("/api/send", b'{"text": "one two three"}')
    _, body, _ = web.ask("/api/read", json.dumps({"ref": sent["id"], "offset": 4, "limit": 3}).encode())
    assert (body["offset"], body["length"], body["next_offset"]) == (4, 13, 7)
    assert texts([body["message"]]) == ["two"]
    _, body, _ = web.ask("/api/read", json.dumps({"ref": sent["id"]}).encode())
    assert set(body) == {"message", "ledger", "replies", "question", "not_given", "rules", "scheduled"}
    assert refused_offset(web, sent["id"], 13) == 422


def refused_offset(web: Http, message: str, offset: int) -> int:
    """Return the status for a part that is not there."""
    status, body, _ = web.ask("/api/read", json.dumps({"ref": message, "offset": offset}).encode())
    assert body["error"]["message"] == f"The text of {message} has 13 characters."
    return status


def test_a_request_is_answered_alike_however_it_comes(web: Http) -> None:
    """One that is whole takes a shorter way through the daemon: no check and no header may be lost on it."""
    known = {"Authorization": f"Bearer {web.token}"}
    host = {"Host": "evil.example"}
    port = web.address.rpartition(":")[2]
    requests: list[tuple[str, bytes, dict[str, str]]] = [
        ("/api/list", b"{}", known),
        ("/api/list", b"", known),
        ("/api/%6cist", b"{}", known),
        ("/api/list?x=1", b"{}", known),
        ("/api/list/", b"{}", known),
        ("/api//list", b"{}", known),
        ("/api/nonsense", b"{}", known),
        ("/api/wait", b'{"timeout_s": 0}', known),
        ("/api/wait", b'{"timeout_s": "x"}', known),
        ("/api/send", b"{", known),
        ("/api/send", b"[]", known),
        ("/api/send", b'{"text": 7}', known),
        ("/api/read", b'{"ref": "m-none"}', known),
        ("/api/list", b"{}", {}),
        ("/api/list", b"{}", {"Authorization": "Bearer wrong"}),
        ("/api/list", b"{}", known | host),
        ("/api/list", b"{}", known | {"Origin": "https://evil.example"}),
        ("/api/list", b"{}", known | {"Origin": f"http://127.0.0.1:{port}"}),
        ("/api/list", b"{}", known | {"Service-Worker": "script"}),
        ("/api/list", b"{}", known | {"Connection": "close"}),
        ("/api/send", b" " * (2 << 20), known),
    ]
    for path, body, headers in requests:
        answers: list[tuple[int, bytes, list[tuple[str, str]]]] = []
        for is_whole in (True, False):
            with closing(web.whole()) as connection:
                if not is_whole:
                    connection.between = partial(web.ask, "/healthz", None, {})
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                named = sorted(
                    (name.lower(), value) for name, value in answer.getheaders() if name.lower() != TICKET_HEADER
                )
                answers.append((answer.status, answer.read(), named))
        assert answers[0] == answers[1], (path, headers)


def test_a_header_that_is_sent_twice_is_refused_however_it_comes(web: Http) -> None:
    """Who stands before the daemon may have looked at the other one."""
    host, port = web.address.split(":")
    head = f"POST /api/list HTTP/1.1\r\nHost: {web.address}\r\nAuthorization: Bearer {web.token}\r\n"
    for twice in ("Authorization: Bearer other", f"Host: {web.address}", "Content-Length: 2"):
        with socket.create_connection((host, int(port)), WAIT_SECONDS) as stream:
            stream.sendall(f"{head}Content-Length: 2\r\n{twice}\r\n\r\n{{}}".encode())
            assert stream.recv(65_536).split()[1] in (b"400", b"403")


def test_without_the_token_nothing_is_served(web: Http) -> None:
    """Anyone on the machine can open the port; only this user can read the token."""
    for verb in ["send", "list", "status", "nonsense"]:
        answer = web.ask(f"/api/{verb}", b'{"text": "no"}', {})
        assert refused_with(answer) == 401
        assert answer[2]["www-authenticate"] == "Bearer"
        wrong = ("Bearer wrong", "Bearer", "Basic " + web.token, web.token, "Bearer \xff\xfe")
        assert [refused_with(web.ask(f"/api/{verb}", b"{}", {"Authorization": value})) for value in wrong] == [403] * 5
        assert web.daemon.call("list")["messages"] == []


def test_health_is_open_and_says_little(web: Http) -> None:
    """A supervisor may ask whether it lives; it learns nothing else."""
    status, body, _ = web.ask("/healthz", None, {})
    assert (status, set(body)) == (200, {"status", "version"})


def test_malformed_bodies_are_user_errors(web: Http) -> None:
    """What is wrong with the request is said; the daemon lives."""
    for body in [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"\x00",
        b"[" * 100_000,
        b'{"text": 7}',
        b'{"text": "x", "extra": 1}',
    ]:
        status, answer, _ = web.ask("/api/send", body)
        assert (status, answer["error"]["code"]) == (422, "user_error")
        assert web.daemon.call("list")["messages"] == []


@pytest.mark.parametrize("unit", ["x", "日"])
def test_text_that_is_too_long_is_refused_with_its_length_and_the_limit(web: Http, unit: str) -> None:
    """A program must learn that nothing was taken, and how much would be."""
    status, answer, _ = web.ask("/api/send", json.dumps({"text": unit * 64_001}).encode())
    error = answer["error"]
    assert (status, error["code"], error["length"], error["limit"]) == (413, "too_long", 64_001, 64_000)
    assert error["hint"] == "Send it in parts, or put it in a file and name that file."
    assert web.daemon.call("list")["messages"] == []
    assert web.ask("/api/send", json.dumps({"text": unit * 64_000}).encode())[0] == 200
    (stored,) = web.daemon.call("list")["messages"]
    assert (stored["content_text_sanitized"], "cut_from" in stored) == (unit * 64_000, False)


def test_long_text_for_a_task_becomes_a_file_in_its_folder(web: Http, tmp_path: Path) -> None:
    """A program does with one argument what the command and the page offer."""
    folder = tmp_path / "shop"
    folder.mkdir()
    web.daemon.call("task_new", title="shop", id="shop", dir=str(folder))
    asked = {"text": "x" * 500_000, "to": "task:shop"}
    status, answer, _ = web.ask("/api/send", json.dumps(asked).encode())
    assert (status, answer["error"]["can_be_file"]) == (413, True)
    status, sent, _ = web.ask("/api/send", json.dumps({**asked, "as_file": True}).encode())
    assert (status, sent["state"]) == (200, "queued")
    assert (folder / sent["file"]).read_text() == "x" * 500_000


def test_unknown_path_and_verb_are_said(web: Http) -> None:
    """Not found is not a fault."""
    status, answer, _ = web.ask("/api/nonsense")
    assert (status, answer["error"]["code"]) == (422, "user_error")


def test_full_disk_is_answered_with_when_to_try_again(web: Http) -> None:
    """A webhook keeps its message and comes back: it must be told that it was not accepted, and when to."""
    resource.prlimit(web.daemon.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    status, answer, headers = web.ask("/api/send", b'{"text": "too much"}')
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    assert int(headers["retry-after"]) >= 1
    resource.prlimit(web.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert web.ask("/api/send", b'{"text": "now"}')[0] == 200
    assert texts(web.daemon.call("list")["messages"]) == ["now"]


def test_wait_whose_client_goes_away_consumes_nothing(web: Http) -> None:
    """The message was for someone who is no longer there: the next one gets it as if nothing had happened."""
    body = b'{"consumer": "page", "timeout": 50}'
    connection = web.connection()
    connection.request("POST", "/api/wait", body, {"Authorization": f"Bearer {web.token}"})
    until(lambda: "page" in consumers(web), "the wait has begun")
    connection.close()
    web.daemon.call("send", text="for whoever is here")
    status, answer, _ = web.ask("/api/wait", body)
    assert status == 200
    assert [(m["content_text_sanitized"], m["repeat"]) for m in answer["messages"]] == [("for whoever is here", False)]


def test_idle_connections_do_not_use_up_the_daemon(web: Http) -> None:
    """Every account of the machine can open the port; files are left for the socket, the store and the log."""
    resource.prlimit(web.daemon.pid, resource.RLIMIT_NOFILE, (256, 1024))
    host, port = web.address.split(":")
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection((host, int(port)), WAIT_SECONDS)) for _ in range(300)]
        assert idle[-1].recv(1) == b"", "the last was served"
        web.daemon.call("send", text="while they are open")
        assert texts(web.daemon.call("list")["messages"]) == ["while they are open"]
    until(lambda: is_healthy(web), "HTTP answers again")


def is_healthy(web: Http) -> bool:
    """Whether HTTP answers; a connection that is refused is closed or reset."""
    try:
        return web.ask("/healthz", None, {})[0] == 200
    except (http.client.HTTPException, ConnectionError):
        return False


def consumers(web: Http) -> set[str]:
    """Who reads something."""
    return {place["consumer"] for place in web.daemon.call("status")["consumers"]}
