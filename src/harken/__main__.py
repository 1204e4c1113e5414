"""`python -m harken`: the same as the command `harken`."""

from __future__ import annotations

from harken.cli import main

if __name__ == "__main__":
    main()
