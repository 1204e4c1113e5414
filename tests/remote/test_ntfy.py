"""What waits is on your phone by ntfy, and its buttons answer it: once, for a time, and only what was shown.

The server is ours, made from what ntfy publishes about publishing: JSON to the root, a topic, at most three actions, at
most 4,096 bytes of text. The phone does with an action what the app does: exactly the request that it names.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import pytest

from harken.config.home import Home, ensure
from harken.config.settings import HttpSettings, NtfySettings, Settings
from harken.daemon.compose import compose
from harken.daemon.public.ntfy import QUESTION_LASTS, NtfyPush
from harken.testing import FakeClock
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost, asked, one
from tests.loss.rig import WAIT_SECONDS, DaemonStarter, until
from tests.remote.rig import PublicDaemon
from tests.satellite.rig import MainDaemon, free_port, let_machines_in
from tests.seeded import Asked, seed

Json: TypeAlias = Any
TOPIC: Final = "quiet_fox-7"
TOKEN: Final = "tk_" + "a" * 29
MOST_BYTES: Final = 4_096
NAMED: Final = "env:NTFY_TOKEN"


@dataclass(slots=True)
class NtfyServer:
    """A server of ntfy with one topic, which wants a token."""

    url: str = ""
    status: int = 200
    took: list[Json] = field(default_factory=list)
    tries: int = 0
    came: threading.Condition = field(default_factory=threading.Condition)

    def take(self, path: str, authorization: str, said: Json) -> int:
        """Take what is published; return the status."""
        self.tries += 1
        if self.status != 200:
            return self.status
        if authorization != f"Bearer {TOKEN}":
            return 403
        assert path == "/"
        assert re.fullmatch(r"[-_A-Za-z0-9]{1,64}", said["topic"])
        assert len(said["message"].encode()) <= MOST_BYTES
        assert 1 <= said["priority"] <= 5
        actions = said.get("actions", [])
        assert len(actions) <= 3
        for action in actions:
            assert action["action"] in ("view", "http")
            assert action["label"]
            assert urlsplit(action["url"]).scheme == "https"
        self.took.append(said)
        return 200

    def note(self, of: str = "", number: int = 0) -> Json:
        """Return a notification with such a title, once it is there."""
        with self.came:
            assert self.came.wait_for(lambda: len(self._titled(of)) > number, WAIT_SECONDS), self.took
        return self._titled(of)[number]

    def _titled(self, of: str) -> list[Json]:
        return [each for each in self.took if of in each["title"]]


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    """A server of ntfy."""
    found = NtfyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with found.came:
                status = found.take(self.path, self.headers.get("Authorization", ""), said)
                found.came.notify_all()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"event": "message"}).encode())

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join(WAIT_SECONDS)


@dataclass(slots=True)
class Told:
    """A daemon that tells a phone."""

    starter: DaemonStarter
    home: Path
    folder: Path
    ntfy: NtfyServer
    public: PublicDaemon | None = None
    asked: str = ""  # the question that waits from the beginning

    def press(self, note: Json, label: str) -> tuple[int, Json]:
        """Press a button, as the app does it."""
        (action,) = [each for each in note["actions"] if each["label"] == label]
        assert self.public is not None
        with closing(self.public.connection()) as client:
            path = urlsplit(action["url"]).path
            client.request(action["method"], path, action["body"], action["headers"])
            return _said(client.getresponse())

    def guess(self, secret: str) -> int:
        """Send what no button sends."""
        assert self.public is not None
        return self.public.ask("/press", body=secret.encode())[0]


def _said(answer: http.client.HTTPResponse) -> tuple[int, Json]:
    return answer.status, json.loads(answer.read())


@pytest.fixture
def told(starter: DaemonStarter, home: Path, tmp_path: Path, ntfy: NtfyServer) -> Iterator[Told]:
    """A daemon that shows all of it, with every button."""
    port = free_port()
    authority = let_machines_in(home, port, tmp_path)
    with (home / "config.toml").open("a") as config:
        config.write('[waiting]\nphone_after = "1s"\n[ntfy]\naddress = "env:HARKEN_NTFY"\ntoken = "env:NTFY_TOKEN"\n')
        config.write('shows = "text"\nbuttons = "both"\n')
    found = Told(starter, home, tmp_path, ntfy)
    found.asked = str(seed(home, [Asked(text="is it done?", ago=timedelta(minutes=5))])[0])
    with starter.daemon(home, {"HARKEN_NTFY": f"{ntfy.url}/{TOPIC}", "NTFY_TOKEN": TOKEN}) as served:
        found.public = PublicDaemon(MainDaemon(served, authority, port).start())
        yield found


def rig_of(told: Told) -> DaemonFixture:
    """Return what hosts ask."""
    assert told.public is not None
    return DaemonFixture(told.public.main.served)


def test_button_allows_what_the_notification_shows_and_nothing_a_second_time(told: Told) -> None:
    """The first press counts; the buttons beside it do nothing afterwards, and a guess is no button."""
    with AskingHost(rig_of(told), asked("make test")) as host:
        note = told.ntfy.note(of="opencode")
        assert note["topic"] == TOPIC
        assert note["title"] == "opencode asks whether it may use bash"
        assert note["message"].splitlines()[0] == "command: make test"
        assert [each["label"] for each in note["actions"]] == ["Allow once", "Refuse", "Open"]
        assert told.guess("x" * 43) == 410
        assert told.press(note, "Allow once") == (200, {"done": "once"})
        assert host.reply() == {"reply": "once"}
        assert told.press(note, "Allow once")[0] == 410
        assert told.press(note, "Refuse")[0] == 410
    found = one(rig_of(told), choice="once")
    assert (found["answered_by"], found["through"]) == ("token ntfy button", "ntfy")
    assert {"ntfy"} <= set(found["shown"])


def test_button_refuses(told: Told) -> None:
    """A no is as good."""
    with AskingHost(rig_of(told), asked("rm -rf ~")) as host:
        assert told.press(told.ntfy.note(of="opencode"), "Refuse")[0] == 200
        assert host.reply() == {"reply": "reject"}


def test_what_is_too_long_to_be_shown_is_not_allowed_by_a_button(told: Told) -> None:
    """Nothing is allowed unseen."""
    with AskingHost(rig_of(told), asked("echo " + "x" * 5_000)):
        note = told.ntfy.note(of="opencode")
        assert "Open the page to see all of it." in note["message"]
        assert "actions" not in note


def test_question_is_answered_by_a_button(told: Told) -> None:
    """When the ladder says that the phone is next."""
    assert told.public is not None
    note = told.ntfy.note()
    assert (note["title"], note["message"]) == ("ann in chat waits for an answer", "is it done?")
    assert told.press(note, "Yes") == (200, {"done": "Yes"})
    assert [each["body"] for each in told.public.call("read", ref=told.asked)["replies"]] == ["Yes"]
    assert told.press(note, "No")[0] == 410


def test_server_that_refuses_is_tried_again_and_no_secret_is_in_the_log(told: Told) -> None:
    """What it says is in the log, once; the topic, the token and the buttons are not."""
    told.ntfy.status = 403
    with AskingHost(rig_of(told), asked("make test")):
        until(lambda: told.ntfy.tries, "it was tried")
        told.ntfy.status = 200
        with AskingHost(rig_of(told), asked("make lint", native="per_2"), "ses_2"):
            notes = [told.ntfy.note(of="opencode", number=number) for number in (0, 1)]
    assert {note["message"].splitlines()[0] for note in notes} == {"command: make test", "command: make lint"}
    secrets = [each["body"] for note in notes for each in note["actions"] if each["action"] == "http"]
    kept = "".join(file.read_text() for folder in ("logs", "journal") for file in (told.home / folder).iterdir())
    assert [secret for secret in (*secrets, TOPIC, TOKEN) if secret in kept] == []


@pytest.mark.parametrize(
    ("shows", "title", "text"),
    [
        ("nothing", "Harken", "1 waits for an answer, for 5 min"),
        ("sender", "1 waits for an answer, for 5 min", "ann in chat"),
        ("text", "ann in chat waits for an answer", "is it done?"),
    ],
)
async def test_lock_screen_shows_what_was_chosen(
    tmp_path: Path, ntfy: NtfyServer, shows: str, title: str, text: str
) -> None:
    """Without the word `text` there is no text, and no button."""
    settings = Settings(
        http=HttpSettings(public_listen="127.0.0.1:1", public_url="https://here.example"),
        ntfy=NtfySettings(address="topic", token=NAMED, shows=shows, buttons="both"),
    )
    home, clock = Home(tmp_path / "home"), FakeClock()
    ensure(home)
    async with compose(home, settings, clock) as daemon:
        push = NtfyPush(
            daemon.store,
            clock,
            settings,
            approvals=daemon.wiring.approvals,
            inbox=daemon.inbox,
            secret={"topic": f"{ntfy.url}/{TOPIC}", NAMED: TOKEN}.__getitem__,
        )
        await daemon.store.messages.append([Asked(text="is it done?").message()])
        clock.advance(timedelta(minutes=5).total_seconds())
        assert await push.tell(await daemon.store.questions.open(10))
        note = ntfy.note()
        assert (note["title"], note["message"]) == (title, text)
        assert ("actions" in note) == (shows == "text")
        (message,) = await daemon.store.questions.open(10)
        path = "/waiting" if shows == "nothing" else f"/message/{message.message.id}"
        assert note["click"] == f"https://here.example{path}"
        if shows == "text":
            clock.advance(QUESTION_LASTS.total_seconds())
            assert push.take(note["actions"][0]["body"]) is None
