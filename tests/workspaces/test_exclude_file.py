"""Blocks in `info/exclude`: whatever was there stays, and blocks go in any order."""

from __future__ import annotations

from itertools import permutations
from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st

from harken.workspaces.seeding import pattern, with_block, without_block

LINES = st.lists(st.sampled_from(["/.codex/config.toml", "/a b", "/käfer", r"/\*"]), max_size=3)
BEFORE = st.one_of(st.binary(max_size=40), st.sampled_from([b"# mine\n*.log\n", b"*.log", b"\n\n", b"a\r\nb\r\n"]))


@given(BEFORE, st.lists(LINES, min_size=3, max_size=3))
def test_blocks_go_in_any_order_and_leave_every_byte(before: bytes, blocks: list[list[str]]) -> None:
    """Tasks end in an order nobody knows, and the file is the person's."""
    names = ["one.codex", "one.codex-2", "two.codex"]
    for order in permutations(names):
        data: bytes | None = before
        for name, lines in zip(names, blocks, strict=True):
            data = with_block(data, name, lines)
        for name in order:
            data = without_block(data, name)
        assert data == before


@given(BEFORE, LINES, LINES)
def test_a_block_is_there_once(before: bytes, old: list[str], new: list[str]) -> None:
    """Seeding again replaces."""
    again = with_block(with_block(before, "one", old), "one", new)
    assert again == with_block(before, "one", new)


def test_a_file_that_is_not_there_has_no_block() -> None:
    """Taking back twice does no harm."""
    assert without_block(None, "one") is None
    assert without_block(b"*.log\n", "one") == b"*.log\n"
    block = b"# harken: begin one\n/x\n# harken: end one\n"
    assert with_block(None, "one", ["/x"]) == block
    assert without_block(block, "one") == b""
    assert without_block(block, "on") == block


def test_a_pattern_means_one_file() -> None:
    """A folder's name may hold what git would take for a wildcard."""
    assert pattern(PurePath("we[i]rd*/a?b\\c/x.toml")) == r"/we\[i\]rd\*/a\?b\\c/x.toml"
    assert pattern(PurePath("two\nlines")) == "/two?lines"
