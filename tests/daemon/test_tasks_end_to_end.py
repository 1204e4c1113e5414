"""Two tasks, two real sessions, and a daemon that dies between their words: nothing is lost, nothing comes twice.

The sessions are real edges, each started in the folder of its task as a host does; the daemon is the real one, ended
with SIGKILL. What is asserted is what people can see afterwards: the mailboxes, the ledgers, the journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from harken.testing import CallFailed, EdgeClient, edge_command
from tests.loss.rig import Chance, Json, Served, Wire, error_of, export, stubborn, texts, until
from tests.workspaces.repos import repository

SAY = "INSERT INTO mailboxes"
GIVE = "INSERT INTO deliveries"
SEE = "UPDATE deliveries SET state = 'seen'"
MAKE = "INSERT INTO tasks"
END = "UPDATE tasks SET done_at"


@dataclass(frozen=True, slots=True)
class Office:
    """A daemon with two tasks that are peers, and a session in the folder of each."""

    daemon: Served
    root: Path
    api: EdgeClient
    web: EdgeClient

    def presence(self, task: str) -> str:
        """Return what the sessions of a task do, asked of whichever daemon runs."""
        return str(stubborn(self.daemon, "task_show", task=task)["presence"])

    def wait_in(self, agent: EdgeClient, task: str) -> int:
        """Let a session wait for messages; return its request when it does."""
        request = agent.ask_tool("wait_for_inbound_message", timeout_s=55)
        until(lambda: self.presence(task) == "waiting", f"{task} waits")
        return request

    def restart(self, **order: object) -> None:
        """Kill the daemon and start another; return when both sessions are back."""
        self.daemon.kill()
        self.daemon.start(**order)
        until(lambda: {self.presence("api"), self.presence("web")}.isdisjoint({"gone"}), "both are back")

    def mail(self, task: str) -> list[str]:
        """Return everything that was ever said to a task."""
        return texts(export(self.daemon, f"task:{task}"))

    def ledger(self, task: str) -> list[tuple[str, str]]:
        """Return each text in the mailbox of a task with how far it got there."""
        told = []
        for message in export(self.daemon, f"task:{task}"):
            ledger = self.daemon.call("read", ref=message["id"])["ledger"]
            states = [str(line["state"]) for line in ledger if line["consumer"] == f"task:{task}"]
            told += [(str(message["content_text_sanitized"]), state) for state in states]
        return told


def make_task(daemon: Served, root: Path, name: str, *links: str, prompt: str = "") -> Json:
    """Make a task in a folder of its own, through daemons that die."""
    (root / name).mkdir(exist_ok=True)
    return stubborn(
        daemon, "task_new", title=name, id=name, dir=str(root / name), links=list(links), prompt=prompt
    )  # fmt: skip


def agent_in(folder: Path, home: Path, name: str = "loss-agent") -> EdgeClient:
    """Start an edge in a folder, as a host does that was started there; it leaves starting daemons to the test."""
    command = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "host", str(folder), *edge_command(home)]
    return EdgeClient([*command, "--spawn", "/bin/true"], name=name)


@pytest.fixture
def office(daemon: Served, tmp_path: Path) -> Iterator[Office]:
    """Both at work."""
    daemon.start()
    make_task(daemon, tmp_path, "api")
    make_task(daemon, tmp_path, "web", "api")
    with ExitStack() as agents:
        api = agents.enter_context(agent_in(tmp_path / "api", daemon.home, "backend"))
        web = agents.enter_context(agent_in(tmp_path / "web", daemon.home, "frontend"))
        for agent in (api, web):
            assert agent.tool("inbox_status") == {"pending": 0}
        yield Office(daemon, tmp_path, api, web)


def bodies(records: Json) -> list[str]:
    """Return the texts of what `check_inbox` gave; a repeat is marked, because it may have been read."""
    return [record["body"] + (" (again)" if record.get("repeat") else "") for record in records]


def test_two_tasks_talk_through_a_crash_and_the_ledger_tells_it_all(office: Office) -> None:
    """The story of the issue: both ways, one in a long tool and one silent, and the daemon killed in between."""
    request = office.wait_in(office.web, "web")
    sent = office.api.tool("send_to_peer", body="The contract is v2 now.")
    assert (sent["task"], sent["forecast"]["outlook"]) == ("web", "now")
    (given,) = office.web.result(request)
    assert given["message_id"] == sent["id"]

    quiet = office.web.tool("send_to_peer", body="Which port?")
    assert quiet["forecast"]["outlook"] == "next_call"
    request = office.wait_in(office.web, "web")
    office.restart()
    until(lambda: office.presence("web") == "waiting", "the long tool goes on under the new daemon")

    assert bodies(office.api.tool("check_inbox")) == ["Which port?"]
    answered = office.api.tool("reply", message_id=quiet["id"], body="8080")
    (given,) = office.web.result(request)
    reply = office.daemon.call("read", ref=given["message_id"])["message"]
    assert (reply["refers_to"], reply["sender_id"]) == (quiet["id"], "task:api")
    assert office.api.tool("check_inbox") == []
    assert office.web.tool("check_inbox") == []

    assert answered["message_id"] == quiet["id"]
    assert office.ledger("web") == [("The contract is v2 now.", "seen"), ("8080", "seen")]
    assert office.ledger("api") == [("Which port?", "answered")]
    for name in ("api", "web"):
        shown = office.daemon.call("task_show", task=name)
        assert (shown["state"], shown["pending"], len(shown["sessions"])) == ("running", 0, 1)


def test_a_task_is_shown_with_every_documented_field(office: Office) -> None:
    """Scripts and the page rely on them: what `new`, `list` and `show` say is one shape."""
    # That its first session came is noted beside answering it.
    until(lambda: office.daemon.call("task_show", task="web")["started_at"], "the task has not started")
    shown = office.daemon.call("task_show", task="web")
    assert set(shown) == {
        "id", "title", "dir", "branch", "repo", "agent", "has_worktree", "state", "presence", "pending", "peers",
        "mailbox", "machine", "created_at", "started_at", "done_at", "sessions", "hosted",
    }  # fmt: skip
    assert (shown["id"], shown["mailbox"], shown["peers"], shown["state"]) == ("web", "task:web", ["api"], "running")
    assert (shown["dir"], shown["done_at"]) == (str(office.root / "web"), None)
    assert shown["created_at"] <= shown["started_at"]
    (session,) = shown["sessions"]
    assert (session["consumer"], session["client"], session["cwd"]) == ("task:web", "frontend", shown["dir"])
    listed = office.daemon.call("task_list")["tasks"]
    assert [set(task) for task in listed] == [set(shown), set(shown)]
    assert office.daemon.call("task_id", title="Web") == {"id": "web-2"}


def test_what_waits_for_a_silent_task_survives_every_restart(office: Office) -> None:
    """A queued message is in the store and nowhere else."""
    for number in range(3):
        office.web.tool("send_to_peer", body=f"to api {number}")
        office.daemon.call("send_to_task", task_id="api", body=f"from the owner {number}")
        office.restart()
        assert office.api.tool("inbox_status") == {"pending": 2 * number + 2}
    said = [f"{who} {number}" for number in range(3) for who in ("to api", "from the owner")]
    assert bodies(office.api.tool("check_inbox")) == said
    assert office.api.tool("check_inbox") == []
    assert office.mail("api") == said


def test_what_was_handed_over_before_a_crash_is_proven_after_it(office: Office) -> None:
    """The model has read it; the daemon that knew is gone, and still it is not given again."""
    office.web.tool("send_to_peer", body="hello")
    assert bodies(office.api.tool("check_inbox")) == ["hello"]
    office.restart()
    assert office.api.tool("check_inbox") == []
    assert office.ledger("api") == [("hello", "seen")]


def test_a_message_said_while_there_is_no_daemon_is_said_when_there_is_one(office: Office) -> None:
    """The agent's call is held by its edge; the agent need not know."""
    office.daemon.kill()
    request = office.api.ask_tool("send_to_peer", body="hello")
    office.daemon.start()
    assert office.api.result(request)["task"] == "web"
    assert bodies(office.web.tool("check_inbox")) == ["hello"]
    assert office.mail("web") == ["hello"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("tool", ["send_to_peer", "send_to_task"])
def test_a_message_whose_answer_was_cut_off_is_stored_once(office: Office, tool: str, side: str) -> None:
    """Whether it was stored when the daemon died or not: the edge asks again, and the other task gets one message."""
    office.daemon.start(side=side, holding=SAY)
    named = {"task_id": "web"} if tool == "send_to_task" else {}
    request = office.api.ask_tool(tool, body="hello", **named)
    assert office.daemon.is_gone(20)
    office.daemon.start()
    answer = office.api.result(request)
    (message,) = export(office.daemon, "task:web")
    assert answer["id"] == message["id"]
    assert bodies(office.web.tool("check_inbox")) == ["hello"]
    assert office.web.tool("check_inbox") == []


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("statement", [GIVE, SEE])
def test_mail_whose_answer_was_cut_off_comes_with_the_same_call(office: Office, statement: str, side: str) -> None:
    """Offered or proven, and the daemon died: what the agent did not get comes, what it got does not come again."""
    office.daemon.call("send_to_task", task_id="api", body="one")
    if statement == SEE:
        assert bodies(office.api.tool("check_inbox")) == ["one"]
        office.daemon.call("send_to_task", task_id="api", body="two")
    office.restart(side=side, holding=statement)
    request = office.api.ask_tool("check_inbox")
    assert office.daemon.is_gone(20)
    office.daemon.start()
    (record,) = office.api.result(request)
    assert record["body"] == ("two" if statement == SEE else "one")
    assert office.api.tool("check_inbox") == []
    assert {state for _, state in office.ledger("api")} == {"seen"}


def test_a_storm_of_kills_loses_and_doubles_nothing(office: Office) -> None:
    """Both talk and read at once while daemons die at any moment, and every word arrives once."""
    chance, rounds = Chance(7), 12
    got: dict[str, list[str]] = {"api": [], "web": []}
    agents = (("api", office.api), ("web", office.web))
    for number in range(rounds):
        sends = [(agent, agent.ask_tool("send_to_peer", body=f"{name} {number}")) for name, agent in agents]
        checks = [(name, agent, agent.ask_tool("check_inbox")) for name, agent in agents]
        office.daemon.is_gone(chance.uniform(0, 0.02))
        office.daemon.kill()
        office.daemon.start()
        for agent, request in sends:
            assert agent.result(request)["id"]
        for name, agent, request in checks:
            got[name] += [record["body"] for record in agent.result(request)]
    for name, agent in agents:
        got[name] += [record["body"] for record in agent.tool("check_inbox")]
        assert agent.tool("check_inbox") == []
    for name, other in (("api", "web"), ("web", "api")):
        said = [f"{other} {number}" for number in range(rounds)]
        assert sorted(office.mail(name)) == sorted(said)
        assert sorted(got[name]) == sorted(said)
        assert {state for _, state in office.ledger(name)} == {"seen"}


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_task_that_is_made_while_the_daemon_dies_is_made_once_with_its_prompt(
    daemon: Served, tmp_path: Path, side: str, at: int
) -> None:
    """The task is one commit and its prompt another: whoever asks again gets both, once."""
    (tmp_path / "api").mkdir()
    asked = {"title": "API", "id": "api", "dir": str(tmp_path / "api"), "prompt": "Begin."}
    daemon.start(side=side, holding=MAKE if at == 1 else SAY)
    with suppress(ConnectionError):
        daemon.call("task_new", **asked)
    assert daemon.is_gone(20)
    daemon.start()
    assert stubborn(daemon, "task_new", **asked)["id"] == "api"
    assert texts(export(daemon, "task:api")) == ["Begin."]
    assert [task["id"] for task in daemon.call("task_list", all=True)["tasks"]] == ["api"]


def test_tasks_that_are_made_at_once_keep_what_is_theirs(daemon: Served, tmp_path: Path) -> None:
    """A button that is pressed twice: the one that comes too late takes nothing of the other back."""
    repo = repository(tmp_path / "shop")
    running = daemon.start()
    made: set[str] = set()
    with ExitStack() as open_callers:
        callers = [open_callers.enter_context(running.caller()) for _ in range(4)]
        for number in range(8):  # which of them come too late is up to git
            for caller in callers:
                caller.ask("task_make", title=f"Fix number {number}", folder=str(repo))
            for caller in callers:
                with suppress(CallFailed):
                    made.add(caller.answer()["id"])
    listed = {each["id"]: Path(each["dir"]) for each in running.call("task_list")["tasks"]}
    assert made
    assert made == set(listed)
    assert all((folder / ".git").is_file() for folder in listed.values())


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_task_that_ends_while_the_daemon_dies_ends_whole(office: Office, side: str) -> None:
    """Either it is done and its mail refused, or nothing happened; asked again it is done."""
    office.daemon.call("send_to_task", task_id="api", body="hello")
    office.daemon.start(side=side, holding=END)
    with suppress(ConnectionError):
        office.daemon.call("task_done", task="api")
    assert office.daemon.is_gone(20)
    office.daemon.start()
    state = office.daemon.call("task_show", task="api")["state"]
    assert (state == "done") == (side == "after")
    assert office.ledger("api") == [("hello", "refused" if side == "after" else "queued")]
    assert stubborn(office.daemon, "task_done", task="api")["state"] == "done"
    assert office.ledger("api") == [("hello", "refused")]


def test_the_next_session_goes_on_where_the_last_one_stopped(office: Office) -> None:
    """Another program in the same folder: what was seen is not repeated, what came meanwhile is there."""
    office.web.tool("send_to_peer", body="one")
    assert bodies(office.api.tool("check_inbox")) == ["one"]
    assert office.api.tool("inbox_status") == {"pending": 0}
    office.api.close()
    until(lambda: office.presence("api") == "gone", "the session is gone")
    assert office.daemon.call("task_show", task="api")["state"] == "ended"
    sent = office.web.tool("send_to_peer", body="two")
    assert sent["forecast"]["outlook"] == "next_session"
    office.daemon.kill()
    office.daemon.start()
    with agent_in(office.root / "api", office.daemon.home, "another-host") as successor:
        assert bodies(successor.tool("check_inbox")) == ["two"]
        assert successor.tool("check_inbox") == []


def test_after_done_everything_is_refused_and_says_so(office: Office) -> None:
    """To the peer, to the person, and for what was on its way."""
    office.web.tool("send_to_peer", body="unread")
    assert office.daemon.call("task_done", task="api")["refused"] == 1
    for said in (
        office.web.tool("send_to_task", task_id="api", body="x"),
        error_of(office.daemon, "send_to_task", task_id="api", body="x"),
        error_of(office.daemon, "send", text="x", to="task:api"),
    ):
        assert said["code"] == "refused"
        assert "done" in said["message"]
    assert office.ledger("api") == [("unread", "refused")]
    office.daemon.start()
    assert office.daemon.call("task_list")["tasks"][0]["id"] == "web"
    assert office.daemon.call("task_rm", task="api") == {"id": "api"}
    assert error_of(office.daemon, "send_to_task", task_id="api", body="x")["code"] == "not_found"
    assert office.mail("api") == ["unread"]


def test_the_journal_has_a_line_for_everything_without_gaps(office: Office) -> None:
    """What the page shows live is what is written there, also across a crash."""
    office.web.tool("send_to_peer", body="hello")
    office.restart()
    office.api.tool("check_inbox")
    office.api.tool("inbox_status")
    office.daemon.call("task_done", task="web")
    files = sorted((office.daemon.home / "journal").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    changes = [(line["task"], line["change"]) for line in lines if line["kind"] == "task"]
    for change in (("api", "created"), ("web", "created"), ("api", "started"), ("web", "started"), ("web", "done")):
        assert changes.count(change) == 1
    kinds = [line["kind"] for line in lines]
    assert kinds.index("received") < kinds.index("offered") < kinds.index("seen")


ODD = pytest.mark.parametrize("path", ["/w/\0", "/w/../\0/x", "/" + "x/" * 3000, "/w/a\nb\x1b[31m\u202e"], ids=ascii)


@ODD
def test_a_hostile_path_of_a_caller_is_no_task_and_no_accident(office: Office, path: str) -> None:
    """Whatever is said to be a folder: the caller is answered what it can do, and the daemon goes on."""
    asked = {"check_inbox": {}, "inbox_status": {}, "send_to_peer": {"body": "hello"}}
    said = [error_of(office.daemon, verb, cwd=path, **more) for verb, more in asked.items()]
    assert [(each["code"], bool(each["hint"])) for each in said] == [("user_error", True)] * 3
    assert office.api.tool("inbox_status") == {"pending": 0}


@pytest.mark.parametrize("path", ["/w/\0", "/w/../\0/x"], ids=ascii)
def test_a_folder_that_cannot_be_is_refused(office: Office, path: str) -> None:
    """No program can be in it."""
    said = error_of(office.daemon, "task_new", title="Odd", dir=path)
    assert (said["code"], bool(said["hint"])) == ("user_error", True)
    assert [task["id"] for task in office.daemon.call("task_list", all=True)["tasks"]] == ["api", "web"]


@ODD
def test_a_session_with_a_hostile_path_is_served_as_one_in_no_task(office: Office, path: str) -> None:
    """What an edge says about its folder is not to be trusted more than anything else."""
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "odd", "version": "1"}}
    with Wire(office.daemon.socket, {"harken": 1, "kind": "mcp", "edge": "odd", "cwd": path}) as wire:
        wire.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info})
        assert json.loads(wire.line())["result"]["serverInfo"]["name"] == "harken"
        wire.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "inbox_pull", "arguments": {}}
        wire.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        answer = json.loads(wire.line())
        assert (answer["id"], answer["result"]["isError"]) == (2, False)
    assert office.api.tool("inbox_status") == {"pending": 0}
