"""Asks git, in the person's own environment and within a time. It knows no verb of git's and no task.

Variables that point at another repository are left out: a command in a git hook has them, and means its own folder.
Hooks and monitors of the repository are not started: it may belong to others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import HarkenError, Unavailable, UserError

ASK_SECONDS: Final = 30.0
WORK_SECONDS: Final = 600.0  # a checkout of something large
SAID_CHARS: Final = 2000
_ELSEWHERE: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)


_OVERRULED: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("protocol.ext.allow", "never"),
)
# Else a subfolder that looks like a repository is one, settings and all.
_NOT_BARE: Final = ("safe.bareRepository", "explicit")


def _variables(*settings: tuple[str, str]) -> Mapping[str, str]:
    """Return an environment in which git has these settings, before those of a repository."""
    return MappingProxyType(
        {
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_PAGER": "cat",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(settings)},
        }
    )


HARKENS_OWN: Final = _variables(*_OVERRULED)
"""For what Harken itself asks git, in repositories of any kind."""
VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {**_variables(*_OVERRULED, _NOT_BARE), "GIT_OPTIONAL_LOCKS": "0"}
)
"""For a run that may run git."""
NOWHERE: Final[Mapping[str, str]] = MappingProxyType({**VARIABLES, "GIT_DIR": os.devnull})
"""With these git finds no repository, whatever the folder."""


def run_git(
    program: str, words: Sequence[str], environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run git in the root folder, without input; raises `OSError` and `subprocess.TimeoutExpired`."""
    return subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        env=environ,
        timeout=seconds,
        check=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAnswer:
    """How git ended, and what it said. Names of files are any bytes."""

    code: int
    out: str
    error: str


def git(folder: Path, *words: str, seconds: float = ASK_SECONDS, sets: Mapping[str, str] | None = None) -> GitAnswer:
    """Run git in a folder; raises `UserError` without git, and `Unavailable` when it takes too long."""
    program = shutil.which("git")
    if program is None:
        raise UserError("git is not installed.", "Install it, or use a folder as it is: --here")
    kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    try:
        done = run_git(program, ("-C", str(folder), *words), {**kept, **HARKENS_OWN, **(sets or {})}, seconds)
    except OSError as exc:
        raise UserError(f"git cannot be run: {exc.strerror}.", "Check that it can be started here.") from exc
    except subprocess.TimeoutExpired as exc:
        raise Unavailable(f"git did not end within {seconds:.0f} seconds.", "Look at the repository by hand.") from exc
    return GitAnswer(
        code=done.returncode,
        out=os.fsdecode(done.stdout),
        error=done.stderr.decode("utf-8", "replace").strip()[-SAID_CHARS:],
    )


def trouble(message: str, said: GitAnswer) -> HarkenError:
    """Return the error for what git refused, with its own words."""
    return UserError(message, said.error or f"git ended with code {said.code}.")
