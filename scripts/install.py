"""Installs what a lock file says and Harken itself into this Python: `python scripts/install.py LOCK`.

`make` runs it before anything is installed, so it needs the standard library and pip only. pip either prints a hundred
lines or, asked to be quiet, nothing for a minute. This prints how far it is: one line that changes on a terminal, one
line at the beginning and the end elsewhere. What pip says is shown when it fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
SHOWN_LINES: Final = 30  # of a pip that failed

_PACKAGE: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==", re.MULTILINE)
_STEP: Final = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)")


def run(arguments: Sequence[str], *, packages: int = 0) -> int:
    """Run pip, show how many packages it has looked at, and return its exit code."""
    is_terminal = sys.stdout.isatty()
    said: deque[str] = deque(maxlen=SHOWN_LINES)
    done = 0
    with subprocess.Popen(
        [*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    ) as pip:
        for line in pip.stdout or ():
            said.append(line)
            step = _STEP.match(line)
            done += bool(step)
            if step and is_terminal:
                _show(f"\r\033[K  {done} of {packages}  {step[1]}")
            elif is_terminal and line.startswith("Installing collected packages"):
                _show("\r\033[K  unpacking")
    if is_terminal:
        _show("\r\033[K")
    if pip.returncode:
        _show("".join(said))
    return pip.returncode


def main(lock: Path) -> int:
    """Install the packages of a lock file, then Harken from this checkout."""
    count = len(set(_PACKAGE.findall(lock.read_text(encoding="utf-8"))))
    _show(f"Installing {count} packages into {sys.prefix} ...\n")
    code = run(["--require-hashes", "--requirement", str(lock)], packages=count)
    if not code:
        _show("Installing Harken ...\n")
        code = run(["--no-deps", "--no-build-isolation", "--editable", "."])
    return code


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
