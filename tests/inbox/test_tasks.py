"""What people do with tasks: make, list, link, end and forget them; and what agents may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.errors import Conflict, Forbidden, HarkenError, NotFound, UserError
from harken.inbox.caller import Caller, Role
from harken.inbox.tasks import NewTask
from harken.model import Consumer, DeliveryState, TaskState
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop, says

WAIT_SECONDS = 20.0
Act = Callable[[Workshop, Caller], Awaitable[object]]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """No tasks yet."""
    async with open_workshop(tmp_path) as opened:
        yield opened


async def names(shop: Workshop, *, with_done: bool = False) -> list[str]:
    """Return which tasks there are."""
    return [each.task.id for each in await shop.tasks.list(with_done=with_done)]


# -- making --------------------------------------------------------------------------------------------------------


async def test_a_task_without_a_name_that_is_asked_for_again_is_made_once(shop: Workshop) -> None:
    """The one who lost the answer does not know the id that was made for it."""
    asked = NewTask(title="Fix the login page", dir=shop.folder("a"), prompt="Begin.")
    first = await shop.tasks.new(OWNER, asked)
    again = await shop.tasks.new(OWNER, asked)
    assert again.task == first.task
    assert [message.text for message in await shop.mail(first.task)] == ["Begin."]
    assert await names(shop, with_done=True) == ["fix-login-page"]


async def test_two_tasks_of_one_title_that_are_made_at_once_are_both_made(shop: Workshop) -> None:
    """Nobody chose the id, so nobody can be told to choose another."""
    made = list[str]()

    async def make(folder: str) -> None:
        made.append((await shop.tasks.new(OWNER, NewTask(title="API", dir=shop.folder(folder)))).task.id)

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as both:
            for folder in ("a", "b", "c"):
                both.start_soon(make, folder)
    assert sorted(made) == ["api", "api-2", "api-3"]


async def test_ids_are_never_given_out_twice(shop: Workshop) -> None:
    """Also not after the first one is done and forgotten: old messages still name it."""
    for number, expected in enumerate(("api", "api-2", "api-3")):
        assert shop.tasks.propose("API") == expected
        made = await shop.tasks.new(OWNER, NewTask(title="API", dir=shop.folder(str(number))))
        assert made.task.id == expected
        await shop.tasks.finish(OWNER, made.task.id)
        await shop.tasks.remove(OWNER, made.task.id)
    with pytest.raises(Conflict):
        await shop.new("api")


@pytest.mark.parametrize("title", ["", "  ", "\n\t", "\u200b", "\x1b"])
async def test_a_title_that_shows_nothing_is_refused(shop: Workshop, title: str) -> None:
    """People find a task by its title."""
    with pytest.raises(UserError) as caught:
        await shop.tasks.new(OWNER, NewTask(title=title, dir=shop.folder("a")))
    assert caught.value.hint
    assert await names(shop, with_done=True) == []


async def test_a_hostile_title_is_one_harmless_line(shop: Workshop) -> None:
    """It is printed in terminals and on the page."""
    title = "a\x1b[31m\nb\u202ec\x07" + "x" * 100
    made = await shop.tasks.new(OWNER, NewTask(title=title, dir=shop.folder("a")))
    shown = made.task.title
    assert len(shown) <= 121
    assert not set(shown) & {"\x1b", "\n", "\u202e", "\x07"}


async def test_a_task_with_a_peer_that_is_not_there_is_not_made(shop: Workshop) -> None:
    """Nothing by half: neither the task nor its id nor its prompt."""
    await shop.new("web")
    before = await shop.everything()
    with pytest.raises(NotFound) as caught:
        await shop.new("api", "web", "nobody", prompt="Begin.")
    assert "web" in caught.value.hint
    assert await shop.everything() == before
    assert shop.tasks.propose("api") == "api"


async def test_a_task_cannot_begin_with_a_peer_that_is_done(shop: Workshop) -> None:
    """A peer is somebody to talk to."""
    await shop.new("web")
    await shop.tasks.finish(OWNER, "web")
    with pytest.raises(Forbidden):
        await shop.new("api", "web")
    assert await names(shop) == []


# -- naming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fix-login", "task:fix-login", "Fix the login", "fix the LOGIN", " fix-login "])
async def test_a_task_is_found_by_what_people_call_it(shop: Workshop, name: str) -> None:
    """The id, its mailbox, or the title."""
    await shop.tasks.new(OWNER, NewTask(title="Fix the login", dir=shop.folder("a")))
    await shop.tasks.new(OWNER, NewTask(title="Write docs", dir=shop.folder("b")))
    assert (await shop.tasks.show(name)).task.id == "fix-login"


async def test_a_whole_id_is_never_ambiguous(shop: Workshop) -> None:
    """`api` is `api`, although `api-2` begins with it; a beginning is nobody, and what exists is listed."""
    await shop.new("api-2")
    await shop.new("api")
    assert (await shop.tasks.show("api")).task.id == "api"
    with pytest.raises(NotFound) as caught:
        await shop.tasks.show("ap")
    assert ("api" in caught.value.hint, "api-2" in caught.value.hint) == (True, True)


async def test_a_title_means_the_task_that_is_open(shop: Workshop) -> None:
    """The one before it, of the same name, is done and cannot be meant."""
    await shop.tasks.new(OWNER, NewTask(title="Fix login", dir=shop.folder("a")))
    await shop.tasks.finish(OWNER, "fix-login")
    again = await shop.tasks.new(OWNER, NewTask(title="Fix login", dir=shop.folder("b")))
    assert (await shop.tasks.show("fix login")).task.id == again.task.id


async def test_whoever_wrote_to_a_task_that_is_done_is_told(shop: Workshop) -> None:
    """An agent that waits for an answer would wait for ever."""
    api, web = await shop.new("api"), await shop.new("web", "api")
    in_api = shop.session(api.dir)
    asked = await shop.tasks.send(says(in_api), web.id, "is it ready?")
    await shop.tasks.finish(OWNER, web.id)
    (told,) = await shop.offers(in_api)
    assert (told.message.sender.id, told.message.refers_to) == ("task:web", asked.message.id)
    assert "done" in told.message.text


async def test_an_agent_does_not_take_the_mail_of_another_task(shop: Workshop) -> None:
    """That one would never see it, whether somebody works on it now or later; the person may look."""
    api, web = await shop.new("api"), await shop.new("web")
    in_api, elsewhere = shop.session(api.dir), shop.session("/", "codex")
    await shop.tasks.send(OWNER, web.id, "for web only")
    with pytest.raises(Forbidden, match="own session"):
        await shop.check(in_api, web.id)
    with pytest.raises(Forbidden, match="own session"):
        await shop.check(elsewhere, web.id)
    assert await shop.tasks.pending(says(in_api), web.id) == 1
    assert await shop.check(shop.session(web.dir)) == ["for web only"]


@pytest.mark.parametrize("name", ["nobody", "task:nobody", "%", "*", "a\0", "x" * 5000])
async def test_an_unknown_task_is_an_error_that_lists_what_exists(shop: Workshop, name: str) -> None:
    """Whoever mistyped sees at once what is meant; and a long name does not flood the terminal."""
    await shop.new("web")
    with pytest.raises(NotFound) as caught:
        await shop.tasks.show(name)
    assert "web" in caught.value.hint
    assert len(caught.value.message) < 300


async def test_without_tasks_the_error_says_how_to_make_one(shop: Workshop) -> None:
    """The first thing anybody meets."""
    with pytest.raises(NotFound) as caught:
        await shop.tasks.show("api")
    assert "harken task new" in caught.value.hint


# -- linking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "kind"), [
    ("api", "api", UserError), ("api", "nobody", NotFound), ("nobody", "api", NotFound), ("api", "old", Forbidden),
    ("old", "api", Forbidden),
])  # fmt: skip
async def test_a_link_that_makes_no_sense_is_refused(
    shop: Workshop, first: str, second: str, kind: type[HarkenError]
) -> None:
    """With itself, with nobody, with what is done: nothing changes, and the error says what to do."""
    await shop.new("api")
    await shop.new("old")
    await shop.tasks.finish(OWNER, "old")
    before = await shop.everything()
    with pytest.raises(kind) as caught:
        await shop.tasks.link(OWNER, first, second, is_on=True)
    assert caught.value.hint
    assert await shop.everything() == before


# -- ending --------------------------------------------------------------------------------------------------------


async def test_what_is_sent_while_a_task_ends_is_refused_or_not_accepted(shop: Workshop) -> None:
    """Whichever comes first, no accepted message is left waiting for somebody who never comes."""
    api = await shop.new("api")
    accepted, told = list[str](), list[str]()

    async def send(number: int) -> None:
        try:
            accepted.append((await shop.tasks.send(OWNER, "api", f"{number}")).message.text)
        except Forbidden as exc:
            told.append(exc.message)

    async def finish() -> None:
        await shop.tasks.finish(OWNER, "api")

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as crowd:
            for number in range(10):
                crowd.start_soon(send, number)
            crowd.start_soon(finish)
            await shop.store.tasks.get(api.id)
            for number in range(10, 20):
                crowd.start_soon(send, number)
    await shop.tasks.finish(OWNER, "api")
    stored = await shop.mail(api)
    assert sorted(message.text for message in stored) == sorted(accepted)
    assert {(await shop.ledger(message, api)).state for message in stored} <= {DeliveryState.REFUSED}
    assert len(accepted) + len(told) == 20
    assert accepted


ACTS: tuple[tuple[str, Act], ...] = (
    ("make", lambda shop, who: shop.tasks.new(who, NewTask(title="New", dir=shop.folder("new")))),
    ("link", lambda shop, who: shop.tasks.link(who, "api", "web", is_on=True)),
    ("unlink", lambda shop, who: shop.tasks.link(who, "api", "docs", is_on=False)),
    ("end", lambda shop, who: shop.tasks.finish(who, "api")),
    ("remove", lambda shop, who: shop.tasks.remove(who, "old")),
)


@pytest.mark.parametrize("act", [act for _, act in ACTS], ids=[name for name, _ in ACTS])
@pytest.mark.parametrize("consumer", ["claude-code", "task:api"])
async def test_an_agent_may_not_change_tasks(shop: Workshop, act: Act, consumer: str) -> None:
    """A message could talk it into ending somebody else's work, or its own."""
    for name in ("web", "docs", "old"):
        await shop.new(name)
    await shop.new("api", "docs")
    await shop.tasks.finish(OWNER, "old")
    before = await shop.everything()
    with pytest.raises(Forbidden) as caught:
        await act(shop, Caller(role=Role.AGENT, consumer=Consumer(consumer)))
    assert caught.value.hint
    assert await shop.everything() == before
    await act(shop, OWNER)


