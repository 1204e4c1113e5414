"""Settings in TOML are changed in place: what is not ours stays as it is, byte for byte."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.hosts.connect.edits import toml_remove, toml_set, toml_value

FILE = Path("config.toml")
SERVER = {"command": "python", "args": ["-I", 'a"b\\'], "env": {"A b": "c\n"}}

words = st.sampled_from(["alpha", "beta", '"quo.ted"', "'lit eral'", "a-1", '"é\\u0041"'])
values = st.sampled_from(
    [
        "1",
        '"x # y"',
        "'''a\n[no.table]\n'''",
        '"""b\\"\n#c\n"""',
        "[1, # two\n 2,\n]",
        "{ a = 1, b = [2] }",
        "2026-01-01",
    ]
)
gaps = st.sampled_from(["", "\n", "# about\n", "  # [not.a.table]\n\n", "\n\n"])


@st.composite
def toml_texts(draw: st.DrawFn) -> bytes:
    """A file as somebody may have typed it, valid or not."""
    parts = [draw(gaps)]
    for _ in range(draw(st.integers(0, 3))):
        parts.append(f"{draw(words)} ={draw(values)}{draw(st.sampled_from(['', ' # end']))}\n")
        parts.append(draw(gaps))
    for _ in range(draw(st.integers(0, 3))):
        name = ".".join(draw(st.lists(words, min_size=1, max_size=2)))
        parts.append(f"[[{name}]]\n" if draw(st.integers(0, 4)) == 0 else f" [ {name} ] # head\n")
        keys = st.lists(words, min_size=1, max_size=2).map(".".join)
        parts += [f"  {draw(keys)} = {draw(values)}\n{draw(gaps)}" for _ in range(draw(st.integers(0, 2)))]
    text = "".join(parts)
    text = text.rstrip("\n") if draw(st.booleans()) else text
    text = text.replace("\n", "\r\n") if draw(st.booleans()) else text
    return (draw(st.sampled_from(["", "\ufeff"])) + text).encode()


def plain(data: bytes) -> dict[str, object]:
    """What the file means to a host, read by another parser than ours."""
    return tomllib.loads(data.decode().removeprefix("\ufeff"))


@given(
    toml_texts(),
    st.sampled_from([("ours",), ("ours", "harken"), ("alpha", "our s"), ("beta", "quo.ted", "ours"), ("é", "A")]),
    st.sampled_from([True, "x", ["y"], SERVER]),
)
def test_what_was_set_comes_out_again_and_leaves_the_file_as_it_was(
    before: bytes, path: tuple[str, ...], value: object
) -> None:
    """`disconnect` removes exactly what `connect` wrote; a file that cannot be changed safely is refused whole."""
    try:
        old = plain(before)
        after = toml_set(before, path, value, file=FILE)
    except tomllib.TOMLDecodeError:
        with pytest.raises(UserError):
            toml_set(before, path, value, file=FILE)
        return
    except UserError:
        with pytest.raises(UserError, match="cannot be changed safely"):
            toml_set(before, path, value, file=FILE)
        return
    assume(toml_value(before, path, file=FILE) is None)
    assert toml_value(after, path, file=FILE) == value
    assert toml_set(after, path, value, file=FILE) == after
    assert {name: item for name, item in plain(after).items() if name != path[0]} == {
        name: item for name, item in old.items() if name != path[0]
    }
    parent = toml_value(before, path[:-1], file=FILE)
    if parent != {} or len(path) == 1:
        assert toml_remove(after, path, file=FILE) == before


@given(toml_texts(), st.sampled_from(["alpha", "beta", "quo.ted"]))
def test_removing_keeps_what_stands_beside_it(before: bytes, name: str) -> None:
    """Whatever stands at the path goes, and no comment of what follows goes with it."""
    try:
        old = plain(before)
    except tomllib.TOMLDecodeError:
        return
    after = toml_remove(before, (name,), file=FILE)
    assert after is not None
    assert plain(after) == {key: value for key, value in old.items() if key != name}
    assert after.count(b"# about") == before.count(b"# about")
    assert toml_remove(after, (name,), file=FILE) == after


def test_a_table_is_appended_and_taken_out_with_its_empty_line() -> None:
    """The file reads as if the person had written it, before and after."""
    before = b"model = 'x'\n\n# my servers\n[mcp_servers.mine]\ncommand = 'y'\n"
    after = toml_set(before, ("mcp_servers", "harken"), SERVER, file=FILE)
    assert after == before + (
        b'\n[mcp_servers.harken]\ncommand = "python"\nargs = ["-I", "a\\"b\\\\"]\nenv = { "A b" = "c\\n" }\n'
    )
    later = after + b"\n# about projects\n[projects.a]\ntrust = true\n"
    assert toml_remove(later, ("mcp_servers", "harken"), file=FILE) == later.replace(after[len(before) :], b"")


def test_a_table_that_is_there_is_brought_up_to_date_in_place() -> None:
    """Comments in it stay; a key that is no longer wanted goes."""
    before = b"[mcp_servers.harken]\n# ours\ncommand = 'old'\nextra = 1\n\n[z]\n"
    after = toml_set(before, ("mcp_servers", "harken"), {"command": "new", "args": []}, file=FILE)
    assert after == b'[mcp_servers.harken]\n# ours\ncommand = "new"\nargs = []\n\n[z]\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"[features]\nx = 1\n\n[z]\n", b"[features]\nx = 1\nhooks = true\n\n[z]\n"),
        (b"features.x = 1\n[z]\n", b"features.x = 1\nfeatures.hooks = true\n[z]\n"),
        (b"features = {x=1} # f\n", b"features = {x=1,hooks = true} # f\n"),
        (b"[z]", b"[z]\n\n[features]\nhooks = true"),
    ],
)
def test_a_key_is_set_where_its_table_is_written(before: bytes, after: bytes) -> None:
    """A table can be written in four ways, and each file has its own."""
    assert toml_set(before, ("features", "hooks"), value=True, file=FILE) == after
    assert toml_remove(after, ("features", "hooks"), file=FILE) == before


def test_a_broken_file_is_named_with_line_and_column() -> None:
    """People have to find what to repair."""
    with pytest.raises(UserError, match=r"config\.toml, line 2, column 5: "):
        toml_set(b"a = 1\nb = \n", ("c",), 1, file=FILE)
    with pytest.raises(UserError, match=r"config\.toml, line 1, column 6: this is not UTF-8"):
        toml_set(b'a = "\xff"\n', ("c",), 1, file=FILE)


def test_what_is_no_table_is_not_made_one() -> None:
    """A value of the person's is never thrown away to make room."""
    with pytest.raises(UserError, match="cannot be changed safely"):
        toml_set(b"mcp_servers = 3\n", ("mcp_servers", "harken"), SERVER, file=FILE)
