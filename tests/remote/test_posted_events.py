"""Events of other servers that are posted to us: where there is neither push nor poll, at the public listener."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import pytest
from standardwebhooks import Webhook

from tests.loss.rig import WAIT_SECONDS, DaemonStarter, until
from tests.remote.receiver import SECRET
from tests.remote.rig import PublicDaemon
from tests.satellite.rig import MainDaemon, free_port, let_machines_in

Json: TypeAlias = Any
EXTENSION: Final = "io.modelcontextprotocol/events"
NAME: Final = "incident.created"


class Refusal(Exception):
    """An error of JSON-RPC."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class ProposalServer:
    """An MCP server of 2026 that speaks as the proposal does, and only posts its events."""

    trust: ssl.SSLContext
    port: int = 0
    life: timedelta = timedelta(hours=1)
    asked: list[Json] = field(default_factory=list)
    polled: int = 0
    delivery: Json = None
    identifier: str = "sub_of_the_tests"
    is_truncated: bool = False

    def answer(self, method: str, params: Json) -> Json:
        """Return the result of a request."""
        match method:
            case "server/discover":
                capabilities = {"extensions": {EXTENSION: {"listChanged": False}}}
                return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            case "events/list":
                # It lists what it refuses: then a client has to find out.
                return {"events": [{"name": NAME, "delivery": ["push", "poll", "webhook"], "inputSchema": {}}]}
            case "events/stream" | "events/poll":
                self.polled += 1
                raise Refusal(-32026)
            case "events/subscribe":
                return self.subscribe(params)
        raise Refusal(-32601)

    def subscribe(self, params: Json) -> Json:
        """Verify the address, and remember it."""
        self.delivery = params["delivery"]
        status, said = self.post({"type": "verification", "challenge": "are you there?"}, "msg_verification_1")
        if (status, said) != (200, {"challenge": "are you there?"}):
            raise Refusal(-32027)
        self.asked.append(params)
        until_ = (datetime.now(UTC) + self.life).isoformat().replace("+00:00", "Z")
        return {"id": self.identifier, "refreshBefore": until_, "cursor": "c-0", "truncated": self.is_truncated}

    def post(
        self, said: Json, identifier: str, *, at: datetime | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json]:
        """Post something signed; return the status and what was answered."""
        body = json.dumps(said).encode()
        at = at or datetime.now(UTC)
        signed = Webhook(self.delivery["secret"]).sign(identifier, at, body.decode())
        full = {
            "content-type": "application/json",
            "webhook-id": identifier,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signed,
            "X-MCP-Subscription-Id": self.identifier,
            **(headers or {}),
        }
        parts = urlsplit(self.delivery["url"])
        with closing(HTTPSConnection(parts.netloc, context=self.trust, timeout=WAIT_SECONDS)) as client:
            client.request("POST", f"{parts.path}?{parts.query}", body, full)
            answer = client.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None

    def event(self, number: int, **changed: object) -> Json:
        """Return an event."""
        moment = datetime.now(UTC).isoformat()
        data = {"title": f"incident {number}"}
        whole = {"eventId": f"e-{number}", "name": NAME, "timestamp": moment, "data": data, "cursor": f"c-{number}"}
        return {**whole, **changed}


Served = TypeVar("Served", bound=ProposalServer)