# -- how it stands -------------------------------------------------------------------------------------------------


async def test_a_task_is_queued_then_running_then_ended_then_running_again(shop: Workshop) -> None:
    """Only `done` is an end: a task whose sessions have gone can be gone on with."""
    api = await shop.new("api")
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as loops:
            loops.start_soon(shop.tasks.keep)
            told = [(await shop.standing(api)).state]
            for agent in ("claude-code", "codex"):
                session = shop.session(api.dir, agent)
                told.append((await shop.standing(api)).state)
                await until_started(shop, api.id)
                await shop.leave(session)
                told.append((await shop.standing(api)).state)
            loops.cancel_scope.cancel()
    assert told == [TaskState.QUEUED, TaskState.RUNNING, TaskState.ENDED, TaskState.RUNNING, TaskState.ENDED]


async def test_a_session_however_short_has_started_its_task(shop: Workshop) -> None:
    """`queued` says that nobody was ever there: that would be untrue after the first."""
    api = await shop.new("api")
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as loops:
            loops.start_soon(shop.tasks.keep)
            await anyio.wait_all_tasks_blocked()
            await shop.leave(shop.session(api.dir))
            await until_started(shop, api.id)
            loops.cancel_scope.cancel()
    assert (await shop.standing(api)).state is TaskState.ENDED


