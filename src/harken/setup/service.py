"""The service on this machine: its file, the programs that start and stop it, and what they say.

systemd for Linux, launchd for macOS; each behind the same few steps. It shows nothing and asks nothing: that is
`cli/service.py`, above. A unit carries a mark with a digest of the rest, so that a file which others wrote or changed
is known and left alone.

The unit restricts nothing of what the daemon starts: runs are agents at work, and options such as NoNewPrivileges,
ProtectSystem or UMask hold for all their tools too. They would break sudo, containers and fences that need setuid
programs, and files that others should read. What limits a run is its fence.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Protocol

from harken.config.folder import DEFAULT_HOME
from harken.config.home import Home, disk_error, ensure, expand_user, write_private
from harken.control.start import LOOK_SECONDS, START_SECONDS, daemon_facts, is_reachable, start
from harken.control.stop import stop
from harken.display import one_line
from harken.errors import Conflict, HarkenError, NotFound, Unavailable

COMMAND_SECONDS: Final = 60.0
SAID_CHARS: Final = 300
VARIABLES: Final = ("PATH", "LANG", "LC_ALL")
NO_BUS: Final = "Failed to connect to bus"
ENDED: Final = frozenset({"inactive", "failed"})
MARK: Final = "Written by `harken service install`; `harken service remove` takes it away. sha256:"
RESTART_SECONDS: Final = 5
STOP_SECONDS: Final = 20
GIVE_UP_SECONDS: Final = 300
MAX_STARTS: Final = 5
DIGEST_CHARS: Final = 16
_MARKED: Final = re.compile(re.escape(MARK) + r"([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """What the system says of the service. `activity` is its word: active, inactive, failed."""

    activity: str
    is_enabled: bool = False
    pid: int = 0

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self.activity in ("active", "activating", "reloading")


class Service(Protocol):
    """One home's daemon, as the system starts it."""

    @property
    def name(self) -> str:
        """What the system calls it."""
        ...

    @property
    def file(self) -> Path:
        """Where its text is."""
        ...

    @property
    def text(self) -> str:
        """What the file should say."""
        ...

    def state(self) -> ServiceState:
        """Ask the system."""
        ...

    def turning_on(self, *, is_new: bool) -> Sequence[Sequence[str]]:
        """Return the commands after the file was written."""
        ...

    def turning_off(self) -> Sequence[Sequence[str]]:
        """Return the commands before the file is removed."""
        ...

    def forgetting(self) -> Sequence[Sequence[str]]:
        """Return the commands after the file was removed."""
        ...

    def starting(self) -> Sequence[str]:
        """Return the command that starts what is installed."""
        ...

    def needs_login(self) -> bool:
        """Whether it ends when the person logs out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Systemd:
    """A unit of the person's own systemd."""

    name: str
    file: Path
    text: str
    program: str
    user: str

    def state(self) -> ServiceState:
        """Ask for its properties."""
        said = call(self._control("show", self.name, "--property=ActiveState,UnitFileState,MainPID"))
        facts = dict(line.partition("=")[::2] for line in said.splitlines() if "=" in line)
        pid = facts.get("MainPID", "")
        return ServiceState(
            activity=facts.get("ActiveState", "") or "inactive",
            is_enabled=facts.get("UnitFileState") == "enabled",
            pid=int(pid) if pid.isdecimal() else 0,
        )

    def turning_on(self, *, is_new: bool) -> Sequence[Sequence[str]]:
        """Read the units anew, and start it now and at every login."""
        reload = self._control("daemon-reload")
        if is_new:
            return reload, self._control("enable", "--now", self.name)
        return reload, self._control("enable", self.name), self._control("restart", self.name)

    def turning_off(self) -> Sequence[Sequence[str]]:
        """Stop it, and do not start it any more."""
        return (self._control("disable", "--now", self.name),)

    def forgetting(self) -> Sequence[Sequence[str]]:
        """Read the units anew."""
        return (self._control("daemon-reload"),)

    def starting(self) -> Sequence[str]:
        """Start it."""
        return self._control("start", self.name)

    def needs_login(self) -> bool:
        """Whether the person's units end with their last login, as far as can be told."""
        program = shutil.which("loginctl")
        if program is None:
            return True
        try:
            said = call((program, "show-user", self.user, "--property=Linger", "--value"))
        except Unavailable:
            return True
        return said.strip() != "yes"

    def _control(self, *words: str) -> tuple[str, ...]:
        return (self.program, "--user", *words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launchd:
    """An agent of launchd."""

    name: str
    file: Path
    text: str
    program: str
    domain: str

    def state(self) -> ServiceState:
        """Ask whether it is loaded, and which process it has."""
        try:
            said = call((self.program, "print", f"{self.domain}/{self.name}"))
        except Unavailable:
            return ServiceState(activity="inactive")
        lines = [line.strip().partition(" = ") for line in said.splitlines()]
        pid = next((value for key, _, value in lines if key == "pid" and value.isdecimal()), "0")
        return ServiceState(activity="active" if int(pid) else "inactive", is_enabled=True, pid=int(pid))

    def turning_on(self, *, is_new: bool) -> Sequence[Sequence[str]]:
        """Load it; it starts at once."""
        load = (self.program, "bootstrap", self.domain, str(self.file))
        return (load,) if is_new else (*self.turning_off(), load)

    def turning_off(self) -> Sequence[Sequence[str]]:
        """Stop and unload it."""
        return ((self.program, "bootout", f"{self.domain}/{self.name}"),)

    def forgetting(self) -> Sequence[Sequence[str]]:
        """Return nothing: an agent that is not loaded is forgotten."""
        return ()

    def starting(self) -> Sequence[str]:
        """Start it."""
        return self.program, "kickstart", f"{self.domain}/{self.name}"

    def needs_login(self) -> bool:
        """Whether it ends with the login: always."""
        return True


def service_of(home: Home, environ: Mapping[str, str]) -> Service:
    """Return the service of a home on this machine; raises `NotFound` where there can be none."""
    daemon = _daemon(home, environ)
    name = unit_name(daemon)
    if sys.platform == "darwin" and (launchctl := shutil.which("launchctl", path=environ.get("PATH"))):
        text = launchd_agent(daemon, name, str(home.logs_dir / "service.log"))
        domain = f"gui/{os.getuid()}"
        return Launchd(name=name, file=_file(home, environ), text=text, program=launchctl, domain=domain)
    systemctl = shutil.which("systemctl", path=environ.get("PATH"))
    if systemctl is None or sys.platform == "darwin":
        raise NotFound(
            "There is neither systemd nor launchd here.",
            f"Have this machine's supervisor run: {' '.join(daemon.command)}\nor start it by hand: harken up",
        )
    user = environ.get("USER") or str(os.getuid())
    unit = f"{name}.service"
    return Systemd(name=unit, file=_file(home, environ), text=systemd_unit(daemon), program=systemctl, user=user)


def installed(home: Home, environ: Mapping[str, str]) -> Path | None:
    """Return the file of a home's service, if there is one."""
    file = _file(home, environ)
    return file if file.is_file() else None


def written(service: Service) -> str | None:
    """Return what the service's file says, None when there is none; raises `Conflict` when it is not ours."""
    try:
        text = service.file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise disk_error("read", service.file, exc) from exc
    if not is_ours(text):
        raise Conflict(
            f"{service.file} was not written by Harken, or was changed.", "Check it, then remove it or move it away."
        )
    return text


def is_changed(service: Service) -> bool:
    """Whether another program wrote the service's file, or it was changed since."""
    try:
        written(service)
    except Conflict:
        return True
    return False


def write(service: Service, home: Home) -> None:
    """Write the service's file."""
    ensure(home)
    try:
        service.file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise disk_error("create", service.file.parent, exc) from exc
    write_private(service.file, service.text)


def take_away(service: Service) -> None:
    """Remove the service's file."""
    try:
        service.file.unlink(missing_ok=True)
    except OSError as exc:
        raise disk_error("remove", service.file, exc) from exc


def call(argv: Sequence[str]) -> str:
    """Run a command of the system and return what it printed; raises `Unavailable` when it fails."""
    name = Path(argv[0]).name
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"{name} could not be run, or did not end in time.", f"Try it: {' '.join(argv)}") from exc
    if done.returncode == 0:
        return done.stdout
    said = one_line((done.stderr or done.stdout).strip())[:SAID_CHARS]
    if NO_BUS in said:
        raise Unavailable(
            f"systemd is not running for your account ({said}).",
            "Log in as yourself, not through su or sudo. In a container, start Harken with: harken up",
        )
    raise Unavailable(f"{name} {argv[-1]} failed: {said or done.returncode}", f"Try it: {' '.join(argv)}")


