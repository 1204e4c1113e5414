"""The gate before everything that a token opens: what it lets through, what it refuses, and what that costs others."""

from __future__ import annotations

import socket
import tarfile
import threading
from contextlib import closing
from hashlib import sha256

import psutil
import pytest

from harken.daemon.public.gate import MAX_OPEN, RequestRate, address_of
from harken.daemon.public.listener import WRONG_MOST, Slowdown
from tests.cli.rig import Rig
from tests.loss.rig import WAIT_SECONDS, until
from tests.remote.rig import ACCEPT, PublicDaemon
from tests.remote.test_lost_streams import RawClient

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def test_verbs_with_a_token_are_those_of_its_scope(public: PublicDaemon) -> None:
    """Over HTTP the same refusals as everywhere, with a status that says whether another token would help."""
    secret = public.token("ci", kind="sender", trust="unknown")
    status, sent = public.api("send", secret, text="the build is red", sender="Build")
    assert (status, sent["state"]) == (200, "queued")
    assert public.call("read", ref=sent["id"])["message"]["sender_id"] == "program:ci"
    assert public.api("list", secret)[0] == 403
    assert public.api("send", secret, text="x", to="project:shop")[0] == 403
    assert public.api("whoami", secret) == (200, {"role": "agent", "consumer": "ci"})
    assert public.api("nonsense", secret)[0] == 422
    (listed,) = public.call("token_list")["tokens"]
    assert (listed["used_from"], listed["state"]) == ("127.0.0.1", "in force")


@pytest.mark.parametrize("path", ["/", "/events", "/part/sidebar", "/metrics", "/readyz", "/sign-in", "/static/app.js"])
def test_page_and_your_own_api_are_not_there(public: PublicDaemon, path: str) -> None:
    """Neither with your own token nor without one."""
    own = (public.main.served.home / "token").read_text().strip()
    assert public.ask(path, own)[0] == public.ask(path)[0] == 404
    assert public.api("list", own)[0] == 401


def test_without_a_token_only_the_health_is_told(public: PublicDaemon) -> None:
    """And of that no more than that something listens."""
    assert public.ask("/healthz")[::2] == (200, {"status": "ok"})
    for path in ("/mcp", "/api/list"):
        status, headers, _answer = public.ask(path, body=INITIALIZE)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
    secret = public.token()
    assert public.ask(f"/api/list?token={secret}", body={})[0] == 401
    assert public.ask("/api/list", f"{secret}x", {})[0] == 401


def test_spaces_around_a_header_are_no_part_of_it(public: PublicDaemon) -> None:
    """A proxy may put them there; a name that is compared with the body was refused for those after it."""
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    params = {
        "name": "inbound_queue_stats",
        "arguments": {},
        "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()},
    }
    status, _headers, answer = public.ask(
        "/mcp",
        public.token(),
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        Accept=ACCEPT,
        Content_Type="application/json",
        Mcp_Protocol_Version=" 2026-07-28 ",
        Mcp_Method="tools/call \t",
        Mcp_Name="  inbound_queue_stats  ",
    )
    assert status == 200, answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Content_Length": "x"}, 400),
    ],
)
def test_foreign_host_and_origin_are_refused(public: PublicDaemon, headers: dict[str, str], status: int) -> None:
    """A page that you visit cannot use a token that its browser was given for another address."""
    assert public.ask("/api/list", public.token(), {}, **headers)[0] == status


def test_kinds_that_are_no_agents_have_no_mcp(public: PublicDaemon) -> None:
    """A sender and a phone have the verbs; a machine has its link."""
    for kind in ("sender", "phone", "machine"):
        secret = public.token(kind, kind=kind)
        status = public.ask("/mcp", secret, INITIALIZE, Accept=ACCEPT, Content_Type="application/json")[0]
        assert status == (401 if kind == "machine" else 403)


def test_body_that_is_too_large_is_refused(public: PublicDaemon) -> None:
    """Of nobody more is held than a bound."""
    secret, large = public.token(), b'{"text": "' + b"x" * (5 << 20) + b'"}'
    assert public.ask("/api/send", secret, large)[0] == 413
    assert public.ask("/mcp", secret, large, Accept=ACCEPT, Content_Type="application/json")[0] == 413


def test_wrong_tokens_shut_an_address_out_but_not_those_that_are_known(public: PublicDaemon) -> None:
    """Guessing is slow and then not heard, wherever; who came with a good token goes on from the same address."""
    secret = public.token()
    assert public.api("whoami", secret)[0] == 200
    paths = ("/api/whoami", "/mcp")
    asking = ((paths[n % 2], f"wrong-{n}", INITIALIZE) for n in range(WRONG_MOST))
    threads = [threading.Thread(target=public.ask, args=each) for each in asking]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path in paths:
        status, headers, _answer = public.ask(path, "one-more", {})
        assert (status, headers["retry-after"]) == (429, "60")
    assert public.api("whoami", secret)[0] == 200


