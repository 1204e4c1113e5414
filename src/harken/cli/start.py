"""Starting under its old name, for the commands of sources."""

from harken.control.start import VARIABLES, is_reachable, start

__all__ = ["VARIABLES", "is_reachable", "start"]
