"""Starting the agent of a task: its command, printed, run in this terminal, or in a window of tmux.

The person's own program in their own environment. When mail waits, the command has a first prompt, so that the host's
prompt hook brings it; what is in the mail stands in no command, where everybody on the machine could read it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from harken.cli.edge import become
from harken.cli.output import note_to_person
from harken.cli.task_new import seed_task
from harken.cli.task_show import as_json, has_folder, missing_hint
from harken.cli.verbs import Invocation
from harken.control.client import Daemon, Result
from harken.errors import Conflict, NotFound, Unavailable, UserError
from harken.hosts.marks import names_of_marks, without_marks
from harken.hosts.names import title_of
from harken.hosts.record import records
from harken.hosts.registry import host_marks, host_name, host_names, interactive

OPENING: Final = "Begin with the messages that wait for this task."
TMUX_SESSION: Final = "harken"
TMUX_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What starts an agent."""

    host: str
    folder: Path
    argv: tuple[str, ...]
    is_installed: bool

    @property
    def line(self) -> str:
        """The command for a shell."""
        return f"cd {quoted(str(self.folder))} && {' '.join(map(quoted, self.argv))}"


def quoted(word: str) -> str:
    """Return a word for a shell that does nothing to a terminal: what cannot be printed is written as its bytes."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_shown, word)) + "'"


def _shown(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def start_task(
    asked: Invocation, name: str, extra: Sequence[str], *, agent: str, is_printed: bool, is_tmux: bool
) -> None:
    """Start the agent of a task, or say how."""
    with Daemon(asked.home) as daemon:
        task = daemon.ask("task_show", task=name)
    if task["state"] == "done":
        raise Conflict(f"Task {task['id']!r} is done.", 'Make another: harken task new "TITLE"')
    if not has_folder(task):
        raise Conflict(f"The folder of task {task['id']!r} is missing: {task['dir']}", missing_hint(task))
    host = _host(asked, task, agent)
    command = command_of(task, host, extra)
    is_run = not is_printed and (is_tmux or (not asked.as_json and sys.stdin.isatty() and sys.stdout.isatty()))
    if is_run and not command.is_installed:
        fact = interactive(host)
        raise NotFound(f"{title_of(host)} is not installed.", f"Install it: {fact.install}. Or use --print.")
    seeded = seed_task(asked, task["id"], command.folder, host)
    where = run_in_tmux(task["id"], command) if is_run and is_tmux else ""
    if asked.as_json:
        told = {"task": as_json(task), "argv": list(command.argv), "command": command.line}
        asked.print_json(
            {**told, "tmux": where or None, "seeded": list(seeded.files), "notes": [*seeded.notes, *seeded.about]}
        )
        return
    for note in seeded.notes:
        note_to_person(note)
    if where:
        asked.screen.line(f"Runs in tmux: {where}" + ("" if os.environ.get("TMUX") else f"  (tmux attach -t {where})"))
    elif is_run:
        _become(command)
    else:
        asked.screen.line(command.line)
        if not command.is_installed:
            note_to_person(f"{title_of(host)} is not installed here: {interactive(host).install}")


def command_of(task: Result, host: str, extra: Sequence[str]) -> Command:
    """Return what starts a host in a task's folder, with a first prompt when mail waits and nobody is there for it."""
    fact = interactive(host)
    found = shutil.which(fact.program)
    beside = shutil.which(fact.program, path=str(Path.home() / ".local" / "bin"))
    program = fact.program if found else beside or fact.program
    prompt = OPENING if task["pending"] and task["state"] != "running" else ""
    return Command(
        host=host,
        folder=Path(task["dir"]),
        argv=fact.command(program, prompt, extra),
        is_installed=bool(found or beside),
    )


def _host(asked: Invocation, task: Result, agent: str) -> str:
    """Return the host that is meant: named now, named when the task was made, or the only one that is connected."""
    if agent or task["agent"]:
        return host_name(agent or task["agent"])
    connected = [record.host for record in records(asked.home.path) if not record.project]
    if len(connected) == 1:
        return connected[0]
    raise UserError("Which agent?", f"Say --agent with one of: {', '.join(connected or host_names())}.")


def _become(command: Command) -> NoReturn:
    """Let the agent take the place of this command."""
    sys.stdout.flush()
    try:
        os.chdir(command.folder)
        # It is to be the task of this folder, whatever task the person's shell is for, and nobody's helper.
        for name in ("HARKEN_TASK", *names_of_marks(host_marks())):
            os.environ.pop(name, None)
        if sys.platform == "win32":
            sys.exit(subprocess.call(command.argv))
        become(command.argv)
    except OSError as exc:
        raise UserError(f"{command.argv[0]} cannot be started: {exc.strerror}.", "Try it by hand: --print") from exc


def run_in_tmux(name: str, command: Command) -> str:
    """Run the agent in a new window of tmux, and return where that is."""
    program = shutil.which("tmux")
    if program is None:
        raise NotFound("tmux is not installed.", "Install it, or leave out --tmux.")
    has_session = not _tmux(program, "has-session", "-t", f"={TMUX_SESSION}").returncode
    words = tmux_words(os.environ, name, command, has_session=has_session)
    done = _tmux(program, *words)
    if done.returncode:
        raise UserError("tmux did not open a window.", done.stderr.decode("utf-8", "replace").strip())
    return done.stdout.decode("utf-8", "replace").strip()


def tmux_words(environ: Mapping[str, str], name: str, command: Command, *, has_session: bool) -> tuple[str, ...]:
    """Return what tmux is told: a window where the person is, else in a session of ours."""
    # Of a single word tmux makes a line for a shell; of several, the arguments of a program.
    argv = command.argv if len(command.argv) > 1 else (shlex.quote(command.argv[0]),)
    window = ("-n", _literal(name), "-c", _literal(str(command.folder)), "-P", "-F", "#{session_name}:#{window_name}")
    if environ.get("TMUX"):
        return ("new-window", *window, "--", *argv)
    if has_session:
        return ("new-window", "-d", "-t", f"={TMUX_SESSION}:", *window, "--", *argv)
    return ("new-session", "-d", "-s", TMUX_SESSION, *window, "--", *argv)


def _literal(text: str) -> str:
    """Return a text in which tmux finds nothing to fill in."""
    return text.replace("#", "##")


def _tmux(program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [program, *words],
            # A server that begins here gives it to every window that a person opens later.
            env=without_marks(os.environ, host_marks()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TMUX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable("tmux does not answer.", "Look at it by hand: tmux list-sessions") from exc
