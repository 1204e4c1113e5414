"""Plays the verbs of rules and runs for the reference: a rule asks, the person says yes, an agent runs and is ended.

The agent is a program that does nothing, so that every machine gives the same example; what hosts really do is told
on their own pages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

import anyio

from harken.automation import Mode, Order, Outcome, RuleVerdict, Run, RunEnd, RunId, RunState
from harken.config.home import Home
from harken.daemon.compose import Daemon
from harken.model import Message, fresh_id
from harken.store.contract.automation import Settlement
from harken.testing import FakeClock

AGENT: Final = "#!/bin/sh\nexec sleep 600\n"
RULE: Final[Mapping[str, object]] = {
    "name": "red build",
    "server": "ci",
    "channel": "builds",
    "contentRegex": "(?i)failed",
    "mode": "confirm",
    "prompt": "Find out why: {{content}}",
    "tools": ["read_file", "search_files"],
    "rateLimit": "10m",
    "agent": "claude-code",
}
WAIT_SECONDS: Final = 30.0
TEN_MINUTES: Final = timedelta(minutes=10)


class Stage(Protocol):
    """What a play is given."""

    daemon: Daemon
    clock: FakeClock

    async def verb(self, name: str, /, **arguments: object) -> dict[str, Any]:
        """Run a verb as the person."""
        ...


@contextmanager
def furnished(home: Home) -> Iterator[None]:
    """Let a home have a rule, and the machine an agent, for the time of the block."""
    home.triggers_file.write_text(json.dumps({"rules": [dict(RULE)]}))
    home.triggers_file.chmod(0o600)
    program = home.path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(AGENT)
    program.chmod(0o700)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.defpath}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


async def play_rule_verbs(stage: Stage, announce: Callable[[str, str], Awaitable[str]]) -> None:
    """Run every verb of rules, actions and runs once."""
    reacting = stage.daemon.rule_wiring
    message = await announce("builds", "build 456 failed on main")
    await reacting.judge.catch_up()
    await stage.verb("rules")
    await stage.verb("rules_reload")
    await stage.verb("rules_test", since=3600)
    late = {"name": "late", "channel": "builds", "contentRegex": "late", "mode": "notify"}
    await stage.verb("rules_try", rule={**late, "contentRegex": "failed"}, since=3600)
    await stage.verb("rules_add", rule=late)
    await stage.verb("rules_remove", rule="late")
    await stage.verb("rules_explain", message=message)
    asked = (await stage.verb("actions", state="waiting"))["actions"][0]["id"]
    await stage.verb("confirm", action=asked, yes=False)
    await stage.verb("run_now", message=message, rule="red build", key="run-1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reacting.runner.run)
        with anyio.fail_after(WAIT_SECONDS):
            run = await _begun(stage.daemon)
        await stage.verb("runs", limit=1)
        await stage.verb("run", run=run)
        await stage.verb("run_output", run=run)
        await stage.verb("run_abort", run=run)
        tasks.cancel_scope.cancel()
    await stage.verb("rules_pause")
    await stage.verb("rules_resume")


async def play_automation(stage: Stage, message: Message) -> None:
    """Let a rule ask, the person say yes, and an agent run."""
    store, tools = stage.daemon.store, ("read_file", "search_files")
    order = Order(
        agent="claude-code", workdir="/home/you/code/shop", tools=tools, prompt="", timeout=TEN_MINUTES, max_turns=20
    )
    verdict = RuleVerdict(
        message=message.id, rule="red build", mode=Mode.CONFIRM, outcome=Outcome.FIRED, reason="it matches", order=order
    )
    standing = await store.rules.state()
    settlement = Settlement(
        revision=standing.revision, judged=standing.judged, verdicts=[verdict], keep_since=stage.clock.now()
    )
    [action] = await store.rules.settle(settlement)
    await store.actions.answer(action.id, is_yes=True, by="cli")
    run = Run(
        id=RunId(fresh_id("r-", 6)),
        action=action.id,
        rule=action.rule,
        message=message.id,
        agent=order.agent,
        workdir=order.workdir,
        tools=order.tools,
        state=RunState.RUNNING,
        started_at=stage.clock.now(),
    )
    await store.runs.start(run)
    await store.runs.end(run.id, RunEnd(state=RunState.DONE, exit_code=0, turns=3, answer="the test is fixed"))
    await store.rules.keep(json.dumps({"rules": [dict(RULE)]}), 1)
    await store.rules.pause(is_on=True)
    await store.rules.pause(is_on=False)


async def _begun(daemon: Daemon) -> str:
    """Return the run that goes on, once it has a process."""
    rung = anyio.Event()
    with daemon.store.changes.listen(lambda _: rung.set()):
        while True:
            rung = anyio.Event()
            for run in await daemon.store.runs.list(is_running=True):
                if run.state is RunState.RUNNING and run.pid:
                    return run.id
            await rung.wait()
