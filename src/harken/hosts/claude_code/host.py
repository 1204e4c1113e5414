"""Claude Code, declared. Its marks are as version 2.1.325 was seen to set them for its shell, hooks and MCP servers."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="claude-code",
    title="Claude Code",
    aliases=("claude",),
    order=1,
    client_names=("claude-code", "claude code"),
    # Not `CLAUDE_CODE_ENTRYPOINT`, which programs set that start it, nor `CLAUDE_CODE_SSE_PORT`, which its extension
    # puts into every terminal of an editor, nor `CLAUDE_PROJECT_DIR`, which other hosts set too. MCP servers get the
    # first two.
    marks=HostMarks(
        variables=("CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PID"),
        session="CLAUDE_CODE_SESSION_ID",
        process="CLAUDE_PID",
        programs=("claude",),
        packages=("@anthropic-ai/claude-code",),
    ),
    session_variable="CLAUDE_CODE_SESSION_ID",
    hook_variables=("CLAUDE_PID", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT"),
    server_variables=(
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_PROJECT_DIR",
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_PID",
    ),
    keys_by_process=True,
    one_shot_words=frozenset({"-p", "--print"}),
    lasting_words=frozenset({"stream-json"}),  # of --input-format: prompts may follow
    unmanned_flags=frozenset({"-p", "--print", "--input-format", "--output-format"}),
    needs_handshake=True,
    cancels_answered=False,
    asks_person=True,
    has_skills=True,
    watches_bell=True,
    is_woken_by_edge=True,
    result_bytes=24_000,  # 50,000 characters, 30,000 bytes of a command, and 25,000 tokens are shown
    settings_paths=(".claude", ".mcp.json"),
    instruction_paths=("CLAUDE.local.md", "CLAUDE.md"),
    hook_hint="Look whether `disableAllHooks` is set, in your settings or by your organisation, and whether the "
    "plugin is enabled: claude plugin list",
    interactive=InteractiveCommand(
        program="claude", install="npm install -g @anthropic-ai/claude-code", reads=("main",)
    ),
    acp=AcpProgram(argv=(), program="claude-agent-acp", install="npm install -g @agentclientprotocol/claude-agent-acp"),
    hooks=LazyPart("harken.hosts.claude_code.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.claude_code.hooks:SAMPLES"),
    approvals=LazyPart("harken.hosts.claude_code.hooks:APPROVALS"),
    connector=LazyPart("harken.hosts.claude_code.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.claude_code.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.claude_code.headless:SANDBOX"),
    transcript=LazyPart("harken.hosts.claude_code.hooks:recorded"),
    channel=LazyPart("harken.hosts.claude_code.plugin:CHANNEL"),
    trial=LazyPart("harken.hosts.claude_code.headless:TRIAL"),
)
