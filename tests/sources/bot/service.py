"""A Bot Framework on loopback: the OpenID document and its keys, the token service, and the Bot Connector.

Written from what Microsoft documents of "Bot Connector authentication" and of the Bot Connector REST API, and not from
our client: it checks what the documented service checks, keeps what it was sent, and can be told to fail. It signs
activities as the connector does, and lets a test say something else in a token.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

APP_ID: Final = "1b730954-1685-4b74-9bfd-dac224a7b894"
TENANT: Final = "2c841065-2796-4c85-8afe-ebd335b8c905"
KEPT: Final = "tHe~sEcReT.oF-tHe_bOt"
ISSUER: Final = "https://api.botframework.com"
SCOPE: Final = "https://api.botframework.com/.default"
BOT: Final = {"id": f"28:{APP_ID}", "name": "Harken"}
ANN: Final = {"id": "29:1Ann-user", "name": "Ann Smith", "aadObjectId": "3d952176-38a7-4d96-9b0f-fce446c9da16"}
LARGEST: Final = 100_000
LIFE_SECONDS: Final = 3_600
HELD_SECONDS: Final = 30

Json: TypeAlias = dict[str, Any]


@cache
def signing_key(number: int) -> RSAPrivateKey:
    """Return a key of the connector, the same for one number, because making one takes long."""
    del number
    return generate_private_key(65_537, 2_048)


@dataclass(frozen=True, slots=True)
class Sent:
    """A reply that the connector took."""

    conversation: str
    activity: str
    body: Json
    token: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one reply: an answer of this status, or none (0); `is_kept` says whether it was taken first."""

    status: int = 0
    is_kept: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    code: str = "ServiceError"


@dataclass
class Service:
    """What the services know, and what they were asked."""

    now: Callable[[], datetime]
    port: int = 0
    kids: dict[str, int] = field(default_factory=lambda: {"key-1": 1})
    endorsements: tuple[str, ...] = ("msteams", "webchat")
    openid_requests: int = 0
    key_requests: int = 0
    token_requests: int = 0
    is_openid_down: bool = False
    secret: str = KEPT
    jwks_uri: str = ""
    tokens: dict[str, float] = field(default_factory=dict[str, float])
    sent: list[Sent] = field(default_factory=list[Sent])
    faults: list[Fault] = field(default_factory=list[Fault])
    token_faults: list[Fault] = field(default_factory=list[Fault])
    taken: threading.Event = field(default_factory=threading.Event)  # a reply arrived
    going: threading.Event = field(default_factory=threading.Event)  # while it is not set, nobody gets an answer to one
    _ids: int = 1_700_000_000_000

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def service_url(self) -> str:
        """Where the connector of a region is."""
        return f"{self.url}/emea/{TENANT}/"

    def rotate(self, kid: str) -> None:
        """Publish a new key beside the old ones."""
        self.kids[kid] = len(self.kids) + 1

    def token(self, *, kid: str = "key-1", without: str = "", headers: Json | None = None, **said: object) -> str:
        """Return a token as the connector sends it; `said` replaces claims, `without` leaves one out."""
        at = int(self.now().timestamp())
        claims: Json = {
            "iss": ISSUER,
            "aud": APP_ID,
            "nbf": at,
            "exp": at + LIFE_SECONDS,
            "serviceurl": self.service_url,
            **said,
        }
        claims.pop(without, None)
        number = self.kids.get(kid, 99)
        return jwt.encode(claims, signing_key(number), algorithm="RS256", headers={"kid": kid, **(headers or {})})

    def activity(self, text: str = "Hello", *, chat: str = "a:1personal", **more: object) -> Json:
        """Return a message to the bot as Teams sends it."""
        self._ids += 1
        return {
            "type": "message",
            "id": str(self._ids),
            "timestamp": self.now().astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "serviceUrl": self.service_url,
            "channelId": "msteams",
            "from": ANN,
            "conversation": {"conversationType": "personal", "tenantId": TENANT, "id": chat},
            "recipient": BOT,
            "textFormat": "plain",
            "text": text,
            "locale": "en-GB",
            "entities": [{"locale": "en-GB", "country": "GB", "platform": "Web", "type": "clientInfo"}],
            "channelData": {"tenant": {"id": TENANT}},
            **more,
        }

    def keys(self) -> Json:
        """Return the published keys."""
        return {"keys": [self._key(kid, number) for kid, number in self.kids.items()]}

    def openid(self) -> Json:
        """Return the OpenID document."""
        return {
            "issuer": ISSUER,
            "authorization_endpoint": "https://invalid.botframework.com",
            "jwks_uri": self.jwks_uri or f"{self.url}/v1/.well-known/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["private_key_jwt"],
        }

    def grant(self, form: Mapping[str, list[str]]) -> tuple[int, Json]:
        """Return what the token service answers."""
        self.token_requests += 1
        expected = {"grant_type": "client_credentials", "client_id": APP_ID, "scope": SCOPE}
        if any(form.get(name) != [value] for name, value in expected.items()):
            return 400, {"error": "invalid_request", "error_description": "AADSTS900144: something is missing."}
        if form.get("client_secret") != [self.secret]:
            return 401, {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret."}
        token = f"eyJib3Q.{uuid.uuid4().hex}.{uuid.uuid4().hex}"
        self.tokens[token] = self.now().timestamp() + LIFE_SECONDS
        return 200, {"token_type": "Bearer", "expires_in": LIFE_SECONDS, "access_token": token}

    def reply(self, conversation: str, activity: str, authorization: str, body: bytes) -> tuple[int, Json]:
        """Return what the connector answers to a reply."""
        token = authorization.removeprefix("Bearer ")
        if self.tokens.get(token, 0) <= self.now().timestamp():
            return 401, {"message": "Authorization has been denied for this request."}
        if len(body) > LARGEST:
            return 413, {"error": {"code": "MessageSizeTooBig", "message": "Too big."}}
        said = json.loads(body)
        if said.get("type") != "message" or not said.get("text") or said.get("replyToId") != activity:
            return 400, {"error": {"code": "BadArgument", "message": "Unknown activity."}}
        self.sent.append(Sent(conversation, activity, said, token))
        return 201, {"id": f"1:{len(self.sent)}"}

    def _key(self, kid: str, number: int) -> Json:
        public = signing_key(number).public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "kid": kid,
            "x5t": kid,
            "n": _number(public.n),
            "e": _number(public.e),
            "endorsements": list(self.endorsements),
        }


