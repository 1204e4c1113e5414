"""Codex without Codex: what its payloads mean, what its files become, and how a wake fares when the other side fails.

The real program is in `tests/hosts`; here are the cases that it cannot be brought to on demand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, unix_serve

from harken.errors import Unavailable
from harken.hosts.codex import connect
from harken.hosts.codex.appserver import AppServer
from harken.hosts.codex.connect import CONNECTOR, answers_alone
from harken.hosts.codex.hooks import EVENTS, HOOKS
from harken.hosts.codex.wake import CodexWaker
from harken.hosts.connect.plan import ConnectOptions, FileEdit, InstallTarget
from harken.hosts.wake import WakeTarget
from harken.sessions.turns import HookMoment

THREAD = "01a1e18a-c955-7e12-9fb9-d960656c7cb4"
CONFIG, HOOKS_FILE = Path("config.toml"), Path("/home/ann/.codex/hooks.json")
PLACE = InstallTarget(
    user=Path("/home/ann"),
    environ={},
    project=None,
    harken=Path("/home/ann/.harken"),
    python="/opt/harken/bin/python",
    edge=Path("/opt/harken/lib/harken/edge"),
)
OTHERS = {"hooks": [{"type": "command", "command": "say done", "timeout": 5}]}


def test_what_holds_up_an_end_fits_in_any_script() -> None:
    """Codex cuts it at 2,500 tokens of four bytes each, in the middle, and a character may take four bytes."""
    assert HOOKS.most_chars[HookMoment.STOP] * 4 <= 2_500 * 4


STARTS: Mapping[str, tuple[bytes | None, bytes | None]] = {
    "no files": (None, None),
    "own settings": (
        b'# mine\nmodel = "gpt-5.5" # good\n\n[tui]\ntheme = "dark"\n',
        json.dumps({"hooks": {}}).encode(),
    ),
    "own hooks": (
        b'[hooks.state."/home/ann/.codex/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n',
        json.dumps({"hooks": {"Stop": [OTHERS], "PreToolUse": [OTHERS]}}, indent=4).encode(),
    ),
    "windows line ends": (b'model = "gpt-5.5"\r\n', b'{\r\n  "hooks": {}\r\n}\r\n'),
}


def connected(
    config: bytes | None, hooks: bytes | None, place: InstallTarget = PLACE
) -> tuple[bytes | None, bytes | None]:
    """Return both files with everything of ours in them."""
    hooks = connect.with_hooks(hooks, place, file=HOOKS_FILE)
    hashes = {where: f"sha256:{index}" for index, where in enumerate(connect.places(hooks, file=HOOKS_FILE))}
    config = connect.with_server(config, place, file=CONFIG)
    return connect.with_trust(config, HOOKS_FILE, hashes, file=CONFIG), hooks


def disconnected(config: bytes | None, hooks: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return both files without anything of ours."""
    config = connect.without_trust(config, HOOKS_FILE, hooks, file=CONFIG)
    return connect.without_server(config, file=CONFIG), connect.without_hooks(hooks, file=HOOKS_FILE)


@pytest.mark.parametrize("start", [name for name in STARTS if name != "no files"])
def test_entries_come_and_go_without_a_trace(start: str) -> None:
    """A file that a person wrote is theirs: every comment and space is there again when Harken is gone."""
    config, hooks = STARTS[start]
    config_after, hooks_after = disconnected(*connected(config, hooks))
    assert config_after == config
    assert hooks_after == hooks or not json.loads(hooks or b"{}").get("hooks")


SPACED = replace(PLACE, python="/my programs/python", edge=Path("/it's here/edge"), harken=Path("/my home/.harken"))


@pytest.mark.parametrize("place", [PLACE, SPACED], ids=["plain", "spaces"])
@pytest.mark.parametrize("start", list(STARTS))
def test_connecting_twice_changes_nothing(start: str, place: InstallTarget) -> None:
    """`connect` runs again with every upgrade: nobody is to be asked about what is current already."""
    once = connected(*STARTS[start], place)
    assert connected(*once, place) == once
    assert len(connect.places(once[1], file=HOOKS_FILE)) == len(EVENTS)


def test_server_is_written_as_codex_reads_it() -> None:
    """One wrong word here, and current models are not told that there is an inbox."""
    config, _ = connected(None, None)
    assert tomllib.loads((config or b"").decode())["mcp_servers"] == {
        "harken": {
            "command": "/opt/harken/bin/python",
            "args": ["-I", "-S", "/opt/harken/lib/harken/edge/mcp.py", "--home", "/home/ann/.harken"],
            "tool_timeout_sec": 90,
            "omit_tools_from": ["deferred"],
        }
    }


