"""Qwen Code without Qwen Code: what its payloads mean, what is printed and written for it, and how it is woken."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import anyio
import psutil
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.connect.plan import ConnectOptions, FileEdit
from harken.hosts.hook import Hello
from harken.hosts.qwen.connect import CONNECTOR
from harken.hosts.qwen.hooks import EVENTS, HOOKS, recorded
from harken.hosts.qwen.wake import InputFileWaker, QwenWaker, frames, input_file
from harken.hosts.wake import WakeTarget
from harken.sessions.turns import HookMoment
from tests.hosts_unit.rig import place_of

BEGUN_SECONDS = 20.0
HELLO = Hello(cwd="/from/the/hook")
FILE = Path("settings.json")
BASE = {"session_id": "s-1", "cwd": "/work", "transcript_path": "/t.jsonl", "prompt_id": "s-1########0"}


def payload(event: str, **more: object) -> dict[str, object]:
    """Return a payload as Qwen 0.24 makes it."""
    return {**BASE, "hook_event_name": event, **more}


def test_each_event_is_its_moment() -> None:
    """The command says the moment, the payload the event; both have to fit, or a copied entry would lie."""
    for moment, event in EVENTS.items():
        found = HOOKS.event(moment, payload(event, prompt="x"), HELLO)
        assert found is not None
        assert (found.moment, found.native, found.cwd, found.transcript) == (moment, "s-1", "/work", "/t.jsonl")
        others = [other for other in EVENTS if other is not moment]
        assert all(HOOKS.event(other, payload(event), HELLO) is None for other in others)


def test_prompt_hook_without_a_prompt_is_the_next_step_of_a_turn() -> None:
    """Qwen runs it before every request; only the first has something that was submitted."""
    step = HOOKS.event(HookMoment.PROMPT, payload("UserPromptSubmit", prompt=""), HELLO)
    assert step is not None
    assert (step.moment, step.is_step, step.turn) == (HookMoment.TOOL, True, "s-1########0")
    for said in ({"prompt": "hi", "submitted_prompt": "hi"}, {"prompt": "our own words, as after a held up end"}):
        prompt = HOOKS.event(HookMoment.PROMPT, payload("UserPromptSubmit", **said), HELLO)
        assert prompt is not None
        assert (prompt.moment, prompt.is_step, prompt.prompt) == (HookMoment.PROMPT, False, said["prompt"])


def test_idle_terminal_means_that_no_turn_runs_and_proves_nothing() -> None:
    """After Esc there is no other sign; other notifications come in the middle of a turn."""
    idle = HOOKS.event(HookMoment.STOP, payload("Notification", notification_type="idle_prompt"), HELLO)
    assert idle is not None
    assert (idle.moment, idle.is_interrupted, idle.turn) == (HookMoment.STOP, True, "")
    asks = payload("Notification", notification_type="permission_prompt")
    assert HOOKS.event(HookMoment.STOP, asks, HELLO) is None


SETTINGS = b"""{
  // mine
  "permissions": { "allow": [ "Bash(git *)" ] },
  "mcpServers": { "other": { "command": "x" } },
  "hooks": { "Stop": [ { "hooks": [ { "type": "command", "command": "mine" } ] } ] }
}
"""


@pytest.mark.parametrize("before", [None, b"", b"{}\n", SETTINGS, b'{"a":1}'])
def test_what_was_put_in_comes_out_again(before: bytes | None, tmp_path: Path) -> None:
    """Somebody's settings with comments, or none at all, are afterwards what they were."""
    here = place_of(tmp_path)
    once = CONNECTOR.with_entries(before, here, file=FILE)
    assert CONNECTOR.with_entries(once, here, file=FILE) == once
    assert b"reply" not in once, "an answer to a person leaves the machine: that stays the user's word"
    after = CONNECTOR.without_entries(once, file=FILE)
    assert after is not None
    assert b"harken" not in after
    if before == SETTINGS:
        assert after == SETTINGS


def test_obstacles_are_found() -> None:
    """Settings that keep ours from working are the person's: they are told, not overruled."""
    data = b"""{"disableAllHooks": true, "mcp": {"allowed": ["x"], "excluded": ["harken"]},
        "agents": {"crossSessionMessaging": false, "crossSessionInbound": "hold"}}"""
    assert len(list(CONNECTOR.obstacles(data, file=FILE))) == 5
    assert not list(CONNECTOR.obstacles(b'{"agents":{"crossSessionInbound":"accept"}}', file=FILE))


