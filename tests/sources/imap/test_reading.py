"""A mail as a draft: what it says, who says it, and what hangs on it, however broken or hostile it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import Draft, NewMessage, Sender, TextFormat
from harken.sources.imap.messages import (
    BY_MACHINE,
    ENCRYPTED,
    FOLDED,
    UNPROVEN,
    UNREADABLE,
    UNVERIFIED,
    ArrivedMail,
    draft_of,
    fold_html,
    fold_plain,
    is_answer,
    is_verified,
    proposed,
)
from harken.sources.imap.mime import MAX_LINES, decode, invitation_lines, words
from harken.sources.outlook import mail as outlook
from harken.sources.outlook import mail as proof
from tests.sources.imap.rig import CORPUS, mail

CASES: Final = sorted(CORPUS.glob("*.eml"))
# What a reader of each must find; what is not named here must only not break anything.
SAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alternative": "The plain side.",
        "alternative-empty-plain": "Only the rich side.",
        "alternative-with-files": "[attachment: plan.pdf]\n\nSee the file.",
        "answer-outlook": f"Yes, do.\n\n{FOLDED}",
        "answer-with-history": f"Yes, do.\n\n{FOLDED}",
        "attachment-name-encoded-word": "[attachment: Grüße.pdf]",
        "attachment-name-rfc2231": "[attachment: Grüße.pdf]",
        "attachment-with-a-path": "[attachment: ../../../etc/passwd]",
        "bounce": "Final-Recipient: rfc822; nobody@example.net\nAction: failed\nStatus: 5.1.1",
        "boundary-missing": "Where does it begin?",
        "boundary-never-closed": "The end is missing.",
        "boundary-never-used": "Only a preamble.",
        "boundary-of-the-outer-inside": "Same name.",
        "charset-in-three-parts": "Grüße",
        "charset-is-a-codec": "Not packed.",
        "charset-unicode-escape": "\\x41 stays as it is.",
        "encrypted-pgp": ENCRYPTED,
        "encrypted-pgp-inline": ENCRYPTED,
        "encrypted-smime": ENCRYPTED,
        "from-8bit": "Subject: Grüße",
        "gb2312-with-more": "你好 镕",
        "html-only": "Hello",
        "invitation": (
            "[Meeting invitation]\nWhat: Planning, again\n"
            "When: 2026-11-20 10:00 Europe/Paris to 2026-11-20 11:00 Europe/Paris\nWhere: Room 4\n"
            "Organiser: ann@example.net\n\nPlease come."
        ),
        "iso-2022-jp": "こんにちは",
        "list-mail": "[mailing list: Talk <talk.example.net>]\n\nTo the list.",
        "out-of-office": f"{BY_MACHINE}\n\nI am away.",
        "latin1-labelled-utf8": "Grüße aus Köln",
        "mail-in-a-mail": (
            "Look at this:\n[mail within this mail]\nFrom: carol@example.net\nSubject: The inner one\nSaid inside."
        ),
        "mails-in-mails": "[what it says is not shown: it is too deep in this mail]",
        "many-parts": "more attachments]",
        "nested-four-hundred-deep": UNREADABLE,
        "nested-sixty-deep": "The innermost.",
        "no-content-type": "No type at all.",
        "nul-bytes": "ABC",
        "qp-broken": "Grüße",
        "signed-pgp": "[signed with PGP; the signature is not checked here]\n\nSigned words.",
        "signed-smime": "[signed with S/MIME; the signature is not checked here]\n\nSigned words.",
        "unknown-charset": "Grüße",
        "utf8-labelled-ascii": "Grüße",
    }
)
AUTOMATIC: Final = {"bounce", "list-mail", "out-of-office"}


def drafted(raw: bytes, authserv_id: str = "", *, trusts_from: bool = False) -> Draft:
    """Return a mail as a draft."""
    return draft_of(
        ArrivedMail(raw=raw), source="post", folder="INBOX", authserv_id=authserv_id, trusts_from=trusts_from
    )


def stored(draft: Draft) -> NewMessage:
    """Return a draft as it would be stored."""
    return prepare(draft, IngestPolicy())


@pytest.mark.parametrize("name", [case.stem for case in CASES])
def test_a_broken_or_hostile_mail_is_read_as_far_as_it_can_be(name: str) -> None:
    """Anybody can send anything: one mail must neither stop those behind it nor vanish."""
    draft = drafted((CORPUS / f"{name}.eml").read_bytes())
    message = stored(draft)
    assert SAYS.get(name, "") in message.text
    assert (message.meta.get("automatic") == "yes") == (name in AUTOMATIC)
    assert message.upstream_id
    assert not [char for char in message.text if char < " " and char not in "\n\t"]
    assert all(value.isprintable() for value in message.meta.values())


def test_every_expectation_names_a_mail() -> None:
    """One that names none would hold for ever."""
    names = {case.stem for case in CASES}
    assert len(names) >= 60
    assert set(SAYS) | AUTOMATIC <= names


@settings(max_examples=300)
@given(
    case=st.sampled_from(CASES),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=30)), max_size=6),
)
def test_no_damage_on_the_way_makes_a_mail_unreadable_for_us(
    case: object, cuts: list[tuple[float, int, bytes]]
) -> None:
    """What was broken in a way nobody thought of still becomes a message."""
    raw = bytearray((CORPUS / str(case).rpartition("/")[2]).read_bytes()[:20_000])
    for place, gone, added in cuts:
        begin = int(place * len(raw))
        raw[begin : begin + gone] = added
    assert stored(drafted(bytes(raw))).text


@given(st.binary(max_size=400))
def test_any_bytes_are_a_mail(raw: bytes) -> None:
    """The parser raises on none."""
    assert stored(drafted(raw)).text


@given(st.binary(max_size=200), st.text(max_size=30))
def test_any_bytes_in_any_charset_are_a_text(data: bytes, charset: str) -> None:
    """A charset is a claim of the sender."""
    assert isinstance(decode(data, charset), str)


@given(st.text(max_size=200))
def test_any_header_is_one_line(raw: str) -> None:
    """A subject goes into a line of its own."""
    assert len(words(raw).splitlines()) <= 1


def test_a_mail_of_too_many_lines_is_announced_at_once() -> None:
    """Taking it apart would take minutes, and others wait behind it."""
    draft = drafted(mail("x\n" * (MAX_LINES + 1), subject="A flood"), trusts_from=True)
    assert draft.text == f"Subject: A flood\n{UNREADABLE}"


def test_a_mail_says_who_wrote_it_and_where_it_belongs() -> None:
    """Rules and allow-lists are about the address, the conversation is the thread's first mail."""
    draft = drafted(
        mail(
            "Now.",
            "Message-ID: <three@example.net>",
            "In-Reply-To: <two@example.net>",
            "References: <one@example.net>\r\n <two@example.net>",
            "Cc: Carol <Carol@Example.NET>",
            "Importance: High",
            sender="=?utf-8?q?Ann_=C3=84?= <Ann@Example.NET>",
        )
    )
    assert draft.sender == Sender("unverified:ann@example.net", "Ann Ä")
    assert draft.upstream_id.endswith(":<three@example.net>")
    assert (draft.conversation, draft.thread) == ("<one@example.net>", "<one@example.net>")
    assert draft.format is TextFormat.PLAIN
    assert draft.meta == {
        "subject": "A word",
        "folder": "INBOX",
        "to": "ann@example.org",
        "copies": "carol@example.net",
        "references": "<one@example.net> <two@example.net>",
        "importance": "high",
    }


