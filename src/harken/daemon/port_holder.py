"""Which program listens at a port that we wanted, as far as the system tells: a label for people, and nothing more.

Of a program of another account Linux says the account and hides the process; elsewhere often neither is known.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import psutil

if sys.platform != "win32":
    import pwd

UNKNOWN: Final = "another program"

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_FIELDS: Final = 8


def holder_of(port: int) -> str:
    """Return who listens at a port, in words."""
    process, account = _process(port), _account(port)
    if process and account:
        return f"{process} of the account {account}"
    return process or (f"a program of the account {account}" if account else UNKNOWN)


def _process(port: int) -> str:
    try:
        found = (
            each.pid
            for each in psutil.net_connections("tcp")
            if each.laddr and each.laddr.port == port and each.status == psutil.CONN_LISTEN and each.pid
        )
        pid = next(found, None)
        return f"{psutil.Process(pid).name()} (process {pid})" if pid else ""
    except (psutil.Error, OSError):
        return ""


def _account(port: int) -> str:
    """Return the name of the account whose socket listens there, or its number; empty where that is not told."""
    if sys.platform != "linux":
        return ""
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
        for fields in (line.split() for line in lines):
            is_it = len(fields) >= _FIELDS and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port
            if is_it:
                return _account_name(int(fields[7]))
    return ""


def _account_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
