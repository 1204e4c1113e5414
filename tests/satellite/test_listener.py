"""The public listener: everybody can reach it, and gets nothing from it but TLS, a refusal or their own link."""

from __future__ import annotations

import json
import ssl
import threading
from contextlib import ExitStack, closing, suppress

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from harken.daemon.public.listener import MAX_OF_ADDRESS, WRONG_MOST, Slowdown
from tests.graph.certificate import write_loopback_pair
from tests.loss.rig import WAIT_SECONDS, Json, until
from tests.satellite.rig import MACHINE_ID, MainDaemon, body


def ask(main: MainDaemon, request: bytes) -> bytes:
    """Send bytes over TLS and return what comes until the end."""
    with main.secure() as sock:
        sock.sendall(request)
        sock.settimeout(WAIT_SECONDS)
        answer = b""
        while data := sock.recv(1 << 16):
            answer += data
        return answer


def refusal(main: MainDaemon, token: str, machine: str = MACHINE_ID, **headers: str) -> tuple[int, Json]:
    """The status of a refused link, and the error that says why."""
    with pytest.raises(InvalidStatus) as caught, main.knock(token, machine, **headers):
        pass
    response = caught.value.response
    return response.status_code, body(bytes(response.body))


def end_of(link: ClientConnection) -> tuple[int, str]:
    """With what code, and why, the other side ends a link."""
    with suppress(ConnectionClosed):
        while True:
            link.recv(WAIT_SECONDS)
    closing = link.protocol.close_rcvd
    assert closing is not None
    return closing.code, closing.reason


def greeted(link: ClientConnection) -> ClientConnection:
    """A link on which both sides have said who they are."""
    link.recv(WAIT_SECONDS)
    link.send(b'{"version": "test"}')
    return link


def test_no_other_machine_is_let_in_unless_that_is_configured(main: MainDaemon) -> None:
    """A port that nobody asked for is a door that nobody watches."""
    (main.served.home / "config.toml").unlink()
    main.served.start()
    assert main.served.call("status")["daemon"]["public_url"] == ""
    with pytest.raises(ConnectionRefusedError):
        main.raw()


def test_nothing_is_served_without_a_certificate(main: MainDaemon) -> None:
    """A link without TLS would show the token to everybody between; the inbox works all the same."""
    (main.served.home / "config.toml").write_text(f'[http]\npublic_listen = "127.0.0.1:{main.port}"\n')
    main.served.start()
    log = main.served.home / "logs" / "daemon.log"
    until(lambda: "without a certificate" in log.read_text(), "the log says why")
    assert main.served.call("send", text="here")["state"] == "queued"
    with pytest.raises(ConnectionRefusedError):
        main.raw()


def test_page_and_api_are_not_there(main: MainDaemon) -> None:
    """Everybody can reach this listener; what your own programs use is not on it."""
    main.start()
    for path in ("/", "/events", "/health", "/link", "/../api/status"):
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert ask(main, head.encode()).startswith(b"HTTP/1.1 404 "), path
    own = (main.served.home / "token").read_text().strip()
    for said in ("", f"Authorization: Bearer {own}\r\n"):
        head = f"POST /api/status HTTP/1.1\r\nHost: localhost:{main.port}\r\n{said}Content-Length: 0\r\n"
        assert ask(main, f"{head}Connection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 401 ")


def test_token_lets_its_machine_in(main: MainDaemon) -> None:
    """The link is greeted with the name that the person gave the machine, and its use is shown."""
    token = main.start().token("buildbox")
    with main.knock(token) as link:
        assert b'"machine":"buildbox"' in link.recv(WAIT_SECONDS, decode=False)
    (listed,) = main.served.call("token_list")["tokens"]
    assert (listed["name"], listed["used_from"], listed["bound_to"]) == ("buildbox", "127.0.0.1", MACHINE_ID)


