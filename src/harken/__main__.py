"""`python -m harken`: the same as the command `harken`."""

from __future__ import annotations

import sys

from harken.cli.run import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
