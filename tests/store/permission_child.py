"""Opens a store as somebody who may not write its folder, and prints the code of the error. Not a test.

Called with the name of a database and the path of an existing one, which is copied. As root it first gives up the
power to write everywhere (Linux), so that the permissions count.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio

from harken.errors import HarkenError
from harken.store.sqlite import open_store
from harken.testing import FakeClock

LINUX_CAPABILITY_VERSION_3: Final = 0x20080522


async def code_of_opening(path: Path) -> str:
    """Return the code of the error, or what happened instead."""
    try:
        async with open_store(path, FakeClock()) as store:
            await store.events.record("note", {})
    except HarkenError as error:
        return error.code
    return "opened"


def give_up_capabilities() -> None:
    """Make root an ordinary owner of its files; threads that are started later are the same."""
    header = struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0)
    nothing = struct.pack("6I", 0, 0, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def main() -> None:
    """Prepare a folder that cannot be written, open the store in it, and clean up."""
    name, existing = sys.argv[1], Path(sys.argv[2])
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copy(existing, folder / existing.name)
        (folder / existing.name).chmod(0o444)
        folder.chmod(0o555)
        if os.getuid() == 0:
            give_up_capabilities()
        code = anyio.run(code_of_opening, folder / name)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    sys.stdout.write(code + "\n")


if __name__ == "__main__":
    main()
