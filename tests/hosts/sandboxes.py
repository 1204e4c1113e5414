"""Starting a command: what a runner does with what a sandbox says, as little of it as tests of sandboxes need.

The private folder is made and furnished, the host is run in it in a process group of its own, and its output is read
by the sandbox's transcript. A door in front of the model keeps the headers, which the model itself does not keep.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from harken.runs.sandbox import OutputEvent, OutputKind, RunFile, RunFileKind, Sandbox, SandboxRequest, ToolServer
from harken.runs.tools import parse_tool
from harken.trial.exchange import ModelAnswer, in_order
from harken.trial.model import MockModel
from tests.hosts.stage import Stage

RUN_SECONDS: Final = 120.0
ANSWER: Final = "that is all"
INSIDE: Final = "INSIDE-THE-FOLDER"
OUTSIDE: Final = "OUTSIDE-THE-FOLDER"
# What a run that may `git log` must not run.
OTHER_COMMANDS: Final = (
    "git log; touch made",
    "git log && touch made",
    "git log || touch made",
    "git log & touch made",
    "git log | tee made",
    "git log > made",
    "git log 2>made",
    "git log\ntouch made",
    "git log $(touch made)",
    "git log `touch made`",
    "git log <(touch made)",
    "git log ${X:-$(touch made)}",
    "git log \\\ntouch made",
    "made=$(touch made) git log",
    "X=1 git log",
    "bash -c 'git log'",
    "touch made # git log",
    "git",
    "git logs",
    "git log --output=made",
    "git log '--output' made --format=x",
    "git log -p --ext-diff",
    "git log *",
    "git branch made",
    "git status",
    "cat inside.txt",
    "grep -R OUTSIDE .",
)
_SERVER: Final = Path(__file__).parent / "toolserver.py"
_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one run."""

    told: Sequence[OutputEvent]
    exit_code: int
    stderr: str
    lines: Sequence[bytes] = field(repr=False)
    leftover: tuple[str, ...] = ()

    def of(self, kind: OutputKind) -> list[OutputEvent]:
        """Return what was told of one kind."""
        return [told for told in self.told if told.kind is kind]

    @property
    def denied(self) -> list[str]:
        """The tools that were asked for and denied."""
        return [told.tool for told in self.of(OutputKind.DENIED)]

    @property
    def targets(self) -> list[tuple[str, str]]:
        """The calls that were denied: the tool of each, and what it was about."""
        return [(told.tool, told.target) for told in self.of(OutputKind.DENIED)]

    @property
    def answer(self) -> str:
        """The agent's last word."""
        return "".join(told.text for told in self.of(OutputKind.ANSWER)[-1:])


def run_sandbox(sandbox: Sandbox, work: SandboxRequest) -> Ran:
    """Furnish the private folder, run the host to its end, and return what its output told."""
    command = sandbox.command(work)
    work.private.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    for file in command.files:
        _furnish(work.private, file)
    out, err, exit_code = _run(command.argv, command.env, command.stdin, work.workdir)
    transcript = sandbox.transcript()
    lines = out.splitlines()
    errors = err.splitlines()
    # Each comes on a way of its own; the log of a host that is read there begins before it says anything.
    fed = [*(errors if command.has_told_errors else ()), *lines]
    told = [each for line in fed for each in transcript.feed(line)]
    log_line = re.compile(command.log_line.encode() or b"(?!)")
    stderr = b"\n".join(line for line in errors if not log_line.match(line)).decode(errors="replace")
    told.extend(transcript.finish(stderr, exit_code))
    return Ran(told, exit_code, stderr, lines, command.leftover)


def work_for(
    stage: Stage, prompt: str, *tools: str, max_turns: int = 10, env: Mapping[str, str] | None = None
) -> SandboxRequest:
    """Return the work of a run in the stage's project; its servers are those its tools name, each a `toolserver`."""
    parsed = tuple(parse_tool(tool) for tool in tools)
    names = {tool.server for tool in parsed if tool.server}
    return SandboxRequest(
        prompt=prompt,
        workdir=stage.project.resolve(),
        tools=parsed,
        servers={name: tool_server(stage.folder, name) for name in names},
        max_turns=max_turns,
        private=stage.folder / "run",
        program=str(stage.program),
        environ={**stage.environment, **(env or {})},
    )


