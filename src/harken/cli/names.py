"""Names under their old name, for the commands of sources."""

from harken.hosts.names import short

__all__ = ["short"]
