"""What a word may be when Tab is pressed, found in the table of commands and without click, because you wait.

Each public function at the end gives the values of one option or argument that begin with what is typed, with a few
words about each: it asks a daemon that runs, briefly, and is silent about any trouble. Whatever is odd on the line is
left to click, which asks the same functions: see `complete.py`.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from harken.cli.invocation import COMPLETE_VARIABLE, CommandTable, split
from harken.cli.output import cut
from harken.config.folder import CONFIG_FILE, find_folder
from harken.control.client import DaemonConnection, dial
from harken.display import one_line
from harken.errors import HarkenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from harken.cli.invocation import CommandRow, Parameter
    from harken.control.client import Result

    Completion = tuple[str, str]
    """A word, and what is said about it."""

    TypedCompletion = tuple[str, str, str]
    """What it is (`plain`, or `dir` and `file`, which the shell finds itself), the word, and what is said about it."""

SECONDS = 0.5
NEWEST = 30
MAX_CHANNELS = 100
HELP_WIDTH = 50
_SPECIAL: Final = "'\"\\"


class CompletionQuery:
    """What is on the line already: the home that it names, and the values of the command."""

    __slots__ = ("home", "values")

    def __init__(self, home: str | None, values: Mapping[str, object]) -> None:
        self.home = home
        self.values = values


def _bash(kind: str, word: str, _about: str) -> str:
    return f"{kind},{word}"


def _zsh(kind: str, word: str, about: str) -> str:
    return f"{kind}\n{word.replace(':', chr(92) + ':')}\n{about}" if about else f"{kind}\n{word}\n_"


def _fish(kind: str, word: str, about: str) -> str:
    return f"{kind},{word}\t{about}" if about else f"{kind},{word}"


_FORMATS: Final[Mapping[str, Callable[[str, str, str], str]]] = MappingProxyType(
    {"bash": _bash, "zsh": _zsh, "fish": _fish}
)


def print_completions(environ: Mapping[str, str]) -> int | None:
    """Print what a shell asks for and return the exit code; None when click has to answer."""
    shell, _, order = environ[COMPLETE_VARIABLE].partition("_")
    line = _line(shell, environ) if order == "complete" and shell in _FORMATS else None
    found = line and find_completions(*line)
    if found is None or line is None:
        return None
    print("\n".join(_FORMATS[shell](*each) for each in found))
    return 0


def _line(shell: str, environ: Mapping[str, str]) -> tuple[list[str], str] | None:
    """Return the words before the one that is typed, and that one; None where quotes would have to be read."""
    text, place = environ.get("COMP_WORDS", ""), environ.get("COMP_CWORD", "")
    if any(char in text + place for char in _SPECIAL) or place == "=":
        return None
    words = text.split()
    if shell == "fish":
        before = words[1:-1] if place and words[1:] and words[-1] == place else words[1:]
        return (before, place) if len(place.split()) <= 1 else None
    if not place.isdecimal():
        return None
    number = int(place)
    return words[1:number], words[number] if number < len(words) else ""


def find_completions(words: list[str], begin: str) -> list[TypedCompletion] | None:
    """Return what can stand in the place of the word that is typed."""
    table, path, home = CommandTable(), "", None
    while True:
        row = table.find(path)
        if row is None or any(each[2] == "custom" and not each[0] for each in row.parameters):
            return None
        pending = _option(row, words[-1]) if words else None
        said = split(words[:-1] if pending else words, row.parameters, is_group=row.is_group)
        if pending and row.is_group and said and said[1]:
            pending = None  # it is an option of the verb, or its word
            said = split(words, row.parameters, is_group=True)
        if said is None:
            return None
        options, others = said
        home = options.get("home") or home
        if not row.is_group or not others:
            break
        path = f"{path} {others[0]}" if path else others[0].replace("_", "-")
        words = others[1:]
    if begin.startswith("-"):
        return None if pending or "=" in begin else _flags(row, options, begin)
    arguments = [each for each in row.parameters if not each[0]]
    wanted = pending or next((each for n, each in enumerate(arguments) if each[2] == "words" or n >= len(others)), None)
    if wanted is not None:
        values = {**options, **dict(zip((each[1] for each in arguments), others, strict=False))}
        return _values(wanted, values, begin, home)
    verbs = table.below(path) if row.is_group else []
    return [("plain", name, each.help) for each in verbs if (name := each.path.split(" ")[-1]).startswith(begin)]


def _option(row: CommandRow, flag: str) -> Parameter | None:
    """Return the option whose value comes next."""
    return next((each for each in row.parameters if flag in each[0] and each[2] not in ("flag", "eager")), None)


def _flags(row: CommandRow, options: Mapping[str, str], begin: str) -> list[TypedCompletion]:
    return [
        ("plain", flag, about)
        for flags, name, kind, _, _, about in row.parameters
        for flag in flags
        if flag.startswith(begin) and (name not in options or kind.startswith("many"))
    ]


def _values(wanted: Parameter, values: dict[str, str], begin: str, home: str | None) -> list[TypedCompletion] | None:
    """Return what an option or argument may be; None when only click knows."""
    kind, finder = wanted[2], wanted[4]
    if finder == "?":
        return None
    if finder:
        find: Callable[[CompletionQuery, str], list[Completion]] = globals()[finder]
        return [("plain", *each) for each in find(CompletionQuery(home, values), begin)]
    kind, _, bounds = kind.removeprefix("many ").partition(" ")
    if kind == "choice":
        return [("plain", each, "") for each in bounds.split("|") if each.startswith(begin)]
    return [(kind, begin, "")] if kind in ("dir", "file") else []


def messages(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the newest messages: their ids, or their sequence numbers once a digit is typed."""
    found = _ask(query, "list", limit=NEWEST).get("messages", [])
    offered = [(_name_of(record, begin), cut(_about(record), HELP_WIDTH)) for record in reversed(found)]
    return [(name, about) for name, about in offered if name.startswith(begin)]


