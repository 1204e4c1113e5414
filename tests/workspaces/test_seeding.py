"""Seeding in real repositories: only what git does not track, only where it is needed, and taken back to the byte.

No daemon runs. Codex, Gemini CLI and Copilot CLI are not installed, so that their files are all there is; Claude Code
is a stand-in that keeps its settings as the real one was seen to.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from harken.hosts.connect.apply import apply
from harken.hosts.connect.plan import ConnectOptions, local_place
from harken.hosts.connect.targets import targets
from harken.hosts.registry import connector
from harken.setup.doctor import health_of
from harken.workspaces import seeding
from harken.workspaces.seeding import SeedReport, seeded_names, seeds, unseed_all
from tests.workspaces.repos import PERSON, commit, git, repository

CLAUDE = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
settings = pathlib.Path(".claude/settings.local.json")
installed = pathlib.Path(os.environ["HOME"], ".claude/plugins/installed_plugins.json")
def edit(path, change):
    path.parent.mkdir(parents=True, exist_ok=True)
    value = json.loads(path.read_text()) if path.exists() else {{}}
    change(value)
    path.write_text(json.dumps(value, indent=2))
here = os.getcwd()
if words[:3] == ["plugin", "marketplace", "add"]:
    name = "harken-" + words[3].rpartition("-")[2]
    source = {{"source": {{"source": "directory", "path": words[3]}}}}
    edit(settings, lambda v: v.setdefault("extraKnownMarketplaces", {{}}).update({{name: source}}))
elif words[:2] == ["plugin", "install"]:
    edit(settings, lambda v: v.setdefault("enabledPlugins", {{}}).update({{words[2]: True}}))
    version = json.loads(pathlib.Path(json.loads(settings.read_text())["extraKnownMarketplaces"][
        words[2].partition("@")[2]]["source"]["path"], "harken/.claude-plugin/plugin.json").read_text())["version"]
    entry = {{"scope": "local", "projectPath": here, "version": version}}
    edit(installed, lambda v: v.setdefault("plugins", {{}}).update({{words[2]: [entry]}}))
elif words[:2] == ["plugin", "uninstall"]:
    edit(settings, lambda v: v["enabledPlugins"].pop(words[2]))
    edit(installed, lambda v: v["plugins"].pop(words[2]))
elif words[:3] == ["plugin", "marketplace", "remove"]:
    edit(settings, lambda v: v["extraKnownMarketplaces"].pop(words[3]))
elif words == ["--version"]:
    print("2.1.325 (Claude Code)")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a person who has no agents and no settings."""
    (tmp_path / "user").mkdir()
    for name, value in {**PERSON, "HOME": str(tmp_path / "user"), "PATH": os.defpath}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "harken"


def seed(home: Path, task: str, folder: Path, host: str) -> SeedReport:
    """Seed as the person, who may."""
    return seeding.seed(local_place(home), task, folder, host, lambda: None)


def unseed(home: Path, task: str) -> SeedReport:
    """Take back what was seeded for a task."""
    return seeding.unseed(local_place(home), task)


