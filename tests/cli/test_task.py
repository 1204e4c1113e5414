"""`harken task` and the mail of tasks as a person meets them: a real daemon, real git, and stand-ins for agents."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.config.home import Home
from harken.control.client import DaemonClient
from harken.testing.daemon import start_harken
from harken.workspaces.tasks import quoted
from tests.cli.rig import COMMAND, SECONDS, Json, Outcome, Rig
from tests.cli.test_as_agent import hosting
from tests.examples import examples
from tests.loss.rig import until
from tests.workspaces.repos import PERSON, commit, filtered, git, repository

USER_ERROR, NOT_FOUND, CONFLICT, REFUSED = 2, 3, 4, 7
OPENING = "Begin with the messages that wait for this task."
AGENT = '#!/bin/sh\n{ pwd; printf "%s\\n" "$@"; } > "$HOME/ran.tmp"; mv "$HOME/ran.tmp" "$HOME/ran"\n'


@pytest.fixture
def person(rig: Rig, tmp_path: Path) -> Iterator[Rig]:
    """Commands of a person with an empty home, git, and an opencode that writes down how it was started."""
    user, programs = tmp_path / "user", tmp_path / "bin"
    user.mkdir()
    programs.mkdir()
    (programs / "opencode").write_text(AGENT)
    (programs / "opencode").chmod(0o755)
    path = f"{programs}:{os.defpath}"
    yield Rig(rig.home, {**PERSON, "HOME": str(user), "PATH": path, "TMUX": "", "TMUX_TMPDIR": str(tmp_path)})
    with DaemonClient(Home(rig.home), can_start=False) as daemon:
        for task in daemon.ask("task_list", all=True)["tasks"]:
            daemon.ask("task_done", task=task["id"])
            daemon.ask("task_rm", task=task["id"])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository."""
    return repository(tmp_path / "my app")


def inside(rig: Rig, folder: Path, *words: str, stdin: str = "") -> Outcome:
    """Run a command in a folder."""
    return rig.run(*words, stdin=stdin, cwd=folder)


def at_terminal(rig: Rig, answer: bytes, *words: str) -> tuple[int, str]:
    """Run a command at a terminal, type an answer when it asks, and return the exit code and what it printed."""
    main, side = pty.openpty()
    process = start_harken([*COMMAND, *words], stdin=side, stdout=side, stderr=side, env=rig.environment)
    os.close(side)
    said = b""
    try:
        while data := os.read(main, 65_536):
            is_asked = b"]:" in said
            said += data
            if b"]:" in said and not is_asked:
                os.write(main, answer)
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(main)
    return process.wait(timeout=SECONDS), said.decode().replace("\r\n", "\n")


def new(rig: Rig, folder: Path, title: str, *words: str) -> Json:
    """Make a task."""
    return rig.json("task", "new", title, "--dir", str(folder), *words)


def ids(rig: Rig, *words: str) -> list[str]:
    """Return the ids of the tasks."""
    return [task["id"] for task in rig.json("task", "list", *words)["tasks"]]


def test_a_task_has_a_worktree_a_branch_and_a_mailbox(person: Rig, repo: Path) -> None:
    """One wants all three when one starts something beside something else."""
    made = new(person, repo, "Fix the login page", "--prompt", "It is broken.")
    folder = repo.with_name("my app.worktrees") / made["id"]
    facts = {name: made[name] for name in ("id", "title", "dir", "branch", "repo", "state", "peers", "mailbox")}
    assert facts == {
        "id": "fix-login-page",
        "title": "Fix the login page",
        "dir": str(folder),
        "branch": "task/fix-login-page",
        "repo": str(repo),
        "state": "queued",
        "peers": [],
        "mailbox": "task:fix-login-page",
    }
    assert (made["has_worktree"], made["has_folder"], made["pending"]) == (True, True, 1)
    assert git(folder, "branch", "--show-current") == "task/fix-login-page\n"
    shown = person.ok("task", "show", "fix-login-page")
    assert "mailbox  task:fix-login-page, 1 unread" in shown
    row = person.ok("task", "list").splitlines()[-1]
    assert row.split() == ["fix-login-page", "queued", "1", "Fix", "the", "login", "page", *str(folder).split()]


