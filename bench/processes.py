"""Processes that a benchmark starts and measures: spawn time, memory, processor time. Linux."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from harken.testing.daemon import DaemonProcess

READY_SECONDS: Final = 30
POLL_SECONDS: Final = 0.01
BARE: Final = (sys.executable, "-I", "-S", "-c", "pass")
BARE_IDLE: Final = (sys.executable, "-I", "-S", "-c", "import sys; print('ready', flush=True); sys.stdin.read()")
SCRIPTS: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Started:
    """A process that is ready, and what it said then."""

    pid: int
    said: str


def time_to_end(command: Sequence[str]) -> float:
    """Return the seconds from starting a command to its end; raises when it fails."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def cpu_to_end(command: Sequence[str]) -> float:
    """Return the seconds of processor time that a command took, with all that it waited for; raises when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def time_to_answer(command: Sequence[str], question: bytes) -> float:
    """Return the seconds from starting a command to the first line it answers to a question."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stdin, stdout = _pipes(process)
        try:
            stdin.write(question)
            stdin.flush()
            line = stdout.readline()
            took = time.perf_counter() - began
        finally:
            stdin.close()
            process.wait(READY_SECONDS)
    if b'"result"' not in line:
        raise RuntimeError(f"{command[-1]} did not answer: {line[:200]!r}")
    return took


@contextmanager
def running(command: Sequence[str]) -> Iterator[Started]:
    """A process that says a line when it is ready, and is ended with the context."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            said = _pipes(process)[1].readline()
            if not said:
                raise RuntimeError(f"{' '.join(command)} ended before it was ready")
            yield Started(process.pid, said.decode().strip())
        finally:
            process.terminate()


@contextmanager
def serving(home: Path) -> Iterator[DaemonProcess]:
    """A daemon as `harken up` starts it, ended with the context, by force if need be."""
    command = (sys.executable, "-I", "-m", "harken", "serve", "--detached", "--home", str(home))
    daemon = DaemonProcess(home, command).start()
    try:
        _await(home / "run" / "address")
        yield daemon
    finally:
        try:
            daemon.stop()
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise


def _await(path: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"there is no {path.name}")
        time.sleep(POLL_SECONDS)


def script(name: str, *arguments: str) -> list[str]:
    """Return the command of one of our scripts."""
    return [sys.executable, "-I", str(SCRIPTS / name), *arguments]


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS:") * 1024


def pss_bytes(pid: int) -> int:
    """Return its share of memory: what others map too is divided among them."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def exact_cpu_seconds(pid: int) -> float:
    """Return the processor time that the threads which a process has now have used, without rounding."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def cpu_share(pid: int, seconds: float) -> float:
    """Return the percentage of one core that a process uses while we wait."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def _kilobytes(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise RuntimeError(f"{path} does not tell {field}")


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process was started without pipes")
    return process.stdin, process.stdout
