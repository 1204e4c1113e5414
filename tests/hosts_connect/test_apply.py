"""Connecting writes into other people's files: it can be taken back to the byte, whatever happened in between."""

from __future__ import annotations

import json
import select
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from harken.errors import Conflict, Unavailable, UserError
from harken.hosts.connect.apply import DisconnectResult, FileOutcome, apply, file_outcomes, undo, verify
from harken.hosts.connect.plan import ConnectOptions, ConnectPlan, FileEdit, InstallTarget
from harken.hosts.connect.record import load, locked, records
from tests.hosts_connect.madeup import MadeUp, killed_at, place_in

HOST = MadeUp()
SETTINGS = b'{\n  // mine\n  "theme": "dark",\n}\n'
MODE = 0o640
MAX_WRITES = 80
SECONDS = 30.0


def tree(root: Path) -> dict[str, object]:
    """Everything below a folder: contents, modes, and where links lead."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (mode, "folder" if path.is_dir() else path.read_bytes())
    return found


def furnish(place: InstallTarget) -> None:
    """Give the person's home some things of their own."""
    base = place.user / ".made-up"
    (base / "state").mkdir(parents=True)
    (base / "settings.json").write_bytes(SETTINGS)
    (base / "settings.json").chmod(MODE)
    (base / "NOTES.md").write_bytes(b"mine")
    (base / "state/registry.json").write_text('[ "other" ]')


@pytest.fixture
def place(tmp_path: Path) -> InstallTarget:
    """A home with a person's own settings in it."""
    found = place_in(tmp_path)
    furnish(found)
    return found


def connect(place: InstallTarget, host: MadeUp = HOST, wake: str = "") -> None:
    """Connect as the command line does."""
    options = ConnectOptions(wake=wake)
    apply(host.plan(place, options), place, options)


@pytest.mark.parametrize("is_furnished", [True, False])
def test_disconnect_leaves_a_home_in_which_nobody_wrote_as_it_was(tmp_path: Path, *, is_furnished: bool) -> None:
    """What was there has its bytes and its mode again, what was not there is gone, folders too."""
    place = place_in(tmp_path)
    place.user.mkdir()
    if is_furnished:
        furnish(place)
    before = tree(place.user)
    connect(place)
    assert tree(place.user) != before
    assert HOST.check(place)[0].is_good
    done = undo(HOST, place)
    assert tree(place.user) == before
    assert (done.cleaned, done.notes) == ((), ())
    assert records(place.harken) == []
    assert undo(HOST, place) == DisconnectResult()
    assert tree(place.user) == before


def test_a_changed_connection_is_taken_back_to_the_beginning(place: InstallTarget) -> None:
    """Another interpreter or another wake changes our entries; the first bytes are still known."""
    before = tree(place.user)
    connect(place)
    connect(place, wake="loud")
    record = load(place.harken, HOST.name, None)
    assert record is not None
    assert (record.wake, record.python, record.is_whole) == ("loud", sys.executable, True)
    undo(HOST, place)
    assert tree(place.user) == before


def test_what_others_wrote_since_stays_and_our_entries_go(place: InstallTarget) -> None:
    """The host and the person go on writing in the same files."""
    connect(place)
    settings, base = HOST.settings(place), place.user / ".made-up"
    settings.write_bytes(settings.read_bytes().replace(b'"dark"', b'"light"'))
    (base / "state/registry.json").write_text('["other", "harken", "new"]')
    (base / "deep/er/theirs.txt").write_text("theirs")
    expected = {"settings.json": FileOutcome.CLEANED, "NOTES.md": FileOutcome.RESTORED, "ours.txt": FileOutcome.REMOVED}
    assert expected.items() <= fates_by_name(place).items()
    done = undo(HOST, place)
    assert settings.read_bytes() == SETTINGS.replace(b'"dark"', b'"light"')
    assert json.loads((base / "state/registry.json").read_text()) == ["other", "new"]
    assert (base / "deep/er/theirs.txt").read_text() == "theirs"
    assert (base / "NOTES.md").read_bytes() == b"mine"
    assert not (base / "deep/er/ours.txt").exists()
    assert done.cleaned == (settings,)


def fates_by_name(place: InstallTarget) -> dict[str, FileOutcome]:
    """What taking it back would make of each file."""
    record = load(place.harken, HOST.name, None)
    assert record is not None
    return {path.name: fate for path, fate in file_outcomes(record).items()}


def test_a_change_between_two_connects_leaves_none_of_our_entries(place: InstallTarget) -> None:
    """The bytes that were recorded last hold an entry of ours: they are not what the person had."""
    connect(place)
    settings = HOST.settings(place)
    settings.write_bytes(settings.read_bytes().replace(b'"dark"', b'"light"'))
    connect(place, wake="loud")
    undo(HOST, place)
    assert settings.read_bytes() == SETTINGS.replace(b'"dark"', b'"light"')


def test_without_a_record_our_entries_are_found_in_the_files(place: InstallTarget) -> None:
    """A Harken home can be lost; the host's files must not keep pointing to it."""
    connect(place)
    for path in place.harken.glob("connected/*.json"):
        path.unlink()
    before = {"settings.json": SETTINGS, "NOTES.md": b"mine"}
    done = undo(HOST, place)
    base = place.user / ".made-up"
    assert {name: (base / name).read_bytes() for name in before} == before
    assert json.loads((base / "state/registry.json").read_text()) == ["other"]
    assert not (base / "deep/er/ours.txt").exists()
    assert done.notes == ()