def test_a_folder_is_used_as_it_is(person: Rig, repo: Path, tmp_path: Path) -> None:
    """Not everything is a repository, and not everybody wants worktrees."""
    plain = tmp_path / "plain folder"
    plain.mkdir()
    made = new(person, plain, "Write the talk")
    assert (made["dir"], made["branch"], made["repo"], made["has_worktree"]) == (str(plain), "", "", False)
    here = new(person, repo, "Tidy up", "--here")
    assert (here["dir"], here["branch"], here["has_worktree"]) == (str(repo), "main", False)
    assert person.run("task", "new", "x", "--dir", str(plain), "--branch", "b").code == USER_ERROR
    done = person.run("task", "new", "x", "--dir", person.extra["HOME"])
    assert (done.code, "--here" in done.err) == (USER_ERROR, True)
    assert person.run("task", "done", made["id"], "--remove-worktree").code == USER_ERROR


def test_git_that_fails_leaves_no_task_behind(person: Rig, repo: Path) -> None:
    """A task without its folder would only be in the way; git's own words say what to do."""
    git(repo, "branch", "task")
    done = person.run("task", "new", "Will not work", "--dir", str(repo))
    assert done.code == USER_ERROR
    assert "git could not make the worktree" in done.err
    assert "refs/heads/task" in done.err
    assert ids(person, "--all") == []
    assert not repo.with_name("my app.worktrees").exists()


def test_repository_whose_settings_name_programs_is_not_checked_out_unasked(person: Rig, repo: Path) -> None:
    """It may be somebody else's, unpacked from an archive: git would run what it says."""
    filtered(repo, ': > "$HOME/reached"; cat')
    done = person.run("task", "new", "Trap", "--dir", str(repo))
    assert done.code == USER_ERROR
    assert "filter.x.smudge" in done.err
    assert "--trust-repository" in done.err
    assert ids(person, "--all") == []
    assert not (Path(person.extra["HOME"]) / "reached").exists()
    assert new(person, repo, "Mine", "--trust-repository")["id"] == "mine"


def test_nothing_that_exists_is_overwritten(person: Rig, repo: Path) -> None:
    """Both are found before anything is made."""
    (repo.with_name("my app.worktrees") / "taken").mkdir(parents=True)
    git(repo, "branch", "task/named")
    for name in ("taken", "named"):
        done = person.run("task", "new", "x", "--dir", str(repo), "--id", name)
        assert (done.code, "already" in done.err) == (CONFLICT, True)
    assert person.run("task", "new", "x", "--dir", str(repo), "--id", "../x").code == USER_ERROR
    assert ids(person) == []


