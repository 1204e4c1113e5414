"""Codex, declared. Its marks are as version 0.166.0 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="codex",
    title="Codex",
    order=3,
    client_names=("codex-mcp-client",),
    # For its shell only: hooks and MCP servers have none, and are known by their process. Not `CODEX_MANAGED_BY_NPM`,
    # which the command that starts it sets, nor `CODEX_CI` and `CODEX_HOME`, which people may set.
    marks=HostMarks(
        variables=("CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID"),
        session="CODEX_THREAD_ID",
        programs=("codex",),
        packages=("@openai/codex",),
    ),
    session_variable="CODEX_THREAD_ID",
    hook_variables=("CODEX_HOME", "CODEX_THREAD_ID"),
    server_variables=("CODEX_THREAD_ID",),
    wake_variables=("CODEX_HOME",),
    has_many=True,
    one_shot_words=frozenset({"exec", "e", "review"}),
    lasting_words=frozenset({"app-server"}),
    reports_interrupts=True,
    cancels_answered=False,
    result_bytes=9_500,  # to a model that it does not know, 12,000 bytes are shown, and 10,000 of a command
    settings_paths=(".codex",),
    instruction_paths=("AGENTS.override.md",),
    hook_hint="Codex runs a hook only once it is trusted: `harken connect codex` notes your trust, or choose Trust "
    "when Codex says that hooks need review.",
    # Its MCP servers are the worktree's own, its hooks those of the main checkout.
    interactive=InteractiveCommand(program="codex", install="npm install -g @openai/codex", reads=("folder", "main")),
    acp=AcpProgram(argv=(), program="codex-acp", install="npm install -g @agentclientprotocol/codex-acp"),
    hooks=LazyPart("harken.hosts.codex.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.codex.hooks:SAMPLES"),
    listener=LazyPart("harken.hosts.codex.approvals:CodexListener"),
    connector=LazyPart("harken.hosts.codex.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.codex.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.codex.headless:SANDBOX"),
    waker=LazyPart("harken.hosts.codex.wake:CodexWaker"),
    trial=LazyPart("harken.hosts.codex.headless:TRIAL"),
)
