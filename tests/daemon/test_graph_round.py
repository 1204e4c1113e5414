"""The whole round: a Teams message or a mail wakes a real MCP client, which answers by tool, and one answer is there.

Real are the daemon, the edge, the official SDK's client and the command line; only Microsoft is on loopback.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation, TextContent

from harken.testing import DaemonProcess
from tests.cli.rig import Rig
from tests.daemon.graph_rig import Json, add_account, sign_in
from tests.graph.faults import Fault
from tests.graph.service import Graph, serving
from tests.graph.world import Chat, ChatMessage, Mail, Person
from tests.loss.rig import until
from tests.mcp.rig import sessions

SOON: Final = 60.0
CLIENT: Final = "sdk-client"
SHARE: Final = 0.3
READS: Final = 12  # more than are made of one chat in such a test


@pytest.fixture(scope="module")
def microsoft() -> Iterator[Graph]:
    """A Microsoft on loopback."""
    with serving(seed=5) as service:
        yield service


@pytest.fixture(scope="module")
def served(microsoft: Graph) -> Iterator[DaemonProcess]:
    """A daemon that listens to the chats and the mailbox. Its folder has a short path, as a socket's name needs it."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        home = Path(folder) / "home"
        for name, kind in (("chats", "teams"), ("mail", "outlook")):
            add_account(home, microsoft, name, kind)
            sign_in(home, microsoft, name)
        daemon = DaemonProcess(home).start()

        def is_listening() -> bool:
            return {each["state"] for each in daemon.call("source_list")["sources"]} == {"listening"}

        until(is_listening, "it listens")
        yield daemon
        daemon.stop()


@pytest.fixture
def graph(microsoft: Graph) -> Iterator[Graph]:
    """The service, in order again at the end."""
    yield microsoft
    microsoft.faults()


class Waiter:
    """An agent over the edge, as hosts start it."""

    def __init__(self, client: Client, daemon: DaemonProcess) -> None:
        self._client = client
        self._daemon = daemon
        self.got: dict[str, str] = {}
        self.has_come = anyio.Event()

    async def call(self, tool: str, **arguments: object) -> Json:
        """Return the JSON of a tool's result."""
        result = await self._client.call_tool(tool, arguments)
        block = result.content[0]
        assert isinstance(block, TextContent)
        assert result.is_error is False, block.text
        return json.loads(block.text)

    async def wait_until(self, *texts: str) -> None:
        """Wait for messages that hold these texts, and note their ids by their texts."""
        while not all(any(text in got for got in self.got) for text in texts):
            for each in await self.call("wait_for_inbound_message", timeout_s=20, max_items=10):
                self.got[each["content"]] = each["message_id"]
        self.has_come.set()

    async def is_waiting(self) -> None:
        """Return when the daemon knows that the agent waits."""

        def is_so() -> bool:
            return [each["presence"] for each in sessions(self._daemon, CLIENT)] == ["waiting"]

        await until_true(is_so)

    def id_of(self, text: str) -> str:
        """Return the id of the message that holds a text."""
        return next(message for got, message in self.got.items() if text in got)

    async def reply(self, text: str, body: str) -> None:
        """Answer the message that holds a text."""
        message = self.id_of(text)
        assert (await self.call("reply", message_id=message, body=body))["message_id"] == message


@asynccontextmanager
async def waiter(daemon: DaemonProcess) -> AsyncIterator[Waiter]:
    """Connect the client of the official SDK."""
    command, *arguments = daemon.edge_command()
    # Starting a daemon is left to the test.
    edge = stdio_client(StdioServerParameters(command=command, args=[*arguments, "--spawn", "/bin/true"]))
    with anyio.fail_after(SOON):
        async with Client(edge, mode="legacy", client_info=Implementation(name=CLIENT, version="1")) as client:
            yield Waiter(client, daemon)


def standing(shown: Json) -> tuple[list[str], list[str]]:
    """Return what the ledger says of the client's delivery, and of the replies."""
    lines = [line["state"] for line in shown["ledger"] if line["consumer"] == CLIENT]
    return lines, [row["state"] for row in shown["replies"]]


def answers(graph: Graph, chat: Chat) -> list[ChatMessage]:
    """Return what the signed-in person, or an agent in that name, has said in a chat."""
    return [message for message in chat.messages.values() if message.sender == graph.me]


