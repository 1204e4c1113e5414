"""The client under its old name, for the commands of sources."""

from harken.control.client import Daemon, Result

__all__ = ["Daemon", "Result"]