def test_wrong_token_is_refused(main: MainDaemon) -> None:
    """It says nothing about which tokens there are, and it is not logged."""
    token = main.start().token()
    status, error = refusal(main, token[:-1])
    assert (status, error["code"]) == (403, "refused")
    assert refusal(main, "") == (status, error)
    assert refusal(main, token, "not an id") == (status, error)
    assert token[:-1] not in (main.served.home / "logs" / "daemon.log").read_text()


def test_token_of_another_machine_is_refused(main: MainDaemon) -> None:
    """A token that was copied lets nobody else in."""
    token = main.start().token()
    with main.knock(token):
        pass
    status, error = refusal(main, token, "f" * 32)
    assert (status, error["message"]) == (403, "This token belongs to another machine.")
    with main.knock(token) as link:
        link.recv(WAIT_SECONDS)


def test_other_protocol_is_told_what_to_do(main: MainDaemon) -> None:
    """Two versions that cannot speak with each other say so, and neither guesses."""
    token = main.start().token()
    status, error = refusal(main, token, **{"Harken-Link": "99"})
    assert status == 422
    assert "99" in error["message"]
    assert error["hint"] == "Install the same version of Harken on both machines."


def test_revoked_token_ends_its_link_at_once(main: MainDaemon) -> None:
    """Whoever revokes a token means now."""
    token = main.start().token("buildbox")
    with main.knock(token) as link:
        greeted(link)
        main.served.call("token_revoke", name="buildbox")
        assert end_of(link) == (4001, "The token of this machine was revoked.")
    assert refusal(main, token)[0] == 403


def test_machine_that_connects_again_ends_its_former_link(main: MainDaemon) -> None:
    """A link that was cut without a word must not keep its machine out, or get what is meant for it."""
    token = main.start().token()
    with main.knock(token) as former, main.knock(token) as link:
        greeted(former)
        until(lambda: "buildbox is here" in (main.served.home / "logs" / "daemon.log").read_text())
        greeted(link)
        assert end_of(former)[0] == 4002


@pytest.mark.parametrize(
    "hello", [b"\xff\x00nothing", '{"version": "text"}', b'{"x":' + b"[" * 200_000, b'{"watched": [1]}'], ids=range(4)
)
def test_hello_that_is_none_ends_the_link(main: MainDaemon, hello: bytes | str) -> None:
    """Nothing that is not understood is guessed at, and it is no fault of the daemon's."""
    token = main.start().token()
    with main.knock(token) as link:
        link.recv(WAIT_SECONDS)
        link.send(hello)
        assert end_of(link)[0] == 4003
    assert "Traceback" not in (main.served.home / "logs" / "daemon.log").read_text()


def test_machine_that_hangs_up_before_its_hello_is_no_fault(main: MainDaemon) -> None:
    """Networks break at any moment; the log is for what somebody can do something about."""
    token = main.start().token()
    with main.knock(token) as link:
        link.recv(WAIT_SECONDS)
    with main.knock(token) as link:
        greeted(link)
        log = main.served.home / "logs" / "daemon.log"
        until(lambda: "buildbox is here" in log.read_text(), "the next link is taken")
    assert "Traceback" not in log.read_text()


def test_version_that_a_machine_names_is_short_and_legible(main: MainDaemon) -> None:
    """It is shown in terminals and on the page, for as long as the machine is here."""
    token = main.start().token()
    with main.knock(token) as link:
        link.recv(WAIT_SECONDS)
        link.send(json.dumps({"version": "\x1b[2J" + "v" * 1_000}).encode())
        (machine,) = until(
            lambda: [each for each in main.served.call("machines")["machines"] if each["version"]], "it is here"
        )
    assert len(machine["version"]) < 60
    assert "\x1b" not in machine["version"]


def test_frame_that_is_too_large_ends_the_link(main: MainDaemon) -> None:
    """What a machine sends is bounded before it is read."""
    token = main.start().token()
    with main.knock(token) as link:
        greeted(link)
        with suppress(ConnectionClosed):
            link.send(b"x" * (3 << 20))
        assert end_of(link)[0] == 1009


