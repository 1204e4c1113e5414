"""Runs the tests as the person's, also when an agent runs them: `python scripts/apart.py COMMAND ARGUMENT...`.

The tests play the person, and Harken refuses an agent much of what they do: it knows what descends from an agent's
program, and the variables that hosts set for what they start. Below such a program, the command is run by a process
without that parent, which ends with this script. Anywhere else it is a child of this script. Either way it gets none of
the variables.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

import psutil

from harken.hosts.host import host_of_program, without_marks
from harken.hosts.registry import host_marks
from harken.processes import command_line


def main(argv: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    if not _is_below_an_agent():
        return subprocess.run(argv, check=False, env=_environment()).returncode
    here, life = os.pipe()
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        if not os.fork():
            os.close(life)
            os.close(told)
            os.write(tell, str(_watch(argv, here)).encode())
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    return int(os.read(told, 16) or b"1")


def _is_below_an_agent() -> bool:
    known = host_marks()
    return any(host_of_program(command_line(each.pid), known) for each in psutil.Process().parents())


def _environment() -> dict[str, str]:
    return without_marks(os.environ, host_marks())


def _watch(argv: Sequence[str], here: int) -> int:
    """Run the command to its end, or until the script that started it is gone."""
    with subprocess.Popen(argv, start_new_session=True, env=_environment()) as process:

        def end_with_starter() -> None:
            os.read(here, 1)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)

        Thread(target=end_with_starter, daemon=True).start()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
