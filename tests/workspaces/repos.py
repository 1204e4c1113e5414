"""Real git repositories for tests: made by git, with a person of their own and none of the machine's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SECONDS = 30.0
PERSON = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; it must succeed."""
    done = subprocess.run(
        ["/usr/bin/env", "git", "-C", str(folder), "-c", "protocol.file.allow=always", *words],
        env={**os.environ, **PERSON},
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def repository(path: Path, *files: str) -> Path:
    """Make a repository with one commit of some files."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name in files or ("README.md",):
        commit(path, name)
    return path


def commit(folder: Path, name: str, text: str = "text\n") -> None:
    """Commit one file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(folder, "add", "-f", name)
    git(folder, "commit", "-q", "-m", f"Write {name}")


def filtered(folder: Path, smudge: str) -> None:
    """Let git run a command for each file that it checks out."""
    commit(folder, ".gitattributes", "*.md filter=x\n")
    git(folder, "config", "filter.x.smudge", smudge)
    git(folder, "config", "filter.x.required", "true")
