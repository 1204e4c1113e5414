"""The commands that start each host in a terminal; the forms are those that the hosts' own `--help` names."""

from __future__ import annotations

import pytest

from harken.hosts.registry import interactive

FORMS = {
    "claude-code": ("claude", "go"),
    "copilot-cli": ("copilot", "-i", "go"),
    "codex": ("codex", "go"),
    "gemini-cli": ("gemini", "-i", "go"),
    "opencode": ("opencode", "--prompt", "go"),
    "qwen-code": ("qwen", "-i", "go"),
}


@pytest.mark.parametrize("host", FORMS)
def test_a_first_prompt_goes_in_the_hosts_own_way(host: str) -> None:
    """Several of them take a bare argument for a question to answer and end."""
    fact = interactive(host)
    assert fact.command(fact.program, "go", ()) == FORMS[host]
    assert fact.command("/opt/x", "", ()) == ("/opt/x",)
    # Before the person's own: an option with many values would take the prompt for one of them.
    assert fact.command(fact.program, "go", ("--add-dir", "a", "b")) == (*FORMS[host], "--add-dir", "a", "b")
