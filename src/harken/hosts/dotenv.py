"""Variables that a person keeps in a `.env` file of their home, as some hosts let them.

Only names that are asked for are taken: such a file may hold anything. It reads, writes nothing and knows no host;
above it are the sandboxes, whose runs have another home and would not find the file themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from harken.hosts.connect.files import read


def written(files: Iterable[Path], names: Collection[str]) -> dict[str, str]:
    """Return some variables from the first of some files that exists."""
    found = next((data for file in files if (data := read(file)) is not None), b"")
    return {name: value for name, value in _assignments(found) if name in names}


def _assignments(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.decode(errors="replace").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            yield name.strip(), value.strip().strip("\"'")
