"""Connecting hosts: which are meant, what is known of them, and what is to be done to each. Writes nothing.

How a host is connected is its module's business, doing and undoing that of `hosts/connect/apply.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from harken.errors import HarkenError, NotFound, UserError
from harken.hosts.connect.plan import (
    CommandStep,
    ConnectOptions,
    Connector,
    ConnectPlan,
    InstalledProgram,
    InstallTarget,
    RemoteInbox,
    local_place,
)
from harken.hosts.connect.record import ConnectRecord, load, records
from harken.hosts.connect.remote import RemoteConnector, by_url
from harken.hosts.registry import connector, hosts, short, title_of
from harken.plugins import PluginFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectTarget:
    """One host, in one place."""

    connector: Connector
    place: InstallTarget
    found: InstalledProgram | None
    record: ConnectRecord | None
    fault: PluginFault | None = None  # why its program could not be looked for

    @property
    def name(self) -> str:
        """What people call it, and where."""
        where = f" in {short(self.place.project)}" if self.place.project else ""
        return f"{title_of(self.connector.name)}{where}"

    @property
    def remote(self) -> RemoteInbox | None:
        """The inbox on another machine that it is or will be connected to; None for the one on this machine."""
        return self.connector.inbox if isinstance(self.connector, RemoteConnector) else None

    def recorded(self, record: ConnectRecord) -> ConnectTarget:
        """Return the same host where a record says that it is connected, and as it is connected there."""
        project = Path(record.project) if record.project else None
        place = record.place(replace(self.place, project=project))
        return replace(self, connector=by_url(connector(record.host), record.remote), place=place, record=record)


def targets(
    harken: Path,
    names: Sequence[str],
    project: Path | None,
    *,
    remote: RemoteInbox | None = None,
    is_looking: bool = True,
) -> list[ConnectTarget]:
    """Return the hosts with what is known of them; looking for their programs takes a moment.

    Without `remote`, each is connected to the inbox that it was connected to before.
    """
    place = local_place(harken, project)
    connectors = [connector(name) for name in names]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda each: _target(each, place, remote, is_looking=is_looking), connectors))


def _target(
    connector: Connector, place: InstallTarget, remote: RemoteInbox | None, *, is_looking: bool
) -> ConnectTarget:
    found, fault = None, None
    try:
        found = connector.find(place) if is_looking else None
    except PluginFault as exc:
        fault = exc
    record = load(place.harken, connector.name, place.project)
    place = replace(place, has_approvals=record.has_approvals) if record else place
    connector = by_url(connector, remote or (record.remote if record else None))
    return ConnectTarget(connector=connector, place=place, found=found, record=record, fault=fault)


def connected_targets(harken: Path) -> list[ConnectTarget]:
    """Return every connection that is recorded, of projects too."""
    places = [(record.host, Path(record.project) if record.project else None) for record in records(harken)]
    return [target for host, project in places for target in targets(harken, [host], project, is_looking=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectJob:
    """What is to be done to one host, or why it cannot be."""

    target: ConnectTarget
    options: ConnectOptions
    plan: ConnectPlan
    error: HarkenError | None = None

    @property
    def is_todo(self) -> bool:
        """Whether anything would change."""
        return self.error is None and bool(self.plan.steps)


def job_of(target: ConnectTarget, wake: str | None, *, is_alone: bool, has_approvals: bool | None = None) -> ConnectJob:
    """Return what is to be done to a host; what is wrong with it is raised when it `is_alone`, else kept.

    None for a choice: as it was chosen when the host was connected before.
    """
    options = _wishes(target, wake)
    target = _with_approvals(target, choice=has_approvals, is_alone=is_alone)
    try:
        _check_inbox(target)
        return ConnectJob(target=target, options=options, plan=_plan(target, options))
    except HarkenError as exc:
        if is_alone:
            raise
        return ConnectJob(
            target=target, options=options, plan=ConnectPlan(host=target.connector.name, steps=()), error=exc
        )


def _wishes(target: ConnectTarget, wake: str | None) -> ConnectOptions:
    """Return what the person chose, now or when they connected before."""
    ways, remote = target.connector.wakes, target.remote
    if wake is None:
        return ConnectOptions(wake=target.record.wake if target.record else "", remote=remote)
    if wake == "default":
        return ConnectOptions(remote=remote)
    if remote is not None:
        raise UserError("By URL there is no way to wake an agent.", "Leave out --wake.")
    if wake not in ways:
        known = "\n".join(f"{way}: {cost}" for way, cost in {"default": "What comes with it.", **ways}.items())
        raise UserError(f"{title_of(target.connector.name)} has no wake {wake[:40]!r}.", f"There are:\n{known}")
    return ConnectOptions(wake=wake)


def _check_inbox(target: ConnectTarget) -> None:
    """Raise where a host would have two inboxes: its settings have one entry of ours, and several places for it."""
    title, remote, project = title_of(target.connector.name), target.remote, target.place.project
    for record in records(target.place.harken):
        is_other = record.host == target.connector.name and (record.remote is None) != (remote is None)
        is_here = target.record is not None and record.key == target.record.key
        if is_other and (is_here or not record.project or project is None):
            where = f" in {short(Path(record.project))}" if record.project else ""
            inbox = f"the inbox at {record.url}" if record.url else "the inbox on this machine"
            again = f"harken disconnect {record.host}" + (f" --project {record.project}" if record.project else "")
            raise UserError(f"{title} is connected to {inbox}{where}.", f"An agent has one inbox. First: {again}")


def _with_approvals(target: ConnectTarget, *, choice: bool | None, is_alone: bool) -> ConnectTarget:
    """Return a host with what the person chose about its questions, now or when they connected before."""
    name = target.connector.name
    can_ask = hosts()[name].is_answered_elsewhere and target.remote is None
    if choice and target.remote is not None:
        raise UserError("By URL an agent has no hooks, so its questions stay with it.", "Leave out --approvals.")
    if choice and not can_ask and is_alone:
        able = ", ".join(each for each, host in hosts().items() if host.is_answered_elsewhere)
        raise UserError(f"{title_of(name)} cannot be answered from elsewhere yet.", f"These can: {able}.")
    has_approvals = can_ask and (target.place.has_approvals if choice is None else choice)
    return replace(target, place=replace(target.place, has_approvals=has_approvals))


def _plan(target: ConnectTarget, options: ConnectOptions) -> ConnectPlan:
    if target.fault is not None:
        raise target.fault
    plan = target.connector.plan(target.place, options)
    if target.found:
        return plan
    title = title_of(target.connector.name)
    if any(isinstance(step, CommandStep) for step in plan.steps):
        raise NotFound(f"{title} is not installed.", "Install it, then run this again: connecting needs it.")
    note = f"{title} was not found on the PATH. Its files are prepared, and nothing could be verified."
    return replace(plan, notes=(note, *plan.notes))
