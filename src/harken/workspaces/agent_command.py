"""The command that starts the agent of a task, and running it in a window of tmux.

When mail waits, the command has a first prompt, so that the host's prompt hook brings it; what is in the mail stands in
no command, where everybody on the machine could read it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.errors import NotFound, Unavailable, UserError
from harken.hosts.host import without_marks
from harken.hosts.registry import host_marks, interactive
from harken.workspaces.tasks import TaskRecord

OPENING: Final = "Begin with the messages that wait for this task."
TMUX_SESSION: Final = "harken"
TMUX_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
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


def is_installed(host: str) -> bool:
    """Whether a host's program is here."""
    return bool(_found(interactive(host).program)[1])


def _found(program: str) -> tuple[str, str | None]:
    """Return how a program is called, and where it is; None when it is not installed."""
    found = shutil.which(program)
    beside = shutil.which(program, path=str(Path.home() / ".local" / "bin"))
    return (program if found else beside or program), found or beside


def command_of(task: TaskRecord, host: str, extra: Sequence[str]) -> AgentCommand:
    """Return what starts a host in a task's folder, with a first prompt when mail waits and no session is there."""
    fact = interactive(host)
    program, found = _found(fact.program)
    prompt = OPENING if task["pending"] and task["state"] != "running" else ""
    return AgentCommand(
        host=host,
        folder=Path(task["dir"]),
        argv=fact.command(program, prompt, extra),
        is_installed=bool(found),
    )


def run_in_tmux(name: str, command: AgentCommand) -> str:
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


def tmux_words(environ: Mapping[str, str], name: str, command: AgentCommand, *, has_session: bool) -> tuple[str, ...]:
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
