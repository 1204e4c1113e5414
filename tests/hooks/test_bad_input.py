"""Whatever is wrong, a hook ends with 0 and prints nothing: no host may be held up, or complain, because of Harken.

The bounds here are generous, for slow machines; that a hook is quick is for the benchmark to say.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harken.hosts.connect.command import hook_line
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.registry import host_named
from harken.sessions.turns import HookMoment
from tests.hooks.rig import (
    CLAUDE,
    CONFIG,
    COPILOT,
    KINDS,
    SCRIPT,
    Conversation,
    DaemonFixture,
    Kind,
    Printed,
    hook_process,
)
from tests.loss.rig import DaemonStarter

SECONDS = 60.0
AT_ONCE = 12
MOMENTS = [moment for moment in HookMoment if moment is not HookMoment.BELL]
every_host = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
SILENT = Printed(0, "", "")

NOT_A_PAYLOAD = (
    b"",
    b"{",
    b"null",
    b"[1, 2]",
    b'"text"',
    b"{}",
    b"\xff\xfe\x00\x01",
    b"[" * 50_000,
    b'{"session_id": 7, "sessionId": {"a": 1}, "hook_event_name": ["Stop"]}',
    b'{"session_id": "", "sessionId": "", "hook_event_name": "Stop"}',
    b'{"session_id": "a", "hook_event_name": "NoSuchEvent"}',
)


def run_all(home: Path, host: str, asked: Sequence[tuple[str, bytes]]) -> list[Printed]:
    """Run a hook for each moment and payload, some at a time; return what each left behind."""
    printed = []
    for begin in range(0, len(asked), AT_ONCE):
        batch = [(hook_process(home, host, moment), payload) for moment, payload in asked[begin : begin + AT_ONCE]]
        for process, payload in batch:
            with process:
                out, err = process.communicate(payload, SECONDS)
            printed.append(Printed(process.returncode, out.decode(), err.decode()))
    return printed


def guest_of(kind: Kind, home: Path) -> Conversation:
    """Return a conversation whose payloads are sound."""
    return Conversation(kind=kind, home=home)


# -- what the host writes ------------------------------------------------------------------------------------------


@every_host
def test_a_payload_that_cannot_be_understood_is_answered_with_silence(rig: DaemonFixture, kind: Kind) -> None:
    """Broken JSON, JSON of another shape, an event that is another's: nothing is said and nobody is registered."""
    rig.send("please look")
    asked = [(moment.value, payload) for moment in MOMENTS for payload in NOT_A_PAYLOAD if payload != NOT_A_PAYLOAD[-1]]
    if kind is not COPILOT:
        asked += [(moment.value, NOT_A_PAYLOAD[-1]) for moment in MOMENTS]
    assert run_all(rig.daemon.home, kind.name, asked) == [SILENT] * len(asked)
    assert rig.sessions() == []
    assert "please look" in rig.session(kind).prompt()


@every_host
def test_half_a_surrogate_pair_in_a_payload_breaks_nothing(rig: DaemonFixture, kind: Kind) -> None:
    """JSON can hold it, UTF-8 cannot; it may be in a prompt, a path or a tool's result."""
    guest = rig.session(kind)
    payloads = [
        guest.payload(moment, prompt="x").replace(b'"/"', rb'"\ud800/\udfff"').replace(b'"x"', rb'"\ud83d"')
        for moment in (HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP)
    ]
    moments = [guest.argument(moment) for moment in (HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP)]
    assert run_all(rig.daemon.home, kind.name, list(zip(moments, payloads, strict=True))) == [SILENT] * 3
    assert rig.daemon.call("status")


@pytest.mark.parametrize("moment", ["", "lunch", "PROMPT", "prompt\n", "../prompt", "--no-input"])
def test_an_unknown_moment_is_answered_with_silence(rig: DaemonFixture, moment: str) -> None:
    """A newer `connect` may have written a hook that this daemon does not know."""
    rig.send("please look")
    payload = rig.session(CLAUDE).payload(HookMoment.PROMPT, prompt="go")
    assert run_all(rig.daemon.home, CLAUDE.name, [(moment, payload)]) == [SILENT]


