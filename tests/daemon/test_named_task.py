"""A task for programs that are not started in its folder: `harken mcp --task ID`, or HARKEN_TASK in the environment.

The edges and hooks are the real scripts, the daemon is the real one, and the processes descend as those of agents do.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient, edge_command
from tests.daemon.test_tasks_hooks import make_task, say
from tests.hooks.rig import CLAUDE, CODEX, DaemonFixture, Kind, run_hook
from tests.loss.rig import Json, Served, until
from tests.mcp.rig import RawEdge

Begin: TypeAlias = Callable[..., EdgeClient]
TOOLS: Final[Sequence[tuple[str, dict[str, object]]]] = (
    ("check_inbox", {}),
    ("inbox_status", {}),
    ("send_to_peer", {"body": "hello"}),
    ("inbox_pull", {}),
    ("wait_for_inbound_message", {"timeout_s": 50}),
    ("inbound_queue_stats", {}),
    ("inbox_search", {"query": "everyone"}),
    ("channels", {"action": "unread"}),
)
SOON = 15.0  # seconds, much less than it would have waited
HOST = 'cd "$1" && shift && "$@"; exit $?'  # a shell that stays, as the parent of what it runs


@pytest.fixture
def rig(daemon: Served) -> DaemonFixture:
    """A daemon that runs."""
    return DaemonFixture(daemon.start())


@pytest.fixture
def begin(rig: DaemonFixture) -> Iterator[Begin]:
    """Start edges, each with a parent of its own, the agent's program."""
    with ExitStack() as open_agents:

        def start(*options: str, folder: Path | str = "/", name: str = "desktop-app", variable: str = "") -> EdgeClient:
            edge = [*edge_command(rig.daemon.home), "--spawn", "/bin/true", *options]
            environment = {"HARKEN_TASK": variable} if variable else {}
            agent = EdgeClient(["/bin/sh", "-c", HOST, "host", str(folder), *edge], name=name, environment=environment)
            open_agents.callback(agent.close)
            return agent

        yield start


def entered(agent: EdgeClient) -> EdgeClient:
    """Do the handshake."""
    agent.handshake()
    return agent


def error(agent: EdgeClient, tool: str, **arguments: object) -> Json:
    """Return the error that a tool answers with."""
    result = agent.answer(agent.ask_tool(tool, **arguments))["result"]
    assert result["isError"] is True, result
    return json.loads(result["content"][0]["text"])


def bodies(agent: EdgeClient) -> Sequence[str]:
    """Take the mail of the agent's task."""
    return [record["body"] for record in agent.tool("check_inbox")]


def problem(rig: DaemonFixture) -> str:
    """Return what `status` says is wrong with the only session."""
    (session,) = rig.sessions()
    assert session["mailboxes"] == []
    return str(session["problem"])


@pytest.mark.parametrize("prefix", ["", "task:"])
@pytest.mark.parametrize("is_variable", [False, True])
def test_a_program_that_runs_elsewhere_is_the_task_that_it_was_started_for(
    rig: DaemonFixture, tmp_path: Path, begin: Begin, prefix: str, *, is_variable: bool
) -> None:
    """A desktop app has no folder, a client over ssh another one: it reads and speaks as if it were in the task's."""
    make_task(rig, tmp_path / "web")
    make_task(rig, tmp_path / "api", "web", prompt="Begin.")
    rig.send("for everyone")
    name = f"{prefix}api"
    agent = entered(begin(variable=name) if is_variable else begin("--task", name))
    assert agent.tool("inbox_status") == {"pending": 1}
    assert bodies(agent) == ["Begin."]
    assert agent.tool("inbox_pull")["messages"] == []
    shown = agent.tool("channels", action="list")["messages"]
    assert [each["mailbox"] for each in shown] in ([], ["task:api"]), "what others announce is not for a task"
    sent = agent.tool("send_to_peer", body="v2 is ready")
    message = rig.daemon.call("read", ref=sent["id"])["message"]
    assert (message["sender_id"], message["mailbox"]) == ("task:api", "task:web")
    (session,) = rig.daemon.call("task_show", task="api")["sessions"]
    assert (session["consumer"], session["mailboxes"], session["problem"]) == ("task:api", ["task:api"], "")
    assert error(agent, "check_inbox", task_id="web")["code"] == "refused"


