"""What `doctor` looks at: is everything in place, is it current, and what has been proven. It changes nothing.

What a surface has delivered is asked of a daemon that runs; none is started to be looked at. Each host is looked at
by its own module, which asks the host itself where it can.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harken import __version__
from harken.clock import SystemClock
from harken.config.home import Home
from harken.config.load import is_elsewhere, load, target_of
from harken.config.satellite import joined_to
from harken.config.settings import StoreSettings
from harken.control.client import DaemonClient, NoDaemon, Result
from harken.display import counted, one_line
from harken.errors import HarkenError, NotFound, UserError
from harken.hosts.connect.apply import verify
from harken.hosts.connect.plan import CheckFinding, CommandStep, ConnectOptions
from harken.hosts.connect.record import records
from harken.hosts.connect.targets import ConnectTarget
from harken.hosts.registry import broken_hosts, short
from harken.plugins import PluginFault
from harken.setup.service import installed, is_changed, service_of
from harken.sources.source import SourceState

if TYPE_CHECKING:  # importing it here is what this module puts off
    from harken.store.sqlite.transfer import StoreContents

ASK_SECONDS: Final = 10.0
SILENT_AFTER: Final = timedelta(seconds=30)
ASK_BYTES: Final = 1_000
MAX_ASKED: Final = 200  # approvals that are looked at
HEALTHY: Final = 200
ANSWERS: Final = "the daemon answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHealth:
    """What there is to know of Harken itself, what is wrong with it, and what its surfaces have proven."""

    facts: Result
    findings: Sequence[CheckFinding]
    surfaces: Sequence[Result]
    approvals: Sequence[Result] = ()  # of each host: how many it asked, and how many answers it was proven to obey

    @property
    def is_mute(self) -> bool:
        """Whether a daemon runs that cannot say how it is."""
        return any(each.what == ANSWERS for each in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHealth:
    """What was found out about one host: where it is connected, and whether that is in order."""

    target: ConnectTarget
    findings: Sequence[tuple[Path | None, CheckFinding]]  # by the project they are about
    is_connected: bool


def health_of(target: ConnectTarget) -> HostHealth:
    """Look at one host, for the person and in every project where it is connected."""
    if target.fault is not None:
        return HostHealth(target=target, findings=[(None, _faulty(target.fault))], is_connected=True)
    own = list(_connection(target)) if is_connected(target) else []
    findings: list[tuple[Path | None, CheckFinding]] = [(None, finding) for finding in own]
    for record in records(target.place.harken):
        if record.host == target.connector.name and record.project:
            findings += [(Path(record.project), finding) for finding in _connection(target.recorded(record))]
    return HostHealth(target=target, findings=findings, is_connected=bool(findings))


def is_connected(target: ConnectTarget) -> bool:
    """Whether it was connected, by our record or by entries in its files."""
    if target.record is not None:
        return True
    try:
        return bool(target.connector.removal(target.place).steps)
    except UserError:
        return False  # a file that cannot be understood: `connect` says so


def _connection(target: ConnectTarget) -> Iterator[CheckFinding]:
    name, record, project = target.connector.name, target.record, target.place.project
    again = f"harken connect {name}" + (f" --project {project}" if project else "")
    if project is not None and not project.is_dir():
        yield CheckFinding(what=f"{project} is there", is_good=False, hint=f"Run: harken disconnect {name} --project …")
        return
    if not target.found:
        yield CheckFinding(
            what="it is installed", is_good=False, hint=f"Install it, put it on the PATH, or: harken disconnect {name}"
        )
    if record is None:
        yield CheckFinding(
            what="connected by this home", is_good=False, hint=f"Its entries are of another. Run: {again}"
        )
    elif not record.is_whole:
        yield CheckFinding(what="connecting was finished", is_good=False, hint=f"It was interrupted. Run: {again}")
    try:
        plan = target.connector.plan(target.place, ConnectOptions(wake=record.wake if record else ""))
    except PluginFault as fault:
        yield _faulty(fault)
        return
    except HarkenError as exc:
        yield CheckFinding(what="its settings can be read", is_good=False, hint=f"{exc.message} {exc.hint}")
        return
    about = [step.why if isinstance(step, CommandStep) else f"{short(step.path)} ({step.why})" for step in plan.steps]
    other = f" It was connected with {record.python}." if record and record.python != target.place.python else ""
    hint = f"Not as this Harken would write it: {', '.join(about)}.{other} Run: {again}" if about else ""
    yield CheckFinding(what="connected and current", is_good=not about, hint=hint)
    if target.found:
        try:
            yield from verify(target.connector, target.place)
        except PluginFault as fault:
            yield _faulty(fault)


def _faulty(fault: PluginFault) -> CheckFinding:
    return CheckFinding(what="its package works", is_good=False, hint=f"{fault.message} {fault.hint}")


def own_health(home: Home) -> OwnHealth:
    """Look at Harken itself; a daemon that runs is asked, none is started."""
    facts: Result = {"version": __version__, "home": str(home.path), "python": sys.executable, "daemon": None}
    findings = [_interpreter(record.python, record.host) for record in records(home.path) if record.python]
    findings = [finding for finding in findings if not finding.is_good]
    findings += [
        CheckFinding(what="every host of other packages can be used", is_good=False, hint=f"Left out: {each}.")
        for each in broken_hosts()
    ]
    findings += _settings(home)
    record = joined_to(home)
    findings += _database(home) if record is None else []
    surfaces: list[Result] = []
    approvals: list[Result] = []
    try:
        with DaemonClient(home, can_start=False) as daemon:
            status = daemon.ask_within(ASK_SECONDS, "status")
            facts["daemon"] = status["daemon"]
            findings += _rules_for_approvals(status)
            if problem := facts["daemon"].get("places_problem"):  # an older daemon does not say
                hint = f"{problem} End some that you do not need."
                findings.append(CheckFinding(what="an agent that starts finds a place", is_good=False, hint=hint))
            surfaces = _evidence(daemon)
            approvals = _approvals(daemon)
            if record is not None:
                what = f"this machine is the satellite {record.machine} of {record.url}, and linked to it"
                findings.append(CheckFinding(what=what, is_good=True))
            findings += map(_source, daemon.ask_within(ASK_SECONDS, "source_list")["sources"])
            findings += _sign_ins(daemon)
            findings += _public_address(home, facts["daemon"]["public_url"])
    except NoDaemon:
        if home.down_file.exists():
            hint = "It was stopped with `harken down`: agents do not start it. Run: harken up"
            findings.append(CheckFinding(what="the daemon is allowed to start", is_good=False, hint=hint))
    except HarkenError as exc:
        findings.append(CheckFinding(what=ANSWERS, is_good=False, hint=f"{exc.message} {exc.hint}"))
    if facts["daemon"]:
        version = facts["daemon"]["version"]
        hint = f"It is version {version}. Run: harken up"
        what = "the daemon is of this version"
        findings.append(CheckFinding.of(what, hint, is_good=version == __version__))
    findings += _service(home)
    return OwnHealth(facts=facts, findings=findings, surfaces=surfaces, approvals=approvals)


def _settings(home: Home) -> list[CheckFinding]:
    """Return what is wrong with the settings: with those a daemon cannot start."""
    what = "the settings in config.toml are valid"
    try:
        load(home, {}, {})
    except HarkenError as exc:
        return [CheckFinding(what=what, is_good=False, hint=f"{exc.message} {exc.hint}")]
    return [CheckFinding(what=what, is_good=True)] if home.config_file.exists() else []


def _public_address(home: Home, listens_at: str) -> list[CheckFinding]:
    """Try the address for other machines, from this one: what is before it (a firewall, a name) shows only so far."""
    try:
        settings = load(home, {}, {}).settings.http
    except HarkenError:
        return []  # what is wrong with them is said before
    if not settings.public_listen:
        return []
    if not listens_at:
        hint = "See why in logs/daemon.log: another program may have its port, or its certificate cannot be used."
        return [CheckFinding(what=f"other machines are let in at {settings.public_listen}", is_good=False, hint=hint)]
    import http.client
    import ssl
    from urllib.parse import urlsplit

    place = urlsplit(listens_at)
    kind = http.client.HTTPConnection if place.scheme == "http" else http.client.HTTPSConnection
    client = kind(place.hostname or "", place.port, timeout=ASK_SECONDS)
    try:
        client.request("GET", f"{place.path.rstrip('/')}/healthz")
        answer = client.getresponse()
        is_ours = answer.status == HEALTHY and answer.read(ASK_BYTES) == b'{"status":"ok"}'
        hint = f"Something else answers there ({answer.status}). Look at http.public_url, and at the proxy before it."
    except ssl.SSLCertVerificationError as exc:
        is_ours, why = False, exc.verify_message.rstrip(".")
        hint = (
            f"Its certificate is not trusted here: {why}. Look at http.certificate. If you run an authority of your "
            "own, try it with SSL_CERT_FILE=FILE harken doctor; other machines need that file, too."
        )
    except (OSError, ValueError, http.client.HTTPException) as exc:
        reason = getattr(exc, "strerror", None) or exc
        is_ours, hint = False, f"It cannot be reached from this machine: {reason}. Look at its name and the firewall."
    finally:
        client.close()
    return [CheckFinding.of(f"{one_line(listens_at)} answers, as tried from this machine", hint, is_good=is_ours)]


def _database(home: Home) -> list[CheckFinding]:
    """Return what is wrong inside the database: damage in what is seldom read would be found late."""
    from harken.store.sqlite.connection import refuse_damage_inside, refuse_newer_schema

    if is_elsewhere(home):
        return _elsewhere(home)
    if not home.database.exists() and home.identity_file.exists():
        hint = "harken.db is gone. Put it back where it was, or build it anew: harken down, then harken recover"
        return [CheckFinding(what="the database is there", is_good=False, hint=hint)]
    if not home.database.exists():
        return []
    try:
        refuse_damage_inside(home.database)
    except HarkenError as exc:
        return [CheckFinding(what="the database is whole", is_good=False, hint=f"{exc.message} {exc.hint}")]
    found = [CheckFinding(what="the database is whole", is_good=True)]
    try:
        refuse_newer_schema(home.database)
    except HarkenError as exc:
        hint = f"{exc.message} {exc.hint}"
        found.append(CheckFinding(what="the database is of this version", is_good=False, hint=hint))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDescription:
    """What is to be known of a store without opening it as a daemon does."""

    backend: str
    place: str
    schema: int
    contents: StoreContents
    size: int


def describe(home: Home, settings: StoreSettings, environ: Mapping[str, str]) -> StoreDescription:
    """Look at the store that settings name, beside daemons or without."""
    target = target_of(home, settings, environ)
    if target is None:
        return _describe_file(home)
    from harken.store.postgres.connection import SIZE, migrations
    from harken.store.postgres.transfer import place_of, reading_moment
    from harken.store.sqlite.transfer import contents_of

    with reading_moment(target) as end:
        return StoreDescription(
            backend="PostgreSQL",
            place=place_of(target),
            schema=migrations()[-1][0],
            contents=contents_of(end.connection),
            size=int(end.connection.execute(SIZE).fetchone()[0]),
        )


def _describe_file(home: Home) -> StoreDescription:
    from harken.store.sqlite.connection import files_of, migrations
    from harken.store.sqlite.transfer import contents_of_file, place_of_file

    contents = contents_of_file(home.database)
    if contents is None:
        raise NotFound(f"There is no store in {home.path} yet.", "Start Harken, and it is made: harken up")
    return StoreDescription(
        backend="SQLite",
        place=place_of_file(home.database),
        schema=migrations()[-1][0],
        contents=contents,
        size=sum(path.stat().st_size for path in files_of(home.database) if path.exists()),
    )


def _elsewhere(home: Home) -> list[CheckFinding]:
    """Say whether the store that is in PostgreSQL can be read, how much is in it, and which daemons share it."""
    try:
        settings = load(home, {}, os.environ).settings.store
        found, shared = describe(home, settings, os.environ), list(_shared(home, settings))
    except HarkenError as exc:
        return [CheckFinding(what="the store in PostgreSQL answers", is_good=False, hint=f"{exc.message} {exc.hint}")]
    what = f"the store is {found.place}, with {counted(found.contents.counts['messages'], 'message')}"
    hint = f"It is a copy that is not in use: the store is {found.contents.moved_to}. Let store.url name that one."
    return [CheckFinding.of(what, hint, is_good=not found.contents.moved_to), *shared]


def _shared(home: Home, settings: StoreSettings) -> Iterator[CheckFinding]:
    from harken.store.postgres.connection import examine, migrations

    target = target_of(home, settings, os.environ)
    if target is None:
        return
    found, newest = examine(target, SystemClock().now), migrations()[-1][0]
    hint = f"It has {found.schema}, this Harken knows {newest}. Install the newer Harken here."
    what = f"the server is PostgreSQL {found.version}, with schema {settings.schema} of version {found.schema}"
    yield CheckFinding.of(what, hint, is_good=found.schema <= newest)
    told = (
        "this machine listens for what other daemons store"
        if found.is_heard
        else "this machine looks every second for what other daemons store: a pooler keeps notifications from it"
    )
    yield CheckFinding(what=told, is_good=True)
    seconds = abs(found.ahead.total_seconds())
    direction = "behind" if found.ahead > timedelta() else "ahead of"
    yield CheckFinding(what=f"this machine's clock is {seconds:.1f} s {direction} the server's", is_good=True)
    for each in found.daemons:
        silence, name = _span(each.silence), one_line(each.machine)
        if not each.is_here:
            yield CheckFinding(what=f"the daemon of {name} has ended, last heard of {silence} ago", is_good=True)
            continue
        hint = f"See whether {name} runs and reaches the server. What its agents were given is offered to others."
        what = f"the daemon of {name} was heard of {silence} ago"
        yield CheckFinding.of(what, hint, is_good=each.silence < SILENT_AFTER)


def _span(passed: timedelta) -> str:
    seconds = max(int(passed.total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _source(found: Result) -> CheckFinding:
    """Say how a source is doing, and what to do about one that does not listen."""
    name, state = one_line(found["name"]), found["state"]
    if state == SourceState.NEEDS_PERSON.value:
        hint = f"{one_line(found['reason']).rstrip('.')}. Then look: harken source list"
        return CheckFinding(what=f"the source {name} needs you", is_good=False, hint=hint)
    hint = f"{one_line(found['reason']) or 'It does not listen.'} Run: harken source test {name}"
    is_good = state in {each.value for each in (SourceState.LISTENING, SourceState.CONNECTING, SourceState.ELSEWHERE)}
    return CheckFinding.of(f"the source {name} is {state}", hint, is_good=is_good)


def _sign_ins(daemon: DaemonClient) -> list[CheckFinding]:
    """Return each agent that rules cannot start, because nobody is signed in to it."""
    rules = daemon.ask_within(ASK_SECONDS, "rules")["rules"]
    agents = sorted({each["runs_on"] for each in rules if each["runs_on"] and each["cannot_run"]})
    hint = "Sign in to it. Rules try it again every hour, or now with: harken rules reload"
    return [CheckFinding(what=f"rules can run {each}", is_good=False, hint=hint) for each in agents]


def _service(home: Home) -> list[CheckFinding]:
    """Return whether the service does what it was installed for; nothing where there is none."""
    if installed(home, os.environ) is None:
        return []
    try:
        service = service_of(home, os.environ)
        state = service.state()
        if is_changed(service):
            hint = "Another program has changed its file. Compare it, then: harken service install"
            return [CheckFinding(what="the service is as Harken wrote it", is_good=False, hint=hint)]
    except HarkenError as exc:
        return [CheckFinding(what="the service can be asked", is_good=False, hint=f"{exc.message} {exc.hint}")]
    hint = f"It is {state.activity}. Run: harken up; why it ended: harken service status"
    return [CheckFinding.of("the service runs", hint, is_good=state.is_active)]


def _evidence(daemon: DaemonClient) -> list[Result]:
    try:
        found: list[Result] = daemon.ask_within(ASK_SECONDS, "evidence")["surfaces"]
    except HarkenError:
        return []  # an older daemon has no such verb
    return found


def _rules_for_approvals(status: Result) -> list[CheckFinding]:
    """Name the rules in the settings: what they refuse is asked nowhere."""
    count = (status.get("approvals") or {}).get("rules", 0)
    what = f"{counted(count, 'rule')} in the settings: what agents ask is refused, or asked each time"
    return [CheckFinding(what=what, is_good=True)] if count else []


def _approvals(daemon: DaemonClient) -> list[Result]:
    """Return what became of the newest questions of each host; nothing where they may not be seen."""
    try:
        asked = daemon.ask_within(ASK_SECONDS, "approvals", all=True, limit=MAX_ASKED)["approvals"]
    except HarkenError:
        return []
    found: list[Result] = []
    for host in dict.fromkeys(each["host"] for each in asked):
        obeyed = [each for each in asked if each["host"] == host and each["state"] == "obeyed"]
        last = max((each["ended_at"] for each in obeyed), default=None)
        count = sum(each["host"] == host for each in asked)
        found.append({"host": host, "asked": count, "obeyed": len(obeyed), "last_obeyed_at": last})
    return found


def _interpreter(python: str, host: str) -> CheckFinding:
    is_there = os.access(python, os.X_OK)
    hint = "" if is_there else f"It is gone, and sessions cannot start Harken. Run: harken connect {host}"
    return CheckFinding(what=f"the interpreter {python}", is_good=is_there, hint=hint)
