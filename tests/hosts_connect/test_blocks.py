"""Our lines in a text file of the person's stand between marks; everything outside of them is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.hosts.connect.edits import block_put, block_remove, block_text

FILE = Path("AGENTS.md")
contents = st.binary(min_size=1, max_size=40) | st.text("a# \n\r", min_size=1, max_size=20).map(str.encode)
texts = st.text("ab é\n", max_size=20).map(lambda text: text.strip("\n"))


@given(contents, texts, texts)
def test_a_block_is_put_replaced_and_removed_without_a_trace(before: bytes, first: str, second: str) -> None:
    """Whatever the file holds, also bytes that are no text, it is the same afterwards."""
    put = block_put(before, first, file=FILE)
    assert put.startswith(before)
    assert block_text(put, file=FILE) == first
    assert block_put(put, first, file=FILE) == put
    replaced = block_put(put, second, file=FILE)
    assert replaced == block_put(before, second, file=FILE)
    assert block_remove(replaced, file=FILE) == before


@given(contents, contents)
def test_what_was_written_around_the_block_stays(before: bytes, after: bytes) -> None:
    """People go on writing in their files, before and after our lines."""
    assume(b"harken" not in before + after)
    whole = block_put(before, "ours", file=FILE) + b"\n" + after
    rest = block_remove(whole, file=FILE)
    assert rest is not None
    assert rest.startswith(before)
    assert rest.endswith(after)
    assert b"harken" not in rest


def test_a_file_of_ours_alone_is_gone_without_the_block() -> None:
    """None stands for no file."""
    made = block_put(None, "ours", file=FILE)
    assert made == b"<!-- harken:begin -->\nours\n<!-- harken:end -->\n"
    assert block_remove(made, file=FILE) is None
    assert block_remove(None, file=FILE) is None
    assert block_text(None, file=FILE) is None


def test_lines_end_as_in_the_file() -> None:
    """An editor of another system shows one kind of line end."""
    assert block_put(b"a\r\n", "b\nc", file=FILE) == (
        b"a\r\n\r\n<!-- harken:begin -->\r\nb\r\nc\r\n<!-- harken:end -->\r\n"
    )


@pytest.mark.parametrize(
    "marks",
    [
        b"<!-- harken:begin -->",
        b"<!-- harken:end --> x <!-- harken:begin -->",
        b"<!-- harken:begin -->\n<!-- harken:end -->\n<!-- harken:begin -->\n<!-- harken:end -->",
    ],
)
def test_marks_that_are_no_pair_are_refused(marks: bytes) -> None:
    """What stands between half a pair could be anything, the person's own text too."""
    with pytest.raises(UserError, match=r"AGENTS\.md, line 2, column 1: "):
        block_put(b"x\n" + marks, "y", file=FILE)
    with pytest.raises(UserError, match=r"AGENTS\.md, line 2, column 1: "):
        block_remove(b"x\n" + marks, file=FILE)
