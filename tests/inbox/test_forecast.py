"""What `send` promises, from who is here and what the person decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from harken.inbox.results import Forecast, Outlook, forecast
from harken.model import INBOX, Attention, Consumer, Mailbox, Message, MessageId, Sender, SessionKey, Trust
from harken.sessions.session import Session
from harken.store.contract.people import Mute

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def message(
    attention: Attention = Attention.WAKE,
    mailbox: Mailbox = INBOX,
    *,
    trust: Trust = Trust.KNOWN,
    text: str = "hello",
) -> Message:
    """Return a message of ann on teams."""
    return Message(
        id=MessageId("m-1"),
        mailbox=mailbox,
        seq=1,
        received_at=NOW,
        source="teams",
        sender=Sender("ann@example.org", "Ann"),
        text=text,
        trust=trust,
        attention=attention,
        channel="teams",
    )


def session(name: str = "claude-code", *, is_waiting: bool = False) -> Session:
    """Return a live session."""
    found = Session(
        key=SessionKey(f"{name}:1"),
        agent=Consumer(name),
        consumer=Consumer(name),
        host=name,
        client=name,
        cwd="/",
        pid=1,
        mailboxes=(INBOX,),
        surfaces=("tool",),
        opened_at=NOW,
        last_active=NOW,
    )
    if is_waiting:
        found.begin_wait(lambda: None)
    return found


def test_a_waiting_session_gets_it_now() -> None:
    """Of those who are here only the waiting ones are named: the others hear of it later."""
    here = [session("copilot-cli", is_waiting=True), session("claude-code")]
    assert forecast(message(), here, []) == Forecast(
        Outlook.NOW, "goes to copilot-cli now, which is waiting for messages"
    )


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
