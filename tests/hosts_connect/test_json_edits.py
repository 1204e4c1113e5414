"""Settings in JSON and JSONC are changed in place: what is not ours stays as it is, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from harken.errors import UserError
from harken.hosts.connect.edits import json_append, json_remove, json_remove_items, json_set, json_value

FILE = Path("settings.json")
SERVER = {"command": "python", "args": ["-I", "mcp.py"]}

words = st.text("abcxyz", min_size=1, max_size=3)
comments = st.sampled_from(["/* note */", "/* a\n b */", '// "quoted": {\n', "// héllo, ]}\n", "/**/"])
spaces = st.sampled_from(["", " ", "\t", "\n", "\r\n", "\n\n    ", "  "])


@st.composite
def trivia(draw: st.DrawFn) -> str:
    """What may stand between two tokens."""
    if draw(st.integers(0, 3)):
        return draw(spaces)
    return draw(spaces) + draw(comments) + draw(spaces)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 0) -> str:
    """A value as somebody may have typed it."""
    scalars = st.sampled_from(["1", "-2.5e3", "true", "null", '"x"', '"// no \\" comment"', '"{"', '"é😀"'])
    kind = draw(st.integers(0, 2)) if depth else 1
    if depth > 2 or kind == 0:
        return draw(scalars)
    inner = json_texts(depth + 1)
    if kind == 1:
        keys = draw(st.lists(words, unique=True, max_size=3, min_size=0 if depth else 1))
        entries = [f'{draw(trivia())}"{key}"{draw(trivia())}:{draw(trivia())}{draw(inner)}' for key in keys]
    else:
        entries = [draw(trivia()) + draw(inner) for _ in range(draw(st.integers(0, 3)))]
    comma = draw(st.sampled_from(["", ","])) if entries else ""
    body = ",".join(entry + draw(trivia()) for entry in entries) + comma + draw(trivia())
    return f"{{{body}}}" if kind == 1 else f"[{body}]"


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A whole file, with what may stand before and after the object in it."""
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return (bom + draw(trivia()) + draw(json_texts()) + draw(trivia()) + draw(spaces)).encode()


def plain(data: bytes | None) -> object:
    """What the file means to a host."""
    return json_value(data, file=FILE)


@given(documents(), st.lists(words, min_size=1, max_size=3), st.sampled_from([1, "x", {}, [], SERVER]))
def test_what_was_set_comes_out_again_and_leaves_the_file_as_it_was(
    before: bytes, names: list[str], value: object
) -> None:
    """`disconnect` removes exactly what `connect` wrote, however the person writes their files."""
    path = ("Ours", *names)
    after = json_set(before, path, value, file=FILE)
    assert json_value(after, path, file=FILE) == value
    assert json_set(after, path, value, file=FILE) == after
    assert json_remove(after, path, file=FILE) == before


@given(documents(), words, st.sampled_from([1, SERVER]))
def test_setting_a_member_changes_nothing_else(before: bytes, name: str, value: object) -> None:
    """Every other setting keeps its meaning, and every comment its text."""
    expected = json_value(before, file=FILE)
    assert isinstance(expected, dict)
    after = json_set(before, (name,), value, file=FILE)
    assert plain(after) == expected | {name: value}
    if name not in expected:
        found = re.findall(r"note|héllo|quoted|/\*\*/| b ", before.decode())
        assert re.findall(r"note|héllo|quoted|/\*\*/| b ", after.decode()) == found


@given(documents(), st.lists(words, min_size=1, max_size=2))
def test_removing_a_member_keeps_the_others(before: bytes, path: list[str]) -> None:
    """Whatever stands at the path goes; what stands beside it stays."""
    value = plain(before)
    assert isinstance(value, dict)
    after = json_remove(before, path, file=FILE)
    rest = plain(after)
    assert isinstance(rest, dict)
    assert {name: value[name] for name in value if name != path[0]} == {
        name: rest[name] for name in rest if name != path[0]
    }
    assert json_value(after, path, file=FILE) is None
    assert json_remove(after, path, file=FILE) == after


@given(documents(), st.lists(st.sampled_from([{"a": 1}, "x", [2]]), min_size=1, max_size=3, unique_by=str))
def test_items_are_appended_once_and_come_out_again(before: bytes, items: list[object]) -> None:
    """Hooks are items of lists: ours come after the person's own, once, and leave them alone."""
    path = ("Hooks", "Stop")
    with_own = json_append(before, path, "own", file=FILE)
    after = with_own
    for item in [*items, *items]:
        after = json_append(after, path, item, file=FILE)
    assert json_value(after, path, file=FILE) == ["own", *items]
    assert json_remove_items(after, path, lambda item: item in items, file=FILE) == with_own
    assert json_remove_items(after, path, lambda _: True, file=FILE) == before


