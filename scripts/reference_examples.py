"""Runs verbs, tools and commands on throw-away homes, so that the reference shows what they really answer.

The clock stands still, and ids, processes and places are replaced: the same code gives the same examples. It writes
nothing; `scripts/reference.py` makes pages of what it returns.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import anyio
import msgspec

import harken
from harken import render
from harken.automation import ChangeKind, FileChange, FolderChanges
from harken.config.home import Home, ensure
from harken.config.settings import HttpSettings, Settings
from harken.daemon.compose import Daemon, compose, phone_door
from harken.dispatch.outbox import Outbox
from harken.errors import HarkenError
from harken.hosts.host import GENERIC
from harken.inbox.access import TokenRequest, TokenState
from harken.inbox.caller import Caller, DeliveryTime, Role
from harken.inbox.channels import Channels
from harken.inbox.results import HostedPart, HostedProgress, HostedState
from harken.inbox.tasks import NewTask
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import (
    INBOX,
    LOCAL,
    ApprovalRequest,
    Consumer,
    DeliveryId,
    Draft,
    Mailbox,
    Message,
    Reader,
    Sender,
    SessionKey,
    Task,
    TaskId,
    approval_digest,
)
from harken.sessions.session import Note, Session
from harken.sessions.turns import Halt
from harken.sources.local import LocalSender
from harken.store.contract.events import Event
from harken.store.contract.messages import Filter
from harken.store.contract.outbox import CallbackSubscription
from harken.store.contract.retention import Limits
from harken.store.journal import line as journal_line
from harken.testing import FakeClock
from harken.verbs import rules as rule_shapes
from harken.verbs import shapes
from harken.verbs.table import TOOLS, call
from harken.verbs.verb import ToolCall
from scripts.reference_rules import furnished, play_automation, play_rule_verbs

ROOT: Final = Path(__file__).resolve().parent.parent
COMMAND_SECONDS: Final = 60
PLACES: Final = (
    (sys.executable, "/home/you/harken/.venv/bin/python"),
    (str(Path(harken.__file__).parent), "/home/you/harken/src/harken"),
)
EXAMPLE_HOME: Final = "/home/you/.harken"
AGENT: Final = Consumer("claude-code")
AGENT_SESSION: Final = SessionKey("claude-code:4242")
EXAMPLE_SOURCE: Final = MappingProxyType({"kind": "mcp", "url": "https://ci.example/mcp", "channels": ["deploys"]})
WORKTREES: Final = "/home/you/code/shop.worktrees"

Json: TypeAlias = Any
"""Whatever the JSON says: pages show it."""

_ID: Final = re.compile(r"\b(?:([mdr])-[0-9a-hjkmnp-tv-z]{10}|(ap|[ar])-[0-9a-hjkmnp-tv-z]{6})\b")
_BROWSER: Final = re.compile(r"\bb-[0-9a-hjkmnp-tv-z]{8}\b")
_PAIRING: Final = re.compile(r"\bpair-[0-9a-hjkmnp-tv-z]{8}\b")
_SECRET: Final = re.compile(r"(?<=/sign-in#)[\w-]+")
_MARK: Final = re.compile(r"(?:(?<=the mark )|(?<=of message ))[0-9a-hjkmnp-tv-z]{12}\b")
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal: its kind, the names of what it says beyond that, and the line itself."""

    kind: str
    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """What really running it gave."""

    verbs: Mapping[str, tuple[Json, Json]]
    shapes: Mapping[str, Json]
    tools: Mapping[str, tuple[Json, Json]]
    failed_tool: Json
    resource: Json
    ping: Json
    lines: Mapping[str, Line]
    commands: Mapping[str, Json]


