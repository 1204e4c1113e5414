"""Memory that somebody has bounded with `ulimit -v`: it runs out as an error, and not as a crash."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harken.memory import MIN_BYTES, refuse_too_little
from harken.testing import DaemonProcess
from harken.testing.daemon import CallFailed
from tests.cli.rig import Rig

SECONDS = 60.0
BOUND = 300_000  # KB; without bounds of our own the daemon crashed with twice as much
MEMORY = "There is not enough memory for this."
ROUNDS, CLIENTS, LONG = 15, 6, "a word " * 9_000

_ENCODE = """
import resource
from harken.memory import json_bytes
value = ["x" * 60_000] * 400
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20),) * 2)
try:
    json_bytes(value)
except MemoryError:
    print("an error")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the address space of a process")
def test_json_that_does_not_fit_into_memory_is_an_error() -> None:
    """The library that makes it would go on with a buffer that is not there, and end the daemon."""
    done = subprocess.run([sys.executable, "-c", _ENCODE], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "an error\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the address space of a process")
def test_a_daemon_with_little_memory_refuses_what_does_not_fit_and_goes_on(tmp_path: Path) -> None:
    """Whoever bounds a program wants it to stay within the bound, and not to lose it."""
    home = tmp_path / "home"
    daemon = DaemonProcess(home, _bounded(home, BOUND)).start()
    failed: list[str] = []

    def client() -> None:
        with daemon.caller() as caller:
            for _ in range(ROUNDS):
                for verb, more in (("send", {"text": LONG}), ("list", {"limit": 50}), ("search", {"text": "word"})):
                    try:
                        caller.call(verb, **more)
                    except CallFailed as exc:
                        failed.append(str(exc))

    try:
        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert all(MEMORY in each for each in failed), failed
        assert len(daemon.call("list", limit=1)["messages"]) == 1
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        assert int(status.partition("VmPeak:")[2].split()[0]) <= BOUND
        assert daemon.stop() == 0
    finally:
        daemon.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the address space of a process")
def test_a_daemon_with_too_little_memory_says_so_in_one_sentence(tmp_path: Path) -> None:
    """It could start, and would fail at anything that comes."""
    home = tmp_path / "home"
    done = subprocess.run(_bounded(home, 150_000), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "harken: Harken may use 146 MB of memory, and needs 256 MB.\n  Raise the limit: ulimit -v unlimited\n",
    )
    prefix = ("/bin/sh", "-c", 'ulimit -v 150000; exec "$0" -m harken "$@"', sys.executable)
    assert "Harken may use 146 MB of memory" in Rig(home).run("list", prefix=prefix).err


def test_what_is_enough_is_not_refused() -> None:
    """Nobody sets a bound in the usual case."""
    refuse_too_little(None)
    refuse_too_little(MIN_BYTES)


def _bounded(home: Path, kilobytes: int) -> list[str]:
    served = f'"{sys.executable}" -I -m harken serve --home "{home}"'
    return ["/bin/sh", "-c", f"ulimit -v {kilobytes}; exec {served}"]
