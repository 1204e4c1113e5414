"""What marks the programs that a host starts: variables that it sets for them, and what its own program is called.

A process that left its parents (`setsid -f`, `&`) descends from no host any more; what the host has put into its
environment is still there. Only variables count that a host sets for what it starts. Those that people set, and those
that an editor puts into every terminal, say nothing about who types there. Pure; which hosts there are is
`registry.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_INTERPRETERS: Final = frozenset({"node", "nodejs", "bun", "deno"})
_ENDINGS: Final = (".exe", ".cmd", ".js", ".mjs", ".cjs")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMarks:
    """What tells that a process is one host's, or was started by it."""

    variables: tuple[str, ...] = ()  # set for what it starts; the one that people know first
    session: str = ""  # which of them holds the host's own id of the conversation
    process: str = ""  # which of them holds the host's process id
    programs: tuple[str, ...] = ()  # what its command is called
    packages: tuple[str, ...] = ()  # folders that its script is in, where an interpreter runs it


UNMARKED: Final = HostMarks()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMark:
    """A mark of a host in an environment."""

    host: str
    variable: str
    native: str = ""  # the host's own id of the conversation; empty where no variable names it
    pid: int = 0  # the host's process; 0 where no variable names it


def find_marks(environ: Mapping[str, str], known: Mapping[str, HostMarks]) -> Sequence[FoundMark]:
    """Return the hosts whose marks an environment has, one mark for each; several when one has started another."""
    found: list[FoundMark] = []
    for host, marks in known.items():
        # A variable without a value is one that somebody has taken away.
        variable = next((name for name in marks.variables if environ.get(name)), "")
        if variable:
            native, pid = environ.get(marks.session, ""), environ.get(marks.process, "")
            number = int(pid) if pid.isascii() and pid.isdigit() else 0
            found.append(FoundMark(host=host, variable=variable, native=native, pid=number))
    return found


def names_of_marks(known: Mapping[str, HostMarks]) -> Sequence[str]:
    """Return every variable that is a mark of some host."""
    return [name for marks in known.values() for name in marks.variables]


def without_marks(environ: Mapping[str, str], known: Mapping[str, HostMarks]) -> dict[str, str]:
    """Return an environment for what a person will use: nothing in it says that an agent has started it."""
    dropped = frozenset(names_of_marks(known))
    return {name: value for name, value in environ.items() if name not in dropped}


def is_program_of(argv: Sequence[str], marks: HostMarks) -> bool:
    """Whether the words that a process was started with are those of a host's program."""
    if not argv:
        return False
    if _plain_name(argv[0]) in marks.programs:
        return True
    if _plain_name(argv[0]) not in _INTERPRETERS:
        return False
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    path = script.replace("\\", "/")
    return _plain_name(script) in marks.programs or any(f"/{package}/" in path for package in marks.packages)


def host_of_program(argv: Sequence[str], known: Mapping[str, HostMarks]) -> str:
    """Return the host whose program a process runs; empty for any other."""
    return next((host for host, marks in known.items() if is_program_of(argv, marks)), "")


def _plain_name(path: str) -> str:
    name = path.replace("\\", "/").rpartition("/")[2]
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


def is_run_by(host: str, marks: HostMarks, environ: Mapping[str, str], argv: Sequence[str]) -> bool:
    """Whether a host has run a hook with this environment, and not somebody by hand; `argv` is what has started it."""
    return bool(find_marks(environ, {host: marks})) or is_program_of(argv, marks)
