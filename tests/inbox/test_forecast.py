"""What `send` promises, from who is here, what reaches them, and what the person decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from harken.inbox.results import Forecast, Outlook, forecast
from harken.model import INBOX, Attention, Mailbox, Message, Sender, Trust, WakeResult
from harken.sessions.session import Session
from harken.store.contract.people import Mute
from tests.builders import a_message, a_session

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def message(
    attention: Attention = Attention.WAKE,
    mailbox: Mailbox = INBOX,
    *,
    trust: Trust = Trust.KNOWN,
    text: str = "hello",
) -> Message:
    """Return a message of ann on teams."""
    return a_message(
        text,
        mailbox=mailbox,
        received_at=NOW,
        sender=Sender("ann@example.org", "Ann"),
        trust=trust,
        attention=attention,
        channel="teams",
    )


def session(name: str = "claude-code", *, is_waiting: bool = False) -> Session:
    """Return a live session."""
    found = a_session(name, NOW)
    if is_waiting:
        found.begin_wait(lambda: None)
    return found


def test_a_waiting_session_gets_it_now() -> None:
    """Of those who are here only the waiting ones are named: the others hear of it later."""
    here = [session("copilot-cli", is_waiting=True), session("claude-code")]
    assert forecast(message(), here, []) == Forecast(
        Outlook.NOW, "goes to copilot-cli now, which is waiting for messages"
    )


def test_a_session_of_another_machine_does_not_wait_because_one_here_with_its_key_does() -> None:
    """A key may be no more than the number of a process: who waits here says nothing about who runs there."""
    here, there = session(), session()
    there.daemon, there.machine = "h-2", "buildbox"
    waits = Forecast(Outlook.NOW, "goes to claude-code now, which is waiting for messages")
    assert forecast(message(), [there, here], [], waiting=[here.key]) == waits


def test_a_connected_session_gets_it_with_its_next_call() -> None:
    """Without hooks nothing else reaches it, so nothing else is promised."""
    here = [session("copilot-cli"), session("claude-code"), session("claude-code")]
    assert forecast(message(), here, []) == Forecast(
        Outlook.NEXT_CALL, "is shown to claude-code, copilot-cli with its next Harken call"
    )


def test_without_a_session_it_waits_for_the_next() -> None:
    """Also when somebody is here who does not read that mailbox."""
    waits = Forecast(Outlook.NEXT_SESSION, "waits for the next session: none is connected now")
    assert forecast(message(), [], []) == waits
    assert forecast(message(mailbox=Mailbox("project:shop")), [session(is_waiting=True)], []) == waits


def test_a_stranger_is_only_counted() -> None:
    """And the sentence says how to change that."""
    stranger = replace(message(Attention.COUNT), trust=Trust.UNKNOWN)
    assert forecast(stranger, [session(is_waiting=True)], []) == Forecast(
        Outlook.COUNTED, "is only counted: Ann is not known here (harken allow ann@example.org)"
    )


def test_what_the_configuration_only_counts_is_not_blamed_on_the_sender() -> None:
    """Allowing a sender who is known already would change nothing."""
    assert forecast(message(Attention.COUNT), [session()], []) == Forecast(
        Outlook.COUNTED, "is only counted: the configuration says so for such messages"
    )


@pytest.mark.parametrize(
    "mute", [Mute("channel", "teams", None), Mute("sender", "ann@example.org", None), Mute("sender", "Ann", None)]
)
def test_a_muted_message_is_only_shown_when_pulled(mute: Mute) -> None:
    """Whatever else is true of it."""
    assert forecast(message(Attention.COUNT), [session(is_waiting=True)], [mute]).outlook is Outlook.MUTED


@pytest.mark.parametrize("name", ["claude-code", "claude-code:1"])
def test_a_muted_session_is_not_promised_anything(name: str) -> None:
    """By its own key, or with all sessions of its consumer; the others still are."""
    mute = Mute("session", name, None)
    assert forecast(message(), [session()], [mute]).outlook is Outlook.NEXT_SESSION
    assert forecast(message(), [session(), session("copilot-cli")], [mute]).outlook is Outlook.NEXT_CALL


@dataclass(frozen=True, slots=True)
class Way:
    """A way to be woken that nobody uses here."""

    name: str = "wake: bell"

    async def wake(self) -> WakeResult:
        """Refuse."""
        return WakeResult.REFUSED


def hooked(name: str = "claude-code", *, is_busy: bool | None, can_wake: bool = True) -> Session:
    """Return a session that hooks have told of."""
    found = session(name)
    found.moments.add("prompt")
    found.is_busy = is_busy
    if can_wake:
        found.wakers["wake: bell"] = Way()
    return found


@pytest.mark.parametrize(
    ("attention", "is_busy", "can_wake", "outlook"),
    [
        (Attention.WAKE, True, True, Outlook.BOUNDARY),
        (Attention.BOUNDARY, True, True, Outlook.BOUNDARY),
        (Attention.PROMPT, True, True, Outlook.PROMPT),
        (Attention.WAKE, False, True, Outlook.WAKE),
        (Attention.WAKE, None, True, Outlook.WAKE),
        (Attention.WAKE, False, False, Outlook.PROMPT),
        (Attention.BOUNDARY, False, True, Outlook.PROMPT),
        (Attention.PROMPT, False, True, Outlook.PROMPT),
        (Attention.COUNT, False, True, Outlook.COUNTED),
    ],
)
def test_the_promise_follows_attention_and_what_the_session_does(
    attention: Attention, outlook: Outlook, *, is_busy: bool | None, can_wake: bool
) -> None:
    """A busy session is told between two tools, an idle one is woken, and noise does neither."""
    here = [hooked(is_busy=is_busy, can_wake=can_wake)]
    assert forecast(message(attention), here, []).outlook is outlook


def test_a_busy_session_is_promised_it_before_an_idle_one_is_woken() -> None:
    """That is what happens: whoever works gets it soonest, and nobody is woken for it meanwhile."""
    here = [hooked("copilot-cli", is_busy=False), hooked("claude-code", is_busy=True)]
    said = forecast(message(), here, [])
    assert (said.outlook, "claude-code" in said.sentence) == (Outlook.BOUNDARY, True)


def test_a_muted_session_is_not_promised_a_wake() -> None:
    """The other one is; with nobody else, the message waits for the next session."""
    quiet = Mute("session", "claude-code", None)
    assert forecast(message(), [hooked(is_busy=False)], [quiet]).outlook is Outlook.NEXT_SESSION
    both = [hooked(is_busy=True), hooked("copilot-cli", is_busy=False)]
    said = forecast(message(), both, [quiet])
    assert (said.outlook, "copilot-cli" in said.sentence) == (Outlook.WAKE, True)


def inherited() -> Session:
    """Return a session that worked when the daemon was restarted."""
    found = hooked(is_busy=True)
    found.is_inherited = True
    return found


def test_after_a_restart_it_is_said_that_nobody_knows() -> None:
    """It may have gone on or ended its turn meanwhile: neither "is busy" nor "none is connected" would be true."""
    said = forecast(message(), [inherited()], [])
    assert (said.outlook, "not known yet" in said.sentence) == (Outlook.UNCERTAIN, True)
    assert forecast(message(), [inherited(), hooked("codex", is_busy=True)], []).outlook is Outlook.BOUNDARY


def test_a_session_that_nobody_would_see_is_not_promised_a_wake() -> None:
    """The sentence says why; another session that can be woken is preferred."""
    closed = hooked("codex", is_busy=False)
    closed.hindrance = "no terminal shows its conversation any more"
    said = forecast(message(), [closed], [])
    assert (said.outlook, closed.hindrance in said.sentence) == (Outlook.UNCERTAIN, True)
    assert forecast(message(), [closed, hooked(is_busy=False)], []).outlook is Outlook.WAKE


def test_beside_a_session_that_nobody_sees_another_one_is_shown_it_with_its_prompt() -> None:
    """It does not wait for a next session while one is here that only cannot be woken."""
    closed, copilot = hooked("codex", is_busy=False), hooked("copilot-cli", is_busy=False, can_wake=False)
    closed.hindrance = "no terminal shows its conversation any more"
    said = forecast(message(), [closed, copilot], [])
    assert (said.outlook, "copilot-cli" in said.sentence, "codex" in said.sentence) == (Outlook.PROMPT, True, False)


def test_a_session_that_no_hook_has_spoken_for_is_not_called_idle() -> None:
    """Whether it works is not known."""
    assert "unless it is at work" in forecast(message(), [hooked(is_busy=None)], []).sentence
    assert "which is idle" in forecast(message(), [hooked(is_busy=False)], []).sentence


def test_a_run_that_answers_one_prompt_is_not_promised_a_wake() -> None:
    """It gets what waits with its prompt."""
    run = hooked(is_busy=False)
    run.is_one_shot = True
    assert forecast(message(), [run], []).outlook is Outlook.PROMPT


@pytest.mark.parametrize(
    ("attention", "is_busy"),
    [(Attention.WAKE, True), (Attention.WAKE, False), (Attention.PROMPT, False)],
    ids=["between calls", "wake", "prompt"],
)
def test_a_text_that_is_too_long_for_the_moment_is_not_promised_whole(attention: Attention, *, is_busy: bool) -> None:
    """It is only announced there; the agent reads it with the tool."""
    claude = hooked(is_busy=is_busy)
    claude.moment_chars = {"prompt": 9_000, "tool": 9_000, "bell": 9_000}
    said = forecast(message(attention, text="x" * 8_000), [claude], [])
    assert ("inbox_pull" in said.sentence, said.outlook) == (True, forecast(message(attention), [claude], []).outlook)
    assert "inbox_pull" not in forecast(message(attention), [claude], []).sentence


def test_a_text_that_fits_no_result_is_not_promised_whole_to_one_who_waits() -> None:
    """The wait ends with its first words."""
    waiter = hooked(is_busy=True)
    waiter.begin_wait(lambda: None)
    waiter.result_bytes = 18_000
    assert "inbox_read" in forecast(message(text="x" * 17_000), [waiter], []).sentence
    assert "inbox_read" not in forecast(message(text="x" * 16_000), [waiter], []).sentence


@pytest.mark.parametrize(
    ("attention", "is_busy"),
    [(Attention.WAKE, True), (Attention.WAKE, False), (Attention.PROMPT, False)],
    ids=["between calls", "wake", "prompt"],
)
def test_a_host_that_is_told_only_that_something_waits_is_promised_no_text(
    attention: Attention, *, is_busy: bool
) -> None:
    """What others say goes by the tool there; what the owner says goes as it is."""
    codex = hooked("codex", is_busy=is_busy)
    codex.notice_moments = frozenset({"prompt", "tool", "bell"})
    assert "inbox_pull" in forecast(message(attention), [codex], []).sentence
    assert "inbox_pull" not in forecast(message(attention, trust=Trust.OWNER), [codex], []).sentence
