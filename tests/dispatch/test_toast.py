"""Toasts: who is told on the desktop, when, how often, and in which words.

The store is real and the clock is the test's; what would be shown is noted instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import (
    MAX_WAITING,
    Action,
    ActionId,
    ActionState,
    Mode,
    Order,
    Outcome,
    QuietHours,
    RuleVerdict,
    consent,
)
from harken.dispatch.toast import (
    AT_ONCE,
    LOOK_EVERY_SECONDS,
    NO_SESSION,
    NOT_TRIED,
    PAUSE_SECONDS,
    Desktop,
    Toast,
    Toasts,
    toast_of,
)
from harken.model import Attention, Message, Sender, Trust
from harken.store.contract import Store
from harken.store.contract.automation import CONFIRM_EXPIRES
from harken.store.contract.conversations import ConversationState, Triage
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_message, a_new_message
from tests.contracts.approvals import PATIENCE, answer_to, request_of
from tests.contracts.rules import ORDER, settle

WAIT_SECONDS = 20.0


@dataclass
class ToastFixture:
    """A store in which rules fire, and the toasts that were shown."""

    store: Store
    clock: FakeClock
    shown: list[Toast] = field(default_factory=list[Toast])
    rung: anyio.Event = field(default_factory=anyio.Event)

    async def fire(self, rule: str, *texts: str, mode: Mode = Mode.NOTIFY) -> Sequence[Action]:
        """Let a rule fire for some new messages, in one moment."""
        new = [
            a_new_message(
                text, source="ci", sender=Sender("bot", "Build Bot"), attention=Attention.PROMPT, channel="builds"
            )
            for text in texts
        ]
        order: Order | None = None if mode is Mode.NOTIFY else ORDER
        verdicts = [
            RuleVerdict(message=each.message.id, rule=rule, mode=mode, outcome=Outcome.FIRED, order=order)
            for each in await self.store.messages.append(new)
        ]
        return await settle(self.store, self.clock, verdicts)

    def toasts(self) -> Toasts:
        """Return a loop, as a daemon that starts now has one."""
        return Toasts(self.store, self.clock, self.show)

    async def show(self, toast: Toast) -> bool:
        """Note a toast."""
        self.shown.append(toast)
        self.rung.set()
        return True

    def titles(self) -> list[str]:
        """Return what was shown since the last time, and forget it."""
        found = [toast.title for toast in self.shown]
        self.shown.clear()
        return found


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ToastFixture]:
    """Nothing has happened yet."""
    clock = FakeClock()
    async with open_store(tmp_path / "harken.db", clock) as store:
        yield ToastFixture(store, clock)


# -- what is shown, and when -------------------------------------------------------------------------------------


async def test_what_a_rule_tells_is_shown_at_once_and_once(rig: ToastFixture) -> None:
    """A toast that comes twice is noise, and one that comes late is useless."""
    toasts = rig.toasts()
    await toasts.look()
    assert rig.shown == []
    await rig.fire("red", "build 456 failed")
    await toasts.look()
    assert rig.shown == [Toast("red: build 456 failed", "Build Bot in builds")]
    for _ in range(3):
        rig.clock.advance(PAUSE_SECONDS)
        await toasts.look()
    assert len(rig.shown) == 1


async def test_question_says_until_when_it_waits_and_how_it_is_answered(rig: ToastFixture) -> None:
    """The person may sit at another program: the toast has everything that is needed."""
    toasts = rig.toasts()
    [action] = await rig.fire("ask", "may I?", mode=Mode.CONFIRM)
    await toasts.look()
    until = (rig.clock.now() + CONFIRM_EXPIRES).astimezone().strftime("%H:%M")
    how = f"Waits for your answer until {until}: harken channel confirm {action.id}"
    assert rig.shown == [Toast("ask: may I?", f"Build Bot in builds\n{how}")]


async def test_night_is_quiet_and_the_morning_tells_all_in_one(rig: ToastFixture) -> None:
    """Nobody wants to be woken by a build; nobody wants to miss that it failed either."""
    here = rig.clock.now().astimezone()
    quiet = QuietHours((here - timedelta(minutes=1)).time(), (here + timedelta(hours=2)).time())
    toasts = Toasts(rig.store, rig.clock, rig.show, quiet=quiet)
    await toasts.look()
    for number in range(3):
        await rig.fire("red", f"build {number} failed")
        rig.clock.advance(60)
        await toasts.look()
    assert rig.shown == []
    rig.clock.advance(2 * 3600)
    await toasts.look()
    assert [toast.title for toast in rig.shown] == ["3 more: red 3"]


@pytest.mark.parametrize("count", [1, 2])
async def test_what_was_put_off_is_told_once_when_it_comes_back(rig: ToastFixture, count: int) -> None:
    """No page may be open then, and the daemon may be another one; the night stays quiet."""
    here = rig.clock.now().astimezone()
    quiet = QuietHours((here - timedelta(minutes=1)).time(), (here + timedelta(hours=2)).time())
    made = await rig.store.messages.append(
        [
            a_new_message(f"<b>call</b> {n}", source="teams", sender=Sender("ann", "Ann"), channel="chat")
            for n in range(count)
        ]
    )
    until = rig.clock.now() + timedelta(hours=1)
    orders = [Triage(message=each.message.id, state=ConversationState.SNOOZED, until=until) for each in made]
    await rig.store.conversations.triage(orders)
    toasts = Toasts(rig.store, rig.clock, rig.show, quiet=quiet)
    for _ in range(2):
        await toasts.look()
        assert rig.shown == []
        rig.clock.advance(3_700)
    await toasts.look()
    await rig.toasts().look()
    said = f"\u2039b\u203acall\u2039/b\u203a {count - 1}"
    one, several = Toast(f"Back: {said}", "Ann in chat"), Toast("2 conversations are back", f"Ann in chat: {said}")
    assert rig.shown == [one if count == 1 else several]


async def test_what_runs_by_itself_makes_no_toast(rig: ToastFixture) -> None:
    """Nobody asked to be told of it, and there is nothing to answer."""
    toasts = rig.toasts()
    await rig.fire("auto", "go", mode=Mode.AUTO)
    await toasts.look()
    assert rig.shown == []


async def test_burst_is_one_toast_at_once_and_one_that_counts_the_rest(rig: ToastFixture) -> None:
    """Forty toasts in a row hide everything else on the screen; none must go uncounted all the same."""
    toasts = rig.toasts()
    await rig.fire("red", *(f"build {n} failed" for n in range(6)))
    await rig.fire("sev1", "down", "still down")
    await toasts.look()
    assert rig.titles() == ["red: build 0 failed"]
    rig.clock.advance(PAUSE_SECONDS - 0.1)
    await toasts.look()
    assert rig.titles() == []
    rig.clock.advance(0.1)
    await toasts.look()
    assert rig.shown == [Toast("7 more: red 5, sev1 2", "Newest: sev1: still down")]
    rig.shown.clear()
    await rig.fire("red", "and again")
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == ["red: and again"]


async def test_after_a_burst_the_next_is_shown_at_once_again(rig: ToastFixture) -> None:
    """Gathering is for bursts: who is told of one thing an hour must not wait for it."""
    toasts = rig.toasts()
    await rig.fire("red", "first")
    await toasts.look()
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    rig.clock.advance(1)
    await rig.fire("red", "second", "third")
    await toasts.look()
    assert rig.titles() == ["red: first", "red: second"]


async def test_question_goes_before_what_is_only_told(rig: ToastFixture) -> None:
    """A question has an end; a statement can be read later."""
    toasts = rig.toasts()
    await rig.fire("red", "one", "two")
    await rig.fire("ask", "may I?", mode=Mode.CONFIRM)
    await toasts.look()
    assert rig.titles() == ["ask: may I?"]
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == ["2 more: red 2"]


async def test_question_that_was_answered_meanwhile_is_not_shown(rig: ToastFixture) -> None:
    """A toast that asks for an answer which was given sends the person after nothing."""
    toasts = rig.toasts()
    first, second, third = await rig.fire("ask", "one?", "two?", "three?", mode=Mode.CONFIRM)
    await toasts.look()
    await rig.store.actions.answer(first.id, is_yes=True, by="page")
    await rig.store.actions.answer(second.id, is_yes=False, by="page")
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == ["ask: one?", "ask: three?"]
    await rig.store.actions.answer(third.id, is_yes=False, by="page")
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == []


async def test_answer_to_the_newest_brings_nothing_old_back(rig: ToastFixture) -> None:
    """What was shown is known by more than the newest of it, which may be answered and gone."""
    toasts = rig.toasts()
    await rig.fire("red", "told")
    [action] = await rig.fire("ask", "may I?", mode=Mode.CONFIRM)
    for _ in range(3):
        await toasts.look()
        rig.clock.advance(PAUSE_SECONDS)
    assert rig.titles() == ["ask: may I?", "red: told"]
    await rig.store.actions.answer(action.id, is_yes=False, by="page")
    await toasts.look()
    assert rig.titles() == []


async def test_huge_burst_is_counted_as_far_as_it_was_looked_at(rig: ToastFixture) -> None:
    """A number that is too small would be a lie; the plus says that there is more."""
    toasts = rig.toasts()
    await rig.fire("red", "first")
    await toasts.look()
    await rig.fire("red", *(f"build {n}" for n in range(AT_ONCE + 100)))
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == ["red: first", f"{AT_ONCE}+ more: red {AT_ONCE}"]
    rig.clock.advance(PAUSE_SECONDS)
    await toasts.look()
    assert rig.titles() == []


def test_page_is_larger_than_what_can_leave_it() -> None:
    """What was shown is told from what is new by those that stay: not all of a page may be questions."""
    assert AT_ONCE > MAX_WAITING


async def test_clock_that_is_set_back_does_not_silence_toasts(rig: ToastFixture) -> None:
    """A machine whose time is corrected by an hour must not be quiet for that hour."""
    toasts = rig.toasts()
    await rig.fire("red", "first", "second", "third")
    await toasts.look()
    rig.clock.set_back(3_600)
    await toasts.look()
    assert rig.titles() == ["red: first", "2 more: red 2"]


async def test_restart_shows_again_what_waits_and_nothing_else(rig: ToastFixture) -> None:
    """A restart is no news. A question that nobody answered is: its toast may have gone with the last session."""
    await rig.fire("red", "told before")
    await rig.fire("ask", "answered before?", mode=Mode.CONFIRM)
    [answered] = await rig.store.actions.list([ActionState.WAITING])
    await rig.store.actions.answer(answered.id, is_yes=False, by="page")
    await rig.fire("ask", "still there?", mode=Mode.CONFIRM)
    rig.clock.advance(60)
    toasts = rig.toasts()
    for _ in range(3):
        await toasts.look()
        rig.clock.advance(PAUSE_SECONDS)
    assert rig.titles() == ["ask: still there?"]


async def test_what_fires_before_the_first_look_is_shown(rig: ToastFixture) -> None:
    """Rules catch up with what came while no daemon ran, perhaps before this loop had its first turn."""
    await rig.fire("red", "told before")
    rig.clock.advance(60)
    toasts = rig.toasts()
    await rig.fire("red", "caught up with")
    await toasts.look()
    assert rig.titles() == ["red: caught up with"]


async def test_loop_is_rung_by_the_store(rig: ToastFixture) -> None:
    """Nobody polls for a toast: it is there with the commit."""
    with anyio.fail_after(min(WAIT_SECONDS, LOOK_EVERY_SECONDS)):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.toasts().run)
            await anyio.wait_all_tasks_blocked()
            await rig.fire("red", "now")
            await rig.rung.wait()
            tasks.cancel_scope.cancel()
    assert rig.titles() == ["red: now"]


# -- words -------------------------------------------------------------------------------------------------------


def made(rule: str, text: str, sender: str, channel: str, state: ActionState) -> tuple[Action, Message]:
    """Return an action and its message."""
    now = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    message = a_message(
        text,
        received_at=now,
        source="ci",
        sender=Sender(sender),
        trust=Trust.UNKNOWN,
        attention=Attention.COUNT,
        channel=channel,
    )
    action = Action(
        id=ActionId("a-000001"),
        rule=rule,
        mode=Mode.CONFIRM if state is ActionState.WAITING else Mode.NOTIFY,
        message=message.id,
        state=state,
        created_at=now,
        expires_at=now + CONFIRM_EXPIRES if state is ActionState.WAITING else None,
    )
    return action, message


# Lone surrogates too: what cannot be encoded would end the connection to the bus.
texts = st.text(st.characters(exclude_categories=()), max_size=300)


@given(
    st.tuples(texts, texts, texts, texts), st.sampled_from([ActionState.TOLD, ActionState.WAITING]), st.integers(1, 3)
)
def test_text_of_a_stranger_stays_short_plain_and_on_its_line(
    said: tuple[str, str, str, str], state: ActionState, times: int
) -> None:
    """Desktops understand markup, pictures and links; nobody outside decides what of that is on the screen."""
    action, message = made(*said, state)
    toast = toast_of([action] * times, {message.id: message})
    lines = toast.body.split("\n")
    assert len(lines) == (2 if state is ActionState.WAITING else 1)
    for line in (toast.title, *lines):
        assert not set("<>&\0\r\n\x1b\u202e") & set(line)
        assert len(line) < 200
        assert line.encode().decode() == line


def test_markup_of_a_stranger_can_be_read_and_does_nothing() -> None:
    """It is shown as what it is: text."""
    action, message = made("red", '<img src="http://x/?a&b"> &lt;b&gt;', "<b>boss</b>", "a&b", ActionState.TOLD)
    toast = toast_of([action], {message.id: message})
    assert toast == Toast(
        'red: \u2039img src="http://x/?a\uff06b"\u203a \uff06lt;b\uff06gt;',
        "\u2039b\u203aboss\u2039/b\u203a in a\uff06b",
    )


def test_a_question_says_what_a_yes_lets_happen() -> None:
    """A person who answers from the toast's words knows what runs, where, and with what."""
    action, message = made("red", "it failed", "ann", "ci", ActionState.WAITING)
    may = consent("Codex", "~/src/app", ("read_file", "shell"))
    body = toast_of([action], {message.id: message}, may=may).body
    assert body.split("\n")[1] == (
        "Would run Codex in ~/src/app with read_file, shell; a shell is not fenced: it can do what you can do"
    )


