"""Secrets that people and machines paste into messages, replaced by what they were.

Known shapes of credentials, not entropy: a harmless text stays as it is. Runs after `sanitise`, so that a token cannot
be split by invisible characters. Every pattern is linear: what follows a run of characters is none of them, and a
failed attempt never looks further than the next place where another could begin. Private keys have many lines: the
edges of all blocks are found in one pass, an END belongs to the nearest BEGIN that is still open, and of a key that was
cut what is left is found as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

MIN_PASSWORD = 6
MIN_TOKEN = 16
MIN_LETTERS = 4  # a date has one


@dataclass(frozen=True, slots=True)
class RedactedText:
    """A text without secrets, and how many there were."""

    text: str
    count: int


class _SecretPattern(NamedTuple):
    """A shape and what to call it; group `value` is the secret, else the whole match.

    One of the hints (in lower case) is in every text that has the shape: most texts need no closer look. `is_secret`
    is a last look at the value.
    """

    kind: str
    hints: tuple[str, ...]
    shape: re.Pattern[str]
    is_secret: Callable[[str], bool] | None = None


_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+")
_REFERENCE = ("$", "%", "{", "<", "[", "(", "*", "/", "./", "~", "http:", "https:", "env:", "file:", "keyring:", "xxx")


def _is_mixed(value: str) -> bool:
    """Whether a value is no word of a language: digits among letters, or capitals inside."""
    has_digit = any(character.isdigit() for character in value)
    has_letter = any(character.isalpha() for character in value)
    inner = value[1:]
    return (has_digit and has_letter) or ("=" in value) or (inner != inner.lower() and inner != inner.upper())


def _is_key(value: str) -> bool:
    return any(character.isdigit() for character in value) and any(character.isupper() for character in value)


def _is_value(value: str) -> bool:
    """Whether what is assigned is a value itself, and no reference, call or placeholder."""
    if value.lower().startswith(_REFERENCE) or any(mark in value for mark in "([{"):
        return False
    return _CODE.fullmatch(value) is None


def _is_password(value: str) -> bool:
    if not _is_value(value) or not any(character.isalpha() for character in value):
        return False
    return any(character.isdigit() or character in "!@#$%^*+?" for character in value)


def _is_token(value: str) -> bool:
    letters = sum(character.isalpha() for character in value)
    return _is_value(value) and letters >= MIN_LETTERS and any(character.isdigit() for character in value)


def _is_given(value: str) -> bool:
    return not value.startswith(("$", "{", "<", "[", "*", "%"))


_ASSIGN = r"[\"']?[ \t]{0,8}(?:=>|:=|[:=])[ \t]{0,8}[\"'`]?"
_VALUE = r"(?P<value>[^\s\"'`,;&<>)}\]]{%d,})"
_START = r"(?<![A-Za-z0-9])"

_PATTERNS = (
    _SecretPattern("harken token", ("harken_",), re.compile(_START + r"harken_[A-Za-z0-9_\-]{40,}")),
    _SecretPattern(
        "github token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(_START + r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ),
    _SecretPattern(
        "gitlab token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "glcbt-", "glimt-", "glagent-"),
        re.compile(_START + r"gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent)-[A-Za-z0-9_.\-]{20,}"),
    ),
    _SecretPattern(
        "slack token", ("xox", "xapp-"), re.compile(_START + r"(?:xox[a-z]|xapp)-[A-Za-z0-9\-]{10,}"), _is_mixed
    ),
    _SecretPattern(
        "slack webhook", ("hooks.slack.com",), re.compile(r"hooks\.slack\.com/services/(?P<value>[A-Za-z0-9/]{20,})")
    ),
    _SecretPattern(
        "aws access key", ("akia", "asia"), re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")
    ),
    _SecretPattern(
        "aws secret key",
        ("secret",),
        re.compile(
            r"(?i:secret[_-]?(?:access[_-]?)?key)" + _ASSIGN + r"(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
        ),
    ),
    _SecretPattern("google api key", ("aiza",), re.compile(_START + r"AIza[A-Za-z0-9_\-]{35}(?![A-Za-z0-9])")),
    _SecretPattern(
        "google token", ("ya29.", "gocspx-"), re.compile(_START + r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_.\-]{20,}")
    ),
    _SecretPattern("api key", ("sk-",), re.compile(_START + r"sk-[A-Za-z0-9_\-]{20,}"), _is_key),
    _SecretPattern(
        "stripe key",
        ("k_live_", "k_test_", "whsec_"),
        re.compile(_START + r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{10,}"),
    ),
    _SecretPattern("npm token", ("npm_",), re.compile(_START + r"npm_[A-Za-z0-9]{30,}")),
    _SecretPattern("pypi token", ("pypi-",), re.compile(_START + r"pypi-[A-Za-z0-9_\-]{40,}")),
    _SecretPattern(
        "jwt",
        ("eyj",),
        re.compile(r"(?<![A-Za-z0-9_\-])eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"),
    ),
    _SecretPattern(
        "authorization",
        ("authorization",),
        re.compile(
            r"(?i:authorization)" + _ASSIGN + r"(?i:basic|bearer|token|digest|apikey|negotiate)[ \t]{1,8}"
            r"(?P<value>[^\s\"'`,;<>\[]{8,})"
        ),
        _is_mixed,
    ),
    _SecretPattern(
        "authorization", ("authorization",), re.compile(r"(?i:authorization)" + _ASSIGN + _VALUE % MIN_TOKEN), _is_token
    ),
    _SecretPattern(
        "bearer token",
        ("bearer",),
        re.compile(_START + r"(?i:bearer)[ \t]{1,8}(?P<value>[A-Za-z0-9\-._~+/]{16,}=*)"),
        _is_mixed,
    ),
    _SecretPattern(
        "azure key", ("key=",), re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{40,}=*)")
    ),
    _SecretPattern("signature", ("sig=",), re.compile(r"[?&;]sig=(?P<value>[A-Za-z0-9%+/=_\-]{20,})")),
    _SecretPattern(
        "password",
        ("@",),
        re.compile(_START + r"[A-Za-z][A-Za-z0-9+.\-]{1,30}://[^\s:/@\"'<>]{0,256}:(?P<value>[^\s@/\"'<>]{1,256})@"),
        _is_given,
    ),
    _SecretPattern(
        "password",
        ("passw", "passphrase", "pwd"),
        re.compile(r"(?i:passw(?:or)?d|passphrase|pwd)" + _ASSIGN + _VALUE % MIN_PASSWORD),
        _is_password,
    ),
    _SecretPattern(
        "secret",
        ("secret", "key", "token"),
        re.compile(
            r"(?i:secret(?:[_-]?key)?|api[_-]?key|access[_-]?key|private[_-]?key|token)" + _ASSIGN + _VALUE % MIN_TOKEN
        ),
        _is_token,
    ),
)


def _any_of(hints: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of some words; by their first letters, because most places fit none of these."""
    groups = groupby(sorted(hints), key=lambda hint: hint[0])
    return re.compile(
        "|".join(
            f"{re.escape(letter)}(?:{'|'.join(re.escape(hint[1:]) for hint in group)})" for letter, group in groups
        )
    )


