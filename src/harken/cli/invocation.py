"""How a verb is called: what it is told, and the words of the verbs that are typed most, read without click.

`scripts/verb_table.py` writes `commands.jsonl` from click's commands, a line for each, so that one can be read without
the others. Plain words are read with it. Whatever is not known here, or would be refused, is left to click: help,
errors and odd words are the same for every verb. What is read is understood as click does it;
`tests/cli/test_light.py` compares them. Everything here and below it is imported by every command: it costs time.
"""

from __future__ import annotations

import os
import stat
import sys
from types import MappingProxyType

from harken.cli.output import HOME_OPTION, Screen, at_home
from harken.config.folder import find_folder
from harken.control.client import decode
from harken.errors import HarkenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from harken.config.home import Home
    from harken.control.client import DaemonClient, Result

    Values = dict[str, object]
    Parameter = tuple[tuple[str, ...], str, str, str | float | bool | None, str, str]
    """Its flags (an argument has none), name, kind, default, its function in `completion.py`, and help."""

INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell reports of a program that SIGPIPE ended
COMPLETE_VARIABLE = "_HARKEN_COMPLETE"  # set by a shell that asks what Tab offers
FILE: Final = __file__.removesuffix("invocation.py") + "commands.jsonl"

BODIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "send": "messages:send",
        "list": "messages:list_messages",
        "read": "messages:read",
        "wait": "messages:wait",
        "status": "status:status",
    }
)
"""The functions of the verbs that are read here."""


class Invocation:
    """What every verb is told: which home, and how to print."""

    __slots__ = ("as_json", "folder", "home_option", "screen")

    def __init__(self, home: str | None, *, as_json: bool) -> None:
        self.folder = find_folder(home, os.environ)
        self.as_json = as_json
        self.screen = Screen.of_stdout()
        self.home_option = ("--home", home) if home is not None else ()  # how to name it in another command

    @property
    def home(self) -> Home:
        """The folder with its layout."""
        from pathlib import Path

        from harken.config.home import Home

        return Home(Path(self.folder))

    def daemon(self, *, can_start: bool = True) -> DaemonClient:
        """Return the daemon of the home, started when it is asked something and does not run."""
        from harken.control.client import DaemonClient

        return DaemonClient(self.folder, can_start=can_start, notice=_start_notice)

    def ask(self, method: str, /, **params: object) -> Result:
        """Ask the daemon one verb."""
        with self.daemon() as daemon:
            return daemon.ask(method, **params)

    def print_json(self, value: object) -> None:
        """Print one JSON document."""
        self.screen.json(value)

    def gave_json(self, value: object) -> bool:
        """Print a result as JSON if that was asked for; return whether it was."""
        if self.as_json:
            self.print_json(value)
        return self.as_json

    def call(self, body: Callable[..., int | None], values: Mapping[str, object]) -> int:
        """Call the function of a verb, and return the exit code; the hint of an error names the home."""
        token = HOME_OPTION.set(self.home_option)
        try:
            code = body(self, **values)
            sys.stdout.flush()
        except BrokenPipeError:
            return PIPE_CLOSED
        except HarkenError as exc:
            exc.hint = at_home(exc.hint)
            raise
        finally:
            HOME_OPTION.reset(token)
        return code or 0


def _start_notice() -> Callable[[float], None]:
    from harken.cli.progress import start_notice

    return start_notice()


class CommandRow:
    """A command: its path is its name, after those of the groups above it."""

    __slots__ = ("help", "is_group", "parameters", "path")

    def __init__(self, line: bytes) -> None:
        row: Any = decode(line)
        self.path: str = row[0]
        self.help: str = row[1]
        self.is_group: bool = row[2]
        self.parameters: list[Parameter] = row[3]


