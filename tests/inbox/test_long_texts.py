"""A text that is too long: whoever says it is told, nothing changes, and for a task it can go as a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import anyio
import pytest

from harken.errors import Conflict, Forbidden, NotFound, TooLong, UserError
from harken.inbox.taskbook import MAX_FILE_BYTES, write_text
from harken.inbox.tasks import MAX_TITLE, NewTask
from harken.ingest.policy import MAX_SAID_CHARS
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop, says

LONG = "x" * (MAX_SAID_CHARS + 1)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """No tasks yet."""
    async with open_workshop(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("unit", ["x", "ß", "日", "😀"])
async def test_text_at_the_limit_is_stored_in_full_and_one_more_character_is_refused(shop: Workshop, unit: str) -> None:
    """What is accepted is what was said, to the last character; the limit counts characters, not bytes."""
    sent = await shop.inbox.send(OWNER, unit * MAX_SAID_CHARS)
    assert (sent.message.text, sent.message.cut_from) == (unit * MAX_SAID_CHARS, None)
    before = await shop.everything()
    with pytest.raises(TooLong, match="at most 64,000 characters, and this has 64,001") as refused:
        await shop.inbox.send(OWNER, unit * (MAX_SAID_CHARS + 1))
    assert refused.value.as_dict() == {
        "code": "too_long",
        "message": "A message has at most 64,000 characters, and this has 64,001.",
        "hint": "Send it in parts, or put it in a file and name that file.",
        "length": MAX_SAID_CHARS + 1,
        "limit": MAX_SAID_CHARS,
        "can_be_file": False,
    }
    assert await shop.everything() == before


async def test_person_is_offered_to_send_it_as_a_file_to_a_task_and_an_agent_to_write_one(shop: Workshop) -> None:
    """The hint is the next step, and an agent has a folder of its own to write to."""
    api, web = await shop.new("api"), await shop.new("web", "api")
    before = await shop.everything()
    with pytest.raises(TooLong) as refused:
        await shop.tasks.send(OWNER, api.id, LONG)
    assert (refused.value.can_be_file, "--as-file" in refused.value.hint) == (True, True)
    session = shop.session(web.dir)
    before = await shop.everything()
    with pytest.raises(TooLong) as told:
        await shop.tasks.send_to_peer(says(session), LONG)
    assert told.value.can_be_file is False
    assert told.value.hint == "Write it to a file in your folder, and name that file in a shorter message."
    assert await shop.everything() == before


async def test_reply_that_is_too_long_is_refused_and_the_message_stays_open(shop: Workshop) -> None:
    """A message that counts as answered by half an answer would never be answered."""
    sent = await shop.inbox.send(OWNER, "why?")
    before = await shop.everything()
    with pytest.raises(TooLong, match="A reply has at most 64,000 characters, and this has 64,001"):
        await shop.inbox.reply(OWNER, sent.message.id, LONG)
    assert await shop.everything() == before


async def test_task_with_a_prompt_or_a_title_that_is_too_long_is_not_made(shop: Workshop) -> None:
    """Half a task, without what it is to do, is worse than none; and a title that is cut says something else."""
    for asked in (
        NewTask(title="api", id="api", dir=shop.folder("api"), prompt=LONG),
        NewTask(title="t" * (MAX_TITLE + 1), id="api", dir=shop.folder("api")),
    ):
        with pytest.raises(TooLong):
            await shop.tasks.new(OWNER, asked)
        assert await shop.tasks.list() == []
    made = await shop.tasks.new(OWNER, NewTask(title="t" * MAX_TITLE, id="api", dir=shop.folder("api")))
    assert made.task.title == "t" * MAX_TITLE


async def test_names_that_could_not_be_kept_whole_are_refused(shop: Workshop) -> None:
    """Routes and rules look at them: a name that was cut is another one."""
    with pytest.raises(TooLong, match="name of a sender"):
        await shop.inbox.send(OWNER, "hello", sender="s" * 129)
    with pytest.raises(TooLong, match="name of a channel"):
        await shop.inbox.send(OWNER, "hello", channel="c" * 129)


async def test_text_goes_as_a_private_file_that_the_message_names(shop: Workshop) -> None:
    """The agent of the task reads it there, word for word; nobody else does, and git does not see it."""
    api = await shop.new("api")
    await anyio.run_process(["git", "init", "-q", api.dir])
    text = "Grüße ✓ \x1b[31m\n" + "x" * 200_000
    sent = await shop.tasks.send(OWNER, api.id, text, as_file=True)
    file = Path(api.dir) / sent.file
    assert file.parent == Path(api.dir) / ".harken" / "inbox"
    assert file.read_bytes() == text.encode()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert sent.message.text.splitlines()[0] == (
        f"A text of {len(text):,} characters for you is in a file in this task's folder: {sent.file}"
    )
    assert sent.message.text.splitlines()[1].startswith("It begins: Grüße ✓ xxx")
    assert (await anyio.run_process(["git", "-C", api.dir, "status", "--porcelain"])).stdout == b""


async def test_same_text_sent_again_is_one_file_and_one_message(shop: Workshop) -> None:
    """A command whose answer was lost asks again."""
    api = await shop.new("api")
    first = await shop.tasks.send(OWNER, api.id, LONG, key="k", as_file=True)
    again = await shop.tasks.send(OWNER, api.id, LONG, key="k", as_file=True)
    assert (again.is_new, again.file, again.message.id) == (False, first.file, first.message.id)
    assert [each.name for each in (Path(api.dir) / first.file).parent.glob("*.txt")] == [Path(first.file).name]


async def test_file_of_an_agent_is_neither_overwritten_nor_believed(shop: Workshop) -> None:
    """Whatever stands in that folder under the same name stays, and what was sent is read whole."""
    api = await shop.new("api")
    first = Path(api.dir) / (await shop.tasks.send(OWNER, api.id, LONG, as_file=True)).file
    first.write_text("changed by the agent")
    second = Path(api.dir) / (await shop.tasks.send(OWNER, api.id, LONG, as_file=True)).file
    assert second != first
    assert (first.read_text(), second.read_text()) == ("changed by the agent", LONG)


@pytest.mark.parametrize("link", [".harken", ".harken/inbox"])
async def test_link_in_the_folder_is_not_followed(shop: Workshop, tmp_path: Path, link: str) -> None:
    """The agent works there: a link of its own would let it write wherever the daemon may."""
    api = await shop.new("api")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = Path(api.dir) / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    before = await shop.everything()
    with pytest.raises(Conflict, match=r"No file can be written into \.harken/inbox"):
        await shop.tasks.send(OWNER, api.id, LONG, as_file=True)
    assert list(elsewhere.iterdir()) == []
    assert await shop.everything() == before


async def test_link_or_pipe_with_the_name_of_the_file_is_left_alone(shop: Workshop, tmp_path: Path) -> None:
    """It can be foreseen by whoever knows the text: neither is it written to, nor is it waited for."""
    api = await shop.new("api")
    sent = await shop.tasks.send(OWNER, api.id, LONG, as_file=True)
    (Path(api.dir) / sent.file).unlink()
    (Path(api.dir) / sent.file).symlink_to(tmp_path / "target")
    beside = Path(api.dir) / sent.file.replace(".txt", "-2.txt")
    os.mkfifo(beside)
    again = await shop.tasks.send(OWNER, api.id, LONG, as_file=True)
    assert again.file.endswith("-3.txt")
    assert not (tmp_path / "target").exists()


async def test_only_the_person_puts_files_and_only_into_an_open_task(shop: Workshop) -> None:
    """The daemon may write where an agent's own sandbox does not let it."""
    api, web = await shop.new("api"), await shop.new("web", "api")
    session = shop.session(web.dir)
    with pytest.raises(Forbidden):
        await shop.tasks.send(says(session), api.id, LONG, as_file=True)
    with pytest.raises(UserError, match="Only a task has a folder"):
        await shop.inbox.write_as_file(OWNER, "inbox", LONG)
    await shop.tasks.finish(OWNER, api.id)
    with pytest.raises(Forbidden, match="is done"):
        await shop.tasks.send(OWNER, api.id, LONG, as_file=True)
    assert not (Path(api.dir) / ".harken").exists()


async def test_folder_that_is_missing_is_said(shop: Workshop) -> None:
    """A worktree may have been removed by hand."""
    api = await shop.new("api")
    await anyio.Path(api.dir).rmdir()
    with pytest.raises(NotFound, match="folder of the task is missing"):
        await shop.tasks.send(OWNER, api.id, LONG, as_file=True)


def test_nothing_is_written_into_a_home_of_harken(tmp_path: Path) -> None:
    """A task may have the person's own folder, where `.harken` is the home."""
    (tmp_path / ".harken").mkdir()
    (tmp_path / ".harken" / "harken.db").touch()
    with pytest.raises(Conflict, match="a home of Harken"):
        write_text(str(tmp_path), "long", date(2026, 1, 5))
    assert [path.name for path in (tmp_path / ".harken").iterdir()] == ["harken.db"]


def test_file_has_a_bound_too(tmp_path: Path) -> None:
    """A disk is filled by a mistake in a script sooner than by anything else."""
    with pytest.raises(TooLong, match="at most 8,388,608 bytes"):
        write_text(str(tmp_path), "x" * (MAX_FILE_BYTES + 1), date(2026, 3, 1))
    assert list(tmp_path.iterdir()) == []