def test_answers_that_go_elsewhere_are_said_so() -> None:
    """Otherwise a stranger chooses silently to whom an agent writes."""
    draft = drafted(mail("Well?", "Reply-To: Other <Other@example.net>"))
    assert "[answers go to: other@example.net]" in draft.text
    assert draft.meta["answers_go_to"] == "other@example.net"
    both = drafted(mail("Well?", "Reply-To: bob@example.net, other@example.net"))
    assert both.meta["answers_go_to"] == "bob@example.net, other@example.net"
    assert "answers_go_to" not in drafted(mail("Well?", "Reply-To: Bob <BOB@example.net>")).meta


def test_a_mail_without_an_id_has_one_made_of_its_bytes() -> None:
    """It is the same after a folder was numbered anew, and another for every other mail."""
    first, second = (f"From: a@example.net\n\n{text}\n".encode() for text in ("One", "Two"))
    assert drafted(first).upstream_id == drafted(first).upstream_id != drafted(second).upstream_id


REAL: Final = {"text": "The real one.", "subject": "The build", "sender": "Ann <ann@example.net>"}


@pytest.mark.parametrize(
    "other",
    [
        {"text": "A forged one."},
        {"subject": "Another"},
        {"sender": "mallory@example.net"},
        {"headers": ("Reply-To: mallory@example.net",)},
        {"headers": ("Content-Type: application/x-nothing",)},
    ],
)
def test_a_guessed_id_does_not_hide_the_mail_that_really_has_it(other: dict[str, Any]) -> None:
    """The id of a mail is written by whoever sends it; what came first must not make the real mail unheard."""
    given_id = "Message-ID: <asked@example.net>"
    asked = {**REAL, **other}
    first = drafted(mail(asked["text"], given_id, *asked.get("headers", ()), **_head(asked)))
    real = drafted(mail(REAL["text"], given_id, **_head(REAL)))
    assert stored(first).dedup_key != stored(real).dedup_key


