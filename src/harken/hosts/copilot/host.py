"""GitHub Copilot CLI, declared. Its marks are as version 1.0.102 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand, WaitingShell
from harken.plugins import LazyPart

HOST: Final = Host(
    name="copilot-cli",
    title="Copilot CLI",
    aliases=("copilot",),
    order=2,
    client_names=("copilot-cli", "github-copilot-cli", "copilot"),
    # Its shell has both, hooks the first, MCP servers the second.
    marks=HostMarks(
        variables=("COPILOT_CLI", "COPILOT_AGENT_SESSION_ID"),
        session="COPILOT_AGENT_SESSION_ID",
        programs=("copilot",),
        packages=("@github/copilot",),
    ),
    session_variable="COPILOT_AGENT_SESSION_ID",
    hook_variables=("COPILOT_CLI", "COPILOT_AGENT_SESSION_ID"),
    server_variables=("COPILOT_AGENT_SESSION_ID",),
    one_shot_words=frozenset({"-p", "--prompt"}),
    unmanned_flags=frozenset({"-p", "--prompt", "--acp", "--server", "--headless", "--output-format"}),
    needs_handshake=True,
    cancels_answered=False,
    asks_person=True,
    has_skills=True,
    waiter="extension",
    waiting_shell=WaitingShell(process_variable="COPILOT_LOADER_PID", home_variable="COPILOT_HOME", home="~/.copilot"),
    result_bytes=18_000,  # 20,480 bytes are shown
    settings_paths=(".copilot", ".github/copilot", ".github/extensions", ".github/hooks", ".github/mcp.json"),
    instruction_paths=(
        ".github/agents",
        ".github/chatmodes",
        ".github/copilot-instructions.md",
        ".github/instructions",
        ".github/prompts",
        ".github/skills",
    ),
    interactive=InteractiveCommand(program="copilot", install="npm install -g @github/copilot", opening=("-i",)),
    acp=AcpProgram(argv=("--acp",)),
    hooks=LazyPart("harken.hosts.copilot.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.copilot.hooks:SAMPLES"),
    approvals=LazyPart("harken.hosts.copilot.hooks:APPROVALS"),
    connector=LazyPart("harken.hosts.copilot.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.copilot.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.copilot.headless:SANDBOX"),
    transcript=LazyPart("harken.hosts.copilot.hooks:recorded"),
    trial=LazyPart("harken.hosts.copilot.headless:TRIAL"),
)
