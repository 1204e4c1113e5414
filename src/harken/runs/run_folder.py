"""Puts into a run's private folder what its host needs there, readable by its owner only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.runs.sandbox import RunFile, RunFileKind

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def make_run_folder(files: Sequence[RunFile], private: Path) -> None:
    """Make everything in the private folder. Raises `UserError` where that cannot be."""
    for each in files:
        path = private / each.path
        if not path.is_relative_to(private) or ".." in Path(each.path).parts:
            raise UserError(f"{each.path} is outside the private folder of the run.")
        try:
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _put(each, path)
        except OSError as exc:
            raise UserError(f"The private folder of the run could not be made: {exc.strerror}.") from exc


def _put(each: RunFile, path: Path) -> None:
    if each.kind is RunFileKind.FILE:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "w", encoding="utf-8") as to:
            to.write(each.content)
    elif not each.target.is_file():
        return  # nobody has signed in that way
    elif each.kind is RunFileKind.LINK:
        path.symlink_to(each.target)
    else:
        shutil.copyfile(each.target, path)
        path.chmod(PRIVATE_FILE)
