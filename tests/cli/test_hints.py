"""Commands that Harken advises can be copied: they name the home that the person named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import harken.cli
from harken.cli.output import HOME_OPTION, at_home
from tests.cli.rig import Rig

COMMAND = re.compile(r"\bharken [a-z]+\b")


def test_a_printed_hint_names_the_home_that_was_named(tmp_path: Path) -> None:
    """Copied without it, the command would be about another home."""
    rig = Rig(tmp_path / "default")
    done = rig.run("service", "status", "--home", str(tmp_path / "other"))
    assert f"Install it: harken --home {tmp_path / 'other'} service install" in done.out


def test_only_commands_of_harken_name_the_home() -> None:
    """What only looks like a command stays as it is: a name that ends alike, a verb there is not."""
    token = HOME_OPTION.set(("--home", "/my home"))
    try:
        assert at_home("See: harken --help. Run: harken send-to-task x, or harken list.") == (
            "See: harken --help. Run: harken --home '/my home' send-to-task x, or harken --home '/my home' list."
        )
        for other in ("uvharken list", "harken nothing", "harken lists", "harken ", "harken"):
            assert at_home(other) == other
    finally:
        HOME_OPTION.reset(token)


def test_no_command_prints_a_hint_as_it_prints_a_line() -> None:
    """A line is printed as it is, so that a text of somebody else stays what it was; a hint is about a home."""
    found = []
    for path in sorted(Path(harken.cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "line"):
                continue
            said = ast.unparse(node)
            if COMMAND.search(said) and "at_home" not in said:
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
