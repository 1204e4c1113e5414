"""The texts by which systemd and launchd start the daemon when the person logs in. Pure: values in, text out.

A unit carries a mark with a digest of the rest, so that a file that another program wrote, or that was changed since,
is known and left alone. What is written where, and which commands follow, is in `service_run.py`, above.

The unit restricts nothing of what the daemon starts: runs are agents at work, and options such as NoNewPrivileges,
ProtectSystem or UMask hold for all their tools too. They would break sudo, containers and fences that need setuid
programs, and files that others should read. What limits a run is its fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MARK: Final = "Written by `harken service install`; `harken service remove` takes it away. sha256:"
RESTART_SECONDS: Final = 5
STOP_SECONDS: Final = 20
GIVE_UP_SECONDS: Final = 300
MOST_STARTS: Final = 5
DIGEST_CHARS: Final = 16

_MARKED: Final = re.compile(re.escape(MARK) + r"([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCommand:
    """What a service starts: the command, the environment it has, and of which home it is."""

    command: Sequence[str]
    environ: Mapping[str, str]
    home: str
    is_usual: bool  # the home is the one that needs no name


def unit_name(daemon: ServiceCommand) -> str:
    """Return what the service is called: each home has one of its own."""
    if daemon.is_usual:
        return "harken"
    return f"harken-{hashlib.sha256(daemon.home.encode('utf-8', 'surrogateescape')).hexdigest()[:DIGEST_CHARS]}"


def systemd_unit(daemon: ServiceCommand) -> str:
    """Return the text of a unit of the person's own systemd."""
    environ = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in daemon.environ.items())
    command = " ".join(_quoted(word).replace("$", "$$") for word in daemon.command)
    return _marked(
        "[Unit]\n"
        f"Description=Harken, the inbox of coding agents ({_plain(daemon.home)})\n"
        f"StartLimitIntervalSec={GIVE_UP_SECONDS}\n"
        f"StartLimitBurst={MOST_STARTS}\n"
        "\n[Service]\n"
        "Type=exec\n"
        f"ExecStart={command}\n"
        f"{environ}"
        "Restart=on-failure\n"
        f"RestartSec={RESTART_SECONDS}\n"
        # A mistake in the settings, or another daemon of the same home: trying again changes nothing.
        "RestartPreventExitStatus=2 4\n"
        # The daemon ends its runs itself; what is left after that is ended with it.
        "KillMode=mixed\n"
        f"TimeoutStopSec={STOP_SECONDS}\n"
        # A run that used up the memory must not take the daemon with it.
        "OOMPolicy=continue\n"
        # A dump of its memory would hold messages. Only the soft limit: what it starts may raise it again.
        "LimitCORE=0:infinity\n"
        "\n[Install]\n"
        "WantedBy=default.target\n",
        "# {}\n",
    )


def launchd_agent(daemon: ServiceCommand, label: str, log: str) -> str:
    """Return the text of an agent of launchd; what it prints before its own log is open goes to `log`."""
    import plistlib

    agent: dict[str, object] = {
        "Label": label,
        "ProgramArguments": list(daemon.command),
        "EnvironmentVariables": dict(daemon.environ),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 2 * RESTART_SECONDS,
        "ExitTimeOut": STOP_SECONDS,
        "StandardErrorPath": log,
        "SoftResourceLimits": {"Core": 0},
    }
    head, _, rest = plistlib.dumps(agent).decode().partition("<plist")
    return _marked(f"{head}<!-- {{}} -->\n<plist{rest}", "")


def is_ours(text: str) -> bool:
    """Whether a unit was written here, and not changed since."""
    found = _MARKED.search(text)
    return found is not None and found[1] == _digest(text.replace(found[0], MARK, 1))


def is_marked(text: str) -> bool:
    """Whether a unit was written here, changed or not."""
    return MARK in text


def _marked(text: str, line: str) -> str:
    """Put the mark into a text: at its `{}`, or above it on a line of its own."""
    whole = line.format(MARK) + text if line else text.replace("{}", MARK, 1)
    return whole.replace(MARK, MARK + _digest(whole), 1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _quoted(word: str) -> str:
    r"""Return a word as systemd reads it: `%` begins a specifier, `\` and `"` are escaped inside quotes."""
    escaped = _plain(word).replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _plain(text: str) -> str:
    return text.replace("%", "%%")