class MaskedText:
    """Replaces what differs from run to run: ids by the order of their appearance, processes, versions and places."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._known: dict[str, str] = {}
        for message in messages:
            self.text(message.id)

    def text(self, value: str) -> str:
        """Return a text in which nothing differs from run to run."""
        value = _ID.sub(self._id, value)
        value = _PAIRING.sub("pair-7k3m9x2q", value)
        value = _BROWSER.sub("b-7k3m9x2q", value)
        value = _SECRET.sub("Jx2…", value)
        value = _MARK.sub("7k3m9x2q4w6p", value)
        for place, shown in PLACES:
            value = value.replace(place, shown)
        return _URL.sub("http://127.0.0.1:8780", value)

    def json(self, value: Json) -> Json:
        """Return a JSON value in which nothing differs from run to run."""
        fixed = {"pid": 4242, "pids": [4242], "bytes": 110592, "python": "3.12.4"}
        fixed |= {"home": EXAMPLE_HOME, "toasts": "shown", "secret": "harken_…"}
        if isinstance(value, dict):
            return {
                self.text(key): fixed[key] if key in fixed and item is not None else self.json(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.json(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _id(self, found: re.Match[str]) -> str:
        kind, _, rest = found[0].partition("-")
        number = 1 + sum((known.partition("-")[0], len(known)) == (kind, len(found[0])) for known in self._known)
        return self._known.setdefault(found[0], f"{kind}-{number:0{len(rest)}}")


class _Silent:
    """A connection that nobody reads."""

    def push(self, note: Note) -> None:
        """Forget the hint."""

    def notify(self, method: str, params: Mapping[str, object]) -> bool:
        """Forget the notification."""
        return bool(method or params)

    def settle(self, turn: str = "") -> Collection[DeliveryId]:
        """Nothing was answered here."""
        del turn
        return ()

    def abandon(self, but_of: str = "") -> Collection[str]:
        """Nothing was answered here."""
        del but_of
        return ()


@dataclass(slots=True, kw_only=True)
class Scene:
    """A daemon's parts on a throw-away home, and who is there."""

    daemon: Daemon
    clock: FakeClock
    taken: dict[str, tuple[Json, Json]]
    task: str = ""  # in which the agent is

    @property
    def reader(self) -> Reader:
        """How the agent reads."""
        mailbox = Mailbox(f"task:{self.task}") if self.task else INBOX
        return Reader(consumer=Consumer(mailbox) if self.task else AGENT, session=AGENT_SESSION, mailboxes=(mailbox,))

    async def verb(self, name: str, /, **arguments: object) -> Json:
        """Run a verb as the person, and keep the first call of each as its example."""
        self.clock.advance(5)
        desk = self.daemon.call_context(Caller(role=Role.OWNER), SessionKey("cli:9f2c41d07ab35e68"), "1")
        result: Json = json.loads(msgspec.json.encode(await call(desk, name, arguments)))
        self.taken.setdefault(name, (arguments, result))
        return result

    async def tool(self, name: str, /, **arguments: object) -> tuple[Json, Json]:
        """Run a tool as the agent; return its arguments and its result."""
        self.clock.advance(5)
        tool = next(tool for tool in TOOLS if tool.name == name)
        one = ToolCall(
            inbox=self.daemon.inbox,
            tasks=self.daemon.tasks,
            channels=Channels(self.daemon.store, self.daemon.inbox),
            reader=self.reader,
            caller=Caller(role=Role.AGENT, consumer=self.reader.consumer, session=self.reader.session),
            edge="edge",
            request=name,
            carrier=f"edge/{name}",
            carry=lambda _deliveries: None,
            drop=lambda: False,
            afterwards=lambda _do: None,
            when_proven=lambda _do: None,
            result_bytes=GENERIC.result_bytes,
        )
        try:
            result: object = (await tool.run(one, tool.parse(arguments))).value
        except HarkenError as exc:
            result = exc.as_dict()
        return arguments, json.loads(msgspec.json.encode(result))

    async def send_replies(self) -> None:
        """Do what the daemon's outbox loop does."""

        async def post(draft: Draft) -> str:
            return (await self.daemon.intake.accept([draft]))[0].message.id

        await Outbox(self.daemon.store, {LOCAL: LocalSender(post)}, self.clock).send_due(LOCAL)

    def open_session(self) -> Session:
        """Let an agent be connected."""
        now = self.clock.now()
        session = Session(
            key=self.reader.session,
            agent=AGENT,
            consumer=AGENT,
            host="claude-code",
            client="claude-code",
            cwd="/home/you/code/shop",
            pid=4242,
            mailboxes=(Mailbox("inbox"), Mailbox("project:shop")),
            surfaces=("tool", "log ping", "resource"),
            opened_at=now,
            last_active=now,
        )
        return self.daemon.inbox.sessions.open(session, "edge", _Silent())