def chat_that_loses_the_answer_of_a_post(graph: Graph, ann: Person) -> Chat:
    """Return a chat in which the first write is done and its answer lost, and all reads are well."""
    draw = partial(graph.world.dice.fraction, "fault")
    for number in range(1_000):
        chat = graph.chat(ann, topic=f"topic {number}")
        path = f"/v1.0/chats/{chat.id}/messages"
        if draw("POST", path, 1) < SHARE <= min(draw("GET", path, count) for count in range(1, READS)):
            graph.faults(lost=SHARE, under=path)
            return chat
    pytest.fail("chance has no such chat")


async def until_true(condition: Callable[[], object]) -> None:
    """Let the daemon work until something is so."""
    await anyio.to_thread.run_sync(until, condition, "it becomes so")


async def until_answered(daemon: DaemonProcess, *messages: str) -> None:
    """Return when the replies to messages have left and the ledger says so."""
    done = (["answered"], ["sent"])
    await until_true(lambda: all(standing(daemon.call("read", ref=each)) == done for each in messages))


async def test_a_chat_message_wakes_a_client_and_its_reply_is_there_once(served: DaemonProcess, graph: Graph) -> None:
    """What Harken is for, from end to end."""
    ann = graph.person("Ann")
    chat, other = graph.chat(ann), graph.chat(ann, topic="other")
    async with waiter(served) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.wait_until, "the build")
        await agent.is_waiting()
        graph.say(chat, ann, "<p>is the build <b>green</b>?</p>")
        await agent.has_come.wait()
        await agent.reply("the build", "It is **green**.")
        await until_answered(served, agent.id_of("the build"))
    assert standing(Rig(served.home).json("read", agent.id_of("the build"))) == (["answered"], ["sent"])
    (answer,) = answers(graph, chat)
    assert "It is <strong>green</strong>." in answer.html
    assert answers(graph, other) == []


async def test_a_mail_wakes_a_client_and_its_reply_stays_in_the_thread(served: DaemonProcess, graph: Graph) -> None:
    """Whoever wrote finds the answer where they asked, and finds one."""
    ann, before = graph.person("Ann"), len(graph.sent_mails)
    async with waiter(served) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.wait_until, "at noon")
        await agent.is_waiting()
        mail = graph.mail(ann, "Lunch", "<p>at noon?</p>")
        await agent.has_come.wait()
        await agent.reply("at noon", "Yes.")
        await until_answered(served, agent.id_of("at noon"))
    assert [threading_of(sent) for sent in graph.sent_mails[before:]] == [
        (mail.conversation, "RE: Lunch", [ann.address])
    ]


async def test_a_reply_is_there_once_whenever_the_daemon_is_killed(served: DaemonProcess, graph: Graph) -> None:
    """Killed when replies were accepted and not sent, and when they were sent and nobody has said so."""
    ann, before = graph.person("Ann"), len(graph.sent_mails)
    early, late = graph.chat(ann), chat_that_loses_the_answer_of_a_post(graph, ann)
    async with waiter(served) as agent:
        graph.say(early, ann, "<p>early</p>")
        graph.say(late, ann, "<p>late</p>")
        mails = [graph.mail(ann, subject, f"<p>{subject}?</p>") for subject in ("Now", "Then")]
        await agent.wait_until("early", "late", "Now?", "Then?")
        graph.faults(unavailable=1.0, under="/v1.0/")
        await agent.reply("early", "first")
        await agent.reply("Now?", "first")
        served.kill()
        assert (answers(graph, early), graph.sent_mails[before:]) == ([], [])
        graph.faults(lost=SHARE, under=f"/v1.0/chats/{late.id}/")
        served.start()
        await until_answered(served, agent.id_of("early"), agent.id_of("Now?"))
        graph.fail_next(Fault.LOST, path="/reply")
        await agent.reply("late", "second")
        await agent.reply("Then?", "second")
        await until_true(lambda: answers(graph, late) and len(graph.sent_mails) == before + 2)
        served.kill()
        lost = [entry.path for entry in graph.asked("", "POST") if entry.fault is Fault.LOST]
        assert sorted(path.rpartition("/")[2] for path in lost) == ["messages", "reply"]
        graph.faults()
        served.start()
        await until_answered(served, agent.id_of("late"), agent.id_of("Then?"))
    assert [len(answers(graph, chat)) for chat in (early, late)] == [1, 1]
    assert [threading_of(sent) for sent in graph.sent_mails[before:]] == [
        (mail.conversation, f"RE: {mail.subject}", [ann.address]) for mail in mails
    ]


def threading_of(mail: Mail) -> tuple[str, str, list[str]]:
    """Return where a mail belongs and whom it went to."""
    return mail.conversation, mail.subject, [person.address for person in mail.to]
