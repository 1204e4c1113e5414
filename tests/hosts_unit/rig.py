"""What the tests of hosts without their programs share: a run that is to be started, and a place to be connected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harken.hosts.connect.plan import ConnectPlan, FileEdit, InstallTarget
from harken.runs.sandbox import SandboxCommand, SandboxRequest, ToolServer
from harken.runs.tools import parse_tool
from harken.testing.agent import Json

NEAR: Final = ToolServer(name="near", command=("near", "--serve"), env={"NEAR_KEY": "n"})
FAR: Final = ToolServer(name="far.away", url="https://example.org/mcp", headers={"Authorization": "Bearer f"})


def work_of(
    folder: Path, *tools: str, prompt: str = "do it", servers: Sequence[ToolServer] = (), **environ: str
) -> SandboxRequest:
    """Return a run in a folder, of a person whose home is beside it; a server that is not given is a program."""
    parsed = tuple(map(parse_tool, tools))
    given = {server.name: server for server in (*servers, NEAR, FAR)}
    names = {tool.server for tool in parsed if tool.server}
    workdir = folder / "project"
    if folder.is_dir():
        workdir.mkdir(exist_ok=True)
    return SandboxRequest(
        prompt=prompt,
        workdir=workdir,
        tools=parsed,
        servers={
            name: given.get(name) or ToolServer(name=name, command=("serve", name), env={"A": "b"}) for name in names
        },
        max_turns=7,
        private=folder / "run",
        program="/opt/it",
        environ={"HOME": str(folder / "user"), "PATH": "/bin", "HARKEN_HOME": "/h", "OTHER": "x", **environ},
    )


def json_of(command: SandboxCommand, path: str) -> Json:
    """Return a file of JSON in the private folder of a run."""
    (found,) = [each for each in command.files if each.path == path]
    return json.loads(found.content)


def own_environment(command: SandboxCommand) -> dict[str, str]:
    """Return the environment of a run without what keeps git from asking."""
    return {name: value for name, value in command.env.items() if not name.startswith("GIT_")}


def place_of(folder: Path, project: Path | None = None) -> InstallTarget:
    """Return a place with everything below one folder, and no programs."""
    return InstallTarget(
        user=folder / "user",
        environ={"PATH": "/nowhere"},
        project=project,
        harken=folder / "harken home",
        python="/usr/bin/python3",
        edge=folder / "edge",
    )


def put(plan: ConnectPlan) -> None:
    """Write what a plan says."""
    for step in plan.steps:
        assert isinstance(step, FileEdit)
        assert (step.path.read_bytes() if step.path.exists() else None) == step.before
        step.path.parent.mkdir(parents=True, exist_ok=True)
        if step.after is None:
            step.path.unlink()
        else:
            step.path.write_bytes(step.after)