async def play_source_verbs(scene: Scene) -> None:
    """Run the verbs about sources, with a file that changes one other thing."""
    await scene.verb("source_list")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in EXAMPLE_SOURCE.items())
    scene.daemon.home.config_file.write_text(f'[sources.ci]\n{lines}[trust]\nknown = ["mail:ann@example.org"]\n')
    await scene.verb("reload")


async def play_verbs(scene: Scene) -> None:
    """Run every verb once."""
    scene.open_session()
    scene.daemon.url = "http://127.0.0.1:8780"
    await scene.verb("send", text="the build is red", sender="ci-bot", channel="ci", upstream_id="build-7")
    await scene.verb("send", text="please also update the changelog", upstream_id="note-1")
    await scene.verb("send", text="deploy is done", sender="ci-bot", channel="ci", upstream_id="deploy-3")
    await scene.verb("list", channel="ci")
    await scene.verb("stats", consumer="watch")
    pulled = await scene.verb("pull", limit=1)
    await scene.verb("prove", deliveries=[pulled["messages"][0]["delivery_id"]])
    await scene.verb("wait", timeout=10, limit=1)
    await scene.verb("ack", refs=["#3"])
    await scene.daemon.inbox.pull(scene.reader, limit=1, surface="inbox_pull", carrier="edge/1")
    await scene.verb("reply", ref="#1", body="on it, fix follows", key="answer-1")
    await scene.send_replies()
    await scene.verb("read", ref="#1")
    await scene.verb("search", text="build red")
    await scene.verb("export", mailbox="inbox", limit=1)
    await scene.verb("retention")
    await scene.verb("retention_run")
    await scene.verb("mailboxes")
    await scene.verb("evidence")
    await scene.verb("whoami")
    hint = {"level": "info", "data": "hello"}
    await scene.verb("notify", session=scene.reader.session, method="notifications/message", params=hint)
    await scene.verb("journal", after=0, limit=1)
    await scene.verb("allow", sender="ci-bot", source="local")
    await scene.verb("deny", sender="eve@example.org")
    await scene.verb("pair")
    await scene.verb("mute", kind="channel", name="ci", seconds=3600)
    await scene.verb("status")
    await scene.verb("unmute", kind="channel", name="ci")
    await play_source_verbs(scene)
    await play_task_verbs(scene)
    await play_channel_verbs(scene)
    await play_question_verbs(scene)

    async def announce(channel: str, text: str) -> str:
        draft = Draft(source="ci", sender=Sender("ci"), text=text, channel=channel)
        return (await scene.daemon.intake.accept([draft]))[0].message.id

    await play_rule_verbs(scene, announce)
    scene.taken["piece"] = ({}, await scene.verb("read", ref="#1", offset=4, limit=5))


async def play_later(scene: Scene) -> None:
    """Send a message that is to be delivered later, and withdraw it."""
    timing, owner = DeliveryTime(at="in 2h"), Caller(role=Role.OWNER)
    later = await scene.daemon.inbox.send_at(timing, owner, "time to go home", upstream_id="later-1")
    await scene.verb("unsend", ref=later.message.id)


async def play_channel_verbs(scene: Scene) -> None:
    """Run every verb of channels once, after a server has announced something."""
    for number in (17, 18):
        text = f"deploy {number} of shop is done"
        await scene.daemon.intake.accept([Draft(source="ci", sender=Sender("ci"), text=text, channel="deploys")])
    await scene.verb("channels", limit=1)
    await scene.verb("channel", channel="deploys", limit=1)
    await scene.verb("channel_inject", channel="deploys", key="inject-1")
    await scene.verb("channel_ack", channel="deploys")
    await scene.verb("channel_clear", channel="deploys")
    await play_later(scene)


