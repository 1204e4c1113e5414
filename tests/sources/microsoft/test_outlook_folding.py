"""The earlier mails in an answer: what nobody writes into goes, with a note, and nothing that was written now does."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.markup import to_text
from harken.sources.outlook.mail import (
    FOLDED,
    above_quotes_html,
    above_quotes_plain,
    fold_html,
    fold_plain,
    is_answer,
)
from tests.cost import costs_at_most

STYLE: Final = "<html><head><style>p { color: red }</style></head><body>"
OWN: Final = f"{STYLE}<div>My own words.</div>"
HEAD: Final = (
    '<div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm"><p class="MsoNormal"><b>From:'
    "</b> Ann<br><b>Sent:</b> Monday<br><b>Subject:</b> Plan</p></div>"
)
GERMAN: Final = HEAD.replace("From:", "Von:").replace("Sent:", "Gesendet:").replace("Subject:", "Betreff:")
ON_THE_WEB: Final = '<div id="appendonsend"></div><hr><div id="divRplyFwdMsg"><b>From:</b> Ann</div>'
GMAIL: Final = '<div class="gmail_quote"><div>Ann wrote:</div><blockquote class="gmail_quote">'
PIECES: Final = st.sampled_from(
    [
        *("<blockquote>", '<blockquote type="cite">', "</blockquote>", "<div>", "</div>", "<p>", "<b>", "<!--", "-->"),
        *("<textarea>", "</textarea>", "<style>", "</style>", HEAD, ON_THE_WEB, GMAIL, "one", "two", "three"),
    ]
)


def shown(html: str) -> str:
    """Return what a reader sees of some markup."""
    return " ".join(to_text(html, 10_000).text.replace(">", " ").split())


@pytest.mark.parametrize(
    ("history", "left"),
    [
        (f"{HEAD}<p>before</p>{HEAD}<p>long ago</p>", "From: Ann Sent: Monday Subject: Plan before"),
        (f"{GERMAN}<p>before</p>{HEAD}<p>long ago</p>", "Von: Ann Gesendet: Monday Betreff: Plan before"),
        (f"{ON_THE_WEB}<p>before</p>{HEAD}<p>long ago</p>", "--- From: Ann before"),
        (f"{GMAIL}before {GMAIL}long ago</blockquote></div></blockquote></div>", "Ann wrote: before Ann wrote:"),
        ('<blockquote type="cite">before<blockquote type="cite">long ago and it never ends', "before"),
    ],
)
def test_what_the_answered_mail_quoted_is_folded(history: str, left: str) -> None:
    """A long conversation would be read again with every answer; what was taken out is said."""
    assert shown(fold_html(f"{OWN}{history}")) == f"My own words. {left} {FOLDED}"


@pytest.mark.parametrize(
    "answer",
    [
        f"<p>See my answers in red.</p>{ON_THE_WEB}<p>May we deploy?</p><p><font color=red>NO.</font></p>",
        f"<p>Answers below.</p>{HEAD}<p>May we deploy?</p><p>NO.</p>",
        "<p>Hello</p><blockquote>May we deploy?</blockquote><p>NO.</p><blockquote>When?</blockquote><p>On Monday.</p>",
        '<p>See below.</p><blockquote type="cite">May we deploy?<p>NO.</p></blockquote>',
        f"<p>Hello</p>{GMAIL}May we deploy?</blockquote><p>NO.</p>{GMAIL}When?</blockquote>",
        "<p>Twice indented:</p><blockquote><blockquote>NO.</blockquote></blockquote>",
    ],
)
def test_nothing_that_is_written_into_the_answered_mail_is_taken_out(answer: str) -> None:
    """People answer point by point, above, below and inside: nothing tells their words from the quoted ones."""
    assert fold_html(answer) == answer


@pytest.mark.parametrize(
    "hidden",
    [
        '<!--<blockquote type="cite"><blockquote type="cite">-->',
        '<style>/*<blockquote type="cite"><blockquote type="cite">*/</style>',
        '<textarea hidden><blockquote type="cite"><blockquote type="cite"></textarea>',
        "<p title='<blockquote type=cite><blockquote type=cite>'></p>",
        f"<!--{HEAD}one{HEAD}two-->",
    ],
)
def test_what_only_looks_like_a_quote_takes_nothing_out(hidden: str) -> None:
    """The person would read what stands behind it, and the agent would not."""
    assert shown(fold_html(f"<p>All fine.</p>{hidden}<p>But do NOT deploy.</p>")) == "All fine. But do NOT deploy."


@pytest.mark.parametrize(
    "html",
    [
        f"{STYLE}{HEAD}",
        '<blockquote type="cite"><blockquote type="cite">only a quote</blockquote></blockquote>',
        "<p><b>From:</b> here to there</p><p><b>From:</b> there to here</p>",
        "<p>Nothing is quoted.</p>",
    ],
)
def test_nothing_is_folded_if_nothing_would_be_left_or_nothing_is_quoted(html: str) -> None:
    """An empty message says less than an old one."""
    assert fold_html(html) == html


def test_a_long_mail_is_folded_too() -> None:
    """What mail programs write is never too much to be looked through, however long."""
    row = '<tr><td class="x"><p class="MsoNormal"><b>a</b><br>b<img src="cid:1"><o:p></o:p></p></td></tr>'
    quote = '<blockquote type="cite">before<blockquote type="cite">long ago</blockquote></blockquote>'

    assert "long ago" not in fold_html(f"{OWN}<table>{row * 2_000}</table>{quote}")


def test_words_behind_a_folded_quote_are_kept() -> None:
    """Where a quote ends is where the parser says, and what follows was written now."""
    quote = '<blockquote type="cite">before<blockquote type="cite">long ago</blockquote></blockquote>'

    assert shown(fold_html(f"<p>Hello</p>{quote}<p>yes</p>{quote}<p>no</p>")) == (
        f"Hello before {FOLDED} yes before {FOLDED} no"
    )


def test_an_answer_in_plain_text_is_folded() -> None:
    """Not every mail is markup."""
    text = "My words.\n\nAnn wrote:\n> before\n>> long\n> > ago\n> NO.\nMore."

    assert fold_plain(text) == f"My words.\n\nAnn wrote:\n> before\n{FOLDED}\n> NO.\nMore."
    head = "From: A\nSent: B\nSubject: C"
    assert fold_plain(f"Mine.\n{head}\nbefore\nNO.") == f"Mine.\n{head}\nbefore\nNO."
    assert fold_plain(f"Mine.\n--- Original Message ---\n{head}\nbefore\n{head}\nlong ago") == (
        f"Mine.\n--- Original Message ---\n{head}\nbefore\n{FOLDED}"
    )
    assert fold_plain(">> only\n>> quoted") == ">> only\n>> quoted"


def test_above_all_quotes_nothing_quoted_is_left() -> None:
    """What ends like an answer of ours may be somebody's answer to it: only their own words tell."""
    for quote in (HEAD + "old", ON_THE_WEB + "old", "<blockquote>old</blockquote>", f"{GMAIL}old</blockquote></div>"):
        own = shown(above_quotes_html(f"<p>Do it.</p>{quote}")).replace(FOLDED, "").replace("Ann wrote:", "")
        assert own.replace("---", "").strip() == "Do it."
    assert above_quotes_plain("Do it.\n> old\nFrom: A\nSent: B\nSubject: C\nold") == f"Do it.\n{FOLDED}\n{FOLDED}"


