"""A task that is made in the page is a task that `harken task new` would have made: worktree, branch and seeds."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.loss.rig import Served
from tests.web.rig import NAVIGATION
from tests.web.test_panels import HOSTILE, Browser, Page
from tests.workspaces.repos import git, repository


@pytest.fixture
def browser(daemon: Served) -> Browser:
    """A signed-in browser and a daemon in which nothing has happened."""
    return Browser(daemon.start())


def make(browser: Browser, status: int = 200, **fields: str) -> Page:
    """Send the form, and return the page that answers."""
    own = {"Origin": browser.web.origin, "Content-Type": "application/x-www-form-urlencoded"}
    sent = urlencode(fields).encode()
    answer = browser.web.ask("POST", "/do/task", {**NAVIGATION, **browser.session, **own}, sent)
    assert answer.status == status, answer.text
    return Page(answer.text)


def test_page_makes_a_task_with_its_worktree_and_its_agent_connected_there(browser: Browser, tmp_path: Path) -> None:
    """Whoever works in the page need not go to a terminal to begin something."""
    repo = repository(tmp_path / "app")
    page = make(browser, title="Fix the login", folder=str(repo), agent="codex", prompt="Sign-in fails.", key="k1")
    folder = tmp_path / "app.worktrees" / "fix-login"
    assert git(folder, "branch", "--show-current").strip() == "task/fix-login"
    assert git(folder, "status", "--porcelain", "--untracked-files=all") == ""
    assert (folder / ".codex" / "config.toml").exists()
    assert "harken task start fix-login" in page.said
    assert "Codex is connected there: .codex/config.toml" in page.said
    task = browser.daemon.call("task_show", task="fix-login")
    assert (task["dir"], task["repo"], task["agent"], task["pending"]) == (str(folder), str(repo), "codex", 1)


def test_form_that_is_sent_twice_makes_one_task(browser: Browser, tmp_path: Path) -> None:
    """A second click, or a page that is loaded again, is no second task."""
    repo = repository(tmp_path / "app")
    pages = [make(browser, title="Once", folder=str(repo), key="k1") for _ in range(2)]
    assert pages[0].said == pages[1].said
    assert [task["id"] for task in browser.daemon.call("task_list")["tasks"]] == ["once"]


def test_what_cannot_be_made_is_said_in_the_form_and_leaves_nothing(browser: Browser, tmp_path: Path) -> None:
    """The same reasons as on the command line; what was filled in stays there."""
    repo, hooked = repository(tmp_path / "app"), repository(tmp_path / "hooked")
    git(hooked, "config", "filter.x.smudge", "touch /tmp/never")
    for fields, said in [
        ({"title": "", "folder": "{repo}"}, "A task needs a title."),
        ({"title": "Here", "folder": "."}, "A task needs a folder."),
        ({"title": "Lost", "folder": "/nowhere/at/all"}, "There is no folder /nowhere/at/all."),
        ({"title": "Where", "folder": "{repo}", "start": "v9"}, "git has no commit 'v9'."),
        ({"title": "Taken", "folder": "{repo}", "branch": "main"}, "There is a branch main already."),
        ({"title": "Odd", "folder": "{repo}", "agent": "nobody"}, "There is no host 'nobody'."),
        ({"title": "Hooked", "folder": "{hooked}"}, "could make git run programs: filter.x.smudge"),
    ]:
        sent = {name: value.format(repo=repo, hooked=hooked) for name, value in fields.items()}
        answers = {"There is": 404, "git has": 404, "There is a": 409}
        status = next((code for words, code in reversed(answers.items()) if said.startswith(words)), 422)
        page = make(browser, status, **sent)
        assert said in page.said
        assert page.all("input", name="title")[0]["value"] == sent["title"]
        assert browser.daemon.call("task_list", all=True)["tasks"] == []
        assert not (tmp_path / "app.worktrees").exists()


def test_worktree_that_git_cannot_make_takes_the_task_back(browser: Browser, tmp_path: Path) -> None:
    """A task without a folder would only be in the way."""
    repo = repository(tmp_path / "app")
    (tmp_path / "app.worktrees").write_text("a file where the folder would be")
    page = make(browser, 422, title="Stuck", folder=str(repo))
    assert f"{tmp_path / 'app.worktrees'} is not a folder." in page.said
    assert browser.daemon.call("task_list", all=True)["tasks"] == []
    assert "task/stuck" not in git(repo, "branch")


def test_folder_as_it_is_and_hostile_words_stay_words(browser: Browser, tmp_path: Path) -> None:
    """A title is shown as it is and does nothing; `is_here` writes no worktree."""
    repo = repository(tmp_path / "app")
    page = make(browser, title=HOSTILE, folder=str(repo), is_here="1")
    assert page.all("img") == page.all("style") == []
    assert [task["dir"] for task in browser.daemon.call("task_list")["tasks"]] == [str(repo)]
    assert not (tmp_path / "app.worktrees").exists()


def test_hints_name_the_fields_of_the_form(browser: Browser, tmp_path: Path) -> None:
    """Who works in the page has no options of a command: what to do next must be there."""
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "--quiet")
    page = make(browser, 422, title="First", folder=str(folder), key="k1")
    assert "has no commit yet." in page.said
    assert "Commit something first, or use the folder as it is: “Use the folder as it is”" in page.said
    page = make(browser, 422, title="First", folder=str(tmp_path), branch="b", key="k2")
    assert "Leave out “Branch” and “Begins at”." in page.said
