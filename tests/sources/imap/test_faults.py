"""A mail server on its worst days: it drops, refuses and babbles, and what came is still heard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harken.sources.feed import FeedTiming
from harken.sources.imap.messages import TOO_LONG
from harken.sources.imap.settings import read_settings
from harken.sources.imap.source import DROPS, MAX_FAILURES, ImapCheckpoint
from harken.sources.source import SourceState
from tests.mailserver.broken import BrokenImap, misbehaving
from tests.mailserver.dovecot import USER, Dovecot
from tests.sources.imap.rig import NAME, SECONDS, credentials, entry_of, following, mail, settings_of, source_of


@pytest.fixture
async def server() -> AsyncIterator[BrokenImap]:
    """A server that misbehaves."""
    async with misbehaving() as broken:
        yield broken


CHECKPOINT = ImapCheckpoint(validity=7, last=0).text()


class Waits:
    """Waits that end when the test says so; those before the next try end at once."""

    def __init__(self) -> None:
        self.polls = anyio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait, as the feed does."""
        if seconds:
            self.polls.set()
            await anyio.sleep_forever()


def timing(waits: Waits) -> FeedTiming:
    """Return a timing that tries again at once."""
    return FeedTiming(chance=lambda: 0.0, wait=waits.wait)


async def test_a_mail_that_the_server_cannot_hand_over_does_not_hold_up_the_others(server: BrokenImap) -> None:
    """A damaged mail ends the connection each time it is read; it is announced, and those behind it are read."""
    server.mails = {1: mail("One."), 2: mail("Two.", subject="Damaged"), 3: mail("Three.")}
    server.withheld = {2}
    (feed,) = source_of(settings_of(Dovecot(Path(), port=server.port)), timing=timing(Waits())).feeds()
    async with following(feed, CHECKPOINT) as heard:
        while len(heard.drafts) < 3:
            await heard.draft()
    assert [draft.text.splitlines()[-1] for draft in heard.drafts] == ["One.", TOO_LONG, "Three."]
    assert "a mail that the server does not hand over (number 2 in INBOX)" in heard.drafts[1].text
    tries = [command for command in server.asked if command.startswith("UID FETCH 2 (BODY.PEEK[")]
    assert len(tries) == 2 * MAX_FAILURES


@pytest.mark.parametrize("way", ["refused", "dropped"])
async def test_a_server_that_cannot_wait_with_us_is_asked_instead(server: BrokenImap, way: str) -> None:
    """Some say that they push and do not; a connection that ends each time must not be made without end."""
    setattr(server, way, "IDLE")
    waits = Waits()
    (feed,) = source_of(settings_of(Dovecot(Path(), port=server.port), poll=600), timing=timing(waits)).feeds()
    async with following(feed, CHECKPOINT):
        with anyio.fail_after(SECONDS):
            await waits.polls.wait()
        assert feed.health().pace == "looks every 600 s"
        assert feed.health().state is SourceState.LISTENING
    assert sum(command.startswith("IDLE") for command in server.asked) == (1 if way == "refused" else DROPS)


async def test_a_mail_that_comes_as_we_begin_to_wait_is_heard_at_once(server: BrokenImap) -> None:
    """Its announcement comes in one piece with the answer: it has been read from the socket, which then stays quiet."""
    server.coming = mail("Just now.")
    (feed,) = source_of(settings_of(Dovecot(Path(), port=server.port)), timing=timing(Waits())).feeds()
    async with following(feed, CHECKPOINT) as heard:
        assert "Just now." in (await heard.draft()).text


async def test_an_answer_that_makes_no_sense_is_asked_for_again(server: BrokenImap) -> None:
    """A library's own failure must not end the feed."""
    server.mails = {1: mail("One.")}
    server.garbage = "UID FETCH"
    tried = anyio.Event()

    async def wait(_seconds: float) -> None:
        server.garbage = ""
        tried.set()

    settings = settings_of(Dovecot(Path(), port=server.port))
    (feed,) = source_of(settings, timing=FeedTiming(chance=lambda: 0.0, wait=wait)).feeds()
    async with following(feed, CHECKPOINT) as heard:
        assert "One." in (await heard.draft()).text
    assert tried.is_set()


async def test_a_server_that_does_not_say_which_number_comes_next_is_understood(server: BrokenImap) -> None:
    """It is optional in the oldest servers; the highest number says the same."""
    server.mails = {5: mail("Old.")}
    server.has_next = False
    (feed,) = source_of(settings_of(Dovecot(Path(), port=server.port)), timing=timing(Waits())).feeds()
    async with following(feed) as heard:
        assert '"last_uid":5' in str((await heard.next()).checkpoint)


async def test_a_token_is_handed_over_as_oauth_wants_it(server: BrokenImap) -> None:
    """Large providers take no password any more."""
    entry = {**entry_of(Dovecot(Path(), port=server.port)), "token": "env:TOKEN"}
    del entry["password"]
    who = replace(credentials(lambda: "t0ken"), is_token=True)
    (feed,) = source_of(read_settings(NAME, entry), who, timing=timing(Waits())).feeds()
    async with following(feed) as heard:
        assert (await heard.next()).checkpoint
    assert server.tokens == [f"user={USER}\x01auth=Bearer t0ken\x01\x01"]
    assert "AUTHENTICATE XOAUTH2" in server.asked
