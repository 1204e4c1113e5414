"""What only the person may do is refused to agents also where no daemon is asked, before anything is done."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.processes import identity_of
from tests.cli.rig import COMMAND, Outcome, Rig

REFUSED = 7
VERBS = [
    ("down",),
    ("backup", "-"),
    ("recover", "--yes"),
    ("store", "move", "sqlite"),
    ("restore", "-"),
    ("uninstall", "--yes"),
    ("service", "install", "--yes"),
    ("service", "remove", "--yes"),
    ("connect", "codex", "--yes"),
    ("connect", "codex", "--dry-run"),
    ("disconnect", "codex", "--yes"),
    ("disconnect", "--all", "--yes"),
    ("source", "remove", "x"),
    ("replay", "--at", "-1h"),
]
ASKED = [("export",), ("open", "--print"), ("allow", "eve"), ("retention", "run"), ("outbox", "retry", "r-1")]
MARKED = {"CODEX_THREAD_ID": "01a1"}
ids = " ".join


@pytest.mark.parametrize("words", VERBS, ids=ids)
def test_marked_command_is_refused_where_no_daemon_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A model that is talked into it would take the mail with it, or leave the person without any."""
    bare = Rig(tmp_path / "home", {**MARKED, "HOME": str(tmp_path)})
    done = bare.run(*words)
    assert (done.code, done.out) == (REFUSED, "")
    said = " ".join(done.err.split())
    assert said.startswith("harken: An agent may not ")
    assert "This counts as a command of Codex, because CODEX_THREAD_ID is set in its environment." in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [*VERBS, *ASKED], ids=ids)
def test_marked_command_is_refused_beside_a_daemon(rig: Rig, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The daemon goes on, and the person's command after it is done."""
    done = replace(rig, extra={**MARKED, "HOME": str(tmp_path)}).run(*words)
    assert (done.code, done.out) == (REFUSED, "")
    assert rig.json("stats")["consumer"] == "watch"


@pytest.mark.parametrize("words", [("status",), ("doctor",), ("list",), ("service", "status"), ("version",)], ids=ids)
def test_agent_may_look(rig: Rig, tmp_path: Path, words: tuple[str, ...]) -> None:
    """It helps its user best when it can see what is wrong."""
    done = replace(rig, extra={**MARKED, "HOME": str(tmp_path)}).run(*words)
    assert done.code != REFUSED, done


def test_command_that_a_run_has_started_is_refused(tmp_path: Path) -> None:
    """What a run looks at was written by a stranger."""
    done = Rig(tmp_path / "home", {"HARKEN_RUN": "n-1"}).run("backup", "-")
    assert (done.code, "An agent may not" in done.err) == (REFUSED, True)


def in_host(rig: Rig, program: Path, *words: str) -> Outcome:
    """Run a command below a process that is called like a host's program."""
    code = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    return rig.run("-c", code, *COMMAND, *words, prefix=(str(program),))


def test_command_below_a_hosts_program_is_refused_where_no_daemon_runs(tmp_path: Path) -> None:
    """An agent that was never connected is one all the same; not every host marks what it starts."""
    program = tmp_path / "bin" / "gemini"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    bare = Rig(
        tmp_path / "home", {"PYTHONHOME": sys.base_prefix, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    done = in_host(bare, program, "down")
    assert done.code == REFUSED
    said = " ".join(done.err.split())
    assert "An agent may not stop Harken. This counts as a command of Gemini CLI, because process" in said
    other = tmp_path / "bin" / "shell"
    shutil.copy(program, other, follow_symlinks=False)
    assert in_host(bare, other, "down").code == 0


def test_agent_that_an_earlier_daemon_has_noted_is_one_while_none_runs(tmp_path: Path) -> None:
    """`harken down` of the person must not be what lets its agents do everything."""
    bare = Rig(tmp_path / "home")
    noted = {"pid": os.getpid(), "consumer": "codex", "session": "codex:1", "host": "codex"}
    noted |= {"since": datetime.now(UTC).isoformat(), "identity": identity_of(os.getpid())}
    (bare.home / "run").mkdir(parents=True, mode=0o700)
    bare.home.chmod(0o700)
    (bare.home / "run" / "agents.json").write_text(json.dumps([noted]))
    assert bare.run("backup", "-").code == REFUSED
    (bare.home / "run" / "agents.json").unlink()
    assert bare.run("down").code == 0