def complete_hosts(_query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the names of hosts."""
    from harken.hosts.registry import host_words

    return [(name, "") for name in host_words() if name.startswith(begin)]


def channels(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the channels of recent messages."""
    found = _ask(query, "list", limit=10 * NEWEST).get("messages", [])
    return _items({record["channel"] for record in found}, begin)


def channel_names(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the channels that messages came through."""
    return _items({found["channel"] for found in _channels(query)}, begin)


def sources_of_channels(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the sources of channels, of the one that is named already if there is one."""
    name = query.values.get("name")
    return _items({found["source"] for found in _channels(query) if name in (None, "", found["channel"])}, begin)


def configured_sources(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the sources of config.toml; no daemon is asked, because one that cannot start has them too."""
    import tomllib

    try:
        with open(f"{_folder(query)}/{CONFIG_FILE}", "rb") as stream:
            found = tomllib.load(stream).get("sources", {})
    except (HarkenError, OSError, ValueError):
        return []
    return _items(set(found) if isinstance(found, dict) else set(), begin)


def mailboxes(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the mailboxes."""
    return _items(set(_ask(query, "mailboxes").get("mailboxes", [])), begin)


def consumers(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the consumers."""
    return _items({place["consumer"] for place in _ask(query, "status").get("consumers", [])}, begin)


def tasks(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the tasks that are not done."""
    return _described({task["id"]: task["title"] for task in _ask(query, "task_list").get("tasks", [])}, begin)


def rule_names(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the rules in force."""
    return _items({rule["name"] for rule in _ask(query, "rules").get("rules", [])}, begin)


def tool_words(_query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the words for tools that mean the same on every host."""
    from harken.runs.tools import PORTABLE

    return _items(set(PORTABLE), begin)


def waiting_actions(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the actions that wait for a yes or no."""
    found = _ask(query, "actions", state="waiting", limit=NEWEST).get("actions", [])
    return _described({each["id"]: f"{each['rule']}, {each['agent'] or 'any agent'}" for each in found}, begin)


def open_questions(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the messages that wait for an answer."""
    found = _ask(query, "questions", limit=NEWEST).get("questions", [])
    return _described({each["message"]["id"]: _about(each["message"]) for each in found}, begin)


def open_approvals(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete what hosts ask."""
    found = _ask(query, "approvals", limit=NEWEST).get("approvals", [])
    return _described({each["id"]: f"{each['host']}: {each['tool']}" for each in found}, begin)


def conversations(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the newest message of each conversation that is neither done nor put off."""
    found = [each["newest"] for each in _ask(query, "conversations", limit=NEWEST).get("conversations", [])]
    return _described({record["id"]: _about(record) for record in found}, begin)


def runs(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the newest runs."""
    return _runs(query, begin, running=None)


def open_runs(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the runs that are not over."""
    return _runs(query, begin, running=True)


def _runs(query: CompletionQuery, begin: str, *, running: bool | None) -> list[Completion]:
    found = _ask(query, "runs", limit=NEWEST, running=running).get("runs", [])
    return _described({each["id"]: f"{each['state']}, {each['rule'] or 'by hand'}" for each in found}, begin)


def browsers(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the browsers that are signed in to the page."""
    found = _ask(query, "browsers").get("browsers", [])
    return _described({each["id"]: each["browser"] for each in found}, begin)


def tokens(query: CompletionQuery, begin: str) -> list[Completion]:
    """Complete the tokens that are in force."""
    found = [each for each in _ask(query, "token_list").get("tokens", []) if each["state"] == "in force"]
    return _described({each["name"]: each["kind"] for each in found}, begin)


def _described(found: dict[str, str], begin: str) -> list[Completion]:
    return [(name, cut(one_line(found[name]), HELP_WIDTH)) for name, _ in _items(set(found), begin)]


def _items(names: set[str], begin: str) -> list[Completion]:
    # Names come from outside. What is not a plain word could act on the terminal, or run when Enter is pressed.
    return [(name, "") for name in sorted(names) if name.startswith(begin) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    return bool(name) and name[0] != "-" and all(char.isalnum() or char in "_.:@+/-" for char in name)


def _name_of(record: Result, begin: str) -> str:
    # A bare number means a place in the inbox.
    is_number = begin.isdigit() and record["mailbox"] == "inbox"
    return str(record["seq"]) if is_number else str(record["id"])


def _channels(query: CompletionQuery) -> list[Result]:
    found: list[Result] = _ask(query, "channels", limit=MAX_CHANNELS).get("channels", [])
    return found


def _about(record: Result) -> str:
    return one_line(f"{record['from']}: {record['content_text_sanitized']}")


def _folder(query: CompletionQuery) -> str:
    return find_folder(query.home, os.environ)


def _ask(query: CompletionQuery, method: str, **params: object) -> Result:
    try:
        client = DaemonConnection(*dial(_folder(query), SECONDS))
        try:
            return client.call(method, params, SECONDS)
        finally:
            client.close()
    except (HarkenError, OSError, ValueError):
        return {}