def install_claude(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-in for Claude Code on the path."""
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.defpath}")


def worktree(repo: Path, name: str) -> Path:
    """Make a worktree as a task has it."""
    path = repo.with_name(f"{repo.name}.worktrees") / name
    git(repo, "worktree", "add", "-q", "-b", f"task/{name}", str(path))
    return path


def tree(*roots: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below some folders, with modes; of git only what says what it leaves alone."""
    return {
        str(path): (stat.S_IMODE(path.stat().st_mode), b"" if path.is_dir() else path.read_bytes())
        for root in roots
        for path in root.rglob("*")
        if ".git" not in path.parts or path.name == "exclude"
    }


def is_clean(folder: Path) -> bool:
    """Whether git sees nothing new in a work tree."""
    return git(folder, "status", "--porcelain", "--untracked-files=all") == ""


@pytest.mark.parametrize("host", ["codex", "gemini-cli", "copilot-cli", "opencode", "qwen-code"])
@pytest.mark.parametrize("is_worktree", [True, False])
def test_what_is_seeded_is_invisible_to_git_and_goes_to_the_byte(
    home: Path, tmp_path: Path, host: str, *, is_worktree: bool
) -> None:
    """A task must not show in anybody's commit, and nothing of it must stay."""
    repo = repository(tmp_path / "my app")
    folder = worktree(repo, "one") if is_worktree else repo
    (repo / ".git" / "info" / "exclude").write_bytes(b"*.log")
    before = tree(tmp_path / "user", repo, folder)
    seeded = seed(home, "one", folder, host)
    assert seeded.files
    ours = [Path(name) for name in seeded.files]
    assert all(path.is_file() for path in ours)
    # Of a worktree, Codex reads the MCP servers; its hooks are those of the main checkout.
    used = {root for root in (folder, repo) for path in ours if path.is_relative_to(root)}
    assert used == ({folder, repo} if host == "codex" else {folder})
    assert seeded_names(home, "one") == {str(path.relative_to(folder)) for path in ours if folder in path.parents}
    assert is_clean(folder)
    assert is_clean(repo)
    written = tree(tmp_path / "user", repo, folder)
    assert seed(home, "one", folder, host).files == ()
    assert tree(tmp_path / "user", repo, folder) == written
    assert sorted(unseed(home, "one").files) == sorted(seeded.files)
    assert tree(tmp_path / "user", repo, folder) == before
    assert seeds(home) == []
    assert unseed(home, "one").files == ()


def test_only_the_hooks_of_codex_stand_in_the_main_checkout_and_they_are_for_tasks(home: Path, tmp_path: Path) -> None:
    """Whoever starts Codex there works on something else: it must not read the person's inbox because of a task."""
    repo = repository(tmp_path / "app")
    one, two = worktree(repo, "one"), worktree(repo, "two")
    seed(home, "one", one, "codex")
    assert [path.name for path in (repo / ".codex").iterdir()] == ["hooks.json"]
    hooks = json.loads((repo / ".codex" / "hooks.json").read_text())["hooks"]
    commands = [hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]]
    assert len(commands) == 6
    assert all(command.endswith(" --in-task") for command in commands)
    assert "[mcp_servers.harken]" in (one / ".codex" / "config.toml").read_text()
    written = tree(repo / ".codex")
    seed(home, "two", two, "codex")
    unseed(home, "one")
    assert tree(repo / ".codex") == written
    # A person who connects the checkout themselves gets all of it, and no later task takes it away.
    place, codex = local_place(home, repo), connector("codex")
    apply(codex.plan(place, ConnectOptions()), place, ConnectOptions())
    written = tree(repo / ".codex")
    assert {Path(name).name for name in written} == {"config.toml", "hooks.json"}
    assert b"--in-task" not in b"".join(data for _, data in written.values())
    seed(home, "two", two, "codex")
    assert tree(repo / ".codex") == written


def test_a_host_that_is_connected_anyway_is_not_seeded(home: Path, tmp_path: Path) -> None:
    """Every hook would run twice."""
    folder = worktree(repository(tmp_path / "app"), "one")
    place, codex = local_place(home, None), connector("codex")
    apply(codex.plan(place, ConnectOptions()), place, ConnectOptions())
    before = tree(tmp_path)
    assert seed(home, "one", folder, "codex") == seed(home, "one", folder, "codex")
    assert tree(tmp_path) == before
    assert is_clean(folder)
    config = tmp_path / "user" / ".codex" / "config.toml"
    config.write_bytes(config.read_bytes().replace(sys.executable.encode(), b"/gone/python"))
    assert "Run: harken connect codex" in seed(home, "one", folder, "codex").notes[0]


def test_a_folder_that_the_person_connected_stays_connected(home: Path, tmp_path: Path) -> None:
    """What a task did not write, its end does not take away."""
    repo = repository(tmp_path / "app")
    place, codex = local_place(home, repo), connector("codex")
    apply(codex.plan(place, ConnectOptions()), place, ConnectOptions())
    before = tree(repo)
    assert seed(home, "one", repo, "codex").files == ()
    unseed(home, "one")
    assert tree(repo) == before


