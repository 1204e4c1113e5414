"""A bot in a real daemon: somebody writes, an agent answers, and neither a kill nor a stranger changes who hears it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
import pytest

from harken.config.home import Home
from harken.testing.daemon import DaemonProcess
from tests.cli.rig import Rig as Commands
from tests.loss.rig import until
from tests.sources.bot.service import APP_ID, KEPT, TENANT, Json, Service, serving

SECONDS: Final = 30.0
CONFIG: Final = """[sources.desk]
kind = "bot"
app_id = "{app_id}"
tenant = "{tenant}"
secret = "env:BOT_SECRET"
openid_url = "{url}/v1/.well-known/openidconfiguration"
token_url = "{url}/{tenant}/oauth2/v2.0/token"
service_hosts = ["127.0.0.1"]
trust = "known"
"""


@dataclass
class Desk:
    """A daemon, its commands, and the Microsoft that it knows."""

    daemon: DaemonProcess
    commands: Commands
    service: Service
    used: list[str]

    def post(self, activity: Json | bytes, token: str | None = None) -> httpx2.Response:
        """Post as the connector does, or as somebody else."""
        url = self.daemon.call("status")["daemon"]["hooks_url"]
        token = self.service.token() if token is None else token
        self.used.append(token)
        body = activity if isinstance(activity, bytes) else json.dumps(activity).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return httpx2.post(f"{url}/bot/messages", content=body, headers=headers, timeout=SECONDS, trust_env=False)

    def messages(self) -> list[Json]:
        """Return what the inbox holds."""
        return list(self.daemon.call("list")["messages"])

    def events(self) -> list[Json]:
        """Return what the journal says."""
        return list(self.daemon.call("journal", after=0, limit=500)["events"])

    def restart(self) -> None:
        """Kill the daemon and start another one."""
        self.daemon.kill()
        self.daemon.start()

    def reply(self, message: Json, text: str) -> None:
        """Answer from the command line."""
        self.commands.ok("reply", message["id"], text)

    def is_parked(self) -> bool:
        """Whether a reply is shown as parked."""
        return bool(self.daemon.call("status")["parked"])


def configured(home: Path, service: Service) -> Path:
    """Return a home with a bot of the service."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG.format(app_id=APP_ID, tenant=TENANT, url=service.url))
    (home / "env").write_text(f"BOT_SECRET={KEPT}\n")
    (home / "env").chmod(0o600)
    return home


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A daemon with a bot."""
    with serving() as service:
        home = configured(tmp_path / "home", service)
        daemon = DaemonProcess(home).start()
        try:
            yield Desk(daemon, Commands(home), service, [])
        finally:
            service.going.set()
            daemon.stop()


def test_somebody_writes_and_gets_one_answer_in_the_same_conversation(desk: Desk) -> None:
    """The whole way, with kills in between; afterwards nothing on the disk holds a secret."""
    first = desk.service.activity("Is it deployed?", chat="a:1first")
    assert desk.post(first).status_code == 200
    desk.restart()  # what got a good answer is stored
    assert desk.post(first).status_code == 200  # as the connector does when an answer is lost
    assert desk.post(desk.service.activity("And the docs?", chat="a:2second")).status_code == 200
    assert [each["content_text_sanitized"] for each in desk.messages()] == ["Is it deployed?", "And the docs?"]
    deployed, docs = desk.messages()

    desk.reply(docs, "They follow.")
    desk.reply(deployed, "It is.")
    until(lambda: [event["kind"] for event in desk.events()].count("replied") == 2)
    sent = {each.conversation: (each.activity, each.body["text"]) for each in desk.service.sent}
    assert sent["a:1first"] == (first["id"], "It is.")
    assert sent["a:2second"][1] == "They follow."

    desk.restart()
    assert desk.daemon.call("status")["parked"] == []
    (source,) = desk.daemon.call("source_list")["sources"]
    assert (source["kind"], source["state"]) == ("bot", "listening")
    assert len(desk.service.sent) == 2
    written = b"".join(
        path.read_bytes() for path in desk.daemon.home.rglob("*") if path.is_file() and path.name != "env"
    )
    for secret in (KEPT, *desk.service.tokens, *desk.used):
        assert secret.encode() not in written


def test_a_kill_while_a_reply_leaves_never_makes_two(desk: Desk) -> None:
    """Nobody can know whether it arrived: it is shown to a person, and not sent again."""
    assert desk.post(desk.service.activity("Now?")).status_code == 200
    desk.service.going.clear()
    (message,) = desk.messages()
    desk.reply(message, "Now.")
    assert desk.service.taken.wait(SECONDS)
    desk.restart()
    desk.service.going.set()
    until(desk.is_parked)
    (parked,) = desk.daemon.call("status")["parked"]
    assert parked["error"].startswith("It may have been sent: ")
    assert [each.body["text"] for each in desk.service.sent] == ["Now."]


def test_strangers_learn_nothing_and_store_nothing(desk: Desk) -> None:
    """The door is on the internet."""
    activity = desk.service.activity()
    for token in ("x", "a.b.c", desk.service.token(aud=TENANT), desk.service.token(exp=1), desk.service.token(kid="x")):
        answer = desk.post(activity, token)
        assert (answer.status_code, answer.json()) == (401, {"error": "This cannot be shown to be genuine."})
    assert desk.post(b"x" * 300_000).status_code == 413
    assert desk.post(b"[" * 200_000).status_code == 422
    assert desk.messages() == []
    (source,) = desk.daemon.call("source_list")["sources"]
    assert source["reason"].startswith("6 posts were refused, the last one: ")


def test_without_a_secret_messages_arrive_and_answers_wait(desk: Desk) -> None:
    """What is missing keeps nobody from being heard, and once it is there an answer leaves without a restart."""
    (desk.daemon.home / "env").write_text("")
    desk.restart()
    assert desk.post(desk.service.activity("Hello?")).status_code == 200
    (source,) = desk.daemon.call("source_list")["sources"]
    assert source["state"] == "listening"
    assert source["reason"].startswith("Replies wait: The secret env:BOT_SECRET is not set.")
    (desk.daemon.home / "env").write_text(f"BOT_SECRET={KEPT}\n")
    (message,) = desk.messages()
    desk.reply(message, "Yes?")
    until(lambda: desk.service.sent)
    until(lambda: desk.daemon.call("source_list")["sources"][0]["reason"] == "")


def test_a_bot_is_tried_and_nothing_is_stored(tmp_path: Path) -> None:
    """A person wants to know whether app id, tenant and secret fit together before anybody writes."""
    with serving() as service:
        commands = Commands(configured(tmp_path / "home", service))
        tried = commands.json("source", "test", "desk")
        assert (tried["state"], tried["reason"]) == ("listening", "")
        assert tried["found"].startswith("Microsoft gives the bot a token, and 1 key to check posts with.")
        service.secret = service.secret[::-1]
        refused = commands.run("source", "test", "desk")
    assert (refused.code, "AADSTS7000215" in refused.out) == (1, True)
    assert not Home(commands.home).database.exists()


def test_a_bot_is_added_with_what_azure_wants_to_know(tmp_path: Path) -> None:
    """The address to enter in Azure follows from the settings, and a secret is never written."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    rig = Commands(home)
    ids = ("--app-id", APP_ID, "--tenant", TENANT)
    added = rig.run("source", "add", "bot", "desk", *ids, "--secret", "env:BOT_SECRET")
    assert (added.code, "hooks.public_url" in added.err) == (0, True)
    (home / "config.toml").write_text('[hooks]\npublic_url = "https://hooks.example.org"\n')
    added_json = rig.json("source", "add", "bot", *ids, "--secret", "env:BOT_SECRET")
    assert added_json["messaging_endpoint"] == "https://hooks.example.org/bot/messages"
    assert added_json["entry"] == {"kind": "bot", "app_id": APP_ID, "tenant": TENANT, "secret": "env:BOT_SECRET"}
    pasted = rig.run("source", "add", "bot", "other", *ids, "--secret", KEPT)
    assert (pasted.code, KEPT in pasted.out + pasted.err + (home / "config.toml").read_text()) == (2, False)