async def play_question_verbs(scene: Scene) -> None:
    """Ask something that waits for an answer, and run the verbs about it once."""
    asked = Draft(source=LOCAL, sender=Sender("ann", "Ann"), text="Can you look at the login page?", is_question=True)
    message = (await scene.daemon.intake.accept([asked]))[0].message.id
    await scene.verb("questions")
    needs = await scene.verb("needs")
    await play_approval(scene)
    approval = (await scene.verb("approvals"))["approvals"][0]
    await scene.verb("approval", approval=approval["id"])
    await scene.verb("approve", approval=approval["id"], choice="once", digest=approval["digest"])
    await scene.verb("put_away", keys=[needs["needs"][0]["key"]])
    for kind, way in (("reminded", "agent"), ("escalated", "toast")):
        await scene.daemon.store.questions.move([message], due_at=scene.clock.now(), way=way, kind=kind)
    await scene.verb("question_done", refs=[message])
    row = await scene.daemon.store.outbox.add(message, "done", author="agent:claude-code", consumer=AGENT)
    await scene.daemon.store.outbox.failed(row.id, "the source chat cannot be answered", due_at=None)
    await scene.verb("outbox")
    await scene.verb("outbox_retry", replies=[row.id])
    await play_conversation_verbs(scene)


async def play_conversation_verbs(scene: Scene) -> None:
    """Sort what came once in each way."""
    draft = Draft(source="ci", sender=Sender("ci"), text="build 17 is red", channel="builds", thread="builds/17")
    message = (await scene.daemon.intake.accept([draft]))[0].message.id
    await scene.verb("conversations", limit=1)
    await scene.verb("snooze", refs=[message], seconds=3600)
    await scene.verb("done", refs=[message])
    await scene.verb("reopen", refs=[message])
    await scene.verb("unread", refs=[message])


async def play_task_make(scene: Scene) -> None:
    """Make a task with its folder, which is a real one; on the pages it is the person's."""
    folder = scene.daemon.home.path / "shop"
    folder.mkdir()
    desk = scene.daemon.call_context(Caller(role=Role.OWNER), SessionKey("cli:9f2c41d07ab35e68"), "1")
    arguments: Json = {"title": "Plan the release", "folder": str(folder), "is_here": True}
    result = msgspec.json.encode(await call(desk, "task_make", arguments)).decode()
    shown: Json = json.loads(result.replace(str(folder), "/home/you/code/shop"))
    scene.taken["task_make"] = {**arguments, "folder": "/home/you/code/shop"}, shown
    for verb in ("task_done", "task_rm"):
        await call(desk, verb, {"task": "plan-release"})
    folder.rmdir()


class ExampleHosting:
    """Hosts one task, whose agent has said a word."""

    def __init__(self) -> None:
        self._hosted: HostedProgress | None = None

    async def start(self, _task: Task, agent: str) -> HostedProgress:
        """Host it."""
        tool = HostedPart(kind="tool", title="Edit app.py", status="completed", changes=[("app.py", "-one\n+two")])
        parts = (HostedPart(kind="said", text="I change the field."), tool)
        plan = [("Change the field", "in_progress")]
        self._hosted = HostedProgress(agent=agent, state=HostedState.IDLE, parts=parts, plan=plan)
        return self._hosted

    async def stop(self, _task: TaskId) -> bool:
        """No turn runs."""
        return False

    async def end(self, _task: TaskId) -> bool:
        """End its agent."""
        was_hosted, self._hosted = self._hosted is not None, None
        return was_hosted

    def progress(self, _task: TaskId) -> HostedProgress | None:
        """Return how it stands."""
        return self._hosted