def test_revoked_token_ends_a_wait_of_the_api(public: PublicDaemon) -> None:
    """What is open ends with its token, and is told why."""
    secret, answers = public.token(), list[int]()
    waiting = threading.Thread(target=lambda: answers.append(public.api("wait", secret, timeout=50)[0]))
    waiting.start()
    until(lambda: _waits(public, secret), "it waits")
    public.call("token_revoke", name="elsewhere")
    waiting.join(WAIT_SECONDS)
    assert answers == [401]


def _waits(public: PublicDaemon, secret: str) -> bool:
    return bool(public.call("token_list")["tokens"][0]["used_at"]) and public.api("whoami", secret)[0] == 200


def test_rate_of_a_token_is_bounded() -> None:
    """A burst, and then as many as come back."""
    at = [0.0]
    rate = RequestRate(lambda: at[0])
    taken = sum(rate.take("t") for _ in range(1_000))
    assert taken == 200
    at[0] += 1.0
    assert sum(rate.take("t") for _ in range(1_000)) == 50
    assert rate.take("other")
    assert MAX_OPEN < 200


@pytest.mark.parametrize(
    ("client", "forwarded", "found"),
    [
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1\n203.0.113.9", "203.0.113.9"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("192.0.2.7", "203.0.113.9", "192.0.2.7"),
    ],
)
def test_forwarded_address_counts_from_a_named_proxy_alone(client: str, forwarded: str, found: str) -> None:
    """Anybody can send the header; the last address is the one that the proxy saw, also if in a line of its own."""
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded.split("\n") if each]
    scope = {"type": "http", "client": (client, 1), "headers": headers}
    assert address_of(scope, {"10.0.0.1"}) == found


def test_addresses_of_one_network_are_one() -> None:
    """With IPv6 a single machine has as many as it likes: each may not guess anew."""
    slowdown = Slowdown(lambda: 0.0)
    for number in range(WRONG_MOST):
        slowdown.note_wrong(f"2001:db8:0:1::{number:x}")
    addresses = ("2001:db8:0:1:ffff::1", "2001:db8:0:2::1", "::ffff:192.0.2.1", "192.0.2.1")
    assert [slowdown.is_shut_out(each) for each in addresses] == [True, False, False, False]


def test_smuggled_request_is_not_served(public: PublicDaemon) -> None:
    """Two lengths, or a length and chunks, mean two requests to two parsers: none is answered as good."""
    secret = public.token()
    for lines in (
        "Content-Length: 2\r\nContent-Length: 30",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
    ):
        with public.main.secure() as sock:
            sock.settimeout(WAIT_SECONDS)
            head = f"POST /api/whoami HTTP/1.1\r\nHost: localhost:{public.main.port}\r\n"
            sock.sendall(f"{head}Authorization: Bearer {secret}\r\n{lines}\r\nConnection: close\r\n\r\n{{}}".encode())
            answer = b""
            try:
                while data := sock.recv(1 << 16):
                    answer += data
            except (TimeoutError, OSError):
                pass
            assert b" 200 " not in answer


def _said(public: PublicDaemon, request: str) -> str:
    """Return what is answered on a connection of its own until it ends, or has been idle."""
    with public.main.secure() as sock:
        sock.settimeout(WAIT_SECONDS)
        sock.sendall(request.encode())
        return b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()


def test_headers_after_the_body_are_none(public: PublicDaemon) -> None:
    """A proxy that checks or removes a header does not look there."""
    head = f"POST /api/whoami HTTP/1.1\r\nHost: localhost:{public.main.port}\r\nConnection: close\r\n"
    body = f"2\r\n{{}}\r\n0\r\nAuthorization: Bearer {public.token()}\r\n\r\n"
    assert _said(public, f"{head}Transfer-Encoding: chunked\r\n\r\n{body}").startswith("HTTP/1.1 401 ")


def test_nothing_leads_to_the_host_that_a_client_names(public: PublicDaemon) -> None:
    """A link to this address must not lead elsewhere."""
    for path in ("/mcp/", "/healthz/", "/api/list/"):
        status, headers, _answer = public.ask(path, Host="evil.example")
        assert (status, "location" in headers) == (404, False)


def test_strangers_write_nothing_into_the_log(public: PublicDaemon) -> None:
    """Else anybody could fill the disk, or hide in it what matters."""
    log = public.main.served.home / "logs" / "daemon.log"
    before = log.read_text()
    key = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="
    for path in ("/mcp", "/api/list", "/link", "/"):
        assert _said(
            public, f"GET {path} HTTP/1.1\r\nHost: localhost:{public.main.port}\r\nConnection: Upgrade\r\n{key}\r\n\r\n"
        )
    assert log.read_text() == before