class CommandTable:
    """All commands."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        with open(FILE, "rb") as stream:
            self._lines = stream.read().splitlines()

    def find(self, path: str) -> CommandRow | None:
        """Return a command."""
        begin = f'["{path}", '.encode()
        return next((CommandRow(line) for line in self._lines if line.startswith(begin)), None)

    def below(self, path: str) -> list[CommandRow]:
        """Return the commands of a group, in the order in which they are listed."""
        begin = f'["{path} ' if path else '["'
        rows = [CommandRow(line) for line in self._lines if line.startswith(begin.encode())]
        depth = path.count(" ") + 1 if path else 0
        return [row for row in rows if row.path and row.path.count(" ") == depth]


class LightCall:
    """A verb that is to be called, and with what."""

    __slots__ = ("as_json", "home", "values", "verb")

    def __init__(self, verb: str, values: Values, *, home: str | None, as_json: bool) -> None:
        self.verb, self.values, self.home, self.as_json = verb, values, home, as_json


def perform(words: Sequence[str]) -> int | None:
    """Do what plain words say and return the exit code; None when click has to read them."""
    call = read(words)
    if call is None:
        return None
    return Invocation(call.home, as_json=call.as_json).call(body_of(call.verb), call.values)


def body_of(verb: str) -> Callable[..., int | None]:
    """Return the function of a verb."""
    module, _, name = BODIES[verb].partition(":")
    body: Callable[..., int | None] = getattr(__import__(f"harken.cli.{module}", fromlist=[name]), name)
    return body


def read(words: Sequence[str]) -> LightCall | None:
    """Return what plain words mean; None when click has to read them."""
    table = CommandTable()
    root = table.find("")
    before = root and split(words, root.parameters, is_group=True)
    row = table.find(before[1][0]) if before and before[1] and before[1][0] in BODIES else None
    if not before or row is None:
        return None
    after = split(before[1][1:], row.parameters, is_group=False)
    values = after and _values(*after, row.parameters)
    if not values:
        return None
    inner, outer = values.pop("home"), before[0].get("home")
    home = outer if inner is None else str(inner)
    if home is not None and not _is_folder(home):
        return None
    as_json = bool(values.pop("as_json")) or "as_json" in before[0]
    return LightCall(row.path, values, home=home, as_json=as_json)


def split(
    words: Sequence[str], parameters: Sequence[Parameter], *, is_group: bool
) -> tuple[dict[str, str], list[str]] | None:
    """Return the options by name and the other words; of a group, the words from its verb on. None for odd words."""
    options = {flag: parameter for parameter in parameters for flag in parameter[0]}
    said: dict[str, str] = {}
    others: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--" and not is_group:
            return said, [*others, *reversed(rest)]
        if not word.startswith("-") or word == "-":
            if is_group:
                return said, [word, *reversed(rest)]
            others.append(word)
            continue
        flag, equals, value = word.partition("=")
        parameter = options.get(flag)
        if (
            parameter is None
            or not flag.startswith("--")
            or parameter[2] == "eager"
            or (parameter[2] == "flag" and equals)
        ):
            return None
        if parameter[2] != "flag" and not equals:
            if not rest or rest[-1].startswith("-"):
                return None
            value = rest.pop()
        said[parameter[1]] = value
    return said, others


def _values(said: dict[str, str], others: list[str], parameters: Sequence[Parameter]) -> Values | None:
    """Return the values of a verb; None when one of them has to be refused, or is of a kind that is not known here."""
    values: Values = {}
    for flags, name, kind, default, _, _ in parameters:
        if kind == "eager":
            continue
        if kind == "words":
            values[name], others = tuple(others), []
        elif not flags:
            if not others or kind != "text":
                return None
            values[name], *others = others
        elif name not in said:
            values[name] = default
        elif kind == "flag":
            values[name] = True
        else:
            try:
                values[name] = _converted(kind, said[name])
            except ValueError:
                return None
    return None if others else values


def _converted(kind: str, text: str) -> object:
    """Return the value of an option; raise `ValueError` for one that click refuses, or a kind that only it knows."""
    kind, _, bounds = kind.partition(" ")
    if kind in ("text", "dir"):
        return text
    if kind == "choice":
        return bounds.split("|")[bounds.split("|").index(text)]
    if kind not in ("int", "float"):
        raise ValueError(kind)
    number = int(text) if kind == "int" else float(text)
    least, _, most = bounds.partition("..")
    if (least and not number >= float(least)) or (most and not number <= float(most)):
        raise ValueError(text)
    return number


def _is_folder(path: str) -> bool:
    """Whether a path is good for a home, as far as click looks: not there yet, or a folder that can be read."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return bool(path) and "\0" not in path
    return is_folder and os.access(path, os.R_OK)