async def play_task_verbs(scene: Scene) -> None:
    """Run every verb of tasks once."""
    await scene.verb("task_id", title="Fix the login page")
    task = {"repo": "/home/you/code/shop", "agent": "claude-code", "has_worktree": True}
    await scene.verb(
        "task_new", title="Fix the login page", dir=f"{WORKTREES}/fix-login-page", branch="task/fix-login-page", **task
    )
    await scene.verb("task_new", title="Backend", dir=f"{WORKTREES}/backend", branch="task/backend", **task)
    await scene.verb("task_link", task="fix-login-page", other="backend")
    await scene.verb("send_to_task", task_id="backend", body="the new field is `user_id`", priority="high", key="n-1")
    await scene.verb("send_to_peer", body="thank you", cwd=f"{WORKTREES}/fix-login-page", key="n-2")
    await scene.verb("inbox_status", task_id="backend")
    await scene.verb("check_inbox", task_id="backend")
    await scene.verb("task_list")
    scene.daemon.tasks.be_hosted_by(ExampleHosting())
    await scene.verb("task_host", task="backend", agent="gemini-cli")
    await scene.verb("task_show", task="backend")
    await scene.verb("task_stop", task="backend", is_end=True)
    await scene.verb("task_unlink", task="fix-login-page", other="backend")
    await scene.verb("task_done", task="backend")
    await scene.verb("task_rm", task="backend")
    await play_task_make(scene)
    await scene.verb("sign_in")
    address = HttpSettings(public_listen="0.0.0.0:8443", public_url="https://harken.example.org:8443")
    scene.daemon.settings = replace(scene.daemon.settings, http=address)
    scene.daemon.phones = phone_door(scene.daemon)
    await scene.verb("phone_link", name="my-phone", may=["read", "answer"])
    browser = scene.daemon.sign_ins.sessions.begin("127.0.0.1:8780", "Firefox 140 on Linux")
    await scene.verb("browsers")
    await scene.verb("sign_out", browsers=[browser.id])
    await scene.verb("token_new", name="laptop", may=["read", "reply"], seconds=2_592_000)
    (token,) = await scene.daemon.store.tokens.list()
    await scene.daemon.store.tokens.use(token.id, "", "192.0.2.7")
    await scene.verb("token_list")
    await scene.verb("machines")
    await scene.verb("token_revoke", name="laptop")


async def play_tools(scene: Scene) -> dict[str, tuple[Json, Json]]:
    """Call every tool once."""
    sent = await scene.verb("send", text="the build is red", sender="ci-bot", channel="ci", upstream_id="build-7")
    other = await scene.verb("send", text="please also update the changelog", upstream_id="note-1")
    shown = {
        "inbound_queue_stats": await scene.tool("inbound_queue_stats"),
        "inbox_pull": await scene.tool("inbox_pull", limit=1),
        "wait_for_inbound_message": await scene.tool("wait_for_inbound_message", timeout_s=50, max_items=10),
        "ack": await scene.tool("ack", ids=[other["id"]]),
        "reply": await scene.tool("reply", message_id=sent["id"], body="on it, fix follows"),
        "inbox_search": await scene.tool("inbox_search", query="build"),
        "channels": await scene.tool("channels", action="unread", limit=1),
    }
    await scene.verb("task_new", title="Backend", dir=f"{WORKTREES}/backend")
    await scene.verb("task_new", title="Frontend", dir=f"{WORKTREES}/frontend", links=["backend"])
    await scene.verb("send_to_task", task_id="frontend", body="please use the new login form", key="n-1")
    report = await scene.verb("send", text="here is the whole report", sender="ci-bot", upstream_id="report-1")
    read = await scene.tool("inbox_read", message_id=report["id"])
    scene.task = "frontend"
    return shown | {
        "inbox_read": read,
        "inbox_status": await scene.tool("inbox_status"),
        "check_inbox": await scene.tool("check_inbox"),
        "send_to_peer": await scene.tool("send_to_peer", body="is the new field `user_id`?"),
        "send_to_task": await scene.tool("send_to_task", task_id="backend", body="the login form is done"),
    }


async def play_subscription(scene: Scene, made: TokenState) -> None:
    """Have events posted to an address."""
    now = scene.clock.now()
    await scene.daemon.store.subscriptions.keep(
        CallbackSubscription(
            id="sub_0123456789abcdef",
            token=made.token.id,
            holder=made.token.name,
            url="https://agent.example.org/hooks",
            event="message.received",
            arguments='{"channel":"ci"}',
            secret=f"whsec_{made.token.id}",
            made_at=now,
            renewed_at=now,
            expires_at=now + timedelta(days=1),
            number=await scene.daemon.store.events.last(),
        ),
        timedelta(hours=1),
    )


