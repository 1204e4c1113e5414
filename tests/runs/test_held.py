"""What is held is held in every folder, in every spelling, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.run_environment import held_parts
from harken.runs.held import is_held, is_repository, is_undone
from harken.runs.tools import may_change, parse_tool

ALL = held_parts(())
PLAIN = st.lists(st.sampled_from(["src", "a", "docs", "agents", "git", "x.md", "env", "..."]), max_size=4)


@given(above=PLAIN, part=st.sampled_from(ALL), below=PLAIN, data=st.data())
def test_part_is_held_in_every_folder_and_spelling(
    above: list[str], part: str, below: list[str], data: st.DataObject
) -> None:
    """A submodule has a `.git` of its own, and some disks take `.GIT` for it."""
    spelled = "".join(data.draw(st.sampled_from([char, char.upper(), char.lower()])) for char in part)
    assert is_held("/".join([*above, spelled, *below]), ALL)


@given(
    parts=st.lists(st.sampled_from(["src", "a", "docs", "git", "x.md", ".github", "hooks.md", "my.env"]), min_size=1)
)
def test_other_files_are_not_held(parts: list[str]) -> None:
    """A run that may edit is there to edit."""
    assert not is_held("/".join(parts), ALL)


@pytest.mark.parametrize("path", ["a/.g\u200cit/config", ".git\ufeff", "A\u200dGENTS.md"])
def test_character_that_a_disk_leaves_out_hides_nothing(path: str) -> None:
    """Git itself had to learn this: some disks ignore such characters in names."""
    assert is_held(path, ALL)


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/workflows/ci.yml", "src/AGENTS.md.txt", "envrc", ".environment"]
)
def test_name_that_only_begins_alike_is_free(path: str) -> None:
    """Else a run could not do its work."""
    assert not is_held(path, ALL)


@pytest.mark.parametrize(
    ("tools", "can_change", "has_undo", "is_open"),
    [
        (["read_file", "list_files", "search_files"], False, True, False),
        (["read_file", "edit_file"], True, True, False),
        (["edit_file", "edit_instructions"], True, True, True),
        (["ci/build"], True, True, False),
        (["shell:make test"], True, True, False),
        (["edit_file", "shell"], True, False, False),
    ],
)
def test_tools_decide_what_is_held(tools: list[str], *, can_change: bool, has_undo: bool, is_open: bool) -> None:
    """Instructions are let go by a word of their own; what a shell does, the person has allowed."""
    parsed = [parse_tool(text) for text in tools]
    assert (may_change(parsed), is_undone(parsed)) == (can_change, has_undo)
    assert is_held("docs/AGENTS.md", held_parts(parsed)) is not is_open
    assert is_held("sub/.git", held_parts(parsed))


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ({"head", "objects", "refs"}, True),
        ({"head", "commondir"}, True),
        ({"head", "refs"}, False),
        ({"objects", "refs", "config"}, False),
    ],
)
def test_folder_that_git_takes_for_a_repository_is_known(names: set[str], *, is_one: bool) -> None:
    """Git looks for these names, in any folder that somebody works in."""
    assert is_repository(names) is is_one