def test_project_is_connected_in_its_own_folder_and_never_twice(tmp_path: Path) -> None:
    """Two sets of the same hooks would tell everything twice."""
    project = tmp_path / "project"
    steps = CONNECTOR.plan(place_of(tmp_path, project), ConnectOptions()).steps
    paths = [step.path for step in steps if isinstance(step, FileEdit)]
    assert paths == [project / ".qwen" / "settings.json", project / "AGENTS.md"]
    own = tmp_path / "user" / ".qwen"
    own.mkdir(parents=True)
    (own / "settings.json").write_bytes(CONNECTOR.with_entries(None, place_of(tmp_path), file=FILE))
    assert CONNECTOR.plan(place_of(tmp_path, project), ConnectOptions()).steps == ()


def test_prompt_hook_passes_its_input_on_and_asks_for_a_step_only_when_the_bell_rings(tmp_path: Path) -> None:
    """It runs before every request of a turn: with nothing waiting, a step costs no interpreter."""
    here = place_of(tmp_path)
    edge = tmp_path / "edge"
    edge.mkdir()
    script = "import os, sys\nprint(os.getppid(), sys.stdin.read().strip())\n"
    (edge / "hook.py").write_text(script, encoding="utf-8")
    (line,) = (hook.line for hook in CONNECTOR.hooks(here) if hook.event == "UserPromptSubmit")
    step = json.dumps(payload("UserPromptSubmit", prompt=""), separators=(",", ":"))
    nasty = '$(echo pwned) `echo pwned` \\ "\nHARKEN\n"prompt":""}'
    prompt = json.dumps(payload("UserPromptSubmit", prompt=nasty), separators=(",", ":"))

    def asked(said: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=said, capture_output=True, timeout=10, check=False, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    # The daemon finds the session by the parent of the hook, which must not be a shell in between.
    assert asked(prompt) == f"{os.getpid()} {prompt}"
    assert asked(step) == ""
    bells = here.harken / "run" / "bells"
    bells.mkdir(parents=True)
    (bells / "qwen-code").write_text("1", encoding="utf-8")
    assert asked(step) == f"{os.getpid()} {step}"
    assert asked(prompt) == f"{os.getpid()} {prompt}"


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["qwen", "--input-file", "in.jsonl"], Path("/work/in.jsonl")),
        (["node", "cli.js", "--yolo", "--input-file=/else/x"], Path("/else/x")),
        (["qwen", "--inputFile", "a", "--input-file", "b"], Path("/work/b")),
        (["qwen", "--", "--input-file", "a"], None),
        (["qwen", "--input-file"], None),
        (["qwen", "--input-file", "--yolo"], None),
        (["qwen", "--input-file="], None),
        (["qwen", "what is --input-file"], None),
        ([], None),
    ],
)
def test_input_file_is_read_from_the_command_line(argv: list[str], found: Path | None) -> None:
    """Nothing else tells where a session reads prompts from; a word in a prompt is no option."""
    assert input_file(argv, "/work") == found


@given(st.lists(st.text(max_size=20)), st.text(alphabet=st.characters(exclude_characters="\0"), max_size=20))
def test_any_command_line_can_be_read(argv: list[str], cwd: str) -> None:
    """Command lines are other people's: whatever they hold, nothing fails."""
    found = input_file(argv, cwd)
    assert found is None or isinstance(found, Path)


@given(st.text(), st.text())
def test_frames_are_two_lines_whatever_they_carry(session: str, text: str) -> None:
    """A line end in a message must not become a frame of its own."""
    auth, message, rest = frames("t", session, text).split(b"\n")
    assert rest == b""
    assert json.loads(auth) == {"msgV": 1, "type": "auth", "token": "t"}
    assert json.loads(message)["message"] == {"role": "user", "content": text}


async def test_waker_hands_a_text_to_the_inbox_of_the_session(tmp_path: Path) -> None:
    """The session is the one of the latest hook: Qwen drops what is meant for another."""
    got: list[bytes] = []

    async def inbox(stream: SocketStream) -> None:
        async with stream:
            got.extend([data async for data in stream])

    path = str(tmp_path / "s")
    env = {"QWEN_CODE_MESSAGING_SOCKET": path, "QWEN_CODE_MESSAGING_TOKEN": "t"}
    target = WakeTarget(native="s-1", env=env)
    assert not await QwenWaker().wake(target, "hello")
    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, inbox)
        with anyio.fail_after(10):
            assert await QwenWaker().wake(target, "hello")
        tasks.cancel_scope.cancel()
    auth, message, _ = b"".join(got).split(b"\n")
    assert json.loads(auth) == {"msgV": 1, "type": "auth", "token": "t"}
    assert json.loads(message)["toSessionId"] == "s-1"


