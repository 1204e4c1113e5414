"""`harken demo`: the whole promise in a minute, with real parts and nothing configured.

A daemon of its own in a temporary home, an agent that is a real MCP client over the real edge, messages sent to it
while it is busy and while it is idle, and the daemon killed in between. Everything it starts it ends, and its home
is removed. It never touches the person's own home.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from harken.cli.invocation import Invocation
from harken.cli.output import at_home, width_of, wrapped
from harken.cli.verbs import verb
from harken.errors import HarkenError
from harken.testing import CallFailed, DaemonProcess, EdgeClient

AGENT = "demo-agent"
BURST = 5
MARGIN = " " * 10  # two, the name of who speaks, and one
PAUSE_SECONDS = 1.2
REPLY_SECONDS = 10.0


class DemoFailed(HarkenError):
    """The demonstration did not see what it shows."""

    code = "demo_failed"


@dataclass(slots=True)
class Stage:
    """Says what happens, at a pace one can read, and keeps what was measured."""

    pause: float
    is_quiet: bool
    width: int = 0  # of the terminal, 0 for a pipe
    measured: dict[str, Any] = field(default_factory=dict[str, Any])

    def scene(self, title: str) -> None:
        """Begin a new part."""
        self._say("")
        self._say(click.style(title, bold=True))

    def line(self, who: str, text: str) -> None:
        """Say one thing; on a terminal that is too narrow for it, in lines below one another."""
        room = self.width - len(MARGIN)
        if self.width and width_of(click.unstyle(text)) > room:
            text = f"\n{MARGIN}".join(wrapped(click.unstyle(text), room))
        self._say(f"  {click.style(f'{who:<7}', fg='cyan')} {text}")
        if not self.is_quiet:
            time.sleep(self.pause)

    def ledger(self, entries: list[dict[str, Any]]) -> None:
        """Show how far a message got, for the agent."""
        mine = next(entry for entry in entries if entry["consumer"] == AGENT)
        proof = f", proof: {mine['evidence']}" if mine.get("evidence") else ""
        surface = f" through {mine['surface']}" if mine.get("surface") else ""
        self.line("ledger", click.style(f"{mine['state']}{surface}{proof}", fg="green"))

    def _say(self, text: str) -> None:
        if not self.is_quiet:
            click.echo(text)


@verb("demo")
@click.option("--fast", is_flag=True, help="Do not pause for reading.")
def demo(asked: Invocation, *, fast: bool) -> None:
    """See Harken at work in a minute, in a temporary home.

    Uses a real daemon and a real agent connection: a message reaches a busy agent, a waiting one gets it at once, and
    the daemon is killed without losing anything. --json prints only the measurements.
    """
    stage = Stage(0.0 if fast else PAUSE_SECONDS, asked.as_json, asked.screen.width)
    with _stage_home() as home:
        _play(stage, home)
    stage.scene("Done. The daemon is stopped and its home is removed.")
    follows = "harken up, harken connect (the agents that are installed here), harken open (the page)"
    stage.line("next", at_home(follows))
    if asked.as_json:
        asked.print_json(stage.measured)


@contextmanager
def _stage_home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="harken-demo-"))
    try:
        yield home
    finally:
        _stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _play(stage: Stage, home: Path) -> None:
    stage.scene("A daemon, an agent")
    daemon = DaemonProcess(home).start()
    stage.line("daemon", f"ready, with nothing configured (process {daemon.pid})")
    with EdgeClient(daemon.edge_command(), name=AGENT) as agent:
        tools = agent.request("tools/list", {})["result"]["tools"]
        stage.line("agent", f"connected over stdio, sees {len(tools)} tools, gets to work")
        agent.tool("inbound_queue_stats")
        _while_busy(stage, daemon, agent)
        _while_idle(stage, daemon, agent)
        _killed(stage, daemon, agent)


def _while_busy(stage: Stage, daemon: DaemonProcess, agent: EdgeClient) -> None:
    stage.scene("1. A message reaches a busy agent")
    sent = daemon.call("send", text="the build is red: test_login fails", sender="ci-bot", channel="ci")
    stage.line("ci-bot", f"the build is red: test_login fails   {_dim(sent)}")
    stage.line("harken", f"the message {sent['forecast']['sentence']}")
    answer = agent.answer(agent.ask_tool("inbound_queue_stats"))
    stage.line("agent", f"calls a tool; its result ends with: “{answer['result']['content'][1]['text']}”")
    pulled = agent.tool("inbox_pull")["messages"][0]
    stage.line("agent", f"pulls it, told to treat it as: {pulled['treat_as']}")
    stage.ledger(daemon.call("read", ref=sent["id"])["ledger"])
    agent.tool("inbound_queue_stats")
    stage.line("agent", "works on; that later call is proof that the model had the message")
    stage.ledger(daemon.call("read", ref=sent["id"])["ledger"])
    agent.tool("reply", message_id=sent["id"], body="on it, fix follows")
    stage.ledger(daemon.call("read", ref=sent["id"])["ledger"])
    reply = _reply(daemon)
    stage.line("you", f"read the answer: {reply['content_text_sanitized']}")
    stage.measured["reply"] = reply["content_text_sanitized"]


def _while_idle(stage: Stage, daemon: DaemonProcess, agent: EdgeClient) -> None:
    stage.scene("2. A waiting agent gets a message at once")
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    _until_waiting(daemon)
    stage.line("agent", "has nothing to do and waits")
    began = time.perf_counter()
    sent = daemon.call("send", text="please also update the changelog")
    got = agent.result(waiting)
    took = (time.perf_counter() - began) * 1000
    stage.line("you", f"please also update the changelog   {_dim(sent)}")
    stage.line("agent", f"has it after {took:.1f} ms, durable write included: {got[0]['content']!r}")
    stage.measured["wake_ms"] = round(took, 1)


def _killed(stage: Stage, daemon: DaemonProcess, agent: EdgeClient) -> None:
    stage.scene("3. The daemon is killed in between, and nothing is lost")
    accepted = [daemon.call("send", text=f"number {i}", channel="count")["id"] for i in range(1, BURST + 1)]
    stage.line("you", f"send {BURST} messages; each is accepted")
    stage.line("kill", click.style(f"SIGKILL to process {daemon.pid}, no chance to finish anything", fg="red"))
    daemon.kill()
    got: list[str] = []
    while len(got) < BURST:
        items = agent.tool("wait_for_inbound_message", timeout_s=20)
        if not items:
            break
        got += [item["message_id"] for item in items]
    pid = DaemonProcess(daemon.home).facts["pid"]
    stage.line("agent", f"calls again on the same connection; that started a new daemon (process {pid})")
    if got != accepted:
        raise DemoFailed(f"{len(accepted)} messages were accepted and {len(got)} delivered.", "Please report this.")
    stage.line("agent", click.style(f"has all {len(got)}, in order, none twice", fg="green"))
    stage.measured |= {"accepted": len(accepted), "delivered": len(got)}


def _reply(daemon: DaemonProcess) -> dict[str, Any]:
    """Return the first reply to the person, who may be shown other messages before it."""
    end = time.monotonic() + REPLY_SECONDS
    while time.monotonic() < end:
        for item in daemon.call("wait", timeout=REPLY_SECONDS)["messages"]:
            if item["mailbox"] == "replies":
                found: dict[str, Any] = item
                return found
    raise DemoFailed("The reply did not arrive.", "Please report this.")


def _until_waiting(daemon: DaemonProcess) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        sessions = daemon.call("status")["sessions"]
        if any(session["presence"] == "waiting" for session in sessions):
            return
        time.sleep(0.01)


def _stop(home: Path) -> None:
    """End whichever daemon serves the home now."""
    try:
        pid = json.loads((home / "run" / "daemon.json").read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, CallFailed):
        return
    end = time.monotonic() + 10
    while (home / "run" / "daemon.json").exists() and time.monotonic() < end:
        time.sleep(0.02)


def _dim(sent: dict[str, Any]) -> str:
    return click.style(f"({sent['id']}, {sent['mailbox']} #{sent['seq']})", dim=True)
