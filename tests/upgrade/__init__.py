"""A home that an earlier version wrote, opened and used by this one."""
