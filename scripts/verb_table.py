"""Writes what the command line must know of the verbs, because its start-up is felt, and it imports none of them.

`src/harken/cli/verb_options.py` is written from the declarations of the verbs: click's commands are made with it.
`src/harken/cli/commands.jsonl` is written from click's commands: plain words are read with it, without click.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import click
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harken.verbs.table import VERBS
from harken.verbs.verb import Arguments
from scripts.generated import PACKAGE, run

TABLE: Final = PACKAGE / "cli" / "verb_options.py"
COMMAND_TABLE: Final = PACKAGE / "cli" / "commands.jsonl"
WIDTH: Final = 120
PLAIN: Final = (str, int, float, bool, type(None))
HEAD: Final = '''"""Verbs on the command line: the help of each, and of its arguments the flag, default and help.

Written by `scripts/verb_table.py` from the verbs: change those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VerbOption = tuple[str, str | float | bool | None, str]

VERB_HELP: Final[Mapping[str, str]] = MappingProxyType(
    {
'''
MIDDLE: Final = """    }
)

VERB_OPTIONS: Final[Mapping[str, Mapping[str, VerbOption]]] = MappingProxyType(
    {
"""

CUSTOM: Final = ((), "", "custom", None, "?", "")
ONLY_CLICK: Final = "?"


def table() -> str:
    """Return the whole module."""
    helps = (_help(verb.name, inspect.getdoc(verb.arguments) or "") for verb in VERBS)
    options = (_verb(verb.name, verb.arguments) for verb in VERBS)
    return "".join((HEAD, *helps, MIDDLE, *options, "    }\n)\n"))


def _help(name: str, text: str) -> str:
    line = f"        {json.dumps(name)}: {json.dumps(text)},\n"
    if len(line) <= WIDTH + 1:  # with its end
        return line
    *most, last = textwrap.wrap(text, WIDTH - 15)
    parts = "".join(f"            {json.dumps(part)}\n" for part in (*(f"{each} " for each in most), last))
    return f"        {json.dumps(name)}: (\n{parts}        ),\n"


def _verb(name: str, arguments: type[Arguments]) -> str:
    rows = "".join(_rows(arguments))
    return f'        "{name}": {{\n{rows}        }},\n' if rows else ""


def _rows(arguments: type[Arguments]) -> Iterator[str]:
    for field in msgspec.structs.fields(arguments):
        if not isinstance(field.default, PLAIN):
            continue  # a list, or one that has to be said
        meta = _meta(field.type)
        own: dict[str, str] = meta.extra or {}
        flag = own.get("flag") or "--" + field.name.replace("_", "-")
        text = meta.description or ""
        values = ", ".join((json.dumps(flag), repr(field.default).replace("'", '"'), json.dumps(text)))
        yield f'            "{field.name}": ({values}),\n'


def command_table() -> str:
    """Return the file of all commands."""
    from harken.cli.verbs import harken

    return "".join(_commands(click.Context(harken, info_name="harken"), ""))


def _commands(context: click.Context, path: str) -> Iterator[str]:
    """Yield a command and those below it; one that finds its commands by itself is left to click."""
    command = context.command
    is_group = isinstance(command, click.Group)
    is_custom = bool(path) and is_group and type(command) is not click.Group
    parameters = (
        [CUSTOM]
        if is_custom
        else [_parameter(each) for each in command.get_params(context) if not getattr(each, "hidden", False)]
    )
    about = command.get_short_help_str() if path else ""
    yield json.dumps([path, about, is_group, parameters], ensure_ascii=False) + "\n"
    if not isinstance(command, click.Group) or is_custom:
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _commands(click.Context(below, parent=context, info_name=name), f"{path} {name}".strip())


def _parameter(parameter: click.Parameter) -> list[object]:
    """Return the row of a parameter."""
    completer: Callable[..., object] | None = getattr(parameter, "_custom_shell_complete", None)
    finder = getattr(completer, "__name__", "")
    kind = _kind(parameter.type)
    if not isinstance(parameter, click.Option):
        if parameter.nargs != -1:
            return [[], parameter.name, kind, None, finder, ""]
        return [[], parameter.name, "words", None, finder or ("" if kind == "text" else ONLY_CLICK), ""]
    kind = "eager" if parameter.is_eager else "flag" if parameter.is_flag else kind
    default = parameter.default if isinstance(parameter.default, PLAIN) else None
    return [
        [*parameter.opts, *parameter.secondary_opts],
        parameter.name,
        f"many {kind}" if parameter.multiple else kind,
        bool(default) if kind == "flag" else default,
        finder,
        parameter.help or "",
    ]


def _kind(kind: click.ParamType[Any]) -> str:
    """Return the name of a type, with its bounds; `custom` for one that only click knows."""
    if isinstance(kind, click.Choice):
        return f"choice {'|'.join(map(str, kind.choices))}"
    if isinstance(kind, click.Path):
        return "dir" if kind.dir_okay and not kind.file_okay else "file"
    if isinstance(kind, click.IntRange | click.FloatRange):
        name = "int" if isinstance(kind, click.IntRange) else "float"
        least, most = ("" if bound is None else f"{bound:g}" for bound in (kind.min, kind.max))
        return "custom" if kind.min_open or kind.max_open or kind.clamp else f"{name} {least}..{most}"
    return {"text": "text", "integer": "int", "float": "float"}.get(kind.name, "custom")


def _meta(kind: object) -> msgspec.Meta:
    found = get_args(kind) if get_origin(kind) is Annotated else ()
    return next((each for each in found if isinstance(each, msgspec.Meta)), msgspec.Meta())


if __name__ == "__main__":
    sys.exit(
        run("verb_table", TABLE, table, sys.argv[1:]) or run("verb_table", COMMAND_TABLE, command_table, sys.argv[1:])
    )