@pytest.mark.parametrize("host", ["", "emacs", "generic", "claude", "../claude-code", "x" * 3_000, "\udcff"])
def test_an_unknown_host_is_answered_with_silence(rig: DaemonFixture, host: str) -> None:
    """And it becomes no session, no bell and no file."""
    rig.send("please look")
    payload = rig.session(CLAUDE).payload(HookMoment.TOOL)
    assert run_all(rig.daemon.home, host, [("tool", payload)])[0].code == 0
    assert [session["host"] for session in rig.sessions()] in ([], ["claude-code"])
    assert {bell.name for bell in rig.bell("x").parent.iterdir()} <= {"claude-code"}


@pytest.mark.parametrize("arguments", [[], ["--home"], ["--home", "/"], ["--house", "/", "claude-code", "prompt"]])
def test_missing_arguments_are_survived(arguments: list[str]) -> None:
    """Whatever a settings file was edited into."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), *arguments]
    done = subprocess.run(command, input=b"{}", capture_output=True, timeout=SECONDS, check=False)
    assert Printed(done.returncode, done.stdout.decode(), done.stderr.decode()) == SILENT


def test_five_megabytes_are_read_as_far_as_needed(rig: DaemonFixture) -> None:
    """A tool's result may be huge; the session is named at its beginning, so the message still arrives."""
    guest = rig.session(CLAUDE)
    guest.prompt()
    rig.send("please look")
    huge = json.loads(guest.payload(HookMoment.TOOL))
    huge["tool_calls"] = [{"tool_response": "y" * 5_000_000}]
    with hook_process(guest.home, CLAUDE.name, "tool", env=guest.env) as process:
        out, err = process.communicate(json.dumps(huge).encode(), SECONDS)
    assert "please look" in Printed(process.returncode, out.decode(), err.decode()).text


@every_host
def test_five_megabytes_before_the_session_is_named_say_nothing(rig: DaemonFixture, kind: Kind) -> None:
    """What cannot be attributed is not answered, and the daemon does not keep it."""
    sound = json.loads(rig.session(kind).payload(HookMoment.PROMPT, prompt="go"))
    huge = json.dumps({"blob": "z" * 5_000_000, **sound}).encode()
    assert run_all(rig.daemon.home, kind.name, [("prompt", huge)]) == [SILENT]


def test_input_that_is_never_closed_is_not_waited_for(rig: DaemonFixture) -> None:
    """Some hosts leave the pipe open: what they wrote is enough, and nothing at all is nothing."""
    guest = rig.session(COPILOT)
    rig.send("please look")
    with hook_process(guest.home, COPILOT.name, "prompt") as silent:
        assert silent.wait(SECONDS) == 0
    with hook_process(guest.home, COPILOT.name, "prompt") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(guest.payload(HookMoment.PROMPT, prompt="go"))
        process.stdin.flush()
        assert process.wait(SECONDS) == 0
        assert b"please look" in process.stdout.read()