def test_a_command_killed_while_git_works_leaves_what_can_be_seen_and_removed(person: Rig, repo: Path) -> None:
    """The task is known before git writes; its folder is missing, which is said, and it goes when it is told to."""
    filtered(repo, ': > "$HOME/reached"; sleep 60')
    reached = Path(person.extra["HOME"]) / "reached"
    words = [*COMMAND, "task", "new", "Slow one", "--dir", str(repo), "--trust-repository"]
    with subprocess.Popen(words, env=person.environment, start_new_session=True) as process:
        until(reached.exists, "git works", SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    assert ids(person) == ["slow-one"]
    folder = repo.with_name("my app.worktrees") / "slow-one"
    folder.rename(repo.with_name("moved away"))
    shown = person.run("task", "list")
    assert "(missing)" in shown.out
    assert "harken task rm slow-one" in shown.err
    assert person.run("task", "start", "slow-one").code == CONFLICT
    assert person.json("task", "show", "slow-one")["has_folder"] is False
    person.ok("task", "rm", "slow-one")
    assert ids(person, "--all") == []
    assert git(repo, "branch", "--list", "task/*") == ""
    assert "slow-one" not in git(repo, "worktree", "list")


def test_links_are_made_and_ended(person: Rig, repo: Path) -> None:
    """Peers know each other, whoever was made first."""
    first = new(person, repo, "Quarry")["id"]
    second = new(person, repo, "Quarryfront", "--link", first)
    assert second["peers"] == [first]
    third = new(person, repo, "Tests")["id"]
    assert person.json("task", "link", third, first, second["id"])["peers"] == [first, second["id"]]
    assert person.ok("task", "unlink", third, first) == f"{third}  peers: {second['id']}\n"
    assert person.run("task", "link", first, "nobody").code == NOT_FOUND
    assert person.run("task", "new", "x", "--dir", str(repo), "--link", "nobody").code == NOT_FOUND
    assert git(repo, "branch", "--list", "task/x") == ""


def test_mail_goes_to_tasks_and_peers_by_either_spelling(person: Rig, repo: Path) -> None:
    """The verbs have the names of the tools; the folder says whose they are."""
    back, front = new(person, repo, "River"), new(person, repo, "Riverfront", "--link", "river")
    sent = person.json("send-to-task", "river", "the", "API", "has changed")
    assert (sent["task"], sent["state"]) == ("river", "queued")
    person.ok("send_to_task", "river", "-", "--priority", "high", stdin="from a pipe\nin two lines\n")
    key = ("send-to-task", "river", "only once", "--id", "k-1")
    assert person.json(*key)["id"] == person.json(*key)["id"]
    done = inside(person, Path(front["dir"]), "send-to-peer", "hello, river")
    assert (done.code, "task:river #" in done.out) == (0, True)
    assert person.ok("inbox-status", "river") == "4 unread\n"
    assert json.loads(inside(person, Path(back["dir"]), "inbox_status", "--json").out) == {"pending": 4}
    peeked = person.json("check-inbox", "river", "--peek")
    assert len(peeked["messages"]) == 4
    shown = inside(person, Path(back["dir"]), "check-inbox").out
    assert "(high)" in shown.splitlines()[0]
    assert "\n    in two lines\n" in shown
    assert person.ok("inbox-status", "river") == "0 unread\n"
    assert "Nothing waits for river" in person.run("check_inbox", "river").err


def test_mail_without_a_task_text_or_recipient_is_refused(person: Rig, repo: Path, tmp_path: Path) -> None:
    """Each error says what exists."""
    new(person, repo, "Summit")
    done = inside(person, tmp_path, "check-inbox")
    assert (done.code, "summit" in done.err) == (USER_ERROR, True)
    assert person.run("send-to-task", "nobody", "x").code == NOT_FOUND
    assert person.run("send-to-task", "summit", stdin="").code == USER_ERROR
    assert inside(person, tmp_path, "send-to-peer", "x").code == USER_ERROR
    person.ok("task", "done", "summit", "--keep-worktree")
    assert person.run("send-to-task", "summit", "too late").code == REFUSED


def test_what_cannot_be_printed_was_not_seen(person: Rig, repo: Path) -> None:
    """A message counts as seen when it was on the screen."""
    new(person, repo, "Tundra")
    person.ok("send-to-task", "tundra", "important")
    with Path("/dev/full").open("wb") as full:
        assert person.run("check-inbox", "tundra", stdout=full).code != 0
    again = person.json("check-inbox", "tundra")["messages"]
    assert [(message["body"], message["repeat"]) for message in again] == [("important", True)]


def test_a_hostile_title_does_nothing_to_the_terminal(person: Rig, tmp_path: Path) -> None:
    """Titles may come from anywhere."""
    (tmp_path / "x").mkdir()
    new(person, tmp_path / "x", "a\x1b]0;owned\x07b\u202ec\nharken: fake", "--id", "evil")
    for words in (("task", "list"), ("task", "show", "evil"), ("task", "list", "--json")):
        shown = person.run(*words).out
        assert [char for char in shown if not (char.isprintable() or char == "\n")] == []
        assert not any(line.startswith("harken:") for line in shown.splitlines())


def test_start_prints_a_command_that_a_shell_understands(person: Rig, repo: Path) -> None:
    """A folder with a space, arguments of the person's own; no word of the mail is in it."""
    made = new(person, repo, "Willow", "--agent", "opencode", "--prompt", "the secret plan")
    line = person.ok("task", "start", "willow")
    assert line == f"cd {shlex.quote(made['dir'])} && opencode --prompt {shlex.quote(OPENING)}\n"
    assert "secret" not in line
    subprocess.run(["/bin/sh", "-c", line], env=person.environment, check=True, timeout=SECONDS)
    assert _started(person) == [made["dir"], "--prompt", OPENING]
    person.ok("check-inbox", "willow")
    told = person.ok("task", "start", "--json", "willow", "--", "--model", "a b")
    assert json.loads(told)["argv"] == ["opencode", "--model", "a b"]
    done = person.run("task", "start", "willow", "--agent", "qwen", "--print")
    assert (done.out.endswith(" && qwen\n"), "npm install" in done.err) == (True, True)
    assert person.run("task", "start", "willow", "--agent", "emacs").code == NOT_FOUND
    new(person, repo, "Nobody's")
    assert "--agent" in person.run("task", "start", "nobody-s").err


def test_a_hostile_folder_does_nothing_to_the_terminal_that_shows_its_command(person: Rig, tmp_path: Path) -> None:
    """Archives make folders of any name; what is printed is copied, so it must still mean that folder."""
    folder = tmp_path / "it's\x1b[31m\u202e a\\b\nharken: fake"
    folder.mkdir()
    new(person, folder, "Evil", "--id", "evil-start", "--agent", "opencode")
    line = person.run("task", "start", "evil-start", "--print", "--", "a\x07b").out
    assert [char for char in line.removesuffix("\n") if not char.isprintable()] == []
    subprocess.run(["/usr/bin/env", "bash", "-c", line], env=person.environment, check=True, timeout=SECONDS)
    assert "\n".join(_started(person)) == f"{folder}\na\x07b"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=examples(50), deadline=None)
