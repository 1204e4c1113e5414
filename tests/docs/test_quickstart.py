"""The quickstart really works: its commands run in their order, with a real agent where it says "tell the agent"."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing import EdgeClient
from tests.docs.pages import DOCS, ROOT, commands, fences
from tests.loss.rig import until

COMMAND_SECONDS = 60


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path, whose daemon is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        path = Path(folder) / "home"
        yield path
        run(path, "down")


def run(home: Path, *arguments: str) -> str:
    """Run a command as a reader would; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "harken", *arguments],
        env={**os.environ, "HARKEN_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def section(number: int) -> list[list[str]]:
    """Return the commands of a numbered section of the quickstart that Harken itself runs."""
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    (part,) = re.findall(rf"^## {number}\. .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("harken ")]
    return [arguments for line in lines for arguments in commands(line)]


def test_the_quickstart_does_what_it_says(home: Path) -> None:
    """It is the first thing a stranger tries; when it fails, there is no second."""
    (demo,) = section(1)
    run(home, *demo)
    send, read = section(2)
    sent = run(home, *send)
    assert re.fullmatch(r"m-\w{10}  inbox #1  waits for the next session: none is connected now\n", sent)
    assert "the build is red" in run(home, *read)
    # Connecting needs the host itself: the tests of the hosts do that, with every one of them.
    assert section(3) == [["connect", "claude-code"], ["doctor", "--live", "claude-code"]]
    given = json.loads(run(home, "mcp", "--print-command", "--json"))
    send, read, wait = section(4)
    with EdgeClient([given["command"], *given["args"]], name="some-agent") as agent:
        # That it is ready, a client says without waiting for an answer.
        until(lambda: "some-agent" in run(home, "status"), "the agent is shown")
        assert "is shown to some-agent" in run(home, *send)
        _, message = agent.tool("inbox_pull")["messages"]
        assert message["content_text_sanitized"] == "please also update the changelog"
        assert re.search(r"some-agent +offered", run(home, *read))
        agent.tool("reply", message_id=message["id"], body="on it")
        assert re.search(r"some-agent +answered", run(home, *read))
        assert "on it" in run(home, *wait)


def test_the_program_of_the_http_page_runs(home: Path) -> None:
    """It is copied as it stands."""
    run(home, "up")
    (program,) = fences(DOCS / "howto" / "use-the-http-api.md", "python")
    environment = {**os.environ, "HARKEN_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=COMMAND_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "ci-bot the build is red" in done.stdout.decode()
    assert json.loads(run(home, "pull", "--consumer", "my-program", "--json"))["messages"] == []


def test_the_make_targets_that_pages_name_exist() -> None:
    """`make run` is the first line of everything."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", DOCS / "quickstart.md"):
        for target in re.findall(r"^make (\w+)", "\n".join(fences(page, "sh")), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
