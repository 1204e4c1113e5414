"""How programs are recognised, whom they read for, and what one of their sessions is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.hook import Hello, consumer_of, session_key
from harken.hosts.host import GENERIC
from harken.hosts.registry import host_of_client, hosts


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("claude-code", "claude-code"),
        ("Claude Code", "claude-code"),
        (" claude-code ", "claude-code"),
        ("claude-code-2", "claude-code"),
        ("copilot-cli", "copilot-cli"),
        ("github-copilot-cli", "copilot-cli"),
        ("codex-mcp-client", "codex"),
        ("gemini-cli-mcp-client", "gemini-cli"),
        ("gemini-cli-mcp-client-harken", "gemini-cli"),
        ("opencode", "opencode"),
        ("qwen-cli-mcp-client-harken", "qwen-code"),
        ("qwen-cli-mcp-client", "qwen-code"),
        ("claude-ai", "generic"),
        ("claude-codex", "generic"),
        ("opencoder", "generic"),
        ("mcp", "generic"),
        ("", "generic"),
    ],
)
def test_a_host_is_known_by_the_name_it_gives_itself(client: str, host: str) -> None:
    """Some append what they like to it; a program that merely begins alike is another one."""
    assert host_of_client(client).name == host


def test_only_hosts_that_are_pushed_to_are_kept_in_the_older_era() -> None:
    """Everyone else would lose the newer protocol for nothing."""
    assert [host.name for host in hosts().values() if host.needs_handshake] == ["claude-code", "copilot-cli"]


@pytest.mark.parametrize(
    ("client", "override", "consumer"),
    [
        ("claude-code", "", "claude-code"),
        ("qwen-cli-mcp-client-harken", "", "qwen-code"),
        ("My Editor 2.0", "", "my-editor-2.0"),
        ("", "", "mcp-client"),
        ("☃☃☃", "", "mcp-client-67185f"),
        ("watch", "", "watch-agent"),
        ("x", "rules", "rules-agent"),
        ("You", "", "you-agent"),
        ("claude-code", "reviewer", "reviewer"),
        ("claude-code", "The Reviewer!", "the-reviewer"),
    ],
)
def test_whom_a_connection_reads_for(client: str, override: str, consumer: str) -> None:
    """A host by its own name, a stranger by theirs, and whoever was told a name by that."""
    assert consumer_of(host_of_client(client), client, override) == consumer


@given(st.text(max_size=200))
def test_a_consumer_is_always_a_short_plain_name(client: str) -> None:
    """It is shown in terminals, logs and file names, and the client chose it."""
    name = consumer_of(GENERIC, client)
    assert 1 <= len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")


@pytest.mark.parametrize(
    ("client", "hello", "key"),
    [
        ("claude-code", Hello(edge="e", ppid=77, env={"CLAUDE_CODE_SESSION_ID": "s"}), "claude-code:77"),
        ("claude-code", Hello(edge="e", ppid=1, env={"CLAUDE_CODE_SESSION_ID": "s"}), "claude-code:s"),
        ("claude-code", Hello(edge="e", ppid=0, env={}), "edge:e"),
        ("copilot-cli", Hello(edge="e", ppid=77, env={"COPILOT_AGENT_SESSION_ID": "u"}), "copilot-cli:u"),
        ("copilot-cli", Hello(edge="e", ppid=77, env={}), "edge:e"),
        ("codex-mcp-client", Hello(edge="e", ppid=77, env={"CODEX_THREAD_ID": "t"}), "codex:t"),
        ("gemini-cli-mcp-client", Hello(edge="e", env={"GEMINI_SESSION_ID": "g"}), "gemini-cli:g"),
        ("qwen-cli-mcp-client-x", Hello(edge="e", env={"QWEN_CODE_SESSION_ID": "q"}), "qwen-code:q"),
        ("opencode", Hello(edge="e", env={"OPENCODE_SESSION_ID": "o"}), "opencode:o"),
        ("opencode", Hello(edge="e", env={"CLAUDE_CODE_SESSION_ID": "s"}), "edge:e"),
        ("my-editor", Hello(edge="e", ppid=77, env={"CLAUDE_CODE_SESSION_ID": "s"}), "edge:e"),
    ],
)
def test_what_a_session_is(client: str, hello: Hello, key: str) -> None:
    """What stays the same while the conversation lasts. One host started inside another sees both variables."""
    assert session_key(host_of_client(client), hello) == key


def test_a_modern_connection_has_no_log_ping() -> None:
    """Nothing may be sent there that no request asked for, and the log must not claim it."""
    for host in (*hosts().values(), GENERIC):
        assert "log ping" in host.surfaces
        assert host.modern_surfaces == ("tool", "resource")


def test_least_is_assumed_of_a_host_that_is_not_known() -> None:
    """It may cut a result as short as the one that cuts most, and what it cuts would count as seen."""
    assert GENERIC.result_bytes == min(host.result_bytes for host in hosts().values())
