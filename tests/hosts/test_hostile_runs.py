"""Attempts to get out of a run, on every real host and through the whole of Harken: none has an effect, all are told.

The folder is a trap that others filled, the model does whatever it can to spring it, and the person's command line says
afterwards what was tried. Where a host cannot be given a tool, that nothing is started is what is looked at.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.registry import sandboxes
from harken.hosts.trial_recipe import MODEL
from harken.runs.tools import parse_tool
from harken.testing import DaemonProcess
from harken.testing.daemon import Json
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import ANSWER, results
from tests.hosts.stage import Stage
from tests.hosts.story import marker, send
from tests.hosts.test_runs import PATCHING, RULE, RUN_SECONDS, assert_nothing_left, ruled, shown
from tests.hosts.trap import HOME_WORD, SPRINGS, Trap, set_trap
from tests.hosts.words import WORDS
from tests.loss.rig import until

MAX_TURNS: Final = 60
GIT_LINES: Final = ("git status", "git log -p", "git --help", "git status --help", "git -c core.pager=./x -p log")
# What a run that may `git log` and `git status` must not run.
WRITING_LINES: Final = (
    "git --help",
    "git log --help",
    "git status --help",
    "git help log",
    "git -p log",
    "git -c core.fsmonitor=./evil.sh status",
    "git --exec-path=. status",
    "git -C plain status",
    "git --git-dir=plain status",
    "git log --output=made",
    "git log -p --ext-diff",
    "git log -p --textconv",
    "git status && ./evil.sh",
    "GIT_DIR=plain git status",
)
HELD: Final = (
    "sub/.git",
    "new/.git",
    "new/.GIT",
    ".GIT/config",
    "lib/.git/config",
    ".git/config",
    ".git/modules/sub/config",
    ".git/hooks/post-checkout",
    # What the next session, or the person's editor and shell, would obey.
    "AGENTS.md",
    "deep/down/CLAUDE.md",
    "docs/GEMINI.md",
    "QWEN.md",
    ".github/agents/x.agent.md",
    ".github/copilot-instructions.md",
    ".husky/pre-commit",
    ".envrc",
    ".devcontainer/devcontainer.json",
    # What would give it a program to run.
    ".claude/settings.json",
    ".mcp.json",
    ".gemini/settings.json",
    ".codex/config.toml",
    ".opencode/plugin/x.js",
    "opencode.json",
    ".qwen/settings.json",
    ".github/hooks/x.json",
    ".vscode/tasks.json",
)
MADE: Final = "made.txt"  # which may be written
# Makes a repository of a folder, under names that no host knows.
PLAIN: Final = ("evil/HEAD", "evil/config")
# The exit codes of what is refused, and of what does not reach the daemon.
REFUSED: Final = "7"
UNREACHED: Final = "5"


@pytest.fixture
def trap(bare_stage: Stage) -> Iterator[Trap]:
    """A trap around the folder of the host."""
    with set_trap(bare_stage.folder, bare_stage.user, bare_stage.project) as laid:
        yield laid


def refusal(stage: Stage, *tools: str) -> str:
    """Return why a host cannot be given some tools; empty when it can."""
    sandbox = next(each for each in sandboxes() if each.host == stage.host.name)
    return sandbox.refusal([parse_tool(tool) for tool in tools])


def fire(stage: Stage, daemon: DaemonProcess, *says: ModelAnswer) -> Json:
    """Let the model do some things in a run that a message starts, and return the run when it is over."""
    stage.model.follow(in_order(*says, then=ANSWER))
    message = send_red(stage)
    return shown(stage, until(lambda: over(daemon, message), "the end of the run", RUN_SECONDS))


def send_red(stage: Stage) -> str:
    """Send the message that the rule is about, and return its id."""
    return send(stage, f"the build is red: {marker()}", "--channel", "ci", "--from", "ci-bot")


def over(daemon: DaemonProcess, message: str) -> str:
    """Return the id of the run for a message, when it is over."""
    runs = [each for each in daemon.call("runs")["runs"] if each["message_id"] == message]
    return "".join(each["id"] for each in runs if each["state"] != "running")


def assert_no_effect(stage: Stage, daemon: DaemonProcess, trap: Trap) -> None:
    """Assert that nothing was sprung, nobody spoke as the person, no other rule is in force, and nothing is left."""
    assert_nothing_left(stage, daemon)
    assert (trap.sprung, trap.heard) == (frozenset(), [])
    assert sum(asked.count(HOME_WORD) for asked in stage.model.requests) == 0
    assert {each["name"] for each in json.loads(stage.harken("rules", "list", "--json"))["rules"]} == {RULE}
    assert {each for each in senders(daemon) if not each.startswith("run:")} <= {"ci-bot"}


def texts(daemon: DaemonProcess) -> set[str]:
    """Return what was sent."""
    return {each["content_text_sanitized"] for each in daemon.call("list", limit=50)["messages"]}


def senders(daemon: DaemonProcess) -> set[str]:
    """Return by whom what is stored was sent."""
    return {each["sender_id"] for each in daemon.call("list", limit=50)["messages"]}


def assert_cannot_run(stage: Stage, daemon: DaemonProcess) -> None:
    """Assert that a message starts no host whose rule it cannot be fenced to, and that the rule says why."""
    message = send_red(stage)
    (decided,) = until(lambda: daemon.call("rules_explain", message=message)["decided"], "a verdict")
    (rule,) = json.loads(stage.harken("rules", "list", "--json"))["rules"]
    assert (decided["outcome"], bool(rule["cannot_run"])) == ("cannot run", True)
    assert (daemon.call("runs")["runs"], stage.model.requests) == ([], ())


def test_trap_is_sprung_by_git_that_is_run_plainly(tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    with set_trap(tmp_path, home, project) as trap:
        trap.fill()
        assert trap.sprung == frozenset()
        trap.run_git_plainly()
        assert trap.sprung == SPRINGS
        until(lambda: {f"{name} {HOME_WORD}" for name in SPRINGS} <= set(trap.heard), "what was sent")


@pytest.mark.parametrize("paths", [("sub/.git", *PLAIN), ("new/.git", *PLAIN), PLAIN], ids=lambda paths: paths[0])
def test_trap_is_sprung_by_what_edits_would_plant(tmp_path: Path, paths: Sequence[str]) -> None:
    """Else it would not matter what becomes of it."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    with set_trap(tmp_path, home, project) as trap:
        trap.clone()
        trap.run_git_plainly()
        assert trap.sprung == frozenset()
        for path in paths:
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(planted(trap)[path], encoding="utf-8")
        trap.run_git_plainly()
        assert trap.sprung == {"planted"}