def test_every_word_comes_through_a_shell_as_it_was_and_can_be_printed(word: str) -> None:
    """The quoting is our own where the library's would print what is in the word."""
    written = quoted(word)
    assert written.isprintable()
    command = ["/usr/bin/env", "bash", "-c", f"printf %s {written}"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS)
    assert done.stdout == word.encode()


def test_start_becomes_the_agent_at_a_terminal(person: Rig, repo: Path) -> None:
    """One command, and one is there; what is not installed is said before anything else."""
    made = new(person, repo, "Yonder", "--agent", "opencode")
    code, _ = at_terminal(person, b"", "task", "start", "yonder", "--", "--continue")
    assert code == 0
    assert _started(person) == [made["dir"], "--continue"]
    code, said = at_terminal(person, b"", "task", "start", "yonder", "--agent", "codex")
    assert (code, "npm install -g @openai/codex" in said) == (NOT_FOUND, True)
    person.ok("task", "done", "yonder", "--keep-worktree")
    assert person.run("task", "start", "yonder").code == CONFLICT


def test_start_means_the_task_of_the_folder_whatever_the_shell_names(person: Rig, repo: Path) -> None:
    """A shell that was made for one task may start another; the agent would be refused in a folder that is not its."""
    made = new(person, repo, "Wren", "--agent", "opencode")
    agent = Path(person.extra["PATH"].partition(":")[0]) / "opencode"
    agent.write_text(AGENT.replace("pwd;", 'pwd; echo "${HARKEN_TASK-none}";'))
    elsewhere = Rig(person.home, {**person.extra, "HARKEN_TASK": "another"})
    code, _ = at_terminal(elsewhere, b"", "task", "start", "wren")
    assert code == 0
    assert _started(person)[:2] == [made["dir"], "none"]


def _started(person: Rig) -> list[str]:
    """Wait for the agent, and return where and with what it was started."""
    ran = Path(person.extra["HOME"]) / "ran"
    until(ran.exists, "the agent is there", SECONDS)
    lines = ran.read_text().splitlines()
    ran.unlink()
    return lines


def test_window_of_tmux_that_an_agent_has_opened_is_the_persons(person: Rig, repo: Path) -> None:
    """The server that begins with it outlives the agent, and gives its environment to every shell in it."""
    stay = Path(person.extra["PATH"].partition(":")[0]) / "opencode"
    stay.write_text(AGENT.replace("pwd;", 'pwd; echo "${CLAUDECODE-none} ${CODEX_THREAD_ID-none}";') + "read line\n")
    task = new(person, repo, "Petrel", "--agent", "opencode")
    shell = Rig(person.home, {**person.extra, "CLAUDECODE": "1", "CODEX_THREAD_ID": "01a1"})
    try:
        shell.ok("task", "start", "--json", task["id"], "--tmux")
        assert _started(person)[:2] == [task["dir"], "none none"]
        assert "CLAUDECODE" not in person.run("show-environment", "-g", prefix=("tmux",)).out
    finally:
        person.run("kill-server", prefix=("tmux",))


