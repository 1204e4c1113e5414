"""opencode, declared. Its marks are as version 1.18.33 was seen to set them for everything that it starts."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import AcpProgram, Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="opencode",
    title="opencode",
    order=5,
    client_names=("opencode",),
    # Not `AGENT`, which may mean anything, nor `OPENCODE_CONFIG` and its like, which people set.
    marks=HostMarks(
        variables=("OPENCODE", "OPENCODE_PID"),
        process="OPENCODE_PID",
        programs=("opencode",),
        packages=("opencode-ai",),
    ),
    session_variable="OPENCODE_SESSION_ID",
    hook_variables=("OPENCODE_PID",),
    server_variables=("OPENCODE_SESSION_ID", "OPENCODE_PID"),
    has_many=True,
    shares_connection=True,
    one_shot_words=frozenset({"run"}),
    reports_interrupts=True,
    waiter="plugin",
    result_bytes=30_000,  # 51,200 bytes are shown, but 2,000 lines of a command
    settings_paths=(".opencode", "opencode.json", "opencode.jsonc"),
    interactive=InteractiveCommand(program="opencode", install="npm install -g opencode-ai", opening=("--prompt",)),
    acp=AcpProgram(argv=("acp",)),
    hooks=LazyPart("harken.hosts.opencode.hooks:HOOKS"),
    samples=LazyPart("harken.hosts.opencode.hooks:SAMPLES"),
    approvals=LazyPart("harken.hosts.opencode.hooks:APPROVALS"),
    connector=LazyPart("harken.hosts.opencode.connect:CONNECTOR"),
    remote=LazyPart("harken.hosts.opencode.connect:REMOTE"),
    sandbox=LazyPart("harken.hosts.opencode.headless:SANDBOX"),
    trial=LazyPart("harken.hosts.opencode.headless:TRIAL"),
)