def test_what_a_person_decided_about_our_server_stays() -> None:
    """Somebody who let answers go out without being asked, or switched the server off, is not asked again."""
    config, _ = connected(None, None)
    own = (config or b"").replace(b"= 90", b"= 300")
    own = own.replace(b"omit_tools_from", b'tools.reply.approval_mode = "approve"\nenabled = false\nomit_tools_from')
    again = connect.with_server(own, replace(PLACE, python="/opt/new/python"), file=CONFIG)
    assert again == own.replace(b"/opt/harken/bin/python", b"/opt/new/python")


def test_hooks_of_others_keep_their_place() -> None:
    """Codex trusts a hook by its place in the file: one that moved would have to be trusted again."""
    _, hooks = connected(None, json.dumps({"hooks": {"Stop": [OTHERS]}}).encode())
    stops = json.loads(hooks or b"")["hooks"]["Stop"]
    assert (stops[0], len(stops)) == (OTHERS, 2)
    with_later = json.dumps({"hooks": {**json.loads(hooks or b"")["hooks"], "Stop": [*stops, OTHERS]}}).encode()
    _, moved = connected(None, with_later, replace(PLACE, python="/opt/new/python"))
    after = json.loads(moved or b"")["hooks"]["Stop"]
    assert (after[0], after[2], len(after)) == (OTHERS, OTHERS, 3)
    assert "/opt/new/python" in after[1]["hooks"][0]["command"]


def test_trust_in_later_hooks_goes_along_when_ours_go() -> None:
    """Somebody who added a hook after Harken's, and trusted it, is not asked about it again."""
    config, hooks = connected(None, None)
    value = json.loads(hooks or b"")
    value["hooks"]["Stop"].append(OTHERS)
    later = {"stop:1:0": "sha256:theirs"}
    config = connect.with_trust(config, HOOKS_FILE, later, file=CONFIG)
    config, hooks = disconnected(config, json.dumps(value).encode())
    assert json.loads(hooks or b"") == {"hooks": {"Stop": [OTHERS]}}
    state = {f"{HOOKS_FILE}:stop:0:0": {"trusted_hash": "sha256:theirs"}}
    assert tomllib.loads((config or b"").decode()) == {"hooks": {"state": state}}


def test_group_that_a_person_extended_is_not_ours() -> None:
    """Taking it out would take out what they put beside our hook."""
    _, hooks = connected(None, None)
    value = json.loads(hooks or b"")
    value["hooks"]["Stop"][0]["hooks"].append(OTHERS["hooks"][0])
    _, after = disconnected(None, json.dumps(value).encode())
    assert list(json.loads(after or b"")["hooks"]) == ["Stop"]