@pytest.mark.parametrize("env", [{}, {"QWEN_CODE_MESSAGING_SOCKET": "/s"}, {"QWEN_CODE_MESSAGING_TOKEN": "t"}])
async def test_session_without_an_inbox_is_not_woken(env: dict[str, str]) -> None:
    """Headless runs, and people who turned it off, have none: that is no error."""
    assert not await QwenWaker().wake(WakeTarget(native="s-1", env=env), "hello")


async def test_waker_that_gets_no_answer_does_not_know(tmp_path: Path) -> None:
    """A slow host must not hold up anybody else's wake; it has the text, so nobody may say that it was not taken."""
    path = str(tmp_path / "s")
    env = {"QWEN_CODE_MESSAGING_SOCKET": path, "QWEN_CODE_MESSAGING_TOKEN": "t"}
    target = WakeTarget(native="s-1", env=env)
    async with await anyio.create_unix_listener(path):
        with anyio.fail_after(30):
            assert await QwenWaker(take_seconds=0.1).wake(target, "hello") is None
    assert await QwenWaker(take_seconds=0.1).wake(target, "hello") is False


def line(uuid: str, parent: str, kind: str, text: str) -> bytes:
    """Return a line of Qwen's own record."""
    return json.dumps(
        {"uuid": uuid, "parentUuid": parent, "type": kind, "message": {"parts": [{"text": text}]}}
    ).encode()


def test_record_proves_what_stands_above_an_answer() -> None:
    """What its inbox brought is a line of the user's; without an answer below it the model may not have read it."""
    asked = line("1", "", "user", "<cross_session_message>--- d-1 begins x --- d-1 ends")
    other = line("3", "2", "user", "--- d-2 begins x --- d-2 ends")
    telemetry = line("2", "1", "system", "d-2")
    assert recorded([asked, telemetry, other], ["d-1", "d-2"]) == set()
    assert recorded([asked, telemetry, line("4", "2", "assistant", "ok"), other], ["d-1", "d-2"]) == {"d-1"}
    assert recorded([b"{", b"[]", b"\xff", line("4", "none", "assistant", "d-1")], ["d-1"]) == set()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[WakeTarget]:
    """A process with the command line of a session that reads prompts from a file."""
    argv = [sys.executable, "-c", "import time; time.sleep(60)", "--input-file", "in.jsonl"]
    with subprocess.Popen(argv, cwd=tmp_path) as process:
        # Until the program has begun, the process may have no command line of its own.
        end = monotonic() + BEGUN_SECONDS
        while psutil.Process(process.pid).cmdline() != argv:
            assert monotonic() < end, "the process did not begin"
            select.select([], [], [], 0.01)
        yield WakeTarget(native="s-1", pid=process.pid, cwd="/elsewhere")
        process.kill()


async def test_input_file_gets_one_whole_line(session: WakeTarget, tmp_path: Path) -> None:
    """Half a line, as an editor or a crash leaves it, must not swallow the next one."""
    assert await InputFileWaker().wake(session, "one\ntwo")
    path = tmp_path / "in.jsonl"
    path.write_bytes(path.read_bytes() + b'{"half":')
    assert await InputFileWaker().wake(session, "three")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(lines[number]) for number in (0, 2)] == [
        {"type": "submit", "text": "one\ntwo"},
        {"type": "submit", "text": "three"},
    ]


async def test_input_that_is_no_file_is_left_alone(session: WakeTarget, tmp_path: Path) -> None:
    """A pipe without a reader would hold the daemon up for ever."""
    os.mkfifo(tmp_path / "in.jsonl")
    with anyio.fail_after(10):
        assert not await InputFileWaker().wake(session, "hello")


async def test_process_that_is_gone_is_not_woken() -> None:
    """Between the last hook and the wake the person may have closed it."""
    assert not await InputFileWaker().wake(WakeTarget(native="s-1", pid=2**22 + 1), "hello")
