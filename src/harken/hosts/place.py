"""Where the settings of the person's hosts are, and Harken: on this machine, for this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harken.hosts.connect.plan import InstallTarget


def local_place(harken: Path, project: Path | None = None) -> InstallTarget:
    """Return the place of this machine, of one project or of every folder; `harken` is the home."""
    return InstallTarget(
        user=Path.home(),
        environ=dict(os.environ),
        project=Path(os.path.normpath(Path.cwd() / project)) if project else None,
        harken=harken,
        python=sys.executable,
        edge=Path(__file__).parent.parent / "edge",
        has_shell=sys.platform != "win32",
    )
