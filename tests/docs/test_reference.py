"""The reference is complete: whatever the code declares has its place there, and nothing else has."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken import errors
from harken.config.settings import SCALARS, SETTINGS
from harken.errors import HarkenError
from harken.sources.registry import kinds
from harken.verbs.table import TOOLS, VERBS
from scripts import reference
from tests.docs.pages import DOCS, ROOT, fences


def page(name: str) -> str:
    """Return a page of the reference."""
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def headings(name: str) -> set[str]:
    """Return the headings of a page, without their marks."""
    return {title.strip("`") for title in re.findall(r"^#+ (.*)$", page(name), re.MULTILINE)}


def event_kinds() -> Iterator[str]:
    """Yield the kind of every event that the code writes: the first argument of `note` and `record`, or `kind`.

    Which kind a reminder has depends on the way it goes; a table named `KINDS` says so.
    """
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="note" | "record"), args=[ast.Constant(value=str(kind)), *_]):
                    yield kind
                case ast.Call(func=ast.Name(id="Event"), keywords=keywords):
                    named = (word.value for word in keywords if word.arg == "kind")
                    yield from (str(value.value) for value in named if isinstance(value, ast.Constant))
                case ast.AnnAssign(target=ast.Name(id="KINDS"), value=ast.Dict(values=values)):
                    yield from (str(value.value) for value in values if isinstance(value, ast.Constant))


def test_every_setting_is_documented_with_its_variable() -> None:
    """A setting that is in no page is found only by reading the code."""
    assert {setting.name for setting in SETTINGS} <= headings("config.md")
    for setting in SCALARS:
        assert f"`{setting.variable}`" in page("config.md")


def test_every_kind_of_source_is_named_with_its_settings() -> None:
    """The page is where people look for what a source can be."""
    about = page("config.md").partition("### `sources`\n")[2].partition("\n#")[0]
    assert set(kinds().by_name) <= set(re.findall(r"`(\w+)`", about))


def test_every_tool_is_documented_with_its_arguments() -> None:
    """Whoever writes a client looks here and not into the code."""
    for tool in TOOLS:
        assert tool.name in headings("tools.md")
        assert json.dumps(tool.input_schema(), indent=2) in page("tools.md")


def test_every_verb_is_documented_with_arguments_and_result() -> None:
    """The HTTP API and `--json` are one contract, on two pages."""
    for verb in VERBS:
        assert f"POST /api/{verb.name}" in headings("http.md")
        assert verb.name in headings("json.md")
        for field in verb.arguments.__struct_fields__:
            assert f"| `{field}` |" in page("http.md")


def test_every_command_is_documented_with_its_json() -> None:
    """Every command takes `--json`, so every command has a documented answer."""
    for path in reference.command_paths():
        assert f"harken {path}" in headings("cli.md")
        assert path in headings("json.md")


def test_every_error_is_documented_with_its_codes() -> None:
    """Programs decide by these codes."""
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, HarkenError):
            assert f"| `{kind.code}` | {kind.exit_code} | {kind.http_status} |" in page("errors.md")
            assert kind.code in headings("errors.md")


def test_every_kind_of_event_is_documented_by_a_line_of_that_kind() -> None:
    """The journal is for audits: each kind is explained, and its example is a line that says so itself."""
    kinds = set(event_kinds())
    assert headings("journal.md") == {"Journal", *kinds}
    assert {json.loads(line)["kind"] for line in fences(DOCS / "reference" / "journal.md", "json")} == kinds


def test_nothing_is_explained_that_is_gone() -> None:
    """Words that outlive what they explain mislead the next writer."""
    words = reference.load_words().tree
    assert set(words["verbs"]) == {verb.name for verb in VERBS}
    assert set(words["kinds"]) == set(event_kinds())
    assert set(words["settings"]) <= {setting.name for setting in SETTINGS}
    assert set(words["commands"]) == set(reference.command_paths()) - {verb.name for verb in VERBS}


def test_what_has_no_words_is_an_error() -> None:
    """The pages cannot be written with a hole in them."""
    with pytest.raises(reference.MissingWords, match=r"explains no shapes\.message\.colour"):
        reference.explained(["colour"], reference.load_words(), "shapes", "message")


def test_a_page_that_differs_is_shown_and_one_that_is_right_is_not(tmp_path: Path) -> None:
    """`--check` must be able to fail, and must say where."""
    (tmp_path / "right.md").write_text("same\n")
    (tmp_path / "wrong.md").write_text("old\n")
    found = reference.differences(tmp_path, {"right.md": "same\n", "wrong.md": "new\n", "missing.md": "new\n"})
    assert set(found) == {"wrong.md", "missing.md"}
    assert "-old\n+new" in found["wrong.md"]
