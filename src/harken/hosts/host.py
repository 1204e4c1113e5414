"""`Host`: the whole declaration of one agent program. Each host's folder has one, as `HOST` in its `host.py`.

Facts, and the parts that are imported when they are used, so that the command line stays light. A host chooses
surfaces; it never decides whether a message is kept. Programs that no host declares are `GENERIC`: they get everything
that needs nothing but tools. Which hosts there are is `registry.py`'s business.

`HostMarks` are what its processes are known by. A process that left its parents (`setsid -f`, `&`) descends from no
host any more; what the host has put into its environment is still there. Only variables count that a host sets for what
it starts: those that people set, and those that an editor puts into every terminal, say nothing about who types there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Final, Literal, NoReturn

if TYPE_CHECKING:  # the command line reads the facts, and imports nothing else until a verb is run
    from harken.hosts.connect.plan import Connector, RemoteEntry
    from harken.hosts.hook import ApprovalAdapter, HookAdapter, HookSample
    from harken.hosts.trial_recipe import TrialRecipe
    from harken.hosts.wake import HostWaker, PushChannel, QuestionListener
    from harken.runs.sandbox import Sandbox

_LOG_PING: Final = "log ping"
_PULL_SURFACES: Final = ("tool", _LOG_PING, "resource")
LATE: Final = 100
RESERVED: Final = frozenset({"watch", "rules", "you"})  # the last is how the first is shown

RecordReader = Callable[[Sequence[bytes], Collection[str]], Collection[str]]
"""Returns which of some delivery ids the lines of a host's own record of a conversation prove."""


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
class InteractiveCommand:
    """How a person starts a host in a terminal, with a first prompt where one is wanted.

    What the prompt says is the caller's business: it stands in the list of processes, where everybody on the machine
    can read it, so it never holds a message.
    """

    program: str
    install: str  # the command that installs it
    opening: tuple[str, ...] = ()  # the option before a first prompt; none where the prompt is an argument
    # In a worktree it reads the settings of a folder from there, from the main checkout, or some from each.
    reads: tuple[Literal["folder", "main"], ...] = ("folder",)

    def command(self, program: str, prompt: str, extra: Sequence[str]) -> tuple[str, ...]:
        """Return the whole command; `extra` are the person's own arguments.

        The prompt comes first: an option with many values would swallow it. With a command of the host's own, such as
        `resume`, there is no place for one.
        """
        has_verb = bool(extra) and not extra[0].startswith("-")
        first = (*self.opening, prompt) if prompt and not has_verb else ()
        return (program, *first, *extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingShell:
    """Where `edge/wait.py`, which the agent of a host keeps running, finds the process and the folder of the host."""

    process_variable: str
    home_variable: str
    home: str  # where the variable is not set


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpProgram:
    """What of a host speaks the Agent Client Protocol: its own program, or an adapter that is installed beside it."""

    argv: tuple[str, ...]  # after the program
    program: str = ""  # where it is another one than in a terminal
    install: str = ""  # the command that installs that


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One kind of agent program."""

    name: str  # stored, and part of the hook commands that `connect` writes: it never changes
    title: str  # what people call it
    aliases: tuple[str, ...] = ()  # shorter names on the command line
    order: int = LATE  # its place in lists, and in the choice of an agent where none is named

    # How it is recognised.
    client_names: tuple[str, ...] = ()  # of its MCP client
    marks: HostMarks = UNMARKED
    session_variable: str = ""  # environment variable that holds the host's own session id
    hook_variables: tuple[str, ...] = ()  # of the environment of its hooks, told to the daemon
    server_variables: tuple[str, ...] = ()  # of the environment of its MCP servers, told to the daemon
    wake_variables: tuple[str, ...] = ()  # of both, what only waking it needs: they never leave its machine
    keys_by_process: bool = False  # the session is the host process: its session id changes while it runs
    has_many: bool = False  # one process may have several conversations
    shares_connection: bool = False  # and one MCP connection for all of them
    one_shot_words: frozenset[str] = frozenset()  # with one of these arguments it answers one prompt and ends
    lasting_words: frozenset[str] = frozenset()  # unless one of these is there too
    unmanned_flags: frozenset[str] = frozenset()  # with one of these arguments it works for a program

    # What its surfaces can do.
    surfaces: tuple[str, ...] = _PULL_SURFACES
    reports_interrupts: bool = False  # its hooks say when the person interrupts a turn
    needs_handshake: bool = False  # push works only after the 2025 handshake, so `server/discover` is declined
    cancels_answered: bool = True  # it may cancel a call whose answer it has taken, so that says nothing
    asks_person: bool = False  # an MCP form is shown to the person at once, and the host never fills it in by itself
    has_skills: bool = False  # `connect` gives it our prompts as skills: it is not shown them twice
    watches_bell: bool = False  # a session that was told at its start watches its bell
    is_woken_by_edge: bool = False  # after a restart of the daemon its MCP connection is enough to wake it again
    waiter: str = "line"  # what the program beside it is, that waits to wake a session
    waiting_shell: WaitingShell | None = None  # its agent can keep a command running that wakes it
    # What the result of a tool, or of a command, may have so that the host shows its model all of it. Each is below
    # what was measured (see `docs/howto`), in bytes, because no text has more characters or tokens than bytes. Of a
    # host that is not known the least is assumed: no known one cuts a result that short.
    result_bytes: int = 9_500

    # What runs leave alone, as parts of paths in any folder.
    settings_paths: tuple[str, ...] = ()  # what it is set up by, or starts by itself: no run without a shell changes it
    instruction_paths: tuple[str, ...] = ()  # what its agents take for instructions

    hook_hint: str = ""  # of doctor: why it leaves a hook out, and what to do

    # Its parts; None where it has no such thing.
    interactive: InteractiveCommand | None = None
    acp: AcpProgram | None = None
    hooks: Callable[[], HookAdapter] | None = None  # `connect` gives it some: what waits is handed to it
    samples: Callable[[], Sequence[HookSample]] | None = None  # of what its hooks send
    approvals: Callable[[], ApprovalAdapter] | None = None  # its hooks ask, and are answered from elsewhere
    listener: Callable[[], Callable[[], QuestionListener]] | None = None  # the daemon hears what it asks
    connector: Callable[[], Connector] | None = None
    remote: Callable[[], RemoteEntry] | None = None  # it can be connected by URL to an inbox on another machine
    sandbox: Callable[[], Sandbox] | None = None
    transcript: Callable[[], RecordReader] | None = None
    waker: Callable[[], Callable[[], HostWaker]] | None = None  # makes one for a daemon
    channel: Callable[[], PushChannel] | None = None
    trial: Callable[[], TrialRecipe] | None = None

    def __post_init__(self) -> None:
        """Refuse a declaration with a field of the wrong type: another package's may not be type-checked."""
        for each in fields(self):
            value, kind = getattr(self, each.name), _KINDS.get(each.name) or type(each.default)
            is_part = kind is type(None)
            if is_part and not (value is None or callable(value)):
                self._refuse(each.name, "callable")
            elif not is_part and not isinstance(value, kind):
                self._refuse(each.name, getattr(kind, "__name__", str(kind)))
            elif isinstance(value, tuple | frozenset) and not all(isinstance(word, str) for word in value):
                self._refuse(each.name, f"{type(value).__name__} of str")
        if not _is_word(self.name):
            self._refuse("name", "word of letters a to z, digits and hyphens that Harken does not use itself")
        if not all(map(_is_word, self.aliases)):
            self._refuse("aliases", "tuple of such words")

    def _refuse(self, field: str, needed: str) -> NoReturn:
        raise TypeError(f"{field} of a Host has to be a {needed}, and is {getattr(self, field)!r:.60}")

    @property
    def has_hooks(self) -> bool:
        """Whether what waits is handed to it, so that its agent need not ask."""
        return self.hooks is not None

    @property
    def is_answered_elsewhere(self) -> bool:
        """Whether its questions can be answered from elsewhere."""
        return self.approvals is not None or self.listener is not None

    @property
    def modern_surfaces(self) -> tuple[str, ...]:
        """The surfaces on a 2026-07-28 connection, which has no unasked notifications."""
        return tuple(surface for surface in self.surfaces if surface != _LOG_PING)


# The types of fields that have no default, or one of another type.
_KINDS: Final[Mapping[str, type | UnionType]] = MappingProxyType(
    {
        "name": str,
        "title": str,
        "interactive": InteractiveCommand | None,
        "waiting_shell": WaitingShell | None,
        "acp": AcpProgram | None,
    }
)


def _is_word(text: str) -> bool:
    """Whether a text can be a part of commands and of names of files, and is no other reader's name."""
    is_plain = text.isascii() and text.replace("-", "").isalnum() and text == text.lower()
    return is_plain and not text.startswith("-") and text not in RESERVED


GENERIC: Final = Host(name="generic", title="any other client")


def answers_one_prompt(host: Host, argv: Sequence[str]) -> bool:
    """Whether a host that was started with these words answers one prompt and ends, so it cannot be woken."""
    words = {part for word in argv[1:] for part in ((word, *word.split("=", 1)) if word.startswith("--") else (word,))}
    return not host.one_shot_words.isdisjoint(words) and host.lasting_words.isdisjoint(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMark:
    """A mark of a host in an environment."""

    host: str
    variable: str
    native: str = ""  # the host's own id of the conversation; empty where no variable names it
    pid: int = 0  # the host's process; 0 where no variable names it


def find_marks(environ: Mapping[str, str], known: Mapping[str, HostMarks]) -> Sequence[FoundMark]:
    """Return the marks of hosts in an environment, one for each host; several when one has started another."""
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
    """Return the host that a process is the program of; empty for any other."""
    return next((host for host, marks in known.items() if is_program_of(argv, marks)), "")


def _plain_name(path: str) -> str:
    name = path.replace("\\", "/").rpartition("/")[2]
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


def is_run_by(host: str, marks: HostMarks, environ: Mapping[str, str], argv: Sequence[str]) -> bool:
    """Whether a host has run a hook with this environment, and no person by hand; `argv` is what has started it."""
    return bool(find_marks(environ, {host: marks})) or is_program_of(argv, marks)
