"""`harken source add webhook`: a secret is made and kept, the address is told, and it works as printed."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.rig import Json, Rig
from tests.sources.webhook import samples
from tests.sources.webhook.rig import github

WRONG, CONFLICT = 2, 4
SECONDS = 30.0


@pytest.fixture
def bare(tmp_path: Path) -> Rig:
    """Commands on a home that nobody serves."""
    return Rig(tmp_path / "home")


@pytest.fixture
def fresh(bare: Rig) -> Iterator[Rig]:
    """The same, for a test that starts a daemon."""
    yield bare
    assert bare.run("down").code == 0


def post(url: str, key: str) -> int:
    """Post a push to an address, as it was printed."""
    body = json.dumps(samples.GITHUB_PUSH).encode()
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
    try:
        headers = {"content-type": "application/json", **github(body, key.encode())}
        connection.request("POST", parts.path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_what_add_prints_is_what_the_service_needs(fresh: Rig) -> None:
    """The address and the secret work as they were printed; the secret is shown once and stands in no settings."""
    shown = fresh.run("source", "add", "webhook", "ci", "--preset", "github", "--channel", "push")
    lines = dict(line.split(": ", 1) for line in shown.out.splitlines() if line.startswith(("Address", "Secret")))
    file = fresh.home / "secrets" / "ci"
    assert (shown.code, file.read_text().strip()) == (0, lines["Secret"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    config = (fresh.home / "config.toml").read_text()
    assert 'secret = "file:secrets/ci"' in config
    assert lines["Secret"] not in config
    again = fresh.run("source", "add", "webhook", "ci", "--preset", "github", "--channel", "push")
    assert (again.code, "already" in again.out, lines["Secret"] in again.out + again.err) == (0, True, False)
    fresh.ok("up")
    assert post(lines["Address"], lines["Secret"]) == 202
    assert post(lines["Address"], "something else") == 401
    tried = fresh.run("source", "test", "ci")
    assert (tried.code, tried.out.startswith("ci  listening")) == (0, True)
    command = next(line for line in tried.out.splitlines() if line.startswith("body="))
    assert lines["Secret"] not in command
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=SECONDS, check=True)
    assert done.stdout == b'{"status":"skipped"}'
    (message,) = fresh.json("list")["messages"]
    assert (message["source"], message["channel"]) == ("ci", "push")
    fresh.ok("source", "remove", "ci")
    assert not file.exists()
    assert "sources" not in (fresh.home / "config.toml").read_text()


def test_a_secret_that_is_brought_is_only_named_or_read(bare: Rig) -> None:
    """It is never an argument that others on the machine could see, and it is not repeated."""
    bare.home.mkdir(mode=0o700)
    named = bare.json("source", "add", "webhook", "a", "--preset", "jira", "--secret", "env:A", "--secret", "file:b")
    assert named["entry"]["secrets"] == ["env:A", "file:b"]
    assert "secret" not in named
    given = "from-slack-itself"
    read = bare.run("source", "add", "webhook", "--preset", "slack", "--secret", "-", stdin=f"{given}\n")
    assert (read.code, given in read.out + read.err) == (0, False)
    assert (bare.home / "secrets" / "slack").read_text() == f"{given}\n"
    pasted = bare.run("source", "add", "webhook", "c", "--preset", "jira", "--secret", given)
    assert (pasted.code, given in pasted.out + pasted.err) == (WRONG, False)


def test_the_address_for_others_is_told_where_there_is_one(bare: Rig) -> None:
    """Behind a tunnel the service needs the tunnel's address."""
    bare.home.mkdir(mode=0o700)
    (bare.home / "config.toml").write_text('[hooks]\npublic_url = "https://hooks.example.org/team"\n')
    added = bare.json("source", "add", "webhook", "ci", "--preset", "standard")
    assert added["url"] == "https://hooks.example.org/team/hooks/ci"
    assert added["secret"].startswith("whsec_")


def test_what_cannot_be_changes_nothing(bare: Rig) -> None:
    """Neither an entry nor a secret is left behind."""
    bare.home.mkdir(mode=0o700)
    before = '[sources.taken]\nkind = "mcp"\nurl = "https://ci.example/mcp"\n'
    (bare.home / "config.toml").write_text(before)
    mistakes = {
        ("ci",): WRONG,
        ("../ci", "--preset", "github"): WRONG,
        ("ci", "--preset", "github", "--take", "text=a"): WRONG,
        ("ci", "--preset", "generic", "--take", "text=a["): WRONG,
        ("ci", "--preset", "github", "--secret", "-"): WRONG,
        ("taken", "--preset", "github"): CONFLICT,
    }
    found = {words: bare.run("source", "add", "webhook", *words).code for words in mistakes}
    assert found == mistakes
    assert (bare.home / "config.toml").read_text() == before
    assert list(bare.home.glob("secrets/*")) == []


def test_generic_parts_are_written_as_they_were_asked_for(bare: Rig) -> None:
    """What is in config.toml is what a person would write there."""
    words = ("--take", "text=job.name", "--take", "id=job.id", "--scheme", "bearer")
    added: Json = bare.json("source", "add", "webhook", "builds", "--preset", "generic", *words)
    assert added["entry"] == {
        "kind": "webhook",
        "preset": "generic",
        "secret": "file:secrets/builds",
        "text": "job.name",
        "id": "job.id",
        "scheme": "bearer",
    }
