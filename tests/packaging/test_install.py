"""`make run` shows how far it is, and what went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

INSTALL = ROOT / "scripts" / "install.py"
# A lock of what is there already, in the form that pip can check without a network.
LOCK = "click==8.0.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"


def test_a_failed_installation_says_what_pip_said(tmp_path: Path) -> None:
    """Silence followed by `make: *** Error 1` is the end of the first minute."""
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCK)
    done = subprocess.run(
        [sys.executable, str(INSTALL), str(lock)],
        env={**os.environ, "PIP_NO_INDEX": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout.decode().startswith(f"Installing 1 packages into {sys.prefix} ...\n")
    assert "click==8.0.0" in done.stdout.decode().partition("\n")[2]
