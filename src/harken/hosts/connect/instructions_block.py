"""Telling agents about Harken: a marked block in a file that a host gives to its model in every session.

Makes file changes and writes nothing. Several hosts may read one file, in a project (AGENTS.md) or because a person
linked theirs together: then there is one block, in words that are right for all of them, and it stays until the last
of them is disconnected. Which file a host reads is its own module's business; the words are in `instructions.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.edits import block_put, block_remove, block_text, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import FileEdit, InstallTarget
from harken.hosts.connect.record import key_of, load, shared_blocks
from harken.hosts.instructions import ANY_HOST, Abilities, agent_instructions

AGENTS_FILE: Final = "AGENTS.md"
"""What several hosts read in a project."""

_WHY: Final = "what the agent is told: whose word a message is, and where an answer goes"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins


def told(place: InstallTarget, host: str, path: Path, abilities: Abilities) -> FileEdit:
    """Return a file with the block for a host; raises `UserError` where none can be put."""
    before = read(path)
    if not place.can_tell:
        return FileEdit(path=path, before=before, after=before, why=_WHY)
    can = ANY_HOST if _is_shared(place, host, path) else abilities
    return FileEdit(path=path, before=before, after=with_block(before, can, path), why=_WHY)


def with_block(data: bytes | None, abilities: Abilities, file: Path) -> bytes:
    """Return a file's content with the block; raises `UserError` where none can be put."""
    if (data or b"").startswith(_WIDE):
        raise UserError(f"{file} is not UTF-8 text.", "Nothing was changed. Save it as UTF-8, then run this again.")
    return block_put(data, agent_instructions(abilities), file=file)


def untold(place: InstallTarget, host: str, path: Path) -> FileEdit:
    """Return a file without the block; as it is where another host needs it, or where it is not known as ours."""
    before = read(path)
    record = load(place.harken, host, place.project)
    is_ours = record is None or os.path.realpath(path) in record.blocks
    is_to_go = place.can_tell and is_ours and not _is_shared(place, host, path)
    after = block_remove(before, file=path) if is_to_go else before
    return FileEdit(path=path, before=before, after=after, why=_WHY)


def is_told(path: Path) -> bool:
    """Whether a file has the block already."""
    return block_text(read(path), file=path) is not None


def telling_notes(place: InstallTarget, path: Path) -> Sequence[str]:
    """Return what people should know of a block in a project's file."""
    if place.project is None or not place.can_tell:
        return ()
    return (f"The block in {path.name} names no path of this machine; other agents that read the file see it too.",)


def context_file(files: Sequence[Path], *usual: str) -> str:
    """Return the name of the file for the model, by settings such as Gemini's; of several usual ones the first.

    The last of the settings that has something to say about it wins.
    """
    chosen = [json_value(read(file), ("context", "fileName"), file=file) for file in files]
    last = next((value for value in reversed(chosen) if value), list(usual))
    names = [name for name in (last if isinstance(last, list) else [last]) if isinstance(name, str) and name]
    return next((name for name in (*usual, *names) if name in names), usual[0])


def _is_shared(place: InstallTarget, host: str, path: Path) -> bool:
    return os.path.realpath(path) in shared_blocks(place.harken, key_of(host, place.project))
