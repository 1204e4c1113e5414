"""Counts the files of Harken that one has to open to follow a `send` to Claude Code, and its proof.

`python scripts/trace_send.py [--json]` starts a daemon, runs the hooks of a Claude Code at work and `harken send`, and
notes in each of these processes whose functions are called from the beginning of `send` until the message is proven:
command, socket, inbox, ingest, store, journal, bell, hook, render, ledger. What is called while a module is imported
does not count, nor what happened at the start, nor what the daemon's loops do beside it.

It is no budget of `make check`: it tells how far apart things are that belong together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, Final

from harken.testing import DaemonProcess

HARKEN: Final = Path(__file__).resolve().parents[1] / "src" / "harken"
HOOK: Final = HARKEN / "edge" / "hook.py"
LOOP: Final = "harken-"  # begins the name that the supervisor gives to the task of a loop
WAIT_SECONDS: Final = 30.0
TEXT: Final = "the build is red"
SHOWN: Final = 3  # functions of a file that people are shown


class CallRecorder:
    """Notes the files whose functions are called on the way, from `begin` on."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._calls: set[str] = set()
        self._is_on = False
        self._is_aside = ContextVar("is_aside", default=False)  # a thread that works for a task inherits it
        self._tasks: set[asyncio.Task[object]] = set()  # that were there before: loops
        self._made_here: set[CodeType] = set()
        self._made_by_loops: set[CodeType] = set()
        notes.touch()

    def begin(self) -> None:
        """Note from now on; tasks that come later are on the way."""
        self._is_on = True

    def watch(self) -> None:
        """Look at this thread, and at all that are started from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def obey(self, orders: Path) -> None:
        """Begin and end when a pipe says so; each order is answered by a file of its name."""
        with orders.open() as lines:
            for line in lines:
                self._is_on = line.strip() == "begin"
                self._notes.with_suffix(f".{line.strip()}").touch()

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(HARKEN)):
            return
        made = {each for each in code.co_consts if isinstance(each, CodeType)}
        if self._is_of_a_loop():
            self._made_by_loops |= made
        elif self._is_on and self._is_on_the_way(frame):
            self._made_here |= made
            self._note(f"{code.co_filename}\t{code.co_qualname.partition('.<locals>')[0]}\n")

    def _note(self, call: str) -> None:
        """Write a file and its function down at once: a hook ends without a chance to do anything else."""
        if call not in self._calls:
            self._calls.add(call)
            with self._notes.open("a") as notes:
                notes.write(call)

    def _is_of_a_loop(self) -> bool:
        """Whether a task that was there before calls, or a thread that works for one."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return self._is_aside.get()
        if task is None:
            return False
        if not self._is_on:
            self._tasks.add(task)
        is_loop = task.get_name().startswith(LOOP) or (self._is_on and task in self._tasks)
        self._is_aside.set(is_loop)
        return is_loop

    def _is_on_the_way(self, frame: FrameType | None) -> bool:
        """Whether no import and nothing that a loop has made, for others to call, is above a call."""
        aside = self._made_by_loops - self._made_here
        while frame is not None:
            if frame.f_code in aside or frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                return False
            frame = frame.f_back
        return True


def record(notes: Path, argv: Sequence[str], orders: Path | None) -> None:
    """Be a process that is recorded: `-m MODULE ARGUMENT…` or `SCRIPT ARGUMENT…`."""
    recorder = CallRecorder(notes)
    if orders is None:
        recorder.begin()
    else:
        threading.Thread(target=recorder.obey, args=[orders], daemon=True).start()
    recorder.watch()
    if argv[0] == "-m":
        sys.argv = list(argv[1:])
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(argv)
        runpy.run_path(argv[0], run_name="__main__")