_KEY_HINT = "-----begin "
_ANY_HINT = _any_of({_KEY_HINT, *(hint for pattern in _PATTERNS for hint in pattern.hints)})


def redact(text: str) -> RedactedText:
    """Replace every secret by `[redacted: kind]`. Idempotent, and linear in the length of the text."""
    count, lowered = 0, text.lower()
    # Looked for at once: asking for each hint by itself was a tenth of what accepting a message cost.
    if _ANY_HINT.search(lowered) is None:
        return RedactedText(text, 0)
    if _KEY_HINT in lowered:
        # First, because whatever else is found inside a key belongs to it.
        text, count = _replace(text, "private key", find_private_keys(text))
    for pattern in _PATTERNS:
        if any(hint in lowered for hint in pattern.hints):
            text, found = _replace(text, pattern.kind, _find(pattern, text))
            count += found
    return RedactedText(text, count)


def _find(pattern: _SecretPattern, text: str) -> list[tuple[int, int]]:
    group = "value" if "value" in pattern.shape.groupindex else 0
    return [
        match.span(group)
        for match in pattern.shape.finditer(text)
        if pattern.is_secret is None or pattern.is_secret(match[group])
    ]


def _replace(text: str, kind: str, spans: Sequence[tuple[int, int]]) -> tuple[str, int]:
    if not spans:
        return text, 0
    pieces, done = list[str](), 0
    for start, end in spans:
        pieces += [text[done:start], f"[redacted: {kind}]"]
        done = end
    return "".join([*pieces, text[done:]]), len(spans)


