"""What a host asks is answered in a chat with a bot, by you alone, and by nothing but the words that name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harken.testing.daemon import DaemonProcess
from tests.cli.rig import Rig as Commands
from tests.hooks.rig import DaemonFixture
from tests.hooks.test_approvals import AskingHost, asked, one
from tests.loss.rig import until
from tests.sources.bot.service import ANN, Json, serving
from tests.sources.bot.test_bot_daemon import Desk, configured


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A daemon with a bot, to which one person writes whose word is yours."""
    with serving() as service:
        home = configured(tmp_path / "home", service)
        config = home / "config.toml"
        config.write_text(f'{config.read_text()}[trust]\nowner = ["desk:{ANN["aadObjectId"]}"]\n')
        daemon = DaemonProcess(home).start()
        try:
            yield Desk(daemon, Commands(home), service, [])
        finally:
            service.going.set()
            daemon.stop()


def rig_of(desk: Desk) -> DaemonFixture:
    """Return the daemon as those know it who play a host that asks."""
    daemon: Any = desk.daemon  # a process of its own, which is asked in the same words
    return DaemonFixture(daemon)


def say(desk: Desk, text: str, **more: object) -> Json:
    """Let the connector post what somebody says; return what it posted."""
    activity = {**desk.service.activity(text), **more}
    assert desk.post(activity).status_code in (200, 202)
    return activity


def told(desk: Desk, text: str) -> None:
    """Wait until the bot has said something."""
    until(lambda: any(text in each.body["text"] for each in desk.service.sent), f"the bot says {text}")


def test_words_in_a_chat_of_yours_answer_what_a_host_asks(desk: Desk) -> None:
    """Away from the desk: the answer reaches the host, the bot says what became of it, and no agent is given it."""
    rig = rig_of(desk)
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        yes = say(desk, f"Yes {found['id']}")
        assert host.reply() == {"reply": "once"}
        told(desk, f"{found['id']} (bash) is allowed once now.")
        answered = one(rig, id=found["id"])
        assert (answered["answered_by"], answered["through"]) == ("you", "desk")
    with AskingHost(rig, asked(native="per_2")) as host:
        found = one(rig, state="open")
        desk.post(yes)  # as the connector does when an answer is lost
        say(desk, f"no {found['id']} use make")
        assert host.reply() == {"reply": "reject", "message": "use make"}
        told(desk, f"{found['id']} (bash) is refused now.")
    assert len(desk.service.sent) == 2
    assert {each["mailbox"] for each in desk.messages()} == {"replies"}


@pytest.mark.parametrize(
    "text",
    [
        "yes", "yes please {}", "> yes {}", "yes {} and also the other", "yes {}\nno", "I would say: yes {}",
        "yes ap-zzzzzz", "always {}", "no {}\n> what an agent wrote before",
    ],
)  # fmt: skip
def test_text_that_happens_to_say_yes_answers_nothing(desk: Desk, text: str) -> None:
    """A quote, or an answer among other words, is no answer; the host asks in its own terminal all the time."""
    rig = rig_of(desk)
    with AskingHost(rig, asked()):
        found = one(rig, state="open")
        say(desk, text.format(found["id"]))
        say(desk, "yes ap-000000")
        told(desk, "This answers nothing")
        assert one(rig, id=found["id"])["state"] == "open"


def test_words_of_others_and_edits_answer_nothing(desk: Desk) -> None:
    """A stranger who has the id, the owner's old message that says something else now, and an agent in the chat."""
    rig = rig_of(desk)
    with AskingHost(rig, asked()) as host:
        found = one(rig, state="open")
        words = f"yes {found['id']}"
        say(desk, words, **{"from": {**ANN, "id": "29:eve", "aadObjectId": "eve"}})
        first = say(desk, "hello")
        say(desk, words, id=first["id"], type="messageUpdate")
        hello = next(each for each in desk.messages() if each["content_text_sanitized"] == "hello")
        desk.daemon.call("send", text=words, sender="ann")
        assert one(rig, id=found["id"])["state"] == "open"
        desk.reply(hello, words)  # by the bot, in the same chat
        until(lambda: any(each.body["text"] == words for each in desk.service.sent))
        assert one(rig, id=found["id"])["state"] == "open"
        say(desk, f"no {found['id']}")
        assert host.reply() == {"reply": "reject"}


def test_answer_that_comes_late_answers_nothing_and_says_so(desk: Desk) -> None:
    """The first answer counts, wherever it was given; after it the words mean nothing."""
    rig = rig_of(desk)
    with AskingHost(rig, asked()) as host, AskingHost(rig, asked(native="per_2"), "ses_2"):
        found = one(rig, state="open", session="opencode:ses_1")
        desk.daemon.call("approve", approval=found["id"], digest=found["digest"], choice="no")
        assert host.reply() == {"reply": "reject"}
        say(desk, f"yes {found['id']}")
        told(desk, "This answers nothing: Approval")
        assert one(rig, id=found["id"])["choice"] == "no"
