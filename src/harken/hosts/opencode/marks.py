"""The marks of opencode, as version 1.18.33 was seen to set them for everything that it starts."""

from __future__ import annotations

from typing import Final

from harken.hosts.marks import HostMarks

# Not `AGENT`, which may mean anything, nor `OPENCODE_CONFIG` and its like, which people set.
MARKS: Final = HostMarks(
    variables=("OPENCODE", "OPENCODE_PID"),
    process="OPENCODE_PID",
    programs=("opencode",),
    packages=("opencode-ai",),
)
