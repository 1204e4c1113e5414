"""A push service of ours, and the browser that it stands for: what it takes is read with nothing of the daemon's code.

`opened` does what RFC 8291 says of a browser, step by step, with `cryptography` alone; `Voucher` reads what RFC 8292
says of who posts.
"""

from __future__ import annotations

import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    derive_private_key,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.loss.rig import WAIT_SECONDS
from tests.web.rig import data_of, letters

Json: TypeAlias = Any
SALT_END, SIZE_END, KEY_AT = 16, 20, 21  # the header of RFC 8188
MOST_BYTES: Final = 4_096


def raw(key: EllipticCurvePublicKey) -> bytes:
    """Return a public key as browsers write it."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def opened(body: bytes, key: EllipticCurvePrivateKey, auth: bytes) -> bytes:
    """Return what a body of one record says, as RFC 8291 and RFC 8188 have a browser read it."""
    salt, sender = body[:SALT_END], body[KEY_AT : KEY_AT + body[SIZE_END]]
    shared = key.exchange(ECDH(), EllipticCurvePublicKey.from_encoded_point(SECP256R1(), sender))
    secret = _derived(shared, auth, b"WebPush: info\0" + raw(key.public_key()) + sender, 32)
    content = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    text = AESGCM(content).decrypt(nonce, body[KEY_AT + body[SIZE_END] :], None).rstrip(b"\0")
    assert text[-1:] == b"\2"  # the last record
    return text[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Voucher:
    """Who posts, as the header says it and its signature proves."""

    key: str
    said: Json

    @classmethod
    def of(cls, header: str) -> Self:
        """Read a header; raise unless its signature is that of its key."""
        scheme, _, rest = header.partition(" ")
        assert scheme == "vapid"
        parts = dict(each.strip().split("=", 1) for each in rest.split(","))
        signed, _, signature = parts["t"].rpartition(".")
        head, claims = (json.loads(urlsafe_b64decode(f"{each}==")) for each in signed.split("."))
        assert head == {"typ": "JWT", "alg": "ES256"}
        data, point = data_of(signature), data_of(parts["k"])
        both = encode_dss_signature(int.from_bytes(data[:32]), int.from_bytes(data[32:]))
        EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point).verify(both, signed.encode(), ECDSA(SHA256()))
        return cls(key=parts["k"], said=claims)


@dataclass(slots=True)
class PushBrowser:
    """A browser that subscribes at a push service."""

    endpoint: str
    key: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))
    auth: bytes = bytes(range(16))

    @classmethod
    def known(cls, private: str, auth: str) -> Self:
        """Return one with keys that are known."""
        key = derive_private_key(int.from_bytes(data_of(private)), SECP256R1())
        return cls("", key, data_of(auth))

    def subscription(self, **changed: object) -> bytes:
        """Return what it says of its subscription."""
        keys = {"p256dh": letters(raw(self.key.public_key())), "auth": letters(self.auth)}
        return json.dumps({"endpoint": self.endpoint, "expirationTime": None, "keys": keys} | changed).encode()

    def read(self, pushed: Pushed) -> Json:
        """Return what a notification says."""
        return json.loads(opened(pushed.body, self.key, self.auth))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class PushService:
    """Takes what is pushed, if it is as the RFCs say."""

    url: str = ""
    statuses: dict[str, int] = field(default_factory=dict[str, int])  # by path
    took: list[Pushed] = field(default_factory=list)
    refused: int = 0
    came: threading.Condition = field(default_factory=threading.Condition)

    def browser(self, path: str = "/one") -> PushBrowser:
        """Return a browser that subscribes here."""
        return PushBrowser(f"{self.url}{path}")

    def take(self, pushed: Pushed) -> int:
        """Take what is pushed; return the status."""
        if status := self.statuses.get(pushed.path):
            self.refused += 1
            return status
        assert pushed.headers["content-encoding"] == "aes128gcm"
        assert pushed.headers["urgency"] in ("high", "normal")
        assert int(pushed.headers["ttl"]) >= 0
        assert len(pushed.headers["topic"]) <= 32
        assert len(pushed.body) <= MOST_BYTES
        assert Voucher.of(pushed.headers["authorization"]).said["aud"] == self.url
        self.took.append(pushed)
        return 201

    def pushed(self, number: int, path: str = "/one") -> Pushed:
        """Return what was pushed to an address, once it is there; the first is the welcome."""
        with self.came:
            assert self.came.wait_for(lambda: len(self._at(path)) > number, WAIT_SECONDS), self.took
        return self._at(path)[number]

    def _at(self, path: str) -> list[Pushed]:
        return [each for each in self.took if each.path == path]


@contextmanager
def push_service() -> Iterator[PushService]:
    """Serve until the block ends."""
    found = PushService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            with found.came:
                status = found.take(Pushed(path=self.path, headers=headers, body=body))
                found.came.notify_all()
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_SECONDS)
