"""The line that `harken source test` prints: a shell runs it as it stands, and no process shows the secret.

What a process was started with can be read by everybody on the machine. So every program that the line may use is
wrapped here by one that writes down its words, and there is no other program to be found.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from harken.sources.webhook.preset import shell_line, shell_secret
from harken.sources.webhook.settings import read_settings
from tests.sources.webhook.rig import NOW, SECRET, STANDARD_SECRET, rig

SECONDS: Final = 30.0
TOOLS: Final = ("curl", "cat", "openssl", "base64", "sed", "od", "tr", "cut")
PLACE: Final = "it's kept here"


class Heard(HTTPServer):
    """A server that keeps the last post."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hearing)
        self.headers: dict[str, str] = {}
        self.body = b""


class Hearing(BaseHTTPRequestHandler):
    """Takes what is posted."""

    server: Heard

    def do_POST(self) -> None:
        """Keep it."""
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def heard() -> Iterator[Heard]:
    """A server that is posted to."""
    with Heard() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(SECONDS)


def watched(folder: Path, secret: str) -> Path:
    """Fill a folder with programs that write down their words; return where."""
    words = folder / "words"
    kept = folder / "keyring-entry"
    kept.write_text(f"{secret}\n")
    ways = {name: f'exec {shutil.which(name)} "$@"' for name in TOOLS}
    ways |= {
        "python3": f'exec {sys.executable} "$@"',
        "date": f"echo {int(NOW.timestamp())}",
        "keyring": f"exec {shutil.which('cat')} {kept}",
    }
    (folder / "bin").mkdir()
    for name, way in ways.items():
        tool = folder / "bin" / name
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >>{words}\n{way}\n')
        tool.chmod(0o755)
    return words


@pytest.mark.parametrize(
    ("preset", "more"),
    [
        ("github", {}),
        ("github", {"secret": "env:IT"}),
        ("github", {"secret": "keyring:my service/ci"}),
        ("gitlab", {}),
        ("gitlab", {"secret": "env:IT"}),
        ("gitlab", {"secret": "keyring:my service/ci"}),
        ("slack", {}),
        ("alertmanager", {}),
        ("jira", {}),
        ("sentry", {}),
        ("standard", {}),
        ("generic", {}),
        ("generic", {"scheme": "bearer"}),
        ("generic", {"scheme": "token", "header": "X-Key", "prefix": "key "}),
        ("generic", {"scheme": "hmac-sha1", "encoding": "base64", "prefix": "sha1="}),
        ("generic", {"timestamp_header": "X-Time"}),
    ],
)
async def test_printed_line_is_taken_and_no_process_shows_the_secret(
    tmp_path: Path, heard: Heard, preset: str, more: dict[str, Any]
) -> None:
    """Everybody on a machine can list its processes, and a secret that they see lets them write to agents."""
    secret = STANDARD_SECRET if preset == "standard" else SECRET
    (tmp_path / PLACE).write_text(f"{secret}\n")
    words = watched(tmp_path, secret)
    settings = read_settings("ci", {"kind": "webhook", "preset": preset, "secret": f"file:{PLACE}", **more})
    signature = settings.preset.shell(shell_secret(settings.secrets[0], lambda path: tmp_path / path))
    line = shell_line(signature, settings.preset.sample, f"http://127.0.0.1:{heard.server_port}/hooks/ci")
    environ = {"PATH": str(tmp_path / "bin"), "IT": secret}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(["/bin/sh", "-c", line], env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    said = words.read_text()
    # The secret of Standard Webhooks is a key in base64: in hex it is the other one.
    assert ("curl" in said, secret in line + said, SECRET in line + said) == (True, False, False)
    receiver = rig(preset, **more)
    answer = await receiver.post(heard.headers, heard.body)
    assert answer.status in {200, 202}
    # What is pasted to see that it works is seen in the inbox, as what the service would say.
    assert "hello" in receiver.last.text.lower()
    assert "unknown" not in receiver.last.text
