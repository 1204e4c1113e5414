"""Magpie, declared. Its parts are imported when they are used."""

from __future__ import annotations

from typing import Final

from harken.hosts.host import Host, HostMarks, InteractiveCommand
from harken.plugins import LazyPart

HOST: Final = Host(
    name="magpie",
    title="Magpie",
    aliases=("mag",),
    client_names=("magpie-mcp-client",),
    marks=HostMarks(
        variables=("MAGPIE_SESSION",),
        session="MAGPIE_SESSION",
        programs=("magpie",),
        packages=("magpie-agent",),
    ),
    session_variable="MAGPIE_SESSION",
    hook_variables=("MAGPIE_SESSION", "MAGPIE_INBOX"),
    wake_variables=("MAGPIE_INBOX",),
    server_variables=("MAGPIE_SESSION",),
    one_shot_words=frozenset({"--headless"}),
    result_bytes=20_000,
    settings_paths=(".magpie",),
    instruction_paths=("MAGPIE.md",),
    hook_hint="Magpie runs no hooks with --no-hooks.",
    interactive=InteractiveCommand(
        program="magpie", install="pip install magpie-agent", opening=("--prompt",), reads=("folder",)
    ),
    hooks=LazyPart("magpie_host.hooks:HOOKS"),
    samples=LazyPart("magpie_host.samples:SAMPLES"),
    connector=LazyPart("magpie_host.connect:CONNECTOR"),
    sandbox=LazyPart("magpie_host.sandbox:SANDBOX"),
    waker=LazyPart("magpie_host.wake:MagpieWaker"),
    trial=LazyPart("magpie_host.trial:TRIAL"),
)
