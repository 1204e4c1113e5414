"""Connecting by URL: every host's own entry for an MCP server elsewhere, without the token, and out again to the byte.

None of the hosts is installed here. Claude Code, whose list only its own command changes, is in tests/hosts.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from harken.errors import UserError
from harken.hosts.connect.apply import apply, undo
from harken.hosts.connect.plan import ConnectOptions, FileEdit, InstallTarget, RemoteInbox
from harken.hosts.connect.record import load
from harken.hosts.connect.remote import by_url, remote_inbox
from harken.hosts.registry import connector, host_names, hosts
from tests.cli.test_connect import tree
from tests.hosts_connect.madeup import place_in

Json: TypeAlias = Any
URL: Final = "https://harken.example.org:8443/mcp"
SECRET: Final = "harken_" + 43 * "x"
INBOX: Final = RemoteInbox(url=URL)
FILE: Final = "/my/token"
IN_FILE: Final = replace(INBOX, token_file=FILE)
BEARER: Final = "Bearer ${HARKEN_TOKEN}"
# What stands in each host's settings: seen to work with the version in tests/hosts/package.json.
ENTRIES: Final[Mapping[str, tuple[str, tuple[str, ...], Json]]] = {
    "codex": (
        ".codex/config.toml",
        ("mcp_servers", "harken"),
        {
            "url": URL,
            "bearer_token_env_var": "HARKEN_TOKEN",
            "tool_timeout_sec": 90,
            "omit_tools_from": ["deferred"],
        },
    ),
    "copilot-cli": (
        ".copilot/mcp-config.json",
        ("mcpServers", "harken"),
        {"type": "http", "url": URL, "headers": {"Authorization": BEARER}, "tools": ["*"]},
    ),
    "gemini-cli": (
        ".gemini/settings.json",
        ("mcpServers", "harken"),
        {"httpUrl": URL, "headers": {"Authorization": BEARER}, "timeout": 90_000},
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        ("mcp", "harken"),
        {
            "type": "remote",
            "url": URL,
            "headers": {"Authorization": "Bearer {env:HARKEN_TOKEN}"},
            "oauth": False,
            "enabled": True,
            "timeout": 70_000,
        },
    ),
    "qwen-code": (
        ".qwen/settings.json",
        ("mcpServers", "harken"),
        {"httpUrl": URL, "headers": {"Authorization": BEARER}, "timeout": 90_000},
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> InstallTarget:
    """A person's home with settings of their own, and a token in the environment."""
    here = place_in(tmp_path)
    for file, _keys, _entry in ENTRIES.values():
        path = here.user / file
        path.parent.mkdir(parents=True)
        path.write_text("# mine\n[a]\nb = 1\n" if path.suffix == ".toml" else '{\n\t"mine": 1\n}')
    return replace(here, environ={**here.environ, "HARKEN_TOKEN": SECRET})


@pytest.mark.parametrize("host", ENTRIES)
def test_entry_names_the_token_and_is_taken_out_to_the_byte(place: InstallTarget, host: str) -> None:
    """One file, one entry; the secret is in no file of anyone's, not in the record either."""
    file, keys, wanted = ENTRIES[host]
    before = tree(place.user)
    found = by_url(connector(host), INBOX)
    plan = found.plan(place, ConnectOptions())
    assert [step.path for step in plan.steps if isinstance(step, FileEdit)] == [place.user / file]
    assert any("nothing wakes it" in note for note in plan.notes)
    apply(plan, place, ConnectOptions(remote=INBOX))
    assert _at(place.user / file, keys) == wanted
    assert not [name for name, (_mode, data) in tree(place.user.parent).items() if SECRET.encode() in data]
    assert found.plan(place, ConnectOptions()).steps == ()
    record = load(place.harken, host, None)
    assert record is not None
    assert record.remote == INBOX
    undo(by_url(connector(host), record.remote), place)
    assert tree(place.user) == before