def test_a_folder_that_was_removed_under_the_host_is_survived(rig: DaemonFixture, tmp_path: Path) -> None:
    """An agent that works in a worktree may remove it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    command = [sys.executable, "-I", "-S", str(SCRIPT), "--home", str(rig.daemon.home), COPILOT.name, "prompt"]
    line = 'rmdir "$PWD" && exec "$@"'
    payload = rig.session(COPILOT).payload(HookMoment.PROMPT, prompt="go")
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", *command],
        input=payload,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        cwd=folder,
    )
    assert Printed(done.returncode, done.stdout.decode(), done.stderr.decode()) == SILENT


# -- a daemon that is not there, or not well ------------------------------------------------------------------------


def address_missing(home: Path) -> None:
    """There was never a daemon."""
    home.mkdir()


def home_missing(home: Path) -> None:
    """There is no such folder."""


def address_stale(home: Path) -> None:
    """The daemon was killed: its socket is there and nobody listens."""
    (home / "run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / "run" / "s"))
    (home / "run" / "address").write_text(f"unix:{home}/run/s\n")


def address_garbage(home: Path) -> None:
    """The disk lied."""
    (home / "run").mkdir(parents=True)
    (home / "run" / "address").write_bytes(b"\xff\x00unix:\n" * 900)


def address_too_long(home: Path) -> None:
    """No socket has such a name."""
    (home / "run").mkdir(parents=True)
    (home / "run" / "address").write_text("unix:/" + "x" * 500 + "\n")


def address_elsewhere(home: Path) -> None:
    """Not a loopback address: it is not dialled."""
    (home / "run").mkdir(parents=True)
    (home / "run" / "address").write_text("tcp:192.0.2.1:9:token\n")


def address_folder(home: Path) -> None:
    """A folder in its place."""
    (home / "run" / "address").mkdir(parents=True)


def home_file(home: Path) -> None:
    """A file in its place."""
    home.write_text("x")


@every_host
@pytest.mark.parametrize(
    "ruin",
    [home_missing, address_missing, address_stale, address_garbage, address_too_long, address_folder, home_file],
    ids=lambda ruin: ruin.__name__,
)
def test_without_a_daemon_every_moment_is_silent(home: Path, kind: Kind, ruin: object) -> None:
    """Dead daemon, missing home, damaged files: each moment of each host, with a payload that is sound."""
    shutil.rmtree(home)
    assert callable(ruin)
    ruin(home)
    guest = guest_of(kind, home)
    played = [moment for moment in MOMENTS if moment is not HookMoment.HALT]
    asked = [(guest.argument(moment), guest.payload(moment, prompt="go")) for moment in played]
    samples = host_named(kind.name).samples
    assert samples is not None
    halts = [sample for sample in samples() if sample.moment is HookMoment.HALT]
    asked += [(HookMoment.HALT.value, json.dumps(sample.payload).encode()) for sample in halts]
    assert run_all(home, kind.name, asked) == [SILENT] * len(asked)


def test_an_address_on_another_machine_is_not_dialled(home: Path) -> None:
    """A hook speaks to this machine only."""
    shutil.rmtree(home)
    address_elsewhere(home)
    assert run_all(home, CLAUDE.name, [("prompt", b"{}")]) == [SILENT]


@contextmanager
def listener(home: Path, answer: bytes | None) -> Iterator[None]:
    """Listen where the daemon should; give everyone the same answer and hang up, or (None) never say anything."""
    shutil.rmtree(home)
    (home / "run").mkdir(parents=True)
    (home / "run" / "address").write_text(f"unix:{home}/run/s\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "run" / "s"))
        server.listen(50)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer or b"")

        thread = threading.Thread(target=serve)
        if answer is not None:
            thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
    if answer is not None:
        thread.join(SECONDS)


def test_a_daemon_that_hangs_holds_no_moment_of_any_host_up_for_long(home: Path) -> None:
    """It accepts and never answers: each hook gives up by itself."""
    with listener(home, None):
        running = [
            hook_process(home, kind.name, guest_of(kind, home).argument(moment))
            for kind in KINDS
            for moment in (HookMoment.PROMPT, HookMoment.STOP)
        ]
        for process in running:
            with process:
                out, err = process.communicate(b"{}", SECONDS)
            assert Printed(process.returncode, out.decode(), err.decode()) == SILENT


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b"garbage\n",
        b'{"harken":1,"error":{"code":"refused","message":"no"}}\n',
        b"0 5",
        b"0 100 0\nshort",
        b"0 4 0 9\nabcd",
        b"\xff\xfe \x00\n",
    ],
    ids=["nothing", "an empty line", "words", "an error", "half a head", "half a text", "too much", "bytes"],
)
def test_an_answer_that_makes_no_sense_is_not_printed(home: Path, answer: bytes) -> None:
    """A daemon of another version, or one that dies while it speaks: a half text would be worse than none."""
    with listener(home, answer):
        assert run_all(home, CLAUDE.name, [("prompt", b"{}"), ("stop", b"{}")]) == [SILENT] * 2


# -- the line for sh -----------------------------------------------------------------------------------------------


def run_line(line: str, payload: bytes) -> Printed:
    """Let a real shell run a line, as hosts do."""
    with subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath},
        cwd="/",
    ) as process:
        out, err = process.communicate(payload, SECONDS)
    return Printed(process.returncode, out.decode(), err.decode())


def place_of(home: Path, python: str = sys.executable, edge: Path = SCRIPT.parent) -> InstallTarget:
    """Return where things are."""
    return InstallTarget(user=home, environ={}, project=None, harken=home, python=python, edge=edge)


@every_host
def test_an_empty_bell_costs_a_megabyte_of_input_nothing(rig: DaemonFixture, kind: Kind) -> None:
    """The line ends before anything is read; the host's pipe breaks, which every host must and does survive."""
    guest = rig.session(kind)
    guest.prompt()
    rig.wait_bell(kind.name, is_on=False)
    line = hook_line(place_of(rig.daemon.home), kind.name, HookMoment.TOOL)
    assert run_line(line, b"x" * 1_000_000) == SILENT
    rig.bell(kind.name).unlink(missing_ok=True)
    assert run_line(line, b"x" * 1_000_000) == SILENT


