"""`doctor --live` and `probe` as a person sees them: what is run, what is shown, and what is left behind: nothing.

The trials are in `harken.trial` and ask Harken through `DaemonPost`. A host runs in a folder of its own below Harken's
home, with sessions that read the mailbox of the trial only, so that no message of the person's is taken.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from harken.cli.authority import refuse_agent
from harken.cli.connecting import GREEN, NEEDS_FIXING, found_record, heading, look_for_hosts
from harken.cli.invocation import Invocation
from harken.cli.output import RED, Screen, note_to_person
from harken.cli.progress import start_notice
from harken.config.home import Home, ensure
from harken.control.client import DaemonClient, Result
from harken.control.start import start
from harken.control.stop import stop
from harken.errors import HarkenError, NotFound, Unavailable, UserError
from harken.hosts.connect.targets import ConnectTarget, targets
from harken.hosts.registry import hook_host, host_named, short, title_of, trial_recipe
from harken.model import INBOX
from harken.setup.doctor import is_connected
from harken.setup.service import start_by_service
from harken.trial.outcome import TrialLedgerLine, TrialSession

if TYPE_CHECKING:
    from harken.trial.outcome import TrialResult
    from harken.trial.probe import TracedProbe
    from harken.trial.turn import Trial

PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class DaemonPost:
    """A running Harken, asked over its socket."""

    daemon: DaemonClient

    def send(self, text: str, mailbox: str, *, is_quiet: bool = False) -> str:
        """Send a message of the person's own and return its id."""
        key = f"trial-{secrets.token_hex(12)}"
        priority = "low" if is_quiet else "normal"
        return str(self.daemon.ask("send", text=text, to=mailbox, upstream_id=key, priority=priority)["id"])

    def line(self, message: str, consumer: str) -> TrialLedgerLine:
        """Return what the ledger says about a message for a consumer."""
        for entry in self.daemon.ask("read", ref=message)["ledger"]:
            if entry["consumer"] == consumer:
                return TrialLedgerLine(
                    state=entry["state"], surface=entry.get("surface") or "", evidence=entry.get("evidence") or ""
                )
        return TrialLedgerLine()

    def sessions(self) -> Sequence[TrialSession]:
        """Return who is here now."""
        return [
            TrialSession(
                key=row["session"],
                host=row["host"],
                cwd=row["cwd"],
                presence=row["presence"],
                mailboxes=tuple(row["mailboxes"]),
                surfaces=tuple(row["surfaces"]),
                can_wake=row["can_wake"],
            )
            for row in self.daemon.ask("status")["sessions"]
        ]

    def probe(self, session: str, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification to a session."""
        return bool(self.daemon.ask("notify", session=session, method=method, params=dict(params))["sent"])

    def settle(self, messages: Sequence[str]) -> None:
        """Mark messages as seen for the person."""
        if messages:
            self.daemon.ask("ack", refs=list(messages))


def check_live(asked: Invocation, names: Sequence[str], *, can_restart: bool) -> None:
    """Try hosts one after the other, show what arrived, and end with 1 when something did not."""
    _refuse(asked)
    found = look_for_hosts(asked, names, None)
    results = [_checked(asked, target, can_restart=can_restart) for target in found]
    if asked.as_json:
        asked.print_json({"hosts": results})
    if any(not result["is_good"] for result in results):
        click.get_current_context().exit(NEEDS_FIXING)


def _checked(asked: Invocation, target: ConnectTarget, *, can_restart: bool) -> Result:
    """Try one host, and say what came of it."""
    from harken.trial.live import check

    result: Result = {
        "host": target.connector.name,
        "found": found_record(target.found),
        "is_connected": is_connected(target),
        "surfaces": [],
        "error": None,
        "is_good": False,
    }
    if not asked.as_json:
        asked.screen.line(heading(asked.screen, target.connector.name, target.found, None))
    try:
        with trial_of(asked, target, None) as trial:
            outcomes = check(replace(trial, restart=partial(_restart, asked.home)) if can_restart else trial)
    except HarkenError as exc:
        result["error"] = exc.as_dict()
        if not asked.as_json:
            asked.screen.flow(exc.message, f"  {asked.screen.paint('no', RED)}  ", 6)
            asked.screen.text("  " + exc.hint)
        return result
    result["surfaces"] = [outcome_record(outcome) for outcome in outcomes]
    result["is_good"] = all(outcome.is_good for outcome in outcomes)
    if not asked.as_json:
        show_outcomes(asked.screen, outcomes)
    return result


def probe_host(asked: Invocation, name: str, folder: Path | None, *, is_agreed: bool) -> None:
    """Send everything to an idle session of a host, and show where each thing turned up."""
    from harken.trial.probe import trace

    _refuse(asked)
    title = title_of(name)
    if folder is not None:
        if trial_recipe(name).needs_folder:
            why = f"The model of {title} can only be replaced in a folder of the trial's own."
            raise UserError(why, f"Leave out --dir: harken probe {name}")
        _agree(asked, title, folder.resolve(), is_agreed=is_agreed)
    (target,) = look_for_hosts(asked, [name], None)
    here = folder.resolve() if folder else None
    with trial_of(asked, target, here) as trial:
        traced = trace(trial)
    if asked.as_json:
        asked.print_json(
            {
                "host": name,
                "found": found_record(target.found),
                "folder": str(here) if here else None,
                "traces": [trace_record(one) for one in traced],
            }
        )
        return
    asked.screen.line(heading(asked.screen, name, target.found, here))
    show_traces(asked.screen, traced)


def _agree(asked: Invocation, title: str, folder: Path, *, is_agreed: bool) -> None:
    if is_agreed:
        return
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("This needs your yes, and there is no terminal to ask in.", "Say --yes.")
    asked.screen.text(
        f"{title} will run in {short(folder)} for about a minute, with a model of Harken's own. It reads your inbox as "
        "any session there does: what waits is given to it, and counts as read by this host. Another session of yours "
        "may get the markers."
    )
    if not click.confirm("Probe?", default=True):
        asked.screen.line("Nothing was done.")
        click.get_current_context().exit(NEEDS_FIXING)


@contextmanager
def trial_of(asked: Invocation, target: ConnectTarget, folder: Path | None) -> Iterator[Trial]:
    """One host with a model of ours, in a folder of its own or one of the person's; at the end all of it is gone."""
    from harken.trial.model import MockModel
    from harken.trial.turn import Trial

    name = target.connector.name
    if target.found is None:
        raise NotFound(f"{title_of(name)} is not installed.", "Install it, or put it on the PATH.")
    if target.remote is not None:
        # Its messages are elsewhere: what is sent here would not reach it.
        raise UserError(f"{title_of(name)} is connected to a Harken elsewhere.", f"See: harken doctor {name}")
    recipe = trial_recipe(name)
    with (
        _interruptible(),
        _folder(asked, folder) as (here, mailbox),
        MockModel() as model,
        asked.daemon() as daemon,
    ):
        post = DaemonPost(daemon)
        trial = Trial(
            host=host_named(name),
            recipe=recipe,
            hooks=hook_host(name),
            program=target.found.program,
            environ=dict(os.environ),
            folder=here,
            mailbox=mailbox,
            model=model,
            post=post,
            tell=_teller(target),
            is_connected=any(is_connected(place) for place in _places(asked, target, folder)),
        )
        if folder is None:
            recipe.prepare_folder(here)
        try:
            yield trial
        finally:
            with suppress(Unavailable):  # a daemon that is gone must not hide what was found out
                post.settle(trial.sent)


def _restart(home: Home) -> None:
    """End the daemon and start another, as a person does who has changed its configuration."""
    stop(home)
    if not start_by_service(home, os.environ):
        start(home, start_notice())


def _places(asked: Invocation, target: ConnectTarget, folder: Path | None) -> list[ConnectTarget]:
    if folder is None:
        return [target]
    return [target, *targets(asked.home.path, [target.connector.name], folder, is_looking=False)]


@contextmanager
def _folder(asked: Invocation, folder: Path | None) -> Iterator[tuple[Path, str]]:
    """Where the host runs, and the mailbox that its sessions read."""
    if folder is not None:
        yield folder, INBOX
        return
    ensure(asked.home)
    # Programs name the folder they run in without symbolic links.
    above = Path(os.path.realpath(asked.home.trial_dir))
    here = above / secrets.token_hex(6)
    above.mkdir(mode=PRIVATE, exist_ok=True)
    here.mkdir(mode=PRIVATE)
    try:
        yield here, f"trial:{here.name}"
    finally:
        shutil.rmtree(here, ignore_errors=True)
        with suppress(OSError):
            above.rmdir()  # unless another trial is under way


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a person who closes the terminal, or a program that gives up, end the trial as Ctrl-C does."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _teller(target: ConnectTarget) -> Callable[[str], None]:
    title = title_of(target.connector.name)
    if not sys.stderr.isatty():
        return lambda _text: None
    return lambda text: note_to_person(f"{title}: {text}")


def _refuse(asked: Invocation) -> None:
    if sys.platform == "win32":
        raise UserError("Harken cannot try hosts on Windows.", "Use `harken doctor` to check what is connected.")
    refuse_agent(asked, "try hosts")


def outcome_record(outcome: TrialResult) -> Result:
    """Return an outcome as JSON."""
    return {
        "surface": outcome.surface,
        "verdict": outcome.verdict.value,
        "is_good": outcome.is_good,
        "seconds": outcome.seconds,
        "ledger": outcome.ledger,
        "message": outcome.message,
        "reason": outcome.reason,
        "hint": outcome.hint,
    }


def show_outcomes(screen: Screen, outcomes: Sequence[TrialResult]) -> None:
    """Print what came of each surface."""
    said = ""
    for outcome in outcomes:
        mark = {"arrived": screen.paint("ok", GREEN), "missing": screen.paint("no", RED)}.get(outcome.verdict, "--")
        took = f" after {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        ledger = f"; ledger: {outcome.ledger}" if outcome.ledger else ""
        screen.flow(f"{outcome.surface}: {outcome.verdict.value}{took}{ledger}", f"  {mark}  ", 6)
        about = "\n  ".join(text for text in (outcome.reason, outcome.hint) if text)
        if about and about != said:
            screen.text("  " + about)
        said = about


def trace_record(traced: TracedProbe) -> Result:
    """Return one thing that was sent as JSON."""
    return {
        "kind": traced.kind,
        "what": traced.what,
        "screen": traced.on_screen,
        "model": {"yes": True, "later": True, "no": False}.get(traced.at_model),
        "is_late": traced.at_model == "later",
        "ledger": traced.ledger,
        "note": traced.note,
    }


def show_traces(screen: Screen, traced: Sequence[TracedProbe]) -> None:
    """Print where everything turned up."""
    words = {None: "-", True: "yes", False: "no"}
    rows = [
        (one.what, words[one.on_screen], one.at_model.value, "; ".join(text for text in (one.ledger, one.note) if text))
        for one in traced
    ]
    screen.table([("what", "screen", "model", ""), *rows])
