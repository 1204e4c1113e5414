"""What other people's packages offer is found by their own files, and a broken one stops nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harken.plugins import BrokenPlugin, PluginEntry, load_plugin, plugin_entries

GROUP = "harken.hosts"
SECONDS = 60


def install(folder: Path, package: str, entries: str, version: str = "1.0") -> None:
    """Write what pip leaves of an installed package: its entry points."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(entries, encoding="utf-8")


def test_entries_of_the_group_are_found_and_no_others(tmp_path: Path) -> None:
    """A package may offer commands and much else."""
    install(tmp_path, "one", "[console_scripts]\none = one:main\n\n[harken.hosts]\n# ours\none = one.host:HOST\n")
    install(tmp_path, "two", "[harken.hosts]\ntwo=two:HOST [extra]\n\n[pytest11]\nx = y\n")
    (tmp_path / "three-1.0.dist-info").mkdir()
    assert plugin_entries(GROUP, [str(tmp_path), str(tmp_path / "missing")]) == [
        PluginEntry("one", "one.host:HOST", "one-1.0"),
        PluginEntry("two", "two:HOST", "two-1.0"),
    ]


def test_the_first_of_two_installations_counts(tmp_path: Path) -> None:
    """Python itself imports the first: two hosts of one name would shut each other out."""
    install(tmp_path / "a", "one", "[harken.hosts]\none = one:HOST\n", "2.0")
    install(tmp_path / "b", "One", "[harken.hosts]\none = one:HOST\n", "1.0")
    assert [entry.package for entry in plugin_entries(GROUP, [str(tmp_path / "a"), str(tmp_path / "b")])] == ["one-2.0"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("harken.plugins:nothing_of_the_kind", "AttributeError"),
        ("no_such_package:HOST", "ModuleNotFoundError"),
        ("harken.plugins:PluginEntry", "it is no int"),
        ("", "ValueError"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_reason(target: str, reason: str) -> None:
    """The person has to know which package to update."""
    found = load_plugin(PluginEntry("one", target, "one-1.0"), int)
    assert isinstance(found, BrokenPlugin)
    assert str(found).startswith("one of one-1.0")
    assert reason in found.reason


BROKEN = {
    "raises": "raise ZeroDivisionError('on import')",
    "stranger": "HOST = 7",
    "thief": "from harken.hosts.host import Host\nHOST = Host(name='mine', title='Mine', aliases=('codex',))",
    "generic": "from harken.hosts.host import Host\nHOST = Host(name='generic', title='Generic')",
    "watcher": "from harken.hosts.host import Host\nHOST = Host(name='watch', title='Watcher')",
    "sound": "from harken.hosts.host import Host\nHOST = Host(name='sound', title='Sound', aliases=('snd',))",
}
LIST = """
from harken.hosts.registry import broken_hosts, host_name, hosts
print(*hosts(), host_name("snd"))
print(*(broken.entry.name for broken in broken_hosts()))
"""


def test_a_broken_host_does_not_shut_out_the_others(tmp_path: Path) -> None:
    """Other people's mistakes must not keep the daemon from starting, nor take a name that is taken."""
    for name, code in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        install(tmp_path, name, f"[harken.hosts]\n{name} = {name}:HOST\n")
    done = subprocess.run(
        [sys.executable, "-c", LIST],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        text=True,
        timeout=SECONDS,
    )
    usable, broken = done.stdout.splitlines()
    assert usable == "claude-code copilot-cli codex gemini-cli opencode qwen-code sound sound"
    assert sorted(broken.split()) == ["generic", "raises", "stranger", "thief", "watcher"]
