"""What a person writes about an MCP server: read in full, or refused with the key and what would do."""

from __future__ import annotations

from harken.sources.mcp.settings import McpSettings, McpTransport, read_settings


def test_a_server_over_http_is_read() -> None:
    """The example of the documentation."""
    entry = {
        "kind": "mcp",
        "transport": "http",
        "url": "https://ci.example/mcp",
        "headers": {"Authorization": "Bearer s3cret"},
        "channels": [" ci-pipeline ", "deploys", ""],
        "resources": ["file:///log"],
        "timeout": 5,
        "idle": 60.5,
    }
    assert read_settings("ci", entry) == McpSettings(
        name="ci",
        transport=McpTransport.HTTP,
        url="https://ci.example/mcp",
        headers={"Authorization": "Bearer s3cret"},
        channels=frozenset({"ci-pipeline", "deploys"}),
        resources=("file:///log",),
        timeout=5.0,
        idle=60.5,
    )


def test_a_program_needs_no_transport() -> None:
    """Whoever names a command means stdio."""
    entry = {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "cwd": "/srv"}
    assert read_settings("x", entry) == McpSettings(
        name="x", transport=McpTransport.STDIO, command="npx", args=("-y", "x"), env={"A": "b"}, cwd="/srv"
    )


def test_no_secret_is_shown() -> None:
    """Settings end up in logs and health by accident; secrets must not."""
    settings = read_settings(
        "ci",
        {
            "url": "https://ann:pa%73sword@h.example:8443/mcp?key=querysecret",
            "headers": {"Authorization": "Bearer tokensecret", "X-Key": "headersecret"},
        },
    )
    secrets = ["password", "pa%73sword", "querysecret", "tokensecret", "headersecret"]
    shown = [repr(settings), settings.address, settings.scrub(f"it said: {' '.join(secrets)} and more")]
    assert not [secret for secret in secrets for text in shown if secret in text]
    assert settings.address == "https://h.example:8443"
    program = read_settings("x", {"command": "/opt/bin/server", "args": ["--key=argsecret"], "env": {"K": "envsecret"}})
    shown = [repr(program), program.address, program.scrub("K=envsecret")]
    assert not [secret for secret in ("argsecret", "envsecret") for text in shown if secret in text]
    assert program.address == "server"