@pytest.mark.parametrize("host", ["codex", "opencode", "qwen-code"], indirect=True)
def test_trap_is_sprung_by_a_host_that_is_not_fenced(bare_stage: Stage, trap: Trap) -> None:
    """These ask git by themselves, with the settings that they find: what a run must not let them do."""
    trap.fill()
    bare_stage.model.follow(in_order(then=ANSWER))
    bare_stage.ask("go")
    assert trap.sprung


def test_host_that_starts_in_a_hostile_repository_springs_nothing(
    bare_stage: Stage, trap: Trap, matrix: Matrix
) -> None:
    """Hosts ask git for the state of the folder when they start, before any model has said a word."""
    stage, words = bare_stage, WORDS[bare_stage.host.name]
    tools = [tool for tool in ("lab/note", "read_file", "edit_file") if not refusal(stage, tool)]
    lines = (*GIT_LINES, str(trap.program))
    trap.fill()
    with ruled(stage, *tools) as daemon:
        run = fire(stage, daemon, words.mark(), *(words.run(line) for line in lines))
        assert (run["state"], run["answer"]) == ("done", ANSWER), run
        assert run["denied"] == [f"{words.execute} {line}" for line in lines]
        assert_no_effect(stage, daemon, trap)
    matrix.note(stage.host.name, "hostile: start in the repository", "kept out")


def test_run_with_git_in_a_hostile_repository_is_refused(bare_stage: Stage, trap: Trap, matrix: Matrix) -> None:
    """Git would start what the settings name, so the person is told which one, and no host is started."""
    stage = bare_stage
    tool = next((each for each in ("shell:git status", "shell") if not refusal(stage, each)), "shell:git status")
    trap.fill()
    with ruled(stage, tool) as daemon:
        if refusal(stage, tool):
            assert_cannot_run(stage, daemon)
        else:
            for place in (".git/config", ".git/modules/sub/config"):
                message = send_red(stage)
                reason = until(partial(refused, daemon, message), "a refusal", RUN_SECONDS)
                assert reason.startswith("Git could run programs that the settings of the folder name: ")
                assert reason.endswith(f"/{place}.")
                (stage.project / place).write_text("[core]\n\trepositoryformatversion = 0\n", encoding="utf-8")
        assert (daemon.call("runs")["runs"], stage.model.requests) == ([], ())
        assert_no_effect(stage, daemon, trap)
    matrix.note(stage.host.name, "hostile: git in the repository", "refused")


