"""The hosts by name: how each is connected, how its hooks speak, and what marks the programs that it starts.

The one place that knows the host packages. They are imported when they are asked for: a verb about one host does not
pay for the others. What a host is called on the command line may be shorter than its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final

from harken.errors import NotFound

if TYPE_CHECKING:  # the command line reads the names, and imports nothing else until a verb is run
    from harken.hosts.hook import HookHost
    from harken.hosts.marks import HostMarks
    from harken.hosts.plan import Connector
    from harken.runs.jail import Jail

PACKAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "claude-code": "claude_code",
        "copilot-cli": "copilot",
        "codex": "codex",
        "gemini-cli": "gemini",
        "opencode": "opencode",
        "qwen-code": "qwen",
    }
)
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"claude": "claude-code", "copilot": "copilot-cli", "gemini": "gemini-cli", "qwen": "qwen-code"}
)
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "claude-code": "Claude Code",
        "copilot-cli": "Copilot CLI",
        "codex": "Codex",
        "gemini-cli": "Gemini CLI",
        "opencode": "opencode",
        "qwen-code": "Qwen Code",
    }
)


def host_name(word: str) -> str:
    """Return the name of the host that a word means; raises `NotFound` with the one that was probably meant."""
    name = word.strip().lower()
    name = ALIASES.get(name, name)
    if name in PACKAGES:
        return name
    close = get_close_matches(name, [*PACKAGES, *ALIASES], 1)
    guess = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(PACKAGES)}."
    raise NotFound(f"There is no host {word[:40]!r}.", guess)


def connectable() -> list[str]:
    """Return the names of the hosts that this Harken can connect."""
    return [name for name, package in PACKAGES.items() if _has(package, "connect")]


def connector(name: str) -> Connector:
    """Return how a host is connected; raises `NotFound` for one that cannot be."""
    found: Connector = _module(name, "connect").CONNECTOR
    return found


def hook_host(name: str) -> HookHost:
    """Return how a host's hooks speak; raises `NotFound` for one that has none."""
    found: HookHost = _module(name, "hooks").HOOKS
    return found


def jails() -> list[Jail]:
    """Return how each host runs fenced, of those that can."""
    return [_module(name, "headless").JAIL for name, package in PACKAGES.items() if _has(package, "headless")]


def host_marks() -> Mapping[str, HostMarks]:
    """Return by what the programs that each host starts are known."""
    return {name: _module(name, "marks").MARKS for name in PACKAGES}


def _has(package: str, part: str) -> bool:
    return (Path(__file__).parent / package / f"{part}.py").is_file()


def _module(name: str, part: str) -> ModuleType:
    host = host_name(name)
    module = f"harken.hosts.{PACKAGES[host]}.{part}"
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not module.startswith(exc.name):
            raise  # a library is missing, not the host
        raise NotFound(f"This version of Harken has no {part} for {TITLES[host]}.", "See: harken doctor") from exc
