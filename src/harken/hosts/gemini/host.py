"""Gemini CLI, declared. Its marks are as version 0.61.0 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="gemini-cli",
    title="Gemini CLI",
    aliases=("gemini",),
    order=4,
    client_names=("gemini-cli-mcp-client",),
    # Its shell and MCP servers have the first, hooks the second. Not `GEMINI_CLI_IDE_SERVER_PORT` and its like, which
    # its extension puts into every terminal of an editor.
    marks=HostMarks(
        variables=("GEMINI_CLI", "GEMINI_SESSION_ID"),
        session="GEMINI_SESSION_ID",
        programs=("gemini",),
        packages=("@google/gemini-cli",),
    ),
    session_variable="GEMINI_SESSION_ID",
    hook_variables=("GEMINI_CLI", "GEMINI_SESSION_ID"),
    server_variables=("GEMINI_SESSION_ID",),
    one_shot_words=frozenset({"-p", "--prompt"}),
    cancels_answered=False,
    result_bytes=32_000,  # 40,000 characters are shown
    settings_paths=(".gemini",),
    instruction_paths=("GEMINI.md",),
    hook_hint="Gemini CLI runs no hooks in folders that it does not trust, nor with `hooksConfig.enabled` off.",
    interactive=InteractiveCommand(program="gemini", install="npm install -g @google/gemini-cli", opening=("-i",)),
    acp=AcpProgram(argv=("--acp",)),
    hooks=LazyPart("harken.hosts.gemini.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.gemini.hooks:SAMPLES"),
    connector=LazyPart("harken.hosts.gemini.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.gemini.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.gemini.headless:SANDBOX"),
    transcript=LazyPart("harken.hosts.gemini.hooks:recorded"),
    trial=LazyPart("harken.hosts.gemini.headless:TRIAL"),
)