_EDGE: Final = re.compile(r"-----(?P<kind>BEGIN|END) (?P<label>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?")
# Between two lines: white space, the marks of a quoted mail, and line ends as JSON and programs write them.
_BREAK: Final = r"[\s>]{0,200}(?:\\{1,4}[nrt][\s>]{0,200}){0,8}"
_NAME: Final = r"[A-Za-z][A-Za-z0-9\-]{1,30}: "
_HEADER: Final = re.compile(rf"{_BREAK}{_NAME}[^\n\\]{{0,200}}")
_FOLDED_HEADERS: Final = re.compile(rf"{_BREAK}{_NAME}[^\n]{{0,400}}?(?=[A-Za-z0-9+/=]{{16}})")  # all on one line
_LINE: Final = re.compile(rf"{_BREAK}[A-Za-z0-9+/=]{{16,}}")
_LAST_LINE: Final = re.compile(rf"(?=[\s\\]){_BREAK}(?P<rest>[A-Za-z0-9+/=]{{1,15}})(?=[\n\r\\\"']|$)")
_MAX_HEADERS: Final = 8


def find_private_keys(text: str) -> list[tuple[int, int]]:
    """Return from where to where the private keys are, in order and none inside another."""
    spans, still_open = list[tuple[int, int]](), list[re.Match[str]]()
    for edge in _EDGE.finditer(text):
        if edge["label"] is None:
            # Another kind of block begins or ends: no key goes on across it.
            spans += _cut_keys(text, still_open)
            still_open = []
        elif edge["kind"] == "BEGIN":
            still_open.append(edge)
        elif still_open:
            spans.append((still_open.pop().start(), edge.end()))
    spans += _cut_keys(text, still_open)
    return _outermost(spans)


def _cut_keys(text: str, beginnings: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    for beginning in beginnings:
        end = _cut_key_end(text, beginning.end())
        if end:
            yield beginning.start(), end


def _cut_key_end(text: str, begin: int) -> int:
    """Return up to where the lines of a key go that has no END; 0 if no line follows."""
    end = _lines_end(text, _headers_end(text, begin))
    if not end and (folded := _FOLDED_HEADERS.match(text, begin)):
        end = _lines_end(text, folded.end())
    if end and (last := _LAST_LINE.match(text, end)) and _is_no_word(last["rest"]):
        end = last.end()
    return end


def _headers_end(text: str, position: int) -> int:
    for _ in range(_MAX_HEADERS):
        header = _HEADER.match(text, position)
        if header is None:
            break
        position = header.end()
    return position


def _lines_end(text: str, position: int) -> int:
    end = 0
    while line := _LINE.match(text, position):
        position = end = line.end()
    return end


def _is_no_word(rest: str) -> bool:
    return any(character in "0123456789+/=" for character in rest) or rest[1:] not in (
        rest[1:].lower(),
        rest[1:].upper(),
    )


def _outermost(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    outer, done = list[tuple[int, int]](), 0
    for start, end in sorted(spans):
        if start >= done:
            outer.append((start, end))
            done = end
    return outer