def test_action_whose_message_is_gone_is_still_told() -> None:
    """Retention may have been faster."""
    action, _ = made("red", "", "", "", ActionState.TOLD)
    assert toast_of([action], {}) == Toast("red: ", "")


def test_many_rules_are_named_as_far_as_there_is_room() -> None:
    """A title has one line."""
    action, message = made("a", "text", "bot", "ci", ActionState.TOLD)
    asked, _ = made("ask", "text", "bot", "ci", ActionState.WAITING)
    actions = [replace(action, rule=rule) for rule in "aaabbcdefg"]
    toast = toast_of([*actions, asked], {message.id: message})
    assert toast.title == "11 more: a 3, b 2, c 1, d 1, others 4"
    assert toast.body == "Newest: ask: text\n1 waits for your answer: harken channel confirm"


# -- without a desktop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environ", [{}, {"XDG_RUNTIME_DIR": "/nowhere"}])
async def test_without_a_desktop_nothing_happens_and_it_is_said_once(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A server has no desktop, and its log must not fill with that."""
    desktop = Desktop(environ)
    assert desktop.state == NO_SESSION
    with caplog.at_level("INFO", "harken.toasts"):
        for _ in range(3):
            assert not await desktop.show(Toast("title", "body"))
    assert [record.getMessage() for record in caplog.records] == [f"toasts: {NO_SESSION}"]


def test_desktop_that_was_not_tried_says_so() -> None:
    """It is not known before the first toast whether the desktop takes any."""
    assert Desktop({"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}).state == NOT_TRIED


# -- what hosts ask ----------------------------------------------------------------------------------------------


async def test_what_a_host_asks_is_told_once_by_names_alone(rig: ToastFixture) -> None:
    """A toast is too small for a command: what can be answered is shown whole elsewhere, and nothing acts here."""
    toasts = rig.toasts()
    asked = await rig.store.approvals.ask(replace(request_of("rm -rf ~"), tool="<b>Ba\u202esh"), PATIENCE)
    for _ in range(3):
        await toasts.look()
        rig.clock.advance(PAUSE_SECONDS)
    [toast] = rig.shown
    assert toast.title == "claude-code asks to use \u2039b\u203aBash"
    assert toast.body.endswith(f"harken approve {asked.id}")
    assert "rm -rf" not in toast.body
    assert (await rig.store.approvals.get(asked.id)).shown == ("toast",)


async def test_several_questions_of_hosts_are_one_toast_and_none_at_night(rig: ToastFixture) -> None:
    """What was answered meanwhile is not told in the morning."""
    here = rig.clock.now().astimezone()
    quiet = QuietHours((here - timedelta(minutes=1)).time(), (here + timedelta(minutes=5)).time())
    toasts = Toasts(rig.store, rig.clock, rig.show, quiet=quiet)
    asked = [await rig.store.approvals.ask(request_of(f"{number}"), PATIENCE) for number in range(3)]
    await toasts.look()
    assert rig.shown == []
    await rig.store.approvals.answer(answer_to(asked[0]))
    rig.clock.advance(360)
    await toasts.look()
    assert rig.titles() == ["claude-code asks to use Bash, and 1 more"]
