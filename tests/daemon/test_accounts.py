"""Teams and Outlook in a real daemon: nobody is signed in, somebody signs in, a message arrives and is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harken.testing.agent import EdgeClient
from tests.cli.rig import COMMAND, Json, Rig, serving
from tests.graph.service import Graph
from tests.graph.service import serving as serving_graph
from tests.loss.rig import until

POLL_SECONDS = 5


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A Microsoft on loopback whose person enters every code at once."""
    with serving_graph() as service:
        service.sign_in.device_interval = 1
        yield service


@pytest.fixture
def rig(tmp_path: Path, graph: Graph) -> Iterator[Rig]:
    """A daemon with Teams and Outlook that nobody is signed in to."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    place = (
        f'tenant = "{graph.tenant}"\nclient_id = "{graph.client_id}"\ngraph_url = "{graph.url}"\n'
        f'authority = "{graph.tokens.origin}"\nca = "{graph.ca}"\npoll = {POLL_SECONDS}\ntrust = "known"\n'
    )
    (home / "config.toml").write_text(
        f'[sources.chats]\nkind = "teams"\nplaceholder = "Working on it."\n{place}'
        f'[sources.mail]\nkind = "outlook"\n{place}'
    )
    with serving(home) as served:
        yield served


def listed(rig: Rig, name: str) -> Json:
    """Return what the daemon says of a source."""
    return next(each for each in rig.json("source", "list")["sources"] if each["name"] == name)


def is_listed(rig: Rig, name: str, state: str, reason: str) -> bool:
    """Whether the daemon says just this of a source."""
    found = listed(rig, name)
    return (found["state"], found["reason"]) == (state, reason)


def signed_in(rig: Rig, name: str) -> Json:
    """Sign in while the daemon runs, and wait until it listens."""
    assert rig.run("source", "login", name, "--device").code == 0

    def is_listening() -> Json | None:
        found = listed(rig, name)
        return found if found["state"] == "listening" else None

    found: Json = until(is_listening)
    return found


def arrived(rig: Rig, text: str) -> Json:
    """Wait for a message that holds a text."""

    def find() -> Json | None:
        rows: list[Json] = rig.json("list")["messages"]
        return next((row for row in rows if text in row["content_text_sanitized"]), None)

    found: Json = until(find)
    return found


def test_a_source_that_nobody_is_signed_in_to_says_so_and_the_daemon_runs(rig: Rig) -> None:
    """Without a Microsoft account everything else works."""
    for name in ("chats", "mail"):
        hint = f"Sign in with: harken source login {name}"
        until(partial(is_listed, rig, name, "needs person", hint))
    rig.ok("send", "hello")


def test_a_chat_message_arrives_after_the_sign_in_and_is_answered_once(rig: Rig, graph: Graph) -> None:
    """The daemon sees a sign-in by itself; an answer goes to the chat that wrote, in the person's name."""
    chat = graph.chat(ann := graph.person("Ann"))
    graph.say(chat, ann, "<p>before the sign-in</p>")
    assert signed_in(rig, "chats")["server"] == f"{graph.me.name} ({graph.me.address})"
    graph.say(chat, ann, "<p>is the build <b>green</b>?</p>")
    message = arrived(rig, "is the build")
    rig.ok("reply", message["id"], "It is green.")
    until(lambda: graph.asked(f"/chats/{chat.id}/messages", "POST"))
    graph.say(chat, ann, "<p>thanks</p>")
    arrived(rig, "thanks")
    # Neither what was said before the sign-in nor our own answer.
    texts = {row["content_text_sanitized"] for row in rig.json("list")["messages"]}
    assert texts == {"is the build green?", "thanks"}
    assert [each.status for each in graph.asked(f"/chats/{chat.id}/messages", "POST")] == [201]
    assert secrets_in(rig.home) == []


def test_an_agent_that_has_seen_a_message_is_announced_and_its_answer_takes_the_place(rig: Rig, graph: Graph) -> None:
    """Whoever asked sees at once that somebody works, and one message in the end; also who is looked at is said."""
    ann = graph.person("Ann")
    chat = graph.chat(ann, topic="Release")
    signed_in(rig, "chats")
    graph.say(chat, ann, "<p>is it done?</p>")
    message = arrived(rig, "is it done?")
    with EdgeClient([*COMMAND, "mcp"], environment=rig.environment) as agent:
        for _ in range(2):  # a later call proves that what the first brought was read
            agent.tool("inbox_pull")
        until(lambda: graph.asked(f"/chats/{chat.id}/messages", "POST"))
        assert "Working on it." in list(chat.messages.values())[-1].html
        agent.tool("reply", message_id=message["id"], body="It is.")
        until(lambda: graph.asked("/messages/", "PATCH"))
    (mine,) = [each for each in chat.messages.values() if each.sender == graph.me]
    assert mine.html.startswith('<p><at id="0">Ann</at> It is.</p>')
    assert listed(rig, "chats")["last_poll"] is not None
    assert "looked " in rig.ok("source", "list")
    assert "looked " in rig.ok("status")


def secrets_in(home: Path) -> list[str]:
    """Return the files beside the sign-in itself that hold its token, or the markup as it was sent."""
    kept = home / "sign-ins" / "chats.json"
    secrets = (json.loads(kept.read_text())["access"].encode(), b"<b>green</b>")
    files = [file for file in home.rglob("*") if file.is_file() and file != kept]
    assert len(files) > 3, "too little was looked at"
    return [file.name for file in files if any(secret in file.read_bytes() for secret in secrets)]


def test_a_mail_arrives_after_the_sign_in_and_is_answered_once(rig: Rig, graph: Graph) -> None:
    """The answer belongs to the same conversation as the mail."""
    ann = graph.person("Ann")
    signed_in(rig, "mail")
    graph.mail(ann, "Lunch", "<p>at noon?</p>")
    message = arrived(rig, "at noon?")
    rig.ok("reply", message["id"], "Yes.")
    until(lambda: graph.sent_mails)
    assert len(graph.sent_mails) == 1
