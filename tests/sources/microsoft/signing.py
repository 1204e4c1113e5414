"""A sign-in service on loopback that answers what a test says, answer by answer, and remembers what it was asked.

It knows just enough to let a person in; the rules of the real one are the business of the service in `tests/graph`.
Every secret it gives out holds the word in `HUSH`, so that a test can look for it in whatever was written.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.graph.certificate import write_loopback_pair

HUSH: Final = "hushhush"
TENANT: Final = "11111111-2222-3333-4444-555555555555"
CLIENT: Final = "66666666-7777-8888-9999-aaaaaaaaaaaa"
USER: Final = "bbbbbbbb-cccc-dddd-eeee-ffffffffffff"
LIFETIME: Final = 3_600
DEVICE_LIFE: Final = 60
SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Said:
    """One answer."""

    body: Mapping[str, object] | str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def refused(error: str, number: int = 0, **more: object) -> Said:
    """A refusal as Entra words them; the description holds what nobody is to be shown."""
    described = f"AADSTS{number}: ask {HUSH}@example.com. Trace ID: 1 Correlation ID: 2" if number else HUSH
    codes: dict[str, object] = {"error_codes": [number]} if number else {}
    return Said({"error": error, "error_description": described, **codes, **more}, 400)


class Entra:
    """What the service will say and what it was asked."""

    def __init__(self) -> None:
        self.origin = ""
        self.next: list[Said] = []  # said before anything else, to those who ask for tokens or codes
        self.forms: list[dict[str, str]] = []  # what was asked for, tokens and codes
        self.device_life = DEVICE_LIFE
        self.nonce = ""  # of the page that a browser was sent to
        self.gate = threading.Event()  # tokens are given while it is set
        self.gate.set()
        self.asked = threading.Event()
        self._lock = threading.Lock()
        self._count = 0

    @property
    def grants(self) -> list[str]:
        """How tokens were asked for, in order."""
        return [form["grant_type"].rpartition(":")[2] for form in self.forms if "grant_type" in form]

    def answer(self, method: str, path: str, form: dict[str, str]) -> Said:
        """Answer one request."""
        base = f"{self.origin}/{TENANT}"
        tenant = path.split("/")[1]
        if tenant not in {TENANT, "organizations"}:
            return refused("invalid_tenant", 90002)
        if method == "GET":
            return Said(
                {
                    "issuer": f"{base}/v2.0",
                    "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{base}/oauth2/v2.0/token",
                    "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
                }
            )
        with self._lock:
            self.forms.append(form)
            self._count += 1
            count = self._count
            said = self.next.pop(0) if self.next else None
        self.asked.set()
        self.gate.wait(SECONDS)
        if said is not None:
            return said
        return self._code(count) if path.endswith("devicecode") else self._tokens(count, form)

    def _code(self, count: int) -> Said:
        return Said(
            {
                "user_code": f"ABCD{count}{HUSH}",
                "device_code": f"device-{HUSH}-{count}",
                "verification_uri": "https://example.com/device",
                "expires_in": self.device_life,
                "interval": 0,
            }
        )

    def _tokens(self, count: int, form: Mapping[str, str]) -> Said:
        claims = {"aud": CLIENT, "sub": "s", "oid": USER, "tid": TENANT, "name": "Ann\u202e Lee", "exp": 1}
        claims |= {"preferred_username": "ann@example.com", "nonce": self.nonce}
        return Said(
            {
                "token_type": "Bearer",
                "scope": form.get("scope", "Chat.Read User.Read"),
                "expires_in": LIFETIME,
                "access_token": f"access-{HUSH}-{count}",
                "refresh_token": f"refresh-{HUSH}-{count}",
                "id_token": f"e30.{_encoded(claims)}.c2ln",
                "client_info": _encoded({"uid": USER, "utid": TENANT}),
            }
        )


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _handler(entra: Entra) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(entra.answer("GET", urlsplit(self.path).path, {}))

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            self._say(entra.answer("POST", urlsplit(self.path).path, dict(parse_qsl(text))))

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Say nothing."""

        def _say(self, said: Said) -> None:
            body = said.body if isinstance(said.body, str) else json.dumps(said.body)
            self.send_response(said.status)
            for name, value in {"content-type": "application/json", **said.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

    return Handler


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Entra, ssl.SSLContext]]:
    """Run the service, and say whom to trust to reach it."""
    ca, server_pem = write_loopback_pair(folder)
    entra = Entra()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(entra))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    entra.origin = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield entra, ssl.create_default_context(cafile=str(ca))
    finally:
        entra.gate.set()
        server.shutdown()
        thread.join(SECONDS)
        server.server_close()


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Everything that was logged while a test ran, also when it is asked for afterwards."""
    as_text = logging.Formatter("%(name)s %(message)s")
    lines = [as_text.format(record) for phase in ("setup", "call") for record in caplog.get_records(phase)]
    assert lines, "nothing was logged at all: it was not looked at"
    return "\n".join(lines)