def _head(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"subject": asked["subject"], "sender": asked["sender"]}


def test_a_forged_copy_does_not_hide_the_mail_that_the_provider_vouches_for() -> None:
    """Word for word the same, and nobody would hear the one that counts."""
    given_id = "Message-ID: <asked@example.net>"
    forged, real = mail("Do it.", given_id), mail("Do it.", given_id, PASSED)
    first, second = (stored(drafted(raw, "mx.example.org")) for raw in (forged, real))
    assert (first.sender.id, second.sender.id) == ("unverified:bob@example.net", "bob@example.net")
    assert first.dedup_key != second.dedup_key


def test_a_mail_that_is_told_twice_is_heard_once() -> None:
    """It lies in two folders, or came over two ways: only what was added on the way differs."""
    given_id = "Message-ID: <asked@example.net>"
    once, again = mail("Do it.", given_id), b"Received: by another way\r\n" + mail("Do it.", given_id)
    assert stored(drafted(once)).dedup_key == stored(drafted(again)).dedup_key


PASSED = "Authentication-Results: mx.example.org; spf=pass; dmarc=pass (p=none) header.from=example.net"


@pytest.mark.parametrize(
    ("headers", "is_good"),
    [
        ([PASSED], True),
        ([], False),
        (["Authentication-Results: mx.example.org; dmarc=fail header.from=example.net"], False),
        (["Authentication-Results: mx.example.org; spf=pass; dkim=pass"], False),
        (["Authentication-Results: mx.example.org; dmarc=pass"], False),
        (["Authentication-Results: mx.evil.example; dmarc=pass header.from=example.net"], False),
        (["Authentication-Results: mx.example.org; dmarc=fail", PASSED], False),
        (["Authentication-Results: mx.example.org; dmarc=pass header.from=evil.example"], False),
        (["Authentication-Results: mx.example.org (dmarc=pass); dmarc=none"], False),
        (["Authentication-Results: mx.example.org; x=y (; dmarc=pass"], False),
        (['Authentication-Results: mx.example.org; spf=fail smtp.mailfrom="x; dmarc=pass"@evil.example'], False),
        (["Authentication-Results: mx.example.org; x=(", PASSED], False),
        ([PASSED, "From: owner@example.org"], False),
        (["Authentication-Results: mx.example.org; spf=pass smtp.mailfrom=a;dmarc=pass@evil.example; x=y"], False),
        (["Authentication-Results: mx.example.org; dmarc=pass header.from=example.net; dmarc=fail"], False),
    ],
)
def test_a_sender_counts_only_if_the_provider_vouches_for_them(headers: list[str], *, is_good: bool) -> None:
    """Anybody can write any sender: an allow-list must not match one whom nobody has checked."""
    draft = drafted(mail("Trust me.", *headers), authserv_id="mx.example.org")
    assert draft.sender.id == ("bob@example.net" if is_good else "unverified:bob@example.net")


def test_nobody_counts_as_who_they_say_unless_somebody_vouches_or_the_person_wants_it_so() -> None:
    """Without a word about it the safe side is taken: no rule about an address matches, and the agent is told."""
    for header in (PASSED, "Authentication-Results: ; dmarc=pass", "Authentication-Results:;dmarc=pass"):
        assert drafted(mail("Trust me.", header)).sender.id == "unverified:bob@example.net"
    unsure = drafted(mail("Trust me.", PASSED))
    assert unsure.sender == Sender("unverified:bob@example.net", "Bob")
    assert "[it is not proven that this mail is from bob@example.net]" in stored(unsure).text.splitlines()
    for draft in (drafted(mail("Trust me."), trusts_from=True), drafted(mail("Trust me.", PASSED), "mx.example.org")):
        assert draft.sender == Sender("bob@example.net", "Bob")
        assert "not proven" not in draft.text


def test_mail_over_graph_says_the_same() -> None:
    """Rules and people meet one word for one thing."""
    assert (UNVERIFIED, UNPROVEN) == (proof.UNVERIFIED, outlook.UNPROVEN)


