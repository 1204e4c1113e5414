"""Writes what the command line must know of the verbs: `src/harken/cli/verb_options.py`, from their declarations.

The command line imports no verb, because its start-up is felt.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, get_args, get_origin

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harken.verbs.table import VERBS
from harken.verbs.verb import Arguments
from scripts.generated import PACKAGE, run

TABLE: Final = PACKAGE / "cli" / "verb_options.py"
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


def _meta(kind: object) -> msgspec.Meta:
    found = get_args(kind) if get_origin(kind) is Annotated else ()
    return next((each for each in found if isinstance(each, msgspec.Meta)), msgspec.Meta())


if __name__ == "__main__":
    sys.exit(run("verb_table", TABLE, table, sys.argv[1:]))