@pytest.mark.parametrize("host", ENTRIES)
def test_what_was_added_to_the_entry_stays_and_goes_with_it(place: InstallTarget, host: str) -> None:
    """A host notes there what a person decided about a tool; without the entry nothing of it is left."""
    file, keys, wanted = ENTRIES[host]
    found = by_url(connector(host), INBOX)
    apply(found.plan(place, ConnectOptions()), place, ConnectOptions(remote=INBOX))
    path = place.user / file
    if path.suffix == ".toml":
        path.write_text(path.read_text() + '\n[mcp_servers.harken.tools.reply]\napproval_mode = "approve"\n')
    else:
        path.write_text(path.read_text().replace('"headers"', '"more": 1, "headers"'))
    other = by_url(connector(host), replace(INBOX, url="https://elsewhere.example.org/mcp"))
    apply(other.plan(place, ConnectOptions()), place, ConnectOptions(remote=INBOX))
    entry = _at(path, keys)
    assert set(entry) - set(wanted) == {"tools" if path.suffix == ".toml" else "more"}
    assert "https://elsewhere.example.org/mcp" in entry.values()
    undo(found, place)
    assert _at(path, keys[:1]) in ({}, None)
    assert b"mine" in path.read_bytes()


def test_every_host_has_a_way(place: InstallTarget) -> None:
    """One that comes without says what to do instead."""
    assert {name for name in host_names() if hosts()[name].remote} == {*ENTRIES, "claude-code"}
    for host in ("codex", "gemini-cli", "qwen-code", "copilot-cli"):
        with pytest.raises(UserError, match="environment variable only") as refused:
            by_url(connector(host), IN_FILE).plan(place, ConnectOptions())
        assert refused.value.hint.endswith(f"harken mcp --url {URL} --token-file {FILE}")


def test_opencode_reads_a_file(place: InstallTarget) -> None:
    """Its own way to write that."""
    found = by_url(connector("opencode"), IN_FILE)
    [step] = found.plan(place, ConnectOptions()).steps
    assert isinstance(step, FileEdit)
    assert b'"Bearer {file:/my/token}"' in (step.after or b"")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://h.example.org", "https://h.example.org/mcp"),
        ("https://h.example.org:8443/", "https://h.example.org:8443/mcp"),
        ("https://h.example.org/harken/mcp", "https://h.example.org/harken/mcp"),
        ("http://localhost:8080", "http://localhost:8080/mcp"),
    ],
)
def test_address_without_a_path_means_ours(given: str, wanted: str) -> None:
    """People copy the public address, which has none."""
    assert remote_inbox(given, "HARKEN_TOKEN", "").url == wanted


@pytest.mark.parametrize(
    "url",
    [
        "http://harken.example.org/mcp",
        "harken.example.org",
        "https://",
        "https://[",
        "https://me:secret@h.example.org/mcp",
        f"https://h.example.org/mcp?token={SECRET}",
        f"https://h.example.org/{SECRET}",
        "https://h.example.org/mcp#x",
    ],
)
def test_address_that_would_tell_the_token_is_refused(url: str) -> None:
    """A token goes to another machine by TLS only, and no address is a place for one."""
    with pytest.raises(UserError) as refused:
        remote_inbox(url, "HARKEN_TOKEN", "")
    assert SECRET not in f"{refused.value.message}{refused.value.hint}"


def test_token_itself_is_not_taken_for_a_name(tmp_path: Path) -> None:
    """It would end in settings; and a file is refused while others can read it."""
    with pytest.raises(UserError, match="not the name") as refused:
        remote_inbox(URL, SECRET, "")
    assert SECRET not in refused.value.hint
    file = tmp_path / "token"
    with pytest.raises(UserError, match="cannot be read"):
        remote_inbox(URL, "HARKEN_TOKEN", str(file))
    file.write_text(SECRET)
    file.chmod(0o640)
    with pytest.raises(UserError, match="Others on this machine"):
        remote_inbox(URL, "HARKEN_TOKEN", str(file))
    file.chmod(0o600)
    assert remote_inbox(URL, "HARKEN_TOKEN", str(file)).token_file == str(file)


def _at(file: Path, keys: tuple[str, ...]) -> Json:
    value: Json = tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())
    for key in keys:
        value = value.get(key, {})
    return value
