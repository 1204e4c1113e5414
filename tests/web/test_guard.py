"""Nobody but the person's own programs and signed-in browsers is served: not other pages, names, accounts or agents."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.errors import Forbidden
from harken.testing import EdgeClient, edge_command
from tests.loss.rig import WAIT_SECONDS, DaemonStarter, Served, texts
from tests.web.rig import NAVIGATION, Answer, Web, letters, tag

SEND = b'{"text": "from a page"}'
OTHER_ORIGINS = (
    "http://evil.example",
    "null",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://localhost:1",
    "file://",
    "",
)


@pytest.fixture(scope="module")
def web(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A daemon that serves all tests of this module."""
    with starter.daemon(tmp_path_factory.mktemp("w") / "home") as served:
        served.start()
        yield Web(served)


def is_sent(web: Web, text: str = "from a page") -> bool:
    """Whether a message was accepted."""
    return text in texts(web.daemon.call("list")["messages"])


def refused(answer: Answer, status: int = 403) -> bool:
    """Whether an answer says why not, and nothing else."""
    return answer.status == status and answer.json["error"]["code"] == "refused" and bool(answer.json["error"]["hint"])


def test_signed_in_page_may_ask(web: Web) -> None:
    """The page itself works: it reads, and it sends with the origin it has."""
    own = {**web.signed_in(), "Origin": web.origin, "Sec-Fetch-Site": "same-origin"}
    assert web.ask("POST", "/api/send", own, b'{"text": "from our page"}').status == 200
    assert is_sent(web, "from our page")
    # A browser that does not tell where a request comes from still names the origin.
    own.pop("Sec-Fetch-Site")
    assert web.ask("POST", "/api/list", own, b"{}").status == 200


@pytest.mark.parametrize("origin", OTHER_ORIGINS)
def test_post_of_another_origin_is_refused_whatever_it_proves(web: Web, origin: str) -> None:
    """A proof that another page got hold of, somehow, is still not its own."""
    for site in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = web.ask("POST", "/api/send", {**web.signed_in(), "Origin": origin, **site}, SEND)
        assert refused(answer)
    assert not is_sent(web)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_unsafe_request_with_a_proof_and_no_origin_is_refused(web: Web, method: str) -> None:
    """What does not say where it comes from may come from anywhere."""
    assert refused(web.ask(method, "/api/send", web.signed_in(), SEND))
    assert refused(web.ask(method, "/sign-out", web.signed_in(), b""))
    assert not is_sent(web)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_site_that_is_not_ours_is_refused_whatever_the_origin_says(web: Web, site: str) -> None:
    """Another port of this machine is the same site; it is not the same page."""
    headers = {**web.signed_in(), "Origin": web.origin, "Sec-Fetch-Site": site}
    assert refused(web.ask("POST", "/api/send", headers, SEND))
    assert not is_sent(web)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors image", "cors empty", "navigate iframe", "no-cors script"])
def test_other_pages_load_nothing(web: Web, site: str, mode: str) -> None:
    """Neither pictures, scripts, frames nor streams: also an answer that cannot be read takes time that can be."""
    how, what = mode.split()
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": how, "Sec-Fetch-Dest": what}
    for path in ("/events", "/no-such-page"):
        assert refused(web.ask("GET", path, headers), 401)
        assert refused(web.ask("GET", path, {**headers, **web.signed_in()}))


@pytest.mark.parametrize("site", ["none", "same-origin", "cross-site", "same-site"])
def test_person_may_follow_a_link_to_the_page(web: Web, site: str) -> None:
    """A window that goes there gets the shell, which holds nothing of the person's; what it shows, it has to prove."""
    web.daemon.call("send", text="private words")
    answer = web.ask("GET", "/m/inbox", {**NAVIGATION, "Sec-Fetch-Site": site})
    assert answer.status == 200
    assert "session.js" in answer.text
    assert "private words" not in answer.text