def results(*headers: str) -> list[list[str]]:
    """Return what some mails carry, one header each."""
    return [[header] for header in headers]


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (results(*["mx.example.org; dmarc=pass"] * 3), "mx.example.org"),
        (results(*["MX.example.org 1; spf=fail; dmarc = none"] * 3, "evil.example; dmarc=pass"), "mx.example.org"),
        ([["mx.example.org; dmarc=pass", "evil.example; dmarc=pass"]] * 3, "mx.example.org"),
        ([*results(*["mx.example.org; dmarc=pass"] * 3), [], []], "mx.example.org"),
        ([*results(*["mx.example.org; dmarc=pass"] * 3), [], [], [], []], ""),
        (results(*["mx.example.org; dmarc=pass"] * 2), ""),
        (results(*["mx.example.org; spf=pass"] * 3), ""),
        (results(*["spf=pass smtp.mailfrom=example.org; dmarc=pass"] * 3), ""),
        (results(*["a\x1b[31m.example; dmarc=pass"] * 3), ""),
        (results(*[f"mx{number}.example.org; dmarc=pass" for number in range(9)]), ""),
        ([], ""),
    ],
)
def test_the_name_that_most_mails_carry_is_proposed(found: list[list[str]], name: str) -> None:
    """A person need not look for it; a name that a few strangers wrote, or that does not check senders, is not."""
    assert proposed(found) == name


@pytest.mark.parametrize(
    ("sender", "is_good"),
    [
        ("bob@example.net", True),
        ("Bob <Bob@Example.NET>", True),
        ('"ann@example.net" <bob@example.net>', True),
        ("=?utf-8?q?ann=40example=2Enet?= <bob@example.net> (at work)", True),
        ("ann@example.net <bob@example.net>", False),
        ("ann@example.net, bob@example.net", False),
        ("ann@example.net)bob@example.net", False),
        ("ann@example.net(<bob@example.net>", False),
        ('"ann@example.net <bob@example.net>', False),
        ("x:bob@example.net;ann@example.net", False),
        ("<@ann.example:bob@example.net>", False),
    ],
)
def test_a_sender_that_can_be_read_in_two_ways_is_not_proven(sender: str, *, is_good: bool) -> None:
    """The provider may have checked the other one: a name that looks like an address is somebody's favourite trick."""
    draft = drafted(mail("Trust me.", PASSED, sender=sender), authserv_id="mx.example.org")
    assert (draft.sender.id == "bob@example.net") == is_good
    assert draft.sender.id != "ann@example.net"


@given(st.lists(st.text(max_size=80), max_size=4))
def test_no_other_words_pass_for_a_check(results: list[str]) -> None:
    """Only the provider's own finding does."""
    assert not is_verified([text.replace("pass", "") for text in results], "mx.example.org", "a@example.net")


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Yes.\n> No?", f"Yes.\n{FOLDED}"),
        ("> One?\nYes.\n> Two?\nNo.", f"{FOLDED}\nYes.\n{FOLDED}\nNo."),
        ("Yes.\n\nOn Monday, Bob wrote:\n> a\n> b\n\nAnd more.", f"Yes.\n\n{FOLDED}\n\nAnd more."),
        ("Ja.\n\nAm 1.1. schrieb Bob <b@c>:\n> a", f"Ja.\n\n{FOLDED}"),
        ("Yes.\n-----Original Message-----\nFrom: Bob", f"Yes.\n{FOLDED}"),
        ("> only\n> a quotation", "> only\n> a quotation"),
        ("On Monday we wrote:\nnothing", "On Monday we wrote:\nnothing"),
        ("From: here it looks fine.", "From: here it looks fine."),
    ],
)
def test_earlier_mails_are_folded_and_what_is_new_stays(text: str, folded: str) -> None:
    """An agent has read the history already; what the sender wrote below a quotation is new."""
    assert fold_plain(text) == folded


def test_quotations_in_html_are_folded() -> None:
    """Those that never end are left: behind them may stand what the sender says."""
    assert fold_html("<p>Yes</p><blockquote>a<blockquote>b</blockquote></blockquote><p>End</p>") == (
        f"<p>Yes</p><p>{FOLDED}</p><p>End</p>"
    )
    assert fold_html("<p>Yes</p><blockquote>a<p>End</p>") == "<p>Yes</p><blockquote>a<p>End</p>"
    assert fold_html("<blockquote>only</blockquote>") == "<blockquote>only</blockquote>"


@given(st.text(alphabet="> \nOn wrote:Fromabc.", max_size=200))
def test_folding_adds_nothing_but_its_note(text: str) -> None:
    """Every line that is left was there."""
    lines = set(text.splitlines())
    assert {line for line in fold_plain(text).splitlines() if line != FOLDED} <= lines


def test_a_forwarded_mail_is_no_answer() -> None:
    """There the earlier mail is what is said."""
    assert not is_answer("Fwd: x", has_original=True)
    assert is_answer("x", has_original=True)
    assert is_answer("AW: x", has_original=False)


@given(st.text(max_size=300))
def test_any_calendar_is_read(text: str) -> None:
    """An invitation is a stranger's text too."""
    lines = invitation_lines(f"BEGIN:VEVENT\n{text}\nEND:VEVENT")
    assert all("\n" not in line for line in lines)
