"""The verb `run`: what agents did by themselves, what they do now, and how to end it.

Starting one is `harken channel run`; see `actions`.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import json_text, note_to_person
from harken.cli.verbs import lists, verb, verb_command, verb_option
from harken.cli.watch.keyboard import on_escape
from harken.control.client import DaemonClient, Result
from harken.display import one_line
from harken.errors import HarkenError

WAIT_SECONDS = 50.0
SPARE_SECONDS = 15.0
NOT_DONE = 1
DONE = "done"

_run = click.argument("name", metavar="RUN", shell_complete=completer("runs"))


@click.group()
def run() -> None:
    """Show and end the agent runs that rules started."""


@verb_command("runs", "list")
@click.option("--running", "is_running", is_flag=True, help="Only runs in progress.")
@verb_option("runs", "limit", show_default=True)
def list_runs(asked: Invocation, *, is_running: bool, limit: int) -> None:
    from harken.cli.run_show import show_runs

    found = asked.ask("runs", limit=limit, running=True if is_running else None)
    if asked.gave_json(found):
        return
    show_runs(asked.screen, found["runs"])
    if not found["runs"]:
        note_to_person("Nothing runs." if is_running else "Nothing was run yet. See: harken rules list")


@verb_command("run", "show")
@_run
@click.option("--output", "has_output", is_flag=True, help="Include its output, line by line.")
@click.option("--diff", "has_diff", is_flag=True, help="Include the diff of the files it changed.")
def show(asked: Invocation, *, name: str, has_output: bool, has_diff: bool) -> None:
    """RUN is a run id or its beginning. --json always includes the diff."""
    from harken.cli.run_show import close_envelope, open_envelope, show_output, show_run

    with asked.daemon() as daemon:
        found = daemon.ask("run", run=name)
        lines = _output(daemon, found["id"]) if has_output else []
    if asked.gave_json({**found, "output": lines} if has_output else found):
        return
    if not has_output:
        show_run(asked.screen, found, has_diff=has_diff)
        return
    open_envelope(asked.screen, found)
    show_output(asked.screen, lines)
    close_envelope(asked.screen, found)


@verb("follow")
@_run
def follow(asked: Invocation, *, name: str) -> None:
    """Show a run's output live; exits with 0 when it is done, with 1 when it ended otherwise.

    Esc ends the run, Ctrl-C leaves it running. With --json, one line of output per line, then the run.
    """
    with asked.daemon() as daemon:
        follow_run(asked, daemon, name)


@verb_command("run_abort", "abort")
@click.argument("name", metavar="RUN", shell_complete=completer("open_runs"))
def abort(asked: Invocation, *, name: str) -> None:
    found = asked.ask("run_abort", run=name)
    if asked.gave_json(found):
        return
    print(f"{one_line(found['id'])}  {one_line(found['state'])}")


for _verb in (list_runs, show, follow, abort):
    run.add_command(_verb)
lists(run)


def follow_run(asked: Invocation, daemon: DaemonClient, name: str) -> None:
    """Show a run until it is over; the exit code says how it ended."""
    from harken.cli.run_show import close_envelope, open_envelope

    found = daemon.ask("run", run=name)
    try:
        with on_escape(lambda: _end(asked, found["id"])):
            if not asked.as_json:
                open_envelope(asked.screen, found)
                sys.stdout.flush()
            found = _until_over(asked, daemon, found["id"])
    except KeyboardInterrupt:
        note_to_person(
            f"\nThe run continues. Follow it again: harken run follow {name}\nEnd it: harken run abort {name}"
        )
        raise
    if asked.as_json:
        asked.screen.line(json_text({"run": found}))
    else:
        close_envelope(asked.screen, found)
    if found["state"] != DONE:
        click.get_current_context().exit(NOT_DONE)


def _end(asked: Invocation, name: str) -> None:
    """End a run beside its followers; one that is over already is no error."""
    with suppress(HarkenError), asked.daemon(can_start=False) as daemon:
        daemon.ask("run_abort", run=name)


def _until_over(asked: Invocation, daemon: DaemonClient, name: str) -> Result:
    from harken.cli.run_show import show_output

    place = 0
    while True:
        page = daemon.ask_within(WAIT_SECONDS + SPARE_SECONDS, "run_output", run=name, after=place, wait=WAIT_SECONDS)
        if asked.as_json:
            for each in page["lines"]:
                asked.screen.line(json_text(each))
        else:
            show_output(asked.screen, page["lines"])
        sys.stdout.flush()
        # The last lines may come after the end was seen: it is over when there are no more.
        if page["is_over"] and page["next"] == place:
            found: Result = page["run"]
            return found
        place = page["next"]


def _output(daemon: DaemonClient, name: str) -> list[Result]:
    lines: list[Result] = []
    place = 0
    while True:
        page = daemon.ask("run_output", run=name, after=place, wait=0)
        if page["next"] == place:
            return lines
        lines += page["lines"]
        place = page["next"]