@contextmanager
def serving(server: Served) -> Iterator[Served]:
    """Serve on this machine until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "id" not in asked:
                self.send_error(400)
                return
            answer = {"jsonrpc": "2.0", "id": asked["id"]}
            try:
                result = server.answer(asked["method"], asked.get("params", {}))
                answer["result"] = {"resultType": "complete", **result}
            except Refusal as exc:
                answer["error"] = {"code": exc.code, "message": "no"}
            body = json.dumps(answer).encode()
            self.send_response(400 if asked["method"] == "initialize" else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", server.port), Handler)
    httpd.daemon_threads = True
    server.port = httpd.server_address[1]
    thread = Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join(WAIT_SECONDS)


@pytest.fixture
def posting(tmp_path: Path) -> Iterator[ProposalServer]:
    """The other server, that trusts our authority."""
    (tmp_path / "tls").mkdir()
    with serving(ProposalServer(ssl.create_default_context())) as server:
        yield server


@pytest.fixture
def public(starter: DaemonStarter, home: Path, tmp_path: Path, posting: ProposalServer) -> Iterator[PublicDaemon]:
    """A daemon that others reach, and that listens to the other server."""
    port = free_port()
    authority = let_machines_in(home, port, tmp_path)
    posting.trust.load_verify_locations(authority)
    with (home / "config.toml").open("a") as config:
        config.write(f'[sources.other]\nkind = "mcp"\nurl = "http://127.0.0.1:{posting.port}/mcp"\n')
    with starter.daemon(home) as served:
        yield PublicDaemon(MainDaemon(served, authority, port).start())


def texts(public: PublicDaemon) -> list[str]:
    """Return what has arrived from the other server, the oldest first."""
    found = public.call("list", channel=NAME)["messages"]
    return sorted(json.loads(each["content_text_sanitized"])["title"] for each in found)


def test_events_that_are_only_posted_arrive_once(public: PublicDaemon, posting: ProposalServer) -> None:
    """Neither push nor poll is to be had: the server is given an address, verifies it, and what it posts is stored."""
    until(lambda: posting.asked, "it subscribed")
    assert posting.polled == 2
    assert posting.asked[0]["name"] == NAME
    assert posting.delivery["url"].startswith(f"{public.url}/events/other?")
    for _ in range(2):
        assert posting.post(posting.event(1), "e-1")[0] == 204
    # In the other dialect each post has an id of its own.
    assert posting.post(posting.event(2), "msg_1")[0] == 204
    assert texts(public) == ["incident 1", "incident 2"]
    (first, *_) = public.call("list", channel=NAME)["messages"]
    assert first["channel"] == NAME


def test_what_is_not_the_servers_is_refused(public: PublicDaemon, posting: ProposalServer) -> None:
    """The door is open to everyone: the secret, the time and the address say what is genuine."""
    until(lambda: source(public)["state"] == "listening", "it stands")
    late = datetime.now(UTC) - timedelta(minutes=6)
    assert posting.post(posting.event(1), "e-1", at=late)[0] == 401
    assert posting.post(posting.event(1), "e-1", headers={"webhook-signature": "v1,AAAA"})[0] == 401
    assert posting.post(posting.event(1), "e-1", headers={"X-MCP-Subscription-Id": "sub_of_another"})[0] == 401
    # A challenge is answered only while we ask.
    assert posting.post({"type": "verification", "challenge": "x"}, "msg_verification_2")[0] == 401
    assert posting.post({"type": "strange"}, "msg_1")[0] in (400, 422)
    assert posting.post(posting.event(1, name="incident.closed"), "e-1")[0] in (400, 422)
    own, posting.delivery = posting.delivery, {**posting.delivery, "secret": SECRET}
    assert posting.post(posting.event(1), "e-1")[0] == 401
    posting.delivery = {**own, "url": own["url"].replace("key=", "key=0")}
    assert posting.post(posting.event(1), "e-1")[0] == 401
    posting.delivery = {**own, "url": own["url"].replace("/events/other", "/events/unknown")}
    assert posting.post(posting.event(1), "e-1")[0] == 404
    assert texts(public) == []


def test_a_subscription_is_renewed_before_it_ends_with_its_cursor(
    public: PublicDaemon, posting: ProposalServer
) -> None:
    """The cursor is that of the last event that is stored, so that a server whose subscription lapsed goes on there."""
    until(lambda: posting.asked, "it subscribed")
    public.main.served.kill()
    posting.life = timedelta(seconds=2)
    public.main.start()
    until(lambda: len(posting.asked) > 1, "it subscribed again")
    posting.post(posting.event(1), "e-1")
    until(lambda: posting.asked[-1]["cursor"] == "c-1", "it was renewed")
    assert posting.asked[-1]["delivery"] == posting.asked[0]["delivery"]
    assert texts(public) == ["incident 1"]


def test_a_killed_daemon_goes_on_at_the_same_address(public: PublicDaemon, posting: ProposalServer) -> None:
    """What was answered is stored, what was not is posted again; and the server keeps one subscription."""
    until(lambda: posting.asked, "it subscribed")
    assert posting.post(posting.event(1), "e-1")[0] == 204
    public.main.served.kill()
    with pytest.raises(ConnectionRefusedError):
        posting.post(posting.event(2), "e-2")
    public.main.start()
    assert posting.post(posting.event(2), "e-2")[0] == 204
    assert posting.post(posting.event(1), "e-1")[0] == 204
    assert texts(public) == ["incident 1", "incident 2"]
    until(lambda: len(posting.asked) > 1, "it subscribed again")
    assert posting.asked[-1]["delivery"] == posting.asked[0]["delivery"]


def test_a_gap_is_told_and_an_end_is_final(public: PublicDaemon, posting: ProposalServer) -> None:
    """People see that something was missed; what a server has ended is not asked for again."""
    until(lambda: posting.asked, "it subscribed")
    until(lambda: source(public)["state"] == "listening", "it stands")
    before = source(public)["gaps"]
    assert posting.post({"type": "gap", "cursor": "c-9"}, "msg_gap_1")[0] == 204
    assert source(public)["gaps"] == before + 1
    ended = {"type": "terminated", "error": {"code": -32024, "message": "Forbidden"}}
    assert posting.post(ended, "msg_terminated_1")[0] == 204
    until(lambda: source(public)["state"] != "listening", "it is over")
    assert len(posting.asked) == 1


def source(public: PublicDaemon) -> Json:
    """Return the source as you see it."""
    (found,) = public.call("status")["daemon"]["sources"]
    return found