def test_host_header_must_be_ours_also_with_good_credentials(web: Web) -> None:
    """A page that rebinds its name to 127.0.0.1 is the same origin to the browser; its Host is not ours."""
    port = web.address.rpartition(":")[2]
    names = ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1", f"[::1]:{port}", "")
    for host in names:
        for headers in (web.bearer, web.signed_in(), {}):
            answer = web.ask("POST", "/api/send", {**headers, "Host": host, "Origin": f"http://{host}"}, SEND)
            assert refused(answer)
        for path in ("/healthz", "/sign-in", "/static/app.css", "/"):
            assert refused(web.ask("GET", path, {**web.bearer, "Host": host}))
    assert not is_sent(web)


def test_header_that_is_there_twice_is_refused(web: Web) -> None:
    """Two programs in a row may each believe another one of them."""
    for double in (
        f"Host: {web.address}\r\nHost: evil.example",
        "Origin: http://evil.example\r\nOrigin: " + web.origin,
    ):
        with socket.create_connection(_place(web), WAIT_SECONDS) as sock:
            host = "" if double.startswith("Host") else f"Host: {web.address}\r\n"
            head = f"GET / HTTP/1.1\r\n{host}{double}\r\nAuthorization: Bearer {web.token}\r\n\r\n"
            sock.sendall(head.encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 4")


def test_cookies_are_not_looked_at(web: Web) -> None:
    """A browser hands them to every port of this machine: whoever shares it could collect them."""
    port = web.address.rpartition(":")[2]
    (session,) = web.signed_in().values()
    own = {"Origin": web.origin, "Sec-Fetch-Site": "same-origin"}
    for value in (web.token, session, web.proof(session, "POST", "/api/list", b"{}")):
        cookie = {"Cookie": f"harken-{port}={value}; harken={value}; token={value}"}
        assert refused(web.ask("POST", "/api/list", {**own, **cookie}, b"{}"), 401)
        assert refused(web.ask("GET", "/events", cookie), 401)
    for path in ("/", "/m/inbox", "/sign-in"):
        assert "set-cookie" not in web.ask("GET", path, {**NAVIGATION, **web.signed_in()}).headers


def test_proof_counts_once(web: Web) -> None:
    """Whoever sees a request that was made, in a log or at a port that they took, cannot make it again."""
    (session,) = web.signed_in().values()
    headers = {"Harken-Proof": web.proof(session, "POST", "/api/send", SEND), "Origin": web.origin}
    assert web.ask("POST", "/api/send", headers, SEND).status == 200
    before = len(web.daemon.call("list", limit=1000)["messages"])
    assert refused(web.ask("POST", "/api/send", headers, SEND), 401)
    assert len(web.daemon.call("list", limit=1000)["messages"]) == before


def test_proof_is_good_for_what_it_was_made_for_only(web: Web) -> None:
    """Another method, address, query, body or session: each would be another deed."""
    (session,), (other,) = web.signed_in().values(), web.signed_in().values()
    own = {"Origin": web.origin, "Sec-Fetch-Site": "same-origin"}

    def tried(header: str, path: str = "/api/list?a=1", body: bytes = b"{}", method: str = "POST") -> int:
        return web.ask(method, path, {**own, "Harken-Proof": header}, body).status

    def made() -> str:
        return web.proof(session, "POST", "/api/list?a=1", b"{}")

    assert tried(made()) == 200
    assert [tried(made(), path) for path in ("/api/list", "/api/list?a=2", "/api/send?a=1", "/api//list?a=1")] == [
        401
    ] * 4
    assert tried(made(), body=b'{"limit": 1}') == 401
    assert tried(made(), body=b"") == 401
    assert tried(made(), method="PUT") == 401
    assert tried(made().replace(session, other)) == 401
    fields = made().split(" ")
    changes = [(0, ""), (1, "x"), (2, "0"), (2, "-1"), (2, "1.5"), (2, "9" * 40), (3, ""), (4, ""), (4, "A" * 43)]
    for place, value in changes:
        changed = [value if place == at else field for at, field in enumerate(fields)]
        assert tried(" ".join(changed)) == 401, changed
    for nonsense in ("", " ", "    ", "x", "a b c d", "a b 1 d e f", "\xff \xff 1 \xff \xff", "x" * 5_000):
        assert tried(nonsense) == 401, nonsense
    assert tried(web.proof(session, "POST", "/api/list?a=1", b"{}")) == 200


def test_answer_to_a_page_proves_that_it_is_ours(web: Web) -> None:
    """A program that took the port could else show the person, and the page's scripts, whatever it likes."""
    (session,) = web.signed_in().values()
    for path, status in (("/m/inbox", 200), ("/no-such-page", 404), ("/", 200), ("/events", 200)):
        proof = web.proof(session, "GET", path)
        answer = web.ask("GET", path, {"Harken-Proof": proof})
        assert answer.status == status
        right = tag(web.keys[session], "harken answer 1", proof.rpartition(" ")[2], str(status))
        assert answer.headers["harken-answer"] == right
        assert "location" not in answer.headers, "a browser that went there itself would spend the proof twice"


def test_wrong_token_is_refused_also_with_a_good_proof(web: Web) -> None:
    """A program that means to be one is told that its token is wrong."""
    headers = {**web.signed_in(), "Authorization": "Bearer wrong"}
    assert refused(web.ask("GET", "/events", headers))


def test_token_in_the_address_is_not_looked_at(web: Web) -> None:
    """Addresses end up in histories and logs."""
    for query in (f"?token={web.token}", f"?access_token={web.token}", f"?code={web.token}"):
        assert web.ask("GET", f"/events{query}", {}).status == 401


def test_program_without_a_token_is_told_what_to_do(web: Web) -> None:
    """A person reads it in the page; a program reads JSON."""
    answer = web.ask("GET", "/", {})
    assert refused(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


PATHS = ("/", "/healthz", "/sign-in", "/no-such-page", "/static/no-such-file")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_protects_itself(web: Web, path: str) -> None:
    """No page of ours loads from others, is framed, guessed at, cached or tells others where the person was."""
    for headers in ({}, web.bearer, {**web.signed_in(), **NAVIGATION}, {"Host": "evil.example"}):
        answer = web.ask("GET", path, headers)
        policy = answer.headers["content-security-policy"]
        assert {part.strip() for part in policy.split(";")} == {
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "manifest-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        }
        assert {name: answer.headers.get(name) for name in PROTECTION} == PROTECTION
        assert "access-control-allow-origin" not in answer.headers


PROTECTION = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


TRAVERSALS = (
    "/static/../../../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "/static/%2e%2e/%2e%2e/%2e%2e/app.py",
    "/static/%2e%2e%2fstatic_files.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/..%5c..%5capp.py",
    "/static/..;/static_files.py",
    "/static/%00",
    "/static/../healthz/../../token",
    "/static/../api/list",
    "/static/./../events",
)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out_of_the_static_files(web: Web, path: str) -> None:
    """They are served to everyone: nothing else may be, neither a file nor a route behind the guard."""
    for headers in ({}, web.signed_in()):
        answer = web.ask("GET", path, headers)
        assert answer.status in (400, 401, 404), answer
        for leak in (b"root:", b"from __future__", web.token.encode(), b"text/event-stream"):
            assert leak not in answer.body


CREDENTIALS = ("bearer", "proof")


@pytest.mark.parametrize("who", CREDENTIALS)
@pytest.mark.parametrize("path", ["/api/send", "/do/send"])
def test_body_that_says_it_is_too_large_is_not_read(web: Web, who: str, path: str) -> None:
    """Memory is not for whoever sends the most."""
    with socket.create_connection(_place(web), WAIT_SECONDS) as sock:
        sock.sendall(_head(web, who, path, "Content-Length: 10000000000") + b"{")
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("who", CREDENTIALS)
@pytest.mark.parametrize("path", ["/api/send", "/do/send"])
def test_body_of_unsaid_length_ends_when_it_is_too_large(web: Web, who: str, path: str) -> None:
    """What does not say how long it is, is counted."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(_place(web), WAIT_SECONDS) as sock:
        sock.sendall(_head(web, who, path, "Transfer-Encoding: chunked") + chunk * 65)
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("flood", [b"X-Flood: " + b"x" * 1000 + b"\r\n", b"x", b"x" * 5000])
def test_head_without_end_is_cut_off(web: Web, flood: bytes) -> None:
    """A head is read before anyone is known: whoever can reach the port can send one."""
    begin = b"GET / HTTP/1.1\r\nHost: " + web.address.encode() + b"\r\n" + (b"" if b":" in flood else b"X: ")
    with socket.create_connection(_place(web), WAIT_SECONDS) as sock:
        sock.sendall(begin)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            sock.sendall(flood * (100_000_000 // len(flood)))
    assert web.ask("GET", "/healthz").status == 200


def _head(web: Web, who: str, path: str, length: str) -> bytes:
    credentials = web.bearer
    if who == "proof":
        (session,) = web.signed_in().values()
        credentials = {"Harken-Proof": web.proof(session, "POST", path), "Origin": web.origin}
    lines = [f"POST {path} HTTP/1.1", f"Host: {web.address}", length, "Content-Type: application/json"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in credentials.items()), "", ""]).encode()


def _place(web: Web) -> tuple[str, int]:
    host, _, port = web.address.rpartition(":")
    return host, int(port)


def test_agent_may_not_sign_in(web: Web) -> None:
    """A signed-in browser is the person: an agent that could open one could say everything in their name."""
    command = [sys.executable, "-m", "harken", "open", "--print", "--home", str(web.daemon.home)]
    with EdgeClient(edge_command(web.daemon.home), name="claude-code") as agent:
        agent.tool("inbound_queue_stats")
        in_its_shell = subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS, check=False)
    assert (in_its_shell.returncode, in_its_shell.stdout) == (Forbidden.exit_code, b"")
    assert b"An agent may not sign in" in in_its_shell.stderr
    outside = subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS, check=True)
    assert outside.stdout.decode().startswith(f"{web.origin}/sign-in#")


def test_files_hold_neither_key_nor_secret(web: Web) -> None:
    """What signs in is in memory and in the browser: a log or a backup does not hand it on."""
    secret = web.secret()
    (session,) = web.signed_in().values()
    key = web.keys[session]
    wanted = (secret, letters(secret).encode(), secret.hex().encode(), key, letters(key).encode(), key.hex().encode())
    for folder, _, names in os.walk(web.daemon.home):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                assert not any(each in path.read_bytes() for each in wanted), path
    assert isinstance(web.daemon, Served)
    said = web.daemon.errors()
    assert letters(secret) not in said
    assert web.token not in said


def test_every_service_worker_is_answered_with_one_that_ends_itself(web: Web) -> None:
    """A program that had the port may have left one at any address; a host name of another stays refused."""
    asked = {"Service-Worker": "script", "Sec-Fetch-Dest": "serviceworker", "Accept": "*/*"}
    for path in ("/sw.js", "/deep/down/stay.js", "/m/inbox", "/static/nothing.js"):
        answer = web.ask("GET", path, asked)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert (answer.headers["service-worker-allowed"], answer.headers["cache-control"]) == ("/", "no-store")
        assert "registration.unregister()" in answer.text
    assert web.ask("GET", "/sw.js", {**asked, "Host": "evil.example"}).status == 403
    assert web.ask("GET", "/sw.js", {"Accept": "*/*"}).status == 401