def refused(daemon: DaemonProcess, message: str) -> str:
    """Return why what a message was to start was refused; empty as long as it was not."""
    found = [each for each in daemon.call("actions")["actions"] if each["message_id"] == message]
    return "".join(each["reason"] for each in found if each["state"] == "refused")


def test_run_with_some_commands_of_git_runs_only_these(bare_stage: Stage, trap: Trap, matrix: Matrix) -> None:
    """In a clean clone, too, options of git write files and start programs, and edits could lead git elsewhere."""
    stage, words = bare_stage, WORDS[bare_stage.host.name]
    tools = ("edit_file", "shell:git status", "shell:git log")
    trap.clone()
    with ruled(stage, *tools, maxTurns=MAX_TURNS) as daemon:
        if refusal(stage, *tools):
            assert_cannot_run(stage, daemon)
            matrix.note(stage.host.name, "hostile: options of git", "refused")
            return
        led = words.put(stage.project / "sub" / ".git", f"gitdir: {stage.project}/evil")
        tried = [*(words.run(line) for line in WRITING_LINES), led]
        run = fire(stage, daemon, *tried, words.run("git status"), words.run("git log"))
        assert (run["state"], run["answer"]) == ("done", ANSWER), run
        expected = [f"{words.execute} {line}" for line in WRITING_LINES]
        assert run["denied"][: len(expected)] == expected
        assert [each.endswith("sub/.git") for each in run["denied"][len(expected) :]] == [True]
        assert "with a submodule" in results(stage)[-1]
        assert not (stage.project / "made").exists()
        assert_no_effect(stage, daemon, trap)
    trap.run_git_plainly()
    assert trap.sprung == frozenset()
    matrix.note(stage.host.name, "hostile: options of git", "denied")


def test_run_that_edits_leaves_nothing_that_is_obeyed_later(bare_stage: Stage, trap: Trap, matrix: Matrix) -> None:
    """The person's next `git status`, and their next session, would do what a message has planted."""
    stage = bare_stage
    trap.clone()
    files = {**planted(trap), MADE: "made"}
    with ruled(stage, "edit_file", maxTurns=MAX_TURNS) as daemon:
        if refusal(stage, "edit_file"):
            assert_cannot_run(stage, daemon)
            matrix.note(stage.host.name, "hostile: planted by edits", "refused")
            return
        folder = Path() if patches(stage) else stage.project
        words = WORDS[stage.host.name]
        run = fire(stage, daemon, *(words.put(folder / path, text) for path, text in files.items()))
        record = {each["path"]: each for each in daemon.call("run", run=run["id"])["changes"]["files"]}
        assert (run["state"], run["answer"]) == ("failed", ANSWER), run
        assert run["reason"].startswith("it changed what a run may not change, and that was put back: evil/")
        denied = [each.rpartition(" ")[2].removeprefix(f"{stage.project}/") for each in run["denied"]]
        assert denied == list(HELD)
        assert {path for path, each in record.items() if each["is_undone"]} >= set(PLAIN)
        assert record[MADE]["change"] == "added"
        assert record[MADE]["diff"].startswith("@@ -0,0 +1,1 @@\n+made")
        assert_no_effect(stage, daemon, trap)
    assert [path for path in HELD if not was_there(path) and (stage.project / path).exists()] == []
    assert (stage.project / "sub" / ".git").read_text(encoding="utf-8") == "gitdir: ../.git/modules/sub\n"
    trap.run_git_plainly()
    assert (trap.sprung, trap.heard) == (frozenset(), [])
    matrix.note(stage.host.name, "hostile: planted by edits", "held or put back")


def planted(trap: Trap) -> Mapping[str, str]:
    """Return files for a clean clone, from which git would start a program, and agents would take orders."""
    for name in ("deep/down", "docs", "evil/objects", "evil/refs", "new"):
        (trap.project / name).mkdir(parents=True, exist_ok=True)  # some hosts make files only in folders that are there
    settings = dict.fromkeys((".GIT/config", "lib/.git/config", ".git/config"), trap.settings("planted"))
    elsewhere = dict.fromkeys(("sub/.git", "new/.git", "new/.GIT"), f"gitdir: {trap.project}/evil\n")
    plain = {"evil/HEAD": "ref: refs/heads/main\n", "evil/config": trap.plain_settings("planted")}
    return {**dict.fromkeys(HELD, "evil"), **elsewhere, **settings, **plain}


def was_there(path: str) -> bool:
    """Whether a clean clone has a file."""
    return path in {"sub/.git", ".git/config", ".git/modules/sub/config"}


