"""Where the daemon listens and whom it calls."""

from __future__ import annotations

import sys
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from harken.testing import DaemonProcess
from tests.loss.rig import agent_of

CHILD: Final = Path(__file__).with_name("network_child.py")
HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def addresses(home: Path) -> AbstractSet[str]:
    """Let a daemon live a day; return every address and name that it used, other than files."""
    notes = home.with_name("notes")
    daemon = DaemonProcess(home, (sys.executable, str(CHILD), str(home), str(notes))).start()
    try:
        with agent_of(home) as agent:
            message = daemon.call("send", text="please look")["id"]
            agent.tool("inbox_pull")
            agent.tool("reply", message_id=message, body="done")
            daemon.call("status")
    finally:
        assert daemon.stop() == 0
    used = {line.split(" ", 1)[1] for line in notes.read_text().splitlines()}
    return {address for address in used if not address.startswith("unix:")}


def test_daemon_without_settings_speaks_to_this_machine_only(home: Path) -> None:
    """Nothing is reported to anybody, and nobody else can call; what somebody configures is seen here too."""
    used = addresses(home)
    assert used
    assert used <= HERE
    (home / "config.toml").write_text('[http]\nhost = "0.0.0.0"\nallow_remote = true\n')
    assert not addresses(home) <= HERE
