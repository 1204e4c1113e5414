"""What a stranger can send to the public address: byte by byte, and what another parser would make of it.

Whatever comes, it is answered at most once, with nothing that a token or a sign-in is for; nothing is written into the
log, and the next one is served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from harken.daemon.public.gate import address_of
from harken.daemon.public.listener import counted_address
from tests.loss.rig import WAIT_SECONDS
from tests.remote.phone_rig import PhoneWeb
from tests.remote.rig import ACCEPT, PublicDaemon
from tests.remote.test_lost_streams import LEGACY, RawClient

INNER: Final = (
    "POST /api/whoami HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {secret}\r\nContent-Length: 2\r\n\r\n{{}}"
)
ANSWER: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")

# The head of a request whose body two parsers may end at different places; what follows is a request of its own to one.
AMBIGUOUS: Final = (
    "Content-Length: 0\r\nContent-Length: 5",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked, identity",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding\x00: chunked",
    "X: y\r\n Transfer-Encoding: chunked",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5, 5",
    "Content-Length: 5 5",
    "Content-Length: 5_0",
    "Content-Length: 99999999999999999999999999",
    "Content Length: 5",
    "Content-Length: 5\nX: y",
    "Content-Length: 5\rX: y",
    ": 5",
)
BAD_CHUNKS: Final = (
    '5;x="\r\n"\r\nhello\r\n0\r\n\r\n',
    "+5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5_\r\nhello\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "5\nhello\n0\n\n",
    "5\r\nhello0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
)
LINES: Final = (
    "GET / HTTP/0.9",
    "GET /",
    "PRI * HTTP/2.0",
    "GET http://evil.example/api/whoami HTTP/1.1",
    "CONNECT evil.example:443 HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "get /healthz HTTP/1.1",
    "GET  /healthz HTTP/1.1",
    "GET /healthz HTTP/1.1 x",
    "GET /healthz HTTP/11.1",
    "GET /\x00 HTTP/1.1",
    "GET /%00 HTTP/1.1",
    "GET /%ff%fe HTTP/1.1",
    "GET /é HTTP/1.1",
    "GET /" + "a" * 70_000 + " HTTP/1.1",
    "\x16\x03\x01\x02\x00",
)


def said(public: PublicDaemon, data: bytes) -> bytes:
    """Return everything that is answered on a connection of its own."""
    answer = b""
    with public.main.secure() as sock, suppress(OSError):
        sock.settimeout(WAIT_SECONDS)
        sock.sendall(data)
        while part := sock.recv(1 << 16):
            answer += part
    return answer


def statuses(answer: bytes) -> list[int]:
    """Return the status of each answer."""
    return [int(each) for each in ANSWER.findall(answer)]


@pytest.fixture
def log_stays(public: PublicDaemon) -> Iterator[None]:
    """Nothing that a test sends is written into the log, and the next request is served."""
    log = public.main.served.home / "logs" / "daemon.log"
    before = log.read_text()
    yield
    assert public.ask("/healthz")[0] == 200
    assert log.read_text() == before


def head(public: PublicDaemon, secret: str = "", *lines: str, path: str = "/api/whoami") -> str:
    """Return the beginning of a request."""
    named = [f"Authorization: Bearer {secret}"] if secret else []
    return "\r\n".join([f"POST {path} HTTP/1.1", f"Host: localhost:{public.main.port}", *named, *lines]) + "\r\n"


@pytest.mark.usefixtures("log_stays")
def test_second_request_in_the_body_of_a_first_is_never_served(public: PublicDaemon) -> None:
    """However the length is said: a proxy that reads one request must not let two through."""
    secret = public.token()
    inner = INNER.format(host=f"localhost:{public.main.port}", secret=secret)
    for lines in AMBIGUOUS:
        answer = said(public, f"{head(public, '', lines)}\r\n0\r\n\r\n{inner}".encode("latin-1"))
        assert [each for each in statuses(answer) if each < 400] == [], (lines, answer)
    for chunks in BAD_CHUNKS:
        data = f"{head(public, '', 'Transfer-Encoding: chunked')}\r\n{chunks}{inner}"
        answer = said(public, data.encode("latin-1"))
        assert [each for each in statuses(answer) if each < 400] == [], (chunks, answer)


@pytest.mark.usefixtures("log_stays")
def test_line_that_is_no_request_is_answered_with_an_error_or_not_at_all(public: PublicDaemon) -> None:
    """And with one answer."""
    for line in LINES:
        for host in (f"localhost:{public.main.port}", "evil.example"):
            answer = said(public, f"{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1", "replace"))
            assert len(statuses(answer)) <= 1, (line, answer)
            assert b"Location" not in answer
            assert b"evil.example" not in answer


@pytest.mark.usefixtures("log_stays")
def test_flood_of_headers_ends_its_connection(public: PublicDaemon) -> None:
    """Many, long, or a header that never ends."""
    for flood in ("X: y\r\n" * 20_000, f"X: {'y' * 1_000_000}\r\n", "y" * 1_000_000, "\r\n" * 500_000):
        assert [each for each in statuses(said(public, (head(public) + flood).encode())) if each < 400] == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/whoami?token={secret}",
        "/api/whoami?access_token={secret}",
        "/mcp?token={secret}",
        "/mcp/{secret}",
        "//api/whoami",
        "/%61pi/whoami",
        "/api/../mcp",
        "/api/%2e%2e/mcp",
        "/mcp/..;/api/whoami",
        "/static/../api/whoami",
        "/static/%2e%2e/conversations",
        "/sign-in/../conversations",
        "/healthz/../conversations",
        "/healthz%2f..%2fconversations",
        "/\\api\\whoami",
        "/api/whoami%00",
        "/api/whoami;x",
        "/.well-known/../conversations",
    ],
)
@pytest.mark.usefixtures("log_stays")
def test_no_path_leads_past_the_token_or_the_sign_in(public: PublicDaemon, path: str) -> None:
    """Spelled otherwise it is the same or nothing; a token in an address is none, and nowhere written down."""
    secret = public.token()
    web = PhoneWeb(public).enter()
    public.call("send", text="the build is red")
    asked = path.format(secret=secret)
    for method in ("GET", "POST"):
        for headers in ({}, {"Cookie": f"token={secret}; session={next(iter(web.session.values()))}"}):
            answer = web.ask(
                method, asked, {"Accept": "application/json", **headers}, b"{}" if method == "POST" else None
            )
            assert answer.status in (401, 403, 404, 405), (method, asked, answer)
            assert "set-cookie" not in answer.headers
            assert "the build is red" not in answer.text
            assert secret not in answer.text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("203.0.113.9:1025", "203.0.113.9:1026"),
        ("[2001:db8:0:1::1]:1025", "[2001:db8:0:1::2]:1026"),
        ("[2001:db8:0:1::1]", "2001:db8:0:1::2"),
        ("2001:db8:0:1::1%eth0", "2001:db8:0:1::1"),
    ],
)
def test_proxy_that_names_ports_hides_nobody(first: str, second: str) -> None:
    """Some write the port too: each connection would be an address of its own, and might guess anew."""

    def counted(forwarded: str) -> str:
        headers = [(b"x-forwarded-for", forwarded.encode())]
        return counted_address(
            address_of({"type": "http", "client": ("10.0.0.1", 1), "headers": headers}, {"10.0.0.1"})
        )

    assert counted(first) == counted(second)


BODIES: Final = (
    b"[" * 2_000_000,
    b'{"a":' * 400_000,
    b'{"text": ' + b"9" * 1_000_000 + b"}",
    b'{"text": 1e999999}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\u0000"}',
    b'{"text": "\xff"}',
    b'{"text": "a", "text": "b"}',
    b"\x00",
    b"",
)


@pytest.mark.usefixtures("log_stays")
def test_no_body_brings_the_daemon_out_of_step(public: PublicDaemon) -> None:
    """Wherever a body is read: of everyone, of a token, of a phone."""
    secret = public.token()
    web = PhoneWeb(public).enter(["read", "send"])
    (session,) = web.session.values()
    said = {"Accept": ACCEPT, "Content_Type": "application/json"}
    for body in BODIES:
        found = {path: public.ask(path, body=body)[0] for path in ("/press", "/sign-in", "/events/nobody")}
        for path in ("/api/send", "/api/list", "/mcp"):
            found[path] = public.ask(path, secret, body, **said)[0]
        for path in ("/push", "/renew-key", "/do/send", "/do/seen"):
            proof = web.proof(session, "POST", path, body)
            headers = {"Origin": web.origin, "Harken-Proof": proof, "Content-Type": "application/json"}
            found[path] = web.ask("POST", path, headers, body).status
        assert {path: status for path, status in found.items() if status >= 500} == {}, body[:40]


def test_client_calls_itself_no_more_than_fits_into_a_list(public: PublicDaemon) -> None:
    """What sessions are called is in every status, on the page, and told to other daemons."""
    client = RawClient(public, public.token(), LEGACY, name="\x1b[31m" + "A" * 1_000_000).begin()
    client.tool("inbound_queue_stats")
    (session,) = public.call("status")["sessions"]
    assert len(session["client"]) == 80
