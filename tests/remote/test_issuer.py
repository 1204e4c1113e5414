"""JWTs of a configured issuer: who is let in with which, and what clients are told about where to get one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from harken.daemon.public.gate import MAX_LOOKS
from harken.daemon.public.issuer import LEEWAY_SECONDS, TokenIssuer
from harken.daemon.public.listener import WRONG_MOST
from harken.errors import Forbidden, Unavailable
from harken.testing import FakeClock
from tests.loss.rig import WAIT_SECONDS, until
from tests.remote.rig import PublicDaemon

ISSUER, RESOURCE = "https://login.example.org/realm", "https://harken.example.org/mcp"
KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RSA_KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
Key: TypeAlias = Any
"""A private key of either kind, or what is none."""
SUBJECT: Final = "agent-7"


def key_set(**keys: Key) -> bytes:
    """Return what an issuer publishes."""
    algorithms = {kid: jwt.get_algorithm_by_name("RS256" if kid == "rsa" else "ES256") for kid in keys}
    rows = [
        {
            **algorithms[kid].to_jwk(key.public_key(), as_dict=True),
            "kid": kid,
            "alg": "RS256" if kid == "rsa" else "ES256",
        }
        for kid, key in keys.items()
    ]
    return json.dumps({"keys": rows}).encode()


class Published:
    """The documents of an issuer, by their addresses."""

    def __init__(self, issuer: str = ISSUER, **keys: Key) -> None:
        self.metadata = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        self.keys = keys or {"one": KEY}
        self.asked: list[str] = []

    def __call__(self, url: str) -> bytes:
        """Return one."""
        self.asked.append(url)
        if url.endswith("/keys"):
            return key_set(**self.keys)
        if url == "https://login.example.org/realm/.well-known/openid-configuration":
            return json.dumps(self.metadata).encode()
        raise OSError("404")


def signed(clock: FakeClock, key: Key = KEY, kid: str = "one", algorithm: str = "ES256", **claims: object) -> str:
    """Return a JWT that is good, but for what is said otherwise."""
    now = clock.now().timestamp()
    usual = {"iss": ISSUER, "aud": RESOURCE, "sub": SUBJECT, "exp": now + 60, "iat": now}
    said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})


async def test_subject_of_a_good_token_is_told() -> None:
    """Keys are fetched once, for an audience in a list too, and of either kind."""
    clock, published = FakeClock(), Published(one=KEY, rsa=RSA_KEY)
    issuer = TokenIssuer(ISSUER, RESOURCE, clock, published)
    assert (await issuer.check(signed(clock))).name == SUBJECT
    assert (await issuer.check(signed(clock, aud=["https://other", RESOURCE]))).name == SUBJECT
    assert (await issuer.check(signed(clock, RSA_KEY, "rsa", "RS256"))).name == SUBJECT
    assert len(published.asked) == 3
    # What is open with it ends when it does, and some time for clocks that differ.
    assert (await issuer.check(signed(clock))).seconds == 60 + LEEWAY_SECONDS


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "https://other.example.org/mcp"},
        {"aud": None},
        {"iss": "https://login.example.org"},
        {"sub": None},
        {"exp": None},
        {"exp": 0},
        {"nbf": 1 << 40},
        {"key": OTHER},
        {"kid": "unknown"},
        {"key": "secret" * 8, "algorithm": "HS256"},
        {"key": None, "algorithm": "none"},
    ],
)
async def test_token_for_another_or_of_another_is_refused(wrong: dict[str, Any]) -> None:
    """Audience, issuer, times, key and algorithm are each checked."""
    clock = FakeClock()
    issuer = TokenIssuer(ISSUER, RESOURCE, clock, Published())
    with pytest.raises(Forbidden, match="not good here"):
        await issuer.check(signed(clock, **wrong))


async def test_public_key_is_no_shared_secret() -> None:
    """The oldest trick: the issuer's public key as the password of an HMAC."""
    clock = FakeClock()
    issuer = TokenIssuer(ISSUER, RESOURCE, clock, Published())
    with pytest.raises(Forbidden):
        await issuer.check("eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJzdWIiOiJ4In0.AAAA")
    for text in ("ey.ey.ey", "eyJ.a", "ey" * 2_000 + ".a.b"):
        with pytest.raises(Forbidden):
            await issuer.check(text)


async def test_new_key_is_found_and_unknown_ones_ask_seldom() -> None:
    """A rotated key is known within a minute; made-up names do not make Harken ask each time."""
    clock, published = FakeClock(), Published()
    issuer = TokenIssuer(ISSUER, RESOURCE, clock, published)
    await issuer.check(signed(clock))
    published.keys = {"two": OTHER}
    before = len(published.asked)
    for _ in range(10):
        with pytest.raises(Forbidden):
            await issuer.check(signed(clock, OTHER, "two"))
    assert len(published.asked) == before
    clock.advance(61)
    assert (await issuer.check(signed(clock, OTHER, "two"))).name == SUBJECT


