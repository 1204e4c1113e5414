"""The verb `uninstall`: disconnect every agent, of tasks too, remove the service, stop the daemon, say what is left.

Nothing that was received is deleted unless that is said, twice: by a flag, and by typing the home's name. Then only
what Harken knows to be its own goes; a file of others stays. How a host is disconnected is in `hosts/connect/apply.py`,
what there is to take back is found and done in `setup/uninstall.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harken.cli.authority import agree, agree_by_word
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.verbs import verb
from harken.config.home import Home
from harken.control.client import Result
from harken.display import one_line, size_text
from harken.hosts.registry import short

if TYPE_CHECKING:  # it brings what reads and writes settings of hosts, and `--help` names this verb too
    from harken.setup.uninstall import Installation, Removal

NEEDS_FIXING: Final = 1  # the exit code when something could not be taken back


@verb("uninstall")
@click.option(
    "--delete-data", is_flag=True, help="Also delete messages, settings and sign-ins, after you type the home's name."
)
@click.option("--dry-run", is_flag=True, help="Show what would happen, without doing it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def uninstall(asked: Invocation, *, delete_data: bool, dry_run: bool, yes: bool) -> None:
    """Disconnect every agent, remove the service, stop Harken, and show what is left.

    Also cleans up the folders of tasks; worktrees and branches stay. Messages stay, unless you add --delete-data.
    Exits with 1 if something could not be undone.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.uninstall import (
        Removal,
        delete_home,
        find_installation,
        has_sign_ins,
        leftovers,
        undo_installation,
    )

    refuse_agent(asked, "uninstall Harken")
    found = find_installation(asked.home)
    is_signed_in = has_sign_ins(asked.home)
    if not asked.as_json:
        _show(asked, found, will_delete=delete_data)
    done = Removal()
    if dry_run:
        found.problems += [each.problem for each in found.seeds if each.problem]
    else:
        if found.is_todo:
            agree(asked, "Uninstall?", is_agreed=yes)
        if delete_data and asked.home.path.exists():
            name = asked.home.path.name
            question = f"This deletes everything that was received. Type {name} to do it"
            agree_by_word(asked, question, name, is_agreed=yes)
        done = undo_installation(asked.home, found)
        if delete_data and not found.problems:
            delete_home(asked.home)
    left = leftovers(asked.home)
    if asked.as_json:
        asked.print_json(_record(asked.home, found, done, left, is_dry=dry_run))
    else:
        _tell(asked, found, done, left, is_dry=dry_run)
        if is_signed_in and not dry_run:
            asked.screen.text("The desktop's keyring may still have the key of a sign-in; delete it there.")
    if found.problems and not dry_run:
        click.get_current_context().exit(NEEDS_FIXING)


def _show(asked: Invocation, found: Installation, *, will_delete: bool) -> None:
    rows = [row for planned in found.seeds for row in planned.rows]
    rows += [("disconnect", target.name) for target in found.hosts]
    rows += [("remove", short(found.service.file))] if found.service else []
    rows += [("stop", f"the daemon of {asked.home.path}")] if found.is_running else []
    rows += [("delete", str(asked.home.path))] if will_delete and asked.home.path.exists() else []
    if rows:
        asked.screen.table(rows)
    else:
        asked.screen.line("No agent is connected, no service is installed and no daemon runs.")


def _tell(asked: Invocation, found: Installation, done: Removal, left: dict[str, int], *, is_dry: bool) -> None:
    from harken.setup.uninstall import program_removal
    from harken.workspaces.seeding import written_since

    screen = asked.screen
    for name in dict.fromkeys(name for each in done.seeds for name in each["kept"]):
        screen.line(one_line(written_since(name)))
    for problem in found.problems:
        note_to_person(problem)
    if is_dry:
        return
    if found.problems and left:
        note_to_person("Nothing was deleted: the home records what could not be undone.")
    if not left:
        screen.line(f"Nothing is left in {asked.home.path}.")
    else:
        screen.line(f"What is left in {asked.home.path}:")
        screen.table([(name, size_text(size)) for name, size in left.items()])
        screen.text("Delete it: harken uninstall --delete-data")
    screen.text(f"Remove the program: {program_removal(Path(sys.prefix), Path(sys.executable))}")


def _record(home: Home, found: Installation, done: Removal, left: dict[str, int], *, is_dry: bool) -> Result:
    planned: list[Result] = [
        {
            "host": target.connector.name,
            "project": str(target.place.project) if target.place.project else None,
            "state": "planned",
            "notes": [],
        }
        for target in found.hosts
    ]
    return {
        "state": "planned" if is_dry else "failed" if found.problems else "uninstalled",
        "home": str(home.path),
        "seeds": [each.record for each in found.seeds] if is_dry else done.seeds,
        "hosts": planned if is_dry else done.hosts,
        "service": found.service.name if found.service else None,
        "was_running": found.is_running,
        "left": left,
        "problems": found.problems,
    }