def _number(value: int) -> str:
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_GET(self) -> None:
        """Serve the OpenID document and the keys."""
        service = self.service
        if service.is_openid_down:
            service.openid_requests += 1
            self._answer(503, {})
        elif self.path == "/v1/.well-known/openidconfiguration":
            service.openid_requests += 1
            self._answer(200, service.openid())
        elif self.path == "/v1/.well-known/keys":
            service.key_requests += 1
            self._answer(200, service.keys())
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        """Grant tokens and take replies."""
        service, body = self.service, self.rfile.read(int(self.headers["Content-Length"]))
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[1:] == ["oauth2", "v2.0", "token"]:
            if service.token_faults:
                fault = service.token_faults.pop(0)
                self._answer(fault.status, {"error": "busy"}, fault.headers)
                return
            self._answer(*service.grant(parse_qs(body.decode())))
        elif parts[2:4] == ["v3", "conversations"] and parts[5] == "activities" and len(parts) == 7:
            self._take(unquote(parts[4]), unquote(parts[6]), body)
        else:
            self._answer(404, {"error": {"code": "NotFound"}})

    def _take(self, conversation: str, activity: str, body: bytes) -> None:
        service = self.service
        fault = service.faults.pop(0) if service.faults else None
        status, said = 0, {"error": {"code": fault.code if fault else "", "message": "No."}}
        if fault is None or fault.is_kept:
            status, said = service.reply(conversation, activity, self.headers["Authorization"], body)
        if fault is not None:
            status = fault.status
        service.taken.set()
        service.going.wait(HELD_SECONDS)
        if status:
            self._answer(status, said, fault.headers if fault else {})
        else:
            self.close_connection = True

    def _answer(self, status: int, said: Json, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def real_time() -> datetime:
    """Return the present, for a daemon in a process of its own."""
    return datetime.now(UTC)


@contextmanager
def serving(now: Callable[[], datetime] = real_time) -> Iterator[Service]:
    """Serve on a free port until the block ends."""
    service = Service(now)
    service.going.set()
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.going.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