@pytest.mark.parametrize(
    ("host", "file"),
    [
        ("codex", ".codex/config.toml"),
        ("gemini-cli", ".gemini/settings.json"),
        ("qwen-code", ".qwen/settings.json"),
        ("opencode", ".opencode/opencode.json"),
        ("copilot-cli", ".github/copilot/settings.local.json"),
    ],
)
def test_a_tracked_file_is_never_touched(home: Path, tmp_path: Path, host: str, file: str) -> None:
    """It is the team's; the person is told what helps."""
    repo = repository(tmp_path / "app")
    commit(repo, file, "# ours\n" if file.endswith("toml") else "{}\n")
    folder = worktree(repo, "one")
    before = tree(tmp_path)
    notes = seed(home, "one", folder, host).notes
    assert all(f"{file}, or a link to it." in note for note in notes)
    assert all(note.endswith(f"harken connect {host}") for note in notes)
    assert len(notes) == 1
    assert {name: kept for name, kept in tree(tmp_path).items() if "/harken" not in name} == before


@pytest.mark.parametrize("host", ["codex", "qwen-code", "gemini-cli"])
def test_what_agents_read_in_a_repository_stays_as_it_is(home: Path, tmp_path: Path, host: str) -> None:
    """A team's AGENTS.md is not changed for a task: the host is connected all the same, and the person is told."""
    repo = repository(tmp_path / "app")
    name = "GEMINI.md" if host == "gemini-cli" else "AGENTS.md"
    commit(repo, name, "# ours\n")
    folder = worktree(repo, "one")
    before = tree(tmp_path / "user", repo, folder)
    seeded = seed(home, "one", folder, host)
    assert [note for note in seeded.notes if f"/{name}, so it stays as it is" in note] == list(seeded.notes)
    assert len(seeded.notes) == 1
    assert (folder / name).read_text() == "# ours\n"
    assert any(path.endswith((".toml", ".json")) for path in seeded.files)
    assert is_clean(folder)
    assert seed(home, "one", folder, host) == SeedReport()
    target = targets(home, [host], None, is_looking=False)[0]
    findings = [finding for _, finding in health_of(target).findings if finding.what == "connected and current"]
    assert findings
    assert all(finding.is_good for finding in findings)
    unseed(home, "one")
    assert tree(tmp_path / "user", repo, folder) == before


def test_tasks_of_two_hosts_in_one_folder_share_what_both_read(home: Path, tmp_path: Path) -> None:
    """The block stays for the one that goes on, and git does not see it at any time."""
    folder = worktree(repository(tmp_path / "app"), "both")
    before = tree(folder)
    seed(home, "one", folder, "codex")
    seed(home, "two", folder, "qwen-code")
    told = (folder / "AGENTS.md").read_bytes()
    unseed(home, "one")
    assert (folder / "AGENTS.md").read_bytes() == told
    assert is_clean(folder)
    unseed(home, "two")
    assert tree(folder) == before


def test_a_link_in_a_repository_leads_nowhere(home: Path, tmp_path: Path) -> None:
    """A repository from somewhere must not have the person's own settings written."""
    repo = repository(tmp_path / "app")
    (tmp_path / "user" / ".codex").mkdir()
    (repo / ".codex").symlink_to(tmp_path / "user" / ".codex")
    assert "or a link to it" in seed(home, "one", repo, "codex").notes[0]
    assert list((tmp_path / "user" / ".codex").iterdir()) == []


def test_what_the_person_wrote_since_is_kept_and_said(home: Path, tmp_path: Path) -> None:
    """Settings that were made while the task ran are theirs."""
    folder = worktree(repository(tmp_path / "app"), "one")
    seed(home, "one", folder, "codex")
    config = folder / ".codex" / "config.toml"
    config.write_bytes(config.read_bytes() + b'\n[tui]\ntheme = "mine"\n')
    notes = unseed(home, "one").notes
    assert any("config.toml was written since" in note for note in notes)
    assert config.read_bytes().strip() == b'[tui]\ntheme = "mine"'
    assert not (folder / ".codex" / "hooks.json").exists()


