"""Writes what the edge must know of the hosts: `src/harken/edge/host_table.py`, from the hosts' own declarations.

The edge imports nothing of Harken, because an agent waits for its start.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harken.hosts.host import Host
from harken.hosts.registry import built_in_hosts
from scripts.generated import PACKAGE, run

TABLE: Final = PACKAGE / "edge" / "host_table.py"
WIDTH: Final = 115
# What no host sets, and the daemon wants to know all the same.
OF_EVERY_HOOK: Final = ("HARKEN_TASK", "HOME", "PATH")
OF_EVERY_SERVER: Final = ("AI_AGENT",)


def table() -> str:
    """Return the whole module."""
    hosts = built_in_hosts()
    hooks = [name for host in hosts for name in host.hook_variables]
    servers = [name for host in hosts for name in host.server_variables]
    return (
        '"""What the edge knows of the hosts. Written by `scripts/edge_table.py` from their declarations: change '
        'those."""\n\n'
        "from __future__ import annotations\n\n"
        f"{_names('HOOK_VARIABLES', (*hooks, *OF_EVERY_HOOK))}\n"
        f"{_names('SERVER_VARIABLES', (*servers, *OF_EVERY_SERVER))}\n"
        "# Of each host: its name, and where its session id, its process and its own folder are; the usual folder.\n"
        f"WAITERS = ({' '.join(filter(None, map(_waiter, hosts)))})\n"
    )


def _waiter(host: Host) -> str:
    shell = host.waiting_shell
    if shell is None:
        return ""
    facts = (host.name, host.session_variable, shell.process_variable, shell.home_variable, shell.home)
    return f"({', '.join(map(json.dumps, facts))}),"


def _names(constant: str, names: Iterable[str]) -> str:
    """Return names as the edge keeps them: one text, split when it is used."""
    lines = textwrap.wrap(" ".join(dict.fromkeys(names)), WIDTH - 5)
    quoted = [f'    "{line}{" " if number < len(lines) else ""}"\n' for number, line in enumerate(lines, 1)]
    return f"{constant} = (\n{''.join(quoted)})\n"


if __name__ == "__main__":
    sys.exit(run("edge_table", TABLE, table, sys.argv[1:]))
