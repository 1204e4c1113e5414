"""Events that are posted to subscribers elsewhere: verified, signed, once by id, and ended with their token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeAlias

import pytest

from tests.graph.certificate import write_loopback_pair
from tests.loss.rig import DaemonStarter, until
from tests.remote.receiver import OTHER_SECRET, SECRET, Receiver, receiving
from tests.remote.rig import ACCEPT, PublicDaemon
from tests.satellite.rig import MainDaemon, free_port, let_machines_in

Json: TypeAlias = Any
VERSION: Final = "2026-07-28"
EVENT: Final = "message.received"
META: Final = "io.modelcontextprotocol"


@pytest.fixture
def public(starter: DaemonStarter, home: Path, tmp_path: Path) -> Iterator[PublicDaemon]:
    """A daemon that posts to this machine too, and trusts the authority of the tests."""
    port = free_port()
    authority = let_machines_in(home, port, tmp_path)
    with (home / "config.toml").open("a") as config:
        config.write("callbacks_to_loopback = true\n")
    with starter.daemon(home, {"SSL_CERT_FILE": str(authority)}) as served:
        yield PublicDaemon(MainDaemon(served, authority, port).start())


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on this machine, without TLS."""
    with receiving() as receiver:
        yield receiver


class Subscriber:
    """A client elsewhere that has events posted to it."""

    def __init__(self, public: PublicDaemon, receiver: Receiver, name: str = "elsewhere", **asked: object) -> None:
        self.public = public
        self.receiver = receiver
        self.secret = public.token(name, **asked)

    def ask(self, method: str, dialect: Mapping[str, object] | None = None, /, **params: object) -> Json:
        """Ask with a request of 2026; return the whole answer."""
        meta = {
            f"{META}/protocolVersion": VERSION,
            f"{META}/clientInfo": {"name": "subscriber", "version": "1"},
            f"{META}/clientCapabilities": dialect or {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {"accept": ACCEPT, "content-type": "application/json", "mcp-protocol-version": VERSION}
        _, _, answer = self.public.ask("/mcp", self.secret, body, **{**headers, "mcp-method": method})
        if isinstance(answer, str):
            (line,) = [each for each in answer.splitlines() if each.startswith("data:") and len(each) > len("data: ")]
            return json.loads(line.removeprefix("data:"))
        return answer

    def delivery(self, secret: str = SECRET, path: str = "/hooks") -> Json:
        """Return where to post."""
        return {"mode": "webhook", "url": self.receiver.url(path), "secret": secret}

    def subscribe(self, name: str = EVENT, *, secret: str = SECRET, path: str = "/hooks", **params: object) -> Json:
        """Subscribe; return the result."""
        answer = self.ask("events/subscribe", name=name, delivery=self.delivery(secret, path), **params)
        assert "result" in answer, answer
        return answer["result"]

    def unsubscribe(self, name: str = EVENT, **params: object) -> Json:
        """Unsubscribe; return the result."""
        answer = self.ask("events/unsubscribe", name=name, delivery={"url": self.receiver.url()}, **params)
        return answer["result"]

    def send(self, text: str = "the build is red", **more: object) -> str:
        """Send a message as a program on the daemon's machine; return its id."""
        return str(self.public.call("send", text=text, **{"sender": "ci-bot", "channel": "ci", **more})["id"])

    def callbacks(self) -> list[Json]:
        """Return the subscriptions as you see them."""
        return list(self.public.call("status")["callbacks"])


def test_a_subscriber_is_verified_and_gets_signed_events(public: PublicDaemon, receiver: Receiver) -> None:
    """It is asked before it is told anything, and what it is told proves who says it and which event it is."""
    agent = Subscriber(public, receiver)
    listed = agent.ask("events/list")["result"]["events"]
    assert {each["name"]: "webhook" in each["delivery"] for each in listed} == {
        "message.received": True, "message.answered": True, "question.open": True, "run.finished": True,
        "session.waiting": False,
    }  # fmt: skip
    result = agent.subscribe(arguments={"channel": "ci"})
    assert (result["resultType"], result["truncated"], result["id"][:4]) == ("complete", False, "sub_")
    (asked,) = receiver.posts
    asked.judge()
    assert asked.said["type"] == "verification"
    assert asked.headers["x-mcp-subscription-id"] == result["id"]
    sent = agent.send()
    agent.send(channel="talk")
    (posted,) = receiver.wait_for(sent)
    posted.judge()
    said = posted.said
    assert (posted.id, said["eventId"], said["name"]) == (f"evt-received-{sent}", posted.id, EVENT)
    assert posted.headers["x-mcp-subscription-id"] == result["id"]
    assert posted.headers["content-type"] == "application/json"
    assert "the build is red" not in posted.body.decode()
    # Its cursor is one of those that a poll takes.
    polled = agent.ask("events/poll", name=EVENT, arguments={"channel": "ci"}, cursor=said["cursor"])["result"]
    assert (polled["events"], polled["truncated"]) == ([], False)
    until(lambda: agent.callbacks()[0]["told"] == 1, "the post is noted")
    (shown,) = agent.callbacks()
    assert (shown["token"], shown["to"], shown["state"]) == ("elsewhere", receiver.url(""), "active")


def test_a_receiver_that_does_not_want_to_be_told_is_told_nothing(public: PublicDaemon, receiver: Receiver) -> None:
    """An address that somebody else owns must not be flooded in our name."""
    agent = Subscriber(public, receiver)
    receiver.is_willing = False
    refused = agent.ask("events/subscribe", name=EVENT, delivery=agent.delivery())["error"]
    assert (refused["code"], refused["data"]) == (-32015, {"reason": "challenge_failed"})
    proposal = agent.ask(
        "events/subscribe", {"extensions": {f"{META}/events": {}}}, name=EVENT, delivery=agent.delivery()
    )
    assert proposal["error"]["code"] == -32027
    agent.send()
    assert agent.callbacks() == []
    receiver.is_willing, receiver.location = True, receiver.url("/elsewhere")
    refused = agent.ask("events/subscribe", name=EVENT, delivery=agent.delivery())["error"]
    assert refused["data"] == {"reason": "http_4xx"}
    assert {each.path for each in receiver.posts} == {"/hooks"}


@pytest.mark.parametrize(
    ("url", "secret", "code"),
    [
        ("http://192.0.2.1/hooks", SECRET, -32602),
        ("ftp://agent.example.org/hooks", SECRET, -32602),
        ("https://user:word@agent.example.org/", SECRET, -32602),
        ("https://agent.example.org/#here", SECRET, -32602),
        ("https://localhost:1/hooks", "whsec_dG9vIHNob3J0", -32602),
        ("https://localhost:1/hooks", "no secret", -32602),
        ("https://10.0.0.1/hooks", SECRET, -32015),
        ("https://localhost:1/hooks", SECRET, -32015),
    ],
)
def test_addresses_and_secrets_that_cannot_be_used_are_refused(
    public: PublicDaemon, receiver: Receiver, url: str, secret: str, code: int
) -> None:
    """Nothing is connected to that is not everyone's, and nothing is signed with what is guessed."""
    agent = Subscriber(public, receiver)
    delivery = {"mode": "webhook", "url": url, "secret": secret}
    assert agent.ask("events/subscribe", name=EVENT, delivery=delivery)["error"]["code"] == code
    assert (agent.callbacks(), receiver.posts) == ([], [])


def test_renewing_keeps_the_id_and_rotates_the_secret(public: PublicDaemon, receiver: Receiver) -> None:
    """A receiver that knows only one of both secrets understands what is posted."""
    agent = Subscriber(public, receiver)
    first = agent.subscribe()
    again = agent.subscribe(secret=OTHER_SECRET, ttlMs=60_000)
    assert (again["id"], again["truncated"]) == (first["id"], False)
    assert again["refreshBefore"] < first["refreshBefore"]
    assert again["deliveryStatus"] == {"active": True, "lastDeliveryAt": None, "lastError": None}
    assert len(receiver.of("verification")) == 1
    (posted,) = receiver.wait_for(agent.send())
    posted.judge(SECRET)
    posted.judge(OTHER_SECRET)


def test_an_event_is_posted_again_until_it_arrives(public: PublicDaemon, receiver: Receiver) -> None:
    """A receiver that is busy gets it later, with the same id and a new stamp; those after it do not overtake it."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    receiver.statuses = [503, 500]
    one, two = agent.send("one"), agent.send("two")
    events = receiver.wait_for(one, two)
    assert [each.said["data"]["message_id"] for each in events] == [one, one, one, two]
    assert len({each.id for each in events}) == 2
    for each in events:
        each.judge()


def test_what_a_receiver_will_never_take_is_parked_where_you_see_it(public: PublicDaemon, receiver: Receiver) -> None:
    """The next one is posted all the same, and you can have the parked one posted again."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    receiver.statuses = [413]
    one, two = agent.send("one"), agent.send("two")
    receiver.wait_for(one, two)
    until(lambda: public.call("outbox", state="parked")["replies"], "it is parked")
    (parked,) = public.call("outbox")["replies"]
    assert (parked["message_id"], parked["error"], parked["author"]) == (one, "http_4xx", "elsewhere")
    assert parked["subscription"]
    (need,) = public.call("needs")["needs"]
    assert need["said"] == "An event could not be posted to the subscriber 'elsewhere'"
    before = len(receiver.events)
    public.call("outbox_retry", replies=[parked["reply_id"]])
    until(lambda: len(receiver.events) > before, "it is posted again")
    assert receiver.events[-1].said["data"]["message_id"] == one
    until(lambda: public.call("outbox")["replies"] == [], "nothing waits")


def test_unsubscribing_ends_it_and_may_be_repeated(public: PublicDaemon, receiver: Receiver) -> None:
    """A client that does not know whether it arrived asks again."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    for _ in range(2):
        agent.unsubscribe()
    assert agent.callbacks() == []
    agent.send()
    assert receiver.events == []
    assert agent.unsubscribe("no.such.event")["resultType"] == "complete"


def test_a_subscription_ends_with_its_token(public: PublicDaemon, receiver: Receiver) -> None:
    """Nothing is posted for a token that was revoked; its receiver is told once that it is over."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    public.call("token_revoke", name="elsewhere")
    agent.send()
    until(lambda: receiver.of("terminated"), "its receiver is told")
    assert receiver.of("terminated")[0].said["error"]["data"] == {"reason": "its token was revoked"}
    receiver.of("terminated")[0].judge()
    assert (agent.callbacks(), receiver.events) == ([], [])


def test_nobody_is_told_of_what_they_sent_or_may_not_read(public: PublicDaemon, receiver: Receiver) -> None:
    """A program that answers what it is told would otherwise never end; and a token is for its mailboxes."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    status, own = public.api("send", agent.secret, text="done")
    assert status == 200, own
    public.call("send", text="elsewhere", to="replies", sender="ci-bot")
    sent = agent.send()
    receiver.wait_for(sent)
    assert [each.said["data"]["message_id"] for each in receiver.events] == [sent]
    refused = agent.ask(
        "events/subscribe", name=EVENT, arguments={"mailbox": "replies"}, delivery=agent.delivery(path="/other")
    )
    assert refused["error"]["code"] == -32012


def test_a_cursor_says_where_to_go_on(public: PublicDaemon, receiver: Receiver) -> None:
    """Who comes back is told what it missed; who has a cursor of another store hears that something is missing."""
    agent = Subscriber(public, receiver)
    cursor = agent.ask("events/poll", name=EVENT)["result"]["cursor"]
    missed = agent.send()
    assert agent.subscribe(cursor=cursor)["truncated"] is False
    receiver.wait_for(missed)
    agent.unsubscribe()
    strange = agent.subscribe(cursor="c3RyYW5nZQ")
    assert strange["truncated"] is True
    assert agent.subscribe()["truncated"] is False


@pytest.mark.parametrize("moment", ["queued", "held", "answered"])
def test_a_killed_daemon_loses_nothing_and_repeats_only_by_the_same_id(
    public: PublicDaemon, receiver: Receiver, moment: str
) -> None:
    """A receiver drops what it has by its id; so nothing is told twice, wherever the daemon was killed."""
    agent = Subscriber(public, receiver)
    agent.subscribe()
    if moment == "held":
        receiver.held = Event()
    if moment == "queued":
        receiver.status = 503
    sent = [agent.send("one")]
    if moment == "held":
        assert receiver.is_holding.wait(30)
    else:
        until(lambda: receiver.events, "it was posted")
    sent.append(agent.send("two"))
    public.main.served.kill()
    if receiver.held is not None:
        receiver.held.set()
    receiver.status = 204
    public.main.start()
    sent.append(agent.send("three"))
    events = receiver.wait_for(*sent)
    ids = {each.said["data"]["message_id"]: each.id for each in events}
    assert ids == {message: f"evt-received-{message}" for message in sent}
    assert {each.id for each in events} == set(ids.values())
    until(lambda: public.call("outbox")["replies"] == [], "nothing waits")


def test_events_are_posted_by_tls_to_a_receiver_that_is_trusted(public: PublicDaemon, tmp_path: Path) -> None:
    """A certificate is checked against the name in the address, though the connection goes to a checked number."""
    folder = tmp_path / "strange"
    folder.mkdir()
    _, strange = write_loopback_pair(folder)
    with receiving(strange) as stranger:
        agent = Subscriber(public, stranger, "first")
        refused = agent.ask("events/subscribe", name=EVENT, delivery=agent.delivery())["error"]
        assert refused["data"] == {"reason": "tls_error"}
        assert stranger.posts == []
    with receiving(tmp_path / "server.pem") as trusted:
        agent = Subscriber(public, trusted, "second")
        agent.subscribe()
        (posted,) = trusted.wait_for(agent.send())
        posted.judge()
