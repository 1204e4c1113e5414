"""A host's program: where it is, which version, and what it says when it is asked. It knows no host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harken.hosts.connect.plan import InstallTarget

RUN_SECONDS = 30.0


def find_program(place: InstallTarget, name: str) -> str | None:
    """Return the path of a program on the person's PATH."""
    return shutil.which(name, path=place.environ.get("PATH", os.defpath))


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def output_of(argv: Sequence[str], environ: Mapping[str, str], cwd: Path) -> str:
    """Return what a command prints; nothing when it fails to start or takes too long."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=RUN_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