def test_start_opens_a_window_of_tmux(person: Rig, repo: Path) -> None:
    """Several agents side by side, each window named by its task."""
    stay = Path(person.extra["PATH"].partition(":")[0]) / "opencode"
    stay.write_text(AGENT + "read line\n")
    made = [new(person, repo, title, "--agent", "opencode") for title in ("Zephyr #{pid}", "Zephyrfront")]
    try:
        for task in made:
            told = person.ok("task", "start", "--json", task["id"], "--tmux", "--", "--x", "#{pid} $HOME")
            assert json.loads(told)["tmux"] == f"harken:{task['id']}"
            assert _started(person) == [task["dir"], "--x", "#{pid} $HOME"]
        listed = person.run("list-windows", "-t", "harken", "-F", "#W #{pane_current_path}", prefix=("tmux",)).out
        assert listed.splitlines() == [f"{task['id']} {task['dir']}" for task in made]
    finally:
        person.run("kill-server", prefix=("tmux",))


def test_seeding_comes_with_making_and_goes_with_the_end(person: Rig, repo: Path) -> None:
    """A host that is not connected is connected in this folder, and nobody's `git status` shows it."""
    made = new(person, repo, "Acorn", "--agent", "opencode")
    folder = Path(made["dir"])
    assert {Path(name).relative_to(folder).parts[0] for name in made["seeded"]} == {".opencode"}
    assert git(folder, "status", "--porcelain") == ""
    done = person.json("task", "done", "acorn", "--remove-worktree")
    assert (sorted(done["unseeded"]), done["is_worktree_removed"]) == (sorted(made["seeded"]), True)
    assert "harken" not in (repo / ".git" / "info" / "exclude").read_text()
    assert not folder.exists()
    assert git(repo, "branch", "--list", "task/*") == ""


def test_tasks_begun_and_ended_at_once_do_not_disturb_each_other(person: Rig, repo: Path) -> None:
    """They share the repository, what git leaves alone in it, and for some hosts the main checkout's settings."""
    names = ["fir", "oak", "yew"]
    for words in (("new", "--dir", str(repo), "--agent", "codex", "--id"), ("done", "--remove-worktree")):
        running = [
            subprocess.Popen(
                [*COMMAND, "task", *words, name, *(["x"] if words[0] == "new" else [])], env=person.environment
            )
            for name in names
        ]
        assert [process.wait(timeout=SECONDS) for process in running] == [0, 0, 0]
        is_begun = words[0] == "new"
        assert (repo / ".codex" / "hooks.json").exists() is is_begun
        kept = [path for path in (person.home / "seeded").iterdir() if path.name.partition(".")[0] in names]
        assert len(kept) == (2 * len(names) if is_begun else 0)
        assert git(repo, "status", "--porcelain") == ""
    assert "harken" not in (repo / ".git" / "info" / "exclude").read_text()
    assert git(repo, "branch", "--list", "task/*") == ""


def test_a_worktree_with_changes_is_never_removed(person: Rig, repo: Path) -> None:
    """And the task is not ended by a command that could not do all of it."""
    folder = Path(new(person, repo, "Birch")["dir"])
    (folder / "new.txt").write_text("work")
    done = person.run("task", "done", "birch", "--remove-worktree")
    assert (done.code, "new.txt" in done.err) == (CONFLICT, True)
    assert person.json("task", "show", "birch")["state"] == "queued"
    code, said = at_terminal(person, b"y\n", "task", "done", "birch")
    assert (code, "It has changes: 1 uncommitted (new.txt)" in said, "Remove" in said) == (0, True, False)
    assert (folder / "new.txt").read_text() == "work"
    (folder / "new.txt").unlink()
    assert person.json("task", "done", "birch")["is_worktree_removed"] is False
    assert person.json("task", "done", "birch", "--remove-worktree")["is_worktree_removed"] is True


def test_what_git_ignores_is_for_a_person_to_judge(person: Rig, repo: Path) -> None:
    """A file with secrets is ignored, and there is no other copy of it."""
    commit(repo, ".gitignore", "*.env\n")
    folder = Path(new(person, repo, "Cedar")["dir"])
    (folder / "prod.env").write_text("secret")
    done = person.run("task", "done", "cedar", "--remove-worktree")
    assert (done.code, "1 ignored (prod.env)" in done.err) == (CONFLICT, True)
    code, said = at_terminal(person, b"\n", "task", "done", "cedar")
    assert (code, "1 ignored (prod.env)? [y/N]:" in said) == (0, True)
    assert folder.exists()
    code, _ = at_terminal(person, b"y\n", "task", "done", "cedar", "--remove-worktree")
    assert (code, folder.exists()) == (0, False)


