"""Writes what the command line must know of the verbs: `src/harken/cli/verb_options.py`, from their declarations.

The command line imports no verb, because its start-up is felt. Run by `make check` with `--check`, which writes nothing
and ends with 1 when the file is not what it would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, get_args, get_origin

import msgspec

from harken.verbs.table import VERBS
from harken.verbs.verb import Arguments

TABLE: Final = Path(__file__).resolve().parent.parent / "src" / "harken" / "cli" / "verb_options.py"
PLAIN: Final = (str, int, float, bool, type(None))
HEAD: Final = '''"""The arguments of verbs as options: flag, default, help.

Written by `scripts/verb_table.py` from the verbs: change those.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VerbOption = tuple[str, str | float | bool | None, str]

VERB_OPTIONS: Final[Mapping[str, Mapping[str, VerbOption]]] = MappingProxyType(
    {
'''


def table() -> str:
    """Return the whole module."""
    return HEAD + "".join(_verb(verb.name, verb.arguments) for verb in VERBS) + "    }\n)\n"


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
        text = own.get("command") or meta.description or ""
        values = ", ".join((json.dumps(flag), repr(field.default).replace("'", '"'), json.dumps(text)))
        yield f'            "{field.name}": ({values}),\n'


def _meta(kind: object) -> msgspec.Meta:
    found = get_args(kind) if get_origin(kind) is Annotated else ()
    return next((each for each in found if isinstance(each, msgspec.Meta)), msgspec.Meta())


def main(arguments: list[str]) -> int:
    """Write the table, or with `--check` say whether it is current."""
    text = table()
    if "--check" not in arguments:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    is_current = TABLE.exists() and TABLE.read_text(encoding="utf-8") == text
    sys.stdout.write("verb table: current\n" if is_current else "verb table: stale, run scripts/verb_table.py\n")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
