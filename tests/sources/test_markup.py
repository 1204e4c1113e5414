"""Markdown on its way out: a few tags, nothing that acts, nothing that loads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.sources.answers import MAX_MARKED_UP, MAX_NESTED, closing_line, to_html

TAG = re.compile(r"<\s*/?\s*([a-zA-Z0-9]+)([^>]*)>")
KNOWN = re.compile("a|blockquote|br|code|em|h[1-6]|hr|li|ol|p|pre|s|strong|table|tbody|td|th|thead|tr|ul")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a** *b* ~~c~~ `d`", "<p><strong>a</strong> <em>b</em> <s>c</s> <code>d</code></p>"),
        ("a\nb", "<p>a<br>\nb</p>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>'),
        ("```py\nx < 1\n```", "<pre><code>x &lt; 1\n</code></pre>"),
        ("[a](https://example.test/x?y=1)", '<p><a href="https://example.test/x?y=1">a</a></p>'),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
        ("<img src=x onerror=y>", "<p>&lt;img src=x onerror=y&gt;</p>"),
        ('<at id="0">Ann</at>', '<p>&lt;at id="0"&gt;Ann&lt;/at&gt;</p>'),
    ],
)
def test_markdown_becomes_what_the_services_show(text: str, html: str) -> None:
    """Agents write Markdown; people must see neither its signs nor markup of the agent's own."""
    assert to_html(text) == html


def test_a_picture_is_not_loaded() -> None:
    """Whoever can make an agent name a picture would learn when it is read, and could be told things by its address."""
    assert "<img" not in to_html("![x](https://example.test/secret)")


def test_a_very_long_text_is_sent_as_it_is() -> None:
    """Marking it up would take too long, and losing it would be worse."""
    made = to_html("<b>\n" * MAX_MARKED_UP)

    assert made.startswith("<p>&lt;b&gt;<br>&lt;b&gt;<br>")


def test_the_closing_line_is_plain() -> None:
    """A name may stand in it."""
    assert closing_line("for <Ann>\n& Bea") == "<p><em>for &lt;Ann&gt; &amp; Bea</em></p>"


@given(st.text(alphabet=st.sampled_from("<>/ab&\"'()[]!*_`~#-|:=\n\\ "), max_size=120) | st.text(max_size=200))
def test_nothing_but_known_tags_gets_out(text: str) -> None:
    """Whatever an agent was talked into, the markup that leaves can do nothing."""
    for name, attributes in TAG.findall(to_html(text)):
        assert KNOWN.fullmatch(name)
        assert re.fullmatch(r'(?: (?:href="(?:https?|mailto):[^"]*"|start="\d+"))?', attributes)


@pytest.mark.parametrize("depth", [7, MAX_NESTED - 1, MAX_NESTED, MAX_NESTED * 3])
def test_no_word_is_lost_however_deep_it_stands(depth: int) -> None:
    """An agent may write lists in lists in quotes: a renderer that gives up must not swallow what is said there."""
    items = to_html("\n".join(f"{'  ' * level}- word{level}." for level in range(depth)))
    quoted = to_html(f"{'>' * depth} deep")
    assert all(f"word{level}." in items for level in range(depth))
    assert "deep" in quoted