def test_a_clean_worktree_is_offered_to_go_and_commits_stay(person: Rig, repo: Path) -> None:
    """Finished work is on its branch, whatever becomes of the folder."""
    folder = Path(new(person, repo, "Daisy")["dir"])
    commit(folder, "work.txt")
    code, said = at_terminal(person, b"\n", "task", "done", "daisy")
    assert (code, "[Y/n]:" in said, folder.exists()) == (0, True, False)
    assert "The branch task/daisy stays: no other branch has its commits." in said
    assert git(repo, "branch", "--list", "task/*") == "  task/daisy\n"


def test_a_worktree_somebody_is_in_stays(person: Rig, repo: Path) -> None:
    """A shell or a session in a folder that is gone is of no use to anybody."""
    folder = Path(new(person, repo, "Elder")["dir"])
    done = inside(person, folder, "task", "done", "elder", "--remove-worktree")
    assert (done.code, "You are in it." in done.err) == (CONFLICT, True)
    (folder / "sub").mkdir()
    new(person, folder / "sub", "Inner", "--here")
    done = person.run("task", "done", "elder", "--remove-worktree")
    assert (done.code, "Another task is in it: inner." in done.err) == (CONFLICT, True)


def test_a_session_in_the_folder_is_the_tasks(person: Rig, repo: Path) -> None:
    """It gets the mail itself, so nobody is started for it, and its folder is not taken away from under it."""
    folder = new(person, repo, "Larch", "--agent", "opencode", "--prompt", "hello")["dir"]
    # With a shell as its parent the edge has a host of its own, and the commands here are the person's.
    own_host = ("/bin/sh", "-c", 'cd "$0" && "$@"; exit $?', folder)
    with hosting(replace(person, extra={}), prefix=own_host) as agent:
        shown = person.json("task", "show", "larch")
        assert (shown["state"], len(shown["sessions"]), shown["pending"]) == ("running", 1, 1)
        assert "running" in person.ok("task", "list")
        assert person.ok("task", "start", "larch").endswith("&& opencode\n")
        done = person.run("task", "done", "larch", "--remove-worktree")
        assert (done.code, "A session runs in it." in done.err) == (CONFLICT, True)
        taken = agent.answer(agent.ask_tool("check_inbox"))["result"]["content"][0]["text"]
        assert [message["body"] for message in json.loads(taken)] == ["hello"]
    assert Path(folder).is_dir()


def test_a_task_is_removed_only_after_its_end(person: Rig, repo: Path) -> None:
    """What waits for it would be gone without a word."""
    folder = Path(new(person, repo, "Fennel", "--prompt", "do it")["dir"])
    assert person.run("task", "rm", "fennel").code == CONFLICT
    said = person.ok("task", "done", "fennel")
    assert "What it had not seen is refused: 1 message." in said
    assert f"The worktree stays: {folder}." in said
    assert "Its worktree stays" in person.ok("task", "rm", "fennel")
    assert (ids(person, "--all"), folder.is_dir()) == ([], True)
    assert person.run("task", "rm", "fennel").code == NOT_FOUND


def test_an_agents_shell_makes_and_ends_no_tasks(person: Rig, repo: Path) -> None:
    """Whose work it is, the person decides; neither git nor any settings are touched."""
    new(person, repo, "Ginger")
    with hosting(replace(person, extra={})):
        for words in (
            ("new", "Mine", "--dir", str(repo), "--agent", "opencode"),
            ("done", "ginger"),
            ("rm", "ginger"),
        ):
            done = person.run("task", *words)
            assert done.code in {REFUSED, CONFLICT}
            assert done.out == ""
    assert ids(person) == ["ginger"]
    assert git(repo, "branch", "--list", "task/*").split() == ["+", "task/ginger"]


def test_tab_offers_tasks(person: Rig, repo: Path) -> None:
    """Ids are not to be typed."""
    new(person, repo, "Hazel")
    words = "harken task show ha"
    variables = {"_HARKEN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert replace(person, extra={**person.extra, **variables}).run().out == "plain,hazel\n"


def test_looking_at_tasks_imports_nothing_heavy(person: Rig) -> None:
    """Start-up is felt at every command."""
    done = person.run("task", "list", prefix=(sys.executable, "-X", "importtime", "-m", "harken"))
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.err.splitlines() if "|" in line}
    assert loaded & {"mcp", "anyio", "asyncio", "msgspec", "starlette", "psutil", "sqlite3"} == set()
