"""HTML becomes what a person would read, whatever was sent, in bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.markup import affordable
from harken.ingest.sanitise import clean
from harken.model import MAX_TEXT_BYTES, TextFormat
from tests.cost import costs_at_most

SIZE = 256_000


def text_of(html: str) -> str:
    """Return the cleaned text of some HTML."""
    return clean(html, TextFormat.HTML).text


def filled(unit: str, size: int = SIZE) -> str:
    """Return the unit over and over."""
    return (unit * (size // len(unit) + 1))[:size]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>run if a &lt; b and c &gt; d then stop</p>", "run if a < b and c > d then stop"),
        ("a < b && c > d", "a < b && c > d"),
        ("5 &amp;lt; 6", "5 &lt; 6"),
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("<div>one</div><div>two</div>", "one\ntwo"),
        ("one<br>two<br><br>four", "one\ntwo\n\nfour"),
        ("<p>one\n   two</p>", "one two"),
        ("a <b>b</b>c <i>d</i>", "a bc d"),
        ("reply 9&nbsp;to <at id='0'>Everyone</at>", "reply 9 to Everyone"),
        ("<pre>def f():\n    return 1\n\n\tx  y</pre>end", "def f():\n    return 1\n\n\tx  y\n\nend"),
        ("<codeblock><code>if x:<br>&nbsp;&nbsp;y</code></codeblock>", "if x:\n  y"),
        ("<div style='white-space: pre-wrap'>a\n  b</div>", "a\n  b"),
        ("<ul><li>one<ul><li>two</li></ul></li><li><p>three</p></li><li></li></ul>", "- one\n  - two\n- three"),
        ("<ol><li>one<li>two</ol>", "1. one\n2. two"),
        (
            "<blockquote><p>a</p><p>b<br>c</p><blockquote>d</blockquote></blockquote>e",
            "> a\n>\n> b\n> c\n>\n> > d\n\ne",
        ),
        ("<table><tr><th>A<th>B</tr><tr><td><p>1</p></td><td><p>2</p></td></tr></table>c", "A | B\n1 | 2\n\nc"),
        ("a<hr>b", "a\n---\nb"),
        ("<img alt='a cat' src='x'><img src='y'><img width=1 height=1 src='z'>", "[a cat][image]"),
        ("<emoji alt='\U0001f440'></emoji><customemoji alt='wave'></customemoji>", "\U0001f440:wave:"),
        ("<textarea>a &lt; b</textarea>", "a < b"),
    ],
)
def test_html_becomes_what_a_person_would_read(html: str, text: str) -> None:
    """Agents act on the text: code, lists, quotes and comparisons must survive the way they were meant."""
    assert text_of(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<a href='https://e.org/x'>here</a>", "here (https://e.org/x)"),
        ("<a href='https://e.org/'>https://e.org</a>", "https://e.org"),
        ("<a href='https://e.org/'>e.org</a>", "e.org"),
        ("<a href='mailto:a@e.org'>a@e.org</a>", "a@e.org"),
        ("<a href='mailto:a@e.org'>Ann</a>", "Ann (mailto:a@e.org)"),
        ("<a href='https://evil.test/'>https://bank.test/</a>", "https://bank.test/ (https://evil.test/)"),
        ("<a href='javascript:x()'>here</a>", "here"),
        ("<a href='data:text/html,x'>here</a>", "here"),
        ("<a href='https://e.org/x'></a>", ""),
        ("<p><a href='ht\ntps://e.org/ y'>here</a></p>", "here (https://e.org/y)"),
    ],
)
def test_link_shows_where_it_really_goes(html: str, text: str) -> None:
    """A link's text is the sender's claim; its target is what would be opened."""
    assert text_of(html) == text


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>x</script>",
        "<style>x</style>",
        "<!-- x -->",
        "<template>x</template>",
        "<svg><text>x</text></svg>",
        "<noscript>x</noscript>",
        "<title>x</title>",
        "<div hidden>x</div>",
        "<dialog>x</dialog>",
        "<span style='display:none'>x</span>",
        "<span style='color:red; DISPLAY : None !important'>x</span>",
        "<span style='visibility:hidden'>x</span>",
        "<span style='font-size:0'>x</span>",
        "<span style='font-size:0px'>x<em style='font-size:2em'>x</em></span>",
        "<span style='opacity:0.0'>x</span>",
        "<div style='max-height:0px;overflow:hidden'>x</div>",
        "<span style='mso-hide:all'>x</span>",
    ],
)
def test_what_a_person_would_not_see_is_left_out(hidden: str) -> None:
    """Hidden text is how instructions are slipped past the person who forwards a mail."""
    assert text_of(f"<p>before {hidden}after</p>").split() == ["before", "after"]


def test_text_with_a_real_size_inside_a_zero_size_cell_is_kept() -> None:
    """Newsletters set zero on the cell against gaps and the real size on the text."""
    assert text_of("<td style='font-size:0'><div style='font-size:13px'>seen</div></td>") == "seen"


def test_large_inline_picture_does_not_push_the_text_out() -> None:
    """Pasted pictures arrive as megabytes inside the source, in front of what was written."""
    assert text_of(f"<img alt='plan' src='data:image/png;base64,{'A' * 1_000_000}'><p>after</p>") == "[plan]\n\nafter"


HOSTILE = {
    "nested blocks": filled("<div>"),
    "20,000 nested blocks": "<div>" * 20_000,
    "ten megabytes of blocks": filled("<div>", 10_000_000),
    "ten megabytes of text": filled("x ", 10_000_000),
    "nested lists": filled("<ul><li>"),
    "lists that nest each other": filled("<dd><li>"),
    "paragraphs around blocks": filled("<p><div>"),
    "blocks in no table": filled("<tr><div>"),
    "cells of no table": filled("<td><div></td>"),
    "tables in tables": filled("<table><tr><td>"),
    "blocks that stay open": filled("<span><div></span>"),
    "blocks behind a scope": filled("<div><object></div></object>"),
    "ends in attributes": filled('<div a="</div>">'),
    "ends in comments": filled("<div><!--</div>-->"),
    "ends in titles": filled("<div><title></div></title>"),
    "ends in selects": filled("<div><select></div></select>"),
    "titles in pictures": "<svg><title>" + filled("<div>"),
    "a picture below blocks": filled("<div>", 10_000) + "<svg>" + filled("<div>"),
    "formatting opened again and again": "".join(f"<b a={n}>" for n in range(4_000)) + filled("<p>x"),
    "a little formatting opened very often": "<p>" + "".join(f"<b a={n}>" for n in range(800)) + filled("<p>x", 8_000),
    "links in blocks": filled("<a><div>"),
    "unclosed tags": filled('<a href="x'),
    "unclosed comments": filled("<!--"),
    "many attributes": "<div " + " ".join(f"a{n}=1" for n in range(30_000)) + ">",
    "attributes with brackets": "<div " + "".join(f'a{n}=">"' for n in range(30_000)) + ">",
    "ends of nothing": filled("<div>", 30_000) + filled("</x>"),
    "ends of paragraphs": filled("<div>", 30_000) + filled("</p>"),
    "a long numbered list": "<ol>" + filled("<li>x"),
    "a long row": "<table><tr>" + filled("<td>x"),
    "nested quotes": filled("<blockquote>x"),
    "only brackets": filled("<"),
    "half entities": filled("&amp"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markup_costs_little(name: str) -> None:
    """One message must not stop the daemon. Parsed whole, several of these take seconds or all the memory."""
    with costs_at_most(1_000):
        cleaned = clean(HOSTILE[name], TextFormat.HTML)
    assert len(cleaned.text.encode()) <= MAX_TEXT_BYTES


def test_mail_of_a_million_bytes_is_read_whole() -> None:
    """A report of a build, written as paragraphs, is long and harmless."""
    line = "The test of the parser failed in the second run, as it did before.\n"
    count = MAX_TEXT_BYTES // (len(line) + 1)
    cleaned = clean(f"<p style='margin:0'>{line}</p>" * count, TextFormat.HTML)
    assert cleaned.cut == 0
    assert cleaned.text.count(line.strip()) == count


def test_line_of_many_pieces_costs_no_square_of_its_length() -> None:
    """Programs wrap every word into an element of its own; added to a growing line, each would copy all before it."""
    with costs_at_most(2_000):
        cleaned = clean("<span>word</span> " * 60_000, TextFormat.HTML)
    assert cleaned.text == " ".join(["word"] * 60_000)


@pytest.mark.parametrize("name", ["nested blocks", "nested lists", "many attributes", "attributes with brackets"])
def test_what_costs_a_parser_the_square_of_its_size_is_not_affordable(name: str) -> None:
    """How fast a machine is must not decide whether the limit is found to work."""
    assert affordable(HOSTILE[name]) < 40_000


def test_markup_that_is_too_costly_is_cut_where_it_becomes_so() -> None:
    """The honest beginning is shown, and the cut is told."""
    html = "<p>hello</p>" + "<div>" * 40_000 + "deep"
    cleaned = clean(html, TextFormat.HTML)
    assert cleaned.text == f"hello\n[… {cleaned.cut} characters cut]"
    assert 10_000 < len(html) - cleaned.cut < 40_000


@pytest.mark.parametrize(
    "html",
    [
        "<p>one<p>two " * 15_000,
        "<ul>" + "<li>one <b>two</b>" * 10_000 + "</ul>",
        "<table>" + "<tr><td>a<td>b" * 12_000 + "</table>",
        "<div><table><tr><td><p>x</p></td></tr></table></div>" * 2_000,
        "<p>it's <a title='a > b' href=https://e.org/?a=1&b=2>x</a><!-- </div> --></p>" * 3_000,
        "<style>" + "p > a { color: red }\n" * 4_000 + "</style>" + "<p>text</p>" * 10_000,
    ],
)
def test_honest_markup_of_any_size_is_affordable(html: str) -> None:
    """Long mails, with the end tags that people leave out, are no attack."""
    source = html[:SIZE]
    end = affordable(source)
    assert "<" not in source[end + 1 :]


TAGS = st.sampled_from(
    [
        *["div", "p", "span", "b", "i", "a", "ul", "ol", "li", "table", "tr"],
        *["td", "th", "pre", "code", "blockquote", "br", "img", "h1", "svg", "math", "title"],
        *["style", "script", "form", "select", "template", "button", "object", "dd", "dt", "font", "tbody"],
        *["caption", "textarea", "noscript", "frameset", "body", "html", "head"],
    ]
)
PIECES = st.one_of(
    TAGS.map(lambda tag: f"<{tag}>"),
    TAGS.map(lambda tag: f"</{tag}>"),
    st.sampled_from(
        ["<a href='https://e.org'>", "<!--", "-->", "<p style='font-size:0'>", "<![CDATA[", "&lt;", "x <y"]
    ),
    st.text(max_size=6),
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_markup_gives_some_text_that_stays_the_same(html: str) -> None:
    """No tree, however broken, raises; and what comes out is clean text like any other."""
    text = text_of(html)
    assert clean(text, TextFormat.PLAIN).text == text


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P"], exclude_characters="<&"), min_size=1))
def test_words_of_a_page_are_all_in_the_text(words: str) -> None:
    """Parsing must not lose what was said."""
    assert words in text_of(f"<html><body><div><table><tr><td><p>{words}</p></td></tr></table></div></body></html>")