def test_hook_of_ours_that_tells_of_questions_is_none_that_answers_them() -> None:
    """Connecting would fail, and doctor warn, of what connecting wrote itself."""
    _, hooks = connected(None, None)
    assert "PermissionRequest" in json.loads(hooks or b"")["hooks"]
    assert answers_alone(hooks, Path("hooks.json")).is_good
    value = json.loads(hooks or b"")
    value["hooks"]["PermissionRequest"].append(OTHERS)
    found = answers_alone(json.dumps(value).encode(), Path("hooks.json"))
    assert not found.is_good
    assert "There is one in hooks.json" in found.hint


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets are made below it, and their paths are limited."""
    with TemporaryDirectory(prefix="harken-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def test_plan_without_codex_says_that_hooks_are_not_trusted(folder: Path) -> None:
    """A hook that is not trusted is skipped in silence: whoever connects has to know."""
    place = replace(PLACE, user=folder, environ={"PATH": str(folder)})
    plan = CONNECTOR.plan(place, ConnectOptions())
    changes = [step for step in plan.steps if isinstance(step, FileEdit)]
    assert [change.path.name for change in changes] == ["config.toml", "hooks.json", "AGENTS.md"]
    assert "review" in plan.notes[0]
    assert b"trusted_hash" not in (changes[0].after or b"")


QUEUE = """
import json, pathlib, sys
home = pathlib.Path(sys.argv[0]).parent
queue = home / "queue"
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    match asked["method"]:
        case "initialize":
            result = {"codexHome": str(home)}
        case "thread/queue/add" if TAKES != "refused":
            queue.write_text(params["input"][0]["text"] if TAKES != "taken" else "")
            result = {"queuedSubmission": {"id": "entry"}}
        case "thread/queue/list":
            print(json.dumps({"method": "warning", "params": {}}), flush=True)
            result = {"data": [{"id": "entry"}] if queue.read_text() else []}
        case "thread/queue/delete":
            queue.write_text("")
            result = {"deleted": TAKES != "late"}
        case _:
            if TAKES == "refused" and "id" in asked:
                print(json.dumps({"id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
            continue
    if asked["method"] == TAKES:
        break
    print(json.dumps({"id": asked["id"], "result": result}), flush=True)
"""


def codex_that(folder: Path, takes: str) -> WakeTarget:
    """Return a session of a program that stands in for Codex, in a home where no terminals share a server."""
    program = folder / "codex"
    program.write_text(f"#!{sys.executable} -I\nTAKES = {takes!r}\n{QUEUE}", encoding="utf-8")
    program.chmod(0o700)
    return WakeTarget(native=THREAD, env={"HOME": str(folder), "CODEX_HOME": str(folder), "PATH": str(folder)})


@pytest.mark.parametrize(("takes", "is_taken"), [("taken", True), ("never", False), ("late", True), ("refused", False)])
async def test_wake_is_what_became_of_the_queue(folder: Path, takes: str, *, is_taken: bool) -> None:
    """Accepted is not taken: after Esc a queue is not read, and a message left there would surprise somebody later."""
    assert await CodexWaker(take_seconds=1.0).wake(codex_that(folder, takes), "two messages wait") is is_taken
    assert not (folder / "queue").exists() or (folder / "queue").read_text() == ""


@pytest.mark.parametrize("last", ["thread/queue/add", "thread/queue/list"])
async def test_what_a_server_that_ended_may_have_queued_is_not_known(folder: Path, last: str) -> None:
    """The terminal reads the queue later. Taken for refused, the message would be told twice without a mark."""
    assert await CodexWaker(take_seconds=1.0).wake(codex_that(folder, last), "two messages wait") is None
    assert (folder / "queue").read_text() == "two messages wait"


async def test_wake_without_a_program_fails_quietly(folder: Path) -> None:
    """A Codex that was removed while its session is remembered must not stop the daemon."""
    target = WakeTarget(native=THREAD, env={"HOME": str(folder), "PATH": str(folder)})
    assert await CodexWaker(take_seconds=1.0).wake(target, "hello") is False


@dataclass
class Shared:
    """A stand-in for the app server that terminals share: one thread, and what it was asked."""

    status: str
    originator: str = "codex-tui"
    loaded: tuple[str, ...] = (THREAD,)
    ephemeral: str = ""  # the thread that Codex began for itself
    asked: list[Mapping[str, object]] = field(default_factory=list)

    def answer(self, connection: ServerConnection) -> None:
        """Answer one client until it goes."""
        try:
            for text in connection:
                request = json.loads(text)
                self.asked.append(request)
                if "id" in request:
                    name = request["params"].get("threadId", THREAD)
                    thread = {
                        "id": name, "status": {"type": self.status}, "originator": self.originator,
                        "ephemeral": name == self.ephemeral, "parentThreadId": None,
                    }  # fmt: skip
                    connection.send(json.dumps({"method": "warning", "params": {}}))
                    result = {"thread": thread, "data": list(self.loaded)}
                    connection.send(json.dumps({"id": request["id"], "result": result}))
        except ConnectionClosed:
            return


@pytest.mark.parametrize(("status", "starts"), [("idle", 1), ("active", 0), ("notLoaded", 0)])
async def test_shared_server_starts_the_turn_of_a_thread_that_idles_there(
    folder: Path, status: str, starts: int
) -> None:
    """It is at once, and works after Esc; a busy thread is left to its hooks, one that is not there to its queue."""
    (folder / "app-server-control").mkdir()
    shared = Shared(status)
    with unix_serve(shared.answer, str(folder / "app-server-control" / "app-server-control.sock")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            target = WakeTarget(native=THREAD, env={"HOME": str(folder), "CODEX_HOME": str(folder), "PATH": ""})
            is_woken = await CodexWaker(take_seconds=1.0).wake(target, "two messages wait")
        finally:
            server.shutdown()
            thread.join(5)
    turns = [request["params"] for request in shared.asked if request["method"] == "turn/start"]
    expected = {"threadId": THREAD, "input": [{"type": "text", "text": "two messages wait"}]}
    assert (is_woken, turns) == (bool(starts), [expected] * starts)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with some words in its command line."""
    program = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *words]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@dataclass
class Parting:
    """A channel to a server that answers its greeting, and is gone."""

    answered: bool = False

    async def send(self, text: str) -> None:
        """Take the first text only."""
        del text
        if self.answered:
            raise anyio.ClosedResourceError

    async def receive(self) -> str:
        """Answer it."""
        self.answered = True
        return '{"id": 1, "result": {}}'


async def test_server_that_hangs_up_while_it_is_greeted_is_unavailable() -> None:
    """Anything else would end the loop that asks it, or fail the sending of a message that is stored."""
    with pytest.raises(Unavailable):
        await AppServer(Parting()).greet()


@contextmanager
def serving(folder: Path, shared: Shared) -> Iterator[WakeTarget]:
    """A session in a home whose terminals share that server."""
    (folder / "app-server-control").mkdir()
    with (
        unix_serve(shared.answer, str(folder / "app-server-control" / "app-server-control.sock")) as server,
        running("app-server") as process,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            env = {"HOME": str(folder), "CODEX_HOME": str(folder), "PATH": ""}
            yield WakeTarget(native=THREAD, pid=process.pid, env=env)
        finally:
            server.shutdown()
            thread.join(5)


GONE = "no terminal shows its conversation any more"
UNSURE = "it is not certain that a terminal still shows it"
BOTH = Shared("idle", loaded=(THREAD, "other"))


@pytest.mark.parametrize(
    ("shared", "starts", "shown", "hindrance"),
    [
        pytest.param(Shared("idle"), [100], {}, "", id="one terminal"),
        pytest.param(Shared("idle"), [], {}, GONE, id="no terminal"),
        pytest.param(BOTH, [100, 100], {}, "", id="a terminal for each"),
        pytest.param(BOTH, [100], {}, UNSURE, id="one terminal for two"),
        pytest.param(Shared("idle", loaded=(THREAD, "title"), ephemeral="title"), [100], {}, "", id="title"),
        pytest.param(Shared("idle", originator="codex_vscode"), [], {}, "", id="editor"),
        pytest.param(Shared("active"), [100], {}, "it is at work", id="at work"),
        pytest.param(BOTH, [100], {THREAD: 101, "other": 50}, "", id="the other was left before it began"),
        pytest.param(BOTH, [100], {THREAD: 50, "other": 101}, GONE, id="it was left before the other began"),
        pytest.param(Shared("idle"), [100], {THREAD: 50}, GONE, id="a terminal that shows nothing yet"),
        pytest.param(BOTH, [100], {THREAD: 120, "other": 150}, UNSURE, id="the other was resumed"),
        pytest.param(BOTH, [100], {THREAD: 120}, UNSURE, id="not known when the other was shown"),
        pytest.param(BOTH, [100], {"other": 50}, UNSURE, id="not known when it was shown"),
        pytest.param(BOTH, [100, 110], {THREAD: 120, "other": 150}, "", id="two terminals"),
        pytest.param(BOTH, [100, 300], {THREAD: 120, "other": 150}, UNSURE, id="the second began after both"),
        pytest.param(BOTH, [100, 130], {THREAD: 120, "other": 150}, "", id="the second began before the other"),
    ],
)
async def test_thread_is_woken_only_when_a_terminal_is_sure_to_show_it(
    folder: Path, shared: Shared, starts: Sequence[float], shown: Mapping[str, float], hindrance: str
) -> None:
    """The server keeps a thread for a minute after `/quit`: a turn in it would have the rights and no witness.

    A terminal touches a file of the thread that it begins to show, so whatever was touched last before a terminal
    began is not what that terminal shows.
    """
    (folder / "tui-thread-reference-capabilities").mkdir()
    for name, at in shown.items():
        path = folder / "tui-thread-reference-capabilities" / name
        path.touch()
        os.utime(path, (at, at))
    with serving(folder, shared) as target:
        assert await CodexWaker(terminals=lambda _home: starts).hindrance(target) == hindrance
        assert await CodexWaker(terminals=lambda _home: []).hindrance(replace(target, pid=0)) == ""


async def test_what_a_loaded_thread_is_is_asked_once(folder: Path) -> None:
    """Codex needs long to read the threads that it began for itself, and each session is looked at again and again."""
    shared = Shared("idle", loaded=(THREAD, "title"), ephemeral="title")
    waker = CodexWaker(terminals=lambda _home: [100])
    with serving(folder, shared) as target:
        assert [await waker.hindrance(target) for _ in range(3)] == ["", "", ""]
        shared.loaded = (THREAD, "other")
        assert await waker.hindrance(target) == UNSURE
    read = [asked["params"] for asked in shared.asked if asked["method"] == "thread/read"]
    assert (read.count({"threadId": "title"}), read.count({"threadId": "other"})) == (1, 1)