class TracedHome:
    """A home with a daemon that is recorded, and its clients; each process has notes of its own."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self._notes = folder / "notes"
        self._notes.mkdir()
        self._environment = {"PATH": os.defpath, "HOME": str(folder), "HARKEN_TOASTS_ENABLED": "false"}
        self._orders = folder / "orders"
        os.mkfifo(self._orders)

    def trace(self) -> Mapping[Path, Sequence[str]]:
        """Send a message to a Claude Code at work and let it be proven; return the files on the way, with functions."""
        options = ("--orders", str(self._orders), "--")
        daemon = DaemonProcess(self._home, (*self._recorded("daemon", *options), "-m", "harken", "serve", *self._at()))
        daemon.start()
        try:
            with self._orders.open("w") as orders, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as host:
                self._hook(host.pid, "prompt", "UserPromptSubmit", sys.executable)
                self._tell(orders, "begin")
                sent = self._run((*self._recorded("send", "--"), "-m", "harken", "send", TEXT, "--json", *self._at()))
                for step in ("first", "second"):
                    said = self._hook(host.pid, "tool", "PostToolBatch", *self._recorded(step, "--"))
                    if (TEXT in said) != (step == "first"):
                        raise RuntimeError(f"the {step} hook said {said!r}")
                self._tell(orders, "end")
            ledger = daemon.call("read", ref=json.loads(sent)["id"])["ledger"]
        finally:
            daemon.stop()
        if "seen" not in [line["state"] for line in ledger if line["consumer"] == "claude-code"]:
            raise RuntimeError("the message was not proven")
        found: dict[Path, list[str]] = {}
        for notes in sorted(self._notes.glob("*.txt")):
            for line in notes.read_text().splitlines():
                file, function = line.split("\t")
                found.setdefault(Path(file), []).append(function)
        return {file: sorted(set(functions)) for file, functions in sorted(found.items())}

    def _at(self) -> tuple[str, ...]:
        return ("--home", str(self._home))

    def _recorded(self, name: str, *options: str) -> tuple[str, ...]:
        return (sys.executable, __file__, "--record", str(self._notes / f"{name}.txt"), *options)

    def _hook(self, pid: int, moment: str, event: str, *command: str) -> str:
        """Run a hook as Claude Code does; return what it prints."""
        payload = {"session_id": "s-1", "cwd": "/", "hook_event_name": event, "prompt_id": "t-1", "prompt": "go on"}
        argv = (*command, str(HOOK), *self._at(), "claude-code", moment)
        return self._run(argv, {"CLAUDE_PID": str(pid)}, json.dumps(payload))

    def _run(self, argv: Sequence[str], more: Mapping[str, str] | None = None, text: str = "") -> str:
        environment = {**self._environment, **(more or {})}
        done = subprocess.run(
            argv, env=environment, input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=WAIT_SECONDS
        )
        return done.stdout

    def _tell(self, orders: IO[str], order: str) -> None:
        """Give an order to the recorder of the daemon; return when it has obeyed."""
        orders.write(f"{order}\n")
        orders.flush()
        end = time.monotonic() + WAIT_SECONDS
        while not (self._notes / f"daemon.{order}").exists():
            if time.monotonic() > end:
                raise TimeoutError(f"the daemon did not {order} in time")
            select.select([], [], [], 0.01)


def report(files: Mapping[Path, Sequence[str]], *, is_json: bool) -> str:
    """Return the files with their lines and what is called in them, and the figures."""
    lines = {file.relative_to(HARKEN).as_posix(): len(file.read_text().splitlines()) for file in files}
    functions = dict(zip(lines, files.values(), strict=True))
    if is_json:
        figures = {"count": len(lines), "lines": sum(lines.values())}
        return json.dumps({**figures, "files": lines, "functions": functions}, indent=2)
    shown = [f"{lines[name]:>6}  {name:<36}  {', '.join(called[:SHOWN])}" for name, called in functions.items()]
    return "\n".join([*shown, f"{len(lines)} files, {sum(lines.values()):,} lines"])


def main() -> None:
    """Print which files are opened; or be one of the processes that are recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--orders", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("argv", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.record:
        record(asked.record, asked.argv, asked.orders)
        return
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        files = TracedHome(Path(folder)).trace()
    sys.stdout.write(report(files, is_json=asked.json) + "\n")


if __name__ == "__main__":
    main()