def await_start(home: Home, service: Service) -> bool:
    """Wait until the daemon can be reached; return whether it can, False as soon as the service has ended."""
    return _until(lambda: is_reachable(home), lambda: service.state().activity in ENDED)


def start_by_service(home: Home, environ: Mapping[str, str]) -> bool:
    """Start the daemon by its service, if there is one; return whether it runs then."""
    if installed(home, environ) is None:
        return False
    try:
        service = service_of(home, environ)
        written(service)
        call(service.starting())
        return await_start(home, service)
    except (Conflict, NotFound, Unavailable):
        return False  # whoever asked starts it without, and is told what is wrong by that


def remove(found: Service) -> None:
    """Stop a service and take its file away."""
    for argv in found.turning_off():
        call(argv)
    take_away(found)
    for argv in found.forgetting():
        call(argv)


def install(home: Home, found: Service, before: str | None, state: ServiceState) -> None:
    """Write the unit and start it; when the system refuses, everything is as it was."""
    write(found, home)
    running = int(daemon_facts(home).get("pid", 0)) if is_reachable(home) else 0
    try:
        if running and running != state.pid:
            # Agents that are open are not to start another one in between.
            write_private(home.down_file, "")
            stop(home, only=running)
        for argv in found.turning_on(is_new=before is None):
            call(argv)
        if not await_start(home, found) or not found.state().is_active:
            raise Unavailable(f"{found.name} does not start.", f"See: {_why(found)}\nand {home.daemon_log}")
    except HarkenError:
        _take_back(home, found, before, was_running=bool(running) and running != state.pid)
        raise