async def play_events(scene: Scene) -> Sequence[Event]:
    """Let everything happen that the journal records; return the events."""
    store, inbox, owner = scene.daemon.store, scene.daemon.inbox, Caller(role=Role.OWNER)
    first = await inbox.send(owner, "the build is red", sender="ci-bot", channel="ci", upstream_id="build-7")
    second = await inbox.send(owner, "hello", upstream_id="note-1")
    offer = (await inbox.pull(scene.reader, limit=1, surface="inbox_pull", carrier="edge/1")).offers[0]
    await inbox.proofs.prove([offer.delivery_id], "later call")
    await inbox.pull(scene.reader, surface="inbox_pull", carrier="edge/2")
    await inbox.proofs.withdraw(scene.reader.session, "edge/2")
    session = scene.open_session()
    await inbox.note_rest(session)
    await inbox.note_halt(session, Halt.WAITS, "Bash")
    agent = Caller(role=Role.AGENT, consumer=AGENT)
    await inbox.reply(agent, first.message.id, "on it, fix follows")
    await scene.send_replies()
    parked = await inbox.reply(agent, second.message.id, "hello to you")
    await store.outbox.failed(parked.id, "the source mail cannot be answered", due_at=None)
    await scene.daemon.access.allow(owner, "eve@example.org", source="mail")
    await scene.daemon.access.mute(owner, "channel", "ci", seconds=3600)
    await scene.daemon.access.unmute(owner, "channel", "ci")
    await store.people.clear_channels(channel="ci")
    await store.messages.append([prepare(_draft("news"), IngestPolicy())], dropped=3)
    await play_question_verbs(scene)
    await play_automation(scene, first.message)
    task = await scene.daemon.tasks.new(owner, NewTask(title="Backend", dir=f"{WORKTREES}/backend", prompt="begin"))
    await scene.daemon.tasks.finish(owner, task.task.id)
    made, _secret = await scene.daemon.tokens.make(owner, TokenRequest(name="laptop"))
    await play_subscription(scene, made)
    scene.clock.advance(86_400)
    await inbox.send(owner, "a day later", upstream_id="note-2")
    await inbox.send_at(DeliveryTime(at="in 2h"), owner, "time to go home", upstream_id="note-3")
    # Read before retention: a message that is deleted is gone from its event too.
    events = await store.events.after(0, 1_000)
    for _ in range(2):
        await store.retention.prune(Limits(max_count=1_000, max_age_seconds=3_600))
    await store.events.continue_after(await store.events.last() + 3)
    return [*events, *await store.events.after(events[-1].n, 1_000)]


async def play_approval(scene: Scene) -> None:
    """Let a host ask whether a tool may be used."""
    session, arguments = SessionKey("claude-code:4242"), {"command": "npm test"}
    request = ApprovalRequest(
        host="claude-code",
        session=session,
        tool="Bash",
        arguments=arguments,
        digest=approval_digest("claude-code", session, "Bash", arguments),
        folder="/home/you/code/shop",
    )
    await scene.daemon.store.approvals.ask(request, timedelta(minutes=10))


def _draft(text: str) -> Draft:
    return Draft(source="mail", sender=Sender("eve@example.org", "Eve"), text=text, channel="news")


