"""The targets of what people write and read: settings, rules, and texts on the terminal and on the page.

A file with a mistake in it is told about in sentences that are safe to print; it is never half of a setting. Whatever a
stored text holds, the terminal gets characters that only stand there, and the page gets no markup of the sender's.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.cli.output import cut, json_text, width_of, wrapped
from harken.config.home import Home
from harken.config.load import describe, load
from harken.display import one_line, visible
from harken.errors import UserError
from harken.rules.load import InvalidRules
from harken.rules.load import load as load_rules
from harken.rules.match import RuleMatcher, mismatch
from harken.rules.prompt import render_prompt
from harken.sources.bot.settings import read_settings as read_bot
from harken.sources.imap.settings import read_settings as read_mail
from harken.sources.mcp.settings import read_settings as read_mcp
from harken.sources.teams.settings import read_settings as read_graph
from harken.sources.webhook.settings import read_settings as read_webhook
from harken.surfaces.web.page.markdown import body_of, excerpt, rendered
from tests.fuzz.target import Judge, Target, must, plain, words
from tests.rules.made import message

WIDTHS: Final = (1, 2, 20, 80)
MAX_TOLD: Final = 1_000_000
ReadSettings = Callable[[str, Mapping[str, object]], object]
SOURCES: Final[Mapping[str, ReadSettings]] = MappingProxyType(
    {
        "bot": read_bot,
        "teams": read_graph,
        "outlook": read_graph,
        "imap": read_mail,
        "mcp": read_mcp,
        "webhook": read_webhook,
    }
)
# What the page lets through of a text: elements without any power, links, and nothing that runs or loads.
_ELEMENT: Final = re.compile(r"<\s*/?\s*([a-zA-Z!?][^\s/>]*)([^>]*)>")
_HARMLESS: Final = frozenset(
    [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "span",
        "strong",
        "sup",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_ATTRIBUTE: Final = re.compile(r"([a-zA-Z:_-]+)\s*=")
_POWERLESS: Final = frozenset({"href", "class", "rel", "start", "title", "target", "align", "tabindex"})


def is_printable(text: str) -> None:
    """Look whether a text can stand on a terminal: what is there is seen, and nothing of it acts."""
    must(all(char.isprintable() or char == "\n" for char in text), "it acts on a terminal", text)


@contextmanager
def _settings() -> Iterator[Judge]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))

        def judge(data: bytes) -> str:
            home.config_file.write_bytes(data)
            try:
                loaded = load(home, {}, {})
            except UserError as exc:
                must(len(exc.message) < MAX_TOLD and exc.hint, "told too much or too little", exc.message)
                exc.message.encode()
                return "refused"
            json_text(describe(loaded))
            return _of_sources(data.decode("utf-8-sig")) or "loaded"

        yield judge


def _of_sources(text: str) -> str:
    said = tomllib.loads(text).get("sources", {})
    for name, entry in said.items():
        read = SOURCES.get(str(entry.get("kind", "mcp")))
        if read is None:
            continue
        try:
            read(name, entry)
        except UserError as exc:
            must(exc.hint, "nothing to do next", exc.message)
            return "source refused"
    return "sources" if said else ""


def _rules(data: bytes) -> str:
    try:
        found = load_rules(data)
    except InvalidRules as exc:
        must(exc.faults, "refused without a fault", data)
        for fault in exc.faults:
            is_printable(fault.sentence)
        return "refused"
    for fault in found.warnings:
        is_printable(fault.sentence)
    matcher, sample = RuleMatcher(found.rules), message()
    fitting = {candidate.rule.name for candidate in matcher.candidates(sample)}
    for rule in found.rules:
        must((rule.name in fitting) == (not mismatch(rule, sample)), "one way fits, the other does not", rule)
        render_prompt(rule.prompt, sample, "n1")
    return "fits" if fitting else "loaded"


def _terminal(data: bytes) -> str:
    text = words(data)
    is_printable(visible(text))
    line = one_line(text)
    is_printable(line)
    must("\n" not in line, "more than one line", line)
    written = json_text({"text": text, text: [text]})
    is_printable(written)
    must(json.loads(written) == {"text": text, text: [text]}, "JSON that says something else", written)
    is_printable(json_text([text], indent=2))
    for width in WIDTHS:
        must(width_of(cut(line, width)) <= width, "wider than the terminal", cut(line, width), width)
        pieces = list(wrapped(line, width))
        # A letter of two columns does not fit into one.
        must(all(width_of(piece) <= max(2, width) for piece in pieces), "wider than the terminal", pieces, width)
        must("".join("".join(pieces).split()) == "".join(line.split()), "words are lost", pieces, line)
    return "escaped" if visible(text) != text else "as it is"


def _page(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\x00", "")
    made = rendered(text).html
    for name, rest in _ELEMENT.findall(made):
        must(name.lower() in _HARMLESS, "an element with power", name, made)
        for attribute in _ATTRIBUTE.findall(re.sub(r'"[^"]*"', '""', rest)):
            must(attribute.lower() in _POWERLESS, "an attribute with power", attribute, made)
    for target in re.findall(r'href="([^"]*)"', made):
        must(target.lower().startswith(("http://", "https://", "mailto:")), "a link that runs or leads inside", target)
    body_of(text)
    must(len(excerpt(text, 40)) <= 40, "an excerpt that is too long", excerpt(text, 40))
    return "plain" if made.startswith('<div class="plain">') else "markup"


TOML_TOKENS: Final = (
    *(b"[http]\n", b"[[routes]]\n", b"[sources.x]\n", b'kind = "webhook"\n', b'kind = "imap"\n', b'kind = "teams"\n'),
    *(
        b"= 1e400",
        b"= inf",
        b"= nan",
        b"= 99999999999999999999",
        b"= 0001-01-01T00:00:00Z",
        b"= []",
        b"= {}",
        b"= true",
    ),
    *(
        b'"""',
        b"'''",
        b'secret = "env:X"\n',
        b"port = 70000\n",
        b'host = "0.0.0.0"\n',
        b"= -1",
        b'= "\\u0000"',
        b"= 24:00",
    ),
)
RULE_TOKENS: Final = (
    *(b'"rules":', b'"name":', b'"mode":"auto"', b'"contentRegex":"(?i)x{1,1000}"', b'"rateLimit":"1m"', b'"tools":[]'),
    *(
        b'"quietHours":"22:00-06:00"',
        b"(?P<",
        b"\\\\p{Greek}",
        b"[^",
        b"{{content}}",
        b'"timeout":"0s"',
        b'"maxTurns":1e9',
    ),
)
PAGE_TOKENS: Final = (
    *(
        b"[a](javascript:x)",
        b"![a](https://x)",
        b"<script>",
        b"<a onclick=x>",
        b"```\n",
        b"|a|b|\n|-|-|\n",
        b"> ",
        b"# ",
    ),
    *(
        b"<https://x.example>",
        b"[a]: data:text/html,x\n",
        b"&#x6a;avascript:",
        b"**",
        b"~~",
        b"1. ",
        b"- ",
        b"\\",
        b"`",
    ),
)
TARGETS: Final = (
    Target(
        name="config",
        opened=_settings,
        reaches=frozenset({"loaded", "refused", "sources", "source refused"}),
        tokens=TOML_TOKENS,
    ),
    Target(name="rules", opened=plain(_rules), reaches=frozenset({"fits", "loaded", "refused"}), tokens=RULE_TOKENS),
    Target(name="terminal", opened=plain(_terminal), reaches=frozenset({"escaped", "as it is"})),
    Target(name="page", opened=plain(_page), reaches=frozenset({"markup", "plain"}), tokens=PAGE_TOKENS),
)
