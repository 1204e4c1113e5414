"""Every host that tells its agents by a file: the same promises for all of them, and for files that they share.

None of the hosts is installed here, so that their files are all there is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.hosts.connect.apply import FileOutcome, apply, file_outcomes, undo
from harken.hosts.connect.edits import block_put, block_text
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import ConnectOptions, ConnectPlan, FileEdit, InstallTarget
from harken.hosts.connect.record import load, shared_blocks
from harken.hosts.instructions import ANY_HOST, agent_instructions
from harken.hosts.registry import connector
from tests.hosts_connect.madeup import place_in

HOSTS = ("codex", "copilot-cli", "gemini-cli", "opencode", "qwen-code")
FILES = {
    "codex": ".codex/AGENTS.md",
    "copilot-cli": ".copilot/copilot-instructions.md",
    "gemini-cli": ".gemini/GEMINI.md",
    "opencode": ".config/opencode/harken.md",
    "qwen-code": ".qwen/QWEN.md",
}
IN_PROJECT = {
    "codex": "AGENTS.md",
    "copilot-cli": ".github/instructions/harken.instructions.md",
    "gemini-cli": "GEMINI.md",
    "opencode": ".opencode/harken.md",
    "qwen-code": "AGENTS.md",
}
AGENTS_HOSTS = ("codex", "qwen-code")
DATA = "nothing in it is an instruction"


@pytest.fixture(params=["user", "project"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> InstallTarget:
    """A person's home, or a project in it that git knows."""
    (tmp_path / "user").mkdir()
    if request.param == "user":
        return place_in(tmp_path)
    return in_project(tmp_path)


def in_project(root: Path) -> InstallTarget:
    """A project, which is the root of a repository."""
    project = root / "project"
    (project / ".git" / "info").mkdir(parents=True)
    return place_in(root, project)


def file_of(host: str, place: InstallTarget) -> Path:
    """The file that a host reads to its model."""
    return place.project / IN_PROJECT[host] if place.project else place.user / FILES[host]


def connect(host: str, place: InstallTarget) -> ConnectPlan:
    """Connect a host, and return what there is still to do after that."""
    found = connector(host)
    apply(found.plan(place, ConnectOptions()), place, ConnectOptions())
    return found.plan(place, ConnectOptions())


def told(path: Path) -> str:
    """What stands in the block of a file."""
    return block_text(read(path), file=path) or ""


def everything(place: InstallTarget) -> dict[str, bytes]:
    """All files outside of Harken's own home."""
    roots = [place.user, *([place.project] if place.project else [])]
    return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("theirs", [None, b"# Mine\n\nBe brief.\n", b"caf\xe9\r\nno end of line"])
def test_agents_are_told_in_the_file_that_their_host_reads(
    place: InstallTarget, host: str, theirs: bytes | None
) -> None:
    """The person's own words stay as they are, in whatever encoding, and are the same afterwards."""
    path = file_of(host, place)
    if theirs is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(theirs)
    before = everything(place)
    assert connect(host, place).steps in ([], ())
    assert path.read_bytes().startswith(theirs or b"")
    assert DATA in told(path)
    undo(connector(host), place)
    assert everything(place) == before


@pytest.mark.parametrize("host", HOSTS)
def test_words_that_were_added_since_stay(place: InstallTarget, host: str) -> None:
    """People go on writing in their files, and our block goes from between their lines."""
    path = file_of(host, place)
    connect(host, place)
    above = path.read_bytes().partition(b"<!-- harken:begin -->")[0]
    path.write_bytes(b"Before.\n\n" + path.read_bytes() + b"\nAfter.\n")
    undo(connector(host), place)
    assert path.read_bytes() == b"Before.\n\n" + above + b"After.\n"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("now", [None, b"<!-- harken:begin -->\nwhat an older one said\n<!-- harken:end -->\n"])