EXAMPLE_CHANGES: Final = FolderChanges(
    files=(
        FileChange(
            path="sub/.git",
            kind=ChangeKind.CHANGED,
            is_held=True,
            is_undone=True,
            diff="@@ -1,1 +1,1 @@\n-gitdir: ../.git/modules/sub\n+gitdir: ../elsewhere",
            aside=f"{EXAMPLE_HOME}/runs/r-000001-set-aside/0001-sub-.git",
        ),
        FileChange(path="logo.png", kind=ChangeKind.ADDED, note="not text"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedExample:
    """What a play left behind: its result, the example of each verb, and the messages in order of receipt."""

    result: Json
    taken: Mapping[str, tuple[Json, Json]]
    messages: Sequence[Message]


async def on_stage(play: Callable[[Scene], Awaitable[Json]]) -> PlayedExample:
    """Run a play on a fresh home."""
    with tempfile.TemporaryDirectory() as folder:
        home, clock = Home(Path(folder) / "home"), FakeClock()
        ensure(home)
        with furnished(home):
            return await _played(play, home, clock)


async def _played(play: Callable[[Scene], Awaitable[Json]], home: Home, clock: FakeClock) -> PlayedExample:
    async with compose(home, Settings(sources={"ci": EXAMPLE_SOURCE}), clock) as daemon:
        scene = Scene(daemon=daemon, clock=clock, taken={})
        result = await play(scene)
        messages = await daemon.store.messages.page(Filter(), 100)
        return PlayedExample(result=result, taken=_at_home(scene.taken, home), messages=messages)


def _at_home(taken: Mapping[str, tuple[Json, Json]], home: Home) -> dict[str, tuple[Json, Json]]:
    """Return examples as if they had been played at the usual place."""
    found: dict[str, list[Json]] = json.loads(json.dumps(taken).replace(str(home.path), EXAMPLE_HOME))
    return {name: (given, result) for name, (given, result) in found.items()}


def run_commands() -> dict[str, Json]:
    """Return what the commands print that ask no verb."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HARKEN_")}

        def ask(*words: str) -> Json:
            command = [sys.executable, "-m", "harken", *words, "--json", "--home", str(home)]
            done = subprocess.run(command, env=plain, capture_output=True, timeout=COMMAND_SECONDS, check=False)
            if done.returncode:
                raise RuntimeError(f"harken {' '.join(words)} failed: {done.stderr.decode()}")
            return json.loads(done.stdout.decode().replace(str(home), EXAMPLE_HOME))

        try:
            found = {"up": ask("up"), "version": ask("version")}
        finally:
            stopped = ask("down")
        settings = ask("config", "show")
        completion = ask("completion", "bash")
        return found | {
            "down": stopped,
            "mcp": ask("mcp", "--print-command"),
            "config show": settings | {"settings": settings["settings"][:2]},
            "completion": completion | {"script": completion["script"].strip()[:30] + "…"},
        }


def run_everything() -> Examples:
    """Return every example, with nothing in it that differs from run to run."""
    played = anyio.run(on_stage, play_verbs)
    mask = MaskedText(played.messages)
    verbs = {name: (mask.json(given), mask.json(result)) for name, (given, result) in played.taken.items()}
    status, read, pulled = (verbs[name][1] for name in ("status", "read", "pull"))
    piece = verbs.pop("piece")[1]
    changes: Json = rule_shapes.changes_shape(EXAMPLE_CHANGES)
    played = anyio.run(on_stage, play_tools)
    mask = MaskedText(played.messages)
    tools = {name: (mask.json(given), mask.json(result)) for name, (given, result) in played.result.items()}
    return Examples(
        verbs=verbs,
        shapes={
            "message": read["message"],
            "piece": {**piece, "message": {key: piece["message"][key] for key in ("id", "content_text_sanitized")}},
            "offer": {key: pulled["messages"][0][key] for key in ("delivery_id", "repeat", "answered_by")},
            "delivery": next(entry for entry in read["ledger"] if entry["consumer"] == "watch"),
            "reply": read["replies"][0],
            "approval": verbs["approval"][1],
            "session": status["sessions"][0],
            "surface": verbs["evidence"][1]["surfaces"][0],
            "place": status["consumers"][0],
            "sender": status["senders"][0],
            "mute": status["mutes"][0],
            "held": shapes.held(_draft("news")),
            "daemon": status["daemon"],
            "source": verbs["source_list"][1]["sources"][0],
            "channel": verbs["channels"][1]["channels"][0],
            "task": verbs["task_show"][1],
            "task_message": verbs["check_inbox"][1]["messages"][0],
            "rule": verbs["rules"][1]["rules"][0],
            "verdict": verbs["rules_explain"][1]["decided"][0],
            "action": verbs["actions"][1]["actions"][0],
            "run": verbs["run"][1],
            "glance": verbs["run"][1]["message"],
            "output_line": verbs["run_output"][1]["lines"][0],
            "changes": changes,
            "file_change": changes["files"][0],
            "rule_summary": status["rules"],
        },
        tools=tools,
        failed_tool=anyio.run(on_stage, fail_tool).result,
        resource=mask.json(render.inbox_state(1, played.messages)),
        ping=mask.json(render.log_ping(played.messages[0], 1)),
        lines=example_lines(anyio.run(on_stage, play_events).result),
        commands={name: MaskedText().json(found) for name, found in run_commands().items()},
    )


async def fail_tool(scene: Scene) -> Json:
    """Call a tool in vain."""
    return (await scene.tool("reply", message_id="m-nothing", body="hello"))[1]


def example_lines(events: Sequence[Event]) -> dict[str, Line]:
    """Return the first line of each kind."""
    mask = MaskedText()
    lines: dict[str, Line] = {}
    for event in events:
        text = mask.text(journal_line(event).decode())
        names = (*event.data, "message") if event.message else tuple(event.data)
        lines.setdefault(event.kind, Line(event.kind, names, text))
    return lines