def test_one_address_does_not_take_all_places(main: MainDaemon) -> None:
    """Connections count before their handshake: it is there that they cost nothing to open."""
    main.start()
    with ExitStack() as opened:
        for _ in range(MAX_OF_ADDRESS):
            opened.enter_context(closing(main.raw()))
        late = opened.enter_context(closing(main.raw()))
        assert late.recv(1) == b""
    until(lambda: ask(main, b"GET / HTTP/1.0\r\n\r\n"), "there is room again")


def test_connection_without_tls_gets_no_answer(main: MainDaemon) -> None:
    """A client that forgot TLS hears nothing that could look like an answer."""
    main.start()
    with closing(main.raw()) as sock:
        sock.sendall(b"GET /link HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer harken_x\r\n\r\n")
        sock.settimeout(WAIT_SECONDS)
        try:
            assert not sock.recv(1 << 16).startswith(b"HTTP")
        except ConnectionError:
            return


def test_new_certificate_is_used_without_a_restart(main: MainDaemon) -> None:
    """Certificates are renewed every few weeks; nobody restarts an inbox for it."""
    main.start()
    folder = main.authority.parent / "renewed"
    folder.mkdir()
    authority, server = write_loopback_pair(folder)
    server.replace(main.authority.parent / "server.pem")

    def is_new() -> bool:
        context = ssl.create_default_context(cafile=authority)
        try:
            context.wrap_socket(main.raw(), server_hostname="localhost").close()
        except ssl.SSLError:
            return False
        return True

    until(is_new, "the new certificate is used", pause_seconds=0.2)


def test_certificate_that_is_broken_later_changes_nothing(main: MainDaemon) -> None:
    """A renewal that failed must not shut every machine out while the old certificate is good."""
    main.start()
    (main.authority.parent / "server.pem").write_text("nothing")
    log = main.served.home / "logs" / "daemon.log"

    def is_noted() -> bool:
        main.secure().close()
        return "the certificate stays as it was" in log.read_text()

    until(is_noted, "the log says so", pause_seconds=0.2)


def guess(main: MainDaemon, **headers: str) -> None:
    """Show as many wrong tokens as shut an address out."""
    threads = [threading.Thread(target=refusal, args=(main, f"harken_{n}"), kwargs=headers) for n in range(WRONG_MOST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_guesses_from_its_address_keep_no_machine_out(main: MainDaemon) -> None:
    """It has shown its token before; a network that breaks for a moment must not cost it a minute for each guess."""
    token = main.start().token()
    with main.knock(token) as link:
        greeted(link)
    guess(main)
    assert refusal(main, "harken_x")[0] == 503
    with main.knock(token) as link:
        greeted(link)


def test_machines_behind_a_proxy_are_told_apart(main: MainDaemon) -> None:
    """Else anybody who guesses keeps all of them out, and the list names the proxy for each."""
    with (main.served.home / "config.toml").open("a") as config:
        config.write('proxy = ["127.0.0.1"]\n')
    token = main.start().token()
    guess(main, **{"X-Forwarded-For": "203.0.113.9"})
    assert refusal(main, "harken_x", **{"X-Forwarded-For": "203.0.113.9"})[0] == 503
    with main.knock(token, **{"X-Forwarded-For": "198.51.100.7"}) as link:
        greeted(link)
        until(lambda: main.served.call("machines")["machines"][0]["state"] == "here", "it is here")
        assert main.served.call("machines")["machines"][0]["address"] == "198.51.100.7"


async def test_address_with_many_wrong_tokens_is_shut_out_for_a_while() -> None:
    """Somebody who tries tokens is not listened to; somebody else is, and the first one again after a minute."""
    now = [100.0]
    slowdown = Slowdown(lambda: now[0])
    for _ in range(WRONG_MOST):
        assert not slowdown.is_shut_out("192.0.2.1")
        slowdown.note_wrong("192.0.2.1")
    assert slowdown.is_shut_out("192.0.2.1")
    assert not slowdown.is_shut_out("192.0.2.2")
    now[0] += 61.0
    assert not slowdown.is_shut_out("192.0.2.1")
