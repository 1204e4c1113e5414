"""Which of the machines runs what a rule has started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fake_host import Machine, machine_with_host
from tests.loss.rig import DaemonStarter, Json, Served, until
from tests.postgres.conftest import Machines

AGENT: Final = """#!/bin/sh
cat > /dev/null
echo '{"type": "result", "status": "success"}'
"""
LONG_SECONDS: Final = 40.0


def add_rules(home: Path, *rules: Mapping[str, object]) -> None:
    """Write rules into a home that has no daemon yet."""
    given = {"mode": "auto", "agent": "gemini-cli", "tools": ["read_file"], "prompt": "look"}
    file = home / "triggers.json"
    file.write_text(json.dumps({"rules": [{**given, **rule} for rule in rules]}))
    file.chmod(0o600)


def the_run(daemon: Served, rule: str) -> Json:
    """Return the run that a rule has started, once it is over."""

    def look() -> Json:
        found = [each for each in daemon.call("runs")["runs"] if (each["rule"], each["state"]) == (rule, "done")]
        return found[0] if found else None

    return until(look, f"the run of {rule} is over", LONG_SECONDS)


def test_a_run_goes_to_the_machine_that_has_the_agent_or_is_named(
    machines: Machines, starter: DaemonStarter, tmp_path: Path
) -> None:
    """The folder is on one of them; a rule that names one waits for it, also while it is off."""
    agents: Machine = machine_with_host(starter, tmp_path, AGENT)
    rules = {"name": "any", "channel": "ci"}, {"name": "named", "channel": "release", "machine": "buildbox"}
    homes = [machines.home(name) for name in ("laptop", "buildbox")]
    for home in homes:
        add_rules(home, *rules)
    with starter.daemon(homes[0], {"PATH": "/usr/bin:/bin"}) as laptop, agents.daemon(homes[1]) as buildbox:
        laptop.start()
        until(lambda: laptop.call("status")["rules"]["rules"] == len(rules), "the rules are in force")
        laptop.call("send", text="before it is on", sender="bot", channel="release")
        until(lambda: laptop.call("actions")["actions"], "there is something to run")
        buildbox.start()
        assert the_run(laptop, "named")["machine"] == "buildbox"
        laptop.call("send", text="red", sender="bot", channel="ci")
        assert the_run(laptop, "any")["machine"] == "buildbox"
        assert the_run(buildbox, "any")["machine"] == ""