def test_a_task_that_ends_takes_nothing_from_the_others(home: Path, tmp_path: Path) -> None:
    """Gemini has one file of rules for all folders."""
    repo = repository(tmp_path / "app")
    rules = tmp_path / "user" / ".gemini" / "policies" / "harken.toml"
    before = tree(tmp_path / "user", repo)
    one, two = worktree(repo, "one"), worktree(repo, "two")
    seed(home, "one", one, "gemini-cli")
    seed(home, "two", two, "gemini-cli")
    unseed(home, "one")
    assert rules.exists()
    assert (two / ".gemini" / "settings.json").exists()
    assert is_clean(two)
    unseed(home, "two")
    assert tree(tmp_path / "user", repo) == before


def test_a_host_with_one_file_for_all_worktrees_is_connected_until_the_last_ends(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code reads the main checkout's local settings in every worktree."""
    install_claude(tmp_path, monkeypatch)
    repo = repository(tmp_path / "app")
    before = tree(tmp_path / "user", repo)
    folders = {name: worktree(repo, name) for name in ("one", "two", "three")}
    settings = repo / ".claude" / "settings.local.json"
    assert seed(home, "one", folders["one"], "claude-code").files == (str(settings),)
    assert seed(home, "two", folders["two"], "claude-code").files == ()
    assert list(json.loads(settings.read_text())["enabledPlugins"].values()) == [True]
    assert is_clean(repo)
    unseed(home, "one")
    assert settings.exists()
    assert is_clean(repo)
    assert seed(home, "three", folders["three"], "claude-code").files == ()
    unseed(home, "three")
    unseed(home, "two")
    assert tree(tmp_path / "user", repo) == before
    assert all(is_clean(folder) for folder in folders.values())


def test_everything_is_taken_back_at_once_whatever_tasks_share(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs any of it when Harken goes: no checkout for all, no file that two hosts read."""
    install_claude(tmp_path, monkeypatch)
    repo = repository(tmp_path / "app")
    folders = [worktree(repo, name) for name in ("one", "two", "three")]
    before = tree(tmp_path / "user", repo, *folders)
    hosts = ["claude-code", "codex", "gemini-cli", "copilot-cli", "opencode", "qwen-code"]
    for number, host in enumerate(hosts):
        seed(home, f"task-{number}", folders[number // 2], host)
        seed(home, f"again-{number}", folders[number % 2], host)
    done = unseed_all(local_place(home))
    assert {each.host for each, _ in done} == set(hosts)
    assert [seeded.notes for _, seeded in done if seeded.notes or seeded.kept] == []
    assert tree(tmp_path / "user", repo, *folders) == before
    assert seeds(home) == []


def test_a_seeding_that_failed_half_way_leaves_nothing(home: Path, tmp_path: Path) -> None:
    """What cannot be written is said, and the end of the task cleans up what was begun."""
    repo = repository(tmp_path / "app")
    folder = worktree(repo, "one")
    before = tree(tmp_path / "user", repo, folder)
    (folder / ".opencode").mkdir()
    (folder / ".opencode" / "plugins").write_text("a file where a folder should be")
    (note,) = seed(home, "one", folder, "opencode").notes
    assert note.startswith("opencode is not connected in ")
    (folder / ".opencode" / "plugins").unlink()
    unseed(home, "one")
    (folder / ".opencode").rmdir()
    assert tree(tmp_path / "user", repo, folder) == before
    assert seeds(home) == []


def test_a_folder_without_git_is_seeded_too(home: Path, tmp_path: Path) -> None:
    """There is no repository to keep clean, and still everything goes again."""
    folder = tmp_path / "plain"
    folder.mkdir()
    names = [Path(name).name for name in seed(home, "one", folder, "codex").files]
    assert names == ["config.toml", "hooks.json", "AGENTS.md"]
    unseed(home, "one")
    assert tree(folder) == {}


def test_a_file_for_git_that_was_not_there_goes_again(home: Path, tmp_path: Path) -> None:
    """Some people have no `info/exclude`."""
    repo = repository(tmp_path / "app")
    exclude = repo / ".git" / "info" / "exclude"
    exclude.unlink()
    seed(home, "one", repo, "codex")
    assert exclude.exists()
    assert is_clean(repo)
    unseed(home, "one")
    assert not exclude.exists()
