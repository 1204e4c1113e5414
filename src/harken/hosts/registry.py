"""The hosts by name: those of this package's own folders, and those that other packages offer as `harken.hosts`.

The one place that finds them, once for each process. Both are treated alike; an offered one that is broken, or takes a
name that is taken, is left out and named by `broken_hosts`. What a host is called on the command line may be shorter
than its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from harken.display import one_line
from harken.errors import NotFound, UserError
from harken.hosts.host import GENERIC, Host, HostMarks, InteractiveCommand
from harken.plugins import BrokenPlugin, guarded, load_plugin, plugin_entries

if TYPE_CHECKING:  # imported when they are asked for: a verb about one host does not pay for the others
    from harken.hosts.connect.plan import Connector
    from harken.hosts.hook import HookAdapter
    from harken.hosts.trial_recipe import TrialRecipe
    from harken.hosts.wake import PushChannel
    from harken.runs.sandbox import Sandbox

GROUP: Final = "harken.hosts"
_DECLARATION: Final = "host"


@dataclass(frozen=True, slots=True)
class _FoundHosts:
    hosts: Mapping[str, Host]
    broken: Sequence[BrokenPlugin]


def hosts() -> Mapping[str, Host]:
    """Return all hosts by their names, in their order."""
    return _found().hosts


def broken_hosts() -> Sequence[BrokenPlugin]:
    """Return the hosts of other packages that cannot be used, each with the reason."""
    return _found().broken


def host_names() -> list[str]:
    """Return the names of all hosts, in their order."""
    return list(hosts())


def host_words() -> list[str]:
    """Return all that hosts are called on the command line: the names, then the shorter ones."""
    return [*hosts(), *_aliases()]


def host_named(name: str) -> Host:
    """Return a host by its own name; what no host has is generic."""
    return hosts().get(name, GENERIC)


def host_title(name: str) -> str:
    """Return what people call a host; the name itself where there is no such host."""
    host = hosts().get(name)
    return host.title if host else name


def host_of_client(client_name: str) -> Host:
    """Return the host that a clientInfo name belongs to. Some append a version or a number to theirs."""
    name = client_name.strip().lower()
    for host in hosts().values():
        if any(name == known or name.startswith(known + "-") for known in host.client_names):
            return host
    return GENERIC


def host_name(word: str) -> str:
    """Return the name of the host that a word means; raises `NotFound` with the one that was probably meant."""
    name = word.strip().lower()
    name = _aliases().get(name, name)
    if name in hosts():
        return name
    close = get_close_matches(name, host_words(), 1)
    guess = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(hosts())}."
    raise NotFound(f"There is no host {word[:40]!r}.", guess)


def connectable() -> list[str]:
    """Return the names of the hosts that this Harken can connect."""
    return [name for name, host in hosts().items() if host.connector]


def connector(name: str) -> Connector:
    """Return how a host is connected; raises `NotFound` for one that cannot be."""
    host = hosts()[host_name(name)]
    if host.connector is None:
        raise _missing(host, "way to be connected")
    if host in built_in_hosts():
        return host.connector()
    return guarded(f"The host {host.name}", host.connector, name=host.name)


def hook_host(name: str) -> HookAdapter:
    """Return how a host's hooks speak; raises `NotFound` for one that has none."""
    host = hosts()[host_name(name)]
    if host.hooks is None:
        raise _missing(host, "hooks")
    return host.hooks()


@cache
def hook_adapter(name: str) -> HookAdapter | None:
    """Return how a host's hooks speak; None for what is no host, or has no hooks."""
    host = host_named(name)
    return host.hooks() if host.hooks else None


def interactive(name: str) -> InteractiveCommand:
    """Return how you start a host; raises `NotFound` for one without a command for a terminal."""
    host = hosts()[host_name(name)]
    if host.interactive is None:
        raise _missing(host, "command for a terminal")
    return host.interactive


def acp_command(name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what starts a host that speaks the Agent Client Protocol; raises for one that does not, or is not here."""
    host = host_named(name)
    if host.acp is None:
        raise UserError(f"{host_title(name)} cannot be hosted.", "Start it in a terminal: harken task start")
    fact = host.interactive if host.interactive and not host.acp.program else host.acp
    path = os.pathsep.join((environ.get("PATH", os.defpath), str(Path.home() / ".local" / "bin")))
    found = shutil.which(fact.program, path=path)
    if found is None:
        raise NotFound(f"{host_title(name)} is not installed.", f"Install it: {fact.install}")
    return (found, *host.acp.argv)


def trial_recipe(name: str) -> TrialRecipe:
    """Return how a host is started for a trial; raises `NotFound` for one that cannot be tried."""
    host = hosts()[host_name(name)]
    if host.trial is None:
        raise _missing(host, "way to be tried")
    return host.trial()


def sandboxes() -> list[Sandbox]:
    """Return how each host runs fenced, of those that can."""
    return [host.sandbox() for host in hosts().values() if host.sandbox]


def push_channels() -> Mapping[str, PushChannel]:
    """Return the channels of hosts that have one, by the host's name."""
    return {name: host.channel() for name, host in hosts().items() if host.channel}


def host_marks() -> Mapping[str, HostMarks]:
    """Return by what the programs that each host starts are known."""
    return {name: host.marks for name, host in hosts().items()}


@cache
def _found() -> _FoundHosts:
    taken: dict[str, Host] = {}
    broken: list[BrokenPlugin] = []
    for host in built_in_hosts():
        taken.update(dict.fromkeys((host.name, *host.aliases), host))
    for entry in plugin_entries(GROUP):
        offered = load_plugin(entry, Host)
        if isinstance(offered, BrokenPlugin):
            broken.append(offered)
        elif twice := [word for word in (offered.name, *offered.aliases) if word in (*taken, GENERIC.name)]:
            broken.append(BrokenPlugin(entry, f"there is a host called {twice[0]} already"))
        else:
            taken.update(dict.fromkeys((offered.name, *offered.aliases), offered))
    ordered = sorted({host.name: host for host in taken.values()}.values(), key=lambda host: (host.order, host.name))
    return _FoundHosts(MappingProxyType({host.name: host for host in ordered}), tuple(broken))


def built_in_hosts() -> Sequence[Host]:
    """Return the hosts of this package's own folders, in their order."""
    folders = [file.parent.name for file in Path(__file__).parent.glob(f"*/{_DECLARATION}.py")]
    found: list[Host] = [import_module(f"harken.hosts.{folder}.{_DECLARATION}").HOST for folder in folders]
    return sorted(found, key=lambda host: host.order)


@cache
def _aliases() -> Mapping[str, str]:
    return MappingProxyType({alias: host.name for host in hosts().values() for alias in host.aliases})


def _missing(host: Host, part: str) -> NotFound:
    return NotFound(f"{host.title} has no {part}, as it is declared.", "See: harken doctor")


def title_of(host: str) -> str:
    """Return what people call a host."""
    return one_line(host_title(host))


def short(path: Path) -> str:
    """Return a path as people write it."""
    home = Path.home()
    return one_line(f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path))
