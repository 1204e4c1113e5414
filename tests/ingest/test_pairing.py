"""Pairing by mail: whose code counts, and where in a mail it may stand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from harken.errors import Unavailable
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import LIFETIME, MAX_CODES, MAX_TRIES, Pairings
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import NewMessage, SenderRule, Trust
from harken.sources.imap.messages import ArrivedMail, draft_of
from harken.store.sqlite import open_store
from harken.testing.clock import FakeClock
from tests.sources.imap.rig import NAME, VOUCHED, mail

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
CODE = "CODE"  # where the tests mean the code that was made
BOB = SenderRule(NAME, "bob@example.net", Trust.KNOWN)
HTML = "Content-Type: text/html; charset=utf-8"


@pytest.fixture
def pairings() -> Pairings:
    """No code is open yet."""
    return Pairings(FakeClock(NOW))


def heard(code: str, text: str, *headers: str, subject: str = "Hello", is_vouched: bool = True) -> NewMessage:
    """Return a mail as ingest has it, with the code where the test wants it."""
    raw = mail(
        text.replace(CODE, code),
        *([VOUCHED] if is_vouched else []),
        *headers,
        subject=subject.replace(CODE, code),
    )
    draft = draft_of(ArrivedMail(raw=raw), source=NAME, folder="INBOX", authserv_id="mx.example.org")
    return prepare(draft, IngestPolicy())


@pytest.mark.parametrize(
    ("text", "headers", "subject"),
    [
        ("Hello.", (), CODE),
        ("Hello.", (), f"The code is {CODE}, as you asked"),
        ("Hello.", (), f"Re: {CODE}"),
        (CODE, (), "Hello"),
        (f"Hello Ann,\r\n\r\nhere is the code: {CODE}.\r\n\r\nBob", (), "The code"),
        (f'Hello Ann,\r\n\r\n  "{CODE}"\r\n\r\n> Send me the code!', (), "Re: The code"),
        (f"<p>Hello,</p><p>it is <b>{CODE}</b></p>", (HTML,), "The code"),
        (f"{CODE}\r\n\r\nOn Monday, Ann wrote:\r\n> Send me the code!", ("In-Reply-To: <a@example.org>",), "Re: Code"),
    ],
)
def test_a_code_in_the_subject_or_the_first_lines_of_a_mail_admits_its_sender(
    pairings: Pairings, text: str, headers: tuple[str, ...], subject: str
) -> None:
    """Nobody sends a mail that is a code and nothing else: programs add a subject, a greeting and a signature."""
    code, _ = pairings.begin()
    assert pairings.redeem(heard(code, text, *headers, subject=subject)) == BOB
    assert pairings.redeem(heard(code, text, *headers, subject=subject)) is None, "it works once"


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        (f"What is this?\r\n\r\n> {CODE}", ()),
        (f"> {CODE}", ()),
        (f"<p>What is this?</p><blockquote>{CODE}</blockquote>", (HTML,)),
        (f"<blockquote>{CODE}</blockquote>", (HTML, "In-Reply-To: <a@example.org>")),
        (f"See below.\r\n\r\n-----Original Message-----\r\n{CODE}", ()),
        (f"See below.\r\n\r\nVon: Ann\r\nGesendet: heute\r\nBetreff: Code\r\n\r\n{CODE}", ()),
        (f"See below.\r\n\r\n---------- Forwarded message ---------\r\n{CODE}", ()),
        ("\r\n".join([*(f"Line {number}" for number in range(20)), CODE]), ()),
        (f"x{CODE}", ()),
        (f"{CODE}x", ()),
        (f"see https://example.org/a-{CODE}", ()),
    ],
)
def test_a_code_that_is_quoted_or_far_below_admits_nobody(
    pairings: Pairings, text: str, headers: tuple[str, ...]
) -> None:
    """Whoever answers a mail with a code in it has not been given the code."""
    code, _ = pairings.begin()
    assert pairings.redeem(heard(code, text, *headers)) is None
    assert pairings.redeem(heard(code, CODE)) == BOB, "and it is still open"


def test_a_sender_for_whom_nobody_vouches_is_refused_and_the_person_is_told(pairings: Pairings) -> None:
    """Anybody can write any sender into a mail, and the rule would admit them all."""
    code, _ = pairings.begin()
    for _ in range(2 * MAX_TRIES):
        assert pairings.redeem(heard(code, CODE, is_vouched=False)) is None
    (refused,) = pairings.refused
    assert (refused.source, refused.sender, refused.at) == (NAME, "unverified:bob@example.net", NOW)
    assert refused.reason == "nobody vouches for the sender"
    assert pairings.redeem(heard(code, CODE)) == BOB, "who is vouched for can still use it"


def test_strangers_without_proof_cannot_use_up_a_code(pairings: Pairings) -> None:
    """Their tries cannot succeed, so they need not be bounded; else anybody could end a code from outside."""
    code, _ = pairings.begin()
    for _ in range(2 * MAX_TRIES):
        assert pairings.redeem(heard("pair-00000000", CODE, is_vouched=False)) is None
    assert pairings.refused == ()
    assert pairings.redeem(heard(code, CODE)) == BOB


@pytest.mark.parametrize("header", ["Auto-Submitted: auto-replied", "List-Id: <team.example.net>", "Return-Path: <>"])
def test_a_machine_that_answers_by_itself_is_not_admitted(pairings: Pairings, header: str) -> None:
    """A bounce and an answer from holidays repeat the subject: nobody has meant to send it."""
    code, _ = pairings.begin()
    assert pairings.redeem(heard(code, "I am away.", header, subject=f"Automatic reply: {CODE}")) is None
    assert [each.reason for each in pairings.refused] == ["a machine sent it"]
    assert pairings.redeem(heard(code, CODE)) == BOB


def test_wrong_codes_end_all_that_are_open_however_many_are_in_one_mail(pairings: Pairings) -> None:
    """One mail must not be worth more tries than five messages of a chat."""
    code, _ = pairings.begin()
    guesses = " ".join(f"pair-{number:08}" for number in range(MAX_TRIES))
    assert pairings.redeem(heard(code, f"{guesses}\r\n{CODE}")) is None
    assert pairings.redeem(heard(code, CODE)) is None


def test_a_code_of_a_mail_ends_like_every_other() -> None:
    """Ten minutes, and the newest three."""
    clock = FakeClock(NOW)
    pairings = Pairings(clock)
    codes = [pairings.begin()[0] for _ in range(MAX_CODES + 1)]
    assert [bool(pairings.redeem(heard(code, CODE))) for code in codes] == [False] + [True] * MAX_CODES
    late, _ = pairings.begin()
    clock.advance(LIFETIME.total_seconds())
    assert pairings.redeem(heard(late, CODE)) is None


def test_what_only_looks_like_a_code_costs_no_try(pairings: Pairings) -> None:
    """People write of pair-programming."""
    code, _ = pairings.begin()
    for _ in range(MAX_TRIES + 1):
        pairings.redeem(heard("", "We did pair-programming, and a pair-wise look.", subject="pair-"))
    assert pairings.redeem(heard(code, CODE)) == BOB


async def test_a_code_that_came_while_the_store_was_away_admits_its_sender_later(tmp_path: Path) -> None:
    """The source yields the mail again, and the person has made only one code."""
    clock = FakeClock(NOW)
    pairings = Pairings(clock)
    code, _ = pairings.begin()
    raw = mail(code, VOUCHED)
    draft = draft_of(ArrivedMail(raw=raw), source=NAME, folder="INBOX", authserv_id="mx.example.org")
    database, elsewhere = tmp_path / "harken.db", tmp_path / "away.db"
    async with open_store(database, clock) as store:
        intake = Intake(store, PolicyBook(store.people, store.tokens, IngestPolicy()), pairings)
        database.rename(elsewhere)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await intake.accept([draft])
        elsewhere.rename(database)
        (appended,) = await intake.accept([draft])
        assert appended.message.trust is Trust.KNOWN
        assert pairings.redeem(heard(code, CODE)) is None, "it works once"