def test_the_option_counts_before_the_environment(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """As everywhere else on the command line."""
    make_task(rig, tmp_path / "api", prompt="Begin.")
    assert bodies(entered(begin("--task", "api", variable="web"))) == ["Begin."]


def test_in_its_own_folder_the_name_changes_nothing(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """Settings that are shared by several programs may name it everywhere."""
    make_task(rig, tmp_path / "api", prompt="Begin.")
    assert bodies(entered(begin("--task", "api", folder=tmp_path / "api"))) == ["Begin."]


def test_a_task_that_is_not_there_is_an_error_of_every_call(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """An empty inbox would look as if nobody wrote, and the person's inbox is not what was asked for."""
    make_task(rig, tmp_path / "api")
    rig.send("for everyone")
    agent = entered(begin("--task", "apj"))
    for tool, arguments in TOOLS:
        said = error(agent, tool, **arguments)
        assert (said["code"], "'apj'" in said["message"]) == ("not_found", True)
        assert "HARKEN_TASK" in said["hint"]
        assert "api" in said["hint"]
        resource = agent.request("resources/read", {"uri": "harken://inbox"})
        assert "'apj'" in resource["error"]["message"]
        assert "There is no task 'apj'" in problem(rig)


def test_a_task_that_is_made_later_is_found(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """The app was open before: nobody should have to restart it."""
    agent = entered(begin("--task", "api"))
    assert error(agent, "check_inbox")["code"] == "not_found"
    make_task(rig, tmp_path / "api", prompt="Begin.")
    assert bodies(agent) == ["Begin."]


def test_when_the_task_is_done_its_session_is_told_and_reads_nothing_else(
    rig: DaemonFixture, tmp_path: Path, begin: Begin
) -> None:
    """In the task's folder a session goes back to the inbox; one that was started for the task has no other place."""
    make_task(rig, tmp_path / "api")
    agent = entered(begin("--task", "api"))
    assert bodies(agent) == []
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until(lambda: [each["presence"] for each in rig.sessions()] == ["waiting"], "it waits")
    rig.daemon.call("task_done", task="api")
    assert agent.result(waiting, SOON)["code"] == "refused"
    rig.send("for everyone")
    said = error(agent, "inbox_pull")
    assert (said["code"], "'api'" in said["message"], "done" in said["message"]) == ("refused", True, True)
    assert "is done" in problem(rig)
    rig.daemon.call("task_rm", task="api")
    assert error(agent, "inbox_pull")["code"] == "not_found"


def test_after_a_restart_of_the_daemon_it_is_the_same_task(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """The edge says it again to every daemon."""
    make_task(rig, tmp_path / "api")
    agent = entered(begin("--task", "api"))
    assert bodies(agent) == []
    rig.daemon.kill()
    rig.daemon.start()
    say(rig, "api", "hello")
    assert bodies(agent) == ["hello"]


# -- who may say it ------------------------------------------------------------------------------------------------


def test_in_the_folder_of_another_task_it_is_refused(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """An agent can write the settings in its own folder: it would name the task whose mail it wants."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    make_task(rig, tmp_path / "web", prompt="for web only")
    agent = entered(begin("--task", "api", folder=tmp_path / "web"))
    for tool, arguments in TOOLS:
        said = error(agent, tool, **arguments)
        assert (said["code"], "'web'" in said["message"], "'api'" in said["message"]) == ("refused", True, True)
    assert "folder of task 'web'" in problem(rig)
    assert rig.daemon.call("inbox_status", task_id="api") == {"pending": 1}


def test_a_task_that_is_made_around_it_ends_its_reading(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """From then on it is a program in another task's folder, as if it had been started there."""
    make_task(rig, tmp_path / "api")
    folder = tmp_path / "web"
    folder.mkdir()
    agent = entered(begin("--task", "api", folder=folder))
    assert bodies(agent) == []
    make_task(rig, folder)
    assert error(agent, "check_inbox")["code"] == "refused"
    rig.daemon.call("task_done", task="web")
    assert bodies(agent) == []


@pytest.mark.parametrize("name", ["script", "claude-code"])
@pytest.mark.parametrize("above", ["claude-code", "editor"])
def test_what_the_agent_of_a_task_starts_cannot_be_another_task(
    rig: DaemonFixture, tmp_path: Path, begin: Begin, above: str, name: str
) -> None:
    """Its shell can go to any folder and call itself anything; whose process it is stays the same."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    make_task(rig, tmp_path / "web")
    agent = begin("--task", "api", name=name)
    with RawEdge(rig.daemon, above, ppid=agent.pid, cwd=str(tmp_path / "web")) as host:
        assert host.tool(1, "check_inbox") == []
        agent.handshake()
        assert error(agent, "check_inbox")["code"] == "refused"
    assert rig.daemon.call("inbox_status", task_id="api") == {"pending": 1}


def test_one_app_can_have_a_server_for_each_of_two_tasks(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """The person has written both into its settings."""
    for name in ("api", "web"):
        make_task(rig, tmp_path / name, prompt=f"for {name} only")
    agent = begin("--task", "api")
    with RawEdge(rig.daemon, "desktop-app", ppid=agent.pid, cwd="/", task="web") as other:
        assert [record["body"] for record in other.tool(1, "check_inbox")] == ["for web only"]
        assert bodies(entered(agent)) == ["for api only"]


def test_what_the_agent_of_a_task_starts_can_be_that_task(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """It has this mail anyway."""
    make_task(rig, tmp_path / "api")
    agent = begin("--task", "api", name="script")
    rig.session(CLAUDE, pid=agent.pid, cwd=str(tmp_path / "api")).prompt()
    agent.handshake()
    say(rig, "api", "hello")
    assert bodies(agent) == ["hello"]


def test_a_script_in_the_shell_of_any_agent_cannot_be_a_task(rig: DaemonFixture, tmp_path: Path, begin: Begin) -> None:
    """To name a task is for the person: an agent of the inbox is not asked for it either."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    agent = begin("--task", "api", name="script")
    rig.session(CLAUDE, pid=agent.pid).prompt()
    agent.handshake()
    said = error(agent, "check_inbox")
    assert (said["code"], "'claude-code'" in said["message"]) == ("refused", True)
    assert rig.daemon.call("inbox_status", task_id="api") == {"pending": 1}


# -- hosts with hooks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_hook_first", [True, False])
def test_the_hooks_of_a_host_follow_the_edge_that_was_started_for_a_task(
    rig: DaemonFixture, tmp_path: Path, begin: Begin, *, is_hook_first: bool
) -> None:
    """It is one conversation: what it is told between its tools and what it asks for must not be two mailboxes."""
    make_task(rig, tmp_path / "api")
    agent = begin("--task", "api", name="claude-code")
    guest = rig.session(CLAUDE, pid=agent.pid)
    if is_hook_first:
        guest.prompt()
    agent.handshake()
    assert bodies(agent) == []
    if not is_hook_first:
        guest.prompt()
    rig.send("for everyone")
    say(rig, "api", "for the task")
    assert ("for the task" in (text := guest.tool()), "for everyone" in text) == (True, False)
    (session,) = rig.sessions()
    assert (session["session"], session["consumer"]) == (guest.key, "task:api")


def test_hooks_that_run_in_another_tasks_folder_end_the_reading_of_the_edge(
    rig: DaemonFixture, tmp_path: Path, begin: Begin
) -> None:
    """A host may start its servers elsewhere: where the agent works is what its hooks say."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    make_task(rig, tmp_path / "web")
    agent = entered(begin("--task", "api", name="claude-code"))
    assert bodies(agent) == ["for api only"]
    rig.session(CLAUDE, pid=agent.pid, cwd=str(tmp_path / "web")).prompt()
    assert error(agent, "check_inbox")["code"] == "refused"
    assert rig.daemon.call("inbox_status", task_id="api") == {"pending": 1}


@pytest.mark.parametrize("kind", [CLAUDE, CODEX], ids=lambda kind: kind.name)
def test_hooks_know_the_task_from_the_environment_before_any_edge(
    rig: DaemonFixture, tmp_path: Path, kind: Kind
) -> None:
    """The first prompt often comes before the servers of a host are up."""
    make_task(rig, tmp_path / "api", prompt="Begin.")
    rig.send("for everyone")
    guest = rig.session(kind)
    payload, env = guest.payload(HookMoment.PROMPT, prompt="go on"), {**guest.env, "HARKEN_TASK": "api"}
    text = run_hook(rig.daemon.home, kind.name, "prompt", payload, env=env).text
    assert ("Begin." in text, "for everyone" in text) == (True, False)
    (session,) = rig.sessions()
    assert session["consumer"] == "task:api"


def test_hooks_in_the_folder_of_another_task_say_nothing(rig: DaemonFixture, tmp_path: Path) -> None:
    """Of neither: what the person has named cannot be, and nobody can say which of the two was meant."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    make_task(rig, tmp_path / "web", prompt="for web only")
    guest = rig.session(CLAUDE, cwd=str(tmp_path / "web"))
    payload, env = guest.payload(HookMoment.PROMPT, prompt="go on"), {**guest.env, "HARKEN_TASK": "api"}
    assert run_hook(rig.daemon.home, "claude-code", "prompt", payload, env=env).text == ""
    assert "folder of task 'web'" in problem(rig)


@pytest.mark.parametrize("moment", ["prompt", "wake"])
def test_a_hook_cannot_say_by_itself_that_the_person_has_named_a_task(
    rig: DaemonFixture, tmp_path: Path, moment: str
) -> None:
    """Only what the daemon finds out about its process counts."""
    make_task(rig, tmp_path / "api", prompt="for api only")
    guest = rig.session(CLAUDE)
    payload = guest.payload(HookMoment.PROMPT, prompt="go on") if moment == "prompt" else b""
    hello = {"harken": 1, "kind": "hook", "host": "claude-code", "moment": "prompt", "payload": len(payload)}
    if moment == "wake":
        hello = {"harken": 1, "kind": "wake", "host": "copilot-cli", "native": "s-1"}
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(20)
        stream.connect(rig.daemon.socket)
        stream.sendall(json.dumps({**hello, "env": guest.env, "task": "api"}).encode() + b"\n" + payload)
        until(rig.sessions, "the session is here")
        (session,) = rig.sessions()
        assert not session["consumer"].startswith("task:")


def test_a_shared_connection_is_of_its_task_whatever_conversation_speaks(
    rig: DaemonFixture, tmp_path: Path, begin: Begin
) -> None:
    """Codex names the conversation with each call: none of them may fall back to the inbox."""
    make_task(rig, tmp_path / "api")
    agent = entered(begin("--task", "api", name="codex-mcp-client"))
    rig.send("for everyone")
    for number in range(2):
        say(rig, "api", f"hello {number}")
        assert pulled(agent, f"thread-{number}") == [f"hello {number}"]


def test_two_edges_for_two_tasks_are_two_sessions_whatever_conversation_they_name(
    rig: DaemonFixture, tmp_path: Path, begin: Begin
) -> None:
    """A copied setting may name the same conversation: neither may take the other's mail, or change what it reads."""
    for name in ("api", "web"):
        make_task(rig, tmp_path / name)
    agents = {name: entered(begin("--task", name, name="codex-mcp-client")) for name in ("api", "web")}
    for round_number in range(2):
        for name in agents:
            say(rig, name, f"{name} {round_number}")
        assert {name: pulled(agent, "thread-1") for name, agent in agents.items()} == {
            name: [f"{name} {round_number}"] for name in agents
        }


def test_two_edges_of_one_process_for_two_tasks_are_two_sessions(rig: DaemonFixture, tmp_path: Path) -> None:
    """The same for a host whose session is its process."""
    for name in ("api", "web"):
        make_task(rig, tmp_path / name, prompt=f"for {name} only")
    with (
        RawEdge(rig.daemon, "claude-code", ppid=7, cwd="/", task="api") as one,
        RawEdge(rig.daemon, "claude-code", ppid=7, cwd="/", task="web") as other,
    ):
        for name, edge in (("api", one), ("web", other)):
            assert [record["body"] for record in edge.tool(1, "check_inbox")] == [f"for {name} only"]


def pulled(agent: EdgeClient, thread: str) -> Sequence[str]:
    """Take what waits, in a conversation that the call names."""
    asked = agent.ask("tools/call", {"name": "inbox_pull", "arguments": {}, "_meta": {"threadId": thread}})
    return [message["content_text_sanitized"] for message in agent.result(asked)["messages"]]
