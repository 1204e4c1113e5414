"""Qwen Code, declared. Its marks are as version 0.24.4 was seen to set them."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="qwen-code",
    title="Qwen Code",
    aliases=("qwen",),
    order=6,
    client_names=("qwen-cli-mcp-client",),
    # Its shell has both, hooks and MCP servers the second. Not `QWEN_CODE_IDE_SERVER_PORT` and its like, which its
    # extension puts into every terminal of an editor.
    marks=HostMarks(
        variables=("QWEN_CODE", "QWEN_CODE_SESSION_ID"),
        session="QWEN_CODE_SESSION_ID",
        programs=("qwen",),
        packages=("@qwen-code/qwen-code",),
    ),
    session_variable="QWEN_CODE_SESSION_ID",
    hook_variables=(
        "QWEN_CODE_SESSION_ID",
        "QWEN_CODE_AGENT_ID",
        "QWEN_CODE_MESSAGING_SOCKET",
        "QWEN_CODE_MESSAGING_TOKEN",
    ),
    server_variables=("QWEN_CODE_SESSION_ID", "QWEN_CODE_MESSAGING_SOCKET", "QWEN_CODE_MESSAGING_TOKEN"),
    wake_variables=("QWEN_CODE_MESSAGING_SOCKET", "QWEN_CODE_MESSAGING_TOKEN"),
    one_shot_words=frozenset({"-p", "--prompt"}),
    lasting_words=frozenset({"stream-json", "--acp", "serve"}),
    reports_interrupts=True,
    cancels_answered=False,
    is_woken_by_edge=True,
    result_bytes=24_000,  # 28,000 characters are shown
    settings_paths=(".qwen",),
    instruction_paths=("QWEN.md",),
    interactive=InteractiveCommand(program="qwen", install="npm install -g @qwen-code/qwen-code", opening=("-i",)),
    acp=AcpProgram(argv=("--acp",)),
    hooks=LazyPart("harken.hosts.qwen.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.qwen.hooks:SAMPLES"),
    connector=LazyPart("harken.hosts.qwen.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.qwen.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.qwen.headless:SANDBOX"),
    transcript=LazyPart("harken.hosts.qwen.hooks:recorded"),
    waker=LazyPart("harken.hosts.qwen.wake:QwenWakers"),
    trial=LazyPart("harken.hosts.qwen.headless:TRIAL"),
)