def test_a_link_is_followed_and_stays_a_link(place: InstallTarget, tmp_path: Path) -> None:
    """People keep their settings in a folder of their own and link to them."""
    settings, real = HOST.settings(place), tmp_path / "user/dotfiles/made-up.json"
    real.parent.mkdir()
    settings.rename(real)
    settings.symlink_to(real)
    before = tree(place.user)
    connect(place)
    assert settings.is_symlink()
    assert b"harken" in real.read_bytes()
    assert stat.S_IMODE(real.stat().st_mode) == MODE
    undo(HOST, place)
    assert tree(place.user) == before


def test_a_link_to_nowhere_is_one_again(place: InstallTarget) -> None:
    """The file that it was meant to have is made, and removed."""
    settings = HOST.settings(place)
    settings.unlink()
    settings.symlink_to("elsewhere/settings.json")
    before = tree(place.user)
    connect(place)
    assert HOST.check(place)[0].is_good
    undo(HOST, place)
    assert tree(place.user) == before


def test_a_project_is_apart_from_the_person(place: InstallTarget, tmp_path: Path) -> None:
    """Each is connected and disconnected for itself."""
    project = tmp_path / "project"
    project.mkdir()
    inside = place_in(tmp_path, project)
    connect(place)
    mine = tree(place.user)
    connect(inside)
    assert len(records(place.harken)) == 2
    assert HOST.check(inside)[0].is_good
    undo(HOST, inside)
    assert tree(project) == {}
    assert tree(place.user) == mine


def test_what_the_host_left_by_looking_goes_too(place: InstallTarget) -> None:
    """Verifying runs the host, which leaves logs: they are there because of us, however often it looked."""
    before = tree(place.user)
    host = MadeUp(check_leaves_log=True)
    connect(place, host)
    for _ in range(3):
        assert verify(host, place)[0].is_good
    record = load(place.harken, HOST.name, None)
    assert record is not None
    assert sum(deed.is_look for deed in record.deeds) == 1
    undo(host, place)
    assert tree(place.user) == before


def test_a_command_that_fails_takes_everything_back(place: InstallTarget) -> None:
    """Half a connection would look like a whole one."""
    before = tree(place.user)
    with pytest.raises(Unavailable, match=r"fail .* failed with code 3: no luck"):
        connect(place, MadeUp(command_fails=True))
    assert tree(place.user) == before
    assert records(place.harken) == []


def test_a_file_that_changed_after_it_was_shown_is_not_written(place: InstallTarget) -> None:
    """The person said yes to another diff."""
    plan = HOST.plan(place, ConnectOptions())
    HOST.settings(place).write_bytes(b"{}")
    before = tree(place.user)
    with pytest.raises(Conflict, match=r"settings\.json was changed meanwhile"):
        apply(plan, place, ConnectOptions())
    assert tree(place.user) == before


def test_what_is_no_file_is_refused(place: InstallTarget) -> None:
    """A folder where a file should be is not ours to remove."""
    odd = place.user / ".made-up/state"
    plan = ConnectPlan(host=HOST.name, steps=[FileEdit(path=odd, before=None, after=b"x", why="")])
    with pytest.raises(UserError, match="is not a file"):
        apply(plan, place, ConnectOptions())
    assert odd.is_dir()


def test_records_are_private_and_hold_no_secrets(place: InstallTarget) -> None:
    """They hold copies of settings, which may hold keys; an environment is not copied at all."""
    connect(place)
    for path in place.harken.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert b"s3cret" not in b"".join(path.read_bytes() for path in place.harken.rglob("*.json"))


def test_files_in_harkens_home_are_private(place: InstallTarget) -> None:
    """What a plan keeps there, such as a plugin, is nobody else's to change."""
    own = place.harken / "plugins/made-up/plugin.json"
    plan = ConnectPlan(host=HOST.name, steps=[FileEdit(path=own, before=None, after=b"{}", why="", is_ours=True)])
    apply(plan, place, ConnectOptions())
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


def test_one_connects_while_another_waits(place: InstallTarget) -> None:
    """Two at once would each take the other's half for the person's own."""
    code = "import sys; from tests.hosts_connect.test_apply import *; connect(place_in(Path(sys.argv[1])))"
    with locked(place.harken):
        other = subprocess.Popen([sys.executable, "-c", code, str(place.user.parent)])
        end = monotonic() + SECONDS
        while not has_open(other.pid, place.harken / "connected/lock"):
            assert monotonic() < end
            assert other.poll() is None
            select.select([], [], [], 0.01)
        assert not HOST.check(place)[0].is_good
    assert other.wait(timeout=SECONDS) == 0
    assert HOST.check(place)[0].is_good


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    try:
        return any(path.samefile(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # one that it closed meanwhile


def test_killed_at_any_write_it_can_be_taken_back(tmp_path: Path) -> None:
    """Power fails and people lose patience; the record is always ahead of the deed."""
    blind = 0
    for number in range(1, MAX_WRITES):
        root = tmp_path / str(number)
        place = place_in(root)
        furnish(place)
        before = tree(place.user)
        code = killed_at(number, partial(connect, place))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        undo(HOST, place)
        assert records(place.harken) == []
        after = tree(place.user)
        if ".made-up/state/log" in after:
            # Its own command ran and nobody saw what it did: it is undone by itself, and nothing is overwritten.
            assert json.loads((place.user / ".made-up/state/registry.json").read_text()) == ["other"]
            for name in (".made-up/state/log", ".made-up/state/registry.json"):
                after.pop(name)
                before.pop(name, None)
            blind += 1
        assert after == before, number
    else:
        pytest.fail("it never got to its end")
    assert number > 20
    assert blind < 8
