"""Lives through stories with a store, each in a process of its own that is killed. Not a test.

Imports are made once: for each line of JSON on its input, `[STORY, PATH, COMMIT, SIDE]`, it forks, and answers with how
that process ended. What the process tells is in a file beside PATH. The story `checkpoint` needs no commit and no side;
`move` has other words: what is moved where, and where it is killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from tests.store import automation_crash_child, crash_child, move_child, task_crash_child
from tests.store.crash_child import Life, checkpoint, story

LIVES: Final[Mapping[str, Life]] = {
    "mail": crash_child.live,
    "tasks": task_crash_child.live,
    "automation": automation_crash_child.live,
}


def told_file(path: Path) -> Path:
    """Return where what the process of a database told is written."""
    return path.with_name(path.name + ".told")


def live(name: str, path: Path, when: Sequence[str]) -> None:
    """Be the process."""
    os.dup2(os.open(told_file(path), os.O_WRONLY | os.O_CREAT, 0o600), 1)
    if name == "move":
        move_child.live(path, *when)
        return
    life = partial(story, LIVES[name], path, int(when[0]), when[1]) if when else partial(checkpoint, path)
    anyio.run(life)


def main() -> None:
    """Fork for each line of the input, until it ends."""
    for line in sys.stdin:
        name, path, *when = json.loads(line)
        pid = os.fork()
        if pid == 0:
            live(name, Path(path), when)
            os._exit(0)  # a story that fails leaves the loop as well
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