async def until_started(shop: Workshop, name: str) -> None:
    """Return when it was noted that a task has a session."""
    while (await shop.tasks.show(name)).task.started_at is None:
        await anyio.lowlevel.checkpoint()


async def test_the_journal_tells_when_a_task_runs_and_when_it_ended(shop: Workshop) -> None:
    """The page shows it as it happens, from these events."""
    api = await shop.new("api")
    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as loops:
            loops.start_soon(shop.tasks.keep)
            for change in ("started", "ended", "running", "ended"):
                if change == "ended":
                    await shop.leave(shop.inbox.sessions.live()[0])
                else:
                    shop.session(api.dir)
                while (await changes(shop))[-1] != change:
                    await anyio.lowlevel.checkpoint()
            loops.cancel_scope.cancel()
    assert await changes(shop) == ["created", "started", "ended", "running", "ended"]


async def changes(shop: Workshop) -> list[object]:
    """Return what the journal says about tasks."""
    return [event.data["change"] for event in await shop.store.events.after(0, 1000) if event.kind == "task"]


async def test_presence_is_what_the_sessions_of_a_task_do(shop: Workshop) -> None:
    """Of several, whoever waits for messages counts first, then whoever works, then whoever is idle."""
    api = await shop.new("api")
    told = [(await shop.standing(api)).presence]
    first, second = shop.session(api.dir), shop.session(api.dir, "codex")
    told.append((await shop.standing(api)).presence)
    first.is_busy = False
    told.append((await shop.standing(api)).presence)
    second.is_busy = True
    told.append((await shop.standing(api)).presence)
    with shop.inbox.sessions.in_wait(first.key):
        told.append((await shop.standing(api)).presence)
    await shop.leave(first)
    told.append((await shop.standing(api)).presence)
    await shop.leave(second)
    told.append((await shop.standing(api)).presence)
    assert told == ["gone", "connected", "idle", "busy", "waiting", "busy", "gone"]
    assert [each.presence for each in await shop.tasks.list()] == ["gone"]


async def test_a_list_says_of_each_task_what_waits_for_it(shop: Workshop) -> None:
    """The badge of the page: what is seen is not counted, what was sent to another task neither."""
    api, _, _ = [await shop.new(name) for name in ("api", "web", "docs")]
    for name in ("api", "api", "web"):
        await shop.tasks.send(OWNER, name, "hello")
    session = shop.session(api.dir)
    assert {each.task.id: each.pending for each in await shop.tasks.list()} == {"api": 2, "web": 1, "docs": 0}
    await shop.read(session)
    assert {each.task.id: each.pending for each in await shop.tasks.list()} == {"api": 0, "web": 1, "docs": 0}