@pytest.mark.parametrize(
    ("subject", "has_original", "expected"),
    [
        ("Re: Plan", False, True),
        ("AW: Plan", False, True),
        ("Plan", True, True),
        ("Plan", False, False),
        ("Fwd: Plan", True, False),
        ("WG: Plan", True, False),
        ("Report: Plan", False, False),
    ],
)
def test_only_an_answer_is_folded(subject: str, *, has_original: bool, expected: bool) -> None:
    """In a forwarded mail the earlier mail is what is said, and a first mail quotes nothing that we know."""
    assert is_answer(subject, has_original=has_original) is expected


@pytest.mark.parametrize(
    "hostile",
    [
        "<div " * 80_000,
        "<div>" * 80_000,
        "<div>" * 490 + "<p>x</p>" * 2_000 + "<a><p></a>" * 2_000,
        "<div><table><td></div>" * 17_000,
        "<blockquote>" * 30_000,
        "<blockquote type=cite>" * 15_000,
        "<blockquote type=cite><p>x</blockquote>" * 10_000,
        "<b>From:" * 50_000,
        "<b>From: Sent: " * 25_000,
        "<p>From: Sent: Subject:</p>" * 14_000,
        "<div class=gmail_quote></div>" * 13_000,
        "<" * 390_000,
        "<b " + "a" * 390_000,
        "<!--" * 90_000,
    ],
)
def test_folding_takes_no_longer_than_reading(hostile: str) -> None:
    """A stranger must not be able to stop the daemon with one mail."""
    with costs_at_most(1_500):
        for fold in (fold_html, above_quotes_html):
            fold(hostile)
        for fold_lines in (fold_plain, above_quotes_plain):
            fold_lines(hostile.replace("<b>", "\n").replace("<p>", "\n"))


@given(st.lists(PIECES, max_size=25).map("".join))
def test_folding_only_ever_takes_out(html: str) -> None:
    """Whatever a mail holds, nothing appears in it that was not there, and what is gone is noted."""
    before, after = shown(html), shown(fold_html(html))
    left = iter(before.split())

    assert all(word in left for word in after.replace(FOLDED, "").split())
    assert before == after or FOLDED in fold_html(html)


@given(st.text(alphabet="> \nab:", max_size=60))
def test_folding_plain_text_only_ever_takes_out(text: str) -> None:
    """Lines stay as they are and in their order."""
    left = iter(text.splitlines())

    assert all(line == FOLDED or line in left for line in fold_plain(text).splitlines())
