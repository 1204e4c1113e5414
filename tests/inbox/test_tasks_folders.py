"""Whose task a session is: its folder decides, without configuration, while it runs and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harken.errors import Conflict, UserError
from harken.inbox.tasks import NewTask
from harken.model import INBOX
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop, says


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """No tasks yet."""
    async with open_workshop(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("inside", ["", "/", "/src", "/src/deep/er", "/../api", "/./src"])
async def test_a_session_in_the_folder_of_a_task_is_the_tasks(shop: Workshop, inside: str) -> None:
    """Wherever in it: agents are started in sub-folders too."""
    api = await shop.new("api")
    session = shop.session(api.dir + inside)
    assert (session.consumer, session.mailboxes) == (api.consumer, (api.mailbox,))


@pytest.mark.parametrize("beside", ["api-2", "api2", "ap", "apis/api", "API", ""])
async def test_a_folder_that_is_only_named_alike_is_not_the_tasks(shop: Workshop, beside: str) -> None:
    """A path is not a string: `/w/api-2` is not in `/w/api`, and what is around a task is not in it either."""
    await shop.new("api")
    session = shop.session(shop.folder(beside))
    assert (session.consumer, session.mailboxes) == ("claude-code", (INBOX,))


async def test_of_a_task_inside_another_the_inner_one_is_meant(shop: Workshop) -> None:
    """Worktrees are often made inside the repository; in whatever order they were made."""
    inner = await shop.new("inner", folder=shop.folder("repo/.trees/inner"))
    outer = await shop.new("outer", folder=shop.folder("repo"))
    innermost = await shop.new("innermost", folder=shop.folder("repo/.trees/inner/a/b"))
    here = {name: shop.session(task.dir) for name, task in (("i", inner), ("o", outer), ("m", innermost))}
    assert {name: session.consumer for name, session in here.items()} == {
        "i": inner.consumer,
        "o": outer.consumer,
        "m": innermost.consumer,
    }
    await shop.tasks.finish(OWNER, inner.id)
    assert here["i"].consumer == outer.consumer
    assert here["m"].consumer == innermost.consumer


async def test_a_folder_that_is_reached_by_a_link_is_the_same_folder(shop: Workshop) -> None:
    """A shell keeps the path by which it came; the system says another."""
    api = await shop.new("api")
    link = shop.root / "shortcut"
    link.symlink_to(api.dir)
    assert shop.session(str(link)).consumer == api.consumer
    assert shop.session(str(link / "src")).consumer == api.consumer


async def test_a_task_whose_folder_was_named_by_a_link_has_its_sessions(shop: Workshop) -> None:
    """Programs name their folder without links: a task that kept the link would never have a session."""
    real, link = shop.folder("real"), shop.root / "shortcut"
    link.symlink_to(real)
    api = await shop.new("api", folder=str(link))
    assert shop.session(real).consumer == api.consumer
    assert shop.session(str(link)).consumer == api.consumer


@pytest.mark.parametrize("other", ["{w}/api/", "{w}/api/.", "{w}/web/../api", "{w}/shortcut", "{w}//api"])
async def test_a_folder_has_one_open_task_however_it_is_written(shop: Workshop, other: str) -> None:
    """Two tasks for one folder: of the second nobody would ever read the mail."""
    api = await shop.new("api")
    shop.folder("web")
    (shop.root / "shortcut").symlink_to(api.dir)
    with pytest.raises(Conflict, match="api"):
        await shop.new("second", folder=other.format(w=shop.root))
    assert [each.task.id for each in await shop.tasks.list()] == ["api"]


@pytest.mark.parametrize("folder", ["", "api", "./api", "~/api", "../api"])
async def test_a_folder_that_depends_on_where_one_is_is_refused(shop: Workshop, folder: str) -> None:
    """The daemon is somewhere else than whoever asks."""
    with pytest.raises(UserError) as caught:
        await shop.tasks.new(OWNER, NewTask(title="API", dir=folder))
    assert caught.value.hint
    assert await shop.tasks.list() == []


async def test_a_session_that_was_there_before_becomes_the_tasks_and_goes_back(shop: Workshop) -> None:
    """People begin to work and then make it a task; after `done` the same session is an ordinary one again."""
    folder = shop.folder("api")
    session = shop.session(folder)
    await shop.inbox.send(OWNER, "for whoever is here")
    assert await shop.pull(session) == ["for whoever is here"]
    api = await shop.new("api", folder=folder)
    assert (session.consumer, session.mailboxes) == (api.consumer, (api.mailbox,))
    await shop.tasks.send(OWNER, "api", "for the task")
    assert await shop.pull(session) == ["for the task"]
    await shop.tasks.finish(OWNER, "api")
    assert (session.consumer, session.mailboxes) == ("claude-code", (INBOX,))


async def test_what_a_session_had_not_proven_when_it_became_the_tasks_is_offered_again(shop: Workshop) -> None:
    """It reads something else now and proves nothing of before: the mail of the inbox must not be lost with it."""
    folder = shop.folder("api")
    session, other = shop.session(folder), shop.session("/")
    await shop.inbox.send(OWNER, "for whoever is here")
    assert await shop.pull(session) == ["for whoever is here"]
    assert await shop.pull(other) == []
    await shop.new("api", folder=folder)
    assert await shop.pull(other) == ["for whoever is here"]


async def test_the_command_line_knows_its_task_by_its_folder(shop: Workshop) -> None:
    """A person in a task's folder, by whatever path, means that task."""
    api = await shop.new("api")
    link = shop.root / "shortcut"
    link.symlink_to(api.dir)
    for cwd in (api.dir, f"{api.dir}/src", str(link)):
        assert shop.tasks.own(OWNER, cwd) == api
    for cwd in ("", "/", f"{api.dir}-2"):
        with pytest.raises(UserError) as caught:
            shop.tasks.own(OWNER, cwd)
        assert "api" in caught.value.hint


async def test_the_folder_of_a_task_that_is_done_is_nobodys(shop: Workshop) -> None:
    """Nobody can be in a task that is over; and a new task may have the folder."""
    api = await shop.new("api")
    session = shop.session(api.dir)
    await shop.tasks.finish(OWNER, "api")
    with pytest.raises(UserError):
        shop.tasks.own(says(session), api.dir)
    again = await shop.new("again", folder=api.dir)
    assert session.consumer == again.consumer


async def test_tasks_are_known_again_after_a_restart(tmp_path: Path) -> None:
    """The first session after a restart is its task's at once."""
    async with open_workshop(tmp_path) as shop:
        api = await shop.new("api")
        await shop.tasks.send(OWNER, "api", "hello")
    async with open_workshop(tmp_path) as shop:
        assert await shop.check(shop.session(api.dir)) == ["hello"]
