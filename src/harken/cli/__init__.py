"""The command line: every verb of Harken for people and scripts.

Each verb is a command in a module of this package, loaded when it is called, because start-up is felt. Verbs ask the
daemon over its socket and print what it answers; only `serve` is the daemon. Nothing is above; below are the daemon
and the configuration, which most verbs never import.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from harken.cli.run import run

    sys.exit(run(sys.argv[1:]))
