"""Looking at files of other programs, and finding records: what is not there is nothing, what is hidden is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.hosts.connect.files import FileState, glance, look
from harken.hosts.connect.record import ConnectRecord, forget, load, save

Way = Callable[[Iterable[Path]], dict[str, FileState]]


@pytest.mark.parametrize("way", [glance, look])
def test_what_cannot_be_looked_at_is_named_with_a_hint(tmp_path: Path, way: Way) -> None:
    """Who has a broken link learns which, and the caller can go on with the rest."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError) as raised:
        way([tmp_path / "loop" / "settings.json"])
    assert str(tmp_path / "loop") in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("way", [glance, look])
def test_what_is_not_there_is_nothing(tmp_path: Path, way: Way) -> None:
    """A folder that became a file has nothing below it."""
    (tmp_path / "file").write_text("")
    assert way([tmp_path / "gone", tmp_path / "file" / "below"]) == {}


def test_a_folder_that_was_moved_is_found_by_its_old_name_when_a_link_is_there(tmp_path: Path) -> None:
    """Otherwise what was written there could not be taken back any more."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    save(home, ConnectRecord(host="codex", project=str(project)))
    found = load(home, "codex", project)
    assert found is not None
    project.rename(tmp_path / "moved")
    project.symlink_to("moved")
    assert load(home, "codex", project) == found
    forget(home, found.key)
    assert load(home, "codex", project) is None


def test_a_project_is_found_by_a_link_to_it(tmp_path: Path) -> None:
    """It is the same by whatever links it is reached."""
    home, project, link = tmp_path / "home", tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project)
    save(home, ConnectRecord(host="codex", project=str(link)))
    assert load(home, "codex", project) == load(home, "codex", link) is not None
