"""Where events may be posted: what a subscriber names must not make this machine speak with its neighbours."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from standardwebhooks import Webhook

from harken.errors import UserError
from harken.inbox.posting import CHALLENGE, CLIENT_ERROR, REFUSED, CallbackWire, check_url, may_reach, signature
from harken.store.contract.outbox import CallbackSubscription
from tests.graph.certificate import write_loopback_pair
from tests.remote.receiver import OTHER_SECRET, SECRET, receiving

NOW: Final = datetime.now(UTC)


def subscription(url: str) -> CallbackSubscription:
    """Return a subscription with an address."""
    return CallbackSubscription(
        id="sub_1", token=f"t-{1}", holder="buildbox", url=url, event="message.received", arguments="{}",
        secret=SECRET, made_at=NOW, renewed_at=NOW, expires_at=NOW + timedelta(days=1), number=0,
    )  # fmt: skip


class Names:
    """A resolver: each look-up gives the next answer, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Look up."""
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14"])
def test_what_everyone_reaches_may_be_reached(address: str) -> None:
    """That is where receivers are."""
    assert may_reach(address, allows_loopback=False)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"),
        *("10.0.0.1", "172.16.5.4", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12:3456::1", "fec0::1"),
        *("169.254.169.254", "fe80::1", "fe80::1%eth0"),
        *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::127.0.0.1"),
        *("64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "2002:0a00:0001::1", "2002:7f00:1::", "2001:0:7f00:1::"),
        *("0.0.0.1", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "240.0.0.1", "192.0.2.1", "2001:db8::1"),
        *("", "localhost", "0x7f.1", "2130706433"),
    ],
)
def test_addresses_of_neighbours_are_not_reached(address: str) -> None:
    """Private, link-local, loopback and reserved ones, and those inside of other addresses."""
    assert not may_reach(address, allows_loopback=False)


def test_the_switch_is_for_loopback_alone() -> None:
    """Trying out on one machine must not open the network behind it."""
    assert all(may_reach(each, allows_loopback=True) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1"))
    refused = ("10.0.0.1", "169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::")
    assert not any(may_reach(each, allows_loopback=True) for each in refused)


@pytest.mark.parametrize(
    "url",
    [
        "http://agent.example.org/",
        "http://10.0.0.1/",
        "ftp://localhost/",
        "https:///hooks",
        "https://user@agent.example.org/",
        "https://agent.example.org/#x",
        "https://agent.example.org:0/hooks",
        "https://agent.example.org:65536/hooks",
        "https://agent.example.org/a b",
        "https://agent.example.org/ä",
        f"https://agent.example.org/{'x' * 3000}",
        "hooks",
    ],
)
def test_an_address_is_https_and_names_no_user(url: str) -> None:
    """With the switch too: without TLS is only what stays on this machine."""
    with pytest.raises(UserError):
        check_url(url, allows_loopback=True)
    with pytest.raises(UserError):
        check_url("http://localhost/", allows_loopback=False)
    check_url("http://localhost:8080/hooks", allows_loopback=True)
    check_url("https://agent.example.org:8443/hooks?x=1", allows_loopback=False)


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["::ffff:127.0.0.1"], [], ["169.254.169.254"]]
)
async def test_a_name_that_means_a_neighbour_is_not_connected_to(answer: list[str]) -> None:
    """One address among many is enough: which of them is taken is not ours to bet on."""
    with receiving() as receiver:
        wire = CallbackWire(lambda: NOW, resolve=Names(answer))
        url = f"https://agent.example.org:{receiver.port}/hooks"
        assert (await wire.post(subscription(url), "evt-1", b"{}")).error == REFUSED
        assert receiver.posts == []


async def test_a_connection_goes_where_was_looked_and_the_name_is_checked(tmp_path: Path) -> None:
    """A name that changes between two look-ups leads nowhere: there is one look-up for each post."""
    authority, server = write_loopback_pair(tmp_path)
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    wire = CallbackWire(
        partial(datetime.now, UTC),
        allows_loopback=True,
        resolve=names,
        tls=ssl.create_default_context(cafile=authority),
    )
    with receiving(server) as receiver:
        to = subscription(receiver.url())
        assert (await wire.post(to, "evt-1", b'{"eventId":"evt-1"}')).status == 204
        assert names.asked == [("localhost", receiver.port)]
        (posted,) = receiver.posts
        assert posted.headers["host"] == f"localhost:{receiver.port}"
        posted.judge()
        assert (await wire.post(to, "evt-1", b"{}")).error == REFUSED
        assert len(receiver.posts) == 1
        # The certificate is not one for this name, though the connection goes to the same number.
        names.answers = [["127.0.0.1"]]
        strange = replace(to, url=f"https://agent.example.org:{receiver.port}/hooks")
        assert (await wire.post(strange, "evt-1", b"{}")).error == "tls_error"
        assert len(receiver.posts) == 1


async def test_no_redirect_is_followed() -> None:
    """It would lead where nobody has looked."""
    wire = CallbackWire(lambda: NOW, allows_loopback=True)
    with receiving() as receiver:
        receiver.location = receiver.url("/elsewhere")
        assert (await wire.post(subscription(receiver.url()), "evt-1", b"{}")).error == CLIENT_ERROR
        assert [each.path for each in receiver.posts] == ["/hooks"]


async def test_a_challenge_has_to_come_back_as_it_was() -> None:
    """An echo of anything else, or of nothing, is no consent; and an answer is read up to a bound."""
    wire = CallbackWire(lambda: NOW, allows_loopback=True)
    with receiving() as receiver:
        to = subscription(receiver.url())
        assert await wire.verify(to) == ""
        receiver.is_willing = False
        assert await wire.verify(to) == CHALLENGE
        for said in (b"", b"[1]", b'{"challenge":1}', b"\xff", b'{"challenge":"%s"}' % (b"x" * 100_000)):
            receiver.verdict = said
            assert await wire.verify(to) == CHALLENGE


def test_both_secrets_sign_while_one_replaces_the_other() -> None:
    """Each receiver finds its own among them."""
    stamp = int(datetime.now(UTC).timestamp())
    said = signature([SECRET, OTHER_SECRET], "evt-1", stamp, b"{}")
    headers = {"webhook-id": "evt-1", "webhook-timestamp": f"{stamp}", "webhook-signature": said}
    for secret in (SECRET, OTHER_SECRET):
        Webhook(secret).verify(b"{}", headers)
