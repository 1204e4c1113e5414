"""Joins rules and runs for one daemon: the file, the judge, the sandboxes of the hosts, and who carries runs out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from harken.automation import Order, Rule, Run, consent
from harken.clock import Clock
from harken.config.home import Home
from harken.config.secrets import env_values
from harken.config.settings import RunSettings
from harken.daemon.callers import AgentProcesses
from harken.daemon.leadership import ALONE, Leader, MachineInfo
from harken.daemon.supervisor import Supervisor, contain
from harken.errors import HarkenError
from harken.git import file_starts_nothing
from harken.hosts.registry import host_title, sandboxes, short
from harken.hosts.run_environment import held_paths
from harken.inbox.automation import AgentFit, Automation, FitOf, UsualPlace
from harken.inbox.caller import Bounds, check_answerable
from harken.ingest.sanitise import visible
from harken.model import RULES, RUN
from harken.rules.judge import RuleBook, RuleJudge
from harken.runs.folders import RunFolders
from harken.runs.runner import Answer, RunExecutor, RunPlaces
from harken.runs.sandbox import HostChooser, ServerOf, ToolServer
from harken.sources.source import ToolServerAddress
from harken.store.contract import Store
from harken.store.contract.outbox import CallKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWiring:
    """The joined parts."""

    judge: RuleJudge
    runner: RunExecutor
    automation: Automation
    fit_of: FitOf
    usual_folder: str

    def consent_to(self, order: Order) -> str:
        """Return what a yes to an order lets happen."""
        host = self.fit_of(order.agent, order.tools).agent or order.agent
        folder = order.workdir or self.usual_folder
        return consent(host_title(host) if host else "", short(Path(folder)) if folder else "", order.tools)

    async def begin(self) -> None:
        """Read the rules."""
        await self.judge.begin()

    def start(self, supervisor: Supervisor, leader: Leader = ALONE) -> None:
        """Start the loops."""
        supervisor.start("rules", partial(leader.lead, "rules", self.judge.run))
        if leader.is_shared:
            supervisor.start("rules in force", self.judge.follow)
        supervisor.start("runs", self.runner.run)


def join(
    home: Home,
    settings: RunSettings,
    store: Store,
    clock: Clock,
    *,
    agents: AgentProcesses,
    bounds: Bounds,
    tool_server: Callable[[str], ToolServerAddress | None],
    here: MachineInfo,
) -> RuleWiring:
    """Join rules and runs over a store, which daemons of other machines may share."""
    environ = _environment(home)
    # Looked for when something is to be run: most daemons never do.
    choosing = HostChooser(cache(sandboxes), _servers(tool_server), environ, preferred=settings.agent)

    def fit_of(agent: str, tools: Sequence[str]) -> AgentFit:
        chosen = choosing.choose(agent, tools)
        return AgentFit(chosen.sandbox.host if chosen.sandbox else "", chosen.refusal)

    def unable(rule: Rule) -> str:
        # What another machine can do is not known here.
        is_elsewhere = here.is_shared and rule.machine != here.name
        return "" if is_elsewhere else fit_of(rule.agent, rule.allowed).refusal

    book = RuleBook(home.triggers_file, clock, unable=unable)
    judge = RuleJudge(store, book, clock)
    runner = RunExecutor(
        store,
        choosing,
        RunPlaces(
            outputs=home.runs_dir,
            private=home.run_dir / "cells",
            work=home.work_dir,
            folders=RunFolders(home.runs_dir, file_starts_nothing, held_paths()),
            kept_out=(home.path, home.triggers_file, home.config_file, home.env_file, home.token_file),
            workdir=settings.workdir,
            machine=here.name,
            is_shared=here.is_shared,
        ),
        clock,
        environ=environ,
        registry=agents,
        answer=_answering(store, bounds),
        contain=contain,
    )
    automation = Automation(
        store,
        book,
        judge,
        clock,
        runs=runner,
        fit_of=fit_of,
        announcers=bounds.announcers,
        usual=UsualPlace(settings.workdir, here.name if here.is_shared else ""),
    )
    return RuleWiring(judge=judge, runner=runner, automation=automation, fit_of=fit_of, usual_folder=settings.workdir)


def _answering(store: Store, bounds: Bounds) -> Answer:
    async def answer(run: Run) -> None:
        message = await store.messages.get(run.message)
        check_answerable(message, bounds)
        # Whoever reads it may read it in a terminal.
        body = _answer_of(run, bounds.max_said_chars)
        call = CallKey(edge="runs", request=run.id)
        await store.outbox.add(message.id, body, author=f"{RUN}{run.id}", consumer=RULES, call=call)

    return answer


def _answer_of(run: Run, most: int) -> str:
    """Return what a run answers to the sender of a message; of a long answer the beginning, and where the rest is."""
    said = visible(run.answer)
    if len(said) <= most:
        return said
    return f"{said[:most]}\n[… {len(said) - most} characters more are in run {run.id}]"


def _environment(home: Home) -> Mapping[str, str]:
    """Return the person's environment as far as the daemon knows it; the file for secrets adds to the daemon's own.

    What a run gets of it is up to its sandbox: providers name their own variables for keys.
    """
    try:
        return {**env_values(home), **os.environ}
    except HarkenError:
        return dict(os.environ)


def _servers(tool_server: Callable[[str], ToolServerAddress | None]) -> ServerOf:
    """Return the MCP servers that runs may use: those that are listened to."""

    def server_of(name: str) -> ToolServer | None:
        found = tool_server(name)
        if found is None:
            return None
        if found.command:
            return ToolServer(name=found.name, command=found.command, env=found.env)
        return ToolServer(name=found.name, url=found.url, headers=found.headers, is_sse=found.is_sse)

    return server_of