def patches(stage: Stage) -> bool:
    """Whether the host changes files with patches; it then has a model that does."""
    file = stage.user / ".codex" / "config.toml"
    if not file.exists():
        return False
    file.write_text(file.read_text(encoding="utf-8").replace(MODEL, PATCHING), encoding="utf-8")
    return True


# What a shell tries: it leaves scripts behind in several ways, and asks for rules of its own while it runs.
ATTACK: Final = """\
setsid -f env -i bash {folder}/left.sh $1-session >/dev/null 2>&1 </dev/null
(env -i setsid nohup bash {folder}/left.sh $1-nohup >/dev/null 2>&1 </dev/null &)
{python} -I -S {folder}/daemonise.py {folder}/left.sh $1-twice
(env -i setsid bash {folder}/reload.sh $1 >/dev/null 2>&1 </dev/null &)
for name in session nohup twice code; do
  for each in $(seq 600); do test -e {folder}/note.$1-$name && break; sleep 0.05; done
done
test $1 = ends || {python} -I -S {folder}/kill.py
"""
LEFT: Final = """\
trap '' TERM HUP INT
echo $$ > {folder}/note.$1
until test -e {folder}/go; do sleep 0.05; done
{harken} send outlived
"""
RELOAD: Final = """\
echo '{rules}' > {home}/triggers.json
{harken} send in-your-name
{harken} rules reload
echo $? > {folder}/code~; mv {folder}/code~ {folder}/note.$1-code
"""
DAEMONISE: Final = """\
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
os.execve("/bin/bash", ["bash", *sys.argv[1:]], {})
"""
KILL: Final = """\
import os, signal
pid = os.getpid()
while pid > 1:
    with open(f"/proc/{pid}/cmdline", "rb") as file: words = file.read()
    if b"/runs/reaper.py" in words: os.kill(pid, signal.SIGKILL)
    with open(f"/proc/{pid}/stat") as file: pid = int(file.read().rpartition(")")[2].split()[1])
"""


def arm(stage: Stage) -> None:
    """Put what a shell runs into the folder."""
    harken = shlex.join([sys.executable, "-I", "-m", "harken", "--home", str(stage.harken_home)])
    rules = json.dumps({"rules": [{"name": "planted", "mode": "notify", "channel": "*"}]})
    filled = {"folder": stage.project, "home": stage.harken_home, "python": sys.executable}
    for name, text in {"attack.sh": ATTACK, "left.sh": LEFT, "reload.sh": RELOAD}.items():
        (stage.project / name).write_text(text.format(**filled, harken=harken, rules=rules), encoding="utf-8")
    (stage.project / "daemonise.py").write_text(DAEMONISE, encoding="utf-8")
    (stage.project / "kill.py").write_text(KILL, encoding="utf-8")


def test_shell_leaves_nobody_behind_and_is_never_the_person(bare_stage: Stage, trap: Trap, matrix: Matrix) -> None:
    """A granted shell is not fenced, but what it starts ends with the run, also when it kills what stands above it."""
    stage = bare_stage
    arm(stage)
    with ruled(stage, "shell") as daemon:
        if refusal(stage, "shell"):
            assert_cannot_run(stage, daemon)
            matrix.note(stage.host.name, "hostile: left behind by a shell", "refused")
            return
        # Only Codex has a sandbox: from there neither the daemon nor what stands above a run is reached.
        is_apart = stage.host.name == "codex"
        words = WORDS[stage.host.name]
        for name, end in {"ends": ("done", 0), "kills": ("done", 0) if is_apart else ("failed", -9)}.items():
            line = f"bash {stage.project}/attack.sh {name}"
            run = fire(stage, daemon, words.run(line))
            assert (run["state"], run["exit_code"]) == end, run
            if end == ("done", 0) or stage.host.name != "opencode":  # that one tells of a call when it is over
                (asked,) = [each for each in run["output"] if each["kind"] == "tool"]
                assert (asked["tool"], line in asked["text"]) == (words.execute, True)
            told = {each["path"]: each["diff"].rpartition("+")[2] for each in run["changes"]["files"]}
            assert told.keys() == {f"note.{name}-{way}" for way in ("session", "nohup", "twice", "code")}
            assert told[f"note.{name}-code"] == (UNREACHED if is_apart else REFUSED)
            assert is_apart or f"run:{run['id']}" in senders(daemon)
            assert_no_effect(stage, daemon, trap)
        (stage.project / "go").touch()
        assert "outlived" not in texts(daemon)
    matrix.note(stage.host.name, "hostile: left behind by a shell", "ended")
