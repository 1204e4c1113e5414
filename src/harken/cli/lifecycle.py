"""The verbs `up`, `down`, `version`, `config` and `reload`: whether a daemon runs, which, and with what settings."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from time import monotonic, sleep

import click

from harken import __version__
from harken.cli.invocation import Invocation
from harken.cli.output import json_text, note_to_person
from harken.cli.progress import start_notice
from harken.cli.verbs import lists, verb
from harken.config.home import Home, write_private
from harken.control.client import Result
from harken.control.start import LOOK_SECONDS, daemon_facts, is_reachable, start
from harken.control.stop import stop, stop_all
from harken.display import one_line
from harken.errors import Unavailable
from harken.setup.service import installed, start_by_service

FACTS_SECONDS = 2.0


@verb("up")
def up(asked: Invocation) -> None:
    """Start Harken in the background.

    Replaces a daemon of another version. Uses the service, if one is installed.
    """
    home = asked.home
    found = _running(home)
    replaced = found["version"] if found and found["version"] != __version__ else ""
    if found and replaced:
        stop(home, only=found["pid"])
    if (not found or replaced) and not start_by_service(home, os.environ):
        start(home, start_notice())
    facts = _running(home)
    if facts is None:
        raise Unavailable("The daemon ended right after it started.", f"Look at {home.daemon_log}")
    state = "restarted" if replaced else "running" if found else "started"
    if asked.gave_json({"state": state, **facts}):
        return
    words = {"running": "was running already", "started": "runs now", "restarted": f"replaced version {replaced}"}
    for problem in ("port_problem", "store_problem"):
        if facts[problem]:
            note_to_person(one_line(facts[problem]))
    more = shlex.join(asked.home_option)
    prefix = f"harken {more}" if more else "harken"
    asked.screen.line(f"Harken {facts['version']} {words[state]} (process {facts['pid']}).")
    asked.screen.table([("address", facts["url"]), ("home", facts["home"])])
    asked.screen.line("Next:")
    rows = [("connect", "connect your agents"), ("open", "the page in the browser"), ("status", "what waits")]
    asked.screen.table([(f"{prefix} {words}", about) for words, about in rows])
    asked.screen.line(f'  {prefix} send "the build is red" --from ci-bot --channel ci')


@verb("down")
def down(asked: Invocation) -> None:
    """Stop Harken. Nothing is lost.

    It stays stopped until `harken up` or another command starts it; agents do not. A service starts it again when you
    log in.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "stop Harken")
    if asked.home.run_dir.is_dir():
        write_private(asked.home.down_file, "")
    stopped = stop_all(asked.home)
    if asked.as_json:
        state = "stopped" if stopped else "not_running"
        asked.print_json({"state": state, "pid": stopped[0] if stopped else None, "pids": stopped})
    elif stopped:
        for pid in stopped:
            asked.screen.line(f"Harken stopped (process {pid}).")
    else:
        asked.screen.line(f"No daemon is running for {asked.home.path}.")
    if not asked.as_json and installed(asked.home, os.environ) is not None:
        note_to_person("The service starts it again when you log in. To end that: harken service remove")


@verb("version")
def version(asked: Invocation) -> None:
    """Show the version of this command and of the running daemon."""
    daemon = (_running(asked.home) or {}).get("version")
    if asked.gave_json({"version": __version__, "python": sys.version.split()[0], "daemon": daemon}):
        return
    other = f" (the running daemon: {daemon})" if daemon and daemon != __version__ else ""
    asked.screen.line(f"harken {__version__}{other}")


def _running(home: Home) -> Result | None:
    """Return which daemon runs, of any version."""
    keys = ("pid", "version", "url")
    end = monotonic() + FACTS_SECONDS
    while is_reachable(home):
        said = daemon_facts(home)
        if said.keys() >= set(keys):
            found = {**{key: said[key] for key in keys}, "home": str(home.path)}
            return found | {name: str(said.get(name, "")) for name in ("port_problem", "store_problem")}
        if monotonic() > end:
            break
        sleep(LOOK_SECONDS)  # it listens before it has written who it is
    return None


@click.group()
def config() -> None:
    """Show the settings."""


@verb("show")
@click.option("--origin", is_flag=True, help="Include where each value comes from.")
def show(asked: Invocation, *, origin: bool) -> None:
    """Show every setting, from config.toml, the environment and the defaults."""
    from harken.config.load import describe, load
    from harken.hosts.registry import short

    loaded = load(asked.home, {}, os.environ)
    rows = describe(loaded)
    if asked.gave_json({"settings": rows, "warnings": list(loaded.warnings)}):
        return
    shown = [(str(row["name"]), json_text(row["value"])) for row in rows]
    origins = [short(Path(str(row["origin"]))) for row in rows]
    asked.screen.table([(*pair, where) if origin else pair for pair, where in zip(shown, origins, strict=True)])
    for warning in loaded.warnings:
        note_to_person(warning)
    if any(value.startswith("environment") for value in loaded.origins.values()):
        note_to_person("This environment applies to `harken serve`; a daemon in the background has its own.")


config.add_command(show)
lists(config, "show")


@verb("reload")
def reload(asked: Invocation) -> None:
    """Apply changes in config.toml, and report what changed.

    Applies all changes or, if there is a mistake, none. Sources, trust, routes and attention take effect at once;
    reports what needs a restart.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "change the settings")
    found = asked.ask("reload")
    if asked.gave_json(found):
        return
    sources = (("added", "Listened to from now on"), ("changed", "Made anew"), ("removed", "Listened to no longer"))
    retried = ("retried", "Tried again, because it waited for you")
    for key, said in (*sources, retried, ("settings", "Taken over")):
        if found[key]:
            asked.screen.line(f"{said}: {', '.join(map(one_line, found[key]))}")
    if not any(found.values()):
        asked.screen.line("Nothing has changed.")
    if found["restart"]:
        note_to_person(f"After a restart only (harken down && harken up): {', '.join(found['restart'])}")
