"""Lets an earlier version of Harken fill a home, and packs that: `python make_home.py HARKEN HOSTS ARCHIVE`.

HARKEN is the command of that version, HOSTS a folder with the programs of the agent hosts, such as
`tests/hosts/node_modules/.bin`. The archive of this folder was made so by the version before integrations became
folders of their own. Beside the home, the person's files and a repository with worktrees, it holds `answers.json`: what
that version answered to commands when it was asked last.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(tempfile.gettempdir(), "earlier")  # the tests write their own path in its place
HOME, USER, REPOSITORY = ROOT / "home", ROOT / "user", ROOT / "shop"
PROGRAMS: Final = ("claude", "copilot", "codex", "gemini", "opencode", "qwen")
SECONDS: Final = 120
TENANT, CLIENT, APP = (f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "123")
SECRETS: Final = "CI_TOKEN=x\nHOOK_SECRET=0123456789abcdef\nMAIL_PASSWORD=pw\nBOT_SECRET=s3\n"
KEPT: Final = '[store]\nmax_age = "36500d"\n'  # whenever the tests run
ACCOUNT: Final = f"--client-id {CLIENT} --tenant {TENANT}"
SOURCES: Final = (
    "ci --url http://127.0.0.1:9/mcp --header Authorization=env:CI_TOKEN --channel builds",
    "program --command /bin/false --trust known",
    "webhook gh --preset github --secret env:HOOK_SECRET",
    "webhook deploy --preset generic --secret env:HOOK_SECRET --scheme hmac-sha256 --trust known",
    "imap mail --host 127.0.0.1 --port 9 --security none --user me --password env:MAIL_PASSWORD",
    f"teams {ACCOUNT}",
    f"outlook {ACCOUNT}",
    f"bot helper --app-id {APP} --tenant {TENANT} --secret env:BOT_SECRET",
)
RULES: Final = [
    {"name": "ci-failed", "channel": "ci/*", "contentRegex": "(?i)failed", "mode": "notify"},
    {
        "name": "incident", "channel": "incidents", "mode": "confirm", "prompt": "Look.\n\n{{content}}",
        "tools": ["read_file"], "workdir": str(USER), "trust": "owner",
    },
]  # fmt: skip
MINE: Final = {".gemini/settings.json": '{  "theme"  :  "dark" }', ".codex/config.toml": '# mine\nmodel = "m"\n'}
ASKED: Final = (
    "list --limit 50", "task list", "task show api", "task show web-page", "channel list", "channel show ci/main",
    "rules list", "run list", "outbox --state sent", "waiting", "search build", "stats", "export",
)  # fmt: skip
LEFT_OUT: Final = ("logs", "run", "backups", "bin", "reserve")

Json: TypeAlias = Any
"""Whatever a command answers."""


class EarlierVersion:
    """The command of that version, on the home that it fills."""

    def __init__(self, command: str, hosts: str) -> None:
        self.command = command
        self.path = f"{ROOT / 'bin'}{os.pathsep}{os.defpath}"
        (ROOT / "bin").mkdir(parents=True)
        for name in PROGRAMS:
            (ROOT / "bin" / name).symlink_to(Path(hosts, name).resolve())
        (ROOT / "bin" / "node").symlink_to(Path(shutil.which("node") or "").resolve())

    def run(self, words: str, *more: str) -> str:
        """Run a command that must succeed; return what it printed."""
        env = {"HOME": str(USER), "PATH": self.path, "HARKEN_HOME": str(HOME), "TZ": "UTC", "LANG": "C.UTF-8"}
        argv = [self.command, *words.split(), *more]
        return subprocess.run(
            argv, env=env, cwd=USER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=SECONDS
        ).stdout.decode()

    def json(self, words: str, *more: str) -> Json:
        """Run a command; return its JSON, line by line if it is several."""
        said = self.run(words, *more, *([] if words == "export" else ["--json"]))
        return [json.loads(line) for line in said.splitlines()] if words == "export" else json.loads(said)

    @contextmanager
    def agent(self, consumer: str) -> Iterator[McpClient]:
        """Connect an agent for the time of the block."""
        argv = [self.command, "mcp", "--home", str(HOME), "--consumer", consumer]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield McpClient(process)
            process.terminate()


class McpClient:
    """As little of MCP as calls a tool."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._next = 0
        info = {"name": "agent", "version": "1"}
        self._ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self._write({"method": "notifications/initialized"})

    def tool(self, name: str, **arguments: object) -> None:
        """Call a tool."""
        assert not self._ask("tools/call", {"name": name, "arguments": arguments})["result"].get("isError"), name

    def _ask(self, method: str, params: Json) -> Json:
        self._next += 1
        self._write({"id": self._next, "method": method, "params": params})
        assert self._process.stdout is not None
        return next(each for each in map(json.loads, self._process.stdout) if each.get("id") == self._next)

    def _write(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def write_files() -> None:
    """Write what the person has: settings of hosts, a repository, secrets and rules."""
    for name, text in MINE.items():
        (USER / name).parent.mkdir(parents=True)
        (USER / name).write_text(text)
    HOME.mkdir(mode=0o700)
    for name, text in (("env", SECRETS), ("config.toml", KEPT)):
        (HOME / name).write_text(text)
        (HOME / name).chmod(0o600)
    (HOME / "triggers.json").write_text(json.dumps({"rules": RULES}))
    REPOSITORY.mkdir()
    (REPOSITORY / "README").write_text("The shop.\n")
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q", "-b", "main", "--template="], ["add", "."], [*who, "commit", "-qm", "Begin"]):
        subprocess.run([shutil.which("git") or "git", *words], cwd=REPOSITORY, check=True)


def fill(earlier: EarlierVersion) -> None:
    """Let there be something of everything that is stored."""
    for source in SOURCES:
        earlier.run(f"source add {source}")
    earlier.run("up")
    for host in ("claude-code", "copilot-cli", "codex", "gemini", "opencode", "qwen"):
        earlier.run(f"connect {host} --yes")
    earlier.run(f"task new The API --dir {REPOSITORY} --agent claude-code --prompt Faster!")
    earlier.run(f"task new The web page --dir {REPOSITORY} --agent codex --link api")
    earlier.run(f"task new Old work --dir {ROOT} --here")
    earlier.run("send --to task:old-work too late")
    earlier.run("task done old-work")
    earlier.run("send --channel chat queued for some")
    earlier.run("send --channel ci/main --from ci-bot --id build-7 build 7 failed")
    down = earlier.json("send --channel incidents the site is down")["id"]
    question = earlier.json("send --conversation c1 Is it done?")["id"]
    earlier.run("pull --consumer codex --limit 2")
    earlier.run(f"ack {down}")
    with earlier.agent("gemini-cli") as agent:
        agent.tool("inbox_pull", limit=20)
        agent.tool("reply", message_id=question, body="almost")
        earlier.run("send late")
        agent.tool("inbox_pull", limit=1)
    earlier.run("allow ann --source gh")
    earlier.run("deny eve")
    earlier.run("mute channel noise")


def ask(earlier: EarlierVersion) -> dict[str, Json]:
    """Return what that version says of it all."""
    answers = {words: earlier.json(words) for words in ASKED}
    messages = [each["id"] for each in answers["list --limit 50"]["messages"]]
    return answers | {f"read {message}": earlier.json(f"read {message}") for message in messages}


def pack(archive: Path) -> None:
    """Pack what is kept; no name of an account or of this machine is in it."""

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return None if Path(info.name).name in LEFT_OUT else info

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(ROOT, ".", filter=kept)


def main(command: str, hosts: str, archive: str) -> None:
    """Make the archive."""
    shutil.rmtree(ROOT, ignore_errors=True)
    USER.mkdir(parents=True)
    earlier = EarlierVersion(command, hosts)
    write_files()
    fill(earlier)
    answers = ask(earlier)
    earlier.run("down")
    python = Path(command).with_name("python")
    code = "import harken; print(harken.__path__[0])"
    package = subprocess.run([python, "-I", "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    places = {"root": str(ROOT), "package": package, "python": str(python)}
    (ROOT / "answers.json").write_text(json.dumps({"places": places, "answers": answers}, indent=1))
    pack(Path(archive))
    shutil.rmtree(ROOT)


if __name__ == "__main__":
    main(*sys.argv[1:])