def test_a_ringing_bell_lets_the_line_ask(rig: DaemonFixture) -> None:
    """The same line, one message later."""
    guest = rig.session(COPILOT)
    guest.prompt()
    rig.send("please look")
    line = hook_line(place_of(rig.daemon.home), COPILOT.name, HookMoment.TOOL)
    assert "please look" in run_line(line, guest.payload(HookMoment.TOOL)).text


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.value)
def test_what_was_removed_is_not_missed(home: Path, moment: HookMoment) -> None:
    """No interpreter, no script or no home any more: a host that still has our hooks must not notice."""
    (home / "run" / "bells").mkdir(parents=True)
    (home / "run" / "bells" / "claude-code").write_text("1\n")
    lines = [
        hook_line(place_of(home, python="/nowhere/python"), CLAUDE.name, moment),
        hook_line(place_of(home, edge=Path("/nowhere/edge")), CLAUDE.name, moment),
        hook_line(place_of(Path("/nowhere/home")), CLAUDE.name, moment),
        hook_line(place_of(home), CLAUDE.name, moment),
    ]
    assert [run_line(line, b"{}") for line in lines] == [SILENT] * 4


@pytest.mark.parametrize("name", ["two words", "it's", 'say "so"', "$HOME `id` $(id)", "a;b&c|d", "back\\slash", "ü*?"])
def test_paths_with_spaces_and_quotes_work(starter: DaemonStarter, home: Path, name: str) -> None:
    """People have such folders; the line is read by a shell, the paths in it are not."""
    odd = home.parent / name
    odd.mkdir()
    (odd / "python").symlink_to(sys.executable)
    (odd / "harken").symlink_to(SCRIPT.parent.parent)
    own = odd / "h"
    own.mkdir(mode=0o700)
    (own / "config.toml").write_text(CONFIG)
    with starter.daemon(own) as daemon:
        daemon.start()
        rig = DaemonFixture(daemon)
        guest = rig.session(COPILOT)
        place = place_of(own, python=str(odd / "python"), edge=odd / "harken" / "edge")
        assert run_line(hook_line(place, COPILOT.name, HookMoment.PROMPT), guest.payload(HookMoment.PROMPT)) == SILENT
        rig.send("please look")
        assert (
            "please look"
            in run_line(hook_line(place, COPILOT.name, HookMoment.TOOL), guest.payload(HookMoment.TOOL)).text
        )
