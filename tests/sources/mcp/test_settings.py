"""What a person writes about an MCP server: read in full, or refused with the key and what would do."""

from __future__ import annotations

import pytest

from harken.errors import UserError
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


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ({}, "sources.ci.url is missing.", "Set it to an address"),
        ({"transport": "stdio"}, "sources.ci.command is missing.", "Set it to a program"),
        ({"transport": "htp", "url": "http://x"}, "sources.ci.transport is 'htp'.", "Did you mean http?"),
        ({"transport": 5}, "sources.ci.transport is 5.", "one of http, sse, stdio"),
        ({"url": "ftp://x"}, "sources.ci.url is not an address that begins with", "Check its spelling."),
        ({"url": "http://"}, "sources.ci.url is not an address", "Check"),
        ({"url": "http://h:99999/"}, "sources.ci.url is not an address", "Check"),
        ({"url": "http://h/a b"}, "sources.ci.url is not an address", "Check"),
        ({"url": "http://h", "chanels": []}, "sources.ci.chanels is not a setting", "Did you mean channels?"),
        ({"url": "http://h", "zzz": 1}, "sources.ci.zzz is not a setting", "Known keys: attention, channels"),
        ({"url": "http://h", "command": "x"}, 'sources.ci.command has no meaning with transport = "http"', "stdio"),
        ({"command": "x", "transport": "stdio", "headers": {}}, "sources.ci.headers has no meaning", "http or sse"),
        (
            {"url": "http://h", "channels": "ci"},
            "sources.ci.channels is not a list of texts.",
            'a list, such as ["deploys"]',
        ),
        ({"url": "http://h", "channels": [1]}, "sources.ci.channels is not a list of texts.", "a list"),
        ({"url": "http://h", "headers": {"a b": "x"}}, "sources.ci.headers has a name", "Use letters"),
        ({"url": "http://h", "headers": {"Host": "x"}}, "sources.ci.headers.Host is said by Harken", "Remove it."),
        ({"url": "http://h", "headers": {"X": "s3cret\nY: z"}}, "sources.ci.headers.X has characters", "one line"),
        ({"url": "http://h", "headers": {"X": 7}}, "sources.ci.headers is not a table of texts.", "a table of texts"),
        ({"url": "http://h", "timeout": 0}, "sources.ci.timeout is 0.", "from 1 to 600"),
        ({"url": "http://h", "timeout": True}, "sources.ci.timeout is True.", "a number of seconds"),
        ({"url": "http://h", "idle": float("nan")}, "sources.ci.idle is nan.", "a number of seconds"),
        ({"command": ""}, "sources.ci.command is empty.", "a program"),
        ({"command": "x", "env": ["A"]}, "sources.ci.env is not a table of texts.", "a table of texts"),
    ],
)
def test_a_mistake_is_named_with_what_would_do(entry: dict[str, object], message: str, hint: str) -> None:
    """Somebody reads this at a terminal and should need no manual."""
    with pytest.raises(UserError) as caught:
        read_settings("ci", entry)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
    assert "s3cret" not in caught.value.message + caught.value.hint


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
