"""Bytes and encoded words of a mail as text, whatever they claim to be. Pure; it raises nothing.

A charset is a claim of the sender: one that nobody knows, that is wrong, or that is no charset at all (Python knows
codecs that unpack or escape) is replaced by what the bytes look like. Above is `mime.py`.
"""

from __future__ import annotations

import binascii
import codecs
from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header
from types import MappingProxyType
from typing import Final

FALLBACK: Final = "cp1252"  # what unlabelled bytes of a mail most often are, if they are not UTF-8

_UTF_8: Final = "utf-8"
_GOOD_PER_BAD: Final = 50

# Codecs that are no charset of a mail; some of them take time that grows with the square of the text.
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem", "utf-7-imap"}
)
# What is labelled so is often written in the larger charset that contains it.
_LARGER: Final[Mapping[str, str]] = MappingProxyType(
    {"iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "ascii": _UTF_8}
)


def decode(data: bytes, charset: str) -> str:
    """Return bytes as text, in the charset they claim if that can be."""
    try:
        name = codecs.lookup(charset.strip().strip("\"'")[:40]).name if charset else _UTF_8
    except (LookupError, ValueError, TypeError):
        name = _UTF_8
    name = _LARGER.get(name, name)
    if name.replace("_", "-") in _NO_CHARSETS:
        name = _UTF_8
    for each in (name, _UTF_8):
        try:
            return data.decode(each)
        except (UnicodeError, LookupError, ValueError):
            continue
    if name != _UTF_8:
        return _replaced(data, name)
    text = data.decode(_UTF_8, "replace")
    # Cut in the middle of a letter, or with a few broken bytes, it is UTF-8 still.
    is_mostly_good = text.count("\ufffd") * _GOOD_PER_BAD <= len(text)
    return text if is_mostly_good else _replaced(data, FALLBACK)


def words(raw: str) -> str:
    """Return a header on one line, with its encoded words decoded."""
    text = _repaired(raw)
    try:
        parts = decode_header(text) if "=?" in text else [(text, None)]
    except (HeaderParseError, binascii.Error, ValueError, LookupError, IndexError):
        parts = [(text, None)]
    said = "".join(part if isinstance(part, str) else decode(part, charset or "") for part, charset in parts)
    return " ".join(said.split())


def _repaired(raw: str) -> str:
    """Return a header whose bytes were no ASCII as what they most likely say."""
    try:
        raw.encode("ascii")
    except UnicodeEncodeError:
        return decode(raw.encode("utf-8", "surrogateescape"), "utf-8")
    return raw


def _replaced(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset, "replace")
    except (UnicodeError, LookupError, ValueError):
        return data.decode("latin-1")
