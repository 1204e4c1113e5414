"""The tracer follows a message through every process, and passes over what happens beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).parents[1] / "scripts" / "trace_send.py"
TRACE_SECONDS: Final = 60.0
MAX_FILES: Final = 55


def test_files_of_every_process_are_counted_and_those_of_loops_are_not() -> None:
    """A figure that is too low would please everybody."""
    done = subprocess.run([sys.executable, SCRIPT, "--json"], capture_output=True, check=True, timeout=TRACE_SECONDS)
    found = json.loads(done.stdout)
    files = set(found["files"])
    assert {"cli/messages.py", "edge/hook.py", "ingest/prepare.py", "store/journal.py", "render.py"} <= files
    assert files.isdisjoint({"dispatch/outbox.py", "rules/judge.py"})
    assert (found["count"], found["lines"]) == (len(files), sum(found["files"].values()))
    assert len(files) <= MAX_FILES, "a reader who follows one message has to open all of them"