@given(st.binary(max_size=30) | st.text('{}[]",:/*\n \\u0a1e-.tfn', max_size=20).map(str.encode))
def test_whatever_a_file_holds_it_is_understood_or_refused(data: bytes) -> None:
    """A file that is broken is named and left alone; what we accept, the standard parser accepts without comments."""
    try:
        after = json_set(data, ("k",), 1, file=FILE)
    except UserError:
        with pytest.raises(UserError, match=r"settings\.json, line \d+, column \d+: "):
            json_set(data, ("k",), 1, file=FILE)
        return
    assert json_value(after, ("k",), file=FILE) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=8,
    )
)
def test_strict_json_reads_as_the_standard_library_reads_it(value: object) -> None:
    """Our scanner adds comments to JSON and nothing else."""
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        if text.encode("utf-8", "replace").decode() == text:
            assert json_value(text.encode(), file=FILE) == value


def test_what_is_added_looks_like_the_rest_of_the_file() -> None:
    """The diff that people are shown must be about the change, not about style."""
    tabs = b'{\r\n\t"theme": "dark", // mine\r\n\t"hooks": {\r\n\t\t"Stop": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}\r\n'
    after = json_append(
        json_set(tabs, ("mcp", "harken"), {"a": [1]}, file=FILE), ("hooks", "Stop"), {"b": 2}, file=FILE
    )
    assert b"\r\n".join(after.split(b"\n")).count(b"\r\r\n") == after.count(b"\n")
    assert after.decode().replace("\r\n", "\n").expandtabs(4) == snapshot("""\
{
    "theme": "dark", // mine
    "hooks": {
        "Stop": [
            1,
            {
                "b": 2
            }
        ]
    },
    "mcp": {
        "harken": {
            "a": [
                1
            ]
        }
    }
}
""")
    assert json_set(b'{"a":1}', ("b",), [1, 2], file=FILE) == b'{"a":1,"b":[1,2]}'
    assert json_set(b'{"a": 1}\n', ("b",), [1, 2], file=FILE) == b'{"a": 1, "b": [1, 2]}\n'
    assert json_set(None, ("a",), 1, file=FILE) == b'{\n  "a": 1\n}\n'
    assert json_set(b"", ("a",), 1, file=FILE) == b'{\n  "a": 1\n}\n'
    assert json_set(b"// mine", ("a",), 1, file=FILE) == b'// mine\n{\n  "a": 1\n}\n'


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b'{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        (b'{"a": }', "line 1, column 7"),
        (b'{"a": 1} {}', "line 1, column 10"),
        (b"{'a': 1}", "line 1, column 2"),
        (b'{"a": 1 /* }', "line 1, column 9"),
        (b'{"a": "x\ny"}', "line 1, column 7"),
        (b'{"a": 01}', "line 1, column 7"),
        (b'{"a": NaN}', "line 1, column 7"),
        (b"{,}", "line 1, column 2"),
        (b'{"a": "\xff"}', "line 1, column 8"),
        (b"[" * 100_000, "line 1, column 202"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "line 1, column 7"),
        (b'{"k": []}', "line 1, column 7"),
    ],
)
def test_a_broken_file_is_named_with_line_and_column(data: bytes, place: str) -> None:
    """People have to find what to repair; a guess would damage more."""
    with pytest.raises(UserError) as caught:
        json_set(data, ("k", "x"), 1, file=FILE)
    assert f"settings.json, {place}: " in caught.value.message
    assert caught.value.hint.startswith("Nothing was changed.")


def test_of_two_members_with_one_name_the_last_counts_and_both_can_be_taken_out() -> None:
    """Hosts read the last; an entry of ours that is there twice must go twice."""
    twice = b'{"a": 1, "b": 2, "a": 3}'
    assert json_value(twice, ("a",), file=FILE) == 3
    assert json_remove(twice, ("a",), file=FILE) == b'{ "b": 2}'


def test_a_parent_with_a_comment_stays() -> None:
    """The comment is the person's."""
    commented = b'{"hooks": { /* mine */ "Stop": [1]}}'
    assert json_remove(commented, ("hooks", "Stop"), file=FILE) == b'{"hooks": { /* mine */}}'


def test_a_file_that_does_not_exist_has_nothing_to_remove() -> None:
    """None stands for no file, and none is made to remove something from it."""
    assert json_remove(None, ("a",), file=FILE) is None
    assert json_remove_items(None, ("a",), lambda _: True, file=FILE) is None