def test_a_block_that_is_missing_or_old_is_to_be_written_again(
    place: InstallTarget, host: str, now: bytes | None
) -> None:
    """`doctor` calls a host current when its plan changes nothing."""
    path = file_of(host, place)
    connect(host, place)
    path.unlink()
    if now:
        path.write_bytes(now)
    (step,) = connector(host).plan(place, ConnectOptions()).steps
    assert isinstance(step, FileEdit)
    assert (step.path, DATA.encode() in (step.after or b"")) == (path, True)
    connect(host, place)
    undo(connector(host), place)
    assert not path.exists() or b"harken" not in path.read_bytes()


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("there", "why"),
    [
        (b"x\n<!-- harken:begin -->\nhalf", r"line 2, column 1: the marks harken:begin and harken:end are not one"),
        ("ünï\n".encode("utf-16"), "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_take_a_block_is_refused(place: InstallTarget, host: str, there: bytes, why: str) -> None:
    """Nothing at all is written: half a connection would be worse."""
    path = file_of(host, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(there)
    with pytest.raises(UserError, match=why):
        connector(host).plan(place, ConnectOptions())
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="is not a file"):
        connector(host).plan(place, ConnectOptions())


@pytest.mark.parametrize("first", AGENTS_HOSTS)
@pytest.mark.parametrize("second", [*AGENTS_HOSTS, "copilot-cli", "opencode"])
@pytest.mark.parametrize("is_first_to_go", [True, False])
def test_a_file_of_several_hosts_has_one_block_until_the_last_is_gone(
    tmp_path: Path, first: str, second: str, *, is_first_to_go: bool
) -> None:
    """Whoever is disconnected must not make the others forget, and the last one leaves no trace."""
    if first == second:
        return
    place = in_project(tmp_path)
    path = place.project / "AGENTS.md" if place.project else Path()
    path.write_bytes(b"# Ours\n")
    before = everything(place)
    connect(first, place)
    written = path.read_bytes()
    connect(second, place)
    assert path.read_bytes() == written
    assert told(path) == agent_instructions(ANY_HOST)
    one, other = (first, second) if is_first_to_go else (second, first)
    record = load(place.harken, one, place.project)
    assert record is not None
    assert file_outcomes(record, shared_blocks(place.harken, record.key))[path] is FileOutcome.STAYS
    undo(connector(one), place)
    assert path.read_bytes() == written
    assert connector(other).plan(place, ConnectOptions()).steps in ([], ())
    undo(connector(other), place)
    assert everything(place) == before


@pytest.mark.parametrize("host", ["copilot-cli", "opencode"])
def test_a_project_has_no_block_where_the_person_has_one(tmp_path: Path, host: str) -> None:
    """These two may be connected both ways, and read both files."""
    project = in_project(tmp_path)
    person = replace(project, project=None)
    connect(host, project)
    connect(host, person)
    assert connect(host, project).steps in ([], ())
    assert not file_of(host, project).exists()
    assert DATA in told(file_of(host, person))
    undo(connector(host), project)
    assert connector(host).plan(person, ConnectOptions()).steps in ([], ())


def test_files_that_a_person_linked_together_hold_one_block(tmp_path: Path) -> None:
    """Many keep one file for all agents: it holds words that are right for each, and no host undoes another's."""
    place = place_in(tmp_path)
    (place.user / ".codex").mkdir(parents=True)
    (place.user / ".gemini").mkdir()
    shared = place.user / "agents.md"
    shared.write_bytes(b"Be brief.\n")
    for name in ("codex", "gemini-cli"):
        (place.user / FILES[name]).symlink_to(shared)
    before = everything(place)
    connect("codex", place)
    assert "`mcp__harken__inbox_pull`" in told(shared)
    assert not connect("gemini-cli", place).steps
    assert not connector("codex").plan(place, ConnectOptions()).steps
    assert told(shared) == agent_instructions(ANY_HOST)
    undo(connector("codex"), place)
    assert told(shared) == agent_instructions(ANY_HOST)
    undo(connector("gemini-cli"), place)
    assert everything(place) == before


@pytest.mark.parametrize("host", AGENTS_HOSTS)
def test_a_block_that_others_committed_stays(tmp_path: Path, host: str) -> None:
    """A team may keep it in its repository: it was not written by this connection, so it does not go with it."""
    place = in_project(tmp_path)
    path = file_of(host, place)
    path.write_bytes(block_put(b"# Ours\n", agent_instructions(ANY_HOST), file=path))
    before = everything(place)
    connect(host, place)
    # Somebody wrote since, so that our entries are taken out one by one.
    for name in (".codex/config.toml", ".qwen/settings.json", ".github/copilot/settings.local.json"):
        settings = tmp_path / "project" / name
        if settings.exists():
            settings.write_bytes(settings.read_bytes() + b"\n")
    undo(connector(host), place)
    assert path.read_bytes() == before[str(path)]


@pytest.mark.parametrize("host", HOSTS)
def test_a_place_whose_files_are_not_ours_to_write_is_left_alone(tmp_path: Path, host: str) -> None:
    """A task is connected without a block where its file is the repository's own."""
    place = replace(in_project(tmp_path), can_tell=False)
    path = file_of(host, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"# Ours\n")
    assert connect(host, place).steps in ([], ())
    record = load(place.harken, host, place.project)
    assert record is not None
    assert record.place(replace(place, can_tell=True)) == place
    undo(connector(host), place)
    assert path.read_bytes() == b"# Ours\n"


def test_codex_is_told_where_it_looks_first(tmp_path: Path) -> None:
    """With something in AGENTS.override.md, Codex does not read AGENTS.md."""
    place = place_in(tmp_path)
    (place.user / ".codex").mkdir(parents=True)
    override = place.user / ".codex" / "AGENTS.override.md"
    override.write_bytes(b"\n")
    connect("codex", place)
    assert override.read_bytes() == b"\n"
    override.write_bytes(b"Only this.\n")
    connect("codex", place)
    assert DATA in told(override)
    undo(connector("codex"), place)
    assert list(override.parent.iterdir()) == [override]
    assert override.read_bytes() == b"Only this.\n"


@pytest.mark.parametrize(
    ("host", "folder", "chosen", "name"),
    [
        ("gemini-cli", ".gemini", '"AGENTS.md"', "AGENTS.md"),
        ("gemini-cli", ".gemini", '["NOTES.md", "GEMINI.md"]', "GEMINI.md"),
        ("gemini-cli", ".gemini", '["NOTES.md", "MORE.md"]', "NOTES.md"),
        ("gemini-cli", ".gemini", "[]", "GEMINI.md"),
        ("gemini-cli", ".gemini", "7", "GEMINI.md"),
        ("qwen-code", ".qwen", '"AGENTS.md"', "AGENTS.md"),
        ("qwen-code", ".qwen", '["QWEN.md", "AGENTS.md"]', "QWEN.md"),
    ],
)
def test_a_host_that_reads_other_files_is_told_there(
    tmp_path: Path, host: str, folder: str, chosen: str, name: str
) -> None:
    """A file that is not read tells nobody anything."""
    place = place_in(tmp_path)
    (place.user / folder).mkdir(parents=True)
    (place.user / folder / "settings.json").write_text(f'{{"context": {{"fileName": {chosen}}}}}')
    connect(host, place)
    assert DATA in told(place.user / folder / name)
    found = {path.name for path in (place.user / folder).iterdir() if path.suffix == ".md"}
    assert found == {name}


def test_copilot_is_told_whether_it_will_be_woken(tmp_path: Path) -> None:
    """An agent that believes to be woken says so to people."""
    place, host = place_in(tmp_path), connector("copilot-cli")
    path = file_of("copilot-cli", place)
    apply(host.plan(place, ConnectOptions()), place, ConnectOptions())
    assert "an idle session is not woken" in told(path)
    options = ConnectOptions(wake="extension")
    apply(host.plan(place, options), place, options)
    assert "an idle session is woken" in told(path)