def _take_back(home: Home, found: Service, before: str | None, *, was_running: bool) -> None:

    for argv in found.turning_off() if before is None else ():
        with suppress(Unavailable):
            call(argv)
    if before is None:
        take_away(found)
    else:
        write_private(found.file, before)
    for argv in found.forgetting():
        with suppress(Unavailable):
            call(argv)
    if was_running:
        start(home)


def _why(found: Service) -> str:
    if found.file.suffix == ".service":
        return f"journalctl --user --unit {found.name}"
    return f"launchctl print for {found.name}"


def _until(is_so: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
    end, look_at = monotonic() + START_SECONDS, monotonic() + 1.0
    while not is_so():
        if monotonic() > end:
            return False
        if monotonic() > look_at:
            look_at = monotonic() + 1.0
            if is_over():
                return is_so()
        sleep(LOOK_SECONDS)
    return True


def _daemon(home: Home, environ: Mapping[str, str]) -> ServiceCommand:
    return ServiceCommand(
        command=(sys.executable, "-I", "-m", "harken", "serve", "--home", str(home.path)),
        environ={name: environ[name] for name in VARIABLES if environ.get(name, "").isprintable() and name in environ},
        home=str(home.path),
        is_usual=_is_usual(home, environ),
    )


def _is_usual(home: Home, environ: Mapping[str, str]) -> bool:
    return home.path == expand_user(DEFAULT_HOME, environ)


def _file(home: Home, environ: Mapping[str, str]) -> Path:
    name = unit_name(ServiceCommand(command=(), environ={}, home=str(home.path), is_usual=_is_usual(home, environ)))
    if sys.platform == "darwin":
        return expand_user("~/Library/LaunchAgents", environ) / f"{name}.plist"
    settings = environ.get("XDG_CONFIG_HOME") or expand_user("~/.config", environ)
    return Path(settings) / "systemd" / "user" / f"{name}.service"


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
        f"Description=Harken, an inbox for coding agents ({_plain(daemon.home)})\n"
        f"StartLimitIntervalSec={GIVE_UP_SECONDS}\n"
        f"StartLimitBurst={MAX_STARTS}\n"
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
