"""Which hosts are this machine: what goes there needs no encryption, because nobody else can read it on the way.

It looks at the name alone and asks nobody: a name that a resolver turns into this machine may be another one tomorrow.
Above are the settings of the sources and `http.py`; there is nothing below.
"""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