def ask(
    sandbox: Sandbox, stage: Stage, tools: Sequence[str], *says: ModelAnswer, prompt: str = "go", max_turns: int = 10
) -> Ran:
    """Let the model make some calls in a run that was given some tools, and return what became of it."""
    assert sandbox.refusal([parse_tool(tool) for tool in tools]) == ""
    stage.model.follow(in_order(*says, then=ANSWER))
    return run_sandbox(sandbox, work_for(stage, prompt, *tools, max_turns=max_turns))


def results(stage: Stage) -> list[str]:
    """Return what the tools answered, in order."""
    return [turn.text for turn in stage.model.conversation[-1].turns if turn.role == "tool"]


def put_files(stage: Stage) -> None:
    """Put a file inside the folder and one outside, and links inside that lead out."""
    (stage.project / "inside.txt").write_text(f"{INSIDE}\n", encoding="utf-8")
    (stage.folder / "outside.txt").write_text(f"{OUTSIDE}\n", encoding="utf-8")
    (stage.project / "link.txt").symlink_to(stage.folder / "outside.txt")
    (stage.project / "out").symlink_to(stage.folder)


def commit(stage: Stage, title: str) -> None:
    """Give the folder's repository something to log."""
    git = shutil.which("git")
    assert git
    identity = ("-c", "user.email=ann@example.org", "-c", "user.name=Ann")
    subprocess.run([git, *identity, "commit", "--allow-empty", "-qm", title], cwd=stage.project, check=True)


def tool_server(folder: Path, name: str) -> ToolServer:
    """Return a server with the tools `note` and `other`, which leave marks in a folder."""
    return ToolServer(name=name, command=(sys.executable, "-I", str(_SERVER), str(folder), name))


def _furnish(private: Path, file: RunFile) -> None:
    path = private / file.path
    path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    if file.kind is RunFileKind.FILE:
        path.write_text(file.content, encoding="utf-8")
        path.chmod(_PRIVATE_FILE)
    elif not file.target.is_file():
        return
    elif file.kind is RunFileKind.LINK:
        path.symlink_to(file.target)
    else:
        shutil.copyfile(file.target, path)
        path.chmod(_PRIVATE_FILE)


def _run(argv: Sequence[str], env: Mapping[str, str], given: bytes, cwd: Path) -> tuple[bytes, bytes, int]:
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(given, timeout=RUN_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return out, err, process.returncode


class Door:
    """What stands between a host and the model, and keeps the headers of every request."""

    def __init__(self, model: MockModel, url: str) -> None:
        self.model = model
        self.url = url
        self.headers: list[dict[str, str]] = []

    def has_header(self, name: str, value: str) -> bool:
        """Whether any request had a header with a value."""
        return any(headers.get(name.lower()) == value for headers in self.headers)


@contextmanager
def door(model: MockModel) -> Iterator[Door]:
    """A door to the model, open for the block; hosts are told its `url`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        standing = Door(model, f"http://127.0.0.1:{server.server_address[1]}")
        server.RequestHandlerClass = partial(_Passage, standing)
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield standing
        finally:
            server.shutdown()
            thread.join(RUN_SECONDS)


class _Passage(BaseHTTPRequestHandler):
    """One connection through the door."""

    protocol_version = "HTTP/1.1"

    def __init__(self, to: Door, request: socket.socket, address: object, server: socketserver.BaseServer) -> None:
        self._door = to
        super().__init__(request, address, server)

    def do_GET(self) -> None:
        self._pass("GET")

    def do_POST(self) -> None:
        self._pass("POST")

    def _pass(self, method: str) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._door.headers.append({name.lower(): value for name, value in self.headers.items()})
        status, kind, body = self._door.model.take(method, self.path, data, self.headers.get("x-initiator", ""))
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""