def test_secret_is_in_no_file_no_export_no_backup_and_no_list_of_processes(public: PublicDaemon) -> None:
    """Whatever was asked with it, also what failed. Its hash is only where the database is."""
    secret = public.token()
    public.api("whoami", secret)
    public.api("nonsense", secret)
    public.ask("/mcp", secret, b"not json", Accept=ACCEPT, Content_Type="application/json")
    home = public.main.served.home
    digest = sha256(secret.encode()).digest()
    person = Rig(home)
    told = [person.ok(*words) for words in (("export",), ("journal",), ("status", "--all"), ("token", "list"))]
    backup = home.parent / "backup.tar.gz"
    person.ok("backup", str(backup))
    with tarfile.open(backup) as packed:
        files = [packed.extractfile(each) for each in packed.getmembers()]
        kept = [each.read() for each in files if each is not None]
    assert not [each for each in (secret, digest.hex()) if each in str(told)]
    assert kept
    assert not [each for each in kept if secret.encode() in each]
    for path in home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    for process in psutil.process_iter(["cmdline", "environ"]):
        assert secret not in str(process.info)


def test_slow_client_is_no_matter_to_others(public: PublicDaemon) -> None:
    """Half a request of many connections keeps nobody from the verbs."""
    secret = public.token()
    socks: list[socket.socket] = [public.main.secure() for _ in range(10)]
    try:
        for sock in socks:
            sock.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        assert public.api("whoami", secret)[0] == 200
    finally:
        for sock in socks:
            sock.close()


def test_empty_line_keeps_no_idle_connection(public: PublicDaemon) -> None:
    """It is no request, so the connection ends as early as without it; else anybody could hold all of an address."""
    with closing(public.connection()) as client:
        client.request("GET", "/healthz")
        assert client.getresponse().read()
        client.sock.sendall(b"\r\n")
        assert client.sock.recv(1) == b""


def test_connection_is_reused_after_a_refusal(public: PublicDaemon) -> None:
    """A refusal before the body is read leaves no bytes that would count as another request."""
    secret = public.token("ci", kind="sender")
    with closing(public.connection()) as client:
        for _ in range(2):
            client.request("POST", "/api/list", b"{}", {"Authorization": f"Bearer {secret}"})
            answer = client.getresponse()
            assert (answer.status, bool(answer.read())) == (403, True)


def test_session_of_another_token_does_not_exist(public: PublicDaemon) -> None:
    """Knowing its id is not enough; and a session that is not there is told so."""
    mine, other = public.token("mine"), public.token("other")
    said = {"Accept": ACCEPT, "Content_Type": "application/json"}
    status, headers, _answer = public.ask("/mcp", mine, INITIALIZE, **said)
    session = headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert status == 200
    assert public.ask("/mcp", other, ping, Mcp_Session_Id=session, **said)[0] == 404
    assert public.ask("/mcp", mine, ping, Mcp_Session_Id="nothing", **said)[0] == 404
    assert public.ask("/mcp", mine, ping, Mcp_Session_Id=session, **said)[0] == 200
    assert public.ask("/mcp", mine, method="DELETE", Mcp_Session_Id=session, **said)[0] == 200
    assert public.ask("/mcp", mine, ping, Mcp_Session_Id=session, **said)[0] == 404


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "body", [b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1}', b'{"id": NaN}', b'{"id": 1e999}', b"[1]", b"{"]
)
def test_body_that_parsers_read_differently_is_refused(public: PublicDaemon, version: str, body: bytes) -> None:
    """Else a call would run of which the evidence knows nothing."""
    said = {"Accept": ACCEPT, "Content_Type": "application/json", "MCP_Protocol_Version": version}
    status, _headers, answer = public.ask("/mcp", public.token(), body, **said)
    assert (status, answer["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_token_that_follows_one_of_its_name_has_its_own_scope(public: PublicDaemon, version: str) -> None:
    """The first has expired and the second may do less: what was begun with the first is not its."""
    client = RawClient(public, public.token(mailboxes=["*"], seconds=2), version).begin()
    public.call("send", text="for the shop", sender="ci-bot", to="project:shop")
    client.tool("inbound_queue_stats")
    until(lambda: public.call("token_list")["tokens"][0]["state"] == "expired", "it has expired")
    client.secret = public.token(mailboxes=["inbox"])
    message = {"jsonrpc": "2.0", **client.tool_call("inbox_pull")}
    status, _headers, answer = public.ask("/mcp", client.secret, message, **client.headers(message))
    assert "for the shop" not in str(answer)
    assert status == (404 if version == "2025-11-25" else 200)


def test_who_makes_a_token_is_told_where_it_is_good(public: PublicDaemon) -> None:
    """Or that it is good nowhere yet: else the first try of its holder finds that out."""
    person = Rig(public.main.served.home)
    assert f"It is good at {public.url}/mcp" in person.run("token", "new", "agent").err
    assert f"It is good at {public.url}/api/VERB" in person.run("token", "new", "ci", "--kind", "sender").err
    (public.main.served.home / "config.toml").unlink()
    public.main.served.kill()
    public.main.served.start()
    assert "Programs elsewhere are not let in yet" in person.run("token", "new", "later").err