async def test_issuer_that_says_it_is_another_has_no_keys() -> None:
    """Metadata counts under its own name alone, and keys come by TLS."""
    clock = FakeClock()
    for name, place in (
        ("https://evil.example", "https://evil.example/keys"),
        (ISSUER, "http://evil.example/keys"),
        (ISSUER, "http://127.0.0.1:1/keys"),
    ):
        published = Published()
        published.metadata = {"issuer": name, "jwks_uri": place}
        with pytest.raises(Unavailable):
            await TokenIssuer(ISSUER, RESOURCE, clock, published).check(signed(clock))


async def test_known_key_does_not_wait_for_an_unknown_one() -> None:
    """Anybody can name a key that there is not; an issuer that is slow then must not hold up its own users."""
    clock, published, asked, go_on = FakeClock(), Published(), threading.Event(), threading.Event()

    def fetch(url: str) -> bytes:
        if published.asked:
            asked.set()
            assert go_on.wait(WAIT_SECONDS)
        return published(url)

    issuer = TokenIssuer(ISSUER, RESOURCE, clock, fetch)
    go_on.set()
    await issuer.check(signed(clock))
    clock.advance(61)
    asked.clear()
    go_on.clear()
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_refused, issuer, signed(clock, OTHER, "unknown"))
            await anyio.to_thread.run_sync(asked.wait)
            try:
                assert (await issuer.check(signed(clock))).name == SUBJECT
            finally:
                go_on.set()


async def _refused(issuer: TokenIssuer, raw: str) -> None:
    with pytest.raises(Forbidden):
        await issuer.check(raw)


@contextmanager
def served_issuer(until_asked: Callable[[], object] = lambda: None) -> Iterator[str]:
    """An issuer on loopback; `until_asked` may hold it up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            until_asked()
            origin = f"http://{self.headers['host']}"
            said = {"issuer": origin, "jwks_uri": f"{origin}/keys"}
            data = key_set(one=KEY) if self.path == "/keys" else json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_holder_of_a_jwt_is_let_in_with_the_token_made_for_it(public: PublicDaemon) -> None:
    """What it may do is said here, listed and revoked as of every token; where to get one, clients are told."""
    resource = f"{public.url}/mcp"
    with served_issuer() as origin:
        config = public.main.served.home / "config.toml"
        config.write_text(config.read_text() + f'issuer = "{origin}"\n')
        public.main.served.kill()
        public.main.start()
        raw = jwt.encode(
            {"iss": origin, "aud": resource, "sub": SUBJECT, "exp": time.time() + 3_600},
            KEY,
            algorithm="ES256",
            headers={"kid": "one"},
        )
        status, headers, _answer = public.ask("/mcp", body={})
        place = f"{public.url}/.well-known/oauth-protected-resource/mcp"
        assert (status, headers["www-authenticate"]) == (401, f'Bearer resource_metadata="{place}"')
        _status, _headers, told = public.ask("/.well-known/oauth-protected-resource/mcp")
        assert (told["resource"], told["authorization_servers"]) == (resource, [origin])
        status, headers, _answer = public.ask("/api/stats", raw, {})
        assert (status, 'error="invalid_token"' in headers["www-authenticate"]) == (401, True)
        made = public.call("token_new", name="seven", subject=SUBJECT, may=["read"])
        assert made["secret"] == ""
        assert public.api("stats", raw)[0] == 200
        assert public.api("send", raw, text="no")[0] == 403
        public.call("token_revoke", name="seven")
        until(lambda: public.api("stats", raw)[0] == 401, "it is refused")
        public.call("token_new", name="seven", subject=SUBJECT, may=["read"])
        assert public.api("stats", raw)[0] == 200
        with ThreadPoolExecutor(WRONG_MOST) as pool:
            answers = pool.map(lambda number: public.api("whoami", f"wrong-{number}")[0], range(WRONG_MOST))
            assert set(answers) <= {401, 429}
        assert [public.api("stats", secret)[0] for secret in ("one-more", raw)] == [429, 200]


def test_token_of_harken_does_not_wait_for_the_issuer(public: PublicDaemon) -> None:
    """Anybody can send what looks like a JWT; while its issuer does not answer, the others are served."""
    go_on = threading.Event()
    with served_issuer(lambda: go_on.wait(WAIT_SECONDS)) as origin:
        config = public.main.served.home / "config.toml"
        config.write_text(config.read_text() + f'issuer = "{origin}"\n')
        public.main.served.kill()
        public.main.start()
        secret = public.token()
        raw = jwt.encode({"iss": origin}, KEY, algorithm="ES256", headers={"kid": "one"})
        threads = [threading.Thread(target=public.api, args=("whoami", raw)) for _ in range(MAX_LOOKS + 1)]
        for thread in threads:
            thread.start()
        try:
            assert public.api("whoami", secret)[0] == 200
            assert all(each.is_alive() for each in threads)
        finally:
            go_on.set()
            for thread in threads:
                thread.join()
